"The layers: `from eqtutor.nn import LiftingConv2d, GroupConv2d, GroupPool`."
# Plain module: edited by hand, no notebook exports it.
from .affine import (
    AffineSelfConv2d,
    GroupAffineSelfConv2d,
    GroupSimpleAffineSelfConv2d,
    LiftingAffineSelfConv2d,
    SimpleAffineSelfConv2d,
)
from .attention import SelfAttention2d, StandAloneSelfAttention2d
from .attentive import AttentiveGroupConv2d, AttentiveLiftingConv2d
from .convolution import GroupConv2d, LiftingConv2d, ProjectionConv2d
from .decoders import GroupConvTranspose2d, GroupUpsample2d
from .e4 import E4Conv2d
from .gates import ChannelAttention, SpatialAttention, SqueezeExcitation
from .layers import (
    BlurPool2d,
    GroupAdaptivePool2d,
    GroupBatchNorm2d,
    GroupGroupNorm2d,
    GroupInstanceNorm2d,
    GroupLayerNorm2d,
    GroupPool,
    SpatialPool2d,
)
from .self_attention import GroupSelfAttention2d, LiftingSelfAttention2d
from .vectors import VectorLiftingConv2d, VectorProjectionConv2d

__all__ = ['AffineSelfConv2d', 'AttentiveGroupConv2d', 'AttentiveLiftingConv2d', 'BlurPool2d',
           'ChannelAttention', 'E4Conv2d', 'GroupAdaptivePool2d', 'GroupAffineSelfConv2d',
           'GroupBatchNorm2d', 'GroupConv2d', 'GroupConvTranspose2d', 'GroupGroupNorm2d',
           'GroupInstanceNorm2d', 'GroupLayerNorm2d', 'GroupPool', 'GroupSelfAttention2d',
           'GroupSimpleAffineSelfConv2d', 'GroupUpsample2d', 'LiftingAffineSelfConv2d',
           'LiftingConv2d', 'LiftingSelfAttention2d', 'ProjectionConv2d', 'SelfAttention2d',
           'SimpleAffineSelfConv2d', 'SpatialAttention', 'SpatialPool2d', 'SqueezeExcitation',
           'StandAloneSelfAttention2d', 'VectorLiftingConv2d', 'VectorProjectionConv2d']
