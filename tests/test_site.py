"The site: what Quarto is told, the map of chapters, and the links that open a page elsewhere."
import copy
import os
import posixpath
import re
import shutil
import subprocess
from configparser import ConfigParser
from fnmatch import fnmatch
from itertools import zip_longest

import pytest
import yaml
from pages import NBS, ROOT, chapters, page_of, read_all
from site_pages import list_faults, options_of, pandoc, pipe_faults, reader, shapes

BOOK = read_all()
FILES = {p.relative_to(NBS).as_posix() for p in NBS.rglob('*') if p.is_file()}
INDEX = '\n\n'.join(BOOK['index.ipynb'].markdown())
README = (ROOT/'README.md').read_text(encoding='utf-8')
PARTS = 6


def yaml_of(path): return yaml.safe_load((ROOT/path).read_text(encoding='utf-8'))

def settings():
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    return config['DEFAULT']

def strings(x):
    "All strings in a configuration, with the keys that lead to them."
    if isinstance(x, str): yield '', x
    elif isinstance(x, list): yield from (pair for v in x for pair in strings(v))
    elif isinstance(x, dict):
        yield from ((f'{k}.{path}', s) for k, v in x.items() for path, s in strings(v))

def at(config, path):
    for key in path.split('.'): config = config.get(key, {})
    return config


# --- what is wrong with `_quarto.yml` (site) and `nbs/_quarto.yml` (inner)

WANTED = {'format.html.html-math-method': 'mathml', 'format.html.toc': True,
          'format.html.respect-user-color-scheme': True, 'format.html.lightbox': True,
          'format.html.tbl-colwidths': False, 'format.html.code-copy': True,
          'website.open-graph': True, 'website.twitter-card': True,
          'website.page-navigation': True, 'website.search': True, 'execute.enabled': False,
          'from': 'markdown-fancy_lists'}
NO_WEB_FONT = {'default', 'slate', 'none'}   # other themes of Quarto load a font from another host

def option_faults(site, repository):
    for key, right in [*WANTED.items(), ('website.repo-url', repository)]:
        if at(site, key) != right: yield f'{key} is {at(site, key)!r}, not {right!r}'
    if 'issue' not in at(site, 'website.repo-actions'):
        yield 'website.repo-actions does not offer to report an issue'

def theme_faults(site):
    themes = at(site, 'format.html.theme')
    if not isinstance(themes, dict) or themes.keys() != {'light', 'dark'}:
        yield 'format.html.theme does not have a light and a dark one'
    elif len({*themes.values()}) < 2 or not {*themes.values()} <= NO_WEB_FONT:
        yield f'themes {themes} are one, or load a font'

BESIDE = 'css', 'include-before-body', 'include-after-body'

def file_faults(site, inner, names):
    for path, s in [*strings(site), *strings(inner)]:
        if re.search(r'(?:https?:)?//', s) and path != 'website.repo-url.':
            yield f'{path} {s}: nothing on a page comes from another host'
    own = [at(inner, f'format.html.{part}') for part in BESIDE]
    shown = [at(site, f'website.{part}') for part in ('favicon', 'image')]
    for name in [inner.get('bibliography', ''), *own, *shown]:
        if name not in names: yield f'no file nbs/{name}'
    for pattern in at(inner, 'project.resources') or ['fonts/*']:
        if not any(fnmatch(name, pattern) for name in names): yield f'no files nbs/{pattern}'
    if 'fonts/*' not in (at(inner, 'project.resources') or []): yield 'the font is not shipped'

def sidebar_faults(site, names, map_parts):
    def matching(pattern):
        return sorted(n for n in names if n.endswith('.ipynb') and fnmatch(n, pattern))
    parts = at(site, 'website.sidebar.contents') or []
    listed = [(p.get('section'), matching(p.get('contents', ''))) for p in parts]
    if listed != map_parts: yield f'the sidebar lists {listed}, the map {map_parts}'

def site_faults(site, inner):
    yield from option_faults(site, settings()['git_url'])
    yield from theme_faults(site)
    yield from file_faults(site, inner, FILES)
    yield from sidebar_faults(site, FILES, parts_of(map_of(INDEX)))


# --- tables of chapters

def parts_of(rows):
    "Parts of a table of chapters, (part, files); a part's name stands in its first row."
    parts = []
    for name, *_, target in rows:
        if name: parts.append((name, []))
        parts[-1][1].append(target)
    return parts

def map_of(text, base=''):
    "Rows of a table of chapters: part, text of the link, file."
    rows = re.findall(r'^\|\s*([^|]*?)\s*\|\s*\[([^]]+)\]\(([^)]+\.ipynb)\)\s*\|', text, re.M)
    return [(re.sub(r'[*\d]', '', part).strip(), words, target.removeprefix(base))
            for part, words, target in rows]

def title_of(name):
    if name not in BOOK: return ''
    return re.match(r'# (.*)', BOOK[name].cells[0]['source'])[1].lower()

def numbers_off(rows):
    "Links that do not begin with the chapter's number, or share no word with its title."
    def wrong(words, name):
        number, _, rest = words.partition(' ')
        last = rest.lower().split()[-1]
        own = posixpath.basename(name).partition('_')[0]
        return number != own or last not in re.findall(r'[\w-]+', title_of(name))
    return [words for _, words, name in rows if wrong(words, name)]


# --- tests

def test_site_is_told_all_it_needs():
    assert list(site_faults(yaml_of('_quarto.yml'), yaml_of('nbs/_quarto.yml'))) == []

BROKEN = {
    'format.html.html-math-method': 'mathjax', 'format.html.toc': False,
    'website.page-navigation': False, 'website.search': False, 'website.repo-url': 'https://x.org',
    'execute.enabled': True, 'website.repo-actions': [], 'format.html.theme': 'default',
    'format.html.include-in-header': ['https://x.org/a.html'],
    'format.html.mainfont': 'url(//x.org/a)', 'inner.format.html.css': 'none.css',
    'inner.bibliography': '', 'inner.format.html.include-after-body': 'none.html',
    'inner.project.resources': ['images/*'], 'website.favicon': 'none.svg', 'website.image': '',
    'format.html.respect-user-color-scheme': False, 'format.html.lightbox': False,
    'website.open-graph': False, 'from': 'markdown'}
THEMES = [dict(light='default'), dict(light='default', dark='default'),
          dict(light='default', dark='darkly')]

def changed(path, value):
    site, inner = yaml_of('_quarto.yml'), yaml_of('nbs/_quarto.yml')
    config = inner if path.startswith('inner.') else site
    *way, last = path.removeprefix('inner.').split('.')
    for key in way: config = config.setdefault(key, {})
    config[last] = value
    return site, inner

def broken_sites():
    yield from (changed(path, value) for path, value in BROKEN.items())
    yield from (changed('format.html.theme', themes) for themes in THEMES)
    first, *rest = at(yaml_of('_quarto.yml'), 'website.sidebar.contents')
    few = dict(first, contents='1_foundations/01*.ipynb')
    for contents in (rest, [*rest, first], [dict(first, section='Other'), *rest], [few, *rest]):
        yield changed('website.sidebar.contents', copy.deepcopy(contents))

def test_fault_of_the_site_is_found():
    for site, inner in broken_sites(): assert list(site_faults(site, inner)), (site, inner)

@pytest.mark.parametrize('text, base', [(INDEX, ''), (README, 'nbs/')], ids=['index', 'README'])
def test_map_lists_every_chapter_in_order(text, base):
    rows = map_of(text, base)
    assert [name for *_, name in rows] == chapters(BOOK['index.ipynb'])
    assert len(parts_of(rows)) == PARTS
    assert numbers_off(rows) == []

def test_wrong_line_of_a_map_is_found():
    groups, actions = '1_foundations/01_groups.ipynb', '1_foundations/02_actions.ipynb'
    rows = [('', '02 Groups', groups), ('', '01 Groups', actions), ('', '01 Rings', groups),
            ('', '01 Groups', groups)]
    assert numbers_off(rows) == ['02 Groups', '01 Groups', '01 Rings']


# --- links that open a notebook elsewhere

def opened(page):
    "Addresses in Colab, on Binder and on GitHub that a processed page offers."
    line = next(s for s in page if s.startswith('Open this notebook'))
    return re.findall(r'\]\((https:[^)]+)\)', line)

def processed(name):
    "Markdown of a page as it goes to Quarto, as far as front matter and links are concerned."
    from nbdev.frontmatter import FrontmatterProc
    from nbdev.process import NBProcessor

    from eqtutor.widgets import OpenLinks
    nb = NBProcessor(NBS/name, procs=[FrontmatterProc, OpenLinks], process=True).nb
    assert nb.cells[0].source.startswith('---')
    return [c.source for c in nb.cells if c.cell_type == 'markdown']

@pytest.mark.parametrize('name', BOOK)
def test_page_begins_with_links_that_open_its_notebook(name):
    page = processed(name)
    assert page[0].startswith('Open this notebook')
    repository, branch = settings()['git_url'], settings()['branch']
    colab, binder, source = opened(page)
    inside = source.removeprefix(f'{repository}/blob/{branch}/')
    assert (ROOT/inside).samefile(NBS/name)
    owner = repository.removeprefix('https://github.com/')
    assert colab == f'https://colab.research.google.com/github/{owner}/blob/student/{inside}'
    assert binder == f'https://mybinder.org/v2/gh/{owner}/{branch}?urlpath=lab/tree/course/{inside}'

def test_pages_are_processed_so():
    pages = [f'eqtutor.widgets:{name}' for name in ('ShareOnce', 'raw_html', 'OpenLinks')]
    site = ('NumberTitle', 'FoldCode', 'FoldCells', 'LocalLinks', 'CleanSignatures',
            'LinkPapers', 'LightPictures')
    assert settings()['procs'].split() == pages + [f'eqtutor.labs.site:{name}' for name in site]

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

def test_jupyterlab_shows_the_lists_of_the_page():
    needs_pandoc()
    book = [cell for nb in BOOK.values() for cell in nb.markdown()]
    assert unlike(book) is None
    assert len(shapes(book, reader())) > 100
    for bad in 'x\n- y', '12) x', '#. x\n#. y', '<details>\n- x\n</details>': assert unlike([bad])

def unlike(cells):
    "The first list that the page and JupyterLab do not see alike; None if there is none."
    pairs = zip_longest(shapes(cells, reader()), shapes(cells, LAB), fillvalue=())
    return next(((page, lab) for page, lab in pairs if page[:3] != lab[:3]), None)

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

def test_workflow_pins_quarto():
    "The site is built with the version of Quarto that it was looked at with."
    steps = yaml_of('.github/workflows/docs.yml')['jobs']['docs']['steps']
    quarto, = [s for s in steps if 'quarto-actions/setup' in s.get('uses', '')]
    assert re.fullmatch(r'1\.7\.\d+', quarto['with']['version'])
    commands = [s.get('run') or s['uses'] for s in steps]
    assert commands.index(quarto['uses']) < commands.index('nbdev_docs')

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


def test_page_has_the_name_of_its_notebook():
    assert page_of('3_papers/24b_e4_networks.ipynb') == '3_papers/e4_networks.html'
    assert page_of('index.ipynb') == 'index.html'


def test_directive_that_stands_twice_is_found():
    assert options_of('#| fig-alt: x\n#| code-fold: true\ny') == {'fig-alt': 'x',
                                                                'code-fold': 'true'}
    with pytest.raises(ValueError, match='stands twice'):
        options_of('#| code-fold: show\n#| code-fold: true\ny')


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
