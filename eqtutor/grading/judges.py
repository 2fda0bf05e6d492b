"""A process for each submission: it reads the file, has it run, judges, and writes the result.

No process ever holds two submissions. One process imports torch and the exercises, which takes
seconds, and reads no submission: for each it forks, and only the fork opens the file. What a fork
has read is gone with it; there is no way from it to the process it came from. (None of them runs
what a student wrote. A sandbox does, and that is started afresh, by `exec`, from the fork.)

A fork reads, decodes and judges under limits of memory and processor time. Whatever stops it costs
its own submission.
"""
# Plain module: edited by hand, no notebook exports it.
import json
import os
import socket
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..interpreter import python
from .handins import HandIn
from .sandbox import Limits

LARGEST_RECORD = 2**24   # bytes
OVER = ('the grader failed: no result within its own limits of memory and time. Look at the file '
        'by hand')


@dataclass(frozen=True)
class Settings:
    "How a class is graded."
    out:Path                # results: marks.csv, marks.json, results/, feedback/
    limits:Limits=Limits()
    chapter:str|None=None   # '05' for all; if None, read from each file
    seed:int=0              # of the class; each submission has its own
    unsafe:bool=False       # without a sandbox

    def to_json(self)->str:
        "The settings as text."
        return json.dumps(asdict(self) | {'out': os.path.abspath(self.out)})

    @staticmethod
    def from_json(text:str)->'Settings':
        "The settings of such a text."
        told = json.loads(text)
        return Settings(**told | {'out': Path(told['out']), 'limits': Limits(**told['limits'])})


class Judges:
    "Where forks come from; for a `with` block."
    def __init__(self, settings:Settings):
        self.socket, theirs = socket.socketpair()
        env = os.environ | {'CUDA_VISIBLE_DEVICES': '', 'OMP_NUM_THREADS': '1'}
        command = python('from eqtutor.grading._judge import main; main()', str(theirs.fileno()),
                         settings.to_json())
        quiet:dict[str, Any] = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.DEVNULL)
        self.process = subprocess.Popen(command, cwd='/', env=env, pass_fds=[theirs.fileno()],
                                        **quiet)
        theirs.close()

    def record(self, h:HandIn)->dict:
        "The result of a submission."
        receive, send = os.pipe()
        with tempfile.TemporaryFile() as job, os.fdopen(receive, 'rb') as reply:
            # the judge is in another folder
            absolute = replace(h, path=os.path.abspath(h.path))
            job.write(json.dumps(asdict(absolute)).encode())
            job.seek(0)
            try:
                socket.send_fds(self.socket, [b'.'], [job.fileno(), send])
            except OSError:
                raise RuntimeError('the grading process does not start. What does '
                                   '`python -c "import eqtutor.grading.prelude"` say?') from None
            finally:
                os.close(send)
            text = reply.read(LARGEST_RECORD)
        return json.loads(text) if text else over_limits(h)

    def __enter__(self)->'Judges': return self

    def __exit__(self, *_:Any)->None:
        self.socket.close()
        self.process.kill()
        self.process.wait()


def over_limits(h:HandIn)->dict:
    "The result of a submission whose fork was ended by its limits."
    return {'name': h.name, 'file': Path(h.path).name, 'chapter': '', 'seed': 0, 'problem': OVER,
            'late': h.late, 'time': h.time, 'origin': h.origin, 'marks': 0, 'of': 0, 'by hand': 0,
            'parts': [], 'isolation': '', 'new': True, 'changed': False}
