"The site: the map of chapters, what it and JupyterLab make of the text, links to open a page."
import posixpath
import re

import pytest
from pages import NBS, chapters, read_all
from site_pages import list_faults, lists_of, pandoc, pipe_faults

from eqtutor.tutor.reading import SETTINGS

BOOK = read_all()


def test_map_lists_every_chapter_in_order():
    text = '\n\n'.join(BOOK['index.ipynb'].markdown())
    rows = re.findall(r'^\|[^|]*\|\s*\[(\S+) [^]]+\]\(([^)]+\.ipynb)\)\s*\|', text, re.M)
    assert [name for _, name in rows] == chapters()
    assert [number.lower() for number, _ in rows] == [
        posixpath.basename(name).partition('_')[0] for _, name in rows]


def test_cards_count_the_pages_of_their_parts():
    text = '\n\n'.join(BOOK['index.ipynb'].markdown())
    cards = re.findall(r'\]\((\d_\w+)/\S+\)\*\* · (\d+) (?:chapters|pages)$', text, re.M)
    there = [(part.name, str(len([*part.glob('*.ipynb')]))) for part in NBS.glob('[1-9]_*')]
    assert sorted(cards) == sorted(there)


@pytest.mark.parametrize('name', ['index.ipynb', '3_papers/24b_e4_networks.ipynb'])
def test_page_begins_with_links_that_open_its_notebook(name):
    from nbdev.frontmatter import FrontmatterProc
    from nbdev.process import NBProcessor

    from eqtutor.widgets import OpenLinks
    cells = NBProcessor(NBS/name, procs=[FrontmatterProc, OpenLinks], process=True).nb.cells
    first = next(c['source'] for c in cells if c['cell_type'] == 'markdown')
    repository, branch = SETTINGS['git_url'], SETTINGS['branch']
    owner = repository.removeprefix('https://github.com/')
    assert re.findall(r'\]\((https:[^)]+)\)', first) == [
        f'https://colab.research.google.com/github/{owner}/blob/student/nbs/{name}',
        f'https://mybinder.org/v2/gh/{owner}/{branch}?urlpath=lab/tree/course/nbs/{name}',
        f'{repository}/blob/{branch}/nbs/{name}']


# --- lists and tables that nobody meant; that no page has any: widgets/test_site_pages.py

LAB = 'gfm'   # what JupyterLab reads, as Pandoc knows it

@pytest.mark.parametrize('text, count', [
    ('(15) makes a layer.', 0), ('(a) One.\n\n(b) Two.', 0), ('iv. Four.', 0),
    ('1. a\n2. b', 0), ('x[^1]\n\n[^1]: a note', 0), ('15. makes a layer.', 1), ('- 7. One.', 1)])
def test_a_sentence_that_became_a_list_is_found(text, count):
    assert len(list_faults(pandoc(text))) == count

def test_a_backslash_before_a_line_in_a_table_is_found():
    table = '| x |\n|---|\n| {} |'
    assert pipe_faults(pandoc(table.format(r'`#\| check 5.4`'))) == [r'#\| check 5.4']
    assert pipe_faults(pandoc(table.format('<code>#&#124; check 5.4</code>'))) == []

def test_jupyterlab_shows_the_lists_of_the_page():
    cells = [re.sub(r'\$[^$]+\$', 'x', cell) for nb in BOOK.values() for cell in nb.markdown()]
    book = '\n\n<!-- -->\n\n'.join(cells)
    # labels of several pages are alike
    page, lab = ([found[:3] for found in lists_of(pandoc(book, read, '--quiet'))]
                 for read in (None, LAB))
    assert page == lab and len(page) > 100
