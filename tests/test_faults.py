"""Faults at random, a few of each; `python tools/faults.py` tries hundreds.

In processes of their own: they fork, which autograd's threads of other tests would not survive.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(os.name != 'posix', reason='needs signals and limits of POSIX')

FORGETS = """
import faults
run = faults.run
faults.run = lambda out, resume: None if resume else run(out, False)
[count] = faults.inject(dict(damaged=2), seed=1)
print(count, *count.wrong)
"""


def output_of(*words, **kwargs):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300,
                          **kwargs)
    assert not done.stderr or 'Traceback' not in done.stderr, done.stderr
    return done.stdout

def counts(**times):
    "How often each fault was tried, and how often something went wrong."
    flags = dict(loop=0, command=0, full=0, readonly=0, damaged=0) | times
    words = [w for name, n in flags.items() for w in (f'--{name}', str(n))]
    lines = output_of(str(ROOT/'tools'/'faults.py'), *words, '--seed', '1').splitlines()
    rows = [line.split() for line in lines if ' tried, ' in line]
    return {row[0]: (int(row[1]), int(row[3])) for row in rows if int(row[1])}


def test_nothing_is_lost():
    times = dict(loop=5, full=2, readonly=2, damaged=5)
    assert counts(**times) == {name: (n, 0) for name, n in times.items()}

@pytest.mark.slow
def test_nothing_is_lost_by_the_command(): assert counts(command=2) == dict(command=(2, 0))

def test_a_loss_is_counted():
    "A run that forgets its state, and one that takes a damaged file."
    said = output_of('-c', FORGETS, cwd=ROOT/'tools')
    assert '2 tried, 2 wrong' in said and 'exit code 0' in said
