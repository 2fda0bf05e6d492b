"""What a network costs before it is run on a clock: parameters and multiply-accumulates, by formula
and by counting."""
# Plain module: edited by hand, no notebook exports it.

import math
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .trace import record_calls

__all__ = ['Shape', 'Formula', 'FORMULAS', 'cost_formula', 'find_by_type', 'convolution_macs',
           'linear_macs', 'no_macs', 'mac_formula', 'LayerCost', 'layer_costs', 'outermost_layers',
           'at_inference', 'count_parameters', 'count_macs']


Shape = tuple[int, ...]
Formula = Callable[[Any, Shape, Shape], int]
FORMULAS:dict[type[nn.Module], Formula] = {}


def cost_formula(
    *types:type[nn.Module],
)->Callable[[Formula], Formula]:
    """Register a formula: (layer, input shape, output shape) to MACs of the whole batch.

    Parameters
    ----------
    *types : type[nn.Module]
        layers that have no `macs` of their own: torch's
    """
    def register(formula:Formula)->Formula:
        FORMULAS.update(dict.fromkeys(types, formula))
        return formula
    return register


def find_by_type(
    table:Mapping[type, Any],
    layer:nn.Module,
)->Any:
    "The entry of the layer's type or of its nearest parent; None where there is none."
    return next((table[t] for t in type(layer).__mro__ if t in table), None)


@cost_formula(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution_macs(layer:Any, x_shape:Shape, y_shape:Shape)->int:
    "Each output value is a sum over a window of its group's input channels."
    window = layer.in_channels//layer.groups*math.prod(layer.kernel_size)
    return math.prod(y_shape)*window


@cost_formula(nn.Linear)
def linear_macs(layer:Any, x_shape:Shape, y_shape:Shape)->int:
    "Each output value is a sum over the input features of its place."
    return math.prod(y_shape)*layer.in_features


@cost_formula(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
              nn.GroupNorm, nn.LayerNorm, nn.Embedding, nn.PReLU)
def no_macs(layer:Any, x_shape:Shape, y_shape:Shape)->int:
    "Layers whose parameters only scale, shift or look up."
    return 0


def mac_formula(
    layer:nn.Module,
)->Callable[[Shape, Shape], int]|None:
    "A layer's MACs as a function of its shapes; None where nobody knows them."
    if type(layer) in FORMULAS: return partial(FORMULAS[type(layer)], layer)
    if callable(own := getattr(layer, 'macs', None)): return own
    # a formula for a type knows nothing of what a subclass puts inside
    if any(True for _ in layer.children()): return None
    formula = find_by_type(FORMULAS, layer)
    return partial(formula, layer) if formula else None


@dataclass(frozen=True)
class LayerCost:
    "What one layer costs: parameters, and MACs of one forward pass."
    name:str
    kind:str
    output:Shape
    parameters:int
    macs:int


def layer_costs(
    net:nn.Module,
    x:Tensor,
)->list[LayerCost]:
    """Cost of each layer, in the order of computation; shared parameters count once.

    Parameters
    ----------
    net : nn.Module
    x : Tensor
        an input, on the device of the net
    """
    layers, rows, counted = outermost_layers(net), list[LayerCost](), set[int]()
    with at_inference(net):
        calls = record_calls(net, x, layers.__contains__, keep=False, constants=True)
    for call in calls[:-1]:
        if not call.is_layer: continue
        layer, formula = call.function, mac_formula(call.function)
        assert formula, 'outermost_layers takes those that have one'
        shapes = [tuple(t.shape) for t in call.leaves if isinstance(t, Tensor)]
        output = tuple(call.outputs[0].shape)
        new = {id(p): p.numel() for p in layer.parameters() if id(p) not in counted}
        counted |= new.keys()
        rows.append(LayerCost(call.name, type(layer).__name__, output,
                              sum(new.values()), formula(shapes[0], output)))
    idle = [name for layer, name in layers.items()
            if any(id(p) not in counted for p in layer.parameters())]
    if not idle: return rows
    raise ValueError(f'{", ".join(idle[:3])} was never called, so its MACs are '
                     'missing: call the layer, or give the module that uses its '
                     'weights a method macs(x_shape, y_shape).')


def outermost_layers(
    net:nn.Module,
)->dict[nn.Module, str]:
    "The outermost layers that can be counted; an error if a parameter lies in none."
    layers, inside = dict[nn.Module, str](), set[nn.Module]()
    for name, m in net.named_modules():   # a layer comes before what is in it
        if m in inside or not mac_formula(m): continue
        layers[m] = name
        inside.update(m.modules())
    known = {id(p) for m in layers for p in m.parameters()}
    missing = [name for name, p in net.named_parameters() if id(p) not in known]
    if not missing: return layers
    raise ValueError(f'no cost formula for {", ".join(missing[:3])}: '
                     'give the layer that holds it a method macs(x_shape, y_shape), '
                     'or register a formula for its type with @cost_formula(type).')


@contextmanager
def at_inference(
    net:nn.Module,
):
    "Inside, the net is in evaluation mode and keeps no gradients; then as it was."
    modes = [(m, m.training) for m in net.modules()]
    net.eval()
    try:
        with torch.no_grad(): yield
    finally:
        for m, training in modes: m.training = training


def count_parameters(
    net:nn.Module,
)->int:
    "Numbers in the parameters, frozen ones included, tied ones once."
    return sum(p.numel() for p in net.parameters())


def count_macs(
    net:nn.Module,
    x:Tensor,
)->int:
    """MACs of one forward pass, by torch's counter.

    Parameters
    ----------
    net : nn.Module
    x : Tensor
        an input, on the device of the net
    """
    with at_inference(net), FlopCounterMode(display=False) as counter: net(x)
    return counter.get_total_flops()//2
