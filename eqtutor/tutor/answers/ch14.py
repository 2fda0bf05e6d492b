"14 Your network: faults besides the filters, slices of a smaller group in those of a larger one."
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


REPAIRED = {'calls': ['pad', 'add', 'pool'], 'sizes': [27, 31]}

EXERCISES = [
    Exercise('14.1', 'predict', 3, name='repaired', right=REPAIRED, mistakes=[
        Mistake(REPAIRED | {'calls': ['pad', 'conv1', 'add', 'conv2', 'pool']},
                'These are all that the report names. The filters of conv1 and conv2 have been '
                'converted: which are left?', 2),
        Mistake(REPAIRED | {'calls': ['pad', 'add']},
                'One is missing: how many pixels does the pool get of 28, and what does it leave?',
                2),
        Mistake(REPAIRED | {'calls': ['pad', 'pool']},
                'One is missing: does `place` turn when the picture turns?', 2),
        Mistake(REPAIRED | {'sizes': [25, 27, 29, 31, 33]},
                'These are the sizes that conv1 takes. The pool has to take what is left: an even '
                'number.', 1.5),
        Mistake(REPAIRED | {'sizes': [25, 29, 33]},
                'Here conv1 leaves an even number, conv2 makes it odd, and the pool refuses it.',
                1.5),
        Mistake(REPAIRED | {'sizes': [26, 30, 34]},
                'conv1 has stride 2 and a window of 3: it takes odd sizes alone.', 1.5),
    ]),
    Exercise('14.2', 'code', 2, start_larger, filters_of_smaller_groups, mistakes=[
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
    Exercise('14.3', 'proof', 3),
]
