"The readers of chapter 26 that have windows of any form: on the pixels they are the layers."
import math

import pytest
import torch

from eqtutor.actions import act
from eqtutor.groups import get_group
from eqtutor.nn.self_attention import LiftingSelfAttention2d
from eqtutor.papers.turning import (
    drawn_layer,
    filters_between_pixels,
    layer_reader,
    reading_error,
    smooth_convolution,
    waves,
    window_offsets,
    windowed_attention,
)


@pytest.fixture
def values(): return torch.randn(1, 25, dtype=torch.float64)


@pytest.mark.parametrize('group', ['C8', 'C16'])
def test_a_convolution_answers_by_its_filter_turned_bilinearly(group, values):
    H, reader = get_group(group), smooth_convolution(group, seed=0)
    impulses = torch.eye(25, dtype=torch.float64)
    filters = reader.answers(impulses)[..., 0].view(len(H), 1, 1, 5, 5)
    for h in H.elements:
        turned = act(H, h, filters[0]).flatten()
        assert torch.allclose(reader.answers(values)[h, 0], values @ turned, atol=1e-12)


@pytest.mark.parametrize('group', ['C8', 'C16'])
def test_the_layer_errs_far_less_than_filters_read_between_pixels(group):
    h = len(get_group(group))//8     # 45°
    layer = layer_reader(drawn_layer('smooth filters', group, 0), 5)
    assert reading_error(layer, h) < reading_error(smooth_convolution(group, seed=0), h)/5


@pytest.mark.parametrize('group', ['C8', 'C16'])
def test_attention_is_the_layer(group, values):
    layer = drawn_layer('attention', group, 0)
    ours, its = windowed_attention(layer, 'square'), layer_reader(layer, 5)
    assert torch.allclose(ours.answers(values), its.answers(values), atol=1e-12)


def test_filters_between_pixels_are_exact_at_quarter_turns_alone():
    reader = filters_between_pixels('C8', 0)
    assert reading_error(reader, 2) < 1e-12 and reading_error(reader, 1) > .05


def test_a_picture_that_fills_its_frame_errs_at_its_rim_whatever_the_layer():
    frame, radius = window_offsets(16), window_offsets(16).norm(dim=-1)
    fade = .5 + .5*torch.cos(math.pi*((radius - 6)/6).clamp(0, 1))
    conv = drawn_layer('random filters', 'C8', 0)

    @torch.no_grad()
    def errors(x):
        "By place: the largest difference, over the largest answer."
        x = x.view(1, 1, 33, 33)
        difference = conv(act('C8', 1, x)) - act('C8', 1, conv(x))
        return difference.abs().amax((0, 1, 2)).flatten()/conv(x).abs().max()

    texture = waves(.6, seed=2)(frame)
    full, faded = errors(texture), errors(texture*fade)
    assert full[radius > 14].max() > .3 > .2 > max(full[radius <= 12].max(), faded.max())


def test_attention_without_encoding_is_refused():
    layer = LiftingSelfAttention2d(1, 2, 'C8', 5, heads=1, encoding='none')
    with pytest.raises(ValueError, match='expected an encoding'): windowed_attention(layer)
