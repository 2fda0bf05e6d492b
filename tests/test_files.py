"Files are replaced whole or not at all, and are what they were."
import hashlib
import json
import os
import subprocess
import sys

import pytest

from eqtutor import files
from eqtutor.files import (
    check_readable,
    checksum,
    lock_folder,
    results_folder,
    stored_runs,
    writable_folder,
    write_atomic,
    write_json,
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path/'file'
    path.write_bytes(b'old')
    return path


DEATHS = [('fsync', OSError('no space left')), ('replace', KeyboardInterrupt)]


@pytest.mark.parametrize('moment, death', DEATHS, ids=['disk full', 'Ctrl-C'])
def test_a_death_leaves_the_old_file_and_no_litter(file, monkeypatch, moment, death):
    def die(*args): raise death
    monkeypatch.setattr(os, moment, die)
    with pytest.raises((OSError, KeyboardInterrupt)): write_atomic(file, b'new and longer')
    assert file.read_bytes() == b'old' and list(file.parent.iterdir()) == [file]


def test_bytes_reach_the_disk_before_the_name(file, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, 'fsync', lambda *a: (calls.append('fsync'), fsync(*a)))
    monkeypatch.setattr(os, 'replace', lambda *a: (calls.append('replace'), replace(*a)))
    write_atomic(str(file), b'new')
    assert file.read_bytes() == b'new' and list(file.parent.iterdir()) == [file]
    assert calls[:2] == ['fsync', 'replace']


def test_a_new_file_and_what_a_killed_writer_left(tmp_path):
    for name in ('file.1.part', 'file.2.part', 'other.1.part'):
        (tmp_path/name).write_bytes(b'half of an earlier attempt, and longer')
    for name in ('file.1.part', 'other.1.part'): os.utime(tmp_path/name, (0, 0))
    write_atomic(tmp_path/'file', b'whole')
    assert (tmp_path/'file').read_bytes() == b'whole'
    # a young one may be somebody's who is writing; another file's is not ours
    assert sorted(p.name for p in tmp_path.iterdir()) == ['file', 'file.2.part', 'other.1.part']


WRITE_MUCH = '''
import sys
from eqtutor.files import write_atomic
for _ in range(150): write_atomic(sys.argv[1], sys.argv[2].encode()*100_000)
'''

def test_two_that_write_one_file_never_leave_a_mixture(tmp_path):
    "Each meets one of the two whole contents, at any moment, and no litter stays."
    target = tmp_path/'file'
    write_atomic(target, b'a'*100_000)
    command = [sys.executable, '-c', WRITE_MUCH, str(target)]
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    writers = [subprocess.Popen([*command, letter], env=env) for letter in 'ab']
    met = set()
    while any(w.poll() is None for w in writers): met.add(target.read_bytes())
    assert [w.returncode for w in writers] == [0, 0]
    assert met <= {letter*100_000 for letter in (b'a', b'b')}
    assert [p.name for p in tmp_path.iterdir()] == ['file']


HOLD = '''
import sys
from eqtutor.files import lock_folder
with lock_folder(sys.argv[1]):
    print('mine', flush=True)
    sys.stdin.read()
'''

@pytest.mark.parametrize('ends', ['killed', 'done'])
def test_a_folder_is_one_process_s_until_it_ends(tmp_path, ends):
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    other = subprocess.Popen([sys.executable, '-c', HOLD, str(tmp_path)], env=env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b'mine\n'
    with pytest.raises(ValueError, match='Another process is at work in'):
        with lock_folder(tmp_path): raise AssertionError('two are inside')
    if ends == 'killed': other.kill()
    other.communicate()
    with lock_folder(tmp_path): pass
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path/'file').write_text('')
    with pytest.raises(ValueError, match='cannot be written to.*Nothing was trained'):
        writable_folder(tmp_path/'file'/'below')
    assert list(writable_folder(tmp_path/'a'/'b').iterdir()) == []


def test_json_is_indented_by_one_and_keeps_letters(file):
    write_json(file, {'name': 'α-p4-CNN', 'curve': [1, .5]})
    text = file.read_text(encoding='utf-8')
    assert text == '{\n "name": "α-p4-CNN",\n "curve": [\n  1,\n  0.5\n ]\n}\n'
    assert json.loads(text) == {'name': 'α-p4-CNN', 'curve': [1, .5]}


def test_what_is_no_json_leaves_the_file(file):
    with pytest.raises(TypeError, match='not JSON serializable'): write_json(file, {'a': {1}})
    assert file.read_bytes() == b'old'


@pytest.mark.parametrize('n', [0, 3, 3_000_001])
@pytest.mark.parametrize('algorithm', ['md5', 'sha256'])
def test_checksum_of_bytes_and_of_a_file(tmp_path, n, algorithm):
    data = bytes(i % 251 for i in range(n))
    (tmp_path/'file').write_bytes(data)
    known = getattr(hashlib, algorithm)(data).hexdigest()
    assert checksum(data, algorithm) == known
    for path in (tmp_path/'file', str(tmp_path/'file')): assert checksum(path, algorithm) == known


def test_checksum_is_sha256_where_nothing_is_said():
    assert checksum(b'abc').startswith('ba7816bf8f01cfea')


def test_a_file_that_may_not_be_read_is_no_damage(file, monkeypatch):
    check_readable(file)
    monkeypatch.setattr(os, 'access', lambda *args: False)
    with pytest.raises(PermissionError, match='change its permissions'): check_readable(file)


def test_results_are_found_here_above_or_in_the_package(tmp_path, monkeypatch):
    package, course = tmp_path/'site'/'eqtutor', tmp_path/'course'
    monkeypatch.setattr(files, '__file__', str(package/'files.py'))
    (alone := tmp_path/'alone'/'results').mkdir(parents=True)   # somebody's own
    monkeypatch.chdir(alone.parent)
    assert str(results_folder()) == 'results'
    (brought := package/'course'/'results'/'bench').mkdir(parents=True)
    assert results_folder().samefile(brought.parent)
    (copied := course/'results'/'bench').mkdir(parents=True)
    (course/'nbs').mkdir()
    monkeypatch.chdir(course/'nbs')
    assert results_folder().samefile(copied.parent)


def test_the_runs_of_an_experiment_are_read_by_seed(tmp_path, monkeypatch):
    folder = tmp_path/'results'/'net-digits'
    for made in folder, tmp_path/'results'/'bench': made.mkdir(parents=True)
    for seed in 10, 2, 0: (folder/f'{seed}.json').write_text(json.dumps(dict(seed=seed)))
    (folder/'costs.json').write_text('{}')
    monkeypatch.chdir(tmp_path)
    assert [run['seed'] for run in stored_runs('net-digits')] == [0, 2, 10]
    assert stored_runs('another-digits') == []
