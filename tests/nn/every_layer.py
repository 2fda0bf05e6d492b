"One small example of every public layer, for tests that hold for all of them."
from functools import partial

from eqtutor import nn as layers

GROUPS = {'p4': 4, 'C8': 8}
IMAGE = 2, 4, 7, 9          # of which a layer reads the first four channels


def on_group(order): return 2, 4, order, 7, 9


def convolutions():
    for group, order in GROUPS.items():
        for name in 'LiftingConv2d', 'GroupConv2d', 'ProjectionConv2d':
            cls = getattr(layers, name)
            shape = IMAGE if cls.lifts else on_group(order)
            yield f'{name} {group}', (partial(cls, 4, 3, 3, group, padding='same'), shape)
        yield f'VectorLiftingConv2d {group}', (
            partial(layers.VectorLiftingConv2d, 4, 3, 3, group, padding='same'), IMAGE)
        yield f'VectorProjectionConv2d {group}', (
            partial(layers.VectorProjectionConv2d, 4, 6, 3, group, padding='same'), on_group(order))
        transposed = partial(layers.GroupConvTranspose2d, 4, 3, 3, group, 2, 1)
        yield f'GroupConvTranspose2d {group}', (transposed, on_group(order))


def self_attention():
    lift, group_attention = layers.LiftingSelfAttention2d, layers.GroupSelfAttention2d
    for group, order in GROUPS.items():
        for window in (3, None):
            options = dict(window=window, heads=2, head_channels=6)
            name = f'{group} {window}'
            yield f'LiftingSelfAttention2d {name}', (partial(lift, 4, 3, group, **options), IMAGE)
            yield f'GroupSelfAttention2d {name}', (
                partial(group_attention, 4, 3, group, **options), on_group(order))


def attentive():
    lift, conv = layers.AttentiveLiftingConv2d, layers.AttentiveGroupConv2d
    for attend in 'full', 'channel', 'spatial', 'input', 'rotation':
        options = dict(padding='same', attend=attend)
        yield f'AttentiveLiftingConv2d {attend}', (partial(lift, 4, 3, 3, 'p4', **options), IMAGE)
        yield f'AttentiveGroupConv2d {attend}', (
            partial(conv, 4, 3, 3, 'p4', **options), on_group(4))


def affine():
    for name in 'GroupSimpleAffineSelfConv2d', 'GroupAffineSelfConv2d':
        yield name, (partial(getattr(layers, name), 4, 6, 3, 'p4', 2), on_group(4))
    lift = partial(layers.LiftingAffineSelfConv2d, 4, 6, 3, 'p4', 2)
    yield 'LiftingAffineSelfConv2d', (lift, IMAGE)
    for name in 'SimpleAffineSelfConv2d', 'AffineSelfConv2d':
        yield name, (partial(getattr(layers, name), 4, 6, 3, 2), IMAGE)


def others():
    for norm in 'instance', 'none':
        yield f'E4Conv2d {norm}', (partial(layers.E4Conv2d, 4, 4, 3, 'p4', norm=norm), on_group(4))
    yield 'SelfAttention2d', (partial(layers.SelfAttention2d, 4, 6, 3, 2), IMAGE)
    yield 'StandAloneSelfAttention2d', (
        partial(layers.StandAloneSelfAttention2d, 4, 8, 3, 2), IMAGE)
    for name in 'SqueezeExcitation', 'ChannelAttention', 'SpatialAttention':
        yield name, (partial(getattr(layers, name), 4, 'p4'), on_group(4))


# name -> (factory, shape of an input)
EXAMPLES = dict([*convolutions(), *self_attention(), *attentive(), *affine(), *others()])
