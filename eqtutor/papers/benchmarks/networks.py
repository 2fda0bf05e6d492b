"What networks cost beside the p4-CNN: `eqtutor bench NETWORK …`, or `eqtutor bench networks`."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Sequence

from ...models.group_cnn import p4_cnn
from ...models.registry import get_model
from ..protocol import Comparison
from . import benchmark

SIX_NETWORKS = 'z2-cnn', 'p4-cnn', 'alpha-F-p4-cnn', 'p4-e4-net', 'gsa-z2', 'gsa-r4'
DIGIT = 1, 28, 28


def compare_networks(
    names:Sequence[str], # as in `MODELS`
    batch:int,           # images in a step
    memory:bool,         # measure peak memory too
    compiled:bool=False, # instead of as they are
)->list[Comparison]:
    "Networks over the p4-CNN: a table for each shape of their pictures."
    chosen, comparisons = [get_model(n) for n in names], []
    for shape in dict.fromkeys(m.input_shape for m in chosen):
        makers = {m.name: m.make for m in chosen if m.input_shape == shape}
        sides = '×'.join(map(str, shape))
        title = f'training step, batch {batch}, {sides}, over the p4-CNN'
        if shape != DIGIT: title += ' on 28×28 digits'
        if compiled: title += ', compiled'
        as_they_are, other = ({}, makers) if compiled else (makers, {})
        comparisons.append(Comparison(title, (batch, *shape), as_they_are, other, p4_cnn,
                                      (batch, *DIGIT), memory=memory))
    return comparisons


@benchmark('networks')
def networks_comparisons()->list[Comparison]:
    "Six small networks for digits, what the README shows; and those of them compiled that pay."
    # R4_SA takes minutes to compile: `eqtutor bench gsa` has it
    return [*compare_networks(SIX_NETWORKS, 16, memory=True),
            *compare_networks(SIX_NETWORKS[:-1], 16, memory=True, compiled=True)]
