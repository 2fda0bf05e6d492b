"What attention layers and gates compute, in every variant, and what they withstand."
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act
from eqtutor.cost import count_macs, count_parameters, layer_costs
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_, symmetries
from eqtutor.groups import get_group
from eqtutor.kernels.windows import shifted, window_sum
from eqtutor.models.backbones import resnet29
from eqtutor.nn.attention import SelfAttention2d, StandAloneSelfAttention2d, sasa_operator
from eqtutor.nn.convolution import GroupConv2d
from eqtutor.nn.gates import ChannelAttention, SpatialAttention, SqueezeExcitation


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

def close(a, b, atol=1e-10): torch.testing.assert_close(a, b, rtol=0, atol=atol)

def random(*shape): return torch.randn(shape, dtype=torch.float64)


# --- the same as a loop over targets and their sources

def rho(layer, down, right):
    "The encoding of an offset, `(heads, d)`, or 0."
    encoding, k = layer.relative, layer.window
    if encoding is None: return 0.
    if hasattr(encoding, 'rows'):
        row, column = encoding.rows[..., down + k//2], encoding.columns[..., right + k//2]
        return torch.cat([row, column], 1)
    if k: return encoding.table[..., (down + k//2)*k + right + k//2]
    top, left = encoding.size
    return encoding.table[..., down + top - 1, right + left - 1]

def sources(layer, i, j, h, w):
    "Of the target (i, j): places, and whether they exist."
    if layer.window is None: return [(r, c, True) for r, c in product(range(h), range(w))]
    m = layer.window//2
    near = product(range(i - m, i + m + 1), range(j - m, j + m + 1))
    places = [(r, c, 0 <= r < h and 0 <= c < w) for r, c in near]
    return [place for place in places if place[2] or layer.boundary == 'zero']

def in_a_loop(layer, x, scale='root'):
    (h, w), heads, d = x.shape[-2:], layer.heads, layer.out_channels//layer.heads
    at = x if layer.absolute is None else x + layer.absolute
    mapped = layer.maps.query(at), layer.maps.key(at), layer.maps.value(x)
    q, k, v = (t.unflatten(1, (heads, d)) for t in mapped)
    y, factor = torch.zeros_like(v), dict(root=d**-.5, head=1/d, channels=1/(heads*d))[scale]
    for i, j in product(range(h), range(w)):
        scores, values = [], []
        for r, c, exists in sources(layer, i, j, h, w):
            key = (k[..., r, c] if exists else 0) + rho(layer, r - i, c - j)
            scores.append((q[..., i, j]*key).sum(-1))
            values.append(v[..., r, c] if exists else torch.zeros_like(v[..., 0, 0]))
        weights = (factor*torch.stack(scores)).softmax(0)
        y[..., i, j] = (weights[..., None]*torch.stack(values)).sum(0)
    return layer.out(y.flatten(1, 2))

def mixed(layer, weights, values):
    "What `forward` does with its attention."
    if layer.window: return window_sum(weights, values, layer.window)
    return torch.einsum('bnsij,bncs->bncij', weights, values.flatten(-2))

def test_attention_is_the_loop(layer_and_input):
    layer, x = layer_and_input
    y, weights, values = layer(x), layer.attention(x), layer.maps(x, layer.absolute)[2]
    close(y, in_a_loop(layer, x))
    close(layer(x[:, :, None]), y[:, :, None], atol=0)     # the trivial group's axis
    close(weights.sum(2), torch.ones(2, 2, 5, 6, dtype=torch.float64))
    close(layer.out(mixed(layer, weights, values).flatten(1, 2)), y)

@pytest.mark.parametrize('k, heads, boundary, scale', [
    (1, 4, 'mask', 'head'), (3, 4, 'zero', 'root'), (5, 1, 'mask', 'channels'),
    (5, 4, 'zero', 'head'), (5, 2, 'mask', 'head')])
def test_sasa_is_the_loop(k, heads, boundary, scale):
    torch.manual_seed(0)
    sasa = StandAloneSelfAttention2d(6, 8, k, heads, boundary, scale).double()
    x = random(2, 6, 4, 5)
    close(sasa(x), in_a_loop(sasa, x, scale))
    if k > 1: assert symmetries(sasa, random(2, 6, 6, 6), 'p4m') == (0,)

def difference_inside(layer, margin):
    "Of two frames of 12×12 on one scene, at the pixels whose windows lie in both."
    scene = random(2, 6, 14, 15)
    a, b = layer(scene[..., :12, :12]), layer(scene[..., 2:, 3:])
    difference = (a[..., 2:, 3:] - b[..., :10, :9])[..., margin:10 - margin, margin:9 - margin]
    return (difference.abs().max()/a.abs().max()).item()

@pytest.mark.parametrize('encoding', ['none', 'absolute', 'relative'])
@pytest.mark.parametrize('change', [lambda layer: layer, perturb_], ids=['fresh', 'perturbed'])
def test_a_layer_has_the_symmetries_of_its_encoding(encoding, change):
    "Lemma 20.2, Propositions 20.4 to 20.6 on layers. Who sees the whole frame has no inside."
    torch.manual_seed(0)
    error = difference_inside(change(SelfAttention2d(6, 8, 5, 2, encoding, (12, 12)).double()), 2)
    assert error > .05 if encoding == 'absolute' else error < 1e-10
    everywhere = change(SelfAttention2d(6, 8, None, 2, encoding, (6, 6)).double())
    errors = equivariance_error(everywhere, random(2, 6, 6, 6), 'p4m')[1:]
    assert max(errors) < 1e-10 if encoding == 'none' else min(errors) > 1e-3
    framed = SelfAttention2d(6, 8, None, 2, 'relative', (12, 12)).double()
    assert difference_inside(framed, 0) > .01

def test_a_table_averaged_over_p4m_makes_the_layer_equivariant():
    "P3's recipe (§4.3): an encoding that is the same after every turn and mirror."
    torch.manual_seed(0)
    layer = SelfAttention2d(6, 8, 3, 2).double()
    x, square = random(2, 6, 6, 6), layer.relative.table.detach().unflatten(-1, (3, 3))
    assert min(equivariance_error(layer, x, 'p4m')[1:]) > 1e-3
    turned = torch.stack([act('p4m', h, square) for h in range(8)])
    layer.relative.table.data = turned.mean(0).flatten(2)
    assert_equivariant(layer, x, 'p4m')


def test_only_what_is_learnt_is_saved():
    names = [f'maps.{m}.{p}' for m in ('query', 'key', 'value') for p in ('weight', 'bias')]
    state = SelfAttention2d(6, 8, 3, 2).state_dict()
    assert set(state) == {*names, 'out.weight', 'out.bias', 'relative.table'}
    state = StandAloneSelfAttention2d(6, 8, 3, 2).state_dict()
    assert set(state) == {*names, 'out.weight', 'relative.rows', 'relative.columns'}

def test_sasa_in_a_convolution_s_place():
    layer = sasa_operator(16, 16, 3, 'Z2', padding='same', bias=False)
    assert layer.window == 5 and sasa_operator(16, 16, 3, window=None).window == 3
    assert count_parameters(StandAloneSelfAttention2d(64, 64, 5)) == 4*64**2 + 3*64 + 5*64

def test_a_layer_for_large_images_serves_smaller_ones():
    torch.manual_seed(0)
    large = SelfAttention2d(6, 8, None, 2, size=(7, 9)).double()
    x = torch.randn(1, 6, 5, 6).double()
    torch.testing.assert_close(large(x), in_a_loop(large, x), rtol=0, atol=1e-10)


# --- the proof that absolute encodings break every permutation that moves them

def test_first_order_of_small_queries():
    "Proposition 20.4: D of a function that is λu at j and 0 elsewhere, by formula and by small ε."
    torch.manual_seed(1)
    (Wq, Wk, Wv), rho, u = random(3, 3, 3), random(6, 3), random(3)
    factor, epsilon = 5., 1e-9
    def D(i, j):
        f = torch.zeros(6, 3, dtype=torch.float64)
        f[j] = factor*u
        scores = (f + rho) @ Wk.T @ (epsilon*Wq @ (f[i] + rho[i]))
        by_epsilon = 6/epsilon*(scores.softmax(0) @ f - f.mean(0)) @ Wv.T
        key = Wk @ (factor*5/6*u + rho[j] - rho.mean(0))
        close(by_epsilon, factor*(Wq @ rho[i] @ key)*(Wv @ u), atol=1e-3)
        return by_epsilon
    assert (D(0, 1) - D(4, 2)).abs().max() > 1


# --- what a layer multiplies

def twin(layer, x):
    "The same map from matrix products, its neighbours listed by `F.unfold`: countable."
    q, k, v = layer.maps(x[:, :, 0] if x.ndim == 5 else x, layer.absolute)
    if layer.window is None:
        pairs = (k.flatten(-2).mT @ q.flatten(-2)).unflatten(-1, q.shape[-2:])
        y = v.flatten(-2) @ layer.weights(q, pairs).flatten(-2)
    else:
        planes = [F.unfold(t.flatten(1, 2), layer.window, padding=layer.window//2) for t in (k, v)]
        keys, values = (t.view(*k.shape[:3], -1, *k.shape[-2:]) for t in planes)
        weights = layer.weights(q, torch.einsum('bncij,bncdij->bndij', q, keys))
        y = torch.einsum('bndij,bncdij->bncij', weights, values)
    y = layer.out(y.reshape(len(v), -1, *v.shape[-2:]))
    return y[:, :, None] if x.ndim == 5 else y

def assert_counted(layer, x):
    y = layer(x)
    close(twin(layer, x), y)
    with FlopCounterMode(display=False) as counter: twin(layer, x)
    assert 2*layer.macs(x.shape, y.shape) == counter.get_total_flops() > 0
    assert layer.macs(x.shape, y.shape) == count_macs(layer, x)

def test_multiplications_are_counted(layer_and_input):
    layer, x = layer_and_input
    if layer.window == 1: return      # einsum does not call that a matrix product
    assert_counted(layer, x)
    assert_counted(layer, x[:, :, None])

def test_multiplications_of_sasa_and_its_network():
    for k in (3, 5):
        assert_counted(StandAloneSelfAttention2d(6, 8, k, 4).double(), random(2, 6, 5, 6))
    assert_counted(SelfAttention2d(6, 8, None, 2, size=(7, 9)).double(), random(2, 6, 5, 6))
    net, image = resnet29('Z2', (16, 32, 64), operator=sasa_operator), torch.randn(1, 3, 32, 32)
    rows = layer_costs(net, image)
    assert sum(row.macs for row in rows) == count_macs(net, image)
    assert sum(row.parameters for row in rows) == count_parameters(net)


# --- gates

def features(group, size=(6, 7), b=2): return random(b, 8, len(get_group(group)), *size)

GROUPS = 'Z2', 'p4', 'p4m', 'mirror', 'C2'

@pytest.mark.parametrize('name, group', [*product(GATES, GROUPS)])
def test_gates_are_equivariant(name, group):
    torch.manual_seed(0)
    for f in features(group), features(group, (5, 5), 1), features(group, (8, 6), 1):
        gate = GATES[name](8, group).double()
        for net in (gate, perturb_(gate)):
            assert_equivariant(net, f, group)
            factors = net.attention(f)
            assert factors.min() > 0 and factors.max() < 1
        rows = layer_costs(gate, f)
        assert sum(row.macs for row in rows) == count_macs(gate, f) > 0
        if group == 'Z2': close(gate(f)[:, :, 0], gate(f[:, :, 0]), atol=0)   # a plain image

@pytest.mark.parametrize('group', ['Z2', 'p4', 'mirror', 'p4m'])
def test_spatial_attention_is_a_loop_over_poses(group):
    gate, f, H = SpatialAttention(8, group, 5).double(), features(group), get_group(group)
    summary = torch.stack([f.mean(1), f.amax(1)], 1)
    def turned(h, q): return act(H, h, gate.look.weight[:, :, H.relative[h, q]])
    def at(h):        # 𝓛_h W[h⁻¹q]
        return sum(F.conv2d(summary[:, :, q], turned(h, q), padding=2) for q in H.elements)
    maps = torch.cat([at(h) for h in H.elements], 1).sigmoid()
    close(gate(f), f*maps[:, None])

def attentive_convolution(alpha, f, psi, group):
    "P1, Eq. 14, with α(g, g̃) = alpha(g̃): sums over channels c, poses q and offsets Δ."
    y, k = torch.zeros(len(f), len(psi), *f.shape[2:], dtype=torch.float64), psi.shape[-1]
    for h, q in product(group.elements, repeat=2):
        kernel = act(group, h, psi[:, :, group.relative[h, q]]).flatten(2)   # (𝓛_g ψ)(g̃)
        views = zip(shifted(alpha[:, :, q], k), shifted(f[:, :, q], k))
        for i, (a, view) in enumerate(views):
            y[:, :, h] += torch.einsum('bchw,bchw,oc->bohw', a, view, kernel[..., i])
    return y

@pytest.mark.parametrize('name, group', [*product(GATES, ('Z2', 'p4', 'p4m'))])
def test_a_gate_and_a_convolution_are_attentive_convolution(name, group):
    torch.manual_seed(0)
    gate, f = perturb_(GATES[name](8, group).double()), features(group, (5, 6))
    conv = GroupConv2d(8, 3, 3, group, padding='same', bias=False).double()
    y = attentive_convolution(gate.attention(f).expand_as(f), f, conv.weight, conv.group)
    close(y, conv(gate(f)))
    if group != 'Z2': assert (conv(gate(f)) - conv(f)).abs().max() > .05   # the factors count

def test_global_attention_is_attentive_convolution():
    "With one factor for all channels, and the kernel W_v everywhere."
    layer = SelfAttention2d(6, 8, None, 1, 'none', bias=False, out_bias=False).double()
    x = random(2, 6, 4, 5)
    alpha, psi = layer.attention(x)[:, 0], layer.maps.value.weight[:, :, 0, 0]
    close(layer(x), layer.out(torch.einsum('bshw,bcs,oc->bohw', alpha, x.flatten(2), psi)))

def test_a_network_with_group_gates_is_equivariant():
    gate = partial(SqueezeExcitation, reduction=4)
    net = perturb_(resnet29('p4', (8, 16, 32), gate=gate).double()).eval()
    assert_equivariant(net, random(1, 3, 16, 16), 'p4')
    assert count_parameters(SqueezeExcitation(8, 'p4m')) == count_parameters(SqueezeExcitation(8))


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
