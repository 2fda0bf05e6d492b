"""07 Watch: where each panel of D(5) goes, and the cycles of an element on the panels."""
# Plain module: edited by hand, no notebook exports it.
from ...groups import D
from ..exercise import Exercise, Mistake
from .draws import relabelled

D5 = D(5)


def groups_and_elements(seed):
    names = 'p4', 'C6', 'D2', 'D3', 'p4m'
    groups = [relabelled(name, seed + i) for i, name in enumerate(names)]
    return [(group, h) for group in groups for h in group.elements]

def cycles_of(group, move):
    "The cycles of a permutation of the panels, each from its smallest panel."
    found = []
    for q in group.elements:
        if any(q in cycle for cycle in found): continue
        found.append([q])
        while (q := int(move(q))) != found[-1][0]: found[-1].append(q)
    return found

def cycles(group, h): return cycles_of(group, lambda q: group.mul[h, q])

def multiplied_on_the_right(group, h): return cycles_of(group, lambda q: group.mul[q, h])

def panels_backwards(group, h): return cycles_of(group, lambda q: group.relative[h, q])

def cycle_of_panel_0(group, h): return cycles(group, h)[:1]

def first_panel_twice(group, h): return [[*cycle, cycle[0]] for cycle in cycles(group, h)]

def lengths(group, h): return [len(cycle) for cycle in cycles(group, h)]

def those_that_move(group, h): return [cycle for cycle in cycles(group, h) if len(cycle) > 1]

def one_step(group, h): return [[q, int(group.mul[h, q])] for q in group.elements]

def smallest_last(group, h): return [cycle[1:] + cycle[:1] for cycle in cycles(group, h)]

def sorted_inside(group, h): return [sorted(cycle) for cycle in cycles(group, h)]


EXERCISES = [
    Exercise('7.1', 'predict', 2, name='destinations', right=D5.mul[7].tolist(), mistakes=[
        Mistake(D5.mul[D5.mul[5, 2]].tolist(),
                'You mirror last. Element 5m + r mirrors *first*, then turns; on a panel q, both '
                'stand on its left: hq.'),
        Mistake(D5.mul[:, 7].tolist(),
                'You multiplied on the right: panel q goes to hq, with h on the left.'),
        Mistake([7, 8, 9, 5, 6, 2, 3, 4, 0, 1],
                'You add h and q. But a mirror reverses the sense of the turns behind it.'),
        Mistake(D5.mul[2].tolist(),
                'Panels 5 to 9 exist for a reason: the mirror carries the first five there, and '
                'these back.'),
    ]),
    Exercise('7.2', 'code', 3, cycles, groups_and_elements, mistakes=[
        Mistake(multiplied_on_the_right,
                'You multiply on the right: panel q goes to hq, with h on the left.'),
        Mistake(panels_backwards,
                'Your panels travel backwards: from q to h⁻¹q. That is where a panel *comes '
                'from*.'),
        Mistake(cycle_of_panel_0, 'This is the cycle of panel 0 alone. All panels travel.'),
        Mistake(first_panel_twice,
                'Off by one: each cycle ends before it comes home; the first panel does not stand '
                'at its end again.'),
        Mistake(lengths, 'These are the lengths of the cycles. List the panels in each.'),
        Mistake(those_that_move,
                'The identity leaves every panel where it is: that is a cycle too, of one panel.'),
        Mistake(one_step,
                'You write down one step from each panel. Go on until the panel comes home.'),
        Mistake(smallest_last, 'Begin each cycle with its smallest panel; yours end with it.'),
        Mistake(sorted_inside,
                'You sort the panels inside each cycle. List them in the order in which one panel '
                'visits them; sorted are only the cycles among each other.'),
    ]),
    Exercise('7.3', 'proof', 3),
]
