"""The seven pictures of the map, one for each part of the course:

    python tools/part_pictures.py nbs/images
"""
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from eqtutor.core import moved_entries
from eqtutor.files import results_folder
from eqtutor.groups import get_group
from eqtutor.plot import INK, PICTURES, POSES, SIGNED, WEIGHTS
from eqtutor.widgets.turn import upright_networks

SIZE = 3.2, 1.5   # inches
LETTER = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]])


def bare(ax, colour=None):
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(bool(colour))
    if colour: ax.spines[:].set(color=colour, linewidth=2)


def foundations():
    "A letter in the four poses of a quarter turn."
    fig, axes = plt.subplots(1, 4, figsize=SIZE, layout='constrained')
    letter = torch.nn.functional.pad(LETTER, (2, 2, 1, 1))
    for pose, ax in enumerate(axes):
        ax.imshow(torch.rot90(letter, pose), cmap=PICTURES)
        bare(ax, POSES[pose])
    return fig


def training():
    "Accuracy against the angle of the digits, of two networks (`results/demo`)."
    fig, ax = plt.subplots(figsize=SIZE, layout='constrained')
    curves = json.loads((results_folder()/'demo'/'1.json').read_text())['curve']
    for colour, curve in zip(POSES[1::-1], curves.values()):
        ax.plot([float(angle) for angle in curve], curve.values(), color=colour)
    ax.set(xticks=[0, 90, 180, 270], yticks=[0, 1], ylim=(0, 1.05))
    ax.xaxis.set_major_formatter('{x:.0f}°')
    ax.yaxis.set_major_formatter(lambda y, _: f'{100*y:.0f} %')
    return fig


def papers():
    "Whom a pixel of a 7 listens to, in two directions, upright and after a quarter turn."
    fig, axes = plt.subplots(1, 4, figsize=SIZE, layout='constrained')
    digit, (row, column) = upright_networks().pictures['a 7'].squeeze().double(), (8, 18)
    places = torch.arange(28.).double()
    for k, ax in enumerate(axes):
        x, turn = torch.rot90(digit, k // 2), k // 2
        r, c = ((row, column), (27 - column, row))[turn]
        across, up = (places - c).expand(28, 28), (r - places)[:, None].expand(28, 28)
        ahead = [-across, -up, across, up][(k % 2) + turn]
        score = 5*x + 5*ahead/(across**2 + up**2).sqrt().clamp(min=1)
        ax.imshow(score.flatten().softmax(0).view(28, 28), cmap=WEIGHTS)
        ax.contour(x, [.5], colors='w', linewidths=.8)
        ax.plot(c, r, 's', mfc='none', mec='w', ms=5)
        bare(ax, POSES[k % 2])
    return fig


def course():
    "What the tutor says to an answer."
    fig, ax = plt.subplots(figsize=SIZE)
    for y, (sign, colour, words) in enumerate([
            ('✗', POSES[1], 'The output is moved by h once\nmore. Undo the move of the input.'),
            ('✓', POSES[2], '30 of 30 cases')]):
        ax.text(.04, .68 - .48*y, sign, color=colour, fontsize=20, va='center')
        ax.text(.17, .68 - .48*y, words, color=INK, fontsize=10, va='center')
    ax.axis('off')
    return fig


def workshop():
    "The bank of a group convolution: which weight stands where."
    fig, ax = plt.subplots(figsize=SIZE, layout='constrained')
    p4, k = get_group('p4'), 3
    entries = moved_entries(p4, k, 4)                       # (h, slice, pixel)
    rows = [torch.cat([entries[h, s].view(k, k) for s in p4.relative[h]], 1)
            for h in p4.elements]
    weights = torch.linspace(-1, 1, 4*k*k)
    ax.imshow(weights[torch.cat(rows)], cmap=SIGNED)
    ax.set(xticks=[2.5, 5.5, 8.5], yticks=[2.5, 5.5, 8.5])
    ax.grid(color='w', linewidth=2)
    ax.tick_params(length=0, labelbottom=False, labelleft=False)
    ax.spines[:].set_visible(False)
    return fig


def reference():
    "One letter here for four in the papers."
    fig, ax = plt.subplots(figsize=SIZE)
    table = [['here', 'P1', 'P2', 'P3', 'P4'],
             ['$H$', '$H$', '$H$', '$H$', r'$\mathcal{A}$'],
             [r'$\rho$', '–', r'$\beta$', r'$\rho$', '$P$']]
    for y, line in enumerate(table):
        for x, words in enumerate(line):
            ax.text(.1 + .2*x, .8 - .32*y, words, color=POSES[0] if x == 0 else INK,
                    fontsize=11 + 3*(y > 0), ha='center', va='center')
    ax.axhline(.66, color=INK, linewidth=.8)
    ax.axis('off')
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return fig


def sessions():
    "Slides, one behind the other; on the first a letter, a question, and the letter turned."
    fig, ax = plt.subplots(figsize=SIZE)
    for n in (2, 1, 0):
        x, y = 1 + .22*n, .12 + .16*n
        ax.add_patch(plt.Rectangle((x, y), 2, 1.1, fc='none' if n else POSES[0] + '22', ec=INK,
                                   lw=1.2, zorder=3 - n, clip_on=False))
    letter = torch.nn.functional.pad(LETTER, (1, 1, 0, 0)).float()
    for x, picture in (1.15, letter), (2.15, torch.rot90(letter)):
        ax.imshow(picture, cmap=PICTURES, extent=(x, x + .7, .3, 1.), zorder=5)
        ax.add_patch(plt.Rectangle((x, .3), .7, .7, fc='none', ec=POSES[int(x > 2)], lw=2,
                                   zorder=6))
    ax.text(2, .65, '?', color=INK, fontsize=14, ha='center', va='center', zorder=7)
    ax.set(xlim=(0, 4.4), ylim=(0, 1.7), aspect='equal')
    ax.axis('off')
    return fig


def draw(folder:Path):
    plt.style.use('eqtutor.figures')
    for n, part in enumerate((foundations, training, papers, course, workshop, reference,
                              sessions), 1):
        part().savefig(folder/f'part_{n}.png', dpi=160)


if __name__ == '__main__': draw(Path(sys.argv[1]))
