"What networks and layers compute is what is pinned in pins.json, with C and without."
import json

import pytest
import torch

from eqtutor import nn as layers
from eqtutor.kernels.native import find_compiler, native_library
from eqtutor.models import MODELS
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.nn import GroupBatchNorm2d
from tests import pin

AGAIN = ('\nIf this is meant: python -m tests.pin --write, and the commit says why the numbers '
         'change.')
# those of each family whose layers C computes
IN_C = ['alpha-p4-cnn', 'alpha-CH-p4-cnn', 'alpha-SP-p4-cnn', 'p4-e4-net', 'p4-e4-net-k7',
        'gsa-r4', 'gsa-z2-pcam', 'z2-resnet29-asc', 'p4-resnet29-asc', 'z2-resnet29-sasa',
        'z2-resnet29-simple-asc', *pin.LAYERS]


def agrees(name):
    lines = pin.changes(name, pin.compute(*pin.ALL[name]), pin.pinned())
    assert not lines, '\n'.join(lines) + AGAIN


def cases():
    for name in pin.ALL:
        yield pytest.param(name, marks=[pytest.mark.slow] if name in pin.SLOW else [])


@pytest.mark.parametrize('name', [*cases()])
def test_it_computes_what_is_pinned(name): agrees(name)


@pytest.mark.skipif(find_compiler() is None, reason='no C compiler, or EQTUTOR_NATIVE=0')
@pytest.mark.parametrize('name', IN_C)
def test_it_computes_the_same_without_c(name, monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    native_library.cache_clear()
    try: agrees(name)
    finally: native_library.cache_clear()


def test_every_network_and_every_layer_is_pinned():
    assert list(pin.pinned()) == list(pin.ALL) and pin.NETWORKS.keys() >= MODELS.keys()
    assert {name.split()[0] for name in pin.LAYERS} == set(layers.__all__)
    assert pin.ALL.keys() > pin.SLOW
    assert pin.FILE.stat().st_size < 22_000


def test_no_random_generator_decides():
    found = []
    for seed in 0, 1:
        torch.manual_seed(seed)
        found.append([s.value for s in pin.compute(*pin.ALL['E4Net batch'])])
    assert found[0] == found[1] and 0 not in found[0]


# --- what is noticed

def with_eps(eps):
    net = p4_cnn()
    for m in net.modules():
        if isinstance(m, GroupBatchNorm2d): m.eps = eps
    return net


def test_another_eps_is_noticed():
    shape, pins = pin.ALL['p4-cnn'][1], pin.pinned()
    found = pin.compute(lambda: with_eps(1e-5), shape)
    lines = pin.changes('p4-cnn', found, pins)
    assert [line.split(': ')[1] for line in lines] == [*pin.NUMBERS]
    assert not pin.changes('p4-cnn', pin.compute(lambda: with_eps(2e-5), shape), pins)


def test_a_number_that_is_none_agrees_with_nothing():
    value = pin.Sum({'x': torch.full((2,), torch.nan)})
    assert not value.agrees(0.) and not value.agrees(float('nan'))


@pytest.fixture
def small(monkeypatch, tmp_path):
    "A file of its own for three layers."
    names = 'GroupPool max', 'GroupPool mean', 'GroupBatchNorm2d'
    monkeypatch.setattr(pin, 'ALL', {name: pin.ALL[name] for name in names})
    monkeypatch.setattr(pin, 'FILE', tmp_path/'pins.json')
    return pin.FILE


def test_writing_says_what_changes_and_leaves_the_rest(small, capsys):
    assert pin.main(['--write']) == 0
    assert capsys.readouterr().out.count('is not pinned yet') == 3
    first = small.read_text()
    assert pin.main([]) == 0 and pin.main(['--write']) == 0
    assert capsys.readouterr().out == 'nothing has changed\n'*2
    content = json.loads(first)
    content['pins'] |= {'gone': [0]*5}
    content['pins']['GroupPool mean'][1] += 1e-6
    content['pins']['GroupBatchNorm2d'][0] *= 1 + 1e-13
    small.write_text(json.dumps(content))
    assert pin.main(['GroupPool max']) == 0 and pin.main(['GroupPool mean']) == 1
    assert pin.main(['--write']) == 0
    said = capsys.readouterr().out
    assert 'GroupPool mean: output in train: ' in said and 'gone: is gone' in said
    assert 'GroupBatchNorm2d' not in said
    again = json.loads(small.read_text())['pins']
    assert again['GroupPool mean'] == json.loads(first)['pins']['GroupPool mean']
    assert again['GroupBatchNorm2d'] == content['pins']['GroupBatchNorm2d']


def test_what_is_not_named_is_not_written(small):
    pin.main(['--write', 'GroupPool max'])
    assert list(pin.pinned()) == ['GroupPool max']
    with pytest.raises(SystemExit): pin.main(['--write', 'GroupPool'])
