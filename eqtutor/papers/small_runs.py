"""When does attention pay? Each small task with each network and seed, and tables of the runs.

`python -m eqtutor.papers.small_runs` does what is missing; `--task A` one task alone. `--times`
measures what a step of each network costs, which the runs of equal time need, and `--rates` tries
three learning rates for the networks of the comparisons that decide.
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
RATES = f'{FOLDER}/rates'
COMMAND = 'python -m eqtutor.papers.small_runs'
SEEDS = 5
FRESH = 10**6   # seed of the images to test on: no run is so long that it draws them
CHOICE = 100    # seed of the trainings that choose a rate, and of the images they are judged by
FACTORS = .5, 1., 2.  # of the task's rate

Scores = dict[str, float]
AROUND = 'variant', 'network', 'seed', 'steps', 'lr', 'parameters'  # beside a run's scores


@dataclass(frozen=True)
class Entry:
    "A network of a task."
    name:str
    make:Callable[[], nn.Module]
    equal_time:str = ''        # the network in whose time it is trained, if not in its own
    only:tuple[str, ...] = ()  # the variants in which it takes part; all if empty
    longer:int = 1             # how many times the steps of the others
    searched:bool = False      # is its rate chosen of three?

    @property
    def label(self)->str:
        "What it is called among the entries of its task."
        if self.equal_time: return f'{self.name}, time of {self.equal_time}'
        return self.name if self.longer == 1 else f'{self.name}, {self.longer} × the steps'


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
    # of a network, on images that are not the test's; the less the better
    choice:Callable[[nn.Module], float]|None = None

    def entry(self, label:str)->Entry:
        "The network that takes part under that label."
        return next(entry for entry in self.entries if entry.label == label)

    def jobs(self, seeds:Sequence[int])->Iterator[tuple[str, Entry, int]]:
        "Those that take part in one variant only come last."
        for everywhere in (True, False):
            for variant, entry in product(self.variants, self.entries):
                if everywhere == bool(entry.only) or variant not in (entry.only or [variant]):
                    continue
                for seed in seeds: yield variant, entry, seed

    def steps_of(self, entry:Entry)->int|None:
        "None where equal time is asked for and no time is measured."
        if not entry.equal_time: return self.steps*entry.longer
        rows = timings(BENCH)
        mine, other = (rows.get(f'{self.letter} {name}')
                       for name in (entry.name, entry.equal_time))
        return round(self.steps*other['time']/mine['time']) if mine and other else None

    def rate_of(self, entry:Entry, variant:str)->float:
        "The best of those that were tried for it in this variant; the task's where none was."
        if variant != next(iter(self.variants)): return self.lr   # `try_rates` takes the first
        tried = [run for run in (stored(RATES) or {'runs': []})['runs']
                 if (run['task'], run['network']) == (self.letter, entry.label)]
        if len(tried) < len(FACTORS): return self.lr
        return min(tried, key=lambda run: run['loss'])['lr']


# --- the tasks

@cache
def test_images(draw:Callable[[int, Generator], Batch], n:int=400, seed:int=FRESH)->Batch:
    "The same for all networks."
    return draw(n, dice(seed))

@torch.no_grad()
def choice_look_up(net:nn.Module)->float:
    "Cross entropy on pictures of six pairs that no test has."
    x, y = test_images(PAIRS['6 pairs'], seed=FRESH + CHOICE)
    return F.cross_entropy(net(x), y).item()

def choice_defocus(net:nn.Module)->float:
    "Percent of the variance that is missed on pictures that no test has."
    return relative_error(net, test_images(defocus, seed=FRESH + CHOICE))

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

PAIRS = {f'{n} pairs': partial(look_up, pairs=n) for n in (6, 4, 3, 2)}
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
    Entry('convolution 7×7', partial(compare_net, 'conv', 4, 4, 7), 'self-attention'),
    Entry('plain convolution 3×3', partial(compare_net, 'conv', 18, 18, 3, 'Z2')),
    Entry('convolution, places first',
          partial(compare_net, 'conv', 26, 26, 1, how='places first'))])

SIX = '6 pairs',
MEAN = 'convolution and the mean', partial(LookUpNet, 'conv', 24, 8, 3, hears_all=True)
PLAIN = 'plain self-attention', partial(LookUpNet, 'self-attention', 40, 38, 4, 'Z2')
SEVEN = 'convolution 7×7', partial(LookUpNet, 'conv', 12, 4, 7)
B = Task('B', 'look-up', {name: fresh(look, 32) for name, look in PAIRS.items()}, 300, .005,
         score_look_up, [
    Entry('self-attention', partial(LookUpNet, 'self-attention', 32, 32, 4), searched=True),
    Entry(*MEAN, 'self-attention', searched=True),
    Entry(*MEAN, only=SIX),
    Entry('convolution 1×1 and a wide mean',
          partial(LookUpNet, 'conv', 30, 30, 1, hears_all=True), 'self-attention', SIX),
    Entry(*SEVEN, only=SIX),
    Entry(*SEVEN, 'self-attention', SIX),
    Entry(*PLAIN, only=SIX),
    Entry(*PLAIN, 'self-attention', SIX, searched=True),
    Entry('plain convolution and the mean',
          partial(LookUpNet, 'conv', 44, 14, 3, 'Z2', hears_all=True), 'self-attention', SIX),
    Entry('no encoding', partial(LookUpNet, 'no encoding', 32, 32), only=SIX),
    Entry('E4 7×7', partial(LookUpNet, 'E4', 24, 22, 7), only=SIX),
    Entry('ASC 7×7', partial(LookUpNet, 'ASC', 16, 12, 7), only=SIX),
    Entry('α_F', partial(LookUpNet, 'α_F', 18, 4), only=SIX)], choice=choice_look_up)

THREE = 'convolution 3×3, three', partial(DefocusNet, [conv(5, 3)]*3, 8)
PLAIN_E4 = 'plain E4 5×5', partial(DefocusNet, [('E4', 40, 5)], 24, 'Z2')
PLAIN_DEPTH = 'plain depth E4 5×5', partial(DefocusNet, [('depth E4', 40, 5)], 24, 'Z2')
C = Task('C', 'defocus', {'': fresh(defocus, 16)}, 200, .01, score_defocus, [
    Entry('E4 5×5', partial(DefocusNet, [('E4', 22, 5)], 14), searched=True),
    Entry('depth E4 5×5', partial(DefocusNet, [('depth E4', 22, 5)], 14), searched=True),
    Entry(*THREE),
    Entry(*THREE, 'E4 5×5', searched=True),
    Entry(*THREE, 'ASC 5×5'),
    Entry('plain convolution 3×3, three', partial(DefocusNet, [conv(10, 3)]*3, 16, 'Z2'),
          'E4 5×5', searched=True),
    Entry('convolution 5×5, then 1×1', partial(DefocusNet, [conv(3, 5), conv(14, 1)], 8)),
    Entry('four times the parameters', partial(DefocusNet, [conv(12, 5), conv(14, 1)], 9)),
    Entry(*PLAIN_E4),
    Entry(*PLAIN_E4, 'E4 5×5', searched=True),
    Entry(*PLAIN_DEPTH, 'E4 5×5', searched=True),
    Entry('ASC 5×5', partial(DefocusNet, [('ASC', 8, 5)], 8))], F.mse_loss, choice_defocus)

ASC = 'ASC', partial(digit_net, 'ASC', 12, 14)
ATTENTION = 'self-attention', partial(digit_net, 'self-attention', 26, 26, 8)
D = Task('D', 'digits', {'50 digits': few(50)}, 150, .01, score_digits, [
    Entry('convolution 3×3', partial(digit_net, 'conv', 10, 10)),
    Entry('α_F', partial(digit_net, 'α_F', 5, 7)),
    Entry('E4', partial(digit_net, 'E4', 20, 20)),
    Entry(*ASC),
    Entry(*ASC, longer=3),
    Entry(*ATTENTION),
    Entry(*ATTENTION, longer=3),
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
    lr = task.rate_of(entry, variant)
    net = trained(task, variant, entry, seed, steps, lr)
    scores = {name: round(value, 4) for name, value in task.scores(net, variant).items()}
    return {'variant': variant, 'network': entry.label, 'seed': seed, 'steps': steps, 'lr': lr,
            'parameters': count_parameters(net), **scores}

def trained(
    task:Task,
    variant:str,
    entry:Entry,
    seed:int,
    steps:int,
    lr:float,
)->nn.Module:
    "A network: its weights, its images and their order come from the seed."
    torch.manual_seed(seed)
    return train(entry.make(), task.variants[variant](seed), steps, lr, seed, task.loss)

def kept(name:str, run:Run, runs:Sequence[Run], **about:Any)->None:
    "Write a file of runs with one more, and by whom it was made."
    record = stored(name) or {}
    here, before = environment('cpu'), record.get('environment')
    resumed = record.get('resumed', [])
    if before and before != here and before not in resumed: resumed = [*resumed, before]
    file = results_folder()/f'{name}.json'
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {**about, 'environment': here, 'resumed': resumed, 'runs': [*runs, run]})

def is_of(run:Run, variant:str, entry:Entry, seed:int)->bool:
    "Is this a run of that network, whatever its steps and its rate?"
    return (run['variant'], run['network'], run['seed']) == (variant, entry.label, seed)

def run_task(
    task:Task,
    seeds:Sequence[int]=range(SEEDS),
    say:Callable[[str], Any]=print,
    network:str='',   # its label; all if empty
)->None:
    """Do what is missing in the file of the task, which holds each run as soon as it is done.

    A run with another number of steps, or another rate, is done anew.
    """
    for variant, entry, seed in task.jobs(seeds):
        if network not in ('', entry.label): continue
        steps = task.steps_of(entry)
        if steps is None:
            say(f'{entry.label}: {COMMAND} --times comes first')
            continue
        there = [run for run in runs_of(task) if is_of(run, variant, entry, seed)]
        today = steps, task.rate_of(entry, variant)
        if any((r['steps'], r['lr']) == today for r in there): continue
        run = perform(task, variant, entry, seed, steps)
        kept(f'{FOLDER}/{task.name}', run, [r for r in runs_of(task) if r not in there],
             task=task.name, config={'lr': task.lr, 'steps': task.steps, 'device': 'cpu'})
        say(f'{task.letter} {run}')

def try_rates(
    task:Task,
    say:Callable[[str], Any]=print,
)->None:
    "Train the networks that ask for it with three rates, and keep what each one misses."
    variant, *_ = task.variants
    for entry, factor in product(task.entries, FACTORS):
        if not entry.searched or task.choice is None: continue
        runs, lr = (stored(RATES) or {'runs': []})['runs'], factor*task.lr
        key = task.letter, entry.label, lr, task.steps_of(entry)
        if key[-1] is None or any(
                (r['task'], r['network'], r['lr'], r['steps']) == key for r in runs): continue
        others = [r for r in runs if (r['task'], r['network'], r['lr']) != key[:3]]
        net = trained(task, variant, entry, CHOICE, key[-1], lr)
        run = dict(zip(('task', 'network', 'lr', 'steps'), key), loss=round(task.choice(net), 4))
        kept(RATES, run, others, config={'seed': CHOICE, 'device': 'cpu'})
        say(str(run))

def measure_times(
    tasks:Sequence[Task],
    rounds:int=7,
    seconds:Callable[[], float]=time.process_time,
)->None:
    "What is missing: processor time of a step over that of the task's first convolution."
    tables:dict[str, list[Run]] = dict((stored(BENCH) or {'tables': {}})['tables'])
    for task in tasks:
        variant, *_ = task.variants
        batch = task.variants[variant](0)(dice(0))
        known = [row['name'] for row in tables.get(task.name, [])]
        nets = {e.name: e.make().train() for e in task.entries}
        first = next(name for name in nets if name.startswith('convolution'))
        nets = {name: net for name, net in nets.items()
                if name == first or f'{task.letter} {name}' not in known}
        if [*nets] == [first] and known: continue
        spent:dict[str, list[float]] = {name: [] for name in nets}
        for i in range(-1, rounds):
            for name, net in nets.items():
                began = seconds()
                for _ in range(3):
                    task.loss(net(batch[0]), batch[1]).backward()
                    net.zero_grad()
                if i >= 0: spent[name].append((seconds() - began)/3)
        unit = statistics.median(spent[first])
        tables[task.name] = [*tables.get(task.name, []), *(
            {'name': f'{task.letter} {name}', 'parameters': count_parameters(net),
             'time': round(statistics.median(spent[name])/unit, 3), 'repeats': 3*rounds}
            for name, net in nets.items() if f'{task.letter} {name}' not in known)]
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
    lines = ['| task | network | parameters | steps | rate | time of a step | seeds | in % |',
             '|---|---|---:|---:|---:|---:|---:|---|']
    bench, rows = stored(BENCH), timings(BENCH)
    for task in map(TASKS.__getitem__, letters):
        record = stored(f'{FOLDER}/{task.name}')
        mark = provenance_mark(record) if record else ''
        for variant, entry, _ in task.jobs(range(1)):
            runs = [r for r in runs_of(task)
                    if (r['network'], r['variant']) == (entry.label, variant)]
            row = rows.get(f'{task.letter} {entry.name}')
            ratio = f"× {row['time']:.2g}{provenance_mark(bench)}" if row else 'not measured'
            names = [key for key in runs[0] if key not in AROUND] if runs else []
            scores = ' · '.join(f'{name} {spread([r[name] for r in runs])}{mark}' for name in names)
            where = f'{task.letter} {variant}'.strip()
            steps, rate = ((runs[0]['steps'], f"{runs[0]['lr']:g}") if runs else ('–', '–'))
            lines.append(f'| {where} | {entry.label} | {count_parameters(entry.make()):,} '
                         f'| {steps} | {rate} | {ratio} | {len(runs) or "–"} '
                         f"| {scores or 'not run'} |")
    return with_note('\n'.join(lines))


def main(arguments:Sequence[str]|None=None)->None:
    "Run what is missing, from the command line."
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument('--task', choices=[*TASKS], help='one task alone')
    parser.add_argument('--network', default='', help='one network alone, by its label')
    parser.add_argument('--rates', action='store_true', help='try rates, and run nothing else')
    parser.add_argument('--times', action='store_true', help='measure steps, and train nothing')
    parser.add_argument('--seeds', type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tasks = [TASKS[given.task]] if given.task else [*TASKS.values()]
    if given.times: return measure_times(tasks)
    for task in tasks:
        if given.rates: try_rates(task)
        else: run_task(task, range(given.seeds), network=given.network)


if __name__ == '__main__': main()
