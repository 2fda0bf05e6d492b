"""Rates, dilations, strides, pools and norms of every network, in the order in which they compute.

The right side is written from the papers, and from what their published code does where they are
silent. A word for each layer: 'conv 3' keeps the size, 'conv 3 valid' does not; 'bn 2e-05' is a
batch norm with its eps, 'gn 1 1e-05' a group norm of one group; '~4' is a dilation, '/2' a stride.
"""
import pytest
import torch
from torch import nn

from eqtutor.models import MODELS
from eqtutor.models.group_cnn import p4_cnn as p4_cnn_of
from eqtutor.nn import E4Conv2d, GroupConv2d, SpatialPool2d, SqueezeExcitation
from eqtutor.nn.affine import AffineLayer
from eqtutor.nn.attention import Attention2d
from eqtutor.nn.attentive import AttentiveConv2d, InputAttention, PairAttention
from eqtutor.nn.convolution import EquivariantConv2d
from eqtutor.nn.self_attention import EquivariantSelfAttention2d

# --- what a network is made of

def number(x): return f'{x:g}'


def window(m):
    "Side, padding, stride and dilation."
    words, same = [str(m.kernel_size)], m.dilation*(m.kernel_size - 1)/2
    if m.padding != same: words += [f'pad {m.padding}' if m.padding else 'valid']
    if m.stride != 1: words += [f'/{m.stride}']
    if m.dilation != 1: words += [f'~{m.dilation}']
    return ' '.join(words)


def convolution(m):
    words = f'{"lift" if m.lifts else "conv"} {window(m)}'
    if m.bias is not None: words += ' biased'
    if not isinstance(m, AttentiveConv2d): return words
    if isinstance(m.branch, InputAttention): return f'{words} α {window(m.branch.spatial)}'
    if not isinstance(m.branch, PairAttention): return f'{words} α {m.attend}'
    assert m.branch.window == (m.kernel_size, m.dilation, m.padding, m.stride)
    words += ' α' + (' channel' if m.branch.channel is not None else '')
    if m.branch.spatial is None: return words
    return f'{words} {m.branch.spatial.kernel_size} ~{m.branch.dilation}'


def affine(m):
    kind = 'simple' if m.simple else 'asc'
    return f'{kind} {m.kernel_size} × {m.heads}, {m.scale*m.out_channels/m.heads:g}/d {m.boundary}'


def pose_attention(m):
    rates = f'{number(m.attention_dropout)} {number(m.value_dropout)}'
    crop = f' crop {m.crop}' if m.crop else ''
    kind = 'lift' if m.lifts else 'attend'
    return f'{kind} {m.window} × {m.heads} {m.encoder.kind} {m.encoding} {rates}{crop}'


def e4(m):
    norm, kernels = m.generate.norm, m.generate
    assert type(norm) is nn.GroupNorm and norm.num_groups == norm.num_channels
    reduction = kernels.in_channels//kernels.weight.shape[-1]
    return f'e4 {m.kernel_size} s{kernels.slices} r{reduction} gn {number(norm.eps)}'


def batch_norm(m):
    return f'bn {number(m.eps)}' + (f' {m.momentum}' if m.momentum != .1 else '')


def pool(m):
    assert m.padding == 0 and m.strict
    return f'{m.reduce} {m.kernel_size}' + (f' /{m.stride}' if m.stride != m.kernel_size else '')


def sasa(m):
    d = m.out_channels/m.heads
    return f'sasa {m.window} × {m.heads}, {m.maps.scale*d:g}/d {m.boundary}'


WORDS = {   # the first that fits
    EquivariantConv2d: convolution, E4Conv2d: e4, EquivariantSelfAttention2d: pose_attention,
    Attention2d: sasa, SpatialPool2d: pool,
    AffineLayer: affine, SqueezeExcitation: lambda m: f'se {m.channels//m.squeeze.out_features}',
    nn.BatchNorm3d: batch_norm,
    nn.GroupNorm: lambda m: f'gn {m.num_groups} {number(m.eps)}',
    nn.Dropout: lambda m: f'drop {number(m.p)}', nn.ReLU: lambda m: 'relu',
    nn.SiLU: lambda m: 'swish', nn.Linear: lambda m: 'linear', nn.Conv3d: lambda m: 'map'}


def layout(net, x):
    "A word for each layer, in the order in which they compute; what is in a layer is its own."
    said = []

    def listen(module):
        word = next((word for kinds, word in WORDS.items() if isinstance(module, kinds)), None)
        if word is None:
            for child in module.children(): listen(child)
            assert any(module.children()) or isinstance(module, nn.Identity), module
        elif module not in heard:
            heard.add(module)
            module.register_forward_hook(lambda m, *_: said.append(word(m)))
    heard = set()
    listen(net)
    net.eval()(x)
    return said


def layout_of(name):
    model = MODELS[name]
    with torch.device('meta'): net, x = model.make(), torch.empty(1, *model.input_shape)
    return layout(net, x)


# --- what the papers say

BN, BN_P1 = 'bn 1e-05', 'bn 2e-05'   # torch's eps; P1, B.1: "eps=0.00002"


def p4_cnn(first='', others=''):
    "P1, B.2, for Cohen & Welling 2016: seven layers, one pool, dropout 0.3 behind 1, 3, 4, 5, 6."
    def block(conv, after): return [conv, BN_P1, 'relu', after]
    return [*block(f'lift 3 valid{first}', 'drop 0.3'), *block(f'conv 3 valid{others}', 'max 2'),
            *block(f'conv 3 valid{others}', 'drop 0.3')*4, f'conv 4 valid{others}']


def all_cnn(α=''):
    """Springenberg et al. 2014, All-CNN-C: dropout 0.2 of the image, 0.5 behind each halving.
    P1, C: convolution without stride and max-pool for each stride; a norm behind the classes."""
    def conv(size, *more): return [f'conv {size}{α}', *more, BN_P1, 'relu']
    return ['drop 0.2', f'lift 3{α}', BN_P1, 'relu', *conv(3), *conv(3, 'max 2'), 'drop 0.5',
            *conv(3), *conv(3), *conv(3, 'max 2'), 'drop 0.5', *conv(3), *conv(1),
            f'conv 1{α}', BN_P1]


def resnet44(α=''):
    "Cohen & Welling 2016: 3 stages of 7 blocks, norms first; P1, C: max-pool in a stride's place."
    def block(down):
        pool = ['max 2'] if down else []
        skip = [f'conv 1{α}', *pool] if down is not None else []
        return [BN_P1, 'relu', *skip, f'conv 3{α}', *pool, BN_P1, 'relu', f'conv 3{α}']
    same = block(None)
    return [f'lift 3{α}', *same*7, *(block(True) + same*6)*2, BN_P1, 'relu', f'conv 1{α}']


def densenet(*α):
    "P1, Table 3; five stages, one dense layer in each, the dilations of its published code."
    α = iter(α or ['']*11)
    layers = [f'lift 3{next(α)}']
    for stage in range(1, 6):
        layers += [BN_P1, 'relu', f'conv 3{next(α)}', BN_P1, 'relu', f'conv 1{next(α)}']
        if stage < 5: layers += ['mean 2']
    return layers


# behind the image, in the dense layers (4, 4, 3, 2, 1), and in what follows each of them
DENSE = [f' α {word}' for word in ('7 ~4', *['7 ~4', '7 ~4']*2, '7 ~3', '7 ~3', '7 ~2', '7', '5',
                                   '3')]


def resnet29(place='conv 3', se=None):
    """P2, 3 and B: 3 stages of 3 bottlenecks; attention 5×5 with 8 heads in the place of the 3×3,
    scores over the width of a head, then a mean of 2×2; SE at the end of each block."""
    def block(wider, down=False):
        pool, gate = ['mean 2']*down, [f'se {se}'] if se else []
        skip = ['conv 1', *pool, BN] if wider else []
        return ['conv 1', BN, 'relu', place, *pool, BN, 'relu', 'conv 1', BN, *gate, *skip, 'relu']
    stages = [block(True) + block(False)*2] + [block(True, True) + block(False)*2]*2
    return ['lift 3', BN, 'relu', *sum(stages, []), 'linear']


def gsa(widths, crops=None, ends=False, pool_after=(), dropout=('0', '0')):
    """P3, F: 9 heads, 5×5, both dropouts of attention 0.1, norms over (c, |H|, h, w) as in the
    published code, Swish; widths that enter and leave the blocks, and what each crops."""
    norm = 'gn 1 1e-05'
    attend = 'attend 5 × 9 split relative 0.1 0.1'
    layers = [f'drop {dropout[0]}', attend.replace('attend', 'lift'), norm, 'swish']
    if 0 in pool_after: layers += ['max 2']
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        crop = f' crop {crops[i]}' if crops and crops[i] else ''
        layers += [norm, 'swish', attend + crop, norm, 'swish', f'drop {dropout[1]}']
        layers += ['map']*(a != b) + ['map', norm, 'swish', 'map', norm]
        layers += [norm, 'swish']*ends
        if i + 1 in pool_after: layers += ['max 2']
    return [*layers, 'map']


def e4_net(k=5, s=2, r=1):
    """P4, 5.1 and Table 3: lifting, six layers with k = 5, pools behind the first and the third;
    dropout 0.2 from the second on, and the norm of the generators, as in the published code."""
    layers = ['lift 3', BN, 'relu']
    for i in range(1, 7):
        layers += [f'e4 {k} s{s} r{r} gn 1e-05', BN, 'relu']
        if i > 1: layers += ['drop 0.2']
        if i in (1, 3): layers += ['max 2']
    return [*layers, 'linear']


def resnet18(*slices):
    """He et al. 2016 for small pictures: 4 stages of 2 blocks, max-pool in a stride's place;
    P4: the second 3×3 of each block is an E4 layer with k = 3, r = 2, a slice for two channels."""
    layers = ['lift 3', BN, 'relu']
    for stage in range(4):
        second = f'e4 3 s{slices[stage]} r2 gn 1e-05' if slices else 'conv 3'
        for i in range(2):
            pool = ['max 2'] if stage and not i else []
            skip = ['conv 1', *pool, BN] if pool else []
            layers += ['conv 3', *pool, BN, 'relu', second, BN, *skip, 'relu']
    return [*layers, 'linear']


ASC, SIMPLE = 'asc 5 × 8, 1/d mask', 'simple 5 × 8, 1/d mask'
SASA = 'sasa 5 × 8, 1/d mask'
P4_NETS = {'none': {}, 'only-K': {}, 'only-V': {}, 's1': dict(s=1), 's4': dict(s=4),
           'r2': dict(r=2), 'r4': dict(r=4), 'k3': dict(k=3), 'k7': dict(k=7)}
MNIST = gsa([20]*6, [2, 0, 2, 1, 1], pool_after=[2])
CIFAR = gsa([96, 96, 96, 192, 192, 192, 192], ends=True, pool_after=[2, 4], dropout=('0.3', '0.2'))
PCAM = gsa([12, 24, 48, 48, 96], ends=True, pool_after=[0, 1, 3])
PAPERS = {
    # P1, Table 1: 7×7; α_F dilates by 4 in the first layer (published code), full α nowhere
    **{name: p4_cnn() for name in ('z2-cnn', 'p4-cnn', *(f'p4-cnn-big{n}' for n in (11, 15, 19)))},
    'alpha-p4-cnn': p4_cnn(' α channel 7 ~1', ' α channel 7 ~1'),
    'alpha-CH-p4-cnn': p4_cnn(' α channel', ' α channel'),
    'alpha-SP-p4-cnn': p4_cnn(' α 7 ~1', ' α 7 ~1'),
    'alpha-F-p4-cnn': p4_cnn(' α 7 ~4', ' α 7'),
    'alpha-F-p4-cnn-p1-start': p4_cnn(' α 7 ~4', ' α 7'), 'p4-cnn-p1-start': p4_cnn(),
    'alpha-RH-p4-cnn': p4_cnn(' α rotation', ' α rotation'),
    # P1, Table 2
    **{f'{group}-all-cnn': all_cnn() for group in ('z2', 'p4', 'p4m')},
    **{f'alpha-F-{group}-all-cnn': all_cnn(' α 7') for group in ('p4', 'p4m')},
    'p4m-resnet44': resnet44(), 'alpha-F-p4m-resnet44': resnet44(' α 7'),
    # P1, Table 3
    **{f'{group}-densenet': densenet() for group in ('z2', 'p4', 'p4m')},
    **{f'alpha-F-{group}-densenet': densenet(*DENSE) for group in ('p4', 'p4m')},
    # P2, Tables 1 and 2: the reduction of SE is 16, on p4 4
    **{f'{name}{data}': layers for data in ('', '-cifar100') for name, layers in {
        'z2-resnet29': resnet29(), 'p4-resnet29': resnet29(), 'p4-resnet29-se': resnet29(se=4),
        'z2-resnet29-simple-asc': resnet29(SIMPLE), 'z2-resnet29-asc': resnet29(ASC),
        'p4-resnet29-asc': resnet29(ASC)}.items()},
    'z2-resnet29-se': resnet29(se=16), 'z2-resnet29-sasa': resnet29(SASA),
    'z2-resnet29-asc-se': resnet29(ASC, se=16),
    # P3, Table 2
    **{f'gsa-{group}': MNIST for group in ('z2', 'r4', 'r8', 'r12', 'r16')},
    **{f'gsa-{group}-cifar10': CIFAR for group in ('z2', 'mirror')},
    **{f'gsa-{group}-pcam': PCAM for group in ('z2', 'r4', 'r8', 'p4m')},
    # P4, Tables 1 to 4
    'p4-e4-net': e4_net(), 'p4-e4-net-large': e4_net(s=12, r=2),
    **{f'p4-e4-net-{name}': e4_net(**change) for name, change in P4_NETS.items()},
    **{f'{name}{data}': layers for data in ('', '-cifar100') for name, layers in {
        'z2-resnet18': resnet18(), 'p4-resnet18': resnet18(), 'p4m-resnet18': resnet18(),
        'p4-e4-resnet18': resnet18(16, 32, 64, 128),
        'p4m-e4-resnet18': resnet18(11, 22, 44, 88)}.items()}}


def test_every_network_has_a_line(): assert PAPERS.keys() == MODELS.keys()


@pytest.mark.parametrize('name', MODELS)
def test_a_network_is_laid_out_as_its_paper_says(name): assert layout_of(name) == PAPERS[name]


# --- what is noticed

BROKEN = {   # one word each that is another
    'dropout': (lambda: p4_cnn_of(dropout=.2), 'drop 0.2'),
    'eps': (lambda: with_others(nn.BatchNorm3d, eps=1e-3), 'bn 0.001'),
    'momentum': (lambda: with_others(nn.BatchNorm3d, momentum=.2), 'bn 2e-05 0.2'),
    'pool': (lambda: with_others(SpatialPool2d, reduce='mean'), 'mean 2'),
    'padding': (lambda: with_others(GroupConv2d, padding=1), 'conv 3'),
    'dilation': (lambda: with_others(GroupConv2d, dilation=2), 'conv 3 valid ~2')}


def with_others(kind, **values):
    "A p4-CNN, the second of whose layers of a kind has other settings."
    net = p4_cnn_of()
    layers = [m for m in net.modules() if isinstance(m, kind)]
    for name, value in values.items(): setattr(layers[len(layers) > 1], name, value)
    return net


@pytest.mark.parametrize('make, word', BROKEN.values(), ids=BROKEN)
def test_another_word_is_noticed(make, word):
    found = layout(make(), torch.randn(2, 1, 40, 40))
    changed = [a for a, b in zip(found, PAPERS['p4-cnn'], strict=True) if a != b]
    assert changed and {*changed} == {word}
