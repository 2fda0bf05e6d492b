"A notebook in a process of its own."
import os
import sys
from pathlib import Path

from tests.forked import ROOT, start, wait


def run_cells(
    path:Path,        # of the notebook
    flags:list[str],  # cells marked so are left out
):
    "Run the cells as nbdev tests them; the exit status says whether they passed."
    from nbdev.test import test_nb
    passed, _ = test_nb(path, skip_flags=flags)
    sys.stdout.flush()
    sys.exit(not passed)


def run_apart(
    path:Path,
    flags:list[str],
    output:Path,    # what it prints goes there
    seconds:float,
)->bool:  # did it pass?
    "Run a notebook in a process of its own; `TooLong` if it does not end in time."
    paths = [str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
    environ = dict(PYTHONPATH=os.pathsep.join(paths))
    return wait(start(run_cells, path, flags, output=output, environ=environ), output, seconds)
