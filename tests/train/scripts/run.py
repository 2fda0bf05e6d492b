"A run, alone or in two processes: `run.py FOLDER EPOCHS new|resume DROPOUT [nan]`."
import json
import os
import sys
from pathlib import Path

import torch
from common import images, make, vector
from torch import nn
from torch.utils.data import TensorDataset

from eqtutor.nn.layers import GroupLayerNorm2d
from eqtutor.train import TensorLoader, fit, seed_everything


def main(out, epochs, mode, dropout, *harm):
    data, rank = TensorDataset(*images(22)), os.environ.get('RANK', 'single')
    body, dropout = make(GroupLayerNorm2d), nn.Dropout(float(dropout))
    net = nn.Sequential(body, dropout, nn.Linear(3, 3).double())
    if rank == '1': seed_everything(5)  # weights must come from the first process
    train = TensorLoader(data, 8, shuffle=True)
    if 'nan' in harm: train.tensors[0][11] = float('nan')  # one image: in one process's share
    run = fit(net, train, TensorLoader(data, 5), int(epochs), lr=.01, optimizer='nesterov', ema=.5,
              clip=10., out=out/'run', resume=mode == 'resume', bar=False)
    result = dict(
        net=vector(net.state_dict().values()), ema=vector(run.ema.state_dict().values()),
        history=run.history, random=torch.rand(1).item())
    (out/f'{rank}-{epochs}-{mode}.json').write_text(json.dumps(result))


if __name__ == '__main__':
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
