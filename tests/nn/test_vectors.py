"Layers that take arrows in and put arrows out, against sums written with index code of their own."
import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act, disc
from eqtutor.convert import convert
from eqtutor.cost import count_macs, layer_costs
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_, symmetries
from eqtutor.export import to_plain
from eqtutor.groups import Group, get_group
from eqtutor.nn import (
    GroupBatchNorm2d,
    GroupConv2d,
    GroupPool,
    LiftingConv2d,
    ProjectionConv2d,
    VectorLiftingConv2d,
    VectorProjectionConv2d,
)
from eqtutor.report import exact_sizes, layer_report
from eqtutor.wrappers import Canonicalise, Symmetrise

LAYERS = VectorLiftingConv2d, VectorProjectionConv2d
GRID = 'Z2', 'mirror', 'C2', 'p4', 'D2', 'p4m'
BOTH = dict(kind='vector', input_kind='vector')
diagonal = Group('diagonal mirror', [[[1, 0], [0, 1]], [[0, 1], [1, 0]]])


# --- the sums, pixel by pixel: rows count downwards, y upwards

def turned_field(w, m):
    "A field `(2, k, k)`: at each pixel the arrow that the matrix brings there, turned by it."
    k = w.shape[-1]
    out, middle = torch.zeros_like(w), (k - 1)/2
    for row, col in itertools.product(range(k), repeat=2):
        x, y = col - middle, middle - row
        from_x, from_y = m[0][0]*x + m[1][0]*y, m[0][1]*x + m[1][1]*y     # the inverse: transposed
        a, b = w[:, round(middle - from_y), round(from_x + middle)]
        out[0, row, col] = m[0][0]*a + m[0][1]*b
        out[1, row, col] = m[1][0]*a + m[1][1]*b
    return out

def value(image, row, col):
    "Of a pixel, or 0 outside."
    inside = 0 <= row < image.shape[0] and 0 <= col < image.shape[1]
    return image[row, col] if inside else image.new_zeros(())

def lifted(v, weight, group, padding):
    "y = Σ over arrows i and offsets of ⟨vᵢ, the turned arrow of the filter⟩."
    k, (rows, cols) = weight.shape[-1], v.shape[-2:]
    out = v.new_zeros(len(weight), len(group), rows + 2*padding - k + 1, cols + 2*padding - k + 1)
    for o, (h, m) in itertools.product(range(len(weight)), enumerate(group.matrices.tolist())):
        for i in range(len(v)//2):
            w = turned_field(weight[o, 2*i:2*i + 2], m)
            for r, c, a, b in itertools.product(*map(range, out.shape[-2:]), range(k), range(k)):
                for d in range(2):
                    number = value(v[2*i + d], r + a - padding, c + b - padding)
                    out[o, h, r, c] += w[d, a, b]*number
    return out

def projected(f, weight, group, padding):
    "v = Σ over channels, poses and offsets of the turned arrows of the filter."
    k, (rows, cols) = weight.shape[-1], f.shape[-2:]
    out = f.new_zeros(len(weight), rows + 2*padding - k + 1, cols + 2*padding - k + 1)
    for o, i in itertools.product(range(len(weight)//2), range(len(f))):
        for q, m in enumerate(group.matrices.tolist()):
            w = turned_field(weight[2*o:2*o + 2, i], m)
            for r, c, a, b in itertools.product(*map(range, out.shape[-2:]), range(k), range(k)):
                number = value(f[i, q], r + a - padding, c + b - padding)
                for d in range(2): out[2*o + d, r, c] += w[d, a, b]*number
    return out


def layer_and_input(cls, group, **options):
    "A float64 layer as after training, and an input for it: four channels to four."
    torch.manual_seed(0)
    poses = () if cls.lifts else (len(get_group(group)) if isinstance(group, str) else len(group),)
    layer = perturb_(cls(4, 4, options.pop('kernel_size', 3), group, **options).double())
    return layer, torch.randn(2, 4, *poses, 6, 9).double()

def kinds_of(layer):
    "What its input and output are, for the meter."
    return dict(input_kind='vector') if layer.lifts else dict(kind='vector')

def group_of(name): return name if isinstance(name, Group) else get_group(name)


@pytest.mark.parametrize('group', [*GRID, diagonal], ids=str)
@pytest.mark.parametrize('kernel_size', [1, 2, 3])
def test_equal_to_the_sums(group, kernel_size):
    group = group_of(group)
    for cls, oracle in zip(LAYERS, (lifted, projected)):
        layer, x = layer_and_input(cls, group, kernel_size=kernel_size, padding=1)
        x = x[:1, ..., :4, :5]
        want = oracle(x[0], layer.weight.detach(), group, 1)
        if cls.lifts: want = want + layer.bias.view(-1, 1, 1, 1)
        torch.testing.assert_close(layer(x)[0], want, rtol=0, atol=1e-12)

def test_the_action_is_that_of_the_oracle():
    v = torch.randn(1, 4, 5, 5).double()
    for group in map(group_of, (*GRID, diagonal)):
        for h, m in enumerate(group.matrices.tolist()):
            want = torch.cat([turned_field(v[0, :2], m), turned_field(v[0, 2:], m)])
            assert torch.equal(act(group, h, v, kind='vector')[0], want)

def test_the_action_is_one():
    v, arrow = torch.randn(1, 4, 5, 7).double(), torch.randn(3, 4).double()
    for name in GRID:
        group = get_group(name)
        for g, h in itertools.product(group.elements, repeat=2):
            for t in v, arrow:
                twice = act(group, g, act(group, h, t, 'vector'), 'vector')
                assert torch.equal(twice, act(group, int(group.mul[g, h]), t, 'vector'))

@pytest.mark.parametrize('name', GRID)
@pytest.mark.parametrize('cls', LAYERS)
@pytest.mark.parametrize('options', [
    {}, dict(padding='same'), dict(kernel_size=2, padding=1), dict(kernel_size=1),
    dict(padding=1, dilation=2), dict(groups=2)], ids=str)
def test_equivariant_as_after_training(cls, name, options):
    layer, x = layer_and_input(cls, name, **options)
    assert_equivariant(layer, x, name, **kinds_of(layer))
    assert_equivariant(layer.float(), x[:1, ..., :7].float(), name, **kinds_of(layer))

@pytest.mark.parametrize('cls', LAYERS)
def test_a_new_layer_and_a_stride(cls):
    layer = cls(2, 2, 3, 'p4m', stride=2).double()
    x = torch.randn(1, 2, *(() if cls.lifts else (8,)), 9, 7).double()
    assert_equivariant(layer, x, 'p4m', **kinds_of(layer))
    with pytest.raises(ValueError, match='stride 2 on height 8'): layer(x[..., :8, :])

@pytest.mark.parametrize('cls, twin', [*zip(LAYERS, (LiftingConv2d, ProjectionConv2d))])
def test_the_twin_that_knows_no_arrows_fails(cls, twin):
    layer, x = layer_and_input(cls, 'p4')
    broken = twin(4, 4, 3, 'p4', bias=layer.bias is not None).double()
    broken.load_state_dict(layer.state_dict())
    assert min(equivariance_error(broken, x, 'p4', **kinds_of(layer))[1:]) > .5
    assert max(equivariance_error(layer, x, 'p4', **kinds_of(layer))) < 1e-12

@pytest.mark.parametrize('name', ['C8', 'C6', 'D3'])
def test_off_the_grid_each_layer_is_as_good_as_its_twin(name):
    "The bank of arrows is that of scalars, turned by exact matrices: no error of its own."
    group = get_group(name)
    for cls, twin in zip(LAYERS, (LiftingConv2d, ProjectionConv2d)):
        layer, _ = layer_and_input(cls, name, kernel_size=5)
        scalars = twin(4, 4, 5, name, bias=cls.lifts).double()
        scalars.load_state_dict(layer.state_dict())
        bank, plain = layer.filters(), scalars.filters()
        n, m = len(group), group.matrices
        if cls.lifts: bank, plain = (b.view(4, n, 2, 2, 5, 5) for b in (bank, plain))
        else:
            bank, plain = (b.view(2, 2, 4, n, 5, 5).permute(2, 3, 0, 1, 4, 5)
                           for b in (bank, plain))
        for h in group.elements:
            for d in range(2):
                want = m[h, d, 0]*plain[:, h, :, 0] + m[h, d, 1]*plain[:, h, :, 1]
                torch.testing.assert_close(bank[:, h, :, d], want, rtol=0, atol=1e-12)

def test_off_the_grid_quarter_turns_stay_exact():
    net = nn.Sequential(VectorLiftingConv2d(2, 4, 5, 'C8', padding='same'), nn.ReLU(),
                        VectorProjectionConv2d(4, 2, 5, 'C8', padding='same')).double()
    x = nn.functional.avg_pool2d(torch.randn(1, 2, 37, 37).double(), 9, 1)
    errors = equivariance_error(net, x, 'C8', margin=6, **BOTH)
    assert max(errors[::2]) < 1e-12 < max(errors[1::2]) < .5
    assert disc(29, 29, 6).sum() > 200   # so many pixels were compared


# --- what a user may do to a layer

@pytest.mark.parametrize('cls', LAYERS)
def test_state_copies_and_refusals(cls):
    layer, x = layer_and_input(cls, 'p4')
    assert sorted(layer.state_dict()) == (['bias', 'weight'] if cls.lifts else ['weight'])
    for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
        assert torch.equal(other(x), layer(x))
    assert 'group=C4' in repr(layer)
    with pytest.raises(ValueError, match='even (in|out)_channels, got 3'): cls(3, 3, 3, 'p4')
    with pytest.raises(ValueError, match='in each of 2 blocks, got 6'): cls(6, 6, 3, 'p4', groups=2)

def test_no_bias_for_arrows():
    with pytest.raises(ValueError, match='arrows have no bias'):
        VectorProjectionConv2d(4, 2, 3, 'p4', bias=True)
    assert VectorProjectionConv2d(4, 2, 3, 'p4', bias=False).bias is None

@pytest.mark.parametrize('cls', LAYERS)
@pytest.mark.parametrize('group', ['p4', 'p4m', 'C8'])
def test_macs_are_those_that_torch_counts(cls, group):
    layer = cls(4, 6, 5, group)
    x = torch.randn(2, 4, *(() if cls.lifts else (len(get_group(group)),)), 9, 11)
    with FlopCounterMode(display=False) as counter, torch.no_grad(): y = layer(x)
    assert layer.macs(x.shape, y.shape) == counter.get_total_flops()//2
    assert count_macs(layer, x) == layer.macs(x.shape, y.shape) == layer_costs(layer, x)[0].macs
    plain = (LiftingConv2d if cls.lifts else ProjectionConv2d)(4, 6, 5, group)
    turning = 2*len(get_group(group))*layer.weight.numel()
    assert count_macs(layer, x) - count_macs(plain, x) == turning

@pytest.mark.parametrize('cls', LAYERS)
def test_autocast(cls):
    layer, x = layer_and_input(cls, 'p4')
    y = layer(x)
    with torch.autocast('cpu', dtype=torch.bfloat16): low = layer.float()(x.float())
    assert low.dtype == torch.bfloat16
    assert (low - y).abs().max() < .05*y.abs().max()

@pytest.mark.parametrize('cls', LAYERS)
def test_gradient(cls):
    layer, x = layer_and_input(cls, 'p4')
    x = x[:1, ..., :3, :3].requires_grad_()
    def loss(w): return torch.func.functional_call(layer, {'weight': w}, (x,)).square().sum()
    assert torch.autograd.gradcheck(loss, layer.weight)

def network(group='p4m'):
    "Arrows to arrows, with a norm that may be folded."
    torch.manual_seed(0)
    return perturb_(nn.Sequential(
        VectorLiftingConv2d(2, 4, 3, group, padding=1), GroupBatchNorm2d(4), nn.ReLU(),
        GroupConv2d(4, 4, 3, group, padding=1), nn.ReLU(),
        VectorProjectionConv2d(4, 2, 3, group, padding=1))).eval()

def test_compiles_to_one_graph():
    net, x = network(), torch.randn(2, 2, 9, 9)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend='aot_eager')(x), net(x),
                               rtol=1e-4, atol=1e-5)

def test_exports():
    net, x = network().double(), torch.randn(3, 2, 9, 8).double()
    plain = to_plain(net)
    assert 'eqtutor' not in plain.code
    torch.testing.assert_close(plain(x), net(x), rtol=0, atol=1e-9)
    exported = torch.export.export(net, (x,)).module()
    torch.testing.assert_close(exported(x), net(x), rtol=0, atol=1e-12)

def test_exact_sizes_of_a_network_of_arrows():
    net = nn.Sequential(VectorLiftingConv2d(2, 4, 3, 'p4', padding=1, stride=2, strict=False),
                        VectorProjectionConv2d(4, 2, 3, 'p4', padding=1))
    assert exact_sizes(net, 'p4', near=12, input_kind='vector') == [7, 9, 11, 13, 15]
    with pytest.raises(ValueError, match='no picture of'): exact_sizes(net, 'p4', near=12)


# --- act, the meter, the wrappers

@pytest.mark.parametrize('v, kind, words', [
    (torch.randn(1, 3, 4, 4), 'vector', r'pairs of channels, .* got shape \(1, 3, 4, 4\)'),
    (torch.randn(1, 2, 4, 4, 4), 'vector', 'pairs of channels'),
    (torch.ones(1, 2, 4, 4, dtype=torch.uint8), 'vector', 'arrows have two signs'),
    (torch.randn(1, 2, 4, 4), 'vektor', "kind must be one of .*, vector, got 'vektor'"),
    (torch.randn(1, 2, 4, 4), 'feature map', "of kind 'feature map', got shape")])
def test_what_is_no_arrow_is_refused(v, kind, words):
    with pytest.raises(ValueError, match=words): act('p4', 1, v, kind=kind)

def test_whole_numbers_turn_by_quarters_alone():
    v = torch.tensor([[3, -1]], dtype=torch.int8)
    assert act('p4', 1, v, 'vector').tolist() == [[1, 3]]
    assert act('p4', 1, v, 'vector').dtype == torch.int8
    with pytest.raises(ValueError, match='need floating-point values'): act('C8', 1, v, 'vector')

def by_hand(group):
    "Arrows to arrows without any layer of arrows: scalar products in, a sum over poses out."
    group = get_group(group)
    arrows = group.matrices[:, :, 0].float()          # h (1, 0)
    body = nn.Sequential(GroupConv2d(1, 4, 3, group, padding='same'), nn.ReLU(),
                         GroupConv2d(4, 1, 3, group, padding='same', bias=False))
    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body
        def forward(self, v):
            f = self.body(torch.einsum('bdyx,hd->bhyx', v, arrows.to(v))[:, None])
            return torch.einsum('bhyx,hd->bdyx', f[:, 0], arrows.to(v))
    return ByHand()

def two_scalars(group, lift=LiftingConv2d):
    return nn.Sequential(lift(2, 4, 3, group, padding=1), nn.ReLU(),
                         ProjectionConv2d(4, 2, 3, group, padding=1))

def test_a_network_of_arrows_that_somebody_wrote_passes():
    "It was called broken, and two scalars passed for an arrow."
    net, v = by_hand('p4m'), torch.randn(1, 2, 9, 9)
    assert_equivariant(net, v, 'p4m', **BOTH)
    report = layer_report(net, v, 'p4m', layout='vector', kind='vector')
    assert report.first_broken is None and report.steps[-1].kind == 'vector'
    assert "if they are an arrow, say layout='vector'" in str(layer_report(net, v, 'p4m'))
    assert 'arrow' not in str(report)
    assert symmetries(net, v, 'p4m', kind='vector', input_kind='vector') == tuple(range(8))
    with pytest.raises(AssertionError, match="with kind='vector', input_kind='vector'"):
        assert_equivariant(net, v, 'p4m')

def test_two_scalars_are_no_arrow():
    net, x = two_scalars('p4m'), torch.randn(1, 2, 9, 9)
    assert_equivariant(net, x, 'p4m')
    with pytest.raises(AssertionError, match='two scalars: no arrow comes out.*VectorProjection'):
        assert_equivariant(net, x, 'p4m', kind='vector')
    report = layer_report(net, x, 'p4m', kind='vector')
    assert report.first_broken == 'output'
    assert 'two of them are two scalars and no arrow' in str(report)
    assert "VectorProjectionConv2d(channels, 2, 1, 'p4m')" in str(report)
    assert layer_report(net, x, 'p4m').first_broken is None

def test_arrows_that_are_read_as_scalars():
    net, v = two_scalars('p4'), torch.randn(1, 2, 9, 9)
    with pytest.raises(AssertionError, match='not equivariant'):
        assert_equivariant(net, v, 'p4', input_kind='vector')
    report = layer_report(net, v, 'p4', layout='vector')
    assert report.first_broken == '0'
    assert "VectorLiftingConv2d(2, 4, 3, 'p4', padding=1)" in str(report)
    cured = two_scalars('p4', VectorLiftingConv2d)
    assert_equivariant(cured, v, 'p4', input_kind='vector')
    told = dict(input_kind='vector', kind='image')
    assert layer_report(cured, v, 'p4', **told).first_broken is None
    with pytest.raises(AssertionError, match="It is with input_kind='vector'"):
        assert_equivariant(cured, v, 'p4')

def test_the_report_on_arrows():
    v = torch.randn(1, 2, 9, 9).double()
    net = network().double()
    report = layer_report(net, v, 'p4m', layout='vector', kind='vector')
    assert report.first_broken is None
    assert [s.kind for s in report.steps] == ['feature map']*5 + ['vector']
    told = layer_report(nn.Sequential(net, nn.ReLU()), v, 'p4m', layout='vector')
    assert told.first_broken == '1' and 'takes their two components for two scalars' in str(told)
    last = layer_report(nn.Sequential(net, nn.AvgPool2d(3, 1)), v, 'p4m', layout='vector')
    assert last.first_broken is None and last.steps[-1].kind == 'vector'
    mean = layer_report(nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten()), v, 'p4m',
                        layout='vector', kind='vector')
    assert mean.first_broken is None and mean.steps[-1].kind == 'vector'
    with pytest.raises(ValueError, match="should be of kind 'feature map'"):
        layer_report(net, v, 'p4m', layout='vector', kind='feature map')
    with pytest.raises(ValueError, match='kind must be one of'):
        layer_report(net, v, 'p4m', kind='arrows')

def test_the_report_off_the_grid():
    net = nn.Sequential(VectorLiftingConv2d(2, 4, 3, 'C8', padding=1),
                        VectorProjectionConv2d(4, 2, 3, 'C8', padding=1)).double()
    v = nn.functional.avg_pool2d(torch.randn(1, 2, 29, 29).double(), 9, 1)
    steps = layer_report(net, v, 'C8', layout='vector', margin=4).steps
    assert all(max(s.errors[::2]) < 1e-12 < max(s.errors) < .9 for s in steps)

def test_a_test_that_proves_nothing_is_refused_of_arrows_too():
    x = torch.randn(1, 1, 7, 7)
    def flat(x): return x.new_ones(1, 2, 7, 7)*x.mean()
    with pytest.raises(AssertionError, match='constant over space'):
        assert_equivariant(flat, x, 'p4', kind='vector')

def test_margin_leaves_the_rim_of_arrows_out():
    def gradient(x):
        right = (x[..., 1:-1, 2:] - x[..., 1:-1, :-2])/2
        v = torch.cat([right, (x[..., :-2, 1:-1] - x[..., 2:, 1:-1])/2], 1)
        rim = torch.ones_like(v)
        rim[..., 2:-2, 2:-2] = 0
        return v + rim
    x = torch.randn(1, 1, 21, 21)
    assert max(equivariance_error(gradient, x, 'p4', 'vector')) > .1
    assert max(equivariance_error(gradient, x, 'p4', 'vector', margin=3)) < 1e-6

@pytest.mark.parametrize('wrap', [Symmetrise, Canonicalise])
def test_wrappers_turn_arrows_back(wrap):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 3)).double()
    x = torch.randn(2, 1, 8, 8).double()
    assert_equivariant(wrap(net, 'p4m', kind='vector').eval(), x, 'p4m', kind='vector')
    assert max(equivariance_error(wrap(net, 'p4m').eval(), x, 'p4m', kind='vector')) > .1

def test_a_converted_network_gives_scalars_and_the_meter_says_so():
    plain = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    net, x = convert(plain, 'p4'), torch.randn(1, 1, 9, 9)
    assert_equivariant(net, x, 'p4')
    with pytest.raises(AssertionError, match='no arrow comes out'):
        assert_equivariant(net, x, 'p4', kind='vector')

def test_arrows_into_an_invariant():
    net = nn.Sequential(VectorLiftingConv2d(2, 4, 3, 'p4m'), nn.ReLU(), GroupPool(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    v = torch.randn(2, 2, 8, 9).double()
    assert_equivariant(net, v, 'p4m', kind='invariant', input_kind='vector')
