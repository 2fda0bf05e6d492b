"Norms and pools as members of the library: bad input, checkpoints, conversion, compilation."
import pytest
import torch
from torch import nn

from eqtutor.equivariance import assert_equivariant
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import (
    GroupAdaptivePool2d,
    GroupBatchNorm2d,
    GroupLayerNorm2d,
    GroupPool,
    SpatialPool2d,
)


@pytest.mark.parametrize('norm', [GroupBatchNorm2d, GroupLayerNorm2d])
def test_a_norm_has_one_scale_and_shift_per_channel(norm):
    affine = {name: tuple(p.shape) for name, p in norm(6).named_parameters()}
    assert affine == {'weight': (6,), 'bias': (6,)}


def test_batch_norm_converts_to_its_synchronised_form():
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(GroupBatchNorm2d(6)))
    assert isinstance(net[0], nn.SyncBatchNorm)
    assert net[0].weight.shape == (6,)


@pytest.mark.parametrize('layer', [GroupBatchNorm2d(6), GroupLayerNorm2d(6), GroupPool()])
def test_a_layer_on_the_group_refuses_an_image(layer):
    with pytest.raises(ValueError, match=r'\(b, [c6], \|H\|, h, w\), got \(2, 6, 5, 5\)'):
        layer(torch.randn(2, 6, 5, 5))


@pytest.mark.parametrize('arguments, message', [
    (dict(kernel_size=(2, 2)), 'kernel_size must be a positive int'),
    (dict(kernel_size=2, stride=0), 'stride must be'),
    (dict(kernel_size=2, reduce='sum'), "'max', 'mean'"),
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
    with pytest.raises(ValueError, match='output_size must be'): GroupAdaptivePool2d((1, 1))
    program = torch.export.export(GroupAdaptivePool2d(2), (torch.randn(1, 2, 4, 7, 7),)).module()
    f = torch.randn(1, 2, 4, 7, 7)
    assert torch.equal(program(f), GroupAdaptivePool2d(2)(f))
