from einops import rearrange
import torch
from torch import Tensor
from ..groups import Group
from .convolution import EquivariantConv2d
def check_arrows(
    groups:int=1,  # blocks of channels, each of whole arrows
    **channels:int, # by the name to use in the message
)->None:
    "Raise a `ValueError` unless the channels are whole arrows, two each, in every block."
    for name, n in channels.items():
        if n % (2*groups) == 0: continue
        blocks = f' in each of {groups} blocks' if groups > 1 else ''
        raise ValueError(f'an arrow has two channels: expected an even {name}{blocks}, '
                         f'got {n}')
class VectorLiftingConv2d(EquivariantConv2d):
    lifts = True
    def __init__(self, in_channels, out_channels, kernel_size, group, **options):
        super().__init__(in_channels, out_channels, kernel_size, group, **options)
        check_arrows(self.groups, in_channels=in_channels)
    def tables(self): return super().tables() | dict(arrows=self.group.matrices)
    def filters(self):
        w = rearrange(super().filters(), '(o h) (i d) ky kx -> h d (o i ky kx)', h=len(self.group), d=2)
        w = self.table('arrows', w) @ w
        return rearrange(w, 'h d (o i ky kx) -> (o h) (i d) ky kx', o=self.out_channels, ky=self.kernel_size, kx=self.kernel_size)
class VectorProjectionConv2d(EquivariantConv2d):
    projects = True
    def __init__(self, in_channels, out_channels, kernel_size, group, **options):
        super().__init__(in_channels, out_channels, kernel_size, group, bias=False, **options)
        check_arrows(self.groups, out_channels=out_channels)
    def tables(self): return super().tables() | dict(arrows=self.group.matrices)
    def filters(self):
        w = rearrange(super().filters(), '(o d) (i q) ky kx -> q d (o i ky kx)', q=len(self.group), d=2)
        w = self.table('arrows', w) @ w
        return rearrange(w, 'q d (o i ky kx) -> (o d) (i q) ky kx', o=self.out_channels//2, ky=self.kernel_size, kx=self.kernel_size)
