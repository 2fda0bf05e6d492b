"15 Three ways: who wins for a moved picture, and the mean over all copies that win."
# Plain module: edited by hand, no notebook exports it.
import torch

from ...groups import get_group
from ..exercise import Exercise, Mistake
from .draws import normal


def winners(of):
    "From u to the winner of the picture moved by u, where 5 wins for the picture itself."
    p4m = get_group('p4m')
    return {u: int(of(p4m.mul, u, int(p4m.inv[u]))) for u in p4m.elements}


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
    Exercise('15.1', 'predict', 2, name='winners',
             right=winners(lambda mul, u, back: mul[5, back]), mistakes=[
        Mistake(winners(lambda mul, u, back: mul[back, 5]),
                'You solved uh = 5. The picture is moved by u first and by h then: that is hu.'),
        Mistake(winners(lambda mul, u, back: mul[5, u]),
                'You have 5u. The copy of the moved picture by h is the copy of f by hu, and that '
                'one is 5: solve hu = 5 for h.'),
        Mistake(winners(lambda mul, u, back: mul[u, 5]),
                'You have u5. The copy of the moved picture by h is the copy of f by hu, and that '
                'one is 5: solve hu = 5 for h.'),
        Mistake(winners(lambda mul, u, back: 5),
                'The same picture wins each time, but another element leads to it.'),
    ]),
    Exercise('15.2', 'code', 3, mean_of_winners, outputs_and_scores, mistakes=[
        Mistake(first_winner,
                'You take one winner. Where several copies have the same rating, average over '
                'them.'),
        Mistake(mean_of_all,
                'You average over all copies, as `Symmetrise` does. Only those within tol of the '
                'best one count.'),
        Mistake(divided_by_all, 'Divide by the number of winners, not by |H|.'),
        Mistake(winners_one_by_one, 'These are the outputs that win. Take their mean.'),
        Mistake(exactly_the_best,
                'You ask for the best rating exactly. Copies that differ from it by rounding, '
                'within `tol`, win as well.'),
        Mistake(weighed_by_scores,
                'You weigh all copies with the softmax of their ratings. Only winners count, and '
                'all alike.'),
        Mistake(sum_of_winners, 'This is the sum over the winners; asked is their mean.'),
    ]),
    Exercise('15.3', 'proof', 3),
]
