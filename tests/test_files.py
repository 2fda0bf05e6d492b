"Files are replaced whole or not at all, and are what they were."
import hashlib
import json
import os

import pytest

from eqtutor.files import check_readable, checksum, write_atomic, write_json


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
    (tmp_path/'file.part').write_bytes(b'half of an earlier attempt, and longer')
    write_atomic(tmp_path/'file', b'whole')
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {'file': b'whole'}


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
