"""04 Equivariance: a test that is not fooled, a function averaged over a group, and which layers a
mirror breaks."""
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


# the student's `judge`, on a convolution with its filter and stride
ON_A_LAYER = ('fn(lambda f: 1 + torch.sinh(F.conv2d(f, case[0], stride=case[1])), case[2], '
              'case[3])')
BROKEN, PASSES, NOTHING = 'broken', 'passes', 'says nothing'

def averaged(w, group, elements):
    "The filter, averaged over some of the group's moves."
    return torch.stack([act(group, h, w) for h in elements]).mean(0)

def layers_to_judge(seed):
    "Layers that are right, such as a hasty test accepts, and constant ones."
    c2, p4, p4m = get_group('C2'), get_group('p4'), get_group('p4m')
    w = normal(1, 1, 5, 5, seed=seed)   # on 3×3 turns bring the mirrors along
    round_, turns = averaged(w, p4m, p4m.elements), averaged(w, p4, p4.elements)
    half, slight = averaged(w, p4, (0, 2)), round_ + w/1000
    mirror, diagonal = averaged(w, p4m, (0, 4)), averaged(w, p4m, (0, 7))
    cases = [(round_, 1, 9, p4m), (round_, 1, 8, p4), (turns, 1, 9, p4), (half, 1, 9, c2),
             (w, 1, 9, p4), (w, 1, 8, p4m), (half, 1, 9, p4), (turns, 1, 9, p4m),
             (mirror, 1, 9, p4m), (diagonal, 1, 9, p4m), (slight, 1, 9, p4),
             (round_, 2, 9, p4m), (round_, 2, 8, p4), (half, 2, 8, p4), (round_, 2, 8, p4m),
             (0*w, 1, 9, p4m), (0*w, 2, 8, p4)]
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(seed))
    return [cases[i] for i in order]   # what is right depends on the seed

def judged(layer, n, group, elements=None, f=None, limit=1e-10, move=True, empty=True):
    "What is said of a layer, for the elements that are tried."
    f = torch.randn(1, 1, n, n, dtype=torch.float64) if f is None else f
    limit = limit*layer(f).abs().max()
    def gap(h):
        return (layer(act(group, h, f)) - (act(group, h, layer(f)) if move else layer(f))).abs()
    if empty and (layer(f) - layer(torch.randn_like(f))).abs().max() <= limit: return NOTHING
    tried = group.elements if elements is None else elements(group)
    return BROKEN if max(gap(h).max() for h in tried) > limit else PASSES

def judge(layer, n, group): return judged(layer, n, group)

def first_turn_alone(layer, n, group): return judged(layer, n, group, lambda g: [1])

def last_element_alone(layer, n, group): return judged(layer, n, group, lambda g: [len(g) - 1])

def half_turn_alone(layer, n, group):
    return judged(layer, n, group, lambda g: [2 if len(g) > 2 else 1])

def on_a_flat_picture(layer, n, group):
    return judged(layer, n, group, f=torch.ones(1, 1, n, n, dtype=torch.float64))

def wide_tolerance(layer, n, group): return judged(layer, n, group, limit=.05)

def asks_for_invariance(layer, n, group): return judged(layer, n, group, move=False)

def lets_the_constant_pass(layer, n, group): return judged(layer, n, group, empty=False)

def the_other_way_round(layer, n, group):
    return {BROKEN: PASSES, PASSES: BROKEN, NOTHING: NOTHING}[judged(layer, n, group)]


BARS = ('plain conv', 'symmetric conv', 'stride 2, 8×8', 'stride 2, 9×9', 'coordinates',
        'radius only', 'row only', 'stride 2, 8×9')

def bars(*broken): return {name: name in broken for name in BARS}


EXERCISES = [
    Exercise('4.1', 'proof', 4),
    Exercise('4.2', 'code', 4, symmetrise, images_filters_groups, ON_A_CONVOLUTION, [
        Mistake(moved_once_more,
                'The output is moved by h once more instead of back. Undo the move of the input: '
                'act with the inverse.', worth=1.5),
        Mistake(not_moved_back,
                'The outputs are not moved back before you average: pixels of different places are '
                'mixed.'),
        Mistake(sum_for_mean,
                'You sum over the group. That is equivariant, too, but asked is the mean: a '
                'layer that has the symmetry already must come out unchanged.', worth=1.5),
        Mistake(maximum_for_mean,
                'You take the maximum over the group; asked is the mean.'),
        Mistake(f_of_the_mean,
                'You average the moved inputs, and call the layer once. Call it on each moved '
                'input, and average what comes out.'),
        Mistake(f_alone, 'Your map is the layer itself: nothing is moved, nothing averaged.'),
        Mistake(input_not_moved, 'The input is not moved: you average moved copies of one output.'),
    ]),
    Exercise('4.3', 'predict', 2, name='broken_under_mirror',
             right=bars('plain conv', 'stride 2, 8×8', 'coordinates'), mistakes=[
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates', 'row only',
                     'stride 2, 8×9'),
                'That is so under p4. The mirror reverses columns only: it keeps the rows, and 9 '
                'columns leave nothing over.'),
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates', 'row only'),
                'The mirror changes the column alone. A layer that is told the row sees the same '
                'row as before.'),
        Mistake(bars('plain conv', 'stride 2, 8×8', 'coordinates', 'stride 2, 8×9'),
                'On 8×9 pixels a row is left over, and no column. The mirror moves no rows.'),
        Mistake(bars('plain conv', 'coordinates'),
                'The stride still fails on 8×8: of 8 columns one is left over at one side, and '
                'the mirror puts it at the other.'),
        Mistake(bars('plain conv', 'stride 2, 8×8'),
                'The coordinates still fail: the mirror keeps the row, and changes the column.'),
        Mistake(bars('stride 2, 8×8', 'coordinates'),
                'A random filter has no mirror symmetry, either: the plain convolution still '
                'fails.'),
    ]),
    Exercise('4.4', 'code', 4, judge, layers_to_judge, ON_A_LAYER, [
        Mistake(lets_the_constant_pass,
                'A layer that ignores its input passes. Its two roads end alike, whatever you put '
                'in. Compare its outputs for two inputs as well.', worth=2),
        Mistake(the_other_way_round,
                "It says 'broken' of the layers that are right, and 'passes' of the broken ones.",
                worth=2),
        Mistake(first_turn_alone,
                'Only element 1 is tried. A filter with all four turns may still break the '
                'mirrors.'),
        Mistake(last_element_alone,
                'Only the last element is tried. Try each of `group.elements`.'),
        Mistake(half_turn_alone,
                'A filter that is the same after half a turn passes. Try each of '
                '`group.elements`.'),
        Mistake(on_a_flat_picture,
                'On a picture without detail every move leaves the input as it is, and most faults '
                'hide. Take noise.'),
        Mistake(wide_tolerance,
                'A fault of one thousandth of the output passes. In float64 rounding is below '
                '1e-10.',
                worth=2),
        Mistake(asks_for_invariance,
                'You ask that the output stay as it is: that is invariance. Compare with the '
                'output, moved.'),
    ]),
]
