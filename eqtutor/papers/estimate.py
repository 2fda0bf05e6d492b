"""What a training run would take, before it begins: measured by a few steps, or looked up in
records of what ran before."""
# Plain module: edited by hand, no notebook exports it.
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cost import count_parameters, layer_costs
from ..measure import peak_memory, training_step
from ..models import MODELS
from ..models.registry import build_model, get_model
from ..train.experiment import check_data
from ..train.processes import training_device
from ..train.settings import Training


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
LONG = 4.                # seconds: a step that takes no longer is measured with its whole batch,
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
        if rounds[0].wall > LONG: return rounds[0]
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
    if step.wall > LONG: whole = SMALL_BATCHES[-1]
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


@cache
def count_macs_of_an_image(
    network:str,
)->int:
    "Multiplications of a forward pass; nothing is measured."
    model = get_model(network)
    rows = layer_costs(model.make(), torch.randn(1, *model.input_shape))
    return sum(r.macs for r in rows)


def count_training(
    settings:Training,
)->Counted:
    "Steps and multiplications of a run; nothing is measured."
    images = epoch_images(settings)
    steps = settings.epochs*-(-images.train // settings.batch_size)
    macs = count_macs_of_an_image(settings.network)
    return Counted(steps, 3*settings.epochs*images.train*macs)


def estimate_training(
    settings:Training,
)->Estimate:
    "What the run would take, from counting and from a few steps on this machine; needs no data."
    check_data(settings.data)
    model, device, batch = get_model(settings.network), training_device(), settings.batch_size
    net, shape, images = model.make().to(device), model.input_shape, epoch_images(settings)
    if device == 'cpu': cost = measure_on_cpu(net, shape, batch)
    else: cost = measure_on_gpu(model.name, net, shape, batch, device)
    steps, macs = count_training(settings)
    scored = settings.epochs*images.valid + images.test
    wall, cpu = (steps*a + scored*b for a, b in zip(cost.step, cost.evaluation))
    return Estimate(model.name, steps, batch, macs, cost.memory, wall, cpu, device_name(device))


# --- without measuring

DIGIT, YARDSTICK = (1, 28, 28), 'p4-cnn'   # of the benchmarks
NOMINAL = 1e12                             # multiplications a second, where nothing else is known


class Guess(NamedTuple):
    "What a training run takes by what ran before."
    cpu_seconds:float
    source:str           # of `SOURCES`
    memory:int|None=None # bytes, where it was measured


SOURCES = {
    'run': "its own epochs, or another seed's",
    'measured': 'a few steps, measured on this machine',
    'benchmark': "a step's time over the p4-CNN's in a stored benchmark, and a stored run of that",
    'count': 'multiplications, counted, at the speed of stored benchmarks of its family',
    'count only': 'multiplications, counted, at 10¹² a second: nothing was stored for this device'}


def forward_passes(
    settings:Training,
)->int:
    "Images of a run in forward passes: to train on one costs as much as to look at three."
    train, valid, test = epoch_images(settings)
    return settings.epochs*(3*train + valid) + test


def family(
    network:str,
)->str:
    "The module that builds a network: what is built alike runs alike."
    make = get_model(network).make
    name = getattr(make, 'func', make).__module__.rpartition('.')[2]
    return 'group_cnn' if name == 'backbones' else name   # convolutions, both


@dataclass
class Records:
    "What stored runs and benchmarks say of the speed of networks on a kind of device."
    experiments:dict[tuple[str, str], float]=field(default_factory=dict)
    # (network, data) -> processor seconds of a forward pass of an image
    over_p4:dict[str, float]=field(default_factory=dict)   # network or the paper's label -> ratio
    macs:dict[str, int]=field(default_factory=dict)        # of the same

    @classmethod
    def read(cls,
        folders:Iterable[Path], # of result files
        device:str,             # 'cpu', or the name of a GPU
    )->'Records':
        "Those of all files that were made on such a device."
        records = cls()
        for file in sorted({f.resolve() for folder in folders for f in folder.rglob('*.json')}):
            content = json.loads(file.read_text(encoding='utf-8'))
            if not isinstance(content, dict): continue
            if content.get('hardware', {}).get('device') != device: continue
            smoke = content.get('protocol', {}).get('smoke')
            if file.parent.name == 'bench' and 'tables' in content and not smoke:
                records.add_benchmark(content['tables'])
            elif 'cpu_seconds' in content: records.add_run(content)
        return records

    def add_run(self, content:dict[str, Any])->None:
        "A finished training; where it has no processor seconds its code is of long ago."
        known, asked = Training.__dataclass_fields__, content['settings']
        if asked.get('network') not in MODELS or not asked.keys() <= known.keys(): return
        settings = Training(**asked)
        key, seconds = (asked['network'], asked['data']), content['cpu_seconds']
        seconds /= forward_passes(settings)
        self.experiments[key] = min(seconds, self.experiments.get(key, seconds))   # least disturbed

    def add_benchmark(self, tables:dict[str, list[dict[str, Any]]])->None:
        "The tables of training steps on digits over the p4-CNN's."
        for title, rows in tables.items():
            if not title.startswith('training step, batch 16, 1×28×28, over the p4-CNN'): continue
            for row in rows:
                self.over_p4[row['name']], self.macs[row['name']] = row['time'], row['macs']

    def guess(self,
        settings:Training,
        label:str='',      # the paper's, of the network
    )->Guess:
        "What a run takes, by the best record there is."
        network, n = get_model(settings.network), forward_passes(settings)
        if (seconds := self.experiments.get((network.name, settings.data))) is not None:
            return Guess(n*seconds, 'run')
        p4 = statistics.median([t for (name, _), t in self.experiments.items()
                                if name == YARDSTICK] or [0.])
        names = [name for name in (network.name, label.replace('⁴', '4')) if name in self.over_p4]
        if p4 and names and network.input_shape == DIGIT:
            return Guess(n*p4*self.over_p4[names[0]], 'benchmark')
        macs = count_macs_of_an_image(network.name)
        speeds = {name: p4*self.over_p4[name]/self.macs[name] for name in self.macs
                  if name in MODELS}   # seconds of a multiplication
        alike = [s for name, s in speeds.items() if family(name) == family(network.name)]
        if not p4 or not speeds: return Guess(n*macs/NOMINAL, 'count only')
        return Guess(n*macs*statistics.median(alike or speeds.values()), 'count')
