"""23b Self-attention networks: what a cube costs, and when a kernel has more parameters."""
# Plain module: edited by hand, no notebook exports it.
from functools import cache

from ..exercise import Exercise, Mistake
from .draws import one, told_apart


@cache   # the draws may be many
def layer_sizes(seed):
    "Sizes that tell all mistakes apart."
    def size(die):
        return (one(range(2, 12), die), one((2, 4, 8), die), one(range(1, 10), die),
                one(range(8, 17), die))
    def draw(die): return [size(die) for _ in range(4)]
    return told_apart(draw, break_even, (without_the_group, even_sides, without_biases,
                                         without_output, without_pose_vectors, without_layer_norm,
                                         an_encoding_a_head), seed)

def counted(C, n, heads, d, maps=4, biases=True, encodings=1):
    width = heads*d
    total = maps*C*width + (3*width + C)*biases
    return total + encodings*(80 + 17*d + n*d)

def first(C, limit, order, step=2):
    "The first side whose kernels are more than the limit."
    side = 1
    while C*C*order*side**2 <= limit: side += step
    return side

def break_even(C, n, heads, d): return first(C, counted(C, n, heads, d), n)

def without_the_group(C, n, heads, d): return first(C, counted(C, n, heads, d), 1)

def even_sides(C, n, heads, d): return first(C, counted(C, n, heads, d), n, step=1)

def without_biases(C, n, heads, d): return first(C, counted(C, n, heads, d, biases=False), n)

def without_output(C, n, heads, d): return first(C, counted(C, n, heads, d, maps=3), n)

def without_pose_vectors(C, n, heads, d): return first(C, counted(C, 0, heads, d), n)

def without_layer_norm(C, n, heads, d): return first(C, counted(C, n, heads, d) - 32, n)

def an_encoding_a_head(C, n, heads, d):
    return first(C, counted(C, n, heads, d, encodings=heads), n)


EXERCISES = [
    Exercise('23b.1', 'predict', 2, name='cheaper_and_growth', right=[4, 8, 4.8], mistakes=[
        Mistake([12, 16, 4.8],
                'The other way round: one cube of single numbers is less than d squares as long as '
                'the group is smaller than d.'),
        Mistake([4, 8, 4.],
                'Scores and values grow fourfold, but the attention weights eightfold.'),
        Mistake([4, 8, 8.], 'Only the attention weights grow eightfold.'),
        Mistake([4, 8, 6.], 'Not the mean of 4 and 8: add up the work of both terms first.'),
    ]),
    Exercise('23b.2', 'code', 2, break_even, layer_sizes, mistakes=[
        Mistake(without_the_group, 'A kernel of a group convolution has n·k² numbers for each '
                                   'pair of channels.'),
        Mistake(even_sides, 'Only odd sides: a window has a middle.'),
        Mistake(without_biases, 'The four maps have biases: three of heads·d numbers, one of C.'),
        Mistake(without_output, 'There are four maps: the heads are put together by one more.'),
        Mistake(without_pose_vectors, 'Each of the n poses has a vector of d numbers.'),
        Mistake(without_layer_norm,
                'The LayerNorm has parameters too: a scale and a shift for each of the 16.'),
        Mistake(an_encoding_a_head, 'All heads share one encoding.'),
    ]),
]
