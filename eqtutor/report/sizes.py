"Sizes of pictures on which a network is exact: measured, with many weights."
# Plain module: edited by hand, no notebook exports it.

import copy
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count as count_from, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..actions import act, keeps_grid, reversed_axes
from ..equivariance import perturb_, tolerance
from ..groups import Group, generate, get_group
from ..trace import tensors_in
from .advice import short_name
from .examination import Examination
from .filters import OtherFilters
from .layers import layer_report

Size = tuple[int, int]   # rows and columns of a picture

DRAWS, PATIENCE = 6, 8   # draws to pass, draws that may say nothing
REACH = 64               # how far to look for the first


class Precision(TorchFunctionMode):
    "Notes whether anything is computed in less than float64."
    narrow = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **kwargs or {})
        if isinstance(out, Tensor) and out.is_floating_point():
            self.narrow |= out.dtype != torch.float64
        return out


class SizeTrial:
    "A copy of a network, tried on pictures of many sides with other weights each time."
    def __init__(self,
        net:nn.Module,
        group:Group,
        channels:int|None, # of the picture; those of the first layer if None
        double:bool,       # in float64?
        input_kind:str|None=None, # 'vector' where its channels are arrows
    ):
        self.input_kind = input_kind
        self.original, self.net = net, copy.deepcopy(net).eval()
        if double: self.net.double()
        self.is_plain = not any(map(is_on_group, self.net.modules()))
        self.moves = generators(group)
        if self.is_plain and not self.moves and any(reversed_axes(group)):
            group = get_group('C2')   # of C3, say, no turn keeps the grid
            self.moves = generators(group)
        self.group = group
        for m in self.net.modules():  # nothing to measure: the layers' own rule decides
            if not self.moves and hasattr(m, 'strict'):
                m.strict = True    # type: ignore[assignment]
        if channels is None:
            sizes = (getattr(m, 'in_channels', None) for m in net.modules())
            channels = next((c for c in sizes if isinstance(c, int)), None)
            if not channels:
                raise ValueError('no layer says how many channels a picture has: say channels=…')
        self.like = next(self.net.parameters(), torch.empty((), dtype=torch.float64))
        self.channels = channels
        self.examination = Examination(group, [], {}, tolerance(self.like))
        self.watch = Precision()
        self.numbers:dict[Size, int] = {}   # that come out
        self.refused:dict[Size, Exception] = {}

    def draw(self, seed:int)->None:
        "Other weights and statistics; constants, a blur's filter say, stay."
        moving = 'running_mean', 'running_var'
        constants = [(b, b.clone()) for name, b in self.net.named_buffers()
                     if not name.endswith(moving)]
        self.net.load_state_dict(self.original.state_dict())
        # the noise, and its opposite: a gate that closes by one opens by the other
        perturb_(self.net, scale=(.5, -.5)[seed % 2], seed=seed//2)
        # a column too many at one end is a maximum's where all others lie below it
        if seed//2 % 2:
            for name, p in self.net.named_parameters():
                if name.endswith('bias'): p.neg_()
        for b, value in constants: b.copy_(value)
        turns = list(generate(self.group, *self.moves)) if self.is_plain else [0]
        # of six draws one has all channels
        self.filters = OtherFilters(self.net, self.group, turns, thin=seed % 6 != 1)
        self.seed = seed

    def run(self, size:Size, x:Tensor)->list[Tensor]|None:
        "The outputs; None where the network refuses a picture of that size."
        try:
            with (warnings.catch_warnings(), self.filters,
                  nullcontext() if self.numbers else self.watch):
                warnings.simplefilter('ignore')
                y = tensors_in(self.net(x.clone()))[0]
        except Exception as error:
            if 'memory' in str(error): raise
            self.refused[size] = error
            return None
        return y if y and all(t.numel() for t in y) else None

    def pictures(self, size:Size)->Tensor:
        "Pictures, and others near them: `(2, b, c, h, w)`."
        # few numbers may be equal by chance: maxima are, half of the time
        many = max(1, 16//self.numbers.get(size, 16)) if self.filters.thin else 1
        rows, columns = size
        noise = torch.Generator().manual_seed(
            100*rows + 10**6*abs(rows - columns) + self.seed)
        x = torch.randn(2, min(many, 12), self.channels, rows, columns, generator=noise,
                        dtype=torch.float64)
        x[1] = x[0] + x[1]/10
        x *= 4**(self.seed % 3)     # faint beside the biases, or strong
        return x.to(self.like)

    def is_exact(self, size:Size)->bool|None:
        "On pictures of that size; None if this draw cannot tell."
        x, near = self.pictures(size)
        if (y := self.run(size, x)) is None: return False
        self.numbers[size] = sum(t.numel()//len(x) for t in y)
        moved:dict[int, list[Tensor]] = {}
        for h in self.moves:     # one at a time: the first failure decides
            z = self.run(size, act(self.group, h, x, self.input_kind))
            if z is None or len(z) != len(y): return False
            moved[h] = z
            verdicts = [self.moves_along(size, t, {q: m[k] for q, m in moved.items()})
                        for k, t in enumerate(y)]
            if False in verdicts: return False
            if None in verdicts: return None
        if not self.moves: return True
        # does any output hear of the picture? Zeros, and what is saturated, do not
        for a, b in zip(y, self.run(size, near) or []):
            if not a.is_floating_point(): continue   # two may be equal by chance
            if a.shape != b.shape: return True
            if (a - b).abs().max() > 10*self.examination.tol*a.abs().max(): return True
        return None

    def moves_along(self, size:Size, y:Tensor, moved:dict[int, Tensor])->bool|None:
        "Is `moved` what the elements make of y, in some layout? None is in between."
        examination, poses, shape = self.examination, len(self.group), y.shape
        # images, as long or as square as the picture, of which the places may stand in one axis
        areas = {a for n in shape for a in (n, n - 1, n//poses)}
        examination.sizes = [of for a in sorted(areas) for of in alike(size, a)]
        needed = set()   # what moves in what looks like an image, a feature map, a vector on H
        if len(shape) == 4 and is_alike(size, shape[2:]) or len(shape) == 5 and shape[2] == poses:
            needed.add('y')
        if len(shape) in (3, 5) and shape[2] == poses: needed.add('g')
        unclear = False
        for layout in examination.candidates(y):
            if not needed <= set(''.join(layout.axes)): continue
            errors = [examination.error(layout, y, h, z) for h, z in moved.items()]
            if all(e <= examination.tol for e in errors): return True
            unclear |= not any(e > 100*examination.tol for e in errors)   # NaN is not
        return None if unclear else False


def is_alike(
    size:Size,
    other:Sequence[int],
)->bool:
    "May a map of the other size be made of a picture of this one? Of a square one only squares."
    (a, b), (rows, columns) = size, other
    if a == b: return rows == columns
    return rows*columns > 1 and .5 < rows*b/(columns*a) < 2


def alike(
    size:Size,
    area:int,
)->list[Size]:
    "Sizes of maps with so many places that may be made of a picture."
    sides = [n for n in range(2, area + 1) if area % n == 0 and n**2 <= area]
    pairs = {(n, area//n) for n in sides} | {(area//n, n) for n in sides}
    return sorted(pair for pair in pairs if is_alike(size, pair))


def generators(
    group:Group,
)->list[int]:
    "Elements from which all that keep the pixel grid follow."
    chosen:list[int] = []
    for h in group.elements:
        if keeps_grid(group, h) and h not in generate(group, *chosen): chosen.append(h)
    return chosen


def is_on_group(
    m:Any, # a module
)->bool:
    "Is it a layer on a group, with weights? A pool is not, nor what has such layers."
    group = getattr(m, 'group', None)
    if not isinstance(group, Group) or len(group) == 1: return False
    of_ours = any(c.__module__.startswith('eqtutor.nn') for c in type(m).__mro__)
    return any(True for _ in m.parameters(recurse=of_ours))


@torch.no_grad()
def exact_sizes(
    net:nn.Module,
    group:Group|str,
    near:int|Size=224,
    channels:int|None=None,
    count:int=5,
    input_kind:str|None=None,
)->list:
    """Sizes of pictures on which the network is exact: the nearest, measured.

    The network runs on the sides from `near/2` to `2*near + 63`, the nearest first. If
    none within 64 of `near` is exact, that is an error which says who is at fault. A
    plain network, without a layer on a group, is measured as if its filters turned. On
    a group that keeps no pixel grid, C3 say, the layers' own rule decides. Not seen is
    a branch that the values of other pictures would take; not named is a side on which
    the output does not hear of the picture. Of rectangles those are tried whose rows are
    exact beside some number of columns, and whose columns beside some number of rows.

    Parameters
    ----------
    net : nn.Module
    group : Group | str
    near : int | Size, default 224
        the side of a square picture that you want, or rows and columns, (65, 49)
    channels : int | None, default None
        of the picture; those of the first layer if None
    count : int, default 5
        how many to name
    input_kind : str | None, default None
        'vector' where the input's channels are arrows, two each

    Returns
    -------
    list
        sides, in order; pairs of rows and columns, the nearest first, if `near` is a pair
    """
    wanted:Any = near if isinstance(near, tuple | list) else (near,)
    if len(wanted) not in (1, 2) or not all(isinstance(n, int) and n > 0 for n in wanted):
        raise ValueError(f'near is a side in pixels, or rows and columns, got {near!r}')
    group, like = get_group(group), next(net.parameters(), torch.zeros(()))
    doubles = {like.device.type != 'mps', like.dtype == torch.float64}
    for double in sorted(doubles, reverse=True):
        trial = SizeTrial(net, group, channels, double, input_kind)
        if len(wanted) == 2:
            if rectangles := nearest_rectangles(trial, wanted, count): return rectangles
        elif squares := nearest_squares(trial, wanted[0], count):
            return sorted(n for n, _ in squares)
        if trial.numbers and not trial.watch.narrow: break
    raise ValueError(why_no_size(trial, wanted[-1]))


def nearest_squares(
    trial:SizeTrial,
    near:int,        # arguments as for `exact_sizes`
    count:int,
)->list[Size]:
    "The nearest exact squares; none if the first is further than `REACH`."
    sides, reach = sides_near(near)
    return nearest_sizes(trial, [(n, n) for n in sides], count, reach)


def nearest_rectangles(
    trial:SizeTrial,
    near:Size,       # arguments as for `exact_sizes`
    count:int,
)->list[Size]:
    "The nearest exact rectangles: what rows ask for does not depend on columns."
    if not (square := nearest_squares(trial, near[1], 1)): return []
    (sides, reach), beside = sides_near(near[0]), square[0][1]
    if not (tall := nearest_sizes(trial, [(n, beside) for n in sides], count, reach)): return []
    (sides, reach), beside = sides_near(near[1]), tall[0][0]
    wide = nearest_sizes(trial, [(beside, n) for n in sides], count, reach)
    def distance(size:Size)->int: return abs(size[0] - near[0]) + abs(size[1] - near[1])
    pairs = sorted(((a, b) for (a, _), (_, b) in product(tall, wide)),
                   key=lambda size: (distance(size), size))
    return nearest_sizes(trial, pairs, count)


def sides_near(
    near:int,
)->tuple[list[int], int]:
    "Sides from half of one to twice, the nearest first; and how many are within `REACH`."
    sides = sorted(range(max(1, near//2), 2*near + 64), key=lambda n: (abs(n - near), n))
    return sides, sum(abs(n - near) <= REACH for n in sides)


def nearest_sizes(
    trial:SizeTrial,
    sizes:Sequence[Size],   # the nearest first
    count:int,              # how many to find
    reach:int|None=None,    # how many to try until the first; all if None
)->list[Size]:
    "The first sizes that pass six draws; those that fail one are gone."
    tried = {size: i for i, size in enumerate(sizes)}
    passed, silent = Counter[Size](), Counter[Size]()
    for seed in count_from(0):
        trial.draw(seed)
        # where five sizes have said nothing for long, the others are asked once
        given_up = [size for size in silent if silent[size] >= PATIENCE]
        patience = PATIENCE if passed.total() or not given_up else 1
        kept:list[Size] = []
        for i, size in enumerate(sizes):
            if len(kept) == count:
                kept += sizes[i:]
                break
            if not kept and reach is not None and tried[size] >= reach: break
            exact = trial.is_exact(size)
            passed[size] += exact is True
            silent[size] += exact is None
            if exact is not False and silent[size] < patience: kept.append(size)
        sizes = kept
        named = sizes[:count]
        if all(passed[size] >= DRAWS for size in named): break
    if not named and (given_up := [size for size in silent if silent[size] >= patience]):
        rows, columns = given_up[0]
        raise ValueError(
            f'on {rows}×{columns} pixels nothing can be measured: the output hardly hears of '
            'the picture (zeros, a saturated softmax, integers), or is not finite. '
            'Leave the last layers away and ask again')
    return [*named]


def why_no_size(
    trial:SizeTrial,
    near:int,        # as for `exact_sizes`
)->str:
    "Why no size is exact: nothing runs, or who breaks the symmetry on one that does."
    first, last = max(1, near//2, near - REACH), near + REACH
    where = f'{first} to {last} pixels a side'
    if not trial.numbers:
        (n, m), error = next(iter(trial.refused.items()), ((near, near), 'nothing comes out'))
        return (f'the network takes no picture of {trial.channels} channels and '
                f'{where}, one input (b, c, n, n). On {n}×{m}: {error} '
                '(if its pictures have other channels, say channels=…)')
    size, name = min(trial.numbers), short_name(trial.group)
    try:
        with trial.filters, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            faults = layer_report(trial.net, trial.pictures(size)[0], trial.group,
                                  layout=trial.input_kind).offenders
    except Exception: faults = []   # it cannot be followed: another path, say
    faults.sort(key=lambda s: 'over at one end' in s.reason)   # a size may mend those
    lines = [f'\n- {s.name} ({s.where or s.cls}): {s.reason}' for s in faults[:3]]
    at_fault = 'these break the symmetry:' if lines else 'nobody breaks it alone.'
    return (f'no picture of {where} is exact to {trial.group.name}: look at '
            f"layer_report(net, x, '{name}'). On {size[0]}×{size[1]} {at_fault}{''.join(lines)}")
