"""Every layer of anybody's network and every operation between them, each tried by itself: who
breaks the symmetry, why, and what to put there."""
# Plain module: edited by hand, no notebook exports it.

import copy
import linecache
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, count as count_from, islice, product
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from .actions import KINDS, act, reversed_axes
from .equivariance import perturb_, relative_error, tolerance, unchanged
from .groups import Group, generate, get_group
from .sizes import OtherFilters


@lru_cache(maxsize=64)
def _turned(group:Group, h:int, rows:int, cols:int)->Tensor:
    "The number of the pixel that element h brings to each place, `(rows', cols')`."
    places = torch.arange(rows*cols, dtype=torch.float64).view(1, 1, rows, cols)
    return act(group, h, places)[0, 0].long()

@lru_cache(maxsize=64)
def _moved_entries(group:Group, h:int, atoms:str, sizes:tuple[int, ...])->Tensor:
    "Which entry of an axis stands at each of its places once element h has moved it."
    index = torch.arange(math.prod(sizes)).view(sizes)
    if 'g' in atoms: index = index.index_select(atoms.index('g'), group.relative[h])
    if 'y' not in atoms: return index.flatten()
    i = atoms.index('y')
    turned = _turned(group, h, *sizes[i:i+2]).flatten()
    return index.flatten(i, i + 1).index_select(i, turned).flatten()

@dataclass(frozen=True)
class Layout:
    "How a tensor carries the group: what each of its axes is a product of."
    # an axis: letters, the last one runs fastest: c stays, g poses, y rows, x columns
    axes:tuple[str, ...]
    size:tuple[int, int] = (1, 1)   # rows and columns, where they share an axis
    extra:int = 0                   # tokens that stand before the places and stay

    def suits(self,
        shape:Sequence[int], # of a tensor
        group:Group,
    )->bool:
        "Can a tensor of this shape have this layout?"
        if len(shape) != len(self.axes): return False
        return all(math.prod(self._sizes(group, atoms, n - self._before(atoms)))
                   == n - self._before(atoms)
                   for atoms, n in zip(self.axes, shape) if atoms not in ('y', 'x'))

    def _before(self, atoms:str)->int: return self.extra if atoms == 'yx' else 0

    def _sizes(self, group:Group, atoms:str, n:int)->tuple[int, ...]:
        known = dict(g=len(group), y=self.size[0], x=self.size[1])
        rest = n//math.prod(known.get(a, 1) for a in atoms)
        return tuple(known.get(a, rest) for a in atoms)

    def move(self,
        group:Group,
        h:int,    # group element
        t:Tensor, # a tensor of this layout
    )->Tensor:
        "What element h makes of it: entries change places."
        for i, atoms in enumerate(self.axes):
            if atoms in ('c', 'x'): continue
            if atoms == 'y':
                turned = _turned(group, h, *t.shape[i:i+2])
                index = turned.flatten().to(t.device)
                t = t.flatten(i, i + 1).index_select(i, index)
                t = t.unflatten(i, turned.shape)
                continue
            extra = self._before(atoms)
            sizes = self._sizes(group, atoms, t.shape[i] - extra)
            index = extra + _moved_entries(group, h, atoms, sizes)
            index = torch.cat([torch.arange(extra), index]).to(t.device)
            t = t.index_select(i, index)
        return t

    def __str__(self)->str: return _NAMES.get(self.axes) or _described(self.axes)

_NAMES = {
    ('c', 'c'): 'invariant', ('c', 'c', 'g'): 'vector on H',
    ('c', 'c', 'y', 'x'): 'image', ('c', 'c', 'g', 'y', 'x'): 'feature map',
    ('c', 'cg', 'y', 'x'): 'flattened', ('c', 'cg'): 'flattened vector'}

def _described(axes:tuple[str, ...])->str:
    if set(axes) == {'c'}: return 'invariant'
    return 'tokens' if 'yx' in axes else '·'.join(axes)

# what a caller may say of an input
LAYOUTS = {name: Layout(axes) for axes, name in _NAMES.items()}

def readings(
    shape:Sequence[int],             # of a tensor
    poses:int,                       # |H|
    sizes:Sequence[tuple[int, int]], # of images: rows and columns seen so far
)->Iterator[Layout]:
    "The layouts that a tensor of this shape may have, the plainest first."
    plain = {2: 'cc', 4: 'ccyx', 5: 'ccgyx'}.get(len(shape), '')
    if plain and (len(shape) < 5 or shape[2] == poses): yield Layout(tuple(plain))
    for axes, size, extra in _places(tuple(shape), poses, sizes):
        yield Layout(axes, size, extra)
        if poses == 1: continue
        for i in (i for i, atoms in enumerate(axes) if atoms == 'c'):
            for atoms in _poses(shape[i], poses):
                yield Layout((*axes[:i], atoms, *axes[i+1:]), size, extra)

def _poses(size:int, poses:int)->list[str]:
    "What an axis with poses in it may be."
    if size % poses or size == 0: return []
    return ['g'] if size == poses else ['cg', 'gc']

_Place = tuple[tuple[str, ...], tuple[int, int], int]

def _places(shape:tuple[int, ...], poses:int, sizes:Sequence[tuple[int, int]]
            )->Iterator[_Place]:
    "Where the places of an image may stand: in two axes, in one, in two each, nowhere."
    n = len(shape)
    for i in reversed(range(1, n - 1)): yield _put(n, (i, 'y'), (i + 1, 'x')), (1, 1), 0
    yield _put(n), (1, 1), 0
    for size in sizes:
        area = math.prod(size)
        if area == 1: continue
        for atoms, length, extra in (('yx', area, 0), ('yx', area + 1, 1),
                                     ('gyx', poses*area, 0), ('yxg', poses*area, 0)):
            at = [i for i in range(n) if shape[i] == length]
            for chosen in (*combinations(at, 2), *combinations(at, 1)):
                yield _put(n, *((i, atoms) for i in chosen)), size, extra
        for i in range(1, n) if n < 4 else ():    # pictures laid out as vectors
            if shape[i] % area or shape[i] == area: continue
            for atoms in 'cyx', 'cgyx', 'yxc', 'gcyx':
                yield _put(n, (i, atoms)), size, 0

def _put(n:int, *atoms:tuple[int, str])->tuple[str, ...]:
    "The axes of a layout: channels, but for some."
    return tuple(dict(atoms).get(i, 'c') for i in range(n))

@dataclass
class Call:
    "A layer or an operation of a forward pass, which can be run again by itself."
    name:str                # of the module, or of the operation
    function:Callable[..., Any]
    where:str               # the line of the program; '' for a layer
    leaves:list[Any]        # of the arguments
    form:Any                # how they nest
    at:list[int]            # which leaves depend on the network's input …
    # … and where they come from: (number of the call, number of the output), or None
    sources:list[tuple[int, int]|None]
    outputs:list[Tensor] = field(default_factory=list)
    labels:list[str] = field(default_factory=list) # of the outputs, in a dictionary say

    @property
    def is_layer(self)->bool: return isinstance(self.function, nn.Module)

    @property
    def inputs(self)->list[Tensor]: return [self.leaves[i] for i in self.at]

    def again(self,
        inputs:Sequence[Tensor], # in place of the ones that depend on the input
    )->list[Tensor]:
        "The outputs on other inputs."
        leaves = list(self.leaves)
        for i, t in zip(self.at, inputs, strict=True): leaves[i] = t.clone()
        args, kwargs = tree_unflatten(leaves, self.form)
        out = self.function(*args, **kwargs)
        return _tensors(args[0] if out is None else out)[0]

def _tensors(out:Any, name:str='')->tuple[list[Tensor], list[str]]:
    "The tensors in what a network gives out, with their places in it."
    if isinstance(out, Tensor): return [out], [name]
    items:Any = []
    if isinstance(out, dict): items = [(f'{name}[{k!r}]', v) for k, v in out.items()]
    elif isinstance(out, list | tuple):
        items = [(f'{name}[{i}]', v) for i, v in enumerate(out)]
    elif hasattr(out, '__dataclass_fields__'):
        items = [(f'{name}.{k}', getattr(out, k)) for k in out.__dataclass_fields__]
    pairs = [_tensors(value, label) for label, value in items]
    return [t for ts, _ in pairs for t in ts], [n for _, names in pairs for n in names]

def _layers(net:nn.Module)->dict[nn.Module, str]:
    "What counts as a layer, with its name."
    inside:set[str] = set()
    for name, m in net.named_modules():
        if name and (hasattr(m, 'group') or isinstance(m, nn.MultiheadAttention)):
            inside |= {f'{name}.{sub}' for sub, _ in m.named_modules() if sub}
    def counts(name:str, m:nn.Module)->bool:
        if name in inside or (not name and any(net.children())): return False
        return hasattr(m, 'group') or not any(m.children()) or _is_one(m)
    return {m: name or type(m).__name__ for name, m in net.named_modules()
            if counts(name, m)}

def _is_one(m:nn.Module)->bool: return isinstance(m, nn.MultiheadAttention)

def _name(function:Callable)->str: return function.__name__.strip('_')

def _may_change(function:Callable)->bool:
    "Can a function change its arguments? Some of torch.nn.functional can."
    name = function.__name__
    if getattr(function, '__module__', '') == 'torch.nn.functional': return True
    if name.startswith('__'): return name == '__setitem__' or name.startswith('__i')
    return name.endswith('_')

def _line()->str:
    "The line of somebody's program that is being run."
    frame = sys._getframe(1)
    while frame.f_back and _is_library(frame.f_code.co_filename): frame = frame.f_back
    path, n = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, n).strip()
    return f'{Path(path).name}, line {n}' + (f': {text}' if text else '')

@lru_cache
def _is_library(path:str)->bool:
    own = Path(__file__) if '__file__' in globals() else Path('report.py')
    parts = Path(path).parts
    return path == str(own) or 'torch' in parts or 'einops' in parts or path[0] == '<'

def _input_tensors(x:Any)->list[Tensor]:
    return [t for t in tree_flatten(x)[0] if isinstance(t, Tensor)]

class _Recorder(TorchFunctionMode):
    "Writes down a forward pass: layers as a whole, between them each operation."
    def __init__(self, net:nn.Module, layers:dict[nn.Module, str]|None=None,
                 keep:bool=True):
        super().__init__()
        self.net, self.keep = net, keep
        self.layers = _layers(net) if layers is None else layers
        self.calls:list[Call] = []
        self.known:dict[int, tuple[ref[Tensor], int, tuple[int, int]]] = {}
        self.kept:list[Tensor] = []
        self.depth = 0    # of layers that are running
        self.pending:list[Call|None] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.depth: return function(*args, **kwargs)
        if not _may_change(function):     # questions, of a shape say, are not written
            out = function(*args, **kwargs)
            call = self.begin(_name(function), function, args, kwargs, out)
        else:
            call = self.begin(_name(function), function, args, kwargs)
            out = function(*args, **kwargs)
        if call: self.end(call, args[0] if out is None else out)
        return out

    def begin(self, name:str, function:Callable, args:tuple, kwargs:dict, *out:Any
              )->Call|None:
        "A call, unless nothing in it depends on the input, or no tensor comes `out`."
        if out and not _tensors(out)[0]: return None
        leaves, form = tree_flatten((args, kwargs))
        at = [i for i, t in enumerate(leaves)
              if isinstance(t, Tensor) and self.knows(t)]
        if not at: return None
        sources = [self.source(leaves[i]) for i in at]
        leaves = [self.copy(t) if i in at else t for i, t in enumerate(leaves)]
        is_layer = isinstance(function, nn.Module)
        where = '' if is_layer else _line()
        return Call(name, function, where, leaves, form, at, sources)

    def copy(self, t:Tensor)->Tensor: return t.clone() if self.keep else t.to('meta')

    def knows(self, t:Tensor)->bool:
        "Was it noted? Another tensor may have the id of one that is gone."
        return id(t) in self.known and self.known[id(t)][0]() is t

    def source(self, t:Tensor)->tuple[int, int]|None:
        "Where a tensor comes from; None if it was changed in place since."
        _, version, source = self.known[id(t)]
        return source if t._version == version else None

    def end(self, call:Call, out:Any)->None:
        tensors, labels = _tensors(out)
        if not tensors: return
        self.learn(tensors, len(self.calls))
        call.outputs, call.labels = [self.copy(t) for t in tensors], labels
        self.calls.append(call)

    def learn(self, tensors:Sequence[Tensor], number:int)->None:
        "These depend on the input: outputs of a call, or the input itself (−1)."
        if self.keep: self.kept += tensors
        for i, t in enumerate(tensors):
            self.known[id(t)] = ref(t), t._version, (number, i)

    def enter(self, module:nn.Module, args:tuple, kwargs:dict)->None:
        "A hook: a layer is about to run."
        self.depth += 1    # what happens from here on is not written down
        first = self.depth == 1
        name = self.layers[module]
        call = self.begin(name, module, args, kwargs) if first else None
        self.pending.append(call)

    def leave(self, module:nn.Module, args:tuple, kwargs:dict, out:Any)->None:
        "A hook: it has run."
        call = self.pending.pop()
        if call: self.end(call, out)
        self.depth -= 1

    @contextmanager
    def hooked(self)->Iterator[None]:
        handles = []
        for m in self.layers:
            handles.append(m.register_forward_pre_hook(self.enter, with_kwargs=True))
            handles.append(m.register_forward_hook(self.leave, with_kwargs=True))
        try: yield
        finally:
            for handle in handles: handle.remove()

    def run(self, args:tuple, kwargs:dict)->None:
        "Run the network; its outputs are the last call."
        self.learn(_input_tensors((args, kwargs)), -1)
        with self.hooked(), self: out = self.net(*args, **kwargs)
        tensors, labels = _tensors(out)
        sources = [self.source(t) if self.knows(t) else None for t in tensors]
        form = tree_flatten(out)[1]
        self.calls.append(Call('output', self.net, '', list(tensors), form,
                               list(range(len(tensors))), sources, tensors, labels))

def record_calls(
    net:nn.Module,
    x:Any, # an input, several as a tuple, or by name as a dictionary
    # which modules are layers; those without submodules and ours if None
    is_layer:Callable[[nn.Module], bool]|None=None,
    keep:bool=True, # what goes in and comes out; only its shape and type if False
)->list[Call]:
    "The calls of a forward pass; the last one is the network's output."
    args, kwargs = _arguments(x)
    layers = None
    if is_layer: layers = {m: n for n, m in net.named_modules() if is_layer(m)}
    recorder = _Recorder(net, layers, keep)
    recorder.run(args, kwargs)
    return recorder.calls

def _arguments(x:Any)->tuple[tuple, dict]:
    "How a network is called: with one input, with several, or by name."
    copy = _mapped(x, lambda t: t.clone())
    if isinstance(copy, dict): return (), copy
    return (tuple(copy), {}) if isinstance(copy, tuple | list) else ((copy,), {})

def _mapped(x:Any, f:Callable[[Tensor], Tensor])->Any:
    leaves, form = tree_flatten(x)
    return tree_unflatten([f(t) if isinstance(t, Tensor) else t for t in leaves], form)

def _same_path(runs:Sequence[list[Call]])->None:
    "Raise unless all runs consist of the same calls."
    first, *others = ([c.name for c in run] for run in runs)
    for names in others:
        if names == first: continue
        i = next((i for i, (a, b) in enumerate(zip(first, names)) if a != b),
                 min(len(first), len(names)))
        raise ValueError('the network takes another path on a turned input, from its '
                         f'call {i + 1} on ({first[i]}): layers cannot be compared. '
                         'Call .eval(), or look at equivariance_error(net, x, group).')

_MOVES = {
    'reshape', 'view', 'flatten', 'unflatten', 'permute', 'transpose', 'movedim',
    'moveaxis', 'swapaxes', 'swapdims', 'squeeze', 'unsqueeze', 'contiguous', 'clone',
    'view_as', 'reshape_as', 'cat', 'concat', 'stack', 'get', 'ravel', 't'}

def _only_moves(call:Call)->bool:
    "Does a call put entries elsewhere, and nothing more?"
    if isinstance(call.function, nn.Flatten | nn.Unflatten | nn.Identity): return True
    return not call.is_layer and call.name in _MOVES

@dataclass(frozen=True)
class Carried:
    "A layout that no name describes: that of the inputs of a call that moves entries."
    calls:dict[int, Call]  # by group element
    layouts:list[Any]      # of its inputs
    number:int             # of the call

    def move(self, group:Group, h:int, t:Tensor)->Tensor:
        "What element h makes of a tensor of this layout."
        inputs = self.calls[0].inputs
        ends = torch.tensor([0, *(z.numel() for z in inputs)]).cumsum(0).tolist()
        index = [torch.arange(a, b).view(z.shape)
                 for a, b, z in zip(ends, ends[1:], inputs)]
        order = self.calls[0].again(index)[0].flatten()
        entries = torch.empty_like(t.flatten()).index_copy_(0, order, t.flatten())
        back = [entries[a:b].view(z.shape) for a, b, z in zip(ends, ends[1:], inputs)]
        moved = [m.move(group, h, z) for m, z in zip(self.layouts, back)]
        return self.calls[h].again(moved)[0]

    def __str__(self)->str: return 'rearranged'

class _Judge:
    "Follows the layouts through a forward pass, and tries each call by itself."
    def __init__(self,
        group:Group,
        still:list[Call],            # the pass on x
        runs:dict[int, list[Call]],  # on the input moved by h, for h that are exact
        tol:float,
    ):
        self.group, self.tol = group, tol
        self.still, self.runs = still, runs
        self.layout:dict[tuple[int, int], Any] = {}
        self.blamed:dict[int, float] = {}     # number of a call -> its own error
        self.assumed:set[tuple[int, int]] = set()   # what follows from a fault
        self.sizes:list[tuple[int, int]] = []

    def fits(self, layout:Any, y:Tensor, moved:dict[int, Tensor])->bool:
        "Is `moved` what the elements make of y, in this layout?"
        return all(self.error(layout, y, h, z) <= self.tol for h, z in moved.items())

    def error(self, layout:Any, y:Tensor, h:int, moved:Tensor)->float:
        "max|f(hx) − h f(x)| / max|f(x)|."
        if isinstance(layout, Layout) and not layout.suits(y.shape, self.group):
            return math.inf
        want = layout.move(self.group, h, y)
        if want.shape != moved.shape: return math.inf
        if not y.numel(): return 0.
        a, b = _number(want), _number(moved)
        return (a - b).abs().max().item()/(_number(y).abs().max().item() or 1.)

    def reading(self, y:Tensor, moved:dict[int, Tensor], first:Sequence[Any]=()
                )->Any:
        "A layout that fits, if there is one."
        for layout in (*first, *self.candidates(y)):
            if self.fits(layout, y, moved): return layout
        return None

    def candidates(self, y:Tensor)->Iterator[Layout]:
        return readings(y.shape, len(self.group), self.sizes)

    def learn(self, key:tuple[int, int], layout:Any, y:Tensor)->None:
        self.layout[key] = layout
        axes = getattr(layout, 'axes', ())
        if 'y' not in axes: return
        i = axes.index('y')
        size = (y.shape[i], y.shape[i + 1])
        if size not in self.sizes: self.sizes.append(size)

def _number(t:Tensor)->Tensor: return t if t.is_floating_point() else t.double()

def _judge_all(judge:_Judge)->None:
    "Every call, in order; the last one is the output of the network."
    last = len(judge.still) - 1
    for i, call in enumerate(judge.still):
        layouts = [_layout_of(judge, i, k) for k in range(len(call.at))]
        if i == last: found = [_named(judge, i, k, m) for k, m in enumerate(layouts)]
        elif None in layouts: found = _unjudged(judge, i)
        else: found = _tried(judge, i, layouts)
        for k, (layout, y) in enumerate(zip(found, call.outputs)):
            judge.learn((i, k), layout, y)

def _named(judge:_Judge, i:int, k:int, layout:Any)->Any:
    "The layout of an output of the network; no name for it blames what rearranged it."
    if not isinstance(layout, Carried): return layout
    judge.blamed.setdefault(layout.number, math.nan)
    return next(judge.candidates(judge.still[i].outputs[k]))

def _layout_of(judge:_Judge, i:int, k:int)->Any:
    "The layout of a call's input: as it was found, or as it behaves."
    call = judge.still[i]
    source = call.sources[k]
    known = judge.layout.get(source) if source else None
    if known is not None: return known
    y = call.inputs[k]
    if _hidden(judge, i): return None
    return judge.reading(y, {h: run[i].inputs[k] for h, run in judge.runs.items()})

def _hidden(judge:_Judge, i:int)->bool:
    "Does a call read something that changes with the input, and nobody saw how?"
    call = judge.still[i]
    others = [n for n in range(len(call.leaves)) if n not in call.at]
    return any(_differs(call.leaves[n], run[i].leaves[n])
               for run in judge.runs.values() for n in others)

def _differs(a:Any, b:Any)->bool:
    if a is b or not isinstance(a, Tensor): return False
    return a.shape == b.shape and not torch.equal(a, b)

def _unjudged(judge:_Judge, i:int)->list[Any]:
    "Layouts of a call's outputs as they behave in the whole network."
    def moved(k): return {h: run[i].outputs[k] for h, run in judge.runs.items()}
    return [judge.reading(y, moved(k)) for k, y in enumerate(judge.still[i].outputs)]

def _tried(judge:_Judge, i:int, layouts:list[Any])->list[Any]:
    "Layouts of a call's outputs; where it breaks the symmetry it is blamed."
    call = judge.still[i]
    if not judge.assumed.isdisjoint(call.sources):
        judge.assumed |= {(i, k) for k in range(len(call.outputs))}
    for other in islice(_choices(judge, i, layouts), 16):
        if found := _alone(judge, i, other): return found
    if not all(y.is_floating_point() for y in call.outputs): return _unjudged(judge, i)
    if len(call.outputs) == 1 and _carries(call):
        calls = {0: call} | {h: run[i] for h, run in judge.runs.items()}
        return [Carried(calls, layouts, i)]
    if shifted := _blame_the_move(judge, i, layouts): return shifted
    expected = [_expected(judge, call, layouts, y) for y in call.outputs]
    judge.blamed[i] = _own_error(judge, i, layouts, expected)
    judge.assumed |= {(i, k) for k in range(len(expected))}
    return expected

def _again(judge:_Judge, i:int, layouts:list[Any])->tuple[list[Tensor], dict]:
    "A call's outputs by itself: on its input, and on its input moved by each element."
    call, group = judge.still[i], judge.group
    def moved(h):
        inputs = [m.move(group, h, z) for m, z in zip(layouts, call.inputs)]
        return judge.runs[h][i].again(inputs)
    return call.again(call.inputs), {h: moved(h) for h in judge.runs}

def _alone(judge:_Judge, i:int, layouts:list[Any])->list[Any]|None:
    "Layouts of the outputs that show a call by itself to be equivariant, if any do."
    try: still, moved = _again(judge, i, layouts)
    except Exception: return None
    found = []
    for k, y in enumerate(still):
        # what it would be if nothing had been done to the input's axes comes first
        first = [m for m in layouts if isinstance(m, Layout)]
        layout = judge.reading(y, {h: ys[k] for h, ys in moved.items()}, first)
        if layout is None: return None
        found.append(layout)
    return found

def _carries(call:Call)->bool:
    "Does a call move all entries of its inputs, each to one place?"
    if not _only_moves(call): return False
    ends = torch.tensor([0, *(z.numel() for z in call.inputs)]).cumsum(0).tolist()
    index = [torch.arange(a, b).view(z.shape)
             for a, b, z in zip(ends, ends[1:], call.inputs)]
    out = call.again(index)[0].flatten()
    return len(out) == ends[-1] == len(out.unique())

def _choices(judge:_Judge, i:int, layouts:list[Any])->Iterator[list[Any]]:
    "Layouts that the inputs may have: as found, or others that say the same of them."
    yield layouts
    call, group = judge.still[i], judge.group
    def options(layout, z, source):
        moved = {h: layout.move(group, h, z) for h in judge.runs}
        others = [m for m in judge.candidates(z) if m != layout]
        if source in judge.assumed:       # nothing is known of them for certain
            return [layout, *(m for m in others if _differ_in_poses(m, layout)
                              and m.suits(z.shape, group))]
        return [layout, *(m for m in others if judge.fits(m, z, moved))]
    found = product(*(map(options, layouts, call.inputs, call.sources)))
    next(found)
    yield from map(list, found)

def _differ_in_poses(a:Any, b:Any)->bool:
    "Are two layouts alike but for where the poses stand?"
    def bare(m): return [atoms.replace('g', '') or 'c' for atoms in m.axes]
    return isinstance(b, Layout) and bare(a) == bare(b)

def _blame_the_move(judge:_Judge, i:int, layouts:list[Any])->list[Any]|None:
    "Layouts of the outputs where a rearrangement before the call is at fault, not it."
    call = judge.still[i]
    if isinstance(call.function, (nn.Linear, *_NORMS)): return None
    moves = [None if getattr(m, 'axes', ()) in _NAMES else _move_before(judge, source)
             for m, source in zip(layouts, call.sources)]
    if not any(m is not None for m in moves): return None
    plain = [next(judge.candidates(z)) if m is not None else layout
             for z, layout, m in zip(call.inputs, layouts, moves)]
    if plain == layouts: return None
    if not (found := _alone(judge, i, plain)): return None
    for m in moves:
        if m is not None: judge.blamed.setdefault(m, math.nan)
    return found

def _move_before(judge:_Judge, source:tuple[int, int]|None)->int|None:
    "The number of the call that rearranged a tensor, if nothing else happened since."
    if source is None or source[0] < 0: return None
    return source[0] if _only_moves(judge.still[source[0]]) else None

def _expected(judge:_Judge, call:Call, layouts:list[Any], y:Tensor)->Any:
    "The layout that a faulty call's output should have: that of its input if it can."
    order = len(judge.group)
    for layout, z in zip(layouts, call.inputs):
        if z.shape == y.shape: return layout
        axes = getattr(layout, 'axes', ())
        if len(axes) != y.ndim or 'y' not in axes: continue
        if all(y.shape[i] % order == 0 for i, a in enumerate(axes) if 'g' in a):
            return layout
    return next(judge.candidates(y))

def _own_error(judge:_Judge, i:int, layouts:list[Any], expected:list[Any])->float:
    try: still, moved = _again(judge, i, layouts)
    except Exception: return math.inf
    errors = [judge.error(m, y, h, ys[k]) for h, ys in moved.items()
              for k, (y, m) in enumerate(zip(still, expected))]
    return math.inf if any(map(math.isnan, errors)) else max(errors, default=0.)

@dataclass(frozen=True)
class Step:
    "A layer, an operation at fault, or the network's output, as a report shows it."
    name:str
    cls:str              # class of a layer; between which layers an operation stands
    kind:str             # of its output
    errors:list[float]   # of its output, one a group element
    inputs:list[float]   # of its input, one a group element
    alone:float|None     # by itself; None where it is not at fault
    where:str=''         # line of the program, of an operation
    reason:str=''        # why it is at fault
    remedy:str=''        # code to put there

    @property
    def is_at_fault(self)->bool: return self.alone is not None

@dataclass(frozen=True)
class LayerReport:
    "Equivariance error of each layer, in the order of the calls, and who is at fault."
    group:Group
    tol:float
    steps:list[Step]
    judged:tuple[int, ...]   # elements that the tolerance is for
    silent:str|None=None     # from this layer on all is zero, and nothing is measured

    @property
    def rows(self)->list[tuple[str, str, str, list[float]]]:
        "Name, class, kind of output, and one error a group element."
        return [(s.name, s.cls, s.kind, s.errors) for s in self.steps]

    @property
    def offenders(self)->list[Step]:
        "All that break the symmetry by themselves."
        return [s for s in self.steps if s.is_at_fault]

    @property
    def first_row(self)->int|None:
        "Number of the first row at fault; if none is, the first above tolerance."
        for i, s in enumerate(self.steps):
            if s.is_at_fault: return i
        for i, s in enumerate(self.steps):
            if s.kind != 'unknown' and self._breaks(s.errors): return i
        return None

    def _breaks(self, errors:list[float])->bool:
        return any(not errors[h] <= self.tol for h in self.judged)

    @property
    def first_broken(self)->str|None:
        "Name of the first layer or operation that breaks the symmetry, if any."
        return None if self.first_row is None else self.steps[self.first_row].name

    @property
    def is_random(self)->bool:
        "Does the network give two answers to one question?"
        return any(s.errors[0] > self.tol for s in self.steps)

    def __str__(self)->str: return '\n'.join([*_table(self), *_advice_lines(self)])

def _table(report:LayerReport)->list[str]:
    "The rows, what is innocent folded where it is long."
    shown = _shown(report)
    wide = max([len(report.steps[i].name) for i in shown if i is not None] + [5])
    lines = [f'{"layer":{wide}}  {"class":20}  {"output":12}  {"input error":11}  '
             'output error']
    for i in shown:
        if i is None:
            lines.append('…')
            continue
        s = report.steps[i]
        mark = '  ← also at fault' if s.is_at_fault else ''
        if i == report.first_row: mark = '  ← breaks first'
        lines.append(f'{s.name:{wide}}  {s.cls:20}  {s.kind:12}  '
                     f'{_largest(s.inputs):11}  {_largest(s.errors)}{mark}')
    return lines

def _largest(errors:list[float])->str:
    known = [e for e in errors if not math.isnan(e)]
    return f'{max(known):.1e}' if known else 'unknown'

_LONG = 30   # rows that are shown in any case

def _shown(report:LayerReport)->list[int|None]:
    "Numbers of the rows to show; None stands for some that are left out."
    n, first = len(report.steps), report.first_row
    if n <= _LONG: return list(range(n))
    if first is None: keep = {*range(8), *range(n - 8, n)}
    else: keep = {*range(3), *range(first - 3, first + 4), n - 1}
    shown:list[int|None] = []
    for i in range(n):
        if i in keep: shown.append(i)
        elif shown[-1] is not None: shown.append(None)
    return shown

def _advice_lines(report:LayerReport)->list[str]:
    "What stands below the table: who is at fault, why, and what to put there."
    lines = []
    if report.is_random:
        lines.append('Element 0, doing nothing, fails: the network is random. '
                     'Call .eval() first.')
    if report.silent:
        lines.append(f'{report.silent} gives zeros only: what follows was not tested.')
    groups:dict[tuple[str, str], list[Step]] = {}
    for s in report.offenders: groups.setdefault((s.cls, s.reason), []).append(s)
    if groups: lines.append(f'{len(report.offenders)} at fault, tried one by one:')
    for (cls, reason), steps in groups.items():
        names = ', '.join(s.name for s in steps[:4])
        if len(steps) > 4: names += f' and {len(steps) - 4} more'
        lines.append(f'- {names} ({cls}): {reason}')
        if steps[0].where: lines.append(f'    at {steps[0].where}')
        if steps[0].remedy: lines.append(f'    put there: {steps[0].remedy}')
    return lines

@torch.no_grad()
def layer_report(
    net:nn.Module,
    # image `(b, c, h, w)` or feature map `(b, c, |H|, h, w)`;
    # several as a tuple, or by name as a dictionary
    x:Any,
    group:Group|str,
    tol:float|None=None,    # errors above it count as broken; by dtype if None
    # of the input: 'flattened' is `(b, c·|H|, h, w)`, the pose running fastest, as in
    # escnn and GrouPy; read from its shape if None
    layout:str|None=None,
    # judge turns off the pixel grid too: inside the largest disc less so many pixels
    margin:float|None=None,
)->LayerReport:
    "The error after each layer of a network, and every layer at fault, with a remedy."
    group = get_group(group)
    layouts = _input_layouts(x, group, layout)
    exact = [h for h in group.elements if _keeps_grid(group, h)]
    with unchanged(net):
        still = record_calls(net, x)
        runs = {h: record_calls(net, _moved_input(x, group, h, layouts))
                for h in group.elements}
        _same_path([still, *runs.values()])
        dtype = next(z for z in tree_flatten(x)[0] if isinstance(z, Tensor))
        tol = tolerance(dtype) if tol is None else tol
        judge = _Judge(group, still, {h: runs[h] for h in exact}, tol)
        for i, (m, z) in enumerate(zip(layouts, _input_tensors(x))):
            judge.learn((-1, i), m, z)
        _judge_all(judge)
    steps = _steps(judge, runs, margin)
    judged = exact if margin is None else group.elements
    zero = (c.name for c in still if c.outputs and not any(map(_speaks, c.outputs)))
    return LayerReport(group, tol, steps, tuple(judged), next(zero, None))

def _speaks(y:Tensor)->bool: return bool((y != 0).any())

def _keeps_grid(group:Group, h:int)->bool:
    entries = group.matrices[h].abs()
    return bool((entries == entries.round()).all())

def _input_layouts(x:Any, group:Group, name:str|None)->list[Layout]:
    "How the inputs carry the group: images and feature maps, as the shapes say."
    if name is not None and name not in LAYOUTS:
        raise ValueError(f'layout must be one of {", ".join(LAYOUTS)}, got {name!r}')
    def layout(t:Tensor)->Layout:
        if name and t.ndim == len(LAYOUTS[name].axes): return LAYOUTS[name]
        plain = next(readings(t.shape, len(group), []))
        return plain if t.ndim in (4, 5) else Layout(('c',)*t.ndim)
    return [layout(t) for t in _input_tensors(x)]

def _moved_input(x:Any, group:Group, h:int, layouts:list[Layout])->Any:
    "The input moved by h: exact where it can be, else bilinear."
    ways = iter(layouts)
    def move(t:Tensor)->Tensor:
        m = next(ways)
        if _keeps_grid(group, h) or 'y' not in m.axes: return m.move(group, h, t)
        if 'cg' not in m.axes: return act(group, h, t)
        return act(group, h, t.unflatten(1, (-1, len(group)))).flatten(1, 2)
    return _mapped(x, move)

def _steps(judge:_Judge, runs:dict[int, list[Call]], margin:float|None)->list[Step]:
    "The rows of a report: layers, what is at fault between them, and the output."
    *calls, last = judge.still
    steps = [_step(judge, runs, i, range(len(call.outputs)), margin)
             for i, call in enumerate(calls) if call.is_layer or i in judge.blamed]
    layers = [i for i, call in enumerate(calls) if call.is_layer]
    if layers and last.sources == [(layers[-1], 0)]: return steps   # shown already
    n = len(calls)
    outputs = range(len(last.outputs))
    return steps + [_step(judge, runs, n, [k], margin) for k in outputs]

def _step(judge:_Judge, runs:dict[int, list[Call]], i:int, outputs:Sequence[int],
          margin:float|None)->Step:
    call = judge.still[i]
    layouts = [judge.layout.get((i, k)) for k in outputs]
    known = None not in layouts
    def worst(name:str, layouts:list[Any], which:Sequence[int], h:int)->float:
        return max((_error(judge, m, getattr(call, name)[k], h,
                           getattr(runs[h][i], name)[k], margin)
                    for k, m in zip(which, layouts)), default=0.)
    entering = [judge.layout.get(s) if s else None for s in call.sources]
    if not call.leaves or call is judge.still[-1]: entering = []
    errors = [worst('outputs', layouts, outputs, h) for h in runs]
    inputs = [worst('inputs', entering, range(len(entering)), h) for h in runs]
    kind = str(layouts[0]) if known else 'unknown'
    label = call.name + (call.labels[outputs[0]] if call is judge.still[-1] else '')
    advice = _advice(judge, i) if i in judge.blamed else ()
    fault = dict(zip(('reason', 'remedy'), advice))
    return Step(label, _class(judge, i), kind, errors, inputs,
                judge.blamed.get(i), call.where, **fault)

def _error(judge:_Judge, layout:Any, y:Tensor, h:int, moved:Tensor,
           margin:float|None)->float:
    "Of a tensor in the whole network, at one element."
    if layout is None or not y.is_floating_point(): return math.nan
    group = judge.group
    if _keeps_grid(group, h): return judge.error(layout, y, h, moved)
    if str(layout) not in KINDS.values(): return math.nan
    try: return relative_error(group, h, moved, y, str(layout), margin)
    except ValueError: return math.inf

def _class(judge:_Judge, i:int)->str:
    "Class of a layer; for an operation, the layers it stands between."
    call = judge.still[i]
    if call.is_layer: return type(call.function).__name__
    before = [c.name for c in judge.still[:i] if c.is_layer]
    after = [c.name for c in judge.still[i:] if c.is_layer]
    if not before: return f'before {after[0]}' if after else 'operation'
    # the output counts as a layer
    return f'between {before[-1]} and {after[0]}'

def _advice(judge:_Judge, i:int)->tuple[str, str]:
    "Why a call is at fault, in a sentence, and code to put there."
    call, name = judge.still[i], _short(judge.group)
    if not call.is_layer: return _on_operation(call, name)
    m, z = call.function, call.inputs[0]
    left = _pixels_left(m, z)
    for classes, reason, code in _LAYERS:
        if not isinstance(m, classes) or not _is_plain(m): continue
        said = ', and '.join(filter(None, [reason(m, z), left]))
        return said, code(m, name, _meets_poses(judge, call.sources[0]))
    window = _window(m)
    if left and window:
        return left, f"stride 1, then SpatialPool2d({window[1]}, '{name}')"
    return ('by itself it does not turn and permute its output with its input',
            f"a layer of eqtutor.nn; assert_equivariant(net.{call.name}, …, '{name}') "
            'measures it alone')

def _short(group:Group)->str:
    "The name that users of a group know: p4 for C4."
    return {'C4': 'p4', 'D4': 'p4m', 'D1': 'mirror'}.get(group.name, group.name)

def _is_plain(m:nn.Module)->bool:
    "Is it a layer of torch with the forward it came with?"
    return type(m).__module__.startswith('torch.nn')

def _one(value:Any)->int: return value[0] if isinstance(value, tuple) else value

def _window(m:Any)->tuple[int, int, int, int]|None:
    "Kernel size, stride, padding and dilation of a layer that has windows."
    if not hasattr(m, 'kernel_size') or isinstance(m, nn.ConvTranspose2d): return None
    k, d = _one(m.kernel_size), _one(getattr(m, 'dilation', 1))
    p = getattr(m, 'padding', 0)
    if isinstance(p, str): p = d*(k - 1)//2 if p == 'same' else 0
    return k, _one(getattr(m, 'stride', 1) or k), _one(p), d

def _pixels_left(m:Any, z:Tensor)->str:
    "What a stride leaves over at one end, in words; '' if nothing."
    if not (window := _window(m)) or z.ndim < 4: return ''
    k, s, p, d = window
    for n in z.shape[-2:]:
        left = (n + 2*p - d*(k - 1) - 1) % s
        if not left: continue
        return (f'stride {s} on {n} pixels leaves {left} over at one end '
                f'({n - left} or {n - left + s} would be exact)')
    return ''

def _convolution(m:Any, group:str, poses:bool)->str:
    "The equivariant layer in the place of a convolution."
    k, s, p, d = _window(m)   # type: ignore[misc]
    cls = 'GroupConv2d' if poses else 'LiftingConv2d'
    more = f', padding={p}' + (f', dilation={d}' if d > 1 else '')
    code = f"{cls}({m.in_channels}, {m.out_channels}, {k}, '{group}'{more})"
    return code if s == 1 else f"{code}, then SpatialPool2d({s}, '{group}')"

def _transposed(m:Any, group:str, poses:bool)->str:
    sizes = f"{m.in_channels}, {m.out_channels}, {_one(m.kernel_size)}, '{group}'"
    if not any(m.output_padding):
        return f'GroupConvTranspose2d({sizes}, {_one(m.stride)}, {_one(m.padding)})'
    return (f'GroupUpsample2d({_one(m.stride)}), then GroupConv2d'
            f"({m.in_channels}, {m.out_channels}, 3, '{group}', padding=1)")

def _one_end(m:Any, z:Tensor)->str:
    "Why a transposed convolution is at fault."
    more = ', and its output_padding lies at one end' if any(m.output_padding) else ''
    return 'its filters do not turn with the picture' + more

def _pool(m:Any, group:str, poses:bool)->str:
    window = _window(m)
    assert window, 'a pool has a window'
    k, s, p, _ = window
    reduce = 'max' if 'Max' in type(m).__name__ else 'mean'
    return f"SpatialPool2d(2, '{group}', reduce='{reduce}'), or stride 1"

def _norm(m:Any, group:str, poses:bool)->str:
    channels = getattr(m, 'num_features', None) or 'channels'
    return f'GroupBatchNorm2d({channels}) on (b, c, |H|, h, w): one scale a channel'

def _why_not(m:Any, z:Tensor)->str:
    "What is wrong with a plain convolution, beside its stride."
    if max(m.kernel_size) > 1: return 'its filters do not turn with the picture'
    if _pixels_left(m, z): return ''
    return 'a 1×1 convolution mixes the poses without regard to their order'

_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
_TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
_POOLS = nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool3d, nn.AvgPool3d, nn.LPPool2d
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
             nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm,
          nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_DROPOUTS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
_PADS = nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.ConstantPad2d

def _says(text:str)->Callable[..., str]: return lambda *_: text

# classes, why, and code to put there
_LAYERS:list[tuple[tuple, Callable[..., str], Callable[..., str]]] = [
    (_CONVOLUTIONS, _why_not, _convolution),
    (_TRANSPOSED, _one_end, _transposed),
    (_POOLS, lambda m, z: '' if _pixels_left(m, z) else 'its windows mix poses', _pool),
    (_ADAPTIVE, _says('it averages over poses as if they stood beside each other'),
     lambda m, group, _: f"GroupAdaptivePool2d({m.output_size!r}), which leaves the "
                         'poses alone'),
    (_NORMS, _says('its scale, shift or statistics differ from pose to pose, or from '
                   'place to place'), _norm),
    (_DROPOUTS, _says('it is random'), _says('net.eval() before measuring')),
    (_PADS, _says('it pads one side more than the other'),
     _says('the same number of pixels on all sides')),
    ((nn.Linear,), _says('it weighs each place, or each pose, by itself'),
     _says('GroupPool(), then .mean((-1, -2)), before it: (b, c)')),
    ((nn.MultiheadAttention,), _says('it knows where its tokens stand'),
     lambda m, group, _: "GroupSelfAttention2d"
                         f"({m.embed_dim}, {m.embed_dim}, '{group}')")]

def _meets_poses(judge:_Judge, source:tuple[int, int]|None)->bool:
    "Does anything on the way to a tensor carry poses, once the faults are mended?"
    ahead, seen = [source], set[Any]()
    while ahead:
        source = ahead.pop()
        if source in seen: continue
        seen.add(source)
        if source is None: return True   # changed in place: who knows
        layout = judge.layout.get(source)
        if isinstance(layout, Layout) and any('g' in axis for axis in layout.axes):
            return True
        if source[0] < 0: continue       # the input
        call = judge.still[source[0]]
        if source[0] in judge.blamed and isinstance(call.function, _CONVOLUTIONS):
            return True
        ahead += call.sources
    return False


def _on_operation(call:Call, group:str)->tuple[str, str]:
    "Why an operation of a forward method is at fault, and code to put there."
    for names, reason, code in _OPERATIONS:
        if call.name in names: return reason, code.format(group=group)
    return (f'{call.name} does not commute with the turns',
            f"a layer of eqtutor.nn; assert_equivariant(…, '{group}') measures it")

_OPERATIONS = [
    ({'add', 'iadd', 'radd', 'sub', 'isub', 'mul', 'imul', 'rmul', 'truediv'},
     'it joins the features with a tensor that stays where it is when the picture '
     'turns, as absolute positions do',
     'no absolute positions; relative ones are in GroupSelfAttention2d'),
    ({'cat', 'concat', 'stack'},
     'it joins tensors of which one stays where it is when the picture turns',
     'no coordinates, or only the distance from the centre'),
    ({'getitem', 'narrow', 'index_select', 'select', 'setitem', 'gather', 'take'},
     'it picks places or poses that change when the picture turns',
     "SpatialPool2d(2, '{group}') to halve; act('{group}', h, f) to turn; the same "
     'margin on all sides to crop'),
    ({'roll', 'flip', 'rot90', 'fliplr', 'flipud'},
     'it moves places or poses in one direction',
     "act('{group}', h, f), which moves places and poses together"),
    ({'pad'}, 'it pads one side more than the other',
     'the same number of pixels on all sides'),
    ({'reshape', 'view', 'flatten', 'unflatten', 'permute', 'transpose', 'squeeze',
      'movedim', 'ravel'},
     'it puts poses or places where the next layer expects channels',
     "f.flatten(1, 2) and .unflatten(1, (-1, |H|)): channels first, poses fastest"),
    ({'conv2d', 'conv1d', 'conv3d', 'linear', 'matmul', 'einsum', 'bmm'},
     'its weights do not turn with the picture', "GroupConv2d(…, '{group}')"),
    ({'conv_transpose2d'}, 'its weights do not turn with the picture',
     "GroupConvTranspose2d(…, '{group}')"),
    ({'max_pool2d', 'avg_pool2d', 'max_pool3d', 'avg_pool3d'},
     'its windows do not fit the size, or mix poses', "SpatialPool2d(2, '{group}')"),
    ({'adaptive_avg_pool2d', 'adaptive_avg_pool3d', 'adaptive_max_pool2d',
      'adaptive_max_pool3d'},
     'it averages over poses as if they stood beside each other',
     'GroupAdaptivePool2d(…)'),
    ({'interpolate', 'upsample', 'grid_sample'},
     'it reads the picture more on one side than on the other',
     'a whole factor, or a size that leaves the same rest on both sides'),
    ({'dropout', 'rand_like', 'randn_like', 'bernoulli'}, 'it is random',
     'net.eval() before measuring')]

class _Precision(TorchFunctionMode):
    "Notes whether anything is computed in less than float64."
    narrow = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **kwargs or {})
        if isinstance(out, Tensor) and out.is_floating_point():
            self.narrow |= out.dtype != torch.float64
        return out

def _generators(group:Group)->list[int]:
    "Elements from which all that keep the pixel grid follow."
    chosen:list[int] = []
    for h in group.elements:
        if _keeps_grid(group, h) and h not in generate(group, *chosen): chosen.append(h)
    return chosen

class _Trial:
    "A copy of a network, tried on pictures of many sides with other weights each time."
    def __init__(self, net:nn.Module, group:Group, channels:int|None, double:bool):
        self.original, self.net = net, copy.deepcopy(net).eval()
        if double: self.net.double()
        self.is_plain = not any(map(_has_poses, self.net.modules()))
        if self.is_plain and not _generators(group) and any(reversed_axes(group)):
            group = get_group('C2')   # of C3, say, no turn keeps the grid
        self.group, self.moves = group, _generators(group)
        for m in self.net.modules():  # nothing to measure: the layers' own rule decides
            if not self.moves and hasattr(m, 'strict'):
                m.strict = True    # type: ignore[assignment]
        self.like = next(self.net.parameters(), torch.empty((), dtype=torch.float64))
        self.channels = channels or _channels(net)
        self.judge = _Judge(group, [], {}, tolerance(self.like))
        self.watch = _Precision()
        self.ran:dict[int, int] = {}   # numbers that come out, by side
        self.refused:dict[int, Exception] = {}

    def draw(self, seed:int)->None:
        "Other weights and statistics; constants, a blur's filter say, stay."
        moving = 'running_mean', 'running_var'
        constants = [(b, b.clone()) for name, b in self.net.named_buffers()
                     if not name.endswith(moving)]
        self.net.load_state_dict(self.original.state_dict())
        # the noise, and its opposite: a gate that closes by one opens by the other
        perturb_(self.net, scale=(.5, -.5)[seed % 2], seed=seed//2)
        for b, value in constants: b.copy_(value)
        turns = list(generate(self.group, *self.moves)) if self.is_plain else [0]
        # of six draws one has all channels
        self.filters = OtherFilters(self.net, self.group, turns, thin=seed % 6 != 1)
        self.seed = seed

    def run(self, n:int, x:Tensor)->list[Tensor]|None:
        "The outputs; None where the network refuses a picture of n×n pixels."
        try:
            with (warnings.catch_warnings(), self.filters,
                  nullcontext() if self.ran else self.watch):
                warnings.simplefilter('ignore')
                y = _tensors(self.net(x.clone()))[0]
        except Exception as error:
            if 'memory' in str(error): raise
            self.refused[n] = error
            return None
        return y if y and all(t.numel() for t in y) else None

    def pictures(self, n:int)->Tensor:
        "Pictures of n×n pixels, and others near them: `(2, b, c, n, n)`."
        # few numbers may be equal by chance: maxima are, half of the time
        many = max(1, 16//self.ran.get(n, 16)) if self.filters.thin else 1
        drawn, shape = torch.Generator().manual_seed(100*n + self.seed), (n, n)
        x = torch.randn(2, min(many, 12), self.channels, *shape, generator=drawn,
                        dtype=torch.float64)
        x[1] = x[0] + x[1]/10
        x *= 4**(self.seed % 3)     # faint beside the biases, or strong
        return x.to(self.like)

    def is_exact(self, n:int)->bool|None:
        "On n×n pixels; None if this draw cannot tell."
        x, near = self.pictures(n)
        if (y := self.run(n, x)) is None: return False
        self.ran[n] = sum(t.numel()//len(x) for t in y)
        moved:dict[int, list[Tensor]] = {}
        for h in self.moves:     # one at a time: the first failure decides
            z = self.run(n, act(self.group, h, x))
            if z is None or len(z) != len(y): return False
            moved[h] = z
            verdicts = [self.moves_along(t, {q: m[k] for q, m in moved.items()})
                        for k, t in enumerate(y)]
            if False in verdicts: return False
            if None in verdicts: return None
        if not self.moves: return True
        other = self.run(n, near)
        return True if other and self.differ(y, other) else None

    def moves_along(self, y:Tensor, moved:dict[int, Tensor])->bool|None:
        "Is `moved` what the elements make of y, in some layout? None is in between."
        judge, unclear = self.judge, False
        judge.sizes = _squares(y.shape, len(self.group))
        needed = _needed(y.shape, len(self.group))
        for layout in judge.candidates(y):
            if not needed <= set(''.join(layout.axes)): continue
            errors = [judge.error(layout, y, h, z) for h, z in moved.items()]
            if all(e <= judge.tol for e in errors): return True
            unclear |= not any(e > 100*judge.tol for e in errors)   # NaN is not
        return None if unclear else False

    def differ(self, y:list[Tensor], other:list[Tensor])->bool:
        "Does any output hear of the picture? Zeros, and what is saturated, do not."
        def hears(a:Tensor, b:Tensor)->bool:
            if not a.is_floating_point(): return False   # two may be equal by chance
            if a.shape != b.shape: return True
            return bool((a - b).abs().max() > 10*self.judge.tol*a.abs().max())
        return any(map(hears, y, other))

def _has_poses(m:Any)->bool:
    "Is it a layer on a group, with weights? A pool is not, nor what has such layers."
    group = getattr(m, 'group', None)
    if not isinstance(group, Group) or len(group) == 1: return False
    of_ours = any(c.__module__.startswith('eqtutor.nn') for c in type(m).__mro__)
    return any(True for _ in m.parameters(recurse=of_ours))

def _channels(net:nn.Module)->int:
    layers = (getattr(m, 'in_channels', None) for m in net.modules())
    if first := next((c for c in layers if isinstance(c, int)), None): return first
    raise ValueError('no layer says how many channels a picture has: say channels=…')

def _needed(shape:Sequence[int], poses:int)->set[str]:
    "What moves in an output that looks like an image, a feature map, a vector on H."
    if len(shape) == 4 and shape[2] == shape[3]: return {'y'}
    if len(shape) == 5 and shape[2] == poses: return {'g', 'y'}
    return {'g'} if len(shape) == 3 and shape[2] == poses else set()

def _squares(shape:Sequence[int], poses:int)->list[tuple[int, int]]:
    "Square images of which the places may stand in one axis."
    areas = {a for n in shape for a in (n, n - 1, n//poses)}
    sides = sorted({math.isqrt(a) for a in areas})
    return [(m, m) for m in sides if m > 1 and m*m in areas]

@torch.no_grad()
def exact_sizes(
    net:nn.Module,
    group:Group|str,
    near:int=224,            # the size you want
    channels:int|None=None,  # of the picture; those of the first layer if None
    count:int=5,             # how many to name
)->list[int]:
    """Sides of square pictures on which the network is exact: the nearest, measured.

    The network runs on the sides from `near/2` to `2*near + 63`, the nearest first. If
    none within 64 of `near` is exact, that is an error which says who is at fault. A
    plain network, without a layer on a group, is measured as if its filters turned. On
    a group that keeps no pixel grid, C3 say, the layers' own rule decides. Not seen is
    a branch that the values of other pictures would take; not named is a side on which
    the output does not hear of the picture.
    """
    group, own = get_group(group), next((p for p in net.parameters()), torch.zeros(()))
    doubles = {own.device.type != 'mps', own.dtype == torch.float64}
    for double in sorted(doubles, reverse=True):
        trial = _Trial(net, group, channels, double)
        if found := _search(trial, near, count): return found
        if trial.ran and not trial.watch.narrow: break
    raise ValueError(_why_none(trial, near))

_DRAWS, _PATIENCE = 6, 8   # draws to pass, draws that may say nothing
_REACH = 64                # how far to look for the first

def _sides(near:int)->list[int]:
    return sorted(range(max(1, near//2), 2*near + 64), key=lambda n: (abs(n - near), n))

def _search(trial:_Trial, near:int, count:int)->list[int]:
    "The nearest sides that pass six draws; those that fail one are gone."
    sides, passed, silent = _sides(near), Counter[int](), Counter[int]()
    for seed in count_from(0):
        trial.draw(seed)
        # where five sides have said nothing for long, the others are asked once
        given_up = [n for n in silent if silent[n] >= _PATIENCE]
        patience = _PATIENCE if passed.total() or not given_up else 1
        kept:list[int] = []
        for i, n in enumerate(sides):
            if len(kept) == count:
                kept += sides[i:]
                break
            if not kept and abs(n - near) > _REACH: break
            exact = trial.is_exact(n)
            passed[n] += exact is True
            silent[n] += exact is None
            if exact is not False and silent[n] < patience: kept.append(n)
        sides = kept
        named = sides[:count]
        if all(passed[n] >= _DRAWS for n in named): break
    if not named and (given_up := [n for n in silent if silent[n] >= patience]):
        n = given_up[0]
        raise ValueError(
            f'on {n}×{n} pixels nothing can be measured: the output hardly hears of '
            'the picture (zeros, a saturated softmax, integers), or is not finite. '
            'Leave the last layers away and ask again')
    return sorted(named)

def _why_none(trial:_Trial, near:int)->str:
    "Why no size is exact: nothing runs, or who breaks the symmetry on one that does."
    first, last = max(1, near//2, near - _REACH), near + _REACH
    where = f'{first} to {last} pixels a side'
    if not trial.ran:
        n, error = next(iter(trial.refused.items()), (near, 'nothing comes out'))
        return (f'the network takes no picture of {trial.channels} channels and '
                f'{where}, one input (b, c, n, n). On {n}×{n}: {error} '
                '(if its pictures have other channels, say channels=…)')
    n, name = min(trial.ran), _short(trial.group)
    try:
        with trial.filters, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            x = trial.pictures(n)[0]
            faults = layer_report(trial.net, x, trial.group).offenders
    except Exception: faults = []   # it cannot be followed: another path, say
    faults.sort(key=lambda s: 'over at one end' in s.reason)   # a size may mend those
    said = [f'\n- {s.name} ({s.where or s.cls}): {s.reason}' for s in faults[:3]]
    at_fault = 'these break the symmetry:' if said else 'nobody breaks it alone.'
    return (f'no picture of {where} is exact to {trial.group.name}: look at '
            f"layer_report(net, x, '{name}'). On {n}×{n} {at_fault}{''.join(said)}")

class _Reached(Exception):
    "Carries a layer's output out of the network."

def up_to(
    net:nn.Module,
    name:str, # of a submodule, as in `net.named_modules()`
)->Callable[[Tensor], Tensor]:
    "The map from the network's input to the output of one of its layers."
    layers = dict(net.named_modules())
    if name not in layers:
        names = ', '.join(n for n in layers if n)
        raise ValueError(f'no layer {name!r}. There are: {names}')
    def stop(module, args, out): raise _Reached(out)
    def cut(x:Tensor)->Tensor:
        handle = layers[name].register_forward_hook(stop)
        try: net(x)
        except _Reached as reached: return reached.args[0]
        finally: handle.remove()
        raise RuntimeError(f'the network did not run its layer {name!r}')
    cut.__self__ = net   # type: ignore[attr-defined]   # `unchanged` finds the buffers
    return cut
