"""25 One frame: three choices of H̃, forms of layers, neighbourhoods from the left."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal, relabelled

# the sum over the sources of one target: their n, and their features, None where there is none
AT_ONE_TARGET = '''[sum(terms) for terms in zip(*(
    fn(((int(x), int(y)), 0), case[0], b) for (x, y), b in zip(*case[1:])))]'''


def windows(seed):
    "A target of two images with its nine sources: all of them, without a row, without a corner."
    steps = [(x, y) for y in (1, 0, -1) for x in (-1, 0, 1)]
    without = lambda n: False, lambda n: n[1] == 1, lambda n: n[0] == 1 or n[1] == -1
    cases = []
    for i, missing in enumerate(without):
        b = normal(9, 2, 2 + i, seed=seed + i)
        sources = [None if missing(n) else feature for n, feature in zip(steps, b)]
        cases.append((b[4].clone(), steps, sources))
    return cases

def counted(b): return torch.cat([b, torch.ones_like(b[:, :1])], 1)

def brings(n, a, b):
    if b is None: return [0, 0, 0]
    return [(a - b).abs(), counted(b), n[0][0]*b]

def with_terms(contrast=None, mean=None, slope=None):
    "The right terms, but for those that are given."
    def terms(n, a, b):
        if b is None: return [0, 0, 0]
        return [wrong(n, a, b) if wrong else right
                for wrong, right in zip((contrast, mean, slope), brings(n, a, b))]
    return terms

signed = with_terms(contrast=lambda n, a, b: a - b)
squared = with_terms(contrast=lambda n, a, b: (a - b)**2)
not_counted = with_terms(mean=lambda n, a, b: b)
divided = with_terms(mean=lambda n, a, b: counted(b/9))
upwards = with_terms(slope=lambda n, a, b: n[0][1]*b)
leftwards = with_terms(slope=lambda n, a, b: -n[0][0]*b)
from_the_target = with_terms(slope=lambda n, a, b: n[0][0]*(b - a))

def missing_as_zeros(n, a, b): return brings(n, a, torch.zeros_like(a) if b is None else b)

def missing_as_the_target(n, a, b): return brings(n, a, a if b is None else b)


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
    Exercise('25.1', 'code', 3, brings, windows, AT_ONE_TARGET, [
        Mistake(signed, 'Your contrast adds a − b with its sign, so that brighter and darker '
                        'neighbours cancel.'),
        Mistake(squared, 'Your contrast squares the differences. It wants their absolute values.'),
        Mistake(not_counted, 'The number of the neighbours is missing: each brings a 1, in one '
                             'more channel at the end.'),
        Mistake(divided, 'Bring b itself. Nobody can divide before all have been counted.'),
        Mistake(upwards, 'Your slope goes up. n is ((right, up), r).'),
        Mistake(leftwards, 'Your slope has the wrong sign: what lies to the right counts for, what '
                           'lies to the left against.'),
        Mistake(from_the_target, 'Your slope subtracts a. At an edge, where one side is missing, '
                                 'that does not cancel; a missing source is to bring 0.'),
        Mistake(missing_as_zeros, 'A missing source is no source with zeros: it brings nothing to '
                                  'the contrast, and it does not count.'),
        Mistake(missing_as_the_target, 'A missing source has no feature, not the feature of the '
                                       'target. It brings 0 to all three.'),
    ]),
    Exercise('25.2', 'proof', 3),
    Exercise('25.3', 'predict', 3, name='forms', right=RIGHT, mistakes=[
        Mistake(with_forms(by_position='a quotient'),
                'by position: the denominator Σ exp⟨Q(a), ρₙ⟩ contains no source. It is a function '
                'of a, and may be drawn into each term.'),
        Mistake(with_forms(harmonic_mean='another local map'),
                'harmonic mean: the numerator is a constant, and the denominator is Σ 1/b, a sum '
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
    Exercise('25.4', 'proof', 3),
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
