"""Forty hostile submissions and two honest ones, graded together.

Zero marks taken, zero files read, written or left, zero processes that survive, and the rest of the
class graded.
"""
import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from eqtutor.labs import Limits, grade, sandbox
from tests.labs.hostile import HOSTILE

pytestmark = pytest.mark.sandbox
GROUPS, SECRET, WORD = '01_groups', 'a secret of the teacher', 'quetzalcoatl'


def source_of(name, key, port):
    "The cell of a hostile answer, aimed at this machine."
    body, top = HOSTILE[name]
    text = f'{top}\ndef centre(group):\n    {body}'
    halves = WORD[:3], WORD[3:]
    for word, value in {'KEY': key, 'FOLDER': key.parent, 'PORT': port}.items():
        text = text.replace(word, str(value))
    return text.replace("b'WO', b'RD'", f'{halves[0].encode()!r}, {halves[1].encode()!r}')


def stand(folder):
    "Every file below a folder, with what is in it."
    return {p: p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


def orphans():
    "Processes of a sandbox that nobody waits for any more; those of others may be at work."
    found = []
    for place in Path('/proc').glob('[0-9]*'):
        try:
            command = (place/'cmdline').read_bytes()
            parent = int((place/'stat').read_bytes().rpartition(b')')[2].split()[1])
        except OSError:
            continue
        if parent == 1 and (b'/package/eqtutor' in command or b'sleep\x00600' in command):
            found.append(command)
    return found


@pytest.fixture(scope='module')
def outcome(students, tmp_path_factory):
    "What came of the class, and what it left."
    folder = tmp_path_factory.mktemp('hostile')
    (key := folder/'KEY').write_text(SECRET)
    right = {'1.2': students.solutions(GROUPS)['1.2'] + f'\n# {WORD}\n'}
    with socket.create_server(('127.0.0.1', 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        answers = {name: {'1.2': source_of(name, key, port)} for name in HOSTILE}
        students.hand_in(folder/'in', GROUPS, {'0 honest': right, **answers, 'z honest': right})
        before, files = {*sandbox.processes_below(os.getpid())}, stand(folder)
        start = time.monotonic()
        records = grade([folder/'in'], folder/'out', limits=Limits(seconds=2, memory=300),
                        workers=2)
        seconds = time.monotonic() - start
        with pytest.raises(BlockingIOError): server.accept()
    after = {*sandbox.processes_below(os.getpid())}
    return dict(records={r['name']: r for r in records}, seconds=seconds, folder=folder,
                left=after - before, files=files)


def test_there_are_forty(): assert len(HOSTILE) >= 40


@pytest.mark.parametrize('name', HOSTILE)
def test_it_takes_no_mark(outcome, name):
    record = outcome['records'][name]
    said = record['parts'][1] if record['parts'] else {'state': 'stopped', 'message': ''}
    assert record['marks'] == 0 and said['state'] in ('stopped', 'error', 'wrong'), said
    assert SECRET not in said['message'] and 'FOUND' not in said['message']
    assert 'root:' not in said['message'] and len(said['message']) <= 2000


def test_who_searches_all_memory_finds_himself_alone(students, tmp_path):
    "With time enough to search it all, beside a student who holds the word."
    right = {'1.2': students.solutions(GROUPS)['1.2'] + f'\n# {WORD}\n'}
    search = {'1.2': source_of('another student', tmp_path/'KEY', 0)}
    answers = {'0 honest': right, 'search': search, 'z honest': right}
    students.hand_in(tmp_path/'in', GROUPS, answers)
    limits = Limits(seconds=60, memory=300)
    records = grade([tmp_path/'in'], tmp_path/'out', limits=limits, workers=2)
    (message,) = [r['parts'][1]['message'] for r in records if r['name'] == 'search']
    assert message.startswith('ValueError: none, and of its own some')
    assert [r['marks'] for r in records if r['name'] != 'search'] == [3, 3]


def test_the_rest_of_the_class_is_graded(outcome):
    honest = [outcome['records'][name] for name in ('0 honest', 'z honest')]
    assert [r['marks'] for r in honest] == [3, 3]
    assert len({r['seed'] for r in outcome['records'].values()}) == len(HOSTILE) + 2
    assert all(not r['problem'] for r in outcome['records'].values())


def test_no_file_is_written_or_gone(outcome):
    now = stand(outcome['folder'])
    assert {p: now.get(p) for p in outcome['files']} == outcome['files']
    new = {p.relative_to(outcome['folder']).parts[0] for p in now.keys() - outcome['files'].keys()}
    assert new == {'out'}
    assert not list(Path('/dev/shm').glob('x')) and not Path('/tmp/98').exists()


def test_no_process_is_left(outcome):
    assert not outcome['left']
    assert not orphans()
    groups = [p for parent in sandbox.own_groups().values() for p in parent.glob('eqtutor-*')]
    assert not [p for p in groups if not sandbox.is_alive(p)]


def test_who_takes_too_much_is_told(outcome):
    def said(name): return outcome['records'][name]['parts'][1]['message']
    assert re.search('processes|ended before|no answer', said('fork storm'))
    assert re.search('MB of memory|ended before|wrong|Error', said('memory of many'))


def test_pages_and_table_hold_no_escape(outcome):
    out = outcome['folder']/'out'
    page = (out/'feedback'/'escapes.html').read_text()
    assert '<script>' not in page and '\x1b' not in page
    assert json.loads((out/'results'/'escapes.json').read_text())['marks'] == 0


@pytest.mark.slow
def test_it_takes_seconds_each(outcome):
    "A hundred in less than ten minutes on two cores, where these have nothing else to do."
    assert outcome['seconds']*100/(len(HOSTILE) + 2) < 600
