"How a network becomes numbers and names that a page can run without Python."
# Plain module: edited by hand, no notebook exports it.

import base64
import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from ..core import one_of
from ..groups import C, Group
from ..kernels.windows import window_sum
from ..nn.attention import ChannelAttention
from ..nn.attentive import AttentiveConv2d, InputAttention
from ..nn.convolution import EquivariantConv2d
from ..nn.e4 import E4Conv2d, KernelGenerator
from ..nn.layers import GroupLayerNorm2d, SpatialPool2d
from ..nn.self_attention import EquivariantSelfAttention2d

FORMAT = 2   # of the graph; engine.js reads this one
_STORED = {'steps': '<i2', 'single': '<f4', 'short': '<u2', 'whole': '<u4'}
_STEPS = 8191   # of the largest weight: with its sign 14 bits

def _stored(t:Tensor, kind:str)->dict[str, Any]:
    "A tensor as JSON: little-endian bytes in base64, and how long a step is."
    data = np.ascontiguousarray(t.detach().cpu().double().numpy())
    stored = dict[str, Any](type=kind, shape=list(t.shape))
    if kind == 'steps':
        stored['step'] = float(np.abs(data).max(initial=0)/_STEPS) or 1.
        data = (data/stored['step']).round()
    text = base64.b64encode(data.astype(_STORED[kind]).tobytes()).decode()
    return stored | dict(data=text)

def _kind(t:Tensor, weights:str)->str:
    "How precisely to store a tensor."
    top = t.abs().max().item() if t.numel() else 0.
    if not t.is_floating_point(): return 'short' if top < 2**16 else 'whole'
    return 'single' if t.ndim < 2 else weights   # vectors are few numbers

class UnknownLayer(ValueError):
    "A network does something that the engine in the page does not know."

@dataclass(eq=False)
class Node:
    "One step of a network."
    op:str
    inputs:list['Node']
    shape:list[int]                # of the value, without the batch
    name:str
    type:str                       # the class of the layer, or the function
    title:str
    weights:dict[str, str] = field(default_factory=dict) # name -> key of a tensor
    tables:dict[str, str] = field(default_factory=dict)
    parameters:dict[str, Any] = field(default_factory=dict)

    def as_json(self)->dict[str, Any]:
        "The node as the page reads it."
        return dict(
            name=self.name, op=self.op, type=self.type, title=self.title,
            inputs=[node.name for node in self.inputs], shape=self.shape,
            weights=self.weights, tables=self.tables, **self.parameters)

def _tensors(*values:Any)->Iterator[Tensor]:
    "All tensors in nested arguments."
    for value in values:
        if isinstance(value, Tensor): yield value
        if isinstance(value, (list, tuple)): yield from _tensors(*value)
        if isinstance(value, dict): yield from _tensors(*value.values())

def _function_name(func:Callable)->str:
    "`relu` for torch.relu and Tensor.relu; `shape` for the attribute."
    name = getattr(func, '__name__', str(func))
    if name != '__get__': return name
    return getattr(getattr(func, '__self__', None), '__name__', name)

class Recorder(TorchFunctionMode):
    "Notes what a network does to one picture, as nodes."
    def __init__(self,
        net:nn.Module,
        weights:str,   # 'steps' or 'single'
    ):
        super().__init__()
        self.paths = {id(m): path for path, m in net.named_modules()}
        self.weights, self.tensors = weights, dict[str, dict[str, Any]]()
        self.nodes:list[Node] = []
        self.known:dict[int, tuple[Tensor, Node|None]] = {}   # holds them, so ids stay
        self.inside:list[nn.Module] = []   # modules that are running
        self.begun:list[int] = []          # how many nodes there were before each
        self.leaf:nn.Module|None = None    # the one that is not looked into
        self.groups:list[Group] = []

    # what is known of a tensor

    def mark(self, t:Tensor, node:Node|None)->None:
        "From now on this tensor is the value of that node; of none: not to be used."
        self.known[id(t)] = t, node

    def node_of(self, t:Tensor)->Node:
        "The node whose value a tensor is; a constant if the input has no part in it."
        if id(t) not in self.known: return self.constant(t)
        node = self.known[id(t)][1]
        if node is None: raise self.unknown('the places of maxima')
        return node

    def constant(self, t:Tensor)->Node:
        "A node for a tensor that is the same for every picture."
        value = t.detach()
        if value.ndim and value.shape[0] == 1: value = value[0]
        node = Node('constant', [], list(value.shape), self.fresh('constant'),
                    'constant', 'constant', weights=dict(value=self.store(value)))
        self.nodes.append(node)
        return node

    # nodes

    @property
    def path(self)->str:
        "Where in the network we are."
        paths = [self.paths.get(id(m), type(m).__name__) for m in self.inside]
        return next((p for p in reversed(paths) if p), '')

    def fresh(self, name:str)->str:
        "A name that no node has."
        name = f'{self.path}.{name}' if self.path else name
        taken = {'input', *(node.name for node in self.nodes)}
        return next(n for n in _numbered(name) if n not in taken)

    def add(self,
        op:str,
        inputs:Sequence[Tensor],
        value:Tensor,            # what comes out, with a batch of one
        weights:dict[str, Tensor|None]|None=None,
        tables:dict[str, Tensor]|None=None,
        **parameters:Any,
    )->Tensor:
        "A node, whose value this is."
        if not value.ndim or value.shape[0] != 1:
            raise self.unknown(f'{op} to the shape {tuple(value.shape)}, which mixes '
                               'the pictures of a batch')
        node = Node(op, [self.node_of(t) for t in inputs], list(value.shape[1:]),
                    self.fresh(op), op, op, parameters=parameters)
        given = {k: w for k, w in (weights or {}).items() if w is not None}
        node.weights = {k: self.store(w) for k, w in given.items()}
        node.tables = {k: self.store(t, 'single') for k, t in (tables or {}).items()}
        self.nodes.append(node)
        self.mark(value, node)
        return value

    def store(self, t:Tensor, weights:str|None=None)->str:
        "Keep a tensor; returns its key, the checksum of what it holds."
        self.check_finite(t)
        stored = _stored(t, _kind(t, weights or self.weights))
        digest = hashlib.sha256(str(stored).encode()).digest()
        key = base64.urlsafe_b64encode(digest[:6]).decode()
        self.tensors[key] = stored
        return key

    def check_finite(self, t:Tensor)->None:
        "Raise a `ValueError` unless all entries are numbers."
        if t.isfinite().all(): return
        where = self.path or 'the network'
        raise ValueError(f'{where} has a weight that is NaN or infinite: train it '
                         'again, or load other weights')

    def unknown(self, what:str)->UnknownLayer:
        "The error that names the layer and says what is known."
        at = [m for m in self.inside if id(m) in self.paths]
        where = f'{self.path or "the network"} ({type(at[-1]).__name__})' if at else ''
        known = ', '.join(sorted(c.__name__ for c in (*LAYERS, *REWRITES)))
        plain = ', '.join(sorted(f for f in FUNCTIONS if not f.endswith('_')))
        return UnknownLayer(
            f'the engine in the page does not know {what}, at {where}. It knows the '
            f'layers {known}, and modules made of these functions: {plain}.')

    # what is seen of the run

    @contextmanager
    def unseen(self, module:nn.Module)->Iterator[None]:
        "What happens here is not noted; it belongs to that module."
        before, self.leaf = self.leaf, module
        try: yield
        finally: self.leaf = before

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        value = func(*args, **kwargs)
        seen = any(id(t) in self.known for t in _tensors(args, kwargs))
        name = _function_name(func)
        if self.leaf is not None or not seen or name in SILENT: return value
        if name not in FUNCTIONS: raise self.unknown(f'the function {name!r}')
        self.check_in_place(name, value, args)
        try: FUNCTIONS[name](self, value, *args, **kwargs)
        except TypeError as error:
            raise self.unknown(f'{name!r} with these arguments ({error})') from error
        return value

    def check_in_place(self, name:str, value:Any, args:Sequence[Any])->None:
        "Refuse to change numbers that other tensors show, too."
        if not args or value is not args[0] or FUNCTIONS[name] in SAME: return
        storage = value.untyped_storage().data_ptr()
        for t, _ in self.known.values():
            if t is value or t.untyped_storage().data_ptr() != storage: continue
            raise self.unknown(f'{name!r} in place on a tensor that has views (compute '
                               'it anew instead)')

    def begin(self, module:nn.Module, args:Any)->None:
        "A module is about to run."
        self.inside.append(module)
        self.begun.append(len(self.nodes))
        group = getattr(module, 'group', None)
        if isinstance(group, Group): self.groups.append(group)
        if self.leaf is None and _known(module, LAYERS | REWRITES): self.leaf = module

    def end(self, module:nn.Module, args:Any, value:Any)->None:
        "A module has run."
        if self.leaf is module: self.describe(module, *args, value)
        new = len(self.nodes) > self.begun.pop()
        seen = isinstance(value, Tensor) and id(value) in self.known
        if new and seen and self.leaf is None: self.rename(module, self.node_of(value))
        self.inside.pop()

    def describe(self, module:nn.Module, *inputs_and_value:Tensor)->None:
        "Nodes for a layer that was not looked into."
        *inputs, value = inputs_and_value
        if any(id(t) in self.known for t in inputs):
            if known := _known(module, LAYERS):
                LAYERS[known](self, value, module, *inputs)
                if known not in type(module).__mro__:   # its twin
                    self.check_same(module, known.forward(module, *inputs), value)
        self.leaf = None
        if not (known := _known(module, REWRITES)): return
        again = REWRITES[known](self, module, *inputs)
        self.check_same(module, again, value)
        self.mark(value, self.node_of(again))

    def check_same(self, module:nn.Module, again:Tensor, value:Tensor)->None:
        "Refuse a layer whose class, or what it is called after, gives another value."
        with self.unseen(module): same = _close(again, value)
        if same: return
        raise self.unknown('a layer that computes something else than its class')

    def rename(self, module:nn.Module, node:Node)->None:
        "The value of a module goes by the module's name."
        path = self.paths.get(id(module))
        if not path or node is not self.nodes[-1] or node.type != node.op: return
        names = {'input', *(other.name for other in self.nodes)}
        node.name = next(n for n in _numbered(path) if n not in names - {node.name})
        node.type, extra = type(module).__name__, module.extra_repr()
        node.title = f'{node.type}({extra})'

def _close(a:Tensor, b:Tensor)->bool:
    "Equal but for rounding?"
    if a.shape != b.shape: return False
    return bool((a - b).abs().max() <= 1e-4*b.abs().max())

def _numbered(name:str)->Iterator[str]:
    "name, name_2, name_3, …"
    yield name
    for i in range(2, 10_000): yield f'{name}_{i}'

def _same(cls:type[nn.Module], known:type[nn.Module])->bool:
    "That class, or its twin: a chapter that exports a layer defines it again."
    twin = cls.__module__ == '__main__' and cls.__name__ == known.__name__
    return cls is known or twin and _names(cls.forward) == _names(known.forward)

def _names(forward:Callable[..., Tensor])->tuple[str, ...]:
    "What a function calls and what its variables are called."
    code = forward.__code__
    return *code.co_names, *code.co_varnames

def _plain(module:nn.Module, known:type[nn.Module])->bool:
    "Does a module compute what the class says, with tables of its own at most?"
    own:list[Any] = [cls for cls in type(module).__mro__ if _same(cls, known)]
    return bool(own) and type(module).forward is own[0].forward

def _known(module:nn.Module, registry:dict[type[nn.Module], Any])->Any:
    "The class that a module is of, if its `forward` is that of the class."
    for cls in type(module).__mro__:
        for known in registry:
            if _same(cls, known): return known if _plain(module, known) else None
    return None

def _bank_tables(recorder:Recorder, layer:EquivariantConv2d)->dict[str, Tensor]:
    "The tables that expand the weights of a layer to its filters."
    tables = {k: t for k, t in layer.originals.items() if k in ('index', 'turns')}
    recorder.check_finite(layer.weight)
    bank = layer.filters()
    if torch.equal(bank, EquivariantConv2d.filters(layer)): return tables
    probe = copy.deepcopy(layer)
    entries = torch.arange(layer.weight[0, 0].numel(), device=bank.device)
    with torch.no_grad():
        probe.weight.copy_(entries.view_as(layer.weight[0, 0]).expand_as(layer.weight))
        found = _by_channel(probe, probe.filters())
        index = found[0, 0].round().long()
        read = layer.weight.flatten(2)[:, :, index.clamp(0, len(entries) - 1)]
    same = (found == index).all() and torch.equal(read, _by_channel(layer, bank))
    if same: return dict(index=index)
    raise recorder.unknown('filters that are not entries of the weight')

def _by_channel(layer:EquivariantConv2d, bank:Tensor)->Tensor:
    "A bank as `(o, i, entries)`."
    o, k = layer.out_channels, layer.kernel_size
    i = layer.in_channels//layer.groups
    bank = bank.view(o, layer.out_poses, i, layer.in_poses, k*k)
    return bank.permute(0, 2, 1, 3, 4).flatten(2)

def _convolution(r:Recorder, value:Tensor, m:EquivariantConv2d, x:Tensor)->None:
    r.add('convolution', [x], value, dict(filter=m.weight.flatten(2), bias=m.bias),
          _bank_tables(r, m), channels=[m.out_channels, m.in_channels//m.groups],
          poses=[m.out_poses, m.in_poses], kernel_size=[m.kernel_size]*2,
          stride=[m.stride]*2, padding=[m.padding]*2, dilation=[m.dilation]*2,
          groups=m.groups)

def _spatial_pool(r:Recorder, value:Tensor, m:SpatialPool2d, x:Tensor)->None:
    r.add('pool', [x], value, reduce=m.reduce, kernel_size=[m.kernel_size]*2,
          stride=[m.stride]*2, padding=[m.padding]*2)

def _channel_norm(r:Recorder, value:Tensor, m:GroupLayerNorm2d, x:Tensor)->None:
    r.add('channel_norm', [x], value, dict(factor=m.weight, shift=m.bias), eps=m.eps)

def _self_attention(r:Recorder, value:Tensor, m:EquivariantSelfAttention2d,
                    x:Tensor)->None:
    h, w = x.shape[-2:]
    reach = [h - 1, w - 1] if m.window is None else [m.window//2]*2
    offsets, poses = m.offset_vectors((reach[0], reach[1])), m.pose_vectors()
    weights = {f'{k}_{part}': getattr(getattr(m, k), part)
               for k in ('query', 'key', 'value', 'out') for part in ('weight', 'bias')}
    r.add('self_attention', [x], value, weights | dict(offsets=offsets, poses=poses),
          heads=m.heads, reach=reach, crop=m.crop, scale=m.in_channels**-.5)

LAYERS:dict[type[nn.Module], Callable[..., Any]] = {
    EquivariantConv2d: _convolution, SpatialPool2d: _spatial_pool,
    GroupLayerNorm2d: _channel_norm, EquivariantSelfAttention2d: _self_attention}

def _attentive(r:Recorder, m:AttentiveConv2d, x:Tensor)->Tensor:
    if not m.weighs_input: raise r.unknown(f'attend={m.attend!r}')
    weighed = m.branch(x)
    with r.unseen(m): value = EquivariantConv2d.forward(m, weighed)
    _convolution(r, value, m, weighed)
    return value

def _input_attention(r:Recorder, m:InputAttention, f:Tensor)->Tensor:
    "α⁺f = f − α^X α^C f (P1, Eq. 20)."
    top, mean = f.amax((-2, -1), keepdim=True), f.mean((-2, -1), keepdim=True)
    scores = _excited(m, mean) + _excited(m, top)
    z = scores.sigmoid()*f
    s = m.spatial(torch.stack([z.mean(1), z.amax(1)], 1))
    if s.ndim > z.ndim: s = s.amax(2)
    return f - s.sigmoid()*z

def _excited(m:InputAttention, s:Tensor)->Tensor:
    if not isinstance(m.squeeze, nn.Linear): return m.excite(m.squeeze(s).relu())
    return m.excite(m.squeeze(s.flatten(1)).relu())[..., None, None]

def _channel_attention(r:Recorder, m:ChannelAttention, f:Tensor)->Tensor:
    image = f.ndim == 4
    f = f[:, :, None] if image else f
    top, mean = f.amax((-2, -1), keepdim=True), f.mean((-2, -1), keepdim=True)
    scores = [m.excite(m.squeeze(s).relu()) for s in (mean, top)]
    y = f*(scores[0] + scores[1]).sigmoid()
    return y[:, :, 0] if image else y

def _e4(r:Recorder, m:E4Conv2d, f:Tensor)->Tensor:
    "Kernels written at each place, and the window they sum (P4, Eq. 12)."
    writer = m.generate
    if not _plain(writer, KernelGenerator): raise r.unknown('a writer of another kind')
    z = writer.relu(writer.norm(writer.squeeze(f)))
    moved = writer.table('moved', writer.weight)
    with r.unseen(writer):
        W2 = writer.weight[moved]
        kernels = einsum(W2, z, 'g v s m, b m g y x -> b s v g y x')
        if writer.bias is not None:
            kernels = kernels + rearrange(writer.bias[moved], 'g v s -> s v g 1 1')
    r.add('write_kernels', [z], kernels, dict(weight=writer.weight, bias=writer.bias),
          dict(moved=moved))
    values = m.encode(f)
    with r.unseen(m):
        y = window_sum(kernels, values.unflatten(1, (m.slices, -1)), m.kernel_size,
                       dilation=m.dilation).flatten(1, 2)
    r.add('window_sum', [kernels, values], y, kernel_size=m.kernel_size,
          dilation=m.dilation)
    return y if m.bias is None else y + m.bias[:, None, None, None]

REWRITES:dict[type[nn.Module], Callable[..., Tensor]] = {
    AttentiveConv2d: _attentive, InputAttention: _input_attention,
    ChannelAttention: _channel_attention, E4Conv2d: _e4}

def _pair(n:int|Sequence[int])->list[int]:
    return [n, n] if isinstance(n, int) else [*n]*(2//len(n))

def _conv2d(r:Recorder, value:Tensor, x:Tensor, weight:Tensor, bias:Tensor|None=None,
            stride:Any=1, padding:Any=0, dilation:Any=1, groups:int=1)->None:
    if isinstance(padding, str):
        spare = [d*(k - 1) for d, k in zip(_pair(dilation), weight.shape[-2:])]
        padding = [s//2 for s in spare] if padding == 'same' else 0
        if any(s % 2 for s in spare) and padding: raise r.unknown("padding='same'")
    out, inside, *size = weight.shape
    r.add('convolution', [x], value, dict(filter=weight.flatten(2), bias=bias),
          channels=[out, inside], poses=[1, 1], kernel_size=size,
          stride=_pair(stride), padding=_pair(padding), dilation=_pair(dilation),
          groups=groups)

def _conv3d(r:Recorder, value:Tensor, x:Tensor, weight:Tensor, bias:Tensor|None=None,
            stride:Any=1, padding:Any=0, dilation:Any=1, groups:int=1)->None:
    one = tuple(weight.shape[2:]) == (1, 1, 1) and value.shape[2:] == x.shape[2:]
    if groups != 1 or not one: raise r.unknown('a Conv3d that is not 1×1×1')
    r.add('pointwise', [x], value, dict(matrix=weight.flatten(1), bias=bias))

def _linear(r:Recorder, value:Tensor, x:Tensor, weight:Tensor,
            bias:Tensor|None=None)->None:
    r.add('linear', [x], value, dict(matrix=weight, bias=bias))

def _batch_norm(r:Recorder, value:Tensor, x:Tensor, mean:Tensor|None, var:Tensor|None,
                weight:Tensor|None=None, bias:Tensor|None=None, training:bool=False,
                momentum:float=.1, eps:float=1e-5, cudnn:bool=False)->None:
    if training or mean is None or var is None:
        raise r.unknown('a batch norm without running statistics')
    factor = (var.double() + eps).rsqrt()
    if weight is not None: factor = factor*weight.double()
    shift = -mean.double()*factor
    if bias is not None: shift = shift + bias.double()
    r.add('scale', [x], value, dict(factor=factor, shift=shift))

def _group_norm(r:Recorder, value:Tensor, x:Tensor, groups:int,
                weight:Tensor|None=None, bias:Tensor|None=None, eps:float=1e-5,
                cudnn:bool=False)->None:
    r.add('group_norm', [x], value, dict(factor=weight, shift=bias), eps=eps,
          groups=groups, channels=x.shape[1])

def _pool(r:Recorder, value:Tensor, x:Tensor, reduce:str, kernel_size:Any, stride:Any,
          padding:Any)->None:
    r.add('pool', [x], value, reduce=reduce, kernel_size=_pair(kernel_size),
          stride=_pair(stride or kernel_size), padding=_pair(padding))

def _max_pool(r:Recorder, value:Tensor, x:Tensor, kernel_size:Any, stride:Any=None,
              padding:Any=0, dilation:Any=1, ceil_mode:bool=False,
              return_indices:bool=False)->None:
    if ceil_mode or return_indices or _pair(dilation) != [1, 1]:
        raise r.unknown('a pool with dilation or ceil_mode')
    _pool(r, value, x, 'max', kernel_size, stride, padding)

def _mean_pool(r:Recorder, value:Tensor, x:Tensor, kernel_size:Any, stride:Any=None,
               padding:Any=0, ceil_mode:bool=False, count_include_pad:bool=True,
               divisor_override:int|None=None)->None:
    pads = _pair(padding) != [0, 0] and not count_include_pad
    if ceil_mode or pads or divisor_override:
        raise r.unknown('a pool with ceil_mode, or means of what lies inside')
    _pool(r, value, x, 'mean', kernel_size, stride, padding)

def _reduce_function(reduce:str)->Callable[..., None]:
    def over(r:Recorder, value:Any, x:Tensor, dim:Any=None, keepdim:bool=False,
             **options:Any)->None:
        if dim is None or isinstance(dim, Tensor):
            raise r.unknown(f'{reduce} without axes')
        axes = [d % x.ndim - 1 for d in ([dim] if isinstance(dim, int) else dim)]
        if -1 in axes: raise r.unknown(f'{reduce} over the pictures of a batch')
        if not isinstance(value, Tensor):   # maxima and their places
            r.mark(value.indices, None)
            value = value.values
        r.add('reduce', [x], value, reduce=reduce, axes=axes)
    return over

def _elementwise(op:str)->Callable[..., None]:
    def function(r:Recorder, value:Tensor, x:Tensor, inplace:bool=False)->None:
        r.add(op, [x], value)
    return function

def _adaptive_pool(reduce:str)->Callable[..., None]:
    def function(r:Recorder, value:Tensor, x:Tensor, size:Any,
                 return_indices:bool=False)->None:
        if tuple(value.shape[-2:]) != (1, 1): raise r.unknown(f'a pool to {size}')
        r.add('reduce', [x], value, reduce=reduce, axes=[x.ndim - 3, x.ndim - 2])
    return function

def _arithmetic(op:str, reverse:bool=False)->Callable[..., None]:
    def function(r:Recorder, value:Tensor, a:Any, b:Any)->None:
        a, b = (b, a) if reverse else (a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            r.add(op, [a, b], value)
        elif isinstance(a, Tensor): r.add(op, [a], value, right=float(b))
        else: r.add(op, [b], value, left=float(a))
    return function

def _same_numbers(r:Recorder, value:Tensor, x:Tensor, *args:Any, **options:Any)->None:
    "The same numbers in the same order, in another shape or not."
    if value is x: return
    if value.shape == x.shape: return r.mark(value, r.node_of(x))
    r.add('reshape', [x], value)

def _dropout(r:Recorder, value:Tensor, x:Tensor, p:float=.5, training:bool=True,
             inplace:bool=False)->None:
    if training: raise r.unknown('dropout that is always on')
    _same_numbers(r, value, x)

def _join(r:Recorder, value:Tensor, tensors:Sequence[Tensor], dim:int=0)->None:
    axis = dim % value.ndim - 1
    if axis < 0: raise r.unknown('joining pictures to a batch')
    r.add('concatenate', list(tensors), value, axis=axis)

def _permute(r:Recorder, value:Tensor, x:Tensor, *dims:Any)->None:
    dims = dims[0] if len(dims) == 1 else dims
    order = [d % x.ndim - 1 for d in dims]
    if order[0] != -1: raise r.unknown('moving the batch axis')
    r.add('permute', [x], value, order=order[1:])

def _transpose(r:Recorder, value:Tensor, x:Tensor, a:int, b:int)->None:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    _permute(r, value, x, order)

def _stack(r:Recorder, value:Tensor, tensors:Sequence[Tensor], dim:int=0)->None:
    axis = dim % value.ndim
    with r.unseen(r.inside[-1]): parts = [t.unsqueeze(axis) for t in tensors]
    for part, t in zip(parts, tensors): _same_numbers(r, part, t)
    _join(r, value, parts, axis)

def _slice(r:Recorder, value:Tensor, x:Tensor, index:Any)->None:
    "Numbers, slices, None and … in brackets."
    index = index if isinstance(index, tuple) else (index,)
    whole = [i for i in index if i is not None and i is not Ellipsis]
    if not all(isinstance(i, (int, slice)) for i in whole):
        raise r.unknown('indexing with a tensor')
    missing = [slice(None)]*(x.ndim - len(whole))
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    before = [i for i in index[:at] if i is not None]
    after = [i for i in index[at + 1:] if i is not None]
    places = [range(n)[i] for n, i in zip(x.shape, before + missing + after)]
    spans = [range(p, p + 1) if isinstance(p, int) else p for p in places]
    r.add('slice', [x], value, starts=[s.start for s in spans[1:]],
          steps=[s.step for s in spans[1:]], sizes=[len(s) for s in spans[1:]])

# asked of a tensor without changing it
SILENT = {'shape', 'ndim', 'dtype', 'device', 'is_cuda', 'layout', 'requires_grad',
          'size', 'dim', 'numel', 'stride', 'is_floating_point', 'is_contiguous',
          '__len__', 'new_zeros', 'new_ones', 'new_empty', 'new_full', 'new_tensor',
          'zeros_like', 'ones_like', 'is_complex', 'element_size', 'get_device'}
SAME = _same_numbers, _dropout   # what may give its argument back
_BINARY = {'add': 'add', 'sub': 'subtract', 'subtract': 'subtract', 'mul': 'multiply',
           'multiply': 'multiply', 'div': 'divide', 'divide': 'divide',
           'truediv': 'divide'}
FUNCTIONS:dict[str, Callable[..., Any]] = {
    'conv2d': _conv2d, 'conv3d': _conv3d, 'linear': _linear, 'cat': _join,
    'concat': _join, 'concatenate': _join, 'stack': _stack, '__getitem__': _slice,
    'batch_norm': _batch_norm, 'group_norm': _group_norm,
    'permute': _permute, 'transpose': _transpose,
    'max_pool2d': _max_pool, 'avg_pool2d': _mean_pool,
    'adaptive_avg_pool2d': _adaptive_pool('mean'),
    'adaptive_max_pool2d': _adaptive_pool('max'),
    'amax': _reduce_function('max'), 'max': _reduce_function('max'),
    'mean': _reduce_function('mean'), 'sum': _reduce_function('sum'),
    **{name: _elementwise(name) for name in ('relu', 'sigmoid', 'silu', 'tanh')},
    'relu_': _elementwise('relu'),
    **dict.fromkeys(
        ('dropout', 'dropout1d', 'dropout2d', 'dropout3d', 'feature_dropout'), _dropout),
    **dict.fromkeys(
        ('flatten', 'unflatten', 'view', 'reshape', 'squeeze', 'unsqueeze', 'view_as',
         'contiguous', 'clone', 'detach', 'float', 'double'), _same_numbers)}
for _name, _op in _BINARY.items():
    for _form in (_name, f'__{_name}__', f'{_name}_', f'__i{_name}__'):
        FUNCTIONS[_form] = _arithmetic(_op)
    FUNCTIONS[f'__r{_name}__'] = _arithmetic(_op, reverse=True)   # 1 − f
FUNCTIONS['rsub'] = _arithmetic('subtract', reverse=True)

def network_graph(
    net:nn.Module,
    example:Tensor,        # a picture `(1, c, h, w)`
    weights:str='steps',   # how precisely they travel: 'steps' or 'single'
    labels:Sequence[str]|None=None, # of the scores
    name:str|None=None,    # of the network; its class if None
)->dict[str, Any]:
    "A network at inference as JSON that `engine.js` runs; `UnknownLayer` if it cannot."
    one_of(weights, 'steps', 'single')
    if example.ndim != 4 or len(example) != 1:
        raise ValueError('expected one picture (1, c, h, w) as an example, got shape '
                         f'{tuple(example.shape)}')
    recorder = Recorder(net, weights)
    output = _run(net, example.clone(), recorder)   # a network may work in place
    if not isinstance(output, Tensor) or id(output) not in recorder.known:
        raise UnknownLayer(f'{type(net).__name__} should give one tensor that depends '
                           f'on the picture, got {type(output).__name__}')
    return dict(
        format=FORMAT, name=name or type(net).__name__, input=list(example.shape[1:]),
        group=_group_json(recorder.groups),
        labels=None if labels is None else [*labels],
        nodes=[node.as_json() for node in recorder.nodes],
        output=recorder.node_of(output).name, tensors=recorder.tensors)

@torch.no_grad()
def _run(net:nn.Module, example:Tensor, recorder:Recorder)->Any:
    "Run a network as at inference, and put it back as it was."
    modes = {m: m.training for m in net.modules()}
    hooks = (register_module_forward_pre_hook(recorder.begin),
             register_module_forward_hook(recorder.end))
    recorder.mark(example, Node('input', [], list(example.shape[1:]), 'input', '', ''))
    try:
        net.eval()
        with recorder: return net(example)
    finally:
        for hook in hooks: hook.remove()
        for m, training in modes.items(): m.training = training

def _group_json(groups:Sequence[Group])->dict[str, Any]:
    "The group of a network's layers, as tables."
    found = {group for group in groups if len(group) > 1} or {C(1)}
    if len(found) > 1:
        names = ' and '.join(sorted(group.name for group in found))
        raise UnknownLayer(f'the layers of the network are on {names}: the page shows '
                           'one group')
    group = found.pop()
    return dict(name=group.name, order=len(group), matrices=group.matrices.tolist(),
                mul=group.mul.tolist(), inv=group.inv.tolist(), grid=group.is_grid)
