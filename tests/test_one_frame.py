"What the frame answers to input that it cannot take, and what passes through it unchanged."
import pytest
import torch

from eqtutor.experiments.one_frame import LAYERS, alone, input_shape
from eqtutor.one_frame import aggregate, dependence, normalise, square

E = [((0, 0), 0)]   # the neutral element alone


def on_p4(): return torch.randn(2, 3, 4, 2, 3, generator=torch.Generator().manual_seed(0))

def source(n, x, y): return 0 if y is None else y


def test_identity(): assert torch.equal(aggregate(on_p4(), source, 'p4', E), on_p4())

def test_dtype_and_batch_pass_through():
    f = on_p4()
    assert aggregate(f.double(), lambda n, x, y: y[:, :2], 'p4', E).dtype == torch.float64
    assert aggregate(f[:1], lambda n, x, y: x, 'p4', square(1, 'p4')).shape == (1, 3, 4, 2, 3)

def test_left_neighbour_of_pose_0():
    f = on_p4()
    y = aggregate(f, source, 'p4', [((-1, 0), 0)])[:, :, 0]
    assert torch.equal(y, torch.cat([torch.zeros(2, 3, 2, 1), f[:, :, 0, :, :-1]], -1))

@pytest.mark.parametrize('shape, group, neighbourhood, words', [
    ((2, 3, 2, 3), 'p4', E, 'the same in all poses'),
    ((2, 3, 4, 2, 3), 'p4m', E, r'\|H\| = 8 for D4, got \(2, 3, 4, 2, 3\)'),
    ((1, 1, 8, 3, 3), 'C8', E, 'between pixels'),
    ((2, 3, 4, 2, 3), 'p4', [], 'neighbourhood is empty'),
    ((2, 3, 4, 2, 3), 'p4', [((.5, 0), 0)], r'\(\(0.5, 0\), 0\) is no element of G.*whole'),
    ((2, 3, 4, 2, 3), 'p4', [((0, 0), 4)], r'a pose q in 0\.\.3')])
def test_wrong_input_is_named(shape, group, neighbourhood, words):
    with pytest.raises(ValueError, match=words):
        aggregate(torch.zeros(shape), source, group, neighbourhood)

def test_even_window_is_refused():
    with pytest.raises(ValueError, match='odd kernel_size, got 4; use 3 or 5'): square(4)

def test_parts_divide_the_channels():
    with pytest.raises(ValueError, match='divisible by parts=4, got 15'):
        normalise(torch.ones(2, 15, 1, 1, 1), 4)

def test_dependence_needs_float64():
    with pytest.raises(ValueError, match=r'float64, got torch.float32: use f.double\(\)'):
        dependence(torch.sin, torch.randn(1, 2, 2, 5, 5))

@pytest.mark.parametrize('name', LAYERS)
def test_layers_that_are_measured_give_scores(name):
    "One number a channel and pose, with a gradient back to the layer's input."
    net, x = alone(name), torch.randn(input_shape(name, 2, 6))
    y = net(x)
    assert y.ndim == 2 and y.shape[0] == 2 and y.shape[1] in (16, 64)
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
