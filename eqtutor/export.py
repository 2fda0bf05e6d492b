"""At inference a group convolution is a convolution with more filters: a network as a graph of
plain torch, which other programs can run."""
# Plain module: edited by hand, no notebook exports it.

import copy
import warnings
from collections import Counter
from operator import getitem, mul
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_unflatten

from .core import one_of
from .equivariance import unchanged
from .files import write_atomic
from .nn.convolution import EquivariantConv2d, GroupConv2d, LiftingConv2d, ProjectionConv2d
from .nn.layers import GroupBatchNorm2d, SpatialPool2d
from .nn.vectors import VectorLiftingConv2d, VectorProjectionConv2d
from .plain import find_plain_form
from .trace import Call, Source, record_calls


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
                      conv.stride, conv.padding, conv.dilation, conv.groups,
                      padding_mode=cast(Any, conv.padding_mode)).to(bank)
    with torch.no_grad():
        plain.weight.copy_(bank)
        plain.bias.copy_(bias.repeat_interleave(poses))   # type: ignore[union-attr]
    layers:list[nn.Module] = [] if conv.lifts else [nn.Flatten(1, 2)]
    layers.append(plain)
    if not conv.projects: layers.append(nn.Unflatten(1, (o, poses)))
    return nn.Sequential(*layers).eval().requires_grad_(False)

def bank_graph(
    conv:EquivariantConv2d,
)->fx.GraphModule:
    "From a convolution's weight its bank: a gather, and off the pixel grid a product before it."
    def bank(weight:Tensor)->Tensor:
        other = copy.copy(conv)
        other._parameters = conv._parameters | {'weight': weight}   # type: ignore[dict-item]
        return other.filters()
    graph = make_fx(bank)(conv.weight.detach())
    for name, table in list(vars(graph).items()):
        if not isinstance(table, Tensor): continue
        delattr(graph, name)
        graph.register_buffer(name, table)   # so that it goes where the weights go
    return graph

def affine_of(
    norm:nn.BatchNorm3d,
)->tuple[Tensor, Tensor]:
    "The factor and the summand of a batch norm at inference, one a channel."
    variance = cast(Tensor, norm.running_var)
    scale = (variance + norm.eps).rsqrt()
    if norm.affine: scale = scale*norm.weight
    shift = -norm.running_mean*scale                # type: ignore[operator]
    if norm.affine: shift = shift + norm.bias
    return scale.detach(), shift.detach()

CONVOLUTIONS = (LiftingConv2d, GroupConv2d, ProjectionConv2d, VectorLiftingConv2d,
                VectorProjectionConv2d)

def becomes_module(
    m:nn.Module,
)->bool:
    "Does a layer become a module of torch? Others become operations."
    if type(m) in (*CONVOLUTIONS, GroupBatchNorm2d, SpatialPool2d): return True
    return type(m).__module__.startswith('torch.nn') and not any(m.children())

def example_input(
    net:nn.Module,
)->Tensor:
    "Pictures that the network takes, of 32×32 pixels or nearly so."
    layers:list[Any] = [*net.modules()]
    first = next(m for m in layers if hasattr(m, 'in_channels'))
    like = next(net.parameters(), torch.empty(()))
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

def norms_behind(
    calls:list[Call],
)->dict[int, int]:
    "Convolution -> the batch norm that alone reads it: numbers of calls."
    readers:dict[Source|None, list[int]] = {}
    for i, call in enumerate(calls):
        for source in call.sources: readers.setdefault(source, []).append(i)
    pairs = {}
    for i, call in enumerate(calls):
        after = readers.get((i, 0), [])
        if type(call.function) not in CONVOLUTIONS or len(after) != 1: continue
        if type(calls[after[0]].function) is GroupBatchNorm2d: pairs[i] = after[0]
    return pairs

@torch.no_grad()
def to_plain(
    net:nn.Module,
    fold:bool=True,
    x:Tensor|None=None,
    expand:bool=True,
)->fx.GraphModule:
    """The network at inference as a graph of plain torch: no eqtutor code is in it.

    Parameters
    ----------
    net : nn.Module
    fold : bool, default True
        put batch norms into the convolutions before them
    x : Tensor | None, default None
        an input; pictures near 32×32 if None
    expand : bool, default True
        write each bank out, |H| times the weights of a group convolution; or keep the
        weights, and make the bank of them anew with each picture
    """
    net = copy.deepcopy(net).eval()
    x = example_input(net) if x is None else x
    two, three = torch.cat([x, x])[:2], torch.cat([x, x, x])[:3]
    calls, more = (record_calls(net, images, becomes_module, False, find_plain_form)
                   for images in (two, three))
    plain = GraphBuilder(calls, more, fold, expand).build()
    unseen = torch.randn_like(three)
    outputs = zip(*(tree_leaves(each(unseen)) for each in (net, plain)))
    tolerance = 1e-9 if unseen.dtype == torch.float64 else 1e-3
    if all((b - a).abs().max() <= tolerance*a.abs().max() for a, b in outputs): return plain
    raise ValueError(f'the graph of {type(net).__name__} computes something else: the '
                     'network does what depends on the values or the number of images. '
                     'torch.export.export(net, (x,)) takes it as it is')

class GraphBuilder:
    "Writes recorded calls as a graph."
    def __init__(self,
        calls:list[Call], # on two images …
        more:list[Call],  # … and on three
        fold:bool,        # put batch norms into the convolutions before them
        expand:bool,      # write banks out
    ):
        self.calls, self.more, self.expand = calls, more, expand
        self.follows = norms_behind(calls) if fold else {}
        self.root, self.graph = nn.Module(), fx.Graph()
        self.nodes:dict[Source|None, Any] = {}
        self.constants:dict[int, tuple[Tensor, fx.Node]] = {}

    def build(self)->fx.GraphModule:
        "The graph of all calls; the last one is the output."
        self.nodes[-1, 0] = self.graph.placeholder('x')
        *calls, last = self.calls
        idle = nn.Identity, nn.Dropout, nn.Dropout3d
        for i, call in enumerate(calls):
            if i in self.follows.values() or isinstance(call.function, idle):
                self.nodes[i, 0] = self.nodes[call.sources[0]]
                continue
            args, kwargs = self.arguments(i, call)
            node = self.module_node(i, call, args, kwargs) if call.is_layer else (
                self.operation_node(call, args, kwargs))
            if call.labels == ['']: self.nodes[i, 0] = node
            else:     # outputs in a tuple: [0], [1], …
                for k, label in enumerate(call.labels):
                    part = int(label.strip('[]'))
                    self.nodes[i, k] = self.graph.call_function(getitem, (node, part))
        outputs = [self.nodes[source] for source in last.sources]
        self.graph.output(tree_unflatten(outputs, last.form))
        return fx.GraphModule(self.root, self.graph)

    def module_node(self, i:int, call:Call, args:tuple, kwargs:dict[str, Any])->fx.Node:
        "A module of torch in the place of a layer."
        m:Any = call.function
        shape = call.inputs[0].shape
        if isinstance(m, EquivariantConv2d):
            norm:Any = self.calls[self.follows[i]].function if i in self.follows else None
            if not self.expand: return self.compact_node(f'{call.name}_{i}', m, norm, *args)
            m = plain_conv(m, norm)
        elif isinstance(m, SpatialPool2d):
            pool = nn.MaxPool2d if m.reduce == 'max' else nn.AvgPool2d
            m = pool(m.kernel_size, m.stride, m.padding)
            if len(shape) == 5:
                m = nn.Sequential(nn.Flatten(1, 2), m, nn.Unflatten(1, tuple(shape[1:3])))
        elif isinstance(m, GroupBatchNorm2d):
            norm = nn.BatchNorm3d(m.num_features, m.eps, m.momentum, m.affine,
                                  m.track_running_stats)
            norm.to(next(iter(m.state_dict().values()))).load_state_dict(m.state_dict())
            m = norm.eval().requires_grad_(False)
        elif isinstance(m, nn.Conv3d) and m.bias is None:
            # a bias of zeros: ONNX's exporter writes a wrong one where there is none
            m.bias = nn.Parameter(m.weight.new_zeros(m.out_channels), False)
        name = f'{call.name}_{i}'.replace('.', '_')
        self.root.add_module(name, m)
        return self.graph.call_module(name, args, kwargs)

    def compact_node(self, name:str, conv:EquivariantConv2d, norm:nn.BatchNorm3d|None,
                     x:fx.Node)->fx.Node:
        "A convolution that makes its bank of its weight, as operations."
        call, name = self.graph.call_function, name.replace('.', '_')
        weight, bias = conv.weight.detach(), conv.bias
        if bias is None: bias = nn.Parameter(weight.new_zeros(conv.out_channels))
        if norm is not None:
            scale, shift = affine_of(norm)
            weight = weight*scale.view(-1, *[1]*(weight.ndim - 1))
            bias = nn.Parameter(bias*scale + shift)
        self.root.add_module(f'{name}_bank', bank_graph(conv))
        bank = self.graph.call_module(f'{name}_bank', (self.constant(weight),))
        each = call(torch.repeat_interleave, (self.constant(bias), conv.out_poses, 0))
        if not conv.lifts: x = call(torch.flatten, (x, 1, 2))
        padding = conv.padding
        if conv.padding_mode != 'zeros':
            x, padding = call(F.pad, (x, [padding]*4, conv.padding_mode)), 0
        y = call(F.conv2d, (x, bank, each, conv.stride, padding, conv.dilation, conv.groups))
        if conv.projects: return y
        return call(torch.unflatten, (y, 1, (conv.out_channels, conv.out_poses)))

    def operation_node(self, call:Call, args:tuple, kwargs:dict[str, Any])->Any:
        "An operation of torch; refused if it is one of ours."
        module = getattr(call.function, '__module__', None) or ''
        if 'eqtutor' in f'{module} {call.function}':
            raise ValueError(f'{call.name} is an operation of eqtutor and has no plain '
                             'form: see chapter 68')
        if type(call.function).__name__ == 'method-wrapper':   # an attribute, x.mT say
            return self.graph.call_function(getattr, (args[0], call.name))
        node = self.graph.call_function(call.function, args, kwargs)
        return args[0] if call.name == 'setitem' else node

    def arguments(self, i:int, call:Call)->tuple[tuple, dict[str, Any]]:
        "The arguments of a call in the graph: nodes, constants, numbers of images."
        leaves = []
        for n, (leaf, other) in enumerate(zip(call.leaves, self.more[i].leaves)):
            if n in call.at: leaves.append(self.nodes[call.sources[call.at.index(n)]])
            elif isinstance(leaf, Tensor): leaves.append(self.tensor(leaf, other, call))
            elif type(leaf) is int and leaf != other: leaves.append(self.multiple(leaf, other))
            else: leaves.append(leaf)
        return tree_unflatten(leaves, call.form)

    def images(self)->fx.Node:
        "The number of images."
        return self.graph.call_function(torch.Tensor.size, (self.nodes[-1, 0], 0))

    def multiple(self, of_two:int, of_three:int)->Any:
        "A whole number that grows with the number of images."
        if of_two % 2 or of_two//2*3 != of_three:
            raise ValueError(f'a number that is {of_two} for two images and {of_three} '
                             'for three is no multiple of the number of images')
        n = self.images()
        return self.graph.call_function(mul, (n, of_two//2)) if of_two > 2 else n

    def tensor(self, of_two:Tensor, of_three:Tensor, call:Call)->fx.Node:
        "A constant; weights for every image are kept once, and repeated by the graph."
        if of_two.shape == of_three.shape: return self.constant(of_two)
        for image_first in True, False:
            sizes = (2, -1) if image_first else (-1, 2)
            if len(of_two) % 2 or len(of_three)*2 != len(of_two)*3: break
            parts = of_two.unflatten(0, sizes).unbind(0 if image_first else 1)
            if not torch.equal(*parts): continue
            n, once = self.images(), self.constant(parts[0])
            if not image_first:
                return self.graph.call_function(torch.repeat_interleave, (once, n, 0))
            times:Any = n, *[1]*(of_two.ndim - 1)
            return self.graph.call_function(torch.Tensor.repeat, (once, *times))
        raise ValueError(
            f'{call.name} repeats its weights for every image ({call.where}), which a '
            'graph for any number of images cannot hold: torch.export.export(net, '
            '(x,)) takes this network as it is')

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
    path:str|Path,
    x:Tensor|None=None,
    expand:bool=True,
)->Path:
    """Write the plain network: a program, an ONNX model, or its weights alone.

    With banks written out a file is as many times larger than the weights as the group
    has elements, where group convolutions are most of them: 0.7 MB of a p4m ResNet18
    take 5.7 MB, and 0.8 MB with `expand=False`.

    Parameters
    ----------
    net : nn.Module
    path : str | Path
        net.pt2, net.onnx or net.safetensors
    x : Tensor | None, default None
        an input; pictures near 32×32 if None
    expand : bool, default True
        write each bank out; or keep the weights, and make the bank of them anew with
        each picture
    """
    path = Path(path)
    one_of(path.suffix, '.pt2', '.onnx', '.safetensors')
    x = example_input(net) if x is None else x
    plain = to_plain(net, x=x, expand=expand)
    if path.suffix == '.safetensors':
        write_atomic(path, save(dict(plain.state_dict())))
        return path
    two = torch.cat([x, x])[:2]
    program = torch.export.export(
        plain, (two,), dynamic_shapes=({0: torch.export.Dim('batch')},))
    if path.suffix == '.pt2':
        torch.export.save(program, path)
        return path
    try: cast(Any, torch.onnx.export(program, dynamo=True, optimize=False)).save(path)
    except ImportError as error:
        raise RuntimeError("ONNX is an extra: pip install 'eqtutor[onnx]'") from error
    return path

class FrozenConv2d(nn.Conv2d):
    "A convolution of feature maps by a bank that has been computed once."
    poses = 0           # of the output; 0 for an image
    rectifies = False   # a ReLU that followed is in it

    def forward(self, x:Tensor)->Tensor:
        if x.ndim == 5: x = x.flatten(1, 2)
        y = self._conv_forward(x, self.weight, self.bias)
        if self.rectifies: y = y.relu_()
        return y.unflatten(1, (-1, self.poses)) if self.poses else y

def frozen_conv(
    conv:EquivariantConv2d,
    norm:nn.BatchNorm3d|None=None, # one that follows, to be folded in
)->FrozenConv2d:
    "The same by a bank that is computed now."
    plain = next(m for m in plain_conv(conv, norm) if isinstance(m, nn.Conv2d))
    plain.__class__ = FrozenConv2d
    plain.poses = 0 if conv.projects else conv.out_poses  # type: ignore[assignment]
    return plain  # type: ignore[return-value]

@torch.no_grad()
def fold(
    net:nn.Module,
    x:Tensor|None=None,
)->nn.Module:
    """Change a network for inference: banks frozen, norms folded; there is no way back.

    Parameters
    ----------
    net : nn.Module
    x : Tensor | None, default None
        an input; pictures near 32×32 if None

    Returns
    -------
    nn.Module
        the same net
    """
    net.eval()
    calls = record_calls(net, example_input(net) if x is None else x, becomes_module)
    times = Counter(id(call.function) for call in calls)
    for i, j in norms_behind(calls).items():
        conv, norm = calls[i], calls[j]
        if times[id(conv.function)] > 1 or times[id(norm.function)] > 1: continue
        frozen = frozen_conv(cast(Any, conv.function), cast(Any, norm.function))
        put_at(net, conv.name, frozen)
        put_at(net, norm.name, nn.Identity())
    for name, m in list(net.named_modules()):
        called = times[id(m)] and type(m) in CONVOLUTIONS
        if called: put_at(net, name, frozen_conv(m))      # type: ignore[arg-type]
    # take out what does nothing at inference, and put each ReLU into its convolution
    places = Counter(id(m) for _, m in net.named_modules(remove_duplicate=False))
    for layers in [m for m in net.modules() if type(m) is nn.Sequential]:
        before:Any = None
        for name, m in list(layers.named_children()):
            # a convolution that stands elsewhere too is left as it is
            rectified = (type(m) is nn.ReLU and type(before) is FrozenConv2d
                         and places[id(before)] == 1)
            if rectified: before.rectifies = True
            if rectified or isinstance(m, nn.Identity | nn.Dropout | nn.Dropout3d):
                delattr(layers, name)
            else: before = m
    return net

def put_at(
    net:nn.Module,
    name:str,      # of a submodule, as in `net.named_modules()`
    m:nn.Module,   # what stands there from now on
)->None:
    "Put another module in the place of one."
    parent, _, last = name.rpartition('.')
    setattr(net.get_submodule(parent), last, m)
