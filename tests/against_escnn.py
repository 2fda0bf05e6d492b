"""A group convolution for p4 against escnn's and against the plain convolution of the same size: times of a step, forward and backward.

    pip install escnn
    python tests/against_escnn.py results/bench/escnn.json
"""
import json
import statistics
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from eqtutor.nn.convolution import GroupConv2d
from eqtutor.cost import interleaved
from eqtutor.files import write_atomic
from eqtutor.training import environment

try:
    import escnn
    from escnn import gspaces
except ImportError as error: raise SystemExit(f'{error}: pip install escnn')

FIELD = escnn.nn.FieldType(gspaces.rot2dOnR2(4), 16*[gspaces.rot2dOnR2(4).regular_repr])


class Escnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = escnn.nn.R2Conv(FIELD, FIELD, 5, padding=2)
    def forward(self, f:Tensor)->Tensor: return self.conv(escnn.nn.GeometricTensor(f.flatten(1, 2), FIELD)).tensor


def step(layer:nn.Module, f:Tensor)->None:
    layer.zero_grad()
    layer(f).square().mean().backward()


def main(out:str)->None:
    torch.manual_seed(0)
    layers = {'conv2d, 64 to 64': nn.Sequential(nn.Flatten(1, 2), nn.Conv2d(64, 64, 5, padding=2)), 'eqtutor GroupConv2d': GroupConv2d(16, 16, 5, 'p4', padding='same'), 'escnn R2Conv': Escnn()}
    f = torch.randn(16, 16, 4, 28, 28)
    times = {name: statistics.median(t) for name, t in interleaved({name: lambda layer=layer: step(layer, f) for name, layer in layers.items()}, 25).items()}
    rows = [{'name': name, 'parameters': sum(p.numel() for p in layer.parameters()), 'time': times[name]/times['conv2d, 64 to 64']} for name, layer in layers.items()]
    title = 'one step of a layer, batch 16, 16 channels × 4 poses × 28×28, k = 5, over the plain convolution'
    text = json.dumps({'benchmark': 'escnn', **environment('cpu'), 'escnn': escnn.__version__, 'tables': {title: rows}}, indent=1, ensure_ascii=False)
    write_atomic(Path(out), (text + '\n').encode())
    print(text)


if __name__ == '__main__': main(*sys.argv[1:])
