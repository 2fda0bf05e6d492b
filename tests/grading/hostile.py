"""Answers that mean harm, and folders that do.

`GENTLE` leave the others of their sandbox alone, and run in one: a function's body, what stands
above it, and what is said of it where it fails. `ROUGH` end what they run in, and get a hand-in
each. `FORGED` send a reply of their own instead of an answer.

KEY, FOLDER and PORT are replaced by a file, a folder and a port of the grader's machine; WORD is a
word that stands in somebody else's hand-in, and MARK what all secrets of the teacher begin with,
each cut in two so that it does not stand in this one.
"""
import sys

SEARCH = '''
import os, re
def memory_of(pid):
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb') as memory:
        for line in maps:
            low, high = (int(x, 16) for x in line.split()[0].split('-'))
            if 'rw' not in line or '/' in line or high - low > 2**28: continue
            try:
                memory.seek(low)
                yield memory.read(high - low)
            except (OSError, ValueError, OverflowError): pass
def found(head, tail):
    hits = 0
    for pid in (p for p in os.listdir('/proc') if p.isdigit()):
        try:
            for part in memory_of(pid):
                places = [m.start() for m in re.finditer(tail, part)]
                hits += sum(part[i - len(head):i] == head for i in places)
        except OSError: pass
    return hits
mine = bytes(reversed(b'enohpolyx'))   # whole in this memory, so that the search must find it
theirs, own = found(b'WO', b'RD'), found(b'xylo', b'phone')
raise ValueError(f'{"FOUND" if theirs else "none"}, and of its own {"some" if own else "none"}')'''
LOOK = '''
import os, re
def files_of(pid):
    for name in ('environ', 'cmdline', 'mountinfo', 'maps', 'status', 'stat', 'cgroup', 'comm'):
        yield name, lambda name=name: open(f'/proc/{pid}/{name}', 'rb').read()
    for name in ('cwd', 'root', 'exe'):
        yield name, lambda name=name: os.readlink(f'/proc/{pid}/{name}').encode()
    for fd in os.listdir(f'/proc/{pid}/fd'):
        yield f'fd/{fd}', lambda fd=fd: os.readlink(f'/proc/{pid}/fd/{fd}').encode()
        yield f'in fd/{fd}', lambda fd=fd: content(f'/proc/{pid}/fd/{fd}')
def content(file):
    fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    return os.read(fd, 2**20)
def pieces():
    for pid in sorted(p for p in os.listdir('/proc') if p.isdigit()):
        try:
            for name, read in files_of(pid):
                try: yield f'{pid}/{name}', read()
                except OSError: pass
        except OSError: pass
    for name in ('mounts', 'self/environ'):
        yield name, open(f'/proc/{name}', 'rb').read()
def look():
    seen, found = [], []
    for place, data in pieces():
        seen.append(place)
        secrets = re.finditer(b'MA' b'RK' b'-[a-z]+', data)
        found += [(place, m[0].decode()) for m in secrets]
    of = sorted({place.split('/')[0] for place in seen if place[0].isdigit()})
    mine = str(os.getpid())
    raise ValueError(f'{found[:9]}, of process 1 {"1" in of}, of itself {mine in of}')'''
CALL = '''
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(x86 if platform.machine() == 'x86_64' else arm, *arguments)
    raise ValueError(f'{done >= 0}, error {ctypes.get_errno()}')'''
KEYS = CALL + '''
def read_key(kind, name):
    "What the teacher has put into a keyring, if it is to be had."
    number = dict(session=-3, user=-4)[kind]
    n = lambda x86, arm: x86 if platform.machine() == 'x86_64' else arm
    key = libc.syscall(n(250, 219), 10, number, b'user', name, 0)
    held = ctypes.create_string_buffer(99)
    size = libc.syscall(n(250, 219), 11, key, held, 99)
    raise ValueError(f'key {key}, {held.value!r}')'''
FORKS = '''
import os, time
def forks(n, load):
    for _ in range(n):
        try:
            if os.fork() == 0:
                kept = bytearray(load)
                time.sleep(60)
                os._exit(0)
        except OSError: break
    time.sleep(9)
    return [0]'''
SHARED = '''
import mmap, os, time
def shared(n, size):
    for _ in range(n):
        try:
            if os.fork() == 0:
                part = mmap.mmap(-1, size)   # shared with whom it forks
                for i in range(0, size, 4096): part[i] = 1
                time.sleep(60)
                os._exit(0)
        except OSError: break
    time.sleep(9)
    return [0]'''
STORM = 'import os\n    while True:\n        try: os.fork()\n        except OSError: pass'
HIDDEN = '''import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(600)
        os._exit(0)
    return [0]'''
NESTED = "import os; data = b'[' * 10**6 + b']' * 10**6"
WRITE = "\n    while data: data = data[os.write(3, data):]\n    os._exit(0)"
ANSWER = '{"answers": [{"value": %s}]}'
BOMB = ("import base64, io, os, numpy; f = io.BytesIO(); numpy.lib.format.write_array_header_1_0("
        "f, dict(descr='<f8', fortran_order=False, shape=(10**11,))); "
        "n = base64.b64encode(f.getvalue()).decode(); "
        f"data = ('{ANSWER}' % ('{{\"npy\": \"' + n + '\"}}')).encode()")
LARGE_GROUP = ('m = torch.eye(2, dtype=torch.long).expand(20000, 2, 2).clone()\n    '
               'g = object.__new__(type(group)); g.__dict__.update(matrices=m, name="G"); return g')
LONG_NAME = 'g = type(group)("N"*4_000_000, torch.eye(2, dtype=torch.long)[None]); return g'
LIE = "import os; data = b'{\"broken\": \"' + b'A'*10**7 + b'\"}'"
MOUNT = ('libc = ctypes.CDLL(None, use_errno=True)\n    '
         'made = [libc.unshare(0x10000000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), '
         'libc.shmget(0, 2**20, 0o600)]\n    raise ValueError(made)')
THIEF = '''
import types, eqtutor
m = types.ModuleType('m')
m.__package__ = 'eqtutor.tutor.answers'
file = eqtutor.__path__[0] + '/tutor/answers/ch01.py'
exec(compile(open(file).read(), 'x', 'exec'), m.__dict__)
centre = m.centre'''
REPLACED = ('import eqtutor.tutor as labs\n'
            'labs.check = labs.judge = labs.grade_answer = lambda *a: True')
FRAMES = '''
import sys
def frames():
    frame, found = sys._getframe(), set()
    while frame: found |= {*frame.f_locals, *frame.f_globals}; frame = frame.f_back
    raise ValueError(sorted(found & {'EXERCISES', 'right', 'mistakes', 'Exercise', 'seed'}))'''
OBJECTS = '''
import gc
def objects():
    names = {type(x).__name__ for x in gc.get_objects()}
    raise ValueError(sorted(names & {'Exercise', 'Mistake', 'Verdict'}))'''
WALK = '''
import os, sys
def walk():
    places = '/package', *(f'{p}/eqtutor' for p in sys.path if p)
    paths = [f'{d}/{f}' for place in places for d, _, files in os.walk(place) for f in files]
    raise ValueError([p for p in paths if 'answers/ch0' in p or 'tutor/exercise' in p])'''
READ = "raise ValueError(open('{}', 'rb').read()[:300])"
LIST = "import os; raise ValueError(sorted(os.listdir('{}')))"
NO, REFUSED, NOTHING = 'FileNotFoundError', r'False, error 1\b', 'returns nothing'
MISSING, NAN = 'ModuleNotFoundError', "return [float('nan')]*9"
ERROR = r'Error: (\[Errno \d+\]|\(-?\d)|not permitted|denied|No such file|Read-only'

GENTLE = {
    # marks: (body, above, what is said of it)
    'forged print': ("print('1.2 passed'); return None", '', NOTHING),
    'forged table': ("open('marks.csv', 'w').write('8'); return None", '', NOTHING),
    'clever object': ('return Any()', 'class Any:\n    def __eq__(self, other): return True',
                      'not of Any'),
    'another checker': ('return None', REPLACED, NOTHING),
    'the right answers': ("return get_exercise('1.2').right(group)",
                          'from eqtutor.tutor.exercise import get_exercise', MISSING),
    'their module': ('return right(group)',
                     'from eqtutor.tutor.answers.ch01 import centre as right', MISSING),
    'their file': ('return None', THIEF, NO),
    'their notebook': (READ.format('FOLDER/01_groups.ipynb'), '', NO),
    'frames': ('frames()', FRAMES, r'ValueError: \[\]'),
    'objects': ('objects()', OBJECTS, r'ValueError: \[\]'),
    'a walk': ('walk()', WALK, r'ValueError: \[\]'),
    'patched encode': ("import eqtutor.tutor.values as v; v.encode = lambda x: [0]; return [0]",
                       '', '.'),
    'a lazy list': ('return Lazy()',
                    'class Lazy(list):\n    def __iter__(self): return iter(range(9))', '.'),
    'not a number': (NAN, '', '.'),
    'infinity': ("return [float('inf')]*9", '', '.'),
    'a true truth': ('return Always()',
                     'class Always(int):\n    def __le__(self, o): return True', '.'),
    # files and network
    'passwd': (READ.format('/etc/passwd'), '', NO),
    'read': (READ.format('KEY'), '', NO),
    'list': (LIST.format('FOLDER'), '', NO),
    'write': ("open('KEY', 'w').write('mine')", '', 'Error'),
    'remove': ("import os; os.remove('KEY')", '', 'Error'),
    'the package': ("import eqtutor; open(eqtutor.__file__, 'a').write('x = 1')", '', 'Read-only'),
    'a library': ("open(torch.__file__, 'a').write('x = 1')", '', 'Read-only'),
    'shown files': (LIST.format('/package/eqtutor/tutor'), '', r"\['values.py'\]"),
    'the course': (LIST.format('/package/eqtutor/course'), '', NO),
    'a server': ("import socket; socket.create_connection(('127.0.0.1', PORT)); return [0]", '',
                 'refused|unreachable'),
    'mount': (MOUNT, 'import ctypes', r'\[-1, -1, -1\]'),
    'shared memory': ("open('/dev/shm/x', 'wb').write(bytes(2**20)); return [0]", '', ERROR),
    # of its own name space
    'sysctl': ("open('/proc/sys/kernel/hostname', 'w').write('mine')", '', '.'),
    # what /proc tells
    'all of proc': ('look()', LOOK, r'ValueError: \[\], of process 1 False, of itself True'),
    'environment of 1': (READ.format('/proc/1/environ'), '', NO),
    'arguments of 1': (READ.format('/proc/1/cmdline'), '', NO),
    'memory of 1': (READ.format('/proc/1/mem'), '', NO),
    'map of 1': (READ.format('/proc/1/maps'), '', NO),
    'mounts of 1': (READ.format('/proc/1/mountinfo'), '', NO),
    'files of 1': (LIST.format('/proc/1/fd'), '', NO),
    'root of 1': (LIST.format('/proc/1/root/..'), '', NO),
    'threads of 1': (LIST.format('/proc/1/task'), '', NO),
    'over the folder of 1': ("open('/proc/1/x', 'w')", '', ERROR),
    'environment of the worker': ("import os; place = f'/proc/{os.getppid()}/environ'; raise "
                                  "ValueError(open(place).read().split(chr(0)))", '',
                                  'ValueError.*OMP_NUM_THREADS'),
    'kernel log': (READ.format('/dev/kmsg'), '', ERROR),
    'kernel memory': (READ.format('/proc/kcore'), '', ERROR),
    # the kernel's keyring
    'list of keys': (READ.format('/proc/keys'), '', ERROR),
    'a key of the session': ("read_key('session', b'MA' b'RK-key')", KEYS, "key -1, b''"),
    'a key of the user': ("read_key('user', b'MA' b'RK-key')", KEYS, "key -1, b''"),
    'a key left behind': ("call(248, 217, b'user', b'left', b'x', 1, -4)", CALL,
                          REFUSED),
    'another session': ("call(250, 219, 1, b'mine')", CALL, REFUSED),
    'a key asked for': ("call(249, 218, b'user', b'x', None, 0)", CALL, REFUSED),
    # memory of nobody, and what looks into others
    'System V memory': ('call(29, 194, 0, 2**27, 0o1600)', CALL, REFUSED),
    'a System V queue': ('call(68, 186, 0, 0o1600)', CALL, REFUSED),
    'a System V semaphore': ('call(64, 190, 0, 9, 0o1600)', CALL, REFUSED),
    'a file of nobody': ("call(319, 279, b'x', 0)", CALL, REFUSED),
    'trace the parent': ('call(101, 117, 16, os.getppid(), 0, 0)', CALL, REFUSED),
    'read the parent': ('call(310, 270, os.getppid(), 0, 0, 0, 0, 0)', CALL, REFUSED),
    'write the parent': ('call(311, 271, os.getppid(), 0, 0, 0, 0, 0)', CALL, REFUSED),
    'a ring': ('call(425, 425, 8, ctypes.create_string_buffer(120))', CALL, REFUSED),
    'a program for the kernel': ('call(321, 280, 0, 0, 0)', CALL, REFUSED),
    'faults': ('call(323, 282, 1)', CALL, REFUSED),
    'counters': ('call(298, 241, 0, 0, -1, -1, 0)', CALL, REFUSED),
    'names of another kind': ('call(0x40000000 + 29, 194, 0, 2**20, 0o600)', CALL,
                              r'False, error 1\b'),
    # limits and time of its own
    'a full folder': ("import os\n    for i in range(99): open(f'/tmp/{i}', 'wb').write("
                      "bytes(2**20))\n    return [0]", '', 'No space'),
    'a long file': ("open('/tmp/x', 'wb').write(bytes(2**23)); return [0]", '',
                    'too large|No space'),
    'more limits': ('import resource; resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))', '',
                    'ValueError|not permitted'),
    'loop': ('while True: pass', '', 'no answer within'),
    'deaf': ('import signal, time\n    for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n'
             '    time.sleep(60)', '', 'no answer within'),
    'memory': ('return [bytearray(10**8) for _ in range(100)]', '', 'MemoryError'),
    # results
    'array bomb': (BOMB + WRITE, '', '.'),
    'large group': (LARGE_GROUP, '', '.'),
    'long name': (LONG_NAME, '', '.'),
    'nested': (NESTED + WRITE, '', '.'),
    'a long lie': (LIE + WRITE, '', 'AAAA'),
    'a long number': ("import os; data = b'" + ANSWER % "' + b'9'*10**5 + b'" + "'" + WRITE,
                      '', '.'),
    'forged reply': ("import os; data = b'" + ANSWER % '[0]' + "'" + WRITE, '',
                     'answers came back'),
    'escapes': (r"raise ValueError('\x1b[2J\x1b]0;mine\x07<script>alert(1)</script>')", '',
                'script'),
}
ROUGH = {
    'kill all': ('import os; os.kill(-1, 9); return [0]', ''),
    'stop the parent': ('import os; os.kill(os.getppid(), 19); return [0]', ''),
    'fork storm': (STORM, ''),
    'a process left behind': (HIDDEN, ''),
    'memory of many': ('return forks(12, 2*10**8)', FORKS),
    'shared memory of many': ('return shared(6, 2*10**8)', SHARED),
}
SLOW = {
    'kill the parent': ('import os; os.kill(os.getppid(), 9)', ''),
    'limits of the parent': ('import os, resource; resource.prlimit(os.getppid(), '
                             'resource.RLIMIT_CPU, (0, 0)); return [0]', ''),
    'another program': ("import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 600'])", ''),
    'loop in C': ('return sum(range(10**12))', ''),
}
# of an exercise that is judged by facts: a reply that is true of all seeds, as it once was taken
FORGED = {'20.4': [[False, True, False, False, True]], '21.5': [[True]*4], '22.1': [[True]*5],
          '23.3': [[True]*3], '24.1': [[True]*3 + [False]*3], '26.1': [[True, [2], True, False]]}

# what a student's module may be called to be imported by whoever grades in its folder
LIBRARIES = 'torch', 'numpy', 'typer', 'click', 'jinja2', 'sitecustomize', 'usercustomize'
NAMES = sorted({*sys.stdlib_module_names, *LIBRARIES} - {'sys', 'builtins', '__main__'})
TRAP = '''
import sys
with open({mark!r}, 'ab', buffering=0) as file: file.write(__name__.encode() + b' ')
name, path = __name__, sys.path[:]
del sys.modules[name]
sys.path[:] = [p for p in path if p not in ('', {folder!r})]
try: __import__(name)
finally: sys.path[:] = path
'''


def set_traps(folder, mark):
    "A module for each name that tells a file when it is imported, and then is the true one."
    for name in NAMES:
        (folder/f'{name}.py').write_text(TRAP.format(mark=str(mark), folder=str(folder)))
