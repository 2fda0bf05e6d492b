"One small example of every public layer, for tests that hold for all of them."
from functools import partial

from eqtutor import nn as layers

P4, IMAGE, ON_P4, ON_C8 = 'p4', (2, 4, 7, 9), (2, 4, 4, 7, 9), (2, 4, 8, 7, 9)
KINDS = 'full', 'channel', 'spatial', 'input', 'rotation'


def examples():
    "Name -> (factory, shape of an input)."
    for group, shape in ((P4, ON_P4), ('C8', ON_C8)):
        for name in 'LiftingConv2d', 'GroupConv2d', 'ProjectionConv2d':
            cls = getattr(layers, name)
            example = partial(cls, 4, 3, 3, group, padding='same')
            yield f'{name} {group}', (example, IMAGE if cls.lifts else shape)
        for window in (3, None):
            options = dict(window=window, heads=2, head_channels=6)
            yield f'LiftingSelfAttention2d {group} {window}', (
                partial(layers.LiftingSelfAttention2d, 4, 3, group, **options), IMAGE)
            yield f'GroupSelfAttention2d {group} {window}', (
                partial(layers.GroupSelfAttention2d, 4, 3, group, **options), shape)
    for attend in KINDS:
        options = dict(padding='same', attend=attend)
        yield f'AttentiveLiftingConv2d {attend}', (
            partial(layers.AttentiveLiftingConv2d, 4, 3, 3, P4, **options), IMAGE)
        yield f'AttentiveGroupConv2d {attend}', (
            partial(layers.AttentiveGroupConv2d, 4, 3, 3, P4, **options), ON_P4)
    for name in 'GroupSimpleAffineSelfConv2d', 'GroupAffineSelfConv2d':
        yield name, (partial(getattr(layers, name), 4, 6, 3, P4, 2), ON_P4)
    lifting = partial(layers.LiftingAffineSelfConv2d, 4, 6, 3, P4, 2)
    yield 'LiftingAffineSelfConv2d', (lifting, IMAGE)
    for name in 'SimpleAffineSelfConv2d', 'AffineSelfConv2d':
        yield name, (partial(getattr(layers, name), 4, 6, 3, 2), IMAGE)
    for norm in 'instance', 'none':
        yield f'E4Conv2d {norm}', (partial(layers.E4Conv2d, 4, 4, 3, P4, norm=norm), ON_P4)
    yield 'SelfAttention2d', (partial(layers.SelfAttention2d, 4, 6, 3, 2), IMAGE)
    alone = partial(layers.StandAloneSelfAttention2d, 4, 8, 3, 2)
    yield 'StandAloneSelfAttention2d', (alone, IMAGE)
    for name in 'SqueezeExcitation', 'ChannelAttention', 'SpatialAttention':
        yield name, (partial(getattr(layers, name), 4, P4), ON_P4)


EXAMPLES = dict(examples())
