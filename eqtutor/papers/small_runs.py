"""When does attention pay? Each small task with each network and seed, and tables of the runs.

`python -m eqtutor.papers.small_runs` does what is missing; `--task A` one task alone; `--times`
measures what a step of each network costs, which the runs of equal time need.
"""
# Plain module: edited by hand, no notebook exports it.
import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..cost import count_parameters
from ..files import provenance_mark, results_folder, stored, timings, with_note, write_json
from ..train import digits, environment
from .small_tasks import (
    Batch,
    DefocusNet,
    LookUpNet,
    accuracy,
    compare_net,
    defocus,
    dice,
    digit_net,
    few_digits,
    look_up,
    relative_error,
    same_pose,
    train,
)

FOLDER, BENCH = 'when-attention-pays', 'bench/small-tasks'
COMMAND = 'python -m eqtutor.papers.small_runs'
SEEDS = 3
FRESH = 10**6   # seed of the images to test on: no run is so long that it draws them

Scores = dict[str, float]
AROUND = 'variant', 'network', 'seed', 'steps', 'parameters'   # what a run has beside its scores


@dataclass(frozen=True)
class Entry:
    "A network of a task."
    name:str
    make:Callable[[], nn.Module]
    equal_time:str = ''        # the entry whose time it is given; else all take as many steps
    only:tuple[str, ...] = ()  # the variants in which it takes part; all if empty


@dataclass(frozen=True)
class Task:
    "What is drawn, learnt and measured."
    letter:str
    name:str
    # each variant: from a seed to what draws the images of a step
    variants:Mapping[str, Callable[[int], Callable[[Generator], Batch]]]
    steps:int
    lr:float
    scores:Callable[[nn.Module, str], Scores]   # of a network, trained on a variant
    entries:Sequence[Entry]
    loss:Callable[[Tensor, Tensor], Tensor] = F.cross_entropy

    def entry(self, name:str)->Entry:
        "The network that takes part under that name."
        return next(entry for entry in self.entries if entry.name == name)

    def jobs(self, seeds:Sequence[int])->Iterator[tuple[str, Entry, int]]:
        "Those that take part in one variant only come last."
        for everywhere in (True, False):
            for variant, entry in product(self.variants, self.entries):
                if everywhere == bool(entry.only) or variant not in (entry.only or [variant]):
                    continue
                for seed in seeds: yield variant, entry, seed

    def steps_of(self, entry:Entry)->int|None:
        "None where equal time is asked for and no time is measured."
        if not entry.equal_time: return self.steps
        rows = timings(BENCH)
        names = entry.name.removesuffix(', equal time'), entry.equal_time
        mine, other = (rows.get(f'{self.letter} {name}') for name in names)
        return round(self.steps*other['time']/mine['time']) if mine and other else None


# --- the tasks

@cache
def test_images(draw:Callable[[int, Generator], Batch], n:int=400)->Batch:
    "The same for all networks."
    return draw(n, dice(FRESH))

def fresh(draw:Callable[[int, Generator], Batch], n:int)->Callable[[int], Any]:
    "Images that are drawn anew at each step."
    return lambda seed: partial(draw, n)

def few(n:int)->Callable[[int], Callable[[Generator], Batch]]:
    "Batches of 32 from the same n digits, which the seed chooses."
    def from_seed(seed:int)->Callable[[Generator], Batch]:
        x, y = few_digits(n, dice(seed))
        def batch(draw:Generator)->Batch:
            chosen = torch.randint(n, (32,), generator=draw)
            return x[chosen], y[chosen]
        return batch
    return from_seed

def score_same_pose(net:nn.Module, variant:str)->Scores:
    "Percent of fresh pictures that are answered rightly."
    return {'right': accuracy(net, test_images(same_pose))}

PAIRS = {f'{n} pairs': partial(look_up, pairs=n) for n in (6, 4, 2)}
NEW = {name: partial(look, new=True) for name, look in PAIRS.items()}

def score_look_up(net:nn.Module, variant:str)->Scores:
    "Percent of the asked cells answered rightly, on shapes of the training and on others."
    return {'known shapes': accuracy(net, test_images(PAIRS[variant])),
            'new shapes': accuracy(net, test_images(NEW[variant]))}

STRONG = partial(defocus, contrast=3.)

def score_defocus(net:nn.Module, variant:str)->Scores:
    "Percent of the variance that is missed, on fresh pictures and on stronger ones."
    return {'error': relative_error(net, test_images(defocus)),
            'error at contrast × 3': relative_error(net, test_images(STRONG))}

def score_digits(net:nn.Module, variant:str)->Scores:
    "Percent of the test digits read rightly, turned by quarters and upright."
    return {'turned': accuracy(net, digits('test', 'quarter', size=8).tensors),
            'upright': accuracy(net, digits('test', size=8).tensors)}

def conv(out:int, side:int)->tuple[str, int, int]:
    "A convolution as a layer of a compared network."
    return 'conv', out, side

A = Task('A', 'same-pose', {'': fresh(same_pose, 16)}, 80, .01, score_same_pose, [
    Entry('convolution', partial(compare_net, 'conv', 26, 26, 1)),
    Entry('convolution 3×3', partial(compare_net, 'conv', 10, 9)),
    Entry('convolution, joint maximum',
          partial(compare_net, 'conv', 26, 26, 1, how='joint maximum')),
    Entry('E4', partial(compare_net, 'E4', 18, 18)),
    Entry('ASC', partial(compare_net, 'ASC', 10, 12)),
    Entry('self-attention, no encoding', partial(compare_net, 'no encoding', 26, 26)),
    Entry('self-attention', partial(compare_net, 'self-attention', 23, 24, 10)),
    Entry('α_F', partial(compare_net, 'α_F', 10, 3)),
    Entry('convolution 7×7', partial(compare_net, 'conv', 4, 4, 7)),
    Entry('convolution 7×7, equal time', partial(compare_net, 'conv', 4, 4, 7),
          equal_time='self-attention'),
    Entry('plain convolution 3×3', partial(compare_net, 'conv', 18, 18, 3, 'Z2')),
    Entry('convolution, places first',
          partial(compare_net, 'conv', 26, 26, 1, how='places first'))])

SIX = '6 pairs',
B = Task('B', 'look-up', {name: fresh(look, 32) for name, look in PAIRS.items()}, 300, .005,
         score_look_up, [
    Entry('self-attention', partial(LookUpNet, 'self-attention', 32, 32, 4)),
    Entry('convolution and the mean, equal time',
          partial(LookUpNet, 'conv', 24, 8, 3, hears_all=True), equal_time='self-attention'),
    Entry('convolution and the mean', partial(LookUpNet, 'conv', 24, 8, 3, hears_all=True),
          only=SIX),
    Entry('convolution 7×7', partial(LookUpNet, 'conv', 12, 4, 7), only=SIX),
    Entry('plain self-attention', partial(LookUpNet, 'self-attention', 40, 38, 4, 'Z2'),
          only=SIX)])

C = Task('C', 'defocus', {'': fresh(defocus, 16)}, 200, .01, score_defocus, [
    Entry('E4 5×5', partial(DefocusNet, [('E4', 22, 5)], 14)),
    Entry('convolution 3×3, three', partial(DefocusNet, [conv(5, 3)]*3, 8)),
    Entry('convolution 3×3, three, equal time', partial(DefocusNet, [conv(5, 3)]*3, 8),
          equal_time='E4 5×5'),
    Entry('convolution 5×5, then 1×1', partial(DefocusNet, [conv(3, 5), conv(14, 1)], 8)),
    Entry('four times the parameters', partial(DefocusNet, [conv(12, 5), conv(14, 1)], 9)),
    Entry('plain E4 5×5', partial(DefocusNet, [('E4', 40, 5)], 24, 'Z2')),
    Entry('ASC 5×5', partial(DefocusNet, [('ASC', 8, 5)], 8))], F.mse_loss)

D = Task('D', 'digits', {'50 digits': few(50)}, 150, .01, score_digits, [
    Entry('convolution 3×3', partial(digit_net, 'conv', 10, 10)),
    Entry('α_F', partial(digit_net, 'α_F', 5, 7)),
    Entry('E4', partial(digit_net, 'E4', 20, 20)),
    Entry('ASC', partial(digit_net, 'ASC', 12, 14)),
    Entry('self-attention', partial(digit_net, 'self-attention', 26, 26, 8)),
    Entry('plain convolution 3×3', partial(digit_net, 'conv', 20, 20, 3, 'Z2'))])

TASKS = {task.letter: task for task in (A, B, D, C)}


# --- runs

Run = dict[str, Any]

def file_of(task:Task)->Path:
    "Where the runs of a task are kept."
    return results_folder()/FOLDER/f'{task.name}.json'

def runs_of(task:Task)->list[Run]:
    "The runs that are kept; none where there is no file."
    return (stored(f'{FOLDER}/{task.name}') or {'runs': []})['runs']

def perform(
    task:Task,
    variant:str,
    entry:Entry,
    seed:int,
    steps:int,
)->Run:
    "Train and measure one network."
    torch.manual_seed(seed)
    net = entry.make()
    train(net, task.variants[variant](seed), steps, task.lr, seed, task.loss)
    scores = {name: round(value, 4) for name, value in task.scores(net, variant).items()}
    return {'variant': variant, 'network': entry.name, 'seed': seed, 'steps': steps,
            'parameters': count_parameters(net), **scores}

def run_task(
    task:Task,
    seeds:Sequence[int]=range(SEEDS),
    say:Callable[[str], Any]=print,
)->None:
    "Do what is missing in the file of the task, which holds each run as soon as it is done."
    for variant, entry, seed in task.jobs(seeds):
        record, steps = stored(f'{FOLDER}/{task.name}') or {'runs': []}, task.steps_of(entry)
        key = variant, entry.name, seed
        if any((r['variant'], r['network'], r['seed']) == key for r in record['runs']): continue
        if steps is None:
            say(f'{entry.name}: {COMMAND} --times comes first')
            continue
        run = perform(task, variant, entry, seed, steps)
        here, before = environment('cpu'), record.get('environment')
        resumed = record.get('resumed', [])
        if before and before != here and before not in resumed: resumed = [*resumed, before]
        file_of(task).parent.mkdir(parents=True, exist_ok=True)
        write_json(file_of(task), {
            'task': task.name, 'environment': here, 'resumed': resumed,
            'config': {'lr': task.lr, 'steps': task.steps, 'device': 'cpu'},
            'runs': [*record['runs'], run]})
        say(f'{task.letter} {run}')

def measure_times(
    tasks:Sequence[Task],
    rounds:int=7,
    seconds:Callable[[], float]=time.process_time,
)->None:
    "Processor time of a training step over that of the task's first convolution."
    tables:dict[str, list[Run]] = dict((stored(BENCH) or {'tables': {}})['tables'])
    for task in tasks:
        variant, *_ = task.variants
        batch = task.variants[variant](0)(dice(0))
        nets = {e.name: e.make().train() for e in task.entries if not e.equal_time}
        spent:dict[str, list[float]] = {name: [] for name in nets}
        for i in range(-1, rounds):
            for name, net in nets.items():
                began = seconds()
                for _ in range(3):
                    task.loss(net(batch[0]), batch[1]).backward()
                    net.zero_grad()
                if i >= 0: spent[name].append((seconds() - began)/3)
        unit = statistics.median(spent[next(n for n in nets if n.startswith('convolution'))])
        tables[task.name] = [
            {'name': f'{task.letter} {name}', 'parameters': count_parameters(net),
             'time': round(statistics.median(spent[name])/unit, 3), 'repeats': 3*rounds}
            for name, net in nets.items()]
        file = results_folder()/f'{BENCH}.json'
        write_json(file, {'benchmark': 'small-tasks', **environment('cpu'), 'protocol': {
            'step': 'forward, loss, backward', 'statistic': 'ratio of medians',
            'clock': 'process_time', 'order': 'networks take turns', 'threads': 1,
            'yardstick': "the task's first convolution"}, 'tables': tables})


# --- what was measured, in words

def values(
    letter:str,
    network:str,
    score:str,
    variant:str='',
)->list[float]:
    "One number a seed; none where nothing was run."
    return [run[score] for run in runs_of(TASKS[letter])
            if (run['network'], run['variant']) == (network, variant)]

def spread(numbers:Sequence[float], digits:int=1)->str:
    "Mean ± deviation, both as printed; one number alone; '' of none."
    if not numbers: return ''
    mean = f'{statistics.mean(numbers):.{digits}f}'
    return mean if len(numbers) == 1 else f'{mean} ± {statistics.stdev(numbers):.{digits}f}'

def not_run(letter:str)->str:
    "What stands in the place of a number that nobody measured."
    return f'not run: `{COMMAND} --task {letter}`'

def compared(
    letter:str,
    first:str,       # network
    second:str,
    score:str,
    variant:str='',
    lower:bool=False, # is a low score a good one?
    says:tuple[str, str]=('', ''), # what the text calls the two
)->str:
    "A sentence on two networks: their numbers, and whether the runs separate them."
    a, b = (values(letter, name, score, variant) for name in (first, second))
    one, other = (name or network for name, network in zip(says, (first, second)))
    if not a or not b: return f'{one} against {other}: {not_run(letter)}.'
    numbers = f'{one} has {spread(a)} %, {other} {spread(b)} %'
    if min(len(a), len(b)) < 2: return f'{numbers}: a single run is no verdict.'
    runs = f'{len(a)} and {len(b)} runs' if len(a) != len(b) else f'{len(a)} runs each'
    if max(min(a), min(b)) <= min(max(a), max(b)):
        return f'{numbers} ({runs}): these runs overlap, and do not separate the two.'
    ahead = one if (min(a) > max(b)) != lower else other
    return f'{numbers} ({runs}): each run of {ahead} is ahead of each of the other.'

def learnt(
    letter:str,
    network:str,
    score:str,
    above:float, # in per cent
    variant:str='',
)->str:
    "'3 of 3': with how many seeds the network is above a level."
    numbers = values(letter, network, score, variant)
    return f'{sum(n > above for n in numbers)} of {len(numbers)}' if numbers else not_run(letter)

def runs_table(
    letters:Sequence[str]=tuple(TASKS),
)->str:
    "Markdown: a row a task, variant and network; means over the seeds, time over a convolution's."
    lines = ['| task | network | parameters | steps | time of a step | seeds | in % |',
             '|---|---|---:|---:|---:|---:|---|']
    bench, rows = stored(BENCH), timings(BENCH)
    for task in map(TASKS.__getitem__, letters):
        record = stored(f'{FOLDER}/{task.name}')
        mark = provenance_mark(record) if record else ''
        for variant, entry, _ in task.jobs(range(1)):
            runs = [r for r in runs_of(task)
                    if (r['network'], r['variant']) == (entry.name, variant)]
            row = rows.get(f"{task.letter} {entry.name.removesuffix(', equal time')}")
            ratio = f"× {row['time']:.2g}{provenance_mark(bench)}" if row else 'not measured'
            names = [key for key in runs[0] if key not in AROUND] if runs else []
            scores = ' · '.join(f'{name} {spread([r[name] for r in runs])}{mark}' for name in names)
            where = f'{task.letter} {variant}'.strip()
            lines.append(f'| {where} | {entry.name} | {count_parameters(entry.make()):,} '
                         f"| {runs[0]['steps'] if runs else '–'} | {ratio} | {len(runs) or '–'} "
                         f"| {scores or 'not run'} |")
    return with_note('\n'.join(lines))


def main(arguments:Sequence[str]|None=None)->None:
    "Run what is missing, from the command line."
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument('--task', choices=[*TASKS], help='one task alone')
    parser.add_argument('--times', action='store_true', help='measure steps, and train nothing')
    parser.add_argument('--seeds', type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tasks = [TASKS[given.task]] if given.task else [*TASKS.values()]
    if given.times: return measure_times(tasks)
    for task in tasks: run_task(task, range(given.seeds))


if __name__ == '__main__': main()
