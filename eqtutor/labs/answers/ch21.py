"""21 Attentive group convolution.

Gates of one half, an index that moves, strides that are exact.
"""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake
from .draws import relabelled

STEPS = 'stride 2 on 96', 'stride 2 on 97', '2×2 pool on 49'


def six_groups(seed):
    names = 'C4', 'C6', 'D2', 'D3', 'D4', 'D5'
    return [(relabelled(name, seed + i),) for i, name in enumerate(names)]

def count_changed(group, index):
    "The triples (h̄, h, h̃) for which the index of h and h̃ is another once h̄ has moved both."
    mul, elements = group.mul, group.elements
    return sum(int(index(mul[a, h], mul[a, q]) != index(h, q))
               for a in elements for h in elements for q in elements)

def moved_triples(group): return count_changed(group, lambda h, q: group.mul[q, group.inv[h]])

def inverse_on_the_left(group): return count_changed(group, lambda h, q: group.relative[h, q])

def every_triple(group): return len(group)**3

def pairs_for_triples(group): return moved_triples(group)//len(group)


def at_steps(*exact): return dict(zip(STEPS, exact))


EXERCISES = [
    Exercise('21.1', 'proof', 3),
    Exercise('21.2', 'predict', 2, name='multiples',
             right={'full': .75, 'channel': .5, 'spatial': .5}, mistakes=[
        Mistake({'full': .5, 'channel': .5, 'spatial': .5},
                'Full attention has two gates of ½, one after the other, on the branch that is '
                'taken away.'),
        Mistake({'full': .25, 'channel': .5, 'spatial': .5},
                'The branch is taken *away*: what two gates of ½ let through is a quarter, and '
                '1 − ¼ is left.'),
        Mistake({'full': 1., 'channel': 1., 'spatial': 1.},
                'A score of 0 does not switch the gate off: σ(0) is ½.'),
    ]),
    Exercise('21.3', 'code', 3, moved_triples, six_groups, mistakes=[
        Mistake(inverse_on_the_left,
                'This counts for h⁻¹h̃, which never moves. Asked is h̃h⁻¹.'),
        Mistake(every_triple,
                'Not every triple: h̄ commutes with some indices, with the identity for one, and '
                'those stay.'),
        Mistake(pairs_for_triples,
                'You count pairs (h̄, index). Each index occurs for |H| pairs (h, h̃).'),
    ]),
    Exercise('21.4', 'predict', 2, name='exact_steps', right=at_steps(False, True, False),
             mistakes=[
        Mistake(at_steps(False, False, False),
                'On 97 pixels [::2] takes 0, 2, …, 96, and so it does on the reversed ones: '
                'exact.'),
        Mistake(at_steps(False, True, True),
                'The 2×2 pool leaves one of 49 pixels over, at one end.'),
        Mistake(at_steps(True, True, False),
                'On 96 pixels [::2] takes the even ones, and of the reversed ones the odd.'),
    ]),
]
