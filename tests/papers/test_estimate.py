"Estimates of training runs: counted where they are counted, plausible where they are measured."
import json
import time

import pytest
import torch

from eqtutor.cost import layer_costs
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.papers import estimate
from eqtutor.papers.estimate import (
    IMAGES,
    Records,
    as_size,
    as_time,
    at_batch,
    count_macs_of_an_image,
    count_training,
    epoch_images,
    estimate_training,
    saved_bytes,
    timed,
)
from eqtutor.train import DATASETS, SPLITS, Training, digits


def recipe(**options): return Training.read(None, 'P1 rotMNIST', network='p4-cnn', **options)


def test_steps_and_products_are_counted_and_the_rest_is_plausible():
    guess = estimate_training(recipe())
    forward = sum(r.macs for r in layer_costs(p4_cnn(), torch.zeros(1, 1, 28, 28)))
    assert (guess.steps, guess.batch_size) == (100*79, 128)
    assert guess.macs == 3*100*10_000*forward
    # at least input and output of each of six norms
    least = 128*4*40*2*sum(n*n for n in (26, 24, 10, 8, 6, 4))
    assert least < guess.memory < 8*least and 60 < guess.seconds < 1e6
    half = estimate_training(recipe(images=5_000))
    assert (half.steps, 2*half.macs) == (100*40, guess.macs)
    assert str(guess).startswith('p4-cnn: 7,900 steps of 128 images, ')


def test_images_of_an_epoch_follow_the_settings():
    assert epoch_images(recipe()) == (10_000, 2_000, 50_000)
    assert epoch_images(recipe(images=3_000, test_images=7)) == (3_000, 2_000, 7)
    assert epoch_images(Training(data='cifar10', valid=0)) == (50_000, 0, 10_000)
    assert epoch_images(Training(data='cifar10', valid=5_000)) == (45_000, 5_000, 10_000)
    assert epoch_images(Training(data='cifar10', per_class=1000)).train == 10_000
    assert epoch_images(Training(data='cifar100', per_class=10)).train == 1_000


def test_every_data_set_has_its_number_of_images():
    assert IMAGES.keys() == DATASETS.keys()
    assert IMAGES['digits'] == tuple(len(digits(split)) for split in SPLITS)


def test_saved_bytes_count_each_storage_once():
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    x = torch.randn(5, requires_grad=True)
    assert saved_bytes(net, x) == 2*5*4      # a ReLU keeps its result


def test_straight_line_goes_through_both_batches_and_never_down():
    assert at_batch(4, (10., 30.)) == 30 and at_batch(8, (10., 30.)) == 30
    assert at_batch(16, (10., 30.)) == 70 and at_batch(16, (30., 10.)) == 10


RUN = dict(hardware={'device': 'cpu'}, cpu_seconds=100.,
           settings=dict(network='p4-cnn', data='rotmnist', epochs=10, images=1_000))
ROWS = [dict(name=name, time=time, macs=macs) for name, time, macs in (
    ('p4-cnn', 1., 11_673_760), ('gsa-z2', 9., 33_646_400), ('R8_SA', 130., 1))]
BENCH = dict(hardware={'device': 'cpu'}, tables={
    'training step, batch 16, 1×28×28, over the p4-CNN': ROWS, 'one layer': [
        dict(name='gsa-z2', time=.1, macs=1)]})


@pytest.fixture
def records(tmp_path):
    "A run and a benchmark of a processor; others are of a GPU, old, or of other tables."
    other = dict(hardware={'device': 'A GPU'}, cpu_seconds=1e9)
    files = {'run/0.json': RUN, 'run/1.json': RUN | dict(cpu_seconds=300.), 'bench/b.json': BENCH,
             'run/2.json': RUN | other, 'bench/c.json': BENCH | other,
             'elsewhere/costs.json': dict(hardware=BENCH['hardware'], tables={
                 title: [row | dict(time=99.) for row in rows]
                 for title, rows in BENCH['tables'].items()}),
             'run/3.json': {k: v for k, v in RUN.items() if k != 'cpu_seconds'}, 'a.json': [],
             'bench/d.json': dict(hardware=BENCH['hardware'], here=ROWS)}
    for name, content in files.items():
        (tmp_path/name).parent.mkdir(exist_ok=True)
        (tmp_path/name).write_text(json.dumps(content))
    return tmp_path


def test_guesses_go_by_the_best_record(records):
    known = Records.read([records, records], 'cpu')
    unit = 100/(10*(3*1_000 + 2_000) + 50_000)   # of looking at an image, by the fastest run
    assert known.guess(recipe(seed=7)) == (pytest.approx(unit*(100*32_000 + 50_000)), 'run', None)
    digit = dict(data='digits', epochs=1, batch_size=8)
    looks = 3*1_197 + 200 + 400
    by_step = known.guess(Training('gsa-z2', **digit))
    assert by_step == (pytest.approx(9*unit*looks), 'benchmark', None)
    by_label = known.guess(Training('gsa-r8', **digit), 'R8_SA')
    assert by_label == (pytest.approx(130*unit*looks), 'benchmark', None)
    counted = known.guess(Training('z2-cnn', **digit))   # convolutions, as the p4-CNN
    share = count_macs_of_an_image('z2-cnn')/11_673_760
    assert counted == (pytest.approx(share*unit*looks), 'count', None)
    attention = known.guess(Training('gsa-r4', **digit), 'R4_SA')
    more = count_macs_of_an_image('gsa-r4')/33_646_400
    assert attention == (pytest.approx(9*more*unit*looks), 'count', None)


def test_where_nothing_is_stored_multiplications_are_counted(records):
    nothing = Records.read([records/'nowhere'], 'cpu')
    assert not nothing.experiments and not nothing.over_p4
    guess, counted = nothing.guess(recipe()), count_training(recipe())
    looked = (100*2_000 + 50_000)*count_macs_of_an_image('p4-cnn')
    assert guess == (pytest.approx((counted.macs + looked)/1e12), 'count only', None)


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match='unknown data'):
        estimate_training(Training(data='imagenet'))


def test_sizes_and_times_are_read_by_people():
    assert [as_size(n) for n in (2**20, 3*2**29)] == ['1 MB', '1.5 GB']
    assert [as_time(s) for s in (5, 90, 5400)] == ['5 s', '2 min', '1.5 h']


def test_long_work_is_measured_once_and_short_work_after_a_round_to_warm_up(monkeypatch):
    calls = []
    timed(lambda: calls.append('short'), repeats=2)
    monkeypatch.setattr(estimate, 'LONG', .01)
    took = timed(lambda: (calls.append('long'), time.sleep(.02)), repeats=2)
    assert calls == ['short']*3 + ['long'] and took.wall >= .02
