"""24 E4: kernels that hide a missing turn, the layer as a loop, and poses that belong together."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import dice, normal, one, relabelled


def symmetries(W, case):
    """Of the shape asked for, symmetric under quarter turns, not constant over the window.

    Then what a wrong one is symmetric under instead.
    """
    if W.shape != case[0].shape: return [False]*6
    def same(a, b): return bool((a - b).abs().max() < 1e-9*a.abs().max())
    quarter = same(W, torch.rot90(W, 1, (0, 1)))
    others = [torch.rot90(W, 2, (0, 1)), W.flip(0), W[:, :, :1, :1].expand(W.shape)]
    return [True, quarter, bool(W.std((0, 1)).min() > 1e-3),
            *(not quarter and same(W, other) for other in others)]


SYMMETRIC = ('the shape of `W2`', 'nobody notices on p4 that the kernels are not turned',
             'every kernel varies over the window', '', '', '')


def kernel_writers(seed):
    die = dice(seed)
    def size(): return one(range(2, 7), die)
    return [(normal(k, k, size(), size(), seed=seed + i),) for i, k in enumerate((3, 5, 4))]

def unnoticed(W2): return sum(torch.rot90(W2, i, (0, 1)) for i in range(4))

def left_alone(W2): return W2

def constant(W2): return W2.mean((0, 1), keepdim=True).expand(W2.shape)

def half_turn(W2): return W2 + torch.rot90(W2, 2, (0, 1))

def mirrored(W2): return W2 + W2.flip(0)

def over_the_channels(W2): return W2.mean((2, 3), keepdim=True).expand(W2.shape)


# K and V as matrices of the flattened patch
ON_MATRICES = ('fn(case[0], lambda p: (case[1] @ p.flatten()), lambda p: (case[2] @ p.flatten()), '
               '*case[3:])')


def features_on_groups(seed):
    def case(i, name):
        group = relabelled(name, seed + i)
        places = torch.randperm(len(group), generator=dice(seed + i))
        # 3 sources, patches of 2 places with 2 channels, 4 channels out
        return (normal(len(group), 2, seed=seed + i), normal(3, 4, 4, seed=seed + i + 9),
                normal(4, 4, seed=seed + i + 19), group, places[:3].tolist(),
                places[-2:].tolist())
    return [case(i, name) for i, name in enumerate(('D4', 'C4', 'D3'))]

def gathered(f, K, V, group, N1, N2, source, place, reads=None):
    "Eq. 12 with the sources and the places of a patch by functions of (g, n)."
    def patch(g): return torch.stack([f[place(g, n)] for n in N2])
    def at(g):
        factors = K(patch(g))
        values = [V(patch(source(g, n) if reads is None else reads(g))) for n in N1]
        return sum(factor*value for factor, value in zip(factors, values))
    return torch.stack([at(g) for g in group.elements])

def sum_over_patches(f, K, V, group, N1, N2):
    def times(g, n): return group.mul[g, n]
    return gathered(f, K, V, group, N1, N2, times, times)

def patch_from_the_left(f, K, V, group, N1, N2):
    return gathered(f, K, V, group, N1, N2, lambda g, n: group.mul[g, n],
                    lambda g, n: group.mul[n, g])

def source_from_the_left(f, K, V, group, N1, N2):
    return gathered(f, K, V, group, N1, N2, lambda g, n: group.mul[n, g],
                    lambda g, n: group.mul[g, n])

def both_from_the_left(f, K, V, group, N1, N2):
    def times(g, n): return group.mul[n, g]
    return gathered(f, K, V, group, N1, N2, times, times)

def same_sources_for_all(f, K, V, group, N1, N2):
    return gathered(f, K, V, group, N1, N2, lambda g, n: n, lambda g, n: group.mul[g, n])

def value_at_the_target(f, K, V, group, N1, N2):
    def times(g, n): return group.mul[g, n]
    return gathered(f, K, V, group, N1, N2, times, times, reads=lambda g: g)

def patches(f, K, V, group, N1, N2):
    "For each g its factors `(len(N1), o)` and the values of its sources, as many."
    def patch(g): return torch.stack([f[group.mul[g, n]] for n in N2])
    return [(K(patch(g)), torch.stack([V(patch(group.mul[g, n])) for n in N1]))
            for g in group.elements]

def sums_multiplied(*case):
    return torch.stack([factors.sum(0)*values.sum(0) for factors, values in patches(*case)])

def softmax_of_factors(*case):
    return torch.stack([(k.softmax(0)*values).sum(0) for k, values in patches(*case)])

def kernel_at_the_source(f, K, V, group, N1, N2):
    def patch(g): return torch.stack([f[group.mul[g, n]] for n in N2])
    def at(g):
        sources = [group.mul[g, n] for n in N1]
        return sum(K(patch(q))[i]*V(patch(q)) for i, q in enumerate(sources))
    return torch.stack([at(g) for g in group.elements])


EXERCISES = [
    Exercise('24.1', 'code', 2, unnoticed, kernel_writers, measure=symmetries, facts=SYMMETRIC,
             mistakes=[
        Mistake(left_alone, 'These kernels change when they are turned by 90°, and the test sees '
                'it.'),
        Mistake(constant, 'A kernel that is constant over the window is a mean, not a kernel: it '
                'must vary from offset to offset.'),
        Mistake(half_turn, 'Yours stay the same under a half turn. p4 has quarter turns too: four '
                'copies are needed.'),
        Mistake(mirrored, 'Yours are symmetric under a mirror; p4 turns.'),
        Mistake(over_the_channels, 'You have averaged over channels; what must be symmetric is the '
                'window, axes 0 and 1.'),
    ]),
    Exercise('24.2', 'code', 4, sum_over_patches, features_on_groups, ON_MATRICES, [
        Mistake(both_from_the_left,
                'Sources and patches stand on the right of g: group.mul[g, n], not '
                'group.mul[n, g].'),
        Mistake(patch_from_the_left,
                'The patch is read at g·n, in the order of N2; you read it at n·g.'),
        Mistake(source_from_the_left, 'The sources of g are g·n; you take n·g.'),
        Mistake(same_sources_for_all,
                'You take the sources n themselves, the same for each target; they are g·n.'),
        Mistake(value_at_the_target, 'V reads the patch at the *source* g·n; K reads the target.'),
        Mistake(sums_multiplied,
                'You sum factors and values apart, and multiply the sums. Each source has its '
                'own factor: multiply first, then sum.'),
        Mistake(softmax_of_factors, 'The factors are taken as they are, without a softmax.'),
        Mistake(kernel_at_the_source, 'K reads the patch at the *target* g, once for all sources.'),
    ]),
    Exercise('24.3', 'predict', 2, name='related', right=[[0, 2], [1, 3]],
             measure=lambda sets, _: sorted(map(sorted, sets)), mistakes=[
        Mistake([[0, 1], [2, 3]],
                'A half turn says nothing about pose 0 and pose 1, which differ by a quarter '
                'turn.'),
        Mistake([[0, 2]], 'One more pair: what holds for poses 0 and 2 holds for 1 and 3.'),
        Mistake([[0, 1, 2, 3]],
                'The picture is symmetric under the half turn only: not all four are related.'),
    ]),
    Exercise('24.4', 'proof', 3),
]
