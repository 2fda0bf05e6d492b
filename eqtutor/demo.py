"What `eqtutor demo` does: two networks trained on upright digits and tested on turned ones."
# Plain module: edited by hand, no notebook exports it.
import copy
import time
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import torch
from torch import Tensor, nn

from .actions import rotate
from .core import one_of
from .cost import count_parameters
from .models.group_cnn import p4_cnn, z2_cnn
from .names import needs
from .report import layer_report
from .train import TensorLoader, digits, environment, evaluate, fit, mnist, seed_everything

with needs('train'):
    from matplotlib.figure import Figure

Numbers = dict[str, dict[str, float]]


@dataclass
class DemoResult:
    "What `eqtutor demo` measured."
    config:dict
    environment:dict
    parameters:dict[str, int] = field(default_factory=dict)  # by network
    accuracy:Numbers = field(default_factory=dict)     # by network, then by turn
    curve:Numbers = field(default_factory=dict)        # by network, then by degrees
    # by network, then by layer: largest relative error over p4
    layer_error:Numbers = field(default_factory=dict)
    seconds:dict[str, float] = field(default_factory=dict)   # training time by network


NETWORKS = {'Z2-CNN': z2_cnn, 'p4-CNN': p4_cnn}
ANGLES = [22.5*k for k in range(17)]


def turn_digits(
    x:Tensor,      # normalised digits `(b, 1, h, w)`
    degrees:float, # counter-clockwise
)->Tensor:
    "Digits turned on their own background, the minimum of a normalised digit."
    return rotate(x - x.min(), degrees) + x.min()   # `rotate` fills with zeros


def _accuracy(net:nn.Module, x:Tensor, y:Tensor)->float:
    return evaluate(net, list(zip(x.split(256), y.split(256))))['accuracy']


def _layer_errors(net:nn.Module, x:Tensor)->dict[str, float]:
    "Largest equivariance error over p4 after each layer, in float64."
    report = layer_report(copy.deepcopy(net).double().eval(), x.double(), 'p4')
    same_as_before = 'layers.relu', 'layers.dropout'
    return {name.removeprefix('layers.'): max(e) for name, _, _, e in report.rows
            if not name.startswith(same_as_before)}


def _turned(source:Any, x:Tensor, seed:int)->dict[str, Tensor]:
    "Test digits in each turn; quarter turns move pixels, exactly."
    any_turn = source('test', turned='any', seed=seed).tensors[0]
    return {'upright': x, '90°': rotate(x, 90), '180°': rotate(x, 180),
            '270°': rotate(x, 270), 'any angle': any_turn[:len(x)]}


def run_demo(
    seed:int=0,           # of the weights, the order of the digits and the angles
    epochs:int=10,
    data:str='digits',    # scikit-learn's 1,797; or 'mnist', 10,000 of them
    bar:bool=True,        # show progress bars
)->tuple[DemoResult, dict[str, nn.Module], Tensor]:
    "Train both networks upright, test them turned: result, networks, a test digit."
    if epochs < 1: raise ValueError(f'epochs must be at least 1, got {epochs}')
    source = {'digits': digits, 'mnist': mnist}[one_of(data, 'digits', 'mnist')]
    train, valid = source('train'), source('valid')
    x, y = (t[:10_000] for t in source('test').tensors)
    tests, nets = _turned(source, x, seed), dict[str, nn.Module]()
    config = dict(seed=seed, epochs=epochs, data=data,
                  train=len(train), test=len(y))
    result = DemoResult(config, environment())
    for name, make in NETWORKS.items():
        seed_everything(seed)
        net, began = make(), time.perf_counter()
        result.parameters[name] = size = count_parameters(net)
        if bar:
            print(f'{name}: {size:,} parameters, {epochs} epochs on {len(train):,} upright digits')
        loader = TensorLoader(train, 64, shuffle=True, seed=seed)
        fit(net, loader, TensorLoader(valid, 256), epochs, lr=3e-3,
            schedule='cosine', bar=bar)
        result.seconds[name] = round(time.perf_counter() - began, 1)
        nets[name] = _tested(net.eval(), name, tests, y, result)
    return result, nets, telling_digit(nets, x[:400], y[:400])


@torch.no_grad()
def telling_digit(nets:dict[str, nn.Module], x:Tensor, y:Tensor)->Tensor:
    "A digit that both networks read as it stands, and the plain one in the fewest of its turns."
    upright, turned = torch.ones(len(x)), torch.zeros(len(x))
    for name, net in nets.items():
        right = [(net(rotate(x, 90*k)).argmax(1) == y).float() for k in range(4)]
        upright *= right[0]
        turned += sum(right[1:])*(1 if name == 'p4-CNN' else -1)
    return x[(turned - 9*(1 - upright)).argmax()][None]


def _tested(net:nn.Module, name:str, tests:dict[str, Tensor], y:Tensor,
            result:DemoResult)->nn.Module:
    "Write down what a trained network does with turned digits."
    x = tests['upright']
    result.accuracy[name] = {turn: _accuracy(net, t, y) for turn, t in tests.items()}
    result.curve[name] = {f'{a:g}': _accuracy(net, turn_digits(x[:400], a), y[:400])
                          for a in ANGLES}
    result.layer_error[name] = _layer_errors(net, x[:4])
    return net


def accuracy_table(
    result:DemoResult,
)->str:
    "Test accuracy of each network on turned digits, as text."
    turns = list(next(iter(result.accuracy.values())))
    heads = ''.join(f'{turn:>11}' for turn in turns)
    lines = [f'{"test accuracy, digits turned by":32}{heads}']
    for name, row in result.accuracy.items():
        label = f'{name} ({result.parameters[name]:,} parameters)'
        lines.append(f'{label:32}' + ''.join(f'{row[t]:>10.1%} ' for t in turns))
    return '\n'.join(lines)


def error_table(
    result:DemoResult,
)->str:
    "Largest equivariance error over p4 after each layer, as text."
    errors = result.layer_error
    heads = ''.join(f'{name:>11}' for name in errors)
    lines = [f'{"equivariance error after layer":32}{heads}']
    for layer in next(iter(errors.values())):
        cells = [f'{errors[name][layer]:>11.0e}' for name in errors]
        lines.append(f'{layer:32}' + ''.join(cells))
    return '\n'.join(lines)


def draw_demo(
    result:DemoResult,
    digit:Tensor, # `(1, 1, 28, 28)`, shown turned along the axis
)->bytes:
    "Accuracy against the angle of the test digits, as a PNG."
    fig = Figure(figsize=(7.5, 4.2), layout='constrained')
    ax = fig.subplots()
    for (name, curve), style in zip(result.curve.items(), ('s--', 'o-')):
        label = f'{name}, {result.parameters[name]:,} parameters'
        ax.plot([float(a) for a in curve], list(curve.values()), style, label=label)
    ax.set(xlabel='test digits turned by (degrees)', xticks=range(0, 361, 45),
           ylabel='test accuracy', yticks=[0, .2, .4, .6, .8, 1],
           xlim=(-14, 374), ylim=(0, 1.25))
    for angle in range(0, 361, 45):
        small = ax.inset_axes((angle - 12, 1.04, 24, .19), transform=ax.transData)
        small.imshow(turn_digits(digit, float(angle))[0, 0], cmap='gray')
        small.axis('off')
    fig.suptitle('Trained on upright digits only', fontsize='large')
    fig.legend(loc='outside lower center', ncols=2)
    fig.savefig(buffer := BytesIO(), dpi=120, metadata={'Software': None})
    return buffer.getvalue()
