"What the networks of P3 (Romero & Cordonnier 2021) take: a training step against the p4-CNN."
# Plain module: edited by hand, no notebook exports it.
from functools import partial

from ...models.group_cnn import p4_cnn
from ...models.self_attention import GSANet
from ..protocol import Comparison, Networks
from . import benchmark


@benchmark('gsa')
def gsa_comparisons()->list[Comparison]:
    "The GSA-Nets against the p4-CNN, a training step on 28×28 digits."
    small:Networks = {'p4-CNN': p4_cnn, 'Z2_SA': partial(GSANet, 'Z2'),
                      'R4_SA': partial(GSANet, 'R4')}
    large:Networks = {'R8_SA': partial(GSANet, 'R8'), 'R16_SA': partial(GSANet, 'R16')}
    whole:Networks = {'R4_SA, global': partial(GSANet, 'R4', window=None)}
    return [
        Comparison('training step, batch 16, 1×28×28, over the p4-CNN', (16, 1, 28, 28),
                   {**small, **large}, small, p4_cnn),
        Comparison('training step, batch 4, the whole image as neighbourhood', (4, 1, 28, 28),
                   whole, time=False)]
