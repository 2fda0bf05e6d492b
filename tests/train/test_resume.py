"A run that is killed, and files that have gone wrong: only the running epoch is lost."
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from eqtutor.files import lock_folder
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import GroupBatchNorm2d, GroupPool
from eqtutor.train import (
    ImageSet,
    TensorLoader,
    digits,
    fit,
    load_weights,
    read_checkpoint,
    seed_everything,
)
from tests.forked import TooLong, script, start, wait

SCRIPT = Path(__file__).parent/'scripts'/'killed.py'
EPOCHS = 3
FILES = ['checkpoint.safetensors', 'log.jsonl']
posix = pytest.mark.skipif(os.name != 'posix', reason='needs signals and limits of POSIX')


def net(width=3):
    "A small equivariant net with everything that remembers: batch norm and dropout."
    return nn.Sequential(
        LiftingConv2d(1, width, 5, 'p4'), GroupBatchNorm2d(width), nn.ReLU(),
        nn.MaxPool3d((1, 3, 3)), nn.Dropout(.2), GroupConv2d(width, 10, 5, 'p4'),
        GroupPool(), nn.AdaptiveMaxPool2d(1), nn.Flatten())


def loader(seed=4):
    return TensorLoader(digits('valid'), 50, shuffle=True, seed=seed)


def train(out, resume=False, epochs=EPOCHS, make=net, data=None, **kwargs):
    settings = dict(optimizer='nesterov', schedule='cosine', lr=.02, ema=.9, bar=False) | kwargs
    model, test = make(), TensorLoader(digits('valid'))
    return model, fit(model, data or loader(), test, epochs, out=out, resume=resume, **settings)


def meet(moment, number, out):
    "A run in a process that meets its fate at the `number`-th time: exit code, what it said."
    output = out.parent/'output.txt'
    process = start(script, SCRIPT, (moment, str(number), str(out)), output=output)
    with suppress(TooLong): wait(process, output, 240)
    return process.exitcode, output.read_text(errors='replace')


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
    "The run that nothing happened to."
    out = tmp_path_factory.mktemp('straight')/'run'
    seed_everything(1)
    model, run = train(out)
    return model, run, out


def same(a, b):
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


def curves(run):
    return [{k: v for k, v in epoch.items() if 'seconds' not in k} for epoch in run.history]


def saved(out):
    return len(read_checkpoint(out/'checkpoint.safetensors')[1]['history'])


def check_resumes(out, straight):
    "Go on as another process would, and compare with the run that nothing happened to, bit by bit."
    seed_everything(99)
    model, run = train(out, resume=True)
    assert same(model, straight[0]) and same(run.ema, straight[1].ema)
    assert curves(run) == curves(straight[1])
    lines = [json.loads(line) for line in (out/'log.jsonl').read_text().splitlines()]
    assert lines[0] == run.header and lines[1:] == run.history
    assert sorted(p.name for p in out.iterdir()) == FILES, 'no litter stays'


# 4 batches an epoch; a checkpoint, before the first epoch and after each, is 2 files of 2 fsyncs
MOMENTS = [
    ('step', 7, 1),     # in the middle of epoch 2
    ('step', 12, 2),    # in the last batch of the last epoch
    ('half', 5, 1),     # half of the checkpoint of epoch 2 is written
    ('fsync', 9, 1),    # all of it is written, but perhaps not on the disk
    ('replace', 5, 1),  # on the disk, not yet in place
    ('replace', 6, 2),  # checkpoint in place, log not yet
]


@posix
@pytest.mark.parametrize('moment, number, epochs', MOMENTS, ids=str)
def test_killed(tmp_path, straight, moment, number, epochs):
    out = tmp_path/'run'
    code, said = meet(moment, number, out)
    assert code == -signal.SIGKILL, said[-3000:]
    assert saved(out) == epochs
    check_resumes(out, straight)


@posix
def test_ctrl_c_says_what_is_safe(tmp_path, straight):
    out = tmp_path/'run'
    code, said = meet('interrupt', 10, out)
    assert code != 0
    assert 'Stopped in epoch 3. The state after epoch 2 is safe' in said, said[-3000:]
    check_resumes(out, straight)


@posix
def test_disk_full(tmp_path, straight):
    "A file may not grow beyond 3,000 bytes from the checkpoint of epoch 2 on."
    out = tmp_path/'run'
    code, said = meet('full', 3, out)
    assert code == 1, said[-3000:]
    error = said.strip().splitlines()[-1]
    assert error.startswith('RuntimeError: The run cannot be written to')
    assert 'Free some space' in error and 'File too large' in error
    assert saved(out) == 1 and not list(out.glob('*.part'))
    check_resumes(out, straight)


def locked(folder):
    "A folder where nothing can be written. The superuser may write anywhere: a file is in its way."
    if os.geteuid(): folder.mkdir(mode=0o500)
    else: folder.write_text('a file')
    return folder


@posix
def test_read_only_folder(tmp_path):
    "Said before the first batch."
    batches = loader()
    batches.set_epoch = lambda epoch: pytest.fail('training has begun')
    out = locked(tmp_path/'locked')/'run'
    said = 'cannot be written to .*choose a folder you may write to'
    with pytest.raises(RuntimeError, match=said): train(out, data=batches)


@pytest.fixture
def run(straight, tmp_path):
    return Path(shutil.copytree(straight[2], tmp_path/'run'))


def check_refuses(run, match, error=ValueError, **kwargs):
    "Resuming must fail in one paragraph and leave every byte as it was."
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    with pytest.raises(error, match=match) as caught: train(run, resume=True, **kwargs)
    assert '\n' not in str(caught.value)
    assert before == {p.name: p.read_bytes() for p in run.iterdir()}


@pytest.mark.parametrize('resume', [True, False])
def test_a_folder_in_which_another_process_trains_is_refused(run, resume):
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    with lock_folder(run), pytest.raises(ValueError, match='Another process is at work in'):
        train(run, resume=resume)
    assert before == {p.name: p.read_bytes() for p in run.iterdir()}


@pytest.mark.parametrize('damage', ['empty', 'short', 'bit', 'text'])
def test_damaged_file(run, damage):
    file = run/'checkpoint.safetensors'
    data = bytearray(file.read_bytes())
    short = data[:len(data) // 2]
    data[-100] ^= 1
    file.write_bytes(dict(empty=b'', short=short, bit=data, text=b'no tensors here')[damage])
    check_refuses(run, 'is damaged')
    with pytest.raises(ValueError, match='damaged'): load_weights(net(), file)


def test_no_file(run):
    (run/'checkpoint.safetensors').unlink()
    check_refuses(run, 'There is no checkpoint', FileNotFoundError)


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def test_other_network(run):
    does_not = 'does not fit this net '
    advice = 'Build it with the arguments it was trained with'
    check_refuses(run, f'{does_not}.*of another shape: .*{advice}', make=lambda: net(4))
    check_refuses(run, f'{does_not}.*unknown to the net', make=linear)


CHANGES = dict(lr=.01, optimizer='sgd', ema=None, precision='bf16', epochs=5)


@pytest.mark.parametrize('name', CHANGES)
def test_other_settings(run, name):
    check_refuses(run, f'other settings .*{name} was', **{name: CHANGES[name]})


def test_other_normalisation(run):
    "The same digits, normalised by the mean and deviation of MNIST."
    data = digits('valid')
    x = (data.tensors[0] * data.std + data.mean - .1307) / .3081
    mnists = ImageSet(x, data.tensors[1], torch.tensor([.1307]), torch.tensor([.3081]))
    said = r'other settings \(loader black was \[-0\.\d+\], now \[-0\.42\]'
    check_refuses(run, said, data=TensorLoader(mnists, 50, shuffle=True, seed=4))


def test_other_order(run):
    check_refuses(run, r'other settings \(loader seed was 4, now 5\)', data=loader(seed=5))
