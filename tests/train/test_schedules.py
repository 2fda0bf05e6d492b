"What trains a network, apart from its steps: seeds, schedules, plateaus, averages of weights."
import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from eqtutor.train import (
    OPTIMIZERS,
    RECIPES,
    SCHEDULES,
    average_into,
    digits,
    plateaus,
    seed_everything,
    train_epoch,
)


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_a_seed_repeats_all_three_generators():
    seed_everything(3)
    first = draws()
    assert all(a != b for a, b in zip(first, draws()))   # they move on
    seed_everything(3)
    assert draws() == first


def test_an_epoch_is_gradient_descent_by_hand():
    "Two batches; `autograd.grad` returns fresh gradients, so a forgotten `zero_grad` would show."
    x, y = digits('valid').tensors
    batches = [(x[:64].double(), y[:64]), (x[64:].double(), y[64:])]
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double()
    twin, sgd = copy.deepcopy(net), torch.optim.SGD(net.parameters(), lr=9.)
    metrics = train_epoch(net, batches, sgd, lr=lambda i: .1/(i + 1))
    losses, weights = [], list(twin.parameters())
    for i, (a, b) in enumerate(batches):
        losses.append(nn.functional.cross_entropy(twin(a), b))
        for p, g in zip(weights, torch.autograd.grad(losses[-1], weights)): p.data -= .1/(i + 1)*g
    torch.testing.assert_close(net[1].weight, twin[1].weight, rtol=1e-10, atol=1e-10)
    mean = (64*losses[0] + 136*losses[1]).item()/200
    assert metrics['loss'] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize('name, epochs, of, smaller', [
    ('P1 All-CNN', (0, 199, 200, 250, 300, 349), 350, [1, 1, 10, 100, 1000, 1000]),
    ('P4 CIFAR', (59, 60, 120, 160), 200, [1, 5, 25, 125]),
    ('P2 ResNet29', (0, 1, 4, 9, 50, 75), 100, [10, 5, 2, 1, 10, 100])])
def test_the_rate_falls_on_the_first_batch_of_the_epoch_that_the_paper_names(
        name, epochs, of, smaller):
    assert [round(1/SCHEDULES[name](epoch/of)) for epoch in epochs] == smaller


def test_each_recipe_names_a_schedule_and_an_optimizer():
    for recipe in RECIPES.values():
        assert recipe.schedule in SCHEDULES and recipe.optimizer in OPTIMIZERS


def test_plateaus_count_what_patience_waits_for():
    losses = [3, 2, 2, 2.5, 1, 1, 1, 1, 1]
    assert [plateaus(losses[:n], 2) for n in range(10)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]


def test_an_average_forgets_its_start_faster_at_first():
    ema, net = nn.Linear(2, 1).double(), nn.Linear(2, 1).double()
    start = ema.weight.clone()
    for step in range(3): average_into(ema, net, .5, step)
    rest = .1*2/11*3/12
    torch.testing.assert_close(ema.weight, rest*start + (1 - rest)*net.weight)
    average_into(ema, net, .5, 1000)
    torch.testing.assert_close(ema.weight, rest/2*start + (1 - rest/2)*net.weight)
