"Networks of affine self-convolution as members of the library: bad input, and what is registered."
import pytest
import torch

from eqtutor.models.affine import affine_resnet, asc_operator
from eqtutor.models.registry import MODELS
from eqtutor.nn.affine import AffineSelfConv2d, GroupAffineSelfConv2d, GroupSimpleAffineSelfConv2d


@pytest.mark.parametrize('arguments, message', [
    (dict(operator='sasa', group='p4'), 'translations only'),
    (dict(operator='attention'), "'conv', 'sasa', 'simple', 'asc'"),
    (dict(depth=50), "'29', '83'"),
])
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message): affine_resnet(**arguments)


@pytest.mark.parametrize('options', [dict(padding=0), dict(bias=True)])
def test_an_operator_keeps_the_size_and_has_no_output_bias(options):
    with pytest.raises(ValueError, match="padding='same'"): asc_operator(8, 8, 3, **options)


def test_a_size_that_leaves_a_pixel_over_is_refused():
    net = affine_resnet('asc', 'p4')     # sides 10, then 5
    with pytest.raises(ValueError, match='not equivariant to C4'): net(torch.randn(1, 3, 10, 10))


@pytest.mark.parametrize('arguments, cls, kernel_size', [
    (dict(), AffineSelfConv2d, 5),
    (dict(window=None), AffineSelfConv2d, 3),
    (dict(group='p4'), GroupAffineSelfConv2d, 5),
    (dict(group='p4', simple=True, window=7), GroupSimpleAffineSelfConv2d, 7),
])
def test_an_operator_is_the_layer_of_its_group_and_window(arguments, cls, kernel_size):
    layer = asc_operator(8, 16, 3, **arguments)
    assert type(layer) is cls
    assert (layer.in_channels, layer.out_channels, layer.kernel_size) == (8, 16, kernel_size)


def test_the_networks_of_the_paper_are_registered():
    names = {'z2-resnet29-sasa', 'z2-resnet29-asc-se'}
    for name in ('z2-resnet29-simple-asc', 'z2-resnet29-asc', 'p4-resnet29-asc', 'p4-resnet29-se'):
        names |= {name, f'{name}-cifar100'}
    assert names <= set(MODELS)
