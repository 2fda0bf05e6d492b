"""26b Scales: the power of the scale in a layer, and what an enlargement multiplies."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import normal, shuffled

# the student's function: a layer that is too large by a power of h, a scene of cosines
ON_A_LAYER = ('fn(lambda f, x, h: torch.tanh(case[0] @ f(x + h*case[1]))*h**case[2], '
              'lambda p: torch.cos(p @ case[3]).sum(-1), case[4], case[5])')


def layers(seed):
    """A layer's weights and offsets, its surplus power, a scene's frequencies, place and scale.

    The offsets grow with h, so that only the power is wrong, by whichever ratio one enlarges. The
    weights of every other layer sum to 0: a constant scene says nothing of it.
    """
    cases = []
    for i, power in enumerate(shuffled([-3, 2, 0, 1, 1.5, -.5], seed)):
        n = seed + 10*i
        weights = normal(3, 9, seed=n)/3
        if i % 2: weights -= weights.mean(1, keepdim=True)
        scale = 1 + normal(1, seed=n + 4).abs().item()
        cases.append((weights, normal(9, 2, seed=n + 1), power, normal(2, 4, seed=n + 2),
                      normal(2, seed=n + 3), scale))
    return cases

def size(answer): return answer.norm().item()

def enlarged(f): return lambda y: f(y/2)

def surplus(layer, f, x, h):
    return math.log2(size(layer(enlarged(f), 2*x, 2*h))/size(layer(f, x, h)))

def scene_made_smaller(layer, f, x, h):
    return math.log2(size(layer(lambda y: f(2*y), 2*x, 2*h))/size(layer(f, x, h)))

def place_stays(layer, f, x, h):
    return math.log2(size(layer(enlarged(f), x, 2*h))/size(layer(f, x, h)))

def scale_stays(layer, f, x, h):
    return math.log2(size(layer(enlarged(f), 2*x, h))/size(layer(f, x, h)))

def scale_alone(layer, f, x, h):
    return math.log2(size(layer(f, x, 2*h))/size(layer(f, x, h)))

def power_that_mends(layer, f, x, h): return -surplus(layer, f, x, h)

def factor(layer, f, x, h): return 2**surplus(layer, f, x, h)

def natural_logarithm(layer, f, x, h): return math.log(factor(layer, f, x, h))

def rounded(layer, f, x, h): return float(round(surplus(layer, f, x, h)))

def on_a_constant(layer, f, x, h):
    def one(y): return torch.ones_like(y[..., 0])
    new, old = size(layer(one, x, 2*h)), size(layer(one, x, h))
    return math.log2(new/old) if min(new, old) > 1e-9 else 0.


EXERCISES = [
    Exercise('26b.1', 'code', 4, surplus, layers, ON_A_LAYER, [
        Mistake(scene_made_smaller,
                'You read f at λy. Where the scene is λ times as large, y shows what stood at '
                'y/λ.'),
        Mistake(place_stays,
                'You enlarge scene and scale, and ask at the old place. What stood at x stands at '
                'λx.'),
        Mistake(scale_stays, 'You ask the enlarged scene at the old scale: it must be λh.'),
        Mistake(scale_alone,
                'You change the scale and keep the scene. Two scales of one scene have two '
                'answers, even if the layer is equivariant.'),
        Mistake(power_that_mends,
                'The sign is reversed: the layer is divided by hᵇ, so b is the power that it has '
                'too much.'),
        Mistake(factor, 'That is the factor λᵇ. Take its logarithm to the base λ.'),
        Mistake(natural_logarithm,
                'That is b·log λ: divide the logarithm of the factor by log λ.'),
        Mistake(rounded, 'The power need not be whole: do not round.'),
        Mistake(on_a_constant,
                'A constant scene is its own enlargement, and often enough. But a layer whose '
                'weights sum to 0 answers 0 to it: use the scene that is given.'),
    ]),
    Exercise('26b.2', 'predict', 2, name='growth', right=[8, 1, 1, 1/8, 1], mistakes=[
        Mistake([4, 1, 1, 1/4, 1],
                'You count in two dimensions: there are λ³ times as many sources, and h³ grows '
                'by λ³.'),
        Mistake([8, 1, 1, 1/8, 8],
                'A maximum adds nothing up: more sources with the same values have the same '
                'maximum.'),
        Mistake([8, 1, 8, 1, 1],
                'A softmax is no sum: its weights sum to one, however many sources there are '
                '(Proposition 26.6, iv).'),
        Mistake([8, 1/8, 1, 1/8, 1],
                'In (b) the sum has become eight times as large, and so has the number by which '
                'you divide it.'),
        Mistake([8, 8, 1, 1/8, 1],
                'In (b) you forgot that the number of sources in the window grows as the sum '
                'does.'),
        Mistake([2, 1, 1, 1/2, 1],
                'The number of sources grows with the volume, by λ³, not by λ.'),
    ]),
]
