"""Puzzles of two minutes: a picture says what is wanted, and one line of torch does it.

A lesson writes a function that is not right yet, and calls `puzzle` with it: the picture shows what
is given, what is wanted, and what the function makes of it. What is wanted is a slow loop. It is
compared on other cases, too, so that no picture can be copied.
"""
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import fill
from typing import Any

import torch
from torch import Tensor

from ..actions import act
from ..groups import get_group
from ..plot import PICTURES, THEME, Picture

__all__ = ['PUZZLES', 'puzzle']

CASES = 20   # beside the one that is drawn


@dataclass(frozen=True)
class Puzzle:
    "What a function is to do: a slow loop, the case that is drawn, and others by chance."
    wanted:Callable
    shown:tuple
    case:Callable[[torch.Generator], tuple]
    given:tuple[int, ...]=(0,)   # the arguments that are drawn
    in_rows:bool=False           # what is given above what is wanted, and not beside it

    def cases(self)->Iterator[tuple]:
        "The case that is drawn, and then the others."
        yield self.shown
        die = torch.Generator().manual_seed(0)
        for _ in range(CASES): yield self.case(die)


class PuzzlePicture(Picture):
    "Given, wanted, yours."
    solved:bool=False


def puzzle(
    answer:Callable, # named as the puzzle is
)->PuzzlePicture:
    "What is given, what is wanted, and what the function makes of it; `.solved` says if it is."
    if (name := getattr(answer, '__name__', '')) not in PUZZLES:
        raise ValueError(f'no puzzle {name!r}. There are {", ".join(PUZZLES)}.')
    p = PUZZLES[name]
    yours, problem = attempt(answer, p.shown)
    if not problem and not all(same(attempt(answer, c)[0], p.wanted(*c)) for c in p.cases()):
        right = same(yours, p.wanted(*p.shown))
        problem = 'right here, not in other cases' if right else 'not yet'
    fig = draw(p, yours, problem)
    fig.solved = not problem
    fig.alt = f'Puzzle {name}: what is given, what is wanted, and yours: {problem or "right"}.'
    return fig


def attempt(answer:Callable, case:tuple)->tuple[Any, str]:
    "What a function makes of a case, and what keeps it from being an answer, '' if nothing."
    try: value = answer(*[a.clone() if isinstance(a, Tensor) else a for a in case])
    except Exception as error: return None, f'{type(error).__name__}: {error}'.splitlines()[0]
    if isinstance(value, Tensor): return value, ''
    return None, f'a tensor is wanted, got {type(value).__name__}'


def same(value:Any, wanted:Tensor)->bool:
    "Is it the tensor that is wanted?"
    if not isinstance(value, Tensor) or value.shape != wanted.shape: return False
    return torch.equal(value.double(), wanted.double())


@THEME
def draw(p:Puzzle, yours:Any, problem:str)->PuzzlePicture:
    "Three parts beside or above each other, each a row of panels."
    given = [panel for i in p.given for panel in panels_of(p.shown[i])]
    rows = given, panels_of(p.wanted(*p.shown)), panels_of(yours)
    names = 'given', 'wanted', 'yours: ✗' if problem else 'yours: ✓'
    colours = None, None, '#c77700' if problem else '#2e7d32'
    if p.in_rows:
        height = 1.4 if p.shown[0].ndim == 3 else .9
        fig = PuzzlePicture(figsize=(7.5, 3*height), layout='constrained')
        parts:Any = fig.subfigures(3, 1)
    else:
        widths = [len(row) for row in rows]
        side = min(2.1, 8.4/sum(widths))
        fig = PuzzlePicture(figsize=(side*sum(widths), side + .4), layout='constrained')
        parts = fig.subfigures(1, 3, width_ratios=widths)
    for part, row, name, colour in zip(parts, rows, names, colours):
        part.suptitle(name, fontsize=11, color=colour)
        if row == [None]: part.text(.5, .5, fill(problem, 26), ha='center', va='center')
        for ax, panel in zip(part.subplots(1, len(row), squeeze=False)[0], row):
            draw_panel(ax, panel)
    return fig


def panels_of(x:Any)->list:
    "The pictures in a tensor: of three axes several; a list of numbers is one pixel high."
    if not isinstance(x, Tensor) or x.ndim not in (1, 2, 3): return [None]
    if x.ndim == 1: x = x[None]
    return [*x] if x.ndim == 3 else [x]


def draw_panel(ax:Any, panel:Any)->None:
    "Whole numbers are written, all else is grey."
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)
    if panel is None:
        ax.axis('off')
        return
    numbers = not panel.is_floating_point() and panel.dtype != torch.bool
    if not numbers:
        ax.imshow(panel.numpy(), cmap=PICTURES, vmin=0, vmax=1)
        return
    ax.imshow(torch.zeros(panel.shape).numpy(), cmap=PICTURES, vmin=0, vmax=1)
    for i, j in product(*map(range, panel.shape)):
        ax.text(j, i, panel[i, j].item(), ha='center', va='center', color='k')


# --- 01 Groups

LETTER = torch.tensor([[0., 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0],
                       [0, 1, 0, 0, 0]])
P4M = get_group('p4m')
EIGHT = torch.cat([act(P4M, h, LETTER[None, None])[0] for h in P4M.elements])
GROUPS = [get_group(name) for name in ('C3', 'C4', 'C6', 'D3', 'D4', 'D5')]


def one(values:Sequence, die:torch.Generator)->Any:
    "One of the values."
    return values[int(torch.randint(len(values), (), generator=die))]

def noise(die:torch.Generator, *shape:int)->Tensor:
    "Random greys."
    return torch.rand(shape, generator=die)


def quarter_turn(f):
    "A square picture after a quarter turn."
    n, turned = len(f), torch.zeros_like(f)
    for i, j in product(range(n), repeat=2): turned[n - 1 - j, i] = f[i, j]
    return turned

def seen_from(pictures, g, mul, inv):
    "What somebody in pose g sees of the picture in each pose q: the one of pose g⁻¹q."
    return torch.stack([pictures[mul[inv[g], q]] for q in range(len(pictures))])

def commute(mul):
    "For which pairs is gh = hg?"
    n, mask = len(mul), torch.zeros(mul.shape, dtype=torch.bool)
    for g, h in product(range(n), repeat=2): mask[g, h] = mul[g, h] == mul[h, g]
    return mask


def pictures_and_pose(die:torch.Generator)->tuple:
    "A picture for each pose of a group, and a pose."
    group = one(GROUPS, die)
    return noise(die, len(group), 3, 3), one(group.elements, die), group.mul, group.inv


# --- 02 Actions

def turned_maps(f):
    "Four maps, one a quarter turn, after a quarter turn of the picture."
    maps = torch.zeros_like(f)
    for q in range(4): maps[q] = quarter_turn(f[(q - 1) % 4])
    return maps

def read_pixels(f, numbers):
    "The picture that reads, at each place, the pixel of that number."
    result, pixels = torch.zeros_like(f), [v for row in f for v in row]
    for i, j in product(*map(range, f.shape)): result[i, j] = pixels[numbers[i, j]]
    return result

def moved_vector(v, h, relative):
    "One number for each pose, after h: that of pose h⁻¹q stands at q."
    return torch.stack([v[relative[h, q]] for q in range(len(v))])


def picture_and_numbers(die:torch.Generator)->tuple:
    "A picture, which need not be square, and its pixels' numbers in some order."
    rows, cols = one(range(2, 5), die), one(range(2, 5), die)
    return noise(die, rows, cols), torch.randperm(rows*cols, generator=die).view(rows, cols)

def vector_and_pose(die:torch.Generator)->tuple:
    "A number for each pose of a group, and a pose."
    group = one(GROUPS, die)
    return noise(die, len(group)), one(group.elements, die), group.relative


# --- 04 Equivariance

def two_roads(f, layer, turn):
    "Turn, then the layer; and the layer, then turn."
    roads = torch.zeros(2, *turn(f).shape)
    roads[0] = layer(turn(f))
    roads[1] = turn(layer(f))
    return roads

def carried_back(f, h):
    "Four maps of a picture that has made h quarter turns, as they were before."
    for _ in range(4 - h): f = turned_maps(f)
    return f


def ends_below(f:Tensor)->Tensor:
    "Ink with paper below it."
    return (f - f.roll(-1, 0)).clamp(min=0)

def moved_right(f:Tensor)->Tensor:
    "One pixel to the right; what leaves comes in on the left."
    return f.roll(1, 1)

def quarter_turns(k:int)->Callable[[Tensor], Tensor]:
    "A function that turns a picture."
    return lambda f: torch.rot90(f, k)

def picture_layer_and_turn(die:torch.Generator)->tuple:
    "A picture, a layer that is not equivariant, and a turn."
    layer, k = one([ends_below, moved_right], die), one(range(1, 4), die)
    return noise(die, 4, 4), layer, quarter_turns(k)


# --- 05 Convolution

def matrix_from_row(row, mul, inv):
    "The equivariant matrix with this first row: at row g, column q stands the number of g⁻¹q."
    n = len(row)
    matrix = torch.zeros(n, n)
    for g, q in product(range(n), repeat=2): matrix[g, q] = row[mul[inv[g], q]]
    return matrix


def row_of_group(die:torch.Generator)->tuple:
    "A number for each element of a group."
    group = one(GROUPS, die)
    return noise(die, len(group)), group.mul, group.inv


# --- 06 Layers

def shared_scales(g):
    "The nearest scales that all poses share: for each channel the mean over the poses."
    scales = torch.zeros_like(g)
    for c, q in product(*map(range, g.shape)): scales[c, q] = sum(g[c])/len(g[c])
    return scales


def scales_of_poses(die:torch.Generator)->tuple:
    "A scale for each channel and pose, in eighths, of which means are exact."
    shape = one(range(2, 6), die), one((2, 4, 8), die)
    return (torch.randint(9, shape, generator=die)/8,)


MAPS = torch.zeros(4, 5, 5)
MAPS[0], MAPS[2, 4, 2:] = LETTER, .5
SCALES = torch.tensor([[8., 5, 7, 4], [1, 3, 0, 4], [6, 2, 8, 0]])/8
NUMBERS = act(P4M, 1, torch.arange(25).view(1, 1, 5, 5))[0, 0]

PUZZLES = {p.wanted.__name__: p for p in [
    Puzzle(quarter_turn, (LETTER,), lambda die: (noise(die, *2*[one(range(2, 6), die)]),)),
    Puzzle(seen_from, (EIGHT, 1, P4M.mul, P4M.inv), pictures_and_pose, in_rows=True),
    Puzzle(commute, (P4M.mul,), lambda die: (one(GROUPS, die).mul,)),
    Puzzle(turned_maps, (MAPS,), lambda die: (noise(die, 4, 3, 3),), in_rows=True),
    Puzzle(read_pixels, (LETTER, NUMBERS), picture_and_numbers, given=(0, 1)),
    Puzzle(moved_vector, (torch.arange(8), 1, P4M.relative), vector_and_pose, in_rows=True),
    Puzzle(two_roads, (LETTER, ends_below, quarter_turns(1)), picture_layer_and_turn),
    Puzzle(carried_back, (turned_maps(MAPS), 1),
           lambda die: (noise(die, 4, 3, 3), one(range(4), die)), in_rows=True),
    Puzzle(matrix_from_row, (torch.linspace(0, 1, 8), P4M.mul, P4M.inv), row_of_group),
    Puzzle(shared_scales, (SCALES,), scales_of_poses),
]}
