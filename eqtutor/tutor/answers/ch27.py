"""27 When does attention pay: what cannot notice a turned glyph, who told a network, a read-out."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal, relabelled

BLIND = ['norm, joint', 'poses first', 'squeeze-excitation']
SEEING = ['channel attention', 'norm by pose']
TOLD = {'random corner': False, 'same corner, random': True, 'turn the cell': False}

def maps_on_groups(seed):
    cases = []
    for i, name in enumerate(('p4', 'p4m', 'D3')):
        group = relabelled(name, seed + i)
        cases.append((1 + normal(2, 3, len(group), 4, 5, seed=seed + i), group))
    return cases

def products(m, moved): return torch.stack([(m*m[:, :, list(at)]).sum(2) for at in moved], 2)

def correlations(f, group):
    return products(f.mean((3, 4)), group.mul.T.tolist())

def from_the_left(f, group): return products(f.mean((3, 4)), group.mul.tolist())

def of_sums(f, group): return products(f.sum((3, 4)), group.mul.T.tolist())

def place_by_place(f, group):
    return torch.stack([(f*f[:, :, at]).sum(2) for at in group.mul.T.tolist()], 2).mean((3, 4))

def mean_over_poses(f, group): return correlations(f, group)/len(group)

def of_maxima(f, group): return products(f.amax((3, 4)), group.mul.T.tolist())

def only_shifted(f, group):
    n = len(group)
    return products(f.mean((3, 4)), [[(h + r) % n for h in range(n)] for r in range(n)])


EXERCISES = [
    Exercise('27.1', 'predict', 2, name='blind_ones', right=BLIND,
             call='sorted(fn(*case))', mistakes=[
        Mistake(SEEING, 'These two are the ones that see. Asked is who is blind.'),
        Mistake(sorted([*BLIND, *SEEING]),
                'Two see: which sum is over the places of one pose alone?'),
        Mistake(sorted([*BLIND, 'channel attention']),
                'Channel attention reads the mean over the places for each pose: 2 0 0 0 or '
                '1 1 0 0 in the smallest example. It sees.'),
        Mistake(sorted([*BLIND, 'norm by pose']),
                'Mean and variance of one pose change when a glyph leaves this pose, and after '
                'ReLU the joint mean shows it. The norm by pose sees.'),
        Mistake([name for name in BLIND if name != 'squeeze-excitation'],
                'A mean over G is a joint mean: the factors are the same for both pictures, and '
                'squeeze-excitation is blind.'),
        Mistake([name for name in BLIND if name != 'poses first'],
                'The maximum over the poses at a place is carried along with the place, and the '
                'mean over places does not ask where. The network is blind.'),
        Mistake([name for name in BLIND if name != 'norm, joint'],
                'Mean and variance over places and poses are sums over all of them: the values '
                'have only changed places. The joint norm is blind.'),
    ]),
    Exercise('27.2', 'predict', 2, name='tells', right=TOLD, mistakes=[
        Mistake({**TOLD, 'random corner': True},
                'In a single pair of pictures the network does see a difference. But if the '
                'corners are independent of the poses, each relative pose is as frequent with one '
                'answer as with the other: nothing can be learnt on the average.'),
        Mistake({**TOLD, 'same corner, random': False},
                'One corner for both glyphs is enough: seen from it, two glyphs of the same pose '
                'have one relative pose, and two of different poses have two.'),
        Mistake({**TOLD, 'turn the cell': True},
                'The corner turns with the cell, about a corner of the pool\'s grid: this is the '
                'proposition, and the network is blind to each single pair.'),
        Mistake(dict.fromkeys(TOLD, True),
                'Two of the three are repaired: where the corner of one glyph says nothing of the '
                'other\'s, relative poses say nothing of the answer.'),
    ]),
    Exercise('27.3', 'code', 3, correlations, maps_on_groups, mistakes=[
        Mistake(from_the_left,
                'You multiply r from the left, m(rh). A turn by u makes u⁻¹h of h, and r then '
                'stands on the wrong side of it: take m(hr).'),
        Mistake(place_by_place,
                'You multiply place by place, and take the mean then. So no product joins two '
                'distant places: take the mean over places first.'),
        Mistake(of_sums, 'You take sums over the places; asked are means.'),
        Mistake(of_maxima, 'You take maxima over the places; asked are means.'),
        Mistake(mean_over_poses, 'Over the poses it is a sum, not a mean.'),
        Mistake(only_shifted,
                'You count poses on: h + r. In a group, in whatever order it is listed, the '
                'product hr is group.mul[h, r].'),
    ]),
    Exercise('27.4', 'proof', 3),
]
