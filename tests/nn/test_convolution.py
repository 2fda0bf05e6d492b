"What a user may do to a lifting, group or projection convolution, and what it answers."
import copy
import pickle
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act
from eqtutor.core import filter_matrices
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.export import fold, to_plain
from eqtutor.groups import C, D, Group, affine_inverse, affine_product
from eqtutor.nn import GroupSelfAttention2d
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d, ProjectionConv2d, bank_index

sys.path.append(str(Path(__file__).parents[2]/'tools'))
import turns_against_escnn  # noqa: E402

LAYERS = LiftingConv2d, GroupConv2d, ProjectionConv2d


def layer_and_input(cls, group, **kw):
    "A float64 layer as after training, and an input for it."
    torch.manual_seed(0)
    poses = () if cls.lifts else (len(group),)
    return perturb_(cls(3, 2, 3, group, **kw).double()), torch.randn(2, 3, *poses, 6, 9).double()


@pytest.fixture(params=LAYERS, ids=lambda cls: cls.__name__)
def layer_on_p4(request): return layer_and_input(request.param, C(4))


def test_state_dict_holds_weights_alone(layer_on_p4):
    layer, x = layer_on_p4
    assert sorted(layer.state_dict()) == ['bias', 'weight']
    other = type(layer)(3, 2, 3, 'p4').double()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))

def test_off_the_grid_too():
    assert sorted(LiftingConv2d(1, 2, 5, 'C8').state_dict()) == ['bias', 'weight']

@pytest.mark.parametrize('mode', ['circular', 'reflect', 'replicate'])
@pytest.mark.parametrize('cls', LAYERS, ids=lambda cls: cls.__name__)
def test_a_padding_mode_is_torch_s_and_keeps_every_grid_group(cls, mode):
    for group in C(1), C(2), C(4), D(1), D(2), D(4):
        layer, x = layer_and_input(cls, group, padding=2, padding_mode=mode)
        zeros = cls(3, 2, 3, group, padding=2).double()
        zeros.load_state_dict(layer.state_dict())
        planes = x if cls.lifts else x.flatten(1, 2)
        padded = F.pad(planes, [2]*4, mode).view(*x.shape[:-2], 10, 13)
        # what torch's padding and a layer without any make of it
        zeros.padding = 0
        torch.testing.assert_close(layer(x), zeros(padded))
        zeros.padding = 2
        assert (layer(x) - zeros(x)).abs().max() > .1
        if len(group) > 1: assert_equivariant(layer, x, group)
        assert f"padding_mode='{mode}'" in repr(layer)
    twin = nn.Conv2d(3, 2, 3, padding=2, padding_mode=mode).double()
    alone = LiftingConv2d(3, 2, 3, 'Z2', padding=2, padding_mode=mode).double()
    alone.load_state_dict(twin.state_dict())
    x = torch.randn(2, 3, 6, 9).double()
    torch.testing.assert_close(alone(x)[:, :, 0], twin(x))

@pytest.mark.parametrize('mode, size', [('circular', 1), ('reflect', 2)])
def test_a_frame_larger_than_the_picture_is_refused(mode, size):
    layer = GroupConv2d(1, 1, 5, 'p4', padding=2, padding_mode=mode)
    layer(torch.randn(1, 1, 4, size + 1, size + 1))
    with pytest.raises(ValueError, match=f'at least {size + 1} rows and columns, got {size}'):
        layer(torch.randn(1, 1, 4, size, size))

def test_a_padding_mode_is_exported_and_folded():
    net = nn.Sequential(LiftingConv2d(1, 3, 3, 'p4', padding=1, padding_mode='circular'),
                        GroupConv2d(3, 2, 3, 'p4', padding=1, padding_mode='reflect')).eval()
    x = torch.randn(2, 1, 8, 8)
    y = net(x)
    torch.testing.assert_close(to_plain(net, x=x)(x), y)
    torch.testing.assert_close(fold(copy.deepcopy(net), x=x)(x), y)
    with pytest.raises(ValueError, match="expected one of 'zeros', .*'full'"):
        GroupConv2d(1, 1, 3, 'p4', padding_mode='full')

def test_pairs_of_equal_numbers_are_numbers():
    pair = GroupConv2d(2, 3, (5, 5), 'p4', (2, 2), (2, 2), [1, 1])
    assert (pair.kernel_size, pair.stride, pair.padding, pair.dilation) == (5, 2, 2, 1)
    with pytest.raises(ValueError, match='kernel_size must be one number, or two equal ones'):
        LiftingConv2d(2, 3, (3, 5), 'p4')

@pytest.mark.parametrize('size, most', [(3, .04), (5, .04), (7, .04)])
def test_off_the_grid_two_layers_err_as_little_as_escnn_s(size, most):
    "At 45° on a smooth picture; escnn 0.025, 0.028 and 0.032. By tools/turns_against_escnn.py."
    error, _ = turns_against_escnn.measured(turns_against_escnn.ours, size,
                                            turns_against_escnn.smooth_picture())
    assert 1e-3 < error < most

def test_a_layer_off_the_grid_says_that_it_is_approximate():
    assert 'C8 (approximate: turns between pixels)' in repr(GroupConv2d(1, 1, 3, 'C8'))
    assert 'approximate' in repr(GroupSelfAttention2d(1, 1, 'R8', 3, heads=1))
    assert 'approximate' not in repr(GroupConv2d(1, 1, 3, 'p4m'))

def test_copies_and_pickles_compute_the_same(layer_on_p4):
    layer, x = layer_on_p4
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), layer(x))

def test_autocast(layer_on_p4):
    layer, x = layer_on_p4
    y = layer(x)
    with torch.autocast('cpu', dtype=torch.bfloat16): low = layer.float()(x.float())
    assert low.dtype == torch.bfloat16
    assert (low - y).abs().max() < .05*y.abs().max()

def test_prints_its_group(layer_on_p4): assert 'group=C4' in repr(layer_on_p4[0])

def test_averaged_weights_keep_the_tables():
    "An average of buffers would truncate whole numbers; tables are no buffers."
    layer = LiftingConv2d(1, 2, 5, 'C8')
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(.9999)
    averaged = torch.optim.swa_utils.AveragedModel(layer, multi_avg_fn=average, use_buffers=True)
    for _ in range(3): averaged.update_parameters(layer)
    x = torch.randn(1, 1, 7, 7)
    torch.testing.assert_close(averaged(x), layer(x))

def test_no_rounding_of_an_earlier_dtype_is_left():
    layer = LiftingConv2d(1, 2, 5, 'C8').bfloat16().double()
    turns = layer.table('turns', layer.weight)
    assert turns.dtype == torch.float64
    assert torch.equal(turns, LiftingConv2d(1, 2, 5, 'C8').double().originals['turns'])

def test_gradient():
    layer, x = layer_and_input(GroupConv2d, D(4), padding=1)
    x = x[:1, ..., :3, :3].requires_grad_()
    def loss(w): return torch.func.functional_call(layer, {'weight': w}, (x,)).sum()
    assert torch.autograd.gradcheck(loss, layer.weight)

def test_compiles_to_one_graph():
    torch.manual_seed(0)
    net = nn.Sequential(LiftingConv2d(2, 3, 3, 'p4', padding=1), nn.ReLU(),
                        GroupConv2d(3, 4, 3, 'p4', stride=2), ProjectionConv2d(4, 2, 1, 'p4'))
    x = torch.randn(2, 2, 9, 9)
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x), rtol=1e-4, atol=1e-5)

def test_wrong_input_is_named():
    lift, conv = LiftingConv2d(3, 2, 3, 'p4'), GroupConv2d(3, 2, 3, 'p4')
    cases = [(lift, (1, 4, 8, 8), r'expected an image \(b, 3, h, w\), got \(1, 4, 8, 8\)'),
             (lift, (3, 8, 8), r'got \(3, 8, 8\)'), (lift, (1, 3, 4, 9, 9), 'use GroupConv2d'),
             (conv, (1, 3, 8, 9, 9), r'\|H\| = 4 for C4, got \(1, 3, 8, 9, 9\)'),
             (conv, (1, 3, 9, 9), 'begin with LiftingConv2d')]
    for layer, shape, words in cases:
        with pytest.raises(ValueError, match=words): layer(torch.randn(shape))

@pytest.mark.parametrize('arguments, words', [
    ((3, 2, 4, 'C8'), 'odd kernel_size, got 4: use 3 or 5'),
    ((3, 2, 4, 'p4', 1, 'same'), 'would shift the image by half a pixel'),
    ((3, 2, 3, 'p5'), "unknown group 'p5', did you mean 'C5'"),
    ((3, 2, (3, 5), 'p4'), 'kernel_size must be one number, or two equal')])
def test_wrong_argument_is_named(arguments, words):
    with pytest.raises(ValueError, match=words): GroupConv2d(*arguments)

def test_stride_that_breaks_the_symmetry_is_refused():
    layer = GroupConv2d(3, 2, 3, 'p4', stride=2)
    with pytest.raises(ValueError, match='stride 2 on height 8'): layer(torch.randn(1, 3, 4, 8, 8))

def test_empty_batch():
    y = GroupConv2d(3, 2, 3, 'p4')(torch.randn(0, 3, 4, 8, 8))
    assert y.shape == (0, 2, 4, 6, 6)

@pytest.mark.parametrize('cls, group', [(LiftingConv2d, D(4)), (GroupConv2d, C(4)),
                                        (ProjectionConv2d, C(4)), (GroupConv2d, C(8))])
def test_macs_are_those_that_torch_counts(cls, group):
    layer = cls(3, 2, 5, group, stride=2)
    poses = () if cls.lifts else (len(group),)
    x = torch.randn(2, 3, *poses, 9, 11)
    with FlopCounterMode(display=False) as counter, torch.no_grad(): y = layer(x)
    assert layer.macs(x.shape, y.shape) == counter.get_total_flops()//2


def test_published_p4_weights_can_be_loaded():
    "Published p4 code turns `W[..., (q − h) % 4, :, :]` by h, in an outer loop over h."
    torch.manual_seed(0)
    layer = GroupConv2d(3, 2, 3, 'p4').double()
    def published(h):
        slices = layer.weight[:, :, [(q - h) % 4 for q in range(4)]]
        return torch.rot90(slices, h, (-2, -1))
    bank = torch.stack([published(h) for h in range(4)], 1)
    assert torch.equal(bank.flatten(2, 3).flatten(0, 1), layer.filters())

@pytest.mark.parametrize('group', [C(1), C(4), D(4), C(8)], ids=lambda H: H.name)
@torch.no_grad()
def test_the_signal_keeps_its_size_through_five_layers(group):
    "Geometric mean over seeds; with the group axis left out of the fan-in it would grow by |H|."
    def log_moment(seed):
        torch.manual_seed(seed)
        f = torch.randn(2, 16, len(group), 16, 16)
        for _ in range(5): f = GroupConv2d(16, 16, 3, group)(f.relu())
        return f.pow(2).mean().log()
    assert .4 < torch.stack([log_moment(seed) for seed in range(16)]).mean().exp() < 2.5


# --- equal to the loops of chapter 05, and equivariant

QUARTERS = [[[1, 0], [0, 1]], [[-1, 0], [0, -1]], [[0, -1], [-1, 0]], [[0, 1], [1, 0]]]
GRID = [C(1), C(2), C(4), D(1), D(2), D(4), Group('diagonal', QUARTERS)]

def moved(H, h, w):
    "A filter `(k, k)` in pose h."
    if H.is_grid: return act(H, h, w[None, None])[0, 0]
    return (filter_matrices(H, len(w))[h] @ w.flatten()).view(w.shape)

def slowly(layer, f):
    "The layer's formula as loops: over channels and the poses of both ends."
    H, W = layer.group, layer.weight
    kw = dict(padding=layer.padding, dilation=layer.dilation)
    here = [None] if layer.projects else H.elements
    there = [None] if layer.lifts else H.elements
    def term(o, h, i, q):
        plane = f[:, i] if q is None else f[:, i, q]
        if None in (h, q): w = moved(H, q if h is None else h, W[o, i])
        else: w = moved(H, h, W[o, i, H.relative[h, q]])
        return F.conv2d(plane[:, None], w[None, None], **kw)[:, 0]
    def response(o, h): return sum(term(o, h, i, q) for i in range(W.shape[1]) for q in there)
    y = torch.stack([torch.stack([response(o, h) for h in here], 1) for o in range(len(W))], 1)
    return y[:, :, 0] if layer.projects else y

@pytest.mark.parametrize('group', [*GRID, C(8)], ids=lambda H: H.name)
@pytest.mark.parametrize('cls', LAYERS, ids=lambda cls: cls.__name__)
def test_a_layer_equals_its_loop(cls, group):
    sizes = (3, 1, 1), (5, 2, 1)
    if group.is_grid: sizes = (1, 0, 1), (2, 1, 1), (3, 1, 1), (3, 2, 2)
    for size, padding, dilation in sizes:
        torch.manual_seed(0)
        layer = cls(2, 2, size, group, padding=padding, dilation=dilation, bias=False).double()
        poses = () if cls.lifts else (len(group),)
        x = torch.randn(2, 2, *poses, 6, 9).double()
        torch.testing.assert_close(layer(x), slowly(layer, x), rtol=1e-12, atol=1e-12)

def on_group(t):
    "A tensor `(|H|, n, n)` as a function on G, places counted from the centre, y up."
    r = t.shape[-1]//2
    places = product(range(len(t)), range(-r, r + 1), range(-r, r + 1))
    return {((x, y), q): t[q, r - y, r + x].item() for q, x, y in places}

@pytest.mark.parametrize('group', [C(4), D(4), D(1)], ids=lambda H: H.name)
def test_a_group_convolution_is_the_sum_over_the_group(group):
    "Σ over g̃ of ψ(g⁻¹g̃) f(g̃), as Theorem 5.1 writes it, with the product of chapter 01."
    torch.manual_seed(0)
    layer = GroupConv2d(1, 1, 3, group, padding=1, bias=False).double()
    x = torch.randn(1, 1, len(group), 7, 7).double()
    y, f, psi = layer(x)[0, 0], on_group(x[0, 0]), on_group(layer.weight.detach()[0, 0])
    for (i, j), h in product([(0, 0), (2, -1), (-1, 2)], group.elements):
        back = affine_inverse(group, ((i, j), h))
        want = sum(psi.get(affine_product(group, back, g), 0.)*value for g, value in f.items())
        assert abs(want - y[h, 3 - j, 3 + i].item()) < 1e-12

@pytest.mark.parametrize('group', GRID[1:], ids=lambda H: H.name)
@pytest.mark.parametrize('cls', LAYERS, ids=lambda cls: cls.__name__)
def test_a_layer_is_equivariant_whatever_its_weights_are(cls, group):
    for n in (7, 7), (8, 8), (6, 9):
        layer, _ = layer_and_input(cls, group, padding='same')
        x = torch.randn(2, 3, *(() if cls.lifts else (len(group),)), *n).double()
        assert_equivariant(layer, x, group, tol=1e-12)
        assert_equivariant(layer.float(), x[:1].float(), group)

# the last is exact by its dilation: with dilation 1 it would not be
@pytest.mark.parametrize('size, n, kw', [
    (3, (9, 13), dict(stride=2)), (4, (8, 8), dict(stride=2, padding=1)),
    (3, (9, 9), dict(stride=2, dilation=2)), (2, (7, 7), dict(stride=3, dilation=3))])
@pytest.mark.parametrize('cls', LAYERS, ids=lambda cls: cls.__name__)
def test_a_stride_is_equivariant_where_the_rule_allows_it(cls, size, n, kw):
    for group in C(4), D(4):
        layer = perturb_(cls(3, 2, size, group, **kw).double())
        x = torch.randn(2, 3, *(() if cls.lifts else (len(group),)), *n).double()
        assert_equivariant(layer, x, group, tol=1e-12)

class BiasPerPose(GroupConv2d):
    "Wrong on purpose: a bias for each channel and pose, 0 at the start."
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.pose_bias = nn.Parameter(torch.zeros(self.out_channels, self.out_poses, 1, 1))

    def forward(self, x): return super().forward(x) + self.pose_bias

class NoPermutation(GroupConv2d):
    "Wrong on purpose: W[o,i,q] where W[o,i,h⁻¹q] belongs."
    def filters(self):
        w = self.weight.flatten(1, 2)
        return torch.stack([act(self.group, h, w) for h in self.group.elements], 1).flatten(0, 1)

class NoTurn(GroupConv2d):
    "Wrong on purpose: W[o,i,h⁻¹q] without turning it."
    def filters(self):
        slices = self.weight[:, :, self.group.relative]
        return slices.transpose(1, 2).flatten(2, 3).flatten(0, 1)

@pytest.mark.parametrize('group', [C(4), D(4), D(1)], ids=lambda H: H.name)
@pytest.mark.parametrize('twin', [NoPermutation, NoTurn, BiasPerPose], ids=lambda cls: cls.__name__)
def test_a_broken_twin_fails_and_a_bias_per_pose_once_it_is_trained(twin, group):
    torch.manual_seed(0)
    layer = twin(3, 2, 3, group, padding=1).double()
    x = torch.randn(2, 3, len(group), 6, 9).double()
    new = max(equivariance_error(layer, x, group))
    assert new < 1e-12 if twin is BiasPerPose else new > .5
    assert max(equivariance_error(perturb_(layer), x, group)) > .05

@pytest.mark.parametrize('group', GRID, ids=lambda H: H.name)
def test_the_table_is_the_bank_of_a_filter_of_numbers(group):
    numbers = torch.arange(len(group)*9).view(1, 1, len(group), 3, 3)
    bank = torch.stack([act(group, h, numbers)[0, 0] for h in group.elements])
    assert torch.equal(bank_index(group, 3), bank.flatten())
    slice_ = torch.stack([act(group, h, numbers[:, :, 0])[0, 0] for h in group.elements])
    for end in dict(lifts=True), dict(projects=True):
        assert torch.equal(bank_index(group, 3, **end), slice_.flatten())

@pytest.mark.parametrize('group', [C(1), C(4), C(6), D(1), D(3), D(4)], ids=lambda H: H.name)
def test_the_matrices_that_commute_have_as_many_dimensions_as_the_group_has_elements(group):
    "Theorem 5.1, only if: all solutions of ΨP = PΨ, and each depends on g⁻¹g̃ alone."
    n = len(group)
    moves = torch.eye(n, dtype=torch.float64)[group.relative]
    units = torch.eye(n*n, dtype=torch.float64).view(-1, 1, n, n)
    failures = (units @ moves - moves @ units).flatten(1)
    _, s, v = torch.linalg.svd(failures.T)
    solutions = v[(s > 1e-9).sum():].view(-1, n, n)
    assert len(solutions) == n
    for Psi in solutions: torch.testing.assert_close(Psi, Psi[0][group.relative])

def test_lifting_to_p4m_answers_as_lifting_to_p4_and_as_its_mirror_image():
    small, large = (LiftingConv2d(3, 2, 3, group) for group in ('p4', 'p4m'))
    x = torch.randn(2, 3, 7, 7)
    large.load_state_dict(small.state_dict())
    torch.testing.assert_close(large(x)[:, :, :4], small(x))
    with torch.no_grad(): small.weight.copy_(small.weight.flip(-1))
    torch.testing.assert_close(large(x)[:, :, 4:], small(x))
