"What the frame answers to input that it cannot take, and the layers that are in it."
from itertools import combinations

import pytest
import torch

from eqtutor.dependence import dependence
from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.nn.affine import GroupAffineSelfConv2d, GroupSimpleAffineSelfConv2d
from eqtutor.nn.attention import StandAloneSelfAttention2d
from eqtutor.nn.attentive import AttentiveGroupConv2d
from eqtutor.nn.convolution import LiftingConv2d
from eqtutor.nn.e4 import E4Conv2d
from eqtutor.nn.gates import ChannelAttention, SpatialAttention, SqueezeExcitation
from eqtutor.nn.self_attention import LiftingSelfAttention2d
from eqtutor.one_frame import aggregate, entry, normalise, square, weighted
from eqtutor.papers.benchmarks.one_frame import LAYERS, alone, input_shape
from eqtutor.papers.pairs import looped_affine, looped_sasa, removed_field

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
    ((2, 3, 4, 2, 3), 'p4', [((0, 0), 4)], r'a pose r in 0\.\.3')])
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


# --- layers and borders that the chapter leaves to these tests

def close(slow, fast): torch.testing.assert_close(slow, fast, rtol=1e-10, atol=1e-10)

def double(*shape): return torch.randn(shape, dtype=torch.float64)

def in_all_poses(image, n): return image[:, :, None].expand(-1, -1, n, -1, -1)

def test_a_square_goes_row_by_row_and_keeps_to_its_poses():
    assert square(3)[0] == ((-1, 1), 0)
    assert [entry(n, 3) for n in square(3)] == [(i, j) for i in range(3) for j in range(3)]
    assert len(set(square(5, 'p4m'))) == 25*8

def test_normalised_sums_are_a_softmax():
    scores, values = double(2, 3, 7), double(2, 3, 4, 7)   # parts before sources
    sums = sum(weighted(scores[..., s].exp(), values[..., s]) for s in range(7))
    right = (scores.softmax(-1)[:, :, None]*values).sum(-1).flatten(1)
    close(normalise(sums[..., None, None, None], 3)[..., 0, 0, 0], right)

@pytest.fixture
def sasa():
    torch.manual_seed(0)
    return perturb_(StandAloneSelfAttention2d(3, 8, 3, heads=2), 1.).double()

def test_three_borders_of_attention_differ_at_the_rim_alone(sasa):
    "Masked; keys and values zero; continued with zero features."
    f, borders = double(1, 3, 1, 5, 6), []
    for boundary in ('mask', 'zero'):
        sasa.boundary = boundary
        borders.append(looped_sasa(sasa, f))
        close(borders[-1], sasa(f))
    sasa.boundary = 'mask'
    borders.append(looped_sasa(sasa, torch.nn.functional.pad(f, (1,)*4))[..., 1:-1, 1:-1])
    for a, b in combinations(borders, 2):
        apart = (a - b).abs().amax((0, 1, 2))
        assert apart[1:-1, 1:-1].max() < 1e-12 and apart[0].min() > 1e-6

def test_the_loop_overflows_where_the_layer_does_not(sasa):
    f = 4000*double(1, 3, 1, 3, 3)
    assert looped_sasa(sasa, f).isnan().any() and sasa(f).isfinite().all()

@pytest.mark.parametrize('boundary', ['mask', 'zero'])
@pytest.mark.parametrize('cls', [GroupSimpleAffineSelfConv2d, GroupAffineSelfConv2d])
@pytest.mark.parametrize('group', ['Z2', 'mirror', 'p4'])
def test_affine_self_convolution_is_in_the_frame(cls, boundary, group):
    torch.manual_seed(0)
    layer = perturb_(cls(3, 4, 3, group, heads=2, boundary=boundary)).double()
    f = double(2, 3, len(layer.group), 2, 3)/2
    close(looped_affine(layer, f), layer(f))

def test_removed_weights_are_no_feature_map_where_poses_are_counted_as_the_picture_does():
    torch.manual_seed(0)
    layer = AttentiveGroupConv2d(2, 3, 3, 'p4m', padding='same', bias=False, attention_kernel=3)
    layer, f, H = perturb_(layer).double(), double(1, 2, 8, 2, 3), layer.group
    def absolute(f):
        "Entry c is for sources in the pose c, and not hc."
        seen = removed_field(layer, f).unflatten(1, (-1, len(H)))    # (b, oi, r, h, y, x)
        seen = [seen[:, :, H.mul[H.inv[h]], h] for h in H.elements]
        return torch.stack(seen, 3).flatten(1, 2)
    assert max(equivariance_error(lambda f: removed_field(layer, f), f, 'p4m')) < 1e-12
    assert max(equivariance_error(absolute, f, 'p4m')) > .01

@pytest.mark.parametrize('group', ['p4', 'p4m'])
def test_lifting_convolution_is_in_the_frame(group):
    layer = perturb_(LiftingConv2d(3, 2, 3, group, padding='same', bias=False)).double()
    def pair(n, x, y):
        if y is None: return 0
        i, j = entry(n, 3)
        return y @ layer.weight[:, :, i, j].T
    image = double(2, 3, 2, 3)
    f = in_all_poses(image, len(layer.group))
    close(aggregate(f, pair, group, square(3)), layer(image))

@pytest.mark.parametrize('group', ['p4', 'p4m'])
def test_lifting_self_attention_is_in_the_frame(group):
    layer = LiftingSelfAttention2d(3, 4, group, 3, heads=2, head_channels=3)
    layer, image = perturb_(layer).double(), double(1, 3, 2, 3)
    P = layer.encoder((1, 1))[:, 0]
    def pair(n, x, y):
        if y is None: return 0
        q, k, v = (m(u).unflatten(-1, (2, 3)) for m, u in
                   ((layer.query, x), (layer.key, y), (layer.value, y)))
        i, j = entry(n, 3)
        return weighted(((q*(k + P[3*i + j])).sum(-1)*3**-.5).exp(), v)
    y = aggregate(in_all_poses(image, len(layer.group)), pair, group, square(3))
    close(layer.out(normalise(y, 2).movedim(1, -1)).movedim(-1, 1), layer(image))

@pytest.mark.parametrize('make', [lambda g: SqueezeExcitation(4, g, 2),
                                  lambda g: ChannelAttention(4, g, 2),
                                  lambda g: SpatialAttention(4, g, 3)])
def test_gates_are_aggregations_of_the_feature_and_its_factor(make):
    layer, f = perturb_(make('p4')).double(), double(2, 4, 4, 3, 3)
    both = torch.cat([f, layer.attention(f).expand_as(f)], 1)
    close(aggregate(both, lambda n, x, y: x[:, :4]*x[:, 4:], 'p4', E), layer(f))

def test_squeeze_excitation_is_two_sums_over_all_of_the_picture():
    torch.manual_seed(0)
    layer, f = perturb_(SqueezeExcitation(4, 'p4', 2)).double(), double(1, 4, 4, 2, 3)
    everywhere = [((x, y), q) for q in range(4) for x in range(-2, 3) for y in range(-2, 3)]
    one = torch.ones(1, 1, dtype=torch.float64)
    def alike(n, x, y): return 0 if y is None else weighted(one, y[:, None])
    mean = normalise(aggregate(f, alike, 'p4', everywhere), 1)
    close(mean, f.mean((2, 3, 4), keepdim=True).expand_as(f))
    factors = layer.excite(layer.squeeze(mean.movedim(1, -1)).relu()).sigmoid()
    close(factors.movedim(-1, 1)*f, layer(f))

@pytest.mark.parametrize('at, on', [(((0, 1), (-1, -1), (1, 0)), 'nobody'),
                                    (((-2, 1), (2, -1), (1, 2)), 'both')])
def test_dependence_sees_the_sources_that_it_is_told_of(at, on):
    "Neighbours a knight's move away."
    N = [((1, 2), 0), ((-1, -2), 0), ((0, 0), 0)]
    def agreeing(n, x, y):
        return 0 if y is None else torch.tanh((x*y).sum(1, keepdim=True))*y
    found = dependence(lambda f: aggregate(f, agreeing, 'Z2', N), double(1, 2, 1, 7, 7), at=at)
    assert (found.on, found.form) == (on, 'one sum')

@pytest.mark.parametrize('layers, heads', [(1, 2), (2, 1)])
def test_what_is_no_quotient_is_not_called_one(layers, heads):
    "Two heads and their output map are a sum of quotients; two layers, quotients of quotients."
    torch.manual_seed(0)
    layer = perturb_(StandAloneSelfAttention2d(4, 4, 3, heads=heads)).double()
    found = dependence(torch.nn.Sequential(*[layer]*layers), double(1, 4, 1, 7, 7))
    assert (found.on, found.form) == ('not said', 'another local map')

def by_weights(seed=0):
    "A matrix for each n of a 3×3 window."
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.randn(3, 3, generator=draw, dtype=torch.float64) for n in square(3)}

W, V = by_weights(), by_weights(1)[(0, 0), 0][:, :2]
pool = torch.nn.MaxPool3d((1, 3, 3), 1, (0, 1, 1))

def summed(pair):
    def inside(n, x, y): return 0 if y is None else pair(n, x, y)
    return lambda f: aggregate(f, inside, 'Z2', square(3))

def softmax(score):
    def pair(n, x, y):
        return weighted(score(n, x, y).sum(1, keepdim=True).exp(), (y @ V)[:, None])
    return lambda f: normalise(summed(pair)(f), 1)

of_both = softmax(lambda n, x, y: x*(y @ W[n]))
of_the_source = softmax(lambda n, x, y: y @ W[n][:, :1])

def two_sources(f): return f[:, :1].roll(-1, -1)*f[:, :1].roll((1, 1), (-2, -1))

@pytest.mark.parametrize('layer, on, form', [
    (summed(lambda n, x, y: y @ W[n]), 'nobody', 'one sum'),
    (summed(lambda n, x, y: (x.sin() @ W[n])*y), 'target', 'one sum'),
    (summed(lambda n, x, y: y.sin() @ W[n]), 'source', 'one sum'),
    (summed(lambda n, x, y: (x*y).sin() @ W[n]), 'both', 'one sum'),
    (of_the_source, 'source', 'a quotient'), (of_both, 'both', 'a quotient'),
    (lambda f: of_both(f).sin(), 'not said', 'another local map'),
    (lambda f: pool(100*f), 'not said', 'another local map'),
    (two_sources, 'not said', 'not said'),   # several denominators fit
    (lambda f: f*f.mean(), 'all of f', 'the whole picture')])
def test_dependence_says_of_known_maps_what_they_are(layer, on, form):
    torch.manual_seed(0)
    found = dependence(layer, double(1, 3, 1, 5, 5)/100)
    assert (found.on, found.form) == (on, form)

def forms(layer, channels, seeds):
    found = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        found.append(dependence(layer, double(1, channels, 1, 5, 5)/2).form)
    return found

def test_maximum_is_told_from_a_sum():
    "At one random feature map it is a sum, where a third pixel is the largest."
    found = forms(pool, 3, 20)
    assert set(found) <= {'another local map', 'not said'}
    assert found.count('another local map') >= 18

def window(f):
    "The nine features of one channel around each pixel, zeros beyond the border."
    x = torch.nn.functional.pad(f[:, 0, 0], (1,)*4)
    return x.unfold(1, 3, 1).unfold(2, 3, 1).flatten(3)

def steep(s):
    "Softmax attention on one channel, with the scores s·x·y: a quotient."
    def attend(f):
        y, x = window(f), f[:, 0, 0, ..., None]
        return ((s*x*y).softmax(-1)*y).sum(-1)[:, None, None]
    return attend

@pytest.mark.parametrize('s, allowed', [
    (1, {'a quotient'}), (4, {'a quotient'}), (10, {'a quotient', 'not said'}),
    (20, {'a quotient', 'not said'}), (100, {'not said'})])
def test_a_steep_softmax_is_no_other_local_map(s, allowed):
    "Where its denominators span more than 16 digits, nothing is proved."
    assert set(forms(steep(s), 1, 12)) <= allowed

def test_a_maximum_of_one_channel_is_not_told_from_a_steep_softmax():
    assert 'a quotient' not in forms(pool, 1, 12)

@pytest.mark.parametrize('error, allowed', [(1e-10, {'a quotient', 'not said'}),
                                            (1e-6, {'another local map'})])
def test_what_an_error_of_tol_could_have_made_proves_nothing(error, allowed):
    def inexact(f):
        return steep(1)(f)*(1 + error*(1e3*window(f).sum(-1)).sin()[:, None, None])
    assert set(forms(inexact, 1, 6)) <= allowed

def test_a_difference_of_steps_that_tol_could_have_made_is_no_dependence():
    "Scores of the source alone, and an error that depends on the target."
    def inexact(f):
        y, x = window(f), f[:, 0, 0, ..., None]
        return ((y + 1e-10*(1e3*x*y).sin()).softmax(-1)*y.sin()).sum(-1)[:, None, None]
    torch.manual_seed(0)
    found = dependence(inexact, double(1, 1, 1, 5, 5)/2)
    assert (found.form, found.on) == ('a quotient', 'source')

@pytest.mark.parametrize('s', [1, 20])
def test_rounding_of_large_terms_is_no_mixed_difference(s):
    layer = summed(lambda n, x, y: (s*y).exp())
    torch.manual_seed(0)
    found = dependence(layer, double(1, 1, 1, 5, 5)/2)
    assert (found.form, found.on) == ('one sum', 'source')

def test_a_denominator_of_both_signs_makes_no_quotient():
    def signed(f): return ((window(f)**2).sum(-1)/(window(f).sum(-1) - 2))[:, None, None]
    assert set(forms(signed, 1, 6)) == {'another local map'}

def test_overflow_is_no_zero():
    with pytest.raises(ValueError, match=r'NaN or infinity .* layer\(f/10\)'):
        dependence(lambda f: (400*window(f)).exp().sum(-1)[:, None, None], double(1, 1, 1, 5, 5))

@pytest.mark.parametrize('layer, on, form', [
    (lambda: SpatialAttention(4, 'p4', 3), 'not said', 'another local map'),
    (lambda: SqueezeExcitation(4, 'p4', 2), 'all of f', 'the whole picture'),
    (lambda: E4Conv2d(4, 4, 3, 'p4'), 'all of f', 'the whole picture')])
def test_dependence_of_gates_and_of_e4_with_its_norm(layer, on, form):
    torch.manual_seed(0)
    found = dependence(perturb_(layer()).double(), double(1, 4, 4, 7, 7))
    assert (found.on, found.form) == (on, form)

def test_a_piece_of_a_picture_sees_the_same_where_windows_lie_inside():
    f, N = double(1, 2, 4, 5, 6), square(3, 'p4')
    W = {n: double(2, 3) for n in N}
    def pair(n, x, y): return x[:, :1] if y is None else torch.tanh((x*y) @ W[n])
    whole, piece = (aggregate(x, pair, 'p4', N) for x in (f, f[..., 1:, 2:]))
    close(whole[..., 2:-1, 3:-1], piece[..., 1:-1, 1:-1])
    assert (whole[..., 1:, 2:] - piece)[..., 0, :].abs().max() > .1

@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_the_loop_runs_where_its_input_lies():
    f = on_p4().cuda()
    assert torch.equal(aggregate(f, source, 'p4', E), f)


def additive(steps):
    "A 3×3 table from its corner, two steps down and two to the right."
    corner, *rest = steps
    down, right = (torch.stack([torch.zeros(()), *part]) for part in (rest[:2], rest[2:]))
    return corner + down[:, None] + right

def mixed_differences(table): return table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0]

def test_outputs_of_chapter_25_s_quotient_by_hand_give_back_its_denominator():
    "Four equations for five numbers leave one factor free."
    F = torch.tensor([[2, 6, 5], [4, 7.5, 6], [1, 3.2, 3.5]], dtype=torch.float64)
    D = torch.tensor([[4, 3, 6], [5, 4, 7], [6, 5, 8]], dtype=torch.float64)
    tables = [additive(steps).double() for steps in torch.eye(5)]
    equations = torch.stack([mixed_differences(F*table).flatten() for table in tables], 1)
    assert equations.shape == (4, 5) and torch.linalg.matrix_rank(equations) == 4
    found = torch.linalg.svd(equations).Vh[-1]
    found = sum(number*table for number, table in zip(found, tables))
    torch.testing.assert_close(found*D[0, 0]/found[0, 0], D)
    assert mixed_differences(F).abs().min() > .1   # F itself is not additive
