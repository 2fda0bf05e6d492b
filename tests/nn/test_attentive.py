"Attentive convolutions equal their loops, and withstand wrong arguments, autocast, compilers."
import copy
import pickle
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from eqtutor.actions import act
from eqtutor.cost import count_macs, count_parameters, layer_costs
from eqtutor.equivariance import assert_equivariant, perturb_
from eqtutor.nn.attentive import AttentiveGroupConv2d, AttentiveLiftingConv2d, PairAttention

ATTEND = 'full', 'channel', 'spatial', 'input', 'rotation'


def group_layer(attend='full', **options):
    return AttentiveGroupConv2d(3, 4, 3, 'p4', attend=attend, **options)


def lifting_layer(attend='full', **options):
    return AttentiveLiftingConv2d(3, 4, 3, 'p4', attend=attend, **options)


def an_input(layer, b=2, size=(6, 6)):
    poses = () if layer.lifts else (len(layer.group),)
    return torch.randn(b, layer.in_channels, *poses, *size)


# --- the loop, with strides, dilations and chunks

def slow(layer, f, o, h):
    "P1's Eqs 16–19, `(b, h, w)`, for feature maps f `(b, in, |H|, h, w)`."
    H, branch, y = layer.group, layer.branch, 0
    psi = act(H, h, layer.weight[o:o+1])[0]
    psi_x = act(H, h, branch.spatial.weight[o:o+1])[0]
    pad = branch.dilation*(psi_x.shape[-1]//2)
    for q in H.elements:
        r = H.relative[h, q]
        W1, W2 = branch.channel.squeeze[o, ..., r], branch.channel.excite[o, ..., r]
        ft = F.conv2d(f[:, :, q], psi[:, q, None], None, layer.stride, layer.padding,
                      layer.dilation, groups=f.shape[1])
        s = [(W2 @ (W1 @ s.T).relu()).T for s in (ft.mean((2, 3)), ft.amax((2, 3)))]
        a_c = torch.sigmoid(sum(s))[..., None, None]
        z = torch.stack([(a_c*ft).mean(1), (a_c*ft).amax(1)], 1)
        scores = F.conv2d(z, psi_x[None, :, q], padding=pad, dilation=branch.dilation)
        y = y + ((1 - scores.sigmoid()*a_c)*ft).sum(1)
    return y


def slow_layer(layer, f):
    poses = range(len(layer.group))
    return torch.stack([torch.stack([slow(layer, f, o, h) for h in poses], 1)
                        for o in range(layer.out_channels)], 1)


def perturbed(kind, group, attend='full', kernel_size=3, **options):
    "A small layer as after training."
    torch.manual_seed(0)
    return perturb_(kind(3, 4, kernel_size, group, attend=attend, **options).double())


WINDOWS = [dict(padding=1, chunk=1), dict(dilation=2, padding='same', attention_dilation=2),
           dict(stride=2, padding=1, chunk=3), dict(kernel_size=2, chunk=None)]


@pytest.mark.parametrize('options', WINDOWS)
@pytest.mark.parametrize('group', ['Z2', 'p4', 'p4m', 'mirror'])
def test_a_layer_equals_the_loop_in_every_window(group, options):
    layer = perturbed(AttentiveGroupConv2d, group, bias=False, **options)
    f = an_input(layer, size=(7, 9)).double()
    torch.testing.assert_close(layer(f), slow_layer(layer, f), rtol=0, atol=1e-10)


def gradients(y, inputs): return torch.autograd.grad(y.sin().sum(), inputs)


@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
@pytest.mark.parametrize('kind', [AttentiveGroupConv2d, AttentiveLiftingConv2d])
def test_chunks_change_no_gradient(kind, attend):
    whole = perturbed(kind, 'p4m', attend, chunk=None, padding=1)
    f = an_input(whole).double().requires_grad_()
    expected = gradients(whole(f), [f, *whole.parameters()])
    for chunk in (1, 3, 4):
        parts = perturbed(kind, 'p4m', attend, chunk=chunk, padding=1)
        for a, b in zip(gradients(parts(f), [f, *parts.parameters()]), expected):
            assert b.abs().max() > 1e-6
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_gradients_are_those_of_the_loop_and_of_its_weights_with_ties_too():
    layer = perturbed(AttentiveGroupConv2d, 'p4', bias=False, padding=1, chunk=2)
    f = an_input(layer).double().requires_grad_()
    inputs = [f, *layer.parameters()]
    for a, b in zip(gradients(layer(f), inputs), gradients(slow_layer(layer, f), inputs)):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    f = an_input(layer).double()*(torch.rand(2, 3, 4, 6, 6) < .2)
    y, expected = layer(f), slow_layer(layer, f)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
    for a, b in zip(gradients(y, inputs[1:]), gradients(expected, inputs[1:])):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def kept_for_backward(chunk):
    "Numbers that a full-α layer keeps from forward to backward, parameters and input aside."
    layer, f = AttentiveGroupConv2d(10, 10, 3, 'p4', chunk=chunk), torch.randn(4, 10, 4, 26, 26)
    own, sizes = {p.data_ptr() for p in layer.parameters()} | {f.data_ptr()}, {}
    def pack(t):
        if t.data_ptr() not in own: sizes[t.data_ptr()] = t.numel(), t   # t: not freed
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): layer(f)
    return sum(n for n, _ in sizes.values())


def test_the_products_are_not_kept():
    products = 4*10*4*10*4*24*24
    assert kept_for_backward(2) < kept_for_backward(None) < products/2


def all_products(layer, f):
    "f̃, `(b, o, i, h, q, y, x)`."
    poses = len(layer.group)
    bank = layer.filters().view(4, poses, 3, poses, 3, 3)
    def of(i, q):
        return F.conv2d(f[:, i, q, None], bank[:, :, i, q].flatten(0, 1)[:, None], padding=1)
    ft = [torch.stack([of(i, q) for q in range(poses)], 2) for i in range(3)]
    return torch.stack(ft, 2).unflatten(1, (4, poses)).transpose(2, 3)


@pytest.mark.parametrize('group', ['p4', 'p4m'])
@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
def test_the_factors_weigh_the_products(attend, group):
    layer = perturbed(AttentiveGroupConv2d, group, attend, bias=False, padding=1)
    f = an_input(layer).double()
    channel, spatial = layer.factors(f)
    channel = 1. if channel is None else channel[..., None, None]
    spatial = 1. if spatial is None else spatial[:, :, None]
    expected = ((1 - channel*spatial)*all_products(layer, f)).sum((2, 4))
    torch.testing.assert_close(layer(f), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize('kind', [AttentiveGroupConv2d, AttentiveLiftingConv2d])
def test_macs_and_parameters_are_what_is_counted(kind):
    for group, attend in product(('p4', 'p4m', 'mirror'), ATTEND):
        layer = kind(3, 4, 3, group, attend=attend, padding=1, chunk=2)
        f = an_input(layer, size=(8, 9))
        cost, = layer_costs(layer, f)
        assert cost.parameters == count_parameters(layer)
        assert cost.macs == count_macs(layer, f)


# --- bad input

@pytest.mark.parametrize('arguments, message', [
    (dict(attend='all'), "'full', 'channel', 'spatial', 'input', 'rotation'"),
    (dict(chunk=0), 'chunk must be a positive int'),
    (dict(chunk='all'), 'chunk must be a positive int'),
    (dict(hidden=0), 'hidden must be a positive int'),
    (dict(reduction=0), 'reduction must be a positive int'),
    (dict(attention_kernel=4), 'expected an odd attention_kernel, got 4'),
    (dict(attend='input', attention_kernel=4), 'expected an odd attention_kernel, got 4'),
    (dict(padding='same', attention_dilation=0), 'attention_dilation must be a positive int'),
])
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message): group_layer(**arguments)


def test_a_branch_wants_an_odd_window():
    layer = group_layer()
    with pytest.raises(ValueError, match='expected an odd kernel_size, got 6'):
        PairAttention(3, 4, layer.branch.window, layer.group, kernel_size=6)


@pytest.mark.parametrize('attend', ATTEND)
def test_wrong_inputs_are_refused(attend):
    layer, lifting = group_layer(attend), lifting_layer(attend)
    image, on_p4, on_p4m = (torch.randn(2, 3, *poses, 6, 6) for poses in ((), (4,), (8,)))
    with pytest.raises(ValueError, match='looks like an image'): layer(image)
    with pytest.raises(ValueError, match=r'\|H\| = 4'): layer(on_p4m)
    with pytest.raises(ValueError, match='expected a feature map'): layer.attention(image)
    with pytest.raises(ValueError, match='expected an image'): lifting(on_p4)


@pytest.mark.parametrize('attend', ATTEND)
def test_a_stride_that_breaks_the_symmetry_is_refused(attend):
    layer = group_layer(attend, stride=2)
    with pytest.raises(ValueError, match='stride 2 on height 6'): layer(an_input(layer))


@pytest.mark.parametrize('attend', ['input', 'rotation'])
def test_attention_on_the_input_has_no_factors(attend):
    layer = group_layer(attend)
    with pytest.raises(ValueError, match=r'use \.attention\(x\)'): layer.factors(an_input(layer))


# --- precision, empty batches, chunks

@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
def test_full_attention_stays_in_the_precision_of_the_weights_under_autocast(attend):
    layer = group_layer(attend, padding=1)
    f = an_input(layer)
    expected = layer(f)
    with torch.autocast('cpu', torch.bfloat16): y = layer(f)
    assert torch.equal(y, expected)


@pytest.mark.parametrize('attend', ['input', 'rotation'])
def test_attention_on_the_input_runs_under_autocast(attend):
    layer = group_layer(attend, padding=1)
    f = an_input(layer)
    expected = layer(f)
    with torch.autocast('cpu', torch.bfloat16): y = layer(f)
    torch.testing.assert_close(y.float(), expected, rtol=.1, atol=.1)


@pytest.mark.parametrize('make', [group_layer, lifting_layer])
@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
def test_no_images_give_an_empty_output(make, attend):
    layer = make(attend)
    y = layer(an_input(layer, b=0))
    y.sum().backward()
    assert y.shape == (0, 4, 4, 4, 4)


def test_large_inputs_are_computed_in_chunks():
    "Where nothing but α^C ψ is kept for backward, only many channels are large."
    layer, fixed = (AttentiveGroupConv2d(3, 64, 3, 'p4', chunk=chunk) for chunk in ('auto', 5))
    small, large = (torch.empty(b, 3, 4, 16, 16) for b in (1, 4096))
    assert [layer.chunk_for(x) for x in (small, large, large.half())] == [None, None, 22]
    assert [fixed.chunk_for(x) for x in (small, large)] == [5, 5]
    wide = AttentiveGroupConv2d(64, 64, 3, 'p4')
    assert [wide.chunk_for(torch.empty(b, 64, 4, 6, 6)) for b in (1, 4)] == [32, 13]


# --- α_F on an image, where the spatial filter lifts and its maximum over H is taken

def slow_input_of_image(layer, f):
    "α⁺ of α_F, `(c, y, x)`, for an image."
    branch, psi_x = layer.branch, layer.branch.spatial.weight
    W1, W2 = branch.squeeze.weight, branch.excite.weight
    def score(v): return W2 @ (W1 @ v).relu()
    a_c = (score(f.mean((1, 2))) + score(f.amax((1, 2)))).sigmoid()[:, None, None]
    z, pad = torch.stack([(a_c*f).mean(0), (a_c*f).amax(0)]), psi_x.shape[-1]//2
    scores = [F.conv2d(z[None], act(layer.group, h, psi_x.view(1, 2, *psi_x.shape[-2:])),
                       padding=pad)[0, 0] for h in layer.group.elements]
    return 1 - a_c*torch.stack(scores).amax(0).sigmoid()


@pytest.mark.parametrize('group', ['mirror', 'p4', 'p4m'])
def test_attention_on_an_image_is_its_loop(group):
    layer = perturbed(AttentiveLiftingConv2d, group, 'input', padding='same').double()
    f = an_input(layer, 1, (6, 7)).double()
    expected = slow_input_of_image(layer, f[0])
    assert expected.std() > .01
    torch.testing.assert_close(layer.attention(f)[0], expected.detach(), rtol=0, atol=1e-10)


# --- the state, and where the tables are

@pytest.mark.parametrize('attend, names', [
    ('full', ['channel.squeeze', 'channel.excite', 'spatial.weight']),
    ('channel', ['channel.squeeze', 'channel.excite']),
    ('spatial', ['spatial.weight']),
    ('input', ['squeeze.weight', 'excite.weight', 'spatial.weight']),
    ('rotation', ['scores.weight']),
])
@pytest.mark.parametrize('make', [group_layer, lifting_layer])
def test_the_state_holds_the_parameters_and_no_tables(make, attend, names):
    layer = make(attend)
    expected = ['weight', 'bias', *(f'branch.{name}' for name in names)]
    assert [name for name, _ in layer.named_parameters()] == expected
    assert set(layer.state_dict()) == set(expected)


WAYS = {
    'deep copy': copy.deepcopy,
    'pickle': lambda layer: pickle.loads(pickle.dumps(layer)),
    'double and back': lambda layer: copy.deepcopy(layer).double().float(),
}


@pytest.mark.parametrize('way', WAYS.values(), ids=WAYS)
@pytest.mark.parametrize('attend', ATTEND)
@pytest.mark.parametrize('kind', [AttentiveGroupConv2d, AttentiveLiftingConv2d])
def test_a_copy_computes_the_same(kind, attend, way):
    layer = kind(3, 4, 3, 'p4m', attend=attend, padding=1)
    f = an_input(layer)
    assert torch.equal(way(layer)(f), layer(f))


def test_a_new_layer_computes_in_inference_mode_and_trains_after_it():
    with torch.inference_mode():
        layer = group_layer(padding=1)
        y = layer(an_input(layer))
    assert y.isfinite().all()
    with torch.inference_mode(): state = {k: v.clone() for k, v in layer.state_dict().items()}
    other = group_layer(padding=1)
    with torch.inference_mode(): other(an_input(other))
    with torch.no_grad(): other.load_state_dict(state)
    other(an_input(other)).sum().backward()
    assert other.branch.channel.squeeze.grad.abs().max() > 0


# --- compilers

@pytest.mark.slow
@pytest.mark.parametrize('attend, chunk, backend', [
    ('full', None, 'inductor'), ('full', 1, 'inductor'), ('channel', None, 'aot_eager'),
    ('channel', 1, 'aot_eager'), ('spatial', None, 'aot_eager'), ('input', None, 'aot_eager'),
])
def test_a_compiled_layer_computes_the_same(attend, chunk, backend):
    layer = AttentiveGroupConv2d(2, 2, 3, 'p4', attend=attend, chunk=chunk)
    f = an_input(layer).requires_grad_()
    fast = torch.compile(layer, fullgraph=True, backend=backend)
    torch.testing.assert_close(fast(f), layer(f), rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(m(f).square().sum(), f)[0] for m in (fast, layer)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_one_graph_serves_all_sizes_of_a_batch():
    torch.compiler.reset()
    layer = AttentiveGroupConv2d(2, 2, 3, 'p4')
    counter = torch._dynamo.testing.CompileCounterWithBackend('aot_eager')
    fast = torch.compile(layer, fullgraph=True, backend=counter)
    for b in range(2, 12): assert len(fast(torch.randn(b, 2, 4, 5, 5))) == b
    assert counter.frame_count <= 2    # the first size, then any


@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial', 'input', 'rotation'])
@pytest.mark.parametrize('mode', ['circular', 'reflect', 'replicate'])
@pytest.mark.parametrize('cls', [AttentiveLiftingConv2d, AttentiveGroupConv2d])
def test_a_padding_mode_is_exact(cls, mode, attend):
    torch.manual_seed(0)
    poses = () if cls.lifts else (8,)
    x = torch.randn(1, 3, *poses, 5, 6, dtype=torch.float64)
    layer = perturb_(cls(3, 2, 3, 'p4m', padding=1, attend=attend, padding_mode=mode,
                         dtype=torch.float64))
    assert_equivariant(layer, x, 'p4m')
    zeros = cls(3, 2, 3, 'p4m', padding=1, attend=attend, dtype=torch.float64)
    zeros.load_state_dict(layer.state_dict())
    assert (layer(x) - zeros(x)).abs().max() > .01
    if layer.weighs_input: return
    # the frame by hand, and no padding after it
    framed = F.pad(x.flatten(1, -3), [1]*4, mode).view(*x.shape[:-2], 7, 8)
    bare = cls(3, 2, 3, 'p4m', attend=attend, dtype=torch.float64)
    bare.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), bare(framed))
    assert layer.attention(x).shape == layer(x).shape
