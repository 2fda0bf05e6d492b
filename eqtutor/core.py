"""What the layers of this course share: checks that answer, index tables that are where the weights
are, and filters that move."""
# Plain module: edited by hand, no notebook exports it.

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .actions import act
from .groups import Group


def one_of(
    value:str,
    *allowed:str, # what it may be
)->str:
    "`value`, if it is one of the allowed words; otherwise an error that lists them."
    if value in allowed: return value
    raise ValueError(f'expected one of {", ".join(map(repr, allowed))}, got {value!r}')

def square_sizes(
    **sizes, # by the name to use in the message
)->list:
    """The sizes, each as one number: of a pair of equal ones, `(3, 3)`, the one.

    What is no pair is handed on as it is, for the checks below. Two numbers that differ are a
    `ValueError`: a quarter turn swaps rows and columns.
    """
    for name, n in sizes.items():
        if not isinstance(n, (tuple, list)): continue
        if len(n) == 2 and n[0] == n[1]: continue
        raise ValueError(f'{name} must be one number, or two equal ones (windows are square: '
                         f'a quarter turn swaps rows and columns), got {n!r}')
    return [n[0] if isinstance(n, (tuple, list)) else n for n in sizes.values()]

def check_positive(
    **sizes:int, # by the name to use in the message
)->None:
    "Raise a `ValueError` unless every size is a positive int."
    for name, n in sizes.items():
        if not isinstance(n, bool) and isinstance(n, int) and n > 0: continue
        raise ValueError(f'{name} must be a positive int (windows are square), '
                         f'got {n!r}')

def check_not_negative(
    **sizes:int, # by the name to use in the message
)->None:
    "Raise a `ValueError` unless every size is an int of at least 0."
    for name, n in sizes.items():
        if not isinstance(n, bool) and isinstance(n, int) and n >= 0: continue
        raise ValueError(f'{name} must be an int ≥ 0 (all sides are treated alike), '
                         f'got {n!r}')

def check_odd(
    **sizes:int, # by the name to use in the message
)->None:
    "Raise a `ValueError` unless every size is a positive odd int."
    check_positive(**sizes)
    for name, k in sizes.items():
        if k % 2: continue
        raise ValueError('a window needs a pixel in its middle: expected an odd '
                         f'{name}, got {k}; use {k - 1} or {k + 1}')

def check_divides(
    part:str,    # the divisor's name, for the message
    by:int,      # the divisor
    **sizes:int, # by the name to use in the message
)->None:
    "Raise a `ValueError` unless every size is divisible by `by`; all are positive."
    for name, n in sizes.items():
        if n % by == 0: continue
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        raise ValueError(f'expected {name} to be divisible by {part}, got {name}={n} '
                         f'and {part}={by}; {part} may be one of {divisors}')

def shown_group(
    group:Group,
)->str:
    "The name, as a layer shows it; with a warning for a group that pixels bear only nearly."
    return group.name if group.is_grid else f'{group.name} (approximate: turns between pixels)'

def check_grid(
    group:Group,
    why:str,     # what a group off the grid would do to windows, for the message
)->None:
    "Raise a `ValueError` unless every element maps the square pixel grid to itself."
    if group.is_grid: return
    raise ValueError(f'{group.name} {why}: expected a subgroup of D4, such as p4 or '
                     'p4m')

def same_padding(
    padding:int|str, # pixels on each side, 'same' or 'valid'
    kernel_size:int,
    dilation:int=1,
)->int:
    "Padding in pixels; 'same' keeps the size at stride 1, which needs an odd kernel."
    whole = isinstance(padding, int) and not isinstance(padding, bool)
    if whole and padding >= 0: return padding  # type: ignore[operator,return-value]
    if padding == 'valid': return 0
    if padding != 'same':
        raise ValueError("padding must be an int ≥ 0, 'same' or 'valid', "
                         f'got {padding!r}')
    if kernel_size % 2: return dilation*(kernel_size - 1)//2
    raise ValueError(f"padding='same' with the even kernel_size {kernel_size} would "
                     'shift the image by half a pixel and break the symmetry. Expected '
                     f'an odd kernel_size: use {kernel_size - 1} or {kernel_size + 1}, '
                     'or give padding as a number.')

# what lies beyond the rim of a picture, by the names of torch's convolutions
PADDING_MODES = 'zeros', 'circular', 'reflect', 'replicate'

def pad_sides(
    x:Tensor,     # `(b, c, …, h, w)`
    padding:int,  # pixels on each side
    mode:str,     # of `PADDING_MODES`
)->Tensor:
    "The planes with a frame, alike on all sides: it commutes with the moves of a grid."
    sides, frame = x.shape[-2:], [padding]*4
    if not padding: return x
    if mode == 'zeros': return F.pad(x, frame)
    most = min(sides) - (mode == 'reflect')   # pixels to mirror, without the rim's own; to repeat
    if padding > most and mode != 'replicate':
        raise ValueError(f'padding_mode={mode!r} takes its frame from the picture: {padding} '
                         f'pixels on each side expect at least {padding + (mode == "reflect")} '
                         f'rows and columns, got {sides[0]}×{sides[1]}')
    return F.pad(x.flatten(1, -3), frame, mode).unflatten(1, x.shape[1:-2])

# layers whose family lifts otherwise than LiftingConv2d does, and the way back
LIFTS = {'GroupSelfAttention2d': 'LiftingSelfAttention2d',
         'AttentiveGroupConv2d': 'AttentiveLiftingConv2d',
         'GroupAffineSelfConv2d': 'LiftingAffineSelfConv2d',
         'GroupSimpleAffineSelfConv2d': 'LiftingAffineSelfConv2d'}
ON_GROUP = {'LiftingSelfAttention2d': 'GroupSelfAttention2d',
            'AttentiveLiftingConv2d': 'AttentiveGroupConv2d',
            'LiftingAffineSelfConv2d': 'GroupAffineSelfConv2d'}

def check_real(
    x:Tensor,
    name:str, # of the layer, for the message
)->None:
    "Raise a `ValueError` that says what to do, unless `x` holds floating-point numbers."
    if x.is_floating_point(): return
    if x.is_complex():
        raise ValueError(f'{name} expected real numbers, got {x.dtype}: give real and imaginary '
                         'part as channels')
    raise ValueError(f'{name} expected floating-point numbers, got {x.dtype}: x.float(), and for '
                     'pixels of 0 to 255 x.float()/255')

def check_feature_map(
    f:Tensor,
    name:str,     # of the layer, for the message
    channels:int, # expected on axis 1
)->None:
    "Raise a `ValueError` that says what a layer for any group expects, unless `f` is so."
    check_real(f, name)
    if f.ndim == 5 and f.shape[1] == channels: return
    hint = ' This looks like an image: begin with LiftingConv2d.' if f.ndim == 4 else ''
    raise ValueError(f'{name} expected a feature map (b, {channels}, |H|, h, w), got '
                     f'{tuple(f.shape)}.{hint}')

def check_input(
    x:Tensor,
    channels:int,       # expected on axis 1
    group:Group|None,   # expected on axis 2, or None for an image
    name:str,           # of the layer, for the message
)->None:
    "Raise a `ValueError` that says what a layer expects, unless `x` is real and so."
    check_real(x, name)
    want = (channels,) if group is None else (channels, len(group))
    if tuple(x.shape[1:-2]) == want: return
    shape, hint = f'an image (b, {channels}, h, w)', ''
    if group is None and x.ndim == 5:
        hint = (' This looks like a feature map on G: use '
                f"{ON_GROUP.get(name, 'GroupConv2d')}, or project it first.")
    if group is not None:
        shape = (f'a feature map (b, {channels}, |H|, h, w) '
                 f'with |H| = {len(group)} for {group.name}')
        if x.ndim == 4:
            lifting = LIFTS.get(name, 'LiftingConv2d')
            hint = f' This looks like an image: begin with {lifting}.'
    raise ValueError(f'{name} expected {shape}, got {tuple(x.shape)}.{hint}')

def check_image_or_map(
    x:Tensor,
    group:Group|None, # of a feature map; None: any
    name:str,         # of the layer, for the message
)->None:
    "Raise a `ValueError` unless `x` is an image, or a feature map on the group, of real numbers."
    check_real(x, name)
    if x.ndim == 4: return
    if x.ndim == 5 and (group is None or x.shape[2] == len(group)): return
    raise ValueError('expected an image (b, c, h, w) or a feature map '
                     f'(b, c, |H|, h, w){_poses(group)}, got {tuple(x.shape)}')

def check_poses(
    f:Tensor,
    group:Group|None=None, # whose poses; None: of any group
)->None:
    "Raise a `ValueError` unless `f` is a feature map with the poses of the group."
    if f.ndim == 5 and (group is None or f.shape[2] == len(group)): return
    raise ValueError(f'expected a feature map (b, c, |H|, h, w){_poses(group)}, '
                     f'got {tuple(f.shape)}')

def _poses(group:Group|None)->str:
    return '' if group is None else f' with |H| = {len(group)} for {group.name}'

def pool_sizes(
    kernel_size:int,
    stride:int|None,        # `kernel_size` if None
    padding:int,
    ceil_mode:bool=False,
)->tuple[int, int, int]:    # kernel_size, stride, padding
    "The sizes of a pool, each as one number, if a pool may have them; otherwise an error."
    if ceil_mode:
        raise ValueError('ceil_mode lays a window over the far end alone, where '
                         'pixels are left over, which is not equivariant: expected '
                         'ceil_mode=False and a size that leaves none over')
    kernel_size, stride, padding = square_sizes(
        kernel_size=kernel_size, stride=stride, padding=padding)
    if stride is None: stride = kernel_size
    check_positive(kernel_size=kernel_size, stride=stride)
    check_not_negative(padding=padding)
    if 2*padding > kernel_size:
        raise ValueError('padding is at most half the window, or one would lie '
                         f'outside: got {padding} with kernel_size={kernel_size}')
    return kernel_size, stride, padding

def check_ignored(
    ignored:Tensor|None, # the mask of an attention layer: True for places that say nothing
    x:Tensor,            # its input, `(b, …, h, w)`
)->None:
    "Raise a `ValueError` that says what a mask looks like, unless this is one, or None."
    if ignored is None: return
    want = x.shape[0], *x.shape[-2:]
    if isinstance(ignored, Tensor) and ignored.dtype == torch.bool and ignored.shape == want:
        return
    got = f'{ignored.dtype} {tuple(ignored.shape)}' if isinstance(ignored, Tensor) else ignored
    raise ValueError(f'ignored: expected a mask of the places, torch.bool {tuple(want)}, True '
                     f'where a place is to be left out, got {got}')

def once_differentiable(
    backward:Callable, # of a `torch.autograd.Function`
)->Callable:
    "A backward pass that has first derivatives only, and refuses `create_graph=True`."
    @wraps(backward)
    def checked(ctx, *grads):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError('this layer has first derivatives only: '
                               'create_graph=True (gradient penalties, Hessians) is '
                               'not supported')
        return backward(ctx, *grads)
    return checked

def transforms_active()->bool|None:
    "Is a transform of `torch.func` at work? None where this torch cannot say."
    # no name that torch promises
    ask = getattr(torch._C, '_are_functorch_transforms_active', None)
    return ask() if ask else None

def refuse_transforms(
    name:str, # of the layer
)->None:
    "Raise a `RuntimeError` inside `torch.func`, whose transforms find no rule here."
    if torch.compiler.is_compiling(): return
    if not transforms_active(): return   # or nobody knows: torch refuses, in its words
    raise RuntimeError(f'{name} has a backward pass of its own, into which vmap, grad '
                       'and the other transforms of torch.func cannot go: use '
                       'torch.autograd.grad, one image at a time where you want a '
                       'gradient for each')

def autocast_dtype(
    x:Tensor,
)->torch.dtype|None:
    "The dtype that autocast uses where a tensor lies; None if it is off."
    kind = x.device.type
    if kind == 'meta' or not torch.is_autocast_enabled(kind): return None
    return torch.get_autocast_dtype(kind)

def autocast_as(
    dtype:torch.dtype|None, # None: off
    x:Tensor,
)->AbstractContextManager:
    "A context in which autocast, where a tensor lies, is off or uses a dtype."
    if x.device.type == 'meta': return nullcontext()
    return torch.autocast(x.device.type, dtype, enabled=dtype is not None)

def each_pose(
    bias:Tensor, # `(o)`
    poses:int,
)->Tensor:       # `(o·|H|)`
    "Every entry once for each pose."
    if not torch.compiler.is_compiling(): return bias.repeat_interleave(poses)
    return bias[torch.arange(len(bias)*poses, device=bias.device)//poses]

def filter_index(
    group:Group,     # one that keeps the pixel grid
    kernel_size:int,
)->Tensor:           # `(|H|, k²)`
    "Entry p of the filter moved by h is entry `index[h, p]` of the filter."
    places = torch.arange(kernel_size**2, dtype=torch.float64)
    places = places.view(1, 1, kernel_size, kernel_size)
    return torch.stack([act(group, h, places).flatten().long() for h in group.elements])

def moved_entries(
    group:Group,
    kernel_size:int,
    slices:int,      # of a filter
)->Tensor:           # `(|H|, slices, k²)`
    """Where each entry of a filter moved by h is read: in the filter `(slices, k, k)`, flat.

    Off the grid no entry of a moved filter is one of the filter: there it is read in the filter's
    moved copies, `(|H|, slices, k, k)`, which `filter_matrices` makes.
    """
    n, pixels = len(group), kernel_size**2
    if not group.is_grid: return torch.arange(n*slices*pixels).view(n, slices, pixels)
    return filter_index(group, kernel_size)[:, None] + pixels*torch.arange(slices)[:, None]

def ring_filters(
    kernel_size:int, # odd
    matrix:Tensor,   # that moves the plane, `(2, 2)`, float64
    smooth:float=2., # pictures are alike over so many pixels,
    noise:float=1e-3,# but for so much of their variance
)->Tensor:           # `(k², n)`, float64
    """The filters that answer like 1, cos mt, sin mt on circles about the centre, moved.

    The circles have radii of 0, 1, 2, … pixels, and t is the angle on one. Radius r bears the
    orders m ≤ r + 1: more would lie between the pixels. A circle meets no pixels, so each column
    is the least-squares answer: of all filters on k×k pixels, the one nearest to it on pictures
    with a Gaussian correlation of `smooth` pixels.
    """
    side = torch.arange(-(kernel_size//2), kernel_size//2 + 1, dtype=torch.float64)
    pixels = torch.cartesian_prod(-side, side).flip(-1)   # x to the right, y up; row by row
    def alike(a, b): return torch.exp(-torch.cdist(a, b)**2/(2*smooth**2))
    t = 2*torch.pi*torch.arange(64, dtype=torch.float64)/64
    circle, columns = torch.stack([t.cos(), t.sin()], -1) @ matrix.T, []
    for radius in range(kernel_size//2 + 1):
        orders = range(1, radius + 2) if radius else ()
        waves = [torch.ones_like(t), *(f(m*t) for m in orders for f in (torch.cos, torch.sin))]
        columns.append(alike(pixels, radius*circle) @ torch.stack(waves, 1))
    noisy = alike(pixels, pixels) + noise*torch.eye(len(pixels), dtype=torch.float64)
    return torch.linalg.solve(noisy, torch.cat(columns, 1))

def filter_matrices(
    group:Group,     # any
    kernel_size:int, # odd
)->Tensor:           # `(|H|, k², k²)`, float64
    """The move of a filter as a matrix on its entries: of its part in `ring_filters`.

    The first matrix is the projection to that part; the others turn it, and together they are an
    action of the group: no turn blurs it.
    """
    k = kernel_size
    if k % 2 == 0:
        raise ValueError(f'{group.name} turns filters between pixels, which needs an '
                         f'odd kernel_size, got {k}: use {k - 1} or {k + 1} '
                         "(chapter 98, 'I want C8')")
    to_rings = torch.linalg.pinv(ring_filters(k, group.matrices[0]))
    return torch.stack([ring_filters(k, m) @ to_rings for m in group.matrices])

class FiltersOfFiveAxes(nn.Module):
    "A module that a memory format for four axes, channels_last, leaves filters of five alone in."
    def _apply(self, fn, recurse=True):
        def of_four_axes(t:Tensor)->Tensor:
            try: return fn(t)
            except RuntimeError:   # of torch, which has a format for five axes as well
                if t.ndim != 5: raise
            return fn(t.flatten()).view(t.shape)
        return super()._apply(of_four_axes, recurse)

class IndexTables(FiltersOfFiveAxes):
    "A layer with tables from its group: always where its weights are, never saved."
    def tables(self)->dict[str, Tensor]:
        "The tables by name: on the CPU, whole numbers or float64. A layer says which."
        raise NotImplementedError

    def make_tables(self)->None:
        "Compute the tables, once the layer has what they depend on."
        with torch.inference_mode(False), torch.device('cpu'):
            self.originals = self.tables()
        self._copies:dict[tuple, Tensor] = {}
        self._prefetch()

    def _prefetch(self)->None:
        "Copies for the layer's weights, so that a compiled layer need make none."
        for like in self.parameters():
            if not like.is_floating_point(): continue
            for name in self.originals: self.table(name, like)

    def table(self,
        name:str,    # as in `tables`
        like:Tensor, # a weight, or whatever the table is used with
    )->Tensor:
        "A table on the device of `like`; in its dtype, too, unless of whole numbers."
        original = self.originals[name]
        dtype = like.dtype if original.is_floating_point() else original.dtype
        key = name, like.device, dtype
        if key in self._copies: return self._copies[key]
        with torch.inference_mode(False): copy = original.to(like.device, dtype)
        tracing = torch.compiler.is_compiling() or type(copy) is not Tensor
        if not tracing: self._copies[key] = copy
        return copy

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._copies.clear()
        self._prefetch()
        return self
