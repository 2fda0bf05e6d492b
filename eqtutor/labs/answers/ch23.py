"""23 Group self-attention: merging two halves of a softmax, errors of interpolation, bytes."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal


def halves_of_softmax(seed):
    def part(scores, values):
        weights = (scores - scores.amax(1, keepdim=True)).exp()
        return scores.amax(1), (weights*values).sum(1), weights.sum(1)
    def case(i):
        scores, values = 5*normal(2, 7, seed=seed + i), 5*normal(2, 7, seed=seed + i + 20)
        return *part(scores[:, :3], values[:, :3]), *part(scores[:, 3:], values[:, 3:])
    return [case(i) for i in range(6)]

def merge(m1, n1, d1, m2, n2, d2):
    m = torch.maximum(m1, m2)
    n = (m1 - m).exp()*n1 + (m2 - m).exp()*n2
    return m, n, (m1 - m).exp()*d1 + (m2 - m).exp()*d2

def not_scaled(m1, n1, d1, m2, n2, d2): return torch.maximum(m1, m2), n1 + n2, d1 + d2

def scaled_the_wrong_way(m1, n1, d1, m2, n2, d2):
    m = torch.maximum(m1, m2)
    n = (m - m1).exp()*n1 + (m - m2).exp()*n2
    return m, n, (m - m1).exp()*d1 + (m - m2).exp()*d2

def denominator_not_scaled(m1, n1, d1, m2, n2, d2):
    m, n, _ = merge(m1, n1, d1, m2, n2, d2)
    return m, n, d1 + d2


def group_orders(seed): return [(n,) for n in (1, 4, 8, 12, 16)]

def stored_bytes(order): return 4*16*9*784*25*order**3

def without_the_four_bytes(order): return 16*9*784*25*order**3

def two_poses(order): return 4*16*9*784*25*order**2

def five_offsets(order): return 4*16*9*784*5*order**3


EXERCISES = [
    Exercise('23.1', 'proof', 3),
    Exercise('23.2', 'code', 4, merge, halves_of_softmax, mistakes=[
        Mistake(not_scaled,
                'The parts are relative to different maxima: scale both to the new one before you '
                'add.'),
        Mistake(scaled_the_wrong_way,
                'You scale the wrong way: relative to the new, larger maximum the old terms become '
                'smaller, exp(m1 − m).'),
        Mistake(denominator_not_scaled,
                'The denominator is not scaled; it consists of the same exponentials as the '
                'numerator.'),
    ]),
    Exercise('23.3', 'predict', 2, name='error_factor', right=[4, 1], mistakes=[
        Mistake([2, 1], 'Bilinear interpolation errs with the *square* of the spacing.'),
        Mistake([4, 4],
                'The other curve is at zero already: nothing is interpolated there.'),
        Mistake([1, 1], 'The samples lie closer, so interpolation does get better.'),
    ]),
    Exercise('23.4', 'code', 2, stored_bytes, group_orders, mistakes=[
        Mistake(without_the_four_bytes, 'A number of float32 takes 4 bytes.'),
        Mistake(two_poses,
                'The scores have *three* poses: of the target, of the query, of the source.'),
        Mistake(five_offsets, 'The window has 5×5 = 25 offsets.'),
    ]),
]
