"""Forty hostile submissions and two honest ones, graded together.

Zero marks taken, zero files read, written or left, zero processes that survive, and the rest of the
class graded.
"""
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eqtutor.grading.grade import grade
from eqtutor.grading.judges import Judges, Settings
from eqtutor.grading.sandbox import Limits
from eqtutor.tutor import sandbox
from tests.grading.hostile import HOSTILE, set_traps

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).parents[2]
GROUPS, WORD, MARK = '01_groups', 'quetzalcoatl', 'jabberwock'   # the secrets are jabberwock-file …
# as pip writes the command
SCRIPT = 'import sys\nfrom eqtutor.__main__ import main\nsys.exit(main())\n'
# as `pip install -e` makes the package known: to be found where nothing of its name is in the path
EDITABLE = f'''
import sys
from importlib.machinery import PathFinder
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == 'eqtutor': return PathFinder.find_spec(name, [{str(ROOT)!r}])
sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Finder)
'''


def source_of(name, key, port):
    "The cell of a hostile answer, aimed at this machine."
    body, top = HOSTILE[name]
    text = f'{top}\ndef centre(group):\n    {body}'
    for word, value in {'KEY': key, 'FOLDER': key.parent, 'PORT': port}.items():
        text = text.replace(word, str(value))
    for word, (a, b) in {WORD: ('WO', 'RD'), MARK: ('MA', 'RK')}.items():
        text = text.replace(f"b'{a}'", f"b'{word[:3]}'").replace(f"b'{b}'", f"b'{word[3:]}'")
    return text


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


def grade_by_command(folder, *arguments, start=('-P', '-m', 'eqtutor'), **more):
    "The results of the class in a folder, graded by the command that is typed there."
    command = [sys.executable, *start, 'labs', 'grade', '.', '--workers', '2', '--json', *arguments]
    env = os.environ | {'PYTHONPATH': str(ROOT)} | more.pop('env', {})
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope='module')
def outcome(students, tmp_path_factory):
    """What came of the class, and what it left.

    The teacher has secrets: in a variable, a file, an argument and a file that is open, and gone.
    """
    folder = tmp_path_factory.mktemp('hostile')
    (key := folder/'KEY').write_text(f'{MARK}-file')
    (passed := folder/'passed').write_text(f'{MARK}-descriptor')
    descriptor = os.open(passed, os.O_RDONLY)
    passed.unlink()
    out = folder/f'out of {MARK}-argument'
    right = {'1.2': students.solutions(GROUPS)['1.2'] + f'\n# {WORD}\n'}
    with socket.create_server(('127.0.0.1', 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        answers = {name: {'1.2': source_of(name, key, port)} for name in HOSTILE}
        students.hand_in(folder/'in', GROUPS, {'0 honest': right, **answers, 'z honest': right})
        before, files = {*sandbox.processes_below(os.getpid())}, stand(folder)
        start = time.monotonic()
        records = grade_by_command(folder/'in', '--out', out, '--seconds', '2', '--memory', '300',
                                   env={'TOKEN': f'{MARK}-variable'}, pass_fds=[descriptor])
        seconds = time.monotonic() - start
        with pytest.raises(BlockingIOError): server.accept()
    after = {*sandbox.processes_below(os.getpid())}
    os.close(descriptor)
    return dict(records={r['name']: r for r in records}, seconds=seconds, folder=folder, out=out,
                left=after - before, files=files)


def test_there_are_forty(): assert len(HOSTILE) >= 40


@pytest.mark.parametrize('name', HOSTILE)
def test_it_takes_no_mark(outcome, name):
    record = outcome['records'][name]
    said = record['parts'][1] if record['parts'] else {'state': 'stopped', 'message': ''}
    assert record['marks'] == 0 and said['state'] in ('stopped', 'error', 'wrong'), said
    assert f'{MARK}-' not in said['message'] and 'FOUND' not in said['message']
    assert 'root:' not in said['message'] and len(said['message']) <= 2000


def test_who_looks_at_all_of_proc_has_seen_it(outcome):
    "What he would have found, he would have told."
    message = outcome['records']['all of proc']['parts'][1]['message']
    assert 'ValueError: [], looked at ' in message
    for place in ('environ', 'cmdline', 'mountinfo', 'cwd', 'fd/0', 'in fd/0', 'mem'):
        assert f"'1/{place}'" in message


@pytest.mark.parametrize('kind', ['variable', 'file', 'argument', 'descriptor'])
def test_no_secret_of_the_teacher_is_in_a_page_or_result(outcome, kind):
    written = [p for part in ('feedback', 'results') for p in (outcome['out']/part).iterdir()]
    assert len(written) == 2*len(HOSTILE) + 4
    assert [p.name for p in written if f'{MARK}-{kind}' in p.read_text()] == []


@pytest.mark.parametrize('way', ['script', 'module'])
def test_no_module_that_is_handed_in_is_imported(students, tmp_path, way):
    "Of all names in the standard library, in the folder where the command is typed."
    right = {'1.2': students.solutions(GROUPS)['1.2']}
    folder = students.hand_in(tmp_path/'in', GROUPS, {'ann': right})
    set_traps(folder, tmp_path/'imported')
    (tmp_path/'eqtutor').write_text(SCRIPT)
    start = {'script': [tmp_path/'eqtutor'], 'module': ['-P', '-m', 'eqtutor']}[way]
    records = grade_by_command(folder, start=start)
    assert not (tmp_path/'imported').exists(), (tmp_path/'imported').read_text()
    assert [r['marks'] for r in records] == [3]


def test_the_process_that_judges_is_in_no_folder_of_the_class(tmp_path, monkeypatch):
    "An empty entry of LD_LIBRARY_PATH would name it."
    monkeypatch.chdir(tmp_path)
    with Judges(Settings(Path('out'))) as judges:
        assert os.readlink(f'/proc/{judges.process.pid}/cwd') == '/'
    assert Settings.from_json(Settings(Path('out')).to_json()).out == tmp_path/'out'


def test_a_folder_that_is_called_like_the_package_is_not_taken_for_it(students, tmp_path):
    "Beside the clone of an editable install."
    right = {'1.2': students.solutions(GROUPS)['1.2']}
    folder = students.hand_in(tmp_path/'in', GROUPS, {'ann': right})
    (folder/'eqtutor'/'labs').mkdir(parents=True)
    (tmp_path/'script').write_text(EDITABLE + SCRIPT)
    records = grade_by_command(folder, start=[tmp_path/'script'], env={'PYTHONPATH': ''})
    assert [r['marks'] for r in records] == [3]


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
    assert new == {outcome['out'].name}
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
    out = outcome['out']
    page = (out/'feedback'/'escapes.html').read_text()
    assert '<script>' not in page and '\x1b' not in page
    assert json.loads((out/'results'/'escapes.json').read_text())['marks'] == 0


@pytest.mark.slow
def test_it_takes_seconds_each(outcome):
    "A hundred in less than ten minutes on two cores, where these have nothing else to do."
    assert outcome['seconds']*100/(len(HOSTILE) + 2) < 600
