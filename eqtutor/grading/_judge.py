"""The process that `judges` starts: it forks for each submission, and reads none itself."""
# Plain module: edited by hand, no notebook exports it.
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import torch

from ..tutor.exercise import all_exercises
from .handins import HandIn
from .judges import Settings
from .judging import failed_record, grade_submission
from .sandbox import isolation, readable

MEMORY = 2**31        # bytes that reading and judging may take
SECONDS = 600         # of processor time
PR_SET_PDEATHSIG = 1  # Linux's number, which Python has no name for


def serve(channel:socket.socket, settings:Settings)->None:
    "Fork for each pair of files that comes: a job to read, and where its result goes."
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)   # nobody waits for them
    while True:
        word, files, *_ = socket.recv_fds(channel, 1, 2)
        if not word: return
        if not os.fork():
            channel.close()
            try:
                job, reply = files
                judge_one(job, reply, settings)
            finally:
                os._exit(1)
        for file in files: os.close(file)


def judge_one(job:int, reply:int, settings:Settings)->None:
    "The life of a fork: its limits, one submission, its result."
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == 'linux': ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    limit_self()
    with os.fdopen(job, 'rb') as file: h = HandIn(**json.load(file))
    try:
        record = grade_submission(h, settings)
    except Exception as error:
        record = failed_record(ascii(error), name=h.name, file=Path(h.path).name, chapter='',
                               seed=settings.seed, new=True)
    with os.fdopen(reply, 'wb') as file: file.write(json.dumps(record).encode())
    os._exit(0)


def limit_self()->None:
    "Limits on memory and processor time; a sandbox, which has its own, can lift them again."
    try:
        pages = int(Path('/proc/self/statm').read_text().split()[0])
    except OSError:
        pages = 0
    now = pages*os.sysconf('SC_PAGE_SIZE')
    limits = {resource.RLIMIT_CPU: SECONDS} | ({resource.RLIMIT_AS: now + MEMORY} if now else {})
    for name, value in limits.items():
        resource.setrlimit(name, (value, resource.getrlimit(name)[1]))


def main()->None:
    "The life of this process; its arguments are a socket and the settings."
    torch.set_num_threads(1)
    settings = Settings.from_json(sys.argv[2])
    # what every fork would have to find out
    all_exercises()
    isolation(settings.unsafe)
    if not settings.unsafe: readable()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])), settings)
