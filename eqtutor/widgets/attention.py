"Whom does a pixel listen to: attention of any pixel of a picture, before and after it is moved."
# Plain module: edited by hand, no notebook exports it.

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..groups import Group, get_group
from ..nn.affine import LiftingAffineSelfConv2d
from ..nn.attention import SelfAttention2d
from ..nn.self_attention import LiftingSelfAttention2d, moved_offsets
from .graph import network_graph, sum_windows
from .page import PictureWidget, live_page
from .turn import lighter_graphs, tensor_blocks


class Place(NamedTuple):
    "Where in the graph of a network a pixel is answered."
    kind:str               # 'attention', 'kernel' or 'gate'
    node:str               # of the attention or of the window sum; where the branch ends
    gates:list[str]|None   # of a gate: the factors of channels and of places

def _place(graph:dict[str, Any], layer:str|None, name:str)->Place:
    "The first layer that attends, writes kernels or removes, at or inside a module."
    def within(node:dict)->bool: return not layer or (node['name'] + '.').startswith(layer + '.')
    inside = [node for node in graph['nodes'] if within(node)]
    for node in inside:
        if node['op'] == 'self_attention': return Place('attention', node['name'], None)
        if node['op'] == 'window_sum': return Place('kernel', node['name'], None)
        gates = [n['name'] for n in inside if n['op'] == 'sigmoid' and '.branch.' in n['name']]
        if len(gates) > 1 and node['name'] == gates[1]: return Place('gate', gates[1], gates[:2])
    where = f' at {layer!r}' if layer else ''
    raise ValueError(f'{name} has no layer{where} that attends, writes kernels or weighs its '
                     'input: expected self-attention, an E4Conv2d, or an attentive convolution '
                     "with attend='input'")

def _until(graph:dict[str, Any], name:str)->dict[str, Any]:
    "The part of a network that a node needs."
    names = [node['name'] for node in graph['nodes']]
    nodes = graph['nodes'][:names.index(name) + 1]
    used = {key for node in nodes for key in (node['weights'] | node['tables']).values()}
    tensors = {key: t for key, t in graph['tensors'].items() if key in used}
    return graph | dict(nodes=nodes, output=name, tensors=tensors, labels=None)

class AttentionMap(PictureWidget):
    """Point at a pixel of a picture, and see whom it listens to; then move the picture.

    Each panel is a layer; of a single layer a pose. The layers run in the page, at any pixel:
    self-attention shows the weights of the pixel, `E4Conv2d` the kernel that it writes, an
    attentive convolution (`attend='input'`) what its branch removes. The reader turns, shifts
    and shuffles the picture, and each panel says how far it did not go along. The page needs no
    kernel, so a notebook shows the same beside one and without.

    Parameters
    ----------
    layers : nn.Module | dict[str, nn.Module]
        one to four networks or layers, by what they are called
    pictures : Tensor | dict[str, Tensor]
        square, values from 0 to 1: `(h, w)`, `(c, h, w)` or several by name
    layer : str | None, default None
        the module that answers, as in `named_modules()`; the first that can if None
    asks : tuple[int, int] | None, default None
        the pixel that asks first, (row, column); the middle if None
    head, pose : int, default 0
        which are shown first
    panel : int, default 0
        which panel is shown on the large picture first
    mean, std : float | Sequence[float]
        what pictures are normalised by
    weights : str
        which weights these are: the page says so
    title : str
        what the widget is called
    tour : bool, default False
        a button: a guided tour from the picture to a single sum

    Examples
    --------
    >>> from eqtutor.nn import SelfAttention2d
    >>> from eqtutor.widgets import AttentionMap
    >>> layer = SelfAttention2d(1, 4, window=5)
    >>> AttentionMap({'in a window': layer}, torch.rand(9, 9)).title
    'Whom does this pixel listen to?'
    """
    def __init__(self,
        layers:nn.Module|dict[str, nn.Module], # up to four, by what they are called
        pictures:Tensor|dict[str, Tensor],     # square, values from 0 to 1
        layer:str|None=None,        # the module that answers; the first that can if None
        asks:tuple[int, int]|None=None, # the pixel that asks first; the middle if None
        head:int=0,                 # which head, or kernel, is shown first
        pose:int=0,
        panel:int=0,                # which panel is on the large picture first
        mean:float|Sequence[float]=0, # what pictures are normalised by
        std:float|Sequence[float]=1,
        weights:str='random weights (seed 0)', # which they are: the page says so
        title:str='Whom does this pixel listen to?',
        tour:bool=False,            # a button: a guided tour from the picture to a single sum
    ):
        named = layers if isinstance(layers, dict) else {type(layers).__name__: layers}
        if not 1 <= len(named) <= 4:
            raise ValueError(f'expected one to four layers, got {len(named)}')
        self.layers, self.title, self.weights = dict(named), title, weights
        self.tour = tour
        self.take(pictures, mean, std)
        size = self.first.shape[-1]
        self.asks = (size//2, size//2) if asks is None else asks
        if not all(0 <= i < size for i in self.asks):
            raise ValueError(f'expected a pixel (row, column) of {size}×{size}, got {asks}')
        self.head, self.pose, self.panel = head, pose, panel
        self._read(layer)

    def _read(self, layer:str|None)->None:
        "The graph of each layer, as far as it is needed, and where it answers."
        self.graphs, self.places = list[dict[str, Any]](), list[Place]()
        for name, net in self.layers.items():
            like = next(net.parameters(), self.first)
            graph = network_graph(net, self.input(self.first).to(like), name=name)
            place = _place(graph, layer, name)
            self.graphs.append(_until(graph, place.node))
            self.places.append(place)
            h, w = self._pixels(self.graphs[-1], place)
            size = self.first.shape[-1]
            if h != w or (size - h) % 2 or h < size - 8:
                raise ValueError(f'{name} answers for {h}×{w} pixels of a picture of '
                                 f'{size}×{size}: choose a layer before the first pooling')

    @staticmethod
    def _pixels(graph:dict[str, Any], place:Place)->list[int]:
        "How many rows and columns the layer sees."
        shapes = {node['name']: node['shape'] for node in graph['nodes']}
        shapes['input'] = graph['input']
        node = next(node for node in graph['nodes'] if node['name'] == place.node)
        return shapes[place.node if place.gates else node['inputs'][0]][-2:]

    def panels(self)->list[str]:
        "What each panel shows: a layer, or of a single layer a pose."
        if len(self.layers) > 1: return list(self.layers)
        group = self._group(*self.layers.values())
        return [f'pose {group.describe(h)}' for h in group.elements][:8]

    @staticmethod
    def _group(net:nn.Module)->Group:
        "The largest group of a layer's modules."
        own = [getattr(m, 'group', None) for m in net.modules()]
        groups = [group for group in own if isinstance(group, Group)]
        return max(groups, key=len, default=get_group('Z2'))

    def _heads(self)->int:
        "Of the layer with the most: of attention, or kernels at a place."
        def count(graph:dict[str, Any], place:Place)->int:
            node = next(node for node in graph['nodes'] if node['name'] == place.node)
            if place.kind == 'attention': return node['heads']
            shapes = {node['name']: node['shape'] for node in graph['nodes']}
            return shapes[node['inputs'][0]][0] if place.kind == 'kernel' else 1
        return max(map(count, self.graphs, self.places))

    def _spec(self)->dict[str, Any]:
        "What the page's script reads."
        return dict(
            **self.picture_spec(),
            listens=[place._asdict() for place in self.places], asks=list(self.asks), turn=0,
            head=self.head, pose=self.pose, panel=self.panel, panels=len(self.panels()),
            heads=self._heads(), **lighter_graphs(self.graphs))

    def html(self)->str:
        "The page's face; it runs wherever a browser shows it."
        return live_page(
            'attention', self._spec(), tensor_blocks(self.graphs), title=self.title,
            panels=self.panels(), tour=self.tour, parts=('tour',)*self.tour,
            note=self.weights[0].upper() + self.weights[1:])

# --- the filters of affine self-convolution

class AffineFilters(nn.Module):
    """What a lifting affine layer of one head makes at each pixel, in steps that a page computes.

    Parameters
    ----------
    layer : LiftingAffineSelfConv2d
        of one head and one channel out
    size : int
        of the pictures

    Notes
    -----
    The output is what the filters α·ψ sum: the layer's own where β of the values is 0 and its last
    linear map 1. `AttentionMap` shows the filter at a pixel.
    """
    slices, dilation = 1, 1

    def __init__(self, layer:LiftingAffineSelfConv2d, size:int):
        super().__init__()
        if layer.out_channels != 1 or layer.boundary != 'mask':
            raise ValueError('expected a layer of one channel out that masks its boundary, got '
                             f'{layer.out_channels} channels and {layer.boundary!r}')
        self.group, self.kernel_size = layer.group, (k := layer.kernel_size)
        self.query, self.key, self.value = layer.query, layer.key, layer.value
        def numbers(name:str, factor:float=1.)->nn.ParameterList:   # ψ, β `(k² or 1, |H|, 1, 1)`
            parts = getattr(layer, f'affine_{name}').psi_and_beta()
            each = (t.detach().reshape(len(self.group), -1).T for t in parts)
            return nn.ParameterList([factor*t[..., None, None] for t in each])
        self.of_query, self.of_key = numbers('query', layer.scale), numbers('key')
        self.of_value = numbers('value')
        shifts = torch.eye(k*k).view(k*k, 1, k, k).to(layer.query.weight)
        self.shifts = nn.Parameter(shifts)
        inside = F.conv2d(shifts.new_ones(1, 1, size, size), shifts, padding=k//2)
        self.inside = nn.Parameter(inside[0, :, None])

    def forward(self, x:Tensor)->Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        near = F.conv2d(k, self.shifts, padding=self.kernel_size//2)[:, :, None]
        keys = near*self.of_key[0] + self.of_key[1]       # `(b, k², |H|, h, w)`
        scores = keys*(q[:, :, None]*self.of_query[0] + self.of_query[1])
        power = scores.sigmoid()/(scores*-1.).sigmoid()*self.inside   # e to the score
        filters = power/power.sum(1, keepdim=True)*self.of_value[0]
        values = torch.stack([v]*len(self.group), 2)
        return sum_windows(filters[:, None], values, self)

# --- four encodings, by hand

GOAL, SLOPE = (0, 7), .03   # seven to the right, and how steeply that is wanted
CENTRE = 11, 6              # the place that the absolute encoding wants

def _wanted(down:Tensor, right:Tensor, size:int)->Tensor:
    "Minus the squared distance from the goal, round the frame."
    def rest(t:Tensor)->Tensor: return (t + size//2) % size - size//2
    return -SLOPE*(rest(down - GOAL[0])**2 + rest(right - GOAL[1])**2)

class HandEncoding(nn.Module):
    "In place of a learnt encoding: one channel says how much an offset is wanted."
    def __init__(self,
        group:Group|str,
        wanted:Callable[[Tensor, Tensor], Tensor], # of offsets (right, up) as a pose sees them
        width:int,
        turns:bool=True, # False, which is wrong: all poses want what pose 0 wants
    ):
        super().__init__()
        self.group, self.wanted = get_group(group), wanted
        self.width, self.turns = width, turns

    def forward(self, reach:tuple[int, int])->Tensor:
        offsets = moved_offsets(self.group, reach).round()
        if not self.turns: offsets = offsets[:, :1].expand_as(offsets)
        right, up = offsets.unbind(-1)
        code = right.new_zeros(*right.shape, self.width)
        code[..., -1] = self.wanted(right, up)
        return code

    def poses(self)->Tensor: return torch.zeros(1, self.width, dtype=torch.float64)

def _like_colours(query:Any, key:Any, value:Any, out:Any)->None:
    "Scores 9·⟨colour, colour⟩, and a last channel that reads the encoding."
    for layer in (query, key, value, out):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        for i in range(4): layer.weight[i, i] = 1.
    for layer in (query, key):
        for i in range(3): layer.weight[i, i] = 18**.5
    query.weight[3, 3] = 0.
    query.bias[3] = 1.

@torch.no_grad()
def four_encodings(
    size:int=16, # of the pictures
)->dict[str, nn.Module]:
    """Global self-attention of coloured pictures with weights by hand, under four encodings.

    Parameters
    ----------
    size : int, default 16
        of the pictures

    Returns
    -------
    dict[str, nn.Module]
        'no encoding', 'absolute', 'relative' and 'on the group': from `(b, 3, size, size)`
    """
    def embedded(layer:Any)->nn.Module:
        colours = nn.Conv2d(3, 4, 1, bias=False, dtype=torch.float64)
        colours.weight.copy_(torch.eye(4, 3)[..., None, None])
        return nn.Sequential(colours, layer)
    layers = dict[str, nn.Module]()
    for name, encoding in (('no encoding', 'none'), ('absolute', 'absolute'),
                           ('relative', 'relative')):
        layer:Any = SelfAttention2d(
            4, 4, encoding=encoding, size=(size, size), dtype=torch.float64)
        _like_colours(layer.maps.query, layer.maps.key, layer.maps.value, layer.out)
        i = torch.arange(size, dtype=torch.float64)
        if layer.absolute is not None:
            layer.absolute.zero_()
            layer.absolute[3] = -2*SLOPE*((i[:, None] - CENTRE[0])**2 + (i - CENTRE[1])**2)
        if layer.relative is not None:
            down = torch.arange(1 - size, size, dtype=torch.float64)
            layer.relative.table.zero_()
            layer.relative.table[0, 3] = 2*_wanted(down[:, None], down, size)
        layers[name] = embedded(layer)
    lift:Any = LiftingSelfAttention2d(
        4, 4, 'p4', window=None, heads=1, head_channels=4, extent=size, dtype=torch.float64)
    _like_colours(lift.query, lift.key, lift.value, lift.out)
    lift.encoder = HandEncoding(
        'p4', lambda right, up: 2*_wanted(-up, right, size), 4)   # half of it counts: 1/√d
    return layers | {'on the group': embedded(lift)}

def whom_it_hears(
    picture:Tensor, # `(3, h, w)`, values from 0 to 1
    asks:tuple[int, int]=(4, 4), # the pixel that asks first
)->AttentionMap:
    """Four encodings side by side: which goes along with the picture?

    Parameters
    ----------
    picture : Tensor
        `(3, h, w)`, values from 0 to 1
    asks : tuple[int, int], default (4, 4)
        the pixel that asks first
    """
    return AttentionMap(
        four_encodings(picture.shape[-1]), {'crosses': picture}, asks=asks, panel=2,
        weights='weights set by hand: every pixel asks for its own colour. Absolute: near row '
                '11, column 6. Relative: near seven to its right. On the group: seven to the '
                'right as its pose sees it.')

@torch.no_grad()
def looking_ahead(
    size:int=17,     # of the pictures
    turns:bool=True, # False: all poses look to the right, which is wrong
)->LiftingSelfAttention2d:
    """Attention by hand: each pose looks three pixels ahead, at ink from ink, at paper from paper.

    Parameters
    ----------
    size : int, default 17
        of the pictures, `(b, 1, size, size)`, 1 for ink and 0 for paper
    turns : bool, default True
        False: all poses look to the right, which is wrong

    Returns
    -------
    LiftingSelfAttention2d
    """
    layer:Any = LiftingSelfAttention2d(
        1, 1, 'p4', window=None, heads=1, head_channels=2, extent=size, dtype=torch.float64)
    for part in (layer.query, layer.key, layer.value, layer.out):
        nn.init.zeros_(part.weight)
        nn.init.zeros_(part.bias)
    # −4(x − y)² is (8x − 4)y and what does not depend on y, if y is 0 or 1
    layer.query.weight[0], layer.query.bias[:] = 8., torch.tensor([-4., 1.])
    layer.key.weight[0] = 1.
    layer.value.weight[0] = layer.out.weight[0] = 1.
    layer.encoder = HandEncoding(
        'p4', lambda right, up: -((right - 3)**2 + up**2)/8, 2, turns)
    return layer
