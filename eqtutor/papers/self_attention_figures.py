"The pictures of chapters 23 and 23b: what turns, lifting, three poses, a network."
# Plain module: edited by hand, no notebook exports it.
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from ..groups import Group


def draw_table_and_function(
    table:Tensor,    # `(k, k)`
    turned:Tensor,
    back:Tensor,
    plane:Tensor,    # the function, finely sampled on a square of half side 3
    values:Tensor,   # of the function at the turned places, `(k, k)`
    offsets:Tensor,  # places of the table, `(k², 2)`
    places:Tensor,   # turned
)->None:
    "A table that is turned and turned back, above a function that is asked at turned places."
    fig, axes = plt.subplots(2, 3, figsize=(7, 4.6), layout='constrained')
    names = ['a table', 'turned by 30°', '… and back', 'a function, 25 places',
             'the places turned back', 'the values there']
    panels = table, turned, back, plane, plane, values
    for i, (ax, name, panel) in enumerate(zip(axes.flat, names, panels)):
        extent = (-3.04, 3.04)*2 if i in (3, 4) else None
        ax.imshow(panel, vmin=-2.6, vmax=2.6, cmap='cividis', extent=extent)
        ax.set(xticks=[], yticks=[], title=name)
    k = len(table)
    for ax, p in zip(axes[1], (offsets, places)):
        ax.plot(*p.T, 'wo', mec='k', ms=5)
        # the corner pixels end half a pixel beyond their middles
        corners = p[[0, k - 1, -1, -k]]*k/(k - 1)
        ax.add_patch(plt.Polygon(corners.numpy(), fill=False, ec='w', lw=1.5))
        ax.set(xlim=(-3.04, 3.04), ylim=(-3.04, 3.04))


def position_scores(
    f:Tensor,               # `(c, |H|, h, w)`
    pixel:tuple[int, int],  # row and column
    Q:Tensor,               # `(d, c)`
    rho:Tensor,             # of the offsets, one pose after another, `(|H|, k², d)`
)->Tensor:
    "The scores ⟨Qf(x, h̃), ρ(h⁻¹Δ)⟩ of Definition 23.7 at one pixel, `(h, h̃, k, k)`."
    query = torch.einsum('dc,ct->td', Q, f[(..., *pixel)])
    k = math.isqrt(rho.shape[1])
    return torch.einsum('td,hkd->htk', query, rho).unflatten(2, (k, k))


def three_pose_weights(
    f:Tensor,               # `(c, |H|, h, w)`
    pixel:tuple[int, int],  # row and column
    Q:Tensor,               # `(d, c)`
    K:Tensor,               # `(d, c)`
    rho:Tensor,             # of the offsets, one pose after another, `(|H|, k², d)`
    eps:Tensor,             # a vector for each pose, `(|H|, d)`
    group:Group,
)->Tensor:
    "Definition 23.7 with h̃⁻¹ĥ at one pixel: weights `(h, h̃, ĥ, k, k)`."
    (row, column), k = pixel, math.isqrt(rho.shape[1])
    patch = f[:, :, row - k//2:row + k//2 + 1, column - k//2:column + k//2 + 1]
    query = torch.einsum('dc,ct->td', Q, f[:, :, row, column])
    content = torch.einsum('td,dc,csyx->tsyx', query, K, patch)
    position = position_scores(f, pixel, Q, rho)
    pose = torch.einsum('td,tsd->ts', query, eps[group.relative])
    scores = content + position[:, :, None] + pose[..., None, None]
    return scores.flatten(2).softmax(2).view_as(scores)


def lifting_parts(
    f:Tensor,               # image `(c, h, w)`
    pixel:tuple[int, int],  # row and column
    Q:Tensor,               # `(d, c)`
    K:Tensor,               # `(d, c)`
    rho:Tensor,             # of the offsets, one pose after another, `(|H|, k², d)`
)->tuple[Tensor, Tensor, Tensor, Tensor]:
    "Definition 23.5 at one pixel: patch, content scores, position scores of each pose, weights."
    (row, column), k = pixel, math.isqrt(rho.shape[1])
    patch = f[:, row - k//2:row + k//2 + 1, column - k//2:column + k//2 + 1]
    query = Q @ f[:, row, column]
    content = torch.einsum('d,dc,cyx->yx', query, K, patch)
    position = (rho @ query).unflatten(1, (k, k))
    weights = (content + position).flatten(1).softmax(1).view_as(position)
    return patch[0], content, position, weights


def draw_lifting(
    image:Tensor,             # `(h, w)`, ink from 0 to 1
    pixel:tuple[int, int],    # row and column
    patch:Tensor,             # of the image around the pixel, `(k, k)`
    content:Tensor,           # scores, `(k, k)`
    position:Tensor,          # scores, `(|H|, k, k)`
    weights:Tensor,           # `(|H|, k, k)`
)->None:
    "A row for each pose: content + position → weights · values, and their sum."
    answers = (weights*patch).sum((1, 2))
    fig = plt.figure(figsize=(7.4, 4.9), layout='constrained')
    left, right = fig.subfigures(1, 2, width_ratios=(1, 2.4))   # type: ignore[misc]
    ax = left.subplots()
    _window(ax, image, pixel, len(patch))
    ax.set_title('one pixel x,\nits window x + Ω')
    axes = right.subplots(len(weights), 5, width_ratios=(1, 1, 1, 1, .6))
    for ax, head in zip(axes[0], LIFTING_HEADS): ax.set_title(head, fontsize=9)
    for h, line in enumerate(axes):
        panels = content, position[h], weights[h], patch, answers[h, None, None]
        _lifting_row(line, panels, weights.max().item())
        color = 'w' if answers[h] > .5 else 'k'
        line[-1].text(0, 0, f'{answers[h]:.2f}', ha='center', va='center', color=color)
        line[0].set_ylabel(f'h = {h}', rotation=0, ha='right', va='center')


LIFTING_HEADS = ('content\n⟨Qf(x), Kf(x+Δ)⟩', 'position\n⟨Qf(x), ρ(h⁻¹Δ)⟩', 'weights α', 'V: patch',
                 'y(x, h)')

def _lifting_row(axes:Sequence[Axes], panels:Sequence[Tensor], top:float)->None:
    "The panels of one pose, with the signs between them."
    looks = 'PuOr', 'PuOr', 'viridis', 'gray_r', 'gray_r'
    ends = (-1.6, 1.6), (-3., 3.), (0., top), (0., 1.), (0., 1.)
    for ax, panel, look, (low, high), sign in zip(axes, panels, looks, ends, ' +→·Σ'):
        ax.imshow(panel, cmap=look, vmin=low, vmax=high)
        ax.set(xticks=[], yticks=[])
        ax.text(-.13, .45, sign, transform=ax.transAxes, ha='center', size=12)


def differing_cells(
    panels:Tensor, # weights of one asker by target pose, `(|H|, k, k)`, of quarter turns
)->list[tuple[int, int]]:
    "A cell of each panel, moved from panel to panel as the encoding is: where they differ most."
    back = torch.stack([panel.rot90(-h) for h, panel in enumerate(panels)])
    cell = int((back.amax(0) - back.amin(0)).argmax())
    names = torch.arange(panels[0].numel()).view_as(panels[0])
    at = [int(names.rot90(h).flatten().eq(cell).nonzero()) for h in range(len(panels))]
    return [divmod(i, panels.shape[-1]) for i in at]


def draw_three_poses(
    image:Tensor,           # `(h, w)`, ink from 0 to 1
    pixel:tuple[int, int],  # row and column
    weights:Tensor,         # `(h, h̃, ĥ, k, k)`, of this pixel, for quarter turns
    place:Tensor,           # position scores, `(h, h̃, k, k)`
    h:int,                  # the pose and the asker that are shown at the left
    asker:int,
)->None:
    "A digit, and rings of an asker and its sources; the weights by target pose and asker."
    fig = plt.figure(figsize=(7.4, 4.8), layout='constrained')
    left, right = fig.subfigures(1, 2, width_ratios=(1.05, 1.5))   # type: ignore[misc]
    above, below = left.subplots(2, 1, height_ratios=(1, 1.6))
    shown, n, side = weights.sum(2), len(weights), place.shape[-1]
    _window(above, image, pixel, side)
    above.set_title('the window x + Ω', fontsize=10)
    _rings(below, place[h, asker], divmod(int(shown[h, asker].argmax()), side), n, h, asker)
    lines = right.subplots(n, n + 1)
    for pose, line in enumerate(lines):
        for i, (ax, panel) in enumerate(zip(line, [*shown[pose], shown[pose].sum(0)])):
            ax.imshow(panel, cmap='viridis', vmin=0, vmax=shown.max()*(1 + (i == n)))
            ax.set(xticks=[], yticks=[])
            if not pose: ax.set_title(f'h̃ = {i}' if i < n else 'Σ', fontsize=10)
        line[0].set_ylabel(f'h = {pose}', rotation=0, ha='right', va='center')
    cells = differing_cells(shown[:, asker])
    for ax, panel, cell in zip(lines[:, asker], shown[:, asker], cells): _circle(ax, panel, cell)
    for spine in lines[h, asker].spines.values(): spine.set(color='#d55e00', linewidth=3)


def _circle(ax:Axes, panel:Tensor, cell:tuple[int, int])->None:
    "A circle around a cell of a panel, and its number under the panel."
    row, column = cell
    ax.plot(column, row, 'o', ms=11, mfc='none', mec='#ff3b30', mew=2, clip_on=False, zorder=9)
    ax.set_xlabel(f'{panel[cell]:.2f}', size=10, labelpad=5)


def _window(ax:Axes, image:Tensor, pixel:tuple[int, int], side:int)->None:
    "An image with a frame around the window of a pixel."
    corner = pixel[1] - side/2, pixel[0] - side/2
    ax.imshow(image, cmap='gray_r')
    ax.add_patch(plt.Rectangle(corner, side, side, fill=False, ec='#d55e00', lw=2))
    ax.set(xticks=[], yticks=[])


def _rings(ax:Axes, scores:Tensor, source:tuple[int, int], n:int, h:int, asker:int)->None:
    "The window of x, a cell a pixel: the askers at x, arrows from one to the sources of a pixel."
    side, (row, column) = len(scores)/2, source
    right, up = column - side + .5, side - .5 - row
    ax.imshow(scores, cmap='PuOr', alpha=.75, extent=(-side, side)*2)
    for line in range(len(scores) + 1):
        ax.plot([-side, side], [line - side]*2, [line - side]*2, [-side, side], color='w', lw=1)
    askers, sources = _ring(ax, 0, 0, n, asker), _ring(ax, right, up, n)
    for i, end in enumerate(sources):          # bent, for none to hide another
        look = dict(arrowstyle='->', color='#222222', shrinkA=6, shrinkB=6,
                    connectionstyle=f'arc3,rad={.16*(i - (n - 1)/2):.2f}')
        ax.annotate('', end, askers[asker], zorder=3, arrowprops=look)
    # beside the sources, towards the middle, and on the other side of the asker
    text:dict[str, Any] = dict(va='center', size=10, bbox=dict(fc='w', ec='none', pad=1.5))
    ax.text(0, .72 if up < 0 else -.72, 'askers (x, h̃)', ha='center', **text)
    beside = (right - .55, 'right') if right > 0 else (right + .55, 'left')
    ax.text(beside[0], up - .25, 'sources (x+Δ, ĥ)', ha=beside[1], **text)
    ax.set_title(f'the window, read in pose h = {h}', fontsize=10)
    ax.set(xticks=[], yticks=[], aspect='equal', xlim=(-side, side), ylim=(-side, side))


def _ring(
    ax:Axes,
    x:float,
    y:float,
    n:int,
    marked:int|None=None,
)->list[tuple[float, float]]:
    "A ring of n numbered poses around a point, one of them marked: where they stand."
    turns = [2*math.pi*i/n for i in range(n)]
    places = [(x + .29*math.cos(turn), y + .29*math.sin(turn)) for turn in turns]
    for i, place in enumerate(places):
        fill, ink = ('#d55e00', 'w') if i == marked else ('#ffffff', 'k')
        ax.plot(*place, 'o', ms=11, color=fill, mec='k', zorder=4)
        ax.text(*place, str(i), ha='center', va='center', size=9, zorder=5, color=ink)
    return places


def draw_network(
    parts:Sequence[tuple[str, int|None]], # name of each part, and the side of its output
    steps:Sequence[Sequence[str]],        # of a block: the parts of each step
    notes:Mapping[int, str]|None=None,    # a line more under some parts
    # from a part to a part, and what stands above them
    spans:Sequence[tuple[int, int, str]]=(),
)->None:
    "A row of boxes with the sides of the maps; below it a block, each step with its sum."
    _, (above, below) = plt.subplots(2, 1, figsize=(7.8, 2.7), layout='constrained')
    _boxes(above, [name for name, _ in parts])
    middle:dict[str, Any] = dict(ha='center', va='center', size=9)
    for i, (_, side) in enumerate(parts):
        if side: above.text(i, -.6, f'{side}×{side}', **middle)
    for i, note in (notes or {}).items(): above.text(i, -.87, note, **middle)
    for i, j, name in spans:
        above.plot([i - .4, i - .4, j + .4, j + .4], [.5, .6, .6, .5], color='#555555', lw=1)
        above.text((i + j)/2, .82, name, **middle)
    _boxes(below, [name for step in steps for name in (*step, '+')])
    start, height = -.55, .75
    for step in steps:
        end = start + len(step) + .55                    # the middle of the sum
        below.plot([start, start, end], [0, height, height], color='#555555')
        below.annotate('', (end, .2), (end, height + .02),
                       arrowprops=dict(arrowstyle='->', color='#555555'))
        start = end + .45


def _boxes(ax:Axes, names:Sequence[str])->None:
    "Boxes in a row, with arrows between them; sums are circles."
    for i, name in enumerate(names):
        look = dict(boxstyle='circle,pad=.2', fc='#fff3e0') if name == '+' else dict(
            boxstyle='round,pad=.3', fc='#e8f1fa')
        ax.text(i, 0, name, ha='center', va='center', size=9, bbox=look | dict(ec='#333333'))
    ax.annotate('', (len(names) - .4, 0), (-.75, 0), zorder=-1, arrowprops=dict(arrowstyle='->'))
    ax.set(xlim=(-.8, len(names) - .35), ylim=(-1, 1))
    ax.axis('off')
