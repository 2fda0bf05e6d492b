"15 Three ways: the scores of a turned picture, and the mean over all copies that win."
# Plain module: edited by hand, no notebook exports it.
import torch

from ...groups import get_group
from ..exercise import Exercise, Mistake
from .draws import normal


def scores_and_turns(seed):
    "Groups with and without mirrors; every element."
    return [(normal(len(group), seed=seed + i), u, group)
            for i, group in enumerate(map(get_group, ('p4', 'p4m', 'mirror')))
            for u in group.elements]

def scores_after(scores, u, group): return scores[group.mul[:, u]]

def the_other_order(scores, u, group): return scores[group.mul[u]]

def turned_back(scores, u, group): return scores[group.mul[:, int(group.inv[u])]]

def both_slips(scores, u, group): return scores[group.mul[int(group.inv[u])]]

def rolled(scores, u, group): return scores.roll(-u, 0)

def rolled_back(scores, u, group): return scores.roll(u, 0)

def as_they_were(scores, u, group): return scores


def outputs_and_scores(seed):
    "One winner, several, all."
    ties = [0., 2., 1., -1.], [2., 2. - 1e-12, 1.9, 2.], [1., 1., 1., 1.], [-3., -1., -1., -2.]
    return [(normal(4, *shape, seed=seed + i), torch.tensor(scores, dtype=torch.float64))
            for i, (scores, shape) in enumerate(zip(ties, [(3,), (2, 2, 2), (3,), (1, 4)]))]

def mean_of_winners(outputs, scores, tol=1e-9):
    return outputs[scores >= scores.max() - tol].mean(0)

def first_winner(outputs, scores, tol=1e-9): return outputs[scores.argmax()]

def mean_of_all(outputs, scores, tol=1e-9): return outputs.mean(0)

def divided_by_all(outputs, scores, tol=1e-9):
    return outputs[scores >= scores.max() - tol].sum(0)/len(outputs)

def winners_one_by_one(outputs, scores, tol=1e-9): return outputs[scores >= scores.max() - tol]

def exactly_the_best(outputs, scores, tol=1e-9): return outputs[scores == scores.max()].mean(0)

def weighed_by_scores(outputs, scores, tol=1e-9):
    return torch.einsum('h...,h->...', outputs, scores.softmax(0))

def sum_of_winners(outputs, scores, tol=1e-9):
    return outputs[scores >= scores.max() - tol].sum(0)


EXERCISES = [
    Exercise('15.1', 'code', 2, scores_after, scores_and_turns, mistakes=[
        Mistake(the_other_order,
                'You take the copy of f by uh. The picture is turned by u first and by h then: '
                'that is hu.'),
        Mistake(turned_back,
                'You undo u. The copy of the turned picture by h is the copy of f by hu.'),
        Mistake(both_slips,
                'You undo u, and on the other side. The copy of the turned picture by h is the '
                'copy of f by hu.'),
        Mistake(rolled,
                'Right for turns. With mirrors the scores do not move in a row: ask `group.mul`.'),
        Mistake(rolled_back,
                'The scores move the other way, and with mirrors they do not move in a row: ask '
                '`group.mul`.'),
        Mistake(as_they_were,
                'These are the scores of the copies of f. Copy h of the turned picture is '
                'another copy of f.'),
    ]),
    Exercise('15.2', 'code', 3, mean_of_winners, outputs_and_scores, mistakes=[
        Mistake(first_winner,
                'You take one winner. Where several copies score the same, average over them.'),
        Mistake(mean_of_all,
                'You average over all copies, as `Symmetrise` does. Only those within tol of the '
                'best one count.'),
        Mistake(divided_by_all, 'Divide by the number of winners, not by |H|.'),
        Mistake(winners_one_by_one, 'These are the outputs that win. Take their mean.'),
        Mistake(exactly_the_best,
                'You ask for the best score exactly. Copies that differ from it by rounding, '
                'within `tol`, win as well.'),
        Mistake(weighed_by_scores,
                'You weigh all copies with the softmax of their scores. Only winners count, and '
                'all alike.'),
        Mistake(sum_of_winners, 'This is the sum over the winners; asked is their mean.'),
    ]),
    Exercise('15.3', 'proof', 3),
]
