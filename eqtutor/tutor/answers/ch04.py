"""04 Equivariance: averaging a function over a group, and which layers a mirror breaks."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ...actions import act
from ...groups import get_group
from ..exercise import Exercise, Mistake
from .draws import normal, relabelled

# the student's `symmetrise`, on a convolution that has no symmetry
ON_A_CONVOLUTION = 'fn(lambda x: torch.tanh(F.conv2d(x, case[1], padding=1)), case[2])(case[0])'


def images_filters_groups(seed):
    names = 'C2', 'p4', 'mirror', 'D2', 'p4m'
    groups = [*(relabelled(name, seed) for name in names), 'p4m']   # a name as well
    x, weight = normal(2, 3, 6, 6, seed=seed), normal(2, 3, 3, 3, seed=seed + 1)
    return [(x, weight, group) for group in groups]

def moved_copies(f, group, x, before=True, after=-1):
    "f of each x moved `before`, then moved by h⁻¹ (`after=-1`), not at all (0) or by h (1)."
    group, copies = get_group(group), []
    for h in group.elements:
        y = f(act(group, h, x)) if before else f(x)
        if after == -1: y = act(group, int(group.inv[h]), y)
        if after == 1: y = act(group, h, y)
        copies.append(y)
    return torch.stack(copies)

def symmetrise(f, group): return lambda x: moved_copies(f, group, x).mean(0)

def moved_once_more(f, group): return lambda x: moved_copies(f, group, x, after=1).mean(0)

def not_moved_back(f, group): return lambda x: moved_copies(f, group, x, after=0).mean(0)

def sum_for_mean(f, group): return lambda x: moved_copies(f, group, x).sum(0)

def maximum_for_mean(f, group): return lambda x: moved_copies(f, group, x).amax(0)

def f_of_the_mean(f, group):
    return lambda x: f(moved_copies(lambda y: y, group, x, after=0).mean(0))

def f_alone(f, group): return f

def input_not_moved(f, group):
    return lambda x: moved_copies(f, group, x, before=False, after=1).mean(0)


BARS = ('plain conv', 'symmetric conv', 'stride 2, 8×8', 'stride 2, 9×9', 'coordinates x, y',
        'radius only', 'coordinate y only', 'stride 2, 8×9')

def bars(*broken): return {name: name in broken for name in BARS}


EXERCISES = [
    Exercise('4.1', 'proof', 4),
    Exercise('4.2', 'code', 4, symmetrise, images_filters_groups, ON_A_CONVOLUTION, [
        Mistake(moved_once_more,
                'The output is moved by h once more instead of back. Undo the move of the input: '
                'act with the inverse.'),
        Mistake(not_moved_back,
                'The outputs are not moved back before you average: pixels of different places are '
                'mixed.'),
        Mistake(sum_for_mean,
                'You sum over the group. That is equivariant, too, but asked is the mean: an f '
                'that has the symmetry already must come out unchanged.'),
        Mistake(maximum_for_mean,
                'You take the maximum over the group; asked is the mean.'),
        Mistake(f_of_the_mean,
                'You average the moved inputs, and call f once. Call f on each moved input, and '
                'average what comes out.'),
        Mistake(f_alone, 'Your map is f itself: nothing is moved, nothing averaged.'),
        Mistake(input_not_moved, 'The input is not moved: you average moved copies of one output.'),
    ]),
    Exercise('4.3', 'predict', 2, name='broken_under_mirror',
             right=bars('plain conv', 'stride 2, 8×8', 'coordinates x, y'), mistakes=[
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates x, y', 'coordinate y only',
                     'stride 2, 8×9'),
                'That is so under p4. The mirror reverses columns only: it keeps y, and 9 columns '
                'leave nothing over.'),
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates x, y', 'coordinate y only'),
                'The mirror changes x alone. A layer that is told y sees the same y as before.'),
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates x, y', 'stride 2, 8×9'),
                'On 8×9 pixels a row is left over, and no column. The mirror moves no rows.'),
        Mistake(bars('plain conv', 'coordinates x, y'),
                'The stride still fails on 8×8: of 8 columns one is left over at one side, and '
                'the mirror puts it at the other.'),
        Mistake(bars('plain conv', 'stride 2, 8×8'),
                'The coordinates still fail: the mirror keeps y, but it turns x into −x.'),
        Mistake(bars('stride 2, 8×8', 'coordinates x, y'),
                'A generic filter has no mirror symmetry, either: the plain convolution still '
                'fails.'),
    ]),
]
