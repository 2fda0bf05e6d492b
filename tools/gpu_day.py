"""A GPU day in a box: what needs a machine with CUDA, in steps that go on where they stopped.

    tools/gpu_day.sh --data FOLDER --budget 6h      again and again, until it ends with 0
    tools/gpu_day.sh --device cpu --smoke           all of it, tried on a processor
    tools/gpu_day.sh --device cpu --only bench      the benchmarks of a processor, measured

In order: the tests marked `cuda`, all benchmarks, the papers' recipes by priority. Results go to
`results/`, what is needed to go on to `runs/`. A call ends with 0 when all is done or the budget is
used up, 75 when its time is over, 1 if a step failed (`--retry` tries it again), 2 if something is
missing.
"""
import argparse
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch
from torchvision.datasets import CIFAR10

from eqtutor.files import write_json
from eqtutor.papers.protocol import end_with_parent
from eqtutor.papers.train import Training
from eqtutor.train import CHECKPOINT, MNIST_MD5, data_root, environment

EQTUTOR = [sys.executable, '-c', 'from eqtutor.cli import app; app()']
BENCHMARKS = 'networks', 'e4', 'attentive', 'affine', 'gsa', 'frame'
DONE, FAILED, MISSING = 0, 1, 2   # exit codes
AGAIN = os.EX_TEMPFAIL            # 75

# network, data, recipe; the most wanted first
RECIPES = [
    ('gsa-r4', 'rotmnist', 'P3 rotMNIST'),
    ('alpha-p4-cnn', 'rotmnist', 'P1 rotMNIST'),
    ('p4-e4-resnet18', 'cifar10', 'P4 CIFAR'),
    ('p4m-e4-resnet18', 'cifar10', 'P4 CIFAR'),
    ('p4-resnet29-asc', 'cifar10', 'P2 ResNet29'),
    ('z2-resnet29-asc', 'cifar10', 'P2 ResNet29'),
]
# instead of the recipe's own, to try the code
SMALL:dict[str, dict[str, Any]] = {
    'rotmnist': dict(data='digits', images=16, test_images=20, epochs=2, precision='no'),
    'cifar10': dict(per_class=1, test_images=8, epochs=2, valid=0)}
CIFAR_FILES = [name for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list)]
FILES = {'rotmnist': [f'MNIST/raw/{name}' for name in MNIST_MD5],
         'cifar10': [f'{CIFAR10.base_folder}/{name}' for name in CIFAR_FILES]}


@dataclass(frozen=True)
class Step:
    "A command, and what shows that it got on."
    name:str
    command:Callable[[], list[str]]   # asked for when it begins: what has begun is resumed
    kept:Path|None=None               # file that changes when something more is safe
    data:str=''                       # of `FILES`
    finished:Callable[[], bool]=lambda: False   # by its result, whatever this day remembers


@dataclass
class Day:
    "Where things lie, and what has been done."
    device:str
    smoke:bool
    call_seconds:float
    budget:float
    into:Path=ROOT
    began:float=field(default_factory=time.monotonic)
    before:float=0.                            # seconds that the calls before this one took
    steps:dict[str, dict]=field(default_factory=dict)

    def __post_init__(self)->None:
        place = self.into/'runs'/'smoke' if self.smoke else self.into
        self.results, self.runs = place/'results', place/'runs'
        self.folder = self.runs/f'day-{self.device}'
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder/'state.json'

    def used(self)->float: return time.monotonic() - self.began   # seconds of this call

    def spent(self)->float: return self.before + self.used()      # of all calls

    def remember(self)->None:
        "What the calls before this one did."
        if not self.file.exists(): return
        kept = json.loads(self.file.read_text(encoding='utf-8'))
        self.before, self.steps = kept['spent'], kept['steps']

    def save(self)->None: write_json(self.file, {'spent': self.spent(), 'steps': self.steps})

    def left(self)->float:
        "Seconds before this call, or the budget, is over; some remain for an end in order."
        margin = min(20, .1*self.call_seconds)
        return min(self.call_seconds - margin - self.used(), self.budget - self.spent())


# --- what is to be done

def training_step(day:Day, network:str, data:str, recipe:str)->Step:
    "A paper's recipe, trained and tested; a run that has a checkpoint goes on from there."
    options:dict[str, Any] = dict(network=network, data=data)
    if day.smoke: options |= SMALL[data]
    settings = Training.read(None, recipe, **options)
    result = day.results/settings.experiment/'0.json'
    checkpoint = day.runs/settings.experiment/'0'/CHECKPOINT

    def command()->list[str]:
        given = [f'--{k.replace("_", "-")}={v}' for k, v in options.items()]
        folders = ['--out', str(day.results), '--runs', str(day.runs)]
        resume = ['--resume'] if checkpoint.exists() else []
        return [*EQTUTOR, 'train', '--recipe', recipe, *given, *folders, *resume]

    def finished()->bool:
        return result.exists() and len(json.loads(result.read_text())['history']) >= settings.epochs
    needed = '' if options['data'] == 'digits' else data
    return Step(f'train {network}', command, checkpoint, needed, finished)


def benchmark_step(day:Day, name:str)->Step:
    "A benchmark; the rows that are measured are kept."
    rows = day.folder/f'bench-{name}.json'
    suffix = '' if day.device == 'cpu' else f'-{day.device}'
    out = day.results/'bench'/f'{name}{suffix}.json'
    command = [*EQTUTOR, 'bench', name, '--device', day.device, '--out', str(out),
               '--rows', str(rows), '--timeout', str(.6*day.call_seconds)]
    if day.smoke: command.append('--smoke')
    return Step(f'bench {name}', lambda: command, rows)


def test_steps()->Iterator[Step]:
    "The tests that need a GPU, file by file; on a processor they say why they do not run."
    for path in sorted((ROOT/'tests').rglob('test_*.py')):
        if '@pytest.mark.cuda' not in path.read_text(encoding='utf-8'): continue
        name = path.relative_to(ROOT).as_posix()
        command = [sys.executable, '-m', 'pytest', '-n0', '-m', 'cuda', name]
        yield Step(f'tests {name}', lambda command=command: command)   # type: ignore[misc]


def all_steps(day:Day)->list[Step]:
    "What the day holds, in order."
    return [*test_steps(), *(benchmark_step(day, name) for name in BENCHMARKS),
            *(training_step(day, *recipe) for recipe in RECIPES)]


def missing_files(step:Step)->list[Path]:
    "Files of its data set that are not there."
    return [path for name in FILES.get(step.data, []) if not (path := data_root()/name).is_file()]


def possible_steps(steps:list[Step], smoke:bool)->list[Step]:
    "The steps whose data are there; without all of them there is only a try of the code."
    missing = {step.name: files for step in steps if (files := missing_files(step))}
    if missing and not smoke:
        names = sorted({str(file) for paths in missing.values() for file in paths})
        raise ValueError(f'The data of {", ".join(missing)} are missing: {names[0]}'
                         f'{f" and {len(names) - 1} more" if names[1:] else ""}. Give the folder '
                         'that holds MNIST/ and cifar-10-batches-py/ by --data or EQTUTOR_DATA, or '
                         'leave those steps out: --only names the others.')
    for name in missing: say(f'{name}: left out, its data are missing')
    return [step for step in steps if step.name not in missing]


# --- doing it

def say(text:str)->None: print(time.strftime('%H:%M:%S'), text, flush=True)


def stop(process:subprocess.Popen)->None:
    "Let a command end in order, and soon."
    process.send_signal(signal.SIGINT)
    try: process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(day:Day, process:subprocess.Popen)->int|None:
    "The exit code; None if the time was over first. The time spent is remembered on the way."
    saved = time.monotonic()
    try:
        while process.poll() is None and day.left() > 0:
            time.sleep(.2)
            if time.monotonic() - saved > 5:
                day.save()
                saved = time.monotonic()
        return process.poll()
    finally:
        if process.poll() is None: stop(process)


def state_of(step:Step)->object:
    "Changes when the step has got on."
    return step.kept.stat().st_mtime_ns if step.kept and step.kept.exists() else None


def run(day:Day, step:Step)->None:
    "Run a step as long as there is time, and write down what came of it."
    before, given, began = state_of(step), day.left(), time.monotonic()
    log = day.folder/(re.sub(r'\W+', '-', step.name) + '.log')
    command = step.command()
    with open(log, 'ab') as out:
        out.write(f'\n$ {" ".join(command[3:])}\n'.encode())
        out.flush()
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                                   preexec_fn=partial(end_with_parent, os.getpid()))
        code = wait(day, process)
    took = day.steps.get(step.name, {}).get('seconds', 0) + time.monotonic() - began
    whole_call = given > .7*day.call_seconds
    if code is not None: state = 'failed' if code else 'done'
    elif whole_call and state_of(step) == before: state = 'too long for one call'
    else: state = 'begun'
    day.steps[step.name] = {'state': state, 'exit': code, 'seconds': round(took, 1)}
    day.save()
    say(f'{step.name}: {state}, {took:.0f} s' + (f', see {log}' if code else ''))


def run_all(day:Day, steps:list[Step], retry:bool)->int:
    "One call: the steps that are left, as far as the time goes. Returns the exit code."
    settled = {'done'} if retry else {'done', 'failed', 'too long for one call'}
    for step in steps:
        if day.steps.get(step.name, {}).get('state') in settled: continue
        if step.finished():
            day.steps[step.name] = {'state': 'done'}
            continue
        if day.left() <= 0: break
        run(day, step)
    day.save()
    states = {step.name: day.steps.get(step.name, {'state': 'not begun'}) for step in steps}
    if day.smoke or day.device == 'cuda': write_record(day, states)
    for name, outcome in states.items(): print(f'{outcome["state"]:22} {name}')
    if any(s['state'] in ('begun', 'not begun') for s in states.values()):
        if day.spent() < day.budget: return AGAIN
        say('the budget is used up')
    wrong = any(s['state'] in ('failed', 'too long for one call') for s in states.values())
    return FAILED if wrong else DONE


def write_record(day:Day, states:dict[str, dict])->None:
    "What the day came to, with versions and hardware, among the results."
    day.results.mkdir(parents=True, exist_ok=True)
    about = {'smoke': day.smoke, **environment(day.device), 'seconds': round(day.spent(), 1)}
    write_json(day.results/'gpu-day.json', about | {'steps': states})


@contextmanager
def alone(day:Day)->Iterator[None]:
    "One call at a time; the system takes the lock from one that was killed."
    with open(day.folder/'lock', 'w') as file:
        try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f'Another call is at work in {day.folder}: '
                             'wait for its end.') from None
        yield


def as_seconds(text:str)->float:
    "Seconds of '90', '90s', '45m' or '6h'."
    found = re.fullmatch(r'([\d.]+)([smh]?)', text)
    if not found: raise argparse.ArgumentTypeError(f'expected 90s, 45m or 6h, got {text!r}')
    return float(found[1])*{'': 1, 's': 1, 'm': 60, 'h': 3600}[found[2]]


def read_options(arguments:list[str]|None)->argparse.Namespace:
    about, usage = __doc__.split('\n\n', 1)
    parser = argparse.ArgumentParser(description=about, epilog=usage,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', choices=['cuda', 'cpu'], default='cuda')
    parser.add_argument('--smoke', action='store_true', help='try the code; results in runs/smoke')
    parser.add_argument('--data', type=Path, help='folder of the data, instead of EQTUTOR_DATA')
    parser.add_argument('--budget', type=as_seconds, default=as_seconds('24h'),
                        help='for all calls together: 90s, 45m, 6h')
    parser.add_argument('--call-seconds', type=as_seconds, default=600., help='for this call')
    parser.add_argument('--only', nargs='+', default=[''], metavar='PART',
                        help='steps with one of these in their names, such as tests, bench, gsa')
    parser.add_argument('--into', type=Path, default=ROOT,
                        help='folder of results/ and runs/, instead of this repository')
    parser.add_argument('--retry', action='store_true', help='try again what failed')
    return parser.parse_args(arguments)


def main(arguments:list[str]|None=None)->int:
    options = read_options(arguments)
    if options.data: os.environ['EQTUTOR_DATA'] = str(options.data.resolve())
    if options.device == 'cpu': os.environ['CUDA_VISIBLE_DEVICES'] = ''
    options.into = options.into.resolve()
    os.chdir(ROOT)   # where commands run, and git knows the commit
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return MISSING
    except KeyboardInterrupt:
        say('stopped: the next call goes on')
        return AGAIN


def work(options:argparse.Namespace)->int:
    "Check what is asked for, then do it."
    day = Day(options.device, options.smoke, options.call_seconds, options.budget, options.into)
    if day.device == 'cuda' and not torch.cuda.is_available():
        raise ValueError('There is no CUDA device here. `--device cpu --smoke` tries all of it on '
                         'a processor, `--device cpu --only bench` measures the benchmarks there.')
    steps = [s for s in all_steps(day) if any(part in s.name for part in options.only)]
    if day.device == 'cpu' and not day.smoke:
        steps = [s for s in steps if s.name.startswith('bench')]
    if not steps: raise ValueError(f'No step has {" or ".join(options.only)} in its name.')
    with alone(day):
        day.remember()
        return run_all(day, possible_steps(steps, day.smoke), options.retry)


if __name__ == '__main__': sys.exit(main())
