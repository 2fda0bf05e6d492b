"""Training in several processes: two of them, with gloo, on a CPU.

Torch has kernels for synchronised batch norm on GPUs only. What a CPU can show: with group layer norm, or with group batch
norm in evaluation mode, two processes have exactly the gradient of one with the whole batch; unsynchronised batch norm in
training mode has not; and the layers that `sync_batch_norm` puts in have it again, when torch's own formula, written out
below in plain operations, stands in for the kernel.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

COMMON = r'''
import json, os, sys, warnings
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import TensorDataset
torch.set_num_threads(1)
from eqtutor.convolution import GroupConv2d, LiftingConv2d
from eqtutor.data import TensorLoader
from eqtutor.layers import GroupBatchNorm2d, GroupLayerNorm2d
from eqtutor.training import *
from eqtutor.training import _parallel

class Scores(nn.Module):
    "Mean over space and group: invariant scores."
    def forward(self, f): return f.mean((2, 3, 4))

def make(norm, dtype=torch.float64):
    seed_everything(0)
    net = nn.Sequential(LiftingConv2d(1, 4, 3, 'p4'), norm(4), nn.ReLU(), GroupConv2d(4, 4, 3, 'p4'), norm(4), nn.ReLU(),
                        GroupConv2d(4, 3, 3, 'p4'), Scores()).to(dtype)
    for m in net.modules():
        if isinstance(m, (GroupBatchNorm2d, GroupLayerNorm2d)): nn.init.normal_(m.weight); nn.init.normal_(m.bias)
        if isinstance(m, GroupBatchNorm2d): m.running_mean.normal_(); m.running_var.uniform_(.5, 2)
    return net

def images(n, dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(n, 1, 9, 9, generator=draw, dtype=dtype), torch.randint(3, (n,), generator=draw)

def vector(tensors): return torch.cat([t.detach().flatten().double() for t in tensors])
'''

GRADIENTS = COMMON + r'''
import torch.distributed as dist
from torch.nn import functional as F

class Total(torch.autograd.Function):
    "The sum over the processes. Each one's loss depends on it, so the gradients are summed as well."
    @staticmethod
    def forward(ctx, x): dist.all_reduce(x := x.clone()); return x
    @staticmethod
    def backward(ctx, g): dist.all_reduce(g := g.clone()); return g

def formula(self, x):
    "SyncBatchNorm's forward: statistics over all processes' (b, |H|, h, w), written out."
    if not self.training: return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0., self.eps)
    axes = [a for a in range(x.ndim) if a != 1]
    count = torch.tensor([x.numel() / x.shape[1]], dtype=x.dtype)
    total = torch.cat([count, x.sum(axes), (x * x).sum(axes)])
    if dist.is_initialized(): total = Total.apply(total)
    n, (mean, square) = total[0], (total[1:] / total[0]).chunk(2)
    var = square - mean**2
    with torch.no_grad():
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum); self.running_var.lerp_(var * n / (n - 1), self.momentum)
    wide = lambda t: t.view(-1, *[1] * (x.ndim - 2))
    return (x - wide(mean)) / (wide(var) + self.eps).sqrt() * wide(self.weight) + wide(self.bias)
nn.SyncBatchNorm.forward = formula
nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle = lambda *args: None   # it refuses CPUs

class Frozen(GroupBatchNorm2d):
    def train(self, mode=True): return super().train(False)

def step(norm, dtype, n, sync=False):
    "Gradient, buffers and loss of one step; the rate is 0, so the weights stay."
    net = make(norm, dtype)
    with accelerated(net, 'no') as accelerator:
        with _parallel(net, accelerator, False) if not sync else sync_batch_norm(net) as wrapped:
            if sync and accelerator.num_processes > 1: wrapped = accelerator.prepare_model(net)
            found = train_epoch(wrapped, [images(n, dtype)], torch.optim.SGD(net.parameters(), lr=0.), accelerator=accelerator)
    assert type(net[1]) is norm
    return dict(gradient=vector(p.grad for p in net.parameters()).tolist(), buffers=vector(net.buffers()).tolist() if list(net.buffers()) else [], **found)

f32, f64 = torch.float32, torch.float64
found = {}
for n in (8, 7):    # 7: the processes have 4 and 3 images
    found |= {f'layer norm {n}': step(GroupLayerNorm2d, f64, n), f'layer norm float32 {n}': step(GroupLayerNorm2d, f32, n),
              f'batch norm frozen {n}': step(Frozen, f64, n), f'batch norm alone {n}': step(GroupBatchNorm2d, f64, n),
              f'batch norm synchronised {n}': step(GroupBatchNorm2d, f64, n, sync=True)}
Path(sys.argv[1], f'{os.environ.get("RANK", "single")}.json').write_text(json.dumps(found))
'''

TRAIN = COMMON + r'''
out, epochs, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == 'resume'
x, y = images(22)
net = nn.Sequential(make(GroupLayerNorm2d), nn.Dropout(float(sys.argv[4])), nn.Linear(3, 3).double())
data, rank = TensorDataset(x, y), os.environ.get('RANK', 'single')
if rank == '1': seed_everything(5)   # weights must come from the first process
train = TensorLoader(data, 8, shuffle=True)
if 'nan' in sys.argv: train.tensors[0][11] = float('nan')   # one image: in one process's share
run = fit(net, train, TensorLoader(data, 5), epochs, lr=.01, optimizer='nesterov', ema=.5, clip=10., out=out/'run', resume=resume, bar=False)
weights = dict(net=vector(net.state_dict().values()).tolist(), ema=vector(run.ema.state_dict().values()).tolist(), history=run.history,
               random=torch.rand(1).item())
(out/f'{rank}-{epochs}-{sys.argv[3]}.json').write_text(json.dumps(weights))
'''

NOTEBOOK = r'''
import os, sys
from accelerate import notebook_launcher
import torch
torch.set_num_threads(1)
from eqtutor.data import TensorLoader, digits
from eqtutor.networks import z2_cnn
from eqtutor.training import fit, seed_everything

def train():
    seed_everything(0)
    data = TensorLoader(digits('valid'), 100, shuffle=True)
    run = fit(z2_cnn(4), data, data, 1, out=sys.argv[1], bar=False)
    assert run.header['hardware']['processes'] == int(os.environ.get('WORLD_SIZE', 1)), os.environ['WORLD_SIZE']

data = TensorLoader(digits('valid'), 100)
fit(z2_cnn(4), data, data, 1, bar=False)   # a run before, in the same kernel, must not stand in the way
os.environ['ACCELERATE_USE_CPU'] = 'true'
notebook_launcher(train, num_processes=2, use_port=sys.argv[2])
'''


def launch(tmp_path, script, *args, processes=2, fail=False):
    "Run a script alone or in two processes; its output."
    file = tmp_path/'script.py'
    file.write_text(script, encoding='utf-8')
    command = [sys.executable, file] if processes == 1 else \
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', processes, file]
    environ = {**os.environ, 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': '', 'PYTHONPATH': str(ROOT)}
    for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE'): environ.pop(name, None)
    done = subprocess.run([str(c) for c in [*command, *args]], env=environ, cwd=tmp_path, text=True, timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (done.returncode != 0) == fail, done.stdout[-4000:]
    return done.stdout


def load(tmp_path, name): return json.loads((tmp_path/f'{name}.json').read_text())

def distance(a, b): return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope='module')
def gradients(tmp_path_factory):
    folder = tmp_path_factory.mktemp('gradients')
    for processes in (1, 2): launch(folder, GRADIENTS, folder, processes=processes)
    return [load(folder, name) for name in ('single', '0', '1')]


@pytest.mark.parametrize('n', [8, 7], ids=['even', 'uneven'])
@pytest.mark.parametrize('norm, limit', [('layer norm', 1e-12), ('layer norm float32', 1e-6), ('batch norm frozen', 1e-12),
                                         ('batch norm synchronised', 1e-12)])
def test_gradient_is_that_of_the_whole_batch(gradients, norm, limit, n):
    single, first, second = (g[f'{norm} {n}'] for g in gradients)
    size = max(map(abs, single['gradient']))
    assert size > 1e-2, 'a gradient of zero would prove nothing'
    assert first['gradient'] == second['gradient'], 'the processes must step alike'
    assert distance(single['gradient'], first['gradient']) <= limit * max(1, size)
    assert abs(single['loss'] - first['loss']) <= limit * max(1, single['loss']) and single['accuracy'] == first['accuracy']
    if 'batch norm' in norm: assert distance(single['buffers'], first['buffers']) <= limit * 10


@pytest.mark.parametrize('n', [8, 7], ids=['even', 'uneven'])
def test_batch_norm_without_synchronisation_is_another_gradient(gradients, n):
    single, first, _ = (g[f'batch norm alone {n}'] for g in gradients)
    assert distance(single['gradient'], first['gradient']) > 1e-4
    formula = gradients[0][f'batch norm synchronised {n}']
    assert distance(single['gradient'], formula['gradient']) < 1e-12, "the formula is torch's own batch norm"
    assert distance(single['buffers'], formula['buffers']) < 1e-12


def test_a_run_of_two_processes_is_that_of_one(tmp_path):
    "Without dropout: same order, same batches, same steps; only the first process writes."
    for processes in (1, 2):
        (out := tmp_path/str(processes)).mkdir()
        launch(out, TRAIN, out, 3, 'new', 0, processes=processes)
    one, two, other = (load(tmp_path/d, f'{n}-3-new') for d, n in (('1', 'single'), ('2', '0'), ('2', '1')))
    for part in ('net', 'ema'):
        assert two[part] == other[part]
        assert distance(one[part], two[part]) < 1e-10
    for a, b, c in zip(one['history'], two['history'], other['history'], strict=True):
        assert abs(a['train_loss'] - b['train_loss']) < 1e-10 and abs(a['ema_loss'] - b['ema_loss']) < 1e-10
        assert a['valid_accuracy'] == b['valid_accuracy'] == c['valid_accuracy'] and b['valid_loss'] == c['valid_loss']
    assert sorted(p.name for p in (tmp_path/'2'/'run').iterdir()) == ['checkpoint.safetensors', 'log.jsonl']
    lines = [json.loads(line) for line in (tmp_path/'2'/'run'/'log.jsonl').read_text().splitlines()]
    assert len(lines) == 4 and lines[0]['hardware']['processes'] == 2

    for processes in (1, 2): launch(tmp_path/str(3 - processes), TRAIN, tmp_path/str(3 - processes), 4, 'resume', 0, processes=processes)
    one, two = load(tmp_path/'1', '0-4-resume'), load(tmp_path/'2', 'single-4-resume')   # the number of processes may change
    assert distance(one['net'], two['net']) < 1e-10 and len(one['history']) == len(two['history']) == 4


def test_two_processes_resume_with_each_its_own_dropout(tmp_path):
    for out, steps in (('straight', [(3, 'new')]), ('stopped', [(1, 'new'), (3, 'resume')])):
        (tmp_path/out).mkdir()
        for epochs, mode in steps: launch(tmp_path/out, TRAIN, tmp_path/out, epochs, mode, .3)
    for rank in '01':
        a, b = load(tmp_path/'straight', f'{rank}-3-new'), load(tmp_path/'stopped', f'{rank}-3-resume')
        assert a['net'] == b['net'] and a['ema'] == b['ema'] and a['random'] == b['random']
    assert load(tmp_path/'straight', '0-3-new')['random'] != load(tmp_path/'straight', '1-3-new')['random']


def test_nan_in_one_process_stops_all_and_names_the_batch(tmp_path):
    output = launch(tmp_path, TRAIN, tmp_path, 3, 'new', 0, 'nan', fail=True)
    assert 'Training stopped: the loss is nan in batch' in output and 'of epoch 1' in output, output[-3000:]
    assert (tmp_path/'run'/'checkpoint.safetensors').exists()


def test_notebook_launcher(tmp_path):
    launch(tmp_path, NOTEBOOK, tmp_path/'run', '29517', processes=1)
    assert json.loads((tmp_path/'run'/'log.jsonl').read_text().splitlines()[0])['hardware']['processes'] == 2


def test_the_command_in_two_processes(tmp_path):
    "`eqtutor train` under a launcher: one result, written and announced once."
    said = launch(tmp_path, 'from eqtutor.cli import app; app()', 'train', '--network', 'p4-cnn', '--data', 'digits', '--epochs', 1, '--images', 128,
                  '--test-images', 60, '--batch-size', 64, '--out', 'results', '--runs', 'runs')
    assert said.count('test accuracy') == 1, said
    result = json.loads((tmp_path/'results'/'p4-cnn-digits-128'/'0.json').read_text())
    assert result['hardware']['processes'] == 2 and len(result['history']) == 1
