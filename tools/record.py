"""What every registered network and every layer computes, to be compared after a rebuilding.

    python tools/record.py write FILE [--only REGEX]     before
    python tools/record.py check FILE [--only REGEX]     after

A case is the keys and shapes of the `state_dict`, the output and the gradients of input and
parameters: batch 1, float64, evaluation mode, one thread. Each parameter is filled from a hash of
its key, so that the order in which a constructor draws does not matter. `check` says of each case
whether it is equal to the last bit, or how far off; more than 1e-12 counts as a failure.
"""
import argparse
import hashlib
import re
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from eqtutor.models import MODELS
from tests.nn.every_layer import EXAMPLES

SIDES = {'rot-MNIST': (1, 28), 'CIFAR-10': (3, 16), 'CIFAR-100': (3, 16), 'PCam': (3, 32)}
ALLOWED = 1e-12
PROBES = 3   # random directions in which a tensor is compared, beside its bytes


def noise(key:str, shape:tuple)->Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], 'little')
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def fill(net:nn.Module)->nn.Module:
    "Every floating entry of the `state_dict` from a hash of its key."
    for key, t in net.state_dict().items():
        if not t.is_floating_point(): continue
        n = noise(key, t.shape)
        if key.endswith('running_var'): value = (.3*n).exp()
        elif t.ndim > 1: value = n*t[0].numel()**-.5
        else: value = .2*n + float(key.endswith('weight'))
        t.copy_(value)
    return net


def summary(t:Tensor|None)->dict:
    t = torch.zeros(0) if t is None else t.detach().contiguous()
    t = t.double()
    probes = [noise(f'probe{i}', (t.numel(),)) @ t.flatten() for i in range(PROBES)]
    return dict(shape=tuple(t.shape), sha=hashlib.sha256(t.numpy().tobytes()).hexdigest(),
                probes=[p.item() for p in probes], norm=t.norm().item())


def run(make, shape:tuple)->dict:
    torch.manual_seed(0)
    net = fill(make().double()).eval()
    x = noise('input', shape).requires_grad_()
    y = net(x)
    (y*noise('cotangent', y.shape)).sum().backward()
    tensors = dict(output=summary(y), input=summary(x.grad))
    tensors |= {f'gradient of {k}': summary(p.grad) for k, p in net.named_parameters()}
    return dict(state={k: tuple(v.shape) for k, v in net.state_dict().items()}, tensors=tensors)


def cases(only:str)->dict:
    networks = {f'network {name}': (m.make, SIDES[m.data]) for name, m in MODELS.items()}
    every = {name: (make, (1, c, n, n)) for name, (make, (c, n)) in networks.items()}
    every |= {f'layer {k}': (make, (1, *shape[1:])) for k, (make, shape) in EXAMPLES.items()}
    return {name: case for name, case in every.items() if re.search(only, name)}


def difference(old:dict, new:dict)->float:
    "Largest difference of a projection, relative to its tensor; infinite where shapes differ."
    if old['state'] != new['state'] or old['tensors'].keys() != new['tensors'].keys():
        return float('inf')
    worst = 0.
    for name, a in old['tensors'].items():
        b = new['tensors'][name]
        if a['sha'] == b['sha']: continue
        if a['shape'] != b['shape']: return float('inf')
        steps = [abs(p - q) for p, q in zip(a['probes'], b['probes'])]
        worst = max(worst, sys.float_info.min, max(steps)/(a['norm'] or 1.))
    return worst


def check(record:dict, todo:dict)->int:
    "Print a line a case; the number of failures."
    failures = 0
    for name, case in todo.items():
        if name not in record:
            print(f'new    {name}')
            continue
        error = difference(record[name], run(*case))
        failures += not error <= ALLOWED
        print('equal ' if error == 0 else f'{error:.0e}', name, flush=True)
    return failures


def main()->None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', choices=['write', 'check'])
    parser.add_argument('file', type=Path)
    parser.add_argument('--only', default='.')
    options = parser.parse_args()
    torch.set_num_threads(1)
    todo = cases(options.only)
    if options.what == 'write':
        torch.save({name: run(*case) for name, case in todo.items()}, options.file)
        return
    failures = check(torch.load(options.file, weights_only=True), todo)
    print(f'{len(todo)} cases, {failures} failures')
    sys.exit(bool(failures))


if __name__ == '__main__': main()
