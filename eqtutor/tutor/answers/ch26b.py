"""26b Scales: attention at a place and a scale, and what an enlargement multiplies."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import normal

# the student's layer, on a scene of cosines with a small network for an encoding
ON_A_SCENE = ('fn(lambda p: torch.cos(p @ case[0]), case[1], case[2], case[3], case[4], case[5], '
              'lambda u: torch.tanh(u @ case[6]), case[7])')


def scenes(seed):
    "Frequencies, place, scale, three maps, an encoding, and the pixels of a disc of radius 2h."
    cases = []
    for i, h in enumerate((1.5, 2., 3.)):
        n, k = seed + 10*i, math.ceil(2*h)
        line = torch.arange(-k, k + 1, dtype=torch.float64)
        pixels = torch.cartesian_prod(line, line)
        maps = [normal(rows, 3, seed=n + rows + j) for j, rows in enumerate((4, 4, 2))]
        cases.append((normal(2, 3, seed=n), normal(2, seed=n + 1), h, *maps,
                      normal(2, 4, seed=n + 9), pixels[pixels.norm(dim=1) <= 2*h]))
    return cases

def scores_and_values(f, x, Q, K, V, encoding, offsets):
    source = f(x + offsets)
    return (source @ K.T + encoding) @ (Q @ f(x[None])[0]), source @ V.T

def attend_to_scale(f, x, h, Q, K, V, rho, offsets):
    scores, values = scores_and_values(f, x, Q, K, V, rho(offsets/h), offsets)
    return scores.softmax(0) @ values

def as_printed(f, x, h, Q, K, V, rho, offsets):
    return attend_to_scale(f, x, h, Q, K, V, rho, offsets)/h**2

def encoding_not_scaled(f, x, h, Q, K, V, rho, offsets):
    return attend_to_scale(f, x, 1, Q, K, V, rho, offsets)

def without_normaliser(f, x, h, Q, K, V, rho, offsets):
    scores, values = scores_and_values(f, x, Q, K, V, rho(offsets/h), offsets)
    return scores.exp() @ values

def haar_without_normaliser(f, x, h, Q, K, V, rho, offsets):
    return without_normaliser(f, x, h, Q, K, V, rho, offsets)/h**2

def gates(f, x, h, Q, K, V, rho, offsets):
    scores, values = scores_and_values(f, x, Q, K, V, rho(offsets/h), offsets)
    return scores.sigmoid() @ values

def encoding_dilated(f, x, h, Q, K, V, rho, offsets):
    return attend_to_scale(f, x, 1/h, Q, K, V, rho, offsets)

def divided_by_their_number(f, x, h, Q, K, V, rho, offsets):
    return attend_to_scale(f, x, h, Q, K, V, rho, offsets)/len(offsets)

def pixels_dilated(f, x, h, Q, K, V, rho, offsets):
    return attend_to_scale(f, x, h, Q, K, V, lambda u: rho(u/h), h*offsets)

def without_encoding(f, x, h, Q, K, V, rho, offsets):
    scores, values = scores_and_values(f, x, Q, K, V, 0*rho(offsets), offsets)
    return scores.softmax(0) @ values

def divided_by_the_width(f, x, h, Q, K, V, rho, offsets):
    scores, values = scores_and_values(f, x, Q, K, V, rho(offsets/h), offsets)
    return (scores/len(Q)**.5).softmax(0) @ values


EXERCISES = [
    Exercise('26b.1', 'code', 4, attend_to_scale, scenes, ON_A_SCENE, [
        Mistake(as_printed,
                'That is Eq. 20 as printed. The weights of a softmax sum to one over every '
                'neighbourhood; a factor 1/h² behind it breaks the equivariance.'),
        Mistake(encoding_not_scaled,
                'The encoding is asked at Δ. Seen from the target the source stands at Δ/h, and '
                'only this stays the same when everything is dilated.'),
        Mistake(encoding_dilated, 'The encoding is asked at hΔ; it must be asked at Δ/h.'),
        Mistake(gates, 'Your weights are a sigmoid; they must sum to one over the offsets.'),
        Mistake(divided_by_their_number,
                'The softmax has divided by the sum already: do not divide by the number of '
                'offsets.'),
        Mistake(pixels_dilated,
                'You dilate the offsets before you read f. They are those of scale h already.'),
        Mistake(without_normaliser,
                'The weights do not sum to one: divide by their sum.'),
        Mistake(haar_without_normaliser,
                'A sum with the Haar factor is equivariant, but it is no attention: divide by the '
                'sum of the weights, and by nothing else.'),
        Mistake(without_encoding,
                'The encoding is missing in the scores: it is added to the key.'),
        Mistake(divided_by_the_width,
                'The scores are divided by √k. The exercise scales them by nothing.'),
    ]),
    Exercise('26b.2', 'predict', 2, name='growth', right=[8, 1, 1, 1/8, 1], mistakes=[
        Mistake([4, 1, 1, 1/4, 1],
                'You count in two dimensions: there are λ³ times as many sources, and h³ grows '
                'by λ³.'),
        Mistake([8, 1, 1, 1/8, 8],
                'A maximum adds nothing up: more sources with the same values have the same '
                'maximum.'),
        Mistake([8, 1, 8, 1, 1],
                'A softmax is no sum: its weights sum to one, however many sources there are '
                '(Proposition 26.6, iv).'),
        Mistake([8, 1/8, 1, 1/8, 1],
                'In (b) the sum has become eight times as large, and so has the number by which '
                'you divide it.'),
        Mistake([8, 8, 1, 1/8, 1],
                'In (b) you forgot that the number of sources in the window grows as the sum '
                'does.'),
        Mistake([2, 1, 1, 1/2, 1],
                'The number of sources grows with the volume, by λ³, not by λ.'),
    ]),
]
