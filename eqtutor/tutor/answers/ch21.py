"""21 Attentive group convolution: P1's Equation 17 as a loop, gates of one half, and weights of
which a sum sees nothing."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal, relabelled

GROUPS = 'D4', 'C4', 'D2'


# --- Equation 17

def products_and_matrices(seed):
    def case(i, name):
        group, at = relabelled(name, seed + i), seed + 10*i
        n, c, m = len(group), 3, 2
        return (normal(c, n, n, 4, 5, seed=at), normal(m, c, n, seed=at + 1),
                normal(c, m, n, seed=at + 2), group)
    return [case(i, name) for i, name in enumerate(GROUPS)]

def by_pair(ft, W1, W2, group, index, gate):
    "α^C, where `gate` makes it of W1, W2 of a pair, and of the pair's products `(i, y, x)`."
    alpha = torch.zeros(ft.shape[:3], dtype=ft.dtype)
    for h in group.elements:
        for q in group.elements:
            r = index(group, h, q)
            alpha[:, h, q] = gate(W1[..., r], W2[..., r], ft[:, h, q])
    return alpha

def difference(group, h, q): return group.relative[h, q]

def two_scores(W1, W2, products):
    def score(v): return W2 @ (W1 @ v).relu()
    return score(products.mean((1, 2))) + score(products.amax((1, 2)))

def right_gate(W1, W2, products): return two_scores(W1, W2, products).sigmoid()

def channel_weights(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, difference, right_gate)

def index_from_the_right(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: G.mul[q, G.inv[h]], right_gate)

def difference_turned_round(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: G.relative[q, h], right_gate)

def numbers_subtracted(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: (q - h) % len(G), right_gate)

def source_pose_alone(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: q, right_gate)

def no_sigmoid(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, difference, two_scores)

def no_relu(ft, W1, W2, group):
    def gate(W1, W2, products):
        return (W2 @ W1 @ (products.mean((1, 2)) + products.amax((1, 2)))).sigmoid()
    return by_pair(ft, W1, W2, group, difference, gate)

def added_before_the_relu(ft, W1, W2, group):
    def gate(W1, W2, products):
        return (W2 @ (W1 @ (products.mean((1, 2)) + products.amax((1, 2)))).relu()).sigmoid()
    return by_pair(ft, W1, W2, group, difference, gate)

def mean_alone(ft, W1, W2, group):
    def gate(W1, W2, products): return (W2 @ (W1 @ products.mean((1, 2))).relu()).sigmoid()
    return by_pair(ft, W1, W2, group, difference, gate)

def with_gate(change, ft, W1, W2, group):
    "α^C, where `change` makes another gate of the two scores, of the mean and of the maximum."
    def gate(W1, W2, products):
        def score(v): return W2 @ (W1 @ v).relu()
        return change(score, products.mean((1, 2)), products.amax((1, 2)), products)
    return by_pair(ft, W1, W2, group, difference, gate)

def maximum_alone(*case): return with_gate(lambda s, mean, top, p: s(top).sigmoid(), *case)

def sum_in_the_mean_s_place(*case):
    return with_gate(lambda s, mean, top, p: (s(p.sum((1, 2))) + s(top)).sigmoid(), *case)

def softmax_over_channels(*case):
    return with_gate(lambda s, mean, top, p: (s(mean) + s(top)).softmax(0), *case)

def halved(*case):
    return with_gate(lambda s, mean, top, p: ((s(mean) + s(top))/2).sigmoid(), *case)

def relu_at_the_end(*case):
    return with_gate(lambda s, mean, top, p: (s(mean).relu() + s(top).relu()).sigmoid(), *case)

def target_pose_alone(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: h, right_gate)

def product_of_poses(ft, W1, W2, group):
    return by_pair(ft, W1, W2, group, lambda G, h, q: G.mul[h, q], right_gate)

def two_sigmoids(ft, W1, W2, group):
    def gate(W1, W2, products):
        def score(v): return W2 @ (W1 @ v).relu()
        return score(products.mean((1, 2))).sigmoid() + score(products.amax((1, 2))).sigmoid()
    return by_pair(ft, W1, W2, group, difference, gate)

def poses_exchanged(ft, W1, W2, group): return channel_weights(ft, W1, W2, group).mT


# --- weights of which a sum sees nothing

# the weights for f, and for each moved f
FOR_EACH_MOVED = '''(lambda a, p, f, G: [fn(a, p, f, G), *(
    fn(a[G.relative[u]][:, G.relative[u]], p, f[G.relative[u]], G) for u in G.elements)])(*case)'''

def hides_in_the_sum(weights, case):
    "The same output for f; it differs from alpha; it breaks (15)."
    (new, *moved), (a, p, f, G) = weights, case
    rel = G.relative
    if new.shape != a.shape: return [False]*4
    return [True, bool((((new - a)*p[rel]*f).sum(1)).abs().max() < 1e-9),
            bool((new - a).abs().max() > .01),
            bool(max((theirs - new[rel[u]][:, rel[u]]).abs().max()
                     for u, theirs in zip(G.elements, moved)) > 1e-3)]


HIDDEN = ('weights of the shape of `alpha`', 'Φf stays as it is',
          'some weight changes by 0.01 or more', '(15) fails')


def weights_of_groups(seed):
    "α(g, g̃) = a(g⁻¹g̃) + b(f(g), f(g̃)): it satisfies (15); and f without zeros."
    def case(i, name):
        group, at = relabelled(name, seed + i), seed + 10*i + 7
        f, part = normal(len(group), seed=at), normal(len(group), seed=at + 1)
        f = f.sign()*(f.abs() + .2)
        alpha = (part[group.relative] + f[:, None]*f).sigmoid()
        return alpha, normal(len(group), seed=at + 2), f, group
    return [case(i, name) for i, name in enumerate(('C4', 'D3', 'D4'))]

def disguise(alpha, psi, f, group):
    v, free = psi[group.relative]*f, torch.zeros_like(alpha)
    free[:, 0], free[:, 1] = v[:, 1], -v[:, 0]
    return alpha + free/free.abs().max()

def unchanged(alpha, psi, f, group): return alpha

def other_sum(alpha, psi, f, group): return alpha + (torch.arange(len(f)) == 0)*.5

def moves_along(alpha, psi, f, group):
    v, free = psi[group.relative]*f, torch.zeros_like(alpha)
    rows, other = torch.arange(len(f)), group.mul[:, 1]
    free[rows, rows], free[rows, other] = v[rows, other], -v[rows, rows]
    return alpha + free/free.abs().max()


EXERCISES = [
    Exercise('21.1', 'code', 3, channel_weights, products_and_matrices, mistakes=[
        Mistake(index_from_the_right,
                'You take the matrices by ĥh⁻¹. Asked is h⁻¹ĥ, `group.relative[h, q]`: on an '
                'abelian group nobody would notice.'),
        Mistake(difference_turned_round,
                'You take the matrices by ĥ⁻¹h: the arguments of `relative` are exchanged.'),
        Mistake(numbers_subtracted,
                'You subtract the numbers of the poses. The pose difference is h⁻¹ĥ, from the '
                'table of the group.'),
        Mistake(source_pose_alone,
                'You take the matrices by ĥ alone; they belong to the pose *difference* h⁻¹ĥ.'),
        Mistake(no_sigmoid, 'These are scores. The sigmoid is missing.'),
        Mistake(no_relu, 'The ReLU between W₁ and W₂ is missing.'),
        Mistake(added_before_the_relu,
                'You add mean and maximum before the network. Each passes through it, and then '
                'the two scores are added.'),
        Mistake(maximum_alone, 'The mean is missing: (17) has two summands.'),
        Mistake(sum_in_the_mean_s_place, 'You sum over the places; asked is their mean.'),
        Mistake(softmax_over_channels,
                'Your gates are a softmax over the channels. In (17) each has its own sigmoid.'),
        Mistake(halved, 'You take the mean of the two scores; (17) adds them.'),
        Mistake(relu_at_the_end,
                'There is a ReLU behind W₂. The only one stands between W₁ and W₂.'),
        Mistake(target_pose_alone,
                'You take the matrices by h alone; they belong to the pose *difference* h⁻¹ĥ.'),
        Mistake(product_of_poses,
                'You take the matrices by the product hĥ. The difference is h⁻¹ĥ.'),
        Mistake(mean_alone, 'The maximum is missing: (17) has two summands.'),
        Mistake(two_sigmoids,
                'You add two sigmoids. In (17) the two scores are added first, and one sigmoid '
                'follows.'),
        Mistake(poses_exchanged,
                'h and ĥ are exchanged in the answer: axis 1 is h, axis 2 is ĥ.'),
    ]),
    Exercise('21.4', 'predict', 2, name='multiples',
             right={'full': .75, 'channel': .5, 'spatial': .5}, mistakes=[
        Mistake({'full': .5, 'channel': .5, 'spatial': .5},
                'Full attention has two gates of ½, one after the other, on the branch that is '
                'taken away.'),
        Mistake({'full': .25, 'channel': .5, 'spatial': .5},
                'The branch is taken *away*: what two gates of ½ let through is a quarter, and '
                '1 − ¼ is left.'),
        Mistake({'full': 1., 'channel': 1., 'spatial': 1.},
                'A score of 0 does not switch the gate off: σ(0) is ½.'),
    ]),
    Exercise('21.5', 'code', 3, disguise, weights_of_groups, FOR_EACH_MOVED,
             measure=hides_in_the_sum, facts=HIDDEN, mistakes=[
        Mistake(unchanged, 'These are the weights you were given.'),
        Mistake(other_sum,
                'The output changes. For each g the change must cancel in the sum '
                'Σ α(g, g̃) ψ(g⁻¹g̃) f(g̃): filter *and* input stand beside the weight.'),
        Mistake(moves_along,
                'The output is the same, but your new weights still satisfy (15): your change '
                'moves with its pair. Take the same two g̃ for all g.'),
    ]),
    Exercise('21.6', 'proof', 3),
]
