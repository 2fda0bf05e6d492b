"14 Your network: slices of a smaller group in those of a larger one, sizes of a changed ResNet."
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal


def filters_of_smaller_groups(seed):
    "A plain filter, turns in turns and mirrors, two turns in four turns and in their mirrors."
    return [(normal(o, i, r, k, k, seed=seed + o + r), n)
            for o, i, k in ((3, 2, 3), (1, 4, 1)) for r, n in ((1, 4), (4, 8), (2, 4), (1, 2))]

def start_larger(weight, poses):
    out, inside, r, k, _ = weight.shape
    return torch.cat([weight, weight.new_zeros(out, inside, poses - r, k, k)], 2)

def in_every_coset(weight, poses):
    return torch.cat([weight]*(poses//weight.shape[2]), 2)

def shared_out(weight, poses):
    return in_every_coset(weight, poses)*weight.shape[2]/poses

def in_the_last_slices(weight, poses):
    return start_larger(weight, poses).roll(poses - weight.shape[2], 2)

def spread_out(weight, poses):
    out, inside, r, k, _ = weight.shape
    slices = weight.new_zeros(out, inside, poses, k, k)
    slices[:, :, ::poses//r] = weight
    return slices

def turned_copies(weight, poses):
    times = poses//weight.shape[2]
    return torch.cat([weight.rot90(t, (-2, -1)) for t in range(times)], 2)

def mirrored_copies(weight, poses):
    times = poses//weight.shape[2]
    return torch.cat([weight if t == 0 else weight.flip(-1) for t in range(times)], 2)

def poses_first(weight, poses): return start_larger(weight, poses).movedim(2, 1)


EXERCISES = [
    Exercise('14.1', 'code', 2, start_larger, filters_of_smaller_groups, mistakes=[
        Mistake(in_every_coset,
                'Now a turned pose also reads mirrored ones. Where the difference lies outside of '
                'the smaller group the slice is zero.'),
        Mistake(shared_out,
                'This is a mean over poses that should not hear of each other. Outside of the '
                'smaller group the slices are zero.'),
        Mistake(in_the_last_slices,
                'A pose reads itself through slice 0, the identity. The old slices keep their '
                'numbers, and the zeros follow.'),
        Mistake(spread_out,
                "You spread the old slices out. The smaller group's elements are the first of the "
                'larger one: slice r stays slice r.'),
        Mistake(turned_copies,
                'You fill the slices with turned filters. The layer turns its filter itself, for '
                'each pose; here the new slices are zero.'),
        Mistake(mirrored_copies,
                'You fill the slices with mirrored filters. The layer mirrors its filter itself, '
                'for each pose; here the new slices are zero.'),
        Mistake(poses_first, 'The poses stand on axis 2, behind the input channels.'),
    ]),
    Exercise('14.2', 'predict', 2, name='sizes_near_224', right=[190, 222, 254], mistakes=[
        Mistake([193, 225, 257],
                'These are the sizes of the unchanged network, whose first window is 7×7. A 4×4 '
                'with padding 1 asks for even sizes.'),
        Mistake([192, 224, 256],
                'Behind conv1 an even number of pixels would be left, and the 3×3 max-pool with '
                'stride 2 and padding 1 asks for an odd one.'),
        Mistake(list(range(190, 261, 4)),
                'You stopped at the max-pool. Three 2×2 pools follow: what it leaves must be a '
                'multiple of 8.'),
        Mistake([190, 206, 222, 238, 254],
                'Count the halvings behind the max-pool. It leaves 52 of 206 pixels, which two '
                'pools halve and the third one cannot.'),
    ]),
    Exercise('14.3', 'proof', 3),
]
