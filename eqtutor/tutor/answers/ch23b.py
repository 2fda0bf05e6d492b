"""23b Self-attention networks: where the parameters sit, and when a kernel has more."""
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
    Exercise('23b.1', 'predict', 2, name='where_they_sit', right=[2_658, 38_620, 2_850, 240],
             mistakes=[
        Mistake([2_658, 38_600, 2_850, 240], 'Twenty are missing: each of the five attention '
                                             'layers has a pose vector of 4 numbers.'),
        Mistake([2_658, 7_724, 570, 240], 'That is one block: there are five.'),
        Mistake([2_658, 38_620, 2_850, 250], 'The head has no bias.'),
        Mistake([2_590, 38_620, 2_850, 240], 'Without pose vectors the networks of x and y share '
                                             'the whole width: each ends in 5 numbers, not in 3.'),
        Mistake([5_042, 47_820, 2_850, 240], 'All heads share the two networks of x and y: count '
                                             'them once a layer.'),
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
