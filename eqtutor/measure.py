"""The time of a training step as a ratio, its memory in a process of its own, and both in one table
with what `cost` counts."""
# Plain module: edited by hand, no notebook exports it.

import base64
import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cost import Shape, count_parameters, layer_costs
from .interpreter import python


def training_step(
    net:nn.Module,
    x:Tensor,
    precision:str='no',
)->float:
    """Forward, cross-entropy, backward; gradients are dropped. Returns the loss.

    Parameters
    ----------
    net : nn.Module
        images to scores `(b, classes)`
    x : Tensor
        on the device of the net
    precision : str, default 'no'
        'no' (float32), or 'bf16' by autocast
    """
    half = precision == 'bf16'
    with torch.autocast(x.device.type, torch.bfloat16) if half else nullcontext():
        scores = net(x)
    targets = torch.arange(len(x), device=x.device) % scores.shape[1]
    loss = F.cross_entropy(scores.float() if half else scores, targets)
    loss.backward()
    net.zero_grad(set_to_none=True)
    return loss.item()   # waits for the device

def interleaved(
    steps:Mapping[str, Callable[[], Any]],
    repeats:int=9,
    warm_up:int=1,
    seconds:float=math.inf,
)->dict[str, list[float]]:
    """Seconds of each repeat of each step; they take turns, after rounds to warm up.

    Parameters
    ----------
    steps : Mapping[str, Callable[[], Any]]
        each ends when its work is done
    repeats : int, default 9
    warm_up : int, default 1
        rounds before the first that counts
    seconds : float, default math.inf
        after so many no other round begins; one to warm up and one that counts always
        do
    """
    times:dict[str, list[float]] = {name: [] for name in steps}
    until = time.perf_counter() + seconds
    for i in range(-warm_up, repeats):
        if time.perf_counter() > until and i not in (-warm_up, 0): continue
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if i >= 0: times[name].append(time.perf_counter() - began)
    return times

def time_ratio(
    net:nn.Module,
    yardstick:nn.Module,
    x:Tensor,
    yardstick_x:Tensor|None=None,
    repeats:int=9,
)->float:
    """Time of a training step over the yardstick's: medians of interleaved repeats.

    Parameters
    ----------
    net : nn.Module
    yardstick : nn.Module
    x : Tensor
        input of the net
    yardstick_x : Tensor | None, default None
        input of the yardstick; `x` if None
    repeats : int, default 9
    """
    other = x if yardstick_x is None else yardstick_x
    steps = {'net': partial(training_step, net, x),
             'yardstick': partial(training_step, yardstick, other)}
    times = interleaved(steps, repeats)
    return statistics.median(times['net'])/statistics.median(times['yardstick'])

def _resident()->int:
    "Largest resident size of this process so far, in bytes."
    status = Path('/proc/self/status')
    if status.exists():  # Linux, whose `getrusage` begins with the parent's number
        lines = status.read_text().splitlines()
        return next(int(l.split()[1])*1024 for l in lines if l.startswith('VmHWM'))
    try:
        import resource
    except ImportError:
        raise RuntimeError('peak memory on a CPU is measured '
                           'on Linux and macOS only.') from None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def _reset_peak()->None:
    "Linux: set the high-water mark back to the present size."
    with suppress(OSError): Path('/proc/self/clear_refs').write_text('5')

def step_peak(
    step:Callable[[], Any],
    device:str='cpu',       # or 'cuda'
)->int:                     # bytes
    "Peak memory of a step over what this process holds before it."
    if device == 'cpu':
        _reset_peak()
        before = _resident()
        step()
        return _resident() - before
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before

def in_fresh_process(
    function:str,      # 'package.module:name'
    *args:Any,         # what another process can import or read
    timeout:float=600, # seconds
)->Any:                # what JSON can hold
    "What a function returns in a new process with as many threads."
    job = function, args, torch.get_num_threads()
    try: pickled = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError): pickled = b'__main__'
    if b'__main__' in pickled: raise ValueError(   # it could not read that
        f'this is measured in a fresh process, which must be able to import all of {args!r}: '
        'give a function of a module, or functools.partial of one, instead of a lambda '
        'or something defined in a notebook.')
    # it imports from where this process does, and from nowhere else
    child = python('from eqtutor.measure import run_job; run_job()',
                   path=[os.path.abspath(p) for p in sys.path])
    try:
        done = subprocess.run(child, input=base64.b64encode(pickled), capture_output=True,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError('a measurement in a process of its own took more than '
                           f'{timeout:g} s. Give a larger timeout=, or a smaller '
                           'batch.') from None
    output = (done.stderr if done.returncode else done.stdout).decode(errors='replace')
    *_, last = output.strip().splitlines() or [
        f'exit {done.returncode}: killed, probably for lack of memory']
    if done.returncode == 0: return json.loads(last)
    raise RuntimeError(f'a measurement failed in its own process: {last}')

def run_job()->None:
    "What the fresh process runs: a job on stdin, a line of JSON on stdout."
    function, args, threads = pickle.loads(base64.b64decode(sys.stdin.read()))
    torch.set_num_threads(threads)
    print(json.dumps(resolve_name(function)(*args)))

def peak_memory(
    make:Callable[[], nn.Module],
    shape:Sequence[int],
    device:str='cpu',
    timeout:float=600,
)->int:
    """Peak memory of one training step over the built network, in a fresh process.

    Parameters
    ----------
    make : Callable[[], nn.Module]
        a function of an importable module, or a `functools.partial` of one
    shape : Sequence[int]
        of the input, batch included
    device : str, default 'cpu'
        or 'cuda'
    timeout : float, default 600
        seconds

    Returns
    -------
    int
        bytes
    """
    return in_fresh_process('eqtutor.measure:measured_peak', make, tuple(shape), str(device),
                            timeout=timeout)

def measured_peak(
    make:Callable[[], nn.Module], # arguments as for `peak_memory`
    shape:Shape,
    device:str,
)->int:
    "The same in this process."
    torch.manual_seed(0)
    net, x = make().to(device), torch.randn(shape, device=device)
    # a step of next to nothing loads what the first step of a process loads
    tiny = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()).to(device)
    training_step(tiny, torch.randn(2, 1, 5, 5, device=device))
    return step_peak(partial(training_step, net, x), device)

@dataclass(frozen=True)
class CostRow:
    "What one network costs; what was not measured is None."
    name:str
    parameters:int
    macs:int                       # of one image, forward
    time:float|None = None         # of a training step, over the yardstick's
    memory:int|None = None         # peak bytes of a training step, over the built net
    memory_ratio:float|None = None # the same over the yardstick's
    compile:float|None = None      # seconds of the first, cold call of a compiled net
    seconds:float|None = None      # of a training step
    repeats:int|None = None        # of which `time` and `seconds` are medians

def cost_table(
    networks:Mapping[str, Callable[[], nn.Module]],
    shape:Sequence[int],
    yardstick:Callable[[], nn.Module]|None=None,
    yardstick_shape:Sequence[int]|None=None,
    time:bool=False,
    memory:bool=False,
    device:str='cpu',
    repeats:int=9,
)->list[CostRow]:
    """Parameters and MACs; if asked for, time and memory of a training step.

    Parameters
    ----------
    networks : Mapping[str, Callable[[], nn.Module]]
        name to factory
    shape : Sequence[int]
        of the input, batch included
    yardstick : Callable[[], nn.Module] | None, default None
        factory; needed for time and memory ratios
    yardstick_shape : Sequence[int] | None, default None
        of its input; `shape` if None
    time : bool, default False
        measure time ratios
    memory : bool, default False
        measure memory, each network in a fresh process
    device : str, default 'cpu'
    repeats : int, default 9
    """
    if time and yardstick is None:
        raise ValueError('time is a ratio: give yardstick=, the factory of the network '
                         'to compare with.')
    other, base = yardstick_shape or shape, None
    if memory and yardstick: base = peak_memory(yardstick, other, device)
    rows = []
    for name, make in networks.items():
        net, x = make().to(device), torch.randn(tuple(shape), device=device)
        macs = sum(r.macs for r in layer_costs(net, x[:1]))
        row = CostRow(name, count_parameters(net), macs)
        if time and yardstick:
            other_x = torch.randn(tuple(other), device=device)
            row = replace(row, time=time_ratio(net, yardstick().to(device), x, other_x, repeats))
        if memory:
            peak = peak_memory(make, shape, device)
            row = replace(row, memory=peak, memory_ratio=peak/base if base else None)
        rows.append(row)
    return rows

def markdown_table(
    rows:Sequence[CostRow],
)->str:
    "The rows in Markdown; a dash is not measured, and a column of dashes is left out."
    columns:dict[str, Callable[[CostRow], str|None]] = {
        'network': lambda r: r.name,
        'parameters': lambda r: f'{r.parameters:,}',
        'MACs': lambda r: with_prefix(r.macs),
        'time': lambda r: as_factor(r.time),
        'compile': lambda r: as_seconds(r.compile),
        'peak memory': lambda r: as_megabytes(r.memory),
        'memory': lambda r: as_factor(r.memory_ratio)}
    cells = {head: [cell(r) for r in rows] for head, cell in columns.items()}
    always = ('network', 'parameters', 'MACs')
    heads = [head for head in cells if head in always or any(cells[head])]
    rule = ['---' if head == 'network' else '---:' for head in heads]
    body = zip(*([cell or '–' for cell in cells[head]] for head in heads))
    return '\n'.join(f'| {" | ".join(line)} |' for line in [heads, rule, *body])

def as_seconds(seconds:float|None)->str|None:
    "'12 s' of seconds; None of none."
    return None if seconds is None else f'{seconds:,.0f} s'

def as_megabytes(size:int|None)->str|None:
    "'12 MB' of bytes; None of none."
    return None if size is None else f'{size/2**20:,.0f} MB'

def as_factor(ratio:float|None)->str|None:
    "'× 0.33' of a ratio; None of none."
    if ratio is None: return None
    return f'× {ratio:.2g}' if ratio < 99.5 else f'× {ratio:,.0f}'

def with_prefix(n:int)->str:
    "'12.3 K' of 12,345: three digits, and K, M, G or T."
    for unit, size in (('T', 10**12), ('G', 10**9), ('M', 10**6), ('K', 10**3)):
        # 999,600 is 1 M, not 1e+03 K
        if n >= .9995*size: return f'{n/size:.3g} {unit}'
    return str(n)
