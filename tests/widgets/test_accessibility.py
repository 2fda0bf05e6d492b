"""Can everyone read the pages and use the widgets: with a keyboard, a screen reader, a phone, in the dark, without seeing colours?

What can be measured is measured in a browser. Each measurement is tried on a page that should fail it, too.
"""
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from test_browser import MAKE, WIDTHS, browser, state, visit   # noqa: F401, the fixtures among them
from test_structure import BOOK, headings_of, labels, pages as markdown_of, slugs

from eqtutor.plot import STYLES
from eqtutor.widgets import STYLE, page as whole_page

ROOT = Path(__file__).parents[1]
CSS = (ROOT/'nbs/styles.css').read_text(encoding='utf-8')

# background and text where a widget may stand: its own page follows the system; the site's themes, light and slate;
# JupyterLab's, light and dark; the text of the latter two is half transparent
PLACES = {'own page, light': ('light', ''), 'own page, dark': ('dark', ''),
          'site, light': ('light', 'background:#fff;color:#343a40'), 'site, dark': ('light', 'background:#272b30;color:#aaa'),
          'lab, light': ('light', 'background:#fff;color:#000000de'), 'lab, dark': ('light', 'background:#111;color:#ffffffde')}


def within(html, style=''):
    "The widget's own page, or a page that looks like another place."
    text = whole_page('widget', html)
    return text.replace('color-scheme:light dark', 'color-scheme:light').replace('<body>', f'<body style="{style}">') if style else text


@pytest.fixture(scope='module')
def htmls():
    made = {}
    def html(name):
        if name not in made: made[name] = MAKE[name]().html()
        return made[name]
    return html


# --- contrast

# for each visible piece of text its colour and what lies behind it, layers of both mixed down to opaque colours; text over
# a picture has no single background, and is reported as such
CONTRAST = '''() => {
    const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1] };
    const over = (a, b) => [0, 1, 2].map(i => a[i]*a[3] + b[i]*(1 - a[3])).concat(1);
    const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v/12.92 : ((v + .055)/1.055)**2.4); return .2126*r + .7152*g + .0722*b };
    const probe = document.createElement('canvas').getContext('2d'), root = getComputedStyle(document.documentElement);
    const canvas = () => { const e = document.createElement('div'); e.style.cssText = 'background:Canvas;position:absolute';
                           document.body.append(e); const c = parse(getComputedStyle(e).backgroundColor); e.remove(); return c };
    const base = canvas(), found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
        if (!text || !e.checkVisibility({visibilityProperty: true}) || e.closest('script,style,noscript,svg')) continue;
        const layers = []; let picture = false, fade = 1;
        for (let p = e; p; p = p.parentElement) {
            const s = getComputedStyle(p);
            layers.push(parse(s.backgroundColor)); picture ||= s.backgroundImage != 'none'; fade *= s.opacity }
        const behind = layers.reverse().reduce((b, c) => over(c, b), base), s = getComputedStyle(e), c = parse(s.color);
        const front = over([c[0], c[1], c[2], c[3]*fade], behind), [a, b] = [light(front.slice(0, 3)), light(behind.slice(0, 3))];
        const size = parseFloat(s.fontSize), big = size >= 24 || size >= 18.66 && s.fontWeight >= 700;
        found.push({text: text.slice(0, 60), picture, ratio: (Math.max(a, b) + .05)/(Math.min(a, b) + .05), want: big ? 3 : 4.5}) }
    return found }'''

def faint(page):
    "Text that does not stand out from what is behind it."
    found = page.evaluate(CONTRAST)
    assert found, 'no text on the page'
    return [f for f in found if f['picture'] or f['ratio'] < f['want']]

def last_position(page):
    "Moves every slider to its end, where broken layers show."
    for slider in page.get_by_role('slider').all():
        slider.focus()
        page.keyboard.press('End')


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('name', MAKE)
def test_text_of_a_widget_stands_out(visit, htmls, name, place):
    scheme, style = PLACES[place]
    page = visit(within(htmls(name), style), color_scheme=scheme)
    assert faint(page) == []
    last_position(page)
    assert faint(page) == []

def test_faint_text_is_found(visit):
    bad = '<p style="color:#999">one</p><p style="color:#000a;background:#888">two</p><p style="opacity:.4">three</p>' \
          '<p style="background:linear-gradient(red,blue)">four</p><p>fine</p><p style="color:#777;font-size:24px">fine</p>'
    for scheme in 'light', 'dark':
        words = {f['text'] for f in faint(visit(whole_page('x', bad), color_scheme=scheme))}
        assert {'two', 'three', 'four'} <= words and 'fine' not in words and ('one' in words) == (scheme == 'light')


# --- keyboard

FOCUS = '''() => { const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
    return e === document.body ? null : {tag: e.tagName, role: e.getAttribute('role'), name: e.getAttribute('aria-label') || e.textContent.trim(),
        ring: s.outlineStyle != 'none' && parseFloat(s.outlineWidth) > 0, seen: box.top < innerHeight && box.bottom > 0 && box.width > 0} }'''

# what a mouse could use; of a group of radio buttons one is enough, arrow keys go to the others
CONTROLS = '''() => [...document.querySelectorAll('input,select,textarea,button,a[href],summary,[onclick],[tabindex]')]
    .filter(e => e.checkVisibility() && !e.disabled && !(e.getAttribute('role') == 'radio' && e.getAttribute('aria-checked') == 'false')).length'''

def stops(page):
    "Everywhere the Tab key goes."
    page.evaluate('document.activeElement.blur()')
    found = []
    for _ in range(50):
        page.keyboard.press('Tab')
        now = page.evaluate(FOCUS)
        if not now or now in found: return found
        found.append(now)
    raise AssertionError('Tab does not come to an end')


@pytest.mark.parametrize('width', WIDTHS)
@pytest.mark.parametrize('name', MAKE)
def test_keyboard_reaches_every_control(visit, htmls, name, width):
    page = visit(within(htmls(name)), width)
    found = stops(page)
    assert len(found) == page.evaluate(CONTROLS) and all(stop['ring'] and stop['seen'] and stop['name'] for stop in found)
    assert len({stop['name'] for stop in found}) == len(found)
    before = state(page.locator('[role=group]'))
    for stop in found:   # and each does something there
        page.keyboard.press('Tab')
        assert page.evaluate(FOCUS)['role'] == stop['role']
        page.keyboard.press('ArrowRight')
        now = state(page.locator('[role=group]'))
        assert now != before, stop
        before = now

def test_space_and_enter_choose_a_pixel(visit, htmls):
    page = visit(within(htmls('mirrors')))
    for key, pixel in ('Space', 0), ('Enter', -1):
        other = page.get_by_role('radio').all()[pixel]
        assert other.get_attribute('aria-checked') == 'false'
        other.focus()
        page.keyboard.press(key)
        assert other.get_attribute('aria-checked') == 'true'

def test_control_out_of_reach_is_found(visit):
    page = visit(whole_page('x', '<button>a</button><button tabindex="-1">b</button><button style="outline:none">c</button>'))
    found = stops(page)
    assert len(found) < page.evaluate(CONTROLS) and [stop['ring'] for stop in found] == [True, False]


# --- what a screen reader is told

# a group may be without: each <details> is one
NAMED = {'slider', 'radio', 'radiogroup', 'button', 'checkbox', 'combobox', 'spinbutton', 'link', 'image', 'img', 'Canvas', 'SvgRoot',
         'rowheader', 'heading', 'DisclosureTriangle'}

def spoken(page):
    "(role, name) of all that a screen reader meets."
    tree = page.context.new_cdp_session(page).send('Accessibility.getFullAXTree')['nodes']
    return [(n['role']['value'], n.get('name', {}).get('value', '').strip()) for n in tree if not n['ignored']]

def unnamed(page): return [role for role, name in spoken(page) if role in NAMED and not name]


@pytest.mark.parametrize('name', MAKE)
def test_screen_reader_has_a_name_for_everything(visit, htmls, name):
    page = visit(within(htmls(name)))
    for _ in range(2):
        said = spoken(page)
        roles = [role for role, _ in said]
        assert unnamed(page) == [] and {'slider', 'group', 'heading', 'status'} <= {*roles}
        assert all(name for role, name in said if role in ('group', 'columnheader'))
        controls = [x for x in said if x[0] in ('slider', 'radio', 'radiogroup')]
        assert len({*controls}) == len(controls)
        assert {'image', 'img'} & {*roles} if name != 'meter' else {'table', 'columnheader', 'rowheader'} <= {*roles}
        assert page.get_by_role('slider').get_attribute('aria-valuetext') in page.locator('output').inner_text()
        last_position(page)

def test_missing_name_is_found(visit):
    bad = '<img src="data:," ><svg role="img"></svg><input type="range"><button></button><div role="group"><canvas role="img"></canvas></div>'
    assert {'image', 'slider', 'button'} <= {*unnamed(visit(whole_page('x', bad)))}


# --- size and motion

def too_wide(page): return page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth')

@pytest.mark.parametrize('name', MAKE)
def test_widget_fits_the_smallest_screen(visit, htmls, name):
    "320 pixels: a small phone, or a page magnified four times."
    page = visit(within(htmls(name)), 320)
    assert too_wide(page) == 0
    last_position(page)
    assert too_wide(page) == 0
    assert page.evaluate("Math.min(...[...document.querySelectorAll('small, td, p, output')].map(e => parseFloat(getComputedStyle(e).fontSize)))") > 10

MOVES = '''() => document.getAnimations().length + [...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e);
    return [s.transitionDuration, s.animationDuration].some(d => /[1-9]/.test(d)) || s.scrollBehavior == 'smooth'
        || e.matches('marquee,video,[autoplay]') }).length'''

@pytest.mark.parametrize('name', MAKE)
def test_nothing_moves_by_itself(visit, htmls, name):
    "So there is nothing to switch off for whoever prefers less motion."
    page = visit(within(htmls(name)))
    assert page.evaluate(MOVES) == 0
    last_position(page)
    assert page.evaluate(MOVES) == 0

def test_motion_is_found(visit):
    assert visit(whole_page('x', '<p style="transition:color 1s">x</p>')).evaluate(MOVES) == 1


# --- colours

# what each kind of colour blindness makes of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
BLIND = {'all colours': np.eye(3),
         'no red': [[.152286, 1.052583, -.204868], [.114503, .786281, .099216], [-.003882, -.048116, 1.051998]],
         'no green': [[.367322, .860646, -.227968], [.280085, .672501, .047413], [-.011820, .042940, .968881]],
         'no blue': [[1.255528, -.076749, -.178779], [-.078411, .930809, .147602], [.004733, .691367, .303900]]}

def lab(colour, kind='all colours'):
    "CIELAB (D65) of a colour as seen with a kind of colour vision."
    c = np.array(to_rgb(colour))
    linear = np.clip(np.array(BLIND[kind]) @ np.where(c <= .04045, c/12.92, ((c + .055)/1.055)**2.4), 0, 1)
    xyz = [[.4124564, .3575761, .1804375], [.2126729, .7151522, .0721750], [.0193339, .1191920, .9503041]] @ linear/[.95047, 1, 1.08883]
    f = np.where(xyz > (6/29)**3, np.cbrt(xyz), xyz/(3*(6/29)**2) + 4/29)
    return np.array([116*f[1] - 16, 500*(f[0] - f[1]), 200*(f[1] - f[2])])

def alike(colours, kind, least=15):
    "Pairs of colours that look alike."
    return [pair for pair in itertools.combinations(colours, 2) if np.linalg.norm(lab(pair[0], kind) - lab(pair[1], kind)) < least]

VERDICTS = re.findall(r'\.(?:good|near|bad)\{border-color:(#\w+)', STYLE)

@pytest.mark.parametrize('kind', BLIND)
def test_colours_differ_for_every_kind_of_colour_vision(kind):
    assert len(VERDICTS) == 3 and len(STYLES) == 4
    for colours in ([c for c, _ in STYLES], VERDICTS): assert alike(colours, kind) == []

def test_red_and_green_are_found_alike():
    assert [kind for kind in BLIND if alike(['#c00000', '#506000'], kind)] == ['no red', 'no green']

@pytest.mark.parametrize('kind', BLIND)
def test_colour_maps_are_ordered_for_every_kind_of_colour_vision(kind):
    def lightness(name): return np.array([lab(c, kind)[0] for c in colormaps[name](np.linspace(0, 1, 33))[:, :3]])
    for name in 'cividis', 'gray': assert (np.diff(lightness(name)) > 0).all()
    both = lightness('PuOr')   # from both ends to white; the ends differ in hue
    assert (np.diff(both[:17]) > 0).all() and (np.diff(both[16:]) < 0).all()
    assert alike([colormaps['PuOr'](end)[:3] for end in (.1, .9)], kind, 40) == []
    assert not (np.diff(lightness('jet')) > 0).all()

def test_colour_is_never_alone():
    "Lines differ in their style, too; verdicts begin with a sign of their own; colour scales are put in words."
    assert len({line for _, line in STYLES}) == len(STYLES)
    begins = dict(good=('Equivariant', 'Every layer'), bad=('✗',), near=('≈',))
    for name, make in MAKE.items():
        html = make().html()
        for kind, text in re.findall(r'<div class="(good|bad|near)">(.*?)<', html): assert text.startswith(begins[kind]), (name, text)
    assert 'colours: orange' in MAKE['click']().html() and 'colours: dark 0' in MAKE['whole']().html()


# --- pages

SUM = '<mrow>' + '<mi>x</mi><mo>+</mo>'*60 + '</mrow>'
SAMPLE = ('<main><h1>x</h1><table><thead><tr>' + '<th>a header</th>'*12 + '</tr></thead><tbody><tr>' + '<td>long_word</td>'*12
          + f'</tr></tbody></table><p>Inline <math>{SUM}</math>.</p><p><math display="block">{SUM}</math></p><p><a href="#x"><code>'
          + 'a_long_name_'*9 + '</code></a></p><ul><li><code>' + 'a.b/'*40 + '</code></li></ul></main>')
LIKE_THE_SITE = ('body{margin:0;padding:0 12px;font:17px/1.5 sans-serif}img{max-width:100%}pre,div.sourceCode{overflow-x:auto}'
                 'td,th{padding:.5rem}code{font-size:.875em}')

def like_the_site(body, css):
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
            f'<title>x</title><style>{LIKE_THE_SITE}{css}</style><body>{body}</body></html>')

@pytest.mark.parametrize('width', (390, 320))
def test_style_sheet_keeps_a_page_as_wide_as_the_phone(visit, width):
    page = visit(like_the_site(SAMPLE, CSS), width)
    assert too_wide(page) == 0 and unnamed(page) == []
    assert {'table', 'row', 'columnheader', 'cell'} <= {role for role, _ in spoken(page)}, 'a table that scrolls is still one'
    scrolls = [stop['tag'] for stop in stops(page)]
    assert 'TABLE' in scrolls and 'P' in scrolls, 'what scrolls can be scrolled with the keyboard'
    assert too_wide(visit(like_the_site(SAMPLE, ''), width)) > 100


def pandoc(markdown):
    import pypandoc
    return pypandoc.convert_text(markdown, 'html', 'markdown', extra_args=['--mathml', '--wrap=none', '--fail-if-warnings'])

def as_site(nb):
    "A notebook's text and outputs as Pandoc makes HTML of them: what Quarto does, without its theme."
    def parts():
        for i, c in enumerate(nb.cells):
            yield from (source for k, source in markdown_of(nb) if k == i)
            for o in c.get('outputs', []):
                data = o.get('data', {})
                if 'text/html' in data: yield '`````{=html}\n' + ''.join(data['text/html']) + '\n`````'
                elif 'text/plain' in data and 'text/markdown' not in data: yield '```\n' + ''.join(data['text/plain']) + '\n```'
                elif 'text' in o: yield '```\n' + ''.join(o['text']) + '\n```'
    title, _, rest = '\n\n'.join(parts()).partition('\n')   # front matter on the site, without an anchor
    return f'<h1>{title.removeprefix("# ")}</h1>{pandoc(rest)}'

@pytest.fixture(scope='module')
def site_pages():
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    made = {}
    def html(name):
        if name not in made: made[name] = as_site(BOOK[name])
        return made[name]
    return html

@pytest.mark.parametrize('name', BOOK)
def test_page_in_pandoc(site_pages, visit, name):
    "All formulas become MathML; anchors are those that links are checked against; tables have headers; it fits a phone."
    html = site_pages(name)
    text = re.sub(r'<(pre|code|script|annotation)\b.*?</\1>', '', html, flags=re.S)
    assert 'class="math' not in text and not re.findall(r'\$[^$\n<]*\\[a-z]+[^$\n<]*\$', text)
    anchors = re.findall(r'<h[2-6][^>]* id="([^"]+)"', html)
    assert len(anchors) == sum(level > 1 for _, level, _ in headings_of(BOOK[name])) and {*anchors} <= {*slugs(BOOK[name]), *labels(BOOK[name])}
    for table in re.findall(r'<table.*?</table>', html, re.S): assert re.search(r'<th\b[^>]*>\s*\S', table), table[:200]
    page = visit(like_the_site(f'<main>{html}</main>', CSS), 390)
    assert too_wide(page) == 0
    assert unnamed(page) == []

def test_formula_that_is_no_mathml_is_found():
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    with pytest.raises(RuntimeError): pandoc(r'$\nosuchthing{x}$')
