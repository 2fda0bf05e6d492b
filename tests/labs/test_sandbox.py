"Code of strangers: each attack costs its own marks and nothing else."
import ctypes
import importlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eqtutor.labs import (Limits, Sandbox, Submission, course_chapters, encode, get_exercise,
                          grade_answer, run)

# the module that only the sandbox's process runs
worker = importlib.import_module('eqtutor.labs._worker')
CENTRE, COUNT = get_exercise('1.2'), get_exercise('1.4')
RIGHT = 'def centre(group):\n    return (group.mul == group.mul.T).all(1).nonzero().flatten()'


@pytest.fixture(scope='module')
def hurried():
    with Sandbox(seconds=1) as box: yield box


def attempt(box, body, top=''):
    "The verdict on a `centre` with this body."
    return grade_answer(CENTRE, f'{top}\ndef centre(group):\n    {body}', box)


# --- honest answers

LOADED_LATE = ('torch.ones(1, requires_grad=True).sum().backward()', 'np.fft.fft(np.ones(3))',
               'np.random.default_rng(0)', 'import fractions')
EUCLID = """def count_homomorphisms(n, m):
    while m:
        n, m = m, (
            n
            % m
        )
    return n"""


def test_one_submission_is_run_and_answered_in_plain_data():
    square = Submission('def square(x):\n    return x*x', 'square', encode([(2,), (3,)]))
    assert run(square, Limits(5, 300)) == {'answers': [{'value': 4}, {'value': 9}]}


def test_a_right_answer_passes(box): assert grade_answer(CENTRE, RIGHT, box).marks == 3


@pytest.mark.parametrize('line', LOADED_LATE)
def test_libraries_stay_readable(box, line):
    source = RIGHT.replace('return', f'{line}\n    return')
    assert grade_answer(CENTRE, source, box).marks == 3


@pytest.mark.parametrize('top', ['', '%matplotlib inline\n', '!ls\n'])
def test_lines_for_ipython_are_left_out_and_remainders_stay(box, top):
    assert grade_answer(COUNT, top + EUCLID, box).marks == 3


def test_an_answer_that_calls_check_is_careless_and_not_wrong(box):
    top = 'from eqtutor.labs import check'
    body = "check('1.2', centre)\n    return (group.mul == group.mul.T).all(1).nonzero().flatten()"
    assert attempt(box, body, top).marks == 3


def test_a_missing_name_is_explained(box):
    said = grade_answer(CENTRE, 'x = y', box).message
    assert 'Everything an answer needs stands in its own cell' in said


# --- attacks

IN_TIME = {'an endless loop': ('while True: pass', ''),
           'a loop in the cell': ('pass', 'while True: pass'),
           'sleep': ('import time; time.sleep(99)', '')}
LIE = """import os; d = b'{"broken": "' + b'A'*10**7 + b'"}'
    while d: d = d[os.write(3, d):]
    os._exit(0)"""
LEFT_BEHIND = """import os, time
    if os.fork() == 0:
        os.setsid(); time.sleep(99)
    return [0]"""
REPLACED = ('import eqtutor.labs as labs\n'
            'labs.check = labs.judge = labs.grade_answer = lambda *a: True')
ATTACKS = {
    'exit': ('import sys; sys.exit(0)', ''),
    'a hard exit': ('import os; os._exit(0)', ''),
    'a crash': ('import ctypes; ctypes.string_at(0)', ''),
    'all memory': ('return [bytearray(10**8) for _ in range(100)]', ''),
    'a large answer': ('import torch; return torch.zeros(10**7)', ''),
    'a forged print': ("print('1.2 passed'); return None", ''),
    'a forged file': ("open('marks.json', 'w').write('{}')", ''),
    'a clever object': ('return Any()', 'class Any:\n    def __eq__(self, other): return True'),
    'another checker': ('return None', REPLACED),
    'the right answers': ("return get_exercise('1.2').right(group)",
                          'from eqtutor.labs import get_exercise'),
    'their module': ('return right(group)',
                     'from eqtutor.labs.answers.ch01 import centre as right'),
    'the pipe': ("import os; os.write(3, b'{\"answers\": [{\"value\": [0]}]}'); os._exit(0)", ''),
    'a long lie in the pipe': (LIE, ''),
    'nonsense in the pipe': ("import os; os.write(3, b'passed'); os._exit(0)", ''),
    'a process left behind': (LEFT_BEHIND, ''),
    'killing its parent': ('import os, signal; os.kill(os.getppid(), signal.SIGKILL)', ''),
}


def assert_harmless(verdict, box):
    "It costs its own marks; no process of it is left, and the right answer after it passes."
    assert verdict.marks == 0 and verdict.state != 'passed' and len(verdict.message) < 999
    if box.server:
        children = Path(f'/proc/{box.server.pid}/task/{box.server.pid}/children')
        assert not children.exists() or not children.read_text()
    assert grade_answer(CENTRE, RIGHT, box).marks == 3


@pytest.mark.parametrize('name', ATTACKS)
def test_an_attack_costs_its_own_marks(box, name):
    assert_harmless(attempt(box, *ATTACKS[name]), box)


@pytest.mark.parametrize('name', IN_TIME)
def test_an_answer_has_its_time(hurried, name):
    verdict = attempt(hurried, *IN_TIME[name])
    assert verdict.message == 'no answer within 1 s'
    assert_harmless(verdict, hurried)


# --- no network, no file, no other process

def test_there_is_no_network(box):
    with socket.create_server(('127.0.0.1', 0)) as listening:
        place = listening.getsockname()
        verdict = attempt(box, f'import socket; socket.socket().connect({place}); return [0]')
        assert verdict.state == 'error' and not select.select([listening], [], [], 0)[0]


def test_there_is_no_way_to_the_pipes_of_the_server(box):
    verdict = attempt(box, 'raise ValueError([i for i in range(64) if there(i)])', '''
import os
def there(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False''')
    assert 'ValueError: [0, 1, 2, 3]' in verdict.message


def test_no_answer_is_in_the_memory_of_the_process(box):
    "Neither as a module, nor as an object that the garbage collector knows."
    listed = "raise ValueError([m for m in sys.modules if 'labs' in m])"
    modules = attempt(box, listed, 'import sys')
    own = {'eqtutor.labs', 'eqtutor.labs.values', 'eqtutor.labs.prelude'}
    assert set(re.findall(r"'([\w.]+)'", modules.message)) == own
    objects = attempt(box, '''names = {type(x).__name__ for x in gc.get_objects()}
    raise ValueError(names & {'Mistake', 'Exercise'}, 'Parameter' in names)''', 'import gc')
    assert 'ValueError: (set(), ' in objects.message


# the thief does not import the right answers: he reads their files and runs them under another name
THIEF = '''
import sys, types, eqtutor
class Dummy(types.ModuleType):
    def __getattr__(self, name): return lambda *a, **k: a
for name in ('labs.exercise', 'labs.answers.draws'): sys.modules[f'eqtutor.{name}'] = Dummy(name)
m = types.ModuleType('m')
m.__package__ = 'eqtutor.labs.answers'
exec(compile(open(eqtutor.__path__[0] + '/labs/answers/ch01.py').read(), 'x', 'exec'), m.__dict__)
centre = m.centre'''


def files_protected(box):
    grade_answer(CENTRE, RIGHT, box)   # it has started
    return box.isolation['files'] == 'read only'   # a weaker system has said so


def test_the_files_of_right_answers_cannot_be_read(box):
    if not files_protected(box): pytest.skip('no Landlock here')
    assert grade_answer(CENTRE, THIEF, box).marks == 0
    folder = Path(worker.__file__).parent
    files = [*folder.glob('answers/*.py'), *folder.glob('**/__pycache__/*.pyc'),
             folder/'exercise.py', *course_chapters().values()]
    told = attempt(box, 'raise ValueError(readable)', f'''
readable = []
for file in {[str(f) for f in files]!r}:
    try: readable.append(open(file, 'rb').read(3))
    except OSError: pass''')
    assert len(files) > 40 and 'ValueError: []' in told.message


ON_A_FILE = {
    'read': 'raise ValueError(open(f).read())',
    'list': 'raise ValueError(os.listdir(os.path.dirname(f)))',
    'write': "open(f, 'w')",
    'truncate': 'os.truncate(f, 0)',
    'remove': 'os.remove(f)',
    'chmod': 'os.chmod(f, 0)',
    'utime': 'os.utime(f, (0, 0))',
    'run': "os.execv('/bin/true', ['true'])",
    'ask': "import socket; socket.socket(socket.AF_UNIX).connect(f + '.socket')",
    'spy': "raise ValueError(open('/proc/1/cmdline').read())"}


@pytest.mark.parametrize('name', ON_A_FILE)
def test_a_file_of_the_teacher_is_out_of_reach(box, tmp_path, name):
    "What an answer has read would leave on the feedback page."
    if not files_protected(box) or box.isolation['calls'] != 'filtered':
        pytest.skip('a weaker system')
    (file := tmp_path/'KEY').write_text('secret')
    file.chmod(0o640)
    said = attempt(box, f'import os; f = {str(file)!r}; {ON_A_FILE[name]}\n    return [0]').message
    assert 'PermissionError' in said and 'secret' not in said
    left = file.stat()
    assert (file.read_text(), left.st_mode & 0o777, left.st_mtime > 0) == ('secret', 0o640, True)


# --- weaker systems

def in_a_process(script):
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, env=env)


def test_without_namespaces_sockets_are_blocked_and_the_result_says_so():
    done = in_a_process('''
import socket, sys
from eqtutor.labs import _worker
sys.platform = 'other'
done = _worker.isolate()
assert done == {'network': 'blocked in the process only', 'processes': 'not separated',
                'files': 'not protected', 'calls': 'not filtered'}, done
for use in (socket.socket, lambda: socket.create_connection(('localhost', 1)),
            lambda: socket.getaddrinfo('localhost', 1)):
    try: use()
    except OSError as error: assert 'no network' in str(error)
    else: raise SystemExit('a socket')''')
    assert done.returncode == 0, done.stderr


class OldKernel:
    "A system library whose kernel refuses what is asked."
    syscall = prctl = staticmethod(lambda *args: -1)


def test_without_landlock_or_seccomp_nothing_is_claimed(monkeypatch):
    "On another architecture the numbers of calls are not known: none is filtered by a wrong one."
    assert not worker.restrict_files(OldKernel()) and not worker.refuse_calls(OldKernel())
    monkeypatch.setattr(os, 'uname', lambda: os.uname_result(('Linux', '', '', '', 'riscv64')))
    assert not worker.refuse_calls(ctypes.CDLL(None))


@pytest.mark.skipif(os.uname().machine != 'x86_64', reason='the numbers are those of x86_64')
def test_the_filter_refuses_what_its_names_say():
    "A process of its own filters itself, and tries a call of each kind."
    done = in_a_process('''
import ctypes, os, socket
from eqtutor.labs import _worker
libc = ctypes.CDLL(None)
assert libc.prctl(_worker.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and _worker.refuse_calls(libc)
tries = {'socket': socket.socket, 'chmod': lambda: os.chmod('.', 0o777),
         'utime': lambda: os.utime('.'), 'chown': lambda: os.chown('.', 0, 0),
         'setxattr': lambda: os.setxattr('.', 'user.a', b'1'),
         'execve': lambda: os.execv('/bin/true', ['true'])}
for name, use in tries.items():
    try: use()
    except PermissionError: continue
    raise SystemExit(name)
assert os.getpid() and open('/dev/null').read() == \'\'''')
    assert done.returncode == 0, done.stderr


def test_grading_needs_fork(monkeypatch):
    monkeypatch.delattr(os, 'fork')
    with pytest.raises(RuntimeError, match='use WSL'): Sandbox()


def test_a_process_that_does_not_start_is_explained(monkeypatch):
    monkeypatch.setattr(sys, 'executable', '/bin/true')
    with Sandbox() as box, pytest.raises(RuntimeError, match='does not start'):
        grade_answer(CENTRE, RIGHT, box)


def test_a_process_that_was_ended_is_started_again(box):
    grade_answer(CENTRE, RIGHT, box)
    os.kill(box.server.pid, signal.SIGKILL)
    assert grade_answer(CENTRE, RIGHT, box).message == 'the answer ended the process that grades'
    assert grade_answer(CENTRE, RIGHT, box).marks == 3
