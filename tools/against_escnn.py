"""A group convolution for p4 against escnn's and against the plain convolution of the same size:
times of a step, forward and backward.

    pip install escnn
    python tools/against_escnn.py results/bench/escnn.json
"""
import statistics
import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from eqtutor.cost import count_parameters
from eqtutor.files import write_json
from eqtutor.measure import interleaved
from eqtutor.nn.convolution import GroupConv2d
from eqtutor.train import environment

try:
    import escnn
    from escnn import gspaces
except ImportError as error: raise SystemExit(f'{error}: pip install escnn') from None

FIELD = escnn.nn.FieldType(gspaces.rot2dOnR2(4), 16*[gspaces.rot2dOnR2(4).regular_repr])
PLAIN = 'conv2d, 64 to 64'
TITLE = ('one step of a layer, batch 16, 16 channels × 4 poses × 28×28, k = 5, '
         'over the plain convolution')


class Escnn(nn.Module):
    "escnn's convolution on the tensors of ours."
    def __init__(self):
        super().__init__()
        self.conv = escnn.nn.R2Conv(FIELD, FIELD, 5, padding=2)

    def forward(self, f:Tensor)->Tensor:
        return self.conv(escnn.nn.GeometricTensor(f.flatten(1, 2), FIELD)).tensor


def step(layer:nn.Module, f:Tensor)->None:
    layer.zero_grad()
    layer(f).square().mean().backward()


def main(out:str)->None:
    torch.manual_seed(0)
    layers = {PLAIN: nn.Sequential(nn.Flatten(1, 2), nn.Conv2d(64, 64, 5, padding=2)),
              'eqtutor GroupConv2d': GroupConv2d(16, 16, 5, 'p4', padding='same'),
              'escnn R2Conv': Escnn()}
    f = torch.randn(16, 16, 4, 28, 28)
    steps = {name: partial(step, layer, f) for name, layer in layers.items()}
    times = {name: statistics.median(t) for name, t in interleaved(steps, 25).items()}
    rows = [{'name': name, 'parameters': count_parameters(layer),
             'time': times[name]/times[PLAIN]} for name, layer in layers.items()]
    record = {'benchmark': 'escnn', **environment('cpu'), 'escnn': escnn.__version__,
              'tables': {TITLE: rows}}
    write_json(Path(out), record)
    print(Path(out).read_text(encoding='utf-8'))


if __name__ == '__main__': main(*sys.argv[1:])
