"Widgets to try, right ones and some that are wrong on purpose, and what is read off their pages."
import re
from pathlib import Path

import torch
from sklearn.datasets import load_sample_image
from torch import nn

from eqtutor.actions import act
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import GroupPool
from eqtutor.widgets import (
    CayleyExplorer,
    ClickAndTurn,
    EquivarianceMeter,
    RotateAndPermute,
)

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


def window(poses, k=5):
    "A look: a window of the feature map around the pixel, equivariant as the layers are."
    def look(x, row, column):
        maps = poses(x)[0, 0].detach()
        return nn.functional.pad(maps, [k//2]*4)[:, row:row + k, column:column + k]
    return look


def weights(poses):
    "A look: positive maps of the whole image, stronger where the pixel is bright."
    def look(x, row, column):
        maps = poses(x)[0, 0].flatten(1).softmax(-1).view(-1, *x.shape[-2:])
        return (1 + x[0, 0, row, column])*maps
    return look


def unmoved(poses):
    "Wrong on purpose: each pose gets the panel of pose 0 as it is."
    look = window(poses)
    return lambda x, row, column: look(x, row, column)[[0, 0, 0, 0]]


def letter():
    x = torch.zeros(28, 28)
    x[4:24, 7:11] = x[4:8, 7:21] = x[12:16, 7:17] = 1
    return x


def textured(size=28):
    "The same with something to see at every pixel."
    generator = torch.Generator().manual_seed(5)
    return (letter() + .2*torch.rand(28, 28, generator=generator))[:size, :size]


def photograph():
    picture = load_sample_image('china.jpg')[150:246, 250:346].copy()
    return torch.from_numpy(picture).float().mean(-1)/255


def suspect(): return nn.Sequential(*two_layers(NoPermutation), nn.ReLU(), GroupPool())


MAKE = dict(
    right=lambda: RotateAndPermute(two_layers(), letter(), 'p4'),
    broken=lambda: RotateAndPermute(two_layers(NoPermutation), letter(), 'p4'),
    p4m=lambda: RotateAndPermute(two_layers(group='p4m'), letter(), 'p4m'),
    halves=lambda: RotateAndPermute(two_layers(group='C2'), letter(), 'C2'),
    group=lambda: CayleyExplorer('p4m'),
    click=lambda: ClickAndTurn(window(two_layers()), textured(), 'p4'),
    mirrors=lambda: ClickAndTurn(window(two_layers(group='p4m')), textured(27), 'p4m'),
    whole=lambda: ClickAndTurn(weights(two_layers(group='p4m')), textured(), 'p4m',
                               signed=False, what='weights'),
    unmoved=lambda: ClickAndTurn(unmoved(two_layers()), textured(), 'p4'),
    meter=lambda: EquivarianceMeter(suspect(), letter(), 'p4'))
BROKEN = 'broken', 'unmoved', 'meter'


# --- reading a page

def measure(name):
    "A measurement in the browser, as JavaScript."
    return (Path(__file__).parent/'measure'/f'{name}.js').read_text(encoding='utf-8')


def state(widget):
    "What is seen and heard of a widget."
    return widget.evaluate(measure('state'))


def error_in(text): return float(re.search(r'Relative error (\d\.\de[+-]\d+)', text)[1])


def name_of(pixel): return f'row {pixel[0]}, column {pixel[1]}'


def is_red(box):
    red, green, blue = map(int, re.findall(r'\d+', box.evaluate('e => getComputedStyle(e).color')))
    return red > 2*green > blue


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


def without_scripts_and_styles(html):
    "What a notebook shows of a widget that nobody trusted."
    return re.sub(r'<(script|style|noscript)\b.*?</\1>', '', html, flags=re.S)
