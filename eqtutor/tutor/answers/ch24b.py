"""24b E4 networks: the layer's cost beside a group convolution's, a larger window's, and what the
savings buy."""
# Plain module: edited by hand, no notebook exports it.
from functools import cache

from ..exercise import Exercise, Mistake
from .draws import one, shuffled, told_apart


@cache   # the draws may be many
def layer_sizes(seed):
    "Never, twice; a tie at k = 3; and sizes that tell all mistakes apart, in any order."
    def size(die):
        return (one(range(3, 21), die), one((1, 2, 4), die), one(range(1, 17), die),
                one((1, 2), die))
    def draw(die):
        special = [(2, 1, 1, 1), (16, 1, 16, 1), (9, 1, 6, 1)]
        return special + [size(die) for _ in range(3)]
    return shuffled(told_apart(draw, cheaper_from, (without_the_sum, one_list, ties_count,
                                                    without_the_group, not_reduced, even_too),
                               seed), seed)

def cheaper_where(per_window, lists):
    "The smallest odd k with k²·per_window > lists; 0 for none."
    if per_window <= 0: return 0
    return next(k for k in range(1, 1000, 2) if k*k*per_window > lists)

def cheaper_from(C, n, s, r): return cheaper_where(C*n - 1 - s/r, C*n*(1 + 1/r))

def without_the_sum(C, n, s, r): return cheaper_where(C*n - s/r, C*n*(1 + 1/r))

def one_list(C, n, s, r): return cheaper_where(C*n - 1 - s/r, C*n)

def ties_count(C, n, s, r):
    saved = C*n - 1 - s/r
    return next((k for k in range(1, 1000, 2) if saved > 0 and k*k*saved >= C*n*(1 + 1/r)), 0)

def without_the_group(C, n, s, r): return cheaper_where(C - 1 - s/r, C*(1 + 1/r))

def not_reduced(C, n, s, r): return cheaper_where(C*n - 1 - s, C*n*(1 + 1/r))

def even_too(C, n, s, r):
    saved = C*n - 1 - s/r
    return next((k for k in range(1, 1000) if k*k*saved > C*n*(1 + 1/r)), 0)

EXERCISES = [
    Exercise('24b.1', 'code', 2, cheaper_from, layer_sizes, mistakes=[
        Mistake(without_the_sum,
                'The window sum is missing: k² products a channel. (The paper\'s FLOPs leave it '
                'out too. As parameters, which it has none of, your number is right.)'),
        Mistake(one_list, 'There are two lists: V reads one, and W₁ another of C/r outputs.'),
        Mistake(ties_count, 'At a tie E4 is not cheaper yet: take the next odd window.'),
        Mistake(without_the_group,
                'Both layers sum over n poses as well as over C channels: n does not cancel '
                'there.'),
        Mistake(not_reduced,
                'W₂ reads C/r numbers, not C: its part in k² is s/r for each channel.'),
        Mistake(even_too, 'The window must be odd: it needs a pixel in the middle.'),
    ]),
    Exercise('24b.2', 'predict', 2, name='with_window_nine', right=30_118, mistakes=[
        Mistake(28_486, 'You add the same number from 7 to 9 as from 5 to 7. What grows with k is '
                'k², and 81 − 49 is more than 49 − 25.'),
        Mistake(29_734, 'Nearly: W₂ has a bias for each offset and slice as well.'),
        Mistake(38_998, 'You have scaled the whole count by 81/49; only W₂ depends on k.'),
    ]),
    Exercise('24b.3', 'proof', 3),
]
