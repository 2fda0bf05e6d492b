"What a training run would take, before it begins: steps, multiplications, memory, time."
# Plain module: edited by hand, no notebook exports it.
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cost import count_parameters, layer_costs
from ..measure import peak_memory, training_step
from ..models.registry import build_model, get_model
from .train import Training, check_data, own_device


class Images(NamedTuple):
    "How many pictures a data set has."
    train:int
    valid:int
    test:int


IMAGES = {'digits': Images(1_197, 200, 400), 'mnist': Images(10_000, 2_000, 50_000),
          'rotmnist': Images(10_000, 2_000, 50_000),
          'rotmnist-12000': Images(12_000, 10_000, 50_000),
          'rotmnist-original': Images(10_000, 2_000, 50_000),
          'cifar10': Images(40_000, 10_000, 10_000), 'cifar100': Images(40_000, 10_000, 10_000),
          'pcam': Images(262_144, 32_768, 32_768)}
SMALL_BATCHES = (4, 8)   # that a processor measures; a straight line through them gives the rest
PATIENCE = 4.            # seconds: a step that takes no longer is measured with its whole batch,
                         # and work that takes longer is measured once


@dataclass(frozen=True)
class Estimate:
    "What a training run would take."
    network:str
    steps:int
    batch_size:int
    macs:int       # of all steps, forward and backward
    memory:int     # bytes: on a GPU the peak of a step, on a processor what it keeps
    seconds:float  # of all steps and of measuring the network after each epoch, on `device`
    cpu_seconds:float  # the same, of all threads together
    device:str

    def __str__(self)->str:
        return (f'{self.network}: {self.steps:,} steps of {self.batch_size} images, '
                f'{self.macs:.1e} multiplications ({as_time(self.macs/1e12)} at 10¹² a second), '
                f'about {as_size(self.memory)} for a step; '
                f'here ({self.device}) about {as_time(self.seconds)}')


def as_size(n:int)->str:
    "'1.2 GB' or '340 MB' of bytes."
    return f'{n/2**30:.1f} GB' if n >= 2**30 else f'{n/2**20:.0f} MB'


def as_time(seconds:float)->str:
    "'1.2 h', '34 min' or '5 s'."
    if seconds >= 3600: return f'{seconds/3600:,.1f} h'
    return f'{seconds/60:.0f} min' if seconds >= 60 else f'{seconds:.0f} s'


def saved_bytes(
    net:nn.Module,
    x:Tensor,       # images
)->int:
    "Bytes that the forward pass keeps for the backward pass; each storage counts once."
    sizes:dict[int, int] = {}

    def note(t:Tensor)->Tensor:
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t): scores = net(x)
    total = sum(sizes.values())
    del scores   # kept until here: an address that is freed could come twice
    return total


def epoch_images(
    settings:Training,
)->Images:
    "Images of an epoch, and of the test at the end; needs no data."
    train, valid, test = IMAGES[settings.data]
    if settings.valid is not None: train, valid = train + valid - settings.valid, settings.valid
    if settings.per_class: train = settings.per_class*(100 if settings.data == 'cifar100' else 10)
    return Images(settings.images or train, valid, settings.test_images or test)


def device_name(device:str)->str:
    "The GPU's name, or the processor's number of threads."
    if device != 'cpu': return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f'processor, {threads} thread{"s"*(threads > 1)}'


def at_batch(
    size:int,                      # of the batch that is asked for
    measured:tuple[float, float],  # at the two `SMALL_BATCHES`
)->float:
    "Continue the straight line through two measurements; never less than the larger batch's."
    (few, many), (a, b) = measured, SMALL_BATCHES
    return max(many, few + (many - few)/(b - a)*(size - a))


class Seconds(NamedTuple):
    "What a clock on the wall says, and the processor's time of all threads."
    wall:float
    cpu:float


def timed(
    work:Callable[[], Any],  # ends when its work is done
    repeats:int=2,
)->Seconds:
    "Least times of the repeats, after one round to warm up, which is the answer if it is long."
    rounds:list[Seconds] = []
    while len(rounds) <= repeats:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        rounds.append(Seconds(time.perf_counter() - wall, time.process_time() - cpu))
        if rounds[0].wall > PATIENCE: return rounds[0]
    return Seconds(*map(min, zip(*rounds[1:])))


class StepCost(NamedTuple):
    "What is measured of a network."
    memory:int         # bytes, of a training step
    step:Seconds       # of a training step
    evaluation:Seconds # of an image, without gradients


@torch.no_grad()
def score(
    net:nn.Module,
    x:Tensor,       # images
)->float:
    "A forward pass; returns a number, so that the device has done its work."
    return net(x).sum().item()


def measure_on_cpu(
    net:nn.Module,
    shape:tuple[int, ...], # of an image
    batch_size:int,
)->StepCost:
    "Memory from two small batches; times with the whole batch where that is quick."
    pictures = [torch.randn(n, *shape) for n in SMALL_BATCHES]
    few, many = (timed(partial(training_step, net, x), 1) for x in pictures)
    step = Seconds(*(at_batch(batch_size, pair) for pair in zip(few, many)))
    whole = batch_size
    if step.wall > PATIENCE: whole = SMALL_BATCHES[-1]
    x = torch.randn(whole, *shape)
    if whole == batch_size: step = timed(partial(training_step, net, x))
    scored = timed(partial(score, net.eval(), x), 1)
    net.train()
    fixed = 16*count_parameters(net)   # weights, gradients, and Adam's two means
    few_bytes, many_bytes = (saved_bytes(net, x) + fixed for x in pictures)
    memory = int(at_batch(batch_size, (few_bytes, many_bytes)))
    return StepCost(memory, step, Seconds(*(t/whole for t in scored)))


def measure_on_gpu(
    name:str,   # of the network: another process builds it too
    net:nn.Module,
    shape:tuple[int, ...],
    batch_size:int,
    device:str,
)->StepCost:
    "Memory and times with the whole batch."
    x = torch.randn(batch_size, *shape, device=device)
    step = timed(partial(training_step, net, x))
    scored = timed(partial(score, net.eval(), x))
    net.train()
    memory = peak_memory(partial(build_model, name), x.shape, device, 3600)
    return StepCost(memory, step, Seconds(*(t/batch_size for t in scored)))


class Counted(NamedTuple):
    "What is the same on every machine."
    steps:int
    macs:int  # of all steps, forward and backward


def count_training(
    settings:Training,
)->Counted:
    "Steps and multiplications of a run; nothing is measured."
    model, images = get_model(settings.network), epoch_images(settings)
    rows = layer_costs(model.make(), torch.randn(1, *model.input_shape))
    steps = settings.epochs*-(-images.train // settings.batch_size)
    return Counted(steps, 3*settings.epochs*images.train*sum(r.macs for r in rows))


def estimate_training(
    settings:Training,
)->Estimate:
    "What the run would take, from counting and from a few steps on this machine; needs no data."
    check_data(settings.data)
    model, device, batch = get_model(settings.network), own_device(), settings.batch_size
    net, shape, images = model.make().to(device), model.input_shape, epoch_images(settings)
    if device == 'cpu': cost = measure_on_cpu(net, shape, batch)
    else: cost = measure_on_gpu(model.name, net, shape, batch, device)
    steps, macs = count_training(settings)
    scored = settings.epochs*images.valid + images.test
    wall, cpu = (steps*a + scored*b for a, b in zip(cost.step, cost.evaluation))
    return Estimate(model.name, steps, batch, macs, cost.memory, wall, cpu, device_name(device))
