"The readers of chapter 26 that have windows of any form: on the pixels they are the layers."
import pytest
import torch

from eqtutor.nn.self_attention import LiftingSelfAttention2d
from eqtutor.papers.turning import drawn_layer, layer_reader, smooth_convolution, windowed_attention


@pytest.fixture
def values(): return torch.randn(1, 25, dtype=torch.float64)


@pytest.mark.parametrize('group', ['C8', 'C16'])
def test_convolution_is_the_layer(group, values):
    expected = layer_reader(drawn_layer('smooth filters', group, 0), 5).answers(values)[..., :1]
    assert torch.allclose(smooth_convolution(group, seed=0).answers(values), expected, atol=1e-12)


@pytest.mark.parametrize('group', ['C8', 'C16'])
def test_attention_is_the_layer(group, values):
    layer = drawn_layer('attention', group, 0)
    ours, its = windowed_attention(layer, 'square'), layer_reader(layer, 5)
    assert torch.allclose(ours.answers(values), its.answers(values), atol=1e-12)


def test_attention_without_encoding_is_refused():
    layer = LiftingSelfAttention2d(1, 2, 'C8', 5, heads=1, encoding='none')
    with pytest.raises(ValueError, match='expected an encoding'): windowed_attention(layer)
