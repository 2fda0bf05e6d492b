"The spread with which each parameter starts: pins fill them, and training does not."
from functools import partial

import pytest
import torch

from eqtutor import nn as layers
from eqtutor.models import MODELS, build_model
from eqtutor.models.backbones import Bottleneck

ATTENTIVE = dict(attend='full', reduction=2)
MLP = {'encoder.mlps.0.0.weight': 3*2, 'encoder.mlps.0.3.weight': 3*16}

# a layer of 24 channels -> the numbers 1/variance of its parameters; 0: all are 0
STARTS = {   # He et al. 2015: half of the inputs that add up; torch's linear maps: three times all
    'lifting': (partial(layers.LiftingConv2d, 24, 64, 3, 'p4'), {'weight': 24*9/2, 'bias': 0}),
    'on G': (partial(layers.GroupConv2d, 24, 64, 3, 'p4'), {'weight': 24*4*9/2, 'bias': 0}),
    'in blocks': (partial(layers.GroupConv2d, 24, 64, 3, 'p4', groups=2), {'weight': 12*4*9/2}),
    'projection': (partial(layers.ProjectionConv2d, 24, 64, 3, 'p4'), {'weight': 24*4*9/2}),
    'arrows in': (partial(layers.VectorLiftingConv2d, 24, 64, 3, 'p4'),
                  {'weight': 24*9/2, 'bias': 0}),
    'arrows out': (partial(layers.VectorProjectionConv2d, 24, 64, 3, 'p4'), {'weight': 24*4*9/2}),
    # a stride of 2 writes a quarter of the windows at a place
    'transposed': (partial(layers.GroupConvTranspose2d, 24, 64, 4, 'p4', 2, 1),
                   {'weight': 24*4*16/4/2, 'bias': 0}),
    # W₁ and W₂ of a pair of poses do not add over poses; the filter of places does not either
    'attentive': (partial(layers.AttentiveGroupConv2d, 24, 32, 3, 'p4', **ATTENTIVE),
                  {'weight': 24*4*9/2, 'branch.channel.squeeze': 24/2,
                   'branch.channel.excite': 12/2, 'branch.spatial.weight': 2*4*49/2}),
    'attentive lifting': (partial(layers.AttentiveLiftingConv2d, 24, 32, 3, 'p4', **ATTENTIVE),
                          {'weight': 24*9/2, 'branch.channel.squeeze': 24/2,
                           'branch.channel.excite': 12/2, 'branch.spatial.weight': 2*49/2}),
    'attended input': (partial(layers.AttentiveGroupConv2d, 24, 32, 3, 'p4', attend='input'),
                       {'branch.squeeze.weight': 24*4/2, 'branch.excite.weight': 12*4/2,
                        'branch.spatial.weight': 2*4*49/2}),
    # k² factors of variance 1/k², so that their sum keeps its size
    'E4': (partial(layers.E4Conv2d, 24, 24, 5, 'p4', reduction=2),
           {'generate.weight': 25*12/2, 'generate.bias': 0, 'generate.squeeze.weight': 24*4/2,
            'encode.weight': 24*4/2}),
    'E4, no concat': (partial(layers.E4Conv2d, 24, 24, 5, 'p4', concat='none'),
                      {'generate.weight': 25*24/2, 'generate.squeeze.weight': 24/2,
                       'encode.weight': 24/2}),
    # P2: ψ, β ~ N(0, 1)
    'affine': (partial(layers.AffineSelfConv2d, 24, 32),
               {'query.weight': 24/2, 'query.bias': 0, 'affine_key.psi': 1,
                'affine_value.beta': 1, 'out.weight': 32/2}),
    'affine on G': (partial(layers.GroupAffineSelfConv2d, 24, 32, 5, 'p4'),
                    {'value.weight': 24*4/2, 'affine_key.psi': 1, 'affine_value.psi': 1,
                     'affine_value.beta': 1, 'out.weight': 32*4/2}),
    'conditioned': (partial(layers.GroupAffineSelfConv2d, 24, 32, 5, 'p4', init='conditioned'),
                    {'affine_query.beta': 0, 'affine_key.beta': 0, 'affine_value.psi': 4,
                     'affine_value.beta': 0}),
    'self-attention on G': (partial(layers.GroupSelfAttention2d, 24, 32, 'p4'), MLP | {
        'query.weight': 3*24, 'key.weight': 3*24, 'value.weight': 3*24, 'out.weight': 3*9*16,
        'encoder.pose.weight': 1}),
    'self-attention': (partial(layers.SelfAttention2d, 24, 32, 5, 4), {
        'maps.query.weight': 3*24, 'maps.value.weight': 3*24, 'relative.table': 1}),
    'rows and columns': (partial(layers.StandAloneSelfAttention2d, 24, 64, 5, 4),
                         {'relative.rows': 1, 'relative.columns': 1, 'out.weight': 3*64}),
    'SE': (partial(layers.SqueezeExcitation, 64, 'p4', 4),
           {'squeeze.weight': 3*64, 'excite.weight': 3*16})}


def spread_apart(make, want):
    "The parameters whose variance is not what it should be, by six of its standard errors."
    torch.manual_seed(0)
    drawn = [dict(make().named_parameters()) for _ in range(4)]

    def is_so(name, part):
        x = torch.cat([tensors[name].detach().flatten() for tensors in drawn])
        if not part: return x.abs().max() == 0
        return abs(x.square().mean()*part - 1) < 6*(2/len(x))**.5
    return [name for name, part in want.items() if not is_so(name, part)]


@pytest.mark.parametrize('make, want', STARTS.values(), ids=STARTS)
def test_parameters_start_with_their_spread(make, want): assert spread_apart(make, want) == []


def test_another_spread_is_noticed():
    make, want = STARTS['E4']
    def wider():
        layer = make()
        with torch.no_grad(): layer.generate.weight.mul_((3/2)**.5)
        return layer
    assert spread_apart(wider, want) == ['generate.weight']


@pytest.mark.parametrize('name', [name for name in MODELS if 'resnet29-' in name])
def test_residual_branches_start_at_zero(name):
    "P2, B: the scale of the last norm of each block; not in the networks of convolutions alone."
    blocks = [m for m in build_model(name).modules() if isinstance(m, Bottleneck)]
    plain = name.removesuffix('-cifar100').endswith('resnet29')
    scales = [block.norm3.weight.detach() for block in blocks]
    assert len(scales) == 9
    assert all(torch.equal(s, torch.full_like(s, float(plain))) for s in scales)
