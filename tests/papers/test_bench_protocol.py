"The protocol of benchmarks: what is measured of a network, what the file says, how one goes on."
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from eqtutor.measure import CostRow, markdown_table
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.papers import protocol as under_test
from eqtutor.papers.benchmarks import load_benchmarks
from eqtutor.papers.protocol import (
    VARIANTS,
    Comparison,
    Measured,
    Protocol,
    benchmark_record,
    cases,
    conditions,
    measure,
    measure_case,
    smallest,
    standard_protocol,
)

ROOT = Path(__file__).parents[2]
SHAPE = (2, 1, 28, 28)
TINY = partial(p4_cnn, 2)


class Noted(nn.Module):
    "A linear map that writes down what becomes of it."
    def __init__(self, calls, scale=1):
        super().__init__()
        self.calls, self.scale, self.linear = calls, scale, nn.Linear(4, 3)

    def forward(self, x):
        self.calls.append((self.scale, tuple(x.shape), torch.is_autocast_enabled('cpu')))
        return self.linear(x)

    def compile(self, **options): self.calls.append(options)


def noted(**options):
    "A comparison of two networks that note their calls, and the list of them."
    calls = []
    return calls, Comparison('t', (4, 4), {'net': partial(Noted, calls)},
                             {'net': partial(Noted, calls)},
                             partial(Noted, calls, 2), (8, 4), **options)


def calls_of(variant, **options):
    calls, comparison = noted(memory=False, **options)
    given = Protocol(variants=(variant,), repeats=3, warm_up=2)
    case, = cases(comparison, given)
    row = measure_case(case, given, '/nowhere')
    return row, calls[1:]   # without the one that counts multiplications


@pytest.fixture
def here(monkeypatch):
    "Rows are measured in this process, and counted."
    done = []

    def count(function, case, given, cache, parent, timeout):
        done.append(case.name)
        return measure_case(case, given, cache)
    monkeypatch.setattr(under_test, 'in_fresh_process', count)
    return done


# --- one row

def test_network_and_yardstick_take_turns_after_rounds_to_warm_up():
    row, calls = calls_of('eager')
    assert calls == [(1, (4, 4), False), (2, (8, 4), False)]*5
    assert row['repeats'] == 3 and row['time'] > 0 and row['seconds'] > 0
    assert (row['name'], row['parameters'], row['compile']) == ('net', 15, None)


def test_half_precision_is_for_the_network_and_not_for_the_yardstick():
    row, calls = calls_of('bf16')
    assert calls == [(1, (4, 4), True), (2, (8, 4), False)]*5 and row['name'] == 'net, bf16'


def test_compiled_network_makes_its_first_step_alone_and_that_is_timed():
    row, calls = calls_of('compiled')
    assert calls[0] == {'dynamic': False, 'backend': 'inductor'}
    assert calls[1:] == [(1, (4, 4), False)] + [(1, (4, 4), False), (2, (8, 4), False)]*5
    assert row['compile'] > 0 and row['name'] == 'net, compiled'


def test_memory_is_that_of_a_step_in_use_and_the_same_twice():
    given, c = Protocol(repeats=1), Comparison('t', SHAPE, {'a': p4_cnn}, yardstick=p4_cnn)
    case, = cases(c, given)
    row = under_test.measured(case, given)
    # what batch norm keeps of 40 maps in each of six layers, and less than twenty times that
    kept = 2*40*sum(n*n for n in (26, 24, 10, 8, 6, 4))*4
    assert kept < row['memory'] < 20*kept and .7 < row['memory_ratio'] < 1.5


@pytest.mark.slow
def test_cold_compile_and_its_memory_in_a_process_of_its_own():
    given = standard_protocol()
    c = Comparison('t', SHAPE, {'a': TINY}, {'a': TINY}, p4_cnn)
    eager, compiled = measure([c], given).tables['t']
    assert (eager.name, compiled.name, eager.compile) == ('a', 'a, compiled', None)
    # the first step waits for the compiler; a cache would have made it as fast as the others
    assert compiled.compile > 20*compiled.seconds and compiled.memory > 0


@pytest.mark.cuda
def test_gpu_measures_every_variant():
    c = Comparison('t', SHAPE, {'a': TINY}, {'a': TINY}, p4_cnn)
    done = measure([c], standard_protocol('cuda', smoke=True))
    assert not done.left_out and [r.name for r in done.tables['t']] == [
        'a', 'a, bf16', 'a, compiled', 'a, compiled bf16']
    assert all(r.time > 0 and r.memory > 0 for r in done.tables['t'])


@pytest.mark.skipif(sys.platform != 'linux', reason='Linux only')
def test_row_whose_benchmark_was_killed_ends_too(tmp_path):
    code = (f'import os, sys; sys.path.insert(0, {str(ROOT)!r}); '
            'from eqtutor.papers.protocol import end_with_parent; '
            'end_with_parent(os.getppid()) if sys.argv[1] == "row" else None; '
            'open(sys.argv[2], "w").write(str(os.getpid())); import subprocess, time; '
            'subprocess.run([sys.executable, *sys.argv[3:]]) if sys.argv[3:] else time.sleep(300)')
    row, parent = tmp_path/'row', tmp_path/'parent'
    inner = ['-c', code, 'row', str(row)]
    process = subprocess.Popen([sys.executable, '-c', code, 'parent', str(parent), *inner])
    wait_for(lambda: row.exists() and row.read_text())
    process.kill()
    process.wait()
    wait_for(lambda: ended(row.read_text()))


@pytest.mark.skipif(sys.platform != 'linux', reason='Linux only')
def test_row_that_begins_after_its_benchmark_was_killed_ends_at_once():
    code = (f'import sys; sys.path.insert(0, {str(ROOT)!r}); '
            'from eqtutor.papers.protocol import end_with_parent; end_with_parent(1)')
    assert subprocess.run([sys.executable, '-c', code]).returncode == -9


def ended(number):
    "There is no such process, or only its name is left."
    stat = Path(f'/proc/{number}/stat')
    return not stat.exists() or stat.read_text().rpartition(')')[2].split()[0] == 'Z'


def wait_for(what):
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(.05)


# --- tables

def test_variants_are_those_that_a_network_is_meant_for():
    c = Comparison('t', SHAPE, {'a': TINY, 'b': TINY}, {'b': TINY, 'c': TINY})
    given = Protocol(variants=tuple(VARIANTS))
    assert [case.name for case in cases(c, given)] == [
        'a', 'a, bf16', 'b', 'b, compiled', 'b, bf16', 'b, compiled bf16', 'c, compiled',
        'c, compiled bf16']


def test_parts_of_a_table_come_together_and_names_are_not_used_twice(here):
    parts = [Comparison('t', (2, 4), {name: partial(nn.Linear, 4, 3)}, time=False, memory=False)
             for name in 'ab']
    assert [r.name for r in measure(parts, Protocol()).tables['t']] == ['a', 'b'] == here
    with pytest.raises(ValueError, match='two rows have one name: t: a'):
        measure([parts[0], parts[0]], Protocol())


def test_what_fails_is_left_out_with_its_reason_and_the_others_are_measured(here, monkeypatch):
    def fail(): raise RuntimeError('out of memory')
    c = Comparison('t', (2, 4), {'bad': fail, 'good': partial(nn.Linear, 4, 3)}, time=False,
                   memory=False)
    done = measure([c], Protocol())
    assert done.left_out == {'t: bad': 'out of memory'}
    assert [r.name for r in done.tables['t']] == ['good']
    assert benchmark_record('x', done, Protocol())['left out'] == done.left_out


def test_row_that_takes_too_long_is_left_out():
    c = Comparison('t', SHAPE, {'a': TINY}, yardstick=p4_cnn)
    assert 'took more than' in measure([c], Protocol(timeout=.01)).left_out['t: a']


def test_measuring_goes_on_where_it_was_interrupted(here, tmp_path):
    linear = partial(nn.Linear, 4, 3)
    def interrupt(): raise KeyboardInterrupt
    c = Comparison('t', (2, 4), {'a': linear, 'b': interrupt, 'c': linear}, time=False,
                   memory=False)
    store = tmp_path/'new'/'rows.json'
    with pytest.raises(KeyboardInterrupt): measure([c], Protocol(), store)
    mended = Comparison('t', (2, 4), dict.fromkeys('abc', linear), time=False, memory=False)
    assert [r.name for r in measure([mended], Protocol(), store).tables['t']] == ['a', 'b', 'c']
    assert here == ['a', 'b', 'b', 'c']
    # rows of another protocol do not stand beside these
    measure([mended], Protocol(repeats=2), store)
    assert here[4:] == ['a', 'b', 'c']


# --- what a file says

def test_file_names_the_protocol_and_marks_what_only_tried_the_code():
    known = Protocol().record()
    assert {'warm-up rounds', 'repeats', 'order', 'statistic', 'threads', 'device', 'clock',
            'memory', 'compile', 'variants', 'smoke'} <= known.keys()
    assert known['variants'] == {'eager': {'precision': 'float32', 'compiled': False},
                                 'compiled': {'precision': 'float32', 'compiled': True}}
    smoke = standard_protocol(smoke=True)
    assert list(smoke.record()['variants']) == list(VARIANTS) and smoke.record()['smoke']
    record = benchmark_record('x', Measured({'t': [CostRow('a', 1, 2)]}), smoke)
    assert json.loads(json.dumps(record)) == record
    assert conditions(record).startswith('a try of the code, no measurement')


def test_smoke_takes_one_network_of_each_table_and_two_images():
    c = Comparison('t', (16, 1, 28, 28), {'a': TINY, 'b': TINY}, {'b': TINY}, p4_cnn)
    small, = smallest([c, Comparison('t', SHAPE, {'c': TINY})])
    given = standard_protocol(smoke=True)
    assert {case.name.split(',')[0] for case in cases(small, given)} == {'a', 'b'}
    assert next(cases(small, given)).input(given, c.shape).shape == SHAPE


@pytest.mark.parametrize('options, match', [
    (dict(device='tpu'), "must be 'cpu' or 'cuda'"), (dict(variants=('fast',)), 'must be some of'),
    (dict(variants=()), 'got none')])
def test_what_cannot_be_measured_is_refused(options, match):
    with pytest.raises(ValueError, match=match): Protocol(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a CUDA device')
def test_cuda_without_a_device_is_refused():
    with pytest.raises(ValueError, match='no CUDA device here'): standard_protocol('cuda')


FILES = sorted((ROOT/'results'/'bench').glob('*.json'))

@pytest.mark.parametrize('file', FILES, ids=lambda p: p.stem)
def test_stored_files_are_read_whatever_they_lack(file):
    record = json.loads(file.read_text(encoding='utf-8'))
    if 'protocol' not in record: assert 'before there was one protocol' in conditions(record)
    else: assert not record['protocol'].get('smoke'), 'what only tried the code is not kept'
    # scripts of their own, with rows of their own
    if file.stem in ('escnn', 'published', 'beside_escnn', 'small-tasks'): return
    for rows in record['tables'].values():
        assert markdown_table([CostRow(**row) for row in rows]).count('\n') == len(rows) + 1


def test_every_benchmark_has_rows_of_different_names():
    for name, comparisons in load_benchmarks().items():
        rows = [(c.title, case.name) for c in comparisons()
                for case in cases(c, Protocol(variants=tuple(VARIANTS)))]
        assert rows and len(set(rows)) == len(rows), name
