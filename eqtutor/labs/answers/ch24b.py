"""24b E4 networks: the layer's cost beside a group convolution's, a larger window's, and what the
savings buy."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake


def layer_sizes(seed):
    return [(16, 4, 3, 2, 1), (24, 4, 5, 12, 2), (8, 8, 1, 4, 2), (32, 1, 7, 1, 4)]

def cost_ratio(C, n, k, s, r):
    return (C**2*n*(1 + 1/r) + C*k**2*(1 + s/r))/(C**2*n*k**2)

def without_the_sum(C, n, k, s, r):
    return (C**2*n*(1 + 1/r) + C*k**2*s/r)/(C**2*n*k**2)

def one_list(C, n, k, s, r): return (C**2*n + C*k**2*(1 + s/r))/(C**2*n*k**2)

def upside_down(C, n, k, s, r): return 1/cost_ratio(C, n, k, s, r)

def order_twice(C, n, k, s, r):
    return (C**2*n*(1 + 1/r) + C*k**2*(1 + s/r))/(C**2*n**2*k**2)


EXERCISES = [
    Exercise('24b.1', 'code', 2, cost_ratio, layer_sizes, mistakes=[
        Mistake(without_the_sum,
                'The window sum is missing: k² products a channel. (The paper\'s FLOPs leave it '
                'out too. As parameters, which it has none of, your number is right.)'),
        Mistake(one_list, 'There are two lists: V reads one, and W₁ another of C/r outputs.'),
        Mistake(upside_down, 'Upside down: E4 over the convolution.'),
        Mistake(order_twice,
                'At one place *and pose* the convolution has C²nk² products: n once; the other n '
                'is the number of poses, and cancels.'),
    ]),
    Exercise('24b.2', 'predict', 2, name='with_window_nine', right=30_118, mistakes=[
        Mistake(28_486, 'You add the same number from 7 to 9 as from 5 to 7. What grows with k is '
                'k², and 81 − 49 is more than 49 − 25.'),
        Mistake(29_734, 'Nearly: W₂ has a bias for each offset and slice as well.'),
        Mistake(38_998, 'You have scaled the whole count by 81/49; only W₂ depends on k.'),
    ]),
    Exercise('24b.3', 'proof', 3),
]
