"""Twelve networks of torchvision through `convert`: exact, or refused with the reason that is true.

A reason is true if the network it names is exact, or meets the next one, once that is changed.
"""
import re

import pytest
import torch
from torch import nn
from torchvision import models
from torchvision.models import convnext, inception, shufflenetv2

from eqtutor.convert import convert
from eqtutor.equivariance import perturb_
from eqtutor.nn import GroupPool, LiftingConv2d


def build(name):
    "Without weights; for small pictures where the architecture says a size."
    more = dict(inception_v3=dict(init_weights=False, aux_logits=False),
                vit_b_16=dict(image_size=32)).get(name, {})
    return getattr(models, name)(num_classes=5, **more).eval()

def hollow(name):
    "The same with whatever is in memory for weights: quick, where only the layers count."
    with torch.device('meta'): net = build(name)
    return net.to_empty(device='cpu')

def picture(name):
    size = dict(inception_v3=75, vit_b_16=32).get(name)
    return size and torch.zeros(2, 3, size, size)

@torch.no_grad()
def assert_exact(net, size):
    "All quarter turns by torch's own rotation, in float64, with every weight moved."
    net = perturb_(net.double()).eval()
    x, other = torch.randn(2, 1, 3, size, size, dtype=torch.float64)
    y = net(x)
    assert (y - net(other)).abs().max() > 1e-3*y.abs().max(), 'it hears of the picture'
    for turns in 1, 2, 3:
        error = (net(x.rot90(turns, (-2, -1))) - y).abs().max()/y.abs().max()
        assert error < 1e-9, turns

# width, and a size that its strides take
EXACT = {'resnet18': (1/16, 65), 'efficientnet_b0': (1/2, 65), 'regnet_y_400mf': (1/2, 65),
         'squeezenet1_1': (1/4, 79), 'alexnet': (1/16, 95), 'vgg11_bn': (1/16, 64)}
LONG = 'vgg11_bn', 'alexnet', 'densenet121'

def long(names): return [pytest.param(n, marks=[pytest.mark.slow]*(n in LONG)) for n in names]

@pytest.mark.parametrize('name', long(EXACT))
def test_converted_network_is_exact(name):
    torch.manual_seed(0)
    width, size = EXACT[name]
    assert_exact(convert(build(name), 'p4', width), size)

def operation(name, file, code):
    return (f'^{name} in {file}.py, line [0-9]+: .* is an operation, .* make it one, '
            f'{re.escape(code)}$')

REFUSED = {
    'mobilenet_v2': operation('adaptive_avg_pool2d', 'mobilenetv2', 'nn.AdaptiveAvgPool2d(1)'),
    'densenet121': operation('adaptive_avg_pool2d', 'densenet', 'nn.AdaptiveAvgPool2d(1)'),
    'convnext_tiny': r'^mul in convnext.py, .*: result = self.layer_scale \* .* reads numbers of '
                     r'shape \(96, 1, 1\) by four .*: nn.Conv2d\(96, 96, 1, groups=96, bias=',
    'shufflenet_v2_x0_5': r'^view in shufflenetv2.py, line [0-9]+: .* sizes of four axes .*: '
                          r'x.unflatten\(1, \(2, -1\)\) .*nn.ChannelShuffle\(2\), a layer',
    'vit_b_16': '^reshape in vision_transformer.py, line [0-9]+: .* as tokens without poses: '
                '.*GroupSelfAttention2d',
    'inception_v3': operation('avg_pool2d', 'inception', 'nn.AvgPool2d(3, stride=1, padding=1)')}

@pytest.mark.parametrize('name', REFUSED)
def test_refused_network_is_refused_for_this_reason(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        convert(hollow(name), 'p4', x=picture(name))

def in_a_row(*layers):
    return nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), layers[-1])

# what the error says to change; width, and a size that its strides take
MENDED = {
    'mobilenet_v2': (lambda net: in_a_row(net.features, net.classifier), 1/2, 65),
    'densenet121': (lambda net: in_a_row(net.features, nn.ReLU(), net.classifier), 1/4, 93)}

@pytest.mark.parametrize('name', long(MENDED))
def test_network_is_exact_once_that_line_is_changed(name):
    torch.manual_seed(0)
    change, width, size = MENDED[name]
    assert_exact(convert(change(build(name)), 'p4', width), size)

def test_shufflenet_meets_its_mean_next_and_then_is_exact(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(shufflenetv2, 'channel_shuffle', lambda x, n: nn.ChannelShuffle(n)(x))
    net = build('shufflenet_v2_x0_5')
    words = (r'^mean in shufflenetv2.py, line [0-9]+: .*axis 2 is the poses: '
             r'nn.AdaptiveAvgPool2d\(1\)')
    with pytest.raises(ValueError, match=words): convert(net, 'p4')
    parts = net.conv1, net.maxpool, net.stage2, net.stage3, net.stage4, net.conv5
    assert_exact(convert(in_a_row(*parts, net.fc), 'p4'), 65)

def scaled(block, c):
    "The same with a layer in place of numbers for each channel."
    scale = nn.Conv2d(c, c, 1, groups=c, bias=False)
    with torch.no_grad(): scale.weight.fill_(1e-6)
    return nn.Sequential(*block, scale)

@pytest.mark.slow
def test_convnext_meets_its_scale_then_its_last_axes_and_then_is_exact():
    torch.manual_seed(0)
    net = build('convnext_tiny')
    blocks = [m for m in net.modules() if isinstance(m, convnext.CNBlock)]
    for m in blocks:
        m.block, m.layer_scale = scaled(m.block, len(m.layer_scale)), nn.Parameter(torch.ones(1))
    words = (r'features.1.0.block.2: LayerNorm .* reads the last axis, there the columns: '
             r'.* axis 1, torchvision.models.convnext.LayerNorm2d\(96\) say$')
    with pytest.raises(ValueError, match=words): convert(net, 'p4', 1/8)
    for m in blocks:
        c = m.block[0].in_channels
        m.block = nn.Sequential(m.block[0], convnext.LayerNorm2d(c), nn.Conv2d(c, 4*c, 1),
                                nn.GELU(), nn.Conv2d(4*c, c, 1), m.block[-1])
    assert_exact(convert(net, 'p4', 1/8), 64)

class Pools(inception.InceptionC):
    "Inception's block of 1×7 and 7×1 windows, its pool a layer."
    def __init__(self):
        super().__init__(4, 4)
        self.pool = nn.AvgPool2d(3, 1, 1)

    def _forward(self, x):
        tower = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        return [self.branch1x1(x), tower, self.branch_pool(self.pool(x))]

def test_inception_meets_its_long_windows_next_and_then_is_exact():
    torch.manual_seed(0)
    block = Pools()
    net = in_a_row(nn.Conv2d(3, 4, 3), block, nn.Linear(3*192, 5))
    with pytest.raises(ValueError, match='branch7x7_2.conv: .* one number for both'):
        convert(net, 'p4', 1/4)
    for m in block.branch7x7_2, block.branch7x7_3:
        m.conv = nn.Conv2d(m.conv.in_channels, m.conv.out_channels, 7, padding=3, bias=False)
    assert_exact(convert(net, 'p4', 1/4), 33)

def test_tokens_have_no_poses_and_know_their_places():
    "Neither a feature map nor, with its poses pooled, an image becomes the tokens of a ViT."
    torch.manual_seed(0)
    net = models.VisionTransformer(image_size=32, patch_size=8, num_layers=1, num_heads=2,
                                   hidden_dim=16, mlp_dim=16, num_classes=5).double()
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    perturb_(net.eval())
    net.conv_proj = LiftingConv2d(3, 16, 8, 'p4', stride=8).double()
    with torch.no_grad():
        with pytest.raises(RuntimeError, match='shape'): net(x)
        net.conv_proj = nn.Sequential(net.conv_proj, GroupPool())
        y = net(x)
        assert (net(x.rot90(1, (-2, -1))) - y).abs().max() > 1e-4*y.abs().max()
