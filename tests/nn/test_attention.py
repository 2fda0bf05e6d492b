"What attention layers and gates withstand: other sizes, few bits, compilers, devices, bad input."
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn

from eqtutor.equivariance import perturb_
from eqtutor.nn.attention import (ChannelAttention, SelfAttention2d, SpatialAttention,
                                  SqueezeExcitation, StandAloneSelfAttention2d, sasa_operator)


def kinds():
    "Name -> factory of every kind of attention, for images of six channels, 5×6 pixels."
    for encoding, window in product(('none', 'absolute', 'relative'), (None, 1, 3, 5)):
        for boundary in ('mask', 'zero') if window else ('mask',):
            arguments = 6, 8, window, 2, encoding, (5, 6), boundary
            yield f'{encoding} {window} {boundary}', partial(SelfAttention2d, *arguments)

KINDS = dict(kinds())
GATES = dict(SE=partial(SqueezeExcitation, reduction=4),
             channel=partial(ChannelAttention, reduction=4),
             spatial3=partial(SpatialAttention, kernel_size=3), spatial7=SpatialAttention)


@pytest.fixture(params=KINDS)
def layer_and_input(request):
    torch.manual_seed(0)
    return KINDS[request.param]().double(), torch.randn(2, 6, 5, 6).double()

def global_attention(layer, x):
    "Relative encodings, target by target."
    q, k, v = layer.maps(x)
    (top, left), y = layer.relative.size, torch.zeros_like(v)
    places = list(product(range(x.shape[-2]), range(x.shape[-1])))
    for i, j in places:
        rho = [layer.relative.table[..., r - i + top - 1, c - j + left - 1] for r, c in places]
        keys = [k[..., r, c] + e for (r, c), e in zip(places, rho)]
        s = torch.stack([(q[..., i, j]*key).sum(-1) for key in keys])
        values = torch.stack([v[..., r, c] for r, c in places])
        y[..., i, j] = (s.softmax(0)[..., None]*values).sum(0)
    return layer.out(y.flatten(1, 2))

def test_a_layer_for_large_images_serves_smaller_ones():
    torch.manual_seed(0)
    large = SelfAttention2d(6, 8, None, 2, size=(7, 9)).double()
    x = torch.randn(1, 6, 5, 6).double()
    torch.testing.assert_close(large(x), global_attention(large, x), rtol=0, atol=1e-10)


# --- few bits

def assert_float32_is_close(layer, x):
    want = layer(x).float()
    assert want.std() > 0
    torch.testing.assert_close(layer.float()(x.float()), want, rtol=1e-4, atol=1e-5)

def test_float32(layer_and_input): assert_float32_is_close(*layer_and_input)

def test_autocast(layer_and_input):
    layer, x = layer_and_input
    want = layer(x)
    with torch.autocast('cpu', torch.bfloat16): y = layer.float()(x.float())
    assert y.dtype == torch.bfloat16
    assert (y - want).abs().max() < .05*want.abs().max()

@pytest.mark.parametrize('boundary', ['mask', 'zero'])
def test_float32_of_sasa(boundary):
    torch.manual_seed(0)
    sasa = perturb_(StandAloneSelfAttention2d(6, 8, 5, 4, boundary).double())
    assert_float32_is_close(sasa, torch.randn(2, 6, 4, 5).double())

@pytest.mark.parametrize('name', GATES)
@pytest.mark.parametrize('group, poses', [
    ('Z2', 1), ('p4', 4), ('p4m', 8), ('mirror', 2), ('C2', 2)])
def test_float32_of_gates(name, group, poses):
    torch.manual_seed(0)
    gate = perturb_(GATES[name](8, group).double())   # as after training
    for b, h, w in (2, 6, 7), (1, 5, 5), (1, 8, 6):
        assert_float32_is_close(gate.double(), torch.randn(b, 8, poses, h, w).double())


# --- compilers and devices

@pytest.mark.slow
@pytest.mark.parametrize('window', [3, None])
def test_compiled_gradients_are_the_same(window):
    torch.manual_seed(0)
    layer = SelfAttention2d(6, 8, window, 2, size=(5, 6))
    x = torch.randn(1, 6, 5, 6, requires_grad=True)
    inputs = [x, *layer.parameters()]
    want = torch.autograd.grad(layer(x).square().sum(), inputs)
    compiled = torch.compile(layer, fullgraph=True)
    got = torch.autograd.grad(compiled(x).square().sum(), inputs)
    for a, b in zip(got, want): torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

@pytest.mark.slow
def test_gates_compile_to_one_graph():
    torch.manual_seed(0)
    net = nn.Sequential(*(make(8, 'p4') for make in GATES.values()))
    f = torch.randn(2, 8, 4, 6, 7)
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(f), net(f), rtol=1e-4, atol=1e-5)

@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
def test_cuda_gives_the_same_maps(layer_and_input):
    "The fused kernel and the loops over windows, in half precision too."
    layer, x = layer_and_input
    want = layer(x)
    layer.float().cuda()
    with torch.autocast('cuda', torch.bfloat16): y = layer(x.float().cuda())
    assert (y.cpu() - want).abs().max() < .05*want.abs().max()
    y = layer(x.float().cuda()).cpu()
    torch.testing.assert_close(y, want.float(), rtol=1e-3, atol=1e-3)


# --- what does not fit is refused

@pytest.mark.parametrize('make, words', [
    (partial(SelfAttention2d, 6, 8, 4), 'odd window, got 4; use 3 or 5'),
    (partial(SelfAttention2d, 6, 8, 0), 'window must be a positive int'),
    (partial(SelfAttention2d, 6, 8, 3, heads=3), 'divisible by heads, got .*=8 and heads=3'),
    (partial(SelfAttention2d, 6, 8, 3, encoding='learned'),
     "'none', 'absolute', 'relative', got 'learned'"),
    (partial(SelfAttention2d, 6, 8, 3, encoding='absolute'),
     r'the absolute encoding .* size=\(height, width\)'),
    (partial(SelfAttention2d, 6, 8), r'the relative encoding .* size=\(height, width\)'),
    (partial(SelfAttention2d, 6, 8, 3, boundary='wrap'), "'mask', 'zero', got 'wrap'"),
    (partial(SelfAttention2d, 6, 8, 3, scale='none'), "'root', 'head', 'channels', got 'none'"),
    (partial(StandAloneSelfAttention2d, 8, 8, 4), 'odd kernel_size, got 4; use 3 or 5'),
    (partial(StandAloneSelfAttention2d, 8, 8, 5), 'even width, got 1; .* multiple of 16'),
    (partial(sasa_operator, 16, 16, 3, 'p4'), "the group 'Z2', got C4"),
    (partial(sasa_operator, 16, 16, 3, 'Z2', padding=0), "padding='same', got 0"),
    (partial(SqueezeExcitation, 8, reduction=0), 'reduction must be a positive int'),
    (partial(SpatialAttention, 8, 'p4', 6), 'odd kernel_size: use 5 or 7'),
    (partial(ChannelAttention, 8, 'p5'), 'unknown group')])
def test_wrong_argument_is_named(make, words):
    with pytest.raises(ValueError, match=words): make()

@pytest.mark.parametrize('make, shape, words', [
    (partial(SelfAttention2d, 6, 8, 3, encoding='absolute', size=(5, 6)), (1, 6, 6, 6),
     'expected an image of 5×6, got 6×6'),
    (partial(SelfAttention2d, 6, 8, size=(5, 6)), (1, 6, 6, 6),
     'within 5×6 pixels, got an image of 6×6: give a larger size'),
    (partial(SelfAttention2d, 6, 8, 3), (1, 5, 6, 6), r'\(b, 6, h, w\), got \(1, 5, 6, 6\)'),
    (partial(SelfAttention2d, 6, 8, 3), (1, 6, 4, 6, 6),
     r'\|H\| = 1 for .*, got \(1, 6, 4, 6, 6\)'),
    (partial(ChannelAttention, 8, 'p4'), (2, 8, 5, 5), r'\|H\| = 4 .* looks like an image'),
    (partial(SqueezeExcitation, 8, 'p4'), (2, 8, 8, 5, 5),
     r'\(b, 8, \|H\|, h, w\) with \|H\| = 4 for C4, got \(2, 8, 8, 5, 5\)'),
    (partial(SqueezeExcitation, 8), (2, 6, 5, 5), r'an image \(b, 8, h, w\), got \(2, 6, 5, 5\)')])
def test_wrong_input_is_named(make, shape, words):
    layer = make()
    with pytest.raises(ValueError, match=words): layer(torch.randn(shape))
