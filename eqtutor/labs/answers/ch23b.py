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
    Exercise('23b.1', 'predict', 1, name='on_r6', right=44_468, mistakes=[
        Mistake(44_488, 'Six vectors in place of one are five more, not six.'),
        Mistake(44_398, 'Each element costs 20 parameters: the three further ones of R4 cost 60.'),
        Mistake(44_368, 'The group does change the count: each pose has a vector in each layer.'),
    ]),
    Exercise('23b.2', 'code', 2, layer_parameters, layer_sizes, mistakes=[
        Mistake(without_biases, 'The four maps have biases: three of heads·d numbers, one of C.'),
        Mistake(an_encoding_a_head, 'All heads share one encoding.'),
        Mistake(without_norm, 'The LayerNorm of the encoding has 32 parameters.'),
        Mistake(without_poses, 'Each of the n poses has a vector of d numbers.'),
    ]),
]
