"The layers of the field, alike in size, and the memory of a training step of each."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from ...nn.affine import GroupAffineSelfConv2d, GroupSimpleAffineSelfConv2d
from ...nn.attention import StandAloneSelfAttention2d
from ...nn.attentive import AttentiveGroupConv2d
from ...nn.convolution import GroupConv2d
from ...nn.e4 import E4Conv2d
from ...nn.gates import ChannelAttention, SpatialAttention, SqueezeExcitation
from ...nn.self_attention import GroupSelfAttention2d
from ..protocol import Comparison
from . import benchmark

WINDOW:dict[str, Any] = dict(kernel_size=5, group='p4')
CONVOLUTION:dict[str, Any] = dict(padding='same', bias=False, **WINDOW)

# 16 channels and four poses, or as many numbers; windows of 5×5
LAYERS:Mapping[str, Callable[[], nn.Module]] = {
    'group convolution': partial(GroupConv2d, 16, 16, **CONVOLUTION),
    'α_RH (co-attention)': partial(AttentiveGroupConv2d, 16, 16, attend='rotation', **CONVOLUTION),
    'E4': partial(E4Conv2d, 16, 16, norm='none', **WINDOW),
    'SASA': partial(StandAloneSelfAttention2d, 64, 64, 5),
    'simple ASC': partial(GroupSimpleAffineSelfConv2d, 16, 16, **WINDOW),
    'ASC': partial(GroupAffineSelfConv2d, 16, 16, **WINDOW),
    'group self-attention': partial(GroupSelfAttention2d, 16, 16, 'p4', 5, heads=4),
    'spatial gate (CBAM)': partial(SpatialAttention, 16, 'p4', 5),
    'channel gate (CBAM)': partial(ChannelAttention, 16, 'p4', 2),
    'SE': partial(SqueezeExcitation, 16, 'p4', 2),
    'E4, instance norm': partial(E4Conv2d, 16, 16, **WINDOW),
    'α_F (P1)': partial(AttentiveGroupConv2d, 16, 16, attend='input', attention_kernel=5,
                        **CONVOLUTION),
    'α (P1)': partial(AttentiveGroupConv2d, 16, 16, attention_kernel=5, **CONVOLUTION)}


def input_shape(
    name:str,    # of `LAYERS`
    batch:int=1,
    size:int=28, # height and width
)->tuple[int, ...]:
    "The shape of a feature map for a layer: SASA knows no poses, and has 64 channels instead."
    channels, poses = (64, 1) if name == 'SASA' else (16, 4)
    return batch, channels, poses, size, size

def alone(
    name:str, # of `LAYERS`
)->nn.Module:
    "A layer from an input that wants a gradient to scores, to make a training step of."
    return nn.Sequential(nn.PReLU(init=1.), LAYERS[name](), nn.Flatten(2),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten())

@benchmark('frame')
def frame_comparisons()->list[Comparison]:
    "Peak memory of a training step of each layer by itself, over the group convolution's."
    title = ('training step of one layer, batch 16, 16 channels × 4 poses × 28×28, k = 5, '
             'over the group convolution')
    yardstick = partial(alone, 'group convolution'), input_shape('group convolution', 16)
    return [Comparison(title, input_shape(name, 16), {name: partial(alone, name)}, {}, *yardstick,
                       time=False) for name in LAYERS]
