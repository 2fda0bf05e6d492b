"Convolutions whose filters turn into themselves: what a network does to sizes, and nothing else."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .actions import act
from .groups import Group

# torch's convolutions and the order of what they take
_BOTH = 'input', 'weight', 'bias', 'stride', 'padding'
_FORWARD = *_BOTH, 'dilation', 'groups'
_TRANSPOSED = *_BOTH, 'output_padding', 'groups', 'dilation'
_ARGUMENTS:dict[Any, tuple[str, ...]] = {
    F.conv2d: _FORWARD, F.conv3d: _FORWARD,
    F.conv_transpose2d: _TRANSPOSED, F.conv_transpose3d: _TRANSPOSED}


def symmetric(
    weight:Tensor,         # filters, `(..., k, k)`
    group:Group,
    elements:list[int],    # a subgroup that maps the pixel grid to itself
)->Tensor:
    "The filters' means over a subgroup, as large as the filters were: they turn into themselves."
    planes = weight.reshape(1, -1, *weight.shape[-2:])
    turned = (act(group, h, planes) for h in elements)
    same = [t for t in turned if t.shape == planes.shape]  # a row of pixels would become a column
    mean = torch.stack(same).mean(0).view_as(weight)
    return mean*(weight.norm()/mean.norm().clamp_min(torch.finfo(mean.dtype).tiny))


class SymmetricFilters(TorchFunctionMode):
    """Inside, every convolution of torch has filters that the subgroup leaves as they are.

    An image then turns with the network's input wherever the sizes allow it, although the
    network is a plain one. If `thin`, the channels of a block are mixed into one, and all
    outputs are multiples of its response: a choice of weights, and a cheap one.
    While one is in use the parameters must not change.
    """
    def __init__(self, group:Group, elements:list[int], thin:bool=False):
        super().__init__()
        self.group, self.elements, self.thin = group, elements, thin
        self.known:dict[Tensor, Tensor] = {}   # filters of parameters

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in _ARGUMENTS: return function(*args, **kwargs)
        given = dict(zip(_ARGUMENTS[function], args)) | kwargs
        x, weight = given['input'], given['weight']
        if self.thin and x.ndim == weight.ndim: return self._thinned(function, given)
        given['weight'] = self._made(weight, self._symmetric)
        return function(**given)

    def _made(self, weight:Tensor, make:Callable[[Tensor], Tensor])->Tensor:
        if weight in self.known: return self.known[weight]
        filters = make(weight)
        if isinstance(weight, nn.Parameter): self.known[weight] = filters
        return filters

    def _symmetric(self, weight:Tensor)->Tensor:
        return symmetric(weight, self.group, self.elements)

    def _one(self, weight:Tensor)->Tensor:
        "A filter `(1, 1, k, k)` for all channels, from some of theirs; as strong as all."
        some = self._symmetric(weight[:8, :8]).flatten(0, 1)
        one = torch.tensordot(_mixed(len(some), weight), some, 1)[None, None]
        return one*weight.norm()/(weight.shape[0]*weight.shape[1])**.5/one.norm()

    def _thinned(self, function, given:dict[str, Any])->Tensor:
        "One filter for all, on one mix of the channels of each block."
        x, weight, bias = given['input'], given['weight'], given.get('bias')
        blocks = given.get('groups', 1)
        transposes = _ARGUMENTS[function] is _TRANSPOSED
        outputs = weight.shape[1] if transposes else weight.shape[0]//blocks   # of a block
        one = self._made(weight, self._one)
        x = x.unflatten(1, (blocks, -1))
        mix = torch.einsum('bgi...,i->bg...', x, _mixed(x.shape[2], x)).flatten(0, 1)[:, None]
        y = function(**given | dict(input=mix, weight=one, bias=None, groups=1))
        y = y.unflatten(0, (-1, blocks))*_mixed(outputs, y).view(-1, *[1]*(x.ndim - 3))
        y = y.flatten(1, 2)
        return y if bias is None else y + bias.view(-1, *[1]*(y.ndim - 2))


def _mixed(n:int, like:Tensor)->Tensor:
    "Numbers of both signs, none of them 0 and no two equal."
    return torch.arange(1, n + 1, dtype=like.dtype, device=like.device).cos()*2**.5
