"""From a group to a subgroup: what feature maps and layers on G are to fewer turns (chapter 68)."""
# Plain module: edited by hand, no notebook exports it.

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..actions import reversed_axes
from ..groups import Group, Subgroup, cosets, get_group
from .convolution import EquivariantConv2d


def subgroup_of(
    group:Group|str|None, # the whole; None: the one that a `Subgroup` knows
    subgroup:Group|str|Sequence[int],
)->Subgroup:
    "A subgroup that knows its whole group."
    if group is not None: return Subgroup(group, subgroup)
    if isinstance(subgroup, Subgroup): return subgroup
    raise ValueError('a subgroup of which group? Say group=…, the one whose poses come '
                     'in, or give group.subgroup(…)')


def ordered_cosets(part:Subgroup)->Tensor:
    """A column for each left coset hK, `(|K|, |H|/|K|)`: in the order of the complement, if there
    is one."""
    sets = cosets(part.whole, part.embedding)
    if part.complement is not None:
        sets = [next(s for s in sets if h in s) for h in part.complement.embedding]
    return torch.tensor(sets).T


def restrict_map(
    group:Group|str,
    subgroup:Group|str|Sequence[int],
    f:Tensor,
)->Tensor:
    """A feature map on G as one on a subgroup: `(b, c, |H|, h, w)` to `(b, c·|H|/|K|, |K|, h, w)`.

    Nothing is lost: each right coset Kt of the poses becomes a channel, the cosets of one
    channel beside each other. An element of K moves the result as a feature map on K.

    Parameters
    ----------
    group : Group | str
        H, whose poses `f` has
    subgroup : Group | str | Sequence[int]
        K: its elements, or a group or its name
    f : Tensor
        feature map `(b, c, |H|, h, w)`, or vector on H `(b, c, |H|)`

    Examples
    --------
    >>> restrict_map('p4m', 'p4', torch.randn(1, 3, 8, 9, 9)).shape
    torch.Size([1, 6, 4, 9, 9])
    """
    part = get_group(group).subgroup(subgroup)
    if f.ndim not in (3, 5) or f.shape[2] != len(part.whole):
        raise ValueError(f'expected a feature map (b, c, |H|, h, w) or a vector on H with |H| = '
                         f'{len(part.whole)} for {part.whole.name}, got {tuple(f.shape)}')
    return f[:, :, part.right_cosets.to(f.device)].flatten(1, 2)


@torch.no_grad()
def restrict(
    layer:EquivariantConv2d,
    subgroup:Group|str|Sequence[int],
)->EquivariantConv2d:
    """The same layer as one on a subgroup, with |H|/|K| times the channels where it has poses.

    What it computes is equal: `restrict(layer, K)(restrict_map(G, K, f))` is
    `restrict_map(G, K, layer(f))`, without the map where an end has no poses. Its weights are its
    own: trained further, it keeps the symmetry of the subgroup alone.

    Parameters
    ----------
    layer : EquivariantConv2d
        lifting, on G, or projection, of pictures or of arrows
    subgroup : Group | str | Sequence[int]
        K: its elements, or a group or its name; one that keeps the pixel grid

    Examples
    --------
    >>> restrict(GroupConv2d(3, 4, 3, 'p4m'), 'p4')
    GroupConv2d(6, 8, kernel_size=3, group=C4, stride=1, padding=0, dilation=1, bias=True)
    """
    if getattr(type(layer), 'forward', None) is not EquivariantConv2d.forward:
        raise ValueError('restrict takes one convolution with a bank of filters (LiftingConv2d, '
                         'GroupConv2d, ProjectionConv2d and those of arrows), '
                         f'got {type(layer).__name__}')
    part:Subgroup = layer.group.subgroup(subgroup)
    if not part.is_grid:
        raise ValueError(f'{part.name} turns filters between pixels, where to turn twice is not '
                         'to turn once by both: restrict to a subgroup of D4, such as p4')
    cosets, n = part.right_cosets, len(layer.group)//len(part)     # (t, κ) -> κt
    bank = layer.filters()   # entry (o, h), (i, q) is 𝓛_h W[o, i, h⁻¹q]
    bank = bank.unflatten(1, (-1, layer.in_poses)).unflatten(0, (-1, layer.out_poses))
    if not layer.projects: bank = bank[:, cosets[:, 0]]            # h = t
    if layer.projects: bank = bank[:, :, :, cosets[:, 0]]          # q = t
    elif not layer.lifts: bank = bank[:, :, :, cosets]             # q = κt
    weight = bank.flatten(2, 3).flatten(0, 1)
    small = copy.deepcopy(layer)
    small.group, small.axes = part, reversed_axes(part)
    small.weight = nn.Parameter(weight, layer.weight.requires_grad)
    if not layer.lifts: small.in_channels, small.in_poses = layer.in_channels*n, len(part)
    if not layer.projects:
        small.out_channels, small.out_poses = layer.out_channels*n, len(part)
        if layer.bias is not None:
            small.bias = nn.Parameter(layer.bias.repeat_interleave(n), layer.bias.requires_grad)
    small.make_tables()
    return small
