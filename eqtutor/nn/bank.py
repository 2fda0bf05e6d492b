"""What a layer with a bank of moved filters needs beside its equation: its arguments checked, its
windows and its padding, a start, its cost, its name in print (chapter 05)."""
# Plain module: edited by hand, no notebook exports it.

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..actions import check_exact, reversed_axes
from ..core import (
    PADDING_MODES,
    IndexTables,
    check_divides,
    check_input,
    check_positive,
    each_pose,
    filter_matrices,
    one_of,
    pad_sides,
    same_padding,
    shown_group,
    square_sizes,
)
from ..groups import Group, get_group


class BankLayer(IndexTables):
    "A layer of windows whose filters a group moves. A class says what its weights and tables are."
    lifts, projects = False, False   # does the input, the output, lack the poses?
    weight:nn.Parameter              # `(o, i/groups, k, k)`, or `(o, i/groups, |H|, k, k)`
    bias:nn.Parameter|None           # `(o)`

    def __init__(self,
        in_channels:int,
        out_channels:int,
        kernel_size:int,      # windows are square; a pair (3, 3) will do
        group:Group|str,
        stride:int,
        padding:int|str,      # pixels, 'same' or 'valid'
        dilation:int,
        strict:bool,          # raise where the stride breaks the symmetry, or warn
        groups:int,           # blocks of channels that do not hear of each other
        padding_mode:str,     # of `PADDING_MODES`
    ):
        super().__init__()
        kernel_size, stride, padding, dilation = square_sizes(
            kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)
        sizes = dict(in_channels=in_channels, out_channels=out_channels)
        check_positive(**sizes, kernel_size=kernel_size, stride=stride, dilation=dilation,
                       groups=groups)
        check_divides('groups', groups, **sizes)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding = same_padding(padding, kernel_size, dilation)
        self.padding_mode = one_of(padding_mode, *PADDING_MODES)
        self.groups, self.strict = groups, strict
        self.group = get_group(group)
        self.axes = reversed_axes(self.group)
        self.in_poses = 1 if self.lifts else len(self.group)
        self.out_poses = 1 if self.projects else len(self.group)

    def make_weights(self,
        bias:bool,                       # one per output channel, shared over the group
        device:torch.device|str|None,    # where they lie
        dtype:torch.dtype|None,
    )->None:
        "Room for the weights: a slice for each pose where both ends have poses, else one."
        k, n = self.kernel_size, len(self.group)
        slices = () if self.lifts or self.projects else (n,)
        shape = self.out_channels, self.in_channels//self.groups, *slices, k, k
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        zeros = torch.zeros(self.out_channels, device=device, dtype=dtype)
        self.bias = nn.Parameter(zeros) if bias else None

    def reset_parameters(self)->None:
        "Start so that the signal keeps its size under ReLU (He et al. 2015)."
        energy:float = self.kernel_size**2
        if not self.group.is_grid:    # what the rings leave of a filter
            energy = self.originals['turns'].pow(2).sum().item()/len(self.group)
        terms = self.in_channels//self.groups*self.in_poses*energy
        nn.init.normal_(self.weight, std=(2/terms)**.5)

    def turning(self)->dict[str, Tensor]:
        "The table that moves filters between pixels, for a group off the grid; none on the grid."
        if self.group.is_grid: return {}
        return dict(turns=filter_matrices(self.group, self.kernel_size))

    def entries(self)->Tensor:
        "W by the numbers of `moved_entries`: `(|H|·k², o·i)`, off the grid all its moved copies."
        w = self.weight.flatten(2).flatten(0, 1).mT    # slice and pixel, channels
        if 'turns' not in self.originals: return w
        w = w.unflatten(0, (-1, self.kernel_size**2))
        return torch.einsum('hpr,sro->hspo', self.table('turns', w), w).flatten(0, 2)

    def check(self,
        x:Tensor,
    )->None:
        "Raise a `ValueError` that says what to do, unless the layer takes `x` and is exact on it."
        check_input(x, self.in_channels, None if self.lifts else self.group, type(self).__name__)
        check_exact(x, self.group, self.kernel_size, self.stride, self.padding, self.dilation,
                    self.strict, self.axes)

    def conv2d(self,
        x:Tensor,       # `(b, i·|H|, height, width)`
        filters:Tensor, # the bank `(o·|H|, i/groups·|H|, k, k)`
    )->Tensor:          # `(b, o·|H|, height, width)`
        "`F.conv2d` with the layer's windows and padding, and its bias for all poses alike."
        bias:Tensor|None = self.bias
        if bias is not None: bias = each_pose(bias, self.out_poses)
        padding = self.padding                # by conv2d, or before it
        if self.padding_mode != 'zeros': x, padding = pad_sides(x, padding, self.padding_mode), 0
        return F.conv2d(x, filters, bias, self.stride, padding, self.dilation, self.groups)

    def macs(self,
        x_shape:tuple[int, ...], # of the input
        y_shape:tuple[int, ...], # of the output
    )->int:
        "Multiply-accumulates of a forward pass (P1 §2.2.2, P4 §4.2)."
        window = self.in_channels//self.groups*self.in_poses*self.kernel_size**2
        places = y_shape[-2]*y_shape[-1]
        total = x_shape[0]*self.out_channels*self.out_poses*window*places
        if self.group.is_grid: return total
        turning = len(self.group)*self.weight.numel()*self.kernel_size**2
        return total + turning

    def extra_repr(self)->str:
        return (f'{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, '
                f'group={shown_group(self.group)}, stride={self.stride}, '
                f'padding={self.padding}, dilation={self.dilation}, bias={self.bias is not None}'
                + (f', groups={self.groups}' if self.groups > 1 else '')
                + ('' if self.padding_mode == 'zeros' else
                   f', padding_mode={self.padding_mode!r}'))
