"15 Three ways: a score that tells nothing apart, and the mean over all copies that win."
# Plain module: edited by hand, no notebook exports it.
import torch

from ..exercise import Exercise, Mistake
from .draws import normal

PLAIN = 'the plain network'


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
    Exercise('15.1', 'predict', 2, name='by_brightness', right=PLAIN, mistakes=[
        Mistake('the average over the turns',
                'Nothing is averaged: argmax takes one copy, even if all of them score the same.'),
        Mistake('an equivariant map',
                'All four copies score the same, so the same element wins for a picture and for '
                'its turned copy: Proposition 15.2 needs one winner alone.'),
        Mistake('an invariant map',
                'The network sees each picture as it is, turned or not: what it says may change.'),
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
