"Why an operation or a layer cannot stay in a network on a group; and whether the rest turns along."
# Plain module: edited by hand, no notebook exports it.
import copy
import inspect
import math
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .actions import act
from .equivariance import perturb_, tolerance
from .groups import Group
from .report import LayerReport, layer_report
from .report.sizes import generators
from .trace import Call, Recorder, is_close, record_calls

__all__ = ['refused_operation', 'refused_layer', 'own_forward', 'normalises_channels', 'pad_layer',
           'check_converted']

_FIVE = 'and a feature map has five, (b, c, |H|, height, width)'
_POOL = 'put nn.AdaptiveAvgPool2d(1), a layer, before it: there the poses are pooled, too'
_ATTEND = 'GroupSelfAttention2d of eqtutor.nn attends to the places of a feature map'
_TOKENS = (f'lays the places out in a row, as tokens without poses: to pool, {_POOL}; '
           f'to attend, {_ATTEND}')

# --- operations of a forward method

# what a layer in the place of an operation is called with, after the input
_POOL_WINDOW = 'kernel_size', 'stride', 'padding'
_LAYER_OF:dict[str, tuple[str, tuple[str, ...]]] = {
    'max_pool2d': ('MaxPool2d', (*_POOL_WINDOW, 'dilation', 'ceil_mode')),
    'max_pool2d_with_indices': ('MaxPool2d', (*_POOL_WINDOW, 'dilation', 'ceil_mode')),
    'avg_pool2d': ('AvgPool2d', (*_POOL_WINDOW, 'ceil_mode', 'count_include_pad')),
    'adaptive_avg_pool2d': ('AdaptiveAvgPool2d', ('output_size',)),
    'adaptive_max_pool2d': ('AdaptiveMaxPool2d', ('output_size',)),
    'dropout2d': ('Dropout2d', ('p',))}
_REDUCTIONS = 'mean', 'sum', 'amax', 'amin', 'max', 'min', 'std', 'var'


def refused_operation(
    call:Call,     # of a plain network, on what will be a feature map
    after:str='feature map', # what it makes of it; 'flat': a row that a linear layer reads
)->str:
    "Why an operation cannot stay on a feature map, and what to write; '' if it can."
    args, kwargs = call.arguments
    x, name = call.inputs[0], call.name
    if code := _as_layer(call, args, kwargs):
        return f'is an operation, and only layers are exchanged: make it one, {code}'
    if x.ndim != 4: return ''
    if name == 'linear':
        return f'weighs the columns of a feature map one by one: {_POOL}'
    if name == 'matmul':
        return ('multiplies along rows and columns, which a turn exchanges: '
                'nn.Conv2d(…, 1) mixes channels')
    if name == 'permute':
        return (f'orders four axes, {_FIVE}: leave the channels at axis 1, where '
                'nn.Conv2d(…, 1) does what nn.Linear does at the end')
    if name in ('flatten', 'view', 'reshape'):
        return _in_a_row(call) if after == 'flat' else _laid_out(call)
    if why := _for_each_channel(call): return why
    if name == 'pad': return _pad(*args[1:], **kwargs)
    if name in _REDUCTIONS: return _reduction(name, *args[1:], **kwargs)
    return ''


def _as_layer(call:Call, args:Sequence[Any], kwargs:dict[str, Any])->str:
    "The layer that does what an operation with windows does; '' if it is none."
    if call.name in ('conv2d', 'conv_transpose2d'):
        weight = args[1] if len(args) > 1 else kwargs['weight']
        layer = 'Conv2d' if call.name == 'conv2d' else 'ConvTranspose2d'
        return f'an nn.{layer} with filters of {_plain(tuple(weight.shape[2:]))} pixels'
    if call.name == 'interpolate':
        factor = call.outputs[0].shape[-1]/call.inputs[0].shape[-1]
        mode = 'nearest' if kwargs.get('mode', 'nearest') == 'nearest' else 'bilinear'
        whole = f'{factor:g}' if factor == int(factor) else 'a whole number'
        return f'nn.Upsample(scale_factor={whole}, mode={mode!r})'
    if call.name not in _LAYER_OF: return ''
    layer, names = _LAYER_OF[call.name]
    given = dict(zip(names, args[1:])) | {k: v for k, v in kwargs.items() if k in names}
    defaults = inspect.signature(getattr(nn, layer)).parameters
    first, *others = (k for k in names if k in given)
    words = [f'{_plain(given[first])}']
    words += [f'{k}={_plain(given[k])}' for k in others if given[k] != defaults[k].default]
    return f'nn.{layer}({", ".join(words)})'


def _plain(value:Any)->Any:
    "A number for a tuple of equal ones."
    return value[0] if isinstance(value, list | tuple) and len(set(value)) == 1 else value


def _laid_out(call:Call)->str:
    "Why the places of an image must not become entries of a vector, or tokens."
    axes = call.outputs[0].ndim
    if axes == 2: return f'makes channels of places and poses: {_POOL}'
    if axes == 3: return _TOKENS
    sizes = call.leaves[1:]
    if axes == 4 or call.name == 'flatten' or -1 in sizes[3:]: return ''
    return (f'writes the sizes of four axes down, {_FIVE}: x.unflatten(1, ({sizes[1]}, -1)) '
            f'parts the channels, and nn.ChannelShuffle({sizes[1]}), a layer, shuffles them')


def _in_a_row(call:Call)->str:
    "Why a number of entries must not be written down; '' if it is not."
    n = call.leaves[-1]
    if call.name == 'flatten' or n == -1: return ''
    return (f'makes rows of {n} entries, and with poses they are longer: '
            'torch.flatten(x, 1)')


def _for_each_channel(call:Call)->str:
    "Why a number for each channel, joined with four axes, meets the poses on five."
    for n, t in enumerate(call.leaves):
        if n in call.at or not isinstance(t, Tensor) or t.ndim not in (3, 4): continue
        c, *places = t.shape[-3:]
        if c == 1 or places != [1, 1] or c != call.inputs[0].shape[1]: continue
        layer = f'nn.Conv2d({c}, {c}, 1, groups={c}, bias=False), a layer, scales each channel'
        if call.name in ('add', 'iadd', 'radd', 'sub', 'isub'):
            layer = 'a bias of the convolution before it shifts each channel'
        return f'reads numbers of shape {tuple(t.shape)} by four axes, {_FIVE}: {layer}'
    return ''


def pad_layer(
    mode:str,          # of torch: 'reflect', 'replicate' or 'circular'
    pad:Sequence[int], # pixels
)->str:
    "The layer that pads by this mode."
    kind = {'reflect': 'Reflection', 'replicate': 'Replication', 'circular': 'Circular'}[mode]
    return f'nn.{kind}Pad2d({_plain(tuple(pad))})'


def _pad(pad:Sequence[int], mode:str='constant', value:float|None=None)->str:
    if len(pad) > 4: return 'pads the third axis from the end, on a group the poses: pad two'
    if mode == 'constant': return ''
    return f'pads four axes by {mode!r}, {_FIVE}: make it a layer, {pad_layer(mode, pad)}'


def _reduction(name:str, dim:Any=None, *_:Any, **__:Any)->str:
    dims:list[Any] = list(dim) if isinstance(dim, list | tuple) else [dim]
    if not all(isinstance(d, int) for d in dims) or {*dims} <= {0, 1, -1, -2}: return ''
    layer = {'mean': 'Avg', 'amax': 'Max'}.get(name)
    if layer and {d % 4 for d in dims} == {2, 3}:
        return ('counts axes from the front, and on a group axis 2 is the poses: '
                f'nn.Adaptive{layer}Pool2d(1), a layer, pools the places, and ahead of '
                'nn.Linear the poses')
    return ('counts axes of four, and on a group the poses stand between channels and '
            'rows: rows are axis -2 and columns axis -1')


# --- layers

def refused_layer(
    layer:nn.Module, # of a plain network, on what will be a feature map
    axes:int,        # of what it reads in the plain network
)->str:
    "Why a layer without counterpart cannot stay on a feature map; '' if it can."
    m:Any = layer
    if isinstance(m, nn.Linear):
        if axes == 2: return f'would weigh what is not pooled, poses or places, one by one: {_POOL}'
        return ('reads the last axis, there the columns: '
                f'nn.Conv2d({m.in_features}, {m.out_features}, 1) mixes channels')
    if isinstance(m, nn.Flatten):
        if m.start_dim not in (0, 1): return _TOKENS
        return f'makes channels of places and poses: {_POOL}'
    if isinstance(m, nn.LayerNorm):
        return ('reads the last axis, there the columns: a layer norm of axis 1, '
                f'torchvision.models.convnext.LayerNorm2d({m.normalized_shape[0]}) say')
    for kinds, reason in _NO_COUNTERPART.items():
        if isinstance(m, kinds): return reason
    return ''


_NO_COUNTERPART:dict[tuple[type[nn.Module], ...], str] = {
    (nn.MultiheadAttention,): f'reads tokens in a row, which have no poses: {_ATTEND}',
    (nn.PixelShuffle,): 'makes places of channels in an order that a turn changes: '
                        'nn.ConvTranspose2d, or nn.Upsample and nn.Conv2d',
    (nn.PixelUnshuffle,): 'makes channels of places in an order that a turn changes: '
                          'nn.Conv2d or nn.AvgPool2d with a stride',
    (nn.LPPool2d, nn.FractionalMaxPool2d):
        f'takes four axes, {_FIVE}, and has no counterpart here: nn.AvgPool2d has one',
    (nn.Softmax2d,): f'takes four axes, {_FIVE}: nn.Softmax(1) takes both'}


def own_forward(
    layer:nn.Module,
    kinds:tuple[type[nn.Module], ...], # of torch, one of which it is
)->str:
    "Why a layer of torch with another forward method has no counterpart; '' if it has torch's."
    for name in 'forward', '_conv_forward':
        method = getattr(layer, name, None)
        if not method or any(getattr(method, '__func__', None) is getattr(kind, name, None)
                             for kind in kinds): continue
        code = method.__code__
        return (f'{type(layer).__name__} has a {name} of its own ({Path(code.co_filename).name}, '
                f'line {code.co_firstlineno}), which a counterpart would leave out: a plain '
                f'nn.{next(k for k in kinds if isinstance(layer, k)).__name__}, and what it does '
                'beside that as a layer or an operation of its own')
    return ''


@torch.no_grad()
def normalises_channels(
    layer:nn.Module,
)->bool:
    "Is it a layer norm with a forward method that reads axis 1? Tried, with other weights."
    if not isinstance(layer, nn.LayerNorm) or len(layer.normalized_shape) != 1: return False
    if type(layer).forward is nn.LayerNorm.forward: return False
    norm, drawn = copy.deepcopy(layer).double(), torch.Generator().manual_seed(0)
    def draw(*shape:int)->Tensor: return torch.randn(*shape, generator=drawn, dtype=torch.float64)
    for p in norm.parameters(): p.copy_(draw(*p.shape))
    x = draw(2, *layer.normalized_shape, 3, 4)
    try: y = norm(x)
    except Exception: return False
    return is_close(y, nn.LayerNorm.forward(norm, x.movedim(1, -1)).movedim(-1, 1))


# --- the trial

_TOLERANCE = 1e-8                 # relative error that is rounding, in float64 …
_GROWN = 1e-2                     # … and after many layers, each of them exact
_HEARS = 1e-5                     # relative change of an output by which it hears of the picture
_SMALL, _TRIED = (64, 128), 64    # sides to begin with, and how many from there


@torch.no_grad()
def check_converted(
    net:nn.Module,   # a network on the group; it stays as it is
    plain:nn.Module, # what it was made of, in evaluation mode
    group:Group,     # of turns and mirrors of the pixel grid
    x:Tensor,        # an input of both
)->None:
    """Raise a `ValueError` that names who is at fault, unless outputs turn with the input.

    A copy with other weights and statistics reads a random picture and what generators of
    the group make of it, in evaluation mode and in float64: of 64×64 pixels or the next
    size that its layers do not refuse, and of one pixel more if they take that, too. A
    network that takes no such picture is tried on pictures like `x`.
    """
    moves = generators(group)
    if not moves: return
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        try: return ConversionTrial(net, group, moves, x, torch.float64).run(plain)
        except (_DoesNotRun, TypeError): pass   # a cast in its forward method, or no float64 there
        try: ConversionTrial(net, group, moves, x, x.dtype).run(plain)
        except _DoesNotRun as error: raise ValueError(str(error)) from None


class _DoesNotRun(ValueError):
    "The converted network fails on a picture that the plain one takes."


class ConversionTrial:
    "A copy of a network with other weights, on pictures and what the group makes of them."
    def __init__(self, net:nn.Module, group:Group, moves:list[int], x:Tensor, dtype:torch.dtype):
        self.given, self.x, self.dtype = net, x, dtype
        self.group, self.moves = group, moves
        self.tol = _TOLERANCE if dtype == torch.float64 else tolerance(x)
        self.draw(0)

    def draw(self, seed:int|None)->None:
        "Other weights; those of the network if None."
        self.net, self.seed = copy.deepcopy(self.given).to(self.dtype).eval(), seed
        if seed is not None: _perturb(self.net, seed)

    def picture(self, rows:int, columns:int, other:bool=False)->Tensor:
        drawn = torch.Generator('cpu').manual_seed(2*rows + other)
        z = torch.randn(1, self.x.shape[1], rows, columns, generator=drawn, device='cpu',
                        dtype=torch.float64)
        return z.to(self.x.device, self.dtype)

    def run(self, plain:nn.Module)->None:
        "On the first size that no layer refuses, and on one pixel more."
        refusals:list[str] = []
        rows, columns = self.x.shape[-2:]
        given = [(rows + i, columns + i) for i in range(_TRIED)]
        small = [[(n + i, n + i) for i in range(_TRIED)] for n in _SMALL
                 if _has_room(plain, self.picture(n, n).to(self.x))]
        for sizes in (*small, given):
            for a, b in sizes:
                error = self.check(self.picture(a, b))
                if error is None:
                    self.check(self.picture(a + 1, b + 1))
                    return
                if not _is_about_size(error): break
                refusals.append(str(error).partition('. ')[0])
        if error is not None and _is_about_size(error): raise ValueError(
            'the converted network refuses every size that was tried: no picture suits all '
            f'its strides. The first refusal: {refusals[0]}')
        raise _DoesNotRun(_no_run(self.net, self.picture(a, b)))

    def check(self, z:Tensor)->Exception|None:
        "Raise if outputs do not turn with z; the error if the network does not run on it."
        other = self.picture(z.shape[-2], z.shape[-1], other=True)
        pictures = [z, other, *(act(self.group, h, z) for h in self.moves)]
        for seed in (0, 1, 2, None):   # a draw may silence the network, or make NaN
            if seed != self.seed: self.draw(seed)
            try: y, different, *moved = self.outputs(pictures)
            except Exception as error: return error
            if all(map(_hears, y, different)): break
        if not y or not all(t.isfinite().all() for t in y):
            raise ValueError('the output on a random picture is empty or not finite: nothing '
                             'can be measured')
        errors = [_relative_error(self.group, h, a, b)
                  for h, ys in zip(self.moves, moved) for a, b in zip(y, ys)]
        if all(map(_hears, y, different)) and max(errors) <= self.tol: return None
        report = layer_report(self.net, z, self.group, self.tol)
        if why := _why_not(report, y): raise ValueError(
            f'the converted network is not equivariant to {self.group.name}, tried on '
            f'{z.shape[-2]}×{z.shape[-1]} pixels: {why}')
        return None

    def outputs(self, pictures:list[Tensor])->list[list[Tensor]]:
        "For each picture the tensors that come out; of one pass, where they have one shape."
        n = len(pictures)
        if len({z.shape for z in pictures}) == 1:
            ys = _tensors(self.net(torch.cat(pictures)))
            if all(y.ndim and len(y) == n for y in ys):
                return [[y[i:i+1] for y in ys] for i in range(n)]
        return [_tensors(self.net(z.clone())) for z in pictures]


def _tensors(out:Any)->list[Tensor]:
    return [t for t in tree_leaves(out) if isinstance(t, Tensor) and t.numel()]


def _perturb(net:nn.Module, seed:int)->None:
    "Other weights and statistics: what begins at zero hides nothing. Constants stay."
    statistics = 'running_mean', 'running_var'
    constants = [b for name, b in net.named_buffers() if not name.endswith(statistics)]
    constants += [p for p in net.parameters() if not p.requires_grad]
    kept = [t.clone() for t in constants]
    perturb_(net, seed=seed)
    for t, value in zip(constants, kept): t.copy_(value)


def _is_about_size(error:Exception)->bool:
    "Does a layer refuse the size, since its stride leaves pixels over at one end?"
    # all of them ask `check_exact` of eqtutor.actions, which raises a plain ValueError
    return any(frame.name == 'check_exact' for frame in traceback.extract_tb(error.__traceback__))


def _has_room(plain:nn.Module, z:Tensor)->bool:
    "Does a plain network take a picture, and no window shrink it to one place?"
    try: calls = record_calls(plain, z, keep=False)
    except Exception: return False
    windows = nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d, nn.AvgPool2d
    def places(t:Tensor)->int: return t.shape[-2:].numel()
    return not any(isinstance(call.function, windows) and places(call.outputs[0]) == 1
                   and places(call.inputs[0]) > 1 for call in calls)


def _hears(y:Tensor, other:Tensor)->bool:
    "Does an output depend on the picture, and is it finite?"
    if y.shape != other.shape: return True
    y, other = y.double(), other.double()
    return bool((y - other).abs().max() > _HEARS*y.abs().max())


def _relative_error(group:Group, h:int, y:Tensor, moved:Tensor)->float:
    "Of an output, an image by its four axes; infinite where the axes do not tell."
    if y.ndim not in (0, 1, 2, 4): return math.inf
    want = act(group, h, y) if y.ndim == 4 else y
    if want.shape != moved.shape: return math.inf
    y, want, moved = y.double(), want.double(), moved.double()
    error = ((want - moved).abs().max()/y.abs().max()).item()
    return math.inf if math.isnan(error) else error


def _why_not(report:LayerReport, y:list[Tensor])->str:
    "Who is at fault; '' if by the report all outputs turn with the picture, or stay."
    if report.is_random: return 'it gives two answers to one picture, in evaluation mode'
    faults = [f'{s.name} ({s.where or s.cls}): {s.reason}; put there: {s.remedy}'
              for s in report.offenders]
    if faults: return '\n- '.join(['at fault, tried one by one:', *faults[:4]])
    if report.silent: return f'{report.silent} gives zeros only, and nothing can be measured'
    for s, t in zip(report.steps[-len(y):], y):
        if s.kind == 'unknown' or not max(s.errors) <= _GROWN:
            return f'its {s.name} does not turn with the picture, and no layer alone is at fault'
        if s.kind == 'invariant' and t.ndim == 4 and t.shape[-2:].numel() > 1:
            return (f'its output of shape {tuple(t.shape)} is made of a vector, and stays as it '
                    'is when the picture turns')
    return ''


def _no_run(net:nn.Module, z:Tensor)->str:
    "Which layer, or which line, does not take what it meets after the conversion."
    recorder, error = Recorder(net, keep=False), Exception()
    try: recorder.run((z.clone(),), {})
    except Exception as failure: error = failure
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_library(f.filename)]
    who = [f'{Path(f.filename).name}, line {f.lineno}: {f.line}' for f in frames[-1:]]
    m = recorder.inside
    if not any(m.children()): who = [f'{recorder.names[m]} ({type(m).__name__})', *who]
    return (f'{", called in ".join(who)} does not run after the conversion, where feature maps '
            'have five axes, (b, c, |H|, height, width), and channels the new width. '
            f'{type(error).__name__}: {error}')


def _is_library(path:str)->bool:
    homes = Path(torch.__file__).parent, Path(__file__).parent
    return path[0] == '<' or any(home in Path(path).parents for home in homes)
