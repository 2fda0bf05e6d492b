"""Code of strangers: run apart, with limits, and answered in plain data.

To grade a copy means to run what somebody wrote. It may be wrong; it may also loop for ever, fill
the memory, quit, replace the checker, or print what a passed test prints. So nothing of it is
believed: only the cell that answers is run, in a process of its own (`_worker` says how that is
confined), and plain data come back. Right answers, mistakes and marks stay on this side.

Where a system gives less, grading goes on and `Sandbox.isolation` says what is missing. Without
Landlock (macOS, an old kernel) an answer can read and change what your account can, the files of
right answers included; without namespaces sockets are blocked inside the process only; the seccomp
filter knows two architectures, x86_64 and aarch64. There, grade in a virtual machine that holds
nothing else.
"""
# Plain module: edited by hand, no notebook exports it.
import json
import os
import select
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Submission:
    "A stranger's function, and what to ask it."
    source:str # of its cell
    name:str   # of the function
    cases:Any  # arguments, of `encode`
    call:str='fn(*case)'


@dataclass(frozen=True)
class Limits:
    "What one answer may take."
    seconds:int=10
    memory:int=1024 # MB beyond what torch needs


def run(
    submission:Submission,
    limits:Limits=Limits(),
)->dict:
    """What came of one submission: {'answers'}, {'broken'} or {'stopped'}.

    For many, a `Sandbox` starts once.
    """
    with Sandbox(**asdict(limits)) as box: return box.run(submission)


class Sandbox:
    """A process that runs answers in confined copies of itself.

    Started when first needed, and again if an answer ends it.
    """
    def __init__(self,
        seconds:int=10,   # an answer's time
        memory:int=1024,  # MB beyond what torch needs
    ):
        if not hasattr(os, 'fork'):
            raise RuntimeError('grading needs Linux or macOS; on Windows use WSL. In a notebook, '
                               '`check` works everywhere.')
        self.limits = asdict(Limits(seconds, memory))
        self.server:subprocess.Popen|None = None
        self.isolation:dict[str, str] = {}   # what the system allows, once started

    def run(self,
        submission:Submission,
    )->dict:
        "What came of a submission: {'answers'}, {'broken'} or {'stopped'}."
        if self.server is None: self.start()
        reply = self.ask(asdict(submission), self.limits['seconds'] + 30)
        if reply: return reply
        self.close()
        return {'stopped': 'the answer ended the process that grades'}

    def start(self)->None:
        "Start the process, and learn what the system allows."
        self.server = start_worker()
        hello = self.ask({'probe': True}, 120)
        if not hello:
            raise RuntimeError('the grading process does not start. What does '
                               '`python -c "import eqtutor.labs.prelude"` say?')
        self.isolation = hello['isolation']

    def ask(self,
        job:dict,
        patience:float, # seconds
    )->dict|None:
        "The process's reply; None if it has ended, or does not reply."
        assert self.server and self.server.stdin and self.server.stdout
        try:
            self.server.stdin.write((json.dumps(self.limits | job) + '\n').encode())
            self.server.stdin.flush()
            ready = select.select([self.server.stdout], [], [], patience)[0]
            return json.loads(self.server.stdout.readline() if ready else b'')
        except (OSError, ValueError):
            return None

    def close(self)->None:
        "End the process."
        if self.server:
            self.server.kill()
            self.server.communicate()
        self.server = None

    def __enter__(self)->'Sandbox': return self

    def __exit__(self, *_)->None: self.close()


def start_worker()->subprocess.Popen:
    "The process of `_worker`, started by its path: it finds the modules that we find."
    passed_on = 'PATH', 'LANG', 'LC_ALL', 'LD_LIBRARY_PATH'
    env = {name: os.environ[name] for name in passed_on if name in os.environ}
    env |= {f'{library}_NUM_THREADS': '1' for library in ('OMP', 'MKL', 'OPENBLAS')}
    env |= {'CUDA_VISIBLE_DEVICES': ''}
    path = [str(HERE.parents[1]), *(p for p in sys.path if p)]
    command = [sys.executable, '-I', str(HERE/'_worker.py'), json.dumps(path)]
    pipes:dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE,
                            'stderr': subprocess.DEVNULL}
    return subprocess.Popen(command, env=env, cwd='/', start_new_session=True, **pipes)
