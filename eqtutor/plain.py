"""Layers and operators of ours in their plain form: operations of torch that any program knows,
nothing in place, for any number of images. Exporters write this form down."""
# Plain module: edited by hand, no notebook exports it.

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from .kernels.windows import shifted
from .nn.attentive import PairAttention, filters_by_pair
from .nn.self_attention import EquivariantSelfAttention2d
from .trace import function_name

FORMS:dict[type[nn.Module]|str, Callable] = {}


def plain_form(
    *kinds:type[nn.Module]|str, # classes of layers, names of operators of ours
)->Callable[[Callable], Callable]:
    "Register a plain form: a function of the layer or operator, and of what it is called with."
    def register(form:Callable)->Callable:
        FORMS.update(dict.fromkeys(kinds, form))
        return form
    return register


def find_plain_form(
    function:Any, # a layer, an operator, or anything else that a network calls
)->Callable|None:
    "Its plain form; None for what is plain as it is, or made of what has one."
    if isinstance(function, nn.Module):
        return next((FORMS[c] for c in type(function).__mro__ if c in FORMS), None)
    if not str(function).startswith('eqtutor.'): return None
    return FORMS.get(function_name(function))


@plain_form('window_form')
def window_form(
    operator:Callable,
    by:str,               # 'target' or 'weights': what the sum over the window gives
    window:Sequence[int], # kernel size, dilation, …
    *rest:Any,            # …, weights, scale, values, target
)->Tensor:
    "Sums over the shifted views of one padded copy (chapter 51)."
    weights, scale, values, target = rest[-4:]
    sources = [*window, *rest[:-4]][-1]
    views = shifted(values, window[0], window[1])
    if scale is not None: views = [view*scale[:, :, i] for i, view in enumerate(views)]
    if by == 'target':
        if sources > 1: views = [view.unflatten(2, (sources, -1)).sum(2) for view in views]
        total = weights[:, :, 0, None]*views[0]
        for i, view in enumerate(views[1:], 1): total = total + weights[:, :, i, None]*view
        return total
    if by == 'weights':
        if sources > 1: target = target.repeat(1, 1, sources, *[1]*(target.ndim - 3))
        return torch.stack([(target*view).sum(2) for view in views], 2)
    raise ValueError(f'a window has a plain form by target and by weights, got {by!r}: '
                     'a backward pass is not exported')


@plain_form(PairAttention)
def pair_attention(
    m:PairAttention,
    filters:Tensor,      # of the convolution, `(q, i, o, h, k, k)`
    x:Tensor,            # planes `(b, q, i, y, x)`
    chunk:int|None=None, # has no meaning here
)->Tensor:               # `(b, o·h, y, x)`
    "What attention removes (P1, Eqs 16–19), one filter after the other."
    weighed = rearrange(filters, 'q i o h ky kx -> q i (o h) (ky kx)')
    patches, size, n = m.window.unfold(x), m.window.out_size(x), weighed.shape[2]
    def products()->list[Tensor]:
        "Of all patches with each filter, `(b, q, i, places)`."
        return [(weighed[..., f, None, :] @ patches).squeeze(-2) for f in range(n)]
    if m.channel is not None:
        mean, top = zip(*((z.mean(-1), z.amax(-1)) for z in products()))
        alpha = m.channel(torch.stack(mean, -1), torch.stack(top, -1), slice(None))
        weighed = alpha[..., None]*weighed
    if m.spatial is None:
        filters = rearrange(weighed, 'b q i n p -> b n (q i p)')
        places = rearrange(patches, 'b q i p places -> b (q i p) places')
        return (filters @ places).unflatten(-1, size)
    both = zip(*((z.sum(2), z.amax(2)) for z in products()))
    total, top = (torch.stack(z, 2).unflatten(-1, size) for z in both)      # b q n y x
    banks = rearrange(filters_by_pair(m.spatial), 'q s o h ky kx -> s (q o h) 1 ky kx')
    scores = [F.conv2d(planes.flatten(1, 2), w, None, 1, m.dilation*(w.shape[-1]//2), m.dilation,
                       len(w)) for planes, w in zip((total/x.shape[2], top), banks)]
    return ((scores[0] + scores[1]).sigmoid().unflatten(1, (-1, n))*total).sum(1)


@plain_form(EquivariantSelfAttention2d)
def self_attention(
    m:EquivariantSelfAttention2d,
    f:Tensor, # image `(b, c, h, w)` for lifting, else `(b, c, |H|, h, w)`
)->Tensor:    # feature map on G, `(b, out_channels, |H|, h, w)`
    "Two softmaxes, over offsets and over source poses (Definition 23.7), tile by tile."
    # axes as in chapter 53: b images, n heads, g tiles, t queries of a tile, s, r, q poses of
    # queries, targets and sources, k keys of a tile, d channels
    plan = m.plan(f.shape)
    table, poses = m.offset_vectors(plan.reach), m.pose_vectors()
    query, pairs = m.queries_keys_values(f[:, :, None] if m.lifts else f, plan.crop, plan.padding)
    (h, w), (ty, tx), (rows, columns) = query.shape[3:5], plan.tile, plan.extent

    def attend(query:Tensor, pairs:Tensor, corners:Sequence[tuple[int, int]], first:int)->Tensor:
        "`(b, n, g, t, s, d)` and `(b, n, g, q, k, 2d)`, keys from `first` on, to values."
        def places(y:range, x:range)->Tensor:
            return torch.cartesian_prod(torch.tensor([*y]), torch.tensor([*x])).to(f.device)
        height, width = query.shape[3]//w if plan.radius is None else ty, tx
        asking = places(range(height), range(width))
        keys = places(range(first, first + rows), range(first, first + columns))
        start = torch.tensor([*corners], device=f.device)[:, None, None]
        if plan.radius is None: offset = keys - plan.crop - asking[:, None] - start[0]
        else: offset = keys - asking[:, None]                                       # t k 2
        reach = torch.tensor(plan.reach, device=f.device)
        near = (offset.abs() <= reach).all(-1)
        index = ((offset + reach)*torch.tensor([2*plan.reach[1] + 1, 1], device=f.device)).sum(-1)
        offsets = table[index.where(near, 0)]                                       # t k r d
        inside = near[None]
        if plan.radius is not None:
            at = plan.crop + keys + start                                           # g 1 k 2
            inside = near & ((at >= 0) & (at < torch.tensor(f.shape[-2:]).to(at))).all(-1)
        bias = query.new_zeros(()).where(inside, -torch.inf)[:, :, None]            # g t 1 k
        key, value = pairs.chunk(2, -1)
        content = torch.einsum('bngtsd,bngqkd->bngtsqk', query, key)
        targets = offsets.split(1, 2) if len(poses) > 1 else [offsets]
        ys = []
        for pose, some in zip(poses, targets):
            c = content + torch.einsum('bngtsd,sqd->bngtsq', query, pose)[..., None]
            position = torch.einsum('bngtsd,tkrd->bngtsrk', query, some)
            over_offsets = (position + (c.logsumexp(5) + bias)[:, :, :, :, :, None]).softmax(-1)
            mixed = torch.einsum('bngtsrk,bngtsqk->bngtrqk', over_offsets, c.softmax(5))
            ys.append(torch.einsum('bngtrqk,bngqkd->bngtrd', mixed, value))
        return torch.cat(ys, 4) if len(ys) > 1 else ys[0]

    if plan.radius is None:         # the whole image around each query: some rows at a time
        pairs = rearrange(pairs, 'b n q y x d -> b n 1 q (y x) d')
        strips = [attend(rearrange(query[:, :, :, i:i + ty], 'b n s y x d -> b n 1 (y x) s d'),
                         pairs, [(i, 0)], 0) for i in range(0, h, ty)]
        y = rearrange(torch.cat(strips, 3), 'b n 1 (y x) r d -> b r y x (n d)', x=w)
    else:
        corners = [(i, j) for i in range(0, h, ty) for j in range(0, w, tx)]
        query = rearrange(query, 'b n s (gy ty) (gx tx) d -> b n (gy gx) (ty tx) s d', ty=ty, tx=tx)
        pairs = pairs.unfold(3, rows, ty).unfold(4, columns, tx)
        pairs = rearrange(pairs, 'b n q gy gx d ky kx -> b n (gy gx) q (ky kx) d')
        y = attend(query, pairs, corners, -plan.radius)
        y = rearrange(y, 'b n (gy gx) (ty tx) r d -> b r (gy ty) (gx tx) (n d)', gy=h//ty, ty=ty)
    y = m.out(y.to(m.out.weight.dtype)).movedim(-1, 1)
    return y if y.shape[2] == len(m.group) else y.repeat(1, 1, len(m.group), 1, 1)
