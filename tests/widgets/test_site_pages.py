"""Every page of the site in a browser: at two widths, in the light, in the dark and on paper.

The pages are those that `site_pages.py` builds without Quarto, or, with `EQTUTOR_SITE=_docs`, those
that `nbdev_docs` has built there. All are measured with every fold open, each in one window that
goes from page to page; what looks alike on several pages is looked at once.
"""
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import site_pages
from links import dead_links, links_and_anchors
from pages import labels, read_all, slugs

from eqtutor.sessions import SESSIONS
from eqtutor.tutor.reading import SETTINGS, page_address

from .examples import measure
from .reading import faint, unnamed

BOOK = read_all()
SITE = page_address('')
WIDTHS = 1280, 390
LESSONS = [name for name in BOOK if re.match('[1-3]_', name)]
LAYERS = '1_foundations/06_layers.ipynb'


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    "The file of each page, by the name of its notebook."
    built = os.environ.get('EQTUTOR_SITE')
    addresses = {name: page_address(name).removeprefix(SITE) for name in BOOK}
    if built: return {name: Path(built).resolve()/page for name, page in addresses.items()}
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    return site_pages.build(tmp_path_factory.mktemp('site'))


@pytest.fixture(scope='module')
def window(browser):
    "A window, the requests that would have left it, and the kinds of text that were looked at."
    context = browser.new_context(viewport=dict(width=1280, height=900), offline=True)
    left = []

    def gate(route):
        if route.request.url.startswith('file:'): return route.continue_()
        left.append(route.request.url)
        route.abort()
    context.route('**', gate)
    yield SimpleNamespace(page=context.new_page(), left=left, kinds=[])
    context.close()


def opened(window, file):
    "The page, all folds open by the one button that does so."
    page = window.page
    page.emulate_media(media='screen', color_scheme='light')
    page.set_viewport_size(dict(width=1280, height=900))
    page.goto(file.as_uri())
    page.evaluate('document.fonts.ready.then(() => 0)')
    if page.locator('.folds button').count(): page.locator('.folds button').click()
    else: page.evaluate(FOLDS, True)   # those of a widget have no button
    return page


def faults(page, width):
    "What is cut, covered, too wide or without a caption on a page at a width."
    page.set_viewport_size(dict(width=width, height=900))
    size, found = page.evaluate(measure('size')), page.evaluate(measure('page'))
    if size['excess']: found['too wide'] = size['wide']
    if width < 1000: del found['scrolled']
    return {key: what for key, what in (found | dict(cut=size['cut'])).items() if what}


FOLDS = "open => document.querySelectorAll('main details').forEach(e => { e.open = open; })"
DARKEN = "document.body.classList.replace('quarto-light', 'quarto-dark')"

def faint_kinds(window):
    "Text that is hard to read in the light or in the dark, of kinds that no page before had."
    page, known = window.page, window.kinds
    page.emulate_media(media='screen')
    page.set_viewport_size(dict(width=1280, height=900))
    page.evaluate(FOLDS, True)
    window.kinds = page.evaluate(measure('kinds'), known)
    if len(window.kinds) == len(known): return []
    found = faint(page)
    page.emulate_media(color_scheme='dark')
    page.reload()
    page.evaluate(DARKEN)   # Quarto's own script sees to it, where there is one
    page.evaluate(FOLDS, True)
    assert page.evaluate('getComputedStyle(document.body).backgroundColor') == 'rgb(27, 32, 38)'
    page.evaluate(measure('kinds'), known)
    return found + faint(page)


@pytest.mark.parametrize('name', BOOK)
def test_page_can_be_read(window, pages, name):
    page = opened(window, pages[name])
    found = {width: faults(page, width) for width in WIDTHS}
    assert (found, unnamed(page)) == ({width: {} for width in WIDTHS}, [])
    if name in LESSONS: assert paper_faults(page) == {}
    assert faint_kinds(window) == []
    assert window.left == []


# text in folds that is not shown
HIDDEN_IN_FOLDS = """() => [...document.querySelectorAll(
    'main details > :not(summary, script, style)')]
  .filter(e => e.textContent.trim() && !e.closest('[id^="eqtutor-"]'))
  .filter(e => !e.checkVisibility()).length"""
CUT_LINES = """() => [...document.querySelectorAll('main pre')]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 80))"""


def paper_faults(page):
    "What A4 less its margins lacks: words of a closed fold, ends of lines, or what `faults` finds."
    page.evaluate(FOLDS, False)
    page.emulate_media(media='print')
    found = faults(page, 720)
    found.pop('closed', None)
    found |= dict(hidden=page.evaluate(HIDDEN_IN_FOLDS), lines=page.evaluate(CUT_LINES),
                  frame=page.locator('#quarto-sidebar').is_visible())
    return {key: what for key, what in found.items() if what}


SPOILT = {
    'main { min-width: 1500px; }': 'too wide',
    'main table { min-width: 1500px; }': 'outside',
    'main img.figure-img { max-width: none; width: 200vw; }': 'cut',
    'main figcaption { display: none; }': 'bare',
    'main pre { font-size: 20px !important; }': 'scrolled',
    'main details::details-content { content-visibility: hidden !important; }': 'hidden',
    'main pre, main pre * { white-space: pre !important; font-size: 30px; }': 'lines'}


def test_spoilt_page_is_found(window, pages):
    for style, kind in SPOILT.items():
        page = opened(window, pages[LAYERS])
        page.add_style_tag(content=style)
        assert kind in faults(page, 1280) | paper_faults(page), kind
    page = opened(window, pages[LAYERS])
    page.evaluate("""document.querySelector('main img').alt = '';
      document.querySelector('main a').textContent = '';
      document.querySelector('main h2').outerHTML = '<h4>Deep</h4>';
      new Image().src = 'https://x.org/cat.png';""")
    bare, deep, link = sorted(unnamed(page))
    assert bare.startswith('<img') and deep.startswith('heading-order')
    assert link.startswith('link-name') and window.left.pop() == 'https://x.org/cat.png'
    page.add_style_tag(content='main p { color: #999 !important; }')
    page.evaluate(measure('kinds'), [])
    assert faint(page)


# --- links

def test_links_lead_somewhere(pages):
    files = [*pages.values()]
    dead = dead_links(files, files[0].parents[1])
    # slides are built beside the pages, by `eqtutor sessions all`
    built = {f'../slides/{name}/{page}.html' for name in SESSIONS for page in ('slides', 'handout')}
    assert {name: rest for name, links in dead.items() if (rest := {*links} - built)} == {}
    own = f'href="{SETTINGS["doc_host"]}'
    assert [file.name for file in files if own in file.read_text(encoding='utf-8')] == []


# --- what Pandoc makes of the text

def text_of(html):
    return re.sub(r'<(pre|code|script|style|annotation)\b.*?</\1>', '', html, flags=re.S)


@pytest.mark.parametrize('name', BOOK)
def test_page_says_what_was_written(pages, name):
    """Formulas are MathML, anchors those that links are checked against, tables have a head, no
    sentence has become a list, and no code has a backslash that belongs to the table."""
    html, nb = pages[name].read_text(encoding='utf-8'), BOOK[name]
    assert not re.findall(r'class="math|\$[^$\n<]*\\[a-z]+[^$\n<]*\$', text_of(html))
    assert {*slugs(nb), *labels(nb)} <= links_and_anchors(pages[name])[1]
    assert not re.findall(r'\]\([^)\s]*\.(?:html|ipynb)', re.sub(r'<[^>]*>', '', text_of(html)))
    tables = re.findall(r'<table.*?</table>', html, re.S)
    assert [table[:200] for table in tables if not re.search(r'<th\b[^>]*>\s*\S', table)] == []
    assert site_pages.list_faults(html) + site_pages.pipe_faults(html) == []


# --- formulas

def test_the_font_of_the_formulas_is_loaded(window, pages):
    page = opened(window, pages['1_foundations/05_convolution.ipynb'])
    faces = page.evaluate("[...document.fonts].map(f => f.family + ' ' + f.status)")
    assert [f for f in faces if 'STIX' in f] == ['STIX Two Math loaded']
