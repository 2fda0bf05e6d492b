"""A run that meets its fate: `killed.py MOMENT NUMBER FOLDER`, started by test_resume.py.

The process patches itself: no hook in the library is needed to make it die at a chosen moment.
"""
import os
import resource
import signal
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))

import test_resume

from eqtutor.train import checkpoints, fitting, loop

moment, number, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
calls = 0


def at(module, name, act):
    "Before the `number`-th call of a function: `act`."
    original = getattr(module, name)
    def patched(*args, **kwargs):
        global calls
        calls += 1
        if calls == number: return act(original, *args, **kwargs)
        return original(*args, **kwargs)
    setattr(module, name, patched)


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def die_half_written(write_atomic, path, data):
    "Half of the bytes reach the disk, under the name `write_atomic` gives a file at first."
    with open(path.with_name(path.name + '.0.part'), 'wb') as file:
        file.write(data[:len(data) // 2])
        file.flush()
        os.fsync(file.fileno())
    die()


def press_ctrl_c(train_step, *args, **kwargs):
    signal.raise_signal(signal.SIGINT)


def fill_the_disk(save_checkpoint, *args, **kwargs):
    "From now on no file may grow beyond 3,000 bytes."
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    save_checkpoint(*args, **kwargs)


FATES = {
    'step': ([loop], 'train_step', die),
    'half': ([checkpoints, fitting], 'write_atomic', die_half_written),   # checkpoint and log
    'fsync': ([os], 'fsync', die),
    'replace': ([os], 'replace', die),
    'interrupt': ([loop], 'train_step', press_ctrl_c),
    'full': ([fitting], 'save_checkpoint', fill_the_disk),
}

if __name__ == '__main__':
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores Ctrl-C
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    modules, name, act = FATES[moment]
    for module in modules: at(module, name, act)
    loop.seed_everything(1)
    test_resume.train(Path(out))
