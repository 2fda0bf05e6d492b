"""05 Convolution: the bank of a lifting layer that truly convolves, and panels seen in a mirror."""
# Plain module: edited by hand, no notebook exports it.
import torch
import torch.nn.functional as F

from ...actions import act
from ...groups import get_group
from ..exercise import Exercise, Mistake
from .draws import normal


def images_filters_groups(seed):
    def case(i, name):
        # five outputs, as no group has: poses and channels in the wrong order have another shape
        x, w = normal(2, 3, 7, 6, seed=seed + i), normal(5, 3, 3, 3, seed=seed + i + 9)
        return x, w, get_group(name)
    return [case(i, name) for i, name in enumerate(('C2', 'p4', 'mirror', 'p4m'))]

def correlate_at_poses(x, kernels, padding=1):
    "`conv2d` with each pose's kernel, `(b, o, |H|, h, w)`."
    return torch.stack([F.conv2d(x, kernel, padding=padding) for kernel in kernels], 2)

def moved(w, group): return [act(group, h, w) for h in group.elements]

def reversed_kernels(w, group): return [kernel.flip(-2, -1) for kernel in moved(w, group)]

def lift_convolve(x, w, group): return correlate_at_poses(x, reversed_kernels(w, group))

def turned_clockwise(x, w, group):
    kernels = [act(group, int(group.inv[h]), w).flip(-2, -1) for h in group.elements]
    return correlate_at_poses(x, kernels)

def correlation(x, w, group): return correlate_at_poses(x, moved(w, group))

def one_axis_reversed(x, w, group):
    return correlate_at_poses(x, [kernel.flip(-1) for kernel in moved(w, group)])

def kernel_at_rest(x, w, group):
    return correlate_at_poses(x, [w.flip(-2, -1) for _ in group.elements])

def poses_before_channels(x, w, group): return lift_convolve(x, w, group).transpose(1, 2)

def rows_by_pose(x, w, group):
    "The bank's rows in the order (h, o), its outputs read in the order (o, h)."
    return lift_convolve(x, w, group).transpose(1, 2).flatten(1, 2).unflatten(1, (-1, len(group)))

def without_padding(x, w, group): return correlate_at_poses(x, reversed_kernels(w, group), 0)


EXERCISES = [
    Exercise('5.1', 'predict', 2, name='mirrored_panels', right=[3, 2, 1, 0], mistakes=[
        Mistake([0, 1, 2, 3],
                'This would need a filter that the mirror leaves as it is in all four positions, '
                'as it does an upright cross. The corner filter is symmetric about a diagonal: '
                'mirroring the columns makes a turned corner of it.'),
        Mistake([1, 0, 3, 2],
                'You take the corner for symmetric about the other diagonal. Its two arms go '
                'right and down; mirrored they go left and down. Which turn, counter-clockwise, '
                'is that?'),
        Mistake([0, 3, 2, 1],
                'This filter would have to be symmetric about the vertical axis. Which axis has '
                'the corner?'),
        Mistake([None]*4,
                'All four reappear: the mirror image of the corner is one of its turns.'),
    ]),
    Exercise('5.2', 'proof', 3),
    Exercise('5.3', 'proof', 2),
    Exercise('5.4', 'code', 4, lift_convolve, images_filters_groups, mistakes=[
        Mistake(turned_clockwise,
                'Your kernel turns clockwise: element 1 of $p4$ agrees with ours at element 3. At '
                'pose h the kernel is 𝓛_h w, moved by h and not by its inverse.', worth=2),
        Mistake(correlation,
                'This is the correlation, what `conv2d` computes: f(x + t). A convolution reads '
                'f(x − t), so the kernel is reversed in both axes.', worth=2),
        Mistake(one_axis_reversed,
                'The kernel is reversed along one axis only: that is a mirror. −t reverses rows '
                'and columns.', worth=2),
        Mistake(kernel_at_rest,
                'All poses give the same answer: the kernel does not move. At pose h it is 𝓛_h w.'),
        Mistake(poses_before_channels,
                'The poses stand before the channels. A feature map on G is (b, o, |H|, h, w): '
                'unflatten the outputs to (o, |H|).', worth=3),
        Mistake(rows_by_pose,
                'The rows of your bank stand in the order (h, o), and its outputs are '
                'read as (o, h): channels and poses are mixed. Stack the poses on axis 1 of the '
                'filters.', worth=3),
        Mistake(without_padding,
                'The window is off by one: a 3×3 kernel keeps the size with padding 1.', worth=3),
    ]),
]
