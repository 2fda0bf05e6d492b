"Faults at random, a few of each; `python tools/faults.py` tries hundreds."
import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(os.name != 'posix', reason='needs signals and limits of POSIX')


@pytest.fixture(scope='module')
def faults():
    "The script as a module."
    spec = importlib.util.spec_from_file_location('faults', ROOT/'tools'/'faults.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules['faults'] = module   # its dataclasses ask for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules['faults']


@pytest.mark.parametrize('fault, times', [
    ('loop', 5), ('full', 2), ('readonly', 2), ('damaged', 5)])
def test_nothing_is_lost(faults, fault, times):
    [count] = faults.inject({fault: times}, seed=1)
    assert (count.tried, count.wrong) == (times, [])


@pytest.mark.slow
def test_nothing_is_lost_by_the_command(faults):
    [count] = faults.inject({'command': 2}, seed=1)
    assert (count.tried, count.wrong) == (2, [])


def test_a_loss_is_counted(faults, monkeypatch):
    "A run that forgets its state, and one that takes a damaged file."
    forgets = faults.run
    monkeypatch.setattr(faults, 'run', lambda out, resume: None if resume else forgets(out, False))
    [count] = faults.inject({'damaged': 2}, seed=1)
    assert len(count.wrong) == 2 and 'exit code 0' in count.wrong[0]
