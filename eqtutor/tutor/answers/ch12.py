"""12 Training: a cosine after a warm-up, and what a resumed run must remember."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import dice


def times(seed):
    drawn = torch.rand(20, generator=dice(seed), dtype=torch.float64).tolist()
    return [(i/40,) for i in range(41)] + [(t,) for t in drawn]

def warm_up_then_cosine(t, warm_up=.05, start=.05, length=.95):
    "The factor at time t: a line up to `warm_up`, then a cosine that began at `start`."
    if t < warm_up: return t/warm_up
    return (1 + math.cos(math.pi*(t - start)/length))/2

def warm_cosine(t): return warm_up_then_cosine(t)

def cosine_from_0(t): return warm_up_then_cosine(t, start=0, length=1)

def cosine_not_stretched(t): return warm_up_then_cosine(t, length=1)

def a_tenth(t): return warm_up_then_cosine(t, .1, .1, .9)

def bare_cosine(t): return 2*warm_cosine(t) - 1 if t > .05 else t/.05

def quarter_wave(t): return math.cos(math.pi/2*(t - .05)/.95) if t > .05 else t/.05

def line_not_scaled(t): return warm_cosine(t) if t >= .05 else t

def straight_down(t): return (1 - t)/.95 if t > .05 else t/.05

def product_of_both(t): return min(t/.05, 1)*no_warm_up(t)

def upwards(t): return 1 - warm_cosine(t) if t >= .05 else t/.05

def no_warm_up(t): return (1 + math.cos(math.pi*t))/2


EXERCISES = [
    Exercise('12.1', 'proof', 3),
    Exercise('12.2', 'code', 3, warm_cosine, times, mistakes=[
        Mistake(cosine_from_0,
                'Your cosine keeps its own time and jumps down at t = 0.05. It should begin there, '
                'at 1.'),
        Mistake(cosine_not_stretched,
                'Your cosine begins at t = 0.05 but does not reach 0 at t = 1: stretch what is '
                'left, 0.95, to a whole.'),
        Mistake(a_tenth, 'A twentieth is 0.05, not 0.1.'),
        Mistake(bare_cosine,
                'Your cosine ends at −1. A cosine goes from 1 to −1; the factor goes from 1 to 0.'),
        Mistake(quarter_wave,
                'Yours is a quarter of a wave, steepest at its end. The schedule is half a wave, '
                'between 1 and 0, and flat at both ends.'),
        Mistake(line_not_scaled,
                'Your line reaches 0.05 at t = 0.05. It must reach 1 there.'),
        Mistake(straight_down, 'After the warm-up yours is a straight line; asked is a cosine.'),
        Mistake(product_of_both,
                'Your cosine began at t = 0, and the line is multiplied by it. Up to t = 0.05 '
                'there is the line alone; the cosine begins afterwards, at 1.'),
        Mistake(upwards, 'Your cosine goes up, from 0 to 1. Look at its sign.'),
        Mistake(no_warm_up, 'There is no warm-up: at t = 0 the factor must be 0.'),
    ]),
    Exercise('12.3', 'predict', 2, name='weights_differ',
             right={'adam': [True, True], 'generator': [True, False], 'epochs': [True, True]},
             mistakes=[
        Mistake({'adam': [True, False], 'generator': [True, False], 'epochs': [True, True]},
                "Adam's averages enter every step, shuffled or not: without them the first steps "
                'are others.'),
        Mistake({'adam': [True, True], 'generator': [True, True], 'epochs': [True, True]},
                "Without dropout nothing draws from torch's generator; here the order comes from "
                '(seed, epoch).'),
        Mistake({'adam': [True, True], 'generator': [False, False], 'epochs': [True, True]},
                "Dropout draws from torch's generator: in another state it drops other values."),
        Mistake({'adam': [True, True], 'generator': [True, False], 'epochs': [True, False]},
                'Begin at epoch 0 again, and more epochs are trained in all: the weights differ '
                'without any randomness.'),
    ]),
    Exercise('12.4', 'proof', 3),
]
