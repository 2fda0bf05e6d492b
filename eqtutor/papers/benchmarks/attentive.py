"""Time and memory of attentive group convolutions (Romero, Bekkers, Tomczak, Hoogendoorn: Attentive
Group Equivariant Convolutional Networks, 2020) beside the p4-CNN."""
# Plain module: edited by hand, no notebook exports it.
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from ...models.attentive import alpha_all_cnn, alpha_cnn
from ...models.group_cnn import p4_cnn
from ...nn.attentive import AttentiveGroupConv2d
from ...nn.convolution import GroupConv2d
from ...nn.layers import GroupBatchNorm2d
from ..protocol import Comparison, Networks
from . import benchmark

DIGITS = 16, 1, 28, 28


def in_torch(
    make:Callable[[], nn.Module],
)->nn.Module:
    "The network, in a process of which no more is asked: all kernels by torch, none by C."
    os.environ['EQTUTOR_NATIVE'] = '0'
    return make()


BENCH:Networks = {
    'p4-CNN': p4_cnn,
    'α_RH-p4-CNN': partial(alpha_cnn, 'rotation'),
    'α_F-p4-CNN': partial(alpha_cnn, 'input'),
    'α_CH-p4-CNN': partial(alpha_cnn, 'channel'),
    'α_SP-p4-CNN': partial(alpha_cnn, 'spatial'),
    'α-p4-CNN': alpha_cnn,
    'α-p4-CNN, torch': partial(in_torch, partial(alpha_cnn, chunk=None)),
    'α-p4-CNN, torch, chunk 5': partial(in_torch, partial(alpha_cnn, chunk=5)),
    'α-p4-CNN, torch, chunk 2': partial(in_torch, partial(alpha_cnn, chunk=2)),
    'α-p4-CNN, torch, chunk 1': partial(in_torch, partial(alpha_cnn, chunk=1)),
}
COMPILED:Networks = {name: BENCH[name] for name in ('α_F-p4-CNN', 'α-p4-CNN')}


def second_layer(
    attend:str|None='full',    # None: the plain convolution
    chunk:int|str|None='auto',
)->nn.Module:
    "The second layer of those networks with the norm before it, and means over poses and places."
    conv:Any = GroupConv2d
    if attend is not None: conv = partial(AttentiveGroupConv2d, attend=attend, chunk=chunk)
    return nn.Sequential(GroupBatchNorm2d(10), conv(10, 10, 3, 'p4', bias=False),
                         nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten())


def layer_comparison()->Comparison:
    """Where the time goes: the second layer alone, piece by piece, over the training step of the
    whole p4-CNN."""
    parts = {'convolution': None, 'α_F': 'input', 'α_CH': 'channel', 'α_SP': 'spatial',
             'α': 'full'}
    layers:Networks = {name: partial(second_layer, attend, None) for name, attend in parts.items()}
    return Comparison('the second layer alone, over the step of the whole p4-CNN',
                      (16, 10, 4, 26, 26), layers, {}, p4_cnn, DIGITS, memory=False)


def all_cnn(
    batch:int,
)->Comparison:
    "Peak memory of a training step of the full-α p4-All-CNN-C on 32×32 colour images."
    network:Networks = {
        f'α-p4-All-CNN-C, batch {batch}': partial(alpha_all_cnn, 'p4', attend='full')}
    return Comparison('training step, 3×32×32', (batch, 3, 32, 32), network, time=False)


@benchmark('attentive')
def attentive_comparisons()->list[Comparison]:
    "The attention variants against the p4-CNN; the memory of the network that P1 could not run."
    return [
        Comparison('training step, batch 16, 1×28×28, over the p4-CNN', DIGITS, BENCH, COMPILED,
                   p4_cnn),
        layer_comparison(), *map(all_cnn, (1, 2, 4, 8))]
