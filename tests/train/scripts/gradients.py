"""Gradients of one step, alone or in two processes: `gradients.py FOLDER`, started by test_ddp.py.

Torch's synchronised batch norm has kernels for GPUs only: its formula stands in for them.
"""
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from common import images, make, vector
from torch import nn
from torch.nn import functional as F

from eqtutor.nn.layers import GroupBatchNorm2d, GroupLayerNorm2d
from eqtutor.train import accelerated, parallel, sync_batch_norm, train_epoch


class Total(torch.autograd.Function):
    "The sum over the processes. Each one's loss depends on it: gradients are summed as well."
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x := x.clone())
        return x

    @staticmethod
    def backward(ctx, g):
        dist.all_reduce(g := g.clone())
        return g


def formula(self, x):
    "SyncBatchNorm's forward: statistics over all processes' (b, |H|, h, w), written out."
    if not self.training:
        own = self.running_mean, self.running_var, self.weight, self.bias
        return F.batch_norm(x, *own, False, 0., self.eps)
    axes = [a for a in range(x.ndim) if a != 1]
    count = torch.tensor([x.numel() / x.shape[1]], dtype=x.dtype)
    total = torch.cat([count, x.sum(axes), (x * x).sum(axes)])
    if dist.is_initialized(): total = Total.apply(total)
    n, (mean, square) = total[0], (total[1:] / total[0]).chunk(2)
    var = square - mean**2
    with torch.no_grad():
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * n / (n - 1), self.momentum)
    def wide(t):
        return t.view(-1, *[1] * (x.ndim - 2))
    return (x - wide(mean)) / (wide(var) + self.eps).sqrt() * wide(self.weight) + wide(self.bias)


class Frozen(GroupBatchNorm2d):
    def train(self, mode=True):
        return super().train(False)


@contextmanager
def synchronised(net, accelerator):
    with sync_batch_norm(net):
        yield net if accelerator.num_processes == 1 else accelerator.prepare_model(net)


def step(norm, dtype, n, sync=False):
    "Gradient, buffers and loss of one step; the rate is 0, so the weights stay."
    net = make(norm, dtype)
    sgd = torch.optim.SGD(net.parameters(), lr=0.)
    with accelerated(net, 'no') as accelerator:
        wrap = synchronised(net, accelerator) if sync else parallel(net, accelerator, False)
        with wrap as called:
            metrics = train_epoch(called, [images(n, dtype)], sgd, accelerator=accelerator)
    assert type(net[1]) is norm
    gradient = vector(p.grad for p in net.parameters())
    return metrics | dict(gradient=gradient, buffers=vector(net.buffers()))


def steps(n):
    f32, f64 = torch.float32, torch.float64
    return {
        f'layer norm {n}': step(GroupLayerNorm2d, f64, n),
        f'layer norm float32 {n}': step(GroupLayerNorm2d, f32, n),
        f'batch norm frozen {n}': step(Frozen, f64, n),
        f'batch norm alone {n}': step(GroupBatchNorm2d, f64, n),
        f'batch norm synchronised {n}': step(GroupBatchNorm2d, f64, n, sync=True),
    }


if __name__ == '__main__':
    torch.set_num_threads(1)
    nn.SyncBatchNorm.forward = formula
    # it refuses CPUs
    nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle = lambda *args: None
    results = steps(8) | steps(7)  # of 7 images the processes have 4 and 3
    Path(sys.argv[1], f'{os.environ.get("RANK", "single")}.json').write_text(json.dumps(results))
