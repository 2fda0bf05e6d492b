"""The course on Binder and in Colab: each link opens a copy that is there, is not solved, and runs.

No link is followed into the net: what Binder's image makes, and what the docs workflow publishes,
is made here by the same commands, in a clone.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.exercise import chapter_exercises
from eqtutor.tutor.origin import clean_commit, installed_requirement
from eqtutor.widgets import open_links

from .test_student import secrets_of

ROOT = Path(__file__).parents[2]
PARTS = ('eqtutor', 'nbs', 'results', 'binder', 'settings.ini', 'setup.py', 'README.md',
         '.gitignore')
NOBODY = '-c', 'user.name=x', '-c', 'user.email=x@localhost'


def settings():
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    return config['DEFAULT']


def git(folder, *words):
    done = subprocess.run(['git', *NOBODY, *words], cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def call(folder, *command):
    "Run a command with the package of a folder; what it said, and whether it worked."
    env = {**os.environ, 'PYTHONPATH': str(folder), 'PATH': f'{folder/"bin"}:{os.environ["PATH"]}'}
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout


def copies(folder, out, *options):
    return call(folder, sys.executable, '-m', 'eqtutor', 'lab', out, '--no-open', *options)


@pytest.fixture(scope='module')
def clone(tmp_path_factory):
    "What is here as a commit, and the command `eqtutor` of it."
    if not shutil.which('git'): pytest.skip('no git on the PATH')
    folder = tmp_path_factory.mktemp('clone')
    skip = shutil.ignore_patterns('__pycache__', '.ipynb_checkpoints')
    for part in PARTS:
        if (ROOT/part).is_dir(): shutil.copytree(ROOT/part, folder/part, ignore=skip)
        else: shutil.copy(ROOT/part, folder)
    git(folder, 'init', '--quiet')
    git(folder, 'add', '--all')
    git(folder, 'commit', '--quiet', '--message', 'All')
    (folder/'bin').mkdir()
    command = folder/'bin'/'eqtutor'
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m eqtutor "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.fixture(scope='module')
def image(clone):
    "The files of Binder's image, by their place in JupyterLab, that its build has made."
    before = set(clone.rglob('*.ipynb'))
    worked, said = call(clone, clone/'binder'/'postBuild')
    assert worked, said
    return {p.relative_to(clone).as_posix(): p for p in {*clone.rglob('*.ipynb')} - before}


@pytest.fixture(scope='module')
def published(clone, tmp_path_factory):
    "The files of the branch that Colab opens."
    out = tmp_path_factory.mktemp('student')
    worked, said = copies(clone, out, '--colab')
    assert worked, said
    return {p.relative_to(out).as_posix(): p for p in out.rglob('*.ipynb')}


# --- the links

BINDER = re.compile(r'https://mybinder\.org/v2/gh/([^/\s]+/[^/\s]+)/([^?\s)]+)([^\s)"]*)')
COLAB = re.compile(r'https://colab\.research\.google\.com/github/([^/\s]+/[^/\s]+)/blob/'
                   r'([^/\s]+)/([^\s)"]+)')


def texts():
    "README.md, what the notebooks say, and the first line of each page of the site."
    yield (ROOT/'README.md').read_text(encoding='utf-8')
    for path in course_chapters().values():
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        yield '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
        place = path.relative_to(ROOT).as_posix()
        yield open_links(place, settings()['git_url'], settings()['branch'])


def binder_faults(text, made):
    "Links to Binder that open what its image does not make: nothing, or the solved notebooks."
    for repository, branch, rest in BINDER.findall(text):
        place = rest.removeprefix('?urlpath=lab/tree/')
        known = (f'https://github.com/{repository}', branch) == (settings()['git_url'],
                                                                 settings()['branch'])
        if not known or place not in made: yield f'{repository} {branch} {rest}'


def colab_faults(text, made):
    "Links to Colab that open what is not on the branch of the students' copies."
    for repository, branch, place in COLAB.findall(text):
        known = (f'https://github.com/{repository}', branch) == (settings()['git_url'], 'student')
        if not known or place not in made: yield f'{repository} {branch} {place}'


def test_each_link_to_binder_opens_a_copy_that_its_image_makes(image):
    assert [fault for text in texts() for fault in binder_faults(text, image)] == []
    assert len([link for text in texts() for link in BINDER.findall(text)]) > 40


def test_each_link_to_colab_opens_a_copy_that_is_published(published):
    assert [fault for text in texts() for fault in colab_faults(text, published)] == []
    assert len([link for text in texts() for link in COLAB.findall(text)]) > 40


def test_link_to_a_solved_or_missing_notebook_is_found():
    made = {'course/nbs/index.ipynb', 'nbs/index.ipynb'}
    binder = 'https://mybinder.org/v2/gh/eqtutor/eqtutor/main'
    right = f'[on Binder]({binder}?urlpath=lab/tree/course/nbs/index.ipynb)'
    assert [*binder_faults(right, made)] == []
    for wrong in ('?urlpath=lab/tree/nbs', '?urlpath=lab/tree/course/nbs/x.ipynb', ''):
        assert len([*binder_faults(f'[x]({binder}{wrong})', made)]) == 1
    assert len([*binder_faults(right.replace('gh/eqtutor', 'gh/ann'), made)]) == 1
    colab = 'https://colab.research.google.com/github/eqtutor/eqtutor/blob'
    assert [*colab_faults(f'[x]({colab}/student/nbs/index.ipynb)', made)] == []
    assert len([*colab_faults(f'[x]({colab}/main/nbs/index.ipynb)', made)]) == 1


@pytest.mark.parametrize('where', ['image', 'published'])
def test_no_copy_holds_a_line_of_a_solution(where, request):
    made = {p.stem: p for p in request.getfixturevalue(where).values()}
    assert made.keys() == course_chapters().keys()
    for name, path in course_chapters().items():
        cells = json.loads(made[name].read_text(encoding='utf-8'))['cells']
        text = '\n'.join(''.join(c['source']) for c in cells)
        hidden = secrets_of(path) if chapter_exercises(name) else []
        assert [line for line in hidden if line in text] == [], name
        assert not any(c.get('outputs') for c in cells), name


# --- what a copy installs

def test_readme_installs_from_the_repository():
    addresses = re.findall(r"git\+(https:[^\s'`]+)", (ROOT/'README.md').read_text(encoding='utf-8'))
    assert addresses and {*addresses} == {settings()['git_url']}


def installed_by(path):
    "What pip installs in the first code cell of a copy."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    code = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
    words = shlex.split(code[0].removeprefix('! '), comments=True)
    assert words[:6] == ['[', '-e', '/content', ']', '&&', 'pip'], code[0]
    return [Requirement(word) for word in words[7:] if not word.startswith('-')]


def test_copy_for_colab_installs_the_commit_that_it_was_made_from(clone, published):
    for path in published.values():
        package, *helpers = installed_by(path)
        own = {f'{package.name}[{",".join(package.extras)}]', *(h.name for h in helpers)}
        lab = {Requirement(word) for word in settings()['lab_requirements'].split()}
        # Colab is a Jupyter of its own, and nobody makes slides there
        elsewhere = {'jupyterlab', 'mistune', 'latex2mathml', 'pygments'}
        assert own == {f'{r.name}[train]' if r.extras else r.name for r in lab} - elsewhere
        address, _, commit = package.url.rpartition('@')
        assert address == f'git+{settings()["git_url"]}'
        git(clone, 'cat-file', '-e', f'{commit}^{{commit}}')
        assert git(clone, 'diff', commit, '--', 'eqtutor', 'nbs') == ''


def test_copy_of_what_no_commit_holds_is_refused(clone, tmp_path):
    module, new = clone/'eqtutor'/'core.py', clone/'nbs'/'1_foundations'/'new.ipynb'
    before = module.read_bytes()
    try:
        module.write_bytes(before + b'# changed\n')
        new.write_text('{}')
        worked, said = copies(clone, tmp_path/'changed', '--colab')
    finally:
        module.write_bytes(before)
        new.unlink()
    assert not worked and 'eqtutor/core.py' in said and 'new.ipynb' in said
    assert not [*tmp_path.rglob('*.ipynb')]
    (clone/'README.md').write_text('Nothing that is installed.')
    assert clean_commit(clone) == git(clone, 'rev-parse', 'HEAD')


def test_folder_that_is_no_clone_is_refused(clone, tmp_path):
    with pytest.raises(ValueError, match='no clone'): clean_commit(tmp_path)
    with pytest.raises(ValueError, match='no clone'): clean_commit(clone/'eqtutor')


@pytest.mark.parametrize('written, right', [
    (None, 'eqtutor[train]==1.2'),
    ({'url': 'https://x.org/eqtutor', 'vcs_info': {'vcs': 'git', 'commit_id': 'f00'}},
     'eqtutor[train] @ git+https://x.org/eqtutor@f00')])
def test_installed_package_names_its_release_or_its_commit(tmp_path, written, right):
    assert installed_requirement(site(tmp_path, written)) == right


@pytest.mark.parametrize('written', [{'url': 'file:///eqtutor.whl', 'archive_info': {}},
                                     {'url': 'file:///eqtutor', 'dir_info': {}},
                                     {'url': 'file:///eqtutor',
                                      'vcs_info': {'vcs': 'git', 'commit_id': 'f00'}}])
def test_package_that_others_cannot_install_is_refused(tmp_path, written):
    with pytest.raises(ValueError, match='no commit that others.*clone'):
        installed_requirement(site(tmp_path, written))
    with pytest.raises(ValueError, match='does not say'): installed_requirement(tmp_path/'none')


def site(folder, written):
    "A folder of packages with eqtutor 1.2 in it, and what pip wrote about its origin."
    about = folder/'eqtutor-1.2.dist-info'
    about.mkdir()
    (about/'METADATA').write_text('Metadata-Version: 2.1\nName: eqtutor\nVersion: 1.2\n')
    if written: (about/'direct_url.json').write_text(json.dumps(written))
    return folder
