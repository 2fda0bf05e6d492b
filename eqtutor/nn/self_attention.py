"""Lifting and group self-attention (chapter 23): the maps, the encodings, the softmax over source
poses and offsets, and what makes them fit for use: crops, chunks, masks, precision.

P3: David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention For
Vision, 2021, https://arxiv.org/abs/2010.00977
"""

# Plain module: edited by hand, no notebook exports it.

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from ..core import (
    IndexTables,
    autocast_as,
    check_ignored,
    check_input,
    check_not_negative,
    check_odd,
    check_positive,
    one_of,
    refuse_transforms,
    shown_group,
    square_sizes,
)
from ..groups import Group, get_group
from ..kernels.self_attention import (
    AttentionPlan,
    draw_seed,
    dropout_mask,
    plan_attention,
    recompute_later,
    seeded,
    streamed_attention,
)

# Axes: b images, n heads, d the width of one; target, query, source: poses h, h̃, ĥ;
# K offsets Δ within reach; P passes: one, or one for each h if the index knows h

def attention_scores(
    q:Tensor,       # of a pixel, `(b, n, query, d)`
    k:Tensor,       # of the places within reach, `(b, n, source, K, d)`
    offsets:Tensor, # ρ(h⁻¹Δ), `(K, target, d)`
    poses:Tensor,   # ε(ι), `(P, query, source, d)`
)->Tensor:          # `(b, n, target, query, source, K)`
    """The scores of Definition 23.7 at one pixel, before the softmax.

    Parameters
    ----------
    q : Tensor
        of a pixel, `(b, n, query, d)`
    k : Tensor
        of the places within reach, `(b, n, source, K, d)`
    offsets : Tensor
        ρ(h⁻¹Δ), `(K, target, d)`
    poses : Tensor
        ε(ι), `(P, query, source, d)`

    Returns
    -------
    Tensor
        `(b, n, target, query, source, K)`
    """
    content = einsum(q, k, 'b n query d, b n source K d -> b n query source K')
    place = einsum(q, offsets, 'b n query d, K target d -> b n target query K')
    pose = einsum(q, poses, 'b n query d, P query source d -> b n P query source')
    return content[:, :, None] + place[:, :, :, :, None] + pose[..., None]

# Axes, besides: h and w pixels, Y and X with padding

def moved_offsets(
    group:Group|str,
    reach:tuple[int, int], # how far the neighbourhood goes, in rows and in columns
)->Tensor:                 # `(K, |H|, 2)`, float64
    """The points h⁻¹Δ, x right and y up, for the K offsets Δ within reach, row by row.

    Parameters
    ----------
    group : Group | str
    reach : tuple[int, int]
        how far the neighbourhood goes, in rows and in columns

    Returns
    -------
    Tensor
        `(K, |H|, 2)`, float64
    """
    group = get_group(group)
    rows, cols = (torch.arange(-r, r + 1).to(group.matrices) for r in reach)
    x, y = cols.expand(len(rows), -1), -rows[:, None].expand(-1, len(cols))
    offsets = torch.stack([x, y], -1).flatten(0, 1)
    return torch.einsum('hij,kj->khi', group.matrices[group.inv], offsets)

def _mlp(inputs:int, outputs:int, hidden:int)->nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.SiLU(),
                         nn.Linear(hidden, outputs))

class PositionalEncoding(nn.Module):
    """Vectors of the offsets, `(K, |H|, width)`, and of the poses, `(|H|, width)`.

    Parameters
    ----------
    width : int
        of a key of one head; the heads share the encoding
    group : Group | str
    poses : bool, default True
        False for lifting: an image has no poses
    kind : str, default 'plane'
        an MLP of (x, y); 'split': of x, of y, and pose channels
    hidden : int, default 16
        units of an MLP
    scale : float, default 2.0
        pixels that count as 1
    """
    def __init__(self,
        width:int,           # of a key of one head; the heads share the encoding
        group:Group|str,
        poses:bool=True,     # False for lifting: an image has no poses
        kind:str='plane',    # an MLP of (x, y); 'split': of x, of y, and pose channels
        hidden:int=16,       # units of an MLP
        scale:float=2.,      # pixels that count as 1
    ):
        super().__init__()
        check_positive(width=width, hidden=hidden)
        self.width, self.group, self.scale = width, get_group(group), scale
        self.kind = one_of(kind, 'plane', 'split')
        inputs, places = 2, 1
        part = rest = width
        if kind == 'split':
            shares = 3 if poses else 2
            if width < shares:
                raise ValueError(f"kind='split' expects a head width of at least "
                                 f"{shares}, got {width}: use kind='plane'")
            inputs, places, part = 1, 2, width//shares
            rest = width - 2*part
        self.mlps = nn.ModuleList(_mlp(inputs, part, hidden) for _ in range(places))
        self.pose = nn.Embedding(len(self.group), rest) if poses else None

    def forward(self,
        reach:tuple[int, int], # in rows and in columns
    )->Tensor:                 # `(K, |H|, width)`
        """The vectors of all offsets within reach, row by row.

        Parameters
        ----------
        reach : tuple[int, int]
            in rows and in columns

        Returns
        -------
        Tensor
            `(K, |H|, width)`
        """
        x = moved_offsets(self.group, reach).to(self._weight())
        inputs = (x/self.scale).split(2 if self.kind == 'plane' else 1, -1)
        code = torch.cat([mlp(x) for mlp, x in zip(self.mlps, inputs)], -1)
        return F.pad(code, (0, self.width - code.shape[-1]))

    def _weight(self)->Tensor:
        "A weight, which tells dtype and device; also where it is a plain tensor."
        first, *_ = self.mlps[0].children()
        return first.weight # type: ignore[return-value]

    def poses(self)->Tensor:
        "The vectors of the relative poses, `(|H|, width)`; one of zeros for lifting."
        weight = self._weight()
        if self.pose is None: return weight.new_zeros(1, self.width)
        return F.pad(self.pose.weight, (self.width - self.pose.embedding_dim, 0))

    def table_macs(self,
        reach:tuple[int, int],
    )->int:
        "Multiply-accumulates of `forward`: moving the points, and the MLPs."
        points = len(self.group)*math.prod(2*r + 1 for r in reach)
        linears = [m for m in self.mlps.modules() if isinstance(m, nn.Linear)]
        return points*(4 + sum(m.in_features*m.out_features for m in linears))

def pose_index(
    group:Group,
    encoding:str, # of the pose: 'relative', 'target', 'printed' or 'none'
    lifts:bool,   # has the input no poses?
)->Tensor:        # `(P, query, source)`
    """Which vector h̃ and ĥ meet: in one pass, or in one for each h if it matters.

    Parameters
    ----------
    group : Group
    encoding : str
        of the pose: 'relative', 'target', 'printed' or 'none'
    lifts : bool
        has the input no poses?

    Returns
    -------
    Tensor
        `(P, query, source)`
    """
    relative = group.relative
    if lifts: return torch.zeros(1, 1, 1, dtype=torch.long)
    if encoding == 'target':
        return relative[:, None].repeat(1, len(group), 1)    # h⁻¹ĥ
    if encoding == 'printed':
        return group.mul[group.inv][:, relative]             # h⁻¹h̃⁻¹ĥ
    return relative[None]                                    # h̃⁻¹ĥ

def at_least_single(x:Tensor)->Tensor:
    "In float32 if it is in half precision, otherwise as it is."
    return x.to(torch.promote_types(x.dtype, torch.float32))

class EquivariantSelfAttention2d(IndexTables):
    """What lifting and group self-attention share: the maps, the encodings, the softmax.

    Parameters
    ----------
    in_channels : int
    out_channels : int
    group : Group | str
        a `Group` or its name
    window : int | None, default 5
        odd side of it; None: the whole image
    heads : int, default 9
        that attend side by side
    head_channels : int | None, default None
        of one head; half the output channels if None
    encoding : str, default 'relative'
        of the pose: 'relative' h̃⁻¹ĥ, 'target' h⁻¹ĥ, or 'printed' h⁻¹h̃⁻¹ĥ, which
        breaks the symmetry; 'none': neither pose nor offset is encoded
    positions : str, default 'plane'
        of the offset: 'plane', or 'split' as published
    hidden : int, default 16
        units of the encoding's MLP
    extent : int, default 28
        with no window: the image side scaled to −1..1
    attention_dropout : float, default 0.0
        one mask for all h
    value_dropout : float, default 0.0
    crop : int, default 0
        output pixels to leave out on each side
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights
    """
    lifts = False   # has the input no poses?

    def __init__(self,
        in_channels:int,
        out_channels:int,
        group:Group|str,               # a `Group` or its name
        window:int|None=5,             # odd side of it; None: the whole image
        heads:int=9,                   # that attend side by side
        head_channels:int|None=None,   # of one head; half the output channels if None
        # of the pose: 'relative' h̃⁻¹ĥ, 'target' h⁻¹ĥ, or 'printed' h⁻¹h̃⁻¹ĥ, which
        # breaks the symmetry; 'none': neither pose nor offset is encoded
        encoding:str='relative',
        positions:str='plane',         # of the offset: 'plane', or 'split' as published
        hidden:int=16,                 # units of the encoding's MLP
        extent:int=28,                 # with no window: the image side scaled to −1..1
        attention_dropout:float=0.,    # one mask for all h
        value_dropout:float=0.,
        crop:int=0,                    # output pixels to leave out on each side
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        super().__init__()
        window, = square_sizes(window=window)
        check_positive(in_channels=in_channels, out_channels=out_channels, heads=heads)
        if head_channels is None: head_channels = max(out_channels//2, 1)
        check_positive(head_channels=head_channels, extent=extent)
        check_not_negative(crop=crop)
        window, = square_sizes(window=window)
        if window is not None: check_odd(window=window)
        self.attention_dropout, self.value_dropout = attention_dropout, value_dropout
        for name in ('attention_dropout', 'value_dropout'):
            if 0 <= (p := getattr(self, name)) < 1: continue
            raise ValueError(f'{name} must be at least 0 and below 1, got {p}')
        self.in_channels, self.out_channels, self.crop = in_channels, out_channels, crop
        self.group, self.window = get_group(group), window
        self.heads, self.head_channels = heads, head_channels
        self.encoding = one_of(encoding, 'relative', 'target', 'printed', 'none')
        width = heads*head_channels
        self.query, self.key, self.value = (nn.Linear(in_channels, width)
                                            for _ in range(3))
        self.out = nn.Linear(width, out_channels)
        self.encoder = self.make_encoder(positions, hidden, extent)
        self.make_tables()
        self.to(device, dtype)

    def make_encoder(self,
        positions:str, # as for the layer
        hidden:int,
        extent:int,
    )->PositionalEncoding|None:
        """The encoding; distances are measured in halves of the window or of the image.

        Parameters
        ----------
        positions : str
            as for the layer
        hidden : int
        extent : int
        """
        if self.encoding == 'none': return None
        scale = max(extent - 1 if self.window is None else self.window//2, 1)
        return PositionalEncoding(self.head_channels, self.group, not self.lifts,
                                  positions, hidden, scale)

    def tables(self)->dict[str, Tensor]:
        return dict(index=pose_index(self.group, self.encoding, self.lifts))

    def plan(self,
        x_shape:Sequence[int], # of the input
    )->AttentionPlan:
        """How the forward pass goes through an input of this shape.

        Parameters
        ----------
        x_shape : Sequence[int]
            of the input
        """
        order = len(self.group)
        return plan_attention(
            (x_shape[-2], x_shape[-1]), self.window, 1 if self.lifts else order,
            1 if self.encoder is None else order, self.heads*self.head_channels,
            self.crop,
            self.attention_dropout if self.training else 0., self.query.weight.is_cuda)

    def offset_vectors(self,
        reach:tuple[int, int], # in rows and in columns
    )->Tensor:                 # `(K, |H|, d)`; `(K, 1, d)` without an encoding
        """The vectors of all offsets within reach, at least in single precision.

        Parameters
        ----------
        reach : tuple[int, int]
            in rows and in columns

        Returns
        -------
        Tensor
            `(K, |H|, d)`; `(K, 1, d)` without an encoding
        """
        if self.encoder is not None: return at_least_single(self.encoder(reach))
        shape = math.prod(2*r + 1 for r in reach), 1, self.head_channels
        return at_least_single(self.query.weight.new_zeros(shape))

    def pose_vectors(self)->Tensor:
        "Vectors of the poses, `(P, query, source, d)`, at least in single precision."
        index = self.table('index', self.query.weight)
        if self.encoder is not None: return at_least_single(self.encoder.poses()[index])
        zeros = self.query.weight.new_zeros(*index.shape, self.head_channels)
        return at_least_single(zeros)

    def map_weights(self)->list[Tensor]:
        "Weights and biases of the maps as they are now: lent or parametrised, too."
        maps = self.query, self.key, self.value
        return [t for m in maps for t in (m.weight, m.bias)]

    def queries_keys_values(self,
        f:Tensor,                        # `(b, c, pose, h, w)`
        crop:int=0,                      # of the queries
        padding:int=0,                   # of the keys and values
        dropout:float=0.,                # of the values
        seed:int|None=None,              # to draw its mask from
        maps:Sequence[Tensor]|None=None, # as `map_weights`; None: the weights of now
    )->tuple[Tensor, Tensor]:
        """Scaled queries, `(b, n, query, h, w, d)`; keys and values beside each other.

        Parameters
        ----------
        f : Tensor
            `(b, c, pose, h, w)`
        crop : int, default 0
            of the queries
        padding : int, default 0
            of the keys and values
        dropout : float, default 0.0
            of the values
        seed : int | None, default None
            to draw its mask from
        maps : Sequence[Tensor] | None, default None
            as `map_weights`; None: the weights of now
        """
        # keys and values: `(b, n, source, Y, X, 2d)`
        x = rearrange(f, 'b c pose h w -> b pose h w c').contiguous()
        h, w = f.shape[-2:]
        weight, bias, *beside = maps or self.map_weights()
        # as in the released code; one head's channels are usual
        scale = self.in_channels**-.5
        q = F.linear(x[:, :, crop:h - crop, crop:w - crop], weight*scale, bias*scale)
        pairs = map(list, zip(beside[:2], beside[2:]))                # of key and value
        weight, bias = (rearrange(pair, 'kv (n d) ... -> (n kv d) ...', n=self.heads)
                        for pair in pairs)
        kv = F.linear(F.pad(x, (0, 0, *(padding,)*4)), weight, bias)
        q, kv = (rearrange(y, 'b pose h w (n d) -> b n pose h w d', n=self.heads)
                 for y in (q, kv))
        if dropout:
            k, v = kv.chunk(2, -1)
            mask = dropout_mask(v.shape, dropout, v.device, seeded(v.device, seed))
            kv = torch.cat([k, v*mask/(1 - dropout)], -1)
        return at_least_single(q), at_least_single(kv)

    def forward(self,
        f:Tensor, # image `(b, c, h, w)` for lifting, else `(b, c, |H|, h, w)`
        ignored:Tensor|None=None,  # bool `(b, h, w)`: places to which nobody listens
    )->Tensor:    # feature map on G, `(b, out_channels, |H|, h, w)`
        """Each place and pose listens to its window, but to no place that is ignored.

        Parameters
        ----------
        f : Tensor
            image `(b, c, h, w)` for lifting, else `(b, c, |H|, h, w)`
        ignored : Tensor | None, default None
            bool `(b, h, w)`: places to which nobody listens

        Returns
        -------
        Tensor
            feature map on G, `(b, out_channels, |H|, h, w)`
        """
        check_ignored(ignored, f)
        group = None if self.lifts else self.group
        check_input(f, self.in_channels, group, type(self).__name__)
        crop, (h, w) = self.crop, f.shape[-2:]
        if min(h, w) <= 2*crop:
            raise ValueError(f'crop={crop} expects more than {2*crop} pixels on each '
                             f'side, got {h}×{w}: use a larger image or a smaller crop')
        plan = self.plan(f.shape)
        refuse_transforms(type(self).__name__)
        with autocast_as(None, f):
            table, poses = self.offset_vectors(plan.reach), self.pose_vectors()
        f = f[:, :, None] if self.lifts else f
        def some(t:Tensor): return [t] if plan.images is None else t.split(plan.images)
        masks = repeat(None) if ignored is None else some(ignored)
        y = torch.cat([self.attend(x, table, poses, plan, mask)
                       for x, mask in zip(some(f), masks)])
        if y.shape[2] == len(self.group): return y
        return y.repeat(1, 1, len(self.group), 1, 1)   # not expanded: relu_ may follow

    def attend(self,
        f:Tensor,           # some images, `(b, c, pose, h, w)`
        table:Tensor,       # `offset_vectors`
        poses:Tensor,       # `pose_vectors`
        plan:AttentionPlan,
        ignored:Tensor|None=None,   # of these images
    )->Tensor:              # `(b, out_channels, target, h, w)`
        """Queries, keys and values, attention, and the heads put together.

        Parameters
        ----------
        f : Tensor
            some images, `(b, c, pose, h, w)`
        table : Tensor
            `offset_vectors`
        poses : Tensor
            `pose_vectors`
        plan : AttentionPlan
        ignored : Tensor | None, default None
            of these images

        Returns
        -------
        Tensor
            `(b, out_channels, target, h, w)`
        """
        p, maps = self.value_dropout if self.training else 0., self.map_weights()
        inputs = partial(self.queries_keys_values, f, plan.crop, plan.padding, p,
                         draw_seed(p), maps)
        if ignored is not None:
            inputs = partial(_beside_silence, inputs, ignored, plan.padding)
            table, poses = (F.pad(t, (0, 1)) for t in (table, poses))
        q, kv = inputs()
        recompute = recompute_later(inputs, f, *maps)
        with autocast_as(None, f):
            y = streamed_attention(q, kv, table, poses, plan, recompute)
        if ignored is not None:
            alone = _nobody_near(ignored, self.window, plan.crop)
            y = y[..., :-1].masked_fill(alone[:, None, ..., None, None], 0.)
        y = rearrange(y, 'b n h w target d -> b target h w (n d)')
        return self.out(y.to(self.out.weight.dtype)).movedim(-1, 1)

    @torch.no_grad()
    def attention(self,
        f:Tensor,   # input, as for the layer
        row:int,    # of the pixel
        column:int,
    )->Tensor:      # `(b, n, target, query, source, rows, columns)`
        """Weights of one pixel in its window or image, with sum 1 over the sources.

        Parameters
        ----------
        f : Tensor
            input, as for the layer
        row : int
            of the pixel
        column : int

        Returns
        -------
        Tensor
            `(b, n, target, query, source, rows, columns)`
        """
        group = None if self.lifts else self.group
        check_input(f, self.in_channels, group, type(self).__name__)
        Y, X = f.shape[-2:]
        if not (0 <= row < Y and 0 <= column < X):
            raise ValueError(f'({row}, {column}) lies outside the image of '
                             f'{Y}×{X} pixels')
        q, kv = self.queries_keys_values(f[:, :, None] if self.lifts else f)
        R, C = (Y - 1, X - 1) if self.window is None else (self.window//2,)*2
        around = slice(row, row + 2*R + 1), slice(column, column + 2*C + 1)
        k = F.pad(kv.chunk(2, -1)[0], (0, 0, C, C, R, R))
        k = k[(..., *around, slice(None))].flatten(3, 4)
        inside = F.pad(k.new_ones(Y, X), (C, C, R, R))[around].flatten() > 0
        s = self.scores(q[:, :, :, row, column], k, (R, C))
        s = s.masked_fill(~inside, -torch.inf)
        a = s.flatten(4).softmax(-1).view(s.shape).unflatten(-1, (2*R + 1, 2*C + 1))
        if self.window is None:
            a = a[..., R - row:R - row + Y, C - column:C - column + X]
        return a.expand(-1, -1, len(self.group), -1, -1, -1, -1)

    def scores(self,
        q:Tensor,              # `(b, n, query, d)`
        k:Tensor,              # of the places within reach, `(b, n, source, K, d)`
        reach:tuple[int, int],
    )->Tensor:                 # `(b, n, target, query, source, K)`
        """The scores of a query with each place and pose, before the softmax.

        Parameters
        ----------
        q : Tensor
            `(b, n, query, d)`
        k : Tensor
            of the places within reach, `(b, n, source, K, d)`
        reach : tuple[int, int]

        Returns
        -------
        Tensor
            `(b, n, target, query, source, K)`
        """
        return attention_scores(q, k, self.offset_vectors(reach), self.pose_vectors())

    def macs(self,
        x_shape:Sequence[int], # of the input
        y_shape:Sequence[int], # of the output
    )->int:
        """Multiply-accumulates (Theorem 23.13): no softmaxes, no products of weights.

        Parameters
        ----------
        x_shape : Sequence[int]
            of the input
        y_shape : Sequence[int]
            of the output
        """
        plan, poses = self.plan(x_shape), 1 if self.lifts else len(self.group)
        targets = 1 if self.encoder is None else len(self.group)
        passes, keys = len(self.originals['index']), math.prod(plan.extent)
        (h, w), (Y, X) = y_shape[-2:], (side + 2*plan.padding for side in x_shape[-2:])
        scores = passes*poses**2*(keys + 1) + poses*targets*keys   # ε is the 1
        attention = h*w*(scores + poses*targets*keys)              # and values
        maps = poses*self.in_channels*(h*w + 2*Y*X) + targets*h*w*self.out_channels
        total = x_shape[0]*self.heads*self.head_channels*(attention + maps)
        if self.encoder is None: return total
        return total + self.encoder.table_macs(plan.reach)

    def extra_repr(self)->str:
        return (f'{self.in_channels}, {self.out_channels}, '
                f'group={shown_group(self.group)}, window={self.window}, '
                f'heads={self.heads}, encoding={self.encoding}, '
                f'crop={self.crop}')

# A place to ignore gets a score that no other place can have, by one channel more: 1
# in each query times this number in its keys. Its weight is then 0 to the last bit.

def _beside_silence(
    inputs:Callable[[], tuple[Tensor, Tensor]], # queries, and keys beside values
    ignored:Tensor,
    padding:int,                                # of the keys
)->tuple[Tensor, Tensor]:
    "Queries, and keys beside values, with the channel that silences a place."
    q, kv = inputs()
    k, v = kv.chunk(2, -1)
    silence = F.pad(ignored.to(k), (padding,)*4)*(torch.finfo(k.dtype).min/4)
    silence = silence[:, None, None, :, :, None].expand(*k.shape[:-1], 1)
    return F.pad(q, (0, 1), value=1.), torch.cat([k, silence, F.pad(v, (0, 1))], -1)

def _nobody_near(ignored:Tensor, window:int|None, crop:int)->Tensor:
    "Whether all places that a pixel listens to are to be ignored, `(b, h, w)`."
    h, w = ignored.shape[-2:]
    if window is None: near = (~ignored).any(-1).any(-1)[:, None, None].expand(-1, h, w)
    else: near = F.max_pool2d((~ignored).float(), window, 1, window//2) > 0
    return ~near[:, crop:h - crop, crop:w - crop]

class LiftingSelfAttention2d(EquivariantSelfAttention2d):
    """P3, Eq. 14: `(b, c, h, w)` to `(b, out_channels, |H|, h, w)`, an encoding a pose.

    In words: every pixel compares its query with the keys around it and with an encoding of
    their offsets, once for each pose h: the offsets are turned back by h before they are
    encoded. The pictures of all poses together turn with the image.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        channels of the output
    group : Group | str
        a `Group` or its name
    window : int | None, default 5
        odd side of it; None: the whole image
    heads : int, default 9
        that attend side by side
    head_channels : int | None, default None
        of one head; half the output channels if None
    encoding : str, default 'relative'
        of the pose: 'relative' h̃⁻¹ĥ, 'target' h⁻¹ĥ, or 'printed' h⁻¹h̃⁻¹ĥ, which
        breaks the symmetry; 'none': neither pose nor offset is encoded
    positions : str, default 'plane'
        of the offset: 'plane', or 'split' as published
    hidden : int, default 16
        units of the encoding's MLP
    extent : int, default 28
        with no window: the image side scaled to −1..1
    attention_dropout : float, default 0.0
        one mask for all h
    value_dropout : float, default 0.0
        share of the values that training leaves out
    crop : int, default 0
        output pixels to leave out on each side
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4). C8, C16 and the like are taken, too: offsets are
    turned exactly, at any angle, but the picture itself is turned between pixels.

    Cost: about d·(|H|·(2·k² + o) + 3·i) multiply-accumulates for each place of the output;
    i and o are the channels of input and output (c, where they are one number), k is the
    window, |H| the order of the group. d is heads·head_channels. Without a window k² is
    h·w.

    References
    ----------
    David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention
    For Vision, 2021, https://arxiv.org/abs/2010.00977

    Examples
    --------
    >>> from eqtutor.nn import LiftingSelfAttention2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = LiftingSelfAttention2d(4, 6, 'p4m', window=5, heads=2, head_channels=3)
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
    lifts = True

class GroupSelfAttention2d(EquivariantSelfAttention2d):
    """P3, Eq. 16 with h̃⁻¹ĥ: `(b, c, |H|, h, w)` to `(b, out_channels, |H|, h, w)`.

    In words: every place x and pose h̃ compares its query with the keys of all poses ĥ
    around it, with an encoding of their offsets and with one of the relative pose h̃⁻¹ĥ,
    once for each pose h of the output, by which the offsets are turned back. The results of
    all h̃ are added.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        channels of the output
    group : Group | str
        a `Group` or its name
    window : int | None, default 5
        odd side of it; None: the whole image
    heads : int, default 9
        that attend side by side
    head_channels : int | None, default None
        of one head; half the output channels if None
    encoding : str, default 'relative'
        of the pose: 'relative' h̃⁻¹ĥ, 'target' h⁻¹ĥ, or 'printed' h⁻¹h̃⁻¹ĥ, which
        breaks the symmetry; 'none': neither pose nor offset is encoded
    positions : str, default 'plane'
        of the offset: 'plane', or 'split' as published
    hidden : int, default 16
        units of the encoding's MLP
    extent : int, default 28
        with no window: the image side scaled to −1..1
    attention_dropout : float, default 0.0
        one mask for all h
    value_dropout : float, default 0.0
        share of the values that training leaves out
    crop : int, default 0
        output pixels to leave out on each side
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4). C8, C16 and the like are taken, too: offsets are
    turned exactly, at any angle, but the picture itself is turned between pixels.
    encoding='printed' is the published formula, which breaks the symmetry.

    Cost: about d·|H|·(|H|·3·k² + 3·i + o) multiply-accumulates for each place of the
    output; i and o are the channels of input and output (c, where they are one number), k
    is the window, |H| the order of the group. d is heads·head_channels. Without a window k²
    is h·w. With wide windows it may be 1.7 times as much, since tiles overlap. Scores are
    never all kept: they are computed again in the backward pass.

    References
    ----------
    David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention
    For Vision, 2021, https://arxiv.org/abs/2010.00977

    Examples
    --------
    >>> from eqtutor.nn import GroupSelfAttention2d
    >>> x = torch.randn(2, 4, 8, 16, 16)
    >>> layer = GroupSelfAttention2d(4, 6, 'p4m', window=5, heads=2, head_channels=3)
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
