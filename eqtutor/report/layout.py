"How a tensor carries the group: the layouts that its shape allows, and what an element does to it."
# Plain module: edited by hand, no notebook exports it.

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..actions import act
from ..groups import Group
from ..trace import Call

NAMES = {
    ('c', 'c'): 'invariant', ('c', 'c', 'g'): 'vector on H',
    ('c', 'c', 'y', 'x'): 'image', ('c', 'c', 'g', 'y', 'x'): 'feature map',
    ('c', 'cg', 'y', 'x'): 'flattened', ('c', 'cg'): 'flattened vector',
    ('c', 'ca'): 'vector', ('c', 'ca', 'y', 'x'): 'vector'}   # the last one is what LAYOUTS has


@dataclass(frozen=True)
class Layout:
    "How a tensor carries the group: what each of its axes is a product of."
    # an axis: letters, the last one runs fastest: c stays, g poses, y rows, x columns,
    # a the two components of an arrow
    axes:tuple[str, ...]
    size:tuple[int, int] = (1, 1)   # rows and columns, where they share an axis
    extra:int = 0                   # tokens that stand before the places and stay

    def suits(self,
        shape:Sequence[int], # of a tensor
        group:Group,
    )->bool:
        "Can a tensor of this shape have this layout?"
        if len(shape) != len(self.axes): return False
        return all(math.prod(self.factors(group, atoms, n)[1]) == n - self.extra_of(atoms)
                   for atoms, n in zip(self.axes, shape) if atoms not in ('y', 'x'))

    def extra_of(self,
        atoms:str, # letters of an axis
    )->int:
        "Tokens before the places of an axis."
        return self.extra if atoms == 'yx' else 0

    def factors(self,
        group:Group,
        atoms:str,   # letters of an axis
        n:int,       # its length
    )->tuple[int, tuple[int, ...]]:
        "Tokens before the places of an axis, and how many entries each of its letters has."
        extra = self.extra_of(atoms)
        known = dict(g=len(group), y=self.size[0], x=self.size[1], a=2)
        rest = (n - extra)//math.prod(known.get(a, 1) for a in atoms)
        return extra, tuple(known.get(a, rest) for a in atoms)

    def move(self,
        group:Group,
        h:int,    # group element
        t:Tensor, # a tensor of this layout
    )->Tensor:
        "What element h makes of it: entries change places, and arrows turn."
        for i, atoms in enumerate(self.axes):
            if atoms in ('c', 'x'): continue
            if 'a' in atoms:
                t = turned_arrows(group, h, t, i, self.factors(group, atoms, t.shape[i])[1],
                                  atoms.index('a'))
                continue
            if atoms == 'y':
                pixels = moved_pixels(group, h, *t.shape[i:i+2])
                t = t.flatten(i, i + 1).index_select(i, pixels.flatten().to(t.device))
                t = t.unflatten(i, pixels.shape)
                continue
            extra, sizes = self.factors(group, atoms, t.shape[i])
            index = extra + moved_entries(group, h, atoms, sizes)
            index = torch.cat([torch.arange(extra), index]).to(t.device)
            t = t.index_select(i, index)
        return t

    def __str__(self)->str:
        if self.axes in NAMES: return NAMES[self.axes]
        if set(self.axes) == {'c'}: return 'invariant'
        return 'tokens' if 'yx' in self.axes else '·'.join(self.axes)

# what a caller may say of an input
LAYOUTS = {name: Layout(axes) for axes, name in NAMES.items()}


def turned_arrows(
    group:Group,
    h:int,                 # group element
    t:Tensor,
    axis:int,              # the one that holds arrows
    sizes:tuple[int, ...], # how many entries each of its letters has
    place:int,             # of the two components among its letters
)->Tensor:
    "Each arrow times the matrix of h; it stays where it is."
    pairs = t.unflatten(axis, sizes).movedim(axis + place, -1)
    turned = (pairs[..., None, :]*group.matrices[h].to(t)).sum(-1, dtype=t.dtype)
    return turned.movedim(-1, axis + place).flatten(axis, axis + len(sizes) - 1)


@lru_cache(maxsize=64)
def moved_pixels(
    group:Group,
    h:int,       # group element
    rows:int,
    cols:int,
)->Tensor:       # `(rows', cols')`
    "The number of the pixel that element h brings to each place."
    places = torch.arange(rows*cols, dtype=torch.float64).view(1, 1, rows, cols)
    return act(group, h, places)[0, 0].long()


@lru_cache(maxsize=64)
def moved_entries(
    group:Group,
    h:int,                 # group element
    atoms:str,             # letters of an axis, as in `Layout`
    sizes:tuple[int, ...], # how many entries each has
)->Tensor:
    "Which entry of an axis stands at each of its places once element h has moved it."
    index = torch.arange(math.prod(sizes)).view(sizes)
    if 'g' in atoms: index = index.index_select(atoms.index('g'), group.relative[h])
    if 'y' not in atoms: return index.flatten()
    i = atoms.index('y')
    pixels = moved_pixels(group, h, *sizes[i:i+2]).flatten()
    return index.flatten(i, i + 1).index_select(i, pixels).flatten()


def readings(
    shape:Sequence[int],             # of a tensor
    poses:int,                       # |H|
    sizes:Sequence[tuple[int, int]], # of images: rows and columns seen so far
)->Iterator[Layout]:
    "The layouts that a tensor of this shape may have, the plainest first."
    plain = {2: 'cc', 4: 'ccyx', 5: 'ccgyx'}.get(len(shape), '')
    if plain and (len(shape) < 5 or shape[2] == poses): yield Layout(tuple(plain))
    for layout in place_layouts(tuple(shape), poses, sizes):
        yield layout
        if poses == 1: continue
        for i, atoms in enumerate(layout.axes):    # the poses in one of the other axes
            if atoms != 'c' or shape[i] % poses or shape[i] == 0: continue
            for with_poses in ['g'] if shape[i] == poses else ['cg', 'gc']:
                axes = *layout.axes[:i], with_poses, *layout.axes[i+1:]
                yield Layout(axes, layout.size, layout.extra)
    for layout in place_layouts(tuple(shape), poses, sizes):   # arrows: what nothing else fits
        for i, atoms in enumerate(layout.axes):
            if i == 0 or atoms != 'c' or shape[i] % 2 or shape[i] == 0: continue
            for with_arrows in ['ca'] if shape[i] == 2 else ['ca', 'ac']:
                axes = *layout.axes[:i], with_arrows, *layout.axes[i+1:]
                yield Layout(axes, layout.size, layout.extra)


def place_layouts(
    shape:tuple[int, ...],           # arguments as for `readings`
    poses:int,
    sizes:Sequence[tuple[int, int]],
)->Iterator[Layout]:
    "Where the places of an image may stand: in two axes, in one, in two each, nowhere."
    n = len(shape)
    def put(size:tuple[int, int], extra:int, *atoms:tuple[int, str])->Layout:
        return Layout(tuple(dict(atoms).get(i, 'c') for i in range(n)), size, extra)
    for i in reversed(range(1, n - 1)): yield put((1, 1), 0, (i, 'y'), (i + 1, 'x'))
    yield put((1, 1), 0)
    for size in sizes:
        area = math.prod(size)
        if area == 1: continue
        for atoms, length, extra in (('yx', area, 0), ('yx', area + 1, 1),
                                     ('gyx', poses*area, 0), ('yxg', poses*area, 0)):
            at = [i for i in range(n) if shape[i] == length]
            for chosen in (*combinations(at, 2), *combinations(at, 1)):
                yield put(size, extra, *((i, atoms) for i in chosen))
        for i in range(1, n) if n < 4 else ():    # pictures laid out as vectors
            if shape[i] % area or shape[i] == area: continue
            for atoms in 'cyx', 'cgyx', 'yxc', 'gcyx': yield put(size, 0, (i, atoms))


@dataclass(frozen=True)
class Carried:
    "A layout that no name describes: that of the inputs of a call that moves entries."
    calls:dict[int, Call]  # by group element
    layouts:list[Any]      # of its inputs
    number:int             # of the call

    def move(self, group:Group, h:int, t:Tensor)->Tensor:
        "What element h makes of a tensor of this layout."
        numbers = numbered_entries(self.calls[0])
        order = self.calls[0].again(numbers)[0].flatten()
        entries = torch.empty_like(t.flatten()).index_copy_(0, order, t.flatten())
        moved = [m.move(group, h, entries[z]) for m, z in zip(self.layouts, numbers)]
        return self.calls[h].again(moved)[0]

    def __str__(self)->str: return 'rearranged'


def numbered_entries(
    call:Call,
)->list[Tensor]:
    "In place of each input of a call, the numbers of its entries, counted through all inputs."
    ends = torch.tensor([0, *(z.numel() for z in call.inputs)]).cumsum(0).tolist()
    return [torch.arange(a, b).view(z.shape) for a, b, z in zip(ends, ends[1:], call.inputs)]
