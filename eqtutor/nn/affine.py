"""Affine self-convolution on images and on groups (chapter 22): the affine maps, their three uses,
and the layers, with what makes them fit for use: arguments, edges, masks, counts.

P2: Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
https://arxiv.org/abs/1911.07704
"""

# Plain module: edited by hand, no notebook exports it.
import torch
from einops import rearrange
from torch import Tensor, nn

from ..core import (
    IndexTables,
    check_divides,
    check_grid,
    check_ignored,
    check_input,
    check_odd,
    check_positive,
    filter_index,
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
from .convolution import GroupConv2d

# axes: b images, c channels, n heads, d channels of a head, y x pixels, ky kx offsets;
# on a group g poses of the target, a relative poses; on images g is 1

class AffineMap(nn.Module):
    """`A_x[f](x+Δ) = ψ(Δ)·f(x+Δ) + β(Δ)` of an image `(b, c, h, w)` (P2, Eq. 6).

    Parameters
    ----------
    channels : int
        a multiple of `heads`
    kernel_size : int
        odd
    heads : int, default 1
        that attend side by side
    start : str, default 'normal'
        'normal': ψ, β ~ N(0,1); 'identity': A[f] = f; 'template': ψ ~ N(0,1), β = 0
    """
    def __init__(self,
        channels:int,         # a multiple of `heads`
        kernel_size:int,      # odd
        heads:int=1,          # that attend side by side
        # 'normal': ψ, β ~ N(0,1); 'identity': A[f] = f; 'template': ψ ~ N(0,1), β = 0
        start:str='normal',
    ):
        super().__init__()
        self.kernel_size, self.heads = kernel_size, heads
        self.psi = nn.Parameter(torch.randn(channels, kernel_size, kernel_size))
        self.beta = nn.Parameter(torch.randn(channels, kernel_size, kernel_size))
        if one_of(start, 'normal', 'identity', 'template') == 'normal': return
        nn.init.zeros_(self.beta)
        if start == 'identity': nn.init.ones_(self.psi)

    def psi_and_beta(self)->tuple[Tensor, Tensor]:
        "Factors and shifts, `(heads, c/heads, k²)` each."
        pattern = '(n d) ky kx -> n d (ky kx)'
        psi = rearrange(self.psi, pattern, n=self.heads)
        return psi, rearrange(self.beta, pattern, n=self.heads)

    def by_head(self, f:Tensor)->Tensor:
        "`(b, c, h, w)` as `(b, heads, c/heads, h, w)`."
        return rearrange(f, 'b (n d) y x -> b n d y x', n=self.heads)

    def join(self, y:Tensor)->Tensor:
        "`(b, heads, c/heads, h, w)` as `(b, c, h, w)`."
        return rearrange(y, 'b n d y x -> b (n d) y x')

    def at_centre(self, f:Tensor)->Tensor:
        "`A_x[f](x)`, `(b, heads, c/heads, h, w)`."
        centre = self.kernel_size**2//2
        psi, beta = (t[..., centre, None, None] for t in self.psi_and_beta())
        return beta + psi*self.by_head(f)

    def scores(self, queries:Tensor, f:Tensor)->Tensor:
        "`⟨query(x), A_x[f](x+Δ)⟩` in each head, `(b, heads, k², h, w)`."
        psi, beta = self.psi_and_beta()
        shift = (beta.mT @ queries.flatten(-2)).unflatten(-1, f.shape[-2:])
        return shift + window_scores(queries, self.by_head(f), self.kernel_size, psi)

    def mix(self, weights:Tensor, f:Tensor)->Tensor:
        "`Σ_Δ weights[Δ](x)·A_x[f](x+Δ)`, `(b, heads, c/heads, h, w)`."
        psi, beta = self.psi_and_beta()
        shift = (beta @ weights.flatten(-2)).unflatten(-1, f.shape[-2:])
        return shift + window_sum(weights, self.by_head(f), self.kernel_size, psi)

class GroupAffineMap(IndexTables):
    """`A_(x,h)[f](x+Δ)` of `(b, c, |H|, h, w)`, or of an image (P2, Eqs 12, 24).

    Parameters
    ----------
    channels : int
        a multiple of `heads`
    kernel_size : int
        odd
    group : Group | str
        a subgroup of D4: 'p4', 'p4m', 'mirror', …
    heads : int, default 1
        that attend side by side
    start : str, default 'normal'
        'normal': ψ, β ~ N(0,1); 'identity': A_(x,h)[f](y) = f(y,h); 'template': ψ ~
        N(0,1/|H|), β = 0
    lifts : bool, default False
        from an image: ψ has no pose axis
    """
    def __init__(self,
        channels:int,         # a multiple of `heads`
        kernel_size:int,      # odd
        group:Group|str,      # a subgroup of D4: 'p4', 'p4m', 'mirror', …
        heads:int=1,          # that attend side by side
        # 'normal': ψ, β ~ N(0,1); 'identity': A_(x,h)[f](y) = f(y,h);
        # 'template': ψ ~ N(0,1/|H|), β = 0
        start:str='normal',
        lifts:bool=False,     # from an image: ψ has no pose axis
    ):
        super().__init__()
        self.group, self.heads = get_group(group), heads
        self.kernel_size, self.lifts = kernel_size, lifts
        check_grid(self.group, 'would turn windows between pixels')
        poses, window = () if lifts else (len(self.group),), (kernel_size, kernel_size)
        self.psi = nn.Parameter(torch.randn(channels, *poses, *window))
        self.beta = nn.Parameter(torch.randn(channels, *window))
        self.reset_parameters(one_of(start, 'normal', 'identity', 'template'))
        self.make_tables()

    @torch.no_grad()
    def reset_parameters(self, start:str)->None:
        "From N(0,1) to a start without shifts: a template, or the identity."
        if start == 'normal': return
        poses = 1 if self.lifts else len(self.group)
        self.beta.zero_()
        self.psi.normal_(std=poses**-.5)
        if start == 'template': return
        self.psi.zero_()
        own = self.psi if self.lifts else self.psi[:, 0]    # the target's own pose
        own.fill_(1.)

    def tables(self)->dict[str, Tensor]:
        "`moved[h, k]`: where in ψ entry k of 𝓛_h ψ is; `sources[a, h]`: the pose ha."
        moved = filter_index(self.group, self.kernel_size)
        return dict(moved=moved, sources=self.group.mul.T.contiguous())

    def psi_and_beta(self)->tuple[Tensor, Tensor]:
        "𝓛_h ψ `(|H|, heads·|H|, c/heads, k²)`, by relative pose, and 𝓛_h β."
        # no pose is moved here: ψ stays in the order of a, and `sources` reorders f
        moved = self.table('moved', self.psi)
        psi = self.psi[:, None] if self.lifts else self.psi
        psi = rearrange(psi, 'c a ky kx -> (ky kx) a c')[moved]
        beta = rearrange(self.beta, 'c ky kx -> (ky kx) c')[moved]
        psi = rearrange(psi, 'g k a (n d) -> a (n g) d k', n=self.heads)
        return psi, rearrange(beta, 'g k (n d) -> (n g) d k', n=self.heads)

    def sources(self, f:Tensor)->list[Tensor]:
        "For each a, f at the poses ha of all h, `(b, heads·|H|, c/heads, h, w)`."
        orders = self.table('sources', self.psi)
        if self.lifts: rows = [f[:, :, None].expand(-1, -1, len(self.group), -1, -1)]
        else: rows = [f.index_select(2, order) for order in orders]
        heads = 'b (n d) g y x -> b (n g) d y x'
        return [rearrange(v, heads, n=self.heads) for v in rows]

    def join(self, y:Tensor)->Tensor:
        "`(b, heads·|H|, c/heads, h, w)` as `(b, c, |H|, h, w)`."
        return rearrange(y, 'b (n g) d y x -> b (n d) g y x', n=self.heads)

    def at_centre(self, f:Tensor)->Tensor:
        "`A_(x,h)[f](x)`, `(b, heads·|H|, c/heads, h, w)`."
        centre = self.kernel_size**2//2
        psi, beta = (t[..., centre] for t in self.psi_and_beta())
        psi = rearrange(psi, 'a n d -> (n d) 1 a')
        beta = rearrange(beta, 'n d -> (n d) 1 1')
        sources = rearrange(self.sources(f), 'a b n d y x -> (n d) a (b y x)')
        y = torch.baddbmm(beta, psi, sources)[:, 0]
        y = y.unflatten(-1, (f.shape[0], *f.shape[-2:]))
        return rearrange(y, '(n d) b y x -> b n d y x', d=self.psi.shape[0]//self.heads)

    def scores(self, queries:Tensor, f:Tensor)->Tensor:
        "`⟨query(x), A_(x,h)[f](x+Δ)⟩` by head and pose, `(b, heads·|H|, k², h, w)`."
        psi, beta = self.psi_and_beta()
        y = (beta.mT @ queries.flatten(-2)).unflatten(-1, f.shape[-2:])
        psi, sources = rearrange(psi, 'a n d k -> n (a d) k'), self.sources(f)
        near = torch.cat(sources, 2)
        return y + window_scores(queries, near, self.kernel_size, psi,
                                 sources=len(sources))

    def mix(self, weights:Tensor, f:Tensor)->Tensor:
        "`Σ_Δ weights[Δ](x)·A_(x,h)[f](x+Δ)`, `(b, heads·|H|, c/heads, h, w)`."
        psi, beta = self.psi_and_beta()
        y = (beta @ weights.flatten(-2)).unflatten(-1, f.shape[-2:])
        psi, sources = rearrange(psi, 'a n d k -> n (a d) k'), self.sources(f)
        near = torch.cat(sources, 2)
        return y + window_sum(weights, near, self.kernel_size, psi,
                              sources=len(sources))

class AffineLayer(nn.Module):
    """Query, scores, softmax, mixture, output map: what this chapter's layers share.

    Parameters
    ----------
    in_channels : int
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    group : Group | str, default 'p4'
        a subgroup of D4: 'p4', 'p4m', 'mirror', …
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
    boundary : str, default 'mask'
        beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
    init : str, default 'published'
        ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights
    """
    simple = False    # do query, key and value share one map (Eqs 7 and 14)?
    images = False    # do input and output lack the group axis?
    lifts = False     # does the input alone?

    def __init__(self,
        in_channels:int,
        out_channels:int,        # a multiple of `heads`
        kernel_size:int=5,       # odd
        group:Group|str='p4',    # a subgroup of D4: 'p4', 'p4m', 'mirror', …
        heads:int=8,             # that attend side by side
        # of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
        scale:str='head',
        # beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
        boundary:str='mask',
        # ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
        init:str='published',
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        super().__init__()
        kernel_size, = square_sizes(kernel_size=kernel_size)
        check_positive(in_channels=in_channels, out_channels=out_channels, heads=heads)
        kernel_size, = square_sizes(kernel_size=kernel_size)
        check_odd(kernel_size=kernel_size)
        check_divides('heads', heads, out_channels=out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.group, self.heads = kernel_size, get_group(group), heads
        scales = {'head': heads/out_channels, 'channels': 1/out_channels}
        scales['root'] = (heads/out_channels)**.5
        self.scale = scales[one_of(scale, 'head', 'channels', 'root')]
        self.boundary = one_of(boundary, 'mask', 'zero')
        self.init = one_of(init, 'published', 'conditioned')
        self.make_parts()
        self.to(device, dtype)

    def make_parts(self)->None:
        "The linear maps and the affine maps, by name as in `state_dict`."
        k = self.kernel_size
        if self.simple:
            self.embed, self.affine = self.linear(), self.affine_map(k, 'template')
        else:
            self.query, self.key, self.value = (self.linear() for _ in range(3))
            self.affine_query = self.affine_map(1, 'identity')
            self.affine_key = self.affine_map(k, 'identity')
            self.affine_value = self.affine_map(k, 'template')
        self.out = self.linear(output=True)

    def linear(self, output:bool=False)->nn.Conv2d|GroupConv2d:
        "A linear map at each pixel: of the input, with bias, or the last one, without."
        channels = self.out_channels if output else self.in_channels
        if self.images or self.lifts and not output:
            return _pointwise(channels, self.out_channels, bias=not output)
        return GroupConv2d(channels, self.out_channels, 1, self.group, bias=not output)

    def affine_map(self, kernel_size:int, start:str)->'AffineMap|GroupAffineMap':
        "An affine map of the output channels; `start` as for `AffineMap`."
        channels, heads = self.out_channels, self.heads
        if self.init == 'published': start = 'normal'
        if self.images: return AffineMap(channels, kernel_size, heads, start)
        return GroupAffineMap(channels, kernel_size, self.group, heads, start,
                              self.lifts)

    def terms(self, f:Tensor)->tuple[Tensor, Tensor, Tensor]:
        "The query, mapped and scaled; the inputs of `key_map` and `value_map`."
        f = self.checked(f)
        if self.simple:
            e = map_pixels(self.embed, f)
            return self.affine.at_centre(e)*self.scale, e, e
        q, k, v = (map_pixels(m, f) for m in (self.query, self.key, self.value))
        return self.affine_query.at_centre(q)*self.scale, k, v

    @property
    def key_map(self)->'AffineMap|GroupAffineMap':
        return self.affine if self.simple else self.affine_key

    @property
    def value_map(self)->'AffineMap|GroupAffineMap':
        return self.affine if self.simple else self.affine_value

    def softmax(self, scores:Tensor, ignored:Tensor|None=None)->Tensor:
        "Attention weights from scores `(b, heads, k², h, w)`."
        if ignored is not None:
            beyond = self.boundary == 'zero'
            heard = may_be_heard(ignored, self.kernel_size, beyond)
            return softmax_over(scores, heard[:, None])
        if self.boundary == 'zero': return scores.softmax(2)
        height, width = scores.shape[-2:]
        inside = window_mask(self.kernel_size, height, width, device=scores.device)
        return scores.masked_fill(~inside, -torch.inf).softmax(2)

    def forward(self,
        f:Tensor,                  # image or feature map on G
        ignored:Tensor|None=None,  # bool `(b, h, w)`: places to which nobody listens
    )->Tensor:
        """Each place listens to its window, but to no place that is ignored.

        Parameters
        ----------
        f : Tensor
            image or feature map on G
        ignored : Tensor | None, default None
            bool `(b, h, w)`: places to which nobody listens
        """
        check_ignored(ignored, f)
        query, key, value = self.terms(f)
        weights = self.softmax(self.key_map.scores(query, key), ignored)
        mixed = self.value_map.mix(weights, value)
        y = map_pixels(self.out, self.value_map.join(mixed))
        return y[:, :, None] if self.images and f.ndim == 5 else y

    def checked(self, f:Tensor)->Tensor:
        "The input or an error; a feature map of the trivial group is an image."
        group = None if self.lifts or self.images and f.ndim != 5 else self.group
        check_input(f, self.in_channels, group, type(self).__name__)
        return f[:, :, 0] if self.images and f.ndim == 5 else f

    def macs(self,
        x_shape:tuple[int, ...], # of the input
        y_shape:tuple[int, ...], # of the output
    )->int:
        """Multiply-accumulates of a forward pass; scaling by a single ψ is not counted.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the input
        y_shape : tuple[int, ...]
            of the output
        """
        poses, k2 = len(self.group), self.kernel_size**2
        source, maps = 1 if self.lifts else poses, 1 if self.simple else 3
        linear = maps*self.in_channels*source*source + self.out_channels*poses*poses
        windows = 4*poses*k2                         # f and β, in scores and mixture
        if source > 1: windows += 2*poses*source*k2  # by ψ, over the source poses
        centre = 0 if self.images else poses*source  # the query's own
        pixels = x_shape[0]*x_shape[-2]*x_shape[-1]
        return pixels*self.out_channels*(linear + windows + centre)

    def extra_repr(self)->str:
        return (f'{self.in_channels}, {self.out_channels}, '
                f'kernel_size={self.kernel_size}, group={self.group.name}, '
                f'heads={self.heads}, scale={self.scale:.4g}, '
                f'boundary={self.boundary!r}, init={self.init!r}')

def _pointwise(in_channels:int, out_channels:int, bias:bool)->nn.Conv2d:
    "A linear map at each pixel, started like the other layers (He et al. 2015)."
    conv = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
    nn.init.normal_(conv.weight, std=(2/in_channels)**.5)
    if conv.bias is not None: nn.init.zeros_(conv.bias)
    return conv

def map_pixels(
    linear:nn.Conv2d|GroupConv2d, # 1×1
    f:Tensor,                     # its input, an image or a feature map on G
)->Tensor:
    """A 1×1 convolution as a product an image: pixel after pixel, as windows want it.

    Parameters
    ----------
    linear : nn.Conv2d | GroupConv2d
        1×1
    f : Tensor
        its input, an image or a feature map on G
    """
    bank = linear.filters() if isinstance(linear, GroupConv2d) else linear.weight
    weight = bank[..., 0, 0]
    bias = f.new_zeros(1, 1)
    if linear.bias is not None:
        bias = linear.bias.repeat_interleave(len(weight)//linear.out_channels)[:, None]
    x = f.flatten(1, -3).flatten(2)
    y = torch.baddbmm(bias, weight.expand(f.shape[0], -1, -1), x)
    return y.view(f.shape[0], linear.out_channels, *f.shape[2:])

class SimpleAffineSelfConv2d(AffineLayer):
    """Simple form, image `(b, in, h, w)` to image `(b, out, h, w)` (P2, Eq. 7).

    In words: a convolution whose filter is weighed anew at every place. The features of a
    window are multiplied by ψ and shifted by β, each by those of its offset; a softmax of
    their products with the one in the middle weighs them. Query, key and value are one map.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        or 'root', 'channels'
    boundary : str, default 'mask'
        or 'zero'
    init : str, default 'published'
        or 'conditioned'
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for translations by whole pixels, away from the border; not for turns or mirrors.

    Cost: o·(i + o + 4·k²) multiply-accumulates for each place of the output; i and o are
    the channels of input and output (c, where they are one number), k is the window, |H|
    the order of the group.

    References
    ----------
    Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
    https://arxiv.org/abs/1911.07704

    Examples
    --------
    >>> from eqtutor.nn import SimpleAffineSelfConv2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = SimpleAffineSelfConv2d(4, 6, 3, heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 16, 16])
    """
    simple = images = True

    def __init__(self,
        in_channels:int,
        out_channels:int,        # a multiple of `heads`
        kernel_size:int=5,       # odd
        heads:int=8,             # that attend side by side
        scale:str='head',        # or 'root', 'channels'
        boundary:str='mask',     # or 'zero'
        init:str='published',    # or 'conditioned'
        device:torch.device|str|None=None, # where the weights lie
        dtype:torch.dtype|None=None,       # of the weights
    ):
        super().__init__(in_channels, out_channels, kernel_size, 'Z2', heads, scale,
                         boundary, init, device, dtype)

class AffineSelfConv2d(AffineLayer):
    """General form, image `(b, in, h, w)` to image `(b, out, h, w)` (P2, Eqs 8–11).

    In words: a convolution whose filter is weighed anew at every place. Keys and values of
    a window are multiplied by ψ and shifted by β, each by those of its offset; a softmax of
    the products of the keys with the query in the middle weighs the values.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
    boundary : str, default 'mask'
        beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
    init : str, default 'published'
        ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for translations by whole pixels, away from the border; not for turns or mirrors.

    Cost: o·(3·i + o + 4·k²) multiply-accumulates for each place of the output; i and o are
    the channels of input and output (c, where they are one number), k is the window, |H|
    the order of the group.

    References
    ----------
    Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
    https://arxiv.org/abs/1911.07704

    Examples
    --------
    >>> from eqtutor.nn import AffineSelfConv2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = AffineSelfConv2d(4, 6, 3, heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 16, 16])
    """
    images = True

    def __init__(self, in_channels:int, out_channels:int, kernel_size:int=5,
                 heads:int=8, scale:str='head', boundary:str='mask',
                 init:str='published', device:torch.device|str|None=None,
                 dtype:torch.dtype|None=None):
        super().__init__(in_channels, out_channels, kernel_size, 'Z2', heads, scale,
                         boundary, init, device, dtype)

class GroupSimpleAffineSelfConv2d(AffineLayer):
    """Simple form on G, `(b, in, |H|, h, w)` to `(b, out, |H|, h, w)` (P2, Eqs 13–14).

    In words: as `SimpleAffineSelfConv2d`, in every pose h: ψ and β are moved by h, ψ has a
    slice for each relative pose of the features that it multiplies, and those of all poses
    are added.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    group : Group | str, default 'p4'
        a subgroup of D4: 'p4', 'p4m', 'mirror', …
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
    boundary : str, default 'mask'
        beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
    init : str, default 'published'
        ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4): p4, p4m, mirror, or one of your own; other groups are
    refused, as windows would have to turn between pixels.

    Cost: o·(|H|²·(i + o + 2·k² + 1) + 4·|H|·k²) multiply-accumulates for each place of the
    output; i and o are the channels of input and output (c, where they are one number), k
    is the window, |H| the order of the group.

    References
    ----------
    Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
    https://arxiv.org/abs/1911.07704

    Examples
    --------
    >>> from eqtutor.nn import GroupSimpleAffineSelfConv2d
    >>> x = torch.randn(2, 4, 8, 16, 16)
    >>> layer = GroupSimpleAffineSelfConv2d(4, 6, 3, 'p4m', heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
    simple = True

class GroupAffineSelfConv2d(AffineLayer):
    """General form on G, `(b, in, |H|, h, w)` to `(b, out, |H|, h, w)` (P2, Eqs 17–20).

    In words: as `AffineSelfConv2d`, in every pose h: ψ and β are moved by h, ψ has a slice
    for each relative pose of the keys and values that it multiplies, and those of all poses
    are added.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    group : Group | str, default 'p4'
        a subgroup of D4: 'p4', 'p4m', 'mirror', …
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
    boundary : str, default 'mask'
        beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
    init : str, default 'published'
        ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4): p4, p4m, mirror, or one of your own; other groups are
    refused, as windows would have to turn between pixels.

    Cost: o·(|H|²·(3·i + o + 2·k² + 1) + 4·|H|·k²) multiply-accumulates for each place of
    the output; i and o are the channels of input and output (c, where they are one number),
    k is the window, |H| the order of the group.

    References
    ----------
    Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
    https://arxiv.org/abs/1911.07704

    Examples
    --------
    >>> from eqtutor.nn import GroupAffineSelfConv2d
    >>> x = torch.randn(2, 4, 8, 16, 16)
    >>> layer = GroupAffineSelfConv2d(4, 6, 3, 'p4m', heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """

class LiftingAffineSelfConv2d(AffineLayer):
    """General form, image `(b, in, h, w)` to feature map on G `(b, out, |H|, h, w)`.

    In words: query, key and value of an image are taken once; in every pose h its windows
    are multiplied by ψ and shifted by β, both moved by h, and weighed by a softmax of their
    products with the query.

    Parameters
    ----------
    in_channels : int
        channels of the input
    out_channels : int
        a multiple of `heads`
    kernel_size : int, default 5
        odd
    group : Group | str, default 'p4'
        a subgroup of D4: 'p4', 'p4m', 'mirror', …
    heads : int, default 8
        that attend side by side
    scale : str, default 'head'
        of scores: 'channels' 1/out_channels, 'head' heads/out_channels, 'root' its √
    boundary : str, default 'mask'
        beyond the image: 'mask', no neighbours; 'zero', key and value 0, and their β
    init : str, default 'published'
        ψ, β ~ N(0,1); or 'conditioned': plain attention in each pose, random template
    device : torch.device | str | None, default None
        where the weights lie
    dtype : torch.dtype | None, default None
        of the weights

    Notes
    -----
    Exact for every subgroup of D(4): p4, p4m, mirror, or one of your own; other groups are
    refused, as windows would have to turn between pixels.

    Cost: o·(3·i + |H|²·o + 4·|H|·k² + |H|) multiply-accumulates for each place of the
    output; i and o are the channels of input and output (c, where they are one number), k
    is the window, |H| the order of the group.

    References
    ----------
    Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
    https://arxiv.org/abs/1911.07704

    Examples
    --------
    >>> from eqtutor.nn import LiftingAffineSelfConv2d
    >>> x = torch.randn(2, 4, 16, 16)
    >>> layer = LiftingAffineSelfConv2d(4, 6, 3, 'p4m', heads=2)
    >>> layer(x).shape
    torch.Size([2, 6, 8, 16, 16])
    """
    lifts = True

@torch.no_grad()
def attention_weights(
    layer:AffineLayer,
    f:Tensor, # the layer's input
)->Tensor:    # `(b, heads, k², h, w)`; on G `(b, heads, k², |H|, h, w)`
    """The attention weights: for each target, one number an offset; they sum to 1.

    Parameters
    ----------
    layer : AffineLayer
    f : Tensor
        the layer's input

    Returns
    -------
    Tensor
        `(b, heads, k², h, w)`; on G `(b, heads, k², |H|, h, w)`
    """
    query, key, _ = layer.terms(f)
    weights = layer.softmax(layer.key_map.scores(query, key))
    weights = rearrange(weights, 'b (n g) k y x -> b n k g y x', n=layer.heads)
    return weights[:, :, :, 0] if layer.images else weights

@torch.no_grad()
def filters_at(
    layer:AffineLayer,
    f:Tensor,    # the layer's input
    row:int,
    column:int,
)->Tensor:       # `(b, out_channels, k, k)`; on G `(b, out_channels, |H|, k, k)`
    """The filters α(x, x+Δ)·ψ(Δ) at a pixel; on G, those by which a pose reads itself.

    Parameters
    ----------
    layer : AffineLayer
    f : Tensor
        the layer's input
    row : int
    column : int

    Returns
    -------
    Tensor
        `(b, out_channels, k, k)`; on G `(b, out_channels, |H|, k, k)`
    """
    query, key, _ = layer.terms(f)
    weights = layer.softmax(layer.key_map.scores(query, key))[..., row, column]
    psi, _ = layer.value_map.psi_and_beta()
    if not layer.images: psi = psi[0]        # a = e; the other a are left out
    filters = weights[:, :, None]*psi
    return layer.value_map.join(filters.unflatten(-1, (layer.kernel_size,)*2))
