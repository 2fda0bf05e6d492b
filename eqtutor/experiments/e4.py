"What the E4 networks and the E4 layer cost beside convolutions: `eqtutor bench e4`."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable
from functools import partial

from torch import nn

from eqtutor.cost import CostRow, cost_table
from eqtutor.experiments.registry import Tables, benchmark
from eqtutor.models.backbones import p4_cnn
from eqtutor.models.e4 import e4_net, e4_net_large
from eqtutor.nn.e4 import E4Conv2d

DIGITS = (16, 1, 28, 28)                  # one batch
SIDES = 28, 14, 7                         # of the feature maps in E4-Net


class PixelMean(nn.Module):
    "A layer whose output is averaged over pixels to scores, to be timed in a training step."
    def __init__(self,
        layer:nn.Module,
    ):
        super().__init__()
        self.layer = layer

    def forward(self, x): return self.layer(x).flatten(2).mean(2)


def e4_alone()->nn.Module: return PixelMean(E4Conv2d(16, 16, 5, 'p4'))

def conv_alone()->nn.Module: return PixelMean(nn.Conv2d(64, 64, 5, padding=2, bias=False))


def network_rows()->list[CostRow]:
    "The networks, with memory, over the p4-CNN."
    networks:dict[str, Callable[[], nn.Module]] = {
        'p4-CNN': p4_cnn, 'E4-Net': e4_net, 'E4-Net (Large)': e4_net_large}
    return cost_table(networks, DIGITS, p4_cnn, time=True, memory=True, compiled=True)

def layer_rows()->list[CostRow]:
    "One layer of E4-Net at each of its sizes, over the step of the p4-CNN."
    measure = partial(cost_table, yardstick=p4_cnn, yardstick_shape=DIGITS, time=True,
                      compiled=True)
    return [row for n in SIDES
            for row in measure({f'E4 layer at {n}×{n}': e4_alone}, (16, 16, 4, n, n))]

def convolution_rows()->list[CostRow]:
    "The layer over a convolution of as many values."
    return cost_table({'E4 layer': e4_alone}, (32, 16, 4, 28, 28), conv_alone,
                      (32, 64, 28, 28), time=True, compiled=True)


@benchmark('e4')
def measure_e4()->Tables:
    "The E4 networks against the p4-CNN, and the layer against a convolution of as many values."
    return [
        ('training step, batch 16, 1×28×28, over the p4-CNN', network_rows()),
        ('one E4 layer of that network, batch 16, over the step of the p4-CNN', layer_rows()),
        ('layer alone, batch 32, 16 channels × 4 poses × 28×28, k = 5, over a 64→64 5×5 conv2d',
         convolution_rows())]
