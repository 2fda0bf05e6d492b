"How one object is live beside a kernel and moves on a page without one."
# Plain module: edited by hand, no notebook exports it.

import base64
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..actions import KINDS, act, act_points, disc, rotate
from ..core import check_grid
from ..equivariance import relative_error, tolerance, unchanged
from ..groups import Group, get_group
from ..names import needs, require
from ..plot import alt_text, plot_cayley_graph, png
from ..report import layer_report
from ..trace import up_to

with needs('lab'):
    import matplotlib
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from PIL import Image
    from rjsmin import jsmin

TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'widgets'), autoescape=True,
    trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
TEMPLATES.policies['json.dumps_kwargs'] = dict(
    sort_keys=True, ensure_ascii=False, separators=(',', ':'))

def asset(name:str)->str:
    "A file beside this module."
    return (Path(__file__).parent/name).read_text(encoding='utf-8')

def style_sheet(name:str)->str:
    "A style sheet without comments and line breaks."
    return re.sub(r'/\*.*?\*/|\s+', ' ', asset(name), flags=re.DOTALL)

def shared_element(tag:str, text:str, **attributes:str)->str:
    "An element that a page needs once: its id is the checksum of what it holds."
    more = ''.join(f' {key}="{value}"' for key, value in attributes.items())
    return f'<{tag} id="{_id_of(text)}"{more}>{text}</{tag}>'

def _names(text:str, word:str)->str:
    "What a module imports or exports in braces, once."
    found = re.findall(word + r' \{([^}]*)\}', text)
    return ', '.join(dict.fromkeys(re.findall(r'\w+', ' '.join(found))))

def _body(name:str)->str:
    "A module without the words that are for modules alone."
    return re.sub(r'^(export \{[^}]*\};|export |import .*?;$)', '', asset(name),
                  flags=re.DOTALL|re.MULTILINE)

@cache
def _shared_script()->str:
    "The engine and what all widgets are made of, as one element."
    names = _names(asset('shared.js') + asset('engine.js'), 'export')
    more = ', '.join(re.findall(r'^export function (\w+)', asset('engine.js'), re.MULTILINE))
    text = f'{_body("engine.js")}\n{_body("shared.js")}\nreturn {{ {names}, {more} }};'
    text = f'globalThis.eqtutorShared ??= (() => {{\n{jsmin(text)}\n}})();'
    return shared_element('script', text)

@cache
def code(
    name:str,      # of the script and the style sheet
    *more:str,     # further style sheets
)->tuple[str, str]:
    "The styles and the scripts of a widget, as elements that a page needs once."
    # one script in place of modules: a page over file:// may import none
    start = f'eqtutor{name.capitalize()}'
    own = asset(f'{name}.js')
    text = f'{_body(f"{name}.js")}\nreturn start;'
    script = (f'globalThis.{start} ??= (({{ {_names(own, "import")} }}) => {{\n{jsmin(text)}\n}})'
              '(globalThis.eqtutorShared);')
    styles = [shared_element('style', style_sheet(f'{sheet}.css'))
              for sheet in ('shared', name, *more)]
    return '\n'.join(styles), _shared_script() + '\n' + shared_element('script', script)

def live_page(
    name:str,            # of the script, the style sheet and the template
    spec:dict[str, Any], # what the script reads
    blocks:str='',       # further elements that a page needs once
    styles:tuple[str, ...]=(), # further style sheets
    **values:Any,        # of the template
)->str:
    "A widget as HTML: styles, what stands where, scripts, and a line that starts it."
    style, script = code(name, *styles)
    body = _fill(f'{name}.html', id=_id_of(json.dumps(spec)), spec=spec, **values)
    once = f'<script>globalThis.eqtutor{name.capitalize()}();</script>'
    return '\n'.join([style, re.sub(r'\n\s+', '\n', body), blocks, script, once])

def _part(name:str, /, **values:Any)->str:
    "A piece of `parts.html`, with the values filled in."
    macro = getattr(TEMPLATES.get_template('parts.html').module, name)
    return ' '.join(macro(**values).split())

def _fill(file:str, /, **values:Any)->str:
    "A template with the values filled in."
    return TEMPLATES.get_template(file).render(**values)

def _small(maps:Tensor)->Tensor:
    "Maps `(n, h, w)` averaged to at most 64 pixels a side: a page holds many panels."
    step = -(-max(maps.shape[-2:])//64)
    return F.avg_pool2d(maps, step, ceil_mode=True) if step > 1 else maps

def _gap(width:int)->int:
    "Pixels between panels of one picture."
    return max(1, round(width/8))

def _check_maps(values:Tensor)->Tensor:
    "One map or several as `(n, h, w)`, if they are finite."
    if values.ndim not in (2, 3):
        raise ValueError(f'expected a map (h, w) or several (n, h, w), '
                         f'got shape {tuple(values.shape)}')
    if not values.isfinite().all():
        raise ValueError('the map holds NaN or infinity: '
                         'look at the input image and the weights')
    return values.detach().double().cpu().view(-1, *values.shape[-2:])

def _side_by_side(
    index:np.ndarray, # `(n, h, w)`
    gap:int,
)->np.ndarray:
    "Panels in one row, with columns of colour 0 between them."
    padded = np.concatenate([np.pad(p, ((0, 0), (0, gap))) for p in index], 1)
    return np.ascontiguousarray(padded[:, :padded.shape[1] - gap])

def _png(
    index:np.ndarray,  # `(h, w)`, the colour of each pixel
    palette:bytes,     # three a colour
    **options:int,     # of Pillow
)->str:
    "A palette PNG as a `data:` URI, with the colours that occur and no others."
    used, number = np.unique(index, return_inverse=True)   # 0, a gap's, stays first
    image = Image.frombytes('P', index.shape[::-1], number.astype(np.uint8).tobytes())
    image.putpalette(np.frombuffer(palette, np.uint8).reshape(-1, 3)[used].tobytes())
    buffer = io.BytesIO()
    image.save(buffer, 'PNG', optimize=True, **options)
    return _data_uri(buffer.getvalue())

def _data_uri(picture:bytes)->str:
    return 'data:image/png;base64,' + base64.b64encode(picture).decode()

def png_uri(
    # a map `(h, w)`, or several `(n, h, w)` in one picture, clear gaps between them
    values:Tensor,
    low:float|None=None,   # value of the first colour; the smallest if None
    high:float|None=None,  # value of the last colour; the largest if None
    cmap:str='cividis',    # a matplotlib colour map, 'gray' for pictures
    # in the palette, three bytes each; at most 255 for several maps
    colours:int=256,
)->str:
    "Maps as a `data:` URI of a palette PNG; the same values give the same bytes."
    maps = _small(_check_maps(values)).numpy()
    low = maps.min() if low is None else low
    high = maps.max() if high is None else high
    several = len(maps) > 1   # then the gap's colour, which is clear, comes first
    gap = _gap(maps.shape[-1])*several
    colours = min(colours, 255 if several else 256)
    share = np.clip((maps - low)/((high - low) or 1), 0, 1)
    index = np.round(share*(colours - 1) + several).astype(np.uint8)
    rgb = matplotlib.colormaps[cmap](np.linspace(0, 1, colours))[:, :3]
    palette = bytes(3)*several + (rgb*255).round().astype(np.uint8).tobytes()
    clear = {'transparency': 0} if several else {}
    return _png(_side_by_side(index, gap), palette, **clear)

def panel_row(
    maps:Tensor,              # `(n, h, w)`
    captions:list[str],       # one a map, shown below it
    title:str,                # of the row; also begins each alt text
    low:float|None=None,      # value of the first colour
    high:float|None=None,     # value of the last colour
    cmap:str='cividis',
    columns:int|None=None,    # of the grid; as many as maps if None
)->str:
    "A row of maps with captions, as HTML."
    pictures = [png_uri(m, low, high, cmap) for m in maps]
    panels = list(zip(pictures, captions, strict=True))
    columns = columns or len(captions)
    return _part('panel_row', title=title, panels=panels, columns=columns)

def strip_row(
    maps:Tensor,              # `(n, k, k)`
    captions:list[str],       # one a map, shown below it
    title:str,                # of the row; also begins the alt text
    low:float|None=None,      # value of the first colour
    high:float|None=None,     # value of the last colour
    cmap:str='cividis',
    columns:int|None=None,    # of the grid; as many as maps if None
)->str:
    "The same row with all its maps in one picture: tiny PNGs are mostly palettes."
    n, maps = len(maps), _small(maps)
    if n != len(captions):
        raise ValueError(f'expected one caption a map, '
                         f'got {n} maps and {len(captions)} captions')
    width = maps.shape[-1]
    cell = width + _gap(width)   # in pixels of the picture
    return _part(
        'strip_row', title=title, picture=png_uri(maps, low, high, cmap, 33),
        captions=captions, columns=columns or n, panel_width=100*width/cell,
        picture_width=100 - 100*_gap(width)/(n*cell))

def arrow_row(
    target:list[int],         # panel i goes to panel `target[i]`
    title:str,                # says in words what the arrows show
    columns:int|None=None,    # of the panels' grid; as many as panels if None
)->str:
    "Arrows from the panels of the row above to the row below, as an inline SVG."
    columns = columns or len(target)
    return _part('arrow_row', title=title, target=target, columns=columns)

_SHARED = re.compile(
    r'<(script|style) id="(eqtutor-[0-9a-f]+)"[^>]*>.*?</\1>\n?', re.S)

def share_once(
    *parts:str, # pieces of HTML, in order
)->list[str]:
    "The pieces without the scripts and styles that stood before, known by their ids."
    before:set[str] = set()
    def first(match:re.Match)->str:
        if match[2] in before: return ''
        before.add(match[2])
        return match[0]
    return [_SHARED.sub(first, part) for part in parts]

def _id_of(*content:str)->str:
    "A name that depends on the content alone."
    return 'eqtutor-' + hashlib.sha256(''.join(content).encode()).hexdigest()[:12]

def frames_html(
    frames:list[str],  # HTML of each position
    labels:list[str],  # what each position is called
    title:str,         # above the slider; also its accessible name
    fixed:str='',      # HTML between slider and frames, the same for all positions
)->str:
    "A slider over prepared frames as HTML: no kernel, no network, keyboard included."
    if len(frames) != len(labels) or not frames:
        raise ValueError(f'expected one label a frame and at least one, '
                         f'got {len(frames)} frames and {len(labels)} labels')
    return _fill('frames.html', id=_id_of(title, fixed, *labels, *frames), title=title,
                 labels=labels, fixed_html=fixed, frames_html=frames)

def whole_page(
    title:str,
    *parts:str, # pieces of HTML, in order
)->str:
    "A whole HTML document that needs nothing but itself."
    return _fill('page.html', title=title, parts_html=share_once(*parts))

def _is_static()->bool:
    "Is a page made, which has no kernel?"
    return any(map(os.environ.get, ('EQTUTOR_STATIC', 'IN_TEST')))

class Widget:
    "Base of the widgets: they give `title`, `labels`, `frame(i)`; both faces follow."
    title:str
    labels:list[str]
    fixed = ''

    def frame(self, position:int)->str:
        "HTML of one position."
        raise NotImplementedError

    def html(self)->str:
        "The face without a kernel: all positions, prepared."
        frames = [self.frame(i) for i in range(len(self.labels))]
        return frames_html(frames, self.labels, self.title, self.fixed)

    def save(self,
        path:str|Path, # an .html file
    )->Path:
        "Write the widget as an HTML file of its own."
        path = Path(path)
        path.write_text(whole_page('eqtutor widget', self.html()), encoding='utf-8')
        return path

    def live(self):
        "The face with a kernel: ipywidgets that call `frame` at each move."
        def draw(position:int)->tuple[str, str]:
            return self.labels[position], self.fixed + self.frame(position)
        return _live({'position': _slider(len(self.labels))}, draw, self.title)

    def expect_broken(self)->'Widget':
        "Itself, of a layer that is wrong on purpose; an error if no position shows ✗."
        frames = (self.frame(i) for i in range(len(self.labels)))
        if '✗' in self.fixed or any('✗' in frame for frame in frames): return self
        raise AssertionError(
            f'{self.title!r} is to show a layer that breaks the symmetry, and shows ✗ '
            'at no position: does the widget call what was broken?')

    def _ipython_display_(self):
        "Above the live face a line, which shows where the kernel is gone."
        from IPython.display import HTML, display
        if _is_static(): raise NotImplementedError   # shown as any other object
        bundle = self._repr_mimebundle_()
        is_live = 'application/vnd.jupyter.widget-view+json' in bundle
        if is_live: display(HTML(_fill('needs_kernel.html')))
        display(bundle, raw=True)

    def _repr_mimebundle_(self, include=None, exclude=None):
        words = f'{type(self).__name__}: {self.title}'
        bundle = {'text/plain': words, 'text/html': self.html()}
        if _is_static(): return bundle
        try: return self.live()._repr_mimebundle_() | bundle
        except ImportError: return bundle   # no ipywidgets: the page's face alone

def _slider(n:int, **options:Any):
    ipywidgets = require('ipywidgets', 'lab')
    return ipywidgets.IntSlider(
        0, 0, n - 1, description='element', continuous_update=True, **options)

def _live(controls:dict, draw:Callable[..., tuple[str, str]], title:str):
    "Controls over HTML; `draw(**values)` gives (label, HTML) for their values."
    ipywidgets = require('ipywidgets', 'lab')
    name = _id_of('live', title)
    view = ipywidgets.HTML()
    def update(change=None):
        try: label, body = draw(**{k: c.value for k, c in controls.items()})
        except (ValueError, RuntimeError) as error:
            label = 'this choice does not work'
            body = _part('not_possible', why=str(error))
        view.value = _fill(
            'live.html', id=name, title=title, label=label, body_html=body)
    for control in controls.values(): control.observe(update, 'value')
    update()
    row = ipywidgets.HBox(list(controls.values()), layout={'flex_flow': 'wrap'})
    return ipywidgets.VBox([row, view])

def _verdict(h:int, error:float, tol:float, name:str, what:str='maps')->str:
    "Of an element; none where nothing has moved, unless even that makes a difference."
    if error <= tol and h == 0: return _part('not_moved')
    if error <= tol: return _part('equivariant', what=what, error=error)
    return _part('broken', name=name, what=what, error=error, tolerance=tol)

def check_picture(name:str, picture:Tensor)->Tensor:
    "A picture `(c, h, w)` of values from 0 to 1."
    x = check_image(picture)[0]
    if x.min() < 0 or x.max() > 1:
        raise ValueError(
            f'the picture {name!r} has values from {x.min():.3g} to {x.max():.3g}, '
            'expected 0 to 1: give it as it was before it was normalised, and say '
            'mean= and std=')
    return x

def as_bytes(picture:Tensor)->str:
    "A picture as bytes in base64."
    values = picture.detach().cpu().mul(255).round().byte().contiguous()
    return base64.b64encode(values.numpy().tobytes()).decode()

def per_channel(values:float|Sequence[float], channels:int, name:str)->list[float]:
    "One value a channel."
    values = [values] if isinstance(values, (int, float)) else values
    given = [float(v) for v in values]
    if len(given) not in (1, channels):
        raise ValueError(f'{name} has {len(given)} values, expected 1 or {channels}, '
                         'one a channel of the pictures')
    return given*(channels//len(given))

class PictureWidget(Widget):
    "A widget with pictures that networks in the page read."
    def take(self,
        pictures:Tensor|dict[str, Tensor],
        mean:float|Sequence[float],
        std:float|Sequence[float],
    )->None:
        "Keep the pictures, if they are of one shape and from 0 to 1."
        shown = pictures if isinstance(pictures, dict) else {'picture': pictures}
        if not shown: raise ValueError('expected at least one picture, got none')
        self.pictures = {k: check_picture(k, p) for k, p in shown.items()}
        self.first = next(iter(self.pictures.values()))
        shapes = {tuple(p.shape) for p in self.pictures.values()}
        if len(shapes) > 1:
            raise ValueError(f'expected pictures of one shape, got {sorted(shapes)}')
        self.mean, self.std = (per_channel(v, len(self.first), name)
                               for v, name in ((mean, 'mean'), (std, 'std')))

    def input(self,
        picture:Tensor, # `(c, h, w)`, values from 0 to 1
    )->Tensor:          # `(1, c, h, w)`
        "A picture as the networks take it."
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
        return ((picture - mean)/std)[None]

    def picture_spec(self)->dict[str, Any]:
        "What a script reads of the pictures."
        pictures = [dict(name=k, data=as_bytes(p)) for k, p in self.pictures.items()]
        return dict(shape=list(self.first.shape), mean=self.mean, std=self.std, pictures=pictures)

def check_image(
    image:Tensor, # `(h, w)`, `(c, h, w)` or `(1, c, h, w)`
)->Tensor:
    "The image as `(1, c, h, w)`, if it is square and finite."
    x = image[(None,)*max(0, 4 - image.ndim)] if image.ndim > 1 else image
    if x.ndim != 4 or len(x) != 1:
        raise ValueError(f'expected one image, (h, w), (c, h, w) or (1, c, h, w), '
                         f'got shape {tuple(image.shape)}')
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f'the image must be square to be turned inside its frame, '
                         f'got {x.shape[-2]}×{x.shape[-1]}: crop or pad it')
    if not x.isfinite().all():
        raise ValueError('the image holds NaN or infinity: clean it first, '
                         'for instance with torch.nan_to_num')
    return x

def _labels(group:Group)->list[str]:
    return [f'element {h}: {group.describe(h)}' for h in group.elements]

@dataclass(frozen=True)
class FeatureView:
    "One channel of a layer's output: `(1, 1, |H|, h, w)` or `(1, 1, h, w)`."
    layer:nn.Module      # a layer or a network
    group:Group
    until:str|None=None  # look at this layer inside a network
    channel:int=0

    @property
    def name(self)->str: return self.until or type(self.layer).__name__

    @torch.no_grad()
    def __call__(self, x:Tensor)->Tensor:
        f = up_to(self.layer, self.until) if self.until else self.layer
        like = next(self.layer.parameters(), x)
        with unchanged(self.layer): y = f(x.to(like))
        if not isinstance(y, Tensor):
            raise ValueError(f'{self.name} gives a {type(y).__name__}: '
                             'choose a layer whose output is one tensor')
        y = y.cpu()
        if y.ndim == 5 and y.shape[2] == 1: y = y[:, :, 0]   # |H| = 1: an image
        self.check(y)
        return y[:, self.channel:self.channel + 1]

    def check(self, y:Tensor)->None:
        "Raise where an output cannot be shown."
        group, shape = self.group, tuple(y.shape)
        if KINDS.get(y.ndim) not in ('image', 'feature map'):
            raise ValueError(f'{self.name} gives shape {shape}: choose a layer whose '
                             'output is an image or a feature map')
        if y.ndim == 5 and y.shape[2] != len(group):
            raise ValueError(f'{self.name} has {y.shape[2]} poses, but {group.name} '
                             f'has order {len(group)}: the widget and the layer '
                             'need the same group')
        if not 0 <= self.channel < y.shape[1]:
            raise ValueError(f'{self.name} has the channels 0..{y.shape[1] - 1}, '
                             f'got channel {self.channel}')

class Comparison(NamedTuple):
    "Maps on two roads: first the layer and then the element, and the other way round."
    original:Tensor   # of the image as it was
    moved:Tensor      # of the moved image
    back:Tensor       # the same, carried back
    target:list[int]  # panel q goes to panel `target[q]`

def _carried_back(group:Group, h:int, original:Tensor, moved:Tensor)->Comparison:
    back = act(group, int(group.inv[h]), moved)
    return Comparison(original, moved, back, group.mul[h].tolist())

def _rows(view:FeatureView, maps:Comparison)->str:
    "The rows of the widget."
    y, H = maps.original, view.group
    poses = y.ndim == 5
    low, high = y.min().item(), y.max().item()
    names = [H.describe(q) for q in H.elements] if poses else [view.name]
    columns = max(len(names), 4)
    def row(maps:Tensor, title:str)->str:
        return panel_row(maps.flatten(0, -3), names, title, low, high, columns=columns)
    title = 'arrows: panel q of the first row goes to panel hq of the second'
    arrows = arrow_row(maps.target, title, columns) if poses else ''
    return (row(y, '1 · maps of the image as it was') + arrows
            + row(maps.moved, '2 · maps of the moved image')
            + row(maps.back, '3 · the same, carried back'))

def _input_row(x:Tensor, title:str, group:Group)->str:
    columns = max(len(group), 4)
    return panel_row(x.mean(1), ['input'], title, cmap='gray', columns=columns)

def _at_element(view:FeatureView, x:Tensor, h:int)->str:
    "The widget at a group element, where everything is exact."
    H, hx = view.group, act(view.group, h, x)
    y, moved = view(x), view(hx)
    error = relative_error(H, h, moved, y)
    return (_input_row(hx, f'0 · the input, moved by {H.describe(h)}', H)
            + _verdict(h, error, tolerance(y), view.name)
            + _rows(view, _carried_back(H, h, y, moved)))

def _nearest(group:Group, degrees:float, mirror:bool)->tuple[int, float]:
    "The element nearest to an angle, and how far the angle lies beyond it."
    alike = [h for h in group.elements if ('mirror' in group.describe(h)) == mirror]
    if not alike:
        raise ValueError(f'{group.name} has no mirrors to come near to: '
                         'choose a group that has, or leave the mirror out')
    def beyond(h:int)->float:
        angle = float(group.describe(h).split(', ')[-1][:-1])
        return (degrees - angle + 180) % 360 - 180
    nearest = min(alike, key=lambda h: abs(beyond(h)))
    return nearest, beyond(nearest)

def _turn_panels(y:Tensor, degrees:float)->Tensor:
    return rotate(y.flatten(1, -3), degrees).view_as(y)

def _share(a:Tensor, b:Tensor)->str:
    "The largest difference inside a disc, in percent of the largest value of `b`."
    margin = min(2, min(a.shape[-2:])/2 - 1)
    inside = disc(a.shape[-2], a.shape[-1], margin=margin)
    largest = b.abs().max().item() or 1.
    return f'{((a - b)*inside).abs().max().item()/largest:.0%}'

def _between(view:FeatureView, x:Tensor, degrees:float, mirror:bool)->str:
    "The widget at an angle that is not in the group."
    H = view.group
    h, beyond = _nearest(H, degrees, mirror)
    upright = x.flip(-1) if mirror else x
    turned = rotate(upright, degrees)
    y, moved = view(x), view(turned)
    back = act(H, int(H.inv[h]), _turn_panels(moved, -beyond))
    verdict = _part(
        'approximate', degrees=f'{degrees:g}', group=H.name, maps=_share(back, y),
        pixels=_share(rotate(turned, -degrees), upright), nearest=H.describe(h))
    return (_input_row(turned, f'0 · the input, turned by {degrees:g}°', H) + verdict
            + _rows(view, Comparison(y, moved, back, H.mul[h].tolist())))

def _element_at(group:Group, degrees:float, mirror:bool)->int|None:
    "The element that mirrors (or not) and turns by so many degrees, if there is one."
    want = f'{"mirror, " if mirror else ""}{degrees % 360:g}°'
    return next((h for h in group.elements if group.describe(h) == want), None)

class RotateAndPermute(Widget):
    "The input turns; feature maps turn and permute; carried back they are as before."
    def __init__(self,
        # a layer or a network: image to feature map on G, or to image
        layer:nn.Module,
        image:Tensor,            # square: `(h, w)`, `(c, h, w)` or `(1, c, h, w)`
        group:Group|str,
        until:str|None=None,     # look at this layer inside a network
        channel:int=0,           # which feature channel
        # more images to choose from in the live face
        images:dict[str, Tensor]|None=None,
        title:str|None=None,
    ):
        group = get_group(group)
        own = get_group(getattr(layer, 'group', group))
        if own != group:
            raise ValueError(f'the layer has the group {own.name}, the widget '
                             f'{group.name}: give both the same')
        self.view = FeatureView(layer, group, until, channel)
        images = {'image': image} | (images or {})
        self.images = {name: check_image(x) for name, x in images.items()}
        self.title = title or f'{self.view.name}: turn the input, watch the features'
        self.labels = _labels(group)
        self.view(self.images['image'])   # what does not fit fails now, not at a move

    def frame(self, position:int)->str:
        return _at_element(self.view, self.images['image'], position)

    def at(self,
        degrees:float,
        mirror:bool=False,       # before the turn
        image:str='image',       # one of `images`
        layer:str|None=None,     # the widget's own if None; '' is the whole network
        channel:int|None=None,   # the widget's own if None
    )->tuple[str, str]:
        "Label and HTML at any angle."
        view = self._view(layer, channel)
        group, x = view.group, self.images[image]
        h = _element_at(group, degrees, mirror)
        if h is not None: return self.labels[h], _at_element(view, x, h)
        turn = f'{"mirror, " if mirror else ""}{degrees:g}°'
        label = f'{turn}: not in {group.name}, approximate'
        return label, _between(view, x, degrees, mirror)

    def _view(self, layer:str|None, channel:int|None)->FeatureView:
        until = self.view.until if layer is None else layer or None
        channel = self.view.channel if channel is None else channel
        return replace(self.view, until=until, channel=channel)

    def live(self): return _live(self._controls(), self.at, self.title)

    def _layers(self)->list[str]:
        "Names of the layers inside the network that the widget can show."
        def works(name:str)->bool:
            try: return self._view(name, 0)(self.images['image']) is not None
            except (ValueError, RuntimeError): return False
        names = dict(self.view.layer.named_modules())
        return [name for name in names if name and works(name)]

    def _controls(self)->dict:
        "The live controls; no mirror where the group has none."
        w = require('ipywidgets', 'lab')
        group, until = self.view.group, self.view.until or ''
        mirrors = any('mirror' in group.describe(h) for h in group.elements)
        layers = [('whole', ''), *((name, name) for name in self._layers())]
        controls = dict(
            degrees=w.IntSlider(0, 0, 359, continuous_update=True),
            mirror=w.Checkbox(False, disabled=not mirrors),
            image=w.Dropdown(options=list(self.images)),
            layer=w.Dropdown(options=layers, value=until),
            channel=w.BoundedIntText(self.view.channel, min=0, max=9999))
        for name, control in controls.items(): control.description = name
        controls['mirror'].description = 'mirror first'
        return controls

def _letter(size:int=15)->Tensor:
    "An F, `(1, 1, size, size)`: a picture without any symmetry."
    f = torch.zeros(1, 1, 15, 15, dtype=torch.float64)
    f[..., 2:13, 4:6] = 1
    f[..., 2:4, 4:11] = 1
    f[..., 7:9, 4:9] = 1
    return F.interpolate(f, size)

def _order_of(group:Group, g:int)->int:
    "The smallest k ≥ 1 with g multiplied by itself k times = e."
    k, power = 1, g
    while power: k, power = k + 1, int(group.mul[power, g])
    return k

def picture_html(fig)->str:
    "A figure with its description, as HTML."
    return _part('figure', picture=_data_uri(png(fig)), alt=alt_text(fig))

class CayleyExplorer(Widget):
    "Left multiplication by each element: where it sends the group, and facts about it."
    def __init__(self,
        group:Group|str,
    ):
        self.group = group = get_group(group)
        self.title = f'The group {group.name}: multiply by g from the left'
        self.names = [f'{h}: {group.describe(h)}' for h in group.elements]
        self.labels = [f'g = {name}' for name in self.names]
        self.fixed = picture_html(plot_cayley_graph(group))
        letters = [act(group, h, _letter(31))[:, 0] for h in group.elements]
        self.letters = torch.cat(letters)

    def facts(self, g:int)->str:
        "Order, inverse and centraliser of an element, in words."
        H = self.group
        partners = [h for h in H.elements if H.mul[g, h] == H.mul[h, g]]
        some = ', '.join(map(str, partners))
        partners_ = 'every element' if len(partners) == len(H) else some
        return (f'order {_order_of(H, g)} · inverse {int(H.inv[g])} · '
                f'commutes with {partners_}')

    def frame(self, position:int)->str:
        def row(title:str)->str:
            return panel_row(self.letters, self.names, title, cmap='gray')
        arrows = f'arrows: letter h goes to the place of gh, g = {position}'
        return (_part('line', text=self.facts(position))
                + row('letter h is an F moved by h')
                + arrow_row(self.group.mul[position].tolist(), arrows)
                + row('the same letters: moved by g, each becomes the one '
                      'its arrow points to'))

def moved_pixel(
    group:Group|str,
    h:int,                 # group element
    pixel:tuple[int, int], # (row, column)
    size:int,              # of the square image, in pixels
)->tuple[int, int]:
    "(row, column) of a pixel after the image was moved by `h`, of a group of the grid."
    row, column = pixel
    middle = (size - 1)/2
    point = torch.tensor([column - middle, middle - row], dtype=torch.float64)
    x, y = act_points(group, h, point).tolist()
    return round(middle - y), round(middle + x)

def _grid(
    side:int, # at most so many pixels
    size:int, # of the image
)->list[tuple[int, int]]:
    "Pixels in even rows and columns that the turns and mirrors of the image permute."
    if not 1 <= side <= size:
        raise ValueError(f'a grid of {side} a side does not fit an image of '
                         f'{size}×{size}: choose 1..{size}, or give a list of '
                         '(row, column)')
    # an even image has no middle pixel, an odd one needs it
    side = max(side - (size - side) % 2, 2 - size % 2)
    half = [round((i + .5)*size/side - .5) for i in range(side//2)]
    line = [*half, *[size//2]*(side % 2), *(size - 1 - i for i in reversed(half))]
    return [(row, column) for row in line for column in line]

def _check_pixels(pixels:list[tuple[int, int]], size:int)->None:
    if not pixels:
        raise ValueError('expected at least one pixel (row, column), got an empty list')
    for row, column in pixels:
        if not (0 <= row < size and 0 <= column < size):
            raise ValueError(f'pixel ({row}, {column}) lies outside the image: '
                             f'rows and columns are 0..{size - 1}')

def clickable(
    group:Group|str,
    size:int,                              # of the square image, in pixels
    # a grid of so many a side, one fewer where odd and even do not go together;
    # or (row, column) of each
    pixels:int|list[tuple[int, int]]=5,
)->list[tuple[int, int]]:
    "Pixels in reading order, closed under the group."
    group = get_group(group)
    check_grid(group, 'moves pixels to places between pixels')
    if isinstance(pixels, int): return _grid(pixels, size)
    _check_pixels(pixels, size)
    orbits = {moved_pixel(group, h, p, size) for p in pixels for h in group.elements}
    return sorted(orbits)

@dataclass(frozen=True)
class PixelView:
    "What a layer does at a pixel: panels `(1, 1, |H|, k, k)`, or one `(1, 1, k, k)`."
    # image `(1, c, h, w)`, row, column to panels `(|H|, k, k)` or `(k, k)`
    look:Callable[[Tensor, int, int], Tensor]
    group:Group
    signed:bool=True

    @property
    def name(self)->str:
        name = getattr(self.look, '__name__', type(self.look).__name__)
        return name.replace('<lambda>', 'this function')

    def __call__(self, x:Tensor, pixel:tuple[int, int])->Tensor:
        with unchanged(self.look): y = self.look(x.clone(), *pixel)
        self.check_shape(y, pixel)
        self.check_values(y, pixel)
        return y.detach().cpu()[None, None]

    def check_shape(self, y:Any, pixel:tuple[int, int])->None:
        "Raise unless these are panels."
        n, name = len(self.group), self.group.name
        want = (f'expected (|H|, k, k) = ({n}, k, k), one panel a pose of {name}, '
                'or (k, k)')
        if not isinstance(y, Tensor):
            raise ValueError(f'{self.name} gives a {type(y).__name__} at pixel '
                             f'{pixel}: {want}, a tensor')
        if y.ndim not in (2, 3) or y.shape[-1] != y.shape[-2] or not y.numel():
            raise ValueError(f'{self.name} gives shape {tuple(y.shape)} at pixel '
                             f'{pixel}: {want}. Pad at the rim, so that panels stay '
                             'square')
        if y.ndim == 3 and len(y) != n:
            raise ValueError(f'{self.name} gives {len(y)} panels, but {name} has order '
                             f'{n}: {want}. Give the widget the group of the layer')

    def check_values(self, y:Tensor, pixel:tuple[int, int])->None:
        "Raise unless the panels can be coloured."
        if not y.isfinite().all():
            raise ValueError(f'{self.name} gives NaN or infinity at pixel {pixel}: '
                             'look at the image and the weights')
        if not self.signed and y.min() < -tolerance(y)*y.abs().max():
            raise ValueError(f'{self.name} gives negative values at pixel {pixel}, the '
                             f'smallest {y.min():.2g}: say signed=True, or look at the '
                             'weights after the softmax')

def _panel_verdict(view:PixelView, what:str, h:int, y:Tensor, moved:Tensor)->str:
    "Do the panels agree, and would it show if they did not?"
    tol, top = tolerance(y), y.abs().max().item()
    error = relative_error(view.group, h, moved, y)
    flat = (y.amax((-1, -2)) - y.amin((-1, -2))).max() <= tol*top
    if flat and error <= tol: return _part('no_pattern', what=what)
    return _verdict(h, error, tol, view.name, what)

def _scale(signed:bool, top:float)->str:
    "The colours, in words."
    words = 'all values are 0'
    if top and signed: words = f'orange −{top:.2g}, white 0, purple {top:.2g}'
    elif top: words = f'dark 0, bright {top:.2g}'
    return _part('line', text=f'colours: {words}')

def _pixel_rows(
    view:PixelView,
    what:str,         # the panels are
    maps:Comparison,
    most:int,         # pixels a side of a panel; larger ones are averaged
)->str:
    "The rows from the panels at the pixel and at the moved pixel of the moved image."
    y, H = maps.original, view.group
    names = [H.describe(q) for q in H.elements] if y.ndim == 5 else [what]
    top, columns = y.abs().max().item(), max(len(names), 4)
    low, cmap = (-top, 'PuOr') if view.signed else (0., 'cividis')
    def row(panels:Tensor, title:str)->str:
        side = min(most, panels.shape[-1])
        averaged = F.adaptive_avg_pool2d(panels.flatten(0, -3), side)
        return strip_row(averaged, names, title, low, top, cmap, columns)
    title = 'arrows: panel q of the first row goes to panel hq of the second'
    arrows = arrow_row(maps.target, title, columns) if y.ndim == 5 else ''
    return (row(y, f'1 · {what} at the pixel of the image as it was') + arrows
            + row(maps.moved, f'2 · {what} at the same spot of the moved image')
            + row(maps.back, '3 · the same, carried back')
            + _scale(view.signed, top))

PIECE = re.compile(
    r'(data:image/png[^"]+|<div class="(?:good|near|bad)">.*?</div>|<svg.*?</svg>)')

def _shared(bodies:list[str])->tuple[list[str], list[list[int]]]:
    "Pieces of HTML, each once, and for each body the numbers of its pieces."
    numbers:dict[str, int] = {}
    lists = []
    for body in bodies:
        pieces = [piece for piece in PIECE.split(body) if piece]
        lists.append([numbers.setdefault(piece, len(numbers)) for piece in pieces])
    return list(numbers), lists

def _apart(pixels:list[tuple[int, int]], size:int)->int:
    "The least distance between two rows or two columns of pixels."
    lines = [sorted({p[axis] for p in pixels}) for axis in (0, 1)]
    gaps = [b - a for line in lines for a, b in zip(line, line[1:])]
    return min(gaps, default=size)

def spots_html(
    pictures:list[str],           # the image moved by each element, as `data:` URIs
    bodies:list[list[str]],       # HTML of each element and pixel
    pixels:list[tuple[int, int]], # that can be clicked, closed under the group
    to:list[list[int]],           # for each element, which pixel each pixel becomes
    start:int,                    # the pixel shown first
    size:int,                     # of the image, in pixels
    labels:list[str],             # what each element is called
    title:str,
)->str:
    "Pixels to click and a slider over the group, as HTML: no kernel, no network."
    pieces, lists = _shared([body for row in bodies for body in row])
    n = len(pixels)
    frames = [lists[k:k + n] for k in range(0, len(lists), n)]
    data = dict(start=start, to=to, at=pixels, pictures=pictures, labels=labels,
                frames=frames, pieces=pieces)
    return _fill('spots.html', id=_id_of(title, json.dumps(data)), title=title,
                 size=size, data=data, apart=_apart(pixels, size),
                 start_html=[row[start] for row in bodies])

class ClickAndTurn(Widget):
    "Click a pixel: see what the layer does there; turn the image: see it turn along."
    def __init__(self,
        # image `(1, c, h, w)`, row, column to panels `(|H|, k, k)`, a feature map on G,
        # or `(k, k)`, an image
        look:Callable[[Tensor, int, int], Tensor],
        # square: `(h, w)`, `(c, h, w)` or `(1, c, h, w)`, of a dtype that `look` takes
        image:Tensor,
        group:Group|str,         # of the grid: C4 (p4), D4 (p4m) or a subgroup
        # to click on a page: a grid of so many a side, or (row, column) of each;
        # the live face has all
        pixels:int|list[tuple[int, int]]=5,
        # colours symmetric about 0, as for kernels; False: from 0 up, as for attention
        signed:bool=True,
        # what the panels are called, in the plural: 'kernels', 'attention maps'
        what:str='panels',
        title:str|None=None,
        # that the page's face may take: panels are averaged where they would take more
        kilobytes:int=400,
    ):
        self.group, self.x = get_group(group), check_image(image)
        self.what, self.kilobytes = what, kilobytes
        self.size, self.view = self.x.shape[-1], PixelView(look, self.group, signed)
        self.pixels = clickable(self.group, self.size, pixels)
        self.start = min(range(len(self.pixels)), key=self._tedium)
        self.title = title or f'{self.view.name}: click a pixel, turn the image'
        self.labels = _labels(self.group)
        self.frame(len(self.labels) - 1)   # what does not fit fails now, not at a click

    def _tedium(self, i:int)->tuple[bool, int]:
        "Least for the pixel nearest to the centre that some element moves."
        pixel = self.pixels[i]
        places = {self._place(h, pixel) for h in self.group.elements}
        return len(places) == 1, sum((2*k - self.size + 1)**2 for k in pixel)

    def _place(self, h:int, pixel:tuple[int, int])->tuple[int, int]:
        return moved_pixel(self.group, h, pixel, self.size)

    def at(self,
        row:int,
        column:int,      # of the image as it was
        element:int=0,
    )->tuple[str, str]:
        "Label and HTML at any pixel and any element."
        pixel, = clickable('C1', self.size, [(row, column)])
        panels = self._panels(pixel, element, self.view(self.x, pixel))
        spot = _part('spot', picture=self._picture(element), size=self.size,
                     pixel=self._place(element, pixel))
        return self.labels[element], spot + self._body(pixel, element, panels)

    def frame(self, position:int)->str:
        return self.at(*self.pixels[self.start], position)[1]

    def html(self)->str:
        "The face without a kernel, with panels as fine as its size allows."
        first = [self.view(self.x, p) for p in self.pixels]
        panels = [[self._panels(p, h, y) for p, y in zip(self.pixels, first)]
                  for h in self.group.elements]
        side = max(y.shape[-1] for y in first)
        coarser = [most for most in (48, 32, 24, 16, 12, 8) if most < side]
        for most in [min(64, side), *coarser]:
            text = self._page(panels, most)
            if len(text.encode()) <= 1000*self.kilobytes: return text
        raise ValueError(f'the page would take {len(text.encode())//1000} kB, more '
                         f'than {self.kilobytes}: offer fewer pixels than '
                         f'{len(self.pixels)}, or allow more kilobytes')

    def _page(self, panels:list[list[Comparison]], most:int)->str:
        H, pixels = self.group, self.pixels
        bodies = [[self._body(p, h, maps, most) for p, maps in zip(pixels, row)]
                  for h, row in enumerate(panels)]
        to = [[pixels.index(self._place(h, p)) for p in pixels] for h in H.elements]
        pictures = [self._picture(h) for h in H.elements]
        return spots_html(pictures, bodies, pixels, to, self.start, self.size,
                          self.labels, self.title)

    def _picture(self, h:int)->str:
        moved = act(self.group, h, self.x).mean(1)[0]
        return png_uri(moved, cmap='gray', colours=64)

    def _panels(self, pixel:tuple[int, int], h:int, y:Tensor)->Comparison:
        "Panels `y` at a pixel, and those at the moved pixel of the moved image."
        moved = self.view(act(self.group, h, self.x), self._place(h, pixel))
        if moved.shape != y.shape:
            shape, other = tuple(y.shape[2:]), tuple(moved.shape[2:])
            raise ValueError(f'{self.view.name} gives shape {shape} at pixel {pixel}, '
                             f'and {other} at the same spot after '
                             f'{self.group.describe(h)}: expected one shape')
        return _carried_back(self.group, h, y, moved)

    def _body(self, pixel:tuple[int, int], h:int, maps:Comparison, most:int=64)->str:
        where = _part('where', pixel=pixel, moved=self._place(h, pixel))
        verdict = _panel_verdict(self.view, self.what, h, maps.original, maps.moved)
        return where + verdict + _pixel_rows(self.view, self.what, maps, most)

    def live(self): return _live(self._controls(), self.at, self.title)

    def _controls(self)->dict:
        "The live controls: row and column in the image as it was, and the element."
        ipywidgets = require('ipywidgets', 'lab')
        def slider(name:str, value:int):
            return ipywidgets.IntSlider(
                value, 0, self.size - 1, description=name, continuous_update=True)
        row, column = self.pixels[self.start]
        return dict(row=slider('row', row), column=slider('column', column),
                    element=_slider(len(self.labels)))

class MeterRow(NamedTuple):
    "A line of the meter."
    layer:str
    kind:str      # class of the layer
    error:float
    length:float  # of the bar, in percent
    broken:bool
    mark:str

def _bar(error:float)->float:
    "Length of an error's bar in percent: from 1e-17 to 10, logarithmic."
    if math.isnan(error): return 0
    return 100*min(max((math.log10(max(error, 1e-17)) + 17)/18, 0), 1)

def _meter_verdict(rows:list[MeterRow], h:int, group:Group)->str:
    "Which layer is broken at an element; none where nothing has moved."
    broken = [row for row in rows if row.broken]
    if broken: return _part('first_broken', layer=broken[0].layer)
    if h == 0: return _part('not_moved')
    unknown = sum(row.mark == '?' for row in rows)
    return _part('all_layers_hold', moved=group.describe(h), unknown=unknown)

class EquivarianceMeter(Widget):
    "Equivariance error of every layer at each element; the first broken one is marked."
    def __init__(self,
        net:nn.Module,
        image:Tensor,      # square: `(h, w)`, `(c, h, w)` or `(1, c, h, w)`
        group:Group|str,
    ):
        self.group = group = get_group(group)
        self.report = layer_report(net, check_image(image), group)
        name = type(net).__name__
        self.title = f'{name}: equivariance to {group.name}, layer by layer'
        self.labels = _labels(group)

    def row(self, i:int, position:int)->MeterRow:
        "Line `i` at an element."
        layer, cls, kind, errors = self.report.rows[i]
        error = errors[position]
        broken = kind != 'unknown' and not error <= self.report.tol
        mark = '✓' if position else '–'   # nothing has moved at element 0
        if kind == 'unknown': mark = '?'
        elif broken: mark = '✗ breaks first' if i == self.report.first_row else '✗'
        return MeterRow(layer, cls, error, _bar(error), broken, mark)

    def frame(self, position:int)->str:
        rows = [self.row(i, position) for i in range(len(self.report.rows))]
        return _meter_verdict(rows, position, self.group) + _part('meter', rows=rows)

def html_table(
    accuracy:dict[str, dict[str, float]], # by network, then by turn, between 0 and 1
)->str:
    "Test accuracies as an HTML table."
    return _part('accuracy_table', accuracy=accuracy)

def raw_html(
    cell, # a notebook cell, changed in place
)->None:
    "Make stored HTML outputs raw Markdown blocks, to which Quarto adds no scripts."
    for output in cell.get('outputs', []):
        data = output.get('data', {})
        if 'text/html' not in data: continue
        text = ''.join(data['text/html'])
        output['data'] = {'text/markdown': f'`````{{=html}}\n{text}\n`````\n'}

class ShareOnce:
    "Leaves out what an earlier output of the page has brought (`procs`)."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        outputs = [o for cell in self.nb.cells for o in cell.get('outputs', [])]
        shown = [o['data'] for o in outputs if 'text/html' in o.get('data', {})]
        texts = share_once(*(''.join(data['text/html']) for data in shown))
        for data, text in zip(shown, texts): data['text/html'] = text

def open_links(
    path:str,    # of a notebook in its repository
    url:str,     # of the repository, on GitHub
    branch:str,
)->str:
    "Markdown links that open a notebook in Colab and on Binder, and show its source."
    repo = url.removeprefix('https://github.com/')
    colab = 'https://colab.research.google.com/github'
    binder = 'https://mybinder.org/v2/gh'
    links = {'in Colab': f'{colab}/{repo}/blob/student/{path}',
             'on Binder': f'{binder}/{repo}/{branch}?urlpath=lab/tree/course/{path}',
             'on GitHub': f'{url}/blob/{branch}/{path}'}
    all_ = ' · '.join(f'[{where}]({link})' for where, link in links.items())
    return f'Open this notebook: {all_}'

class OpenLinks:
    "Puts these links below the title of each page (`procs` in `settings.ini`)."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        from execnb.nbio import mk_cell
        from nbdev.config import get_config
        settings = get_config()
        path = Path(self.nb.path_).resolve().relative_to(settings.config_path.resolve())
        links = open_links(path.as_posix(), settings.git_url, settings.branch)
        # cell 0 is the front matter
        self.nb.cells.insert(1, mk_cell(links, 'markdown'))
