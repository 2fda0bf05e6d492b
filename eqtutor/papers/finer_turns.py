"Small networks on C1 … C16: what they learn on turned digits, and what learning does at 45°."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cost import count_parameters
from ..demo import turn_digits
from ..files import write_json
from ..groups import Group
from ..nn.convolution import GroupConv2d, LiftingConv2d
from ..nn.layers import GroupBatchNorm2d, SpatialPool2d
from ..train import digits, environment

# channels with which all have nearly as many parameters; for watching two of them learn
WIDTHS = {'C1': 16, 'C4': 8, 'C8': 6, 'C12': 5, 'C16': 4}
WATCHED = {'C4': 5, 'C8': 4}
LOOKS = 0, 2, 6, 13, 24, 37, 50, 74   # training steps
# pairs of turns of the same digit; those between pixels blur it alike
COMPARED = {'90°': (22.5, 112.5), '45°, both blurred': (22.5, 67.5), '45°, one upright': (0, 45)}
QUESTIONED = 90, 45, 30, 22.5, 11.25
# test errors in per cent, self-attention on rotated MNIST (P3, Table 2)
PUBLISHED = {'C1': 3.63, 'C4': 2.54, 'C8': 2.10, 'C12': 2.03, 'C16': 2.34}


class TurnNet(nn.Module):
    "Digits `(b, 1, 20, 20)` to scores `(b, 10)`: four convolutions, and a maximum over the poses."
    def __init__(self,
        group:Group|str,
        channels:int,
        features:int=24, # that the last convolution hands to the linear map
    ):
        super().__init__()
        c = channels
        options:dict[str, Any] = dict(group=group, padding='same', bias=False)
        layers:list[nn.Module] = [LiftingConv2d(1, c, 5, **options), GroupBatchNorm2d(c), nn.ReLU()]
        for out, size in ((c, 5), (c, 5), (features, 1)):
            if size > 1: layers.append(SpatialPool2d(2, group))
            conv = GroupConv2d(c, out, size, **options)
            layers += [conv, GroupBatchNorm2d(out), nn.ReLU()]
        self.features, self.head = nn.Sequential(*layers), nn.Linear(features, 10)

    def forward(self, x:Tensor)->Tensor:
        return self.head(self.features(x).amax(2).mean((-2, -1)))   # over poses, over places


def learn(
    net:nn.Module,
    x:Tensor,
    y:Tensor,
    epochs:int,
    seed:int=0,        # of the order
    batch:int=32,
    lr:float=5e-3,
    look:Callable[[int], None]=lambda step: None, # called before each step, and at the end
)->nn.Module:
    "Adam with one cycle of the learning rate."
    draw, per_epoch = torch.Generator().manual_seed(seed), len(x)//batch
    optimiser = torch.optim.Adam(net.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, epochs*per_epoch)
    orders = (torch.randperm(len(x), generator=draw)[:per_epoch*batch] for _ in range(epochs))
    steps = (part for order in orders for part in order.view(-1, batch))
    step = 0
    for step, part in enumerate(steps, 1):
        look(step - 1)
        F.cross_entropy(net.train()(x[part]), y[part]).backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    look(step)
    return net.eval()


@torch.no_grad()
def judge(
    net:nn.Module,
    turned:Iterable[Sequence[Tensor]], # digits at any angle, with their classes
    upright:Tensor,
)->dict[str, float]:
    "Test error on turned digits, and the share of digits whose class changes under a turn."
    def share(wrong:Tensor)->float: return wrong.float().mean().item()
    errors = [share(net(x).argmax(1) != y) for x, y in turned]
    guess = net(upright).argmax(1)
    changed = {f'changed at {a}°': share(net(turn_digits(upright, a)).argmax(1) != guess)
               for a in QUESTIONED}
    return {'error': sum(errors)/len(errors)} | changed


def store(file:str|Path|None, config:Mapping, runs:Sequence)->None:
    "Write what has been measured so far."
    if file: write_json(file, {'config': config, **environment('cpu'), 'runs': runs})


def measure_accuracy(
    file:str|Path|None, # where to write
    seeds:int=5,
    epochs:int=10,
    images:int|None=None,
    tests:int=400,
    groups:Iterable[str]=WIDTHS,
)->list[dict]:
    "Train on digits turned by any angle, with each group; one row a run."
    sets = [[t[:tests] for t in digits('test', 'any', s, 20).tensors] for s in range(4)]
    upright = digits('test', size=20).tensors[0][:tests]
    x, y = (t[:images] for t in digits('train', 'any', size=20).tensors)
    config = {'epochs': epochs, 'images': len(x), 'batch': 32, 'lr': 5e-3, 'test': 4*len(upright)}
    rows:list[dict] = []
    for seed, group in product(range(seeds), groups):
        torch.manual_seed(seed)
        net = learn(TurnNet(group, WIDTHS[group]), x, y, epochs, seed)
        row = {'group': group, 'seed': seed, 'parameters': count_parameters(net)}
        rows.append(row | judge(net, sets, upright))
        store(file, config, rows)
    return rows


@torch.no_grad()
def logit_change(
    net:nn.Module,
    x:Tensor,                   # upright digits
    angles:tuple[float, float],
)->float:
    "How far the logits of two turns of the same digits are apart, over their own variation."
    a, b = (net.eval()(turn_digits(x, angle)) for angle in angles)
    return ((a - b).norm()/(a - a.mean(1, keepdim=True)).norm()).item()


def measure_training(
    file:str|Path|None, # where to write
    seeds:int=3,
    images:int=1184,    # upright, seen twice
    looks:Sequence[int]=LOOKS,
)->list[dict]:
    "Train on upright digits, in float64, and compare the logits of turned ones along the way."
    x, y = (t[:images] for t in digits('train', size=20).tensors)
    unseen = digits('test', size=20).tensors[0][:24].double()
    config = {'epochs': 2, 'images': images, 'batch': 32, 'lr': 5e-3, 'looks': list(looks)}
    rows:list[dict] = []
    for group, seed in product(WATCHED, range(seeds)):
        torch.manual_seed(seed)
        net = TurnNet(group, WATCHED[group]).double()
        row:dict[str, Any] = {'group': group, 'seed': seed} | {name: [] for name in COMPARED}
        def look(step:int, row:dict=row, net:TurnNet=net)->None:
            if step not in looks: return
            for name, turns in COMPARED.items(): row[name].append(logit_change(net, unseen, turns))
        learn(net, x.double(), y, 2, seed, look=look)
        rows.append(row)
        store(file, config, rows)
    return rows


# --- what was measured

def column(
    runs:Iterable[dict],
    group:str,
    key:str,
)->Tensor:
    "A share, in per cent, of every run with this group."
    return 100*torch.tensor([r[key] for r in runs if r['group'] == group], dtype=torch.float64)


def accuracy_table(
    runs:Sequence[dict], # as `measure_accuracy` returns them
    mark:str='',         # of their record, beside what was measured
)->str:
    "Markdown: a row a group, means over the seeds."
    measured = 'test error, ours', 'class changes at 90°', 'at 45°', 'at 22.5°'
    heads = ' | '.join(f'{name}{mark}' for name in measured)
    lines = [f'| group | parameters | {heads} | P3, self-attention, rot-MNIST |',
             '|---' + '|---:'*6 + '|']
    for g, published in PUBLISHED.items():
        e, size = column(runs, g, 'error'), next(r['parameters'] for r in runs if r['group'] == g)
        changed = (f"{column(runs, g, f'changed at {a}°').mean():.1f} %" for a in (90, 45, 22.5))
        cells = g, f'{size:,}', f'{e.mean():.1f} ± {e.std():.1f} %', *changed, f'{published:.2f} %'
        lines.append(f'| {" | ".join(cells)} |')
    return '\n'.join(lines)
