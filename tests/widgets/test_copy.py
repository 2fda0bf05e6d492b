"The student's copy in JupyterLab: as it is opened, and again when all cells have run."
import re

import pytest
from pages import read

from eqtutor.tutor.student import copy_course

from .test_lab import jupyterlab, keep_quiet, open_notebook, visitor

# one of each part; one that is quick to run
LESSONS = ('1_foundations/02_actions', '2_training/11_cost', '3_papers/25_one_frame',
           '4_course/30_results')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    "A copy of the course, and a JupyterLab that keeps all cells of a notebook in the page."
    folder = tmp_path_factory.mktemp('copy')
    copy_course(folder/'work')
    keep_quiet(folder, {'notebook-extension/tracker': dict(windowingMode='none')})
    return folder


@pytest.fixture(scope='module')
def server(folder):
    pytest.importorskip('jupyterlab')
    with jupyterlab(folder) as url: yield url


SEEN = '''() => {
  const all = (selector, part) => [...document.querySelectorAll(selector)].map(part);
  const text = e => e.innerText.trim();
  const drawn = cell => cell.previousElementSibling.querySelectorAll('.jp-OutputArea img').length;
  const says = cell => text(cell.querySelector('.jp-RenderedMarkdown'));
  const captions = [...document.querySelectorAll('.jp-MarkdownCell')].filter(
    cell => /^Figure \\d+\\. \\S/.test(says(cell)));
  return {
    captions: captions.map(cell => text(cell.querySelector('em')).match(/\\d+/)[0] * 1),
    pictures: captions.map(drawn),
    folds: all('.jp-CodeCell .jp-InputPlaceholder .jp-PlaceholderText', text),
    opened: all('.jp-Notebook details[open] summary', text),
    texts: all('.jp-RenderedMarkdown, .jp-CodeCell .cm-content, .jp-InputPlaceholder', text),
    errors: all('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]', text),
  };
}'''


def holds(page, nb, run):
    "Does the page show each caption, and each fold closed, and no directive?"
    seen = page.evaluate(SEEN)
    # those that stand in the open
    captions = [re.match(r'\*Figure (\d+)', c['source']) for c in nb.cells]
    assert seen['captions'] == [int(caption[1]) for caption in captions if caption]
    assert all(seen['pictures']) if run else not any(seen['pictures'])
    hidden = [c for c in nb.cells if c['metadata'].get('jupyter', {}).get('source_hidden')]
    assert seen['folds'] == [c['source'].partition('\n')[0].strip() for c in hidden]
    assert hidden and not seen['opened'] and len(seen['texts']) > 10
    assert not [t for t in seen['texts'] if re.search(r'\{#[\w-]+\}|^:::|^#\|', t, re.M)]
    assert not seen['errors']


# without the signs that JupyterLab puts behind each heading
LINKS = '''() => [...document.querySelectorAll(
  '.jp-RenderedMarkdown a[href]:not(.jp-InternalAnchorLink)')].map(a => ({
  address: a.href,
  here: a.getAttribute('href').startsWith('#') || a.href.split('#')[0] === location.href,
  // JupyterLab keeps an id under another name
  there: [...document.querySelectorAll('[id], [data-jupyter-id]')].some(e =>
    [e.id, e.dataset.jupyterId].includes(decodeURIComponent(a.hash.slice(1)))),
}))'''


def follow_links(page, server):
    "As JupyterLab has resolved them: each leads to a place on the page, a file, or the site."
    links = page.evaluate(LINKS)
    assert links
    for link in links:
        if link['here']: assert link['there'], link
        elif link['address'].startswith(server.split('?')[0].rstrip('/')):
            assert page.request.get(link['address'].split('#')[0]).ok, link
        else: assert link['address'].startswith(('https://', 'mailto:')), link


@pytest.fixture(scope='module')
def page(browser, server):
    "One window, which keeps JupyterLab's own scripts."
    with visitor(browser, server) as page: yield page


def run_all(page):
    from playwright.sync_api import expect
    page.get_by_role('menuitem', name='Run', exact=True).click()
    page.get_by_text('Run All Cells', exact=True).click()
    # a cell that has run has a number; one that is folded shows none
    waiting = page.locator('.jp-CodeCell .jp-InputArea-prompt').filter(
        has_not_text=re.compile(r'\[\d+\]'))
    expect(waiting).to_have_count(0, timeout=240_000)
    expect(page.get_by_text(re.compile(r'\| Idle$'))).to_be_visible(timeout=60_000)
    # pictures come after the numbers
    page.wait_for_function(f"() => ({SEEN})().pictures.every(n => n)")


@pytest.mark.parametrize('lesson, runs', [
    *((lesson, lesson == LESSONS[0]) for lesson in LESSONS),
    *(pytest.param(lesson, True, marks=pytest.mark.slow) for lesson in LESSONS[1:])])
def test_every_caption_fold_and_link_is_there_and_when_all_cells_have_run(
        page, server, folder, lesson, runs):
    from playwright.sync_api import expect
    nb = read(folder/f'work/nbs/{lesson}.ipynb', folder/'work')
    open_notebook(page, server, nb.name)
    expect(page.locator('.jp-Notebook .jp-Cell')).to_have_count(len(nb.cells), timeout=60_000)
    expect(page.locator('.jp-MarkdownCell .jp-RenderedMarkdown')).to_have_count(
        len(nb.markdown()), timeout=60_000)
    holds(page, nb, run=False)
    follow_links(page, server)
    if not runs: return
    run_all(page)
    holds(page, nb, run=True)
