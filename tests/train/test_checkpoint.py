"A checkpoint comes back whole or not at all."
import random
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from eqtutor.models.group_cnn import p4_cnn
from eqtutor.train import (
    load_weights,
    read_checkpoint,
    save_checkpoint,
    seed_everything,
    train_epoch,
)


@pytest.fixture(scope='module')
def net(small_net):
    seed_everything(0)
    return small_net()


@pytest.fixture(scope='module')
def adam(net, valid):
    "With a state, after one epoch."
    adam = torch.optim.Adam(net.parameters())
    train_epoch(net, valid, adam)
    return adam


@pytest.fixture(scope='module')
def point(net, adam, tmp_path_factory):
    path = tmp_path_factory.mktemp('checkpoint')/'point.safetensors'
    save_checkpoint(path, net, adam, {'history': [1, 2]})
    return path


@pytest.fixture
def weights(net, tmp_path):
    save_file(net.state_dict(), tmp_path/'weights.safetensors')
    return tmp_path/'weights.safetensors'


def damages(data):
    "Cut off at forty places and where it hurts most; one bit flipped at two hundred."
    places = np.random.RandomState(0).randint(len(data), size=240).tolist()
    for place in [*places[:40], 0, 7, 8, len(data) - 1]: yield data[:place]
    for place in [*places[40:], 0, 7, 8, len(data) - 1]:
        yield data[:place] + bytes([data[place] ^ 4]) + data[place + 1:]


# a flip in the name of the notes makes a file of weights alone out of it
REFUSED = r'is damaged|load_weights\(net, path\) reads it'


def test_no_damage_is_read(point, tmp_path):
    for data in damages(point.read_bytes()):
        (tmp_path/'hurt').write_bytes(data)
        with pytest.raises(ValueError, match=REFUSED): read_checkpoint(tmp_path/'hurt')


def test_no_damaged_checkpoint_gives_weights(point, net, small_net, tmp_path):
    wanted = net.state_dict()
    twin = load_weights(small_net(), point)
    for data in list(damages(point.read_bytes()))[::12]:
        (tmp_path/'hurt').write_bytes(data)
        with pytest.raises(ValueError, match='damaged'): load_weights(twin, tmp_path/'hurt')
    assert all(torch.equal(v, wanted[k]) for k, v in twin.state_dict().items())


def test_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match='Leave out resume=True'):
        read_checkpoint(tmp_path/'nothing')


def test_a_checkpoint_that_may_not_be_read(point, small_net, monkeypatch):
    monkeypatch.setattr('os.access', lambda *args: False)
    with pytest.raises(PermissionError, match='change its permissions'): read_checkpoint(str(point))
    with pytest.raises(PermissionError, match='change its permissions'):
        load_weights(small_net(), point)


def test_weights_alone_are_no_checkpoint(weights):
    with pytest.raises(ValueError, match=r'load_weights\(net, path\) reads it'):
        read_checkpoint(weights)


def test_weights_of_either_file(net, point, weights, small_net):
    for source in (point, weights, str(weights)):
        twin = load_weights(small_net(), source).state_dict()
        assert all(torch.equal(v, twin[k]) for k, v in net.state_dict().items())


def test_weights_that_do_not_fit(point, small_net):
    wide = small_net(width=9)
    before = deepcopy(wide.state_dict())
    with pytest.raises(ValueError, match=r'0.weight \(8, 1, 5, 5\) instead of \(9, 1, 5, 5\)'):
        load_weights(wide, point)
    assert all(torch.equal(v, before[k]) for k, v in wide.state_dict().items())


def test_missing_and_unknown_weights_are_named(point):
    said = 'missing in the file: weight, bias, running_mean and 2 more; unknown to the net: 0.'
    with pytest.raises(ValueError, match=said): load_weights(nn.BatchNorm2d(3), point)


def test_no_weights(net):
    with pytest.raises(FileNotFoundError, match='no file'): load_weights(net, 'nowhere.safetensors')


def test_no_averaged_weights(point, weights, small_net):
    for source in (point, weights):
        with pytest.raises(ValueError, match='no averaged weights'):
            load_weights(small_net(), source, ema=True)


def test_tied_weights_and_generators_are_saved(tmp_path):
    "The format refuses tensors that share memory; a checkpoint holds a copy of each."
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    save_checkpoint(tmp_path/'tied', net, torch.optim.SGD(net.parameters(), .1), {})
    tensors, about = read_checkpoint(tmp_path/'tied')
    assert torch.equal(tensors['net.0.weight'], tensors['net.1.weight'])
    assert torch.equal(tensors['rng.torch'], torch.get_rng_state())
    assert about['generators']['python'][1] == list(random.getstate()[1])


def test_trained_weights_are_found_by_their_name():
    net = load_weights(p4_cnn(), 'p4-cnn-rotmnist')
    file = Path(__file__).parents[2]/'results'/'weights'/'p4-cnn-rotmnist.safetensors'
    want = load_weights(p4_cnn(), file).state_dict()
    assert all(torch.equal(t, want[name]) for name, t in net.state_dict().items())
    with pytest.raises(FileNotFoundError, match='no file p4-cnn to .*: .*p4-cnn-rotm'):
        load_weights(p4_cnn(), 'p4-cnn')
