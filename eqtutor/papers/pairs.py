"""H̃ of E4, SASA, and P2's, P3's and P1's layers; the last four as the loop of chapter 25.

In P1 the code carries what is removed, α⁻, and the weight that is kept is α = 1 − α⁻.
"""
# Plain module: edited by hand, no notebook exports it.
import torch
from torch import Tensor, nn

from ..groups import Affine, Group
from ..nn.affine import AffineLayer
from ..nn.attention import StandAloneSelfAttention2d
from ..nn.attentive import AttentiveGroupConv2d
from ..nn.e4 import E4Conv2d
from ..nn.self_attention import GroupSelfAttention2d
from ..one_frame import (
    Pair,
    aggregate,
    entry,
    normalise,
    patches,
    poses,
    square,
    weighted,
)


def at_pixel(
    linear:nn.Module, # 1×1, from `(b, c, |H|, h, w)` to `(b, o, |H|, h, w)`
    patch:Tensor,     # the poses at a pixel, `(b, c·|H|)`, the own pose first
    group:Group,
)->Tensor:            # `(b, o, |H|)`, the own pose first
    """A linear map of the poses at a pixel, read in the order of the target.

    Parameters
    ----------
    linear : nn.Module
        1×1, from `(b, c, |H|, h, w)` to `(b, o, |H|, h, w)`
    patch : Tensor
        the poses at a pixel, `(b, c·|H|)`, the own pose first
    group : Group

    Returns
    -------
    Tensor
        `(b, o, |H|)`, the own pose first
    """
    return linear(patch.unflatten(1, (-1, len(group)))[..., None, None])[..., 0, 0]

def e4_pair(
    layer:E4Conv2d, # as printed: `norm='none'`
)->Pair:            # of lists X, Y: `patches` of all poses
    """H̃ of E4 (P4, Eqs 11, 12).

    Parameters
    ----------
    layer : E4Conv2d
        as printed: `norm='none'`

    Returns
    -------
    Pair
        of lists X, Y: `patches` of all poses
    """
    W2, bias = layer.generate.weight, layer.generate.bias
    def pair(n:Affine, X:Tensor, Y:Tensor|None)->Tensor|int:
        if Y is None: return 0
        i, j = entry(n, layer.kernel_size)
        v = i*layer.kernel_size + j
        # entry 0 is the target's own pose
        hidden = at_pixel(layer.generate.squeeze, X, layer.group)[..., 0].relu()
        values = at_pixel(layer.encode, Y, layer.group)[..., 0]
        K = hidden @ W2[v].T + (0 if bias is None else bias[v])
        return K.repeat_interleave(values.shape[1]//layer.slices, 1)*values
    return pair

def sasa_pair(
    layer:StandAloneSelfAttention2d,
)->Pair: # of feature maps on Z2
    """SASA's H̃: before `normalise` by head, and the output map.

    Returns
    -------
    Pair
        of feature maps on Z2
    """
    maps, encoding, size = layer.maps, layer.relative, layer.relative.rows.shape[-1]
    def by_head(linear:nn.Module, z:Tensor)->Tensor:
        return linear(z[..., None, None])[..., 0, 0].unflatten(1, (maps.heads, -1))
    def pair(n:Affine, a:Tensor, b:Tensor|None)->Tensor|int:
        if b is None and layer.boundary == 'mask': return 0
        (i, j), q = entry(n, size), by_head(maps.query, a)*maps.scale
        k = v = torch.zeros_like(q)
        if b is not None: k, v = by_head(maps.key, b), by_head(maps.value, b)
        rho = torch.cat([encoding.rows[..., i], encoding.columns[..., j]], 1)
        return weighted((q*(k + rho)).sum(-1).exp(), v)
    return pair

def affine_pair(
    layer:AffineLayer, # on G
)->Pair:               # of lists X, Y: `patches` of all poses
    """H̃ of affine self-convolution: before `normalise` by head, and the output map.

    Parameters
    ----------
    layer : AffineLayer
        on G

    Returns
    -------
    Pair
        of lists X, Y: `patches` of all poses
    """
    simple, centre = layer.simple, ((0., 0.), 0)
    def mapped(role:str, patch:Tensor|None, n:Affine)->Tensor:
        A = layer.affine if simple else getattr(layer, f'affine_{role}')
        linear = layer.embed if simple else getattr(layer, role)
        i, j = entry(n, A.kernel_size)
        shift = A.beta[:, i, j]
        if patch is None: return shift.unflatten(0, (layer.heads, -1))[None]
        u = (at_pixel(linear, patch, layer.group)*A.psi[..., i, j]).sum(-1)
        return (u + shift).unflatten(1, (layer.heads, -1))
    def pair(n:Affine, X:Tensor, Y:Tensor|None)->Tensor|int:
        if Y is None and layer.boundary == 'mask': return 0
        q = mapped('query', X, centre)*layer.scale
        k, v = mapped('key', Y, n), mapped('value', Y, n)
        return weighted((q*k).sum(-1).exp(), v)
    return pair

def gsa_pair(
    layer:GroupSelfAttention2d,
)->Pair: # of lists X, Y: `patches` of all poses
    """H̃ of group self-attention: before `normalise` by (t, head), and the sum over t.

    Returns
    -------
    Pair
        of lists X, Y: `patches` of all poses
    """
    H, d = layer.group, layer.head_channels
    k, encoder = layer.window, layer.encoder
    if k is None or encoder is None:
        raise ValueError('expected a layer with a window and with positional encodings')
    # encodings as the own pose sees them
    P, E = encoder((k//2, k//2))[:, 0], encoder.poses()
    def by_head(linear:nn.Module, u:Tensor)->Tensor:
        return linear(u).unflatten(-1, (-1, d))
    def pair(n:Affine, X:Tensor, Y:Tensor|None)->Tensor|int:
        if Y is None: return 0
        (i, j), r = entry(n, k), n[1]
        b = Y.unflatten(1, (-1, len(H)))[..., 0]                    # pose hr
        q = by_head(layer.query, X.unflatten(1, (-1, len(H))).mT)
        key, v = (by_head(m, b)[:, None] for m in (layer.key, layer.value))
        rho = P[i*k + j] + E[H.relative[:, r]][:, None]  # ρ(v) + ε(t⁻¹r)
        s = (q*(key + rho)).sum(-1)*layer.in_channels**-.5
        return weighted(s.exp().flatten(1), v.expand(-1, len(H), -1, -1).flatten(1, 2))
    return pair

def removed_field(
    layer:AttentiveGroupConv2d, # full attention
    f:Tensor,                   # feature map on G, `(b, i, |H|, h, w)`
)->Tensor:                      # `(b, o·i·|H|, |H|, h, w)`
    """P1's α⁻ as seen from each target: entry r is for sources in the pose hr.

    Parameters
    ----------
    layer : AttentiveGroupConv2d
        full attention
    f : Tensor
        feature map on G, `(b, i, |H|, h, w)`

    Returns
    -------
    Tensor
        `(b, o·i·|H|, |H|, h, w)`
    """
    H, h = layer.group, torch.arange(len(layer.group))[:, None]
    channel, spatial = layer.factors(f)
    if channel is None or spatial is None: raise ValueError("expected attend='full'")
    return torch.einsum('boihr,bohryx->boirhyx', channel[..., h, H.mul],
                        spatial[:, :, h, H.mul]).flatten(1, 3)

def attentive_pair(
    layer:AttentiveGroupConv2d, # full attention
)->Pair:                        # of f and `removed_field` side by side
    """H̃ of attentive group convolution (P1, Eq. 14).

    Parameters
    ----------
    layer : AttentiveGroupConv2d
        full attention

    Returns
    -------
    Pair
        of f and `removed_field` side by side
    """
    shape = layer.out_channels, layer.in_channels, len(layer.group)
    def pair(n:Affine, a:Tensor, b:Tensor|None)->Tensor|int:
        if b is None: return 0
        i, j = entry(n, layer.kernel_size)
        kept = 1 - a[:, shape[1]:].unflatten(1, shape)[..., n[1]]
        W, source = layer.weight[:, :, n[1], i, j], b[:, :shape[1]]
        return torch.einsum('oi,boi,bi->bo', W, kept, source)
    return pair


# --- the layers, one slow loop each

def looped_sasa(layer:StandAloneSelfAttention2d, f:Tensor)->Tensor:
    "SASA of a feature map on Z2: the loop, the division by head, the output map."
    k = layer.relative.rows.shape[-1]
    y = normalise(aggregate(f, sasa_pair(layer), 'Z2', square(k)), layer.maps.heads)
    return layer.out(y[:, :, 0])[:, :, None]

def looped_affine(layer:AffineLayer, f:Tensor)->Tensor:
    "Affine self-convolution on G: the same, of the lists of all poses at a pixel."
    group, A = layer.group, layer.affine if layer.simple else layer.affine_key
    lists, N = patches(f, group, poses(group)), square(A.kernel_size)
    return layer.out(normalise(aggregate(lists, affine_pair(layer), group, N), layer.heads))

def looped_gsa(layer:GroupSelfAttention2d, f:Tensor)->Tensor:
    "Group self-attention: divided for each query pose t, and added over t."
    group, n = layer.group, len(layer.group)
    lists, N = patches(f, group, poses(group)), square(layer.window, group)
    y = normalise(aggregate(lists, gsa_pair(layer), group, N), n*layer.heads)
    return layer.out(y.unflatten(1, (n, -1)).sum(1).movedim(1, -1)).movedim(-1, 1)

def looped_attentive(layer:AttentiveGroupConv2d, f:Tensor)->Tensor:
    "P1's full attention: the loop over f and α⁻ side by side."
    both, N = torch.cat([f, removed_field(layer, f)], 1), square(layer.kernel_size, layer.group)
    return aggregate(both, attentive_pair(layer), layer.group, N)
