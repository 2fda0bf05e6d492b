"Conversion of plain networks: what it makes, what it refuses and with which words."
import re
from inspect import signature
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from report_bench import UNet as BenchUNet
from torch import nn
from torchvision import models
from torchvision.models.convnext import LayerNorm2d

from eqtutor.actions import act
from eqtutor.convert import convert, match_width
from eqtutor.cost import count_macs, count_parameters
from eqtutor.equivariance import assert_equivariant, perturb_
from eqtutor.groups import get_group
from eqtutor.models.group_cnn import p4_cnn, z2_cnn
from eqtutor.models.unet import GroupUNet
from eqtutor.nn import (
    GroupConv2d,
    GroupConvTranspose2d,
    GroupPool,
    LiftingConv2d,
    ProjectionConv2d,
)


def head(*layers, channels=4):
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(channels, 5))

class Squeeze(nn.Module):
    "Squeeze and excitation: an average pool whose answer weighs the map."
    def __init__(self):
        super().__init__()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1)

    def forward(self, x): return x*self.conv(self.pool(x)).sigmoid()

class Op(nn.Module):
    "An operation of a forward method; the empty layer makes that this is no layer itself."
    def __init__(self, what):
        super().__init__()
        self.what, self.same = what, nn.Identity()

    def forward(self, x): return self.what(self.same(x))

class ChannelNorm(nn.LayerNorm):
    "A layer norm of axis 1, without a summand, as somebody writes it."
    def __init__(self, channels): super().__init__(channels, eps=1e-6, bias=False)

    def forward(self, x):
        rest = x - x.mean(1, keepdim=True)
        variance = rest.square().mean(1, keepdim=True)
        return rest*(variance + self.eps).rsqrt()*self.weight[:, None, None]

class Padded(nn.Conv2d):
    "A class of somebody that computes what its base does."
    def __init__(self, channels): super().__init__(channels, channels, 3, padding=1)

class Standardised(nn.Conv2d):
    "Filters without a mean."
    def forward(self, x): return self._conv_forward(x, self.weight - self.weight.mean(), None)

PLAIN = {
    'depthwise': lambda: head(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6()),
    'blocks': lambda: head(nn.Conv2d(4, 8, 3, groups=2), nn.GELU(), channels=8),
    'pools': lambda: head(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1), nn.Dropout2d(.5)),
    'squeeze': lambda: head(Squeeze()),
    'upsample': lambda: head(nn.Upsample(scale_factor=2, mode='bilinear'), nn.Conv2d(4, 4, 3)),
    'pads': lambda: head(nn.ZeroPad2d(2), nn.LocalResponseNorm(3)),
    'group norms': lambda: head(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3), nn.GroupNorm(4, 4),
                                nn.Conv2d(4, 4, 1), nn.GroupNorm(1, 4, affine=False)),
    'instance norms': lambda: head(nn.InstanceNorm2d(4, affine=True), nn.Conv2d(4, 4, 3),
                                   nn.InstanceNorm2d(4, track_running_stats=True), nn.ReLU()),
    'layer norms of axis 1': lambda: head(LayerNorm2d(4), nn.Conv2d(4, 4, 3), ChannelNorm(4)),
    'pads by the picture': lambda: head(nn.ReflectionPad2d(1), nn.Conv2d(4, 4, 3),
                                        nn.CircularPad2d(2), nn.ReplicationPad2d(1)),
    'windows that may hang over': lambda: head(nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
    'classes of somebody': lambda: head(Padded(4), nn.ReLU()),
    'places in a row': lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(5), nn.Flatten(), nn.Dropout(),
        nn.Linear(100, 6), nn.ReLU(), nn.Linear(6, 5)),
    'a row by torch.flatten': lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(4), Op(lambda f: torch.flatten(f, 1).relu()),
        nn.Linear(64, 5), nn.LayerNorm(5)),
    'a row by view': lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), Op(lambda f: f.view(f.size(0), -1)),
        nn.Linear(16, 5)),
    'shuffled by a layer': lambda: head(nn.ChannelShuffle(2), nn.Conv2d(4, 4, 3, groups=2)),
    'pool of the picture': lambda: nn.Sequential(nn.AvgPool2d(3, 2, 1), head()),
    'pad in forward': lambda: head(Op(lambda f: F.pad(f, [1, 1, 1, 1]))),
    'means of places and of channels': lambda: head(
        Op(lambda f: f*f.mean((-2, -1), keepdim=True)*f.amax(1, keepdim=True))),
    'shuffled channels': lambda: head(
        Op(lambda f: f.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2))),
    'scores that saturate': lambda: nn.Sequential(head(), Op(lambda y: 1e6*y), nn.Softmax(1)),
    'all-convolutional': lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    'resnet': lambda: models.resnet18(num_classes=5)}

@pytest.mark.parametrize('name', PLAIN)
@pytest.mark.parametrize('group', ['p4', 'p4m'])
def test_converted_networks_are_equivariant(name, group):
    torch.manual_seed(0)
    net = convert(PLAIN[name](), group, width=1/16 if name == 'resnet' else 1).double()
    x = torch.randn(2, 3, 33, 33).double()
    assert_equivariant(net.eval(), x, group, kind='invariant')
    assert_equivariant(perturb_(net), x, group, kind='invariant')

PADS = 'padding_mode' in signature(GroupConv2d).parameters

@pytest.mark.parametrize('mode, layer', [('circular', nn.CircularPad2d),
    ('reflect', nn.ReflectionPad2d), ('replicate', nn.ReplicationPad2d)])
def test_what_lies_beyond_the_rim_stays(mode, layer):
    "In the convolution, where it knows the mode, or by a layer before it, as the error says."
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), nn.ReLU(),
                          nn.Conv2d(4, 2, 3, padding=1, padding_mode=mode)).double()
    if not PADS:
        with pytest.raises(ValueError, match=rf'{mode!r}.*: nn.\w+Pad2d\(1\), a layer, before'):
            convert(plain, 'p4')
        plain = nn.Sequential(layer(1), nn.Conv2d(3, 4, 3), nn.ReLU(), layer(1),
                              nn.Conv2d(4, 2, 3)).double()
    net = convert(plain, 'p4', reduce='mean', weights=True).eval()
    x = torch.randn(1, 3, 7, 9).double()
    turned = [act('p4', h, plain(act('p4', (4 - h) % 4, x))) for h in range(4)]
    torch.testing.assert_close(net(x), sum(turned)/4, rtol=1e-9, atol=1e-9)

class Residual(nn.Module):
    "A denoiser: what it takes off the picture."
    def __init__(self):
        super().__init__()
        self.noise = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))

    def forward(self, x): return x - self.noise(x)

def test_a_denoiser():
    torch.manual_seed(0)
    net = perturb_(convert(Residual(), 'p4').double().eval())
    assert_equivariant(net, torch.randn(1, 3, 9, 9).double(), 'p4', kind='image')

def test_a_unet():
    torch.manual_seed(0)
    net = convert(BenchUNet(), 'p4').double().eval()
    kinds = [type(m) for m in (net.down[0], net.middle[0], net.up, net.head)]
    assert kinds == [LiftingConv2d, GroupConv2d, GroupConvTranspose2d, ProjectionConv2d]
    assert_equivariant(perturb_(net), torch.randn(1, 2, 12, 8).double(), 'p4', kind='image')

@pytest.mark.parametrize('make', [BenchUNet, lambda: head(nn.Conv2d(4, 4, 3, groups=4))])
def test_with_weights_it_is_the_mean_over_turned_pictures(make):
    torch.manual_seed(0)
    plain = perturb_(make().double()).eval()
    net = convert(plain, 'p4', reduce='mean', weights=True).eval()
    channels = next(plain.parameters()).shape[1]
    x = torch.randn(1, channels, 8, 8).double()
    ys = [plain(act('p4', (4 - h) % 4, x)) for h in range(4)]
    if ys[0].ndim == 4: ys = [act('p4', h, y) for h, y in enumerate(ys)]
    torch.testing.assert_close(net(x), sum(ys)/4, rtol=1e-9, atol=1e-9)

def test_the_plain_network_stays():
    plain = PLAIN['pools']()
    before = {k: v.clone() for k, v in plain.state_dict().items()}
    assert convert(plain, 'p4').training and isinstance(plain[0], nn.Conv2d)
    assert all(torch.equal(v, before[k]) for k, v in plain.state_dict().items())
    assert not convert(plain.eval(), 'p4').training

def assert_not_quoted(words):
    "An error quotes the line of the operation, in which its words must not stand already."
    lines = Path(__file__).read_text(encoding='utf-8').splitlines()
    assert not any(re.search(words, line) for line in lines if 'lambda' in line)

def in_forward(what): return nn.Sequential(nn.Conv2d(3, 4, 3), Op(what))

class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x): return self.last(torch.cat([x, self.conv(x)], 1))

class Twice(nn.Module):
    "One layer on the picture and on its own output."
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x): return self.conv(self.conv(x))

@pytest.mark.parametrize('net, words', [
    (in_forward(lambda f: f.mean((2, 3))),
     'mean in .*test_convert.py.*: nn.AdaptiveAvgPool2d.1.'),
    (in_forward(lambda f: F.max_pool2d(f, 3, 2, padding=1)),
     r'make it one, nn.MaxPool2d\(3, stride=2, padding=1\)$'),
    (in_forward(lambda f: F.avg_pool2d(f, (2, 2))),
     r'make it one, nn.AvgPool2d\(2\)$'),
    (in_forward(lambda f: F.adaptive_avg_pool2d(f, (1, 1))),
     r'make it one, nn.AdaptiveAvgPool2d\(1\)$'),
    (in_forward(lambda f: F.adaptive_max_pool2d(f, 1)),
     r'one, nn.AdaptiveMaxPool2d\(1\)$'),
    (in_forward(lambda f: F.interpolate(f, scale_factor=2, mode='bilinear')),
     r"make it one, nn.Upsample\(scale_factor=2, mode='bilinear'\)$"),
    (in_forward(lambda f: F.interpolate(f, (93, 93))),
     'scale_factor=a whole number'),
    (in_forward(lambda f: F.dropout2d(f, .3, False)),
     r'make it one, nn.Dropout2d\(0.3\)$'),
    (in_forward(lambda f: F.conv2d(f, torch.ones(4, 4, 3, 3))),
     'an nn.Conv2d with filters of 3'),
    (in_forward(lambda f: F.linear(f, torch.ones(2, 62))),
     'weighs the columns'),
    (in_forward(lambda f: f @ f),
     'along rows and columns'),
    (in_forward(lambda f: f.permute(0, 2, 3, 1)),
     'orders four axes'),
    (in_forward(lambda f: f.flatten(1)),
     'channels of places and poses: put nn.Adaptive'),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), Op(lambda f: f.view(-1, 16)),
                   nn.Linear(16, 5)),
     r'rows of 16 entries, .*longer: torch.flatten\(x, 1\)$'),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(16),
                   nn.Linear(16, 5)),
     '^3: BatchNorm1d has weights for each entry.* before the flatten'),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), Op(lambda y: y[:, :8]), nn.Linear(8, 5)),
     '^3: between the flatten and this nn.Linear some entries'),
    (in_forward(lambda f: f*torch.ones(4, 1, 1)),
     r'reads numbers of shape \(4, 1, 1\) .*nn.Conv2d\(4, 4, 1, groups=4, bias=False\), a layer'),
    (in_forward(lambda f: torch.ones(1, 4, 1, 1) + f),
     'a bias of the convolution before it'),
    (in_forward(lambda f: f.view(len(f), 2, 2, 62, 62).transpose(1, 2).flatten(1, 2)),
     r'unflatten\(1, \(2, -1\)\).*nn.ChannelShuffle\(2\), a layer'),
    (in_forward(lambda f: f.flatten(2)),
     'as tokens without poses'),
    (in_forward(lambda f: F.pad(f, [1, 1, 1, 1], mode='reflect')),
     r"four axes by 'reflect'.*: make it a layer, nn.ReflectionPad2d\(1\)$"),
    (in_forward(lambda f: F.pad(f, [1, 1, 1, 1, 0, 0])),
     'third axis from the end'),
    (in_forward(lambda f: f.amax((2, 3))),
     r'nn.AdaptiveMaxPool2d\(1\), a layer'),
    (in_forward(lambda f: f.mean(2)),
     'rows are axis -2'),
    (Joined(), 'joins .*lift the picture'), (Twice(), 'called twice'),
    (head(nn.LayerNorm(64)), r'reads the last axis, .*axis 1, .*convnext.LayerNorm2d\(64\) say$'),
    (head(Standardised(4, 4, 3)),
     r'Standardised has a forward of its own \(test_convert.py, line .*: a plain nn.Conv2d, and'),
    (head(nn.MaxPool2d(3, 1, dilation=2)), 'SpatialPool2d knows dilation=1 alone'),
    (head(nn.AvgPool2d(3, 1, 1, count_include_pad=False)), 'count_include_pad=True alone'),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 2, 2)),
     r'end on a feature map.*nn.Conv2d\(3, 3, 1\)'),
    (nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten(),
                   nn.Linear(24, 5)), '^1: .* one number for both.*output_size=3 say$'),
    (nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d((64, 32)), nn.Flatten(), nn.Linear(8, 5)),
     'one number for both'),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(9), nn.Flatten(), nn.Linear(16, 2)),
     'takes no picture of 64×64 pixels: give an input of its own, x=…'),
    (nn.Sequential(nn.Linear(3, 3)), 'expected an nn.Conv2d'),
    (head(nn.Upsample(scale_factor=1.5)), 'whole'),
    (head(nn.Conv2d(4, 4, (3, 1))), 'one number for both'),
    (head(nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)), 'at one end alone')])
def test_what_has_no_counterpart_is_named(net, words):
    assert_not_quoted(words)
    with pytest.raises(ValueError, match=words): convert(net, 'p4')

def broken(layer): return head(layer, nn.Conv2d(4, 4, 3))   # a turn of the whole map is heard of

class Gated(nn.Module):
    "A branch that is zero at the start, and would break the symmetry."
    def __init__(self):
        super().__init__()
        self.gate, self.same = nn.Parameter(torch.zeros(())), nn.Identity()

    def forward(self, x): return x + self.gate*self.same(x).flip(-1)

class Branches(nn.Module):
    "One halves odd sizes only, the other even ones."
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3, 2, 1), nn.AvgPool2d(2)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x): return self.last(self.one(x) + self.two(x))

def halved(times):
    return [layer for _ in range(times) for layer in (nn.Conv2d(4, 4, 1), nn.AvgPool2d(2))]

@pytest.mark.parametrize('net, words', [
    (broken(Op(lambda f: F.pad(f, [0, 1, 0, 1]))),
     '64×64 pixels: at fault.*\n- pad .test_convert.py, line .*one side'),
    (broken(nn.ZeroPad2d((1, 0, 1, 0))), r'\n- 1 \(ZeroPad2d\): it pads one side more'),
    (broken(Op(lambda f: f.flip(-1))),
     '\n- flip .*in one direction'),
    (broken(Op(lambda f: f[..., 1:, 1:])),
     '\n- getitem .*picks places'),
    (broken(Op(lambda f: f + torch.linspace(-1, 1, f.shape[-1]))),
     '\n- add .*stays where it is'),
    (nn.Sequential(Op(lambda x: F.avg_pool2d(x, 2)), head()),
     '65×65.*\n- avg_pool2d'),
    (nn.Sequential(Op(lambda x: x[..., ::2, ::2]), head()),
     '64×64.*\n- getitem'),
    (broken(Gated()), '\n- flip'),
    (nn.Sequential(nn.Conv2d(3, 4, 1), *halved(6), Op(lambda f: f.flip(-1)), nn.Conv2d(4, 2, 1)),
     '128×128 pixels.*\n- flip'),
    (nn.Sequential(head(), Op(lambda y: y.flatten(1)[..., None, None].expand(-1, -1, 2, 3))),
     'made of a vector'),
    (broken(Op(lambda f: F.dropout(f, .5))),
     'two answers to one picture'),
    (broken(Op(lambda f: 0*f)),
     'mul gives zeros only'),
    (broken(Op(lambda f: (-f**2 - 1).sqrt())),
     'not finite'),
    (broken(Op(lambda f: f*torch.ones(64, 64).view(*f.shape[2:]))),
     r'test_convert.py, line .*view.* does not run after the conversion'),
    (head(nn.FractionalMaxPool2d(2, 8)), 'takes four axes'),
    (nn.Sequential(nn.Conv2d(3, 4, 1), Branches()),
     r'refuses every size .*suits all its strides.*stride 2 on height 64')])
def test_what_breaks_the_symmetry_is_named(net, words):
    assert_not_quoted(words)
    with pytest.raises(ValueError, match='(?s)' + words): convert(net.eval(), 'p4')

def test_a_fault_that_a_pool_of_all_places_undoes_is_none():
    "A flipped map has the same mean: the network is exact, and convert says nothing."
    torch.manual_seed(0)
    net = convert(head(Op(lambda f: f.flip(-1))), 'p4').double().eval()
    assert_equivariant(net, torch.randn(1, 3, 9, 9).double(), 'p4', kind='invariant')

@pytest.mark.parametrize('group, tried', [('C8', 'p4'), ('D3', 'p4m'), ('C3', 'p4')])
def test_off_the_grid_the_same_network_is_measured_on_it(group, tried):
    net = broken(Op(lambda f: f.flip(-1)))
    with pytest.raises(ValueError, match=f'^measured on {tried}, since {group} .*\n- flip'):
        convert(net, group)
    assert convert(head(), group)[0].group.name == group

def test_a_reflection_is_no_fault_on_the_group_that_it_commutes_with():
    net = broken(Op(lambda f: f.flip(-1)))
    assert isinstance(convert(net, 'mirror'), nn.Module)

def pinwheel(x):
    "Turns with the picture; its mirror image is another one."
    n = x.shape[-1]
    vane = torch.randn(n, n, generator=torch.Generator().manual_seed(0))
    return x*sum(vane.rot90(k) for k in range(4))

def test_every_generator_is_tried():
    net = nn.Sequential(Op(pinwheel), head())
    assert isinstance(convert(net, 'p4'), nn.Module)
    with pytest.raises(ValueError, match='\n- mul .*stays where it is'): convert(net, 'p4m')

class Blur(nn.Module):
    "Its filter is a constant that turns into itself, and must not be another when it is tried."
    def __init__(self):
        super().__init__()
        taps = torch.tensor([.25, .5, .25])
        self.register_buffer('taps', (taps[:, None]*taps).repeat(3, 1, 1, 1))
        self.same = nn.Identity()

    def forward(self, x): return F.conv2d(self.same(x), self.taps, padding=1, groups=3)

class Fragile(nn.Module):
    "Silent with any weight but its own."
    def __init__(self):
        super().__init__()
        self.weight, self.same = nn.Parameter(torch.ones(())), nn.Identity()

    def forward(self, x): return self.same(x)*(self.weight == 1)

def test_a_network_that_other_weights_silence_is_measured_with_its_own():
    torch.manual_seed(0)
    assert isinstance(convert(broken(Fragile()), 'p4'), nn.Module)
    net = broken(nn.Sequential(Fragile(), Op(lambda f: f.flip(-1))))
    with pytest.raises(ValueError, match='\\n- flip'): convert(net, 'p4')

def test_constants_stay_while_weights_move():
    net = convert(nn.Sequential(Blur(), head()), 'p4').double().eval()
    assert_equivariant(net, torch.randn(1, 3, 9, 9).double(), 'p4', kind='invariant')

def only_32(*layers):
    "Takes pictures of 32×32 pixels alone."
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers, nn.Conv2d(4, 4, 3, padding=1),
                         nn.AvgPool2d(32), nn.Conv2d(4, 5, 1), Op(lambda y: y.view(len(y), 5)))

def test_a_network_of_one_size_is_measured_on_it():
    x = torch.zeros(2, 3, 32, 32)
    assert isinstance(convert(only_32(), 'p4', x=x), nn.Module)
    with pytest.raises(ValueError, match='(?s)on 32×32 pixels.*\n- flip'):
        convert(only_32(Op(lambda f: f.flip(-1))), 'p4', x=x)

def test_a_network_that_casts_is_measured_in_its_own_precision():
    torch.manual_seed(0)
    net = broken(Op(lambda f: f.float()))
    assert isinstance(convert(net, 'p4'), nn.Module)
    with pytest.raises(ValueError, match='\n- flip'):
        convert(nn.Sequential(net[0], net[1], Op(lambda f: f.flip(-1)), *net[2:]), 'p4')

def test_measuring_changes_nothing():
    "Weights, statistics, mode and random numbers are those of a conversion unmeasured."
    results = []
    for check in True, False:
        torch.manual_seed(0)
        net = convert(head(nn.BatchNorm2d(4), Op(lambda f: f + 0*torch.rand(1))), 'C8',
                      check=check)
        results.append((net.state_dict(), torch.rand(3)))
        assert net.training and all(m.training for m in net.modules())
    (a, drawn), (b, drawn_too) = results
    assert torch.equal(drawn, drawn_too)
    assert all(torch.equal(v, b[k]) for k, v in a.items()) and len(a) == len(b)

def test_unmeasured_it_is_returned_as_it_is():
    assert isinstance(convert(broken(Op(lambda f: f.flip(-1))), 'p4', check=False), nn.Module)

def test_a_linear_layer_of_places_becomes_a_convolution_as_large_as_the_map():
    "A head of the group's own: with plain weights, the mean over turned pictures."
    torch.manual_seed(0)
    plain = perturb_(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(5),
                                   nn.Flatten(), nn.Linear(100, 6)).double()).eval()
    net = convert(plain, 'p4m', reduce='mean', weights=True)
    kinds = [type(m) for m in net[4]]
    assert kinds == [nn.Unflatten, GroupConv2d, GroupPool, nn.Flatten]
    assert net[4][1].weight.shape == (6, 4, 8, 5, 5)
    x, group = torch.randn(2, 3, 9, 9).double(), get_group('p4m')
    turned = [plain(act(group, h, x)) for h in group.elements]
    torch.testing.assert_close(net(x), sum(turned)/8, rtol=1e-9, atol=1e-9)

def test_norms_behind_the_pool_have_the_new_width():
    torch.manual_seed(0)
    norms = nn.BatchNorm1d(4), nn.LayerNorm(4), nn.GroupNorm(2, 4)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), LayerNorm2d(4), nn.Flatten(),
                          *norms, nn.Linear(4, 5))
    net = convert(plain, 'p4', width=1.5).double().eval()
    x = torch.randn(2, 3, 9, 9).double()
    assert_equivariant(perturb_(net), x, 'p4', kind='invariant')
    assert type(net[2]) is LayerNorm2d and net[4].running_mean.shape == (6,)
    assert plain[4].num_features == 4

def test_a_map_that_is_not_square_has_no_head():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4*8*6, 2))
    with pytest.raises(ValueError, match='^2: it reads 8×6 places, .* makes 6×8 of them'):
        convert(net, 'p4', x=torch.zeros(1, 3, 10, 8))

def test_norms_grow_with_the_width():
    net = convert(head(nn.GroupNorm(4, 4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4),
                       LayerNorm2d(4)), 'p4', width=2)
    assert [net[1].num_groups, net[2].num_groups] == [8, 2]
    assert net[1].num_channels == net[3].num_features == net[4].normalized_shape[0] == 8
    with pytest.raises(ValueError, match='^1: width 0.5 makes 3 channels of 6, .*num_groups=1'):
        convert(nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(2, 6), nn.Conv2d(6, 2, 1)), 'p4', .5)

def test_widths():
    with pytest.raises(ValueError, match='width 0.3 makes 1.2 channels of 4'):
        convert(head(), 'p4', width=.3)
    with pytest.raises(ValueError, match='pretrained weights need width 1'):
        convert(head(), 'p4', width=.5, weights=True)
    assert convert(head(), 'p4', width=1.5)[0].out_channels == 6

def p4(group, width): return p4_cnn(width)

@pytest.mark.parametrize('by, cost', [('parameters', lambda net, x: count_parameters(net)),
                                      ('macs', count_macs)])
def test_the_matched_width_is_the_nearest(by, cost):
    x = torch.randn(1, 1, 28, 28)
    target = cost(z2_cnn(), x)
    best = min(range(1, 30), key=lambda n: abs(cost(p4_cnn(n), x) - target))
    assert match_width(p4, 'p4', like=z2_cnn(), by=by, x=x) == best

def test_the_matched_width_by_time():
    "A network is found about as slow as itself."
    torch.manual_seed(0)
    def make(group, width): return GroupUNet(group, width, depth=1)
    width = match_width(make, 'p4', make('p4', 16), 'time', torch.randn(4, 1, 32, 32))
    assert 8 <= width <= 32

def test_a_cost_that_needs_an_input_says_so():
    with pytest.raises(ValueError, match='give an input'):
        match_width(p4, 'p4', z2_cnn(), by='macs')
    with pytest.raises(ValueError, match="'parameters', 'macs', 'time'"):
        match_width(p4, 'p4', z2_cnn(), by='flops')
