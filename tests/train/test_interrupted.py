"""A run that was stopped goes on bit for bit, whatever in it has a memory.

The network has dropout and batch norm, the order is shuffled: every kind of state is in play. What
kills a process at a worse moment: test_resume.
"""
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from eqtutor.train import (
    CHECKPOINT,
    digits,
    evaluate,
    fit,
    load_weights,
    read_checkpoint,
    save_checkpoint,
    seed_everything,
    train_epoch,
)


class CtrlC:
    "A loader in whose third epoch somebody presses Ctrl-C at the third batch."
    def __init__(self, loader):
        self.loader, self.epoch = loader, 0

    def __len__(self): return len(self.loader)

    def __iter__(self):
        self.epoch += 1
        for i, batch in enumerate(self.loader):
            if (self.epoch, i) == (3, 2): raise KeyboardInterrupt
            yield batch

    def __getattr__(self, name):    # set_epoch, and what the settings record
        return getattr(self.loader, name)


@pytest.fixture
def straight(small_net, valid):
    def run(loader, **settings):
        seed_everything(1)
        net = small_net()
        return net, fit(net, loader, valid, 4, bar=False, **settings)
    return run


@pytest.fixture
def stopped(small_net, valid, tmp_path):
    "Stopped in epoch 3; resumed by what could be another process."
    def run(make_loader, **settings):
        settings |= dict(out=tmp_path/'run', bar=False)
        seed_everything(1)
        with pytest.raises(KeyboardInterrupt, match='after epoch 2 is safe'):
            fit(small_net(), CtrlC(make_loader()), valid, 4, **settings)
        seed_everything(99)
        net = small_net()
        return net, fit(net, make_loader(), valid, 4, resume=True, **settings)
    return run


def same(a, b):
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


def metrics(run):
    return [{k: v for k, v in epoch.items() if 'seconds' not in k} for epoch in run.history]


def draws(): return random.random(), np.random.rand(), torch.rand(1).item()


def test_a_cosine_goes_on_and_all_three_generators_with_it(straight, stopped, shuffled):
    net, run = straight(shuffled(), schedule='cosine')
    after = draws()
    other, resumed = stopped(shuffled, schedule='cosine')
    assert same(net, other) and metrics(run) == metrics(resumed) and draws() == after


EVERYTHING = dict(optimizer='nesterov', schedule='P2 ResNet29', lr=.02, ema=.9, precision='bf16',
                  clip=1., patience=1)

def test_momentum_average_patience_warm_up_and_half_precision_go_on(
        straight, stopped, shuffled, small_net, valid, tmp_path):
    net, run = straight(shuffled(), **EVERYTHING)
    other, resumed = stopped(shuffled, **EVERYTHING)
    assert same(net, other) and same(run.ema, resumed.ema) and not same(net, run.ema)
    assert metrics(run) == metrics(resumed)
    assert run.history[-1]['ema_loss'] == evaluate(run.ema, valid)['loss']
    file = tmp_path/'run'/CHECKPOINT
    assert same(load_weights(small_net(), file, ema=True), run.ema)
    assert same(load_weights(small_net(), file), net)


def test_a_loader_of_torch_goes_on(straight, stopped, shuffled):
    def torchs(): return DataLoader(digits('valid'), batch_size=32, shuffle=True)
    a, b = straight(torchs())[0], stopped(torchs)[0]
    assert same(a, b) and not same(a, straight(shuffled())[0])


def test_a_finished_run_of_a_constant_rate_may_be_prolonged(
        straight, shuffled, small_net, valid, tmp_path):
    seed_everything(1)
    two = dict(out=tmp_path/'two', bar=False)
    fit(small_net(), shuffled(), valid, 2, **two)
    longer = small_net()
    run = fit(longer, shuffled(), valid, 4, resume=True, **two)
    assert same(straight(shuffled())[0], longer) and len(run.history) == 4
    assert run.header['resumed'][0]['epoch'] == 2


@pytest.mark.parametrize('order, dropout', [(5, None), (4, 7)], ids=['order', 'dropout'])
def test_another_order_or_other_dropout_gives_other_weights(
        shuffled, small_net, valid, order, dropout):
    "The comparison can fail."
    def net_after(order, dropout):
        seed_everything(1)
        net = small_net()
        if dropout: torch.manual_seed(dropout)
        fit(net, shuffled(order), valid, 1, bar=False)
        return net
    assert same(net_after(4, None), net_after(4, None))
    assert not same(net_after(4, None), net_after(order, dropout))


def test_weights_alone_are_not_enough_to_go_on(straight, shuffled, small_net, valid, tmp_path):
    seed_everything(1)
    fit(small_net(), shuffled(), valid, 2, out=tmp_path/'two', bar=False)
    net, loader = load_weights(small_net(), tmp_path/'two'/CHECKPOINT), shuffled()
    adam = torch.optim.Adam(net.parameters(), weight_decay=1e-4)
    for number in (2, 3):
        loader.set_epoch(number)
        train_epoch(net, loader, adam)
    assert not same(straight(shuffled())[0], net)


def test_a_checkpoint_holds_weights_moments_and_generators(small_net, valid, tmp_path):
    seed_everything(0)
    net, point = small_net(), tmp_path/'point.safetensors'
    adam = torch.optim.Adam(net.parameters())
    train_epoch(net, valid, adam)
    save_checkpoint(point, net, adam, {'history': [1, 2]})
    tensors, about = read_checkpoint(point)
    states = adam.state_dict()['state']
    moments = {f'optimizer.{i}.{k}': v for i, s in states.items() for k, v in s.items()}
    assert len(moments) == 30
    assert all(torch.equal(tensors[f'net.{k}'], v) for k, v in net.state_dict().items())
    assert all(torch.equal(tensors[k], v) for k, v in moments.items())
    assert torch.equal(tensors['rng.torch'], torch.get_rng_state()) and about['history'] == [1, 2]
