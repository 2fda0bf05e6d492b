"What torch's counter sees of the library's operators: what the formulas say, in C or not."
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from eqtutor.cost import count_macs, layer_costs
from eqtutor.kernels import attentive, self_attention, windows
from eqtutor.kernels.native import find_compiler, native_library
from eqtutor.models import MODELS, build_model
from eqtutor.nn import AttentiveGroupConv2d, E4Conv2d, GroupAffineSelfConv2d, GroupSelfAttention2d

SLOW = pytest.mark.slow
compiled = pytest.mark.skipif(find_compiler() is None, reason='no C compiler, or EQTUTOR_NATIVE=0')


@pytest.fixture(autouse=True)
def forgotten():
    yield
    native_library.cache_clear()

def without_c(monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    native_library.cache_clear()

def seen(compute):
    "Multiply-accumulates that torch's counter sees."
    with FlopCounterMode(display=False) as counter: compute()
    return counter.get_total_flops()//2


# --- whole networks

HEAVY = ('all-cnn', 'densenet', 'resnet18', 'resnet44', 'pcam', 'cifar10', 'gsa-r8', 'gsa-r1')

@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[SLOW] if any(part in name for part in HEAVY) else [])
    for name in MODELS])
def test_counter_sees_what_the_layers_say(name, monkeypatch):
    net, x = build_model(name), torch.zeros(1, *MODELS[name].input_shape)
    macs = sum(row.macs for row in layer_costs(net, x))
    assert count_macs(net, x) == macs > 1e6
    without_c(monkeypatch)
    assert count_macs(net, x) == macs


# --- layers, forward and backward

LAYERS = {
    'E4': (lambda: E4Conv2d(4, 6, 3, 'p4m', slices=2), (2, 4, 8, 5, 6)),
    'affine': (lambda: GroupAffineSelfConv2d(4, 4, 3, 'p4', heads=2), (2, 4, 4, 5, 6)),
    'self-attention': (lambda: GroupSelfAttention2d(4, 4, 'p4', window=3, heads=2),
                       (2, 4, 4, 6, 10)),
    'pairs': (lambda: AttentiveGroupConv2d(3, 5, 3, 'p4', padding=1), (2, 3, 4, 6, 7)),
    'pairs, dilated gate': (lambda: AttentiveGroupConv2d(
        3, 5, 3, 'p4', padding=1, attention_kernel=5, attention_dilation=4), (2, 3, 4, 6, 7)),
    'pairs, off the grid': (lambda: AttentiveGroupConv2d(2, 3, 3, 'R8'), (1, 2, 8, 5, 6))}

@pytest.mark.parametrize('name', LAYERS)
def test_any_counter_sees_the_same_in_c_or_not(name, monkeypatch):
    "Forward as the layer says, and a step with its gradients."
    make, shape = LAYERS[name]
    layer, x = make(), torch.randn(shape, requires_grad=True)
    y = layer(x)
    said = layer.macs(x.shape, y.shape)

    def counts():
        with torch.no_grad(): forward = seen(lambda: layer(x.detach()))
        return forward, seen(lambda: layer(x).sum().backward())
    forward, step = counts()
    assert forward == said and 2*said < step < 5*said
    without_c(monkeypatch)
    assert counts() == (forward, step)

@compiled
@pytest.mark.parametrize('name', LAYERS)
def test_backward_is_seen_where_forward_ran_in_c_unseen(name):
    make, shape = LAYERS[name]
    layer, x = make(), torch.randn(shape, requires_grad=True)
    y = layer(x)
    said = layer.macs(x.shape, y.shape)
    assert said < seen(y.sum().backward) < 5*said


# --- operators

def test_every_operator_has_a_formula():
    names = [name for name in dir(torch.ops.eqtutor) if not name.startswith('_') and name != 'name']
    assert len(names) >= 10
    for name in names: assert getattr(torch.ops.eqtutor, name) in flop_registry, name

W = 3, 1, 1, 1   # window: size, dilation, padding, stride

def planes(): return torch.randn(2, 4, 3, 6, 7)

def op(name, *arguments):
    with torch.no_grad(): return seen(lambda: getattr(torch.ops.eqtutor, name)(*arguments))

def step(compute, *inputs):
    "Multiplications of the result, and those of the gradients of all inputs."
    inputs = [x.requires_grad_() for x in inputs]
    results = []
    forward = seen(lambda: results.append(compute(*inputs)))
    ys = [y for y in (results[0] if isinstance(results[0], tuple) else results) if y.requires_grad]
    grads = [torch.ones_like(y) for y in ys]
    return forward, seen(lambda: torch.autograd.grad(ys, inputs, grads)), grads

def test_sum_and_max_count_as_torch_multiplies():
    x, w = planes(), torch.randn(2, 4, 3, 5, 9)
    window = windows.Window(*W)
    forward, backward, (gtotal, gtop) = step(lambda w, x: attentive.sum_and_max(w, x, window), w, x)
    assert op('pair_sum_and_max', w, x, W) == forward == 2*4*3*5*9*6*7
    winner = torch.ops.eqtutor.pair_sum_and_max(w, x, W)[2].detach()
    flat = gtotal.flatten(-2), gtop.flatten(-2)
    assert op('pair_sum_and_max_backward', w, x, winner, *flat, W) == backward == 2*forward

@compiled
def test_statistics_count_as_torch_multiplies():
    x, psi, window = planes(), torch.randn(4, 3, 5, 9), windows.Window(*W)
    forward, backward, grads = step(
        lambda psi, x: attentive.statistics(psi, x, window, in_c=False), psi, x)
    assert op('pair_statistics', psi, x, W) == forward
    place = torch.ops.eqtutor.pair_peaks(psi, x, W)
    assert op('pair_peaks', psi, x, W) == 2*4*3*5*9*6*7
    assert op('pair_statistics_backward', psi, x, place, *grads, W) == backward

@compiled
@pytest.mark.parametrize('gate, d', [(3, 1), (5, 4), (7, 2)])
def test_what_is_removed_counts_as_torch_multiplies(gate, d):
    x, w, window = planes(), torch.randn(2, 4, 3, 5, 9), windows.Window(*W)
    gates = attentive._entries_that_meet(torch.randn(2, 4, 5, gate, gate), (6, 7), d)

    def by_torch():
        total, top = attentive.sum_and_max(w, x, window)
        return attentive.weights_of_places(total, top, gates, d)
    assert op('pair_removed', w, x, gates, W, d) == seen(by_torch)

@compiled
def test_attention_counts_as_torch_multiplies(monkeypatch):
    "Tiles see keys that their windows do not have; these count, too."
    layer, x = GroupSelfAttention2d(4, 4, 'p4', window=5, heads=2), torch.randn(2, 4, 4, 6, 10)
    calls = {}
    for name in ('_attend', '_attend_backward'):
        known = getattr(self_attention, name)
        def kept(*arguments, name=name, known=known):
            calls[name] = arguments
            return known(*arguments)
        monkeypatch.setattr(self_attention, name, kept)
    layer(x.requires_grad_()).sum().backward()
    forward = op('window_attention', *calls['_attend'])
    backward = op('window_attention_backward', *calls['_attend_backward'])
    q, kv, table, poses, *_ = (t.detach() for t in calls['_attend'][:5])
    plan = layer.plan(x.shape)
    by_torch = step(lambda *inputs: self_attention.streamed_attention(
        *inputs[:3], inputs[3][None], plan, in_c=False), q, kv, table, poses)[:2]
    assert (forward, backward) == by_torch

@pytest.mark.parametrize('by', ['weights', 'scale', 'values', 'target'])
@pytest.mark.parametrize('sources', [1, 3])
def test_a_window_counts_its_products_and_the_sum_over_sources(by, sources):
    (b, n, d), size = (2, 3, 2), (4, 5, 6)
    factors = dict(weights=torch.randn(b, n, 9, *size), values=torch.randn(b, n, sources*d, *size),
                   scale=torch.randn(n, sources*d, 9, 4, 1, 1), target=torch.randn(b, n, d, *size))
    given = [None if name == by else factors[name] for name in windows._FACTORS]
    each = 1 if sources == 1 else 1 + sources
    macs = b*n*d*9*math.prod(size)*each
    assert seen(lambda: windows.derive(by, windows.Window.same(3), sources, *given)) == macs
