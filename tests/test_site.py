"The site: who builds it, the map of chapters, and the links that open a page elsewhere."
import os
import posixpath
import re
import shutil
import subprocess
from configparser import ConfigParser
from itertools import zip_longest

import pytest
import yaml
from pages import NBS, ROOT, chapters, page_of, read_all
from site_pages import list_faults, output_of, pandoc, pipe_faults, reader, shapes

BOOK = read_all()
INDEX = '\n\n'.join(BOOK['index.ipynb'].markdown())
README = (ROOT/'README.md').read_text(encoding='utf-8')


def yaml_of(path): return yaml.safe_load((ROOT/path).read_text(encoding='utf-8'))

def settings():
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    return config['DEFAULT']


# --- what Quarto is told: the site that it makes is tried in a browser before it goes anywhere

def test_site_names_its_repository_and_pictures_that_are_there():
    site = yaml_of('_quarto.yml')['website']
    assert site['repo-url'] == settings()['git_url'] and site['repo-actions'] == ['issue']
    for picture in site['favicon'], site['image']: assert (NBS/picture).is_file()

def test_site_is_tried_before_it_is_published():
    "It is built with the version of Quarto that it was looked at with."
    steps = yaml_of('.github/workflows/docs.yml')['jobs']['docs']['steps']
    commands = [s.get('run') or s['uses'].partition('@')[0] for s in steps]
    order = [commands.index(command) for command in (
        'quarto-dev/quarto-actions/setup', 'nbdev_docs', 'pytest tests/widgets/test_site_pages.py',
        'actions/deploy-pages')]
    assert order == sorted(order) and steps[order[2]]['env'] == {'EQTUTOR_SITE': '_docs'}
    assert re.fullmatch(r'1\.7\.\d+', steps[order[0]]['with']['version'])


@pytest.mark.parametrize('output', [
    dict(output_type='error', ename='E'),
    dict(output_type='display_data', data={'text/html': '<b>x</b>', 'text/plain': 'x'})])
def test_what_nbdev_would_publish_all_the_same_stops_the_pages(output):
    "An error, and HTML that a page needs a CDN for."
    with pytest.raises(ValueError, match='an error, or HTML'): output_of(output, {}, None)


# --- tables of chapters

def map_of(text, base=''):
    "Rows of a table of chapters: part, text of the link, file."
    rows = re.findall(r'^\|\s*([^|]*?)\s*\|\s*\[([^]]+)\]\(([^)]+\.ipynb)\)\s*\|', text, re.M)
    return [(part, words, target.removeprefix(base)) for part, words, target in rows]

def numbers_off(rows):
    "Links that do not begin with the chapter's number, or end in no word of its title."
    def wrong(words, name):
        title = BOOK[name].cells[0]['source'].partition('\n')[0].lower() if name in BOOK else ''
        number, _, rest = words.lower().partition(' ')
        own = posixpath.basename(name).partition('_')[0]
        return number != own or rest.split()[-1] not in re.findall(r'[\w-]+', title)
    return [words for _, words, name in rows if wrong(words, name)]

@pytest.mark.parametrize('text, base', [(INDEX, ''), (README, 'nbs/')], ids=['index', 'README'])
def test_map_lists_every_chapter_in_order(text, base):
    rows = map_of(text, base)
    assert [name for *_, name in rows] == chapters()
    assert len([part for part, *_ in rows if part]) == 6
    assert numbers_off(rows) == []

def test_wrong_line_of_a_map_is_found():
    groups, actions = '1_foundations/01_groups.ipynb', '1_foundations/02_actions.ipynb'
    rows = [('', '02 Groups', groups), ('', '01 Groups', actions), ('', '01 Rings', groups),
            ('', '01 Groups', groups)]
    assert numbers_off(rows) == ['02 Groups', '01 Groups', '01 Rings']


# --- links that open a notebook elsewhere

@pytest.mark.parametrize('name', ['index.ipynb', '3_papers/24b_e4_networks.ipynb'])
def test_page_begins_with_links_that_open_its_notebook(name):
    from nbdev.frontmatter import FrontmatterProc
    from nbdev.process import NBProcessor

    from eqtutor.widgets import OpenLinks
    cells = NBProcessor(NBS/name, procs=[FrontmatterProc, OpenLinks], process=True).nb.cells
    first = next(c.source for c in cells if c.cell_type == 'markdown')
    repository, branch = settings()['git_url'], settings()['branch']
    assert first.startswith('Open this notebook')
    owner = repository.removeprefix('https://github.com/')
    assert re.findall(r'\]\((https:[^)]+)\)', first) == [
        f'https://colab.research.google.com/github/{owner}/blob/student/nbs/{name}',
        f'https://mybinder.org/v2/gh/{owner}/{branch}?urlpath=lab/tree/course/nbs/{name}',
        f'{repository}/blob/{branch}/nbs/{name}']

def test_pages_are_processed_so():
    pages = [f'eqtutor.widgets:{name}' for name in ('ShareOnce', 'raw_html', 'OpenLinks')]
    site = ('NumberTitle', 'FoldCode', 'FoldCells', 'LocalLinks', 'CleanSignatures',
            'LinkPapers', 'LightPictures')
    assert settings()['procs'].split() == pages + [f'tools.site.processors:{name}' for name in site]

def test_binder_installs_the_repository():
    "repo2docker takes the folder binder/ where there is one."
    binder = ROOT/'binder'
    assert {p.name for p in binder.iterdir()} == {'requirements.txt', 'runtime.txt', 'postBuild'}
    assert os.access(binder/'postBuild', os.X_OK), 'repo2docker runs it'
    lines = (binder/'requirements.txt').read_text().splitlines()
    assert [s for s in lines if s and not s.startswith('#')][-1] == '-e .[lab]'
    version = (binder/'runtime.txt').read_text().strip().removeprefix('python-')
    strategy = yaml_of('.github/workflows/test.yml')['jobs']['test']['strategy']
    assert version in strategy['matrix']['python']


# --- what the page and JupyterLab make of the text

def needs_pandoc(): pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')

LAB = 'gfm'   # what JupyterLab reads, as Pandoc knows it

@pytest.mark.parametrize('text', ['(15) makes a layer.', '(a) One.\n\n(b) Two.', 'iv. Four.',
                                  'A.  Weil', 'i) One.', 'x.\n\n- (15) fails', '(@) One.'])
def test_sentence_that_begins_with_a_number_or_a_letter_is_no_list(text):
    needs_pandoc()
    assert [*list_faults(pandoc(text))] == [*list_faults(pandoc(text, LAB))] == []
    assert [*list_faults(pandoc(text, 'markdown'))], 'without -fancy_lists it is one'

@pytest.mark.parametrize('text', ['15. makes a layer.', '1. One.', '3. a\n4. b', '#. One.',
                                  '- 7. One.', '<ol type="a"><li>a</li><li>b</li></ol>'])
def test_list_that_nobody_meant_is_found(text):
    needs_pandoc()
    assert len([*list_faults(pandoc(text))]) == 1

def test_list_that_was_meant_and_those_of_quarto_are_none():
    needs_pandoc()
    frame = '<nav><ol class="breadcrumb"><li>x</li></ol></nav>'
    for text in '1. a\n2. b', '- a', '1. a\n\n   - c\n2. b', 'x[^1]\n\n[^1]: a note':
        assert [*list_faults(frame + pandoc(text))] == []

def unlike(cells):
    "The first list that the page and JupyterLab do not see alike, and how many the page has."
    page, lab = shapes(cells, reader()), shapes(cells, LAB)
    pairs = zip_longest(page, lab, fillvalue=())
    return next((pair for pair in pairs if pair[0][:3] != pair[1][:3]), None), len(page)

def test_jupyterlab_shows_the_lists_of_the_page():
    needs_pandoc()
    cells = [cell for nb in BOOK.values() for cell in nb.markdown()]
    first, count = unlike([re.sub(r'\$[^$]+\$', 'x', cell) for cell in cells])
    assert first is None and count > 100
    for bad in 'x\n- y', '12) x', '#. x\n#. y', '<details>\n- x\n</details>':
        assert unlike([bad])[0]

def test_backslash_before_a_line_in_a_table_is_found():
    needs_pandoc()
    def table(code): return f'| x |\n|---|\n| {code} |'
    assert pipe_faults(pandoc(table(r'`#\| check 5.4`'))) == [r'#\| check 5.4']
    for read in reader(), LAB:
        right = pandoc(table('<code>#&#124; check 5.4</code>'), read)
        assert re.search(r'<td\b[^>]*><code>#\| check 5.4</code></td>', right)
        assert pipe_faults(right + '<pre>a\\|b</pre>') == []
        assert pipe_faults(pandoc(r'`a\|b`', read))


# --- who builds the site

def test_colab_s_branch_is_written_by_the_command_that_copies_the_course():
    job = yaml_of('.github/workflows/docs.yml')['jobs']['student']
    assert job['permissions'] == {'contents': 'write'}
    commands = '\n'.join(s.get('run', '') for s in job['steps'])
    install = "pip install -e '.[lab]'\n"
    assert f'{install}eqtutor lab "$RUNNER_TEMP/student" --no-open --colab' in commands
    assert re.search(r'init .*--initial-branch student', commands)
    assert re.search(r'push --force .* student$', commands, re.M)
    last = (ROOT/'binder'/'postBuild').read_text(encoding='utf-8').splitlines()[-1]
    assert last == 'eqtutor lab course --no-open --all'


@pytest.mark.skipif(not shutil.which('quarto'), reason='no quarto on the PATH')
def test_quarto_builds_every_page(tmp_path):
    for part in 'nbs', 'eqtutor', 'results': shutil.copytree(ROOT/part, tmp_path/part)
    for part in 'settings.ini', '_quarto.yml', 'setup.py', 'README.md':
        shutil.copy(ROOT/part, tmp_path)
    env = {**os.environ, 'PYTHONPATH': str(tmp_path)}
    done = subprocess.run(['nbdev_docs'], cwd=tmp_path, env=env, text=True, timeout=560,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0 and 'WARN' not in done.stdout, done.stdout
    built = {p.relative_to(tmp_path/'_docs').as_posix() for p in (tmp_path/'_docs').rglob('*.html')}
    assert {page_of(name) for name in BOOK} <= built
    assert (tmp_path/'_docs'/'fonts'/'STIXTwoMath-Regular.woff2').is_file()
