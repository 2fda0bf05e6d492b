"""Every page of the site in a browser: at two widths, in the light, in the dark and on paper.

The pages are those that `site_pages.py` builds without Quarto, or, with `EQTUTOR_SITE=_docs`, those
that `nbdev_docs` has built there. All are measured with every fold open, each in one window that
goes from page to page.
"""
import os
import posixpath
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
import site_pages
from pages import headings_of, labels, page_of, read_all, slugs

from .examples import ROOT, measure

BOOK = read_all()
WIDTHS = 1280, 390
LESSONS = [name for name in BOOK if re.match('[1-3]_', name)]
ONE_OF_EACH = ['index.ipynb', '3_papers/24_e4.ipynb', '4_course/30_results.ipynb',
               '5_workshop/51_windows.ipynb', '6_reference/92_api.ipynb']
ALL = '({' + ','.join(f'{key}: ({measure(key)})()' for key in ('size', 'page')) + '})'
LISTS = 'silent', 'bare', 'small', 'outside', 'covered'
WEIGHT = 700_000   # bytes of a page's own content: its text, its figures, its widgets


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    "The file of each page, by the name of its notebook."
    built = os.environ.get('EQTUTOR_SITE')
    if built: return {name: Path(built).resolve()/page_of(name) for name in BOOK}
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    return site_pages.build(tmp_path_factory.mktemp('site'))


@pytest.fixture(scope='module')
def window(browser):
    "A window, and the requests that would have left it."
    context = browser.new_context(viewport=dict(width=1280, height=900), offline=True)
    left = []

    def gate(route):
        if route.request.url.startswith('file:'): return route.continue_()
        left.append(route.request.url)
        route.abort()
    context.route('**', gate)
    yield SimpleNamespace(page=context.new_page(), left=left)
    context.close()


def opened(window, file):
    "The page, all folds open by the one button that does so."
    page = window.page
    page.emulate_media(media='screen', color_scheme='light')
    page.set_viewport_size(dict(width=1280, height=900))
    page.goto(file.as_uri())
    page.evaluate('document.fonts.ready.then(() => 0)')
    if page.locator('.folds button').count(): page.locator('.folds button').click()
    return page


def faults(page, width):
    "What is wrong on a page at a width."
    page.set_viewport_size(dict(width=width, height=900))
    found = page.evaluate(ALL)
    size, seen = found['size'], found['page']
    lists = {key: seen[key] for key in LISTS if seen[key]}
    if size['excess']: lists['too wide'] = size['wide']
    if size['cut']: lists['cut'] = size['cut']
    if seen['closed']: lists['closed'] = seen['closed']
    if width > 1000 and seen['scrolled']: lists['scrolled'] = seen['scrolled']
    return lists


def faint(page):
    "Text that is hard to read."
    texts = page.evaluate(measure('contrast'))
    return [t for t in texts if not t['picture'] and t['ratio'] < t['want']]


@pytest.mark.parametrize('name', BOOK)
def test_page_can_be_read(window, pages, name):
    page = opened(window, pages[name])
    found = {width: faults(page, width) for width in WIDTHS}
    assert found == {width: {} for width in WIDTHS}
    assert faint(page) == []
    assert window.left == []


def in_the_dark(page):
    "As for a reader whose system is dark: Quarto's own script sees to it, where there is one."
    page.emulate_media(color_scheme='dark')
    page.reload()
    page.evaluate("""() => document.body.classList.contains('quarto-dark') ||
      document.body.classList.replace('quarto-light', 'quarto-dark')""")
    if page.locator('.folds button').count(): page.locator('.folds button').click()


@pytest.mark.parametrize('name', ONE_OF_EACH)
def test_page_can_be_read_in_the_dark(window, pages, name):
    page = opened(window, pages[name])
    in_the_dark(page)
    for width in WIDTHS:
        page.set_viewport_size(dict(width=width, height=900))
        assert faint(page) == []
    assert page.evaluate('getComputedStyle(document.body).backgroundColor') == 'rgb(27, 32, 38)'


def widen(page): page.add_style_tag(content='main { min-width: 1500px; }')

def bend(page): page.add_style_tag(content='main img.figure-img { max-width: none; width: 200vw; }')

def cover(page): page.add_style_tag(content='main .code-copy-button { left: 12px; right: auto; }')

def mute(page): page.evaluate("document.querySelectorAll('figcaption').forEach(e => e.remove())")

def enlarge(page): page.add_style_tag(content='main pre { font-size: 20px !important; }')

def pale(page): page.add_style_tag(content='main p { color: #999 !important; }')

SPOILT = {widen: 'too wide', bend: 'cut', cover: 'covered', mute: 'bare', enlarge: 'scrolled'}


def test_spoilt_page_is_found(window, pages):
    for spoil, kind in SPOILT.items():
        page = opened(window, pages['1_foundations/02_actions.ipynb'])
        spoil(page)
        assert kind in faults(page, 1280), kind
    page = opened(window, pages['1_foundations/02_actions.ipynb'])
    pale(page)
    assert faint(page)


@pytest.mark.parametrize('name', dict.fromkeys([*LESSONS, *ONE_OF_EACH]))
def test_paper_has_everything_on_it(window, pages, name):
    "The folds are open, the frame is away, and no line of code leaves the sheet."
    page = window.page
    page.set_viewport_size(dict(width=720, height=1000))   # A4 less its margins
    page.goto(pages[name].as_uri())
    page.emulate_media(media='print')
    assert not page.locator('#quarto-sidebar').is_visible()
    assert page.evaluate(HIDDEN_IN_FOLDS) == 0
    found = faults(page, 720)
    found.pop('closed', None)   # what the paper shows is measured above
    assert found == {}
    assert page.evaluate(CUT_LINES) == []
    page.emulate_media(media='screen')


def test_paper_that_hides_something_is_found(window, pages):
    page = window.page
    page.goto(pages['3_papers/24_e4.ipynb'].as_uri())
    assert page.evaluate(HIDDEN_IN_FOLDS) > 10   # on a screen the folds are closed
    page.emulate_media(media='print')
    page.set_viewport_size(dict(width=500, height=1000))
    assert page.evaluate(CUT_LINES) == []
    page.add_style_tag(content='main pre, main pre * { white-space: pre !important; }')
    assert page.evaluate(CUT_LINES)
    page.emulate_media(media='screen')


def test_browser_prints_a_lesson(window, pages):
    page = window.page
    page.goto(pages['3_papers/24_e4.ipynb'].as_uri())
    sheets = page.pdf(format='A4', print_background=True)
    assert sheets.startswith(b'%PDF') and len(re.findall(rb'/Type\s*/Page\b', sheets)) > 5


# text in folds that is not shown
HIDDEN_IN_FOLDS = """() => [...document.querySelectorAll(
    'main details > :not(summary, script, style)')]
  .filter(e => e.textContent.trim() && !e.closest('[id^="eqtutor-"]'))
  .filter(e => !e.checkVisibility()).length"""
CUT_LINES = """() => [...document.querySelectorAll('main pre')]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 80))"""


# --- links, weight, speed

def anchors_of(html): return set(re.findall(r'\bid="([^"]+)"', html))

def internal_links(html):
    shown = re.sub(r'<(script|style)\b.*?</\1>', '', html, flags=re.S)
    links = re.findall(r'<a\b[^>]*\bhref="([^"]*)"', shown)
    return [link for link in links if not re.match(r'https?:|mailto:', link)]


def dead_links(file, text, anchors):
    "Links of a page that lead to no page, or to no place on it."
    for link in dict.fromkeys(internal_links(text)):
        path, _, anchor = link.partition('#')
        target = posixpath.normpath(file.parent/path) if path else str(file)
        if Path(target).is_dir(): target = f'{target}/index.html'
        if target not in anchors:
            if not Path(target).is_file(): yield link
        elif anchor and anchor not in anchors[target]: yield link


def test_links_lead_somewhere(pages):
    texts = {file: file.read_text(encoding='utf-8') for file in pages.values()}
    anchors = {str(file): anchors_of(text) for file, text in texts.items()}
    found = {file.name: [*dead_links(file, text, anchors)] for file, text in texts.items()}
    assert {name: links for name, links in found.items() if links} == {}
    address = 'eqtutor.github.io'
    assert [file.name for file, text in texts.items() if f'href="https://{address}' in text] == []
    page = next(iter(texts))
    wrong = '<a href="none.html">x</a><a href="#none">y</a>'
    assert [*dead_links(page, wrong, anchors)] == ['none.html', '#none']


def weight(file):
    shown = {*re.findall(r'src="([^"]+_files/[^"]+)"', file.read_text(encoding='utf-8'))}
    return file.stat().st_size + sum((file.parent/src).stat().st_size for src in shown)


def test_lessons_are_light(pages):
    heavy = {name: weight(pages[name]) for name in LESSONS if weight(pages[name]) > WEIGHT}
    assert heavy == {}
    assert weight(pages['3_papers/21_attentive.ipynb']) > 200_000   # with its pictures


def test_heaviest_lesson_is_painted_within_a_second(window, pages):
    name = max(LESSONS, key=lambda name: weight(pages[name]))
    times = []
    for _ in range(3):   # the machine may be busy with other tests
        window.page.goto(pages[name].as_uri())
        times.append(window.page.evaluate(measure('page'))['paint'])
    assert 0 < min(times) < 1000


# --- what Pandoc makes of the text

def text_of(html):
    return re.sub(r'<(pre|code|script|style|annotation)\b.*?</\1>', '', html, flags=re.S)


@pytest.mark.parametrize('name', BOOK)
def test_page_in_pandoc(pages, name):
    "Formulas become MathML, anchors are those that links are checked against."
    html, nb = pages[name].read_text(encoding='utf-8'), BOOK[name]
    assert 'class="math' not in text_of(html)
    assert not re.findall(r'\$[^$\n<]*\\[a-z]+[^$\n<]*\$', text_of(html))
    assert {slug for slug in slugs(nb) if slug not in replaced(nb)} <= anchors_of(html)
    assert {*labels(nb)} <= anchors_of(html)
    assert not re.findall(r'\]\([^)\s]*\.(?:html|ipynb)', re.sub(r'<[^>]*>', '', text_of(html)))
    for table in re.findall(r'<table.*?</table>', html, re.S):
        assert re.search(r'<th\b[^>]*>\s*\S', table), table[:200]


@pytest.mark.parametrize('name', BOOK)
def test_page_says_what_was_written(pages, name):
    "No sentence has become a list, and no code has a backslash that belongs to the table."
    html = pages[name].read_text(encoding='utf-8')
    assert [*site_pages.list_faults(html)] == []
    assert site_pages.pipe_faults(html) == []


def replaced(nb):
    "Slugs of headings that have an anchor of their own."
    below = [text for _, level, text in headings_of(nb) if level > 1]
    return {slug for slug, text in zip(slugs(nb), below) if '{#' in text}


# --- formulas

CSS = (ROOT/'nbs'/'styles.css').read_text(encoding='utf-8')


def characters():
    "What the font of the formulas is said to hold."
    line = re.search(r'unicode-range: ([^;]*);', CSS)[1]
    for low, high in re.findall(r'U\+([0-9A-F]+)(?:-([0-9A-F]+))?', line):
        yield from map(chr, range(int(low, 16), int(high or low, 16) + 1))


def symbols(html):
    "The characters of all formulas of a page."
    formulas = ''.join(re.findall(r'<math\b.*?</math>', html, re.S))
    return {*unescape(re.sub(r'<annotation\b.*?</annotation>|<[^>]*>', '', formulas))} - {'\n'}


def test_font_of_the_formulas_has_all_their_symbols(pages):
    used = set.union(*(symbols(f.read_text(encoding='utf-8')) for f in pages.values()))
    assert len(used) > 100 and used <= {*characters()}
    assert symbols('<p>§</p><math><mi>x</mi><annotation>ж</annotation></math>') == {'x'}


def test_font_of_the_formulas_is_loaded(window, pages):
    page = opened(window, pages['1_foundations/05_convolution.ipynb'])
    faces = page.evaluate("[...document.fonts].map(f => f.family + ' ' + f.status)")
    assert [f for f in faces if 'STIX' in f] == ['STIX Two Math loaded']
    folder = ROOT/'nbs'/'fonts'
    assert 'SIL OPEN FONT LICENSE' in (folder/'OFL.txt').read_text(encoding='utf-8')
    assert (folder/'STIXTwoMath-Regular.woff2').stat().st_size < 400_000
