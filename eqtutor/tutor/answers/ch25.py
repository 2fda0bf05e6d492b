"""25 One frame: the sum over pairs as a loop, forms of layers, neighbourhoods from the left."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal, relabelled

# H̃ is a small network for each n, with the weights of the case
A_NETWORK_FOR_EACH_N = ('fn(case[0], lambda n, x, y: torch.tanh(case[1][int(n)] @ '
                        'torch.cat([x, y])), case[2], case[3])')


def features_and_networks(seed):
    groups = [relabelled(name, seed + i) for i, name in enumerate(('D3', 'p4', 'p4m'))]
    return [(normal(len(group), 2, seed=seed + 2*i),
             normal(len(group), 3, 4, seed=seed + 2*i + 1), group, [0, 2, len(group) - 1])
            for i, group in enumerate(groups)]

def summed(f, pair, group, terms):
    "At each g the sum of H̃ over the terms that belong to it."
    return torch.stack([sum(pair(*term) for term in terms(g)) for g in group.elements])

def sum_over_pairs(f, pair, group, N):
    return summed(f, pair, group, lambda g: [(n, f[g], f[group.mul[g, n]]) for n in N])

def from_the_left(f, pair, group, N):
    return summed(f, pair, group, lambda g: [(n, f[g], f[group.mul[n, g]]) for n in N])

def exchanged(f, pair, group, N):
    return summed(f, pair, group, lambda g: [(n, f[group.mul[g, n]], f[g]) for n in N])

def absolute(f, pair, group, N):
    return summed(f, pair, group, lambda g: [(n, f[g], f[n]) for n in N])

def told_the_source(f, pair, group, N):
    return summed(f, pair, group,
                  lambda g: [(group.mul[g, n], f[g], f[group.mul[g, n]]) for n in N])

def inverse_neighbours(f, pair, group, N):
    return summed(f, pair, group,
                  lambda g: [(n, f[g], f[group.mul[g, group.inv[n]]]) for n in N])

def position_in_N(f, pair, group, N):
    return summed(f, pair, group,
                  lambda g: [(i, f[g], f[group.mul[g, n]]) for i, n in enumerate(N)])

def numbers_added(f, pair, group, N):
    return summed(f, pair, group, lambda g: [(n, f[g], f[(g + n) % len(f)]) for n in N])

def over_the_whole_group(f, pair, group, N):
    return sum_over_pairs(f, pair, group, group.elements)


RIGHT = {'mean times pixel': 'one sum', 'by position': 'one sum',
         'harmonic mean': 'a quotient', 'geometric mean': 'another local map'}

def with_forms(**changed): return RIGHT | {k.replace('_', ' '): v for k, v in changed.items()}


def groups_and_elements(seed):
    groups = [relabelled(name, seed + i) for i, name in enumerate(('p4m', 'D3', 'p4', 'p4m'))]
    return [(group, 1 + (seed + 3*i) % (len(group) - 1)) for i, group in enumerate(groups)]

def unnoticed(group, n):
    return sorted({int(group.mul[group.mul[g, n], group.inv[g]]) for g in group.elements})

def itself_alone(group, n): return [n]

def with_the_inverse(group, n): return sorted({n, int(group.inv[n])})

def powers(group, n):
    found, g = {0}, n
    while g not in found:
        found.add(g)
        g = int(group.mul[g, n])
    return sorted(found)

def those_that_commute(group, n):
    return [g for g in group.elements if group.mul[g, n] == group.mul[n, g]]

def everything(group, n): return list(group.elements)


EXERCISES = [
    Exercise('25.1', 'code', 3, sum_over_pairs, features_and_networks, A_NETWORK_FOR_EACH_N, [
        Mistake(from_the_left,
                'Your sources are ng. The neighbourhood is attached on the right: '
                'group.mul[g, n].'),
        Mistake(exchanged, 'Target and source are exchanged: H̃ is told n, f(g), f(gn).'),
        Mistake(absolute,
                'Your source is n itself, for every target. Seen from g it is gn.'),
        Mistake(told_the_source,
                'You tell H̃ the source gn. It must be told n, where the source lies as seen '
                'from g.'),
        Mistake(inverse_neighbours, 'Your sources are gn⁻¹; they are gn.'),
        Mistake(position_in_N, 'You tell H̃ the position of n in the list. It wants n itself.'),
        Mistake(numbers_added,
                'You add the numbers of g and n. Their product stands in `group.mul`.'),
        Mistake(over_the_whole_group, 'You sum over the whole group; the sources are gn, n in N.'),
    ]),
    Exercise('25.2', 'proof', 3),
    Exercise('25.3', 'predict', 3, name='forms', right=RIGHT, mistakes=[
        Mistake(with_forms(by_position='a quotient'),
                'by position: the denominator Σ exp⟨Q(x), ρₙ⟩ contains no source. It is a function '
                'of x, and may be drawn into each term.'),
        Mistake(with_forms(harmonic_mean='another local map'),
                'harmonic mean: the numerator is a constant, and the denominator is Σ 1/y, a sum '
                'over the sources.'),
        Mistake(with_forms(harmonic_mean='one sum'),
                'harmonic mean: the denominator contains all sources, so the effect of one depends '
                'on the others.'),
        Mistake(with_forms(geometric_mean='one sum'),
                'geometric mean: its logarithm is a sum. It itself multiplies the sources.'),
        Mistake(with_forms(geometric_mean='a quotient'),
                'geometric mean: for two sources there is a trick, uv = (u + v)/(1/u + 1/v). With '
                'three the trick ends: no sum over the sources, times uvw, is a sum.'),
        Mistake(with_forms(mean_times_pixel='another local map'),
                'mean times pixel is Σ f(g)f(gn)/9: each term knows the pixel and *one* '
                'neighbour.'),
    ]),
    Exercise('25.4', 'proof', 2),
    Exercise('25.5', 'code', 2, unnoticed, groups_and_elements, mistakes=[
        Mistake(itself_alone,
                'That is right if n commutes with every g. Otherwise gng⁻¹ is another element, and '
                'it must be in N too.'),
        Mistake(with_the_inverse, 'Not the inverse of n, but gng⁻¹ for every g.'),
        Mistake(powers, 'These are the powers of n. Nothing asks for n² to be in N.'),
        Mistake(those_that_commute,
                'These are the elements that commute with n. N holds gng⁻¹ for every g.'),
        Mistake(everything, 'With all of G nobody notices; but there is a smaller N.'),
    ]),
]
