"""22b Affine networks: parameters of a layer, and whether two gains differ."""
# Plain module: edited by hand, no notebook exports it.
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

def factor_on_places(c, n, k): return layer_parameters(c, n, k) - (n - 1)*c*(2*k*k + 1)

def query_on_the_window(c, n, k): return layer_parameters(c, n, k) + c*(n + 1)*(k*k - 1)

def three_maps(c, n, k): return layer_parameters(c, n, k) - c*c*n

def poses_twice(c, n, k): return layer_parameters(c, n, k) + 4*c*c*n*(n - 1)

def on_the_plane(c, n, k): return layer_parameters(c, 1, k)


# --- gains

def four_networks(seed):
    def network(die): return one(range(7000, 9500), die)/100, one(range(10, 90), die)/100
    def draw(die):
        return [(*(network(die) for _ in range(4)), one(range(3, 12), die)) for _ in range(4)]
    return told_apart(draw, gap_of_gaps, GAINS, seed)

def gap_of_gaps(a, b, c, d, n, sign=-1, of=4):
    variances = [deviation**2 for _, deviation in (a, b, c, d)]
    return a[0] - b[0] + sign*(c[0] - d[0]), (sum(variances[:of])/n)**.5

def gains_added(a, b, c, d, n): return gap_of_gaps(a, b, c, d, n, sign=1)

def first_two_alone(a, b, c, d, n): return gap_of_gaps(a, b, c, d, n, of=2)

def of_single_runs(a, b, c, d, n): return gap_of_gaps(a, b, c, d, 1)

def root_forgotten(a, b, c, d, n):
    gap, error = gap_of_gaps(a, b, c, d, n)
    return gap, error**2

def deviations_added(a, b, c, d, n):
    return gap_of_gaps(a, b, c, d, n)[0], (a[1] + b[1] + c[1] + d[1])/n**.5

def errors_subtracted(a, b, c, d, n):
    return (gap_of_gaps(a, b, c, d, n)[0],
            abs(a[1]**2 + b[1]**2 - c[1]**2 - d[1]**2)**.5/n**.5)

GAINS = (gains_added, first_two_alone, of_single_runs, root_forgotten, deviations_added,
         errors_subtracted)


EXERCISES = [
    Exercise('22b.1', 'code', 3, layer_parameters, layer_sizes, mistakes=[
        Mistake(on_the_plane, 'On the plane this is right. On n poses the linear maps and ψ have '
                'n times as many weights.'),
        Mistake(output_bias_too, 'The output map has no bias.'),
        Mistake(no_biases, 'Q, K and V have a bias, one number a channel.'),
        Mistake(shift_on_the_group, 'β lives on places alone (Proposition 22.7): no n there.'),
        Mistake(factor_on_places, 'ψ has a number for each pose: Proposition 22.7 is of β alone.'),
        Mistake(query_on_the_window, 'The query is taken at one pixel: ψ and β of Q have one '
                'offset.'),
        Mistake(three_maps, 'There are four linear maps: Q, K, V and the output.'),
        Mistake(poses_twice, 'A group convolution is a function of the relative pose: c²n weights '
                'a map, not c²n².'),
    ]),
    Exercise('22b.2', 'code', 2, gap_of_gaps, four_networks, mistakes=[
        Mistake(gains_added, 'Asked is how much the gains differ: take the second from the first.'),
        Mistake(first_two_alone, 'All four means have an error, not only the first two.'),
        Mistake(of_single_runs,
                'That is the deviation of single runs. That of a mean of n is √n times smaller.'),
        Mistake(root_forgotten, 'That is the variance: the standard error is its root.'),
        Mistake(deviations_added,
                'Deviations of independent runs do not add up; their squares do.'),
        Mistake(errors_subtracted, 'Squares of errors add, also where means are subtracted.'),
    ]),
]
