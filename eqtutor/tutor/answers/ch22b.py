"""22b Affine networks: parameters of a layer, seeds needed."""
# Plain module: edited by hand, no notebook exports it.
import math

from ..exercise import Exercise, Mistake
from .draws import dice, one, shuffled, told_apart


def layer_sizes(seed):
    die = dice(seed)
    return [(4*one(range(1, 12), die), n, k) for n, k in shuffled(((1, 5), (4, 5), (4, 3), (8, 7)),
                                                                 seed)]

def layer_parameters(c, n, k): return 4*c*c*n + 3*c + 2*c*k*k*(n + 1) + c*(n + 1)

def output_bias_too(c, n, k): return layer_parameters(c, n, k) + c

def no_biases(c, n, k): return layer_parameters(c, n, k) - 3*c

def shift_on_the_group(c, n, k): return layer_parameters(c, n, k) + (n - 1)*c*(2*k*k + 1)

def query_on_the_window(c, n, k): return layer_parameters(c, n, k) + c*(n + 1)*(k*k - 1)

def three_maps(c, n, k): return layer_parameters(c, n, k) - c*c*n

def poses_twice(c, n, k): return layer_parameters(c, n, k) + 4*c*c*n*(n - 1)

def on_the_plane(c, n, k): return layer_parameters(c, 1, k)


def scatters(seed):
    "Deviations and gaps that no rounding takes from one number of seeds to another."
    def pair(die):
        deviation = one(range(3, 40), die)/4
        return deviation, round(deviation*one(range(30, 200), die)/100, 2)
    def sure(deviation, gap):
        return all(.02 < n*(deviation/gap)**2 % 1 < .98 for n in (2, 4, 8, 16))
    def draw(die): return [next(p for p in iter(lambda: pair(die), None) if sure(*p))
                           for _ in range(4)]
    return told_apart(draw, seeds_needed, (one_error_is_enough, error_of_one_mean, errors_added,
                                           rounded_down, root_forgotten), seed)

def seeds_needed(deviation, gap): return math.ceil(8*(deviation/gap)**2)

def one_error_is_enough(deviation, gap): return math.ceil(2*(deviation/gap)**2)

def error_of_one_mean(deviation, gap): return math.ceil(4*(deviation/gap)**2)

def errors_added(deviation, gap): return math.ceil(16*(deviation/gap)**2)

def rounded_down(deviation, gap): return seeds_needed(deviation, gap) - 1

def root_forgotten(deviation, gap): return math.ceil(4*deviation/gap)


EXERCISES = [
    Exercise('22b.2', 'code', 3, layer_parameters, layer_sizes, mistakes=[
        Mistake(on_the_plane, 'On the plane this is right. On n poses the linear maps and ψ have '
                'n times as many weights.'),
        Mistake(output_bias_too, 'The output map has no bias.'),
        Mistake(no_biases, 'Q, K and V have a bias, one number a channel.'),
        Mistake(shift_on_the_group, 'β lives on places alone (Proposition 22.7): no n there.'),
        Mistake(query_on_the_window, 'The query is taken at one pixel: ψ and β of Q have one '
                'offset.'),
        Mistake(three_maps, 'There are four linear maps: Q, K, V and the output.'),
        Mistake(poses_twice, 'A group convolution is a function of the relative pose: c²n weights '
                'a map, not c²n².'),
    ]),
    Exercise('22b.3', 'code', 2, seeds_needed, scatters, mistakes=[
        Mistake(one_error_is_enough, 'The gap has one error here; it must have two.'),
        Mistake(error_of_one_mean, 'That is the error of one mean. Both means have one: there is a '
                'factor √2.'),
        Mistake(errors_added, 'You add the errors of the two means. Independent errors add in '
                'squares: √2, not 2.'),
        Mistake(rounded_down, 'One too few: with these seeds two errors are larger than the gap.'),
        Mistake(root_forgotten, 'The error falls as the root of n, not as n.'),
    ]),
]
