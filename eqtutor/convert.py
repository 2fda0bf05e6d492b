"""Somebody's CNN as an equivariant one: each layer by its counterpart, widths at your choice,
pretrained weights where they fit."""
# Plain module: edited by hand, no notebook exports it.

import copy
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from .converted import check_converted, refused_layer, refused_operation
from .core import one_of
from .cost import count_macs, count_parameters
from .export import put_at
from .groups import Group, get_group
from .measure import interleaved
from .nn.convolution import EquivariantConv2d, GroupConv2d, LiftingConv2d, ProjectionConv2d
from .nn.decoders import GroupConvTranspose2d, GroupUpsample2d
from .nn.layers import GroupAdaptivePool2d, GroupBatchNorm2d, GroupPool, SpatialPool2d
from .trace import Call, record_calls

_WEIGHTS = nn.Conv2d, nn.ConvTranspose2d, nn.Linear
_POOLS = nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d

def _next_layers(calls:list[Call])->list[set[type]]:
    "For each call the kinds of layers with weights that hear of it next."
    nexts:list[set[type]] = [set() for _ in calls]
    for i in reversed(range(len(calls))):
        kind = type(calls[i].function)
        heard = {kind} if kind in _WEIGHTS else nexts[i]
        for source in calls[i].sources:
            if source and source[0] >= 0: nexts[source[0]] |= heard
    return nexts

def _becomes(call:Call, before:str, after:set[type])->str:
    "What a call makes of a picture, feature map, …"
    kind = type(call.function)
    if before == 'picture' and kind in (nn.Conv2d, nn.ConvTranspose2d):
        return 'feature map'
    if kind is nn.Linear and before != 'feature map': return 'output'
    if before != 'feature map': return before
    if kind in (nn.Conv2d, nn.ConvTranspose2d) and not after: return 'output'
    pools = kind in _POOLS and not after & {nn.Conv2d, nn.ConvTranspose2d}
    return 'pooled' if pools else before

@dataclass(frozen=True)
class Role:
    "What a layer of the plain network reads and gives."
    name:str       # of the layer
    layer:nn.Module
    before:str     # 'picture', 'feature map', 'pooled' or 'output'
    after:str
    axes:int       # of the tensor it reads in the plain network

def roles(
    net:nn.Module,
    x:Tensor,        # an input
)->list[Role]:
    "The layers of a plain network, each with what it reads and gives."
    with torch.no_grad(): calls = record_calls(net, x)
    nexts, state = _next_layers(calls), {(-1, 0): 'picture'}
    by_name:dict[str, Role] = {}
    places:dict[tuple[int, int], Call] = {}   # where more than one is left by a pool
    for i, call in enumerate(calls[:-1]):
        before = _joined(call, {state[s] for s in call.sources if s})
        after = _becomes(call, before, nexts[i])
        state |= {(i, k): after for k in range(len(call.outputs))}
        if call.is_layer:
            role = Role(call.name, call.function, before, after, call.inputs[0].ndim)
            first = by_name.setdefault(role.name, role)
            if (first.before, first.after) != (before, after): raise ValueError(
                f'{role.name} is called twice, once on a {first.before} and once on a '
                f'{before}: make two layers of it')
        elif before == 'feature map' and (why := refused_operation(call)):
            raise ValueError(f'{call.name} in {call.where} {why}')
        pool = next((places[s] for s in call.sources if s in places), None)
        if pool: _check_places(call, pool)
        x, y = call.inputs[0], call.outputs[0]
        if before != after == 'pooled':
            pool = call if y.shape[-2:].numel() > 1 else None
        elif y.numel() < x.numel(): pool = None   # some are put together, or left out
        if pool: places[i, 0] = pool
    return list(by_name.values())

def _joined(call:Call, befores:set[str])->str:
    "What a call reads that joins several; an output and the picture are two images."
    if not befores or befores == {'picture', 'output'}: return 'output'
    if len(befores) == 1: return befores.pop()
    if 'picture' in befores:
        remedy = 'lift the picture by an nn.Conv2d of its own before they meet'
    elif 'feature map' in befores:
        remedy = ('the poses of one are pooled. To weigh channels (squeeze and '
                  'excitation) keep (b, c, 1, 1), with nn.Conv2d(…, 1) for nn.Linear')
    else: remedy = 'one has the new width: put an nn.Linear on each before they meet'
    where, both = call.where or 'a layer', ' and '.join(sorted(befores))
    raise ValueError(f'{call.name} ({where}) joins {both}: {remedy}')

def _check_places(call:Call, pool:Call)->None:
    "Raise where a linear layer reads places, each with weights of its own."
    m:Any = call.function
    if not isinstance(m, nn.Linear) or call.inputs[0].ndim != 2: return
    rows, columns = pool.outputs[0].shape[-2:]
    one, less = f'nn.{type(pool.function).__name__}(1)', m.in_features//(rows*columns)
    raise ValueError(
        f'{call.name}: nn.Linear({m.in_features}, {m.out_features}) has weights for '
        f'each of the {rows}×{columns} places that {pool.name} leaves, and a turn '
        f'exchanges them: {one} for {pool.name}, and nn.Linear({less}, '
        f'{m.out_features})')

def _number(layer:Any, name:str)->int:
    "A size that must be the same for rows and columns."
    value = getattr(layer, name)
    if isinstance(value, str): return value            # type: ignore[return-value]
    pair = value if isinstance(value, Sequence) else (value, value)
    if pair[0] == pair[-1]: return pair[0]
    raise ValueError(f'{type(layer).__name__} has {name} {value}, and layers on a '
                     'group take one number for both: a quarter turn exchanges rows '
                     'and columns')

class _Converter:
    "Makes the counterpart of one layer after another."
    def __init__(self, group:Group, width:float, reduce:str):
        self.group, self.width, self.reduce = group, width, reduce

    def wide(self, n:int, state:str='feature map')->int:
        "The new number of channels."
        if state in ('picture', 'output'): return n
        if (wide := n*self.width) == round(wide) and wide >= 1: return round(wide)
        raise ValueError(f'width {self.width:g} makes {wide:g} channels of {n}: every '
                         'number of channels must come out whole')

    def layer(self, role:Role)->nn.Module|None:
        "The counterpart, or None where the layer may stay."
        try: return self.counterpart(role)
        except ValueError as error: raise ValueError(f'{role.name}: {error}') from None

    def counterpart(self, role:Role)->nn.Module|None:
        if role.before == 'pooled' and isinstance(role.layer, nn.Linear):
            return self.linear(role)
        if isinstance(role.layer, nn.MaxPool2d | nn.AvgPool2d): return self.pool(role)
        if 'feature map' not in (role.before, role.after): return None
        if make := _find(self.counterparts(), role.layer): return make(role)
        if not (why := refused_layer(role.layer, role.axes)): return None
        raise ValueError(f'{type(role.layer).__name__} on a feature map {why}')

    def counterparts(self)->dict[tuple, Callable]:
        return {(nn.Conv2d,): self.convolution, (nn.ConvTranspose2d,): self.transposed,
                (nn.BatchNorm2d,): self.norm, (nn.Upsample,): self.upsample,
                _POOLS: self.adaptive, (nn.Dropout2d,): self.dropout}

    def convolution(self, role:Role)->nn.Module:
        m:Any = role.layer
        cls = LiftingConv2d if role.before == 'picture' else GroupConv2d
        if role.after == 'output': cls = ProjectionConv2d   # type: ignore[assignment]
        names = 'stride', 'padding', 'dilation'
        sizes:dict[str, Any] = {name: _number(m, name) for name in names}
        new = cls(self.wide(m.in_channels, role.before),
                  self.wide(m.out_channels, role.after), _number(m, 'kernel_size'),
                  self.group, bias=m.bias is not None,
                  groups=self.blocks(m, role), **sizes)
        if m.padding_mode == 'zeros': return new
        raise ValueError(f'it pads by {m.padding_mode!r}, and layers on a group by '
                         "zeros alone: padding_mode='zeros'")

    def blocks(self, m:Any, role:Role)->int:
        "The number of blocks: with one channel a block it grows with the width."
        if m.groups == 1 or m.groups < m.in_channels: return m.groups
        return self.wide(m.in_channels, role.before)

    def transposed(self, role:Role)->nn.Module:
        m:Any = role.layer
        names = 'kernel_size', 'stride', 'padding', 'dilation', 'output_padding'
        sizes:dict[str, Any] = {name: _number(m, name) for name in names}
        if role.before == 'picture': raise ValueError(
            'it writes windows before anything lifts: begin with nn.Conv2d')
        if role.after == 'output': raise ValueError(
            'the network would end on a feature map: let an nn.Conv2d follow, which '
            f'gives an image, nn.Conv2d({m.out_channels}, {m.out_channels}, 1) say')
        return GroupConvTranspose2d(
            self.wide(m.in_channels), self.wide(m.out_channels), group=self.group,
            bias=m.bias is not None, groups=self.blocks(m, role), **sizes)

    def norm(self, role:Role)->nn.Module:
        m:Any = role.layer
        return GroupBatchNorm2d(self.wide(m.num_features), m.eps, m.momentum, m.affine,
                                m.track_running_stats)

    def upsample(self, role:Role)->nn.Module:
        m:Any = role.layer
        factor = m.scale_factor and _number(m, 'scale_factor')
        if factor and factor == int(factor) and not m.align_corners:
            return GroupUpsample2d(int(factor), m.mode)
        raise ValueError(f'{m} has no exact counterpart: a whole scale_factor, and '
                         'align_corners=False')

    def pool(self, role:Role)->nn.Module:
        m:Any = role.layer
        if m.ceil_mode:
            raise ValueError(f'{m} lets a window hang over at one end, where a size '
                             'leaves some: ceil_mode=False')
        for name, usual in _USUAL.items():
            if getattr(m, name, usual) in (usual, (usual, usual)): continue
            raise ValueError(f'{m} has no counterpart: SpatialPool2d knows {name}='
                             f'{usual} alone')
        names = 'kernel_size', 'stride', 'padding'
        sizes:dict[str, Any] = {name: _number(m, name) for name in names}
        reduce = 'max' if isinstance(m, nn.MaxPool2d) else 'mean'
        return SpatialPool2d(group=self.group, reduce=reduce, **sizes)

    def adaptive(self, role:Role)->nn.Module:
        m:Any = role.layer
        if role.after == 'pooled': return nn.Sequential(GroupPool(self.reduce), m)
        reduce = 'max' if isinstance(m, nn.AdaptiveMaxPool2d) else 'mean'
        return GroupAdaptivePool2d(_number(m, 'output_size'), reduce)

    def linear(self, role:Role)->nn.Module:
        m:Any = role.layer
        return nn.Linear(self.wide(m.in_features), m.out_features, m.bias is not None)

    def dropout(self, role:Role)->nn.Module:
        return nn.Dropout3d(role.layer.p)               # type: ignore[arg-type]

# what a pool on a group does not know
_USUAL = dict(dilation=1, return_indices=False, count_include_pad=True,
              divisor_override=None)

def _find(table:Mapping[tuple, Callable], layer:nn.Module)->Callable|None:
    for kinds, make in table.items():
        if isinstance(layer, kinds): return make
    return None


def convert(
    net:nn.Module,
    group:Group|str,
    width:float=1.,
    x:Tensor|None=None,
    reduce:str='max',
    weights:bool=False,
    check:bool=True,
)->nn.Module:
    """The network with each layer's counterpart on the group; measured, or refused.

    A picture and what generators of the group make of it go through a copy of the
    result. A `ValueError` names the layer or the line that has no counterpart or breaks
    the symmetry, and what to write there. Off the pixel grid (C8) the same network on
    p4 or p4m is measured.

    Parameters
    ----------
    net : nn.Module
        a plain network; it stays as it is
    group : Group | str
    width : float, default 1.0
        the new number of channels over the old
    x : Tensor | None, default None
        an input; a picture of 64×64 if None
    reduce : str, default 'max'
        over the poses, where the places are pooled: 'max', 'mean'
    weights : bool, default False
        put the network's weights in: see Proposition 68.1
    check : bool, default True
        measure the result; False where its cost alone matters
    """
    plain, group = copy.deepcopy(net).eval(), get_group(group)
    if weights and width != 1:
        raise ValueError(f'pretrained weights need width 1, got {width:g}')
    first = next((m for m in net.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        raise ValueError('nothing lifts the picture: expected an nn.Conv2d')
    z = torch.zeros(2, first.in_channels, 64, 64).to(first.weight) if x is None else x
    try: parts = roles(plain, z)
    except (RuntimeError, AssertionError) as error:
        if x is not None: raise
        raise ValueError('the network takes no picture of 64×64 pixels: give an input '
                         f'of its own, x=…. It says: {error}') from None
    def on(group:Group)->nn.Module:
        new = copy.deepcopy(plain)
        maker = _Converter(group, width, one_of(reduce, 'max', 'mean'))
        for role in parts:
            layer = maker.layer(role)
            if layer is None: continue
            put_at(new, role.name, layer.to(first.weight))
            if weights: put_weights(layer, role.layer)
        return new
    new = on(group)
    if check and group.is_grid: check_converted(new, plain, group, z)
    elif check:
        grid = 'p4m' if (torch.linalg.det(group.matrices) < 0).any() else 'p4'
        with torch.random.fork_rng(devices=[]): twin = on(get_group(grid))
        try: check_converted(twin, plain, get_group(grid), z)
        except ValueError as error:
            raise ValueError(f'measured on {grid}, since {group.name} leaves the pixel '
                             f'grid: {error}') from None
    return new.train(net.training)

@torch.no_grad()
def put_weights(
    new:nn.Module,   # a layer on the group
    old:nn.Module,   # its plain counterpart, with as many channels
)->None:
    "Plain weights in a layer on the group: each pose hears of itself alone."
    if isinstance(new, EquivariantConv2d): return _put_filters(new, old)
    if old.state_dict(): new.load_state_dict(old.state_dict())

def _put_filters(new:EquivariantConv2d, old:Any)->None:
    weight = old.weight
    if isinstance(old, nn.ConvTranspose2d):    # torch has the inputs first
        weight = rearrange(weight, '(b i) o ky kx -> (b o) i ky kx', b=old.groups)
    slices:Any = new.weight[:, :, 0]
    if new.lifts or new.projects: slices = new.weight
    else: new.weight.zero_()
    slices.copy_(weight)
    if new.projects: new.weight.div_(len(new.group))   # the mean over the poses
    if new.bias is not None: new.bias.copy_(old.bias)

def _time(net:nn.Module, x:Tensor)->float:
    "Median seconds of a forward and backward pass."
    def step()->None: net(x).square().mean().backward()
    return statistics.median(interleaved({'net': step}, repeats=5)['net'])

COSTS:dict[str, Callable[[nn.Module, Tensor], float]] = {
    'parameters': lambda net, x: count_parameters(net), 'macs': count_macs,
    'time': _time}

def match_width(
    make:Callable[[Any, int], nn.Module],
    group:Group|str,
    like:nn.Module,
    by:str='parameters',
    x:Tensor|None=None,
    most:int=4096,
)->int:
    """The width at which `make(group, width)` costs most nearly what `like` does.

    Parameters
    ----------
    make : Callable[[Any, int], nn.Module]
        called with group and width
    group : Group | str
    like : nn.Module
        the network to match
    by : str, default 'parameters'
        'parameters', 'macs' or 'time' (of forward and backward)
    x : Tensor | None, default None
        an input of both, for 'macs' and 'time'
    most : int, default 4096
        the largest width to try
    """
    cost = COSTS[one_of(by, *COSTS)]
    if x is None and by != 'parameters':
        raise ValueError(f'by={by!r} runs both networks: give an input, x=…')
    measure = partial(_cost_of_width, make, group, cost, x)
    target = cost(like, x)                         # type: ignore[arg-type]
    low, high = 1, 2
    while high < most and measure(high) < target: low, high = high, 2*high
    while high - low > 1:
        middle = (low + high)//2
        if measure(middle) < target: low = middle
        else: high = middle
    return min((low, high), key=lambda width: abs(measure(width) - target))

def _cost_of_width(make:Callable, group:Group|str, cost:Callable, x:Tensor|None,
                   width:int)->float:
    return cost(make(group, width), x)
