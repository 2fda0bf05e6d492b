"Other filters for a network's convolutions, symmetric or cheap: what it does to sizes stays."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..actions import act
from ..groups import Group

# torch's convolutions and the order of what they take
_BOTH = 'input', 'weight', 'bias', 'stride', 'padding'
_FORWARD = *_BOTH, 'dilation', 'groups'
_TRANSPOSED = *_BOTH, 'output_padding', 'groups', 'dilation'
_ARGUMENTS:dict[Any, tuple[str, ...]] = {
    F.conv2d: _FORWARD, F.conv3d: _FORWARD,
    F.conv_transpose2d: _TRANSPOSED, F.conv_transpose3d: _TRANSPOSED}

_ROOM = 2**26   # numbers in banks that are kept


def has_bank(m:Any)->bool:
    "Does a layer of `eqtutor.nn` convolve with a bank of filters, channels before poses?"
    places = 'eqtutor.nn.convolution', 'eqtutor.nn.decoders'
    return type(m).__module__ in places and hasattr(m, 'filters')


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
    return mean*(weight.norm()/_positive(mean.norm()))


class OtherFilters(TorchFunctionMode):
    """Inside, the convolutions of a network have other filters.

    They are symmetric under `elements`. An image then turns with the network's input
    wherever the sizes allow it, although the network is a plain one.

    If `thin`, a layer mixes the channels of a block into one, convolves that, and gives out
    multiples of the response. That is a choice of the layer's weights, and a cheap one.
    Filters that somebody computes from weights of his own are not thinned, since such a
    choice need not be his to make; those of our own layers are.
    """
    def __init__(self, net:nn.Module, group:Group, elements:list[int], thin:bool=False):
        super().__init__()
        self.group, self.elements, self.thin = group, elements, thin
        self.room = _ROOM
        self.filters:dict[Any, Tensor] = {}      # by weight or layer: they must not change
        self.layer:Any = None # that is running
        self.banks = [m for m in net.modules() if has_bank(m)]

    def __enter__(self):
        self.layer = None
        self.hooks = [m.register_forward_pre_hook(self._begin) for m in self.banks]
        self.hooks += [m.register_forward_hook(self._end, always_call=True)
                       for m in self.banks]
        for m in self.banks: m.filters = partial(self._bank, m)   # built once
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self.hooks: hook.remove()
        for m in self.banks: del m.filters
        return super().__exit__(*error)

    def _begin(self, layer:Any, args:tuple)->None: self.layer = layer

    def _end(self, *_)->None: self.layer = None

    def _bank(self, layer:Any)->Tensor:
        if layer in self.filters: return self.filters[layer]
        bank = type(layer).filters(layer)
        self.room -= bank.numel()
        if self.room >= 0: self.filters[layer] = bank
        return bank

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in _ARGUMENTS: return function(*args, **kwargs)
        given = dict(zip(_ARGUMENTS[function], args)) | kwargs
        weight = given['weight']
        free = self.layer is not None or isinstance(weight, nn.Parameter)
        if self.thin and free and self._fits(function, given):
            return self._thinned(function, given)
        given['weight'] = self.cached(weight, self._symmetric)
        return function(**given)

    def _fits(self, function, given:dict[str, Any])->bool:
        "Does the layer take its input? Else let torch say so."
        x, weight = given['input'], given['weight']
        if x.ndim != weight.ndim: return False
        if _ARGUMENTS[function] is _TRANSPOSED: return x.shape[1] == weight.shape[0]
        return x.shape[1] == weight.shape[1]*given.get('groups', 1)

    def cached(self, weight:Tensor, make:Callable[..., Tensor], *more:Any)->Tensor:
        if weight in self.filters: return self.filters[weight]
        filters = make(weight, *more)
        if isinstance(weight, nn.Parameter): self.filters[weight] = filters
        return filters

    def _symmetric(self, weight:Tensor)->Tensor:
        if len(self.elements) == 1: return weight
        return symmetric(weight, self.group, self.elements)

    def _one(self, weight:Tensor, first:int, second:int)->Tensor:
        "A filter for all channels, from some of theirs, as strong: `(first, second, k, k)` poses."
        w = weight.unflatten(1, (-1, second)).unflatten(0, (-1, first))   # channel, pose, twice
        some = self._symmetric(w[:8, :, :8])
        one = torch.einsum('ahbq...,a,b->hq...', some, _mixed(len(some), w),
                           _mixed(some.shape[2], w))
        return one*(w.norm()/(w.shape[0]*w.shape[2])**.5/_positive(one.norm()))

    def _thinned(self, function, given:dict[str, Any])->Tensor:
        "One filter for all, on one mix of the channels of each block."
        x, weight, bias = given['input'], given['weight'], given.get('bias')
        blocks, space = given.get('groups', 1), [1]*(x.ndim - 2)
        before, after = (self.layer.in_poses, self.layer.out_poses) if self.layer else (1, 1)
        if _ARGUMENTS[function] is _TRANSPOSED:
            one = self.cached(weight, self._one, before, after)
            outputs = weight.shape[1]//after      # channels of a block
        else:
            one = self.cached(weight, self._one, after, before)
            outputs = weight.shape[0]//blocks//after
        x = x.unflatten(1, (blocks, -1, before))
        mix = torch.einsum('bgiq...,i->bgq...', x, _mixed(x.shape[2], x)).flatten(0, 1)
        y = function(**given | dict(input=mix, weight=one, bias=None, groups=1))
        y = y.unflatten(0, (-1, blocks))[:, :, None]*_mixed(outputs, y).view(-1, 1, *space)
        y = y.flatten(1, 3)
        return y if bias is None else y + bias.view(-1, *space)


def _positive(t:Tensor)->Tensor: return t.clamp_min(torch.finfo(t.dtype).tiny)

def _mixed(n:int, like:Tensor)->Tensor:
    "Numbers of both signs, none of them 0 and no two equal."
    return torch.arange(1, n + 1, dtype=like.dtype, device=like.device).cos()*2**.5
