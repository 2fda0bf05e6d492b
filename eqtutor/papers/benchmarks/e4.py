"What the E4 networks and the E4 layer cost beside convolutions: `eqtutor bench e4`."
# Plain module: edited by hand, no notebook exports it.
from torch import nn

from ...models.e4 import e4_net, e4_net_large
from ...models.group_cnn import p4_cnn
from ...nn.e4 import E4Conv2d
from ..protocol import Comparison, Networks
from . import benchmark

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


def e4_alone()->nn.Module:
    "An E4 layer on p4 between the image and the mean over its pixels."
    return PixelMean(E4Conv2d(16, 16, 5, 'p4'))


def conv_alone()->nn.Module:
    "An ordinary convolution of as many channels, likewise."
    return PixelMean(nn.Conv2d(64, 64, 5, padding=2, bias=False))


def one_layer(
    side:int, # height and width of the feature map
)->Comparison:
    "The layer of E4-Net at one of its sizes, over the step of the p4-CNN."
    layer:Networks = {f'E4 layer at {side}×{side}': e4_alone}
    return Comparison('one E4 layer of that network, batch 16, over the step of the p4-CNN',
                      (16, 16, 4, side, side), layer, layer, p4_cnn, DIGITS, memory=False)


@benchmark('e4')
def e4_comparisons()->list[Comparison]:
    "The E4 networks against the p4-CNN, and the layer against a convolution of as many values."
    networks:Networks = {'p4-CNN': p4_cnn, 'E4-Net': e4_net, 'E4-Net (Large)': e4_net_large}
    layer:Networks = {'E4 layer': e4_alone}
    return [
        Comparison('training step, batch 16, 1×28×28, over the p4-CNN', DIGITS, networks, networks,
                   p4_cnn),
        *map(one_layer, SIDES),
        Comparison('layer alone, batch 32, 16 channels × 4 poses × 28×28, k = 5, '
                   'over a 64→64 5×5 conv2d', (32, 16, 4, 28, 28), layer, layer, conv_alone,
                   (32, 64, 28, 28), memory=False)]
