"The engine in a browser: equal to torch, and to itself under the group."
import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from nn.every_layer import EXAMPLES
from safetensors.torch import load_file
from torch import nn

import eqtutor.models
from eqtutor.actions import act, rotate
from eqtutor.equivariance import perturb_
from eqtutor.groups import get_group
from eqtutor.models.registry import build_model, get_model
from eqtutor.nn import (AttentiveGroupConv2d, AttentiveLiftingConv2d, E4Conv2d, GroupBatchNorm2d,
                        GroupConv2d, GroupLayerNorm2d, GroupPool, GroupSelfAttention2d,
                        LiftingConv2d, LiftingSelfAttention2d, ProjectionConv2d, SpatialPool2d)
from eqtutor.nn.e4 import PerElementNorm
from eqtutor.widgets.graph import UnknownLayer, network_graph, pack_graphs

from .engine_page import SOURCE, tensor_of
from .examples import NoPermutation

WEIGHTS = Path(__file__).parents[2]/'results'/'weights'
TOLERANCE = dict(single=1e-5, half=2e-3)


def error(got, want): return ((got - want).abs().max()/want.abs().max()).item()


def torch_says(net, x):
    "The output in float64, without the batch."
    with torch.no_grad(): return net.double().eval()(x.double())[0]


def on_group(layer, group, channels=4):
    "A layer behind a lifting, so that it has features on G to work on."
    first = LiftingConv2d(channels, 4, 3, group, padding='same')
    return nn.Sequential(first, layer)


def layer_after_lifting(name):
    make, shape = EXAMPLES[name]
    layer = make()
    return on_group(layer, layer.group) if len(shape) == 5 else layer


GATES = 'SqueezeExcitation', 'ChannelAttention', 'SpatialAttention'
KINDS = 'input', 'rotation'
KNOWN = [name for name in EXAMPLES if name.split()[0] in (
    'LiftingConv2d', 'GroupConv2d', 'ProjectionConv2d', 'LiftingSelfAttention2d',
    'GroupSelfAttention2d', 'E4Conv2d', *GATES) or name.split()[-1] in KINDS]
conv = partial(GroupConv2d, 4, 3)
OTHERS = {
    'stride': lambda: on_group(conv(3, 'p4', stride=2, padding=1), 'p4'),
    'even kernel': lambda: on_group(conv(4, 'p4m', bias=False), 'p4m'),
    'dilation': lambda: on_group(conv(3, 'p4', padding='same', dilation=2), 'p4'),
    'mirror': lambda: on_group(conv(3, 'mirror', padding='same'), 'mirror'),
    'batch norm': lambda: on_group(GroupBatchNorm2d(4), 'p4'),
    'layer norm': lambda: on_group(GroupLayerNorm2d(4), 'p4'),
    'group norm': lambda: on_group(nn.GroupNorm(2, 4), 'p4'),
    'max pool': lambda: on_group(SpatialPool2d(3, 'p4'), 'p4'),
    'mean pool': lambda: on_group(SpatialPool2d(3, 'p4', 2, 1, 'mean'), 'p4'),
    'group pool': lambda: on_group(nn.Sequential(nn.ReLU(), GroupPool()), 'p4m'),
    'group mean': lambda: on_group(nn.Sequential(nn.SiLU(), GroupPool('mean')), 'p4'),
    'E4 p4m': lambda: on_group(E4Conv2d(4, 6, 3, 'p4m', reduction=2, norm='layer'), 'p4m'),
    'E4 dilated': lambda: on_group(E4Conv2d(4, 4, 5, 'p4', norm='batch', dilation=2, bias=True,
                                            concat='none'), 'p4'),
    'attention cropped': lambda: on_group(
        GroupSelfAttention2d(4, 6, 'p4m', window=3, heads=2, crop=1, positions='split'), 'p4m'),
    'attention unencoded': lambda: on_group(
        GroupSelfAttention2d(4, 5, 'p4', window=3, heads=2, encoding='none'), 'p4'),
    'attention by target': lambda: on_group(
        GroupSelfAttention2d(4, 5, 'p4', window=3, heads=2, encoding='target'), 'p4'),
    'α_F with stride': lambda: on_group(
        AttentiveGroupConv2d(4, 3, 3, 'p4m', 2, 1, attend='input', hidden=3), 'p4m'),
    'α_RH lifting': lambda: AttentiveLiftingConv2d(4, 3, 3, 'p4m', padding=1, attend='rotation'),
}


def make(name):
    torch.manual_seed(3)
    net = OTHERS[name]() if name in OTHERS else layer_after_lifting(name)
    return perturb_(net).float()


@pytest.mark.parametrize('name', [*KNOWN, *OTHERS])
def test_layer_is_the_one_of_torch_for_every_element(engine, name):
    net, x = make(name), torch.randn(1, 4, 9, 9)
    turned = engine.turned(network_graph(net, x, 'single'), x)
    group = get_group(next(m.group for m in net.modules() if hasattr(m, 'group')))
    assert len(turned) == sum(m.equal(m.round()) for m in group.matrices)
    for each in turned:
        want = torch_says(net, act(group, each['element'], x))
        assert error(tensor_of(each['value']), want) < TOLERANCE['single']
        assert each['error'] < 1e-6
    half = engine.run(network_graph(net.float(), x), x)[0]
    assert 0 < error(half, torch_says(net, x)) < TOLERANCE['half']


# --- layers that do not keep the symmetry, off the grid or on purpose

class NoTurn(GroupConv2d):
    "Wrong on purpose: the poses change places, the filters stay."
    def filters(self):
        slices = self.weight[:, :, self.group.relative]
        return slices.transpose(1, 2).flatten(2, 3).flatten(0, 1)


class BiasPerPose(GroupConv2d):
    "Wrong on purpose: a shift of its own for each pose."
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.pose_bias = nn.Parameter(torch.randn(self.out_channels, self.out_poses, 1, 1))

    def forward(self, x): return super().forward(x) + self.pose_bias


class EverySecond(nn.Module):
    "Wrong on purpose: of an even number of pixels, every second one."
    def forward(self, f): return f[..., ::2, ::2]


class Residual(nn.Module):
    "Sums, products, joins and views, as networks write them."
    def __init__(self):
        super().__init__()
        self.conv = GroupConv2d(4, 4, 3, 'p4', padding='same')
        self.places = nn.Parameter(torch.randn(1, 1, 1, 10, 10))

    def forward(self, f):
        h, w = f.shape[-2:]
        y = torch.cat([self.conv(f) + self.places, 1 - f/2], 1)[:, :, :, 1:h - 1, 1:w - 1]
        y = torch.stack([y.amax(1), y.max(1)[0]*y.mean(1).tanh()], 1)
        return y.permute(0, 1, 3, 4, 2).transpose(-1, -2).flatten(1, 2).sigmoid()


class Plain(nn.Module):
    "A network without any symmetry."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
            nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, padding=1, groups=3),
            nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(3, 1, padding=1), nn.Dropout(.5))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))

    def forward(self, x):
        y = self.body(x)
        y += y.mean((2, 3), keepdim=True)
        return self.head(y)


WRONG = {
    'no permutation': lambda: on_group(NoPermutation(4, 3, 3, 'p4'), 'p4'),
    'no turn': lambda: on_group(NoTurn(4, 3, 3, 'p4'), 'p4'),
    'bias per pose': lambda: on_group(BiasPerPose(4, 3, 3, 'p4'), 'p4'),
    'norm per element': lambda: on_group(PerElementNorm(4, 'p4'), 'p4'),
    'every second': lambda: on_group(EverySecond(), 'p4'),
    'pose printed': lambda: on_group(
        GroupSelfAttention2d(4, 4, 'p4', window=3, heads=2, encoding='printed'), 'p4'),
    'places': lambda: on_group(Residual(), 'p4'),
    'plain': Plain,
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_layer_is_as_wrong_as_in_torch(engine, name):
    torch.manual_seed(0)
    net, x = perturb_(WRONG[name]()), torch.randn(1, 4, 10, 10)
    got = engine.run(network_graph(net, x, 'single'), x, rotate(x, 90))
    for value, picture in zip(got, (x, rotate(x, 90))):
        assert error(value, torch_says(net, picture)) < TOLERANCE['single']
    moved = act('p4', 1, got[0][None])[0]
    assert moved.shape != got[1].shape or error(got[1], moved) > 1e-3


# --- whole networks

def network(name):
    "With its trained weights, where there are any; otherwise perturbed."
    torch.manual_seed(0)
    net, file = build_model(name), WEIGHTS/f'{name}-rotmnist.safetensors'
    if not file.exists(): return perturb_(net)
    net.load_state_dict(load_file(file))
    return net


FAST = 'p4-cnn', 'z2-cnn', 'alpha-F-p4-cnn', 'alpha-RH-p4-cnn', 'p4-e4-net'
SLOW = ('p4-all-cnn', 'p4m-resnet44', 'p4-resnet18', 'p4-resnet29-se', 'p4m-densenet',
        'alpha-F-p4-densenet', 'p4m-e4-resnet18', 'gsa-z2', 'gsa-r4', 'gsa-r8-pcam')


@pytest.mark.parametrize('name', [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_network_is_the_one_of_torch_for_every_element(engine, name):
    net, x = network(name), torch.rand(1, *get_model(name).input_shape)
    graph = network_graph(net, x, 'single')
    turned = engine.turned(graph, x)
    assert [each['element'] for each in turned] == list(range(graph['group']['order']))
    for each in turned:
        want = torch_says(net, act(net_group(graph), each['element'], x))
        assert error(tensor_of(each['value']), want) < TOLERANCE['single']
        assert each['error'] < 1e-6
    half = engine.run(network_graph(net.float(), x), x)[0]
    assert 0 < error(half, torch_says(net, x)) < TOLERANCE['half']


def net_group(graph): return get_group(graph['group']['name'])
