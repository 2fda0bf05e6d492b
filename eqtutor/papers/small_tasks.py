"Four tasks that train in seconds, and small networks that differ in one layer."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Generator, Tensor, nn

from ..core import one_of
from ..nn.affine import GroupAffineSelfConv2d
from ..nn.attentive import AttentiveGroupConv2d
from ..nn.convolution import GroupConv2d, LiftingConv2d
from ..nn.e4 import E4Conv2d
from ..nn.layers import GroupBatchNorm2d, SpatialPool2d
from ..nn.self_attention import GroupSelfAttention2d
from ..train import digits

GLYPH = torch.tensor([[1., 1, 1], [1, 0, 0], [1, 0, 0]])
IGNORED = -100   # the answer at a cell that is not asked

Batch = tuple[Tensor, ...]   # pictures, answers


def dice(seed:int)->Generator:
    "Random numbers of their own, from a seed."
    return torch.Generator().manual_seed(seed)


# --- A: two glyphs far apart, in the same pose?

def same_pose(
    n:int,                  # pictures, even
    draw:Generator,
    corner_turns:bool=True, # does the corner of its cell in which a glyph lies turn with it?
)->Batch:
    """Pictures `(n, 1, 40, 40)`, and 1 where both glyphs have the same pose.

    Each picture is followed by its partner, in which the cell of one glyph alone is turned.
    """
    def die(sides:int)->int: return int(torch.randint(sides, (), generator=draw))
    x = torch.zeros(n, 1, 40, 40)
    for i in range(0, n, 2):
        pose, whole, rows, turned = die(4), die(4), (die(5), die(5)), 1 + die(3)
        corners = die(4), die(4)
        for j, turn in enumerate((0, turned)):
            for side in (0, 1):
                by = pose + turn*side
                row, column = 4*rows[side] + 10, 16*side + 10
                cell = in_cell(GLYPH, corners[side]).rot90(by) if corner_turns else (
                    in_cell(GLYPH.rot90(by), corner=0))
                x[i + j, 0, row:row + 4, column:column + 4] = cell
            x[i + j] = x[i + j].rot90(whole, (-2, -1))
    return x, (torch.arange(n) + 1) % 2


def in_cell(
    glyph:Tensor,
    corner:int,   # 0 to 3
)->Tensor:        # `(4, 4)`
    "A glyph of 3×3 pixels in a corner of a cell of 4×4."
    down, right = divmod(corner, 2)
    return F.pad(glyph, (right, 1 - right, down, 1 - down))


# --- B: which coloured glyph has my shape?

@cache
def shapes()->Tensor:
    """The 24 shapes of five pixels that fill 3×3 and differ from their turns, in each turn and
    corner of a cell: `(24, 4, 4, 4, 4)`."""
    found = []
    for on in combinations(range(9), 5):
        shape = torch.zeros(9)
        shape[[*on]] = 1
        shape = shape.view(3, 3)
        turns = [shape.rot90(k).flatten().tolist() for k in range(4)]
        fills = all(edge.any() for edge in (shape[0], shape[2], shape[:, 0], shape[:, 2]))
        first = turns[0] == min(turns) and turns.count(turns[0]) == 1
        if fills and first: found.append(shape)
    cells = [in_cell(shape.rot90(k), corner)
             for shape, k, corner in product(found, range(4), range(4))]
    order = torch.randperm(len(found), generator=dice(0))
    return torch.stack(cells).view(-1, 4, 4, 4, 4)[order]


def look_up(
    n:int,          # pictures
    draw:Generator,
    pairs:int=6,    # of glyphs, 3 or an even number up to 8
    new:bool=False, # of the eight shapes that no network is trained on?
)->Batch:
    """Pictures `(n, 3, 16, 16)`, and at each cell that holds a grey glyph the colour of its twin.

    Answers are `(n, 4, 4)`. Three or six pairs have three colours, other numbers two, and each
    colour is given to as many pairs as the others.
    """
    known = shapes()[16:] if new else shapes()[:16]
    def shuffled(k:int)->Tensor: return torch.rand(n, k, generator=draw).argsort(1)
    names, cells, chosen = shuffled(3), shuffled(16)[:, :2*pairs], shuffled(len(known))
    colour = names[:, torch.arange(pairs) % (3 if pairs % 3 == 0 else 2)]
    turn, corner = torch.randint(4, (2, n, 2*pairs), generator=draw)
    drawn = known[chosen[:, :pairs].repeat_interleave(2, 1), turn, corner]   # `(n, 2p, 4, 4)`
    paint = torch.full((n, 2*pairs, 3), .6)                                  # grey, coloured, …
    paint[:, 1::2] = F.one_hot(colour, 3).float()
    x, y = torch.zeros(n, 16, 3, 4, 4), torch.full((n, 16), IGNORED)
    image = torch.arange(n)[:, None]
    x[image, cells] = drawn[:, :, None]*paint[..., None, None]
    y[image, cells[:, ::2]] = colour
    x = rearrange(x, 'n (down right) c h w -> n c (down h) (right w)', down=4)
    return x, y.view(n, 4, 4)


# --- C: blur as much as a depth map says

def defocus(
    n:int,            # pictures
    draw:Generator,
    contrast:float=1.,
)->Batch:
    "A texture and its depth, `(n, 2, 18, 18)`, and the texture blurred by it, `(n, 1, 18, 18)`."
    centres, depths = torch.rand(n, 5, 2, generator=draw)*18, torch.rand(n, 5, generator=draw)
    grid = torch.cartesian_prod(*[torch.arange(18.)]*2)
    depth = depths.gather(1, torch.cdist(grid.expand(n, -1, -1), centres).argmin(-1))
    texture = contrast*torch.randn(n, 1, 18, 18, generator=draw)
    offsets = torch.cartesian_prod(*[torch.arange(-2., 3)]*2)
    sigma = .3 + 1.7*depth                                          # `(n, 324)`
    kernels = (-offsets.square().sum(1)[:, None]/(2*sigma[:, None]**2)).softmax(1)
    blurred = (F.unfold(texture, 5, padding=2)*kernels).sum(1)
    return torch.cat([texture, depth.view(n, 1, 18, 18)], 1), blurred.view(n, 1, 18, 18)


# --- D: few upright digits

def few_digits(
    n:int,
    draw:Generator,
)->Batch:
    "Upright digits `(n, 1, 8, 8)` of the part to train on, and their classes."
    x, y = digits('train', size=8).tensors
    chosen = torch.randperm(len(x), generator=draw)[:n]
    return x[chosen], y[chosen]


# --- networks: they differ in the operator

class DepthE4(E4Conv2d):
    """E4 whose kernels are written from the last channel alone, the depth in task C.

    It has the weights of E4. Those that would read the other channels stay as they are.
    """
    def kernels(self, f:Tensor)->Tensor:
        return super().kernels(torch.cat([torch.zeros_like(f[:, :-1]), f[:, -1:]], 1))


def operator(
    name:str,         # 'conv', 'E4', 'depth E4', 'ASC', 'α_F', 'self-attention', 'no encoding'
    in_channels:int,
    out_channels:int,
    side:int=3,       # of the window; self-attention has none, and measures distances in it
    group:str='p4',
)->nn.Module:
    "A layer `(b, in_channels, |H|, h, w)` to `(b, out_channels, |H|, h, w)`."
    io = in_channels, out_channels
    same:dict[str, Any] = dict(padding='same', bias=False)
    makers:dict[str, Callable[[], nn.Module]] = {
        'conv': lambda: GroupConv2d(*io, side, group, **same),
        'E4': lambda: E4Conv2d(*io, side, group, norm='none'),
        'depth E4': lambda: DepthE4(*io, side, group, norm='none'),
        'ASC': lambda: GroupAffineSelfConv2d(*io, side, group, heads=2),
        'α_F': lambda: AttentiveGroupConv2d(*io, side, group, **same),
        'self-attention': lambda: GroupSelfAttention2d(
            *io, group, None, heads=2, head_channels=out_channels//2, extent=side),
        'no encoding': lambda: GroupSelfAttention2d(
            *io, group, None, heads=2, head_channels=out_channels//2, encoding='none')}
    return makers[name]()

def lifting(in_channels:int, width:int, side:int, group:str)->LiftingConv2d:
    "The first layer of every network here: an image to a feature map on G."
    return LiftingConv2d(in_channels, width, side, group, padding='same', bias=False)

def norm(width:int)->nn.Sequential:
    "Batch norm on G and ReLU."
    return nn.Sequential(GroupBatchNorm2d(width), nn.ReLU())


class ReadOut(nn.Module):
    "A feature map on G `(b, c, |H|, h, w)` to one vector `(b, c)`, invariant."
    def __init__(self,
        how:str='joint mean', # or 'joint maximum', 'places first'
    ):
        super().__init__()
        self.how = one_of(how, 'joint mean', 'joint maximum', 'places first')

    def forward(self, f:Tensor)->Tensor:
        if self.how == 'joint mean': return f.mean((2, 3, 4))
        if self.how == 'joint maximum': return f.amax((2, 3, 4))
        return f.mean((3, 4)).amax(2)     # the mean over places, then the maximum over poses


def compare_net(
    name:str,         # of the operator
    first:int,        # channels of the lifting layer
    width:int,        # of the operator
    side:int=3,
    group:str='p4',
    how:str='joint mean',
)->nn.Sequential:
    "For task A: pictures `(b, 1, 40, 40)` to two scores. A glyph and its 5×5 lie in 2×2 cells."
    return nn.Sequential(
        lifting(1, first, 5, group), norm(first), SpatialPool2d(4, group),
        operator(name, first, width, side, group), norm(width), ReadOut(how), nn.Linear(width, 2))


class LookUpNet(nn.Module):
    "For task B: pictures `(b, 3, 16, 16)` to scores of three colours at each cell, `(b, 3, 4, 4)`."
    def __init__(self,
        name:str,           # of the operator
        first:int,          # channels of the lifting layer
        width:int,          # of the operator
        side:int=3,
        group:str='p4',
        hears_all:bool=False, # does each cell read the mean over all, too?
    ):
        super().__init__()
        self.hears_all = hears_all
        self.cells = nn.Sequential(
            lifting(3, first, 3, group), norm(first), SpatialPool2d(4, group),
            operator('conv', first, first, 1, group), norm(first))
        self.operator = operator(name, first, width, side, group)
        self.norm = norm(width)
        self.head = nn.Sequential(nn.Conv2d(first + (1 + hears_all)*width, 32, 1), nn.ReLU(),
                                  nn.Conv2d(32, 3, 1))

    def forward(self, x:Tensor)->Tensor:
        f = self.cells(x)
        y = self.norm(self.operator(f)).mean(2)
        parts = [f.mean(2), y]
        if self.hears_all: parts.append(y.mean((2, 3), keepdim=True).expand_as(y))
        return self.head(torch.cat(parts, 1))


class DefocusNet(nn.Module):
    "For task C: texture and depth `(b, 2, 18, 18)` to a picture `(b, 1, 18, 18)`."
    def __init__(self,
        operators:Sequence[tuple[str, int, int]], # name, width and side of each
        first:int=12,                             # channels of the lifting layer
        group:str='p4',
    ):
        super().__init__()
        self.lift = nn.Sequential(lifting(2, first, 3, group), nn.ReLU())
        layers:list[nn.Module] = []
        width = first + 2
        for i, (name, out, side) in enumerate(operators):
            if i: layers.append(nn.ReLU())
            layers.append(operator(name, width, out, side, group))
            width = out
        self.layers, self.head = nn.Sequential(*layers), nn.Conv2d(width, 1, 1)

    def forward(self, x:Tensor)->Tensor:
        f = self.lift(x)
        also = x[:, :, None].expand(-1, -1, f.shape[2], -1, -1)
        return self.head(self.layers(torch.cat([f, also], 1)).mean(2))


def digit_net(
    name:str,      # of the operator
    width:int,
    last:int,      # channels before the maximum
    side:int=3,
    group:str='p4',
)->nn.Sequential:
    "For task D: digits `(b, 1, 8, 8)` to ten scores, by a maximum over poses and places."
    return nn.Sequential(
        lifting(1, width, 3, group), norm(width), operator(name, width, width, side, group),
        norm(width), SpatialPool2d(2, group), operator(name, width, last, side, group),
        norm(last), ReadOut('joint maximum'), nn.Linear(last, 10))


# --- training, and what is measured

def train(
    net:nn.Module,
    batch:Callable[[Generator], Batch], # draws the images of a step
    steps:int,
    lr:float,
    seed:int=0,                         # of the images
    loss:Callable[[Tensor, Tensor], Tensor]=F.cross_entropy,
)->nn.Module:
    "AdamW, one cycle of the learning rate, gradients of norm 1 at most, fresh images each step."
    draw, optimiser = dice(seed), torch.optim.AdamW(net.parameters(), lr)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, steps, pct_start=.05)
    for _ in range(steps):
        x, y = batch(draw)
        loss(net.train()(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.)
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
    return net.eval()


@torch.no_grad()
def accuracy(net:nn.Module, batch:Batch)->float:
    "Share of right answers, in per cent, where one is asked."
    x, y = batch
    asked = y != IGNORED
    return 100*(net.eval()(x).argmax(1) == y)[asked].float().mean().item()


@torch.no_grad()
def relative_error(net:nn.Module, batch:Batch)->float:
    "Mean squared error over the variance of the target, in per cent."
    x, y = batch
    return 100*(F.mse_loss(net.eval()(x), y)/y.var()).item()
