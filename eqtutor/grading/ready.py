"""What the fork server imports before it forks, and what it does when it ends."""
# Plain module: edited by hand, no notebook exports it.
import atexit
import gc
import multiprocessing.forkserver
import os
from contextlib import suppress
from pathlib import Path

import torch

from ..tutor.exercise import all_exercises
from . import results  # noqa: F401
from .sandbox import isolation, readable, remove_dead_groups, without_isolation

SERVER, COMMAND = os.getpid(), os.getppid()


def leave_nothing()->None:
    "Take away what the command would have, had it not been killed: its judges end with it."
    if os.getpid() != SERVER: return   # a process that was forked from the server
    with suppress(ChildProcessError):
        while True: os.waitpid(-1, 0)
    remove_dead_groups()
    if os.getppid() == COMMAND: return   # it lives, and its folder with it
    # the socket lies in a folder that multiprocessing has made, for a family of processes
    address = os.fsdecode(multiprocessing.forkserver._forkserver._forkserver_address or '')   # type: ignore[attr-defined]
    with suppress(OSError):
        os.unlink(address)
        Path(address).parent.rmdir()   # where others still have sockets, it stays


atexit.register(leave_nothing)
torch.set_num_threads(1)
# what every judge would have to find out
all_exercises()
if not without_isolation():
    isolation()
    readable()
gc.collect()
gc.freeze()
