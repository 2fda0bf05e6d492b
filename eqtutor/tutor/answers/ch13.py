"""13 Networks: scores for each class and pose, and which angles a network knows."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake
from .draws import normal


def features(seed):
    return [(normal(2, c, n, 3, 4, seed=seed + c*n),) for c in (1, 3) for n in (2, 4, 8)]

def pose_scores(f): return f.flatten(3).amax(3).flatten(1)

def pose_forgotten(f): return f.amax((2, 3, 4))

def poses_before_classes(f): return f.amax((-2, -1)).transpose(1, 2).flatten(1)

def mean_over_places(f): return f.mean((-2, -1)).flatten(1)

def sum_over_places(f): return f.sum((-2, -1)).flatten(1)

def poses_and_rows(f): return f.amax((2, 3)).flatten(1)

def places_of_maxima(f): return f.flatten(3).argmax(3).flatten(1)

def one_axis_left(f): return f.amax(-1).flatten(1)


EXERCISES = [
    Exercise('13.1', 'proof', 3),
    Exercise('13.2', 'code', 1, pose_scores, features, mistakes=[
        Mistake(pose_forgotten, 'The maximum over axis 2 forgets the pose; keep that axis.'),
        Mistake(poses_before_classes,
                'Classes and poses are exchanged: digit d in pose q stands at d·|H| + q.'),
        Mistake(mean_over_places, 'This is the mean over places; asked is the maximum.'),
        Mistake(sum_over_places, 'This is the sum over places; asked is the maximum.'),
        Mistake(poses_and_rows,
                'You take the maximum over poses and rows, axes 2 and 3. The places are the last '
                'two axes.'),
        Mistake(places_of_maxima,
                'These are the places of the maxima. Asked are the maxima themselves.'),
        Mistake(one_axis_left, 'One spatial axis is left: take the maximum over both.'),
    ]),
    Exercise('13.3', 'predict', 2, name='known_angles',
             right={'C2': [210], 'p4m': [120, 210, 300]}, mistakes=[
        Mistake({'C2': [120, 210, 300], 'p4m': [120, 210, 300]},
                'C2 holds one turn besides the identity, the half turn.'),
        Mistake({'C2': [210], 'p4m': [60, 120, 150, 210, 240, 300, 330]},
                'A mirror takes a digit at 30° to its mirror image at 330°. That is another '
                'picture, which has not been measured.'),
        Mistake({'C2': [180], 'p4m': [90, 180, 270]},
                'These are the turns of the groups. Which angles do they make of 30°?'),
        Mistake({'C2': [210], 'p4m': [75, 120, 165, 210, 255, 300, 345]},
                'The mirrors of p4m have axes at multiples of 45°, but a mirror is no turn: 45° '
                'itself is not in the group.'),
    ]),
]
