"""25 One frame: the mixed difference of two sources, and the ring an operator belongs to."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal

# the student's `mixed_difference`, on a function that mixes its sources
ON_A_QUADRATIC_FORM = ('fn(lambda v: torch.tanh(v @ case[1] @ v), '
                       '*[case[k] for k in (0, 2, 3, 4)])')


def points_and_forms(seed):
    return [(normal(5, seed=seed + i), normal(5, 5, seed=seed + i + 9), i, 4, .5 + i/4)
            for i in range(4)]

def signed_difference(f, x, i, j, t, signs):
    "The values of f with both, one, the other and no source raised by t, with these signs."
    def at(*raised):
        step = torch.zeros_like(x)
        for place in raised: step[place] += t
        return float(f(x + step))
    values = at(i, j), at(i), at(j), at()
    return sum(sign*value for sign, value in zip(signs, values))

def mixed_difference(f, x, i, j, t): return signed_difference(f, x, i, j, t, (1, -1, -1, 1))

def without_f_itself(f, x, i, j, t): return signed_difference(f, x, i, j, t, (1, -1, -1, 0))

def wrong_signs(f, x, i, j, t): return signed_difference(f, x, i, j, t, (1, -1, 1, -1))

def never_both(f, x, i, j, t): return signed_difference(f, x, i, j, t, (0, 1, -1, 0))


def rings(pool, product): return {'max-pool': pool, 'mean times pixel': product}


EXERCISES = [
    Exercise('25.1', 'code', 3, mixed_difference, points_and_forms, ON_A_QUADRATIC_FORM, [
        Mistake(without_f_itself,
                'One term is missing: f(x) itself, with a plus. Otherwise even a sum of pairs does '
                'not vanish.'),
        Mistake(wrong_signs,
                'The signs: plus where both or neither are moved, minus where one is.'),
        Mistake(never_both, 'You move one source after the other, but never both at once.'),
    ]),
    Exercise('25.2', 'proof', 3),
    Exercise('25.3', 'predict', 2, name='ring_of', right=rings('sums, then a map', 'one sum'),
             mistakes=[
        Mistake(rings('one sum', 'one sum'),
                'Raise two sources that are both larger than the rest: the maximum does not see '
                'them one by one, as a sum of pairs would.'),
        Mistake(rings('sums, then a map', 'sums, then a map'),
                'The mean times the pixel is Σ f(g)f(gn)/9: each term knows the pixel and *one* '
                'neighbour.'),
        Mistake(rings('one sum', 'sums, then a map'), 'You have exchanged them.'),
    ]),
    Exercise('25.4', 'proof', 2),
]
