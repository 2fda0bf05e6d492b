"Each record of a run agrees with itself: its history with its summary, settings, network, place."
import copy
import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch

from eqtutor.cost import count_parameters
from eqtutor.models.affine import affine_resnet
from eqtutor.models.registry import build_model
from eqtutor.papers.benchmarks.affine import run_name
from eqtutor.train import SCHEDULES, Training
from tests import pin

RESULTS = Path(__file__).parent.parent/'results'
RECORDS = {str(path.relative_to(RESULTS)): json.loads(path.read_text(encoding='utf-8'))
           for path in sorted(RESULTS.rglob('*.json'))}
RUNS = [name for name, record in RECORDS.items() if 'history' in record]
# pictures to validate and to test on, where a record does not say
PICTURES = {'rotmnist': (2_000, 50_000), 'rotmnist-12000': (10_000, 50_000),
            'digits': (200, 400), 'cifar10': (500, 2_000)}


# --- what has to hold

def network_of(record, folder):
    settings = record['settings']
    if folder not in ('affine-small', 'affine-short'): return build_model(settings['network'])
    operator, group = settings['network'], settings.get('group', 'Z2')
    make = partial(affine_resnet, operator, group, settings.get('se', False))
    if folder == 'affine-short': return make()
    width, options = 8 if group == 'Z2' else 4, None if operator == 'conv' else {'heads': 4}
    return make(widths=(width,)*3, in_channels=1, options=options)


def place_of(record, folder):
    settings = record['settings']
    if 'init' not in settings: return f'{Training(**settings).experiment}/{settings["seed"]}'
    names = {key: settings[key] for key in ('init', 'group', 'se') if key in settings}
    return f'{folder}/{run_name(settings["network"], **names)}-{settings["seed"]}'


def rates(record):
    "The rate of the last batch of each epoch."
    config = record['config']
    epochs, batches = config['epochs'], config['batches']
    of_time = SCHEDULES[config['schedule']]
    return [config['lr']*of_time(((i + 1)*batches - 1)/(epochs*batches)) for i in range(epochs)]


def measured(record):
    "What was measured on how many pictures: `(name, loss, accuracy, pictures)`."
    valid, test = PICTURES[record['config']['data']]
    test = record['settings'].get('test_images') or test
    sizes = dict(train=record['config']['loader images'][0], valid=valid)
    for epoch in record['history']:
        for part, n in sizes.items():
            yield (f'{part}, epoch {epoch["epoch"]}', epoch[f'{part}_loss'],
                   epoch[f'{part}_accuracy'], n)
    for name, times in dict(test=1, turned=3).items():
        if name in record: yield name, record[name]['loss'], record[name]['accuracy'], times*test


def disagreements(record, place):
    "What in the record of a run does not agree with the rest of it, in words."
    history, config, settings = (record[key] for key in ('history', 'config', 'settings'))
    folder, said = place.rpartition('/')[0], []
    if [e['epoch'] for e in history] != list(range(1, config['epochs'] + 1)): said += ['epochs']
    if any(settings[key] != config[key] for key in settings.keys() & config.keys()
           if settings[key] is not None): said += ['settings']
    if not ('/' + place).endswith(f'/{place_of(record, folder)}'): said += ['place']
    with torch.device('meta'): size = count_parameters(network_of(record, folder))
    if size != record['parameters']: said += ['parameters']
    if any(not math.isclose(e['lr'], lr, rel_tol=1e-9)
           for e, lr in zip(history, rates(record))): said += ['rates']
    for key in 'seconds', 'cpu_seconds':
        if key not in record: continue
        rest = record[key] - sum(e[key] for e in history)
        # records without seconds of the processor count the test, too
        if not -.051 < rest < (.051 if 'cpu_seconds' in record else record[key]): said += [key]
    for name, loss, accuracy, n in measured(record):
        right = accuracy*n
        if abs(right - round(right)) > 1e-6 or not 0 <= accuracy <= 1: said += [f'{name}: share']
        # a wrong answer has at most half of the probability
        if not (1 - accuracy)*math.log(2) <= loss < math.inf: said += [f'{name}: loss']
    (_, _, valid, n), *_ = [m for m in measured(record) if m[0] == f'valid, epoch {len(history)}']
    (_, _, test, m), *_ = [m for m in measured(record) if m[0] == 'test']
    spread = (test*(1 - test)*(1/n + 1/m))**.5
    if abs(test - valid) > 5*spread: said += ['test']
    return said


# --- of all records

@pytest.mark.parametrize('name', RUNS)
def test_a_history_agrees_with_its_summary(name):
    assert not disagreements(RECORDS[name], name.removesuffix('.json'))


@pytest.mark.parametrize('name', [name for name in RECORDS if name.startswith('demo/')])
def test_a_demo_agrees_with_itself(name):
    record, n = RECORDS[name], RECORDS[name]['config']['test']
    for network, size in record['parameters'].items():
        assert size == count_parameters(build_model(network))
        curve, turns = record['curve'][network], record['accuracy'][network]
        assert {**turns, 'any angle': None} == {
            'upright': curve['0'], '90°': curve['90'], '180°': curve['180'],
            '270°': curve['270'], 'any angle': None}
        shares = [*curve.values(), *turns.values()]
        assert all(math.isclose(share*n, round(share*n), abs_tol=1e-6) for share in shares)
        exact = [error < 1e-12 for error in record['layer_error'][network].values()]
        assert all(exact) if network == 'p4-CNN' else not any(exact)


def test_a_record_is_never_edited():
    "A run that is done again, or a new one: python -m tests.pin --write, and the commit says why."
    pinned = json.loads(pin.FILE.read_text(encoding='utf-8'))['records']
    assert pinned == pin.digests()
    assert pinned.keys() > set(RUNS) and len(RUNS) > 40


# --- what is noticed

def broken(name):
    "A good record, what to do with it, and what of it does not agree then."
    record, place = copy.deepcopy(RECORDS['p4-cnn-rotmnist/0.json']), 'p4-cnn-rotmnist/0'
    last = record['history'][-1]
    if name == 'epochs': record['history'].pop()
    if name == 'settings': record['settings']['weight_decay'] = 0
    if name == 'place': place = 'p4-cnn-rotmnist/1'
    if name == 'parameters': record['parameters'] += 1
    if name == 'rates': last['lr'] = 1e-4
    if name == 'seconds': last['seconds'] += 1
    if name == 'cpu_seconds': record['cpu_seconds'] -= 1
    if name == 'test: share': record['test']['accuracy'] += 1e-6
    if name == 'train, epoch 100: share': last['train_accuracy'] = .98015
    if name == 'valid, epoch 100: loss': last['valid_loss'] /= 10
    if name == 'test': record['test']['accuracy'] -= .03
    return record, place


@pytest.mark.parametrize('name', [
    'epochs', 'settings', 'place', 'parameters', 'rates', 'seconds', 'cpu_seconds', 'test: share',
    'train, epoch 100: share', 'valid, epoch 100: loss', 'test'])
def test_what_does_not_agree_is_named(name):
    assert name in disagreements(*broken(name)) and disagreements(*broken('')) == []


def test_another_digit_is_another_record():
    record = copy.deepcopy(RECORDS['p4-cnn-rotmnist/0.json'])
    before = pin.digest(record)
    record['commit'] = record['versions'] = 'another'
    assert pin.digest(record) == before
    record['history'][7]['train_loss'] += 1e-12
    assert pin.digest(record) != before
