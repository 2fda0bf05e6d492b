"""The picture that other places show beside a link to the site, 1200 by 630 pixels:

    python tools/social_card.py nbs/images/card.png
"""
import sys

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from eqtutor.groups import C
from eqtutor.nn.convolution import LiftingConv2d

PAPER, INK, QUIET = '#15191e', '#e8ecf0', '#aab4bf'


def panels():
    "A digit upright and turned, and what a lifting layer makes of each: (row, panels)."
    torch.manual_seed(0)
    digit = torch.tensor(load_digits().images[3], dtype=torch.float32)[None, None]
    lift = LiftingConv2d(1, 1, 3, 'p4', padding=1).eval()
    for image in (digit, torch.rot90(digit, dims=(-2, -1))):
        with torch.no_grad(): maps = lift(image)[0, 0]
        yield [image[0, 0], *maps]


def draw(file):
    fig, axes = plt.subplots(2, 5, figsize=(12, 6.3), facecolor=PAPER)
    fig.subplots_adjust(left=.05, right=.95, top=.68, bottom=.06, wspace=.08, hspace=.1)
    for row, images in zip(axes, panels()):
        for i, (ax, image) in enumerate(zip(row, images)):
            ax.imshow(image, cmap='gray' if i == 0 else 'cividis')
            ax.axis('off')
    for ax, h in zip(axes[0, 1:], C(4).elements):
        ax.set_title(C(4).describe(h), color=QUIET, fontsize=16)
    fig.text(.05, .86, 'eqtutor', color=INK, fontsize=44, weight='bold')
    fig.text(.05, .785, 'Equivariant attention, from the group axioms to trained networks',
             color=QUIET, fontsize=21)
    fig.savefig(file, dpi=100, facecolor=PAPER)


if __name__ == '__main__': draw(sys.argv[1])
