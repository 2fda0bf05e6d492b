"""Forty submissions that mean harm: the body of a `centre`, and what stands above it.

KEY, FOLDER and PORT are replaced by a file, a folder and a port of the grader's machine; WORD is a
word that stands in somebody else's submission, and MARK what all secrets of the teacher begin with,
each cut in two so that it does not stand in this one.

And modules that mean harm, handed in beside the notebooks.
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
def memory_of(pid):
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb') as memory:
        for line in maps:
            low, high = (int(x, 16) for x in line.split()[0].split('-'))
            try:
                memory.seek(low)
                yield memory.read(min(high - low, 2**24))
            except (OSError, ValueError, OverflowError): pass
def pieces():
    for pid in sorted(p for p in os.listdir('/proc') if p.isdigit()):
        try:
            for name, read in files_of(pid):
                try: yield f'{pid}/{name}', read()
                except OSError: pass
        except OSError: pass
    yield '1/mem', b''.join(memory_of(1))
    for name in ('mounts', 'self/environ'): yield name, open(f'/proc/{name}', 'rb').read()
def look(wanted):
    seen, found = [], []
    for place, data in pieces():
        if wanted in place: seen.append(place)
        found += [(place, m[0].decode()) for m in re.finditer(b'MA' b'RK' b'-[a-z]+', data)]
    raise ValueError(f'{found[:9]}, looked at {seen[:20]}')'''
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
         'libc.shmget(0, 2**20, 0o600)]\n    raise ValueError(made[:2])')
THIEF = '''
import types, eqtutor
m = types.ModuleType('m')
m.__package__ = 'eqtutor.tutor.answers'
file = eqtutor.__path__[0] + '/tutor/answers/ch01.py'
exec(compile(open(file).read(), 'x', 'exec'), m.__dict__)
centre = m.centre'''
REPLACED = ('import eqtutor.tutor as labs\n'
            'labs.check = labs.judge = labs.grade_answer = lambda *a: True')

HOSTILE = {
    # marks
    'forged print': ("print('1.2 passed'); return None", ''),
    'forged table': ("open('marks.csv', 'w').write('8'); return None", ''),
    'clever object': ('return Any()', 'class Any:\n    def __eq__(self, other): return True'),
    'another checker': ('return None', REPLACED),
    'the right answers': ("return get_exercise('1.2').right(group)",
                          'from eqtutor.tutor.exercise import get_exercise'),
    'their module': ('return right(group)',
                     'from eqtutor.tutor.answers.ch01 import centre as right'),
    'their file': ('return None', THIEF),
    'their notebook': ("raise ValueError(open('FOLDER/01_groups.ipynb').read())", ''),
    'forged reply': ("import os; data = b'" + ANSWER % '[0]' + "'" + WRITE, ''),
    'another student': ('return None', SEARCH),
    # files and network
    'passwd': ("raise ValueError(open('/etc/passwd').read())", ''),
    'read': ("raise ValueError(open('KEY').read())", ''),
    'list': ("import os; raise ValueError(os.listdir('FOLDER'))", ''),
    'write': ("open('KEY', 'w').write('mine')", ''),
    'remove': ("import os; os.remove('KEY')", ''),
    'the package': ("import eqtutor; open(eqtutor.__file__, 'a').write('x = 1')", ''),
    'a library': ("open(torch.__file__, 'a').write('x = 1')", ''),
    'through proc': ("import os; raise ValueError([os.listdir(f'/proc/{p}/root/..') for p in "
                     "os.listdir('/proc') if p.isdigit()])", ''),
    'variables': ("raise ValueError([v for v in open('/proc/1/environ').read().split(chr(0)) "
                  "if v.startswith('TOKEN')])", ''),
    'all of proc': ("look('1/')", LOOK),
    'sysctl': ("open('/proc/sys/kernel/hostname', 'w').write('mine')", ''),
    'a server': ("import socket; socket.create_connection(('127.0.0.1', PORT)); return [0]", ''),
    'mount': (MOUNT, 'import ctypes'),
    'shared memory': ("open('/dev/shm/x', 'wb').write(bytes(2**20)); return [0]", ''),
    'a full folder': ("import os\n    for i in range(99): open(f'/tmp/{i}', 'wb').write("
                      "bytes(2**20))\n    return [0]", ''),
    # processes
    'kill all': ('import os; os.kill(-1, 9); return [0]', ''),
    'kill the parent': ('import os; os.kill(os.getppid(), 9)', ''),
    'stop the parent': ('import os; os.kill(os.getppid(), 19); return [0]', ''),
    'limits of the parent': ('import os, resource; resource.prlimit(os.getppid(), '
                             'resource.RLIMIT_CPU, (0, 0)); return [0]', ''),
    'fork storm': (STORM, ''),
    'a process left behind': (HIDDEN, ''),
    'another program': ("import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 600'])", ''),
    # time and memory
    'loop': ('while True: pass', ''),
    'loop in C': ('return sum(range(10**12))', ''),
    'deaf': ('import signal, time\n    for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n'
             '    time.sleep(60)', ''),
    'memory': ('return [bytearray(10**8) for _ in range(100)]', ''),
    'memory of many': ('return forks(12, 2*10**8)', FORKS),
    # results
    'array bomb': (BOMB + WRITE, ''),
    'large group': (LARGE_GROUP, ''),
    'long name': (LONG_NAME, ''),
    'nested': (NESTED + WRITE, ''),
    'a long lie': (LIE + WRITE, ''),
    'a long number': ("import os; data = b'" + ANSWER % "' + b'9'*10**5 + b'" + "'" + WRITE, ''),
    'escapes': (r"raise ValueError('\x1b[2J\x1b]0;mine\x07<script>alert(1)</script>')", ''),
}

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
