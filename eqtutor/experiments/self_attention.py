"What the networks of P3 (Romero & Cordonnier 2021) take: a training step against the p4-CNN."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable
from functools import partial

from torch import nn

from eqtutor.cost import cost_table
from eqtutor.experiments.registry import Tables, benchmark
from eqtutor.models.backbones import p4_cnn
from eqtutor.models.self_attention import GSANet

Networks = dict[str, Callable[[], nn.Module]]


@benchmark('gsa')
def measure_gsa()->Tables:
    "The GSA-Nets against the p4-CNN, a training step on 28×28 digits."
    digits = 16, 1, 28, 28
    small:Networks = {'p4-CNN': p4_cnn, 'Z2_SA': partial(GSANet, 'Z2'),
                      'R4_SA': partial(GSANet, 'R4')}
    large:Networks = {'R8_SA': partial(GSANet, 'R8'), 'R16_SA': partial(GSANet, 'R16')}
    whole:Networks = {'R4_SA, global': partial(GSANet, 'R4', window=None)}
    often = cost_table(small, digits, p4_cnn, time=True, memory=True, compiled=True)
    once = cost_table(large, digits, p4_cnn, time=True, memory=True, repeats=1)
    title = 'training step, batch 16, 1×28×28, over the p4-CNN'
    last = 'training step, batch 4, the whole image as neighbourhood'
    return [(title, often), (title + ', once', once),
            (last, cost_table(whole, (4, 1, 28, 28), memory=True))]
