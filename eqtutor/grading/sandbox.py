"""Code of strangers: each hand-in in a sandbox of its own, answered in plain data.

To grade a copy means to run what somebody wrote. It may be wrong; it may also loop for ever, fill
the memory, quit, replace the checker, or print what a passed test prints. So nothing of it is
believed: only the cells that answer are run, by a process that bubblewrap shuts in, and plain data
come back. The process is started afresh for each hand-in: no process runs code of two.

What is confined:

- files: it sees, read only, the interpreter, the libraries, and of this package what `SHOWN` lists:
  no right answer, no mistake, no mark, no course. `/tmp` is its own, small, and gone at the end;
- network, processes, shared memory, host name, user: namespaces of its own, no capability;
- the kernel's keyring, System V memory, and calls that look into others: closed by a filter
  (`seccomp`). What remains is `/proc/PID/mem` of the worker, which holds nothing but its answers;
- what `/proc` tells: the folder of process 1, which is bubblewrap, is empty. It is started with an
  environment of our making, and reads its arguments from a file; so is the rest;
- time of each answer, and of all; the size of what it writes;
- memory, of each process by a limit, and of all together: where we may make a control group
  (cgroup) by that, and everywhere by a look at the processes twenty times a second, which ends the
  sandbox. Memory that processes share counts. The same for their number.

What is not: bubblewrap trusts the kernel, and so do we. Without a control group, processes can take
more than their share between two looks, each up to its own limit, and what the kernel keeps for
them (pipes, sockets, page tables) is not counted: `not_held` says so. `/proc/self/mountinfo` tells
where the libraries and this package lie on your disk. The answers to one hand-in's exercises share
a sandbox, so a student can disturb his own. Time of the processor is shared with the machine.

Without bubblewrap nothing is confined; `run` refuses, unless it is told `unsafe`.
"""
# Plain module: edited by hand, no notebook exports it.
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..interpreter import find_program, import_path
from .limits import (
    LARGEST_ANSWER,
    PATIENCE,
    SPARE,
    START,
    TEMPORARY,
    TICK,
    TORCH,
    Limits,
)
from .seccomp import closing

if os.name == 'posix':   # on Windows `check` works, and nothing here
    import resource

PACKAGE = Path(__file__).resolve().parents[1]
INSIDE = Path('/package/eqtutor')   # the package, as the sandbox sees it
# all that it sees of the package: what answers may use, and what runs them
SHOWN = ('__init__.py', 'names.py', 'interpreter.py', 'group_tables.py', 'groups.py',
         'actions.py', 'equivariance.py', 'core.py', 'kernels', 'nn', 'grading/limits.py',
         'grading/prelude.py', 'grading/worker.py', 'tutor/values.py')
SYSTEM = ('/usr/lib', '/usr/lib32', '/usr/lib64', '/usr/local/lib', '/lib', '/lib64', '/nix/store',
          '/etc/ld.so.cache', '/etc/alternatives', '/sys/devices/system/cpu')
NOBODY = '65534'
# of every process in a sandbox, bubblewrap included: what is inside reads it at /proc/1/environ
ENVIRONMENT = {'PATH': '/usr/bin', 'LANG': 'C.UTF-8', 'HOME': '/tmp', 'CUDA_VISIBLE_DEVICES': '',
               'EQTUTOR_NATIVE': '0',   # no compiler runs in there
               'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}

INSTALL = ('Grading runs what strangers wrote, and needs bubblewrap to shut it in. Install it: '
           '`apt-get install bubblewrap`, `dnf install bubblewrap` or `pacman -S bubblewrap` '
           '(version 0.8 or newer; Linux only: elsewhere grade in a virtual machine or container '
           'with Linux). `--unsafe` grades without it: then a submission can read, change and send '
           'whatever you can.')
REFUSED = ('bubblewrap is here, but this system refuses it or it is too old (0.8 is needed): {}. '
           'Ubuntu 24.04: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; Docker: '
           '`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`. '
           '`--unsafe` grades without it: then a submission can read, change and send whatever '
           'you can.')
UNSAFE = 'none (--unsafe)'


@dataclass(frozen=True)
class Task:
    "A stranger's function, and what to ask it."
    source:str # of its cell
    name:str   # of the function
    cases:Any  # arguments, of `encode`
    call:str='fn(*case)'


@dataclass(frozen=True)
class Submission:
    "What one person hands in: its tasks are run in one sandbox, and nobody else's."
    tasks:tuple[Task, ...]


def run(
    submission:Submission,
    limits:Limits=Limits(),
    unsafe:bool=False, # without bubblewrap, where the code is one's own
)->list[dict]:
    "What came of each task: {'answers'}, {'broken'} or {'stopped'}."
    if not hasattr(os, 'fork'):
        raise RuntimeError('grading needs Linux; on Windows use WSL. In a notebook, `check` works '
                           'everywhere.')
    if not unsafe and (why := without_isolation()): raise RuntimeError(why)
    tasks = [asdict(t) for t in submission.tasks]
    if not tasks: return []
    job = json.dumps({'tasks': tasks, 'limits': asdict(limits)}).encode()
    with worker_command(unsafe) as command: data, ending = talk(command, job, limits, len(tasks))
    return replies(data, ending, len(tasks))


# --- is there a sandbox?

@functools.cache
def without_isolation()->str:
    "Why nothing can be shut in here, and what to do about it; '' where it can."
    if not find_program('bwrap'): return INSTALL
    try:
        with confined(['-c', 'print("inside")']) as command:
            done = subprocess.run(**command.start(), capture_output=True, text=True, timeout=START,
                                  stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        return REFUSED.format(error)
    if done.stdout.strip() == 'inside': return ''
    return REFUSED.format(' '.join(done.stderr.split())[:300] or f'exit code {done.returncode}')


@functools.cache
def isolation(unsafe:bool=False)->str:
    "What shuts a hand-in in, in words, as every result holds it."
    if unsafe: return UNSAFE
    command = [str(find_program('bwrap')), '--version']
    version = subprocess.run(command, cwd='/', env=ENVIRONMENT, capture_output=True, text=True)
    filtered = 'a filter of system calls' if closing() else 'no filter of system calls'
    return ', '.join([version.stdout.strip(), filtered, *(f'cgroup {c}' for c in controllers())])


@functools.cache
def controllers()->tuple[str, ...]:
    "What the control groups that we may make here can limit: 'memory', 'pids'."
    with control_group(Limits()) as (_, controlled): return tuple(controlled)


def not_held(unsafe:bool=False)->str:
    "What no limit of this machine holds, in a sentence for whoever grades; '' if all is held."
    if unsafe: return 'Nothing is shut in: a hand-in can read, change and send whatever you can.'
    said = []
    if 'memory' not in controllers():
        said.append('No control group limits memory here: between two looks, twenty a second, a '
                    'hand-in can take more than its share, and what the kernel keeps for it '
                    '(pipes, sockets) is not counted. As root, or in a session that systemd '
                    'delegates (`systemd-run --user --scope -p Delegate=yes`), it is.')
    if closing() is None:
        said.append('There is no filter of system calls for this machine: keys in the kernel\'s '
                    'keyring can be read inside.')
    return ' '.join(said)


# --- the command

@dataclass(frozen=True)
class Command:
    "A program to start, and the open files that it reads."
    words:list[str]
    files:tuple[int, ...]=()

    def start(self)->dict[str, Any]:
        "How `subprocess` starts it: in the root folder, with an environment of our making."
        return {'args': self.words, 'cwd': '/', 'env': ENVIRONMENT, 'pass_fds': self.files}


@contextmanager
def worker_command(unsafe:bool)->Iterator[Command]:
    "What runs the process of a hand-in."
    def arguments(package:Path)->list[str]:
        "The worker's path, and where it finds modules beside the standard library."
        folders = [str(package.parent), *map(str, package_folders())]
        return [str(package/'grading'/'worker.py'), *folders]
    if unsafe: yield Command(interpreter(arguments(PACKAGE)))
    else:
        with confined(arguments(INSIDE)) as command: yield command


def interpreter(arguments:list[str])->list[str]:
    "Python without the user's variables, folders and start files; it writes no compiled files."
    return [os.path.realpath(sys.executable), '-I', '-S', '-B', *arguments]


def package_folders()->list[Path]:
    "The folders of installed packages."
    named = [Path(p) for p in dict.fromkeys(import_path()) if p.endswith('-packages')]
    return [p for p in named if p.is_dir()]


@contextmanager
def confined(arguments:list[str])->Iterator[Command]:
    "What runs Python with these arguments in a sandbox."
    options = ['--unshare-all', '--unshare-user', '--disable-userns', '--die-with-parent',
               '--new-session', '--cap-drop', 'ALL', '--uid', NOBODY, '--gid', NOBODY,
               '--hostname', 'sandbox', '--proc', '/proc', *hidden(), '--dev', '/dev',
               '--remount-ro', '/dev', '--size', str(TEMPORARY), '--tmpfs', '/tmp', *readable(),
               '--chdir', '/tmp', '--remount-ro', '/']
    with ExitStack() as stack:
        if program := closing():
            options += ['--seccomp', str(stack.enter_context(holding(program)))]
        told = stack.enter_context(holding(b''.join(os.fsencode(o) + b'\0' for o in options)))
        files = [told, *([int(options[-1])] if program else [])]
        words = [str(find_program('bwrap')), '--args', str(told), '--', *interpreter(arguments)]
        yield Command(words, tuple(files))


@contextmanager
def holding(content:bytes)->Iterator[int]:
    "A descriptor from which this can be read, once."
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


@functools.cache
def hidden()->tuple[str, ...]:
    "bubblewrap's words for what `/proc` does not show: process 1, which is its own; keys."
    keys = [p for p in ('/proc/keys', '/proc/key-users') if os.path.exists(p)]
    words = [word for p in keys for word in ('--ro-bind', '/dev/null', p)]
    return ('--tmpfs', '/proc/1', '--remount-ro', '/proc/1', *words)


@functools.cache
def readable()->tuple[str, ...]:
    "bubblewrap's words for what can be read: libraries, and of this package what is on the list."
    stdlib = [Path(sysconfig.get_path(name)) for name in ('stdlib', 'platstdlib')]
    libraries = [Path(sys.base_prefix)/'lib', *stdlib, *package_folders()]
    places = [*map(Path, SYSTEM), *libraries, Path(os.path.realpath(sys.executable))]
    places = [p for p in dict.fromkeys(places) if p.exists()]
    words = [word for p in places for word in ('--ro-bind', str(p), str(p))]
    # another copy of the package has the answers, too
    copies = {copy for p in places for copy in copies_below(p)}
    words += [word for p in sorted(copies) for word in ('--tmpfs', str(p), '--remount-ro', str(p))]
    bound = [('--ro-bind', str(PACKAGE/name), str(INSIDE/name)) for name in SHOWN]
    return (*words, *(word for binding in bound for word in binding))


def copies_below(folder:Path)->Iterator[Path]:
    "Installed copies of this package in a folder of libraries."
    for depth in ('', '*-packages/', '*/*-packages/'):
        yield from (p for p in folder.glob(f'{depth}eqtutor') if p.is_dir())


# --- the processes of a sandbox

def talk(
    command:Command,
    job:bytes,         # what the process reads
    limits:Limits,
    tasks:int,         # their number
)->tuple[bytes, str]:
    "Run the process: what it wrote, and how it ended: 'ended', or a limit it went over."
    with tempfile.TemporaryFile() as file, control_group(limits) as (prepare, _):
        file.write(job)
        file.seek(0)
        quiet:dict[str, Any] = {'stdin': file, 'stdout': subprocess.PIPE,
                                'stderr': subprocess.DEVNULL}
        process = subprocess.Popen(**command.start(), preexec_fn=prepare, start_new_session=True,
                                   **quiet)
        try:
            return listen(process, limits, tasks)
        finally:
            end(process)


def listen(process:subprocess.Popen, limits:Limits, tasks:int)->tuple[bytes, str]:
    "What the process writes, while time, memory, size and number of processes are in their limits."
    data, watch = b'', Watch(process.pid, limits)
    deadline = time.monotonic() + START
    pipe = process.stdout.fileno()   # type: ignore[union-attr]
    while time.monotonic() < deadline:
        if select.select([pipe], [], [], TICK)[0]:
            chunk = os.read(pipe, 2**20)
            if not chunk: return data, 'ended'
            # it has imported torch, and says so
            if not data: deadline = time.monotonic() + SPARE + tasks*(PATIENCE*limits.seconds + 1)
            data += chunk
            if len(data) > tasks*(LARGEST_ANSWER + 99): return data, 'its answers are too large'
        if data and (over := watch.over()): return data, over
    return data, 'no answer in time'


class Watch:
    "Memory and number of the processes below one, seen from outside."
    def __init__(self, root:int, limits:Limits):
        self.root, self.limits = root, limits
        self.torch, self.last = 0, 0.   # memory that torch took; when we looked

    def over(self)->str:
        "The limit that the processes are over; '' if none, or if it has just been looked."
        if time.monotonic() - self.last < TICK: return ''
        self.last = time.monotonic()
        below = processes_below(self.root)
        if len(below) > self.limits.processes + 4:   # bubblewrap's, and the one that answers
            return f'it started more than {self.limits.processes} processes'
        private = [private_memory(pid) for pid in below]
        self.torch = self.torch or max(private, default=0)
        beyond = sum(max(0, size - self.torch) for size in private)
        if beyond <= self.limits.memory*2**20: return ''
        return f'it took more than {self.limits.memory} MB of memory'


def private_memory(pid:int)->int:
    "Bytes of memory that are no file's, what is shared with other processes included."
    try:
        status = Path(f'/proc/{pid}/status').read_text()
    except (OSError, ValueError):
        return 0   # it has ended
    return sum(int(kb)*1024 for kb in re.findall(
        r'^(?:Rss(?:Anon|Shmem)|VmSwap):\s+(\d+) kB', status, re.M))


def processes_below(root:int)->list[int]:
    "A process and all that come from it; itself alone where the system does not say."
    children:dict[int, list[int]] = {}
    for stat in Path('/proc').glob('[0-9]*/stat'):
        try:
            parent = int(stat.read_bytes().rpartition(b')')[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    below = [root]
    for pid in below: below += children.get(pid, [])
    return below


def end(process:subprocess.Popen)->None:
    "End a process and all that come from it."
    for pid in processes_below(process.pid)[1:]: kill_quietly(pid)
    try:   # bubblewrap itself ends last, when the kernel has cleared the sandbox
        process.wait(1)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()


def kill_quietly(pid:int)->None:
    "End what may have ended already."
    with suppress(OSError): os.kill(pid, signal.SIGKILL)


# --- control groups

@contextmanager
def control_group(limits:Limits)->Iterator[tuple[Callable[[], None], list[str]]]:
    "What a new process calls to be limited, and the controllers there are; groups go at the end."
    groups = new_groups(limits) if sys.platform == 'linux' else {}

    def prepare()->None:
        for group in {*groups.values()}: (group/'cgroup.procs').write_text('0')
        for name in (resource.RLIMIT_AS, resource.RLIMIT_CPU):   # ours are not the sandbox's
            resource.setrlimit(name, (resource.getrlimit(name)[1],)*2)
    try:
        yield prepare, [*groups]
    finally:
        for group in {*groups.values()}: remove_group(group)


def new_groups(limits:Limits)->dict[str, Path]:
    "A group for each controller that lets us make one: 'memory', 'pids'."
    memory, groups = str((TORCH + limits.memory)*2**20), dict[str, Path]()
    values = {'memory': {'memory.max': memory, 'memory.limit_in_bytes': memory,
                         'memory.swap.max': '0'},
              # above what the look at them allows, which ends the sandbox
              'pids': {'pids.max': str(limits.processes + 16)}}
    remove_dead_groups()
    for controller, parent in own_groups().items():
        group = parent/f'eqtutor-{os.getpid()}-{time.monotonic_ns()}'
        try:
            group.mkdir()
            files = [group/name for name in values[controller] if (group/name).exists()]
            for file in files: file.write_text(values[controller][file.name])
        except OSError:
            files = []
        if files: groups[controller] = group
        else: remove_group(group)
    return groups


def remove_dead_groups()->None:
    "Remove what graders left that were killed."
    for parent in own_groups().values():
        for group in parent.glob('eqtutor-*'):
            if not is_alive(group): remove_group(group)


def is_alive(group:Path)->bool:
    "Is the process there that made the group?"
    return Path(f'/proc/{group.name.split("-")[1]}').exists()


def own_groups()->dict[str, Path]:
    "The group that we are in, by controller."
    root, found = Path('/sys/fs/cgroup'), dict[str, Path]()
    try:
        lines = Path('/proc/self/cgroup').read_text().splitlines()
    except OSError:
        return {}
    for number, names, place in (line.split(':', 2) for line in lines):
        for name in ('memory', 'pids'):
            if name in names.split(','): found[name] = root/names/place.lstrip('/')
            if number == '0': found.setdefault(name, root/place.lstrip('/'))
    return {name: folder for name, folder in found.items() if (folder/'cgroup.procs').exists()}


def remove_group(group:Path)->None:
    "Remove a control group; what has just ended may hold it for a moment."
    for _ in range(250):
        try:
            return group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(.02)


# --- what came back

def replies(data:bytes, ending:str, tasks:int)->list[dict]:
    "A reply a task, from lines `number JSON`: the first that can be read, or why there is none."
    if ending == 'ended': ending = 'the process ended before it gave an answer'
    found:dict[int, dict] = {}
    for line in data.split(b'\n')[1:]:
        number, _, text = line.partition(b' ')
        try:
            found.setdefault(int(number), dict(json.loads(text)))
        except (ValueError, TypeError, RecursionError):
            continue
    return [found.get(i, {'stopped': ending}) for i in range(tasks)]
