"The GPU day in a box: what it refuses, how it goes on, and a try of it on a processor."
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT/'tools'/'gpu_day.py'


@pytest.fixture(scope='module')
def script():
    spec = importlib.util.spec_from_file_location('gpu_day', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules['gpu_day'] = module    # where dataclasses look for their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules['gpu_day']


@pytest.fixture
def day(script, tmp_path):
    "A function that begins a call, as a new process would."
    def begin(call_seconds=600., budget=3600., smoke=True):
        call = script.Day('cpu', smoke, call_seconds, budget, tmp_path)
        call.remember()
        return call
    return begin


def python(code): return lambda: [sys.executable, '-c', code]

def states(call): return {name: step['state'] for name, step in call.steps.items()}


# --- one call, and the next

def test_what_is_done_is_not_done_again_and_what_failed_only_if_asked(script, day, tmp_path):
    note = f'open({str(tmp_path/"note")!r}, "a").write("x")'
    steps = [script.Step('good', python(note)), script.Step('bad', python(f'{note}; 1/0'))]
    assert script.run_all(day(), steps, retry=False) == script.FAILED
    assert states(day()) == {'good': 'done', 'bad': 'failed'}
    script.run_all(day(), steps, retry=False)
    assert (tmp_path/'note').read_text() == 'xx'
    script.run_all(day(), steps, retry=True)
    assert (tmp_path/'note').read_text() == 'xxx'
    assert 'ZeroDivisionError' in (day().folder/'bad.log').read_text()
    record = json.loads((day().results/'gpu-day.json').read_text())
    assert record['smoke'] and record['steps']['bad']['exit'] == 1 and 'versions' in record


def test_call_ends_before_its_time_and_the_next_goes_on(script, day, tmp_path):
    kept, code = tmp_path/'kept', 'import sys, time; time.sleep({}); open(sys.argv[1], "a")'
    def command():   # the first time it gets on and does not end, the second time it ends
        begun = kept.exists()
        kept.write_text('begun')
        return [sys.executable, '-c', code.format(0 if begun else 60), str(kept)]
    step = script.Step('long', command, kept)
    assert script.run_all(day(call_seconds=3), [step], retry=False) == script.AGAIN
    assert states(day()) == {'long': 'begun'}
    assert script.run_all(day(), [step], retry=False) == script.DONE
    assert states(day()) == {'long': 'done'}


def test_step_that_wins_nothing_in_a_whole_call_makes_room_for_the_next(script, day):
    steps = [script.Step('stuck', python('import time; time.sleep(60)')),
             script.Step('next', python(''))]
    assert script.run_all(day(call_seconds=3), steps, retry=False) == script.AGAIN
    assert states(day()) == {'stuck': 'too long for one call'}
    assert script.run_all(day(), steps, retry=False) == script.FAILED
    assert states(day())['next'] == 'done'


def test_budget_holds_for_all_calls_together(script, day):
    call = day(budget=100.)
    call.before = 101.
    call.save()
    assert script.run_all(day(budget=100.), [script.Step('a', python('1/0'))], False) == script.DONE
    assert states(day()) == {} and day().before > 101


def test_training_that_has_its_result_is_done_and_a_shorter_one_is_not(script, day, monkeypatch):
    monkeypatch.setitem(script.SMALL, 'rotmnist', dict(data='digits', epochs=2))
    call = day()
    step = script.training_step(call, 'z2-cnn', 'rotmnist', 'P1 rotMNIST')
    result = call.results/'z2-cnn-digits'/'0.json'
    result.parent.mkdir(parents=True)
    for epochs, finished in ((1, False), (2, True)):
        result.write_text(json.dumps({'history': [{}]*epochs}))
        assert step.finished() is finished
    assert '--resume' not in step.command()
    step.kept.parent.mkdir(parents=True)
    step.kept.touch()
    assert '--resume' in step.command()


# --- what is refused

@pytest.mark.parametrize('arguments, match', [
    (['--device', 'cpu', '--only', 'nothing'], 'No step has nothing in its name'),
    pytest.param([], 'no CUDA device', marks=pytest.mark.skipif(torch.cuda.is_available(),
                                                               reason='there is one'))])
def test_what_cannot_be_done_is_refused(script, capsys, arguments, match):
    assert script.main(arguments) == script.MISSING
    assert match in capsys.readouterr().err


def test_missing_data_are_named_before_anything_runs(script, day, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv('EQTUTOR_DATA', str(tmp_path))
    steps = script.all_steps(day(smoke=False))
    with pytest.raises(ValueError, match='The data of train gsa-r4, .*--data or EQTUTOR_DATA'):
        script.possible_steps(steps, smoke=False)
    free = [s for s in steps if not s.name.startswith('train')]
    assert script.possible_steps(free, smoke=False) == free
    left = script.possible_steps(script.all_steps(day()), smoke=True)   # digits are built in
    trained = [s.name for s in left if s.name.startswith('train ')]
    assert trained == ['train gsa-r4', 'train alpha-p4-cnn']
    assert 'train p4-e4-resnet18: left out' in capsys.readouterr().out


def test_two_calls_at_once_are_refused(script, day):
    with script.alone(day()), pytest.raises(ValueError, match='Another call is at work'):
        with script.alone(day()): pass


def test_time_is_read_in_seconds_minutes_and_hours(script):
    assert [script.as_seconds(t) for t in ('90', '90s', '1.5m', '6h')] == [90, 90, 90, 21_600]
    with pytest.raises(Exception, match='expected 90s, 45m or 6h'): script.as_seconds('soon')


def test_every_recipe_has_a_network_settings_and_a_place_in_the_order(script, day):
    names = [step.name for step in script.all_steps(day(smoke=False))]
    kinds = [name.split()[0] for name in names]
    assert kinds == sorted(kinds, key=['tests', 'bench', 'train'].index)
    assert {'bench e4', 'bench networks', 'train gsa-r4'} <= set(names)
    assert 'tests tests/papers/test_bench_protocol.py' in names


# --- all of it, tried on a processor

def start(into, *arguments):
    "A call in a process group of its own."
    command = [ROOT/'tools'/'gpu_day.sh', '--device', 'cpu', '--smoke', '--into', into, *arguments]
    return subprocess.Popen(command, cwd=into, start_new_session=True, stdout=subprocess.PIPE,
                            text=True, env=os.environ | {'PYTHON': sys.executable})


def kill_when(process, ready):
    "Kill -9 the call and all it started, as soon as something is there."
    until = time.monotonic() + 300
    while not ready() and process.poll() is None and time.monotonic() < until: time.sleep(.05)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_call_that_is_killed_goes_on_with_nothing_lost(tmp_path):
    smoke = tmp_path/'runs'/'smoke'
    log = smoke/'runs'/'alpha-p4-cnn-digits-16'/'0'/'log.jsonl'
    arguments = '--only', 'train alpha'
    kill_when(start(tmp_path, *arguments),
              lambda: log.exists() and len(log.read_text().splitlines()) > 1)   # after an epoch
    first = json.loads(log.read_text().splitlines()[1])
    said, _ = (process := start(tmp_path, *arguments)).communicate()
    assert process.returncode == 0, said
    assert said.count('train alpha-p4-cnn: done') == 1
    result = json.loads((smoke/'results'/'alpha-p4-cnn-digits-16'/'0.json').read_text())
    assert [e['epoch'] for e in result['history']] == [1, 2] and result['history'][0] == first
    assert [r['epoch'] for r in result['resumed']] == [1]
    assert json.loads((smoke/'results'/'gpu-day.json').read_text())['smoke']


@pytest.mark.slow
def test_benchmark_that_is_killed_keeps_its_rows(tmp_path):
    smoke = tmp_path/'runs'/'smoke'
    rows = smoke/'runs'/'day-cpu'/'bench-networks.json'
    kill_when(start(tmp_path, '--only', 'bench networks'), rows.exists)
    first = next(iter(json.loads(rows.read_text())['rows'].values()))
    said, _ = (process := start(tmp_path, '--only', 'bench networks')).communicate()
    assert process.returncode == 0, said
    record = json.loads((smoke/'results'/'bench'/'networks.json').read_text())
    assert record['protocol']['smoke'] and not rows.exists()
    shown = [row for table in record['tables'].values() for row in table]
    assert shown[0] == first and len(shown) == 4
