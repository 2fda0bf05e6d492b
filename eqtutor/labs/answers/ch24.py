"""24 E⁴: a softmax over the window, and which poses a symmetric picture relates."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake
from .draws import normal


def windows(seed): return [(3*normal(2, 3, 9, 4, 5, 6, seed=seed + i),) for i in range(3)]

def soft_window(k): return k.softmax(2)

def over_slices(k): return k.softmax(1)

def over_poses(k): return k.softmax(3)

def gate_for_softmax(k): return k.sigmoid()


EXERCISES = [
    Exercise('24.1', 'proof', 3),
    Exercise('24.2', 'proof', 3),
    Exercise('24.3', 'code', 2, soft_window, windows, mistakes=[
        Mistake(over_slices,
                'Your weights sum to one over the slices; the offsets stand on axis 2.'),
        Mistake(over_poses,
                'Your weights sum to one over the poses; the offsets stand on axis 2.'),
        Mistake(gate_for_softmax,
                'A sigmoid makes weights positive, but they do not sum to one.'),
    ]),
    Exercise('24.4', 'predict', 2, name='related', right=[[0, 2], [1, 3]],
             call='sorted(map(sorted, fn(*case)))', mistakes=[
        Mistake([[0, 1], [2, 3]],
                'A half turn says nothing about pose 0 and pose 1, which differ by a quarter '
                'turn.'),
        Mistake([[0, 2]], 'One more pair: what holds for poses 0 and 2 holds for 1 and 3.'),
        Mistake([[0, 1, 2, 3]],
                'The picture is symmetric under the half turn only: not all four are related.'),
    ]),
]
