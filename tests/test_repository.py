"The repository as a whole: generated files are current, notebooks clean, types hold, and a wheel works without nbdev."
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT/'eqtutor'
FILES = 'settings.ini', 'setup.py', 'README.md', 'LICENSE', 'mypy.ini'
OUTPUT = dict(text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
DEV_ONLY = 'nbdev', 'fastcore', 'execnb', 'ghapi', 'IPython', 'ipywidgets', 'nbformat', 'pytest'


def project(folder):
    "A copy of what the package is made from: tools may write there."
    skip = shutil.ignore_patterns('__pycache__', '.*')
    for name in 'nbs', 'eqtutor', 'results': shutil.copytree(ROOT/name, folder/name, ignore=skip)
    for name in FILES: shutil.copy(ROOT/name, folder)
    return folder

def run(*command, cwd, **env):
    "Run Python, return what it said; a failure shows it. nbdev does nothing at all where it believes to be in a test."
    env = {**{k: v for k, v in os.environ.items() if k not in ('IN_TEST', 'PYTHONPATH')}, **env}
    done = subprocess.run([sys.executable, *map(str, command)], cwd=cwd, env=env, **OUTPUT)
    assert done.returncode == 0, f'{" ".join(map(str, command))}\n{done.stdout}'
    return done.stdout

def snapshot(folder, pattern='*'):
    files = (p for p in folder.rglob(pattern) if p.is_file() and '__pycache__' not in p.parts)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}

def changes(before, after): return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))

def settings():
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    return config['DEFAULT']


# --- generated and cleaned

def stale(folder):
    "Files of eqtutor/ that are not what the notebooks export."
    before = snapshot(folder/'eqtutor', '*.py')
    for p in (folder/'eqtutor').glob('*.py'): p.unlink()
    run('-c', 'from nbdev.doclinks import nbdev_export; nbdev_export()', cwd=folder)
    return changes(before, snapshot(folder/'eqtutor', '*.py'))

def dirty(folder):
    "Notebooks that nbdev_clean would change."
    before = snapshot(folder/'nbs', '*.ipynb')
    run('-c', 'from nbdev.clean import nbdev_clean; nbdev_clean()', cwd=folder)
    return changes(before, snapshot(folder/'nbs', '*.ipynb'))

def test_export_is_current(tmp_path):
    assert stale(project(tmp_path)) == [], 'run nbdev_export, and commit what it changes'

def test_stale_export_is_found(tmp_path):
    init = project(tmp_path)/'eqtutor'/'__init__.py'
    init.write_text('__version__ = "0.0.0"\n')
    (tmp_path/'eqtutor'/'by_hand.py').touch()
    assert {'__init__.py', 'by_hand.py'} <= set(stale(tmp_path))

def test_notebooks_are_clean(tmp_path):
    assert dirty(project(tmp_path)) == [], 'run nbdev_clean, and commit what it changes'

def test_dirty_notebook_is_found(tmp_path):
    notebook = project(tmp_path)/'nbs'/'index.ipynb'
    text = notebook.read_text(encoding='utf-8').replace('"metadata": {}', '"metadata": {"collapsed": true}', 1)
    notebook.write_text(text, encoding='utf-8')
    assert 'index.ipynb' in dirty(tmp_path)


# --- the modules

def compile_all(path, tmp_path):
    cache = str(tmp_path/'cache')
    return run('-W', 'error', '-m', 'compileall', '-q', '-f', path, cwd=tmp_path, PYTHONPYCACHEPREFIX=cache)

def test_modules_compile_without_a_warning(tmp_path): compile_all(PACKAGE, tmp_path)

def test_warning_while_compiling_is_found(tmp_path):
    (tmp_path/'bad.py').write_text('"The group \\Z"\n')
    with pytest.raises(AssertionError, match='invalid escape'): compile_all(tmp_path/'bad.py', tmp_path)

def dev_imports(source):
    "Development tools that a module imports as soon as it is imported itself."
    tree = ast.parse(source)
    functions = (f for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)))
    inside = {id(x) for f in functions for x in ast.walk(f)}
    nodes = [x for x in ast.walk(tree) if id(x) not in inside]
    names = [a.name for x in nodes if isinstance(x, ast.Import) for a in x.names]
    names += [x.module or '' for x in nodes if isinstance(x, ast.ImportFrom)]
    return [n for n in names if n.split('.')[0] in DEV_ONLY]

def test_modules_need_no_development_tool():
    for p in PACKAGE.glob('*.py'): assert dev_imports(p.read_text(encoding='utf-8')) == [], p.name

def test_import_of_a_development_tool_is_found():
    source = 'import torch, nbdev.test\nfrom fastcore.basics import L\ndef f():\n    import ipywidgets'
    assert dev_imports(source) == ['nbdev.test', 'fastcore.basics']

def mypy(folder, tmp_path): return run('-m', 'mypy', '--cache-dir', tmp_path/'cache', folder, cwd=ROOT)

def test_types(tmp_path): mypy(PACKAGE, tmp_path)

def test_wrong_type_is_found(tmp_path):
    (tmp_path/'bad.py').write_text('def f(x: int) -> str: return x\n')
    with pytest.raises(AssertionError, match='Incompatible return value'): mypy(tmp_path/'bad.py', tmp_path)


# --- the site and the version

def config(name): return yaml.safe_load((ROOT/name).read_text(encoding='utf-8'))

def listed(sidebar):
    "Paths and patterns in a sidebar, in order."
    for item in sidebar:
        if isinstance(item, str): yield item
        elif isinstance(item.get('contents'), str): yield item['contents']
        else: yield from [item['href']] if 'href' in item else listed(item.get('contents', []))

def lost(notebooks, patterns):
    "Notebooks that a sidebar does not list exactly once, and patterns that list none."
    unlisted = [n for n in notebooks if sum(fnmatch(n, p) for p in patterns) != 1]
    return unlisted + [p for p in patterns if not any(fnmatch(n, p) for n in notebooks)]

def test_site():
    site, inner = config('_quarto.yml'), config('nbs/_quarto.yml')
    assert site['project'] == dict(type='website', render=['nbs/**/*.ipynb'], **{'output-dir': settings()['doc_path']})
    assert inner['metadata-files'] == ['../_quarto.yml', 'nbdev.yml'] and inner['project']['render'] == ['**/*.ipynb']
    assert site['execute'] == dict(enabled=False), 'pages show stored outputs'
    assert site['format']['html']['html-math-method'] == 'mathml', 'other methods load a script from another host'

def test_sidebar_lists_every_notebook():
    names = {n for n in snapshot(ROOT/'nbs', '*.ipynb') if not any(part[0] in '._' for part in n.split('/'))}
    patterns = list(listed(config('_quarto.yml')['website']['sidebar']['contents']))
    # the site's title leads home, to index
    assert lost(sorted(names - {'index.ipynb'}), patterns) == []

def test_lost_notebook_is_found():
    sidebar = ['1/*.ipynb', dict(section='x', contents=[dict(href='3/c.ipynb')])]
    assert lost(['1/a.ipynb', '2/b.ipynb'], list(listed(sidebar))) == ['2/b.ipynb', '3/c.ipynb']

def page_faults(folder):
    "Pages nbdev_docs would publish all the same: with an error, or HTML, for which Quarto adds scripts from a CDN."
    run('-c', 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=0)', cwd=folder, PYTHONPATH=str(folder))
    pages = {name: json.loads(text) for name, text in snapshot(folder/'_proc', '*.ipynb').items()}
    assert pages.keys() == snapshot(folder/'nbs', '*.ipynb').keys()
    outputs = [(name, o) for name, page in pages.items() for c in page['cells'] for o in c.get('outputs', [])]
    return [name for name, o in outputs if o['output_type'] == 'error' or 'text/html' in o.get('data', {})]

def test_pages(tmp_path):
    assert page_faults(project(tmp_path)) == [], '`procs` in settings.ini makes HTML outputs raw blocks'

def test_fault_of_a_page_is_found(tmp_path):
    shutil.rmtree(project(tmp_path)/'nbs')
    error = dict(output_type='error', ename='E', evalue='', traceback=[])
    bad = dict(cell_type='code', id='00000000', execution_count=None, metadata={}, source='1/0', outputs=[error])
    (tmp_path/'nbs').mkdir()
    notebook = dict(cells=[bad], metadata={}, nbformat=4, nbformat_minor=5)
    (tmp_path/'nbs'/'bad.ipynb').write_text(json.dumps(notebook))
    assert page_faults(tmp_path) == ['bad.ipynb']

def test_one_version_everywhere():
    init = (PACKAGE/'__init__.py').read_text(encoding='utf-8')
    top = re.search(r'^## (\S+)', (ROOT/'CHANGELOG.md').read_text(encoding='utf-8'), re.M)
    here = re.search(r'__version__ = "(.+)"', init)
    found = dict(package=here[1], citation=config('CITATION.cff')['version'], changelog=top[1])
    assert set(found.values()) == {settings()['version']}, found

def test_citation_and_bibliography_name_the_same_papers():
    titles = re.findall(r'^ *title *= *\{(.+)\}', (ROOT/'nbs/references.bib').read_text(encoding='utf-8'), re.M)
    assert len(titles) == 4 and titles == [r['title'] for r in config('CITATION.cff')['references']]


# --- the wheel

@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    "The wheel of a release: built from the sdist, in an isolated environment, for which pip fetches setuptools."
    folder = tmp_path_factory.mktemp('wheel')
    done = subprocess.run([sys.executable, '-m', 'build'], cwd=project(folder), **OUTPUT)
    offline = 'No matching distribution found for setuptools' in done.stdout
    if offline and not os.environ.get('CI'): pytest.skip('no network: pip cannot fetch setuptools to build a wheel')
    assert done.returncode == 0, done.stdout
    return next((folder/'dist').glob('*.whl'))

@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    "The wheel alone, unpacked as pip does."
    site = tmp_path_factory.mktemp('site')
    run('-m', 'pip', 'install', '--no-deps', '--no-index', '--target', site, wheel, cwd=site)
    return site

def test_release_is_accepted_and_small(wheel):
    files = sorted(wheel.parent.iterdir())
    assert [f.suffix for f in files] == ['.whl', '.gz']
    assert run('-m', 'twine', 'check', '--strict', *files, cwd=wheel.parent).count('PASSED') == 2
    assert wheel.stat().st_size < 15e6

def test_wheel_has_all_it_should(installed):
    package = {n: b for n, b in snapshot(installed/'eqtutor').items() if not n.startswith('course/')}
    assert package.keys() == snapshot(PACKAGE, '*.py').keys() | {'py.typed'}
    info = next(installed.glob('eqtutor-*.dist-info'))
    assert list(info.rglob('LICENSE'))
    assert settings()['console_scripts'].replace('=', ' = ', 1) in (info/'entry_points.txt').read_text()
    assert {p.name for p in installed.iterdir()} <= {'eqtutor', info.name, 'bin', 'Scripts'}, 'too much is installed'

def test_wheel_carries_the_course(installed):
    course = snapshot(installed/'eqtutor'/'course')
    assert course == {f'{folder}/{n}': b for folder, kind in (('nbs', '*.ipynb'), ('nbs/images', '*'), ('results', '*.json'), ('results/weights', '*')) for n, b in snapshot(ROOT/folder, kind).items() if '.ipynb_checkpoints' not in n}
    assert 'nbs/1_foundations/01_groups.ipynb' in course

def test_wheel_imports_without_development_tools(installed):
    modules = sorted('eqtutor' if p.stem == '__init__' else f'eqtutor.{p.stem}' for p in PACKAGE.glob('*.py'))
    run('-I', '-c', f"""
import importlib, sys
sys.modules.update(dict.fromkeys({DEV_ONLY}))   # None: an import of it fails
sys.path.insert(0, {str(installed)!r})
for name in {modules}:
    assert importlib.import_module(name).__file__.startswith({str(installed)!r}), name
""", cwd=installed)

def test_wheel_works_without_development_tools(installed, tmp_path):
    "The command and a layer, from the wheel alone."
    said = run('-I', '-c', f"""
import sys
import venv
sys.modules.update(dict.fromkeys({tuple(d for d in DEV_ONLY if d not in ('IPython', 'ipywidgets'))}))   # users have these: the widgets need them
sys.path.insert(0, {str(installed)!r})
import torch
from eqtutor.e4 import E4Conv2d
from eqtutor.equivariance import assert_equivariant
assert_equivariant(E4Conv2d(4, 4, 3, 'p4'), torch.randn(1, 4, 4, 5, 5), 'p4')
from eqtutor.cli import app
app(['demo', '--epochs', '1', '--out', {str(tmp_path/'out')!r}])
""", cwd=tmp_path)
    assert 'test accuracy' in said and {p.name for p in (tmp_path/'out').iterdir()} == {'demo.html', 'demo.png', 'demo.json'}

def test_wheel_installs_into_an_environment_of_its_own(wheel, tmp_path):
    "The wheel by pip and its command, which gives a student the course; what it depends on is lent by this environment."
    venv.create(tmp_path/'env', with_pip=False)
    python = next(p for p in (tmp_path/'env'/'bin'/'python', tmp_path/'env'/'Scripts'/'python.exe') if p.exists())
    run('-m', 'pip', '--python', python, 'install', '--no-deps', '--no-index', wheel, cwd=tmp_path)
    site = next(p for p in (tmp_path/'env').rglob('site-packages') if p.is_dir())
    (site/'lent.pth').write_text('\n'.join(p for p in sys.path if p.endswith('site-packages')))
    def command(*args): return subprocess.run([next(python.parent.glob('eqtutor*')), *args], cwd=tmp_path, check=True, **OUTPUT).stdout
    assert 'p4-cnn' in command('models') and 'complete' in command('--show-completion', 'bash')
    command('lab', 'course', '--no-open')
    chapter = next((tmp_path/'course').rglob('01_groups.ipynb'))
    assert 'from eqtutor.labs import check' in chapter.read_text(encoding='utf-8')
