"What a training run would take, before it begins: steps, multiplications, memory, time."
# Plain module: edited by hand, no notebook exports it.
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eqtutor.cost import (count_parameters, interleaved, layer_costs, peak_memory,
                          training_step)
from eqtutor.experiments.train import Training, check_data, own_device
from eqtutor.models.registry import build_model, get_model

TRAINING_IMAGES = {'digits': 1_197, 'mnist': 10_000, 'rotmnist': 10_000,
                   'rotmnist-original': 10_000, 'cifar10': 40_000, 'cifar100': 40_000,
                   'pcam': 262_144}
SMALL_BATCHES = (4, 8)   # that a processor measures; a straight line through them gives the rest


@dataclass(frozen=True)
class Estimate:
    "What a training run would take."
    network:str
    steps:int
    batch_size:int
    macs:int       # of all steps, forward and backward
    memory:int     # bytes: on a GPU the peak of a step, on a processor what it keeps
    seconds:float  # of all steps, on `device`
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
)->int:
    "Training images of an epoch; needs no data."
    if settings.images: return settings.images
    if settings.per_class: return settings.per_class*(100 if settings.data == 'cifar100' else 10)
    if settings.valid is None: return TRAINING_IMAGES[settings.data]
    return TRAINING_IMAGES[settings.data] + 10_000 - settings.valid


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


def step_on_cpu(
    net:nn.Module,
    shape:tuple[int, ...], # of an image
    batch_size:int,
)->tuple[int, float]:
    "Bytes and seconds of a training step, from two small batches."
    pictures = [torch.randn(n, *shape) for n in SMALL_BATCHES]
    times = interleaved({str(len(x)): partial(training_step, net, x) for x in pictures}, 1)
    fixed = 16*count_parameters(net)   # weights, gradients, and Adam's two means
    few, many = (saved_bytes(net, x) + fixed for x in pictures)
    first, second = (min(t) for t in times.values())
    return int(at_batch(batch_size, (few, many))), at_batch(batch_size, (first, second))


def step_on_gpu(
    name:str,   # of the network: another process builds it too
    net:nn.Module,
    shape:tuple[int, ...],
    batch_size:int,
    device:str,
)->tuple[int, float]:
    "Bytes and seconds of a training step with the whole batch."
    x = torch.randn(batch_size, *shape, device=device)
    times = interleaved({'step': partial(training_step, net, x)}, 2)
    return peak_memory(partial(build_model, name), x.shape, device, 3600), min(times['step'])


def estimate_training(
    settings:Training,
)->Estimate:
    "What the run would take, from counting and from a few steps on this machine; needs no data."
    check_data(settings.data)
    model, device, batch = get_model(settings.network), own_device(), settings.batch_size
    net, shape, images = model.make().to(device), model.input_shape, epoch_images(settings)
    steps = settings.epochs*-(-images // batch)
    if device == 'cpu': memory, seconds = step_on_cpu(net, shape, batch)
    else: memory, seconds = step_on_gpu(model.name, net, shape, batch, device)
    rows = layer_costs(net, torch.randn(1, *shape, device=device))
    macs = 3*settings.epochs*images*sum(r.macs for r in rows)
    return Estimate(model.name, steps, batch, macs, memory, steps*seconds, device_name(device))
