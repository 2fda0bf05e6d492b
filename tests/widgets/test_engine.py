"The engine in a browser: equal to torch, and to itself under the group."
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from nn.every_layer import EXAMPLES
from safetensors.torch import load_file
from torch import nn

from eqtutor.actions import act, rotate
from eqtutor.cost import count_macs
from eqtutor.equivariance import perturb_
from eqtutor.groups import get_group
from eqtutor.models.registry import build_model, get_model
from eqtutor.nn import (
    AttentiveGroupConv2d,
    AttentiveLiftingConv2d,
    E4Conv2d,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupConvTranspose2d,
    GroupLayerNorm2d,
    GroupPool,
    GroupSelfAttention2d,
    LiftingConv2d,
    SelfAttention2d,
    SpatialPool2d,
    VectorLiftingConv2d,
    VectorProjectionConv2d,
)
from eqtutor.nn.dynamic import PerElementNorm
from eqtutor.train import load_weights
from eqtutor.widgets.graph import network_graph

from .engine_page import SOURCE, tensor_of
from .examples import NoPermutation

WEIGHTS = Path(__file__).parents[2]/'results'/'weights'
TOLERANCE = dict(single=1e-5, steps=2e-3)


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


def slow(*names): return [pytest.param(name, marks=pytest.mark.slow) for name in names]


LARGE = 'GroupSelfAttention2d C8 None', 'LiftingSelfAttention2d C8 None'
SMALL = [name for name in KNOWN if name not in LARGE]


def check_as_torch(engine, net, x, group, turned):
    "What the engine makes of each turned input, and what two bytes a weight make of the first."
    for h, value in turned.items():
        assert error(value, torch_says(net, act(group, h, x))) <= TOLERANCE['single']
        assert error(value, act(group, h, turned[0][None])[0]) < 1e-6
    rough = engine.run(network_graph(net.float(), x), x)[0]
    far = error(rough, torch_says(net, x))
    print(f'in two bytes {far:.1e}')
    assert 0 < far <= TOLERANCE['steps']


@pytest.mark.parametrize('name', [*SMALL, *OTHERS, *slow(*LARGE)])
def test_layer_is_the_one_of_torch_for_every_element(engine, name):
    net, x = make(name), torch.randn(1, 4, 9, 9)
    group = get_group(next(m.group for m in net.modules() if hasattr(m, 'group')))
    turned = engine.turned(network_graph(net, x, 'single'), group, x)
    assert len(turned) == sum(m.equal(m.round()) for m in group.matrices)
    check_as_torch(engine, net, x, group, turned)


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
        y += nn.functional.adaptive_max_pool2d(y, 1)
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
SLOW = ('p4-all-cnn', 'p4m-resnet44', 'p4-resnet29-se', 'p4m-densenet', 'alpha-F-p4-densenet',
        'p4-e4-resnet18', 'gsa-z2', 'gsa-r4', 'gsa-r8')


@pytest.mark.parametrize('name', [*FAST, *slow(*SLOW)])
def test_network_is_the_one_of_torch_for_every_element(engine, name):
    net, x = network(name), torch.rand(1, *get_model(name).input_shape)
    graph = network_graph(net, x, 'single')
    group = get_group(graph['group']['name'])
    turned = engine.turned(graph, group, x)
    assert len(turned) == (len(group) if group.is_grid else 4)
    check_as_torch(engine, net, x, group, turned)


def test_what_the_network_makes_of_a_picture_depends_on_it(engine):
    "Equal outputs for all inputs would be equivariant, too."
    graph = network_graph(network('p4-cnn'), torch.rand(1, 1, 28, 28))
    one, other = engine.run(graph, torch.rand(1, 1, 28, 28), torch.rand(1, 1, 28, 28))
    assert error(one, other) > 1e-2


def test_every_layer_of_a_network_is_the_one_of_torch(engine):
    net, x, seen = network('p4-cnn').double().eval(), torch.rand(1, 1, 28, 28).double(), {}
    graph = network_graph(net, x, 'single')
    hooks = [m.register_forward_hook(lambda m, args, y, path=path: seen.update({path: y[0]}))
             for path, m in net.named_modules() if not list(m.children())]
    torch_says(net, x)
    for hook in hooks: hook.remove()
    got = engine.ask('''(graph, x) => {
      const network = readNetwork(graph);
      const values = network.run(x);
      return graph.nodes.map(({ name, type, shape }) => {
        return { name, type, shape, data: [...values.get(name).data] };
      });
    }''', graph, x.flatten().tolist())
    named = [layer for layer in got if layer['name'] in seen]
    assert len(named) == 20 and got[0]['type'] == 'LiftingConv2d'
    for layer in named: assert error(tensor_of(layer), seen[layer['name']].detach()) < 1e-6


# --- speed

FRAMES = '''(graphs, x, products) => {
  const networks = graphs.map(readNetwork);
  const a = new Float64Array(1000).fill(0.5), b = new Float64Array(1000).fill(0.25);
  const loop = () => {
    let sum = 0;
    for (let n = 0; n < products; n += 1000)
      for (let i = 0; i < 1000; i++) sum += a[i] * b[i];
    return sum;
  };
  const took = step => {
    const start = performance.now();
    step();
    return performance.now() - start;
  };
  const frame = () => networks.forEach(network => network.run(x));
  const rounds = Array.from({ length: 30 }, () => [took(frame), took(loop)]);
  return [0, 1].map(i => Math.min(...rounds.map(times => times[i])));
}'''


def in_plain_loops(engine, *names):
    "A frame of some networks beside a loop of as many products: the fastest of each, in turn."
    x = torch.rand(1, 1, 28, 28)
    nets = [network(name) for name in names]
    graphs, products = [network_graph(net, x) for net in nets], sum(count_macs(n, x) for n in nets)
    frame, loop = engine.ask(FRAMES, graphs, x.flatten().tolist(), products)
    print(*names, f'{frame/loop:.1f} × a loop of {products:,} products')
    return frame/loop


@pytest.mark.parametrize('names', [['p4-cnn'], ['p4-cnn', 'p4-cnn', 'z2-cnn']], ids=len)
def test_a_drag_is_smooth(engine, names):
    "A busy machine may spoil one measurement, not all."
    assert any(in_plain_loops(engine, *names) < 1.5 for _ in range(4))


# --- how pictures move

ANGLES = 0, 37, 45, 90, 127.5, 180, 270, 360, 450, -90, -400


@pytest.mark.parametrize('shape', [(2, 9, 9), (1, 8, 8), (1, 5, 8)], ids=str)
def test_picture_turns_as_in_torch(engine, shape):
    x = torch.randn(1, *shape, dtype=torch.float64)
    got = engine.ask('''(data, shape, angles) => angles.map(angle => {
      const turned = rotate(data, shape, angle);
      return { data: [...turned.data], shape: turned.shape };
    })''', x.flatten().tolist(), list(shape), list(ANGLES))
    for angle, value in zip(ANGLES, got):
        want = rotate(x, angle)[0]
        difference = (tensor_of(value) - want).abs().max()
        assert difference == 0 if angle % 90 == 0 else difference < 1e-12


def test_shares_of_scores(engine):
    shares = engine.ask('scores => softmax(scores)', [1000., 1001., 999.])
    assert error(torch.tensor(shares), torch.tensor([1., 2., 0.]).softmax(0)) < 1e-7


# --- one value, and where it comes from

EXPLAIN = '''(graph, x, name, place) => {
  const network = readNetwork(graph);
  const found = network.explain(network.run(x, name), name, place);
  if (!found) return found;
  found.terms.forEach(term => {
    term.filter = [...term.filter];
    term.patch = [...term.patch];
  });
  return found;
}'''


def products(term):
    return sum(w*value for w, value in zip(term['filter'], term['patch'], strict=True))


@pytest.mark.parametrize('place', [[2, 3, 0, 0], [0, 1, 5, 7], [1, 0, 9, 9]], ids=str)
def test_value_of_a_convolution_is_explained(engine, place):
    net = perturb_(nn.Sequential(LiftingConv2d(2, 3, 3, 'p4'),
                                 GroupConv2d(3, 4, 5, 'p4', padding=2)))
    x, (c, g, row, column) = torch.randn(1, 2, 12, 12), place
    found = engine.ask(EXPLAIN, network_graph(net, x, 'single'), x.flatten().tolist(), '1', place)
    bias, bank = net[1].bias[c].item(), net[1].filters().detach().view(4, 4, 3, 4, 25)
    value = torch_says(net, x)[c, g, row, column].item()
    assert found['value'] == pytest.approx(value, rel=1e-6)
    assert found['bias'] == pytest.approx(bias, rel=1e-6)
    assert found['value'] == pytest.approx(found['bias'] + sum(map(products, found['terms'])))
    pairs = [(t['channel'], t['pose']) for t in found['terms']]
    assert pairs == [(i, q) for i in range(3) for q in range(4)]
    for t in found['terms']:
        assert t['size'] == [5, 5] and t['sum'] == pytest.approx(products(t))
        assert error(torch.tensor(t['filter']), bank[c, g, t['channel'], t['pose']]) < 1e-6


def test_written_kernel_is_explained(engine):
    net = perturb_(on_group(E4Conv2d(4, 4, 3, 'p4', slices=2), 'p4'))
    x, (c, g, row, column) = torch.randn(1, 4, 8, 8), (3, 2, 0, 5)
    graph = network_graph(net, x, 'single')
    name = next(node['name'] for node in graph['nodes'] if node['op'] == 'window_sum')
    found = engine.ask(EXPLAIN, graph, x.flatten().tolist(), name, [c, g, row, column])
    with torch.no_grad(): kernel = net[1].kernels(net[0](x))[0, c//2, :, g, row, column]
    [term] = found['terms']
    assert error(torch.tensor(term['filter']), kernel) < 1e-5
    assert found['value'] == pytest.approx(torch_says(net, x)[c, g, row, column].item(), rel=1e-5)
    assert engine.ask(EXPLAIN, graph, x.flatten().tolist(), '1.generate.relu', [0]*4) is None


@pytest.mark.parametrize('window', [3, None])
@pytest.mark.parametrize('encoding', ['relative', 'target'])
def test_attention_of_a_clicked_pixel(engine, window, encoding):
    layer = GroupSelfAttention2d(4, 4, 'p4', window=window, heads=2, encoding=encoding, extent=6)
    net, x = perturb_(on_group(layer, 'p4')), torch.randn(1, 4, 6, 6)
    graph, (row, column) = network_graph(net, x, 'single'), (0, 4)
    with torch.no_grad(): want = layer.attention(net[0](x), row, column)[0]
    for head, pose in (0, 0), (1, 3):
        got = tensor_of(engine.ask('''(graph, x, place, head, pose) => {
          const network = readNetwork(graph);
          const weights = network.attention(network.run(x, '1'), '1', place, head, pose);
          return { data: [...weights.data], shape: weights.shape };
        }''', graph, x.flatten().tolist(), [row, column], head, pose))
        if window is None: got = got[..., 5 - row:11 - row, 5 - column:11 - column]
        assert torch.allclose(got.sum((1, 2, 3)), torch.ones(4).double())
        assert error(got, want[head, pose]) < 1e-5


# --- whom every pixel listens to

LISTEN = '''(graph, x, name) => {
  const network = readNetwork(graph);
  const heard = network.listen(network.run(x, name), name);
  const { rows, columns, heads, poses, queries, reach, signed } = heard;
  const maps = [];
  for (let head = 0; head < heads; head++)
    for (let pose = 0; pose < poses; pose++)
      for (let row = 0; row < rows; row++)
        for (let column = 0; column < columns; column++)
          maps.push(...heard.at([row, column], head, pose));
  const places = [rows, columns];
  return { data: maps, shape: [heads, poses, ...places, ...places], queries, poses, reach, signed };
}'''


def every_pixel(engine, net, x, name):
    "Maps `(heads, poses, row, column, h, w)`: what each pixel of the image listens to."
    graph = network_graph(net, x, 'single')
    got = engine.ask(LISTEN, graph, x.flatten().tolist(), name)
    return tensor_of(got), got


ENCODINGS = {
    'none': dict(encoding='none'), 'absolute': dict(encoding='absolute', size=(6, 6)),
    'relative': dict(encoding='relative', size=(7, 8)),
    'relative in windows': dict(encoding='relative', window=3),
    'none in windows': dict(encoding='none', window=5, bias=False)}


@pytest.mark.parametrize('name', ENCODINGS)
def test_every_pixel_listens_as_in_torch_under_each_encoding(engine, name):
    torch.manual_seed(0)
    layer = perturb_(SelfAttention2d(4, 6, heads=2, **ENCODINGS[name])).double()
    x = torch.randn(1, 4, 6, 6).double()
    got, said = every_pixel(engine, nn.Sequential(layer), x, '0')
    with torch.no_grad(): want = layer.attention(x)[0]
    want = want.movedim(1, -1)      # `(heads, h, w, sources)`
    if layer.window:
        whole, half = torch.zeros(2, 6, 6, 6 + 2*2, 6 + 2*2).double(), layer.window//2
        for (h, r, c) in torch.cartesian_prod(*map(torch.arange, (2, 6, 6))).tolist():
            at = want[h, r, c].view(layer.window, layer.window)
            whole[h, r, c, 2 + r - half:3 + r + half, 2 + c - half:3 + c + half] = at
        want = whole[..., 2:-2, 2:-2]
    assert error(got[:, 0], want.reshape(2, 6, 6, 6, 6)) < 1e-5
    assert torch.allclose(got.sum((-1, -2)), torch.ones(2, 1, 6, 6).double())
    assert said['poses'] == said['queries'] == 1 and not said['signed']
    check_as_torch(engine, nn.Sequential(layer), x.float(), get_group('Z2'),
                   {0: engine.run(network_graph(nn.Sequential(layer), x, 'single'), x)[0]})


@pytest.mark.parametrize('window', [3, None])
@pytest.mark.parametrize('encoding', ['relative', 'target', 'printed'])
def test_every_pixel_listens_as_in_torch_on_the_group(engine, encoding, window):
    torch.manual_seed(0)
    layer = GroupSelfAttention2d(4, 4, 'p4', window=window, heads=2, encoding=encoding, extent=5)
    net, x = perturb_(on_group(layer, 'p4')).double(), torch.randn(1, 4, 5, 5).double()
    got, said = every_pixel(engine, net, x, '1')
    with torch.no_grad(): f = net[0](x)
    reach = said['reach'][0]
    for row, column in (0, 0), (2, 4), (3, 1):
        with torch.no_grad(): want = layer.attention(f, row, column)[0].sum(3).mean(2)
        at = got[:, :, row, column]
        if window:
            padded = nn.functional.pad(at, [reach]*4)
            at = padded[..., row:row + window, column:column + window]
        assert error(at, want) < 1e-5
    assert torch.allclose(got.sum((-1, -2)), torch.ones(2, 4, 5, 5).double())


def test_every_pixel_writes_the_kernel_of_torch(engine):
    torch.manual_seed(0)
    net = perturb_(on_group(E4Conv2d(4, 4, 3, 'p4', slices=2), 'p4')).double()
    x = torch.randn(1, 4, 6, 6).double()
    graph = network_graph(net, x, 'single')
    name = next(node['name'] for node in graph['nodes'] if node['op'] == 'window_sum')
    got, said = every_pixel(engine, net, x, name)
    with torch.no_grad(): want = net[1].kernels(net[0](x))[0]     # `(s, v, g, h, w)`
    assert said['signed'] and said['poses'] == 4
    padded = nn.functional.pad(got, [1]*4)
    for row, column in torch.cartesian_prod(torch.arange(6), torch.arange(6)).tolist():
        at = padded[:, :, row, column, row:row + 3, column:column + 3]
        inside = nn.functional.pad(torch.ones(6, 6), [1]*4)[row:row + 3, column:column + 3]
        laid = want[..., row, column].movedim(1, -1).unflatten(-1, (3, 3))*inside
        assert error(at, laid) < 1e-5


PAIR = '''(graph, x, name, from, to, head, pose) => {
  const network = readNetwork(graph);
  const heard = network.listen(network.run(x, name), name);
  const { query, key, encoding, ...pair } = heard.pair(from, to, head, pose);
  const weight = heard.at(from, head, pose)[to[0] * heard.columns + to[1]];
  return { ...pair, query: [...query], key: [...key], encoding: [...encoding], sum: weight };
}'''


def test_a_pair_is_query_times_key_and_encoding(engine):
    torch.manual_seed(0)
    layer = perturb_(SelfAttention2d(4, 6, heads=2, size=(6, 6))).double()
    x = torch.randn(1, 4, 6, 6).double()
    graph, (row, column), (to, there) = network_graph(layer, x, 'single'), (1, 4), (5, 0)
    got = engine.ask(PAIR, graph, x.flatten().tolist(), graph['nodes'][-1]['name'],
                     [row, column], [to, there], 1, 0)
    with torch.no_grad():
        q, k, _ = layer.maps(x)
        rho = layer.relative.table[1, :, to - row + 5, there - column + 5]
        weight = layer.attention(x)[0, 1, 6*to + there, row, column].item()
    scale = layer.maps.scale
    assert error(torch.tensor(got['query'])*scale, q[0, 1, :, row, column]) < 1e-5
    assert error(torch.tensor(got['key']), k[0, 1, :, to, there]) < 1e-5
    assert error(torch.tensor(got['encoding']), rho) < 1e-5
    assert got['weight'] == pytest.approx(weight, rel=1e-4) == pytest.approx(got['sum'], rel=1e-4)
    want = (q[0, 1, :, row, column] @ (k[0, 1, :, to, there] + rho)).item()
    assert got['score'] == pytest.approx(want, rel=1e-4)


def test_a_layer_that_neither_attends_nor_writes_has_nobody_to_listen_to(engine):
    graph = network_graph(nn.Sequential(nn.Conv2d(1, 2, 3)), torch.rand(1, 1, 6, 6))
    asked = '(graph, x) => { const n = readNetwork(graph); return n.listen(n.run(x), "0"); }'
    assert engine.ask(asked, graph, [0.]*36) is None


# --- graphs that are not in order

def node(graph, **changes): return graph | dict(nodes=[graph['nodes'][0] | changes])


def with_tensors(graph, **changes):
    return graph | dict(tensors={key: t | changes for key, t in graph['tensors'].items()})


BAD = {
    'expected format 2, got 1': lambda g: g | dict(format=1),
    'one of the operations .*, got constructor': lambda g: node(g, op='constructor'),
    'one of the operations .*, got __proto__': lambda g: node(g, op='__proto__'),
    '0 reads other, which no node before it computes': lambda g: node(g, inputs=['other']),
    'there is no node constructor': lambda g: g | dict(output='constructor'),
    'there is no tensor toString': lambda g: node(g, weights=dict(filter='toString')),
    'expected a shape of whole numbers': lambda g: node(g, shape=[2, 1, 4, -4]),
    'expected 36 bytes, got 3': lambda g: with_tensors(g, data='AAAA'),
    'one of the types .*, got code': lambda g: with_tensors(g, type='code'),
    'a weight is infinite or not a number': lambda g: with_tensors(g, step='x'),
}


@pytest.mark.parametrize('message', BAD)
def test_graph_that_is_not_in_order_is_refused(engine, message):
    graph = network_graph(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False)), torch.rand(1, 1, 6, 6))
    assert engine.run(graph, torch.rand(36))[0].shape == (2, 4, 4)
    with pytest.raises(Exception, match=message):
        engine.run(BAD[message](graph), torch.rand(36))


def test_picture_of_another_size_is_refused(engine):
    graph = network_graph(nn.Sequential(nn.Conv2d(1, 2, 3)), torch.rand(1, 1, 6, 6))
    with pytest.raises(Exception, match='expected a picture of 1×6×6 numbers, got 25'):
        engine.run(graph, torch.rand(25))


def test_names_are_text(engine):
    "Whatever a graph is called, nothing of it runs."
    name = '<img src=x onerror="window.broken = 1">`${window.broken = 1}`'
    graph = network_graph(nn.Sequential(nn.Conv2d(1, 1, 1)), torch.rand(1, 1, 2, 2), name=name,
                          labels=[name])
    graph = node(graph, name=name, type=name, title=name) | dict(output=name)
    assert engine.run(graph, torch.rand(4))[0].shape == (1, 2, 2)
    assert engine.ask('() => window.broken ?? null') is None


def test_source_stands_alone():
    code = re.sub(r'//.*', '', SOURCE)
    words = r'\b(import|eval|Function|innerHTML|document|fetch|XMLHttpRequest|setTimeout)\b'
    assert re.findall(words, code) == []
    assert max(map(len, SOURCE.splitlines())) <= 100 and '</script' not in SOURCE


@pytest.mark.parametrize('options', [
    dict(kernel_size=2, stride=2), dict(kernel_size=3, stride=2, padding=1, output_padding=1),
    dict(kernel_size=3, dilation=2, bias=False)])
def test_a_transposed_convolution(engine, options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.ConvTranspose2d(3, 2, **options))
    x = torch.randn(1, 1, 9, 7)
    [got] = engine.run(network_graph(net, x, 'single'), x)
    want = torch_says(net, x)
    assert got.shape == want.shape and error(got, want) < TOLERANCE['single']


def test_a_transposed_convolution_on_a_group(engine):
    torch.manual_seed(0)
    net = on_group(GroupConvTranspose2d(4, 2, 2, 'p4', stride=2), 'p4', 1)
    x = torch.randn(1, 1, 6, 6)
    [got] = engine.run(network_graph(net, x, 'single'), x)
    assert error(got, torch_says(net, x)) < TOLERANCE['single']


def test_weights_of_one_byte_keep_the_answer_and_the_symmetry(engine):
    net = load_weights(get_model('p4-cnn').make(), 'p4-cnn-rotmnist').eval()
    x = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    graphs = [network_graph(net, x, weights) for weights in ('bytes', 'steps')]
    small, large = (sum(len(t['data']) for t in g['tensors'].values()) for g in graphs)
    assert small < .7*large
    moved = engine.turned(graphs[0], get_group('p4'), x)
    for value in moved.values(): assert error(value, moved[0]) < 1e-12
    assert 0 < error(moved[0], torch_says(net, x)) < .1


@pytest.mark.parametrize('make', [
    lambda: nn.Sequential(VectorLiftingConv2d(2, 4, 3, 'p4', padding=1), nn.ReLU(),
                          GroupConv2d(4, 2, 3, 'p4', padding=1)),
    lambda: on_group(VectorProjectionConv2d(4, 2, 3, 'p4', padding=1), 'p4', 2)],
    ids=('arrows in', 'arrows out'))
def test_arrows(engine, make):
    torch.manual_seed(0)
    net, x = make(), torch.randn(1, 2, 9, 9)
    [got] = engine.run(network_graph(net, x, 'single'), x)
    assert error(got, torch_says(net, x)) < TOLERANCE['single']
