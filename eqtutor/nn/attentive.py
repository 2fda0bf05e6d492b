"""Attentive group convolution (chapter 21): a branch looks at the responses of a convolution before
they are added, and removes a part of each; and attention on the input (α_F, α_RH).

P1: David W. Romero, Erik J. Bekkers, Jakub M. Tomczak, Mark Hoogendoorn, Attentive Group
Equivariant Convolutional Networks, 2020, https://arxiv.org/abs/2002.03830
"""

# Plain module: edited by hand, no notebook exports it.
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ..core import (
    IndexTables,
    autocast_as,
    check_input,
    check_odd,
    check_positive,
    one_of,
    pad_sides,
    refuse_transforms,
    square_sizes,
)
from ..groups import Group
from ..kernels.attentive import (
    Removed,
    chunk_size,
    gate_macs,
    removed_in_chunks,
    removed_macs,
)
from ..kernels.windows import Window
from .convolution import EquivariantConv2d, GroupConv2d, LiftingConv2d

# Axes: b sample · q pose ĥ of the input (one for an image) · h pose of the filter
#       i input channel · o output channel · n both (o h) · p entry of the window
#       y x place

class PairMLP(IndexTables):
    """Channel attention α^C of each pair of poses, from mean and max of f̃ (P1, Eq. 17).

    Parameters
    ----------
    in_channels : int
    out_channels : int
    hidden : int
        width of the middle layer
    group : Group
    lifts : bool, default False
        is the input an image, without a pose ĥ?
    """
    def __init__(self,
        in_channels:int,
        out_channels:int,
        hidden:int,       # width of the middle layer
        group:Group,
        lifts:bool=False, # is the input an image, without a pose ĥ?
    ):
        super().__init__()
        check_positive(hidden=hidden)
        self.group, self.lifts, self.order = group, lifts, len(group)
        poses = () if lifts else (self.order,)
        squeeze = torch.randn(out_channels, hidden, in_channels, *poses)
        excite = torch.randn(out_channels, in_channels, hidden, *poses)
        self.squeeze = nn.Parameter(squeeze*(2/in_channels)**.5)    # W₁
        self.excite = nn.Parameter(excite*(2/hidden)**.5)           # W₂
        self.make_tables()

    def tables(self)->dict[str, Tensor]:
        return {} if self.lifts else dict(relative=self.group.relative)   # h⁻¹ĥ

    def moved(self,
        w:Tensor, # `squeeze` or `excite`
        o:slice,  # output channels
    )->Tensor:
        """The matrices W(h⁻¹ĥ) of some output channels, `(h, q, o, rows, columns)`.

        Parameters
        ----------
        w : Tensor
            `squeeze` or `excite`
        o : slice
            output channels
        """
        if self.lifts: return w[o].expand(self.order, 1, -1, -1, -1)
        return w[o].movedim(-1, 0)[self.table('relative', w)]

    def forward(self,
        mean:Tensor, # over the places of f̃, `(b, q, i, n)`
        top:Tensor,  # its maximum, the same shape
        o:slice,     # the output channels they belong to
    )->Tensor:       # α^C, `(b, q, i, n)`
        s = torch.stack([mean, top])
        s = rearrange(s, 's b q i (o h) -> h q o i (s b)', h=self.order)
        s = self.moved(self.excite, o) @ (self.moved(self.squeeze, o) @ s).relu()
        s = s.unflatten(-1, (2, -1)).sum(-2).sigmoid()
        return rearrange(s, 'h q o i b -> b q i (o h)')

def filters_by_pair(
    conv:EquivariantConv2d,
)->Tensor:                  # `(q, i, o, h, k, k)`
    """The filters of a layer, for each pair of poses.

    Returns
    -------
    Tensor
        `(q, i, o, h, k, k)`
    """
    return rearrange(conv.filters(), '(o h) (i q) ky kx -> q i o h ky kx',
                     h=conv.out_poses, q=conv.in_poses)

class PairAttention(nn.Module):
    """The branch of full attention: what it removes from a convolution (P1, Eqs 16–19).

    Parameters
    ----------
    in_channels : int
    out_channels : int
    window : Window
        of the convolution
    group : Group
    lifts : bool, default False
        is the input an image, without a pose ĥ?
    attend : str, default 'full'
        'full', 'channel' or 'spatial'
    hidden : int, default 2
        width of the channel attention's middle layer
    kernel_size : int, default 7
        of the spatial attention; odd
    dilation : int, default 1
        of the spatial attention
    """
    def __init__(self,
        in_channels:int,
        out_channels:int,
        window:Window,        # of the convolution
        group:Group,
        lifts:bool=False,     # is the input an image, without a pose ĥ?
        attend:str='full',    # 'full', 'channel' or 'spatial'
        hidden:int=2,         # width of the channel attention's middle layer
        kernel_size:int=7,    # of the spatial attention; odd
        dilation:int=1,       # of the spatial attention
    ):
        super().__init__()
        check_odd(kernel_size=kernel_size)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.window, self.dilation = window, dilation
        self.channel = self.spatial = None
        if attend != 'spatial':
            self.channel = PairMLP(in_channels, out_channels, hidden, group, lifts)
        if attend != 'channel':
            conv = LiftingConv2d if lifts else GroupConv2d
            self.spatial = conv(2, out_channels, kernel_size, group, bias=False)

    def parts(self,
        filters:Tensor, # of the convolution, `(q, i, o, h, k, k)`
        x:Tensor,       # planes `(b, q, i, y, x)`
        # output channels at a time, computed again in backward; None for all, once
        chunk:int|None,
        keep:bool=False, # the weights of places, too
    )->Iterator[Removed]:
        """What attention removes, some output channels after the other.

        Parameters
        ----------
        filters : Tensor
            of the convolution, `(q, i, o, h, k, k)`
        x : Tensor
            planes `(b, q, i, y, x)`
        chunk : int | None
            output channels at a time, computed again in backward; None for all, once
        keep : bool, default False
            the weights of places, too
        """
        bank = None if self.spatial is None else filters_by_pair(self.spatial)
        return removed_in_chunks(filters, bank, x, self.window, self.channel,
                                 self.dilation, chunk, keep)

    def forward(self,
        filters:Tensor,      # of the convolution, `(q, i, o, h, k, k)`
        x:Tensor,            # planes `(b, q, i, y, x)`
        chunk:int|None=None, # as for `parts`
    )->Tensor:
        return torch.cat([part.total for part in self.parts(filters, x, chunk)], 1)

    def macs(self,
        x_shape:tuple[int, ...], # of the layer's input
        y_shape:tuple[int, ...], # of its output
    )->int:
        """Multiply-accumulates of a forward pass.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the layer's input
        y_shape : tuple[int, ...]
            of its output
        """
        planes, filters = math.prod(x_shape[:-2]), self.out_channels*y_shape[2]
        hidden = 0 if self.channel is None else self.channel.squeeze.shape[1]
        total = removed_macs(planes, filters, x_shape[-2:], y_shape[-2:],
                             self.window.kernel_size, hidden)
        if self.spatial is None: return total
        turned = self.spatial.macs(x_shape, (*y_shape[:-2], 0, 0))   # off the grid
        gates = x_shape[0]*self.spatial.in_poses*filters
        return total + turned + gate_macs(gates, y_shape[-2:], self.spatial.kernel_size,
                                          self.dilation)

class InputAttention(nn.Module):
    """The attended input α⁺f, α⁺ = 1 − α^X α^C: α_F (P1, Eq. 20).

    Parameters
    ----------
    channels : int
    group : Group | str
    lifts : bool, default False
        does it weigh an image?
    hidden : int, default 2
        width of the channel attention's middle layer
    kernel_size : int, default 7
        of the spatial attention; odd
    dilation : int, default 1
        of the spatial attention
    """
    def __init__(self,
        channels:int,
        group:Group|str,
        lifts:bool=False,    # does it weigh an image?
        hidden:int=2,        # width of the channel attention's middle layer
        kernel_size:int=7,   # of the spatial attention; odd
        dilation:int=1,      # of the spatial attention
    ):
        super().__init__()
        check_positive(channels=channels, hidden=hidden, dilation=dilation)
        check_odd(kernel_size=kernel_size)
        on_group = partial(GroupConv2d, kernel_size=1, group=group)
        one:Any = nn.Linear if lifts else on_group
        self.squeeze = one(channels, hidden, bias=False)    # W₁
        self.excite = one(hidden, channels, bias=False)     # W₂
        conv = LiftingConv2d if lifts else GroupConv2d
        self.spatial = conv(2, 1, kernel_size, group, padding='same', dilation=dilation,
                            bias=False)

    def channel_attention(self,
        f:Tensor, # `(b, c, h, w)` or `(b, c, |H|, h, w)`
    )->Tensor:
        """α^C, one number a channel and pose, `(b, c, 1, 1)` or `(b, c, |H|, 1, 1)`.

        Parameters
        ----------
        f : Tensor
            `(b, c, h, w)` or `(b, c, |H|, h, w)`
        """
        w1, w2 = (mix.weight if isinstance(mix, nn.Linear) else mix.filters().flatten(1)
                  for mix in (self.squeeze, self.excite))
        planes = f.flatten(1, -3).flatten(2)
        s = torch.cat([planes.mean(-1), planes.max(-1)[0]])
        mean, top = F.linear(F.linear(s, w1).relu(), w2).unflatten(0, (2, -1))
        return (mean + top).sigmoid().view(*f.shape[:-2], 1, 1)

    def spatial_attention(self,
        z:Tensor, # α^C f, in the shape of f
    )->Tensor:
        """α^X, a number for each place and pose, `(b, 1, h, w)` or `(b, 1, |H|, h, w)`.

        Parameters
        ----------
        z : Tensor
            α^C f, in the shape of f
        """
        s = self.spatial(torch.stack([z.mean(1), z.max(1)[0]], 1))
        return (s if s.ndim == z.ndim else s.amax(2)).sigmoid()

    def attention(self,
        f:Tensor, # `(b, c, h, w)` or `(b, c, |H|, h, w)`
    )->Tensor:
        """The weights α⁺, in the shape of f.

        Parameters
        ----------
        f : Tensor
            `(b, c, h, w)` or `(b, c, |H|, h, w)`
        """
        channel = self.channel_attention(f)
        return 1 - self.spatial_attention(channel*f)*channel

    def forward(self,
        f:Tensor, # `(b, c, h, w)` or `(b, c, |H|, h, w)`
    )->Tensor:
        z = self.channel_attention(f)*f
        return torch.addcmul(f, self.spatial_attention(z), z, value=-1)   # f − α^X z

    def macs(self,
        x_shape:tuple[int, ...], # of the layer's input
        y_shape:tuple[int, ...], # of its output
    )->int:
        """Multiply-accumulates of a forward pass.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the layer's input
        y_shape : tuple[int, ...]
            of its output
        """
        weights = self.squeeze.weight.numel() + self.excite.weight.numel()
        pooled = 2*x_shape[0]*self.spatial.in_poses                  # mean and maximum
        return pooled*weights + self.spatial.macs(x_shape, x_shape)

class RotationAttention(nn.Module):
    """Poses weighed at each place, α_RH (Romero & Hoogendoorn 2020).

    Parameters
    ----------
    channels : int
    group : Group | str
    lifts : bool, default False
        does it weigh an image?
    """
    def __init__(self,
        channels:int,
        group:Group|str,
        lifts:bool=False, # does it weigh an image?
    ):
        super().__init__()
        conv = LiftingConv2d if lifts else GroupConv2d
        self.scores = conv(channels, 1, 1, group, bias=False)

    def attention(self,
        f:Tensor, # `(b, c, h, w)` or `(b, c, |H|, h, w)`
    )->Tensor:
        """The weights, `(b, 1, h, w)` or `(b, 1, |H|, h, w)`.

        Parameters
        ----------
        f : Tensor
            `(b, c, h, w)` or `(b, c, |H|, h, w)`
        """
        s = self.scores(f)
        return (s if s.ndim == f.ndim else s.amax(2)).sigmoid()

    def forward(self, f:Tensor)->Tensor: return self.attention(f)*f

    def macs(self,
        x_shape:tuple[int, ...], # of the layer's input
        y_shape:tuple[int, ...], # of its output
    )->int:
        """Multiply-accumulates of a forward pass.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the layer's input
        y_shape : tuple[int, ...]
            of its output
        """
        return self.scores.macs(x_shape, x_shape)

class AttentiveConv2d(EquivariantConv2d):
    """What attentive lifting and group convolution share: the branch that weighs.

    Parameters
    ----------
    in_channels : int
    out_channels : int
    kernel_size : int
        windows are square
    group : Group | str
        a `Group` or its name
    stride : int, default 1
        pixels from window to window
    padding : int | str, default 0
        pixels, 'same' or 'valid'
    dilation : int, default 1
        pixels from tap to tap of a filter
    bias : bool, default True
        one per output channel, shared over the group
    strict : bool, default True
        raise where the stride breaks the symmetry, or warn
    attend : str, default 'full'
        'full', 'channel', 'spatial', 'input' or 'rotation'
    reduction : int, default 2
        r: the channel attention's middle layer has in_channels // r units (in_channels
        where that is none)
    hidden : int | None, default None
        that width itself
    attention_kernel : int, default 7
        of the spatial attention; odd
    attention_dilation : int, default 1
        of the spatial attention
    chunk : int | str | None, default 'auto'
        output channels at a time, computed again in backward; None keeps all; 'auto'
        only where they are large
    padding_mode : str, default 'zeros'
        of the convolution; the attention's own windows meet zeros beyond the rim
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights
    """
    def __init__(self,
        in_channels:int,
        out_channels:int,
        kernel_size:int,          # windows are square
        group:Group|str,          # a `Group` or its name
        stride:int=1,             # pixels from window to window
        padding:int|str=0,        # pixels, 'same' or 'valid'
        dilation:int=1,           # pixels from tap to tap of a filter
        bias:bool=True,           # one per output channel, shared over the group
        strict:bool=True,         # raise where the stride breaks the symmetry, or warn
        attend:str='full',        # 'full', 'channel', 'spatial', 'input' or 'rotation'
        # r: the channel attention's middle layer has in_channels // r units
        # (in_channels where that is none)
        reduction:int=2,
        hidden:int|None=None,     # that width itself
        attention_kernel:int=7,   # of the spatial attention; odd
        attention_dilation:int=1, # of the spatial attention
        # output channels at a time, computed again in backward; None keeps all; 'auto'
        # only where they are large
        chunk:int|str|None='auto',
        # of the convolution; the attention's own windows meet zeros beyond the rim
        padding_mode:str='zeros',
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        super().__init__(in_channels, out_channels, kernel_size, group, stride, padding,
                         dilation, bias, strict, padding_mode=padding_mode)
        attention_kernel, attention_dilation = square_sizes(
            attention_kernel=attention_kernel, attention_dilation=attention_dilation)
        check_positive(reduction=reduction, attention_dilation=attention_dilation)
        free:dict[str, Any] = dict(hidden=hidden, chunk=chunk)   # need not be numbers
        check_positive(**{k: n for k, n in free.items() if n not in (None, 'auto')})
        check_odd(attention_kernel=attention_kernel)
        self.attend = one_of(attend, 'full', 'channel', 'spatial', 'input', 'rotation')
        self.chunk = chunk
        hidden = hidden or in_channels//reduction or in_channels
        self.branch = self.make_branch(hidden=hidden, kernel_size=attention_kernel,
                                       dilation=attention_dilation)
        self.to(device, dtype)

    def make_branch(self,
        **sizes:Any, # of the attention
    )->Any:
        """The attention that `attend` names.

        Parameters
        ----------
        **sizes : Any
            of the attention
        """
        channels, common = self.in_channels, (self.group, self.lifts)
        if self.attend == 'rotation': return RotationAttention(channels, *common)
        if self.attend == 'input': return InputAttention(channels, *common, **sizes)
        padding = self.padding if self.padding_mode == 'zeros' else 0   # in `planes`
        window = Window(self.kernel_size, self.dilation, padding, self.stride)
        return PairAttention(channels, self.out_channels, window, *common, self.attend,
                             **sizes)

    @property
    def weighs_input(self)->bool:
        "Does the branch weigh the input, and not each product?"
        return self.attend in ('input', 'rotation')

    def check_taken(self, x:Tensor)->None:
        "Raise a `ValueError` unless the layer can take `x`."
        group = None if self.lifts else self.group
        check_input(x, self.in_channels, group, type(self).__name__)

    def planes(self, x:Tensor)->Tensor:
        "The input as `(b, q, i, y, x)`, in a frame unless that is of zeros."
        if self.padding_mode != 'zeros':
            x = pad_sides(x, self.padding, self.padding_mode)
        return x[:, None] if self.lifts else x.transpose(1, 2)

    def chunk_for(self,
        x:Tensor, # an input
    )->int|None:
        """Output channels at a time for this input; None where all are kept.

        Parameters
        ----------
        x : Tensor
            an input
        """
        if not isinstance(self.chunk, str): return self.chunk
        shape = self.in_poses, self.in_channels, self.out_channels, self.out_poses
        k = self.kernel_size
        return chunk_size(self.planes(x), (*shape, k, k), self.branch.window)

    def forward(self,
        x:Tensor, # an image `(b, i, h, w)`, or a feature map on G `(b, i, |H|, h, w)`
    )->Tensor:    # `(b, o, |H|, h, w)`
        self.check_taken(x)
        if self.weighs_input: return super().forward(self.branch(x))
        refuse_transforms(type(self).__name__)
        with autocast_as(None, x):   # maxima want precision
            x = x.to(self.weight.dtype)
            y = super().forward(x)
            if not torch.compiler.is_compiling() and not len(x): return y
            chunk = self.chunk_for(x)
            removed = self.branch(filters_by_pair(self), self.planes(x), chunk)
            return y - removed.view_as(y)

    @torch.no_grad()
    def factors(self,
        x:Tensor, # an input
    )->tuple[Tensor|None, Tensor|None]:
        """α^C `(b, o, i, h, q)` and α^X `(b, o, h, q, y, x)`, None if not used;
        a lifting layer has no q.

        Parameters
        ----------
        x : Tensor
            an input
        """
        if self.weighs_input:
            raise ValueError(f'attend={self.attend!r} weighs the input alone and has '
                             'no pairs (h, ĥ): use .attention(x)')
        self.check_taken(x)
        planes = self.planes(x.to(self.weight.dtype))
        parts = list(self.branch.parts(filters_by_pair(self), planes, 1, keep=True))
        channel = spatial = None
        if self.branch.channel is not None:
            channel = rearrange([p.channel for p in parts], 'o b q i h -> b o i h q')
            if self.lifts: channel = channel[..., 0]
        if self.branch.spatial is not None:
            spatial = rearrange([p.spatial for p in parts],
                                'o b q h y x -> b o h q y x')
            if self.lifts: spatial = spatial[:, :, :, 0]
        return channel, spatial

    @torch.no_grad()
    def attention(self,
        x:Tensor, # an input
    )->Tensor:
        """The weights α⁺: of the input, in its shape (for 'rotation' one channel); else
        their mean over input channels and poses, `(b, o, |H|, h, w)`.

        Parameters
        ----------
        x : Tensor
            an input
        """
        self.check_taken(x)
        if self.weighs_input: return self.branch.attention(x)
        channel, spatial = self.factors(x)
        spatial_size = self.branch.window.out_size(self.planes(x))
        product = x.new_ones(())
        if channel is not None: product = product*channel.mean(2)[..., None, None]
        if spatial is not None: product = product*spatial
        if not self.lifts: product = product.mean(3)
        return 1 - product.expand(*product.shape[:-2], *spatial_size)

    def macs(self,
        x_shape:tuple[int, ...], # of the input
        y_shape:tuple[int, ...], # of the output
    )->int:
        """Multiply-accumulates of a forward pass: the convolution and its attention.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the input
        y_shape : tuple[int, ...]
            of the output
        """
        total = super().macs(x_shape, y_shape) + self.branch.macs(x_shape, y_shape)
        if self.weighs_input: return total
        turned = super().macs(x_shape, (*y_shape[:-2], 0, 0))   # again, for the branch
        return total + turned

    def extra_repr(self)->str:
        return f'{super().extra_repr()}, attend={self.attend}, chunk={self.chunk}'

class AttentiveLiftingConv2d(AttentiveConv2d):
    """Attentive lifting convolution, `(b, i, h, w)` to `(b, o, |H|, h, w)`:
    y[o,h] = Σᵢ α⁺ᵢ(x,h) corr(fᵢ, 𝓛_h W[o,i]) (P1, Eq. 19).

    In words: a lifting convolution, each of whose terms (one input channel, correlated with
    one filter in one pose) is weighed by a factor between 0 and 1 before they are added.
    Channel attention and spatial attention of these terms write the factors.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        channels of the output
    kernel_size : int
        windows are square
    group : Group | str
        a `Group` or its name
    stride : int, default 1
        pixels from window to window
    padding : int | str, default 0
        pixels, 'same' or 'valid'
    dilation : int, default 1
        pixels from tap to tap of a filter
    bias : bool, default True
        one per output channel, shared over the group
    strict : bool, default True
        raise where the stride breaks the symmetry, or warn
    attend : str, default 'full'
        'full', 'channel', 'spatial', 'input' or 'rotation'
    reduction : int, default 2
        r: the channel attention's middle layer has in_channels // r units (in_channels
        where that is none)
    hidden : int | None, default None
        that width itself
    attention_kernel : int, default 7
        of the spatial attention; odd
    attention_dilation : int, default 1
        of the spatial attention
    chunk : int | str | None, default 'auto'
        output channels at a time, computed again in backward; None keeps all; 'auto'
        only where they are large
    padding_mode : str, default 'zeros'
        of the convolution; the attention's own windows meet zeros beyond the rim
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4): p4, p4m, mirror, or one of your own. C8, C16 and the
    like are taken, too; their filters are turned between pixels, so that of their turns
    only those that keep the grid are exact. A stride may leave no pixel over: (n +
    2·padding − dilation·(kernel_size − 1) − 1) % stride == 0 on both sides, or the layer
    raises and names the nearest sizes.

    Cost: about 3·o·|H|·i·k² + 98·o·|H| multiply-accumulates for each place of the output; i
    and o are the channels of input and output (c, where they are one number), k is the
    window, |H| the order of the group. That is attend='full'; 98 is 2·attention_kernel².
    'input' and 'rotation' weigh the input alone and cost little more than the convolution.

    References
    ----------
    David W. Romero, Erik J. Bekkers, Jakub M. Tomczak, Mark Hoogendoorn, Attentive Group
    Equivariant Convolutional Networks, 2020, https://arxiv.org/abs/2002.03830

    Examples
    --------
    >>> from eqtutor.nn import AttentiveLiftingConv2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = AttentiveLiftingConv2d(4, 6, 3, 'p4m', padding='same')
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
    lifts = True

class AttentiveGroupConv2d(AttentiveConv2d):
    """Attentive group convolution, `(b, i, |H|, h, w)` to `(b, o, |H|, h, w)`:
    y[o,h] = Σ_{i,q} α⁺ᵢ(x,h,q) corr(f[i,q], 𝓛_h W[o,i,h⁻¹q]) (P1, Eq. 19).

    In words: a group convolution, each of whose terms (one channel and pose of the input,
    correlated with its slice of a filter in the pose of the output) is weighed by a factor
    between 0 and 1 before they are added. Channel attention and spatial attention of these
    terms write the factors, and know only the relative pose of the two.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        channels of the output
    kernel_size : int
        windows are square
    group : Group | str
        a `Group` or its name
    stride : int, default 1
        pixels from window to window
    padding : int | str, default 0
        pixels, 'same' or 'valid'
    dilation : int, default 1
        pixels from tap to tap of a filter
    bias : bool, default True
        one per output channel, shared over the group
    strict : bool, default True
        raise where the stride breaks the symmetry, or warn
    attend : str, default 'full'
        'full', 'channel', 'spatial', 'input' or 'rotation'
    reduction : int, default 2
        r: the channel attention's middle layer has in_channels // r units (in_channels
        where that is none)
    hidden : int | None, default None
        that width itself
    attention_kernel : int, default 7
        of the spatial attention; odd
    attention_dilation : int, default 1
        of the spatial attention
    chunk : int | str | None, default 'auto'
        output channels at a time, computed again in backward; None keeps all; 'auto'
        only where they are large
    padding_mode : str, default 'zeros'
        of the convolution; the attention's own windows meet zeros beyond the rim
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4): p4, p4m, mirror, or one of your own. C8, C16 and the
    like are taken, too; their filters are turned between pixels, so that of their turns
    only those that keep the grid are exact. A stride may leave no pixel over: (n +
    2·padding − dilation·(kernel_size − 1) − 1) % stride == 0 on both sides, or the layer
    raises and names the nearest sizes.

    Cost: about 3·o·|H|²·i·k² + 98·o·|H|² multiply-accumulates for each place of the output;
    i and o are the channels of input and output (c, where they are one number), k is the
    window, |H| the order of the group. That is attend='full'; 98 is 2·attention_kernel².
    `chunk` trades memory for time. 'input' and 'rotation' weigh the input alone and cost
    little more than the convolution.

    References
    ----------
    David W. Romero, Erik J. Bekkers, Jakub M. Tomczak, Mark Hoogendoorn, Attentive Group
    Equivariant Convolutional Networks, 2020, https://arxiv.org/abs/2002.03830

    Examples
    --------
    >>> from eqtutor.nn import AttentiveGroupConv2d
    >>> x = torch.randn(2, 4, 8, 16, 16)
    >>> layer = AttentiveGroupConv2d(4, 6, 3, 'p4m', padding='same')
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
