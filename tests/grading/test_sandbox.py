"Code of strangers: what one sandbox lets it do, and what is said where there is none."
import ast
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eqtutor.grading import sandbox
from eqtutor.grading.grade import grade
from eqtutor.grading.judge import grade_answer, judge_reply, task_of
from eqtutor.grading.sandbox import Limits, Submission, Task, run
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.exercise import get_exercise
from eqtutor.tutor.values import encode

CENTRE, COUNT = get_exercise('1.2'), get_exercise('1.4')
RIGHT = 'def centre(group):\n    return (group.mul == group.mul.T).all(1).nonzero().flatten()'
LIMITS = Limits(seconds=4, memory=300)


def centre(body, top=''): return CENTRE, f'{top}\ndef centre(group):\n    {body}'


# --- tasks of one submission, each in a fork: what is honest, and what harms itself alone

EUCLID = """def count_homomorphisms(n, m):
    while m:
        n, m = m, (
            n
            % m
        )
    return n"""
LOADED_LATE = ('torch.ones(1, requires_grad=True).sum().backward()', 'np.fft.fft(np.ones(3))',
               'np.random.default_rng(0)', 'import fractions', 'torch.fft.rfft(torch.ones(4))')
CALLS_CHECK = """check('1.2', centre)
    return (group.mul == group.mul.T).all(1).nonzero().flatten()"""
HONEST = {
    'right': (CENTRE, RIGHT),
    **{top: (COUNT, top + EUCLID) for top in ('', '%matplotlib inline\n', '!ls\n')},
    **{line: (CENTRE, RIGHT.replace('return', f'{line}\n    return')) for line in LOADED_LATE},
    'careless': centre(CALLS_CHECK, 'from eqtutor.tutor import check')}
SELF_HARM = {
    'an endless loop': (centre('while True: pass'), 'no answer within 4 s'),
    'exit': (centre('import sys; sys.exit(0)'), 'SystemExit'),
    'a hard exit': (centre('import os; os._exit(0)'), 'ended before it gave an answer'),
    'a crash': (centre('import ctypes; ctypes.string_at(0)'), 'ended before it gave an answer'),
    'all memory': (centre('return bytearray(10**9)'), 'MemoryError'),
    'a large answer': (centre('return torch.zeros(5*10**6)'), 'too large|MemoryError'),
    'a missing name': ((CENTRE, 'x = y'), 'Everything an answer needs stands in its own cell'),
    'no function': ((CENTRE, 'x = 1'), 'defines no function `centre`'),
    'a long file': (centre("open('/tmp/x', 'wb').write(bytes(10**7)); return 1"),
                    'File too large')}
LOOKS = {
    'modules': centre("raise ValueError([m for m in sys.modules if ours(m)])", '''
import sys
def ours(module): return module.startswith(('eqtutor.tutor', 'eqtutor.grading'))'''),
    'objects': centre('''names = {type(x).__name__ for x in gc.get_objects()}
    raise ValueError(names & {'Mistake', 'Exercise'}, 'Parameter' in names)''', 'import gc'),
    'files': centre("raise ValueError(sorted(os.listdir('/')), os.listdir('/tmp'))", 'import os'),
    'user': centre("raise ValueError(os.getuid(), os.uname().nodename, sorted(os.environ))",
                   'import os'),
    'pipes': centre('raise ValueError([i for i in range(64) if there(i)])', '''
import ast
import os
def there(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False'''),
    'answers': centre('raise ValueError(readable)', f'''
readable = []
folder = {str(sandbox.PACKAGE/'tutor')!r}
for file in [folder + '/answers/ch01.py', folder + '/exercise.py', '/package/eqtutor/tutor/answers',
             {str(course_chapters()['01_groups'])!r}, {__file__!r}, '/etc/passwd']:
    try: readable.append(open(file, 'rb').read(3))
    except IsADirectoryError: readable.append(file)
    except OSError: pass''')}


@pytest.fixture(scope='module')
def verdicts():
    "What is said of each, all in one sandbox."
    asked = HONEST | {name: task for name, (task, _) in SELF_HARM.items()} | LOOKS
    tasks = tuple(task_of(e, source, 0) for e, source in asked.values())
    replies = run(Submission(tasks), LIMITS)
    return {name: judge_reply(e, reply, 0)
            for (name, (e, _)), reply in zip(asked.items(), replies)}


@pytest.mark.sandbox
@pytest.mark.parametrize('name', HONEST)
def test_an_honest_answer_passes(verdicts, name): assert verdicts[name].marks == 3, verdicts[name]


@pytest.mark.sandbox
@pytest.mark.parametrize('name', SELF_HARM)
def test_an_answer_harms_itself_alone(verdicts, name):
    assert verdicts[name].marks == 0
    assert re.search(SELF_HARM[name][1], verdicts[name].message)


@pytest.mark.sandbox
def test_no_right_answer_is_in_the_process(verdicts):
    "Neither as a module, nor as an object that the garbage collector knows, nor as a file."
    own = {'eqtutor.tutor', 'eqtutor.tutor.values', 'eqtutor.grading', 'eqtutor.grading.limits',
           'eqtutor.grading.prelude'}
    assert set(re.findall(r"'([\w.]+)'", verdicts['modules'].message)) == own
    assert 'ValueError: (set(), ' in verdicts['objects'].message
    assert 'ValueError: []' in verdicts['answers'].message


@pytest.mark.sandbox
def test_nothing_of_the_machine_is_seen(verdicts):
    folders, temporary = re.findall(r'\[.*?\]', verdicts['files'].message)[:2]
    assert {'proc', 'tmp', 'dev', 'package'} <= set(re.findall(r"'(\w+)'", folders))
    # what another task left there, and the folder of an environment that lies there
    there = {p.parts[2] for p in [Path(sys.prefix)] if p.parts[1] == 'tmp'} | {'x'}
    assert 'boot' not in folders and set(ast.literal_eval(temporary)) <= there
    assert "(65534, 'sandbox'" in verdicts['user'].message
    assert 'PYTHONPATH' not in verdicts['user'].message
    assert 'ValueError: [0, 1, 2, 3]' in verdicts['pipes'].message


@pytest.mark.sandbox
def test_there_is_no_way_to_a_server_of_this_machine():
    with socket.create_server(('127.0.0.1', 0)) as listening:
        connect = f'import socket; socket.create_connection({listening.getsockname()}); return [0]'
        verdict = grade_answer(*centre(connect), LIMITS)
    assert verdict.state == 'error' and 'ConnectionRefused' in verdict.message


def test_another_copy_of_the_package_is_covered(tmp_path):
    "It has the answers, too."
    (copy := tmp_path/'python3.11'/'site-packages'/'eqtutor').mkdir(parents=True)
    assert list(sandbox.copies_below(tmp_path)) == [copy]
    assert list(sandbox.copies_below(copy.parent)) == [copy]


# --- limits on all processes, seen from outside

def test_processes_below_one_are_counted_and_weighed():
    script = 'import time; x = bytearray(200*2**20); print(1, flush=True); time.sleep(99)'
    started = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE)
    try:
        started.stdout.read(1)
        assert started.pid in sandbox.processes_below(os.getpid())
        assert 200*2**20 <= sandbox.private_memory(started.pid) < 300*2**20
        watch = sandbox.Watch(os.getpid(), Limits(memory=100, processes=99))
        watch.torch = 2**20
        assert watch.over() == 'it took more than 100 MB of memory'
        watch.last += 99   # it has just been looked
        assert watch.over() == ''
        crowd = sandbox.Watch(os.getpid(), Limits(processes=-9))
        assert crowd.over() == 'it started more than -9 processes'
    finally:
        sandbox.end(started)
    assert started.returncode


def test_replies_that_cannot_be_read_are_none():
    lines = b'ready\n1 {"answers": []}\n1 {"answers": [1]}\n0 ' + b'['*10**5 + b'\n7 {}\nx\n2 []x\n'
    assert sandbox.replies(lines, 'late', 3) == [{'stopped': 'late'}, {'answers': []},
                                                 {'stopped': 'late'}]


# --- where there is no sandbox

SQUARE = Submission((Task('def square(x):\n    return x*x', 'square', encode([(2,), (3,)])),))


@pytest.fixture
def fresh():
    "What is known of this system is found out again."
    sandbox.without_isolation.cache_clear()
    yield
    sandbox.without_isolation.cache_clear()


def test_without_bubblewrap_nothing_is_run(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, 'which', lambda name, path: None)
    with pytest.raises(RuntimeError, match='apt-get install bubblewrap'): run(SQUARE)
    with pytest.raises(RuntimeError, match='--unsafe'): grade(tmp_path, tmp_path/'out')
    assert not (tmp_path/'out').exists()


def test_a_bubblewrap_that_is_refused_is_no_sandbox(fresh, monkeypatch, tmp_path):
    (fake := tmp_path/'bwrap').write_text('#!/bin/sh\necho "bwrap: not permitted" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    with pytest.raises(RuntimeError, match='refuses it .*bwrap: not permitted'): run(SQUARE)


def test_unsafe_runs_and_says_so():
    answers = [{'value': 4, 'after': [2]}, {'value': 9, 'after': [3]}]
    assert run(SQUARE, LIMITS, unsafe=True) == [{'answers': answers}]
    assert sandbox.isolation(unsafe=True) == 'none (--unsafe)'


def test_grading_needs_fork(monkeypatch):
    monkeypatch.delattr(os, 'fork')
    with pytest.raises(RuntimeError, match='use WSL'): run(SQUARE)


def test_control_groups_go_when_their_sandbox_has_gone():
    with sandbox.control_group(Limits()) as (_, names):
        folders = [group for parent in sandbox.own_groups().values()
                   for group in Path(parent).glob(f'eqtutor-{os.getpid()}-*')]
        assert len(folders) == len(names)
    assert not any(folder.exists() for folder in folders)


# --- a server that ends

LEAVE = '''
import multiprocessing.forkserver as forkserver
import sys
from pathlib import Path
from eqtutor.grading import ready
own, other = (Path(sys.argv[1])/name for name in ('own', 'other'))
forkserver._forkserver._forkserver_address = str(own)
ready.COMMAND = 0   # as if it had been killed
for socket in own, other: socket.touch()
ready.leave_nothing()
assert other.exists() and not own.exists()
other.rename(own)
ready.leave_nothing()
assert not own.parent.exists()
'''

def test_a_server_takes_away_its_own_socket_and_the_folder_if_nothing_else_is_in_it(tmp_path):
    folder = tmp_path/'sockets'
    folder.mkdir()
    subprocess.run([sys.executable, '-c', LEAVE, folder], cwd=Path(__file__).parents[2], check=True)
