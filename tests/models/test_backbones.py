"The networks of chapter 13: what they refuse, what they leave open, and that they compile."
import pytest
import torch
from torch import nn

from eqtutor.models.backbones import (
    Bottleneck,
    DenseNet,
    PreActBlock,
    ResNet,
    resnet18,
    resnet29,
    resnet44,
    zero_init_,
)
from eqtutor.models.group_cnn import AllCNN, p4_cnn

SMALL = {'AllCNN': lambda: AllCNN('p4', (2, 3)), 'ResNet': lambda: resnet18('p4', (2, 2, 2, 2)),
         'DenseNet': lambda: DenseNet('p4', 2)}


@pytest.mark.parametrize('make, shape, match', [
    (p4_cnn, (1, 1, 20, 20), 'at least 28×28'),
    (p4_cnn, (1, 1, 29, 29), 'stride 2 on height 25'),
    (p4_cnn, (1, 3, 28, 28), r'expected an image \(b, 1, h, w\)'),
    (SMALL['AllCNN'], (1, 3, 30, 30), 'stride 2 on height 15'),
    (SMALL['AllCNN'], (1, 3, 3, 3), 'at least 4×4'),
    (SMALL['AllCNN'], (1, 1, 8, 8), r'expected an image \(b, 3, h, w\)'),
    (SMALL['ResNet'], (1, 3, 28, 28), 'stride 2 on height 7'),
    (SMALL['ResNet'], (1, 3, 4, 4), 'at least 8×8'),
    (resnet44, (3, 32, 32), r'images \(b, c, h, w\)'),
    (SMALL['DenseNet'], (1, 3, 100, 100), 'stride 2 on height 25'),
    (SMALL['DenseNet'], (1, 3, 8, 8), 'at least 16×16')])
def test_pictures_that_do_not_fit_are_refused(make, shape, match):
    with pytest.raises(ValueError, match=match): make()(torch.randn(shape))


def test_unknown_group_is_refused():
    with pytest.raises(ValueError, match='unknown group'): AllCNN('p5')


@pytest.mark.parametrize('net, shape, classes', [
    (p4_cnn(), (2, 1, 28, 28), 10),
    (p4_cnn(classes=3, in_channels=2), (2, 2, 30, 30), 3),
    (AllCNN('p4', (2, 3), classes=7, in_channels=1), (2, 1, 8, 12), 7),
    (AllCNN('Z2', (2, 3)), (2, 3, 11, 13), 10),
    (resnet29('p4', (2, 2, 2), classes=3, in_channels=1), (1, 1, 8, 4), 3),
    (DenseNet('p4', 2, layers=2, classes=3), (1, 3, 16, 32), 3)])
def test_classes_channels_and_sizes_are_arguments(net, shape, classes):
    assert net.eval()(torch.randn(shape)).shape == (shape[0], classes)


def test_no_shortcut_is_built_where_none_is_needed():
    same, wider = Bottleneck(8, 2, 'p4'), Bottleneck(4, 2, 'p4')
    assert not [name for name in same.state_dict() if name.startswith('shortcut')]
    assert 'shortcut.weight' in wider.state_dict() and 'shortcut_norm.weight' in wider.state_dict()
    preact = PreActBlock(4, 2, 'p4', down=True)
    assert 'shortcut.weight' in preact.state_dict()
    assert 'shortcut_norm.weight' not in preact.state_dict()


def test_zero_start_needs_blocks_that_end_in_a_norm():
    with pytest.raises(ValueError, match='no block that ends in a norm'):
        zero_init_(resnet44('p4', (2, 2, 2)))
    assert all(block.norm3.weight.abs().max() == 0
               for block in zero_init_(resnet29('p4', (2, 2, 2))).modules()
               if isinstance(block, Bottleneck))


@pytest.mark.slow
@pytest.mark.parametrize('make, shape', [
    (lambda: p4_cnn(4), (2, 1, 28, 28)),
    # few blocks: compiling takes long
    (lambda: ResNet('p4', (2, 2), 1, PreActBlock), (2, 3, 16, 16)),
    (lambda: ResNet('p4', (2, 2), 1, Bottleneck), (2, 3, 16, 16)),
    (lambda: DenseNet('p4', 2, stages=2), (2, 3, 16, 16))],
    ids=['p4-CNN', 'pre-activation', 'bottleneck', 'DenseNet'])
def test_networks_compile_whole(make, shape):
    net, x = make().eval(), torch.randn(shape)
    compiled = torch.compile(net, fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_gate_and_operator_are_called_as_documented():
    calls = []

    def gate(channels, group):
        calls.append((channels, group.name))
        return nn.Identity()

    resnet29('p4', (2, 3, 4), gate=gate)
    assert calls == [(4*c, 'C4') for c in (2, 3, 4) for _ in range(3)]
