"""Time and memory of attentive group convolutions (Romero, Bekkers, Tomczak, Hoogendoorn: Attentive
Group Equivariant Convolutional Networks, 2020) beside the p4-CNN."""
# Plain module: edited by hand, no notebook exports it.
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from eqtutor.cost import (
    CostRow, cost_table, count_parameters, layer_costs, peak_memory, training_step)
from eqtutor.experiments.registry import Tables, benchmark
from eqtutor.models.attentive import alpha_all_cnn, alpha_cnn
from eqtutor.models.backbones import p4_cnn
from eqtutor.nn.attentive import AttentiveGroupConv2d
from eqtutor.nn.convolution import GroupConv2d
from eqtutor.nn.layers import GroupBatchNorm2d


@contextmanager
def returned_memory()->Iterator[None]:
    """Inside, processes that are started give freed blocks back at once (glibc), so that resident
    memory follows what is in use."""
    name = 'MALLOC_MMAP_THRESHOLD_'
    before = os.environ.get(name)
    os.environ[name] = '65536'
    try: yield
    finally:
        if before is None: del os.environ[name]
        else: os.environ[name] = before


def after_a_step(
    make:Callable[[], nn.Module],
    shape:Sequence[int], # of the input, batch included
)->nn.Module:
    "A network that has done one training step: every library it needs is loaded."
    net = make()
    training_step(net, torch.randn(tuple(shape)))
    return net


def step_memory(
    make:Callable[[], nn.Module], # of an importable module
    shape:Sequence[int],          # of the input, batch included
    first:int|None=None,          # batch of the step before; the same if None
)->int:
    """Peak bytes in use during a training step, over the built network that has done one before; in
    a fresh process on the CPU."""
    before = first or shape[0], *shape[1:]
    with returned_memory():
        return peak_memory(partial(after_a_step, make, before), shape, timeout=3600)


BENCH:dict[str, Callable[[], nn.Module]] = {
    'p4-CNN': p4_cnn,
    'α_RH-p4-CNN': partial(alpha_cnn, 'rotation'),
    'α_F-p4-CNN': partial(alpha_cnn, 'input'),
    'α_CH-p4-CNN': partial(alpha_cnn, 'channel'),
    'α_SP-p4-CNN': partial(alpha_cnn, 'spatial'),
    'α-p4-CNN': alpha_cnn,
    'α-p4-CNN, all kept': partial(alpha_cnn, chunk=None),
    'α-p4-CNN, chunk 5': partial(alpha_cnn, chunk=5),
    'α-p4-CNN, chunk 2': partial(alpha_cnn, chunk=2),
    'α-p4-CNN, chunk 1': partial(alpha_cnn, chunk=1),
}


def bench_digits(
    compiled:bool=True, # compile the full α too, which takes a minute or two
)->list[CostRow]:
    """P1's attention variants beside the p4-CNN: parameters, MACs of an image, time and peak memory
    of a training step as ratios."""
    shape = 16, 1, 28, 28
    ready = {name: partial(after_a_step, make, shape) for name, make in BENCH.items()}
    with returned_memory():
        rows = cost_table(ready, shape, ready['p4-CNN'], time=True, memory=True)
    if not compiled: return rows
    whole = {'α-p4-CNN': ready['α-p4-CNN, all kept']}
    return rows + cost_table(whole, shape, ready['p4-CNN'], time=True, compiled=True)[1:]


def bench_all_cnn(
    batches:Sequence[int]=(1, 2, 4, 8),
)->list[CostRow]:
    "Peak memory of a training step of the full-α p4-All-CNN-C on 32×32 colour images, by batch."
    make = partial(alpha_all_cnn, 'p4', attend='full')
    net = make()
    macs = sum(r.macs for r in layer_costs(net, torch.randn(1, 3, 32, 32)))
    row = partial(CostRow, parameters=count_parameters(net), macs=macs)
    return [row(f'α-p4-All-CNN-C, batch {b}', memory=step_memory(make, (b, 3, 32, 32), first=1))
            for b in batches]


def second_layer(
    attend:str|None='full',    # None: the plain convolution
    chunk:int|str|None='auto',
)->nn.Module:
    "The second layer of those networks with the norm before it, and means over poses and places."
    conv:Any = GroupConv2d
    if attend is not None: conv = partial(AttentiveGroupConv2d, attend=attend, chunk=chunk)
    return nn.Sequential(GroupBatchNorm2d(10), conv(10, 10, 3, 'p4', bias=False),
                         nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten())


def bench_layer()->list[CostRow]:
    """Where the time goes: the second layer alone, piece by piece, over the training step of the
    whole p4-CNN."""
    parts = {'convolution': None, 'α_F': 'input', 'α_CH': 'channel', 'α_SP': 'spatial',
             'α': 'full'}
    makes = {name: partial(second_layer, attend, None) for name, attend in parts.items()}
    return cost_table(makes, (16, 10, 4, 26, 26), p4_cnn, (16, 1, 28, 28), time=True)


@benchmark('attentive')
def measure_attentive()->Tables:
    "The attention variants against the p4-CNN; the memory of the network that P1 could not run."
    return [
        ('training step, batch 16, 1×28×28, over the p4-CNN', bench_digits()),
        ('the second layer alone, all kept, over the step of the whole p4-CNN', bench_layer()),
        ('training step, 3×32×32', bench_all_cnn()),
    ]
