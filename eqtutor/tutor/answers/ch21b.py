"""21b Networks with attentive convolutions: the parameters that attention adds, and the seeds that
a lead needs."""
# Plain module: edited by hand, no notebook exports it.
import math

from ..exercise import Exercise, Mistake
from .draws import dice, one, shuffled, told_apart

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


# --- leads

def two_networks(seed):
    def network(die): return one(range(1500, 2500), die)/1000, one(range(20, 90), die)/1000
    def draw(die):
        return [(*network(die), *network(die), one(range(3, 12), die), one(range(5, 30), die)/100)
                for _ in range(5)]
    return told_apart(draw, lead_and_seeds, LEADS, seed)

def lead_and_seeds(a, d, b, e, n, true):
    return (b - a)/((d**2 + e**2)/n)**.5, math.ceil(2.8**2*(d**2 + e**2)/true**2)

def larger_is_ahead(a, d, b, e, n, true): return lead_and_seeds(b, d, a, e, n, true)

def in_deviations(a, d, b, e, n, true):
    return (b - a)/(d**2 + e**2)**.5, lead_and_seeds(a, d, b, e, n, true)[1]

def deviations_added(a, d, b, e, n, true):
    return (b - a)/((d + e)/n**.5), math.ceil((2.8*(d + e)/true)**2)

def rounded_down(a, d, b, e, n, true):
    lead, seeds = lead_and_seeds(a, d, b, e, n, true)
    return lead, seeds - 1

def both_together(a, d, b, e, n, true):
    lead, seeds = lead_and_seeds(a, d, b, e, n, true)
    return lead, 2*seeds

LEADS = larger_is_ahead, in_deviations, deviations_added, rounded_down, both_together


EXERCISES = [
    Exercise('21b.1', 'code', 3, lead_and_seeds, two_networks, mistakes=[
        Mistake(larger_is_ahead, 'These are errors: who has the smaller one is ahead.'),
        Mistake(in_deviations,
                'You divide by the deviation of a single run. That of a mean of n is √n times '
                'smaller.'),
        Mistake(deviations_added,
                'Deviations of independent runs do not add up; their squares do.'),
        Mistake(rounded_down, 'So many seeds are not quite enough: round up.'),
        Mistake(both_together, 'Asked is for the seeds of each network, not of both together.'),
    ]),
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
