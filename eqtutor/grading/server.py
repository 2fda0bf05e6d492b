"""The processes of the grader: four generations, each for one reason.

1. **The fork server** imports torch and the exercises, which takes seconds, once, and holds nothing
   of anybody. (The command that starts it has no torch: two would cost half a gigabyte.)
2. **A judge**, forked for one hand-in, reads and judges it under limits. Whatever stops it costs
   its own hand-in; what it has read is gone with it, so no memory ever holds two students.
3. **The worker** in bubblewrap, started afresh by `exec` from the judge: in its memory there is no
   right answer, which the judge's has. It imports torch once for all answers of its hand-in.
4. **An answer**, forked from the worker: one that loops, ends or fills its memory leaves the others
   of the same student alone.

Nothing is left behind, also if the command is killed: a judge ends when its command has ended,
bubblewrap with its judge, what runs in it with bubblewrap, and the fork server last; it takes the
folder of its socket away, and the control groups.
"""
# Plain module: edited by hand, no notebook exports it.
import json
import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..interpreter import import_path
from .folder import HandIn
from .limits import JUDGE_SECONDS, LARGEST_RESULT, READING, Limits

FAILED = 'the grader failed'
OVER = f'{FAILED}: no result within its own limits of memory and time. Look at the file by hand'
STARTING = threading.Lock()   # several may ask at once: there is one server
# of the server and the judges: one thread each; nothing is imported but from where we are
VARIABLES = {'CUDA_VISIBLE_DEVICES': '', 'OMP_NUM_THREADS': '1', 'PYTHONSAFEPATH': '1'}


@dataclass(frozen=True)
class Settings:
    "How a class is graded."
    out:str                 # absolute: results/, pages/
    limits:Limits=Limits()
    chapter:str|None=None   # '05' for all; if None, read from each file
    seed:int=0              # of the class; each hand-in has its own
    unsafe:bool=False       # without a sandbox


def no_result(h:HandIn, problem:str)->dict:
    "What a result has in any case."
    return {'student': h.student, 'name': h.name, 'path': h.path, 'chapter': '', 'seed': 0,
            'problem': problem, 'marks': 0, 'of': 0, 'by hand': 0, 'parts': [], 'isolation': '',
            'new': True}


# --- what is asked of a judge

def result(h:HandIn, settings:Settings)->dict:
    "The result of a hand-in, by a judge of its own, who writes it and the student's page."
    try:
        return apart('result', h, settings)
    except RuntimeError as error:
        return no_result(h, str(error))


def judge(notebook:dict, chapter:str|None=None, seed:int=0, limits:Limits=Limits(),
          unsafe:bool=False)->dict[str, Any]:
    "What `grading.judge.judge` says of a notebook, by a judge of its own."
    said = apart('judge', json.dumps(notebook), chapter, seed, limits, unsafe)
    if 'error' in said: raise ValueError(said['error'])
    with STARTING, plainly():   # what it imports does not lie in the current folder either
        from ..tutor.exercise import Verdict
    return {id: Verdict(**v) for id, v in said['verdicts'].items()}


def apart(what:str, *arguments:Any)->dict:
    "What a judge of its own says, as plain data; a `RuntimeError` if it said nothing."
    with STARTING, plainly():
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload([f'{__package__}.ready'])
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(theirs, what, arguments))
        process.start()
    theirs.close()
    try:
        said = json.loads(ours.recv_bytes(LARGEST_RESULT))
    except (EOFError, OSError):
        raise RuntimeError(OVER) from None
    finally:
        ours.close()
        process.join(1)   # it has nothing more to say
        if process.is_alive(): process.kill()
        process.join()
    if 'failed' in said: raise RuntimeError(f'{FAILED}: {said["failed"]}')
    return said


@contextmanager
def plainly()->Iterator[None]:
    """While a process is started, this one stands in the root folder and runs no program.

    The standard library tells a new process where the old one stands, where it imports from, and
    which program to run again; and it starts its server with `python -c`, which imports from the
    current folder. All that would be the folder of the class, or the teacher's own notebook.
    """
    here, path, main = os.open('.', os.O_RDONLY), sys.path[:], sys.modules['__main__']
    before = {name: os.environ.get(name) for name in [*VARIABLES, 'PYTHONPATH']}
    sys.path[:] = import_path()
    try:
        os.environ.update(VARIABLES, PYTHONPATH=os.pathsep.join(sys.path))
        sys.modules['__main__'] = types.ModuleType('__main__')
        os.chdir('/')
        yield
    finally:
        os.fchdir(here)
        os.close(here)
        sys.path[:], sys.modules['__main__'] = path, main
        for name, value in before.items():
            if value is None: os.environ.pop(name, None)
            else: os.environ[name] = value


# --- a judge

def work(pipe:Connection, what:str, arguments:tuple)->None:
    "The life of a judge: its limits, one hand-in, what it says of it."
    threading.Thread(target=end_with_the_command, daemon=True).start()
    limit_self()
    try:
        said = KINDS[what](*arguments)
    except Exception as error:
        said = {'failed': ascii(error)[:500]}
    pipe.send_bytes(json.dumps(said).encode())


def say_result(h:HandIn, settings:Settings)->dict:
    "A result, and the files that are written."
    from .results import result
    return result(h, settings)


def say_verdicts(notebook:str, *rest:Any)->dict:
    "Verdicts as plain data, or why there are none."
    from .judge import judge
    try:
        verdicts = judge(json.loads(notebook), *rest)
    except ValueError as error:
        return {'error': str(error)[:500]}
    return {'verdicts': {id: asdict(v) for id, v in verdicts.items()}}


KINDS:dict[str, Callable[..., dict]] = {'result': say_result, 'judge': say_verdicts}


def end_with_the_command()->None:
    "End when the command has ended, however it did; bubblewrap then ends with us."
    if parent := multiprocessing.parent_process():
        wait([parent.sentinel])
        os._exit(1)


def limit_self()->None:
    "Limits on memory and processor time; a sandbox, which has its own, can lift them again."
    import resource
    try:
        pages = int(Path('/proc/self/statm').read_text().split()[0])
    except OSError:
        pages = 0
    now = pages*os.sysconf('SC_PAGE_SIZE')
    limits = {resource.RLIMIT_CPU: JUDGE_SECONDS} | (
        {resource.RLIMIT_AS: now + READING} if now else {})
    for name, value in limits.items():
        with suppress(ValueError): resource.setrlimit(name, (value, resource.getrlimit(name)[1]))
