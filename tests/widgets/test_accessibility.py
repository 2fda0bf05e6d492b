"""Can everyone use the widgets: with a keyboard, a screen reader, a phone, in the dark, without
seeing colours?

What can be measured is measured in a browser. Each measurement is tried on a page that should fail
it, too.
"""
import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from eqtutor.plot import STYLES
from eqtutor.widgets import whole_page

from .examples import MAKE, ROOT, WIDTHS, last_position, measure, state
from .reading import faint, stops, too_wide, unnamed

# background and text where a widget may stand: its own page follows the system; the site, light and
# dark, as its style sheet says; JupyterLab's, light and dark; the text of the latter two is half
# transparent
PLACES = {
    'own page, light': ('light', ''), 'own page, dark': ('dark', ''),
    'site, light': ('light', 'background:#fff;color:#212529'),
    'site, dark': ('light', 'background:#1b2026;color:#e3e7eb'),
    'lab, light': ('light', 'background:#fff;color:#000000de'),
    'lab, dark': ('light', 'background:#111;color:#ffffffde')}


STAND = '''style => {
  document.body.style.cssText = style;
  document.documentElement.style.colorScheme = style ? 'light' : '';
}'''


def stand(page, place):
    "Make a widget's own page look like another place."
    scheme, style = PLACES[place]
    page.emulate_media(color_scheme=scheme)
    page.evaluate(STAND, style)


def within(html): return whole_page('widget', html)


# --- one visit of each widget: what axe finds, in all places; its size; what moves

@pytest.mark.parametrize('name', MAKE)
def test_everybody_can_use_a_widget(visit, htmls, name):
    page = visit(within(htmls(name)))
    for _ in range(2):
        assert unnamed(page) == [] and page.evaluate(measure('motion')) == 0
        for place in PLACES:
            stand(page, place)
            assert faint(page) == [], place
        assert page.get_by_role('group').first.get_attribute('aria-label')
        value = page.get_by_role('slider').get_attribute('aria-valuetext')
        assert value in page.get_by_role('status').inner_text()
        page.set_viewport_size(dict(width=320, height=900))   # a phone, or four times magnified
        assert too_wide(page) == 0 and page.evaluate(measure('size'))['smallest'] > 10
        page.set_viewport_size(dict(width=1280, height=900))
        last_position(page)


FAINT = '''<main><p style="color:#999">one words</p>
<p style="color:#000a;background:#888">two</p><p style="opacity:.4">three</p>
<p style="background:linear-gradient(red,blue)">four</p><p>fine</p>
<p style="color:#777;font-size:24px">fine</p></main>'''


def test_faint_text_is_found(visit):
    page = visit(whole_page('x', FAINT))
    for place in PLACES:
        stand(page, place)
        found = {word for text in faint(page) for word in re.findall(r'>(\w+)', text)}
        assert found - {'one'} == {'two', 'three', 'four'}, place
        assert ('one' in found) == ('light' in place), place


def test_what_has_no_name_and_what_moves_is_found(visit):
    bad = ('<img src="data:,"><img src="data:," alt=""><svg role="img"></svg><input type="range">'
           '<button></button><canvas role="img"></canvas><p style="transition:color 1s">x</p>'
           '<table><tr><td headers="none">1</td></tr></table>')
    page = visit(whole_page('x', bad))
    kinds = {text.partition(':')[0].partition(' ')[0] for text in unnamed(page)}
    assert kinds == {'image-alt', 'svg-img-alt', 'label', 'button-name', 'role-img-alt', '<img',
                     '<svg', 'td-headers-attr'}
    assert page.evaluate(measure('motion')) == 1


# --- keyboard

@pytest.mark.parametrize('name', MAKE)
def test_keyboard_reaches_every_control(visit, htmls, name):
    page = visit(within(htmls(name)))
    for width in WIDTHS:
        page.set_viewport_size(dict(width=width, height=900))
        page.reload()
        reached = stops(page)
        assert len(reached) == page.evaluate(measure('controls'))
        assert all(stop['ring'] and stop['seen'] and stop['name'] for stop in reached)
        assert len({stop['name'] for stop in reached}) == len(reached)
        before = state(page.locator('[role=group]'))
        for stop in reached:   # and each does something there
            page.keyboard.press('Tab')
            assert page.evaluate(measure('focus'))['role'] == stop['role']
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
    buttons = ('<button>a</button><button tabindex="-1">b</button>'
               '<button style="outline:none">c</button>')
    page = visit(whole_page('x', buttons))
    reached = stops(page)
    assert len(reached) < page.evaluate(measure('controls'))
    assert [stop['ring'] for stop in reached] == [True, False]


# --- colours

# what each kind of colour blindness makes of linear RGB (Machado, Oliveira and Fernandes 2009,
# severity 1)
BLIND = {
    'all colours': np.eye(3),
    'no red': [[.152286, 1.052583, -.204868], [.114503, .786281, .099216],
               [-.003882, -.048116, 1.051998]],
    'no green': [[.367322, .860646, -.227968], [.280085, .672501, .047413],
                 [-.011820, .042940, .968881]],
    'no blue': [[1.255528, -.076749, -.178779], [-.078411, .930809, .147602],
                [.004733, .691367, .303900]]}
XYZ = np.array([[.4124564, .3575761, .1804375], [.2126729, .7151522, .0721750],
                [.0193339, .1191920, .9503041]])


def lab(colour, kind='all colours'):
    "CIELAB (D65) of a colour as seen with a kind of colour vision."
    c = np.array(to_rgb(colour))
    linear = np.where(c <= .04045, c/12.92, ((c + .055)/1.055)**2.4)
    xyz = XYZ @ np.clip(np.array(BLIND[kind]) @ linear, 0, 1)/[.95047, 1, 1.08883]
    f = np.where(xyz > (6/29)**3, np.cbrt(xyz), xyz/(3*(6/29)**2) + 4/29)
    return np.array([116*f[1] - 16, 500*(f[0] - f[1]), 200*(f[1] - f[2])])


def alike(colours, kind, least=15):
    "Pairs of colours that look alike."
    def distance(a, b): return np.linalg.norm(lab(a, kind) - lab(b, kind))
    return [pair for pair in itertools.combinations(colours, 2) if distance(*pair) < least]


def verdict_colours():
    css = (ROOT/'eqtutor'/'widgets'/'widget.css').read_text(encoding='utf-8')
    return re.findall(r'\.(?:good|near|bad) \{\s*border-color: (#\w+);', css)


@pytest.mark.parametrize('kind', BLIND)
def test_colours_differ_for_every_kind_of_colour_vision(kind):
    verdicts = verdict_colours()
    assert len(verdicts) == 3 and len(STYLES) == 4
    for colours in ([c for c, _ in STYLES], verdicts): assert alike(colours, kind) == []


def test_red_and_green_are_found_alike():
    blind = [kind for kind in BLIND if alike(['#c00000', '#506000'], kind)]
    assert blind == ['no red', 'no green']


def test_colour_is_never_alone(htmls):
    "Lines differ in their style, too; verdicts begin with a sign of their own; scales have words."
    assert len({line for _, line in STYLES}) == len(STYLES)
    begins = dict(good=('Equivariant', 'Every layer'), bad=('✗',), near=('≈',))
    for name in MAKE:
        for kind, text in re.findall(r'<div class="(good|bad|near)">(.*?)<', htmls(name)):
            assert text.startswith(begins[kind]), (name, text)
    assert 'colours: orange' in htmls('click')
    assert 'colours: dark 0' in htmls('whole')
