"How a network becomes numbers and names that a page can run without Python."
# Plain module: edited by hand, no notebook exports it.

import base64
import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from ..actions import act
from ..core import one_of
from ..groups import C, Group
from ..kernels.windows import window_sum
from ..nn.attention import SelfAttention2d
from ..nn.attentive import AttentiveConv2d, InputAttention
from ..nn.convolution import EquivariantConv2d
from ..nn.e4 import E4Conv2d, KernelGenerator
from ..nn.gates import ChannelAttention
from ..nn.layers import GroupLayerNorm2d, SpatialPool2d
from ..nn.self_attention import EquivariantSelfAttention2d
from ..nn.vectors import VectorConv2d
from ..trace import Call, OtherForm, Recorder, Source, function_name, is_close, one_call
from ..wrappers import Canonicalise, PatternScore, Symmetrise

FORMAT = 2   # of the graph; engine.js reads this one
_STORED = {'steps': '<i2', 'bytes': 'i1', 'single': '<f4', 'short': '<u2', 'whole': '<u4'}
_STEPS = {'steps': 32767, 'bytes': 127}   # of the largest weight: with its sign two bytes, or one

def _stored(t:Tensor, kind:str)->dict[str, Any]:
    "A tensor as JSON: little-endian bytes in base64, and how long a step is."
    data = np.ascontiguousarray(t.detach().cpu().double().numpy())
    stored = dict[str, Any](type=kind, shape=list(t.shape))
    if kind in _STEPS:
        stored['step'] = float(np.abs(data).max(initial=0)/_STEPS[kind]) or 1.
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

class GraphWriter(Recorder):
    "Makes nodes of what a network calls on one picture."
    def __init__(self,
        net:nn.Module,
        weights:str,   # 'steps', 'bytes' or 'single'
    ):
        super().__init__(net, lambda m: _known(m, LAYERS) is not None, plain_form=self.rewritten)
        self.weights, self.tensors = weights, dict[str, dict[str, Any]]()
        self.nodes:list[Node] = []
        # by where a tensor comes from; itself if it is constant, None if it is not to be used
        self.values:dict[Source, Node|Tensor|None] = {}
        self.operands:dict[int, tuple[Tensor, Node|Tensor|None]] = {}   # of a call, by id
        self.begun:dict[nn.Module, int] = {}    # how many nodes there were before each
        self.groups:list[Group] = []

    def rewritten(self, function:Any)->Callable[..., Tensor]|None:
        "A layer in operations and layers that the engine knows."
        known = isinstance(function, nn.Module) and _known(function, REWRITES)
        return partial(REWRITES[known], self) if known else None

    # nodes

    def mark(self, t:Tensor, node:Node|Tensor|None)->None:
        "In this call the tensor is the value of that node; of none: not to be used."
        self.operands[id(t)] = t, node

    def node_of(self, t:Tensor)->Node:
        "The node whose value a tensor is; a constant if the input has no part in it."
        node = self.operands[id(t)][1] if id(t) in self.operands else t
        if node is None: raise self.unknown('the places of maxima')
        return node if isinstance(node, Node) else self.constant(node)

    def constant(self, t:Tensor)->Node:
        "A node for a tensor that is the same for every picture."
        value = t.detach()
        if value.ndim and value.shape[0] == 1: value = value[0]
        node = Node('constant', [], list(value.shape), self.fresh('constant'),
                    'constant', 'constant', weights=dict(value=self.store(value)))
        self.nodes.append(node)
        return node

    def fresh(self, name:str)->str:
        "A name that no node has."
        path = self.names[self.inside]
        name = f'{path}.{name}' if path else name
        taken = {'input', *(node.name for node in self.nodes)}
        return next(n for n in _numbered(name) if n not in taken)

    def add(self,
        op:str,
        inputs:Sequence[Tensor],
        value:Tensor,            # what comes out, with a batch of one
        weights:dict[str, Tensor|None]|None=None,
        tables:dict[str, Tensor]|None=None,
        **parameters:Any,
    )->None:
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
        where = self.names[self.inside] or 'the network'
        raise ValueError(f'{where} has a weight that is NaN or infinite: train it '
                         'again, or load other weights')

    def unknown(self, what:str)->UnknownLayer:
        "The error that names the layer and says what is known."
        where = self.names[self.inside] or 'the network'
        layers = ', '.join(sorted(c.__name__ for c in (*LAYERS, *REWRITES)))
        functions = ', '.join(sorted(f for f in FUNCTIONS if not f.endswith('_')))
        return UnknownLayer(
            f'the engine in the page does not know {what}, at {where} '
            f'({type(self.inside).__name__}). It knows the layers {layers}, and modules made of '
            f'these functions: {functions}.')

    # the run

    def note(self, call:Call)->None:
        "Nodes for a call."
        args, kwargs = call.arguments
        name, value = function_name(call.function), call.outputs[0]
        if None in call.sources:
            raise self.unknown(f'{name!r} of numbers that were changed in place behind a view '
                               '(compute them anew instead)')
        self.operands = {id(t): (t, self.values[source])      # type: ignore[index]
                         for t, source in zip(call.inputs, call.sources)}
        if isinstance(call.function, nn.Module):
            known = _known(call.function, LAYERS)
            if known not in type(call.function).__mro__:   # its twin
                if not is_close(known.forward(call.function, *args), value): raise self.other_form()
            LAYERS[known](self, value, call.function, *args)
        elif name in SILENT: self.mark(value, value)
        elif name not in FUNCTIONS | PARTS: raise self.unknown(f'the function {name!r}')
        else:
            outputs = value if call.labels == [''] else call.outputs
            try: (FUNCTIONS | PARTS)[name](self, outputs, *args, **kwargs)
            except TypeError as error:
                raise self.unknown(f'{name!r} with these arguments ({error})') from error
        for k, t in enumerate(call.outputs): self.values[self.number, k] = self.operands[id(t)][1]

    def note_question(self, name:str)->None:
        if name not in SILENT: raise self.unknown(f'the function {name!r}')

    def enter(self, module:nn.Module, args:tuple, kwargs:dict[str, Any])->None:
        if isinstance(group := getattr(module, 'group', None), Group): self.groups.append(group)
        self.begun[module] = len(self.nodes)
        super().enter(module, args, kwargs)

    def note_module(self, module:nn.Module, out:Any)->None:
        "The value of a module goes by the module's name."
        path, node = self.names[module], self.value_of(out)
        if not path or len(self.nodes) == self.begun[module] or node is not self.nodes[-1]: return
        if node.type != node.op: return
        taken = {'input', *(other.name for other in self.nodes if other is not node)}
        node.name = next(n for n in _numbered(path) if n not in taken)
        node.type = type(module).__name__
        node.title = f'{node.type}({module.extra_repr()})'

    def value_of(self, out:Any)->Any:
        "The node whose value comes out of a module or of the network; None if none does."
        source = self.source(out) if isinstance(out, Tensor) else None
        return None if source is None else self.values[source]

    def follow(self, *call:Any)->Any:
        try: return super().follow(*call)
        except OtherForm: raise self.other_form() from None

    def other_form(self)->UnknownLayer:
        "The error where a layer, or its twin, is not what it says."
        return self.unknown('a layer that computes something else than its class')

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
    cls:Any = next((cls for cls in type(module).__mro__ if _same(cls, known)), None)
    return cls is not None and type(module).forward is cls.forward

def _known(module:nn.Module, registry:dict[type[nn.Module], Any])->Any:
    "The class that a module is of, if its `forward` is that of the class."
    for cls in type(module).__mro__:
        for known in registry:
            if _same(cls, known): return known if _plain(module, known) else None
    return None

def _bank_tables(writer:GraphWriter, layer:EquivariantConv2d)->dict[str, Tensor]:
    "The tables that expand the weights of a layer to its filters."
    tables = {k: t for k, t in layer.originals.items() if k in ('index', 'turns')}
    writer.check_finite(layer.weight)
    bank = layer.filters()
    if torch.equal(bank, EquivariantConv2d.filters(layer)): return tables
    probe = copy.deepcopy(layer)
    entries = torch.arange(layer.weight[0, 0].numel(), device=bank.device)
    with torch.no_grad():
        probe.weight.copy_(entries.view_as(layer.weight[0, 0]).expand_as(layer.weight))
        numbers = _by_channel(probe, probe.filters())
        index = numbers[0, 0].round().long()
        read = layer.weight.flatten(2)[:, :, index.clamp(0, len(entries) - 1)]
    same = (numbers == index).all() and torch.equal(read, _by_channel(layer, bank))
    if same: return dict(index=index)
    raise writer.unknown('filters that are not entries of the weight')

def _by_channel(layer:EquivariantConv2d, bank:Tensor)->Tensor:
    "A bank as `(o, i, entries)`."
    o, k = layer.out_channels, layer.kernel_size
    i = layer.in_channels//layer.groups
    bank = bank.view(o, layer.out_poses, i, layer.in_poses, k*k)
    return bank.permute(0, 2, 1, 3, 4).flatten(2)

def _convolution(r:GraphWriter, value:Tensor, m:EquivariantConv2d, x:Tensor)->None:
    if m.padding_mode != 'zeros': raise r.unknown(f'padding_mode={m.padding_mode!r}')
    # filters of arrows are sums of entries, so the whole bank travels
    arrows = _known(m, {VectorConv2d: None}) is not None
    filters, tables = (m.filters(), {}) if arrows else (m.weight, _bank_tables(r, m))
    r.add('convolution', [x], value, dict(filter=filters.flatten(2), bias=m.bias),
          tables, channels=[m.out_channels, m.in_channels//m.groups],
          poses=[m.out_poses, m.in_poses], kernel_size=[m.kernel_size]*2,
          stride=[m.stride]*2, padding=[m.padding]*2, dilation=[m.dilation]*2,
          groups=m.groups)

def _spatial_pool(r:GraphWriter, value:Tensor, m:SpatialPool2d, x:Tensor)->None:
    r.add('pool', [x], value, reduce=m.reduce, kernel_size=[m.kernel_size]*2,
          stride=[m.stride]*2, padding=[m.padding]*2)

def _channel_norm(r:GraphWriter, value:Tensor, m:GroupLayerNorm2d, x:Tensor)->None:
    r.add('channel_norm', [x], value, dict(factor=m.weight, shift=m.bias), eps=m.eps)

def _self_attention(r:GraphWriter, value:Tensor, m:EquivariantSelfAttention2d,
                    x:Tensor)->None:
    h, w = x.shape[-2:]
    reach = [h - 1, w - 1] if m.window is None else [m.window//2]*2
    offsets, poses = m.offset_vectors((reach[0], reach[1])), m.pose_vectors()
    weights = {f'{k}_{part}': getattr(getattr(m, k), part)
               for k in ('query', 'key', 'value', 'out') for part in ('weight', 'bias')}
    r.add('self_attention', [x], value, weights | dict(offsets=offsets, poses=poses),
          heads=m.heads, reach=reach, crop=m.crop, scale=m.in_channels**-.5)

def _image_attention(r:GraphWriter, value:Tensor, m:SelfAttention2d, x:Tensor)->None:
    if m.boundary != 'mask': raise r.unknown(f'boundary={m.boundary!r}')
    h, w = x.shape[-2:]
    reach = [h - 1, w - 1] if m.window is None else [m.window//2]*2
    maps = m.maps.query, m.maps.key, m.maps.value, m.out
    weights:dict[str, Tensor|None] = {}
    for name, one in zip(('query', 'key', 'value', 'out'), maps):
        bias = one.weight.new_zeros(len(one.weight)) if one.bias is None else one.bias
        weights |= {f'{name}_weight': one.weight.flatten(1), f'{name}_bias': bias}
    n, width, offsets = m.heads, m.maps.width, (2*reach[0] + 1)*(2*reach[1] + 1)
    vectors = value.new_zeros(n, offsets, 1, width)
    if m.relative is not None: vectors = _offset_vectors(m, reach)[:, :, None]
    poses = value.new_zeros(1, 1, 1, width)
    r.add('self_attention', [x], value,
          weights | dict(offsets=vectors, poses=poses, places=m.absolute),
          heads=n, reach=reach, crop=0, scale=m.maps.scale)

def _offset_vectors(m:SelfAttention2d, reach:list[int])->Tensor:
    "The relative encoding as `(heads, K, d)`: of a window, or what an image needs of a table."
    table = m.relative.table
    if m.window is None:
        (down, right), (h, w) = reach, m.relative.size
        table = table[..., h - 1 - down:h + down, w - 1 - right:w + right].flatten(2)
    return table.mT

LAYERS:dict[type[nn.Module], Callable[..., Any]] = {
    EquivariantConv2d: _convolution, SpatialPool2d: _spatial_pool,
    GroupLayerNorm2d: _channel_norm, EquivariantSelfAttention2d: _self_attention,
    SelfAttention2d: _image_attention}

def _attentive(r:GraphWriter, m:AttentiveConv2d, x:Tensor)->Tensor:
    if not m.weighs_input: raise r.unknown(f'attend={m.attend!r}')
    return convolve(m.branch(x), m)

@one_call
def convolve(x:Tensor, m:EquivariantConv2d)->Tensor:
    "What a layer does as a convolution, without its branch."
    return EquivariantConv2d.forward(m, x)

def _input_attention(r:GraphWriter, m:InputAttention, f:Tensor)->Tensor:
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

def _channel_attention(r:GraphWriter, m:ChannelAttention, f:Tensor)->Tensor:
    image = f.ndim == 4
    f = f[:, :, None] if image else f
    top, mean = f.amax((-2, -1), keepdim=True), f.mean((-2, -1), keepdim=True)
    scores = [m.excite(m.squeeze(s).relu()) for s in (mean, top)]
    y = f*(scores[0] + scores[1]).sigmoid()
    return y[:, :, 0] if image else y

def _e4(r:GraphWriter, m:E4Conv2d, f:Tensor)->Tensor:
    "Kernels written at each place, and the window they sum (P4, Eq. 12)."
    writer = m.generate
    if m.padding_mode != 'zeros': raise r.unknown(f'padding_mode={m.padding_mode!r}')
    if not _plain(writer, KernelGenerator): raise r.unknown('a writer of another kind')
    kernels = write_kernels(writer.relu(writer.norm(writer.squeeze(f))), writer)
    y = sum_windows(kernels, m.encode(f), m)
    return y if m.bias is None else y + m.bias[:, None, None, None]

@one_call
def write_kernels(z:Tensor, writer:KernelGenerator)->Tensor:
    "Of features at each place the kernel there, moved with the pose."
    moved = writer.table('moved', writer.weight)
    kernels = einsum(writer.weight[moved], z, 'g v s m, b m g y x -> b s v g y x')
    if writer.bias is None: return kernels
    return kernels + rearrange(writer.bias[moved], 'g v s -> s v g 1 1')

@one_call
def sum_windows(kernels:Tensor, values:Tensor, m:Any)->Tensor:
    "At each place the sum of its window by its kernel."
    values = values.unflatten(1, (m.slices, -1))
    return window_sum(kernels, values, m.kernel_size, dilation=m.dilation).flatten(1, 2)

def _written_kernels(r:GraphWriter, value:Tensor, z:Tensor, writer:KernelGenerator)->None:
    r.add('write_kernels', [z], value, dict(weight=writer.weight, bias=writer.bias),
          dict(moved=writer.table('moved', writer.weight)))

def _window_sum(r:GraphWriter, value:Tensor, kernels:Tensor, values:Tensor, m:Any)->None:
    r.add('window_sum', [kernels, values], value, kernel_size=m.kernel_size,
          dilation=m.dilation)

# networks around a network: all copies of a picture, or the one that scores highest

@one_call
def moved(x:Tensor, group:Group, h:int)->Tensor:
    "Pictures moved by an element that keeps the pixel grid."
    return act(group, h, x)

@one_call
def chosen(scores:Tensor, *copies:Tensor)->Tensor:
    "Of some copies the one with the highest score, of a batch of one."
    return copies[int(scores[0].argmax())]

def _moved_back(r:GraphWriter, m:Symmetrise|Canonicalise, h:int, y:Tensor)->Tensor:
    "What a network says of a copy, for the picture itself."
    kind = m.kind or {2: 'invariant', 4: 'image'}.get(y.ndim)
    if kind == 'invariant': return y
    if kind == 'image': return moved(y, m.group, int(m.group.inv[h]))
    raise r.unknown(f'an output of shape {tuple(y.shape)} that is moved back')

def _symmetrise(r:GraphWriter, m:Symmetrise, x:Tensor)->Tensor:
    ys = [_moved_back(r, m, h, m.net(moved(x, m.group, h))) for h in m.group.elements]
    return sum(ys[1:], ys[0])/float(len(ys))

def _canonicalise(r:GraphWriter, m:Canonicalise, x:Tensor)->Tensor:
    copies = [moved(x, m.group, h) for h in m.group.elements]
    scores = torch.stack([m.score(copy) for copy in copies], 1)
    y = m.net(chosen(scores, *copies))
    backs = [_moved_back(r, m, h, y) for h in m.group.elements]
    return y if backs[0] is y else chosen(scores, *backs)

def _pattern_score(r:GraphWriter, m:PatternScore, x:Tensor)->Tensor:
    weight:Any = m.weight
    return F.conv2d(x, weight).relu().mean((1, 2, 3))

def _moved(r:GraphWriter, value:Tensor, x:Tensor, group:Group, h:int)->None:
    r.add('move', [x], value, matrix=group.matrices[h].int().tolist())

# what rewritten layers call, beside layers and functions
PARTS:dict[str, Callable[..., Any]] = dict(
    convolve=lambda r, value, x, m: _convolution(r, value, m, x),
    write_kernels=_written_kernels, sum_windows=_window_sum, moved=_moved,
    chosen=lambda r, value, *parts: r.add('choose', parts, value))
REWRITES:dict[type[nn.Module], Callable[..., Tensor]] = {
    AttentiveConv2d: _attentive, InputAttention: _input_attention,
    ChannelAttention: _channel_attention, E4Conv2d: _e4,
    Symmetrise: _symmetrise, Canonicalise: _canonicalise, PatternScore: _pattern_score}

def _pair(n:int|Sequence[int])->list[int]:
    return [n, n] if isinstance(n, int) else [*n]*(2//len(n))

def _conv2d(r:GraphWriter, value:Tensor, x:Tensor, weight:Tensor, bias:Tensor|None=None,
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

def _transposed(r:GraphWriter, value:Tensor, x:Tensor, weight:Tensor, bias:Tensor|None=None,
                stride:Any=1, padding:Any=0, output_padding:Any=0, groups:int=1,
                dilation:Any=1)->None:
    if groups != 1: raise r.unknown('a transposed convolution with groups')
    r.add('transposed', [x], value, dict(filter=weight, bias=bias), stride=_pair(stride),
          padding=_pair(padding), dilation=_pair(dilation))

def _conv3d(r:GraphWriter, value:Tensor, x:Tensor, weight:Tensor, bias:Tensor|None=None,
            stride:Any=1, padding:Any=0, dilation:Any=1, groups:int=1)->None:
    one = tuple(weight.shape[2:]) == (1, 1, 1) and value.shape[2:] == x.shape[2:]
    if groups != 1 or not one: raise r.unknown('a Conv3d that is not 1×1×1')
    r.add('pointwise', [x], value, dict(matrix=weight.flatten(1), bias=bias))

def _linear(r:GraphWriter, value:Tensor, x:Tensor, weight:Tensor,
            bias:Tensor|None=None)->None:
    r.add('linear', [x], value, dict(matrix=weight, bias=bias))

def _batch_norm(r:GraphWriter, value:Tensor, x:Tensor, mean:Tensor|None, var:Tensor|None,
                weight:Tensor|None=None, bias:Tensor|None=None, training:bool=False,
                momentum:float=.1, eps:float=1e-5, cudnn:bool=False)->None:
    if training or mean is None or var is None:
        raise r.unknown('a batch norm without running statistics')
    factor = (var.double() + eps).rsqrt()
    if weight is not None: factor = factor*weight.double()
    shift = -mean.double()*factor
    if bias is not None: shift = shift + bias.double()
    r.add('scale', [x], value, dict(factor=factor, shift=shift))

def _group_norm(r:GraphWriter, value:Tensor, x:Tensor, groups:int,
                weight:Tensor|None=None, bias:Tensor|None=None, eps:float=1e-5,
                cudnn:bool=False)->None:
    r.add('group_norm', [x], value, dict(factor=weight, shift=bias), eps=eps,
          groups=groups, channels=x.shape[1])

def _pool(r:GraphWriter, value:Tensor, x:Tensor, reduce:str, kernel_size:Any, stride:Any,
          padding:Any)->None:
    r.add('pool', [x], value, reduce=reduce, kernel_size=_pair(kernel_size),
          stride=_pair(stride or kernel_size), padding=_pair(padding))

def _max_pool(r:GraphWriter, value:Tensor, x:Tensor, kernel_size:Any, stride:Any=None,
              padding:Any=0, dilation:Any=1, ceil_mode:bool=False,
              return_indices:bool=False)->None:
    if ceil_mode or return_indices or _pair(dilation) != [1, 1]:
        raise r.unknown('a pool with dilation or ceil_mode')
    _pool(r, value, x, 'max', kernel_size, stride, padding)

def _mean_pool(r:GraphWriter, value:Tensor, x:Tensor, kernel_size:Any, stride:Any=None,
               padding:Any=0, ceil_mode:bool=False, count_include_pad:bool=True,
               divisor_override:int|None=None)->None:
    pads = _pair(padding) != [0, 0] and not count_include_pad
    if ceil_mode or pads or divisor_override:
        raise r.unknown('a pool with ceil_mode, or means of what lies inside')
    _pool(r, value, x, 'mean', kernel_size, stride, padding)

def _reduce_function(reduce:str)->Callable[..., None]:
    def over(r:GraphWriter, value:Any, x:Tensor, dim:Any=None, keepdim:bool=False,
             **options:Any)->None:
        if dim is None or isinstance(dim, Tensor):
            raise r.unknown(f'{reduce} without axes')
        axes = [d % x.ndim - 1 for d in ([dim] if isinstance(dim, int) else dim)]
        if -1 in axes: raise r.unknown(f'{reduce} over the pictures of a batch')
        if not isinstance(value, Tensor):   # maxima and their places
            value, places = value
            r.mark(places, None)
        r.add('reduce', [x], value, reduce=reduce, axes=axes)
    return over

def _elementwise(op:str)->Callable[..., None]:
    def function(r:GraphWriter, value:Tensor, x:Tensor, inplace:bool=False)->None:
        r.add(op, [x], value)
    return function

def _adaptive_pool(reduce:str)->Callable[..., None]:
    def function(r:GraphWriter, value:Tensor, x:Tensor, size:Any,
                 return_indices:bool=False)->None:
        if tuple(value.shape[-2:]) != (1, 1): raise r.unknown(f'a pool to {size}')
        r.add('reduce', [x], value, reduce=reduce, axes=[x.ndim - 3, x.ndim - 2])
    return function

def _arithmetic(op:str, reverse:bool=False)->Callable[..., None]:
    def function(r:GraphWriter, value:Tensor, a:Any, b:Any)->None:
        a, b = (b, a) if reverse else (a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            r.add(op, [a, b], value)
        elif isinstance(a, Tensor): r.add(op, [a], value, right=float(b))
        else: r.add(op, [b], value, left=float(a))
    return function

def _same_numbers(r:GraphWriter, value:Tensor, x:Tensor, *args:Any, **options:Any)->None:
    "The same numbers in the same order, in another shape or not."
    if value.shape == x.shape: return r.mark(value, r.node_of(x))
    r.add('reshape', [x], value)

def _dropout(r:GraphWriter, value:Tensor, x:Tensor, p:float=.5, training:bool=True,
             inplace:bool=False)->None:
    if training: raise r.unknown('dropout that is always on')
    _same_numbers(r, value, x)

def _join(r:GraphWriter, value:Tensor, tensors:Sequence[Tensor], dim:int=0)->None:
    axis = dim % value.ndim - 1
    if axis < 0: raise r.unknown('joining pictures to a batch')
    r.add('concatenate', list(tensors), value, axis=axis)

def _permute(r:GraphWriter, value:Tensor, x:Tensor, *dims:Any)->None:
    dims = dims[0] if len(dims) == 1 else dims
    order = [d % x.ndim - 1 for d in dims]
    if order[0] != -1: raise r.unknown('moving the batch axis')
    r.add('permute', [x], value, order=order[1:])

def _transpose(r:GraphWriter, value:Tensor, x:Tensor, a:int, b:int)->None:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    _permute(r, value, x, order)

def _stack(r:GraphWriter, value:Tensor, tensors:Sequence[Tensor], dim:int=0)->None:
    axis = dim % value.ndim
    parts = [t.unsqueeze(axis) for t in tensors]
    for part, t in zip(parts, tensors): _same_numbers(r, part, t)
    _join(r, value, parts, axis)

def _even(numbers:list[Any])->Any:
    "A list of numbers as a slice, if they are in even steps upwards; else the list."
    steps = {b - a for a, b in zip(numbers, numbers[1:])} or {1}
    step = next(iter(steps))
    if len(steps) > 1 or not numbers or numbers[0] < 0 or step < 1: return numbers
    return slice(numbers[0], numbers[-1] + 1, step)

def _slice(r:GraphWriter, value:Tensor, x:Tensor, index:Any)->None:
    "Numbers, slices, lists of even steps, None and … in brackets."
    index = index if isinstance(index, tuple) else (index,)
    index = tuple(_even(i) if isinstance(i, list) else i for i in index)
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
_BINARY = {'add': 'add', 'sub': 'subtract', 'subtract': 'subtract', 'mul': 'multiply',
           'multiply': 'multiply', 'div': 'divide', 'divide': 'divide',
           'truediv': 'divide'}
FUNCTIONS:dict[str, Callable[..., Any]] = {
    'conv2d': _conv2d, 'conv3d': _conv3d, 'conv_transpose2d': _transposed,
    'linear': _linear, 'cat': _join,
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
    **dict.fromkeys(('dropout', 'dropout1d', 'dropout2d', 'dropout3d', 'feature_dropout'),
                    _dropout),
    **dict.fromkeys(('flatten', 'unflatten', 'view', 'reshape', 'squeeze', 'unsqueeze', 'view_as',
                     'contiguous', 'clone', 'detach', 'float', 'double'), _same_numbers)}
for _name, _op in _BINARY.items():
    for _form in (_name, f'__{_name}__', f'{_name}_', f'__i{_name}__'):
        FUNCTIONS[_form] = _arithmetic(_op)
    FUNCTIONS[f'__r{_name}__'] = _arithmetic(_op, reverse=True)   # 1 − f
FUNCTIONS['rsub'] = _arithmetic('subtract', reverse=True)

@torch.no_grad()
def network_graph(
    net:nn.Module,
    example:Tensor,        # a picture `(1, c, h, w)`
    weights:str='steps',   # how precisely they travel: 'steps', 'bytes' or 'single'
    labels:Sequence[str]|None=None, # of the scores
    name:str|None=None,    # of the network; its class if None
)->dict[str, Any]:
    "A network at inference as JSON that `engine.js` runs; `UnknownLayer` if it cannot."
    one_of(weights, 'steps', 'bytes', 'single')
    if example.ndim != 4 or len(example) != 1:
        raise ValueError('expected one picture (1, c, h, w) as an example, got shape '
                         f'{tuple(example.shape)}')
    writer, modes = GraphWriter(net, weights), {m: m.training for m in net.modules()}
    writer.values[-1, 0] = Node('input', [], list(example.shape[1:]), 'input', '', '')
    try:
        net.eval()
        output = writer.run((example.clone(),), {})   # a network may work in place
    finally:
        for m, training in modes.items(): m.training = training
    node = writer.value_of(output)
    if node is None and writer.knows(output):
        raise writer.unknown('an output that was changed in place behind a view')
    if not isinstance(node, Node):
        raise UnknownLayer(f'{type(net).__name__} should give one tensor that depends '
                           f'on the picture, got {type(output).__name__}')
    return dict(
        format=FORMAT, name=name or type(net).__name__, input=list(example.shape[1:]),
        group=_group_json(writer.groups),
        labels=None if labels is None else [*labels],
        nodes=[n.as_json() for n in writer.nodes],
        output=node.name, tensors=writer.tensors)

def _group_json(groups:Sequence[Group])->dict[str, Any]:
    "The group of a network's layers, as tables."
    several = {group for group in groups if len(group) > 1} or {C(1)}
    if len(several) > 1:
        names = ' and '.join(sorted(group.name for group in several))
        raise UnknownLayer(f'the layers of the network are on {names}: the page shows '
                           'one group')
    group = several.pop()
    return dict(name=group.name, order=len(group), matrices=group.matrices.tolist(),
                mul=group.mul.tolist(), inv=group.inv.tolist(), grid=group.is_grid)
