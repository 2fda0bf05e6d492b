"The widget of the project: you turn the picture, and the networks in the page show what they see."
# Plain module: edited by hand, no notebook exports it.

import copy
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from ..core import one_of
from ..equivariance import equivariance_error
from ..groups import Group, get_group
from ..models.group_cnn import p4_cnn, z2_cnn
from ..names import require
from ..nn.convolution import GroupConv2d, LiftingConv2d, ProjectionConv2d
from ..trace import up_to
from .graph import UnknownLayer, network_graph
from .page import (
    TEMPLATES,
    PictureWidget,
    code,
    live_page,
    shared_element,
)

EXACT = 1e-6   # as in turn.js: what is larger at an element of the group is no rounding

def _json(value:Any)->str:
    return json.dumps(value, sort_keys=True, separators=(',', ':'))

def tensor_blocks(graphs:Sequence[dict[str, Any]])->str:
    "The tensors of some networks, an element a network, each tensor once."
    written:set[str] = set()
    blocks = []
    for graph in graphs:
        new = {k: t for k, t in graph['tensors'].items() if k not in written}
        written |= set(new)
        text = _json(new)
        block = {'type': 'application/json', 'class': 'eqtutor-tensors'}
        if new: blocks.append(shared_element('script', text, **block))
    return '\n'.join(blocks)

_USUAL = dict(stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1)

def _step(node:dict[str, Any], before:str)->dict[str, Any]:
    "What a node does: no texts, no tensors, nothing that is as usual."
    usual = _USUAL | dict(inputs=[before])
    left_out = {k for k, v in usual.items() if node.get(k) == v}
    left_out |= {'title', 'type', 'weights', 'tables'}
    return {k: v for k, v in node.items() if k not in left_out}

def lighter_graphs(graphs:Sequence[dict[str, Any]])->dict[str, Any]:
    "Graphs as the widget carries them: a step once, whichever networks take it."
    steps, networks = list[dict[str, Any]](), []
    for graph in graphs:
        names, nodes = ['input', *(node['name'] for node in graph['nodes'])], []
        for before, node in zip(names, graph['nodes']):
            step = _step(node, before)
            if step not in steps: steps.append(step)
            nodes.append([steps.index(step), node['weights'] | node['tables']])
        rest = {k: graph[k] for k in ('format', 'name', 'input', 'labels', 'output')
                if graph[k] is not None}
        group = {k: graph['group'][k] for k in ('matrices', 'mul')}
        networks.append(rest | dict(group=group, nodes=nodes))
    return dict(steps=steps, networks=networks)

def _largest_group(nets:Sequence[nn.Module])->Group:
    "The largest group among the layers; p4 where they have none."
    own = [getattr(m, 'group', None) for net in nets for m in net.modules()]
    groups = [group for group in own if isinstance(group, Group) and len(group) > 1]
    return max(groups, key=len, default=get_group('p4'))

def _first_maps(graph:dict[str, Any], fault:str|None=None)->str:
    "The first feature map on G behind a ReLU and a fault; without one, the first map."
    nodes = graph['nodes']
    start = next((i for i, node in enumerate(nodes) if node['name'] == fault), 0)
    maps = [node for node in nodes[start:] if len(node['shape']) > 2]
    posed = [node for node in maps if len(node['shape']) == 4 and node['shape'][1] > 1]
    behind = [node for node in posed if node['op'] == 'relu']
    if not maps: raise ValueError('the network has no layer with maps to look at')
    return (behind or posed or maps)[0]['name']

# layers that begin a stage of a drawing
STAGES = dict(LiftingConv2d='lifting', GroupConv2d='group convolution',
              ProjectionConv2d='projection')
MEASURED = 'accuracy on test digits, by angle: drag here, too'
SURE = 'how sure of the digit that it reads upright, by angle: drag here, too'

def _shape(shape:Sequence[int])->dict[str, str]:
    "The axes of a map in letters, and their lengths."
    letters = {3: '(b, c, rows, columns)', 4: '(b, c, |H|, rows, columns)'}[len(shape)]
    return dict(letters=letters, numbers=f'(1, {", ".join(map(str, shape))})')

def _is_static()->bool:
    "Is a page made, which has no kernel?"
    return any(map(os.environ.get, ('EQTUTOR_STATIC', 'IN_TEST')))

class TurnThePicture(PictureWidget):
    "You turn the picture; one to three networks in the page show what they see."
    def __init__(self,
        # one, or up to three by what they are called: "The … still says 7."
        networks:nn.Module|dict[str, nn.Module],
        # square, values from 0 to 1: `(h, w)`, `(c, h, w)` or several by name
        pictures:Tensor|dict[str, Tensor],
        group:Group|str|None=None,  # the largest of the networks' if None
        layer:str|None=None,        # whose maps are shown first
        channel:int=0,              # which of them
        turn:float=0,               # degrees it begins with
        mean:float|Sequence[float]=0, # what pictures are normalised by
        std:float|Sequence[float]=1,
        labels:Sequence[str]|None=None, # of the scores or the pixels; 0, 1, 2, … if None
        title:str='Turn the picture',
        note:str='',                # a sentence below the headline
        simple:bool=False,          # maps and errors behind a fold, for a first look
        # of networks that give a picture: 'labels' of its pixels, or 'arrows' (right, up)
        output:str|None=None,
        weights:str='steps',        # of two bytes each; 'bytes' halves the page of a large network
        # beside the picture: 'maps', 'answers' (a curve of them, by angle) or 'stages' (of one
        # network, from the picture down)
        face:str='maps',
        # of 'answers': by network and angle, between 0 and 1, as they were measured; if None each
        # network says in the page how sure it is of what it reads upright
        curves:dict[str, dict[float, float]]|None=None,
        tour:bool=False,            # a button: a guided tour from the networks to a single sum
    ):
        if output: one_of(output, 'labels', 'arrows')
        one_of(face, 'maps', 'answers', 'stages')
        self.output, self.weights, self.face, self.tour = output, weights, face, tour
        self.curves = curves
        named = networks if isinstance(networks, dict) else {'network': networks}
        if not 1 <= len(named) <= 3:
            raise ValueError(f'expected one to three networks, got {len(named)}')
        self.networks, self.title, self.note = dict(named), title, note
        self.simple = simple
        self.take(pictures, mean, std)
        self.group = get_group(group or _largest_group([*self.networks.values()]))
        self.channel, self.turn, self.scores = channel, turn, labels
        self.mail:Any = None   # what a live page is written by
        self.labels = [self.group.describe(h) for h in self.group.elements]
        self._read_networks()
        if not self.unknown: self._check_face()
        self.layer = self._check_layer(layer)

    def _read_networks(self)->None:
        "The graph of each network, or why there is none."
        self.graphs, self.unknown = dict[str, dict](), dict[str, UnknownLayer]()
        for name, net in self.networks.items():
            like = next(net.parameters(), self.first)
            try:
                self.graphs[name] = network_graph(
                    net, self.input(self.first).to(like), labels=self.scores, name=name,
                    weights=self.weights)
            except UnknownLayer as error: self.unknown[name] = error

    def _check_face(self)->None:
        "Do the networks have what is to be shown of them?"
        ends = [g['nodes'][-1]['shape'] for g in self.graphs.values()]
        if self.face == 'answers' and any(len(shape) != 1 for shape in ends):
            raise ValueError("face='answers' shows networks that give scores, got outputs of "
                             f'shape {ends}')
        if self.face == 'stages' and len(self.networks) > 1:
            raise ValueError(f"face='stages' shows one network, got {len(self.networks)}")
        for name in self.curves or {}:
            if {*self.curves} != {*self.networks}:       # type: ignore[misc]
                raise ValueError(f'expected curves of {", ".join(self.networks)}, got {name}')

    def _stages(self)->list[dict[str, Any]]:
        "The picture, and after each layer that lifts, convolves or projects the last map."
        [net], [graph] = self.networks.values(), self.graphs.values()
        kinds = {name: STAGES[type(m).__name__] for name, m in net.named_modules()
                 if type(m).__name__ in STAGES}
        nodes = [node for node in graph['nodes'] if len(node['shape']) > 2]
        starts = [i for i, node in enumerate(nodes) if node['name'] in kinds]
        stages = [dict(name='picture', layer='input', panels=1, **_shape(graph['input']))]
        for start, end in zip(starts, [*starts[1:], len(nodes)]):
            last = nodes[end - 1]
            posed = len(last['shape']) == 4
            stages.append(dict(
                name=kinds[nodes[start]['name']], layer=last['name'],
                panels=last['shape'][1] if posed else 1, **_shape(last['shape'])))
        if len(stages) == 1: raise ValueError(f'expected a network with {", ".join(STAGES)}')
        return stages

    def _check_layer(self, layer:str|None)->str|None:
        "The layer that is shown first; a name that no network has is an error."
        if self.unknown or self.face == 'answers': return layer
        if self.face == 'stages': return self._stages()[-1]['layer']
        if layer is None:
            faults = [getattr(net, 'fault', None) for net in self.networks.values()]
            fault = next(filter(None, faults), None)
            return _first_maps(next(iter(self.graphs.values())), fault)
        if layer in (maps := self._layers()): return layer
        raise ValueError(f'there are no maps of a layer {layer!r}: '
                         f'expected one of {", ".join(maps)}')

    def _layers(self)->list[str]:
        "The nodes of the first network whose values are maps."
        nodes = next(iter(self.graphs.values()))['nodes']
        return [node['name'] for node in nodes if len(node['shape']) > 2]

    def html(self)->str:
        "The page: the networks, or a line that says which layer the engine does not know."
        return self._unknown_page() if self.unknown else self._page()

    def _page(self)->str:
        return live_page(
            'turn', self._spec(), tensor_blocks([*self.graphs.values()]), title=self.title,
            styles=('turn_simple',)*self.simple, note=self.note, names=[*self.networks],
            parts=(self.face,)*(self.face != 'maps') + ('tour',)*self.tour,
            simple=self.simple, face=self.face, output=self.output, tour=self.tour,
            measured=bool(self.curves),
            stages=self._stages() if self.face == 'stages' else [],
            copies=any(node['op'] == 'choose' for g in self.graphs.values() for node in g['nodes']),
            caption=MEASURED if self.curves else SURE)

    def _spec(self)->dict[str, Any]:
        "What the page's script reads."
        H = self.group
        group = dict(name=H.name, matrices=H.matrices.tolist())
        faces = dict[str, Any](face=self.face)
        if self.face == 'stages': faces['stages'] = self._stages()
        if self.curves:
            faces['curves'] = {name: sorted([a, v] for a, v in self.curves[name].items())
                               for name in self.networks}
        return dict(
            **self.picture_spec(), **lighter_graphs([*self.graphs.values()]), group=group,
            layer=self.layer, channel=self.channel, turn=self.turn, output=self.output,
            ink=.5, arrow=1, **faces)

    def _unknown_page(self)->str:
        "Why there is no network in the page."
        why = [f'{name}: {error}' for name, error in self.unknown.items()]
        body = TEMPLATES.get_template('turn_unknown.html').render(title=self.title, why=why)
        return code('turn')[0] + body

    def expect_broken(self,
        *names:str, # of networks that are wrong on purpose; all if none is given
    )->'TurnThePicture':
        "Itself, if each of these shows ✗ at some element; otherwise an error."
        for name in names or self.networks:
            if self._breaks(self.networks[name]): continue
            raise AssertionError(
                f'{self.title!r} is to show that {name!r} breaks the symmetry, and shows ✗ at no '
                f'element, up to the layer {self.layer!r}: does it compute what was broken?')
        return self

    def _breaks(self, net:nn.Module)->bool:
        "Does a network break the symmetry at some element, up to the layer that is shown?"
        like = next(net.parameters(), self.first)
        until = self.layer if self.layer in dict(net.named_modules()) else None
        inner = up_to(net, until) if until else net
        def f(x:Tensor)->Tensor:
            y = inner(x)
            return y[:, :, 0] if y.ndim == 5 and y.shape[2] == 1 else y   # |H| = 1: an image
        with torch.no_grad():
            errors = equivariance_error(f, self.input(self.first).to(like), self.group)
        return max(errors) > EXACT

    def live(self):
        "The same page beside a kernel: what `update` sends appears in it."
        ipywidgets = require('ipywidgets', 'lab')
        self.mail = self.mail or ipywidgets.HTML(layout=dict(display='none'))
        html = f'<div data-mail="{self.mail.model_id}">{self.html()}</div>'
        page = dict(output_type='display_data', data={'text/html': html}, metadata={})
        return ipywidgets.VBox([ipywidgets.Output(outputs=[page]), self.mail])

    def _ipython_display_(self):
        "Above the live page a line, which shows where the kernel is gone."
        from IPython.display import HTML, display
        if _is_static() or self.unknown: raise NotImplementedError   # as any other object
        bundle = self._repr_mimebundle_()
        is_live = 'application/vnd.jupyter.widget-view+json' in bundle
        if is_live: display(HTML(TEMPLATES.get_template('needs_kernel.html').render()))
        display(bundle, raw=True)

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = super()._repr_mimebundle_()
        if _is_static() or self.unknown: return bundle
        try: return self.live()._repr_mimebundle_() | bundle
        except ImportError: return bundle   # no ipywidgets: the page alone

    def update(self,
        networks:nn.Module|dict[str, nn.Module]|None=None, # others of these names
        pictures:Tensor|dict[str, Tensor]|None=None,       # others of this shape
    )->None:
        "Show the live page other networks or pictures, and weights as they are now."
        other = TurnThePicture(
            networks or self.networks, self.pictures if pictures is None else pictures,
            self.group, mean=self.mean, std=self.std, labels=self.scores)
        for error in other.unknown.values(): raise error
        old, new = ([*w.networks, tuple(w.first.shape)] for w in (self, other))
        if old != new: raise ValueError(f'a live page keeps its {old}, got {new}')
        for name in 'networks', 'graphs', 'pictures', 'first':
            setattr(self, name, getattr(other, name))
        if self.layer not in self._layers(): self.layer = other.layer
        if self.mail: self.mail.value = self._letter()

    def _letter(self)->str:
        "All that a page shows, for one that is open."
        tensors = {k: t for graph in self.graphs.values()
                   for k, t in graph['tensors'].items()}
        return TEMPLATES.get_template('letter.html').render(
            to=self.mail.model_id, letter=dict(spec=self._spec(), tensors=tensors))

def broken_twin(net:nn.Module)->nn.Module:
    "The network with its weights, whose first group convolution turns no filter."
    twin = copy.deepcopy(net)
    for name, layer in twin.named_modules():
        if type(layer) is not GroupConv2d: continue
        entries = torch.arange(layer.kernel_size**2)   # all filters as they are …
        slices = layer.group.relative[..., None]*len(entries)   # … from the right pose
        tables = dict(index=(slices + entries).flatten())
        layer.tables = partial(dict, tables)   # type: ignore[method-assign]
        layer.make_tables()
        twin.fault = name   # type: ignore[assignment]  # where one sees it
        return twin
    raise ValueError(f'{type(net).__name__} has no GroupConv2d to break: expected a '
                     'network with one, after its lifting layer')

def as_pictures(
    images:Tensor,         # normalised, `(n, c, h, w)`
    names:Sequence[str],   # one an image
)->dict[str, Any]:
    "Normalised images as `TurnThePicture` takes them: `pictures`, `mean` and `std`."
    low, high = images.min().item(), images.max().item()
    scale = (high - low) or 1.
    pictures = {name: (x - low)/scale for name, x in zip(names, images, strict=True)}
    return dict(pictures=pictures, mean=-low/scale, std=1/scale)

class Upright(NamedTuple):
    "Networks that were trained on upright digits, and digits to turn."
    networks:dict[str, nn.Module]
    pictures:dict[str, Tensor]
    about:dict[str, Any]   # what was measured, and what digits are normalised by

def _filled(net:nn.Module, flat:Tensor)->nn.Module:
    "A network with all its weights and statistics from one vector."
    start = 0
    for t in net.state_dict().values():
        if not t.is_floating_point(): continue
        t.copy_(flat[start:start + t.numel()].view_as(t))
        start += t.numel()
    if start != len(flat):
        raise ValueError(f'expected {start} weights, got {len(flat)}: '
                         'write the file again with tools/upright_networks.py')
    return net.eval()

def upright_networks()->Upright:
    "A p4-CNN, the same with a broken layer, a plain CNN, and digits to turn."
    with safe_open(Path(__file__).parent/'upright.safetensors', 'pt') as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()['about'])
    p4 = _filled(p4_cnn(), stored['p4-CNN'])
    nets = {'p4 network': p4, 'broken network': broken_twin(p4),
            'plain network': _filled(z2_cnn(), stored['Z2-CNN'])}
    digits = zip(about['classes'], stored['pictures'])
    return Upright(nets, {f'a {c}': p[None]/255 for c, p in digits}, about)

def turn_a_digit(
    broken:bool=True,   # show the broken network, too
    turn:float=0,       # degrees it begins with
    simple:bool=False,  # a first look, which says nothing beforehand
    tour:bool=False,    # a button: somebody shows around
)->TurnThePicture:
    "Digits under the hand of the reader, and networks that saw none but upright ones."
    nets, pictures, about = upright_networks()
    if not broken: del nets['broken network']
    right = {name: about['accuracy'][name]['90°'] for name in ('p4-CNN', 'Z2-CNN')}
    note = (f'The p4 network and the plain one were trained on the same '
            f'{about["train"]:,} upright digits. Of all test digits on their side, '
            f'the p4 network reads {right["p4-CNN"]:.0%}, '
            f'the plain network {right["Z2-CNN"]:.0%}; these five are among those that '
            'the p4 network reads at every fifth degree.')
    if broken: note += ' The broken one is the p4 network, with one layer unturned.'
    return TurnThePicture(
        nets, pictures, layer='layers.relu2', turn=turn, mean=about['mean'],
        std=about['std'], title='Turn a digit', note='' if simple else note,
        simple=simple, tour=tour)

class PoseNorm(nn.Module):
    "Wrong on purpose: what a norm does at inference, scaled for each pose by itself."
    def __init__(self, norm:Any):   # a batch norm
        super().__init__()
        poses = torch.tensor([1, .6, 1.4, .8]).view(-1, 1, 1)
        scale = norm.weight/(norm.running_var + norm.eps).sqrt()
        shift = norm.bias - norm.running_mean*scale
        self.scale, self.shift = (nn.Parameter(t.detach().view(-1, 1, 1, 1)*poses)
                                  for t in (scale, shift))

    def forward(self, f:Tensor)->Tensor: return f*self.scale + self.shift

class UnevenPool(nn.Module):
    "Wrong on purpose: windows of 3 in steps of 2, on an even number of pixels."
    def forward(self, f:Tensor)->Tensor:
        return F.max_pool2d(f.flatten(1, 2), 3, 2).unflatten(1, f.shape[1:3])

def which_layer()->TurnThePicture:
    "Three copies of a network, another layer broken in each; the reader finds it."
    nets, pictures, about = upright_networks()
    # and a dropout, which does nothing here
    p4:Any = nets['p4 network']
    ten = p4.layers[:11]
    b, c = copy.deepcopy(ten), copy.deepcopy(ten)
    b.pool = UnevenPool()   # it sees 24 pixels
    c.norm1 = PoseNorm(ten.norm1)
    return TurnThePicture(
        dict(A=broken_twin(ten), B=b, C=c), pictures, layer='relu3',
        mean=about['mean'], std=about['std'], title='Which layer breaks it?')

# --- three layers by hand

PAGE = '''
    ...............
    ...............
    ..###....#####.
    ..#......#.....
    ..#......#.....
    ..#......#.....
    ..###..........
    ...............
    ...............
    .......#...#...
    .......#...#...
    .......#####...
    ...............
    ...............
    ...............'''

@torch.no_grad()
def three_layers(
    wrong:bool=False, # on purpose: the filters of the group convolution turn, their slices stay
)->TurnThePicture:
    """A page with brackets: corners are lifted, brackets found, and laid down again.

    Parameters
    ----------
    wrong : bool, default False
        on purpose: the filters of the group convolution turn, their slices stay

    Returns
    -------
    TurnThePicture
        the picture and the map after each layer, as it was and turned
    """
    rows = [[float(c == '#') for c in row.strip()] for row in PAGE.split()]
    lift = LiftingConv2d(1, 1, 3, 'p4', padding=1)
    find = GroupConv2d(1, 1, 5, 'p4', padding=2)
    lay = ProjectionConv2d(1, 1, 5, 'p4', padding=2)
    bracket = torch.zeros(5, 5)
    bracket[:, 2] = bracket[0, 2:] = bracket[4, 2:] = 1
    lift.weight[0, 0] = torch.tensor([[-1., -1, -1], [-1, 2, 2], [-1, 2, -1]])
    find.weight.zero_()
    find.weight[0, 0, 0, 0, 2] = find.weight[0, 0, 1, 4, 2] = 1.   # two corners, one a slice
    lay.weight[0, 0] = bracket.flip(0, 1)   # correlating with it lays down a bracket
    for bias, threshold in (lift.bias, 5.), (find.bias, 1.), (lay.bias, 0.):
        if bias is not None: bias.fill_(-threshold)
    net = nn.Sequential(lift, nn.ReLU(), find, nn.ReLU(), lay).eval()
    return TurnThePicture(
        {'three layers': broken_twin(net) if wrong else net}, torch.tensor(rows), face='stages',
        title='From a picture to maps on G and back',
        note='Three layers, set by hand: corners are marked in the panel of their pose, two '
             'corners make a bracket, and a bracket is laid down wherever one was found.')


SITE = 'https://eqtutor.github.io/eqtutor/'
TEN_LINES = """\
import torch
from torch import nn
from eqtutor.equivariance import assert_equivariant
from eqtutor.nn import GroupConv2d, GroupPool, LiftingConv2d
net = nn.Sequential(
    LiftingConv2d(3, 16, 3, 'p4', padding='same'), nn.ReLU(),
    GroupConv2d(16, 32, 3, 'p4', padding='same'), nn.ReLU(), GroupPool())
x = torch.randn(1, 3, 32, 32)
assert_equivariant(net, x, 'p4')   # turn the picture, and its maps turn along"""

def demo_page(
    accuracy:dict[str, dict[str, float]], # by network, then by turn, between 0 and 1
    nets:dict[str, nn.Module],            # by name, trained; they have a `layers.relu2`
    digit:Tensor,                         # `(1, 1, 28, 28)`, normalised
    advice:str='',                        # a paragraph above the table
)->str:
    "The demo's self-contained HTML page: accuracies, and the networks at work."
    low, high = digit.min().item(), digit.max().item()
    widget = TurnThePicture(
        {name: nets[name] for name in reversed(nets)}, (digit - low)/(high - low), 'p4',
        layer='layers.relu2', mean=-low/(high - low), std=1/(high - low),
        title='eqtutor demo', simple=True)
    return TEMPLATES.get_template('demo.html').render(
        title='eqtutor demo', advice=advice, accuracy=accuracy, site=SITE,
        lines=TEN_LINES, widgets_html=[widget.html()])
