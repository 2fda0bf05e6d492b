"""22b Affine networks: a gate with a factor for each pose, parameters of a layer, seeds needed."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import normal


def maps_and_weights(seed):
    sizes = (4, 4, 3, 2), (6, 4, 4, 3), (4, 2, 3, 4)
    return [(normal(c, 4, h, w, seed=seed + i) + 1, normal(m, c, 4, seed=seed + i + 9),
             normal(m, seed=seed + i + 29), normal(c, m, 4, seed=seed + i + 19),
             normal(c, seed=seed + i + 39)) for i, (c, h, w, m) in enumerate(sizes)]

def turned(W): return torch.stack([W.roll(t, 2) for t in range(4)])   # (t, o, i, s): W[s - t]

def layer(W, b, m): return torch.einsum('tois,is->ot', turned(W), m) + b[:, None]

def factors(m, W1, b1, W2, b2): return layer(W2, b2, layer(W1, b1, m).relu()).sigmoid()

def gated(f, factors): return f*factors[:, :, None, None]

def gate_by_pose(f, *maps): return gated(f, factors(f.mean((2, 3)), *maps))

def without_biases(f, W1, b1, W2, b2): return gate_by_pose(f, W1, 0*b1, W2, 0*b2)

def without_relu(f, W1, b1, W2, b2):
    return gated(f, layer(W2, b2, layer(W1, b1, f.mean((2, 3)))).sigmoid())

def without_sigmoid(f, W1, b1, W2, b2):
    return gated(f, layer(W2, b2, layer(W1, b1, f.mean((2, 3))).relu()))

def sum_for_mean(f, *maps): return gated(f, factors(f.sum((2, 3)), *maps))

def largest(f, *maps): return gated(f, factors(f.amax((2, 3)), *maps))

def one_mean(f, *maps):
    return gated(f, factors(f.mean((1, 2, 3))[:, None].expand(-1, 4), *maps))

def other_way_round(f, W1, b1, W2, b2):
    return gate_by_pose(f, W1[..., [0, 3, 2, 1]], b1, W2[..., [0, 3, 2, 1]], b2)

def absolute_poses(f, W1, b1, W2, b2):
    "One number for all targets: the weight is taken at the source's pose."
    hidden = (torch.einsum('ois,is->o', W1, f.mean((2, 3))) + b1).relu()[:, None].expand(-1, 4)
    return gated(f, (torch.einsum('ois,is->o', W2, hidden) + b2).sigmoid()[:, None])

def factors_alone(f, *maps): return factors(f.mean((2, 3)), *maps)

def hidden(f, W1, b1): return layer(W1, b1, f.mean((2, 3)))

def softmax_for_sigmoid(f, W1, b1, W2, b2):
    return gated(f, layer(W2, b2, hidden(f, W1, b1).relu()).softmax(0))

def relu_for_sigmoid(f, W1, b1, W2, b2):
    return gated(f, layer(W2, b2, hidden(f, W1, b1).relu()).relu())

def sigmoid_for_relu(f, W1, b1, W2, b2):
    return gated(f, layer(W2, b2, hidden(f, W1, b1).sigmoid()).sigmoid())

def factors_added(f, *maps): return f + factors(f.mean((2, 3)), *maps)[:, :, None, None]


def layer_sizes(seed): return [(16, 1, 5), (8, 4, 5), (32, 4, 3), (12, 8, 7)]

def layer_parameters(c, n, k): return 4*c*c*n + 3*c + 2*c*k*k*(n + 1) + c*(n + 1)

def output_bias_too(c, n, k): return layer_parameters(c, n, k) + c

def no_biases(c, n, k): return layer_parameters(c, n, k) - 3*c

def shift_on_the_group(c, n, k): return layer_parameters(c, n, k) + (n - 1)*c*(2*k*k + 1)

def query_on_the_window(c, n, k): return layer_parameters(c, n, k) + c*(n + 1)*(k*k - 1)

def three_maps(c, n, k): return layer_parameters(c, n, k) - c*c*n

def poses_twice(c, n, k): return layer_parameters(c, n, k) + 4*c*c*n*(n - 1)

def on_the_plane(c, n, k): return layer_parameters(c, 1, k)


def scatters(seed): return [(9, 5), (9, 11), (.32, .25), (1.5, .7)]

def seeds_needed(deviation, gap): return math.ceil(8*(deviation/gap)**2)

def one_error_is_enough(deviation, gap): return math.ceil(2*(deviation/gap)**2)

def error_of_one_mean(deviation, gap): return math.ceil(4*(deviation/gap)**2)

def errors_added(deviation, gap): return math.ceil(16*(deviation/gap)**2)

def rounded_down(deviation, gap): return seeds_needed(deviation, gap) - 1

def root_forgotten(deviation, gap): return math.ceil(4*deviation/gap)


EXERCISES = [
    Exercise('22b.1', 'code', 2, gate_by_pose, maps_and_weights, mistakes=[
        Mistake(one_mean, 'You have one mean a channel, which is the gate of P2; here each pose '
                'has its own.'),
        Mistake(absolute_poses, 'The weight depends on the relative pose, (source − target) mod '
                '4, not on the source alone.'),
        Mistake(other_way_round, 'That is W at (target − source) mod 4; take (source − target) mod '
                '4, the pose of the source as the target sees it.'),
        Mistake(sum_for_mean, 'That is the sum over the places; divide by their number.'),
        Mistake(largest, 'That is the maximum over the places; take the mean.'),
        Mistake(without_biases, 'Both layers have a bias, b1 and b2.'),
        Mistake(without_relu, 'A ReLU stands between the two layers.'),
        Mistake(without_sigmoid, 'The factors pass a sigmoid: they lie between 0 and 1.'),
        Mistake(softmax_for_sigmoid,
                'Your factors are a softmax over the channels. Each has its own sigmoid.'),
        Mistake(relu_for_sigmoid, 'Behind the second layer comes a sigmoid, not a ReLU.'),
        Mistake(sigmoid_for_relu, 'Between the two layers comes a ReLU, not a sigmoid.'),
        Mistake(factors_added, 'You add the factors to f. Multiply each entry of f by its own.'),
        Mistake(factors_alone, 'These are the factors. Multiply each entry of f by its own.'),
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
