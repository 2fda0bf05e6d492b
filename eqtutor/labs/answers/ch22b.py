"""22b Affine networks: squeeze-and-excitation on a group, parameters of a layer, seeds needed."""
# Plain module: edited by hand, no notebook exports it.
import math

from ..exercise import Exercise, Mistake
from .draws import normal


def maps_and_weights(seed):
    sizes = (4, 4, 3, 5, 2), (6, 1, 4, 4, 3), (4, 8, 2, 3, 4)
    return [(normal(c, n, h, w, seed=seed + i) + 1, normal(m, c, seed=seed + i + 9),
             normal(m, seed=seed + i + 29), normal(c, m, seed=seed + i + 19),
             normal(c, seed=seed + i + 39)) for i, (c, n, h, w, m) in enumerate(sizes)]

def factors(mean, W1, b1, W2, b2): return (W2 @ (W1 @ mean + b1).relu() + b2).sigmoid()

def gated(f, factors): return f*factors[:, None, None, None]

def squeeze_excite(f, *maps): return gated(f, factors(f.mean((1, 2, 3)), *maps))

def without_biases(f, W1, b1, W2, b2): return squeeze_excite(f, W1, 0*b1, W2, 0*b2)

def without_relu(f, W1, b1, W2, b2):
    return gated(f, (W2 @ (W1 @ f.mean((1, 2, 3)) + b1) + b2).sigmoid())

def without_sigmoid(f, W1, b1, W2, b2):
    return gated(f, W2 @ (W1 @ f.mean((1, 2, 3)) + b1).relu() + b2)

def sum_for_mean(f, *maps): return gated(f, factors(f.sum((1, 2, 3)), *maps))

def pose_by_pose(f, W1, b1, W2, b2):
    each = factors(f.mean((2, 3)), W1, b1[:, None], W2, b2[:, None])
    return f*each[:, :, None, None]

def largest(f, *maps): return gated(f, factors(f.amax((1, 2, 3)), *maps))

def factors_alone(f, *maps): return factors(f.mean((1, 2, 3)), *maps)


def layer_sizes(seed): return [(16, 1, 5), (8, 4, 5), (32, 4, 3), (12, 8, 7)]

def layer_parameters(d, n, k): return 4*d*d*n + 3*d + 2*d*k*k*(n + 1) + d*(n + 1)

def output_bias_too(d, n, k): return layer_parameters(d, n, k) + d

def no_biases(d, n, k): return layer_parameters(d, n, k) - 3*d

def shift_on_the_group(d, n, k): return layer_parameters(d, n, k) + (n - 1)*d*(2*k*k + 1)

def query_on_the_window(d, n, k): return layer_parameters(d, n, k) + d*(n + 1)*(k*k - 1)

def three_maps(d, n, k): return layer_parameters(d, n, k) - d*d*n

def poses_twice(d, n, k): return layer_parameters(d, n, k) + 4*d*d*n*(n - 1)

def on_the_plane(d, n, k): return layer_parameters(d, 1, k)


def scatters(seed): return [(9, 5), (9, 11), (.32, .25), (1.5, .7)]

def seeds_needed(deviation, gap): return math.ceil(8*(deviation/gap)**2)

def one_error_is_enough(deviation, gap): return math.ceil(2*(deviation/gap)**2)

def error_of_one_mean(deviation, gap): return math.ceil(4*(deviation/gap)**2)

def errors_added(deviation, gap): return math.ceil(16*(deviation/gap)**2)

def rounded_down(deviation, gap): return seeds_needed(deviation, gap) - 1

def root_forgotten(deviation, gap): return math.ceil(4*deviation/gap)


EXERCISES = [
    Exercise('22b.1', 'code', 2, squeeze_excite, maps_and_weights, mistakes=[
        Mistake(pose_by_pose, 'You have a mean for each pose; the squeeze is over poses *and* '
                'places, one number a channel.'),
        Mistake(sum_for_mean, 'That is the sum over the group; divide by |G|.'),
        Mistake(largest, 'That is the maximum over the group; P2 takes the mean.'),
        Mistake(without_biases, 'Both maps have a bias, b1 and b2.'),
        Mistake(without_relu, 'A ReLU stands between the two maps.'),
        Mistake(without_sigmoid, 'The factors pass a sigmoid: they lie between 0 and 1.'),
        Mistake(factors_alone, 'These are the factors. Multiply each channel of f by its own.'),
    ]),
    Exercise('22b.2', 'code', 3, layer_parameters, layer_sizes, mistakes=[
        Mistake(on_the_plane, 'On the plane this is right. On n poses the linear maps and ψ have '
                'n times as many weights.'),
        Mistake(output_bias_too, 'The output map has no bias.'),
        Mistake(no_biases, 'Q, K and V have a bias, one number a channel.'),
        Mistake(shift_on_the_group, 'β lives on places alone (Proposition 22.7): no n there.'),
        Mistake(query_on_the_window, 'The query is taken at one pixel: ψ and β of Q have one '
                'offset.'),
        Mistake(three_maps, 'There are four linear maps: Q, K, V and the output.'),
        Mistake(poses_twice, 'A group convolution is a function of the relative pose: d²n weights '
                'a map, not d²n².'),
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
