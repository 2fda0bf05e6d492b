"""A training step, an epoch, measuring without a trace, schedules, and the recipes of the papers.

P1: David W. Romero, Erik J. Bekkers, Jakub M. Tomczak, Mark Hoogendoorn, Attentive Group
Equivariant Convolutional Networks, 2020, https://arxiv.org/abs/2002.03830

P2: Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
https://arxiv.org/abs/1911.07704

P3: David W. Romero, Jean-Baptiste Cordonnier, Group Equivariant Stand-Alone Self-Attention For
Vision, 2021, https://arxiv.org/abs/2010.00977

P4: Lingshen He, Yuxuan Chen, Zhengyang Shen, Yiming Dong, Yisen Wang, Zhouchen Lin, Efficient
Equivariant Network, 2021,
https://proceedings.neurips.cc/paper/2021/hash/2a79ea27c279e471f4d180b08d62b00a-Abstract.html
"""
# Plain module: edited by hand, no notebook exports it.

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from .processes import Accelerator, accelerated, device_of, share, summed
from .settings import Training

__all__ = ['SCHEDULES', 'OPTIMIZERS', 'RECIPES', 'check_labels', 'evaluate', 'seed_everything',
           'train_step', 'train_epoch', 'steps', 'warm_up', 'plateaus', 'average_into']


_NO_BATCH = ('The loader gave no batch: is the data set empty, '
             'or an iterator that is used up?')


def check_labels(y:Tensor)->None:
    "An error where a label on the CPU is below 0."
    if y.is_floating_point() or y.device.type != 'cpu' or not len(y): return
    if y.min() >= 0: return
    raise ValueError(f'Labels count from 0; there is {y.min().item()}, which the loss '
                     'would pass over without a word.')


# of -100, too, the loss complains, wherever the labels lie
_cross_entropy = partial(F.cross_entropy, ignore_index=torch.iinfo(torch.long).min)


def _logits(net:nn.Module, x:Tensor, y:Tensor)->Tensor:
    "Scores `(b, classes, …)` in float32 or better; else an error that says what came."
    check_labels(y)
    logits = net(x)
    if logits.ndim == y.ndim + 1 and logits[:, 0].shape == y.shape:
        return logits.to(torch.promote_types(logits.dtype, torch.float32))
    wanted = ', '.join(['classes', *map(str, y.shape[1:])])
    advice = ('End it with a pool over space (and group), then flatten(1).'
              if y.ndim == 1 else 'End it with a projection and no pool.')
    raise ValueError(f'The net must turn images {tuple(x.shape)} into scores '
                     f'({len(y)}, {wanted}), but gave {tuple(logits.shape)}. {advice}')


@contextmanager
def _evaluation_mode(net:nn.Module)->Iterator[None]:
    "Inside, the net is in evaluation mode; after, each layer has its own mode back."
    modes = [(m, m.training) for m in net.modules()]
    net.eval()
    try:
        yield
    finally:  # one by one: a part may have been frozen on purpose
        for m, training in modes: m.training = training


@torch.no_grad()
def evaluate(
    net:nn.Module,
    loader:Iterable[tuple[Tensor, Tensor]],
    accelerator:Accelerator|None=None,
)->dict[str, float]:
    """Mean loss and accuracy of all images in evaluation mode; the net stays as it was.

    Parameters
    ----------
    net : nn.Module
        images to scores, `(b, classes)` or of each pixel `(b, classes, h, w)`
    loader : Iterable[tuple[Tensor, Tensor]]
        batches `(x, y)`
    accelerator : Accelerator | None, default None
        several processes share each batch

    Returns
    -------
    dict[str, float]
        'loss' (mean cross-entropy) and 'accuracy' (a share)
    """
    loss, correct, count = 0., 0., 0.
    device, rank, processes = device_of(net), 0, 1
    if accelerator:
        rank, processes = accelerator.process_index, accelerator.num_processes
    with _evaluation_mode(net):
        for x, y in loader:
            x, y = x[rank::processes].to(device), y[rank::processes].to(device)
            if processes > 1 and not len(y): continue
            logits = _logits(net, x, y)
            loss += _cross_entropy(logits, y, reduction='sum').item()
            correct += int((logits.argmax(1) == y).sum())
            count += y.numel()
    loss, correct, count = summed(accelerator, loss, correct, count)
    if not count: raise ValueError(_NO_BATCH)
    return {'loss': loss / count, 'accuracy': correct / count}


def seed_everything(
    seed:int,
)->None:
    """Seed Python's, numpy's and torch's random generators, those of all devices.

    Parameters
    ----------
    seed : int
        from 0 to 2³² − 1
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train_step(
    net:nn.Module,
    batch:Sequence[Tensor],
    optimizer:torch.optim.Optimizer,
    accelerator:Accelerator,
    clip:float|None=None,
    place:str='this batch',
)->tuple[float, int, Tensor]:
    """Loss, gradient, step; no step if the loss, or a gradient to clip, is not finite.

    Parameters
    ----------
    net : nn.Module
    batch : Sequence[Tensor]
        `(x, y)`, whole
    optimizer : torch.optim.Optimizer
    accelerator : Accelerator
    clip : float | None, default None
        largest norm of the gradient
    place : str, default 'this batch'
        named in errors

    Returns
    -------
    tuple[float, int, Tensor]
        mean loss; how many of ours are right; scores
    """
    if accelerator.scaler is not None and not hasattr(optimizer, 'scaler'):
        raise ValueError('fp16 scales the loss up: pass '
                         'accelerator.prepare_optimizer(optimizer), which scales the '
                         'gradient down again before the step.')
    x, y, weight = share(batch, accelerator)
    x, y = x.to(device_of(net)), y.to(device_of(net))
    optimizer.zero_grad()
    with accelerator.autocast():
        logits = _logits(net, x, y)
    loss = _cross_entropy(logits, y) * weight
    # the mean over the processes: all see the same number
    mean = accelerator.reduce(loss.detach(), 'mean').item()
    if not math.isfinite(mean):
        raise FloatingPointError(f'the loss is {mean} in {place}')
    accelerator.backward(loss)
    if clip is not None:
        norm = float(accelerator.clip_grad_norm_(net.parameters(), clip))
        # (fp16's scaler skips such a step by itself)
        if not math.isfinite(norm) and accelerator.scaler is None:
            raise FloatingPointError(f'the gradient is {norm} in {place}')
    optimizer.step()
    return mean, int((logits.argmax(1) == y).sum()), logits


def train_epoch(
    net:nn.Module,
    loader:Iterable[tuple[Tensor, Tensor]],
    optimizer:torch.optim.Optimizer,
    lr:Callable[[int], float]|None=None,
    bar:tqdm|None=None,
    accelerator:Accelerator|None=None,
    clip:float|None=None,
    after:Callable[[int, float, int], None]|None=None,
)->dict[str, float]:
    """One pass over the loader, a step a batch; stops where the loss is not finite.

    Parameters
    ----------
    net : nn.Module
        images to scores `(b, classes)`
    loader : Iterable[tuple[Tensor, Tensor]]
        batches `(x, y)`
    optimizer : torch.optim.Optimizer
        over the net's parameters
    lr : Callable[[int], float] | None, default None
        rate of batch i; None: leave it
    bar : tqdm | None, default None
        moved on by one a batch
    accelerator : Accelerator | None, default None
        alone and in full precision if None
    clip : float | None, default None
        largest norm of the gradient
    after : Callable[[int, float, int], None] | None, default None
        called after step i with i, loss, number of classes

    Returns
    -------
    dict[str, float]
        mean 'loss' and 'accuracy'
    """
    if accelerator is None:
        with accelerated(net, 'no') as alone:
            return train_epoch(net, loader, optimizer, lr, bar, alone, clip, after)
    loss_sum, correct, count = 0., 0, 0
    net.train()
    for i, batch in enumerate(loader):
        if lr:
            for group in optimizer.param_groups: group['lr'] = lr(i)
        loss, right, logits = train_step(
            net, batch, optimizer, accelerator, clip, f'batch {i + 1}')
        loss_sum += loss * batch[1].numel()   # labels: one an image, or one a pixel
        correct += right
        count += batch[1].numel()
        if after: after(i, loss, logits.shape[1])
        if bar is not None:
            bar.update()
            bar.set_postfix(loss=f'{loss:.3f}', refresh=False)
    if not count: raise ValueError(_NO_BATCH)
    [correct_sum] = summed(accelerator, correct)
    return {'loss': loss_sum / count, 'accuracy': correct_sum / count}


def steps(
    *at:float,
    by:float=10.,
)->Callable[[float], float]:
    """A schedule that divides the learning rate by `by` at each of the times `at`.

    Parameters
    ----------
    *at : float
        shares of training, such as .5 and .75
    by : float, default 10.0
        divides the rate at each of them
    """
    return lambda t: by ** -sum(t >= s for s in at)


def warm_up(
    share:float,
    after:Callable[[float], float],
    stairs:int=0,
)->Callable[[float], float]:
    """A schedule led in by small learning rates; it keeps its own times.

    Parameters
    ----------
    share : float
        of training, until the full rate is reached
    after : Callable[[float], float]
        the schedule to lead in
    stairs : int, default 0
        in so many equal steps; 0: linearly from 0
    """
    def rise(t:float)->float:
        if not stairs: return t / share
        return math.floor(t / share * stairs + 1 + 1e-9) / stairs
    return lambda t: after(t) * min(1., rise(t))


SCHEDULES:dict[str, Callable[[float], float]] = {
    'constant': lambda t: 1.,
    'cosine': lambda t: (1 + math.cos(math.pi * t)) / 2,
    'P1 All-CNN': steps(200/350, 250/350, 300/350),
    'P1 ResNet44': steps(50/300, 100/300, 150/300),
    'P2 ResNet29': warm_up(10/100, steps(50/100, 75/100), stairs=10),
    'P2 ResNet83': warm_up(10/200, steps(100/200, 150/200), stairs=10),
    'P4 rotMNIST': steps(60/200, 120/200, 160/200),
    'P4 CIFAR': steps(60/200, 120/200, 160/200, by=5),
}


def plateaus(
    losses:Iterable[float],
    patience:int,
)->int:
    """How often `patience` epochs in a row brought no better loss.

    Parameters
    ----------
    losses : Iterable[float]
        validation losses, one an epoch
    patience : int
        epochs without a new best loss that count as one plateau
    """
    best, waited, count = math.inf, 0, 0
    for loss in losses:
        waited = 0 if loss < best else waited + 1
        best = min(best, loss)
        if waited == patience: waited, count = 0, count + 1
    return count


# P3 and P4 give a momentum of .9, P2 and P4 take Nesterov's; P1 names none and follows the authors
# of All-CNN, who used .9. Weight decay is L2, added to the gradient, in Adam too.
OPTIMIZERS:dict[str, Callable[..., torch.optim.Optimizer]] = {
    'adam': torch.optim.Adam,
    'sgd': partial(torch.optim.SGD, momentum=.9),
    'nesterov': partial(torch.optim.SGD, momentum=.9, nesterov=True),
}


def _recipe(network, data, epochs, batch_size, optimizer, lr, weight_decay, **more):
    return Training(network, data, epochs, batch_size=batch_size, optimizer=optimizer,
                    lr=lr, weight_decay=weight_decay, **{'precision': 'no'} | more)

RECIPES = {
    'P1 rotMNIST': _recipe('p4-cnn', 'rotmnist', 100, 128, 'adam', 1e-3, 1e-4),
    # the rate is the best of .01, .05, .1, .25
    'P1 All-CNN': _recipe('p4-all-cnn', 'cifar10', 350, 128, 'sgd', .05, 1e-3,
                          schedule='P1 All-CNN'),
    # the weight decay is not given: as for All-CNN
    'P1 ResNet44': _recipe('p4m-resnet44', 'cifar10', 300, 128, 'sgd', .05, 1e-3,
                           schedule='P1 ResNet44'),
    'P1 PCam': _recipe('p4-densenet', 'pcam', 100, 64, 'adam', 1e-3, 1e-4, patience=20),
    # the batch size is not given
    'P2 ResNet29': _recipe('z2-resnet29', 'cifar10', 100, 128, 'nesterov', .1, 1e-4,
                           schedule='P2 ResNet29', augment='P2', valid=5_000),
    # for want of a ResNet83 among the registered networks
    'P2 ResNet83': _recipe('z2-resnet29', 'cifar10', 200, 128, 'nesterov', .1, 1e-4,
                           schedule='P2 ResNet83', augment='P2', valid=5_000),
    'P3 rotMNIST': _recipe('gsa-r4', 'rotmnist', 300, 8, 'adam', 1e-3, 1e-4,
                           precision='fp16'),
    'P3 CIFAR': _recipe('gsa-z2-cifar10', 'cifar10', 350, 24, 'sgd', .01, 1e-4,
                        schedule='cosine'),
    'P3 PCam': _recipe('gsa-r4-pcam', 'pcam', 100, 8, 'sgd', .01, 1e-4,
                       schedule='cosine'),
    'P4 rotMNIST': _recipe('p4-e4-net', 'rotmnist', 200, 128, 'adam', .02, 1e-4,
                           schedule='P4 rotMNIST'),
    'P4 CIFAR': _recipe('p4-e4-resnet18', 'cifar10', 200, 128, 'nesterov', .1, 5e-4,
                        schedule='P4 CIFAR', valid=0),
}


@torch.no_grad()
def average_into(
    ema:nn.Module,
    net:nn.Module,
    decay:float,
    step:int,
)->None:
    """Move an average of weights a step on; counters are copied, statistics averaged.

    Parameters
    ----------
    ema : nn.Module
        a copy of the net; moved
    net : nn.Module
    decay : float
        share of the past that remains, such as .999
    step : int
        from 0; early steps forget faster
    """
    decay = min(decay, (1 + step) / (10 + step))
    for mean, new in zip(ema.state_dict().values(), net.state_dict().values()):
        if mean.is_floating_point(): mean.lerp_(new, 1 - decay)
        else: mean.copy_(new)
