"What the scripts that run in several processes share."
import torch
from torch import nn

from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import GroupBatchNorm2d, GroupLayerNorm2d
from eqtutor.train import seed_everything


class Scores(nn.Module):
    "Mean over space and group: invariant scores."
    def forward(self, f):
        return f.mean((2, 3, 4))


def make(norm, dtype=torch.float64):
    "A small equivariant net, with norms as training leaves them."
    seed_everything(0)
    net = nn.Sequential(
        LiftingConv2d(1, 4, 3, 'p4'), norm(4), nn.ReLU(), GroupConv2d(4, 4, 3, 'p4'), norm(4),
        nn.ReLU(), GroupConv2d(4, 3, 3, 'p4'), Scores()).to(dtype)
    for m in net.modules():
        if isinstance(m, (GroupBatchNorm2d, GroupLayerNorm2d)):
            nn.init.normal_(m.weight)
            nn.init.normal_(m.bias)
        if isinstance(m, GroupBatchNorm2d):
            m.running_mean.normal_()
            m.running_var.uniform_(.5, 2)
    return net


def images(n, dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(n, 1, 9, 9, generator=draw, dtype=dtype)
    return x, torch.randint(3, (n,), generator=draw)


def vector(tensors):
    "All entries, one after the other, as JSON has them."
    return [v for t in tensors for v in t.detach().flatten().double().tolist()]
