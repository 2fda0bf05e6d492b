"A run started in two processes from a kernel that has trained already: `notebook.py OUT PORT`."
import os
import sys

import torch
from accelerate import notebook_launcher

from eqtutor.models.group_cnn import z2_cnn
from eqtutor.train import TensorLoader, digits, fit, seed_everything


def train():
    seed_everything(0)
    data = TensorLoader(digits('valid'), 100, shuffle=True)
    run = fit(z2_cnn(4), data, data, 1, out=sys.argv[1], bar=False)
    processes = int(os.environ.get('WORLD_SIZE', 1))
    assert run.header['hardware']['processes'] == processes, os.environ['WORLD_SIZE']


if __name__ == '__main__':
    torch.set_num_threads(1)
    data = TensorLoader(digits('valid'), 100)
    # a run before, in the same kernel, must not stand in the way
    fit(z2_cnn(4), data, data, 1, bar=False)
    os.environ['ACCELERATE_USE_CPU'] = 'true'
    notebook_launcher(train, num_processes=2, use_port=sys.argv[2])
