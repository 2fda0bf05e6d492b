"""A browser, and pages in it without any network.

The fonts are the tests' own, wide ones that come with matplotlib: whether a page fits a phone must
not depend on the fonts of the machine that asks.
"""
import shutil
from functools import cache
from pathlib import Path

import pytest
import site_pages

from .engine_page import PAGE, EnginePage
from .examples import MAKE

BROWSERS = 'chromium', 'chromium-browser', 'google-chrome'
FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
         '--disable-background-networking', '--disable-component-update', '--disable-sync']
STYLE = (f'<style>{site_pages.fonts()}'
         ':is(math, math *) { font-family: "test math" !important; }</style>')


def with_fonts(html):
    if '<title>' not in html: return STYLE + html
    return html.replace('<title>', f'{STYLE}<title>', 1)


@pytest.fixture(scope='module')
def browser(request):
    if why := request.config.missing_flags.get('browser'): pytest.skip(why)
    from playwright.sync_api import sync_playwright
    program = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:   # each launch has a new, empty profile
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


SERVER = 'http://eqtutor.test'   # its files are answered by the test itself


class Visitor:
    "Opens HTML, as a file or as if served, and notes what goes wrong or leaves the page."
    def __init__(self, browser, file):
        self.browser, self.file = browser, file
        self.wrong, self.contexts = [], []

    def __call__(self, text, width=1280, scripts=True, way='file', **more):
        context = self.browser.new_context(
            viewport=dict(width=width, height=900), offline=True,
            java_script_enabled=scripts, **more)
        self.contexts.append(context)
        context.route('**', self.gate)
        page = context.new_page()
        page.on('console', self.note)
        page.on('pageerror', lambda error: self.wrong.append(f'page: {error}'))
        html = with_fonts(text)
        if way == 'http': html = html.replace('file://', SERVER)
        self.file.write_text(html, encoding='utf-8')
        page.goto(self.file.as_uri() if way == 'file' else f'{SERVER}{self.file}')
        if scripts: page.evaluate('document.fonts.ready.then(() => 0)')
        return page

    def gate(self, route):
        if route.request.url.startswith('file:'): return route.continue_()
        path = Path(route.request.url.removeprefix(SERVER))
        if path == self.file or path.suffix == '.ttf': return route.fulfill(path=path)
        self.wrong.append(f'request: {route.request.url}')
        route.abort()

    def note(self, message):
        if message.type in ('error', 'warning'): self.wrong.append(f'console: {message.text}')


@pytest.fixture
def visit(browser, tmp_path):
    visitor = Visitor(browser, tmp_path/'page.html')
    yield visitor
    for context in visitor.contexts: context.close()
    assert not visitor.wrong


@pytest.fixture(scope='module')
def htmls():
    "The pages of the examples, each made once."
    return cache(lambda name: MAKE[name]().html())


@pytest.fixture(scope='module')
def engine(browser, tmp_path_factory):
    "The engine in a page without any network."
    visitor = Visitor(browser, tmp_path_factory.mktemp('engine')/'page.html')
    yield EnginePage(visitor(PAGE))
    for context in visitor.contexts: context.close()
    assert not visitor.wrong
