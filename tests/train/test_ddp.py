"""Training in several processes: two of them, with gloo, on a CPU.

Torch has kernels for synchronised batch norm on GPUs only. What a CPU can show: with group layer
norm, or with group batch norm in evaluation mode, two processes have exactly the gradient of one
with the whole batch; unsynchronised batch norm in training mode has not; and the layers that
`sync_batch_norm` puts in have it again, when torch's own formula, written out in plain operations
(`scripts/gradients.py`), stands in for the kernel.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import script, start, wait

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent/'scripts'


def launch(folder, script, *args):
    "Run a script as a user does: started by hand, it may start its processes itself."
    around = dict(OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='', PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [str(word) for word in [sys.executable, *script, *args]], env=os.environ | around,
        cwd=folder, text=True, timeout=240, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert not done.returncode, done.stdout[-4000:]
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return str(s.getsockname()[1])


def run_script(folder, name, *args, processes=2, fail=False):
    "Run one of `scripts`, alone or in two processes that have the variables of a launcher."
    words, begun = tuple(map(str, args)), []
    around = dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=free_port(), WORLD_SIZE='2')
    for rank in range(processes):
        environ = around | dict(RANK=str(rank), LOCAL_RANK=str(rank)) if processes == 2 else {}
        output = folder/f'output-{rank}.txt'
        process = start(script, SCRIPTS/name, words, output=output, environ=environ)
        begun.append((process, output))
    passed = [wait(process, output, 240) for process, output in begun]
    said = [output.read_text(errors='replace') for _, output in begun]
    assert passed == [not fail]*processes, said
    return ''.join(said)


def train(out, epochs, mode, dropout, *harm, **kwargs):
    return run_script(out, 'run.py', out, epochs, mode, dropout, *harm, **kwargs)


def load(folder, name):
    return json.loads((folder/f'{name}.json').read_text())


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope='module')
def gradients(tmp_path_factory):
    folder = tmp_path_factory.mktemp('gradients')
    for processes in (1, 2): run_script(folder, 'gradients.py', folder, processes=processes)
    return [load(folder, name) for name in ('single', '0', '1')]


LIMITS = {'layer norm': 1e-12, 'layer norm float32': 1e-6, 'batch norm frozen': 1e-12,
          'batch norm synchronised': 1e-12}


@pytest.mark.parametrize('n', [8, 7], ids=['even', 'uneven'])
@pytest.mark.parametrize('norm', LIMITS)
def test_gradient_is_that_of_the_whole_batch(gradients, norm, n):
    single, first, second = (g[f'{norm} {n}'] for g in gradients)
    size, limit = max(map(abs, single['gradient'])), LIMITS[norm]
    assert size > 1e-2, 'a gradient of zero would prove nothing'
    assert first['gradient'] == second['gradient'], 'the processes must step alike'
    assert distance(single['gradient'], first['gradient']) <= limit * max(1, size)
    assert abs(single['loss'] - first['loss']) <= limit * max(1, single['loss'])
    assert single['accuracy'] == first['accuracy']
    if 'batch norm' in norm: assert distance(single['buffers'], first['buffers']) <= limit * 10


@pytest.mark.parametrize('n', [8, 7], ids=['even', 'uneven'])
def test_batch_norm_without_synchronisation_is_another_gradient(gradients, n):
    single, first, _ = (g[f'batch norm alone {n}'] for g in gradients)
    assert distance(single['gradient'], first['gradient']) > 1e-4
    formula = gradients[0][f'batch norm synchronised {n}']
    same = "the formula is torch's own batch norm"
    assert distance(single['gradient'], formula['gradient']) < 1e-12, same
    assert distance(single['buffers'], formula['buffers']) < 1e-12


@pytest.fixture(scope='module')
def one_and_two(tmp_path_factory):
    "The same run, without dropout, in one process and in two."
    folder = tmp_path_factory.mktemp('runs')
    for processes in (1, 2):
        (out := folder/str(processes)).mkdir()
        train(out, 3, 'new', 0, processes=processes)
    return folder


def test_a_run_of_two_processes_is_that_of_one(one_and_two):
    "Same order, same batches, same steps."
    one, two = load(one_and_two/'1', 'single-3-new'), load(one_and_two/'2', '0-3-new')
    other = load(one_and_two/'2', '1-3-new')
    for part in ('net', 'ema'):
        assert two[part] == other[part]
        assert distance(one[part], two[part]) < 1e-10
    for a, b, c in zip(one['history'], two['history'], other['history'], strict=True):
        assert abs(a['train_loss'] - b['train_loss']) < 1e-10
        assert abs(a['ema_loss'] - b['ema_loss']) < 1e-10
        assert a['valid_accuracy'] == b['valid_accuracy'] == c['valid_accuracy']
        assert b['valid_loss'] == c['valid_loss']


def test_only_the_first_process_writes(one_and_two):
    run = one_and_two/'2'/'run'
    assert sorted(p.name for p in run.iterdir()) == ['checkpoint.safetensors', 'log.jsonl']
    lines = [json.loads(line) for line in (run/'log.jsonl').read_text().splitlines()]
    assert len(lines) == 4 and lines[0]['hardware']['processes'] == 2


def test_a_run_of_two_processes_goes_on_in_one_and_the_other_way_round(one_and_two, tmp_path):
    runs = Path(shutil.copytree(one_and_two, tmp_path/'runs'))
    for processes in (1, 2):
        train(runs/str(3 - processes), 4, 'resume', 0, processes=processes)
    one, two = load(runs/'1', '0-4-resume'), load(runs/'2', 'single-4-resume')
    assert distance(one['net'], two['net']) < 1e-10
    assert len(one['history']) == len(two['history']) == 4


def test_two_processes_resume_with_each_its_own_dropout(tmp_path):
    straight, stopped = tmp_path/'straight', tmp_path/'stopped'
    straight.mkdir()
    stopped.mkdir()
    train(straight, 3, 'new', .3)
    train(stopped, 1, 'new', .3)
    train(stopped, 3, 'resume', .3)
    for rank in '01':
        a, b = load(straight, f'{rank}-3-new'), load(stopped, f'{rank}-3-resume')
        assert a['net'] == b['net'] and a['ema'] == b['ema'] and a['random'] == b['random']
    assert load(straight, '0-3-new')['random'] != load(straight, '1-3-new')['random']


def test_nan_in_one_process_stops_all_and_names_the_batch(tmp_path):
    output = train(tmp_path, 3, 'new', 0, 'nan', fail=True)
    assert 'Training stopped: the loss is nan in batch' in output, output[-3000:]
    assert 'of epoch 1' in output, output[-3000:]
    assert (tmp_path/'run'/'checkpoint.safetensors').exists()


def test_notebook_launcher(tmp_path):
    launch(tmp_path, [SCRIPTS/'notebook.py'], tmp_path/'run', free_port())
    header = json.loads((tmp_path/'run'/'log.jsonl').read_text().splitlines()[0])
    assert header['hardware']['processes'] == 2


def test_the_command_in_two_processes(tmp_path):
    "`eqtutor train` under a launcher: one result, written and announced once."
    command = tmp_path/'script.py'
    command.write_text('from eqtutor.cli import app\napp()\n')
    options = {'--network': 'p4-cnn', '--data': 'digits', '--epochs': 1, '--images': 128,
               '--test-images': 60, '--batch-size': 64, '--out': 'results', '--runs': 'runs'}
    words = [word for option in options.items() for word in option]
    launcher = '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2', command
    said = launch(tmp_path, launcher, 'train', *words)
    assert said.count('test accuracy') == 1, said
    result = load(tmp_path/'results'/'p4-cnn-digits-128', '0')
    assert result['hardware']['processes'] == 2 and len(result['history']) == 1
