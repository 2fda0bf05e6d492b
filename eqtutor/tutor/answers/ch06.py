"""06 Layers: a direction from four poses, and where strided windows begin."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal

POSES = 1, 1j, -1, -1j   # counter-clockwise, as complex numbers


def features_on_p4(seed): return [(3*normal(2, c, 4, 3, 5, seed=seed + c),) for c in (1, 2, 3)]

def weighted(weights, poses=POSES):
    "The poses' directions, weighted and added: `(b, c, 4, h, w)` to `(b, c, h, w)`."
    return (weights*torch.tensor(poses)[:, None, None]).sum(2)

def soft_argmax(f): return weighted(f.softmax(2))

def turning_clockwise(f): return weighted(f.softmax(2), (1, -1j, -1, 1j))

def softmax_over_channels(f): return weighted(f.softmax(1))

def no_softmax(f): return weighted(f)

def softmax_over_columns(f): return weighted(f.softmax(-1))

def gates(f): return weighted(f.sigmoid())

def hard_maximum(f): return torch.tensor(POSES)[f.argmax(2)]

def whole_turns(f): return weighted(f.softmax(2), (1, 1, 1, 1))

def poses_from_1(f): return weighted(f.softmax(2), (1j, -1, -1j, 1))


EXERCISES = [
    Exercise('6.1', 'predict', 2, name='window_starts',
             right={9: [[0, 3], [2, 5]], 10: [[0, 3, 6], [0, 3, 6]]}, mistakes=[
        Mistake({9: [[0, 3], [0, 3]], 10: [[0, 3, 6], [0, 3, 6]]},
                'On 9 pixels the solid windows leave two pixels over at the end; the dashed ones, '
                'counted from the far end, leave two at the start. Reverse the axis: a window from '
                'a to a + 3 comes to begin at 8 − (a + 3).'),
        Mistake({9: [[0, 3, 6], [-1, 2, 5]], 10: [[0, 3, 6], [0, 3, 6]]},
                'A third window does not fit into 9 pixels: it would begin at 6 and end at 9.'),
        Mistake({9: [[0, 3], [3, 6]], 10: [[0, 3, 6], [1, 4, 7]]},
                'Off by one: the last pixel of 9 is number 8, so a window that begins at 0 comes '
                'to begin at 5.'),
    ]),
    Exercise('6.2', 'proof', 3),
    Exercise('6.3', 'code', 4, soft_argmax, features_on_p4, mistakes=[
        Mistake(turning_clockwise,
                r'You turn clockwise: pose q stands for $e^{+2\pi iq/4}$, and pose 1 for i.'),
        Mistake(softmax_over_channels,
                'Your softmax runs over the channels. The group axis is axis 2.'),
        Mistake(no_softmax,
                'The features weigh the directions as they are. Softmax first: weights are '
                'positive and sum to one over the poses.'),
        Mistake(softmax_over_columns,
                'Your softmax runs over the last axis, the columns. The group axis is axis 2.'),
        Mistake(gates,
                'Your weights are sigmoids. They must sum to one over the poses: softmax.'),
        Mistake(hard_maximum,
                'You take the direction of the largest pose alone. All poses count, with their '
                'softmax as weights.'),
        Mistake(whole_turns,
                r'All your poses point to 1: $e^{2\pi iq}$ is a whole turn. Pose q is q *quarter* '
                'turns.'),
        Mistake(poses_from_1, 'Your poses begin at 1: q runs from 0, and pose 0 points to 1.'),
    ]),
]
