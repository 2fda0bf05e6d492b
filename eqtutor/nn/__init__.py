"The layers: `from eqtutor.nn import LiftingConv2d, GroupConv2d, GroupPool`."
# Plain module: edited by hand, no notebook exports it.
from eqtutor.nn.attention import (ChannelAttention, SelfAttention2d, SpatialAttention,
                                  SqueezeExcitation, StandAloneSelfAttention2d)
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d, ProjectionConv2d
from eqtutor.nn.layers import GroupBatchNorm2d, GroupLayerNorm2d, GroupPool, SpatialPool2d

__all__ = ['ChannelAttention', 'GroupBatchNorm2d', 'GroupConv2d', 'GroupLayerNorm2d', 'GroupPool',
           'LiftingConv2d', 'ProjectionConv2d', 'SelfAttention2d', 'SpatialAttention',
           'SpatialPool2d', 'SqueezeExcitation', 'StandAloneSelfAttention2d']
