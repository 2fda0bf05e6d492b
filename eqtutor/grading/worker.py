"""The process inside a sandbox: it runs the answers of one submission, each in a fork of itself.

`sandbox` starts this file by its path, so that of the tutor and the grader nothing but `values` and
`prelude` is ever in its memory: no right answer, no mistake, no mark. Importing torch takes seconds; the
process does it once, and a fork that ends, loops or fills its memory leaves the other answers of
the same person alone. It shuts in nothing: that is bubblewrap's part.

The job comes as JSON on the standard input. 'ready' and then a line 'number JSON' for each task are
written to the standard output: {'answers': …}, {'broken': …} or {'stopped': …}.
"""
# Plain module: edited by hand, no notebook exports it.
import json
import os
import re
import resource
import select
import signal
import sys
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGEST_ANSWER = 2**24   # bytes
PATIENCE = 5   # times the limit, on a busy machine


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


def answer_task(task:dict, names:dict)->dict:
    "Run one answer's cell and put the cases to its function."
    from eqtutor.tutor.values import answer_cases, decode
    space = dict(names)
    try:
        exec(compile(without_magics(task['source']), '<answer>', 'exec'), space)
    except NotImplementedError:
        return {'answers': [{'unsolved': True}]*len(task['cases'])}
    except (Exception, SystemExit) as error:
        return {'broken': f'{type(error).__name__}: {error}'[:500]}
    if not callable(space.get(task['name'])):
        return {'broken': f'the cell defines no function `{task["name"]}`'}
    fn, cases = space[task['name']], decode(task['cases'])
    return {'answers': answer_cases(fn, task['call'], cases, names)}


def memory_now()->int:
    "Bytes of address space this process has; 0 if unknown."
    try:
        pages = int(Path('/proc/self/statm').read_text().split()[0])
    except OSError:
        return 0
    return pages*os.sysconf('SC_PAGE_SIZE')


def set_limits(seconds:int, memory:int)->None:
    "Limits on CPU time, memory in MB beyond the present, files and processes."
    limits = {'RLIMIT_CPU': seconds + 2, 'RLIMIT_CORE': 0, 'RLIMIT_FSIZE': 2**22,
              'RLIMIT_NOFILE': 64, 'RLIMIT_NPROC': 0}
    if now := memory_now(): limits['RLIMIT_AS'] = now + memory*2**20
    for name, value in limits.items(): resource.setrlimit(getattr(resource, name), (value, value))


def answer_in_fork(task:dict, limits:dict, names:dict, pipe:int)->None:
    "The life of a forked process: set its limits, answer, write the answer into the pipe."
    os.setsid()
    pipe = os.dup2(pipe, 3)
    os.closerange(4, 4096)
    set_limits(limits['seconds'], limits['memory'])
    try:
        data = json.dumps(answer_task(task, names)).encode()
    except BaseException as error:
        data = json.dumps({'broken': f'{type(error).__name__}: {error}'[:500]}).encode()
    while data: data = data[os.write(pipe, data):]
    os._exit(0)


# --- the process that forks

def waited(pid:int)->float:
    "Seconds for which a process had work and no processor: a busy machine is not its fault."
    try:
        return int(Path(f'/proc/{pid}/schedstat').read_text().split()[1])/1e9
    except (OSError, ValueError, IndexError):
        return 0.


def collect(pipe:int, pid:int, seconds:float)->tuple[bytes, str]:
    "What the fork writes, and what became of it: 'ended', 'time' or 'size'."
    data, start = b'', time.monotonic()
    while True:
        passed = time.monotonic() - start
        if passed > seconds and passed > min(PATIENCE*seconds, seconds + waited(pid)):
            return data, 'time'
        if not select.select([pipe], [], [], .1)[0]: continue
        chunk = os.read(pipe, 2**20)
        if not chunk: return data, 'ended'
        data += chunk
        if len(data) > LARGEST_ANSWER: return data, 'size'


def answer_apart(task:dict, limits:dict, names:dict)->bytes:
    "Fork, answer there, and report, as JSON: {'answers'}, {'broken'} or {'stopped'}."
    receive, send = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer_in_fork(task, limits, names, send)
        finally:
            os._exit(1)
    os.close(send)
    data, ending = collect(receive, pid, limits['seconds'])
    os.close(receive)
    with suppress(OSError): os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if ending == 'time': return stopped(f'no answer within {limits["seconds"]} s')
    if ending == 'size': return stopped('the answer is too large')
    return data.replace(b'\n', b' ') or stopped('the process ended before it gave an answer')


def stopped(why:str)->bytes:
    "The report on an answer that did not come."
    return json.dumps({'stopped': why}).encode()


def import_prelude()->dict[str, Any]:
    """What an answer finds by name.

    In the place of `eqtutor.tutor` stands a module with a `check` that does nothing.
    """
    stand_in:Any = types.ModuleType('eqtutor.tutor')
    stand_in.check = lambda *args, **kwargs: None   # an answer that calls it is careless, not wrong
    stand_in.__path__ = [str(Path(__file__).parents[1]/'tutor')]
    sys.modules['eqtutor.tutor'] = stand_in
    from eqtutor.grading import prelude
    from eqtutor.tutor import values  # noqa: F401
    stand_in.__path__ = []                     # nothing more is to be had here
    return {name: value for name, value in vars(prelude).items() if not name.startswith('__')}


def serve()->None:
    "Answer the tasks of one job."
    job = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), 'wb', buffering=0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2): os.dup2(null, fd)   # whatever is printed does not meet the answers
    names = import_prelude()
    torch = names['torch']
    torch.set_num_threads(1)
    # what torch loads late, it loads here, once
    torch.nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 3, 3)).sum().backward()
    channel.write(b'ready\n')
    for i, task in enumerate(job['tasks']):
        line = b'%d %s\n' % (i, answer_apart(task, job['limits'], names))
        while line: line = line[channel.write(line):]


if __name__ == '__main__':
    sys.path += sys.argv[1:]
    serve()
