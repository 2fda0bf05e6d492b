"""Processes forked from one that has loaded the large libraries, and nothing of eqtutor.

What a notebook or a script imports, keeps and draws there is gone when it ends.
"""
import multiprocessing
import os
import runpy
import sys
from multiprocessing import forkserver
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = ['nbdev.test', 'torch', 'torchvision', 'accelerate', 'matplotlib.pyplot',
             'sklearn.datasets', 'ipywidgets']
OURS:set[int|None] = {None}   # processes that were servers for the tests


class TooLong(Exception):
    "The process took more than its time; the message is what it printed."


def script(
    path:Path,           # to run as `python path words…` would
    words:tuple[str, ...],
):
    "A target for `start`."
    sys.argv = [str(path), *words]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name='__main__')


def start(
    target,        # a function of a module that imports little
    *args,
    output:Path,   # what it prints goes there
    environ:dict[str, str]|None=None,  # more variables for it
):
    "Begin a process that runs the target at the root of the project."
    forks = sys.platform != 'win32'
    context = multiprocessing.get_context('forkserver' if forks else 'spawn')
    if forks:
        # a process has one server; a grader's, which has loaded eqtutor, gives way to ours
        server = forkserver._forkserver
        if server._forkserver_pid not in OURS: server._stop()
        context.set_forkserver_preload(LIBRARIES)
    around = os.environ | (environ or {})
    process = context.Process(target=_run, args=(target, args, output, dict(around)))
    process.start()
    if forks: OURS.add(server._forkserver_pid)
    return process


def wait(
    process,
    output:Path,
    seconds:float,
)->bool:  # did it succeed?
    "Wait for a process that was begun; `TooLong` if it does not end in time."
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TooLong(output.read_text(errors='replace'))
    return process.exitcode == 0


def _run(target, args, output, environ):
    "In the process: its folder, its streams, its variables, then the target."
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    with open(os.devnull) as nothing, open(output, 'w') as file:
        os.dup2(nothing.fileno(), 0)
        for stream in (1, 2): os.dup2(file.fileno(), stream)
    target(*args)
