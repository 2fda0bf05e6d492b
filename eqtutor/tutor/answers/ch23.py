"""23 Group self-attention: symmetries, Eq. 14 as a loop, features that hide a flaw, a count."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import dice, normal, one, relabelled, some

# an encoding without symmetry, from the waves of the case
WITH_WAVES = ('fn(*case[:4], lambda p: (p @ case[4].T + .7).cos() + p @ case[5].T, '
              'case[6], case[7])')


def pictures(seed):
    def case(i, name, size, R):
        f, Q, K, V = (normal(*shape, seed=seed + 10*i + j) for j, shape in
                      enumerate(((2, *size), (3, 2), (3, 2), (2, 2))))
        waves, slope = normal(3, 2, seed=seed + 10*i + 5), normal(3, 2, seed=seed + 10*i + 6)
        return f, Q, K, V, waves, slope, relabelled(name, seed + i), R
    return [case(0, 'C4', (4, 5), 1), case(1, 'D4', (3, 4), 1), case(2, 'C8', (4, 3), 2)]

def looped(f, Q, K, V, rho, group, R, offset=lambda dx, dy: (dx, dy), move='inverse', pad=False,
           encode='key', over=lambda keys, query: (keys @ query).softmax(0)):
    "Eq. 14, with what people get wrong as arguments."
    m, n = f.shape[1:]
    out = f.new_zeros(len(V), len(group), m, n)
    pixels = [(i, j) for i in range(m) for j in range(n)]
    wide = [(i, j) for i in range(-R, m + R) for j in range(-R, n + R)]
    def at(k, l): return f[:, k, l] if 0 <= k < m and 0 <= l < n else torch.zeros_like(f[:, 0, 0])
    for h in range(len(group)):
        matrix = group.matrices[h].to(f)
        turned = {'inverse': matrix, 'forward': matrix.T, 'not': torch.eye(2).to(f)}[move]
        for i, j in pixels:
            near = [(k, l) for k, l in (wide if pad else pixels)
                    if max(abs(k - i), abs(l - j)) <= R]
            places = torch.tensor([offset(l - j, i - k) for k, l in near]).to(f)
            codes = rho(places @ turned)
            keys, query = torch.stack([K @ at(k, l) for k, l in near]), Q @ f[:, i, j]
            if encode == 'key': keys = keys + codes
            values = torch.stack([V @ at(k, l) for k, l in near])
            out[:, h, i, j] = over(keys, query) @ values
    return out

def lifting(f, Q, K, V, rho, group, reach=1): return looped(f, Q, K, V, rho, group, reach)

def not_moved(*case): return looped(*case, move='not')

def moved_forward(*case): return looped(*case, move='forward')

def rows_first(*case): return looped(*case, offset=lambda dx, dy: (dy, dx))

def rows_up(*case): return looped(*case, offset=lambda dx, dy: (dx, -dy))

def backwards(*case): return looped(*case, offset=lambda dx, dy: (-dx, -dy))

def padded(*case): return looped(*case, pad=True)

def no_softmax(*case): return looped(*case, over=lambda keys, query: keys @ query)

def gates(*case): return looped(*case, over=lambda keys, query: (keys @ query).sigmoid())

def divided_by_the_root(*case):
    return looped(*case, over=lambda keys, query: (keys @ query/len(query)**.5).softmax(0))

def no_encoding(*case): return looped(*case, encode='nothing')

def means(*case): return looped(*case, over=lambda keys, query: (keys @ query).softmax(0)/len(keys))


def hides_the_index(f, case):
    "Equal in all poses, of the shape asked for, and not the same at all pixels."
    if f.shape != case[0].shape: return [False]*3
    return [True, bool((f - f[:, :, :1]).abs().max() <= 1e-9*f.abs().max()),
            bool((f - f[..., :1, :1]).abs().max() > 1e-3)]


HIDDEN = ('features of the same shape', 'nobody notices the index',
          'features that differ from pixel to pixel')


def feature_maps(seed):
    die = dice(seed)
    def size(): return one(range(3, 7), die)
    return [(normal(2, size(), 4, n, size(), seed=seed + i),) for i, n in enumerate((4, 3))]

def unnoticed(f): return f.mean(2, keepdim=True).expand_as(f)

def left_alone(f): return f

def same_everywhere(f): return f.mean((3, 4), keepdim=True).expand_as(f)

def constant(f): return torch.ones_like(f)

def without_pose_axis(f): return f.mean(2)


def group_orders(seed): return [(n,) for n in some(range(1, 30), 5, seed)]

def stored_bytes(order): return 2*4*16*9*784*25*order**3

def one_copy(order): return 4*16*9*784*25*order**3

def without_the_four_bytes(order): return 2*16*9*784*25*order**3

def two_poses(order): return 2*4*16*9*784*25*order**2

def five_offsets(order): return 2*4*16*9*784*5*order**3


EXERCISES = [
    Exercise('23.1', 'predict', 2, name='commutes_with',
             right=['translations', 'mirror', 'both', 'translations'], mistakes=[
        Mistake(['translations', 'mirror', 'none', 'none'],
                '(c) and (d) are not invariant, but no softmax sees a change that is the same for '
                'all neighbours j (Proposition 23.3).'),
        Mistake(['translations', 'mirror', 'both', 'both'],
                '(d): mirrored, ρ changes by −2j, which depends on the neighbour.'),
        Mistake(['translations', 'mirror', 'both', 'none'],
                '(d): a translation adds t, the same for all neighbours.'),
        Mistake(['translations', 'mirror', 'translations', 'translations'],
                '(c): mirrored, ρ changes by −2i, the same for all neighbours j.'),
        Mistake(['both', 'mirror', 'both', 'translations'],
                '(a): mirrored, ρ changes by 2(i − j), which depends on the neighbour.'),
        Mistake(['translations', 'none', 'both', 'translations'],
                '(b): j² is the same at j and at −j.'),
    ]),
    Exercise('23.2', 'code', 4, lifting, pictures, call=WITH_WAVES, mistakes=[
        Mistake(not_moved, 'All your poses are alike: ask the encoding at h⁻¹Δ, not at Δ.'),
        Mistake(moved_forward,
                'You ask the encoding at hΔ. For offsets as rows, h⁻¹Δ is '
                '`offsets @ group.matrices[h]`.'),
        Mistake(rows_first, 'Points are (x, y): the difference of the columns comes first.'),
        Mistake(rows_up, 'Rows count down and y goes up: the second coordinate is i − k.'),
        Mistake(backwards, 'Δ leads from the asking pixel to its neighbour: (l − j, i − k).'),
        Mistake(padded,
                'Neighbours beyond the border have got a share of the softmax: leave them out.'),
        Mistake(no_softmax, 'Your weights are the bare scores: a softmax over the neighbours is '
                            'missing.'),
        Mistake(gates, 'Your weights are a sigmoid; they must sum to one over the neighbours.'),
        Mistake(divided_by_the_root,
                'You divide the scores by √d. Definition 23.5 has no such factor.'),
        Mistake(no_encoding, 'Your weights do not know where the neighbours stand: add '
                             'ρ(h⁻¹Δ) to the keys.'),
        Mistake(means, 'The softmax has divided by the sum already: do not divide by the number '
                       'of neighbours.'),
    ]),
    Exercise('23.3', 'code', 2, unnoticed, feature_maps, measure=hides_the_index,
             facts=HIDDEN, mistakes=[
        Mistake(left_alone, 'On random features the flaw is seen. When does it not matter which '
                            'source gets which pose vector?'),
        Mistake(same_everywhere,
                'Your features are the same at all pixels, but differ from pose to pose: there '
                'the flaw is still seen.'),
        Mistake(constant, 'Nobody will notice, but your features are the same at all pixels.'),
        Mistake(without_pose_axis, 'The shape must stay `(b, c, 4, h, w)`.'),
    ]),
    Exercise('23.4', 'proof', 3),
    Exercise('23.5', 'code', 2, stored_bytes, group_orders, mistakes=[
        Mistake(one_copy, 'The gradient of the weights is held too: twice as many.'),
        Mistake(without_the_four_bytes, 'A number of float32 takes 4 bytes.'),
        Mistake(two_poses,
                'The weights have *three* poses: of the target, of the query, of the source.'),
        Mistake(five_offsets, 'The window has 5×5 = 25 offsets.'),
    ]),
]
