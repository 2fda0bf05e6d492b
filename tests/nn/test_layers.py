"Norms and pools as members of the library: bad input, checkpoints, conversion, compilation."
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.export import to_plain
from eqtutor.groups import get_group
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import (
    BlurPool2d,
    GroupAdaptivePool2d,
    GroupBatchNorm2d,
    GroupGroupNorm2d,
    GroupInstanceNorm2d,
    GroupLayerNorm2d,
    GroupPool,
    SpatialPool2d,
)
from eqtutor.report import exact_sizes


@pytest.mark.parametrize('norm', [GroupBatchNorm2d, GroupLayerNorm2d])
def test_a_norm_has_one_scale_and_shift_per_channel(norm):
    affine = {name: tuple(p.shape) for name, p in norm(6).named_parameters()}
    assert affine == {'weight': (6,), 'bias': (6,)}


def test_batch_norm_converts_to_its_synchronised_form():
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(GroupBatchNorm2d(6)))
    assert isinstance(net[0], nn.SyncBatchNorm)
    assert net[0].weight.shape == (6,)


@pytest.mark.parametrize('layer', [
    GroupBatchNorm2d(6), GroupLayerNorm2d(6), GroupGroupNorm2d(2, 6), GroupInstanceNorm2d(6),
    GroupPool()])
def test_a_layer_on_the_group_refuses_an_image(layer):
    with pytest.raises(ValueError, match=r'\(b, [c6], \|H\|, h, w\), got \(2, 6, 5, 5\)'):
        layer(torch.randn(2, 6, 5, 5))


@pytest.mark.parametrize('arguments, message', [
    (dict(kernel_size=(2, 3)), 'kernel_size must be one number, or two equal'),
    (dict(kernel_size=2, stride=0), 'stride must be'),
    (dict(kernel_size=2, reduce='sum'), "'max', 'mean'"),
    (dict(kernel_size=3, reduce='blur'), 'use BlurPool2d'),
    (dict(kernel_size=2, ceil_mode=True), 'over the far end alone'),
])
def test_a_spatial_pool_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message): SpatialPool2d(group='p4', **arguments)


def test_a_group_pool_refuses_an_unknown_reduction():
    with pytest.raises(ValueError, match="'max', 'mean'"): GroupPool('sum')


@pytest.mark.parametrize('shape, message', [
    ((1, 1, 3, 8, 8), r'\|H\| = 4 for C4'),
    ((8, 8), r'\|H\| = 4 for C4'),
    ((1, 1, 4, 7, 8), 'stride 2 on height 7'),
])
def test_a_spatial_pool_refuses_what_it_cannot_pool_exactly(shape, message):
    with pytest.raises(ValueError, match=message): SpatialPool2d(2, 'p4')(torch.randn(shape))


def test_a_spatial_pool_that_is_not_strict_warns():
    pool = SpatialPool2d(2, 'p4', strict=False)
    with pytest.warns(UserWarning, match=r'leaves 1 pixel\(s\) over'):
        assert pool(torch.randn(1, 2, 4, 7, 7)).shape == (1, 2, 4, 3, 3)


def test_a_spatial_pool_keeps_channels_and_poses():
    assert SpatialPool2d(2, 'p4')(torch.randn(2, 6, 4, 6, 8)).shape == (2, 6, 4, 3, 4)


@pytest.mark.slow
def test_a_network_of_all_layers_compiles_to_one_graph():
    torch.manual_seed(0)
    lift, conv = LiftingConv2d(3, 6, 3, 'p4', padding=1), GroupConv2d(6, 6, 3, 'p4')
    first = [lift, GroupBatchNorm2d(6), nn.ReLU(), SpatialPool2d(2, 'p4'), nn.Dropout3d(.3)]
    then = [conv, GroupLayerNorm2d(6), nn.ReLU(), GroupPool()]
    net = nn.Sequential(*first, *then).eval()
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('reduce', ['mean', 'max'])
@pytest.mark.parametrize('size', [1, 2, 3, 5])
@pytest.mark.parametrize('shape', [(1, 2, 8, 5, 5), (2, 2, 8, 6, 9)])
def test_an_adaptive_pool_leaves_the_poses_alone(shape, size, reduce):
    pool, f = GroupAdaptivePool2d(size, reduce), torch.randn(shape).double()
    if size > 1: assert_equivariant(pool, f, 'p4m')   # one pixel does not vary over space
    each = {'mean': nn.AdaptiveAvgPool2d, 'max': nn.AdaptiveMaxPool2d}[reduce](size)
    assert torch.equal(pool(f), torch.stack([each(f[:, :, h]) for h in range(8)], 2))
    assert torch.equal(pool(f[:, :, 0]), each(f[:, :, 0]))
    assert pool(f.float()).dtype == torch.float32


def test_an_adaptive_pool_says_what_it_expects():
    with pytest.raises(ValueError, match='or a feature map'):
        GroupAdaptivePool2d(1)(torch.ones(3, 4))
    with pytest.raises(ValueError, match='output_size must be'): GroupAdaptivePool2d((1, 2))
    program = torch.export.export(GroupAdaptivePool2d(2), (torch.randn(1, 2, 4, 7, 7),)).module()
    f = torch.randn(1, 2, 4, 7, 7)
    assert torch.equal(program(f), GroupAdaptivePool2d(2)(f))


# --- norms that torch has as well

@pytest.mark.parametrize('group', ['Z2', 'p4', 'mirror', 'p4m'])
@pytest.mark.parametrize('size', [(5, 5), (6, 6), (4, 7)])
@pytest.mark.parametrize('make', [
    lambda: GroupInstanceNorm2d(6, affine=True), lambda: GroupInstanceNorm2d(6),
    lambda: GroupInstanceNorm2d(6, affine=True, track_running_stats=True).eval(),
    lambda: GroupGroupNorm2d(3, 6), lambda: GroupGroupNorm2d(1, 6)])
def test_instance_and_group_norm_are_exact_and_stay_so(make, size, group):
    H = get_group(group)
    x = torch.randn(1, 6, len(H), *size, dtype=torch.float64)
    norm = make().double()
    if len(H) > 1:
        assert_equivariant(norm, x, H, tol=1e-12)
        assert_equivariant(perturb_(norm), x, H, tol=1e-12)
        assert_equivariant(norm.float(), x.float(), H)
    assert torch.equal(to_plain(norm.double(), x=x)(x), norm(x))


def test_their_sets_are_an_image_s_channels_with_all_poses_and_places():
    f = 3 + 2*torch.randn(2, 6, 4, 5, 7, dtype=torch.float64)
    one = GroupInstanceNorm2d(6, eps=0.).double()(f)
    some = GroupGroupNorm2d(3, 6, eps=0.).double()(f)
    for b, c in ((0, 0), (1, 5)):
        part = f[b, c]
        torch.testing.assert_close(one[b, c], (part - part.mean())/part.std(correction=0))
        part = f[b, c//2*2:c//2*2 + 2]
        want = (f[b, c] - part.mean())/part.std(correction=0)
        torch.testing.assert_close(some[b, c], want)


def test_an_instance_norm_for_each_pose_and_its_affine_is_not_exact():
    "The broken twin: poses folded into channels."
    f = torch.randn(1, 6, 4, 5, 5, dtype=torch.float64)
    folded = perturb_(nn.InstanceNorm2d(24, affine=True).double())
    errors = equivariance_error(lambda f: folded(f.flatten(1, 2)).view_as(f), f, 'p4')
    assert min(errors[1:]) > .1


# --- blur

@pytest.mark.parametrize('group', ['p4', 'mirror', 'p4m'])
@pytest.mark.parametrize('size', [16, 17, 18, 21])
@pytest.mark.parametrize('taps, stride, padding', [
    (3, 2, None), (4, 2, None), (5, 2, None), (2, 2, 0), (3, 3, 1), (5, 2, 0)])
def test_a_blur_is_exact_or_refused_and_its_rule_is_both(taps, stride, padding, size, group):
    x = torch.randn(2, 3, len(get_group(group)), size, size, dtype=torch.float64)
    blur = BlurPool2d(taps, group, stride, padding)
    fits = (size + 2*blur.padding - taps) % stride == 0
    loose = BlurPool2d(taps, group, stride, padding, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        error = max(equivariance_error(loose, x, group))
    assert (error < 1e-12) == fits and (fits or error > .1)
    if fits:
        assert_equivariant(blur, x, group, tol=1e-12)
        assert_equivariant(blur, x[:, :, 0].float(), group)
        return
    with pytest.raises(ValueError, match=f'stride {stride} on (height|width) {size}'): blur(x)


@pytest.mark.parametrize('mode', ['zeros', 'reflect', 'replicate', 'circular'])
def test_a_blur_is_the_convolution_with_binomial_weights(mode):
    x = torch.randn(2, 3, 4, 10, 8, dtype=torch.float64)
    y = BlurPool2d(4, 'p4', padding_mode=mode)(x)
    weights = torch.tensor([1., 3, 3, 1], dtype=torch.float64)/8
    frame = F.pad(x.flatten(1, 2), [1]*4, **({} if mode == 'zeros' else dict(mode=mode)))
    window = torch.outer(weights, weights).expand(12, 1, -1, -1)
    want = F.conv2d(frame, window, stride=2, groups=12).view(2, 3, 4, 5, 4)
    torch.testing.assert_close(y, want)


def test_a_blur_refuses_what_it_cannot_blur():
    for x, words in ((torch.ones(1, 1, 4, 9, 9, dtype=torch.long), 'expected floating-point'),
                     (torch.ones(1, 1, 3, 9, 9), r'\|H\| = 4 for C4'), (torch.ones(9, 9), 'image')):
        with pytest.raises(ValueError, match=words): BlurPool2d(3, 'p4')(x)


def test_a_blur_in_a_network_is_exported_and_its_sizes_are_named():
    net = nn.Sequential(LiftingConv2d(1, 2, 3, 'p4', padding=1), BlurPool2d(3, 'p4')).eval()
    x = torch.randn(2, 1, 9, 9)
    torch.testing.assert_close(to_plain(net, x=x)(x), net(x))
    torch.testing.assert_close(torch.compile(net, backend='eager', fullgraph=True)(x), net(x))
    sizes = exact_sizes(net, 'p4', near=10)
    assert sizes and all(n % 2 for n in sizes)


# --- what chapter 06 proves, over more groups and sizes than it shows

NORMS = {'batch': lambda: GroupBatchNorm2d(6), 'evaluated': lambda: GroupBatchNorm2d(6).eval(),
         'layer': lambda: GroupLayerNorm2d(6), 'group': lambda: GroupGroupNorm2d(3, 6),
         'one block': lambda: GroupGroupNorm2d(1, 6),
         'instance': lambda: GroupInstanceNorm2d(6, affine=True)}


def on(group, *sides, b=2):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(b, 6, len(get_group(group)), *sides, dtype=torch.float64, generator=draw)


@pytest.mark.parametrize('group', ['p4', 'mirror', 'p4m'])
@pytest.mark.parametrize('name', NORMS)
def test_a_norm_is_exact_new_and_moved(name, group):
    norm, f = NORMS[name]().double(), on(group, 6, 7)
    assert_equivariant(norm, f, group, tol=1e-12)
    assert_equivariant(perturb_(norm), f, group, tol=1e-12)
    assert_equivariant(norm.float(), f.float(), group)


@pytest.mark.parametrize('group', ['C3', 'C8', 'D3'])
@pytest.mark.parametrize('name', NORMS)
def test_a_norm_off_the_grid_is_exact_where_nothing_is_interpolated(name, group):
    assert_equivariant(perturb_(NORMS[name]().double()), on(group, 1, 1, b=8), group, tol=1e-12)


def test_layer_norm_and_batch_norm_leave_mean_0_on_their_sets():
    f = on('p4', 6, 7)
    y = GroupLayerNorm2d(6).double()(f)
    assert y.mean(1).abs().max() < 1e-12 and (y.var(1, correction=0) - 1).abs().max() < 1e-3
    assert GroupBatchNorm2d(6).double()(f).mean((0, 2, 3, 4)).abs().max() < 1e-12


@pytest.mark.parametrize('group', ['C2', 'p4', 'mirror', 'p4m'])
@pytest.mark.parametrize('reduce', ['max', 'mean'])
@pytest.mark.parametrize('k, s, p, sides', [
    (2, 2, 0, (6, 8)), (3, 2, 0, (7, 9)), (3, 2, 1, (7, 5)), (3, 1, 1, (6, 7)), (2, 1, 0, (6, 7))])
def test_a_spatial_pool_is_torch_s_pose_by_pose_and_exact(k, s, p, sides, reduce, group):
    pool, f = SpatialPool2d(k, group, s, p, reduce), on(group, *sides)
    assert_equivariant(pool, f, group, tol=1e-14)
    assert_equivariant(pool, f[:, :, 0], group, tol=1e-14)
    each = {'max': F.max_pool2d, 'mean': F.avg_pool2d}[reduce]
    for q in range(f.shape[2]): assert torch.equal(pool(f)[:, :, q], each(f[:, :, q], k, s, p))


def test_a_mirror_binds_the_columns_alone():
    assert_equivariant(SpatialPool2d(2, 'mirror'), on('mirror', 7, 8), 'mirror', tol=1e-14)


def test_even_sides_are_halved_by_a_pool_and_not_by_a_window_of_three():
    x = on('p4m', 8, 8)
    with pytest.raises(ValueError, match='those of 2 pixels on even ones'):
        GroupConv2d(6, 4, 3, 'p4m', stride=2, padding=1).double()(x)
    down = nn.Sequential(GroupConv2d(6, 4, 3, 'p4m', padding=1), SpatialPool2d(2, 'p4m')).double()
    assert_equivariant(down, x, 'p4m', tol=1e-12)
    assert down(x).shape == (2, 4, 8, 4, 4)


def test_an_adaptive_pool_of_three_axes_joins_poses():
    "The broken twin: poses 0 and 1 become one, and 2 and 3."
    joined, f = nn.AdaptiveAvgPool3d((2, 3, 3)), on('p4', 7, 7)
    moved = joined(act('p4', 1, f))
    for order in ([0, 1], [1, 0]):
        assert (moved - joined(f)[:, :, order].rot90(1, (-2, -1))).abs().max() > .05
