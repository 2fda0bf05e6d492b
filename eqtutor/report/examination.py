"Layouts followed through a forward pass, each call tried by itself: who breaks the symmetry."
# Plain module: edited by hand, no notebook exports it.

import math
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn

from ..groups import Group
from ..trace import Call, Source
from .layout import NAMES, Carried, Layout, numbered_entries, readings

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm,
         nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
MOVES = {   # operations that put entries elsewhere, and nothing more
    'reshape', 'view', 'flatten', 'unflatten', 'permute', 'transpose', 'movedim', 'moveaxis',
    'swapaxes', 'swapdims', 'squeeze', 'unsqueeze', 'contiguous', 'clone', 'view_as',
    'reshape_as', 'cat', 'concat', 'stack', 'ravel', 't', 'T', 'mT', 'H', 'mH', 'data', 'real'}
CHOICES = 16   # of layouts that the inputs of a call may have, to be tried


def only_moves(
    call:Call,
)->bool:
    "Does a call put entries elsewhere, and nothing more?"
    if isinstance(call.function, nn.Flatten | nn.Unflatten | nn.Identity): return True
    return not call.is_layer and call.name in MOVES


class Examination:
    "A forward pass, and the same on moved inputs, compared call by call."
    def __init__(self,
        group:Group,
        still:list[Call],            # the pass on x
        runs:dict[int, list[Call]],  # on the input moved by h, for h that are exact
        tol:float,
        asked:Layout|None=None,      # of the outputs, where somebody said so
    ):
        self.group, self.tol, self.asked = group, tol, asked
        self.still, self.runs = still, runs
        self.layouts:dict[Source, Any] = {}   # of tensors, by where they come from
        self.blamed:dict[int, float] = {}     # number of a call -> its error by itself
        self.assumed:set[Source|None] = set() # outputs of faulty calls, and what follows of them
        self.sizes:list[tuple[int, int]] = []

    # layouts

    def error(self, layout:Any, y:Tensor, h:int, moved:Tensor)->float:
        "max|f(hx) − h f(x)| / max|f(x)|."
        if isinstance(layout, Layout) and not layout.suits(y.shape, self.group):
            return math.inf
        want = layout.move(self.group, h, y)
        if want.shape != moved.shape: return math.inf
        if not y.numel(): return 0.
        y, want, moved = (t if t.is_floating_point() else t.double() for t in (y, want, moved))
        return (want - moved).abs().max().item()/(y.abs().max().item() or 1.)

    def fits(self, layout:Any, y:Tensor, moved:dict[int, Tensor])->bool:
        "Is `moved` what the elements make of y, in this layout?"
        return all(self.error(layout, y, h, z) <= self.tol for h, z in moved.items())

    def candidates(self, y:Tensor)->Iterator[Layout]:
        "The layouts that a tensor may have, the plainest first."
        return readings(y.shape, len(self.group), self.sizes)

    def reading(self, y:Tensor, moved:dict[int, Tensor], first:Sequence[Any]=())->Any:
        "A layout that fits, if there is one."
        for layout in (*first, *self.candidates(y)):
            if self.fits(layout, y, moved): return layout
        return None

    def learn(self, source:Source, layout:Any, y:Tensor)->None:
        "A tensor has this layout; its size is one of an image."
        self.layouts[source] = layout
        axes = getattr(layout, 'axes', ())
        if 'y' not in axes: return
        i = axes.index('y')
        size = (y.shape[i], y.shape[i + 1])
        if size not in self.sizes: self.sizes.append(size)

    # calls

    def examine(self)->None:
        "Every call, in order; the last one is the output of the network."
        for i, call in enumerate(self.still):
            entering = [self.input_layout(i, k) for k in range(len(call.at))]
            if call is self.still[-1]: leaving = entering
            elif None in entering: leaving = self.behaviour(i)
            else: leaving = self.try_alone(i, entering)
            for k, (layout, y) in enumerate(zip(leaving, call.outputs)):
                if call is self.still[-1] and isinstance(layout, Carried):
                    # an output without a name blames what rearranged it
                    self.blamed.setdefault(layout.number, math.nan)
                    layout = next(self.candidates(y))
                if call is self.still[-1] and self.asked: layout = self.as_asked(i, k, layout)
                self.learn((i, k), layout, y)

    def as_asked(self, i:int, k:int, layout:Any)->Layout:
        "The layout that an output of the network ought to have; to blame where it has another."
        asked, y = self.asked, self.still[i].outputs[k]
        if not asked.suits(y.shape, self.group):
            raise ValueError(f'the output should be of kind {str(asked)!r}, got shape '
                             f'{tuple(y.shape)}')
        moved = {h: run[i].outputs[k] for h, run in self.runs.items()}
        known = isinstance(layout, Layout) and layout != asked
        if known and not self.fits(asked, y, moved):
            self.blamed[i] = max(self.error(asked, y, h, z) for h, z in moved.items())
        return asked

    def input_layout(self, i:int, k:int)->Any:
        """The layout of a call's input: as it was found, or as it behaves; None if neither, or if
        the call reads something else that changes with the network's input, and nobody saw how."""
        call, runs = self.still[i], self.runs
        source = call.sources[k]
        known = self.layouts.get(source) if source else None
        if known is not None: return known
        for n in set(range(len(call.leaves))) - set(call.at):
            mine = call.leaves[n]
            for run in runs.values() if isinstance(mine, Tensor) else ():
                other = run[i].leaves[n]
                if mine is other or mine.shape != other.shape: continue
                if not torch.equal(mine, other): return None
        return self.reading(call.inputs[k], {h: run[i].inputs[k] for h, run in runs.items()})

    def behaviour(self, i:int)->list[Any]:
        "Layouts of a call's outputs as they behave in the whole network."
        return [self.reading(y, {h: run[i].outputs[k] for h, run in self.runs.items()})
                for k, y in enumerate(self.still[i].outputs)]

    def run_again(self, i:int, layouts:list[Any])->tuple[list[Tensor], dict[int, list[Tensor]]]:
        "A call's outputs by itself: on its input, and on its input moved by each element."
        call = self.still[i]
        moved = {h: run[i].again([m.move(self.group, h, z)
                                  for m, z in zip(layouts, call.inputs)])
                 for h, run in self.runs.items()}
        return call.again(call.inputs), moved

    def proven(self, i:int, layouts:list[Any])->list[Any]|None:
        "Layouts of the outputs that show a call by itself to be equivariant, if any do."
        try: still, moved = self.run_again(i, layouts)
        except Exception: return None
        # what it would be if nothing had been done to the input's axes comes first
        first = [m for m in layouts if isinstance(m, Layout)]
        leaving = [self.reading(y, {h: ys[k] for h, ys in moved.items()}, first)
                   for k, y in enumerate(still)]
        return None if None in leaving else leaving

    def choices(self, i:int, layouts:list[Any])->Iterator[list[Any]]:
        "Layouts that the inputs may have: as found, or others that say the same of them."
        def bare(m:Layout)->list[str]:
            return [atoms.replace('g', '').replace('a', '') or 'c' for atoms in m.axes]
        def options(layout:Any, z:Tensor, source:Source|None)->list[Any]:
            others = [m for m in self.candidates(z) if m != layout]
            if source in self.assumed:   # nothing is certain: the poses may stand elsewhere
                return [layout, *(m for m in others if isinstance(layout, Layout)
                                  and bare(m) == bare(layout) and m.suits(z.shape, self.group))]
            moved = {h: layout.move(self.group, h, z) for h in self.runs}
            return [layout, *(m for m in others if self.fits(m, z, moved))]
        yield layouts
        call = self.still[i]
        others = product(*map(options, layouts, call.inputs, call.sources))
        yield from map(list, islice(others, 1, None))

    def try_alone(self, i:int, layouts:list[Any])->list[Any]:
        "Layouts of a call's outputs; where it breaks the symmetry it is blamed."
        call = self.still[i]
        outputs = {(i, k) for k in range(len(call.outputs))}
        if not self.assumed.isdisjoint(call.sources): self.assumed |= outputs
        for choice in islice(self.choices(i, layouts), CHOICES):
            if leaving := self.proven(i, choice): return leaving
        if not all(y.is_floating_point() for y in call.outputs): return self.behaviour(i)
        if len(call.outputs) == 1 and only_moves(call):   # all entries, each to one place?
            numbers = call.again(numbered_entries(call))[0].flatten()
            if len(numbers) == sum(z.numel() for z in call.inputs) == len(numbers.unique()):
                calls = {0: call} | {h: run[i] for h, run in self.runs.items()}
                return [Carried(calls, layouts, i)]
        if leaving := self.blame_the_move(i, layouts): return leaving
        leaving = [self.expected(call, layouts, y) for y in call.outputs]
        try: still, moved = self.run_again(i, layouts)
        except Exception: errors = [math.inf]
        else: errors = [self.error(m, y, h, ys[k]) for h, ys in moved.items()
                        for k, (y, m) in enumerate(zip(still, leaving))]
        self.blamed[i] = math.inf if any(map(math.isnan, errors)) else max(errors, default=0.)
        self.assumed |= outputs
        return leaving

    def expected(self, call:Call, layouts:list[Any], y:Tensor)->Any:
        "The layout that a faulty call's output should have: that of its input if it can."
        for layout, z in zip(layouts, call.inputs):
            if z.shape == y.shape: return layout
            axes = getattr(layout, 'axes', ())
            if len(axes) != y.ndim or 'y' not in axes: continue
            if all(n % len(self.group) == 0 for n, a in zip(y.shape, axes) if 'g' in a):
                return layout
        return next(self.candidates(y))

    def blame_the_move(self, i:int, layouts:list[Any])->list[Any]|None:
        "Layouts of the outputs where a rearrangement before the call is at fault, not it."
        call = self.still[i]
        if isinstance(call.function, (nn.Linear, *NORMS)): return None
        plain, moves = list(layouts), []
        for k, (layout, source) in enumerate(zip(layouts, call.sources)):
            named = getattr(layout, 'axes', ()) in NAMES
            if named or source is None or source[0] < 0: continue
            if not only_moves(self.still[source[0]]): continue   # something happened since
            moves.append(source[0])
            plain[k] = next(self.candidates(call.inputs[k]))
        if plain == layouts or not (leaving := self.proven(i, plain)): return None
        for m in moves: self.blamed.setdefault(m, math.nan)
        return leaving
