"""01 Groups: the centre, a block of a dihedral table, homomorphisms of cyclic groups."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import relabelled


def seven_groups(seed):
    names = 'C4', 'C6', 'D2', 'D3', 'D4', 'D5', 'D6'
    return [(relabelled(name, seed + i),) for i, name in enumerate(names)]

def centre(group): return [h for h in group.elements if torch.equal(group.mul[h], group.mul[:, h])]

def self_inverse(group): return [h for h in group.elements if group.mul[h, h] == 0]

def commute_with_some_element(group): return list(group.elements)

def outside_the_centre(group):
    return [h for h in group.elements if not torch.equal(group.mul[h], group.mul[:, h])]

def row_of_truth_values(group): return (group.mul == group.mul.T).all(1)


def pairs_of_orders(seed): return [(n, m) for n in (1, 2, 3, 4, 6) for m in (1, 2, 3, 4, 5)]

def count_homomorphisms(n, m): return math.gcd(n, m)

def any_image_of_the_generator(n, m): return m

def all_maps(n, m): return m**n

def without_the_trivial_one(n, m): return math.gcd(n, m) - 1

def order_of_the_first(n, m): return n

def least_common_multiple(n, m): return n*m//math.gcd(n, m)


EXERCISES = [
    Exercise('1.1', 'proof', 3),
    Exercise('1.2', 'code', 3, centre, seven_groups, mistakes=[
        Mistake(self_inverse,
                'You list the elements that undo themselves. Central means to commute with every '
                'element, whatever its square.'),
        Mistake(commute_with_some_element,
                'You ask for *some* other element that commutes; all do with the identity and with '
                'themselves. Ask `.all()`, not `.any()`.'),
        Mistake(outside_the_centre, 'You list those that do *not* lie in the centre.'),
        Mistake(row_of_truth_values,
                'This is the row of True and False. Asked are the elements themselves: '
                '`.nonzero()`.'),
    ]),
    Exercise('1.3', 'predict', 2, name='mirror_block',
             right=[[0, 2, 1], [1, 0, 2], [2, 1, 0]], mistakes=[
        Mistake([[3, 5, 4], [4, 3, 5], [5, 4, 3]],
                'Mirror · mirror has the sign (−1)(−1) = 1: it is a turn, one of 0, 1, 2.'),
        Mistake([[0, 1, 2], [1, 2, 0], [2, 0, 1]],
                'That is the block turn · turn. The mirror that is done second reverses the turns '
                'before it: r − r′, not r + r′.'),
        Mistake([[0, 1, 2], [2, 0, 1], [1, 2, 0]],
                'You have r′ − r. Row 4, column 3 is (1,1)(1,0): its turn is 1 − 0.'),
    ]),
    Exercise('1.4', 'code', 3, count_homomorphisms, pairs_of_orders, mistakes=[
        Mistake(any_image_of_the_generator,
                'You allow any image of the generator. After n steps it must be back at 0: '
                'n·k = 0 modulo m.'),
        Mistake(all_maps,
                'You count all maps. A homomorphism is decided by one image, that of the '
                'generator.'),
        Mistake(without_the_trivial_one,
                'You leave out the map that sends everything to the identity. It respects all '
                'products.'),
        Mistake(order_of_the_first,
                'Your number is n. That is right for m = n; in general not every image k of the '
                'generator has n·k = 0 modulo m.'),
        Mistake(least_common_multiple,
                'This is the least common multiple. Count the k below m with n·k = 0 modulo m.'),
    ]),
]
