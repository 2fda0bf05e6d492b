"What `network_graph` writes, leaves as it was, and refuses; what a page computes: test_engine."
import base64
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from eqtutor.equivariance import perturb_
from eqtutor.models.registry import build_model
from eqtutor.nn import (
    AttentiveGroupConv2d,
    E4Conv2d,
    GroupConv2d,
    GroupPool,
    GroupSelfAttention2d,
    LiftingConv2d,
)
from eqtutor.nn.e4 import KernelGenerator
from eqtutor.nn.self_attention import EquivariantSelfAttention2d
from eqtutor.widgets.graph import UnknownLayer, network_graph

from .examples import NoPermutation, two_layers

X = torch.rand(1, 1, 12, 12)


def lifted(*layers): return nn.Sequential(LiftingConv2d(1, 4, 3, 'p4'), *layers)


class Does(nn.Module):
    "A layer that is one function."
    def __init__(self, function):
        super().__init__()
        self.forward = function


def test_p4_cnn_travels_light():
    graph = network_graph(build_model('p4-cnn'), torch.rand(1, 1, 28, 28), labels='0123456789')
    tensors, text = graph['tensors'], json.dumps(graph)
    kinds = [tensors[key]['type'] for node in graph['nodes'] for key in node['weights'].values()]
    assert kinds.count('steps') == 7 and kinds.count('single') == 12
    assert len(text) < 100_000 and json.loads(text) == graph
    assert graph['labels'] == [*'0123456789'] and graph['output'] == graph['nodes'][-1]['name']
    assert graph['group']['order'] == 4 and graph['input'] == [1, 28, 28]


def test_weights_that_travel_are_the_parameters_and_tables_are_shared():
    "Not the 97,960 numbers of the expanded filters; six layers read one index table."
    torch.manual_seed(0)
    net = perturb_(build_model('p4-cnn'))
    graph = network_graph(net, torch.rand(1, 1, 28, 28))

    def numbers(kind):
        keys = {key for node in graph['nodes'] for key in node[kind].values()}
        return sum(math.prod(graph['tensors'][key]['shape']) for key in keys)
    assert numbers('weights') == sum(p.numel() for p in net.parameters()) == 24_610
    assert numbers('tables') == 436


def test_names_follow_the_network():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu = GroupConv2d(4, 4, 3, 'p4', padding='same'), nn.ReLU()
            self.drop = nn.Dropout(.5)

        def forward(self, f): return self.drop(self.relu(self.relu(self.conv(f)) + f))

    graph = network_graph(lifted(Block(), GroupPool()), X)
    nodes = {node['name']: node for node in graph['nodes']}
    assert [*nodes] == ['0', '1.conv', '1.relu', '1.add', '1.relu_2', '2']
    assert nodes['1.add']['inputs'] == ['1.relu', '0'] and nodes['2']['inputs'] == ['1.relu_2']
    assert nodes['1.conv']['title'].startswith('GroupConv2d(4, 4, kernel_size=3, group=C4')
    assert nodes['2']['type'] == 'GroupPool' and nodes['2']['shape'] == [4, 10, 10]


def test_network_stays_as_it_was():
    "It runs as at inference, and its modes, statistics, gradients and hooks are not touched."
    net = lifted(nn.BatchNorm3d(4), nn.ReLU(inplace=True), nn.Dropout(.9))
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    x = -X
    first, second = network_graph(net, x), network_graph(net, x)
    assert first == second and torch.equal(x, -X)
    assert [m.training for m in net] == [True, False, True, True]
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert net(X).requires_grad and not nn.modules.module._global_forward_hooks
    assert [node['op'] for node in first['nodes']] == ['convolution', 'scale', 'relu']


@pytest.mark.parametrize('factor', (1e-30, 1., 1e30))
def test_two_bytes_are_right_to_half_a_step_of_the_largest(factor):
    net = nn.Sequential(nn.Conv2d(1, 4, 3))
    nn.init.normal_(net[0].weight, std=factor)
    graph = network_graph(net, X)
    stored = graph['tensors'][graph['nodes'][0]['weights']['filter']]
    values = np.frombuffer(base64.b64decode(stored['data']), '<i2')*stored['step']
    want = net[0].weight.detach().flatten().double().numpy()
    assert stored['type'] == 'steps' and abs(values).max() == pytest.approx(abs(want).max())
    assert abs(values - want).max() <= abs(want).max()/32767*.501


def test_weights_that_are_all_zero_are_stored():
    net = nn.Sequential(nn.Conv2d(1, 2, 3))
    nn.init.zeros_(net[0].weight)
    graph = network_graph(net, X)
    assert graph['tensors'][graph['nodes'][0]['weights']['filter']]['step'] == 1


@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
def test_weight_that_is_no_number_is_refused(bad):
    net = lifted(GroupConv2d(4, 4, 3, 'p4'))
    net[1].weight.data[0, 0, 0, 0, 0] = bad
    with pytest.raises(ValueError, match='^1 has a weight that is NaN or infinite'):
        network_graph(net, X)


class NotTurned(KernelGenerator):
    "Wrong on purpose: kernels that lie the same way at every pose."
    def tables(self): return dict(moved=super().tables()['moved'][:1].repeat(4, 1))


def test_twin_with_other_tables_differs_in_its_tables_alone():
    torch.manual_seed(0)
    right = perturb_(lifted(E4Conv2d(4, 4, 3, 'p4')))
    broken = lifted(E4Conv2d(4, 4, 3, 'p4'))
    broken[1].generate = NotTurned(4, 3, 'p4')
    broken.load_state_dict(right.state_dict())
    nodes = [network_graph(net, X)['nodes'] for net in (right, broken)]
    for a, b in zip(*nodes, strict=True):
        assert a['weights'] == b['weights']
        assert (a['tables'] == b['tables']) == (a['op'] != 'write_kernels')


def test_twin_whose_filters_do_not_permute_brings_one_more_table():
    right = perturb_(two_layers())
    broken = two_layers(NoPermutation)
    broken.load_state_dict(right.state_dict())
    graphs = [network_graph(net, X) for net in (right, broken)]
    a, b = (graph['nodes'][2] for graph in graphs)
    assert a['weights'] == b['weights'] and a['tables'] != b['tables']
    assert len(graphs[0]['tensors'] | graphs[1]['tensors']) == len(graphs[0]['tensors']) + 1


class Turned(GroupConv2d):
    "Filters that are no entries of the weight."
    def filters(self): return super().filters().softmax(-1)


class Other(GroupPool):
    def forward(self, f): return super().forward(f).erfinv()


UNKNOWN = {
    r"the function 'erfinv', at 1 \(Other\)": lambda: lifted(Other()),
    r"filters that are not entries of the weight, at 1 \(Turned\)":
        lambda: lifted(Turned(4, 4, 3, 'p4')),
    r"attend='full', at 1 \(AttentiveGroupConv2d\)":
        lambda: lifted(AttentiveGroupConv2d(4, 4, 3, 'p4')),
    r"the function 'gt', at 1 \(Does\)": lambda: lifted(Does(lambda f: f if f > 0 else -f)),
    r"the function 'item'": lambda: lifted(Does(lambda f: f*f.amax((1, 2, 3, 4)).item())),
    r"the function 'numpy'": lambda: lifted(Does(lambda f: torch.tensor(f.numpy()))),
    'the places of maxima': lambda: lifted(Does(lambda f: f.max(1)[1] + f.amax(1))),
    'max without axes': lambda: lifted(Does(lambda f: f/f.max())),
    'mean over the pictures of a batch': lambda: lifted(Does(lambda f: f - f.mean(0))),
    'mixes the pictures of a batch': lambda: lifted(Does(lambda f: f.flatten(0, 1))),
    'joining pictures': lambda: lifted(Does(lambda f: torch.cat([f, f]))),
    'moving the batch axis': lambda: lifted(Does(lambda f: f.transpose(0, 1))),
    'indexing with a tensor': lambda: lifted(Does(lambda f: f[:, torch.tensor([1, 0])])),
    'a batch norm without running': lambda: lifted(nn.BatchNorm3d(4, track_running_stats=False)),
    'dropout that is always on': lambda: lifted(Does(nn.functional.dropout)),
    "'add' of numbers that were changed in place behind a view":
        lambda: lifted(Does(lambda f: (f.flatten(1).relu_(), f + 1)[1])),
    'an output that was changed in place behind a view':
        lambda: lifted(Does(lambda f: (f.flatten(1).relu_(), f)[1])),
    'a pool with ceil_mode, or means of what lies inside':
        lambda: nn.Sequential(nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
    'a pool with dilation or ceil_mode': lambda: nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True)),
    'one tensor that depends on the picture': lambda: lifted(Does(lambda f: (f, f))),
    'depends on the picture, got Tensor': lambda: lifted(Does(lambda f: torch.ones(1, 3))),
    'layers of the network are on C4 and D4':
        lambda: lifted(GroupPool(), LiftingConv2d(4, 1, 3, 'p4m')),
}


@pytest.mark.parametrize('message', UNKNOWN)
def test_what_the_engine_does_not_know_is_named(message):
    hooks = len(nn.modules.module._global_forward_hooks)
    net = UNKNOWN[message]()
    with pytest.raises(UnknownLayer, match=message) as caught: network_graph(net, X)
    if ' at ' in message: assert 'EquivariantConv2d' in str(caught.value)
    assert len(nn.modules.module._global_forward_hooks) == hooks


def test_a_view_that_is_changed_in_place_is_followed():
    graph = network_graph(lifted(Does(lambda f: f.flatten(1).relu_())), X)
    assert [node['op'] for node in graph['nodes']] == ['convolution', 'reshape', 'relu']


def test_a_constant_that_is_written_into_travels_as_it_was():
    net = lifted(Does(lambda f: torch.ones(1, 4, 4, 10, 10).add_(f)))
    graph = network_graph(net, X, 'single')
    assert [node['op'] for node in graph['nodes']] == ['convolution', 'constant', 'add']
    value = graph['tensors'][graph['nodes'][1]['weights']['value']]
    assert (np.frombuffer(base64.b64decode(value['data']), '<f4') == 1).all()


def test_layer_that_is_not_what_its_class_says_is_refused():
    class Swapped(E4Conv2d):
        def kernels(self, f): return super().kernels(f).flip(2)

    with pytest.raises(UnknownLayer, match='computes something else than its class, at 1'):
        network_graph(lifted(Swapped(4, 4, 3, 'p4')), X)


@pytest.mark.parametrize('bad, message', [
    (dict(example=X[0]), r'one picture \(1, c, h, w\) as an example, got shape \(1, 12, 12\)'),
    (dict(example=torch.rand(2, 1, 12, 12)), 'got shape'),
    (dict(weights='quarter'), "expected one of 'steps', 'bytes', 'single', got 'quarter'")])
def test_bad_arguments_get_an_answer(bad, message):
    given = dict(net=lifted(), example=X) | bad
    with pytest.raises(ValueError, match=message): network_graph(**given)


# --- a chapter that exports a layer defines it again

def again(cls, *bases, **changes):
    "The class as a notebook defines it, perhaps on other bases, or with other functions."
    return type(cls)(cls.__name__, bases or cls.__bases__,
                     {**vars(cls), '__module__': '__main__', **changes})


def test_layer_that_is_defined_again_is_known():
    attention = perturb_(GroupSelfAttention2d(4, 4, 'p4', window=3, heads=2))
    for layer, twin in [
            (perturb_(E4Conv2d(4, 4, 3, 'p4')), again(E4Conv2d)),
            (attention, again(GroupSelfAttention2d, again(EquivariantSelfAttention2d)))]:
        known = network_graph(lifted(layer), X)
        layer.__class__ = twin
        assert not isinstance(layer, E4Conv2d | EquivariantSelfAttention2d)
        graph = network_graph(lifted(layer), X)
        ops = [[node['op'] for node in g['nodes']] for g in (known, graph)]
        assert ops[0] == ops[1] and {'window_sum', 'self_attention'} & {*ops[1]}


def test_layer_that_only_looks_like_one_is_refused():
    layer = perturb_(E4Conv2d(4, 4, 3, 'p4'))
    layer.__class__ = again(E4Conv2d, kernels=lambda self, f: 2*E4Conv2d.kernels(self, f))
    with pytest.raises(UnknownLayer, match='computes something else than its class, at 1'):
        network_graph(lifted(layer), X)
    layer.__class__ = again(E4Conv2d, forward=lambda self, f: f.sort(1)[0])
    with pytest.raises(UnknownLayer): network_graph(lifted(layer), X)
