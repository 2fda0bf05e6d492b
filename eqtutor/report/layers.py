"The error after each layer of a network: it runs on an input and on what the group makes of it."
# Plain module: edited by hand, no notebook exports it.

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..actions import ALL_KINDS, act, keeps_grid
from ..equivariance import relative_error, tolerance, unchanged
from ..groups import Group, get_group
from ..trace import Call, input_tensors, map_tensors, record_calls
from .advice import advice
from .examination import Examination
from .layout import LAYOUTS, Layout, readings
from .text import LayerReport, Step


def input_layouts(
    x:Any,         # an input of a network
    group:Group,
    name:str|None, # of `LAYOUTS`; as the shapes say if None
)->list[Layout]:
    "How the inputs carry the group: images and feature maps, unless somebody says otherwise."
    if name is not None and name not in LAYOUTS:
        raise ValueError(f'layout must be one of {", ".join(LAYOUTS)}, got {name!r}')
    def layout(t:Tensor)->Layout:
        if name and t.ndim == len(LAYOUTS[name].axes): return LAYOUTS[name]
        if t.ndim not in (4, 5): return Layout(('c',)*t.ndim)
        return next(readings(t.shape, len(group), []))
    return [layout(t) for t in input_tensors(x)]


def output_layout(
    kind:str,  # of `LAYOUTS`
    last:Call, # of a network: its outputs
)->Layout:
    "The layout that somebody asks of a network's outputs."
    axes = LAYOUTS[kind].axes
    if all(y.ndim == 2 for y in last.outputs) and kind == 'vector': axes = axes[:2]
    if kind == 'invariant': axes = ('c',)*max(y.ndim for y in last.outputs)
    return Layout(axes)


def moved_input(
    x:Any,                   # an input of a network
    group:Group,
    h:int,                   # group element
    layouts:Sequence[Layout],
)->Any:
    "The input moved by h: exact where it can be, else bilinear."
    remaining = iter(layouts)
    def move(t:Tensor)->Tensor:
        layout = next(remaining)
        if keeps_grid(group, h) or 'y' not in layout.axes: return layout.move(group, h, t)
        if 'cg' not in layout.axes:
            return act(group, h, t, 'vector' if 'ca' in layout.axes else None)
        return act(group, h, t.unflatten(1, (-1, len(group)))).flatten(1, 2)
    return map_tensors(x, move)


@torch.no_grad()
def layer_report(
    net:torch.nn.Module,
    x:Any,
    group:Group|str,
    tol:float|None=None,
    layout:str|None=None,
    margin:float|None=None,
    kind:str|None=None,
    input_kind:str|None=None,
)->LayerReport:
    """The error after each layer of a network, and every layer at fault, with a remedy.

    Parameters
    ----------
    net : torch.nn.Module
    x : Any
        image `(b, c, h, w)` or feature map `(b, c, |H|, h, w)`; several as a tuple, or
        by name as a dictionary
    group : Group | str
    tol : float | None, default None
        errors above it count as broken; by dtype if None
    layout : str | None, default None
        of the input: 'vector' is arrows `(b, 2·c, h, w)`, two channels each; 'flattened' is
        `(b, c·|H|, h, w)`, the pose running fastest, as in escnn and GrouPy; read from its
        shape if None
    margin : float | None, default None
        judge turns off the pixel grid too: inside the largest disc less so many pixels
    kind : str | None, default None
        of the output, in the words of `layout`: a network that gives another is at fault; as it
        behaves if None
    input_kind : str | None, default None
        `layout`, by the name that it has in `equivariance_error`
    """
    group, inputs = get_group(group), input_tensors(x)
    layouts = input_layouts(x, group, layout or input_kind)
    if kind is not None and kind not in LAYOUTS:
        raise ValueError(f'kind must be one of {", ".join(LAYOUTS)}, got {kind!r}')
    exact = [h for h in group.elements if keeps_grid(group, h)]
    with unchanged(net):
        still = record_calls(net, x)
        runs = {h: record_calls(net, moved_input(x, group, h, layouts)) for h in group.elements}
        check_same_path(still, list(runs.values()))
        tol = tolerance(inputs[0]) if tol is None else tol
        asked = None if kind is None else output_layout(kind, still[-1])
        examination = Examination(group, still, {h: runs[h] for h in exact}, tol, asked)
        for i, (m, t) in enumerate(zip(layouts, inputs)): examination.learn((-1, i), m, t)
        examination.examine()
    steps = report_steps(examination, runs, margin)
    zeros = (c.name for c in still if c.outputs and not any((y != 0).any() for y in c.outputs))
    judged = exact if margin is None else group.elements
    pairs = any(t.ndim == 4 and t.shape[1] == 2 and str(m) == 'image'
                for m, t in zip(layouts, inputs))
    return LayerReport(group, tol, steps, tuple(judged), next(zeros, None),
                       pairs and layout is None and input_kind is None)


def check_same_path(
    still:list[Call],
    runs:Sequence[list[Call]], # on moved inputs
)->None:
    "Raise a `ValueError` unless all runs consist of the same calls."
    names = [c.name for c in still]
    for others in ([c.name for c in run] for run in runs):
        if others == names: continue
        i = next((i for i, (a, b) in enumerate(zip(names, others)) if a != b),
                 min(len(names), len(others)))
        raise ValueError('the network takes another path on a turned input, from its '
                         f'call {i + 1} on ({names[i]}): layers cannot be compared. '
                         'Call .eval(), or look at equivariance_error(net, x, group).')


def report_steps(
    examination:Examination,
    runs:dict[int, list[Call]], # on inputs moved by all elements
    margin:float|None,
)->list[Step]:
    "The rows of a report: layers, what is at fault between them, and the output."
    group, still = examination.group, examination.still
    *calls, last = still
    layers = [i for i, call in enumerate(calls) if call.is_layer]

    def error(layout:Any, y:Tensor, h:int, moved:Tensor)->float:
        "Of a tensor in the whole network, at one element."
        if layout is None or not y.is_floating_point(): return math.nan
        if keeps_grid(group, h): return examination.error(layout, y, h, moved)
        if str(layout) not in ALL_KINDS: return math.nan
        try: return relative_error(group, h, moved, y, str(layout), margin)
        except ValueError: return math.inf

    def worst(i:int, layouts:dict[int, Any], tensors:str)->list[float]:
        "Of some inputs or outputs of a call, one number a group element."
        y, moved = getattr(still[i], tensors), {h: getattr(runs[h][i], tensors) for h in runs}
        return [max((error(m, y[k], h, moved[h][k]) for k, m in layouts.items()), default=0.)
                for h in runs]

    def step(i:int, outputs:Sequence[int])->Step:
        call, is_last = still[i], still[i] is last
        leaving = {k: examination.layouts.get((i, k)) for k in outputs}
        entering = {} if is_last else {
            k: examination.layouts.get(s) if s else None for k, s in enumerate(call.sources)}
        name, cls = call.name, type(call.function).__name__
        if is_last: name += call.labels[outputs[0]]
        if not call.is_layer:     # the output counts as a layer
            before = [still[n].name for n in layers if n < i]
            after = next((still[n].name for n in layers if n > i), 'output')
            cls = f'between {before[-1]} and {after}' if before else f'before {after}'
        kind = 'unknown' if None in leaving.values() else str(leaving[outputs[0]])
        why = advice(examination, i) if i in examination.blamed else ('', '')
        return Step(name, cls, kind, worst(i, leaving, 'outputs'), worst(i, entering, 'inputs'),
                    examination.blamed.get(i), call.where, *why)

    steps = [step(i, range(len(call.outputs))) for i, call in enumerate(calls)
             if call.is_layer or i in examination.blamed]
    shown = layers and last.sources == [(layers[-1], 0)]
    if shown and len(calls) not in examination.blamed: return steps
    return steps + [step(len(calls), [k]) for k in range(len(last.outputs))]
