"What is started from a folder runs nothing that lies there."
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqtutor.interpreter import (
    HOME,
    find_program,
    import_path,
    leave_current_folder,
    outside,
    python,
    with_package,
)
from eqtutor.kernels import native
from eqtutor.papers.reproduce import starting_elsewhere
from tests.grading.hostile import set_traps

STARTS_MORE = '''
import sys
sys.path[:] = {path!r}
from {module} import {name}
{code}
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    "The current folder, empty."
    (folder := tmp_path/'here').mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def trapped(here, tmp_path):
    "What runs Python in the current folder, which is full of traps, and says what was imported."
    def run(command, path=HOME):
        env = os.environ | {'PYTHONPATH': path}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        mark = tmp_path/'imported'
        return done.stdout.split(), mark.read_text().split() if mark.exists() else []
    set_traps(here, tmp_path/'imported')
    return run


# --- where modules are looked for

def test_the_current_folder_is_left_out_by_all_its_names(here, tmp_path):
    (tmp_path/'link').symlink_to(here)
    names = ['', '.', str(here), f'{here}/', str(tmp_path/'link'), '../here']
    assert outside(names) == []
    assert outside(['/usr/lib', 'lib', *names]) == ['/usr/lib', f'{here}/lib']


def test_a_folder_that_has_been_removed_is_left_out(here):
    here.rmdir()
    assert outside(['', 'lib', '/usr/lib']) == ['/usr/lib']


def test_the_package_is_found_behind_the_standard_library():
    assert with_package(['/std', '/a/site-packages']) == ['/std', HOME, '/a/site-packages']
    assert with_package(['/a/dist-packages', HOME]) == ['/a/dist-packages', HOME]


def test_what_python_inherits_names_the_current_folder_no_more(here, monkeypatch):
    monkeypatch.setattr(sys, 'path', ['', str(here), '/std', '/a/site-packages'])
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(['', '/own', '.', 'lib', str(here)]))
    leave_current_folder()
    assert sys.path == ['/std', HOME, '/a/site-packages']
    assert os.environ['PYTHONPATH'].split(os.pathsep) == ['/own', f'{here}/lib']


def test_this_module_imports_only_what_python_has_loaded():
    "Another module would be looked for in the current folder, while that is still in the path."
    code = (f'import os, sys; sys.path.append({HOME!r}); before = set(sys.modules)\n'
            'import eqtutor.interpreter as i; i.leave_current_folder()\n'
            'print(*sorted(set(sys.modules) - before))')
    done = subprocess.run([sys.executable, '-I', '-S', '-c', code], capture_output=True, text=True)
    assert done.stdout.split() == ['eqtutor', 'eqtutor.interpreter'], done.stderr


# --- Python that we start

def test_traps_tell_that_they_are_imported(trapped):
    assert trapped([sys.executable, '-c', 'import json'])[1][0] == 'json'


def test_code_finds_its_modules_and_no_trap(trapped):
    code = 'import ctypes, json, torch, eqtutor.names; print(json.dumps(sys.argv[1:]))'
    for path in (HOME, f':{HOME}', '.'):   # the start of Python reads the path, too
        assert trapped(python(code, 'a', 'b'), path) == (['["a",', '"b"]'], [])


def test_the_path_of_a_process_is_the_one_it_is_given():
    command = python('print(*sys.path)', path=['/std', HOME])
    assert subprocess.run(command, capture_output=True, text=True).stdout.split() == ['/std', HOME]


@pytest.mark.parametrize('module, name, code', [
    ('eqtutor.measure', 'in_fresh_process', "print(in_fresh_process('torch:get_num_threads') > 0)"),
    ('eqtutor.papers.reproduce', 'work_here',
     "if __name__ == '__main__': print(work_here([], None, 0., 2) == [])")])
def test_who_imports_nothing_from_here_starts_nothing_that_does(trapped, tmp_path, module, name,
                                                                code):
    path = [p for p in import_path() if p != HOME]
    (script := tmp_path/'script.py').write_text(
        STARTS_MORE.format(path=[*path, HOME], module=module, name=name, code=code))
    assert trapped([sys.executable, script]) == (['True'], [])


def test_what_starts_elsewhere_works_here(here):
    with pytest.raises(KeyError), starting_elsewhere():
        assert os.getcwd() == '/'
        raise KeyError
    assert Path.cwd() == here


# --- other programs

def test_a_program_is_never_taken_from_here(here, monkeypatch, tmp_path):
    (tmp_path/'true').mkdir()
    (here/'bin').mkdir()
    for folder in (here, here/'bin', tmp_path/'true'):
        (program := folder/'bwrap').write_text('#!/bin/sh\n')
        program.chmod(0o755)
    places = '', '.', str(here), '../here', 'bin', f'{tmp_path}/true'
    monkeypatch.setenv('PATH', os.pathsep.join(places))
    assert find_program('bwrap') == f'{tmp_path}/true/bwrap'
    monkeypatch.setenv('PATH', ':.')
    assert find_program('bwrap') is None
    assert find_program('./bwrap') == f'{here}/bwrap'   # asked for by its path


@pytest.mark.skipif(native.find_compiler() is None, reason='no compiler')
def test_the_compiler_reads_no_header_from_here(here, monkeypatch, tmp_path):
    for name in ('math.h', 'stdlib.h', 'string.h', 'pthread.h', 'stdint.h'):
        (here/name).write_text('#error taken from the current folder\n')
    (source := tmp_path/'x.c').write_text('#include <math.h>\n#include <stdlib.h>\n')
    monkeypatch.setenv('CPATH', ':/nowhere')
    assert native.build(native.find_compiler(), source, 'float', tmp_path, 'x').exists()


def test_a_cache_that_is_no_absolute_path_is_not_used(here, monkeypatch, tmp_path):
    "Its specification says so; a library is loaded from there."
    monkeypatch.setenv('XDG_CACHE_HOME', 'cache')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert native.library_folder() == tmp_path/'.cache'/'eqtutor'/'native'
    assert not (here/'cache').exists()
