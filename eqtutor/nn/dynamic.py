"""Kernels that are written from features, what applies them, and what an E4 layer is checked for
(chapter 24)."""
# Plain module: edited by hand, no notebook exports it.

from math import prod

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from ..core import (
    PADDING_MODES,
    FiltersOfFiveAxes,
    IndexTables,
    check_divides,
    check_grid,
    check_ignored,
    check_input,
    check_odd,
    check_positive,
    filter_index,
    one_of,
    pad_sides,
    square_sizes,
)
from ..groups import Group, get_group
from ..kernels.windows import window_sum
from .convolution import GroupConv2d
from .layers import GroupBatchNorm2d, GroupLayerNorm2d

# axes: b images, c channels, g poses, h rows, w columns, s slices, v offsets of a
# window, m features from which the kernels are written


class PerElementNorm(nn.GroupNorm):
    """The norm of the published E4 code: exact at the start, not once it is trained.

    Parameters
    ----------
    channels : int
        each has a scale and a shift *for each pose*
    group : Group | str
    """
    def __init__(self, channels:int, group:Group|str):
        super().__init__(channels, channels*len(get_group(group)))

    def forward(self, f:Tensor)->Tensor:
        return super().forward(f.flatten(1, 2)).view(f.shape)


def writer_norm(name:str, channels:int, group:Group)->nn.Module:
    "What stands between the two maps that write a kernel, by its name."
    one_of(name, 'instance', 'batch', 'layer', 'none', 'published')
    # over (|H|, h, w): scale and shift are a channel's, shared over H
    if name == 'instance': return nn.GroupNorm(channels, channels)
    if name == 'batch': return GroupBatchNorm2d(channels)
    if name == 'layer': return GroupLayerNorm2d(channels)
    if name == 'published': return PerElementNorm(channels, group)
    return nn.Identity()


# --- maps of the features at one pixel

def pose_map(in_channels:int, out_channels:int, group:Group, concat:bool)->nn.Module:
    "A linear map at each pixel: of each pose, or of all, a 1×1 group convolution."
    if concat: return GroupConv2d(in_channels, out_channels, 1, group, bias=False)
    own = nn.Conv3d(in_channels, out_channels, 1, bias=False)
    # as the group convolution begins, so that the two can be compared
    nn.init.normal_(own.weight, std=(2/in_channels)**.5)
    return own

def at_each_pixel(pose_map:nn.Module, f:Tensor)->Tensor:
    "A pose map as a matrix product: a compiler fuses that with its surroundings."
    if not isinstance(pose_map, GroupConv2d): return pose_map(f)
    matrix = pose_map.filters()[..., 0, 0].expand(f.shape[0], -1, -1)
    y = torch.bmm(matrix, f.flatten(1, 2).flatten(2))
    return y.view(f.shape[0], pose_map.out_channels, *f.shape[2:])

def size_of(pose_map:nn.Module)->int:
    "Multiply-accumulates at one place and pose: each of its weights once."
    return sum(p.numel() for p in pose_map.parameters())


class KernelGenerator(IndexTables):
    """Features `(b, c, |H|, h, w)` to kernels there, `(b, slices, k², |H|, h, w)`.

    Parameters
    ----------
    in_channels : int
    kernel_size : int
        odd
    group : Group | str
        a subgroup of D(4), or its name
    slices : int, default 2
        different kernels at a place
    reduction : int, default 1
        in_channels/reduction features remain to write from
    concat : bool, default True
        read all poses, or one's own
    norm : str, default 'instance'
        before the ReLU: 'instance', 'batch', 'layer', 'none' (as printed) or
        'published' (breaks once trained)
    bias : bool, default True
        of W₂: a fixed kernel that is added to the written one
    """
    def __init__(self, in_channels:int, kernel_size:int, group:Group|str, slices:int=2,
                 reduction:int=1, concat:bool=True, norm:str='instance', bias:bool=True):
        super().__init__()
        check_odd(kernel_size=kernel_size)
        check_positive(in_channels=in_channels, slices=slices, reduction=reduction)
        check_divides('reduction', reduction, in_channels=in_channels)
        self.group = get_group(group)
        check_grid(self.group, 'would turn the kernels that are written between pixels')
        self.in_channels, self.kernel_size = in_channels, kernel_size
        self.slices, features, k2 = slices, in_channels//reduction, kernel_size**2
        self.squeeze = pose_map(in_channels, features, self.group, concat)
        self.norm, self.relu = writer_norm(norm, features, self.group), nn.ReLU()
        # k² factors of variance 1/k²: the sum keeps its size
        start = torch.randn(k2, slices, features)*(2/features)**.5/kernel_size
        self.weight = nn.Parameter(start)
        self.bias = nn.Parameter(torch.zeros(k2, slices)) if bias else None
        self.make_tables()

    def tables(self)->dict[str, Tensor]:
        "`(|H|, k²)`: the rows of W₂ as 𝓛_h moves them."
        return dict(moved=filter_index(self.group, self.kernel_size))

    def forward(self, f:Tensor)->Tensor:
        "The kernels as laid: entry Δ is for what lies at x + Δ."
        check_input(f, self.in_channels, self.group, type(self).__name__)
        (b, _, g, h, w), moved = f.shape, self.table('moved', self.weight)
        z = self.relu(self.norm(at_each_pixel(self.squeeze, f)))
        z = rearrange(z, 'b m g h w -> (b g) m (h w)')
        W2 = repeat(self.weight[moved], 'g v s m -> (b g) (s v) m', b=b)
        fixed = W2.new_zeros(1, 1, 1)
        if self.bias is not None:
            fixed = repeat(self.bias[moved], 'g v s -> (b g) (s v) 1', b=b)
        laid = torch.baddbmm(fixed, W2, z)    # one product for each image and pose
        return rearrange(laid, '(b g) (s v) (h w) -> b s v g h w',
                         g=g, s=self.slices, h=h, w=w)

    def macs(self, x_shape:tuple[int, ...], y_shape:tuple[int, ...])->int:
        """Multiply-accumulates of a forward pass: both maps, at each place and pose.

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the input
        y_shape : tuple[int, ...]
            of the output
        """
        places = x_shape[0]*x_shape[2]*x_shape[3]*x_shape[4]
        return places*(size_of(self.squeeze) + self.weight.numel())


class E4Described(FiltersOfFiveAxes):
    "What an E4 layer says of itself: what it multiplies, and how it is printed."
    in_channels:int
    out_channels:int
    kernel_size:int
    dilation:int
    slices:int
    group:Group
    concat:str
    padding_mode:str
    generate:KernelGenerator
    encode:nn.Module

    def macs(self, x_shape:tuple[int, ...], y_shape:tuple[int, ...])->int:
        """Multiply-accumulates of a forward pass (P4 §4.2).

        Parameters
        ----------
        x_shape : tuple[int, ...]
            of the input
        y_shape : tuple[int, ...]
            of the output
        """
        at_each = size_of(self.encode) + self.kernel_size**2*self.out_channels
        return prod(y_shape)//y_shape[1]*at_each + self.generate.macs(x_shape, y_shape)

    def extra_repr(self)->str:
        mode = '' if self.padding_mode == 'zeros' else self.padding_mode
        return (f'{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, '
                f'group={self.group.name}, slices={self.slices}, concat={self.concat!r}, '
                f'dilation={self.dilation}' + (mode and f', padding_mode={mode!r}'))


# --- what an E4 layer adds up, and what it refuses

def sum_under_kernels(
    kernels:Tensor,    # as laid, `(b, slices, k², |H|, h, w)`
    values:Tensor,     # `(b, c, |H|, h, w)`, c/slices channels for each kernel
    kernel_size:int,
    dilation:int,
    padding_mode:str,  # of the values beyond the rim
)->Tensor:             # `(b, c, |H|, h, w)`
    "At each place, what lies under the kernel there, weighted by it."
    values = values.unflatten(1, (kernels.shape[1], -1))
    frame = dilation*(kernel_size//2)
    if padding_mode == 'zeros' or not frame:
        return window_sum(kernels, values, kernel_size, dilation=dilation).flatten(1, 2)
    # beyond the rim there are values, and no kernels that write
    y = window_sum(F.pad(kernels, [frame]*4), pad_sides(values, frame, padding_mode),
                   kernel_size, dilation=dilation)
    return y[..., frame:-frame, frame:-frame].flatten(1, 2)

def without(
    ignored:Tensor|None, # bool `(b, h, w)`: places that nobody adds up
    values:Tensor,       # `(b, c, |H|, h, w)`
    norm:str,            # of the kernel generator
)->Tensor:
    "The values, with zeros at the places to ignore."
    if ignored is None: return values
    check_ignored(ignored, values)
    if norm in ('layer', 'none'): return values.masked_fill(ignored[:, None, None], 0.)
    raise ValueError(f'norm={norm!r} of the kernel generator takes means over '
                     'all places, those to ignore among them: a layer with '
                     "norm='layer' or 'none' can leave places out")

def checked_window(
    kernel_size:int,
    dilation:int,
    padding:int|str,
    padding_mode:str,
    out_channels:int,
    slices:int,
)->tuple[int, int]:
    "Window and dilation of an E4 layer, each as one number; a `ValueError` says what does not fit."
    kernel_size, dilation, padding = square_sizes(
        kernel_size=kernel_size, dilation=dilation, padding=padding)
    one_of(padding_mode, *PADDING_MODES)
    check_positive(out_channels=out_channels, slices=slices, dilation=dilation)
    check_odd(kernel_size=kernel_size)
    check_divides('slices', slices, out_channels=out_channels)
    if padding is True or padding not in ('same', dilation*(kernel_size//2)):
        raise ValueError("E4Conv2d keeps the size of the image: expected padding='same', "
                         f'got {padding!r}; crop the output, or pool')
    return kernel_size, dilation
