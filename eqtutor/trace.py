"""What a network calls in a forward pass: its layers as a whole, and between them every operation.

Each call can be run again by itself, and says where its inputs come from. Reports, exports, the
graphs of pages and the tables of costs read it. A layer may be written down in its plain form.
"""
# Plain module: edited by hand, no notebook exports it.

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, wrap_torch_function
from torch.utils._pytree import tree_flatten, tree_unflatten

Source = tuple[int, int]   # number of a call, number of its output; (−1, i): input i of the network


@dataclass
class Call:
    "A layer or an operation of a forward pass, which can be run again by itself."
    name:str                # of the module, or of the operation
    function:Any            # a module, or a function
    where:str               # the line of the program; '' for a layer
    leaves:list[Any]        # of the arguments
    form:Any                # how they nest
    at:list[int]            # which leaves depend on the network's input …
    sources:list[Source|None]   # … and where they come from; None if changed in place since
    outputs:list[Tensor] = field(default_factory=list)
    labels:list[str] = field(default_factory=list) # of the outputs, in a dictionary say

    @property
    def is_layer(self)->bool: return isinstance(self.function, nn.Module)

    @property
    def inputs(self)->list[Tensor]: return [self.leaves[i] for i in self.at]

    @property
    def arguments(self)->tuple[tuple, dict[str, Any]]:
        "As they were given."
        return tree_unflatten(self.leaves, self.form)

    def again(self,
        inputs:Sequence[Tensor], # in place of the ones that depend on the input
    )->list[Tensor]:
        "The outputs on other inputs."
        leaves = list(self.leaves)
        for i, t in zip(self.at, inputs, strict=True): leaves[i] = t.clone()
        if not self.is_layer and changes_first(self.function) and 0 not in self.at:
            leaves[0] = leaves[0].clone()
        args, kwargs = tree_unflatten(leaves, self.form)
        out = self.function(*args, **kwargs)
        return tensors_in(args[0] if out is None else out)[0]


def tensors_in(
    out:Any,      # of a network: a tensor, or several in sequences, dictionaries, dataclasses
    name:str='',
)->tuple[list[Tensor], list[str]]:
    "The tensors in what a network gives out, with their places in it."
    if isinstance(out, Tensor): return [out], [name]
    items:Any = []
    if isinstance(out, dict): items = [(f'{name}[{k!r}]', v) for k, v in out.items()]
    elif isinstance(out, list | tuple):
        items = [(f'{name}[{i}]', v) for i, v in enumerate(out)]
    elif hasattr(out, '__dataclass_fields__'):
        items = [(f'{name}.{k}', getattr(out, k)) for k in out.__dataclass_fields__]
    pairs = [tensors_in(value, label) for label, value in items]
    return [t for ts, _ in pairs for t in ts], [n for _, names in pairs for n in names]


def input_tensors(
    x:Any, # an input of a network: a tensor, several as a tuple, or by name as a dictionary
)->list[Tensor]:
    "The tensors in it."
    return [t for t in tree_flatten(x)[0] if isinstance(t, Tensor)]


def map_tensors(
    x:Any, # as for `input_tensors`
    function:Callable[[Tensor], Tensor],
)->Any:
    "The same with each tensor replaced."
    leaves, form = tree_flatten(x)
    return tree_unflatten([function(t) if isinstance(t, Tensor) else t for t in leaves], form)


# --- functions

def function_name(
    function:Callable, # as a `TorchFunctionMode` meets it
)->str:
    "`relu_` for Tensor.relu_, `mT` for the attribute, `conv2d` for torch.conv2d."
    name = getattr(function, '__name__', str(function)).partition('.')[0]
    if name != '__get__': return name
    return getattr(getattr(function, '__self__', None), '__name__', name)


def changes_first(
    function:Callable,
)->bool:
    "Does a function write into its first argument, by its name?"
    name = function_name(function)
    if name.startswith('__'): return name == '__setitem__' or name.startswith('__i')
    return name.endswith('_')


def may_change(
    function:Callable,
)->bool:
    "Can a function change its arguments? Some of torch.nn.functional can, too."
    of_torch = getattr(function, '__module__', '') == 'torch.nn.functional'
    return of_torch or changes_first(function)


def one_call(
    function:Callable,
)->Callable:
    "A function of tensors that is written down as one call, as functions of torch are."
    return wrap_torch_function(lambda *args, **kwargs: input_tensors((args, kwargs)))(function)


@lru_cache
def is_library(
    path:str, # of a Python file
)->bool:
    "Is it torch, einops, or this module?"
    parts = Path(path).parts
    return path == __file__ or 'torch' in parts or 'einops' in parts or path[0] == '<'


def program_line()->str:
    "The line of somebody's program that is being run."
    frame:FrameType = sys._getframe(1)
    while frame.f_back and is_library(frame.f_code.co_filename): frame = frame.f_back
    path, n = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, n).strip()
    return f'{Path(path).name}, line {n}' + (f': {text}' if text else '')


# --- modules

def innermost_layers(
    net:nn.Module,
)->dict[nn.Module, str]:
    "Modules without submodules, those of ours, and torch's attention, each with its name."
    names = {m: name for name, m in net.named_modules()}
    whole = [m for m, name in names.items()
             if name and (hasattr(m, 'group') or isinstance(m, nn.MultiheadAttention))]
    inside = {part for m in whole for part in m.modules() if part is not m}
    def counts(m:nn.Module)->bool:
        if m in inside or m is net and any(net.children()): return False
        return m in whole or hasattr(m, 'group') or not any(m.children())
    return {m: name or type(m).__name__ for m, name in names.items() if counts(m)}


class Origin(NamedTuple):
    "Where a tensor comes from. It is known by its id; another may get that when it is gone."
    tensor:'ref[Tensor]'
    version:int      # before anybody changed it in place
    source:Source


def is_close(
    a:Tensor,
    b:Tensor,
)->bool:
    "Equal but for rounding?"
    if a.shape != b.shape or not b.numel(): return a.shape == b.shape
    tolerance = torch.finfo(b.dtype).eps**.5 if b.is_floating_point() else 0
    return bool((a - b).abs().max() <= tolerance*b.abs().max())


class OtherForm(ValueError):
    "A layer's plain form computes something else than the layer."


class Recorder(TorchFunctionMode):
    "Writes down a forward pass. A subclass may do something else with the calls: see `note`."
    def __init__(self,
        net:nn.Module,
        # which modules are layers; those of `innermost_layers` if None
        is_layer:Callable[[nn.Module], bool]|None=None,
        keep:bool=True,       # what goes in and comes out; only its shape and type if False
        # of a module or function: one that is written down in its place, of the module and
        # what it is called with; None for most
        plain_form:Callable[[Any], Callable|None]=lambda function: None,
        constants:bool=False, # layers, too, in whose arguments the input has no part
    ):
        super().__init__()
        self.net, self.keep, self.constants = net, keep, constants
        self.plain_form = plain_form
        self.names = {m: name for name, m in net.named_modules()}
        self.layers = innermost_layers(net)
        if is_layer: self.layers = {m: name for m, name in self.names.items() if is_layer(m)}
        self.calls:list[Call] = []
        self.number = 0          # of the next call
        self.origins:dict[int, Origin] = {}
        self.alive:list[Tensor] = []
        self.running:list[nn.Module] = []
        self.pending:list[Call|None] = []   # calls of the layers among them
        self.depth = 0                      # how many these are

    def note(self, call:Call)->None:
        "A call has ended. Its number is `number`."
        self.calls.append(call)

    def note_question(self, name:str)->None:
        "Something that depends on the input was asked for what is no tensor, a shape say."

    def note_module(self, module:nn.Module, out:Any)->None:
        "A layer, or a module that is in none, has ended."

    @property
    def inside(self)->nn.Module:
        "The innermost module that is running."
        return self.running[-1] if self.running else self.net

    # tensors

    def learn(self, tensors:Sequence[Tensor], number:int)->None:
        "These depend on the input: outputs of a call, or the input itself (−1)."
        if self.keep: self.alive += tensors
        for i, t in enumerate(tensors):
            self.origins[id(t)] = Origin(ref(t), t._version, (number, i))

    def knows(self, t:Any)->bool:
        "Does it depend on the input?"
        return isinstance(t, Tensor) and id(t) in self.origins and (
            self.origins[id(t)].tensor() is t)

    def source(self, t:Tensor)->Source|None:
        "Where it comes from; None if it was changed in place since, or nobody knows."
        if not self.knows(t): return None
        origin = self.origins[id(t)]
        return origin.source if t._version == origin.version else None

    def depends(self, *arguments:Any)->bool:
        "Does any of them depend on the input?"
        return any(map(self.knows, tree_flatten(arguments)[0]))

    def copy(self, t:Tensor)->Tensor: return t.clone() if self.keep else t.to('meta')

    # calls

    def begin(self, function:Any, args:tuple, kwargs:dict[str, Any])->Call|None:
        "A call, unless nothing in it depends on the input."
        is_layer = isinstance(function, nn.Module)
        leaves, form = tree_flatten((args, kwargs))
        at = [i for i, t in enumerate(leaves) if self.knows(t)]
        if not at and not (is_layer and self.constants): return None
        sources = [self.source(leaves[i]) for i in at]
        leaves = [self.copy(t) if i in at else t for i, t in enumerate(leaves)]
        if isinstance(function, nn.Module): name, where = self.layers[function], ''
        else: name, where = function_name(function).strip('_'), program_line()
        if not is_layer and changes_first(function) and 0 not in at: leaves[0] = leaves[0].clone()
        return Call(name, function, where, leaves, form, at, sources)

    def end(self, call:Call, out:Any)->None:
        "The call has ended."
        tensors, labels = tensors_in(out)
        if not tensors: return
        self.learn(tensors, self.number)
        call.outputs, call.labels = [self.copy(t) for t in tensors], labels
        self.depth += 1      # what is made of it is not written down
        self.note(call)
        self.depth -= 1
        self.number += 1

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.depth: return function(*args, **kwargs)
        if (form := self.plain_form(function)) and self.depends(args, kwargs):
            out = function(*args, **kwargs)
            with self: return self.follow(form, function, args, kwargs, out)
        if may_change(function):   # what it is given is written down before it is written into
            call = self.begin(function, args, kwargs)
            out = function(*args, **kwargs)
        else:      # questions, of a shape say, are no calls
            out = function(*args, **kwargs)
            if not tensors_in(out)[0]:
                if self.depends(args, kwargs): self.note_question(function_name(function))
                return out
            call = self.begin(function, args, kwargs)
        if call: self.end(call, args[0] if out is None else out)
        return out

    def follow(self, form:Callable, function:Callable, args:tuple, kwargs:dict[str, Any], out:Any
               )->Any:
        "What a layer or function gives in its plain form, which is written down."
        again = form(function, *args, **kwargs)
        self.depth += 1
        pairs = list(zip(tensors_in(again)[0], tensors_in(out)[0], strict=True))
        same = all(is_close(a, b) for a, b in pairs)
        self.depth -= 1
        if same: return again
        raise OtherForm('the plain form of '
                        f'{self.names.get(function) or function_name(function)} computes '
                        'something else')

    # hooks

    def enter(self, module:nn.Module, args:tuple, kwargs:dict[str, Any])->None:
        "A module is about to run."
        self.running.append(module)
        form = self.plain_form(module)
        if not form and module not in self.layers: return
        self.depth += 1    # what happens from here on is not written down
        written = self.depth == 1 and not form
        self.pending.append(self.begin(module, args, kwargs) if written else None)

    def leave(self, module:nn.Module, args:tuple, kwargs:dict[str, Any], out:Any)->Any:
        "It has run; what is returned takes the place of its output."
        form = self.plain_form(module)
        if form or module in self.layers:
            if call := self.pending.pop(): self.end(call, out)
            self.depth -= 1
            if form and not self.depth and self.depends(args, kwargs):
                out = self.follow(form, module, args, kwargs, out)
        if not self.depth:
            self.depth += 1
            self.note_module(module, out)
            self.depth -= 1
        self.running.pop()
        return out

    def run(self, args:tuple, kwargs:dict[str, Any])->Any:
        "Run the network and give its output."
        self.learn(input_tensors((args, kwargs)), -1)
        handles = []
        for m in self.names:
            handles.append(m.register_forward_pre_hook(self.enter, with_kwargs=True))
            handles.append(m.register_forward_hook(self.leave, with_kwargs=True))
        try:
            with self: return self.net(*args, **kwargs)
        finally:
            for handle in handles: handle.remove()


def record_calls(
    net:nn.Module,
    x:Any,
    is_layer:Callable[[nn.Module], bool]|None=None,
    keep:bool=True,
    plain_form:Callable[[Any], Callable|None]=lambda function: None,
    constants:bool=False,
)->list[Call]:
    """The calls of a forward pass; the last one is the network's output.

    Parameters
    ----------
    net : nn.Module
    x : Any
        an input, several as a tuple, or by name as a dictionary
    is_layer : Callable[[nn.Module], bool] | None, default None
        which modules are layers; those of `innermost_layers` if None
    keep : bool, default True
        what goes in and comes out; only its shape and type if False
    plain_form : Callable[[Any], Callable | None], default lambda function: None
        as for `Recorder`: what is written down in place of a module or function
    constants : bool, default False
        layers, too, in whose arguments the input has no part
    """
    recorder, x = Recorder(net, is_layer, keep, plain_form, constants), map_tensors(x, torch.clone)
    if isinstance(x, dict): args, kwargs = (), x
    else: args, kwargs = tuple(x) if isinstance(x, tuple | list) else (x,), {}
    out = recorder.run(args, kwargs)
    tensors, labels = tensors_in(out)
    return [*recorder.calls, Call(
        'output', net, '', list(tensors), tree_flatten(out)[1], list(range(len(tensors))),
        [recorder.source(t) for t in tensors], tensors, labels)]


class _Reached(Exception):
    "Carries a layer's output out of the network."


def up_to(
    net:nn.Module,
    name:str,
)->Callable[[Tensor], Tensor]:
    """The map from the network's input to the output of one of its layers.

    Parameters
    ----------
    net : nn.Module
    name : str
        of a submodule, as in `net.named_modules()`
    """
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
