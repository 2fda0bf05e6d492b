"Conversion of plain networks: what it makes, what it refuses and with which words."
import pytest
import torch
from report_bench import UNet as BenchUNet
from torch import nn
from torchvision import models

from eqtutor.actions import act
from eqtutor.convert import convert, match_width
from eqtutor.cost import count_macs, count_parameters
from eqtutor.equivariance import assert_equivariant, perturb_
from eqtutor.models.backbones import p4_cnn, z2_cnn
from eqtutor.models.unet import GroupUNet
from eqtutor.nn import GroupConv2d, GroupConvTranspose2d, LiftingConv2d, ProjectionConv2d


def head(*layers, channels=4):
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(channels, 5))

class Squeeze(nn.Module):
    "Squeeze and excitation: an average pool whose answer weighs the map."
    def __init__(self):
        super().__init__()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1)

    def forward(self, x): return x*self.conv(self.pool(x)).sigmoid()

PLAIN = {
    'depthwise': lambda: head(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6()),
    'blocks': lambda: head(nn.Conv2d(4, 8, 3, groups=2), nn.GELU(), channels=8),
    'pools': lambda: head(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1), nn.Dropout2d(.5)),
    'squeeze': lambda: head(Squeeze()),
    'upsample': lambda: head(nn.Upsample(scale_factor=2, mode='bilinear'), nn.Conv2d(4, 4, 3)),
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

class InForward(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.conv, self.what = nn.Conv2d(3, 4, 3), what

    def forward(self, x): return self.what(self.conv(x))

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
    (InForward(lambda f: f.mean((2, 3))), 'mean in .*test_convert.py.*: nn.AdaptiveAvgPool2d.1.'),
    (InForward(lambda f: nn.functional.max_pool2d(f, 2)), 'nn.MaxPool2d'),
    (Joined(), 'joins .*lift the picture'), (Twice(), 'called twice'),
    (head(nn.GroupNorm(2, 4)), 'GroupNorm on a feature map has no counterpart'),
    (head(nn.MaxPool2d(2, ceil_mode=True)), 'ceil_mode=False'),
    (head(nn.Upsample(scale_factor=1.5)), 'whole'),
    (head(nn.Conv2d(4, 4, (3, 1))), 'one number for both'),
    (head(nn.Conv2d(4, 4, 3, padding=1, padding_mode='reflect')), "padding_mode='zeros'"),
    (head(nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)), 'at one end alone'),
    (nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2*62*62, 2)),
     'put nn.AdaptiveAvgPool2d')])
def test_what_has_no_counterpart_is_named(net, words):
    with pytest.raises(ValueError, match=words): convert(net, 'p4')

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
