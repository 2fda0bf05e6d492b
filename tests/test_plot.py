"Tensors that cannot be drawn, kinds of input that can, and figures as files."
import pickle

import matplotlib.pyplot as plt
import pytest
import torch

from eqtutor.groups import C, D
from eqtutor.plot import (
    Picture,
    alt_text,
    cayley_edges,
    plot_attention,
    plot_cayley_graph,
    plot_cayley_table,
    plot_feature_map,
    plot_kernels,
    plot_orientation,
    plot_ring,
    png,
    ring_places,
    strongest,
)

F4 = torch.randn(3, 4, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MAP = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(1))
PHOTO = torch.rand(5, 7, generator=torch.Generator().manual_seed(2))
WEIGHTS = F4.softmax(1)[0]


def images(fig): return [ax.images[0].get_array().data for ax in fig.axes if ax.images]


def with_nan(x):
    y = x.clone()
    y[1, 2, 3, 4] = float('nan')
    return y


def arrow_count(fig): return sum(len(c.U) for c in fig.axes[0].collections if hasattr(c, 'U'))


# --- bad input

@pytest.mark.parametrize('draw, message', [
    (lambda: plot_feature_map(F4[:, :3], 'p4'),
     r'axis 1 of f must be the group axis of C4, \|H\| = 4, got shape \(3, 3, 5, 7\)'),
    (lambda: plot_feature_map(F4[None], 'p4'),
     r'got \(1, 3, 4, 5, 7\)\. Pick one image of the batch, as in f\[0\]'),
    (lambda: plot_feature_map(F4[:, :, :0], 'p4'), 'with no empty axis'),
    (lambda: plot_feature_map(with_nan(F4), 'p4'),
     r'f holds 1 NaN or infinite entries of 420, the first at index \(1, 2, 3, 4\)\. Find'),
    (lambda: plot_ring(torch.rand(8, 5, 5), 'p4'), r'\|H\| = 4, got shape \(8, 5, 5\)'),
    (lambda: plot_ring(torch.rand(4, 5), 'p4'), r'f must have shape \(\|H\|, h, w\)'),
    (lambda: plot_kernels(torch.rand(3, 4), 'p4'), r'must be square, got shape \(3, 4\)'),
    (lambda: plot_kernels(torch.rand(8, 3, 3), 'p4'), 'axis 0 of kernel must be the group axis'),
    (lambda: plot_orientation(MAP, 'p4m'), r'\|H\| = 8'),
    (lambda: strongest(MAP, 'p4m'), r'\|H\| = 8'),
    (lambda: plot_cayley_table('p5'), 'unknown group'),
])
def test_tensors_that_do_not_fit_the_group_are_refused(draw, message):
    with pytest.raises(ValueError, match=message): draw()


@pytest.mark.parametrize('image, message', [
    (torch.rand(2, 4, 5), r'1 channel or 3, got shape \(2, 4, 5\)\. Pick one, as in image\[0\]'),
    (torch.rand(1, 3, 4, 5), r'Pick one image of the batch, as in image\[0\]'),
])
def test_what_is_no_image_is_refused(image, message):
    with pytest.raises(ValueError, match=message): plot_ring(MAP, 'p4', image)


def test_elements_that_the_group_lacks_are_refused():
    with pytest.raises(ValueError, match=r'move must be an element of C4, 0\.\.3, got 4'):
        plot_ring(MAP, 'p4', move=4)
    with pytest.raises(ValueError, match=r'generators must be elements of C4, 0\.\.3, got \(5,\)'):
        cayley_edges('p4', (5,))


def test_generators_that_do_not_generate_are_refused():
    with pytest.raises(ValueError, match=r'reach only \(0, 2\); try \(1,\)'):
        cayley_edges('p4', (2,))
    with pytest.raises(ValueError, match="'left' or 'right', got 'up'"):
        cayley_edges('p4', side='up')


def test_an_image_turned_without_its_map_is_refused():
    with pytest.raises(ValueError, match='Has only one of them been turned?'):
        plot_orientation(torch.rand(4, 6, 9), 'p4', torch.rand(9, 6))
    with pytest.raises(ValueError, match='their proportions differ'):
        plot_attention(WEIGHTS, PHOTO.T)


@pytest.mark.parametrize('weights, options, message', [
    (-WEIGHTS, {}, r'the smallest is -0\.\d+: scores\? Apply the softmax or the sigmoid first'),
    (WEIGHTS/0, {}, 'NaN or infinite'),
    (WEIGHTS, dict(titles=['one']), 'expected 4 titles, one a map, got 1'),
    (WEIGHTS, dict(query=(99, 0)), r'query \(99, 0\) lies outside the map, 5×7'),
    (WEIGHTS, dict(query=(0, 7)), 'outside the map'),
])
def test_weights_that_are_no_attention_are_refused(weights, options, message):
    with pytest.raises(ValueError, match=message): plot_attention(weights, PHOTO, **options)


# --- kinds of input

@pytest.mark.parametrize('x', [
    torch.ones(4, 2, 2), torch.zeros(4, 2, 2).bool(), torch.ones(4, 2, 2, requires_grad=True),
    torch.ones(4, 2, 2).bfloat16(), F4[0].numpy(),
], ids=['constant', 'bool', 'with gradient', 'half precision', 'numpy'])
def test_any_kind_of_tensor_can_be_drawn(x):
    want = torch.as_tensor(x).detach().double().numpy()
    assert all((a == b).all() for a, b in zip(images(plot_feature_map(x, 'p4')), want, strict=True))


@pytest.mark.parametrize('shape', [(1, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize('value', [0., 1.])
def test_constant_attention_is_drawn_without_contours(shape, value):
    fig = plot_attention(torch.full(shape, value), torch.rand([2*size for size in shape]))
    assert (fig.axes[1].images[1].get_array().data == value).all() and not fig.axes[1].collections


def test_nothing_is_drawn_where_no_response_is_positive():
    for f in (-torch.rand(4, 5, 5), torch.zeros(4, 5, 5)):
        fig = plot_orientation(f, 'p4')
        assert arrow_count(fig) == 0 and alt_text(fig).startswith('0 arrows')
    assert arrow_count(plot_orientation(MAP, 'p4', threshold=0)) == 25


# --- figures as files

def small():
    fig = Picture(figsize=(1, 1))
    fig.subplots().plot([0, 1])
    return fig


def test_a_png_names_no_software_and_opens_no_window():
    before = plt.get_fignums()
    file = png(small())
    assert file[1:4] == b'PNG' and b'Software' not in file
    assert plt.get_fignums() == before


def test_a_picture_can_be_pickled():
    fig = small()
    fig.alt = 'a line'
    copy = pickle.loads(pickle.dumps(fig))
    assert alt_text(copy) == 'a line' and png(copy) == png(fig)


# --- where the default device is not the CPU

@pytest.mark.parametrize('draw', [
    lambda: plot_cayley_graph('p4m'),
    lambda: plot_cayley_table('p4m'),
    lambda: plot_ring(MAP, 'p4', PHOTO[:5, :5], move=1),
    lambda: plot_kernels(MAP[:, :3, :3], 'C4'),
    lambda: plot_orientation(MAP, 'p4'),
])
def test_figures_do_not_depend_on_the_default_device(draw):
    expected = draw()
    with torch.device('meta'): fig = draw()
    assert alt_text(fig) == alt_text(expected) and png(fig) == png(expected)


def test_rings_do_not_touch():
    for H in (C(1), C(2), C(16), D(8)):
        places = ring_places(H)
        assert len(H) == 1 or torch.pdist(places).min() > .3
        assert len({tuple(p) for p in places.tolist()}) == len(H)
