"Networks as plain torch: the same numbers, for any number of images, and nothing of eqtutor."
import time
from copy import deepcopy
from functools import partial
from statistics import median

import pytest
import torch
from safetensors.torch import load_file
from torch import fx, nn

from eqtutor.equivariance import perturb_
from eqtutor.export import FrozenConv2d, export_network, fold, to_plain
from eqtutor.models.backbones import DenseNet, resnet18, resnet29
from eqtutor.models.e4 import e4_net
from eqtutor.models.group_cnn import AllCNN, p4_cnn
from eqtutor.models.registry import MODELS, build_model
from eqtutor.nn import (
    AttentiveGroupConv2d,
    E4Conv2d,
    GroupAffineSelfConv2d,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupPool,
    GroupSelfAttention2d,
    GroupSimpleAffineSelfConv2d,
    LiftingConv2d,
    ProjectionConv2d,
    SpatialPool2d,
)
from eqtutor.report import exact_sizes
from eqtutor.trace import record_calls

EXTRA = "ONNX is an extra: pip install 'eqtutor[onnx]'"


class Branches(nn.Module):
    "Two outputs, a shortcut, a norm that does not follow a convolution alone."
    def __init__(self):
        super().__init__()
        self.lift, self.norm = LiftingConv2d(2, 4, 3, 'p4m', padding=1), GroupBatchNorm2d(4)
        self.conv = GroupConv2d(4, 4, 3, 'p4m', padding=1, dilation=1)
        self.pool = SpatialPool2d(2, 'p4m', reduce='mean')
        self.head = ProjectionConv2d(4, 3, 1, 'p4m')

    def forward(self, x):
        f = self.lift(x)
        f = self.norm(f) + f.relu()
        high = self.pool(self.conv(f).relu_() + f)
        return dict(out=self.head(high), low=(f.reshape(len(f), -1).mean(1), high.chunk(2, 1)[1]))


def attentive():
    attend = AttentiveGroupConv2d(4, 4, 3, 'p4', padding=1, attend='input')
    return nn.Sequential(LiftingConv2d(1, 4, 3, 'p4', padding=1), nn.ReLU(), GroupBatchNorm2d(4),
                         attend, GroupPool())

def round_and_round():
    "Off the pixel grid, and without a rim."
    circular = dict(padding=1, padding_mode='circular')
    return nn.Sequential(LiftingConv2d(2, 3, 3, 'C8', **circular), GroupBatchNorm2d(3), nn.ReLU(),
                         GroupConv2d(3, 4, 3, 'C8', bias=False, **circular),
                         ProjectionConv2d(4, 2, 1, 'C8'))

NETWORKS = {
    'p4-CNN': (p4_cnn, (1, 28, 28)),
    'ResNet18': (lambda: resnet18('p4', (4, 4, 8, 8)), (3, 16, 16)),
    'Bottleneck': (lambda: resnet29('p4m', (2, 2, 4)), (3, 8, 8)),
    'DenseNet': (lambda: DenseNet('p4', 3, stages=3), (3, 8, 8)),
    'All-CNN': (lambda: AllCNN('Z2', (4, 8)), (3, 8, 8)),
    'C8, a torus': (round_and_round, (2, 8, 8)),
    'branches': (Branches, (2, 8, 8)), 'attention': (attentive, (1, 9, 9))}


def leaves(out):
    if isinstance(out, torch.Tensor): return [out]
    return [t for part in (out.values() if isinstance(out, dict) else out) for t in leaves(part)]


@pytest.mark.parametrize('expand', [True, False])
@pytest.mark.parametrize('fold', [True, False])
@pytest.mark.parametrize('name', NETWORKS)
def test_the_numbers_are_the_same(name, fold, expand):
    make, shape = NETWORKS[name]
    net = perturb_(make()).double().eval()
    plain = to_plain(net, fold, torch.randn(2, *shape).double(), expand)
    assert isinstance(plain, fx.GraphModule) and 'eqtutor' not in plain.code
    kinds = {type(m).__module__.split('.')[0] for m in plain.modules() if m is not plain}
    assert kinds == {'torch'}
    norms = [m for m in plain.modules() if isinstance(m, nn.BatchNorm3d)]
    if name == 'p4-CNN': assert len(norms) == (0 if fold else 6)
    for n in (1, 3):
        x = torch.randn(n, *shape).double()
        with torch.no_grad(): want = leaves(net(x))
        found = leaves(plain(x))
        assert len(found) == len(want)
        for a, b in zip(found, want): assert (a - b).abs().max() < 1e-10*b.abs().max()


@pytest.mark.parametrize('name', NETWORKS)
def test_folding_changes_the_network_and_not_its_numbers(name):
    make, shape = NETWORKS[name]
    net, x = perturb_(make()).double(), torch.randn(2, *shape).double()
    with torch.no_grad(): want = leaves(net.eval()(x))
    folded = fold(net, x)
    assert folded is net
    # what weighs an input reads the filters of its own small convolutions
    left = [n for n, m in net.named_modules() if type(m) is GroupConv2d and 'branch' not in n]
    assert left == []
    for a, b in zip(leaves(net(x)), want): assert (a - b).abs().max() < 1e-10*b.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize('batch, most', [(1, .58), (16, .9)])
def test_folding_saves_time(batch, most):
    net, x = perturb_(p4_cnn()).eval(), torch.randn(batch, 1, 28, 28)
    both = {False: net, True: fold(deepcopy(net), x)}
    seconds = {False: [], True: []}
    with torch.no_grad():
        for _ in range(60):
            for folded, n in both.items():
                start = time.process_time()
                n(x)
                seconds[folded].append(time.process_time() - start)
    ratio = median(seconds[True])/median(seconds[False])
    print(f'batch {batch}: {ratio:.2f} of the time')
    assert ratio < most


def test_a_convolution_that_stands_in_two_places_keeps_its_output():
    "In one of them a ReLU follows, in the other none."
    torch.manual_seed(0)
    conv = GroupConv2d(3, 3, 3, 'p4', padding=1)
    net = nn.Sequential(LiftingConv2d(1, 3, 3, 'p4'), nn.Sequential(conv, nn.ReLU()),
                        nn.Sequential(conv, nn.Tanh())).double().eval()
    x = torch.randn(2, 1, 9, 9).double()
    want = net(x)
    torch.testing.assert_close(fold(net, x)(x), want)


def test_a_layer_that_runs_twice_keeps_its_norm():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.conv = LiftingConv2d(1, 3, 3, 'p4'), GroupConv2d(3, 3, 3, 'p4')
            self.norm = GroupBatchNorm2d(3)

        def forward(self, x): return self.norm(self.conv(self.norm(self.conv(self.lift(x)))))
    net, x = perturb_(Twice()).double().eval(), torch.randn(2, 1, 9, 9).double()
    with torch.no_grad(): want = net(x)
    assert (fold(net, x)(x) - want).abs().max() < 1e-12*want.abs().max()
    assert type(net.norm) is GroupBatchNorm2d and type(net.conv) is FrozenConv2d


def test_the_network_stays_as_it_was():
    net = p4_cnn().train()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    to_plain(net, x=torch.randn(2, 1, 28, 28))
    assert net.training and all(torch.equal(t, before[n]) for n, t in net.state_dict().items())


def test_an_input_is_found_where_none_is_given():
    net = perturb_(p4_cnn()).eval()
    x = torch.randn(3, 1, 28, 28)
    assert (to_plain(net)(x) - net(x)).abs().max() < 1e-5*net(x).abs().max()


ATTENTION = {
    **{f'alpha, {a}': partial(AttentiveGroupConv2d, 4, 4, 3, 'p4', padding=1, attend=a)
       for a in ('full', 'channel', 'spatial', 'input', 'rotation')},
    'affine': partial(GroupAffineSelfConv2d, 4, 4, 3, 'p4', 2),
    'simple affine': partial(GroupSimpleAffineSelfConv2d, 4, 4, 3, 'p4', 2),
    'E4': partial(E4Conv2d, 4, 4, 3, 'p4'),
    'window': partial(GroupSelfAttention2d, 4, 4, 'p4', window=3),
    'whole image': partial(GroupSelfAttention2d, 4, 4, 'p4', window=None, extent=9),
    'no encoding': partial(GroupSelfAttention2d, 4, 4, 'p4', window=3, encoding='none')}

def attends(name):
    torch.manual_seed(0)
    return perturb_(nn.Sequential(LiftingConv2d(1, 4, 3, 'p4', padding=1), ATTENTION[name]()))

@pytest.mark.parametrize('name', ATTENTION)
def test_every_attention_becomes_operations_of_torch(name):
    net = attends(name).double().eval()
    plain = to_plain(net, x=torch.randn(2, 1, 9, 9).double())
    assert 'eqtutor' not in plain.code
    for n in (1, 5):
        x = torch.randn(n, 1, 9, 9).double()
        with torch.no_grad(): want = net(x)
        assert (plain(x) - want).abs().max() < 1e-10*want.abs().max()

@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_every_network_of_the_papers_has_a_plain_form(name):
    torch.manual_seed(0)
    net = perturb_(build_model(name)).double().eval()
    group = next((m.group for m in net.modules() if hasattr(m, 'group')), 'Z2')
    size = min(exact_sizes(net, group, near=24, count=3))
    pictures = torch.randn(3, MODELS[name].input_shape[0], size, size).double()
    plain = to_plain(net, x=pictures[:2])
    assert 'eqtutor' not in plain.code
    with torch.no_grad(): want = net(pictures)
    assert (plain(pictures) - want).abs().max() < 1e-9*want.abs().max()

def test_an_operator_of_ours_is_refused():
    class Peaks(nn.Module):
        def forward(self, f):
            psi = torch.ones(f.shape[2], f.shape[1], 1, 9)
            return torch.ops.eqtutor.pair_peaks(psi, f.transpose(1, 2), [3, 1, 1, 1])
    net = nn.Sequential(LiftingConv2d(1, 4, 3, 'p4'), Peaks())
    with pytest.raises(ValueError, match='pair_peaks.* is an operation of eqtutor'):
        to_plain(net, x=torch.randn(2, 1, 9, 9))

def test_a_record_of_shapes_holds_no_numbers():
    net, x = attends('alpha, full').eval(), torch.randn(2, 1, 9, 9)
    with torch.no_grad(): full, light = (record_calls(net, x, keep=k) for k in (True, False))
    assert [c.name for c in full] == [c.name for c in light]
    assert [c.sources for c in full] == [c.sources for c in light]
    pairs = [(s, t) for a, b in zip(full[:-1], light) for s, t in zip(a.outputs, b.outputs)]
    assert all(s.shape == t.shape and s.dtype == t.dtype for s, t in pairs)
    assert {t.device.type for _, t in pairs} == {'meta'}


def test_other_files_are_refused():
    with pytest.raises(ValueError, match="expected one of '.pt2'"):
        export_network(p4_cnn(), 'a.pth')


class ByValue(nn.Module):
    "Adds one where the first picture is bright: no graph can know."
    def forward(self, x): return x + 1 if x[0].mean() > 0 else x


def test_a_graph_that_would_compute_something_else_is_refused():
    torch.manual_seed(0)
    net = nn.Sequential(ByValue(), LiftingConv2d(1, 4, 3, 'p4'))
    with pytest.raises(ValueError, match='Sequential computes something else|branches'):
        for _ in range(8): to_plain(net, x=torch.randn(2, 1, 9, 9).abs())


@pytest.mark.parametrize('images', [1, 2, 5])
def test_what_e4_repeats_for_each_image_is_stored_once(images):
    torch.manual_seed(0)
    net = perturb_(e4_net()).double().eval()
    plain = to_plain(net, x=torch.randn(2, 1, 28, 28).double())
    x = torch.randn(images, 1, 28, 28).double()
    with torch.no_grad(): want = net(x)
    assert (plain(x) - want).abs().max() < 1e-9*want.abs().max()



@pytest.fixture(scope='module')
def net():
    torch.manual_seed(0)
    return perturb_(p4_cnn()).eval()

def same(net, run):
    for n in (1, 4):
        x = torch.randn(n, 1, 28, 28)
        with torch.no_grad(): want = net(x)
        assert (run(x) - want).abs().max() <= 1e-5*want.abs().max()

def test_export_writes_a_program(net, tmp_path):
    export_network(net, tmp_path/'net.pt2', torch.randn(2, 1, 28, 28))
    same(net, torch.export.load(tmp_path/'net.pt2').module())

@pytest.mark.parametrize('expand', [True, False])
def test_export_writes_onnx(expand, net, tmp_path):
    runtime = pytest.importorskip('onnxruntime', reason=EXTRA)
    pytest.importorskip('onnxscript', reason=EXTRA)
    export_network(net, tmp_path/'net.onnx', torch.randn(2, 1, 28, 28), expand)
    session = runtime.InferenceSession(tmp_path/'net.onnx', providers=['CPUExecutionProvider'])
    name = session.get_inputs()[0].name
    same(net, lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0]))

def test_attention_in_onnx(tmp_path):
    "Also a convolution over poses that has no bias."
    runtime = pytest.importorskip('onnxruntime', reason=EXTRA)
    pytest.importorskip('onnxscript', reason=EXTRA)
    for name in 'full', 'window':
        attention = f'alpha, {name}' if name == 'full' else name
        net = nn.Sequential(attends(attention), nn.Conv3d(4, 3, 1, bias=False)).eval()
        path = export_network(net, tmp_path/f'{name}.onnx', torch.randn(2, 1, 9, 9))
        session = runtime.InferenceSession(path, providers=['CPUExecutionProvider'])
        x = torch.randn(3, 1, 9, 9)
        with torch.no_grad(): want = net(x)
        got = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
        assert (got - want).abs().max() < 1e-5*want.abs().max()

def size(tensors): return sum(t.numel()*t.element_size() for t in tensors)

@pytest.mark.parametrize('suffix', ['.pt2', '.safetensors'])
def test_banks_are_written_out_or_kept_as_weights(suffix, tmp_path):
    "0.7, 5.7 and 0.8 MB are the sizes that `export_network` tells."
    torch.manual_seed(0)
    net = perturb_(resnet18('p4m', (8, 8, 16, 16))).eval()
    x = torch.randn(2, 3, 16, 16)
    large, small = (export_network(net, tmp_path/f'{expand}{suffix}', x, expand)
                    for expand in (True, False))
    own = size(net.parameters())
    assert round(own/1e6, 1) == .7
    if suffix != '.safetensors': assert large.stat().st_size > 3*small.stat().st_size
    else:
        assert round(large.stat().st_size/1e6, 1) == 5.7
        assert round(small.stat().st_size/1e6, 1) == .8
    if suffix == '.pt2':
        run = torch.export.load(small).module()
        for n in 1, 3:
            x = torch.randn(n, 3, 16, 16)
            with torch.no_grad(): want = net(x)
            assert (run(x) - want).abs().max() <= 1e-4*want.abs().max()

def test_weights_that_are_kept_move_with_the_graph(net):
    plain = to_plain(net, x=torch.randn(2, 1, 28, 28), expand=False)
    assert {t.device.type for t in plain.to('meta').state_dict().values()} == {'meta'}
    assert not any(isinstance(t, torch.Tensor) for m in plain.modules()
                   for t in vars(m).values()), 'tables are buffers'

def test_export_writes_weights(net, tmp_path):
    path = export_network(net, tmp_path/'net.safetensors', torch.randn(2, 1, 28, 28))
    tensors = load_file(path)
    assert sum(t.numel() for t in tensors.values()) > 90_000   # the banks, and not the filters
    plain = to_plain(net, x=torch.randn(2, 1, 28, 28))
    plain.load_state_dict(tensors)
    same(net, plain)
