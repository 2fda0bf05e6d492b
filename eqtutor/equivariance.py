"""The meter of equivariance: one relative error for each element of a group, a test that refuses to
prove nothing, and weights moved as training would move them (chapter 04)."""
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import torch
from torch import Tensor, nn

from .actions import ALL_KINDS, KINDS, act, check_kind, disc, keeps_grid
from .groups import Group, get_group


@contextmanager
def unchanged(
    f:Callable,
)->Iterator[None]:
    """Put the buffers of a module back as they were, running statistics for instance.

    Parameters
    ----------
    f : Callable
        a module, a method of one, a map of `up_to`; or a plain function, which has
        nothing to restore
    """
    net = f if isinstance(f, nn.Module) else getattr(f, '__self__', None)
    buffers = list(net.buffers()) if isinstance(net, nn.Module) else []
    copies = [b.clone() for b in buffers]
    try: yield
    finally:
        for b, copy in zip(buffers, copies): b.copy_(copy)


def _kind(y:Tensor, kind:str|None)->str:
    "The kind of an output: as stated, else read from its shape."
    if kind is None and y.ndim not in KINDS:
        kinds, shape = ', '.join(ALL_KINDS), tuple(y.shape)
        raise ValueError(f'an output of shape {shape} is none of {kinds}: say kind=…')
    kind = kind or KINDS[y.ndim]
    check_kind(y, kind)
    return kind

def _has_places(y:Tensor, kind:str)->bool:
    return kind in ('image', 'feature map') or kind == 'vector' and y.ndim == 4

def _difference(
    group:Group,
    h:int,
    moved:Tensor,
    y:Tensor,
    kind:str,
    margin:float|None,
)->Tensor:
    "f(hx) − h f(x); off the grid compared inside a disc only."
    want = act(group, h, y, kind)
    if moved.shape != want.shape:
        shape, other = tuple(moved.shape), tuple(want.shape)
        raise ValueError(
            f'f(hx) has shape {shape} but h f(x) has {other} at element {h} of '
            f'{group.name}: the output size depends on the orientation')
    if margin is None or not _has_places(y, kind): return moved - want
    rows, cols = want.shape[-2:]
    mask = disc(rows, cols, margin).to(want)
    if not mask.any():
        raise ValueError(f'margin {margin} leaves no pixel of an output of '
                         f'{rows}×{cols} to compare: choose a smaller one')
    return (moved - want)*mask


def relative_error(
    group:Group,
    h:int,
    moved:Tensor,
    y:Tensor,
    kind:str|None=None,
    margin:float|None=None,
)->float:
    """max|f(hx) − h f(x)| / max|f(x)| from the two outputs.

    Parameters
    ----------
    group : Group
    h : int
        group element
    moved : Tensor
        f(hx)
    y : Tensor
        f(x)
    kind : str | None, default None
        of the output: 'image', 'feature map', 'vector on H', 'invariant', read from its
        shape if None; or 'vector', arrows of two channels each
    margin : float | None, default None
        compare inside the largest disc less so many pixels (for turns off the grid)
    """
    difference = _difference(group, h, moved, y, _kind(y, kind), margin)
    return difference.abs().max().item()/(y.abs().max().item() or 1.)


@torch.no_grad()
def equivariance_error(
    f:Callable[[Tensor], Tensor],
    x:Tensor,
    group:Group|str,
    kind:str|None=None,
    margin:float|None=None,
    input_kind:str|None=None,
)->list[float]:
    """Relative equivariance error, one a group element: max|f(hx) − h f(x)| / max|f(x)|.

    Parameters
    ----------
    f : Callable[[Tensor], Tensor]
        a layer or network
    x : Tensor
        input: image `(b, c, h, w)` or feature map `(b, c, |H|, h, w)`
    group : Group | str
    kind : str | None, default None
        of the output: 'image', 'feature map', 'vector on H', 'invariant', read from its
        shape if None; or 'vector', arrows of two channels each
    margin : float | None, default None
        compare inside the largest disc less so many pixels (for turns off the grid)
    input_kind : str | None, default None
        of the input, in the same words
    """
    group = get_group(group)
    with unchanged(f):
        y = f(x.clone())   # a copy: layers may work in place
        def error(h:int)->float:
            moved = f(act(group, h, x, input_kind).clone())
            return relative_error(group, h, moved, y, kind, margin)
        return [error(h) for h in group.elements]


TOLERANCE = {
    torch.float64: 1e-10, torch.complex128: 1e-10,
    torch.float32: 1e-4, torch.complex64: 1e-4,
    torch.float16: 2e-2, torch.bfloat16: 1e-1,
}

def tolerance(y:Tensor)->float:
    "The largest relative error that is rounding: float64 1e-10, float32 1e-4, …."
    if y.dtype in TOLERANCE: return TOLERANCE[y.dtype]
    raise ValueError('equivariance is measured on floating-point outputs, '
                     f'got {y.dtype}: look at the layer before it became integers')

def _vacuous(
    f:Callable,
    x:Tensor,
    y:Tensor,
    group:Group,
    kind:str,
    input_kind:str|None,
    tol:float,
)->str:
    "Why the test would pass for a reason that is not equivariance; '' if it would not."
    def fixed(spread:Tensor)->bool: return bool(spread.max() <= tol*y.abs().max())
    def is_still(h:int)->bool: return torch.equal(act(group, h, x, input_kind), x)
    if (h := next(filter(is_still, group.elements[1:]), 0)):
        words = f'{h} ({group.describe(h)})'
        return f'the input does not change under element {words}; use a random one'
    if not (y.isfinite().all() and x.isfinite().all()):
        return 'the input or output holds NaN or infinity'
    if fixed(y.abs()): return 'the output is zero'
    if fixed((f(torch.zeros_like(x)) - y).abs()):
        return 'the output does not depend on the input'
    if _has_places(y, kind) and y.shape[-1]*y.shape[-2] > 1:
        if fixed(y.amax((-1, -2)) - y.amin((-1, -2))):
            return 'the output is constant over space'
    if kind in ('feature map', 'vector on H') and len(group) > 1:
        if fixed(y.amax(2) - y.amin(2)):
            return 'the output is constant over the group axis'
    return ''

def _as_arrows(f:Callable, x:Tensor, y:Tensor, group:Group, tol:float, **told)->str:
    "What to say of two channels that may be an arrow, or are none; '' without such."
    kind, input_kind = told['kind'], told['input_kind']
    def readings(t:Tensor, given:str|None)->list[str|None]:
        return ['image', 'vector'] if t.ndim == 4 and t.shape[1] == 2 else [given]
    for other, of_input in product(readings(y, kind), readings(x, input_kind)):
        asked = told | dict(kind=other, input_kind=of_input)
        if not max(equivariance_error(f, x, group, **asked)) <= tol: continue
        if kind == 'vector' and other == 'image':
            return (' It is, if its two channels are two scalars: no arrow comes out. '
                    'End with VectorProjectionConv2d of eqtutor.nn.')
        words = [f"{name}={value!r}" for name, value, before in (
            ('kind', other, kind), ('input_kind', of_input, input_kind or 'image'))
            if value not in (before, None)]
        return (f' It is with {", ".join(words)}: two channels are an arrow only '
                'where that is said.')
    if len(readings(y, kind)) == 1 or kind == 'vector': return ''
    return (" Two channels were read as two scalars; if they are an arrow, say "
            "kind='vector' (chapter 98, 'My output is a field').")

def _worst(difference:Tensor, moved:Tensor, want:Tensor, kind:str)->str:
    "Where layer(h f) and h layer(f) differ most, and their values there."
    place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), want.shape))
    values = f'layer(h f) = {moved[place]:.4g}, h layer(f) = {want[place]:.4g}'
    return f'worst at index {place} of the {kind}: {values}'


def _between_pixels(group:Group, h:int, margin:float|None)->str:
    "What pixels allow under an element that maps them between each other."
    if keeps_grid(group, h): return ''
    inside = '' if margin is not None else ' inside a disc (margin=8, say),'
    return (f' This element of {group.name} turns the picture between its pixels, '
            'where no layer is exact (Theorem 26.4); those that keep the grid passed. '
            'A fair test takes a smooth picture, since noise has nothing between its '
            f'pixels,{inside} and tol=0.2: two layers of the library then err by 0.02 '
            'to 0.1.')


@torch.no_grad()
def assert_equivariant(
    f:Callable[[Tensor], Tensor],
    x:Tensor,
    group:Group|str,
    tol:float|None=None,
    kind:str|None=None,
    margin:float|None=None,
    input_kind:str|None=None,
)->None:
    """Raise an `AssertionError` if `f` breaks the symmetry, or the test is vacuous.

    Parameters
    ----------
    f : Callable[[Tensor], Tensor]
        a layer or network
    x : Tensor
        input: image `(b, c, h, w)` or feature map `(b, c, |H|, h, w)`
    group : Group | str
    tol : float | None, default None
        largest relative error; if None by dtype: float64 1e-10, float32 1e-4
    kind : str | None, default None
        of the output; read from its shape if None
    margin : float | None, default None
        compare inside the largest disc less so many pixels
    input_kind : str | None, default None
        of the input; 'vector' where it holds arrows
    """
    group = get_group(group)
    with unchanged(f):
        y = f(x.clone())
        runs = [f(act(group, h, x, input_kind).clone()) for h in group.elements]
        kind, tol = _kind(y, kind), tolerance(y) if tol is None else tol
        if why := _vacuous(f, x, y, group, kind, input_kind, tol):
            raise AssertionError(f'this test of equivariance to {group.name} '
                                 f'would prove nothing: {why}.')
    # first the elements that the pixels bear: a fault there has no excuse
    for h in sorted(group.elements, key=lambda h: not keeps_grid(group, h)):
        moved = runs[h]
        difference = _difference(group, h, moved, y, kind, margin).abs()
        error = (difference.max()/y.abs().max()).item()
        if error <= tol: continue
        worst = _worst(difference, moved, act(group, h, y, kind), kind)
        hint = ' The identity fails: f is random, call .eval().' if h == 0 else (
            _between_pixels(group, h, margin)
            or _as_arrows(f, x, y, group, tol, kind=kind, input_kind=input_kind,
                          margin=margin))
        raise AssertionError(
            f'not equivariant to {group.name}: relative error {error:.1e} > {tol:.0e} '
            f'at element {h} ({group.describe(h)}), {worst}.{hint}')


def symmetries(
    f:Callable[[Tensor], Tensor],
    x:Tensor,
    group:Group|str,
    tol:float|None=None,
    kind:str|None=None,
    input_kind:str|None=None,
)->tuple[int, ...]:
    """The elements of `group` that commute with `f` on `x`: a subgroup (Prop. 4.3).

    Parameters
    ----------
    f : Callable[[Tensor], Tensor]
        a layer or network
    x : Tensor
        input
    group : Group | str
        where to look for symmetries
    tol : float | None, default None
        by dtype if None
    kind : str | None, default None
        of the output; read from its shape if None
    input_kind : str | None, default None
        of the input; 'vector' where it holds arrows
    """
    tol = tolerance(x) if tol is None else tol
    errors = equivariance_error(f, x, group, kind, input_kind=input_kind)
    return tuple(h for h, e in enumerate(errors) if e <= tol)


@torch.no_grad()
def perturb_(
    module:nn.Module,
    scale:float=.5,
    seed:int=0,
)->nn.Module:
    """Move every floating entry of the `state_dict` at random; variances stay positive.

    Parameters
    ----------
    module : nn.Module
    scale : float, default 0.5
        of the noise, relative to each tensor's spread (to 1 where all entries are
        equal)
    seed : int, default 0
    """
    draw = torch.Generator().manual_seed(seed)
    for name, t in module.state_dict().items():
        if not t.is_floating_point(): continue
        normal = torch.randn(t.shape, generator=draw, dtype=torch.float64, device='cpu')
        noise = scale*normal.to(t)
        if name.endswith('running_var'):
            t.mul_(noise.exp())
            continue
        varies = t.numel() > 1 and t.max() > t.min()   # std > 0 may be rounding
        t.add_(noise*(t.std() if varies else 1))
    return module
