"`eqtutor reproduce`: the order of work, and work that is stopped, killed or shared."
import json
import math
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from eqtutor.files import checksum
from eqtutor.models import MODELS
from eqtutor.papers.reproduce import (
    Job,
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
from eqtutor.papers.train import Training
from eqtutor.train import RECIPES

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
    plan = make_plan([job(), job(1)], straight, lambda line: None)
    assert plan.jobs == [job(1), job()] and plan.left(job()) == 0 < plan.left(job(1))
    first, last = plan.rows()
    assert first['state'] == 'not run' and last['state'] == 'complete' and last['took'] >= 0
    assert '2 runs, ' in str(plan)
    again = make_plan([job()], straight, pytest.fail)   # nothing is measured twice
    assert again.estimates[job()] == plan.estimates[job()]


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
    assert fault.startswith('T.1 Z2, seed 0: train: 1,000,000 pictures are asked for')
    assert progress_of(job(epochs=1), place).complete


def test_a_run_belongs_to_one_process(tmp_path):
    place = place_in(tmp_path)
    with claimed(job(), place) as mine:
        assert mine
        assert work([job()], place, say=pytest.fail) == []   # left to the other
        with claimed(job(1), place) as another: assert another
    with claimed(job(), place) as again: assert again


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


def test_an_unknown_executor_is_refused(tmp_path):
    plan = make_plan([job()], place_in(tmp_path), lambda line: None)
    with pytest.raises(ValueError, match="executor must be local or slurm, got 'cloud'"):
        carry_out(plan, place_in(tmp_path), executor='cloud')


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
