"""Hostile answers and folders, and honest ones beside them.

Zero marks taken, zero files, variables or keys read, zero processes or files left, and the rest of
the class graded.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from eqtutor.grading import sandbox, server
from eqtutor.grading.judge import judge_reply
from eqtutor.grading.limits import Limits
from eqtutor.grading.sandbox import Submission, Task, run
from eqtutor.tutor.exercise import all_exercises, get_exercise
from eqtutor.tutor.values import as_found, encode
from tests.grading.hostile import FORGED, GENTLE, ROUGH, SEARCH, SLOW, set_traps

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
HONEST = '''def centre(group):
    return [h for h in group.elements if (group.mul[h] == group.mul[:, h]).all()]'''
PYTHONPATH = {'PYTHONPATH': str(ROOT)}


def source_of(body, top, key, port):
    "The cell of a hostile answer, aimed at this machine."
    text = f'{top}\ndef centre(group):\n    {body}'
    for word, value in {'KEY': key, 'FOLDER': key.parent, 'PORT': port}.items():
        text = re.sub(rf'\b{word}\b', str(value), text)
    for word, (a, b) in {WORD: ('WO', 'RD'), MARK: ('MA', 'RK')}.items():
        text = text.replace(f"b'{a}'", f"b'{word[:3]}'").replace(f"b'{b}", f"b'{word[3:]}")
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


@pytest.fixture(scope='module')
def short_folder():
    "For temporary files of a command alone; a socket's address has a hundred letters at most."
    with tempfile.TemporaryDirectory(prefix='eq-') as folder: yield folder


# --- answers that leave the others of their sandbox alone

@pytest.fixture(scope='module')
def gentle(tmp_path_factory):
    """What is said of each, by a teacher with secrets, and what is left.

    In a variable, a file, an argument, a file that is open, and gone, and in the keyrings.
    """
    folder = tmp_path_factory.mktemp('gentle')
    (key := folder/'KEY').write_text(f'{MARK}-file')
    (passed := folder/'passed').write_text(f'{MARK}-descriptor')
    descriptor = os.open(passed, os.O_RDONLY)
    passed.unlink()
    files = stand(folder)
    with socket.create_server(('127.0.0.1', 0)) as listening:
        listening.settimeout(0)
        port = listening.getsockname()[1]
        sources = {name: source_of(body, top, key, port)
                   for name, (body, top, _) in GENTLE.items()}
        sources['honest'] = HONEST
        command = [sys.executable, '-m', 'tests.grading.try_answers', MARK]
        env = os.environ | PYTHONPATH | {'TOKEN': f'{MARK}-variable'}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True,
                              pass_fds=[descriptor],
                              input=json.dumps({'sources': sources, 'limits': [2, 300]}))
        assert done.returncode == 0, done.stderr
        with pytest.raises(BlockingIOError): listening.accept()
    os.close(descriptor)
    return dict(said=json.loads(done.stdout), folder=folder, files=files)


@pytest.mark.parametrize('name', GENTLE)
def test_it_takes_no_mark_and_reads_nothing(gentle, name):
    verdict = gentle['said'][name]
    assert verdict['marks'] == 0 and verdict['state'] in ('stopped', 'error', 'wrong'), verdict
    assert re.search(GENTLE[name][2], verdict['message'], re.S), verdict
    assert not re.search(f'{MARK}-|FOUND|root:', verdict['message'])
    assert len(verdict['message']) <= 2000 and '\x1b' not in verdict['message']


def test_the_honest_answer_beside_them_has_its_marks(gentle):
    assert gentle['said']['honest']['marks'] == 3


def test_no_file_is_written_or_gone(gentle):
    assert stand(gentle['folder']) == gentle['files']
    assert not list(Path('/dev/shm').glob('x')) and not Path('/tmp/98').exists()


# --- answers that end what they run in

def grade_by_command(folder, *arguments, start=('-P', '-m', 'eqtutor'), **more):
    "The results of the class in a folder, graded by the command that is typed there."
    command = [sys.executable, *start, 'labs', 'grade', '.', '--workers', '2', '--json', *arguments]
    env = os.environ | PYTHONPATH | more.pop('env', {})
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def graded_among(attacks, folder, students, temporary):
    "The results of hostile hand-ins and two honest ones, by student; what is left of processes."
    right = {'1.2': students.solutions(GROUPS)['1.2']}
    answers = {name: {'1.2': source_of(body, top, folder/'KEY', 0)}
               for name, (body, top) in attacks.items()}
    files = {'0 honest': right, **answers, 'z honest': right}
    students.hand_in(folder/'in', GROUPS, {f'{name}/01': a for name, a in files.items()})
    before = {*sandbox.processes_below(os.getpid())}
    results = grade_by_command(folder/'in', '--out', folder/'out', '--seconds', '2',
                               '--memory', '300', env={'TMPDIR': temporary})
    left = {*sandbox.processes_below(os.getpid())} - before
    return dict(results={r['student']: r for r in results}, left=left, files=os.listdir(temporary))


@pytest.fixture(scope='module', params=[ROUGH, pytest.param(SLOW, marks=pytest.mark.slow)],
                ids=['rough', 'slow'])
def rough(request, students, tmp_path_factory, short_folder):
    return graded_among(request.param, tmp_path_factory.mktemp('rough'), students, short_folder)


def test_who_ends_his_sandbox_takes_no_mark_and_stops_nobody(rough):
    results = rough['results']
    honest = [results.pop(name)['marks'] for name in ('0 honest', 'z honest')]
    assert honest == [3, 3]
    for name, r in results.items():
        said = r['parts'][1]
        assert r['marks'] == 0 and said['state'] in ('stopped', 'error', 'wrong'), (name, said)
    assert all(not r['problem'] for r in results.values())
    assert len({r['seed'] for r in results.values()}) == len(results)


def test_no_process_file_or_group_is_left(rough):
    assert not rough['left'] and not orphans() and not rough['files']
    groups = [p for parent in sandbox.own_groups().values() for p in parent.glob('eqtutor-*')]
    assert not [p for p in groups if not sandbox.is_alive(p)]


@pytest.mark.slow
def test_who_searches_all_memory_finds_himself_alone(students, tmp_path):
    "With time enough to search it all, beside a student who holds the word."
    right = {'1.2': students.solutions(GROUPS)['1.2'] + f'\n# {WORD}\n'}
    search = {'1.2': source_of('return None', SEARCH, tmp_path/'KEY', 0)}
    answers = {'0/01': right, 'search/01': search, 'z/01': right}
    students.hand_in(tmp_path/'in', GROUPS, answers)
    results = grade_by_command(tmp_path/'in', '--out', tmp_path/'out', '--seconds', '60')
    marks = {r['student']: r['marks'] for r in results}
    assert marks == {'0': 3, 'search': 0, 'z': 3}
    (message,) = [r['parts'][1]['message'] for r in results if r['student'] == 'search']
    assert message.startswith('ValueError: none, and of its own some')


@pytest.mark.skipif(os.geteuid() != 0, reason='an ordinary user starts no second process in there')
def test_shared_memory_is_seen_where_no_control_group_counts_it(monkeypatch):
    monkeypatch.setattr(sandbox, 'own_groups', dict)
    e = get_exercise('1.2')
    body, top = ROUGH['shared memory of many']
    task = Task(source_of(body, top, Path('/x/KEY'), 0), e.name, encode(e.cases(0)))
    reply, = run(Submission((task,)), Limits(seconds=9, memory=300))
    assert reply == {'stopped': 'it took more than 300 MB of memory'}


# --- nothing of the student's process is believed

def replayed(e, value, seed):
    "The verdict on a reply that says the same to every case, and changes nothing."
    cases = e.cases(seed)
    values = value if isinstance(value, list) and len(value) == len(cases) else [value]*len(cases)
    answers = [{'value': v, 'after': [as_found(x) for x in case]} for v, case in zip(values, cases)]
    return judge_reply(e, {'answers': answers}, seed)


@pytest.mark.parametrize('id', FORGED)
def test_facts_that_a_student_states_are_none(id):
    e = get_exercise(id)
    for value in [*FORGED[id], True, [True]*9, [False]*9]:
        assert replayed(e, encode(value), 7).marks == 0, value


CODE = [id for id, e in all_exercises().items() if e.right is not None and callable(e.right)]


@pytest.mark.parametrize('id', CODE)
def test_what_is_right_for_one_seed_is_wrong_for_another(id):
    "Every exercise's cases depend on the seed, and so does what is right."
    e = get_exercise(id)
    values = [a['value'] for a in e.answers_of(e.right, 3)]
    assert replayed(e, values, 3).state == 'passed'
    assert replayed(e, values, 4).marks == 0


def test_the_cases_of_a_prediction_say_why_they_do_not():
    fixed = [e for e in all_exercises().values() if e.kind != 'proof' and e.id not in CODE]
    assert fixed and all('cannot depend on the seed' in e.cases.__doc__ for e in fixed)


def test_who_hides_that_he_changes_an_argument_is_found():
    e = get_exercise('21.5')
    answers = e.answers_of(e.right, 0)
    assert judge_reply(e, {'answers': answers}, 0).state == 'passed'
    for after in ([0]*4, None, answers[1]['after']):
        forged = [a | {'after': after} for a in answers]
        assert 'in place' in judge_reply(e, {'answers': forged}, 0).message


# --- where the command is typed

@pytest.mark.parametrize('way', ['script', 'module'])
def test_nothing_of_the_folder_that_is_graded_is_run(way, students, tmp_path):
    "Neither by the command, nor by the server, its tracker, a judge, or bubblewrap."
    folder = students.hand_in(tmp_path/'in', GROUPS, {
        'ann/01': {'1.2': students.solutions(GROUPS)['1.2']}})
    set_traps(folder, tmp_path/'imported')
    (tmp_path/'eqtutor').write_text(SCRIPT)
    start = {'script': [tmp_path/'eqtutor'], 'module': ['-P', '-m', 'eqtutor']}[way]
    results = grade_by_command(folder, start=start)
    assert not (tmp_path/'imported').exists(), (tmp_path/'imported').read_text()
    assert [r['marks'] for r in results] == [3]


LIBRARY = '''
import os, sys
from eqtutor.grading.server import judge
sys.path.insert(0, '')          # as in a notebook
print(sorted(judge({'cells': []}, '01', unsafe=True)))
here = os.readlink('/proc/self/cwd')
print(here, sys.path[0] == '', sys.modules['__main__'].__name__, os.environ.get('PYTHONSAFEPATH'))
from multiprocessing import forkserver
print(os.readlink(f'/proc/{forkserver._forkserver._forkserver_pid}/cwd'))
'''


def test_a_program_that_imports_from_the_folder_gives_its_judges_nothing_of_it(tmp_path):
    (tmp_path/'program.py').write_text(LIBRARY)
    (folder := tmp_path/'in').mkdir()
    set_traps(folder, tmp_path/'imported')
    done = subprocess.run([sys.executable, '-P', tmp_path/'program.py'], cwd=folder,
                          env=os.environ | PYTHONPATH, capture_output=True, text=True)
    ids, after, servers = done.stdout.splitlines()
    assert ids == "['1.1', '1.2', '1.3', '1.4']" and servers == '/'
    assert after == f'{folder} True __main__ None'
    assert not (tmp_path/'imported').exists(), (tmp_path/'imported').read_text()


def test_a_folder_that_is_called_like_the_package_is_not_taken_for_it(students, tmp_path):
    "Beside the clone of an editable install."
    right = {'1.2': students.solutions(GROUPS)['1.2']}
    folder = students.hand_in(tmp_path/'in', GROUPS, {'ann': right})
    (folder/'eqtutor'/'grading').mkdir(parents=True)
    (tmp_path/'script').write_text(EDITABLE + SCRIPT)
    results = grade_by_command(folder, start=[tmp_path/'script'], env={'PYTHONPATH': ''})
    assert [r['marks'] for r in results] == [3]


def test_several_that_ask_at_once_have_one_server(monkeypatch):
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing import forkserver
    def ask(_):
        said = server.judge({'cells': []}, '01', unsafe=True)
        return len(said), forkserver._forkserver._forkserver_pid
    with ThreadPoolExecutor(4) as pool: found = {*pool.map(ask, range(4))}
    (count, pid), = found
    assert count == 4
    assert 'libtorch' in Path(f'/proc/{pid}/maps').read_text()   # so no judge has to import it


def test_what_a_killed_command_leaves_is_nothing(students, tmp_path, short_folder):
    "No process, no folder of the server's, no control group, no half of a file."
    slow = {'1.2': 'def centre(group):\n    import time\n    time.sleep(50)'}
    students.hand_in(tmp_path/'in', GROUPS, {'ann/01': slow, 'bob/01': slow})
    command = [sys.executable, '-P', '-m', 'eqtutor', 'labs', 'grade', '.', '--seconds', '60',
               '--out', tmp_path/'out']
    around = os.environ | PYTHONPATH | {'TMPDIR': short_folder}
    started = subprocess.Popen(command, cwd=tmp_path/'in', env=around,
                               stdout=subprocess.DEVNULL)
    def below(): return {*sandbox.processes_below(started.pid)}
    def judging(): return any(b'/package/eqtutor' in command_of(p) for p in below())
    deadline = time.monotonic() + 120
    while not judging() and time.monotonic() < deadline: time.sleep(.2)
    assert judging()
    family = below()
    started.send_signal(signal.SIGKILL)
    started.wait()
    deadline = time.monotonic() + 30
    while (left := {p for p in family if command_of(p)}) and time.monotonic() < deadline:
        time.sleep(.2)
    assert not left and not orphans() and not os.listdir(short_folder)
    assert not list(tmp_path.rglob('*.part'))
    groups = [p for parent in sandbox.own_groups().values() for p in parent.glob('eqtutor-*')]
    assert not [p for p in groups if int(p.name.split('-')[1]) in family]


def command_of(pid):
    "What a process was started as; nothing of one that has ended."
    try:
        return Path(f'/proc/{pid}/cmdline').read_bytes()
    except OSError:
        return b''
