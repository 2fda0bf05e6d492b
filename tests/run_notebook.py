"""A notebook in a process of its own: what it imports, keeps and draws is gone when it ends.

The processes are forked from one that has loaded the large libraries, and nothing of eqtutor.
"""
import multiprocessing
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = ['nbdev.test', 'torch', 'torchvision', 'accelerate', 'matplotlib.pyplot',
             'sklearn.datasets', 'ipywidgets']


class TooLong(Exception):
    "The notebook took more than its time; the message is what it printed."


def run_cells(
    path:Path,        # of the notebook
    flags:list[str],  # cells marked so are left out
    output:Path,      # what it prints goes there
)->None:
    "Run the cells as nbdev tests them; the exit status says whether they passed."
    from nbdev.test import test_nb
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    before = os.environ.get('PYTHONPATH')
    os.environ['PYTHONPATH'] = os.pathsep.join([str(ROOT), *filter(None, [before])])
    with open(os.devnull) as nothing, open(output, 'w') as file:
        os.dup2(nothing.fileno(), 0)
        for stream in (1, 2): os.dup2(file.fileno(), stream)
    passed, _ = test_nb(path, skip_flags=flags)
    sys.stdout.flush()
    sys.exit(not passed)


def run_apart(
    path:Path,
    flags:list[str],
    output:Path,
    seconds:float,
)->bool:  # did it pass?
    "Run a notebook in a process of its own; `TooLong` if it does not end in time."
    forks = sys.platform != 'win32'
    context = multiprocessing.get_context('forkserver' if forks else 'spawn')
    if forks: context.set_forkserver_preload(LIBRARIES)
    process = context.Process(target=run_cells, args=(path, flags, output))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TooLong(output.read_text(errors='replace'))
    return process.exitcode == 0
