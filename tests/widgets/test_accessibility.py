"""Can everyone use the widgets: with a keyboard, a screen reader, a phone, in the dark, without
seeing colours?

What can be measured is measured in a browser. Each measurement is tried on a page that should fail
it, too.
"""
import re

import pytest

from eqtutor.plot import STYLES
from eqtutor.widgets import whole_page

from .examples import MAKE, WIDTHS, last_position, measure, state
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

def test_colour_is_never_alone(htmls):
    "Lines differ in their style, too; verdicts begin with a sign of their own; scales have words."
    assert len({line for _, line in STYLES}) == len(STYLES)
    begins = dict(good=('Equivariant', 'Every layer'), bad=('✗',), near=('≈',))
    for name in MAKE:
        for kind, text in re.findall(r'<div class="(good|bad|near)">(.*?)<', htmls(name)):
            assert text.startswith(begins[kind]), (name, text)
    assert 'colours: orange' in htmls('click')
    assert 'colours: dark 0' in htmls('whole')
