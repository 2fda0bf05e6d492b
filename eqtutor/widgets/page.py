"What a widget is: HTML that is complete, on a page of its own, in a notebook, on the site."
# Plain module: edited by hand, no notebook exports it.

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..actions import act_points
from ..groups import Group
from ..names import needs

with needs('lab'):
    from jinja2 import Environment, PackageLoader, StrictUndefined
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

def _names(text:str, word:str, of:str='')->str:
    "What modules export or import in braces, once; of the modules that match if that is given."
    found = re.findall(word + r' \{([^}]*)\}' + of, text)
    return ', '.join(dict.fromkeys(re.findall(r'\w+', ' '.join(found))))

SHARED = 'engine', 'shared'   # what the widgets of a page have in common

_FROM_SHARED = rf"\s+from '\./(?:{'|'.join(SHARED)})\.js'"

def _body(name:str)->str:
    "A module without the words that are for modules alone."
    return re.sub(r'^(export \{[^}]*\};|export |import .*?;$)', '', asset(name),
                  flags=re.DOTALL|re.MULTILINE)

def _script(name:str, start:str)->str:
    "A module as an element, which gives what is named, or starts its widgets."
    text = f'{_body(f"{name}.js")}\nreturn {start};'
    names = _names(asset(f'{name}.js'), 'import', _FROM_SHARED)
    return shared_element('script', (
        f'globalThis.eqtutor{name.capitalize()} ??= (({{ {names} }}) => {{\n{jsmin(text)}\n}})'
        '(globalThis.eqtutorShared);'))

@cache
def _part(name:str)->str:
    "A script that only some widgets of a kind need: they find it by its name."
    return _script(name, f'{{ {_names(asset(f"{name}.js"), "export")} }}')

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
    script = _script(name, 'start')
    styles = [shared_element('style', style_sheet(f'{sheet}.css'))
              for sheet in ('shared', name, *more)]
    return '\n'.join(styles), _shared_script() + '\n' + script

def live_page(
    name:str,            # of the script, the style sheet and the template
    spec:dict[str, Any], # what the script reads
    blocks:str='',       # further elements that a page needs once
    styles:tuple[str, ...]=(), # further style sheets
    parts:tuple[str, ...]=(),  # further scripts, which have a style sheet each
    **values:Any,        # of the template
)->str:
    "A widget as HTML: styles, what stands where, scripts, and a line that starts it."
    style, script = code(name, *styles, *parts)
    script = '\n'.join([script, *map(_part, parts)])
    body = _fill(f'{name}.html', id=_id_of(json.dumps(spec, sort_keys=True)), spec=spec, **values)
    once = f'<script>globalThis.eqtutor{name.capitalize()}();</script>'
    return '\n'.join([style, re.sub(r'\n\s+', '\n', body), blocks, script, once])

def _fill(file:str, /, **values:Any)->str:
    "A template with the values filled in."
    return TEMPLATES.get_template(file).render(**values)

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

def whole_page(
    title:str,
    *parts:str, # pieces of HTML, in order
)->str:
    "A whole HTML document that needs nothing but itself."
    return _fill('page.html', title=title, parts_html=share_once(*parts))

class Widget:
    "Base of the widgets: they give `title` and `html()`, the same beside a kernel and without."
    title:str

    def html(self)->str:
        "The widget as HTML; it runs wherever a browser shows it."
        raise NotImplementedError

    def save(self,
        path:str|Path, # an .html file
    )->Path:
        "Write the widget as a page of its own."
        path = Path(path)
        text = _fill('own_page.html', title=self.title, widget_html=self.html())
        path.write_text(text, encoding='utf-8')
        return path

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': f'{type(self).__name__}: {self.title}', 'text/html': self.html()}

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
