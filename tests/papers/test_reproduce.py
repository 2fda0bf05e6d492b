"`eqtutor reproduce`: the order of work, and work that is stopped, killed or shared."
import json
import math
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from eqtutor.cli import app
from eqtutor.files import checksum
from eqtutor.models import MODELS
from eqtutor.papers import protocol, reproduce
from eqtutor.papers.benchmarks import BENCHMARKS
from eqtutor.papers.protocol import Comparison
from eqtutor.papers.reproduce import (
    AGAIN,
    DONE,
    FAILED,
    Job,
    Order,
    Place,
    carry_out,
    claimed,
    make_jobs,
    make_plan,
    parse_budget,
    progress_of,
    ranked,
    work,
    work_here,
    work_on_cluster,
)
from eqtutor.papers.tables import RESULT_TABLES
from eqtutor.train import RECIPES, Training

EPOCHS = 4
SHORT = Training(network='z2-cnn', data='digits', epochs=EPOCHS, images=128, test_images=50,
                 batch_size=32, schedule='cosine')


def job(seed=0, **options):
    return Job('T.1', 'Z2', replace(SHORT, seed=seed, **options))


def place_in(folder): return Place(folder/'results', folder/'results'/'unfinished')


def outcome(one, place):
    "What must not depend on how often a run was stopped."
    result = json.loads(place.result(one).read_text())
    history = [{k: v for k, v in epoch.items() if 'seconds' not in k}
               for epoch in result['history']]
    return history, result['test'], result['settings']


def weights(place):
    return load_file(place.out/'weights'/f'{SHORT.experiment}.safetensors')


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
    "The result of a run that nothing disturbed."
    place = place_in(tmp_path_factory.mktemp('straight'))
    assert work([job()], place, say=lambda line: None) == []
    return place


def check_as_straight(place, straight):
    assert outcome(job(), place) == outcome(job(), straight)
    ours, theirs = weights(place), weights(straight)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


# the plan

def test_every_row_has_a_network_a_recipe_and_a_result_of_its_own():
    rows = [(table, row) for table in RESULT_TABLES for row in table.rows]
    assert all(row.network in MODELS and table.recipe in RECIPES for table, row in rows)
    places = {table.training(row).experiment for table, row in rows}
    assert len(places) == len(rows) > 60
    for table, row in rows:
        full = table.training(row)
        assert full.epochs == RECIPES[table.recipe].epochs and full.data == table.data


def test_rows_are_chosen_by_table_name_and_label():
    names = [j.settings.network for j in make_jobs(['P1.1'], ['p4-cnn*'])]
    assert names == ['p4-cnn', 'p4-cnn-big11', 'p4-cnn-big15', 'p4-cnn-big19']
    assert [j.settings.seed for j in make_jobs(['P4.1'], ['E⁴-Net'], 3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=r'unknown table P9.1. Known are P1.1, P3.2'):
        make_jobs(['P9.1'])
    with pytest.raises(ValueError, match='no row is called resnet. Known are z2-cnn, p4-cnn'):
        make_jobs(['P1.1'], ['resnet'])


@pytest.mark.parametrize('text, seconds', [('3h', 10_800), ('1h30m', 5_400), ('90s', 90)])
def test_budgets(text, seconds): assert parse_budget(text) == seconds


@pytest.mark.parametrize('text', ['', '3', 'h', 'an hour', '30m1h'])
def test_wrong_budgets(text):
    with pytest.raises(ValueError, match='a budget reads 3h, 45m'): parse_budget(text)


def test_first_seeds_and_short_rests_come_first():
    long, short = job(batch_size=64), job(batch_size=16)
    second = replace(short, settings=replace(short.settings, seed=1))
    assert ranked({long: 100., second: 10., short: 10.}) == [short, second, long]
    assert ranked({long: 4., second: 10., short: 10.}) == [long, short, second]
    assert ranked({long: 30., second: 10., short: 10.})[-1] == long


def test_a_plan_says_what_is_done_and_what_is_left(straight):
    plan = make_plan([job(), job(1)], straight)
    assert plan.jobs == [job(1), job()] and plan.left(job()) == 0 < plan.left(job(1))
    first, last = plan.rows()
    assert first['state'] == 'not run' and last['state'] == 'complete' and last['took'] >= 0
    assert '2 runs, ' in str(plan)
    assert first['source'] == 'run' and last['source'] == 'taken'   # as its other seed took
    assert first['cpu_seconds'] == last['cpu_seconds'] == last['took']
    unlike = dict(first=job(2, images=64), second=job(epochs=2, seed=3))
    longer = make_plan([*unlike.values()], straight).guesses
    assert longer[unlike['first']].cpu_seconds < plan.guesses[job(1)].cpu_seconds
    assert longer[unlike['second']].cpu_seconds < plan.guesses[job(1)].cpu_seconds


def test_a_plan_measures_only_when_asked_and_nothing_twice(tmp_path, monkeypatch):
    def refuse(settings): raise AssertionError('it was measured')
    place, steps = place_in(tmp_path), reproduce.estimate_training
    monkeypatch.setattr(reproduce, 'estimate_training', refuse)
    plan = make_plan([job(), job(1)], place)
    assert {row['source'] for row in plan.rows()} <= {'benchmark', 'count', 'run'}
    assert '≈' in str(plan) and not (place.unfinished/'estimates.json').exists()
    monkeypatch.setattr(reproduce, 'estimate_training', steps)
    measured = make_plan([job(), job(1)], place, measure=True, say=lambda line: None)
    assert {row['source'] for row in measured.rows()} == {'measured'}
    assert 'a few steps, measured on this machine' in str(measured)
    monkeypatch.setattr(reproduce, 'estimate_training', refuse)
    again = make_plan([job()], place, measure=True, say=pytest.fail)
    assert again.guesses[job()] == measured.guesses[job()]


def test_a_run_under_way_is_judged_by_its_own_epochs(tmp_path, straight):
    place, folder = place_in(tmp_path), place_in(tmp_path).folder(job())
    folder.mkdir(parents=True)
    lines = [{}, {'cpu_seconds': 30.}, {'cpu_seconds': 50.}]
    (folder/'log.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    plan = make_plan([job()], place)
    assert plan.guesses[job()] == (40*(EPOCHS + 1), 'run', None)
    assert plan.left(job()) == pytest.approx(40*(EPOCHS + 1 - 2))


# what is asked for

@pytest.mark.parametrize('wrong, match', [
    (dict(executor='cloud'), "executor must be local or slurm, got 'cloud'"),
    (dict(budget='soon'), 'a budget reads 3h, 45m'), (dict(budget=''), 'a budget reads 3h, 45m'),
    (dict(tables=['P9.1']), 'unknown table P9.1'), (dict(rows=['nobody']), 'no row is called nob'),
    (dict(tables=['bench.x']), 'unknown benchmark x. Known are bench.*bench.e4'),
    (dict(tables=['bench'], workers=2), 'need the machine to themselves')])
def test_what_cannot_be_done_is_refused_before_anything_is_planned(wrong, match, monkeypatch):
    with pytest.raises(ValueError, match=match): Order(**wrong)
    monkeypatch.setattr(reproduce, 'make_plan', pytest.fail)
    flags = {'tables': '--table', 'rows': '--rows', 'workers': '--jobs'}
    words = [w for name, value in wrong.items()
             for w in (flags.get(name, f'--{name}'), *(value if type(value) is list else [value]))]
    done = CliRunner().invoke(app, ['reproduce', *map(str, words)])
    assert done.exit_code == 1 and re.search(match, done.output), done.output


def test_benchmarks_are_asked_for_by_name_and_alone():
    assert Order(['bench.e4']).benchmarks == ['e4'] and Order(['bench.e4']).jobs == []
    both = Order(['bench', 'P4.1'])
    assert {'networks', 'e4', 'gsa'} <= set(both.benchmarks)
    assert [j.settings.network for j in both.jobs] == ['p4-e4-net', 'p4-e4-net-large']
    assert Order().benchmarks == [] and len(Order().jobs) > 60


def test_a_missing_cluster_library_is_named_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, 'submitit', None)
    with pytest.raises(ImportError, match='cluster'): Order(executor='slurm')


def test_smoke_leaves_the_network_and_takes_few_images_and_epochs():
    jobs = make_jobs(['P1.1', 'P1.2', 'P1.3'], smoke=True)
    full = make_jobs(['P1.1', 'P1.2'])   # PatchCamelyon is read whole, and left out
    assert [j.settings.network for j in jobs] == [j.settings.network for j in full]
    for one in jobs:
        s = one.settings
        assert s.epochs == 2 and (s.images or 10*s.per_class) <= 16 and s.test_images <= 20
        assert (s.data, s.valid) in (('digits', None), ('cifar10', 0))
        assert s.optimizer == ('adam' if s.data == 'digits' else 'sgd')


# the work

def test_a_finished_run_leaves_result_weights_and_nothing_else(straight):
    assert progress_of(job(), straight).complete
    assert not straight.folder(job()).exists()
    sums = (straight.out/'weights'/'SHA256SUMS').read_text().split()
    assert sums == [checksum(straight.out/'weights'/sums[1]), sums[1]]
    before = straight.result(job()).read_bytes()
    assert work([job()], straight, say=pytest.fail) == []   # it is not run again
    assert straight.result(job()).read_bytes() == before


def test_a_budget_ends_after_an_epoch_and_the_run_goes_on(tmp_path, straight):
    place, calls = place_in(tmp_path), 0
    while not progress_of(job(), place).complete:
        before = progress_of(job(), place).epochs
        assert work([job()], place, time.time() + .01, say=lambda line: None) == []
        calls += 1
        assert progress_of(job(), place).epochs == before + 1
    assert calls == EPOCHS
    check_as_straight(place, straight)


def test_no_time_no_work(tmp_path):
    assert work([job()], place_in(tmp_path), time.time() - 1, say=pytest.fail) == []
    assert str(progress_of(job(), place_in(tmp_path))) == 'not run'


def test_a_result_of_other_settings_is_never_overwritten(tmp_path, straight):
    place = Place(straight.out, tmp_path)
    other, before = job(epochs=9), straight.result(job()).read_bytes()
    [fault] = work([other], place, say=lambda line: None)
    assert 'is of another run (epochs 4 instead of 9): move it' in fault
    assert straight.result(job()).read_bytes() == before


def test_a_row_that_cannot_run_stops_no_other(tmp_path):
    place, wrong = place_in(tmp_path), job(images=10**6)
    [fault] = work([wrong, job(epochs=1)], place, say=lambda line: None)
    assert fault.startswith('T.1 Z2, seed 0: train: 1,000,000 images are asked for')
    assert progress_of(job(epochs=1), place).complete


def test_a_run_belongs_to_one_process(tmp_path):
    place = place_in(tmp_path)
    with claimed(place.folder(job())) as mine:
        assert mine
        assert work([job()], place, say=pytest.fail) == []   # left to the other
        with claimed(place.folder(job(1))) as another: assert another
    with claimed(place.folder(job())) as again: assert again


def test_two_processes_share_the_rows(tmp_path):
    place, jobs = place_in(tmp_path), [job(epochs=1), job(1, epochs=1)]
    assert work_here(jobs, place, math.inf, 2) == []
    assert all(progress_of(j, place).complete for j in jobs)


@pytest.mark.slow
def test_a_cluster_takes_the_rows(tmp_path):
    "The same call as for SLURM, on submitit's cluster of this machine."
    pytest.importorskip('submitit')
    place, one = place_in(tmp_path), job(epochs=1)
    [handed] = work_on_cluster([one], place, 300, 1, 'local')
    assert handed.result() == [] and progress_of(one, place).complete


def test_the_exit_code_says_whether_to_call_again(tmp_path, capsys):
    place, wrong, order = place_in(tmp_path), job(images=10**6, epochs=2), Order()
    plan = make_plan([job(epochs=2), wrong], place)
    order.seconds = .01
    assert carry_out(plan, place, order) == AGAIN
    order.seconds = math.inf
    assert carry_out(plan, place, order) == FAILED
    assert carry_out(make_plan([job(epochs=2)], place), place, order) == DONE
    said = capsys.readouterr().out
    assert 'epoch 1 of 2' in said and 'epoch 2 of 2' in said and said.count('test error') == 1


def test_smoke_runs_a_row_to_its_end(tmp_path):
    words = 'reproduce', '--smoke', '--table', 'P1.1', '--rows', 'z2-cnn', '--out', str(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and 'P1.1 Z2-CNN, seed 0: test error' in done.output, done.output
    result = json.loads((tmp_path/'z2-cnn-digits-16'/'0.json').read_text())
    assert len(result['history']) == 2 and result['settings']['weight_decay'] == 1e-4
    assert 'complete' in CliRunner().invoke(app, [*words, '--dry-run']).output


# benchmarks among the rest

@pytest.fixture
def quick(monkeypatch):
    "A benchmark of three rows, whose measuring is noted instead of done."
    noted, nets = [], dict.fromkeys('abc', torch.nn.Identity)
    monkeypatch.setitem(BENCHMARKS, 'quick', lambda: [Comparison('t', (1, 1), nets, time=False)])

    def measured(case, protocol):
        noted.append(case.name)
        return {'error': 'too large'} if case.name == 'c' else dict(
            name=case.name, parameters=1, macs=1)
    monkeypatch.setattr(protocol, 'measured', measured)
    return noted


def test_a_benchmark_keeps_its_rows_and_goes_on(quick, tmp_path, capsys):
    place, order = place_in(tmp_path), Order(['bench.quick'])
    plan = make_plan([], place, benchmarks=order.benchmarks)
    assert 'benchmark quick (not complete)' in str(plan)
    order.seconds = 1e-3
    assert carry_out(plan, place, order) == AGAIN and 0 < len(quick) < 3
    order.seconds = math.inf
    assert carry_out(plan, place, order) == FAILED and quick == ['a', 'b', 'c']   # none twice
    record = json.loads(place.benchmark('quick').read_text())
    assert [row['name'] for row in record['tables']['t']] == ['a', 'b']
    assert record['left out'] == {'t: c': 'too large'}
    assert not (place.unfinished/'bench-quick.rows').exists()
    assert 'bench quick: t: b' in capsys.readouterr().out
    plan = make_plan([], place, benchmarks=order.benchmarks)
    assert 'benchmark quick (complete)' in str(plan)
    assert carry_out(plan, place, order) == DONE and len(quick) == 3


def test_a_benchmark_belongs_to_one_process(quick, tmp_path):
    place, order = place_in(tmp_path), Order(['bench.quick'])
    plan = make_plan([], place, benchmarks=order.benchmarks)
    with claimed(place.unfinished/'bench-quick.rows'):
        assert carry_out(plan, place, order) == FAILED
    assert quick == []


# a process that is killed

CHILD = """
import sys
from pathlib import Path
from tests.papers.test_reproduce import job, place_in
from eqtutor.papers.reproduce import work
print('ready', flush=True)
work([job()], place_in(Path(sys.argv[1])))
"""


def run_and_kill(folder, after):
    "Start the work in a process of its own and kill it; False if it was done before."
    child = subprocess.Popen([sys.executable, '-c', CHILD, str(folder)], stdout=subprocess.PIPE,
                             text=True)
    assert child.stdout.readline() == 'ready\n'
    try: return child.wait(after) == 0 and False
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.wait()
        return True
    finally: child.stdout.close()


def killed_until_done(folder, kills, seed):
    "Kill so many times at random moments, then let it end; epochs never go back."
    place, moment, epochs = place_in(folder), random.Random(seed), 0
    for _ in range(kills):
        run_and_kill(folder, moment.uniform(0, 2.5))
        progress = progress_of(job(), place)
        assert progress.epochs >= epochs
        epochs = progress.epochs
    assert work([job()], place, say=lambda line: None) == []
    return place


def test_killed_twice_it_ends_as_if_nothing_had_been(tmp_path, straight):
    check_as_straight(killed_until_done(tmp_path, 2, 0), straight)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(5))
def test_killed_twenty_times_it_ends_as_if_nothing_had_been(tmp_path, straight, seed):
    check_as_straight(killed_until_done(tmp_path, 4, seed), straight)
