"""Networks of the papers beside their authors' code: time, memory, symmetry, outputs.

    git clone https://github.com/dwromero/att_gconvs
    git clone https://github.com/dwromero/g_selfatt
    git clone https://github.com/LingshenHe/Efficient-Equivariant-Network
    python tools/against_published.py --p1 att_gconvs --p3 g_selfatt \\
        --p4 Efficient-Equivariant-Network --out results/bench/published.json

A training step of ours, of theirs and of ours once more take turns in one process; what the third
differs from the first is the machine's noise. Peak memory is that of a step in a fresh process.
A network whose clone is not at hand has a row that says so. Nothing is written into a clone.
"""
import argparse
import importlib
import inspect
import math
import os
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from eqtutor.cost import count_parameters
from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.files import write_json
from eqtutor.measure import interleaved, peak_memory, training_step
from eqtutor.models import build_model
from eqtutor.models.self_attention import GSANet
from eqtutor.nn.convolution import EquivariantConv2d
from eqtutor.train import environment

SIDE, BATCH, REPEATS = 28, 16, 42
MEMORY_TIMEOUT = 1800   # seconds; the slowest step takes half a minute on an idle machine


# --- clones

@dataclass(frozen=True)
class Repository:
    "Published code on GitHub, and the files by which a clone of it is known."
    url:str
    files:tuple[str, ...]


REPOSITORIES = {
    'P1': Repository('https://github.com/dwromero/att_gconvs',
                     ('attgconv/attention_layers.py', 'attgconv/group/SE2.py',
                      'experiments/rot_mnist/models/z2cnn.py')),
    'P3': Repository('https://github.com/dwromero/g_selfatt',
                     ('g_selfatt/nn/group_local_self_attention.py', 'g_selfatt/groups/SE2.py',
                      'models/group_transformer.py')),
    'P4': Repository('https://github.com/LingshenHe/Efficient-Equivariant-Network',
                     ('model/architecture.py', 'model/group_op.py'))}


def unknown_layout(clone:Path, paper:str, what:str)->SystemExit:
    return SystemExit(f'{clone}: {what}. Expected the layout of {REPOSITORIES[paper].url}: '
                      'clone it again, or leave this one out.')


def git(clone:Path, *command:str)->str:
    done = subprocess.run(['git', '-C', str(clone), *command], capture_output=True, text=True)
    if done.returncode: raise SystemExit(f'{clone}: expected a git clone: {done.stderr.strip()}')
    return done.stdout.strip()


def checked_commit(clone:Path, paper:str)->str:
    "The commit of a clone that is what its authors published; an error if it is not."
    for name in REPOSITORIES[paper].files:
        if not (clone/name).is_file(): raise unknown_layout(clone, paper, f'it has no {name}')
    if changed := git(clone, 'status', '--porcelain', '--', '*.py'):
        raise SystemExit(f'{clone}: expected the published code, got changed files:\n{changed}\n'
                         'Put them back (git stash -u), or clone it again.')
    return git(clone, 'rev-parse', 'HEAD')


def undecorated(*args:Any, **kwargs:Any)->Callable[[Callable], Callable]:
    return lambda forward: forward


@contextmanager
def importable(clone:Path)->Iterator[None]:
    "Inside, the clone's modules can be imported on today's torch, and leave no trace in it."
    # P3's network wraps its forward in `torch.cuda.amp.autocast()`, deprecated: a warning where
    # there is no GPU, and half precision, on one side of the comparison only, where there is one
    full_precision = patch.object(torch.cuda.amp, 'autocast', undecorated, create=True)
    # the clones share the name `model`, a module in one and a package in the other
    path = patch.object(sys, 'path', [str(clone.resolve()), *sys.path])
    no_bytecode = patch.object(sys, 'dont_write_bytecode', True)
    with full_precision, path, no_bytecode, warnings.catch_warnings():
        warnings.simplefilter('ignore')
        importlib.invalidate_caches()
        yield


# --- what the authors' code is asked for

def their_attentive(name:str)->nn.Module:
    return getattr(importlib.import_module('experiments.rot_mnist.models.z2cnn'), name)()


def their_self_attention(poses:int)->nn.Module:
    "The network of P3's Table 2 for rotated MNIST, 5×5 windows."
    group = importlib.import_module('g_selfatt.groups').SE2(num_elements=poses)
    settings:dict[str, Any] = dict(
        in_channels=1, num_channels=20, block_sizes=[2, 3], expansion_per_block=1,
        crop_per_layer=[2, 0, 2, 1, 1], image_size=SIDE, num_classes=10, patch_size=5, num_heads=9,
        norm_type='LayerNorm', activation_function='Swish', attention_dropout_rate=.1,
        value_dropout_rate=.1, maxpool_after_last_block=False, normalize_between_layers=False)
    return importlib.import_module('models.group_transformer').GroupTransformer(
        group=group, **settings)


def their_e4()->nn.Module: return importlib.import_module('model.architecture').E4_net()


# --- their weights in our network: (name, tensor) there to (name, tensor) here

Translation = Callable[[str, Tensor], tuple[str, Tensor]]


def renamed(name:str, *rules:tuple[str, str])->str:
    for pattern, new in rules: name = re.sub(pattern, new, name)
    return name


def attentive_weight(name:str, t:Tensor, branch:str='branch.squeeze.weight')->tuple[str, Tensor]:
    excite = branch.replace('squeeze', 'excite')
    return renamed(name, (r'^c(\d)', r'layers.conv\1'), (r'^bn(\d)', r'layers.norm\1'),
                   (r'channel_attention\.weight_fc1', branch),
                   (r'channel_attention\.weight_fc2', excite),
                   ('spatial_attention', 'branch.spatial')), t


def e4_weight(name:str, t:Tensor)->tuple[str, Tensor]:
    # slices first there, offsets first here
    if '.conv2.0.net.' in f'.{name}': t = t.unflatten(0, (2, -1)).transpose(0, 1)
    name = renamed(name, (r'^fully_net\.0', 'head'), (r'^conv1\.', 'layers.conv.'),
                   (r'^bn1\.bn', 'layers.norm'))
    # our numbers begin behind the lifting layer
    name = re.sub(r'^(conv|bn)(\d)', lambda m: f'layers.{m[1]}{int(m[2]) - 1}', name)
    return renamed(name, (r'layers\.conv(\d)', r'layers.e4_\1'),
                   (r'layers\.bn(\d)\.bn', r'layers.norm\1'), (r'\.v\.0\.', '.encode.'),
                   (r'\.conv1\.0\.', '.generate.squeeze.'), (r'\.conv1\.1\.', '.generate.norm.'),
                   (r'\.conv2\.0\.net\.', '.generate.')), t


BLOCKS = {0: '0_0', 1: '0_1', 3: '1_0', 4: '1_1', 5: '1_2'}   # a pool is number 2


def self_attention_weight(name:str, t:Tensor)->tuple[str, Tensor]:
    here = renamed(
        name, (r'^lifting_self_attention', 'layers.lift'),
        (r'^lifting_normalization', 'layers.norm'), (r'^transformer\.6', 'layers.head'),
        *((rf'^transformer\.{n}', f'layers.block{at}') for n, at in BLOCKS.items()),
        (r'\.layer_norm\.', '.'), (r'\.wout\.', '.out.'), (r'\.attention\.', '.attend.'),
        (r'\.mlp\.', '.feed.'), ('col_embedding', 'encoder.mlps.0'),
        ('row_embedding', 'encoder.mlps.1'), ('group_embedding', 'encoder.pose'))
    if here.endswith('mlps.1.0.weight'): t = -t   # their rows go down, our y goes up
    if re.search(r'\.(query|key|value)\.', here):
        t = t.unflatten(0, (10, 9))               # channels of a head, heads
        rows = 5 if 'lift' in here else 3         # channels for rows, then as many for columns
        swap = [*range(rows, 2*rows), *range(rows), *range(2*rows, 10)]
        if '.value.' not in here: t = t[swap]     # columns come first here
        t = t.transpose(0, 1)
    if here.endswith('.out.weight'): t = t.flatten(1).unflatten(1, (10, 9)).transpose(1, 2)
    return here, t


@dataclass(frozen=True)
class Likeness:
    "A network of each side that should compute the same, once they have the same weights."
    words:str
    ours:Callable[[], nn.Module]
    theirs:Callable[[], nn.Module]
    translate:Translation
    factor:float=1.   # of our outputs


def with_haar_constant(name:str)->nn.Module:
    "One of P1's networks, whose group convolutions count with the measure of the published code."
    net:Any = build_model(name)
    for part, layer in net.named_modules():
        on_group = isinstance(layer, EquivariantConv2d) and layer.in_poses > 1
        one_by_one = part.endswith(('squeeze', 'excite'))   # which it counts as we do
        if on_group and not one_by_one:
            layer.register_forward_hook(lambda layer, args, y: y*math.pi/2)
    return net


def cropped_late()->nn.Module:
    net = GSANet('Z2', late_crop=True)   # behind the norm, as published
    for layer in net.modules():
        if isinstance(layer, (nn.GroupNorm, nn.LayerNorm)): layer.eps = 1e-12   # as published
    return net


def attentive_likeness(name:str, their_name:str)->Likeness:
    translate = attentive_weight
    if name == 'alpha-p4-cnn':
        translate = partial(attentive_weight, branch='branch.channel.squeeze')
    return Likeness('the published Haar constant', partial(with_haar_constant, name),
                    partial(their_attentive, their_name), translate)


@dataclass(frozen=True)
class Network:
    "A network of a paper, on both sides."
    name:str                          # as in the course's tables
    paper:str
    ours:str                          # as in `eqtutor models`
    theirs:Callable[[], nn.Module]
    like:Likeness|str                 # or why outputs cannot be the same
    group:str='p4'
    slow:int=1                        # one repeat in so many


def attentive_network(name:str, ours:str, theirs:str, slow:int=1)->Network:
    return Network(name, 'P1', ours, partial(their_attentive, theirs),
                   attentive_likeness(ours, theirs), slow=slow)


NETWORKS = {n.name: n for n in (
    attentive_network('p4-CNN', 'p4-cnn', 'P4CNN'),
    attentive_network('α_F-p4-CNN', 'alpha-F-p4-cnn', 'fA_P4CNN'),
    attentive_network('α-p4-CNN', 'alpha-p4-cnn', 'A_P4CNN', slow=2),
    Network('E4-Net', 'P4', 'p4-e4-net', their_e4, Likeness(
        'a scale and a shift for each pose, as published',
        partial(build_model, 'p4-e4-net', norm='published'), their_e4, e4_weight), slow=2),
    # the published network adds up what ours takes the mean of: 4×4 places are left of 28×28
    Network('Z2_SA', 'P3', 'gsa-z2', partial(their_self_attention, 1), Likeness(
        'cropped after the norm, as published', cropped_late, partial(their_self_attention, 1),
        self_attention_weight, factor=4**2), group='Z2', slow=6),
    Network('R4_SA', 'P3', 'gsa-r4', partial(their_self_attention, 4),
            'not compared: the published pose index is another function', slow=14))}


def published(name:str, clone:Path)->nn.Module:
    "The network of that name in the table, built by its authors' code."
    network = NETWORKS[name]
    with importable(clone):
        try: net = network.theirs()
        except (ImportError, AttributeError, TypeError) as error:
            raise unknown_layout(clone, network.paper, f'no {name} in it: {error}') from None
    # another package on the path may have the same name
    source = Path(inspect.getfile(type(net))).resolve()
    if source.is_relative_to(clone.resolve()): return net
    raise unknown_layout(clone, network.paper, f'its {name} came from {source}')


# --- measurements

def timed(network:Network, clone:Path, batch:int, repeats:int)->dict[str, Any]:
    "Medians of a step of ours, theirs, and ours once more, which took turns; and the noise."
    torch.manual_seed(0)
    x = torch.randn(batch, 1, SIDE, SIDE)
    nets = {'ours': build_model(network.ours), 'published': published(network.name, clone),
            'ours again': build_model(network.ours)}
    rounds = max(2, repeats//network.slow)
    times = interleaved({who: partial(training_step, net, x) for who, net in nets.items()}, rounds)
    seconds = {who: statistics.median(t) for who, t in times.items()}
    ratios = [again/once for once, again in zip(times['ours'], times['ours again'])]
    low, _, high = statistics.quantiles(ratios, n=4, method='inclusive')
    return {'repeats': rounds, 'seconds': seconds, 'time': seconds['ours']/seconds['published'],
            'again': seconds['ours again']/seconds['ours'], 'noise': (high - low)/2}


def peaks(network:Network, clone:Path, batch:int)->dict[str, Any]:
    "Peak bytes of a step of each, in a process of its own; the median of three where it is quick."
    shape, times = (batch, 1, SIDE, SIDE), 3 if network.slow == 1 else 1
    makes = {'ours': partial(build_model, network.ours),
             'published': partial(published, network.name, clone)}
    memory = {who: statistics.median(peak_memory(make, shape, timeout=MEMORY_TIMEOUT)
                                     for _ in range(times)) for who, make in makes.items()}
    return {'memory': memory, 'memory_ratio': memory['ours']/memory['published']}


@contextmanager
def float64()->Iterator[None]:
    "Inside, what a network makes without a type, a table of zeros say, is float64."
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try: yield
    finally: torch.set_default_dtype(before)


@torch.no_grad()
def moved(net:nn.Module)->nn.Module:
    "The net with every weight and running statistic moved, as by training; tables stay."
    tables = {name: b.clone() for name, b in net.named_buffers() if 'running' not in name}
    perturb_(net)
    for name, buffer in net.named_buffers():
        if name in tables: buffer.copy_(tables[name])
    return net


def errors(net:nn.Module, group:str)->dict[str, float]:
    "Largest relative error of equivariance over the group, at the start and with moved weights."
    x = torch.randn(2, 1, SIDE, SIDE, dtype=torch.float64)
    found = {}
    for when, change in ('initial', nn.Identity()), ('perturbed', moved):
        net = change(net).double().eval()
        with float64(): found[when] = max(equivariance_error(net, x, group, kind='invariant'))
    return found


def symmetry(network:Network, clone:Path)->dict[str, Any]:
    if network.group == 'Z2': return {'equivariance': None}   # no turn to test
    torch.manual_seed(0)
    return {'equivariance': {'ours': errors(build_model(network.ours), network.group),
                             'published': errors(published(network.name, clone), network.group)}}


@torch.no_grad()
def copy_weights(ours:nn.Module, theirs:nn.Module, translate:Translation)->None:
    "Give our network all weights and statistics of theirs; a KeyError if names do not match."
    state = {n: t for n, t in ours.state_dict().items() if t.is_floating_point()}
    learned = {n for n, _ in theirs.named_parameters()}
    for name, tensor in theirs.state_dict().items():
        if name not in learned and not name.endswith(('running_mean', 'running_var')): continue
        here, value = translate(name, tensor)
        target = state.pop(here)
        target.copy_(value.reshape(target.shape))
    if state: raise KeyError(f'nothing for {next(iter(state))}')


def outputs(network:Network, clone:Path)->dict[str, Any]:
    "max|ours − theirs| / max|theirs| of the scores, with their weights, moved, in both."
    like = network.like
    if isinstance(like, str): return {'outputs': like, 'output_difference': None}
    torch.manual_seed(0)
    with importable(clone): theirs = moved(like.theirs()).double().eval()
    ours = like.ours().double().eval()
    try: copy_weights(ours, theirs, like.translate)
    except (KeyError, RuntimeError) as error:
        raise unknown_layout(clone, network.paper, f'weights of {network.name}: {error}') from None
    x = torch.randn(2, 1, SIDE, SIDE, dtype=torch.float64)
    with float64(), torch.no_grad():
        y, expected = ours(x)*like.factor, theirs(x)
    difference = ((y - expected).abs().max()/expected.abs().max()).item()
    return {'outputs': f'weights copied, {like.words}', 'output_difference': difference}


def measured(network:Network, clone:Path, batch:int, repeats:int)->dict[str, Any]:
    counts = {'ours': count_parameters(build_model(network.ours)),
              'published': count_parameters(published(network.name, clone))}
    return {'parameters': counts, **timed(network, clone, batch, repeats),
            **peaks(network, clone, batch), **symmetry(network, clone), **outputs(network, clone)}


# --- the record

def row(network:Network, clone:Path|None, batch:int, repeats:int)->dict[str, Any]:
    "What was measured of a network; without a clone, that it was not."
    head = {'name': network.name, 'network': network.ours, 'paper': network.paper}
    if clone is None:
        reason = f'not measured: no clone of {REPOSITORIES[network.paper].url}'
        return {**head, 'measured': False, 'reason': reason}
    return {**head, 'measured': True, **measured(network, clone, batch, repeats)}


def line(row:dict[str, Any])->str:
    if not row['measured']: return f'{row["name"]:12} {row["reason"]}'
    errors, difference = row['equivariance'], row['output_difference']
    parts = [f'time × {row["time"]:.2f} ± {row["noise"]:.0%}',
             f'memory × {row["memory_ratio"]:.2f}']
    for who in ('ours', 'published') if errors else ():
        parts.append(f'{who} {errors[who]["initial"]:.0e} → {errors[who]["perturbed"]:.0e}')
    parts.append(row['outputs'] if difference is None else f'outputs differ by {difference:.0e}')
    return f'{row["name"]:12} ' + '   '.join(parts)


def options(arguments:list[str]|None)->argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    for paper, repository in REPOSITORIES.items():
        parser.add_argument(f'--{paper.lower()}', type=Path, help=f'clone of {repository.url}')
    parser.add_argument('--repeats', type=int, default=REPEATS, help='of the fast networks')
    parser.add_argument('--quick', action='store_true', help='3 repeats, batch 2, no R4_SA')
    parser.add_argument('--out', type=Path, help='the record, for instance '
                        'results/bench/published.json')
    return parser.parse_args(arguments)


def found_clones(chosen:argparse.Namespace)->dict[str, Path]:
    "The clones that are there, by paper; a word about each that is not."
    found = {}
    for paper, repository in REPOSITORIES.items():
        clone = getattr(chosen, paper.lower())
        if clone and clone.is_dir():
            found[paper] = clone
            continue
        print(f'{paper} is not measured: {clone or "no clone"} is not there. '
              f'git clone {repository.url}, then give --{paper.lower()} FOLDER.')
    return found


def command(chosen:argparse.Namespace, clones:dict[str, Path])->str:
    "What to type, with clones beside one."
    words = ['python tools/against_published.py']
    words += [f'--{paper.lower()} {clone.resolve().name}' for paper, clone in clones.items()]
    if chosen.quick: words.append('--quick')
    if chosen.repeats != REPEATS: words.append(f'--repeats {chosen.repeats}')
    return ' '.join([*words, '--out results/bench/published.json'])


def main(arguments:list[str]|None=None)->dict[str, Any]:
    chosen = options(arguments)
    clones = found_clones(chosen)
    batch, repeats = (2, 3) if chosen.quick else (BATCH, chosen.repeats)
    sources = {p: {'url': REPOSITORIES[p].url, 'commit': checked_commit(clone, p)}
               for p, clone in clones.items()}
    rows:list[dict[str, Any]] = []
    record = {'benchmark': 'published', **environment('cpu'), 'repositories': sources,
              'command': command(chosen, clones), 'quick': chosen.quick,
              'load': [os.getloadavg()[0]],
              'tables': {f'training step, batch {batch}, 1×28×28, ours over published': rows}}
    for network in NETWORKS.values():
        if chosen.quick and network.name == 'R4_SA': continue
        rows.append(row(network, clones.get(network.paper), batch, repeats))
        record['load'].append(os.getloadavg()[0])
        print(line(rows[-1]), flush=True)
        if chosen.out: write_json(chosen.out, record)
    return record


# under its own name, by which a fresh process can import what is measured there
if __name__ == '__main__': importlib.import_module('against_published').main()
