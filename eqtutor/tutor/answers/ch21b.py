"""21b Networks with attentive convolutions: the parameters that attention adds."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake
from .draws import dice, one, shuffled

VARIANTS = 'full', 'channel', 'spatial', 'input', 'rotation'


def layer_sizes(seed):
    def sizes(die, n, k):
        return one(range(5, 13), die), one(range(3, 25), die), n, one(range(2, 7), die), k
    cases = [(*sizes(dice(seed + i), n, k), attend) for attend in VARIANTS
             for i, (n, k) in enumerate(((4, 7), (8, 5)))]
    return shuffled(cases, seed)

def parameters(I, O, n, hidden, k, attend, shared=('input',), statistics=2, poses=None):
    matrices, places = 2*n*I*hidden, statistics*(n if poses is None else poses)*k**2
    each = 1 if attend in shared else O
    return {'full': each*(matrices + places), 'channel': each*matrices,
            'spatial': each*places, 'input': each*(matrices + places), 'rotation': n*I}[attend]

def added_parameters(I, O, n, hidden, k, attend):
    return parameters(I, O, n, hidden, k, attend)

def one_for_all(I, O, n, hidden, k, attend):
    return parameters(I, O, n, hidden, k, attend, shared=VARIANTS)

def one_for_each(I, O, n, hidden, k, attend):
    return parameters(I, O, n, hidden, k, attend, shared=())

def mean_without_maximum(I, O, n, hidden, k, attend):
    return parameters(I, O, n, hidden, k, attend, statistics=1)

def filter_of_an_image(I, O, n, hidden, k, attend):
    return parameters(I, O, n, hidden, k, attend, poses=1)

def biases_too(I, O, n, hidden, k, attend):
    each = {'full': O, 'channel': O, 'input': 1}.get(attend, 0)
    return parameters(I, O, n, hidden, k, attend) + each*(I + hidden)

def one_matrix(I, O, n, hidden, k, attend):
    if attend in ('spatial', 'rotation'): return parameters(I, O, n, hidden, k, attend)
    return parameters(I, O, n, hidden, k, attend) - (1 if attend == 'input' else O)*n*I*hidden


EXERCISES = [
    Exercise('21b.2', 'code', 3, added_parameters, layer_sizes, mistakes=[
        Mistake(one_for_all,
                'In full attention, α_CH and α_SP each *output channel* has its own matrices and '
                'filters.'),
        Mistake(one_for_each, 'α_F has one map for all output channels: do not multiply by O.'),
        Mistake(mean_without_maximum,
                'The spatial filter reads two maps, mean and maximum.'),
        Mistake(filter_of_an_image,
                'The spatial filter lies on G: k² entries for each of n poses.'),
        Mistake(biases_too, 'W₁ and W₂ are matrices, without biases.'),
        Mistake(one_matrix, 'There are two matrices for each pose difference, W₁ and W₂.'),
    ]),
]
