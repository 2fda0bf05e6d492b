"Widgets to try, right ones and one that is wrong on purpose, and helpers of the tests."
from pathlib import Path

import torch
from torch import nn

from eqtutor.actions import act
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d, ProjectionConv2d
from eqtutor.nn.layers import GroupPool
from eqtutor.widgets import (
    AttentionMap,
    CayleyExplorer,
    PaintAndMove,
    TurnThePicture,
    looking_ahead,
    three_layers,
)
from eqtutor.wrappers import Canonicalise

ROOT = Path(__file__).parents[2]
WIDTHS = 1280, 390


class NoPermutation(GroupConv2d):
    "Wrong on purpose: the filters turn, their poses stay."
    def filters(self):
        moved = [act(self.group, h, self.weight.flatten(1, 2)) for h in self.group.elements]
        return torch.stack(moved, 1).flatten(0, 1)


def two_layers(second=GroupConv2d, channels=4, group='p4'):
    torch.manual_seed(0)
    first = LiftingConv2d(1, channels, 5, group, padding=2)
    return nn.Sequential(first, nn.ReLU(), second(channels, channels, 5, group, padding=2)).eval()


def scores(group):
    "Digits `(b, 1, 28, 28)` to three scores, random weights."
    torch.manual_seed(2)
    return nn.Sequential(
        LiftingConv2d(1, 6, 5, group, padding=2), nn.ReLU(), GroupPool(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(6, 3)).eval()


def painter(group):
    "Letters to labels of their pixels, random weights."
    torch.manual_seed(3)
    return nn.Sequential(LiftingConv2d(1, 4, 5, group, padding=2), nn.ReLU(),
                         ProjectionConv2d(4, 3, 5, group, padding=2)).eval()


def letter():
    x = torch.zeros(28, 28)
    x[4:24, 7:11] = x[4:8, 7:21] = x[12:16, 7:17] = 1
    return x


def painted():
    f = torch.zeros(8, 5, 5)
    f[0, 1:4, 1] = f[0, 1, 2] = 1
    return f


MAKE = dict(
    right=lambda: TurnThePicture({'right': two_layers()}, letter(), layer='2'),
    broken=lambda: TurnThePicture({'broken': two_layers(NoPermutation)}, letter(), layer='2'),
    mirrors=lambda: TurnThePicture(two_layers(group='p4m'), letter(), layer='2'),
    group=lambda: CayleyExplorer('p4m'),
    paint=lambda: PaintAndMove(painted(), 'p4m'),
    attention=lambda: AttentionMap(looking_ahead(28), letter()),
    stages=three_layers,
    answers=lambda: TurnThePicture(
        {'plain': scores('Z2'), 'upright first': Canonicalise(scores('Z2'), 'p4').eval()},
        letter(), 'p4', face='answers'),
    labels=lambda: TurnThePicture(
        {'p4': painter('p4'), 'plain': painter('Z2')}, letter(), 'p4', output='labels',
        labels=['', 'stroke', 'edge'], simple=True),
    guided=lambda: TurnThePicture(two_layers(), letter(), layer='2', tour=True))


# --- reading a page

def measure(name):
    "A measurement in the browser, as JavaScript."
    return (Path(__file__).parent/'measure'/f'{name}.js').read_text(encoding='utf-8')


def drag(page, begin, end):
    "Press at the point `begin`, move in steps to `end`, let go."
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


def last_position(page):
    "Moves every slider to its end, where broken layers show."
    for slider in page.get_by_role('slider').all():
        slider.focus()
        page.keyboard.press('End')
