"What a step is told and does: the order, the rate, the decay, the clip, half precision, the alarm."
import warnings
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.train import (
    SCHEDULES,
    DivergenceAlarm,
    TensorLoader,
    accelerated,
    digits,
    fit,
    seed_everything,
    train_epoch,
)


def test_the_loader_hears_each_epoch_s_number_and_the_rate_follows_the_whole_run(small_net, valid):
    loader, numbers = TensorLoader(digits('valid'), batch_size=50, shuffle=True), []
    with patch.object(loader, 'set_epoch', numbers.append):
        run = fit(small_net(), loader, valid, 3, schedule='cosine', bar=False)
    assert numbers == [0, 1, 2]
    last = [(4*epoch - 1)/12 for epoch in (1, 2, 3)]    # times of each fourth batch
    assert run.curve('lr') == [1e-3*SCHEDULES['cosine'](t) for t in last]


def test_the_decay_is_a_term_of_the_gradient():
    "Not AdamW's: the moments of the first step, corrected, are g and g² with g = ∇ + λw."
    one = TensorLoader(digits('valid'), batch_size=200)
    x, y = next(iter(one))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    w = net[1].weight
    g = torch.autograd.grad(F.cross_entropy(net(x), y), w)[0] + .5*w
    expected = w.detach() - 1e-2*g/(g.abs() + 1e-8)
    fit(net, one, one, 1, lr=1e-2, weight_decay=.5, bar=False)
    torch.testing.assert_close(w.detach(), expected)


def move(clip):
    "By how much one step of plain descent with rate 1 moves the weights, `(7850,)`."
    seed_everything(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double()
    x, y = digits('valid').tensors
    before = nn.utils.parameters_to_vector(net.parameters())
    sgd = torch.optim.SGD(net.parameters(), lr=1.)
    train_epoch(net, [(x[:64].double(), y[:64])], sgd, clip=clip)
    return nn.utils.parameters_to_vector(net.parameters()) - before


def test_a_clipped_step_has_the_length_of_the_clip_in_the_old_direction():
    free, clipped = move(None), move(.25)
    assert free.norm() > .5 and abs(clipped.norm() - .25) < 1e-6
    assert F.cosine_similarity(free, clipped, 0) > 1 - 1e-12
    assert torch.equal(move(1e6), free), 'one that was short enough is left alone'


def test_half_precision_leaves_weights_and_gradients_whole(small_net):
    losses = []
    for precision in ('bf16', 'no'):
        seed_everything(0)
        net = small_net()
        sgd = torch.optim.SGD(net.parameters(), .1)
        with accelerated(net, precision) as accelerator:
            seed_everything(0)
            batches = [digits('valid').tensors]
            losses.append(train_epoch(net, batches, sgd, accelerator=accelerator)['loss'])
        assert all(p.dtype == p.grad.dtype == torch.float32 for p in net.parameters())
    assert 0 < abs(losses[0] - losses[1]) < .01, 'the forward pass has 8 significant bits'


def warnings_of(losses):
    "The warnings of an alarm that hears these losses, ten classes."
    alarm = DivergenceAlarm()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        for i, loss in enumerate(losses): alarm(loss, 10, f'batch {i + 1}')
    return [str(w.message) for w in heard]


@pytest.mark.parametrize('losses', [
    [2.5, 9., *[2.3]*30], [12.]*30, [2.3]*5 + [50.]*4],
    ids=['one bad batch', 'a large start that stays', 'four bad batches'])
def test_the_alarm_keeps_quiet(losses): assert not warnings_of(losses)


def test_the_alarm_speaks_once_and_says_what_to_do():
    assert len(warnings_of([2.3]*5 + [50.]*20)) == 1
    assert warnings_of([2.3, *[40.]*30]) == [
        'Training diverges: the last 10 losses up to batch 10 have a mean of 36.2, the first was '
        '2.3 and guessing costs 2.3. Lower the learning rate, warm it up, or clip the gradient.']
