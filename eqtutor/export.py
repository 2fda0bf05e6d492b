"""At inference a group convolution is a convolution with more filters: a network as a graph of
plain torch, which other programs can run."""
# Plain module: edited by hand, no notebook exports it.

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import getitem, mul
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock, patch

import torch
import torch.nn.functional as F
from einops import rearrange
from safetensors.torch import save
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_unflatten

from .core import one_of
from .equivariance import unchanged
from .files import write_atomic
from .kernels import attentive
from .kernels.attentive import Window
from .nn.convolution import EquivariantConv2d, GroupConv2d, LiftingConv2d, ProjectionConv2d
from .nn.layers import GroupBatchNorm2d, SpatialPool2d
from .trace import Call, record_calls


def plain_conv(
    conv:EquivariantConv2d,
    norm:nn.BatchNorm3d|None=None, # one that follows, to be folded in
)->nn.Sequential:
    "A group convolution as a `Conv2d` of its bank, between two reshapes."
    o, poses = conv.out_channels, conv.out_poses
    bank = conv.filters().detach()
    bias = torch.zeros(o) if conv.bias is None else conv.bias.detach()
    bias = bias.to(bank)
    if norm is not None:
        scale, shift = affine_of(norm)
        bank = bank*scale.repeat_interleave(poses).view(-1, 1, 1, 1)
        bias = bias*scale + shift
    plain = nn.Conv2d(bank.shape[1]*conv.groups, len(bank), conv.kernel_size,
                      conv.stride, conv.padding, conv.dilation, conv.groups).to(bank)
    with torch.no_grad():
        plain.weight.copy_(bank)
        plain.bias.copy_(bias.repeat_interleave(poses))   # type: ignore[union-attr]
    layers:list[nn.Module] = [] if conv.lifts else [nn.Flatten(1, 2)]
    layers.append(plain)
    if not conv.projects: layers.append(nn.Unflatten(1, (o, poses)))
    return nn.Sequential(*layers).eval().requires_grad_(False)

def affine_of(norm:nn.BatchNorm3d)->tuple[Tensor, Tensor]:
    "The factor and the summand of a batch norm at inference, one a channel."
    variance = cast(Tensor, norm.running_var)
    scale = (variance + norm.eps).rsqrt()
    if norm.affine: scale = scale*norm.weight
    shift = -norm.running_mean*scale                # type: ignore[operator]
    if norm.affine: shift = shift + norm.bias
    return scale.detach(), shift.detach()

def _plain_pool(pool:SpatialPool2d, call:Call)->nn.Module:
    "A pool of torch; between two reshapes on a feature map."
    cls = nn.MaxPool2d if pool.reduce == 'max' else nn.AvgPool2d
    plain = cls(pool.kernel_size, pool.stride, pool.padding)
    shape = call.inputs[0].shape
    if len(shape) == 4: return plain
    return nn.Sequential(nn.Flatten(1, 2), plain, nn.Unflatten(1, tuple(shape[1:3])))

def _plain_norm(norm:GroupBatchNorm2d)->nn.Module:
    plain = nn.BatchNorm3d(norm.num_features, norm.eps, norm.momentum, norm.affine,
                           norm.track_running_stats)
    like = next(iter(norm.state_dict().values()))
    plain.to(like).load_state_dict(norm.state_dict())
    return plain.eval().requires_grad_(False)

def _with_bias(conv:nn.Conv3d)->nn.Conv3d:
    "A bias of zeros: ONNX's exporter writes a wrong one where there is none."
    conv.bias = nn.Parameter(conv.weight.new_zeros(conv.out_channels), False)
    return conv

_CONVOLUTIONS = LiftingConv2d, GroupConv2d, ProjectionConv2d

def _is_atom(m:nn.Module)->bool:
    "Does a layer become a module of torch? Others become operations."
    if type(m) in (*_CONVOLUTIONS, GroupBatchNorm2d, SpatialPool2d): return True
    return type(m).__module__.startswith('torch.nn') and not any(m.children())

def _example(net:nn.Module)->Tensor:
    "Pictures that the network takes, of 32×32 pixels or nearly so."
    layers:list[Any] = [*net.modules()]
    first = next(m for m in layers if hasattr(m, 'in_channels'))
    like = next(net.parameters())
    for n in sorted(range(8, 129), key=lambda n: (abs(n - 32), n)):
        x = torch.randn(2, first.in_channels, n, n).to(like)
        try:
            with torch.no_grad(), unchanged(net), warnings.catch_warnings():
                warnings.simplefilter('ignore')
                net(x)
        except (ValueError, RuntimeError) as error: refused = error
        else: return x
    raise ValueError(f'no picture of {first.in_channels} channels and 8 to 128 pixels '
                     f'a side is taken ({refused}): give an input, x=…')

def _followers(calls:list[Call])->dict[int, int]:
    "Convolution -> the batch norm that alone reads it: numbers of calls."
    readers:dict[tuple[int, int], list[int]] = {}
    for i, call in enumerate(calls):
        for source in call.sources:
            if source: readers.setdefault(source, []).append(i)
    found = {}
    for i, call in enumerate(calls):
        after = readers.get((i, 0), [])
        if type(call.function) not in _CONVOLUTIONS or len(after) != 1: continue
        if type(calls[after[0]].function) is GroupBatchNorm2d: found[i] = after[0]
    return found

# what α is made of, in operations that any program knows: a filter after the other
def _plain_peaks(psi:Tensor, x:Tensor, window:Window)->Tensor:
    patches = window.unfold(x)
    return torch.stack([(psi[:, :, f, None] @ patches).squeeze(-2).argmax(-1)
                        for f in range(psi.shape[2])], -1).int()

def _plain_sum_and_max(w:Tensor, x:Tensor, window:Window)->tuple[Tensor, Tensor]:
    patches, size = window.unfold(x), window.out_size(x)
    products = ((w[..., f, None, :] @ patches).squeeze(-2) for f in range(w.shape[3]))
    both = [(z.sum(2), z.amax(2)) for z in products]
    total, top = (torch.stack(t, 2).unflatten(-1, size) for t in zip(*both))
    return total, top

def _plain_sum(w:Tensor, x:Tensor, window:Window)->Tensor:
    filters = rearrange(w, 'b q i n p -> b n (q i p)')
    patches = rearrange(window.unfold(x), 'b q i p places -> b (q i p) places')
    return (filters @ patches).unflatten(-1, window.out_size(x))

@torch.no_grad()
def to_plain(
    net:nn.Module,
    fold:bool=True,         # put batch norms into the convolutions before them
    x:Tensor|None=None,     # an input; pictures near 32×32 if None
)->fx.GraphModule:
    "The network at inference as a graph of plain torch: no eqtutor code is in it."
    net = copy.deepcopy(net).eval()
    x = _example(net) if x is None else x
    two, three = torch.cat([x, x])[:2], torch.cat([x, x, x])[:3]
    with _unrolled():
        calls, more = (record_calls(net, images, _is_atom, keep=False)
                       for images in (two, three))
    plain = _Builder(calls, more, fold).build()
    _check_same(plain, net, torch.randn_like(three))
    return plain

def _check_same(plain:nn.Module, net:nn.Module, x:Tensor)->None:
    "Raise where the graph computes something else, on images it has not seen."
    outputs = zip(*(tree_leaves(each(x)) for each in (net, plain)))
    tolerance = 1e-9 if x.dtype == torch.float64 else 1e-3
    if all((b - a).abs().max() <= tolerance*a.abs().max() for a, b in outputs): return
    raise ValueError(f'the graph of {type(net).__name__} computes something else: the '
                     'network does what depends on the values or the number of images. '
                     'torch.export.export(net, (x,)) takes it as it is')

@contextmanager
def _unrolled()->Iterator[None]:
    "Inside, layers run as when exported, and functions of ours as their forward."
    def forward(cls, *args):
        own = cls.setup_context is not torch.autograd.Function.setup_context
        return cls.forward(*args) if own else cls.forward(MagicMock(), *args)
    def yes()->bool: return True
    with patch.object(torch.autograd.Function, 'apply', classmethod(forward)), \
         patch.object(torch.compiler, 'is_compiling', yes), \
         patch.object(torch.compiler, 'is_exporting', yes, create=True), \
         patch.multiple(attentive, peaks=_plain_peaks, sum_products=_plain_sum,
                        sum_and_max=_plain_sum_and_max):   # no workspaces
        yield

def _per_image(call:Call)->str:
    return (f'{call.name} repeats its weights for every image ({call.where}), which a '
            'graph for any number of images cannot hold: torch.export.export(net, '
            '(x,)) takes this network as it is')

class _Builder:
    "Writes recorded calls as a graph."
    def __init__(self, calls:list[Call], more:list[Call], fold:bool):
        self.calls, self.more = calls, more     # of two images, and of three
        self.follows = _followers(calls) if fold else {}
        self.root, self.graph = nn.Module(), fx.Graph()
        self.nodes:dict[tuple[int, int], Any] = {}
        self.constants:dict[int, tuple[Tensor, fx.Node]] = {}

    def build(self)->fx.GraphModule:
        self.nodes[-1, 0] = self.graph.placeholder('x')
        folded = set(self.follows.values())
        for i, call in enumerate(self.calls[:-1]):
            if i in folded: self.same(i, call)
            elif call.is_layer: self.layer(i, call)
            else: self.operation(i, call)
        last = self.calls[-1]
        outputs = [self.nodes[s] for s in last.sources]   # type: ignore[index]
        self.graph.output(tree_unflatten(outputs, last.form))
        return fx.GraphModule(self.root, self.graph)

    def same(self, i:int, call:Call)->None:
        self.nodes[i, 0] = self.nodes[call.sources[0]]    # type: ignore[index]

    def layer(self, i:int, call:Call)->None:
        "A module of torch in the place of a layer."
        m = call.function
        if isinstance(m, nn.Identity | nn.Dropout | nn.Dropout3d):
            return self.same(i, call)
        name = f'{call.name}_{i}'.replace('.', '_')
        self.root.add_module(name, self.plain(i, call))
        args, kwargs = self.arguments(i, call)
        self.found(i, self.graph.call_module(name, args, kwargs), call)

    def plain(self, i:int, call:Call)->nn.Module:
        m:Any = call.function
        if isinstance(m, EquivariantConv2d):
            after = self.follows.get(i)
            norm = None if after is None else self.calls[after].function
            return plain_conv(m, norm)    # type: ignore[arg-type]
        if isinstance(m, SpatialPool2d): return _plain_pool(m, call)
        if isinstance(m, GroupBatchNorm2d): return _plain_norm(m)
        return _with_bias(m) if isinstance(m, nn.Conv3d) and m.bias is None else m

    def operation(self, i:int, call:Call)->None:
        "An operation of torch; refused if it is one of ours."
        where = getattr(call.function, '__module__', None) or ''
        if 'eqtutor' in f'{where} {call.function}':
            raise ValueError(f'{call.name} is an operation of eqtutor and has no plain '
                             'form: see the table of chapter 60')
        args, kwargs = self.arguments(i, call)
        node = self.called(call.function, args, kwargs)
        self.found(i, args[0] if call.name == 'setitem' else node, call)

    def called(self, function:Any, args:tuple, kwargs:dict)->fx.Node:
        "An operation, or an attribute such as `x.mT`, which is the getter of a class."
        if type(function).__name__ != 'method-wrapper':
            return self.graph.call_function(function, args, kwargs)
        return self.graph.call_function(getattr, (args[0], function.__self__.__name__))

    def found(self, i:int, node:Any, call:Call)->None:
        "Where each output of a call is to be had."
        if call.labels == ['']:
            self.nodes[i, 0] = node
            return
        for k, label in enumerate(call.labels):   # as [0] of a tuple
            part = self.graph.call_function(getitem, (node, int(label.strip('[]'))))
            self.nodes[i, k] = part

    def multiple(self, of_two:int, of_three:int)->Any:
        "A whole number that grows with the number of images."
        if of_two % 2 or of_two//2*3 != of_three:
            raise ValueError(f'a number that is {of_two} for two images and {of_three} '
                             'for three is no multiple of the number of images')
        n = self.graph.call_function(torch.Tensor.size, (self.nodes[-1, 0], 0))
        return self.graph.call_function(mul, (n, of_two//2)) if of_two > 2 else n

    def arguments(self, i:int, call:Call)->tuple[tuple, dict]:
        "The arguments of a call in the graph: nodes, constants, numbers of images."
        leaves = []
        for n, (leaf, other) in enumerate(zip(call.leaves, self.more[i].leaves)):
            if n in call.at:
                source = call.sources[call.at.index(n)]
                leaves.append(self.nodes[source])    # type: ignore[index]
            elif isinstance(leaf, Tensor):
                leaves.append(self.tensor(leaf, other, call))
            elif type(leaf) is int and leaf != other:
                leaves.append(self.multiple(leaf, other))
            else: leaves.append(leaf)
        return tree_unflatten(leaves, call.form)

    def tensor(self, of_two:Tensor, of_three:Tensor, call:Call)->fx.Node:
        "A constant; weights for every image are kept once, and repeated by the graph."
        if of_two.shape == of_three.shape: return self.constant(of_two)
        rest = of_two.shape[1:]
        for image_first in True, False:
            sizes = (2, -1) if image_first else (-1, 2)
            if len(of_two) % 2 or len(of_three)*2 != len(of_two)*3: break
            parts = of_two.unflatten(0, sizes).unbind(0 if image_first else 1)
            if not torch.equal(*parts): continue
            n = self.graph.call_function(torch.Tensor.size, (self.nodes[-1, 0], 0))
            once = self.constant(parts[0])
            if image_first:
                return self.graph.call_function(
                    torch.Tensor.repeat, (once, n, *[1]*len(rest)))
            return self.graph.call_function(torch.repeat_interleave, (once, n, 0))
        raise ValueError(_per_image(call))

    def constant(self, t:Tensor)->fx.Node:
        "A tensor that does not depend on the input, as a buffer."
        if id(t) not in self.constants:
            name = f'constant_{len(self.constants)}'
            self.root.register_buffer(name, t.detach().clone())
            # the tensor stays with it, or another one might get its id
            self.constants[id(t)] = t, self.graph.get_attr(name)
        return self.constants[id(t)][1]

def export_network(
    net:nn.Module,
    path:str|Path,       # net.pt2, net.onnx or net.safetensors
    x:Tensor|None=None,  # an input; pictures near 32×32 if None
)->Path:
    "Write the plain network: a program, an ONNX model, or its weights alone."
    path = Path(path)
    one_of(path.suffix, '.pt2', '.onnx', '.safetensors')
    x = _example(net) if x is None else x
    plain = to_plain(net, x=x)
    if path.suffix == '.safetensors':
        write_atomic(path, save(dict(plain.state_dict())))
        return path
    two = torch.cat([x, x])[:2]
    program = torch.export.export(
        plain, (two,), dynamic_shapes=({0: torch.export.Dim('batch')},))
    if path.suffix == '.pt2': torch.export.save(program, path)
    else: _write_onnx(program, path)
    return path

def _write_onnx(program:Any, path:Path)->None:
    try: cast(Any, torch.onnx.export(program, dynamo=True, optimize=False)).save(path)
    except ImportError as error:
        raise RuntimeError("ONNX is an extra: pip install 'eqtutor[onnx]'") from error

class FrozenConv2d(nn.Conv2d):
    "A convolution of feature maps by a bank that has been computed once."
    poses = 0           # of the output; 0 for an image
    rectifies = False   # a ReLU that followed is in it

    def forward(self, x:Tensor)->Tensor:
        if x.ndim == 5: x = x.flatten(1, 2)
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding,
                     self.dilation, self.groups)
        if self.rectifies: y = y.relu_()
        return y.unflatten(1, (-1, self.poses)) if self.poses else y

def _frozen(conv:EquivariantConv2d, norm:nn.BatchNorm3d|None=None)->FrozenConv2d:
    plain = next(m for m in plain_conv(conv, norm) if isinstance(m, nn.Conv2d))
    plain.__class__ = FrozenConv2d
    plain.poses = 0 if conv.projects else conv.out_poses  # type: ignore[assignment]
    return plain  # type: ignore[return-value]

@torch.no_grad()
def fold(
    net:nn.Module,
    x:Tensor|None=None, # an input; pictures near 32×32 if None
)->nn.Module:           # the same net
    "Change a network for inference: banks frozen, norms folded; there is no way back."
    net.eval()
    calls = record_calls(net, _example(net) if x is None else x, _is_atom)
    times = Counter(id(call.function) for call in calls)
    for i, j in _followers(calls).items():
        conv, norm = calls[i], calls[j]
        if times[id(conv.function)] > 1 or times[id(norm.function)] > 1: continue
        frozen = _frozen(cast(Any, conv.function), cast(Any, norm.function))
        put_at(net, conv.name, frozen)
        put_at(net, norm.name, nn.Identity())
    for name, m in list(net.named_modules()):
        called = times[id(m)] and type(m) in _CONVOLUTIONS
        if called: put_at(net, name, _frozen(m))      # type: ignore[arg-type]
    _tidy(net)
    return net

def _tidy(net:nn.Module)->None:
    "Shorten each sequence of layers."
    places = Counter(id(m) for _, m in net.named_modules(remove_duplicate=False))
    for m in net.modules():
        if type(m) is nn.Sequential: _without_the_idle(m, places)

def _without_the_idle(layers:nn.Sequential, places:Counter[int])->None:
    "Take out what does nothing at inference, and put each ReLU into its convolution."
    idle = nn.Identity, nn.Dropout, nn.Dropout3d
    before:nn.Module|None = None
    for name, m in list(layers.named_children()):
        # a convolution that stands elsewhere too is left as it is
        rectifies = (type(m) is nn.ReLU and type(before) is FrozenConv2d
                     and places[id(before)] == 1)
        if rectifies: before.rectifies = True     # type: ignore[union-attr,assignment]
        if rectifies or isinstance(m, idle): delattr(layers, name)
        else: before = m

def put_at(
    net:nn.Module,
    name:str,      # of a submodule, as in `net.named_modules()`
    m:nn.Module,   # what stands there from now on
)->None:
    "Put another module in the place of one."
    parent, _, last = name.rpartition('.')
    setattr(net.get_submodule(parent), last, m)
