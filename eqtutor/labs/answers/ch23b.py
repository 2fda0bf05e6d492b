"""23b Self-attention networks: what a group element costs, and what a window does not."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake


def layer_sizes(seed): return [(20, 4, 9, 10), (8, 8, 2, 5), (12, 1, 3, 4), (6, 16, 4, 7)]

def counted(C, n, heads, d, maps=3, biases=True, encodings=1, norm=32, poses=True):
    width = heads*d
    total = maps*C*width + width*C + (maps*width + C)*biases
    return total + encodings*(48 + norm + 17*d) + n*d*poses*encodings

def layer_parameters(C, n, heads, d): return counted(C, n, heads, d)

def without_biases(C, n, heads, d): return counted(C, n, heads, d, biases=False)

def an_encoding_a_head(C, n, heads, d): return counted(C, n, heads, d, encodings=heads)

def without_norm(C, n, heads, d): return counted(C, n, heads, d, norm=0)

def without_poses(C, n, heads, d): return counted(C, n, heads, d, poses=False)


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
    Exercise('23b.2', 'code', 2, layer_parameters, layer_sizes, mistakes=[
        Mistake(without_biases, 'The four maps have biases: three of heads·d numbers, one of C.'),
        Mistake(an_encoding_a_head, 'All heads share one encoding.'),
        Mistake(without_norm, 'The LayerNorm of the encoding has 32 parameters.'),
        Mistake(without_poses, 'Each of the n poses has a vector of d numbers.'),
    ]),
]
