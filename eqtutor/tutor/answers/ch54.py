"""54 Plot: how a ring of panels turns, and a walk along two mirrors."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import relabelled

# counter-clockwise
CORNERS = 'top left', 'bottom left', 'bottom right', 'top right'
SIDES = 'top', 'left', 'bottom', 'right'


def rings(panel=1, corner=1):
    "Panel and corner of the picture in it, h = 0, 1, 2; each moves by so many steps a turn."
    return [[SIDES[panel*h], CORNERS[corner*h]] for h in range(3)]


def pairs_of_mirrors(seed):
    groups = [relabelled(name, seed + i) for i, name in enumerate(('D2', 'D3', 'D4', 'D5'))]
    found = []
    for group in groups:
        mirrors = [h for h in group.elements if torch.linalg.det(group.matrices[h]) < 0]
        found += [(group, a, b) for a in mirrors for b in mirrors if a != b]
    return found

def alternate(group, first, second, multiply):
    "The walk from 0 that multiplies by `first` and `second` in turn until it is back."
    path = [0]
    while len(path) == 1 or path[-1] != 0:
        step = first if len(path) % 2 else second
        path.append(int(multiply(path[-1], step)))
    return path

def walk(group, a, b): return alternate(group, a, b, lambda h, s: group.mul[h, s])

def generators_on_the_left(group, a, b):
    return alternate(group, a, b, lambda h, s: group.mul[s, h])

def b_first(group, a, b): return walk(group, b, a)

def without_coming_home(group, a, b): return walk(group, a, b)[:-1]

def one_generator_only(group, a, b): return [0, a, 0]


EXERCISES = [
    Exercise('54.1', 'predict', 2, name='rings', right=rings(), mistakes=[
        Mistake(rings(-1, -1),
                'Your ring turns clockwise. Element 1 is the quarter turn counter-clockwise: what '
                'was on top comes to the left.'),
        Mistake(rings(corner=0),
                'The panels travel, but the picture in them does not turn. Turn the whole sheet of '
                'paper: corners go along.'),
        Mistake(rings(panel=0),
                'The picture turns, but its panel stays on top. Turn the whole sheet of paper: '
                'panel q goes to hq.'),
    ]),
    Exercise('54.2', 'code', 3, walk, pairs_of_mirrors, mistakes=[
        Mistake(generators_on_the_left,
                'You multiply from the left. Arrows of a Cayley graph go from h to hs: the '
                'generator stands on the right.'),
        Mistake(b_first, 'You begin with b; the first step is a.'),
        Mistake(without_coming_home,
                'The walk is closed: 0 stands at its beginning *and* at its end.'),
        Mistake(one_generator_only,
                'You take one generator again and again; a mirror undoes itself. Take a and b in '
                'turn.'),
    ]),
    Exercise('54.3', 'proof', 3),
]
