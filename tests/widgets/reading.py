"What axe finds on a page, where the keyboard goes, how wide the page is."
import re
from importlib.resources import files

from .examples import measure

AXE = (files('axe_playwright_python')/'axe.min.js').read_text(encoding='utf-8')
COLOURS = 'color-contrast', 'link-in-text-block'
# a browser lets the keyboard scroll whatever scrolls: test_site_pages.py
OTHERS = dict.fromkeys((*COLOURS, 'scrollable-region-focusable'), dict(enabled=False)) | {
    'heading-order': dict(enabled=True)}


def axe(page, **options):
    "The complaints of axe: the rule and the element."
    if not page.evaluate('"axe" in window'): page.evaluate(AXE)
    return page.evaluate(measure('axe'), options | dict(resultTypes=['violations', 'incomplete']))


def unnamed(page):
    "What a screen reader could not tell: names, roles, tables, languages; pictures without words."
    wcag = 'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'
    found = axe(page, runOnly=wcag, rules=OTHERS) + page.evaluate(measure('silent'))
    # a widget's headline is a sentence, and no part of the page begins there
    return [what for what in found if not re.match('heading-order.*"headline"', what)]


def faint(page):
    "Text that does not stand out from what is behind it, and links that only their colour tells."
    return axe(page, runOnly=COLOURS)


def stops(page):
    "Everywhere the Tab key goes."
    page.evaluate('document.activeElement.blur()')
    reached = []
    for _ in range(50):
        page.keyboard.press('Tab')
        now = page.evaluate(measure('focus'))
        if not now or now in reached: return reached
        reached.append(now)
    raise AssertionError('Tab does not come to an end')


def too_wide(page):
    "By how many pixels; what is to blame goes with a failing test's output."
    size = page.evaluate(measure('size'))
    if size['excess']: print(*size['wide'], sep='\n')
    return size['excess']
