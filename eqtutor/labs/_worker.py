"""The process that runs strangers' answers, each in a confined copy of itself.

`sandbox` starts this file by its path, so that nothing of `eqtutor.labs` but `values` and `prelude`
is ever in its memory: no right answer, no mistake, no mark. Importing torch takes seconds; the
process does it once and *forks* for each answer, in milliseconds. A fork that answers

- has namespaces of its own: no network, and no other process to reach;
- is held by Landlock to reading libraries, and of eqtutor all but this folder and the course;
- is kept by a seccomp filter from what those leave open: sockets, modes, times, other programs;
- has limits on time, memory, files and processes.

Jobs come as lines of JSON, and so do replies: {'answers': …}, {'broken': …} or {'stopped': …}.
Where a system gives less, the reply to a probe says what is missing.
"""
# Plain module: edited by hand, no notebook exports it.
import ctypes
import functools
import json
import os
import re
import select
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

# --- Linux's own numbers, which Python has no names for

CLONE_NEWIPC = 1 << 27
CLONE_NEWUSER = 1 << 28
CLONE_NEWPID = 1 << 29
CLONE_NEWNET = 1 << 30
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET = 444   # calls, with one number on all architectures
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_VERSION = 1            # a flag: say which version there is
LANDLOCK_PATH_BENEATH = 1       # a kind of rule
READ_FILE, READ_DIR = 1 << 2, 1 << 3
ALL_RIGHTS = (1 << 13) - 1      # bits 0 to 12: execute, write, read, list, remove, make
TRUNCATE = 1 << 14              # since version 3

SECCOMP_MODE_FILTER = 2
LOAD, RETURN = 0x20, 0x06                     # steps of a filter
IF_EQUAL, IF_AT_LEAST = 0x15, 0x35
NUMBER_OF_CALL, ARCHITECTURE = 0, 4            # offsets in what a filter reads
ALLOW, REFUSE = 0x7fff0000, 0x00050001         # REFUSE: EPERM
X32_CALLS = 0x40000000                         # from here on, another architecture's

# refused on every architecture, with one number everywhere
NEW_CALLS = {'io_uring_setup': 425, 'fchmodat2': 452, 'setxattrat': 463, 'removexattrat': 466,
             'file_setattr': 469}
X86_64_CALLS = {
    'shmget': 29, 'socket': 41, 'connect': 42, 'socketpair': 53, 'execve': 59, 'truncate': 76,
    'chmod': 90, 'fchmod': 91, 'chown': 92, 'fchown': 93, 'lchown': 94, 'ptrace': 101, 'utime': 132,
    'setxattr': 188, 'lsetxattr': 189, 'fsetxattr': 190, 'removexattr': 197, 'lremovexattr': 198,
    'fremovexattr': 199, 'utimes': 235, 'add_key': 248, 'keyctl': 250, 'fchownat': 260,
    'futimesat': 261, 'fchmodat': 268, 'utimensat': 280, 'execveat': 322}
AARCH64_CALLS = {
    'setxattr': 5, 'lsetxattr': 6, 'fsetxattr': 7, 'removexattr': 14, 'lremovexattr': 15,
    'fremovexattr': 16, 'truncate': 45, 'fchmod': 52, 'fchmodat': 53, 'fchownat': 54, 'fchown': 55,
    'utimensat': 88, 'ptrace': 117, 'shmget': 194, 'socket': 198, 'socketpair': 199, 'connect': 203,
    'add_key': 217, 'keyctl': 219, 'execve': 221, 'execveat': 281}
# machine -> how the kernel calls it, and the calls that are refused there
ARCHITECTURES = {'x86_64': (0xC000003E, X86_64_CALLS), 'aarch64': (0xC00000B7, AARCH64_CALLS)}

LARGEST_REPLY = 2**25   # bytes


# --- confinement

@functools.cache
def readable_places()->list[Path]:
    """What an answer may read: libraries, and of eqtutor all but the labs and the course.

    Notebooks, home folders and other submissions are none of it.
    """
    import sysconfig
    package = Path(sys.modules['eqtutor'].__path__[0]).resolve()
    stdlib = Path(sysconfig.get_path('stdlib'))
    packages = [Path(p) for p in (*sys.path, f'{stdlib}/site-packages') if p.endswith('-packages')]
    of_system = f'{sys.base_prefix}/lib', '/lib', '/lib64', '/usr/lib', '/usr/lib64'
    system = [Path(p) for p in of_system]
    copies = {(p/'eqtutor').resolve() for p in packages if (p/'eqtutor').is_dir()}
    hidden = {package, *copies}   # a second copy has the answers, too
    folders = dict.fromkeys(p.resolve() for p in (stdlib, *packages, *system) if p.is_dir())
    libraries = [place for p in folders for place in places_below(p, hidden)]
    devices = ('/dev/null', '/dev/urandom', '/proc/cpuinfo', '/proc/meminfo',
               '/sys/devices/system/cpu')
    return libraries + own_places(package) + [Path(p) for p in devices]


def places_below(folder:Path, hidden:set[Path])->list[Path]:
    "The folder, or if something hidden lies in it, what lies beside that."
    if folder in hidden: return []
    if not any(folder in h.parents for h in hidden): return [folder]
    inside = [p for p in folder.iterdir() if not p.is_symlink()]
    return [place for p in inside for place in places_below(p, hidden)]


def own_places(package:Path)->list[Path]:
    "What an answer may read of eqtutor."
    closed = {'labs', 'course', '__pycache__'}
    compiled = [p for p in package.glob('__pycache__/*') if not p.name.startswith('labs.')]
    return [p for p in package.iterdir() if p.name not in closed] + compiled


def restrict_files(libc:Any)->bool:
    "Landlock: no right to files for this process and its forks but to read what is readable."
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    if version < 1: return False
    rights = ctypes.c_uint64(ALL_RIGHTS | (TRUNCATE if version >= 3 else 0))
    rules = libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(rights), 8, 0)
    if rules < 0: return False
    for place in readable_places():
        try:
            fd = os.open(place, os.O_PATH)
        except OSError:
            continue
        allowed = READ_FILE | READ_DIR if place.is_dir() else READ_FILE
        rule = allowed.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        libc.syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_PATH_BENEATH, rule, 0)
        os.close(fd)
    done = libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return done


def filter_step(code:int, if_true:int, if_false:int, operand:int)->bytes:
    "One step of a seccomp filter; a condition says how many steps to skip."
    return (code.to_bytes(2, sys.byteorder) + bytes((if_true, if_false))
            + operand.to_bytes(4, sys.byteorder))


def call_filter(architecture:int, numbers:list[int])->list[bytes]:
    "The filter that refuses these calls, and all calls of another architecture."
    n = len(numbers)
    return [filter_step(LOAD, 0, 0, ARCHITECTURE), filter_step(IF_EQUAL, 0, n + 3, architecture),
            filter_step(LOAD, 0, 0, NUMBER_OF_CALL), filter_step(IF_AT_LEAST, n + 1, 0, X32_CALLS),
            *(filter_step(IF_EQUAL, n - i, 0, number) for i, number in enumerate(numbers)),
            filter_step(RETURN, 0, 0, ALLOW), filter_step(RETURN, 0, 0, REFUSE)]


def refuse_calls(libc:Any)->bool:
    "A seccomp filter against sockets, modes, times, other programs, shared memory."
    architecture, calls = ARCHITECTURES.get(os.uname().machine, (0, {}))
    if not architecture: return False   # the numbers of the calls are not known
    steps = call_filter(architecture, [*calls.values(), *NEW_CALLS.values()])
    class Program(ctypes.Structure):
        _fields_ = [('n', ctypes.c_ushort), ('steps', ctypes.c_char_p)]
    program = Program(len(steps), b''.join(steps))
    return libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0


def leave_namespaces(libc:Any)->bool:
    """Namespaces of its own for network, processes and memory.

    Forks: the process that goes on is the one to use.
    """
    spaces = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC
    if libc.unshare(CLONE_NEWUSER | spaces) != 0 and libc.unshare(spaces) != 0: return False
    # the child is the first process of the new namespace: when it ends, all others in it end
    if inner := os.fork():
        status = os.waitpid(inner, 0)[1]
        os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    return True


def block_sockets()->None:
    "No network inside this process, as far as Python goes."
    import socket
    def blocked(*args:Any, **kwargs:Any)->None: raise OSError('an answer has no network')
    for name in ('socket', 'create_connection', 'socketpair', 'getaddrinfo'):
        setattr(socket, name, blocked)


def isolate()->dict[str, str]:
    """Cut the process off, as far as the system allows; what was done, in words.

    May fork: the process that goes on is the one to use.
    """
    done = {'network': 'blocked in the process only', 'processes': 'not separated',
            'files': 'not protected', 'calls': 'not filtered'}
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == 'linux' else None
    if libc and leave_namespaces(libc):
        done |= {'network': 'own namespace', 'processes': 'own namespace'}
    else:
        block_sockets()
    try:   # if memory runs out, this process goes first
        Path('/proc/self/oom_score_adj').write_text('1000')
    except OSError:
        pass
    # no new privileges, or an ordinary user may not do what follows
    if libc and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        if restrict_files(libc): done['files'] = 'read only'
        if refuse_calls(libc): done['calls'] = 'filtered'
    return done


def memory_now()->int:
    "Bytes of address space this process has; 0 if unknown."
    try:
        pages = int(Path('/proc/self/statm').read_text().split()[0])
    except OSError:
        return 0
    return pages*os.sysconf('SC_PAGE_SIZE')


def set_limits(
    seconds:int,
    memory:int, # MB, beyond what the process has
    now:int,    # bytes, of `memory_now`; no limit on memory if 0
)->None:
    "Limits on CPU time, memory, files and processes."
    import resource
    limits = {'RLIMIT_CPU': seconds + 2, 'RLIMIT_CORE': 0, 'RLIMIT_FSIZE': 0, 'RLIMIT_NOFILE': 64,
              'RLIMIT_NPROC': 0}
    if now: limits['RLIMIT_AS'] = now + memory*2**20
    for name, value in limits.items(): resource.setrlimit(getattr(resource, name), (value, value))


# --- an answer

def without_magics(source:str)->str:
    "The source without lines for IPython (`%time`, `!ls`); what Python understands stays."
    plain = source
    for magic in (r'^[%!].*$', r'^[ \t]*[%!].*$'):
        try:
            compile(plain, '<answer>', 'exec')
        except SyntaxError:
            plain = re.sub(magic, '', source, flags=re.M)
    return plain


def answer_job(job:dict, names:dict)->dict:
    "Run one answer's cell and put the cases to its function."
    from eqtutor.labs.values import answer_cases, decode
    space = dict(names)
    try:
        exec(compile(without_magics(job['source']), '<answer>', 'exec'), space)
    except NotImplementedError:
        return {'answers': [{'unsolved': True}]*len(job['cases'])}
    except (Exception, SystemExit) as error:
        return {'broken': f'{type(error).__name__}: {error}'[:500]}
    if not callable(space.get(job['name'])):
        return {'broken': f'the cell defines no function `{job["name"]}`'}
    return {'answers': answer_cases(space[job['name']], job['call'], decode(job['cases']), names)}


def answer_confined(job:dict, names:dict, pipe:int)->None:
    "The life of a forked process: cut itself off, answer, write the answer into the pipe."
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2): os.dup2(null, fd)
    pipe = os.dup2(pipe, 3)
    os.closerange(4, 4096)
    now = memory_now()   # after `isolate`, /proc cannot be read
    isolation = isolate()
    set_limits(job['seconds'], job['memory'], now)
    try:
        reply = {'isolation': isolation} if job.get('probe') else answer_job(job, names)
        data = json.dumps(reply).encode()
    except BaseException as error:
        data = json.dumps({'broken': f'{type(error).__name__}: {error}'[:500]}).encode()
    while data: data = data[os.write(pipe, data):]
    os._exit(0)


# --- the process that forks

def collect(pipe:int, seconds:float)->tuple[bytes, str]:
    "What the fork writes, and what became of it: 'ended', 'time' or 'size'."
    data, deadline = b'', time.monotonic() + seconds
    while True:
        ready = select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]
        if not ready: return data, 'time'
        chunk = os.read(pipe, 2**20)
        if not chunk: return data, 'ended'
        data += chunk
        if len(data) > LARGEST_REPLY: return data, 'size'


def kill_quietly(kill:Any, pid:int)->None:
    "`os.kill` or `os.killpg`, of what may have ended already."
    try:
        kill(pid, signal.SIGKILL)
    except OSError:
        pass


def children_of_this()->list[int]|None:
    "The processes whose parent we are; None if the system does not say."
    place = Path(f'/proc/self/task/{os.getpid()}/children')
    return [int(child) for child in place.read_text().split()] if place.exists() else None


def reap(pid:int, patience:float)->None:
    "Wait a moment for a process, then end it with all that came from it."
    gone, deadline = False, time.monotonic() + patience
    while not gone and time.monotonic() < deadline:
        gone = os.waitpid(pid, os.WNOHANG)[0] == pid
        if not gone: time.sleep(.001)
    kill_quietly(os.killpg, pid)
    while True:   # what hid in a session of its own has come to us, the reaper of our descendants
        children = children_of_this()
        if children is None: children = [] if gone else [pid]
        for child in children: kill_quietly(os.kill, child)
        try:
            gone = os.waitpid(-1, 0)[0] == pid or gone
        except ChildProcessError:
            return


def run_apart(job:dict, names:dict)->dict:
    "Fork, answer there, and report: {'answers'}, {'broken'} or {'stopped'}."
    receive, send = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer_confined(job, names, send)
        finally:
            os._exit(1)
    os.close(send)
    data, ending = collect(receive, job['seconds'] + 1)
    os.close(receive)
    reap(pid, .5 if ending == 'ended' else 0)
    if ending == 'time': return {'stopped': f'no answer within {job["seconds"]} s'}
    if ending == 'size': return {'stopped': 'the answer is too large'}
    try:
        return dict(json.loads(data))
    except ValueError:
        wrote = 'wrote something that is no answer' if data else 'ended before it gave an answer'
        return {'stopped': f'the process {wrote}'}


def import_prelude()->dict[str, Any]:
    """What an answer finds by name.

    In the place of `eqtutor.labs` stands a module with a `check` that does nothing.
    """
    stand_in:Any = types.ModuleType('eqtutor.labs')
    stand_in.check = lambda *args, **kwargs: None   # an answer that calls it is careless, not wrong
    stand_in.__path__ = [str(Path(__file__).parent)]
    sys.modules['eqtutor.labs'] = stand_in
    from eqtutor.labs import prelude, values   # noqa: F401
    stand_in.__path__ = []                     # nothing more is to be had here
    return {name: value for name, value in vars(prelude).items() if not name.startswith('__')}


def serve()->None:
    "Answer jobs, a line of JSON each, until the input ends."
    channel = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)   # whatever an import prints does not meet the answers
    import eqtutor   # noqa: F401
    names = import_prelude()
    torch = names['torch']
    torch.set_num_threads(1)
    # what torch loads late, it loads here, once; what is readable is looked up once, too
    torch.nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 3, 3)).sum().backward()
    readable_places()
    if sys.platform == 'linux':   # orphans come to us
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        channel.write(json.dumps(run_apart(json.loads(line), names)) + '\n')
        channel.flush()


if __name__ == '__main__':
    sys.path[:] = json.loads(sys.argv.pop())
    serve()
