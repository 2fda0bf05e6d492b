"""22 Affine self-convolution: a window that fools attention, P2 Eq. 7 as a loop, filters drawn."""
# Plain module: edited by hand, no notebook exports it.
from itertools import product

import torch

from ..exercise import Exercise, Mistake
from .draws import normal


def fools_attention(window, case):
    """Another window of the same shape, the same attention in its middle, another convolution.

    And where the attention differs: has the middle stayed, are the vectors those of the window?
    """
    f, psi = case
    def attention(f): return f.flatten(1) @ (f[:, 1, 1] @ f.flatten(1)).softmax(0)
    def near(a, b): return bool((a - b).abs().max() < 1e-6)
    if window.shape != f.shape: return [False]*5
    window = window.to(f)
    same = near(attention(window), attention(f))
    return [True, same, bool(((window - f)*psi).sum((1, 2)).abs().max() > 1e-3),
            same or near(window[:, 1, 1], f[:, 1, 1]),
            same or near(torch.cdist(window.flatten(1).T, f.flatten(1).T).amin(1), 0)]


FOOLED = ('a window of the same shape', 'the same attention in the middle',
          'another result of a convolution', '', '')


def small_windows(seed):
    return [(normal(c, 3, 3, seed=seed + c), normal(c, 3, 3, seed=seed + c + 9)) for c in (2, 3, 4)]

def fooled(window): return window.flip(2)

def window_itself(window): return window.clone()

def rolled(window): return window.roll(1, 2)

def channels_alone(window): return torch.cat([window[:1].flip(2), window[1:]])

def scaled(window): return 2*window


def images_and_maps(seed):
    sizes = (2, 4, 5, 3), (1, 3, 4, 3), (3, 4, 3, 5)
    return [(normal(c, h, w, seed=seed + c), normal(c, k, k, seed=seed + c + 9),
             normal(c, k, k, seed=seed + c + 19)) for c, h, w, k in sizes]

def attended(f, psi, beta, asks=None, answers=None, sign=1, zeros=False, divide=True,
             soft=torch.softmax):
    "Eq. 7, with what may be wrong in it as arguments."
    (c, h, w), r = f.shape, psi.shape[-1]//2
    out = torch.zeros_like(f)
    def at(y):
        inside = 0 <= y[0] < h and 0 <= y[1] < w
        return f[:, y[0], y[1]] if inside else torch.zeros_like(f[:, 0, 0])
    def seen(x, y):
        i, j = sign*(y[0] - x[0]) + r, sign*(y[1] - x[1]) + r
        return psi[:, i, j]*at(y) + beta[:, i, j]
    def factor(x, y): return seen(x, y) - beta[:, sign*(y[0] - x[0]) + r, sign*(y[1] - x[1]) + r]
    for x in product(range(h), range(w)):
        near = [(x[0] + i, x[1] + j) for i, j in product(range(-r, r + 1), repeat=2)]
        if not zeros: near = [y for y in near if 0 <= y[0] < h and 0 <= y[1] < w]
        terms = torch.stack([seen(x, y) for y in near])
        plain = torch.stack([at(y) for y in near])
        query = at(x) if asks in ('plain', 'content') else seen(x, x)
        keys = plain if asks == 'content' else terms
        values = {None: terms, 'plain': plain,
                  'no shift': torch.stack([factor(x, y) for y in near])}[answers]
        out[:, x[0], x[1]] = soft(keys @ query/(c if divide else 1), 0) @ values
    return out

def simple_asc(f, psi, beta): return attended(f, psi, beta)

def query_not_mapped(f, psi, beta): return attended(f, psi, beta, asks='plain')

def scores_of_content(f, psi, beta): return attended(f, psi, beta, asks='content')

def values_not_mapped(f, psi, beta): return attended(f, psi, beta, answers='plain')

def values_without_shift(f, psi, beta): return attended(f, psi, beta, answers='no shift')

def offset_reversed(f, psi, beta): return attended(f, psi, beta, sign=-1)

def padded_with_zeros(f, psi, beta): return attended(f, psi, beta, zeros=True)

def not_divided(f, psi, beta): return attended(f, psi, beta, divide=False)

def gates(f, psi, beta): return attended(f, psi, beta, soft=lambda s, _: s.sigmoid())

def not_normalised(f, psi, beta): return attended(f, psi, beta, soft=lambda s, _: s.exp())

def by_the_root(f, psi, beta):
    return attended(f, psi, beta, soft=lambda s, _: (s*len(f)**.5).softmax(0))

def scores_alone(f, psi, beta): return attended(f, psi, beta, soft=lambda s, _: s)

def convolved(f, psi, beta): return attended(f, psi, beta, soft=lambda s, _: torch.ones_like(s))


def pixels_of_images(seed):
    places = (5, 3, 4, 9), (3, 0, 2, 7), (5, 6, 6, 7), (3, 0, 0, 4)
    return [(normal(k, k, seed=seed + i), *rest) for i, (k, *rest) in enumerate(places)]

def drawn(psi, row, column, size, turns=1, mask=True, divide='inside', mask_turns=0, flip=False):
    "The four panels, with what may be wrong in them as arguments."
    k, r = len(psi), len(psi)//2
    inside = torch.tensor([[float(0 <= row + i < size and 0 <= column + j < size)
                            for j in range(-r, r + 1)] for i in range(-r, r + 1)], dtype=psi.dtype)
    n = {'inside': inside.sum(), 'window': k*k, 'one': 1}[divide]
    if not mask: return torch.stack([psi.rot90(turns*h, (0, 1))/n for h in range(4)])
    return torch.stack([psi.rot90(turns*h, (0, 1))*inside.rot90(mask_turns*h, (0, 1))/n
                        for h in range(4)])

def panels(psi, row, column, size): return drawn(psi, row, column, size)

def always_k_squared(psi, row, column, size): return drawn(psi, row, column, size, divide='window')

def template_alone(psi, row, column, size): return drawn(psi, row, column, size, divide='one')

def not_turned(psi, row, column, size): return drawn(psi, row, column, size, turns=0)

def turned_clockwise(psi, row, column, size): return drawn(psi, row, column, size, turns=-1)

def edge_forgotten(psi, row, column, size): return drawn(psi, row, column, size, mask=False)

def edge_turned_too(psi, row, column, size): return drawn(psi, row, column, size, mask_turns=1)

def edge_and_count_forgotten(psi, row, column, size):
    return drawn(psi, row, column, size, mask=False, divide='window')


EXERCISES = [
    Exercise('22.1', 'code', 2, fooled, small_windows, 'fn(case[0])',
             measure=fools_attention, facts=FOOLED, mistakes=[
        Mistake(window_itself,
                'A convolution must see the difference: return a *different* window.'),
        Mistake(rolled, 'The middle has moved. It asks the questions: it must stay where it is.'),
        Mistake(channels_alone,
                'You have moved one channel without the others. A feature vector moves as one.'),
        Mistake(scaled, 'Your feature vectors are others than those of the window, as after a '
                'change of brightness: then scores and values change. Keep the vectors, and '
                'change where they stand.'),
    ]),
    Exercise('22.2', 'code', 4, simple_asc, images_and_maps, mistakes=[
        Mistake(query_not_mapped,
                'The one who asks passes the affine map too: the query is `A_x[f](x)`, not f(x).'),
        Mistake(scores_of_content,
                'Your scores compare f(x) with f(y). '
                'Equation 22.2 compares `A_x[f](x)` with `A_x[f](y)`.'),
        Mistake(values_not_mapped, 'What is averaged is `A_x[f](y)`, not f(y).'),
        Mistake(values_without_shift,
                'You average ψf. The shift β belongs to what is averaged, too.'),
        Mistake(offset_reversed,
                'You read ψ and β at the offset x − y; it is y − x, seen from the target.'),
        Mistake(padded_with_zeros,
                'Your neighbours beyond the image are zeros, and with β they take part. Leave them '
                'out of the list.'),
        Mistake(not_divided,
                'The scores are divided by d, the number of channels, before the softmax.'),
        Mistake(gates, 'Your weights are a sigmoid; they must sum to one over the neighbours.'),
        Mistake(not_normalised,
                'Your weights do not sum to one: divide the exponentials by their sum.'),
        Mistake(by_the_root, 'You divide the scores by √d; Equation 22.2 divides by d.'),
        Mistake(scores_alone,
                'You average with the scores. A softmax over the neighbours is missing.'),
        Mistake(convolved, 'All your weights are one: this is the sum without attention.'),
    ]),
    Exercise('22.4', 'predict', 2, name='unnoticed', right=['C2', 'D2', 'mirror', 'p4'],
             measure=lambda names, _: sorted(names), mistakes=[
        Mistake(['C2', 'mirror', 'p4'],
                'D2 has mirrors, but its elements commute: either order gives the half turn.'),
        Mistake(['C2', 'D2', 'mirror', 'p4', 'p4m'],
                'In p4m a mirror and a quarter turn do not commute: there the side matters.'),
        Mistake(['C2', 'p4'], 'A group of two elements commutes as well: what about the mirror?'),
        Mistake(['p4m'], 'This is where it is *noticed*; asked is where it passes.'),
        Mistake(['mirror', 'p4'],
                'Right for these two. Take two elements of C2, and two of D2: do they commute?'),
    ]),
    Exercise('22.6', 'code', 3, panels, pixels_of_images, mistakes=[
        Mistake(always_k_squared,
                'Near the edge fewer than k² pixels take part in the softmax: divide by how many.'),
        Mistake(template_alone,
                'The weights are missing: equal scores give each of n pixels 1/n.'),
        Mistake(not_turned,
                'The template is moved with the pose: panel h shows it turned by 90°·h.'),
        Mistake(turned_clockwise,
                'Pose 1 is the turn *counter-clockwise*; yours turn clockwise.'),
        Mistake(edge_forgotten, 'Beyond the image the filter is 0: nobody is there to be weighed.'),
        Mistake(edge_turned_too,
                'The edge of the image stays where it is; only the template turns with the pose.'),
        Mistake(edge_and_count_forgotten,
                'Near the edge some pixels of the window do not exist: they have weight 0, and the '
                'others share 1.'),
    ]),
]
