"""22 Affine self-attention: how much of a window lies inside, and what key 0 shows."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake


def sizes_and_windows(seed):
    return [(h, w, k) for h, w in ((6, 9), (5, 5), (8, 3)) for k in (1, 3, 5)]

def count_along(n, reach):
    "How many of the offsets from -reach to reach stay inside, for each of n places."
    return torch.tensor([sum(0 <= i + d < n for d in range(-reach, reach + 1)) for i in range(n)])

def inside_count(h, w, kernel_size):
    reach = kernel_size//2
    return count_along(h, reach)[:, None]*count_along(w, reach)

def whole_windows(h, w, kernel_size): return torch.full((h, w), kernel_size**2)

def rows_for_columns(h, w, kernel_size): return inside_count(w, h, kernel_size)

def window_too_wide(h, w, kernel_size): return inside_count(h, w, kernel_size + 2)


EXERCISES = [
    Exercise('22.1', 'proof', 3),
    Exercise('22.2', 'code', 3, inside_count, sizes_and_windows, mistakes=[
        Mistake(whole_windows,
                'Near the border part of the window lies outside: there are fewer than k².'),
        Mistake(rows_for_columns, 'Rows and columns are exchanged: the answer is `(h, w)`.'),
        Mistake(window_too_wide, 'Off by one: a window of k reaches k//2 to each side.'),
    ]),
    Exercise('22.3', 'proof', 3),
    Exercise('22.4', 'predict', 2, name='template', right=[True, True, False], mistakes=[
        Mistake([False, True, False],
                'With key 0 the scores are constant, so every pixel shows the value template, '
                'turned with the pose.'),
        Mistake([True, False, False],
                'The ramp is moved with the pose as the template is: each panel is still the first '
                'one, turned.'),
        Mistake([True, True, True],
                'The query says how steep the weights are, and its sign differs between paper and '
                'ink: they lean to opposite sides.'),
    ]),
]
