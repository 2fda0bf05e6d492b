"What a constructor is given: sizes are whole numbers, and each refusal names its argument."
import inspect

import pytest
import torch
from torch import nn

from eqtutor import nn as layers
from eqtutor.nn import SpatialPool2d

from .every_layer import EXAMPLES

# enough to build any layer
ENOUGH = dict(in_channels=4, out_channels=4, kernel_size=3, group='p4', channels=4, heads=2,
              size=(5, 5), height=5, width=5, window=3, output_size=1)
CLASSES = [c for name, c in sorted(vars(layers).items())
           if inspect.isclass(c) and issubclass(c, nn.Module) and 'Norm' not in name]


def sizes(cls):
    "The arguments of a class that are whole numbers, each with values that are none."
    for p in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        kind = str(p.annotation)
        named = p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if 'int' not in kind or 'tuple' in kind or not named: continue
        bad = [-1, 1.5, *([] if 'bool' in kind else [True]), *([] if 'None' in kind else [None])]
        yield from ((p.name, value) for value in bad)


CASES = [(cls, name, value) for cls in CLASSES for name, value in sizes(cls)]


def test_there_are_layers(): assert len(CLASSES) > 15 and len(CASES) > 150


@pytest.mark.parametrize('cls', CLASSES, ids=lambda c: c.__name__)
def test_what_is_no_size_is_refused_by_name(cls):
    asked = inspect.signature(cls.__init__).parameters
    enough = {name: value for name, value in ENOUGH.items() if name in asked}
    cls(**enough)
    for own, name, value in CASES:
        if own is not cls: continue
        with pytest.raises(ValueError, match=name): cls(**enough | {name: value})


@pytest.mark.parametrize('padding', [(1, 0), (1, 1), -1, True, None, 1.5, 2])
def test_padding_is_one_number_of_at_most_half_a_window(padding):
    with pytest.raises(ValueError, match='padding'): SpatialPool2d(3, 'p4', padding=padding)


@pytest.mark.parametrize(
    'size', [5, (5,), (5, 5, 5), '55', (5, 1.5), (True, 5), (-1, 5), (5, None)])
@pytest.mark.parametrize('encoding', ['relative', 'absolute'])
def test_a_size_is_two_whole_numbers(size, encoding):
    with pytest.raises(ValueError, match='size=|height|width'):
        layers.SelfAttention2d(4, 4, None, 2, size=size, encoding=encoding)


def test_complex_numbers_are_refused():
    layer = layers.SelfAttention2d(4, 4, None, 2, size=(5, 5))
    with pytest.raises(ValueError, match='expected real numbers, got torch.complex64'):
        layer(torch.zeros(1, 4, 5, 5, dtype=torch.complex64))


@pytest.mark.parametrize('name', EXAMPLES)
@pytest.mark.parametrize('dtype', [torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_are_refused_with_the_remedy(name, dtype):
    make, shape = EXAMPLES[name]
    with pytest.raises(ValueError, match=rf'{dtype}: x.float\(\), and for pixels .*/255'):
        make()(torch.ones(shape[0], 4, *shape[2:], dtype=dtype))


@pytest.mark.parametrize('layer', [
    SpatialPool2d(3, 'p4', 2, 1), layers.GroupAdaptivePool2d(2), layers.GroupUpsample2d(2),
    layers.GroupBatchNorm2d(4), layers.GroupLayerNorm2d(4)], ids=lambda m: type(m).__name__)
def test_whole_numbers_in_norms_and_pools_too(layer):
    with pytest.raises(ValueError, match=rf'{type(layer).__name__} .* torch.int64: x.float'):
        layer(torch.ones(2, 4, 4, 5, 5, dtype=torch.int64))


@pytest.mark.parametrize('norm', [layers.GroupBatchNorm2d, layers.GroupLayerNorm2d])
@pytest.mark.parametrize('shape, words', [
    ((2, 4, 5, 5), r'\(b, 4, \|H\|, h, w\), got \(2, 4, 5, 5\).* image: begin with LiftingConv2d'),
    ((2, 3, 4, 5, 5), r'\(b, 4, \|H\|, h, w\), got \(2, 3, 4, 5, 5\).$')])
def test_a_norm_says_what_it_expects(norm, shape, words):
    for layer in norm(4), norm(4).eval():
        with pytest.raises(ValueError, match=norm.__name__ + ' expected a feature map ' + words):
            layer(torch.zeros(shape))
