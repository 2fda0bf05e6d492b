"""A run that is killed, and files that have gone wrong: nothing is lost but the running epoch, and each fault has its sentence.

The killed process is a child that patches itself: no hook in the library is needed to make it die at a chosen moment.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from eqtutor.data import ImageSet, TensorLoader, digits
from eqtutor.layers import GroupBatchNorm2d, GroupPool
from eqtutor.convolution import GroupConv2d, LiftingConv2d
from eqtutor.training import fit, load_weights, read_checkpoint, seed_everything

ROOT = Path(__file__).parent.parent
EPOCHS = 3
posix = pytest.mark.skipif(os.name != 'posix', reason='needs signals and limits of POSIX')


def net(width=3):
    "A small equivariant net with everything that remembers: batch norm and dropout."
    return nn.Sequential(LiftingConv2d(1, width, 5, 'p4'), GroupBatchNorm2d(width), nn.ReLU(), nn.MaxPool3d((1, 3, 3)),
                         nn.Dropout(.2), GroupConv2d(width, 10, 5, 'p4'), GroupPool(), nn.AdaptiveMaxPool2d(1), nn.Flatten())


def loader(**kwargs): return TensorLoader(digits('valid'), 50, shuffle=True, **{'seed': 4, **kwargs})

def train(out, resume=False, epochs=EPOCHS, make=net, data=None, **kwargs):
    settings = dict(optimizer='nesterov', schedule='cosine', lr=.02, ema=.9, bar=False)
    model = make()
    return model, fit(model, data or loader(), TensorLoader(digits('valid')), epochs, out=out, resume=resume, **{**settings, **kwargs})


CHILD = r'''
import os, resource, signal, sys
sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], 'tests')]
import torch
torch.set_num_threads(1)
import test_resume, eqtutor.training as training
from eqtutor.training import seed_everything

moment, number, out = sys.argv[2], int(sys.argv[3]), sys.argv[4]
count = 0

def at(module, name, act):
    "Before the `number`-th call of a function: `act`."
    original = getattr(module, name)
    def patched(*args, **kwargs):
        global count
        count += 1
        return act(original, *args, **kwargs) if count == number else original(*args, **kwargs)
    setattr(module, name, patched)

def die(*args, **kwargs): os.kill(os.getpid(), signal.SIGKILL)

def die_half_written(write_atomic, path, data):
    "Half of the bytes reach the disk, under the name that `write_atomic` gives a file in the making."
    with open(path.with_name(path.name + '.part'), 'wb') as file:
        file.write(data[:len(data) // 2]); file.flush(); os.fsync(file.fileno())
    die()

if moment == 'step': at(training, 'train_step', die)
if moment == 'half': at(training, 'write_atomic', die_half_written)
if moment == 'fsync': at(os, 'fsync', die)
if moment == 'replace': at(os, 'replace', die)
signal.signal(signal.SIGINT, signal.default_int_handler)   # a job started in the background ignores Ctrl-C
if moment == 'interrupt': at(training, 'train_step', lambda *a, **k: signal.raise_signal(signal.SIGINT))
if moment == 'full':
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    at(training, 'save_checkpoint', lambda f, *a, **k: (resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)), f(*a, **k)))
seed_everything(1)
test_resume.train(test_resume.Path(out))
'''


def child(moment, number, out):
    "A run in a process of its own that meets its fate at the `number`-th time."
    return subprocess.run([sys.executable, '-c', CHILD, str(ROOT), moment, str(number), str(out)], text=True, timeout=240,
                          capture_output=True, env={**os.environ, 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''})


@pytest.fixture(scope='module', autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)   # like the child: other threads, other last bits
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
    "The run that nothing happened to."
    out = tmp_path_factory.mktemp('straight')/'run'
    seed_everything(1)
    model, run = train(out)
    return model, run, out


def same(a, b): return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())

def curves(run): return [{k: v for k, v in epoch.items() if k != 'seconds'} for epoch in run.history]

def saved(out): return len(read_checkpoint(out/'checkpoint.safetensors')[1]['history'])

def resumed(out, straight):
    "Go on as another process would, and compare with the run that nothing happened to, bit by bit."
    seed_everything(99)
    model, run = train(out, resume=True)
    assert same(model, straight[0]) and same(run.ema, straight[1].ema) and curves(run) == curves(straight[1])
    lines = [json.loads(line) for line in (out/'log.jsonl').read_text().splitlines()]
    assert lines[0] == run.header and lines[1:] == run.history
    assert sorted(p.name for p in out.iterdir()) == ['checkpoint.safetensors', 'log.jsonl'], 'no litter stays'


# 4 batches an epoch; a checkpoint is 2 files with 2 fsyncs each, written before the first epoch and after each
@posix
@pytest.mark.parametrize('moment, number, epochs', [
    ('step', 7, 1),       # in the middle of epoch 2
    ('step', 12, 2),      # in the last batch of the last epoch
    ('half', 5, 1),       # half of the checkpoint of epoch 2 is written
    ('fsync', 9, 1),      # all of it is written, but perhaps not on the disk
    ('replace', 5, 1),    # on the disk, not yet in place
    ('replace', 6, 2),    # checkpoint in place, log not yet
], ids=lambda v: str(v))
def test_killed(tmp_path, straight, moment, number, epochs):
    out = tmp_path/'run'
    done = child(moment, number, out)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert saved(out) == epochs
    resumed(out, straight)


@posix
def test_ctrl_c_says_what_is_safe(tmp_path, straight):
    out = tmp_path/'run'
    done = child('interrupt', 10, out)
    assert done.returncode != 0 and 'Stopped in epoch 3. The state after epoch 2 is safe' in done.stderr, done.stderr[-3000:]
    resumed(out, straight)


@posix
def test_disk_full(tmp_path, straight):
    "A file may not grow beyond 3,000 bytes from the checkpoint of epoch 2 on."
    out = tmp_path/'run'
    done = child('full', 3, out)
    assert done.returncode == 1, done.stderr[-3000:]
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith('RuntimeError: The run cannot be written to') and 'Free some space' in error and 'File too large' in error
    assert saved(out) == 1 and not list(out.glob('*.part'))
    resumed(out, straight)


@posix
def test_read_only_folder(tmp_path):
    "Found out before the first batch. The superuser may write anywhere, so for it a file stands in the way of the folder."
    if os.geteuid(): (folder := tmp_path/'locked').mkdir(mode=0o500)
    else: (folder := tmp_path/'locked').write_text('a file')
    batches = loader()
    batches.set_epoch = lambda epoch: pytest.fail('training has begun')
    with pytest.raises(RuntimeError, match='cannot be written to .*choose a folder you may write to'): train(folder/'run', data=batches)


@pytest.fixture
def run(straight, tmp_path): return Path(shutil.copytree(straight[2], tmp_path/'run'))


def refused(run, match, error=ValueError, **kwargs):
    "Resuming must fail in one paragraph and leave every byte as it was."
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    with pytest.raises(error, match=match) as caught: train(run, resume=True, **kwargs)
    assert '\n' not in str(caught.value)
    assert before == {p.name: p.read_bytes() for p in run.iterdir()}


@pytest.mark.parametrize('damage', ['empty', 'short', 'bit', 'text'])
def test_damaged_file(run, damage):
    file = run/'checkpoint.safetensors'
    data = bytearray(file.read_bytes())
    if damage == 'bit': data[-100] ^= 1
    file.write_bytes(dict(empty=b'', short=data[:len(data)//2], bit=data, text=b'no tensors here')[damage])
    refused(run, 'is damaged')
    with pytest.raises(ValueError, match='damaged'): load_weights(net(), file)


def test_no_file(run):
    (run/'checkpoint.safetensors').unlink()
    refused(run, 'There is no checkpoint', FileNotFoundError)


def test_other_network(run):
    refused(run, r'does not fit this net .*of another shape: .*Build it with the arguments it was trained with', make=lambda: net(4))
    refused(run, r'does not fit this net .*unknown to the net', make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))


@pytest.mark.parametrize('change', [dict(lr=.01), dict(optimizer='sgd'), dict(ema=None), dict(precision='bf16'), dict(epochs=5)],
                         ids=lambda c: next(iter(c)))
def test_other_settings(run, change): refused(run, f'other settings .*{next(iter(change))} was', **change)


def test_other_normalisation(run):
    "The same digits, normalised by the mean and deviation of MNIST."
    data = digits('valid')
    x = (data.tensors[0] * data.std + data.mean - .1307) / .3081
    other = TensorLoader(ImageSet(x, data.tensors[1], torch.tensor([.1307]), torch.tensor([.3081])), 50, shuffle=True, seed=4)
    refused(run, r"other settings \(loader black was \[-0\.\d+\], now \[-0\.42\]", data=other)


def test_other_order(run): refused(run, r"other settings \(loader seed was 4, now 5\)", data=loader(seed=5))
