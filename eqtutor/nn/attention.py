"""Self-attention of images, over all pixels or in windows (chapter 20), and SASA, which P2 compares
itself with.

P2: Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
https://arxiv.org/abs/1911.07704

P3: David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention For
Vision, 2021, https://arxiv.org/abs/2010.00977
"""

# Plain module: edited by hand, no notebook exports it.
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import (
    check_divides,
    check_ignored,
    check_input,
    check_odd,
    check_positive,
    one_of,
    square_sizes,
)
from ..groups import Group, get_group
from ..kernels.windows import (
    may_be_heard,
    softmax_over,
    window_mask,
    window_scores,
    window_sum,
)

# axes: b images, c channels, d channels of a head, h rows, w columns


class QueryKeyValue(nn.Module):
    """Queries, keys and values, `(b, heads, d, h, w)` each, of an image `(b, c, h, w)`.

    Parameters
    ----------
    in_channels : int
    out_channels : int
        a multiple of `heads`
    heads : int
        that attend side by side
    scale : str
        'root' 1/√d, 'head' 1/d or 'channels' 1/out_channels
    bias : bool
    """
    def __init__(self,
        in_channels:int,
        out_channels:int, # a multiple of `heads`
        heads:int,        # that attend side by side
        scale:str,        # 'root' 1/√d, 'head' 1/d or 'channels' 1/out_channels
        bias:bool,
    ):
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, heads=heads)
        check_divides('heads', heads, out_channels=out_channels)
        self.heads, self.width = heads, out_channels//heads
        scales = dict(root=self.width**-.5, head=1/self.width, channels=1/out_channels)
        self.scale = scales[one_of(scale, *scales)]
        self.query = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
        self.key = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
        self.value = nn.Conv2d(in_channels, out_channels, 1, bias=bias)

    def forward(self,
        f:Tensor,
        place:Tensor|None=None, # an absolute encoding `(c, h, w)`
    )->tuple[Tensor, Tensor, Tensor]:
        at = f if place is None else f + place
        maps = self.query(at)*self.scale, self.key(at), self.value(f)
        q, k, v = (m.unflatten(1, (self.heads, self.width)) for m in maps)
        return q, k, v


class WindowEncoding(nn.Module):
    """Scores q·ρ_Δ in a window: queries `(b, heads, d, h, w)` to `(b, heads, k², h, w)`.

    Parameters
    ----------
    heads : int
        that attend side by side
    width : int
        of a head
    kernel_size : int
        odd
    """
    def __init__(self,
        heads:int,       # that attend side by side
        width:int,       # of a head
        kernel_size:int, # odd
    ):
        super().__init__()
        self.table = nn.Parameter(torch.randn(heads, width, kernel_size**2))

    def forward(self, q:Tensor)->Tensor:
        return (self.table.mT @ q.flatten(-2)).unflatten(-1, q.shape[-2:])

    def offsets(self, h:int, w:int)->int:
        "How many of them a query of an image `h`×`w` is compared with."
        return self.table.shape[-1]


class ImageEncoding(nn.Module):
    """Scores q·ρ_Δ in an image: `(b, heads, h·w, h, w)`, the source before the target.

    Parameters
    ----------
    heads : int
        that attend side by side
    width : int
        of a head
    size : tuple[int, int]
        height and width of the largest image
    """
    def __init__(self,
        heads:int,            # that attend side by side
        width:int,            # of a head
        size:tuple[int, int], # height and width of the largest image
    ):
        super().__init__()
        self.size, (h, w) = size, size
        self.table = nn.Parameter(torch.randn(heads, width, 2*h - 1, 2*w - 1))

    def forward(self, q:Tensor)->Tensor:
        (top, left), (h, w) = self.size, q.shape[-2:]
        if h > top or w > left:
            raise ValueError('there are encodings for offsets within '
                             f'{top}×{left} pixels, got an image of {h}×{w}: '
                             'give a larger size, or a window')
        known = self.table[..., top - h:top + h - 1, left - w:left + w - 1].flatten(2)
        r, c = torch.arange(h, device=q.device), torch.arange(w, device=q.device)
        down, right = r[:, None] - r + h - 1, c[:, None] - c + w - 1  # source − target
        entry = down[:, None, :, None]*(2*w - 1) + right[:, None]
        entry = entry.flatten(2).flatten(0, 1).expand(*q.shape[:2], -1, -1)
        return (known.mT @ q.flatten(-2)).gather(2, entry).unflatten(-1, (h, w))

    def offsets(self, h:int, w:int)->int:
        "How many of them a query of an image `h`×`w` is compared with."
        return (2*h - 1)*(2*w - 1)


class Attention2d(nn.Module):
    """Multi-head attention of images `(b, c, h, w)`, over all pixels or around each.

    Parameters
    ----------
    in_channels : int
    out_channels : int
        a multiple of `heads`
    window : int | None
        odd; None: every pixel attends to all
    heads : int
        that attend side by side
    boundary : str
        beyond the image: 'mask', nothing; 'zero', key and value 0
    scale : str
        of the scores, as for `QueryKeyValue`
    bias : bool
        of the query, key and value maps
    out_bias : bool
        of the output map
    """
    def __init__(self,
        in_channels:int,
        out_channels:int, # a multiple of `heads`
        window:int|None,  # odd; None: every pixel attends to all
        heads:int,        # that attend side by side
        boundary:str,     # beyond the image: 'mask', nothing; 'zero', key and value 0
        scale:str,        # of the scores, as for `QueryKeyValue`
        bias:bool,        # of the query, key and value maps
        out_bias:bool,    # of the output map
    ):
        super().__init__()
        window, = square_sizes(window=window)
        if window is not None: check_odd(window=window)
        self.maps = QueryKeyValue(in_channels, out_channels, heads, scale, bias)
        self.out = nn.Conv2d(out_channels, out_channels, 1, bias=out_bias)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.window, self.heads, self.group = window, heads, get_group('Z2')
        self.boundary = one_of(boundary, 'mask', 'zero')
        self.absolute:nn.Parameter|None = None   # encodings of the pixels, `(c, h, w)`
        self.relative:Any = None                 # of the offsets: queries to scores

    def weights(self, q:Tensor, content:Tensor, ignored:Tensor|None=None)->Tensor:
        "Softmax over the sources of the scores q·k, which are given, plus q·ρ."
        s = content if self.relative is None else content + self.relative(q)
        if ignored is not None:
            if self.window is None: heard = ~ignored.flatten(1)[:, None, :, None, None]
            else:
                beyond = self.boundary == 'zero'
                heard = may_be_heard(ignored, self.window, beyond)[:, None]
            return softmax_over(s, heard)
        if self.window is None or self.boundary == 'zero': return s.softmax(2)
        inside = window_mask(self.window, q.shape[-2], q.shape[-1], device=q.device)
        return s.masked_fill(~inside, -torch.inf).softmax(2)

    def attention(self, x:Tensor, ignored:Tensor|None=None)->Tensor:
        "Attention weights `(b, heads, sources, h, w)`: for each target they sum to 1."
        "Each pixel listens to its window, or to all, but to no place that is ignored."
        check_ignored(ignored, x)
        q, k, _ = self.maps(*self._image_and_places(x))
        if self.window:
            return self.weights(q, window_scores(q, k, self.window), ignored)
        pairs = k.flatten(-2).mT @ q.flatten(-2)
        return self.weights(q, pairs.unflatten(-1, q.shape[-2:]), ignored)

    def forward(self,
        x:Tensor,                  # image `(b, c, h, w)`
        ignored:Tensor|None=None,  # bool `(b, h, w)`: places to which nobody listens
    )->Tensor:
        """Each pixel listens to its window, or to all, but to no place that is ignored.

        Parameters
        ----------
        x : Tensor
            image `(b, c, h, w)`
        ignored : Tensor | None, default None
            bool `(b, h, w)`: places to which nobody listens
        """
        check_ignored(ignored, x)
        q, k, v = self.maps(*self._image_and_places(x))
        if self.window is None:
            y = self._everywhere(q, k, v, ignored)
        else:
            weights = self.weights(q, window_scores(q, k, self.window), ignored)
            y = window_sum(weights, v, self.window)
        y = self.out(y.flatten(1, 2))
        return y[:, :, None] if x.ndim == 5 else y

    def _everywhere(self, q:Tensor, k:Tensor, v:Tensor, ignored:Tensor|None)->Tensor:
        "Every pixel a token, through torch's fused kernel; `(b, heads, h·w, d)` each."
        bias = None if self.relative is None else self.relative(q).flatten(-2).mT
        if ignored is not None:
            gone = ignored.flatten(1)[:, None, None]                # of each source
            alone = gone.all(-1, keepdim=True)                      # nobody is left:
            v = v.masked_fill(alone[..., None], 0.)                 # a mean of zeros
            silence = q.new_zeros(()).where(~gone | alone, -torch.inf)
            bias = silence if bias is None else bias + silence
        qs, ks, vs = (t.flatten(-2).mT for t in (q, k, v))
        y = F.scaled_dot_product_attention(qs, ks, vs, attn_mask=bias, scale=1.)
        return y.mT.unflatten(-1, q.shape[-2:])

    def _image_and_places(self, x:Tensor)->tuple[Tensor, Tensor|None]:
        "The image, without the trivial group's axis, and the encodings of its pixels."
        group = self.group if x.ndim == 5 else None
        check_input(x, self.in_channels, group, type(self).__name__)
        places = self.absolute
        if places is not None and places.shape[-2:] != x.shape[-2:]:
            want, got = ('×'.join(map(str, t.shape[-2:])) for t in (places, x))
            raise ValueError('an absolute encoding knows the pixels of one size: '
                             f'expected an image of {want}, got {got}')
        return x[:, :, 0] if x.ndim == 5 else x, places

    def macs(self,
        x_shape:tuple[int, ...], # of the input
        y_shape:tuple[int, ...], # of the output
    )->int:
        """Four maps; each source compared and summed; each encoded offset compared.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the input
        y_shape : tuple[int, ...]
            of the output
        """
        (h, w), width = x_shape[-2:], self.out_channels
        sources = self.window**2 if self.window else h*w
        offsets = 0 if self.relative is None else self.relative.offsets(h, w)
        maps = 3*self.in_channels*width + width**2
        return x_shape[0]*h*w*(maps + 2*width*sources + width*offsets)


class SelfAttention2d(Attention2d):
    """Self-attention, images `(b, in_channels, h, w)` to images (P3, Eqs 8–11).

    In words: every pixel compares its query with the keys of the pixels around it, or of
    all, and with an encoding of where they lie; a softmax of the scores weighs their
    values. Heads do so side by side, and a linear map joins them.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    window : int | None, default None
        odd; None: every pixel attends to all
    heads : int, default 1
        that attend side by side
    encoding : str, default 'relative'
        'none', 'absolute' or 'relative'
    size : tuple[int, int] | None, default None
        of the images if 'absolute', of the largest if 'relative' without window
    boundary : str, default 'mask'
        beyond the image: 'mask', or 'zero' keys and values
    scale : str, default 'root'
        of the scores: 'root' 1/√d, 'head' 1/d, 'channels'
    bias : bool, default True
        of the query, key and value maps
    out_bias : bool, default True
        of the output map
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for translations by whole pixels, away from the border; not for turns or mirrors.
    With encoding='none' and window=None it commutes with every permutation of the pixels;
    with 'absolute', with none.

    Cost: o·(3·i + o + 3·k²) multiply-accumulates for each place of the output; i and o are
    the channels of input and output (c, where they are one number), k is the window, |H|
    the order of the group. Without a window k² is h·w, and the relative encoding is
    compared with (2h − 1)·(2w − 1) offsets.

    References
    ----------
    Ashish Vaswani, Noam Shazeer, Niki Parmar, Jakob Uszkoreit, Llion Jones, Aidan N. Gomez,
    Łukasz Kaiser, Illia Polosukhin, Attention Is All You Need, 2017,
    https://arxiv.org/abs/1706.03762

    David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention
    For Vision, 2021, https://arxiv.org/abs/2010.00977

    Examples
    --------
    >>> from eqtutor.nn import SelfAttention2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = SelfAttention2d(4, 6, window=5, heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 16, 16])
    """
    def __init__(self,
        in_channels:int,
        out_channels:int,         # a multiple of `heads`
        window:int|None=None,     # odd; None: every pixel attends to all
        heads:int=1,              # that attend side by side
        encoding:str='relative',  # 'none', 'absolute' or 'relative'
        # of the images if 'absolute', of the largest if 'relative' without window
        size:tuple[int, int]|None=None,
        boundary:str='mask',      # beyond the image: 'mask', or 'zero' keys and values
        scale:str='root',         # of the scores: 'root' 1/√d, 'head' 1/d, 'channels'
        bias:bool=True,           # of the query, key and value maps
        out_bias:bool=True,       # of the output map
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        super().__init__(
            in_channels, out_channels, window, heads, boundary, scale, bias, out_bias)
        self.encoding = one_of(encoding, 'none', 'absolute', 'relative')
        if encoding == 'absolute':
            self.absolute = nn.Parameter(torch.randn(in_channels, *self._checked(size)))
        if encoding == 'relative' and self.window:
            self.relative = WindowEncoding(heads, self.maps.width, self.window)
        elif encoding == 'relative':
            self.relative = ImageEncoding(heads, self.maps.width, self._checked(size))
        self.to(device, dtype)

    def _checked(self, size:tuple[int, int]|None)->tuple[int, int]:
        if not isinstance(size, (tuple, list)) or len(size) != 2:
            raise ValueError(f'the {self.encoding} encoding is a table of places: '
                             'expected size=(height, width) of the images, '
                             f'got {size!r}')
        check_positive(height=size[0], width=size[1])
        return size[0], size[1]

    def extra_repr(self)->str:
        text = (f'{self.in_channels}, {self.out_channels}, window={self.window}, '
                f'heads={self.heads}, encoding={self.encoding!r}')
        return text if self.window is None else f'{text}, boundary={self.boundary!r}'


class RowsAndColumns(nn.Module):
    """Scores in a window: half of a head's channels know the row, half the column.

    Parameters
    ----------
    heads : int
        that attend side by side
    width : int
        of a head, even
    kernel_size : int
        odd
    """
    def __init__(self,
        heads:int,       # that attend side by side
        width:int,       # of a head, even
        kernel_size:int, # odd
    ):
        super().__init__()
        if width % 2:
            raise ValueError('half of the channels of a head encode rows, half '
                             f'columns: expected an even width, got {width}; choose '
                             f'out_channels a multiple of {2*heads}')
        self.rows = nn.Parameter(torch.randn(heads, width//2, kernel_size))
        self.columns = nn.Parameter(torch.randn(heads, width//2, kernel_size))

    def forward(self, q:Tensor)->Tensor:
        halves = zip((self.rows, self.columns), q.chunk(2, 2))
        by_row, by_column = (table.mT @ half.flatten(-2) for table, half in halves)
        scores = (by_row[:, :, :, None] + by_column[:, :, None]).flatten(2, 3)
        return scores.unflatten(-1, q.shape[-2:])

    def offsets(self, h:int, w:int)->int:
        "Of a row and of a column, with half of the channels each."
        return self.rows.shape[-1]

class StandAloneSelfAttention2d(Attention2d):
    """SASA, local attention with factorised encodings (Ramachandran et al. 2019).

    In words: every pixel compares its query with the keys of its window, and with an
    encoding, half of whose channels know the row of the offset, half the column; a softmax
    of the scores weighs the values.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of 2·heads
    kernel_size : int
        odd
    heads : int, default 8
        that attend side by side
    boundary : str, default 'mask'
        beyond the image: 'mask', or 'zero' keys and values
    scale : str, default 'head'
        of the scores: 'root', 'head' or 'channels'
    bias : bool, default True
        of the query, key and value maps
    out_bias : bool, default False
        of the output map
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for translations by whole pixels, away from the border; not for turns or mirrors.

    Cost: o·(3·i + o + 2·k² + k) multiply-accumulates for each place of the output; i and o
    are the channels of input and output (c, where they are one number), k is the window,
    |H| the order of the group.

    References
    ----------
    Prajit Ramachandran, Niki Parmar, Ashish Vaswani, Irwan Bello, Anselm Levskaya, Jonathon
    Shlens, Stand-Alone Self-Attention in Vision Models, 2019,
    https://arxiv.org/abs/1906.05909

    Examples
    --------
    >>> from eqtutor.nn import StandAloneSelfAttention2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = StandAloneSelfAttention2d(4, 8, 5, heads=2)
    >>> layer(x).shape
    torch.Size([2, 8, 16, 16])
    """
    def __init__(self,
        in_channels:int,
        out_channels:int,      # a multiple of 2·heads
        kernel_size:int,       # odd
        heads:int=8,           # that attend side by side
        boundary:str='mask',   # beyond the image: 'mask', or 'zero' keys and values
        scale:str='head',      # of the scores: 'root', 'head' or 'channels'
        bias:bool=True,        # of the query, key and value maps
        out_bias:bool=False,   # of the output map
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        kernel_size, = square_sizes(kernel_size=kernel_size)
        check_odd(kernel_size=kernel_size)
        super().__init__(in_channels, out_channels, kernel_size, heads, boundary, scale,
                         bias, out_bias)
        self.relative = RowsAndColumns(heads, self.maps.width, kernel_size)
        self.to(device, dtype)

    def extra_repr(self)->str:
        return (f'{self.in_channels}, {self.out_channels}, kernel_size={self.window}, '
                f'heads={self.heads}, boundary={self.boundary!r}')


def sasa_operator(
    in_channels:int,
    out_channels:int,
    kernel_size:int,          # of the convolution it replaces
    group:Group|str='Z2',     # SASA knows no other
    padding:int|str='same',
    bias:bool=False,          # as backbones say it, of the output map
    window:int|None=5,        # of the attention; `kernel_size` if None
    **kwargs,                 # as for `StandAloneSelfAttention2d`
)->StandAloneSelfAttention2d:
    """SASA in a convolution's place, on `(b, c, 1, h, w)`: a backbone's `operator=`.

    Parameters
    ----------
    in_channels : int
    out_channels : int
    kernel_size : int
        of the convolution it replaces
    group : Group | str, default 'Z2'
        SASA knows no other
    padding : int | str, default 'same'
    bias : bool, default False
        as backbones say it, of the output map
    window : int | None, default 5
        of the attention; `kernel_size` if None
    **kwargs
        as for `StandAloneSelfAttention2d`
    """
    if len(get_group(group)) > 1:
        raise ValueError('SASA commutes with translations only: expected the group '
                         f"'Z2', got {get_group(group).name}")
    if padding != 'same':
        raise ValueError("SASA keeps the size of the image: expected padding='same', "
                         f'got {padding!r}')
    return StandAloneSelfAttention2d(in_channels, out_channels, window or kernel_size,
                                     out_bias=bias, **kwargs)
