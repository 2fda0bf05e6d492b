"""Can everyone use the widgets: with a keyboard, a screen reader, a phone, in the dark, without
seeing colours?

What can be measured is measured in a browser; that axe finds what is wrong is tried on a spoilt
page in test_site_pages.py.
"""
import pytest

from eqtutor.plot import STYLES
from eqtutor.widgets import whole_page

from .examples import MAKE, WIDTHS, measure
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


SETTLED = '''() => [...document.querySelectorAll('.eqtutor-live')].every(
  ({ widget }) => !widget.frame && !widget.settling && !widget.moving)'''
STAND = '''style => {
  document.body.style.cssText = style;
  document.documentElement.style.colorScheme = style ? 'light' : '';
}'''


def stand(page, place):
    "Make a widget's own page look like another place."
    scheme, style = PLACES[place]
    page.emulate_media(color_scheme=scheme)
    page.evaluate(STAND, style)


def turn_on(page):
    "One step on, where broken layers show."
    for slider in page.get_by_role('slider').all(): slider.press('ArrowRight')
    page.wait_for_function(SETTLED)


# --- one visit of each widget: what axe finds, in all places; its size; what moves

@pytest.mark.parametrize('name', MAKE)
def test_everybody_can_use_a_widget(visit, htmls, name):
    page = visit(whole_page('widget', htmls(name)))
    for _ in range(2):
        assert unnamed(page) == [] and page.evaluate(measure('motion')) == 0
        for place in PLACES:
            stand(page, place)
            assert faint(page) == [], place
        assert page.locator('.eqtutor-live').get_attribute('aria-label')
        assert page.locator('.spoken').get_attribute('aria-live') == 'polite'
        page.set_viewport_size(dict(width=320, height=900))   # a phone, or four times magnified
        assert too_wide(page) == 0 and page.evaluate(measure('size'))['smallest'] > 10
        page.set_viewport_size(dict(width=1280, height=900))
        turn_on(page)


# --- keyboard

@pytest.mark.parametrize('name', MAKE)
def test_keyboard_reaches_every_control(visit, htmls, name):
    page = visit(whole_page('widget', htmls(name)))
    for width in WIDTHS:
        page.set_viewport_size(dict(width=width, height=900))
        page.reload()
        reached = stops(page)
        assert len(reached) == page.evaluate(measure('controls'))
        assert all(stop['ring'] and stop['seen'] and stop['name'] for stop in reached)
        assert len({stop['name'] for stop in reached}) == len(reached)


# --- colours

def test_colour_is_never_alone(visit, htmls):
    "Lines differ in their style, too; verdicts begin with a sign of their own."
    assert len({line for _, line in STYLES}) == len(STYLES)
    for name, sign in ('right', '✓'), ('broken', '✗'):
        page = visit(whole_page('widget', htmls(name)))
        turn_on(page)
        assert page.locator('.verdict').first.inner_text().startswith(sign)
