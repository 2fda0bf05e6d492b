"""What every network and layer computes, in a few numbers each, and digests of all records of runs.

`python -m tests.pin --write` computes them again, all or those that are named, and says what has
changed. A pin changes only where it is meant to, and the commit that changes it says why.
No random generator of torch is asked: weights and inputs come from their names alone.
"""
import argparse
import hashlib
import json
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import torch

from eqtutor import nn as layers
from eqtutor.models import MODELS
from eqtutor.models.affine import affine_resnet
from eqtutor.models.attentive import alpha_all_cnn
from eqtutor.models.e4 import e4_net, e4_resnet18
from eqtutor.models.self_attention import GSANet
from eqtutor.models.unet import GroupUNet

from .nn.every_layer import EXAMPLES, IMAGE, on_group

FILE = Path(__file__).with_name('pins.json')
RESULTS = FILE.parents[1]/'results'
ABOUT = ('What networks and layers compute, and digests of the records of runs: see pin.py. A pin '
         'changes only where it is meant to, and the commit that changes it says why.')
NUMBERS = ('output in eval', 'output in train', 'gradient of the input',
           'gradients of the parameters', 'statistics after the step')
TOLERANCE = 1e-10   # of what a sum of so many numbers comes to


# --- what is computed

def drawn(name, shape):
    "Numbers in [-1, 1) that a name and a shape decide, the same with every version of torch."
    generator = np.random.RandomState(zlib.crc32(name.encode()))
    return torch.from_numpy(np.asarray(generator.uniform(-1, 1, tuple(shape))))


@torch.no_grad()
def fill_(module):
    "Each floating entry of the `state_dict` from its name; what shrinks or grows stays in bounds."
    for name, t in module.state_dict().items():
        if not t.is_floating_point(): continue
        value = drawn(name, t.shape)
        if name.endswith('running_var'): value = value.exp()
        elif t.ndim > 1: value = value*(3/t[0].numel())**.5
        elif name.endswith('weight'): value = 1 + value/2     # the scale of a norm
        t.copy_(value)
    return module


def without_dropout_(module):
    "Its rates are compared with the papers' elsewhere."
    for m in module.modules():
        for name in 'p', 'attention_dropout', 'value_dropout':
            if hasattr(m, name): setattr(m, name, 0.)
    return module


class Sum:
    "A sum of products with numbers that names decide, and how large such a sum is."
    def __init__(self, tensors):
        self.value, square = 0., 0.
        for name, t in tensors.items():
            products = t.detach()*drawn(f'sum {name}', t.shape)
            self.value += products.sum().item()
            square += products.square().sum().item()
        self.size = square**.5

    def agrees(self, pinned): return abs(self.value - pinned) <= TOLERANCE*self.size


def compute(make, shape):
    "The `Sum` of each of `NUMBERS`: an output in eval, then one step in train, in float64."
    net = without_dropout_(fill_(make().double()))
    x = drawn('input', shape).requires_grad_()
    with torch.no_grad(): before = net.eval()(x)
    y = net.train()(x)
    (y*drawn('loss', y.shape)).sum().backward()
    gradients = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
    statistics = {n: t for n, t in net.named_buffers() if n.rpartition('.')[2].startswith('runn')}
    return [*map(Sum, ({'output': before}, {'output': y}, {'input': x.grad}, gradients,
                       statistics))]


# --- of what: the smallest pictures whose last feature map still has several pixels

SIZES = {   # part of a name -> images, side
    'gsa-z2-cifar10': (2, 8), 'gsa-mirror-cifar10': (2, 8), '-pcam': (2, 16), 'gsa-': (1, 24),
    'all-cnn': (2, 8), '-cnn': (2, 30), 'resnet29': (2, 16), 'resnet44': (2, 8),
    'resnet18': (2, 16), 'densenet': (2, 32), 'e4-net': (2, 16)}


def registered():
    for name, model in MODELS.items():
        images, side = next(size for part, size in SIZES.items() if part in name.lower())
        yield name, (model.make, (images, model.input_shape[0], side, side))


def other_networks():
    for up in 'upsample', 'transposed':
        yield f'GroupUNet {up}', (partial(GroupUNet, 'p4', 3, up=up), (2, 1, 8, 8))
    small = partial(GSANet, 'p4', 4, ((4,), (6,)), ((1,), (0,)), heads=2,
                    head_channels=6, window=3)
    for name, options in dict(layer=dict(norm='layer'), late=dict(late_crop=True),
                              plane=dict(positions='plane', ends=True)).items():
        yield f'GSANet {name}', (partial(small, **options), (2, 1, 10, 10))
    for norm in 'batch', 'layer', 'none', 'published':
        yield f'E4Net {norm}', (partial(e4_net, channels=4, norm=norm), (2, 1, 8, 8))
    yield 'ResNet18 E4', (partial(e4_resnet18, 'p4m', (4, 4, 6, 8)), (2, 3, 16, 16))
    yield 'AllCNN full', (partial(alpha_all_cnn, 'p4', (4, 6), 'full'), (2, 3, 8, 8))
    yield 'ResNet83', (partial(affine_resnet, 'asc', 'p4', depth=83, widths=(4, 4, 4),
                               options=dict(heads=2)), (2, 3, 8, 8))


def other_layers():
    "Layers that no list of examples has, and arguments that are not the usual ones."
    yield 'GroupBatchNorm2d', (partial(layers.GroupBatchNorm2d, 4), on_group(4))
    yield 'GroupLayerNorm2d', (partial(layers.GroupLayerNorm2d, 4), on_group(4))
    yield 'GroupGroupNorm2d', (partial(layers.GroupGroupNorm2d, 2, 4), on_group(4))
    yield 'GroupInstanceNorm2d', (
        partial(layers.GroupInstanceNorm2d, 4, affine=True), on_group(4))
    yield 'BlurPool2d', (partial(layers.BlurPool2d, 3, 'p4'), on_group(4))
    for reduce in 'max', 'mean':
        yield f'GroupPool {reduce}', (partial(layers.GroupPool, reduce), on_group(4))
        yield f'GroupAdaptivePool2d {reduce}', (
            partial(layers.GroupAdaptivePool2d, 2, reduce), on_group(4))
        pool = partial(layers.SpatialPool2d, 3, 'p4', 2, 1, reduce)
        yield f'SpatialPool2d {reduce}', (pool, on_group(4))
    yield 'GroupPool over mirrors', (
        partial(layers.GroupPool, 'max', 'p4m', (0, 4)), on_group(8))
    for mode in 'nearest', 'bilinear':
        yield f'GroupUpsample2d {mode}', (partial(layers.GroupUpsample2d, 3, mode), on_group(4))
    conv = dict(stride=2, padding=2, dilation=2, bias=False)
    for name in 'LiftingConv2d', 'GroupConv2d', 'ProjectionConv2d':
        cls = getattr(layers, name)
        shape = (2, 4, 9, 13) if cls.lifts else (2, 4, 8, 9, 13)
        yield f'{name} stride', (partial(cls, 4, 4, 3, 'p4m', **conv), shape)
    yield 'GroupConv2d circular', (
        partial(layers.GroupConv2d, 4, 3, 3, 'p4', padding=2, padding_mode='circular'), on_group(4))
    yield 'GroupConv2d groups', (partial(layers.GroupConv2d, 4, 6, 3, 'p4', groups=2), on_group(4))
    for attend in 'full', 'input':
        for name in 'AttentiveLiftingConv2d', 'AttentiveGroupConv2d':
            cls = getattr(layers, name)
            make = partial(cls, 4, 3, 3, 'p4', padding=2, dilation=2, attend=attend, hidden=3,
                           attention_kernel=5, attention_dilation=2)
            yield f'{name} {attend} dilated', (make, IMAGE if cls.lifts else on_group(4))
    for options in (dict(scale='root', boundary='zero'), dict(scale='channels', kernel_size=5)):
        words = ' '.join(map(str, options.values()))
        for name in ('AffineSelfConv2d', 'SimpleAffineSelfConv2d', 'GroupAffineSelfConv2d',
                     'GroupSimpleAffineSelfConv2d', 'LiftingAffineSelfConv2d'):
            cls = getattr(layers, name)
            place = {} if cls.images else dict(group='p4m')
            shape = IMAGE if cls.images or cls.lifts else on_group(8)
            make = partial(cls, 4, 6, heads=3, **place, **{'kernel_size': 3, **options})
            yield f'{name} {words}', (make, shape)
    for encoding in 'target', 'printed', 'none':
        make = partial(layers.GroupSelfAttention2d, 4, 3, 'p4m', 3, 2, 6, encoding, 'split')
        yield f'GroupSelfAttention2d {encoding}', (partial(make, crop=1), on_group(8))
    for concat in 'kernel', 'value', 'none':
        make = partial(layers.E4Conv2d, 4, 4, 5, 'p4m', slices=2, reduction=2, concat=concat)
        yield f'E4Conv2d {concat}', (make, on_group(8))
    for options in (dict(encoding='none', boundary='zero'), dict(scale='channels'),
                    dict(encoding='absolute', size=IMAGE[2:], window=None),
                    dict(size=(9, 9), window=None)):
        words = ' '.join(map(str, options.values()))
        make = partial(layers.SelfAttention2d, 4, 6, **{'window': 3, 'heads': 2, **options})
        yield f'SelfAttention2d {words}', (make, IMAGE)
    for name in 'SqueezeExcitation', 'ChannelAttention', 'SpatialAttention':
        yield f'{name} Z2', (partial(getattr(layers, name), 4, 'Z2'), IMAGE)


# name -> (factory, shape of the input)
NETWORKS = dict([*registered(), *other_networks()])
LAYERS = EXAMPLES | dict(other_layers())
ALL = NETWORKS | LAYERS
# left out by default: they compute for seconds what a smaller one of their family computes
SLOW = {'p4-resnet18', 'p4m-resnet18', 'p4m-e4-resnet18', 'gsa-r12', 'gsa-r16',
        *(f'{name}-cifar100' for name in ('p4-resnet18', 'p4m-resnet18', 'p4-e4-resnet18',
                                          'p4m-e4-resnet18'))}


# --- records of runs

# who computed, when and by what: said of a record, and no number of it
AROUND = 'versions', 'hardware', 'commit', 'resumed', 'environment'


def digest(record):
    "Of all numbers of a record."
    numbers = {key: value for key, value in record.items() if key not in AROUND}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def digests():
    "Of each record but tables, which are measured anew."
    records = {str(path.relative_to(RESULTS)): json.loads(path.read_text(encoding='utf-8'))
               for path in sorted(RESULTS.rglob('*.json'))}
    return {name: digest(record) for name, record in records.items() if 'tables' not in record}


# --- the file

def content(): return json.loads(FILE.read_text(encoding='utf-8'))


def pinned():
    "The numbers of each network and layer."
    return content()['pins']


def changes(name, found, pins):
    "What does not agree with a pin, in words."
    if name not in pins: return [f'{name}: is not pinned yet']
    lines = []
    for what, new, old in zip(NUMBERS, found, pins[name], strict=True):
        if new.agrees(old): continue
        apart = abs(new.value - old)/max(new.size, 1e-300)
        lines.append(f'{name}: {what}: {old:.12g} is pinned, {new.value:.12g} computed, '
                     f'{apart:.0e} apart')
    return lines


def changed_records(pins):
    "Records that are new, gone or not what they were, in words."
    now = digests()
    return [f'results/{name}: is {"gone" if name not in now else "not what is pinned"}'
            for name in sorted(now.keys() | pins.keys()) if now.get(name) != pins.get(name)]


def compare(names):
    "What has changed, in words, and the pins as they should be; others stay, and who is gone goes."
    before = content() if FILE.exists() else dict(pins={}, records={})
    pins, lines, new = before['pins'], [], {}
    for name, case in ALL.items():
        old = pins.get(name)
        if names and name not in names:
            if old: new[name] = old
            continue
        found = compute(*case)
        lines += changes(name, found, pins)
        new[name] = [a if a is not None and b.agrees(a) else float(f'{b.value:.12g}')
                     for a, b in zip(old or [None]*len(NUMBERS), found)]
    if names: return lines, dict(pins=new, records=before['records'])
    lines += [f'{name}: is gone' for name in pins if name not in ALL]
    return lines + changed_records(before['records']), dict(pins=new, records=digests())


def write(pins, records):
    "A line for each, so that a difference shows which."
    def rows(entries): return ',\n'.join(f'  {json.dumps(k)}: {json.dumps(v)}'
                                         for k, v in entries.items())
    FILE.write_text(f'{{"about": {json.dumps(ABOUT)},\n "numbers": {json.dumps(NUMBERS)},\n'
                    f' "pins": {{\n{rows(pins)}}},\n "records": {{\n{rows(records)}}}}}\n',
                    encoding='utf-8')


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('names', nargs='*', help='networks and layers; all, and records, if none')
    parser.add_argument('--write', action='store_true', help=f'write {FILE.name}')
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - ALL.keys(): parser.error(f'unknown: {", ".join(unknown)}')
    lines, now = compare(given.names)
    print(*lines or ['nothing has changed'], sep='\n')
    if lines and given.write:
        write(**now)
        print('The commit says why these pins change.')
    return int(bool(lines) and not given.write)


if __name__ == '__main__': raise SystemExit(main())
