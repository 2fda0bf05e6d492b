"""10 Data: cutting a square out, and the symmetry of a mean image."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import dice, normal


def images_and_corners(seed):
    def corners(k): return torch.randint(-3, 8, (5,), generator=dice(seed + k))
    return [(normal(5, 2, 7, 9, seed=seed + k), corners(k), corners(k + 50), k, -.5)
            for k in (1, 2, 3, 4)]

def cutout(x, top, left, size, value):
    y = x.clone()
    for i, (t, l) in enumerate(zip(top.tolist(), left.tolist())):
        y[i, :, max(t, 0):max(t + size, 0), max(l, 0):max(l + size, 0)] = value
    return y

def rows_for_columns(x, top, left, size, value): return cutout(x, left, top, size, value)

def one_pixel_too_large(x, top, left, size, value): return cutout(x, top, left, size + 1, value)

def one_square_for_all(x, top, left, size, value):
    return cutout(x, top[:1].expand(len(x)), left[:1].expand(len(x)), size, value)

def filled_with_0(x, top, left, size, value): return cutout(x, top, left, size, 0.)

def pushed_inside(x, top, left, size, value):
    h, w = x.shape[-2:]
    return cutout(x, top.clamp(0, h - size), left.clamp(0, w - size), size, value)

def begun_at_0(x, top, left, size, value):
    return cutout(x, top.clamp(min=0), left.clamp(min=0), size, value)

def filled_outside(x, top, left, size, value):
    return torch.where(torch.isnan(cutout(x, top, left, size, torch.nan)), x, value)

def about_the_corner(x, top, left, size, value):
    return cutout(x, top - size//2, left - size//2, size, value)

def rows_or_columns(x, top, left, size, value):
    def near(start, n): return (torch.arange(n) - start[:, None] + .5 - size/2).abs() < size/2
    rows, columns = near(top, x.shape[-2]), near(left, x.shape[-1])
    return torch.where(rows[:, None, :, None] | columns[:, None, None, :], value, x)

def negative_starts(x, top, left, size, value):
    y = x.clone()
    for i, (t, l) in enumerate(zip(top.tolist(), left.tolist())):
        y[i, :, t:t + size, l:l + size] = value
    return y


EXERCISES = [
    Exercise('10.1', 'proof', 3),
    Exercise('10.2', 'code', 3, cutout, images_and_corners, mistakes=[
        Mistake(rows_for_columns,
                'Rows and columns are exchanged: `top` counts along axis −2, `left` along axis '
                '−1.'),
        Mistake(one_pixel_too_large,
                'Your square is one pixel too large: it ends *before* top + size.'),
        Mistake(one_square_for_all,
                "All images get the first one's square. Each has a corner of its own."),
        Mistake(filled_with_0,
                'You fill with 0. In normalised images black is another number: use `value`.'),
        Mistake(pushed_inside,
                'You push squares that overhang back into the image. What lies outside is cut '
                'off.'),
        Mistake(begun_at_0,
                'A square that begins outside is shorter, not moved: you clamp its corner and keep '
                'its size.'),
        Mistake(filled_outside,
                'You fill everything *but* the square: the two branches of `torch.where` are '
                'exchanged.'),
        Mistake(about_the_corner,
                'Your squares lie around the point (top, left). It is their top left corner.'),
        Mistake(rows_or_columns,
                'You fill whole rows and whole columns. A pixel lies in the square if its row '
                '*and* its column do.'),
        Mistake(negative_starts,
                'A negative start in a slice counts from the far end: a square that overhangs '
                'above or on the left is lost or misplaced. Clamp both ends at 0, or compare with '
                '`torch.arange`.'),
    ]),
    Exercise('10.3', 'predict', 2, name='mean_symmetry',
             right={'none': 'none', 'quarter': 'quarter turns', 'any': 'all turns'}, mistakes=[
        Mistake({'none': 'quarter turns', 'quarter': 'quarter turns', 'any': 'all turns'},
                'Upright digits are not distributed alike in all directions: their mean has no '
                'turn as a symmetry.'),
        Mistake({'none': 'none', 'quarter': 'all turns', 'any': 'all turns'},
                'Four angles do not make all: turning the set by 45° gives angles that were not '
                'there.'),
        Mistake({'none': 'none', 'quarter': 'quarter turns', 'any': 'quarter turns'},
                'With any angle allowed, no direction is special, not even the quarter turns.'),
    ]),
]
