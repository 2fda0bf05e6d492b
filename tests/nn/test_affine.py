"Affine self-convolution as a member of the library: bad input, copies, gradients, export."
import copy
import pickle
from functools import partial
from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act
from eqtutor.cost import count_macs, layer_costs
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.groups import Group, get_group
from eqtutor.kernels.windows import window_scores, window_sum
from eqtutor.nn.affine import (
    AffineMap,
    AffineSelfConv2d,
    GroupAffineMap,
    GroupAffineSelfConv2d,
    GroupSimpleAffineSelfConv2d,
    LiftingAffineSelfConv2d,
    SimpleAffineSelfConv2d,
    attention_weights,
    filters_at,
)
from eqtutor.nn.attention import StandAloneSelfAttention2d
from eqtutor.nn.convolution import GroupConv2d
from eqtutor.papers.benchmarks.affine import unfolded
from eqtutor.widgets import moved_pixel

LAYERS = (SimpleAffineSelfConv2d, AffineSelfConv2d, GroupSimpleAffineSelfConv2d,
          GroupAffineSelfConv2d, LiftingAffineSelfConv2d)
ids = dict(ids=lambda cls: cls.__name__)


def example(cls, dtype=torch.float64):
    "A layer with perturbed parameters, and an input for it."
    torch.manual_seed(0)
    layer = cls(3, 4, 3, heads=2)
    poses = () if cls.images or cls.lifts else (4,)
    return perturb_(layer.to(dtype)), torch.randn(2, 3, *poses, 4, 5, dtype=dtype)


@pytest.fixture(params=LAYERS, **ids)
def layer_and_input(request): return example(request.param)


def test_state_dict_holds_weights_alone(layer_and_input):
    layer, _ = layer_and_input
    assert {k.split('.')[-1] for k in layer.state_dict()} == {'weight', 'bias', 'psi', 'beta'}


def test_a_layer_is_loaded_copied_and_pickled(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    other = type(layer)(3, 4, 3, heads=2).double()
    assert not torch.equal(other(x), y)
    other.load_state_dict(layer.state_dict())
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), y)


def test_repr_names_the_arguments(layer_and_input):
    layer, _ = layer_and_input
    group = 'C1' if layer.images else 'C4'
    for text in (f'group={group}', "boundary='mask'", "init='published'", 'heads=2'):
        assert text in repr(layer)


def test_autocast_stays_close(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        low = copy.deepcopy(layer).float()(x.float())
    assert y.dtype == torch.float64
    assert 0 < (low - y).abs().max() < .1*y.abs().max()


def test_inference_mode_and_an_empty_batch(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    with torch.inference_mode(): assert torch.equal(layer(x), y)
    assert layer(x[:0]).shape == (0, *y.shape[1:])


def test_gradients_are_right(layer_and_input):
    layer, x = layer_and_input
    small = x[:1, ..., :2, :2].clone().requires_grad_()
    names = [name for name, _ in layer.named_parameters()]
    def sums(x, *parameters):
        state = dict(zip(names, parameters))
        return torch.func.functional_call(layer, state, (x,)).sum((-2, -1))
    assert torch.autograd.gradcheck(sums, (small, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize('cls', [SimpleAffineSelfConv2d, GroupAffineSelfConv2d,
                                 LiftingAffineSelfConv2d], **ids)
def test_export_with_a_dynamic_batch(cls):
    layer, x = example(cls, torch.float32)
    layer.eval()
    batch = ({0: torch.export.Dim('batch')},)
    program = torch.export.export(layer, (x,), dynamic_shapes=batch).module()
    for n in (1, 2, 5):
        x = torch.randn(n, *x.shape[1:])
        torch.testing.assert_close(program(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('cls, group, backend', [
    (LiftingAffineSelfConv2d, 'p4', 'inductor'), (GroupAffineSelfConv2d, 'mirror', 'inductor'),
    (GroupAffineSelfConv2d, 'p4', 'aot_eager'), (GroupSimpleAffineSelfConv2d, 'p4', 'aot_eager')])
def test_compilation_gives_one_graph_and_the_same_gradients(cls, group, backend):
    torch.manual_seed(0)
    layer = perturb_(cls(3, 4, 3, group, 2))
    x = torch.randn(2, 3, *(() if cls.lifts else (len(layer.group),)), 4, 5)
    parameters = list(layer.parameters())
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    fast, plain = (torch.autograd.grad(f(x).square().sum(), parameters) for f in (compiled, layer))
    for a, b in zip(fast, plain): torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('cls, shape, message', [
    (AffineSelfConv2d, (1, 4, 8, 8), r'expected an image \(b, 3, h, w\), got \(1, 4, 8, 8\)'),
    (AffineSelfConv2d, (1, 3, 4, 8, 8), r'\|H\| = 1'),
    (GroupAffineSelfConv2d, (1, 3, 8, 8), 'begin with'),
    (GroupAffineSelfConv2d, (1, 3, 8, 8, 8), r'\|H\| = 4 for C4'),
    (LiftingAffineSelfConv2d, (1, 3, 4, 8, 8), 'expected an image'),
])
def test_input_of_another_shape_is_refused(cls, shape, message):
    with pytest.raises(ValueError, match=message): cls(3, 4, heads=2)(torch.randn(shape))


@pytest.mark.parametrize('build, message', [
    (partial(AffineSelfConv2d, 3, 4), 'divisible by heads, got out_channels=4 and heads=8'),
    (partial(AffineSelfConv2d, 3, 8, 4), 'odd kernel_size, got 4; use 3 or 5'),
    (partial(AffineSelfConv2d, 0, 8), 'in_channels must be a positive int'),
    (partial(GroupAffineSelfConv2d, 3, 8, group='C8'), 'expected a subgroup of D4'),
    (partial(GroupAffineMap, 8, 3, 'C8'), 'expected a subgroup of D4'),
    (partial(AffineSelfConv2d, 3, 8, boundary='wrap'), "'mask', 'zero', got 'wrap'"),
    (partial(AffineSelfConv2d, 3, 8, scale='model'), "'channels', 'root'"),
    (partial(AffineSelfConv2d, 3, 8, init='zero'), "'published', 'conditioned'"),
    (partial(AffineMap, 4, 3, start='zero'), "'normal'"),
    (partial(GroupAffineMap, 4, 3, 'p4', start='zero'), "'normal'"),
])
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message): build()


def test_attention_weights_of_a_feature_map_of_the_trivial_group():
    layer, x = example(AffineSelfConv2d)
    assert torch.equal(attention_weights(layer, x[:, :, None]), attention_weights(layer, x))


def test_attention_weights_have_an_axis_of_poses():
    assert attention_weights(*example(GroupAffineSelfConv2d)).shape == (2, 2, 9, 4, 4, 5)


def test_filters_refuse_an_input_of_another_shape():
    layer, x = example(AffineSelfConv2d)
    with pytest.raises(ValueError, match='expected an image'): filters_at(layer, x[:, :1], 2, 3)


# --- what agrees with what

IMAGES, ON_G = LAYERS[:2], LAYERS[2:]
close = dict(rtol=1e-10, atol=1e-10)


def made(cls, *args, n=(4, 5), **options):
    "A float64 layer with perturbed parameters, and an input for it."
    torch.manual_seed(0)
    layer = perturb_(cls(3, 4, *args, **{'heads': 2, **options}).double())
    poses = () if layer.images or layer.lifts else (len(layer.group),)
    return layer, torch.randn(2, 3, *poses, *n, dtype=torch.float64)


@pytest.mark.parametrize('change', [
    {'scale': 'channels'}, {'scale': 'root'}, {'boundary': 'zero'}, {'heads': 4},
    {'init': 'conditioned'}], ids=str)
def test_an_argument_changes_the_output(change):
    x = torch.randn(1, 16, 6, 6, generator=torch.Generator().manual_seed(0))
    def answer(**options):
        torch.manual_seed(1)
        return AffineSelfConv2d(16, 16, **{'heads': 8, **options})(x)
    base = answer()
    assert (answer(**change) - base).abs().max() > .02*base.abs().max()


@pytest.mark.parametrize('image, on_group', list(zip(IMAGES, ON_G)))
def test_on_the_trivial_group_it_is_the_layer_on_images(image, on_group):
    (a, x), (b, _) = made(image, 3), made(on_group, 3, 'Z2')
    with torch.no_grad():
        for p, q in zip(a.parameters(), b.parameters(), strict=True): q.copy_(p.view_as(q))
    torch.testing.assert_close(b(x[:, :, None])[:, :, 0], a(x), **close)
    assert torch.equal(a(x[:, :, None])[:, :, 0], a(x))


@pytest.mark.parametrize('group', ['p4', 'mirror', 'p4m'])
def test_of_what_is_the_same_in_all_poses_it_is_the_lifting_form(group):
    lift, x = made(LiftingAffineSelfConv2d, 3, group)
    full = GroupAffineSelfConv2d(3, 4, 3, group, 2).double()
    def share(p, total):
        "Make the sum of a parameter over its poses equal to `total`, in any shares."
        if p.shape == total.shape: return p.copy_(total)
        shares = torch.rand(p.shape[-3], dtype=torch.float64)
        return p.copy_(total.unsqueeze(-3)*(shares/shares.sum())[:, None, None])
    with torch.no_grad():
        for name, p in full.named_parameters(): share(p, lift.get_parameter(name))
    everywhere = x[:, :, None].expand(-1, -1, len(lift.group), -1, -1)
    torch.testing.assert_close(full(everywhere), lift(x), **close)


@pytest.mark.parametrize('group', ['p4', 'p4m'])
def test_equal_scores_give_the_group_convolution_over_the_window(group):
    layer, x = made(GroupAffineSelfConv2d, 3, group, n=(5, 6))
    A, Q = layer.affine_value, layer.affine_query
    conv = GroupConv2d(4, 4, 3, group, padding=1, bias=False).double()
    with torch.no_grad():
        for p in (A.beta, Q.psi, Q.beta): p.zero_()
        eye = torch.eye(4, dtype=torch.float64)[:, :, None, None, None]
        conv.weight.copy_(eye*A.psi[:, None])
    inner = (..., slice(1, -1), slice(1, -1))
    mean = layer.out(conv(layer.value(x))/9)
    torch.testing.assert_close(layer(x)[inner], mean[inner], **close)


def test_a_channel_of_each_head_can_hold_a_number_for_each_offset():
    "Local relation networks (P2, end of 3.1): content in one channel, position in the other."
    layer, x = made(AffineSelfConv2d, 3)
    bias = torch.randn(2, 9, dtype=torch.float64)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith('psi'): p.fill_(1.)
            if name.endswith('beta'): p.zero_()
        for A in (layer.affine_query, layer.affine_key): A.psi.view(2, 2, -1)[:, 1] = 0
        layer.affine_query.beta.view(2, 2)[:, 1] = 1
        layer.affine_key.beta.view(2, 2, 9)[:, 1] = bias
    q, k, v = (m(x).view(2, 2, 2, 4, 5) for m in (layer.query, layer.key, layer.value))
    content = window_scores(q[:, :, :1]*layer.scale, k[:, :, :1], 3)
    weights = layer.softmax(content + layer.scale*bias[..., None, None])
    mixed = layer.out(window_sum(weights, v, 3).flatten(1, 2))
    torch.testing.assert_close(layer(x), mixed, **close)


DIAGONAL = Group('diagonal', [[[1, 0], [0, 1]], [[-1, 0], [0, -1]], [[0, -1], [-1, 0]],
                              [[0, 1], [1, 0]]])


@pytest.mark.parametrize('boundary, n', [('mask', (5, 7)), ('zero', (6, 6)), ('mask', (7, 4))])
@pytest.mark.parametrize('group', ['C2', 'p4', 'mirror', 'p4m', DIAGONAL], ids=str)
@pytest.mark.parametrize('cls', ON_G, **ids)
def test_layers_on_a_group_are_equivariant(cls, group, boundary, n):
    layer, x = made(cls, 3, group, n=n, boundary=boundary)
    assert_equivariant(layer, x, group, tol=1e-12)
    assert_equivariant(layer.float(), x.float(), group)


@pytest.mark.parametrize('boundary', ['mask', 'zero'])
@pytest.mark.parametrize('cls', LAYERS, **ids)
def test_a_translation_moves_the_inner_pixels(cls, boundary):
    layer, x = made(cls, 3, n=(8, 9), boundary=boundary)
    def cut(f): return f[..., 2:, 3:]
    inner = (..., slice(1, -1), slice(1, -1))
    torch.testing.assert_close(cut(layer(x))[inner], layer(cut(x))[inner], **close)


@pytest.mark.parametrize('group', ['Z2', 'p4', 'p4m'])
@pytest.mark.parametrize('lifts', [False, True])
def test_the_conditioned_start_is_the_map_itself_and_a_template(group, lifts):
    "The identity in the target's own pose; a template with the energy of k² numbers of variance 1."
    n = len(get_group(group))
    f = torch.randn(2, 4, *(() if lifts else (n,)), 5, 6)
    A = GroupAffineMap(4, 3, group, 2, 'identity', lifts)
    want = f[:, :, None].expand(-1, -1, n, -1, -1) if lifts else f
    assert torch.equal(A.join(A.at_centre(f)), want)
    own = A.sources(f)[0]
    ones = torch.ones_like(own)
    assert torch.equal(A.scores(ones, f), window_scores(ones, own, 3))
    B = GroupAffineMap(400, 5, group, 1, 'template', lifts)
    assert abs(B.psi.pow(2).sum().item()/(400*25) - 1) < .1 and not B.beta.any()


@pytest.mark.parametrize('group', ['Z2', 'p4', 'p4m'])
@pytest.mark.parametrize('cls', LAYERS, **ids)
def test_a_layer_counts_what_it_multiplies_and_what_its_unfolded_twin_does(cls, group):
    layer, x = made(cls, 3, *([] if cls.images else [group]))
    counted = count_macs(layer, x)
    assert sum(row.macs for row in layer_costs(layer, x)) == counted
    with FlopCounterMode(display=False) as counter: y = unfolded(layer, x)
    torch.testing.assert_close(y, layer(x), **close)
    poses = len(layer.group)
    source = 1 if layer.lifts else poses
    more = 2*9*poses                              # β by query and weights: the twin adds it to ψf
    if source > 1 and layer.simple: more += (9 + 1)*poses*source   # ψ twice, and at the centre
    if source == 1 and not layer.images: more += poses             # a single ψ at the centre
    places = len(x)*x.shape[-2]*x.shape[-1]*layer.out_channels
    assert counted == counter.get_total_flops()//2 + places*more


# --- what the chapter says of the layers, measured against loops and twins

def seen_from(A, f, H, h, place, offset):
    "The affine map from the pose h at a place, Eq. 22.4; is there a pixel? Beyond, f is 0."
    (i, j), (down, right) = (place[0] + offset[0], place[1] + offset[1]), offset
    inside = 0 <= i < f.shape[-2] and 0 <= j < f.shape[-1]
    x, y = (H.matrices[H.inv[h]] @ torch.tensor([right, -down], dtype=torch.float64)).tolist()
    r = A.psi.shape[-1]//2
    at = (..., r - round(y), r + round(x))              # x points right, y up
    total = A.beta[at].clone()
    for source in range(f.shape[1] if inside else 0):
        psi = A.psi if A.psi.ndim == 3 else A.psi[:, H.mul[H.inv[h], source]]
        total = total + psi[at]*f[:, source, i, j]
    return total, inside


def target_by_target(layer, f):
    "Equations 22.3 and 22.5 for one input, as printed: a sum over places and poses a target."
    H, r, d = layer.group, layer.kernel_size//2, layer.out_channels//layer.heads
    names = ['embed']*3 if layer.simple else ['query', 'key', 'value']
    maps = [getattr(layer, 'affine' if layer.simple else f'affine_{name}') for name in names]
    linear = [getattr(layer, name)(f)[0] for name in names]
    Q, K, V = [t if t.ndim == 4 else t[:, None] for t in linear]         # (c, poses, h, w)
    offsets = list(product(range(-r, r + 1), repeat=2))
    out = f.new_zeros(layer.out_channels, len(H), *f.shape[-2:])
    for h, *place in product(*map(range, out.shape[1:])):
        query, _ = seen_from(maps[0], Q, H, h, place, (0, 0))
        keys, inside = zip(*(seen_from(maps[1], K, H, h, place, offset) for offset in offsets))
        values = [seen_from(maps[2], V, H, h, place, offset)[0] for offset in offsets]
        keys, values, inside = torch.stack(keys), torch.stack(values), torch.tensor(inside)
        if layer.boundary == 'mask': keys, values = keys[inside], values[inside]
        for n in torch.arange(layer.out_channels).split(d):
            alpha = (keys[:, n] @ query[n]/d).softmax(0)
            out[(n, h, *place)] = alpha @ values[:, n]
    return layer.out((out[:, 0] if layer.images else out)[None])


@pytest.mark.parametrize('boundary', ['mask', 'zero'])
@pytest.mark.parametrize('cls, group', [
    *((cls, ()) for cls in IMAGES), *product(ON_G, [('mirror',), ('p4',), ('p4m',)])])
def test_a_layer_is_the_sum_that_is_printed(cls, group, boundary):
    layer, x = made(cls, 3, *group, n=(3, 4), boundary=boundary)
    torch.testing.assert_close(layer(x[:1]), target_by_target(layer, x[:1]), **close)


def test_stand_alone_self_attention_is_the_layer_with_factors_of_one():
    "Ramachandran et al. 2019 (P2, end of 3.1): ψ = 1, and a key shift of rows and columns."
    layer, x = made(AffineSelfConv2d, 3)
    sasa = StandAloneSelfAttention2d(3, 4, 3, 2).double()
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith('psi'): p.fill_(1.)
            if name.endswith('beta'): p.zero_()
        for name in ('query', 'key', 'value'):
            getattr(sasa.maps, name).load_state_dict(getattr(layer, name).state_dict())
        sasa.out.load_state_dict(layer.out.state_dict())
        rows, columns = sasa.relative.rows.normal_(), sasa.relative.columns.normal_()
        by_row = rows[..., None].expand(2, 1, 3, 3)           # a head has two channels
        by_column = columns[..., None, :].expand(2, 1, 3, 3)
        layer.affine_key.beta.copy_(torch.cat([by_row, by_column], 1).flatten(0, 1))
    torch.testing.assert_close(layer(x), sasa(x), **close)


class ShiftStays(GroupAffineMap):
    "Wrong on purpose: β(Δ) where β(h⁻¹Δ) belongs."
    def psi_and_beta(self):
        psi, beta = super().psi_and_beta()
        beta = beta.unflatten(0, (self.heads, -1))
        return psi, beta[:, :1].expand_as(beta).flatten(0, 1)


def test_a_shift_that_stays_is_hidden_by_a_new_layer_and_found_in_a_trained_one():
    torch.manual_seed(0)
    broken = GroupAffineSelfConv2d(3, 4, 3, 'p4', 2, init='conditioned').double()
    for A in (broken.affine_query, broken.affine_key, broken.affine_value): A.__class__ = ShiftStays
    x = torch.randn(1, 3, 4, 6, 6, dtype=torch.float64)
    assert_equivariant(broken, x, 'p4', tol=1e-12)
    assert max(equivariance_error(perturb_(broken), x, 'p4')) > .05


@pytest.mark.parametrize('group', ['p4', 'p4m'])
def test_filters_are_weights_times_moved_templates_and_move_like_a_feature_map(group):
    layer, x = made(LiftingAffineSelfConv2d, 3, group, n=(7, 7))
    H, heads = layer.group, 2
    weights = attention_weights(layer, x)[..., 2, 3].unflatten(2, (3, 3))    # b n ky kx g
    weights = weights.movedim(-1, 2).repeat_interleave(4//heads, 1)
    psi = layer.affine_value.psi[None]
    templates = torch.stack([act(H, h, psi) for h in H.elements], 2)
    torch.testing.assert_close(filters_at(layer, x, 2, 3), weights*templates, **close)
    for h in H.elements:
        there = filters_at(layer, act(H, h, x), *moved_pixel(H, h, (2, 3), 7))
        torch.testing.assert_close(there, act(H, h, filters_at(layer, x, 2, 3)), **close)


def test_a_lifting_layer_of_the_conditioned_start_has_the_same_weights_in_all_poses():
    torch.manual_seed(0)
    layer = LiftingAffineSelfConv2d(1, 4, 5, 'p4', heads=1, init='conditioned').double()
    weights = attention_weights(layer, torch.randn(1, 1, 6, 6, dtype=torch.float64))
    torch.testing.assert_close(weights, weights[:, :, :, :1].expand_as(weights), **close)
    assert weights.std(2).max() > .01


def test_the_factor_and_shift_of_the_query_can_be_put_into_its_linear_map():
    layer, x = made(AffineSelfConv2d, 3)
    y, A, W = layer(x), layer.affine_query, layer.query
    with torch.no_grad():
        W.weight.mul_(A.psi[..., None])
        W.bias.mul_(A.psi[:, 0, 0]).add_(A.beta[:, 0, 0])
        assert (layer(x) - y).abs().max() > .01
        A.psi.fill_(1.)
        A.beta.zero_()
    torch.testing.assert_close(layer(x), y, **close)


def test_a_bias_for_each_pose_breaks_the_symmetry_and_one_for_all_poses_keeps_it():
    layer, x = made(GroupAffineSelfConv2d, 3, 'p4')
    b = torch.randn(4, 4, 1, 1, dtype=torch.float64)
    def with_bias(b): return lambda x: layer(x) + b
    assert max(equivariance_error(with_bias(b), x, 'p4')) > .05
    for kept in (0*b, b.mean(1, keepdim=True)): assert_equivariant(with_bias(kept), x, 'p4')


def test_the_shift_of_equation_24_as_printed_is_another_function():
    "|H| β(1, ·) is not the sum of β over the poses, which moves as the theorem wants."
    on_G = torch.randn(1, 1, 4, 5, 5, dtype=torch.float64)
    for h in get_group('p4').elements:
        shift = act('p4', h, on_G).sum(2)
        torch.testing.assert_close(shift, act('p4', h, on_G.sum(2)), **close)
        assert (shift - act('p4', h, 4*on_G[:, :, 0])).abs().max() > 1
