"Layers between the quarter turns: their own error, without that of turned pictures (chapter 26)."
# Plain module: edited by hand, no notebook exports it.
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..actions import act
from ..equivariance import perturb_
from ..groups import Group, get_group
from ..nn.convolution import LiftingConv2d
from ..nn.self_attention import LiftingSelfAttention2d


def waves(
    band:float,  # the highest frequency, in radians per unit of length
    n:int=24,    # plane waves
    seed:int=0,
)->Callable[[Tensor], Tensor]:
    """A scene with frequencies up to `band`: points `(..., 2)` to values `(...)`.

    Parameters
    ----------
    band : float
        the highest frequency, in radians per unit of length
    n : int, default 24
        plane waves
    seed : int, default 0
    """
    draw = torch.Generator().manual_seed(seed)
    ends = torch.tensor([[2*math.pi], [2*math.pi], [1.]], dtype=torch.float64)
    angle, phase, size = torch.rand(3, n, generator=draw, dtype=torch.float64)*ends
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    omega = band*size.sqrt()[:, None]*direction
    return lambda p: (p @ omega.T + phase).cos().sum(-1)/n**.5


def window_offsets(
    radius:int,      # in units of length; the window has 2·radius·per_unit + 1 rows
    per_unit:int=1,  # pixels to the unit
)->Tensor:           # `(k², 2)`, x to the right and y up
    """The offsets of a square window, row by row from the top.

    Parameters
    ----------
    radius : int
        in units of length; the window has 2·radius·per_unit + 1 rows
    per_unit : int, default 1
        pixels to the unit

    Returns
    -------
    Tensor
        `(k², 2)`, x to the right and y up
    """
    line = torch.arange(-per_unit*radius, per_unit*radius + 1, dtype=torch.float64)
    x, y = torch.meshgrid(line, -line, indexing='xy')
    return torch.stack([x, y], -1).flatten(0, 1)/per_unit


class Reader(NamedTuple):
    "A layer at one place: its answers in all poses to the values in its window."
    group:Group
    offsets:Tensor                      # of the window, `(k, 2)`
    answers:Callable[[Tensor], Tensor]  # `(places, k)` to `(|H|, places, channels)`


def layer_reader(
    layer:nn.Module, # a lifting layer: `(b, 1, h, w)` to `(b, channels, |H|, h, w)`
    kernel_size:int, # odd; the layer reads no more than this
)->Reader:
    """The reader of a layer: its answers at the middle of a picture of its window.

    Parameters
    ----------
    layer : nn.Module
        a lifting layer: `(b, 1, h, w)` to `(b, channels, |H|, h, w)`
    kernel_size : int
        odd; the layer reads no more than this
    """
    @torch.no_grad()
    def answers(values:Tensor)->Tensor:
        y = layer(values.view(-1, 1, kernel_size, kernel_size))
        return y[..., y.shape[-2]//2, y.shape[-1]//2].permute(2, 0, 1)
    return Reader(cast(Group, layer.group), window_offsets(kernel_size//2), answers)

_draw = torch.Generator().manual_seed(0)
PLACES = 20*torch.randn(100, 2, generator=_draw, dtype=torch.float64)


def relative_rms(
    difference:Tensor,
    y:Tensor,
)->float:
    "Root mean square of a difference over that of y."
    return (difference.square().mean()/y.square().mean()).sqrt().item()


def reading_error(
    reader:Reader,
    h:int=1,                                     # the turn: an element of its group
    scene:Callable[[Tensor], Tensor]=waves(1.),
)->float:
    """Equation 26.2: the difference of its sides over the variation of y, at PLACES.

    Parameters
    ----------
    reader : Reader
    h : int, default 1
        the turn: an element of its group
    scene : Callable[[Tensor], Tensor], default waves(1.0)
    """
    H, offsets, answers = reader
    there = offsets @ H.matrices[H.inv[h]].to(offsets).T       # h⁻¹Δ
    y = answers(scene(PLACES[:, None] + offsets))
    turned = answers(scene(PLACES[:, None] + there))[H.mul[h]]
    return relative_rms(turned - y, y - y.mean((0, 1)))


def drawn_layer(
    kind:str, # 'random filters' or 'smooth filters' of a convolution, or 'attention'
    name:str, # of the group
    seed:int,
)->nn.Module:
    """A lifting layer on windows of 5×5 pixels, to 6 channels, drawn by chance.

    Parameters
    ----------
    kind : str
        'random filters' or 'smooth filters' of a convolution, or 'attention'
    name : str
        of the group
    seed : int
    """
    torch.manual_seed(seed)
    if kind == 'attention':
        return perturb_(LiftingSelfAttention2d(1, 6, name, 5, heads=4)).double()
    layer = LiftingConv2d(1, 6, 5, name, padding='same', bias=False).double()
    if kind == 'smooth filters':
        filters = [waves(1.5, 8, 6*seed + i)(window_offsets(2)) for i in range(6)]
        layer.weight.data = torch.stack(filters).view_as(layer.weight)
    return layer


def filters_between_pixels(
    name:str, # of the group
    seed:int,
)->Reader:
    """Random filters that are read bilinearly between their pixels, inside a disc.

    Parameters
    ----------
    name : str
        of the group
    seed : int
    """
    H, offsets = get_group(name), window_offsets(2)
    draw = torch.Generator().manual_seed(seed)
    kernel = torch.randn(6, 1, 5, 5, generator=draw, dtype=torch.float64)
    kernel = kernel*in_window(offsets, 'disc').view(5, 5)
    bank = torch.stack([act(H, h, kernel).flatten(1) for h in H.elements])
    return Reader(H, offsets, lambda values: torch.einsum('hck,pk->hpc', bank, values))


def errors_by_angle(
    kind:str,    # as for `drawn_layer`, or 'filters between pixels'
    draws:int=6,
)->dict[float, Tensor]:
    """The reading errors of so many layers on C48 at its turns, in steps of 7.5° up to 90°.

    Parameters
    ----------
    kind : str
        as for `drawn_layer`, or 'filters between pixels'
    draws : int, default 6
    """
    def reader(seed:int)->Reader:
        if kind == 'filters between pixels': return filters_between_pixels('C48', seed)
        layer = drawn_layer(kind, 'C48', seed)
        if isinstance(layer, LiftingSelfAttention2d): return windowed_attention(layer, 'square')
        H, offsets, answers = layer_reader(layer, 5)
        bank = answers(torch.eye(25, dtype=torch.float64))      # the layer is linear
        return Reader(H, offsets, lambda values: values @ bank)

    readers = [reader(seed) for seed in range(draws)]
    return {7.5*h: torch.tensor([reading_error(r, h) for r in readers]) for h in range(13)}


def in_window(
    offsets:Tensor, # `(k², 2)`
    form:str,       # 'square' or 'disc'
)->Tensor:          # `(k²,)`, bool
    """Which offsets belong to a window of this form.

    Parameters
    ----------
    offsets : Tensor
        `(k², 2)`
    form : str
        'square' or 'disc'

    Returns
    -------
    Tensor
        `(k²,)`, bool
    """
    if form == 'disc': return offsets.norm(dim=-1) <= offsets.max() + 1e-9
    return torch.ones(len(offsets), dtype=torch.bool)


def smooth_convolution(
    name:str,         # of the group
    form:str='disc',  # of the window
    per_unit:int=1,   # pixels to the unit
    radius:int=2,
    seed:int=1,
)->Reader:
    """A lifting convolution whose kernel, a smooth function, is turned bilinearly.

    Parameters
    ----------
    name : str
        of the group
    form : str, default 'disc'
        of the window
    per_unit : int, default 1
        pixels to the unit
    radius : int, default 2
    seed : int, default 1
    """
    H, offsets = get_group(name), window_offsets(radius, per_unit)
    k = 2*radius*per_unit + 1
    kernel = (waves(1.5, 8, seed)(offsets)*in_window(offsets, form)).view(1, 1, k, k)
    # an integral: smaller pixels weigh less
    bank = torch.stack([act(H, h, kernel).flatten() for h in H.elements])/per_unit**2
    return Reader(H, offsets, lambda values: (bank @ values.T)[..., None])


def windowed_attention(
    layer:LiftingSelfAttention2d, # with one input channel
    form:str='disc',              # of the window
    per_unit:int=1,               # pixels to the unit
    radius:int=2,
)->Reader:
    """A lifting self-attention with its own weights, in a window of any form.

    Parameters
    ----------
    layer : LiftingSelfAttention2d
        with one input channel
    form : str, default 'disc'
        of the window
    per_unit : int, default 1
        pixels to the unit
    radius : int, default 2
    """
    H, encoder = layer.group, layer.encoder
    offsets = window_offsets(radius, per_unit)
    if encoder is None: raise ValueError("expected an encoding, got encoding='none'")
    masked = ~in_window(offsets, form)
    maps = layer.query, layer.key, layer.value
    inverses = H.matrices[H.inv].to(offsets)
    moved = torch.einsum('kj,hij->hki', offsets, inverses)      # h⁻¹Δ

    @torch.no_grad()
    def answers(values:Tensor)->Tensor:
        q, k, v = (m(values[..., None]).unflatten(-1, (layer.heads, -1)) for m in maps)
        q, code = q[:, len(offsets)//2], encoder.mlps[0](moved/encoder.scale)
        scores = torch.einsum('pnd,pknd->pnk', q, k)
        scores = scores + torch.einsum('pnd,hkd->hpnk', q, code)
        attention = scores.masked_fill(masked, -math.inf).softmax(-1)
        return layer.out(torch.einsum('hpnk,pknd->hpnd', attention, v).flatten(2))
    return Reader(H, offsets, answers)


def invariance_error(
    reader:Reader,
    degrees:float,                               # any turn
    scene:Callable[[Tensor], Tensor]=waves(1.),
)->float:
    """Change of the maximum over the poses when the scene is turned, over its variation.

    Parameters
    ----------
    reader : Reader
    degrees : float
        any turn
    scene : Callable[[Tensor], Tensor], default waves(1.0)
    """
    a = math.radians(degrees)
    R = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
    there = reader.offsets @ torch.tensor(R, dtype=torch.float64)        # R⁻¹Δ
    y, turned = (reader.answers(scene(PLACES[:40, None] + offsets)).amax(0)
                 for offsets in (reader.offsets, there))
    return relative_rms(turned - y, y - y.mean(0))


def mean_hills(
    name:str,               # of the group
    per_unit:int,           # pixels to the unit
    angles:Iterable[float], # in degrees
)->Tensor:
    """`invariance_error` at the angles, the mean over five smooth convolutions.

    Parameters
    ----------
    name : str
        of the group
    per_unit : int
        pixels to the unit
    angles : Iterable[float]
        in degrees
    """
    def hills(seed:int)->list[float]:
        reader = smooth_convolution(name, per_unit=per_unit, seed=seed + 1)
        return [invariance_error(reader, a, waves(1., seed=seed)) for a in angles]
    return torch.tensor([hills(seed) for seed in range(5)]).mean(0)
