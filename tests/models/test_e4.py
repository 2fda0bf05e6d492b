"The networks of E4 layers: what they refuse, and what every one of them keeps to."
import pytest
import torch

from eqtutor.models.e4 import E4_ABLATIONS, E4Net, e4_net, e4_net_large, e4_resnet18
from eqtutor.models.registry import MODELS, build_model


def test_every_network_is_registered():
    names = {name for name in MODELS if 'e4' in name}
    sizes = {f'p4-e4-net-{name}' for name in E4_ABLATIONS}
    others = {'p4-e4-net', 'p4-e4-net-large', 'p4-e4-resnet18', 'p4m-e4-resnet18'}
    hundred = {'p4-e4-resnet18-cifar100', 'p4m-e4-resnet18-cifar100'}
    assert names == sizes | others | hundred

def test_networks_of_100_classes():
    plain = {name for name in MODELS if name.endswith('-resnet18-cifar100')}
    assert len(plain) == 5
    assert build_model('p4-e4-resnet18-cifar100')(torch.rand(1, 3, 16, 16)).shape == (1, 100)

@pytest.mark.parametrize('make, channels, slices, reduction',
                         [(e4_net, 16, 2, 1), (e4_net_large, 24, 12, 2)])
def test_networks_of_table_1(make, channels, slices, reduction):
    net = make()
    assert make(slices=4).layers.e4_1.slices == 4
    layer = net.layers.e4_6
    assert (layer.in_channels, layer.slices) == (channels, slices)
    assert layer.generate.weight.shape == (25, slices, channels//reduction)

@pytest.mark.parametrize('shape, words', [
    ((1, 1, 3, 28), 'at least 4×4 pixels'), ((1, 28, 28), r'expected images \(b, c, h, w\)')])
def test_small_images_are_refused(shape, words):
    with pytest.raises(ValueError, match=words): e4_net()(torch.rand(shape))

def test_odd_widths_are_refused():
    with pytest.raises(ValueError, match='even widths, got 5; use 6'):
        e4_resnet18('p4', (4, 5, 8, 8))

def test_another_number_of_classes_and_channels():
    net = E4Net('p4m', 4, classes=3, in_channels=2, kernel_size=3).eval()
    assert net(torch.rand(2, 2, 8, 12)).shape == (2, 3)
