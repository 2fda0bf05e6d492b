"14 Your network: plain filters as slices of a group filter, and sizes of a changed ResNet."
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal


def filters(seed):
    return [(normal(o, i, k, k, seed=seed + o), n) for o, i, k in ((3, 2, 3), (1, 4, 1))
            for n in (2, 4, 8)]

def in_slice(weight, poses, r):
    out, inside, k, _ = weight.shape
    slices = weight.new_zeros(out, inside, poses, k, k)
    slices[:, :, r] = weight
    return slices

def plain_start(weight, poses): return in_slice(weight, poses, 0)

def in_every_slice(weight, poses): return torch.stack([weight]*poses, 2)

def shared_out(weight, poses): return in_every_slice(weight, poses)/poses

def in_the_last_slice(weight, poses): return in_slice(weight, poses, -1)

def turned_copies(weight, poses):
    return torch.stack([weight.rot90(r, (-2, -1)) for r in range(poses)], 2)

def poses_first(weight, poses): return plain_start(weight, poses).movedim(2, 1)


EXERCISES = [
    Exercise('14.1', 'code', 2, plain_start, filters, mistakes=[
        Mistake(in_every_slice,
                'Now each pose adds up what all poses say. Fill one slice only: that by which a '
                'pose reads itself.'),
        Mistake(shared_out,
                'This is the mean over all poses: each pose hears of the others. Fill one slice.'),
        Mistake(in_the_last_slice,
                'Slice r is how pose h reads pose hr. A pose reads itself at r = 0, the identity.'),
        Mistake(turned_copies,
                'You fill the slices with turned filters. The layer turns its filter itself, for '
                'each pose; here only the slice by which a pose reads itself is filled.'),
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
    ]),
    Exercise('14.3', 'proof', 3),
]
