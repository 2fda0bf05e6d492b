"""What `eqtutor reproduce` does: benchmarks, then rows of the papers' tables by their full recipes,
the most informative first; stopped at any moment, it goes on where it was."""
# Plain module: edited by hand, no notebook exports it.
import json
import math
import multiprocessing
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import save

from ..files import (
    checksum,
    provenance_mark,
    results_folder,
    with_note,
    writable_folder,
    write_atomic,
    write_json,
)
from ..names import require
from ..train.checkpoints import environment, part_of, read_checkpoint
from ..train.experiment import run_training
from ..train.fitting import CHECKPOINT, LOG, Run
from ..train.processes import training_device
from ..train.settings import Training
from .benchmarks import load_benchmarks
from .estimate import (
    SOURCES,
    Guess,
    Records,
    as_size,
    as_time,
    device_name,
    estimate_training,
)
from .protocol import benchmark_record, measure, standard_protocol
from .tables import chosen_tables

QUIET = 20.            # seconds between two lines of progress
DONE, FAILED = 0, 1    # exit codes
AGAIN = 75             # of POSIX, a temporary failure: something is left, call again
EXECUTORS = 'local', 'slurm'
# in place of a recipe's own, to try the code; PatchCamelyon is read from the disk, whole
SMOKE:dict[str, dict[str, Any]] = {
    'rotmnist': dict(data='digits', images=16, test_images=20, epochs=2),
    'cifar10': dict(per_class=1, test_images=8, epochs=2, valid=0),
    'cifar100': dict(per_class=1, test_images=8, epochs=2, valid=0)}


def say_now(line:str)->None:
    "Print, and do not wait for the buffer to fill: runs are long."
    print(line, flush=True)


class BudgetSpent(Exception):
    "The time is over; what was trained is saved."


# --- what is asked for

@dataclass(frozen=True)
class Job:
    "One training: a row of a table with a seed."
    table:str  # 'P1.1'
    label:str  # the paper's name of the network
    settings:Training

    def __str__(self)->str: return f'{self.table} {self.label}, seed {self.settings.seed}'


@dataclass(frozen=True)
class Place:
    "Where results lie, and runs that are not complete."
    out:Path
    unfinished:Path

    def result(self, job:Job)->Path:
        "The file of the finished run."
        return self.out/job.settings.experiment/f'{job.settings.seed}.json'

    def folder(self, job:Job)->Path:
        "Checkpoint and log of the run under way."
        return self.unfinished/job.settings.experiment/str(job.settings.seed)

    def benchmark(self, name:str)->Path:
        "The file of a benchmark on this machine's device."
        on_gpu = training_device() != 'cpu'
        return self.out/'bench'/f'{name}{"-cuda"*on_gpu}.json'


@dataclass(frozen=True)
class Progress:
    "How far a job is."
    epochs:int              # that are done
    of:int
    complete:bool=False     # with its test, in a result file
    cpu_seconds:float=0.    # of the epochs that are done
    obstacle:str=''         # why it cannot be run here
    mark:str=''             # as `provenance_mark` says of the result

    def __str__(self)->str:
        if self.obstacle: return self.obstacle
        if self.complete: return 'complete'
        return f'epoch {self.epochs} of {self.of}' if self.epochs else 'not run'


def make_jobs(
    tables:Sequence[str]=(), # as 'P1.1'; all if empty
    rows:Sequence[str]=(),   # names or labels of networks, * and ? for any letters; all if empty
    seeds:int=1,             # of each row, from 0
    smoke:bool=False,        # a few images and two epochs, to try the code
)->list[Job]:
    "The trainings asked for, in the order of the tables; an error if there are none."
    jobs = [Job(table.name, row.label, table.training(row, seed))
            for table in chosen_tables(list(tables)) for row in table.rows
            for seed in range(seeds)
            if not rows or any(fnmatch(name, pattern) for pattern in rows
                               for name in (row.network, row.label))]
    if not jobs:
        known = [row.network for table in chosen_tables(list(tables)) for row in table.rows]
        raise ValueError(f'no row is called {" or ".join(rows)}. Known are {", ".join(known)}.')
    if smoke:
        jobs = [replace(job, settings=replace(job.settings, **SMOKE[job.settings.data]))
                for job in jobs if job.settings.data in SMOKE]
    if training_device() != 'cpu': return jobs
    # half precision with a scaled loss needs a GPU; on a processor it is left out
    return [replace(job, settings=replace(job.settings, precision='no'))
            if job.settings.precision == 'fp16' else job for job in jobs]


@dataclass
class Order:
    "What is asked for; all of it is checked here, before anything is measured or run."
    tables:Sequence[str]=()   # of the papers, as 'P1.1'; 'bench', or 'bench.e4', for benchmarks
    rows:Sequence[str]=()
    seeds:int=1
    budget:str|None=None      # as '3h'; as long as it takes if None
    workers:int=1             # runs side by side
    executor:str='local'      # or 'slurm'
    smoke:bool=False          # a few images, two epochs, one repeat: does all of it run here?
    measure:bool=False        # a few steps of each network, where no run of it is known
    jobs:list[Job]=field(init=False)
    benchmarks:list[str]=field(init=False)
    seconds:float=field(init=False)   # of the budget

    def __post_init__(self)->None:
        if self.executor not in EXECUTORS:
            raise ValueError(f'executor must be {" or ".join(EXECUTORS)}, got {self.executor!r}')
        if self.executor == 'slurm': require('submitit', 'cluster')
        seconds = math.inf if self.budget is None else parse_budget(self.budget)
        benches = [name for name in self.tables if name.split('.')[0] == 'bench']
        tables = [name for name in self.tables if name not in benches]
        jobs = []
        if tables or not benches: jobs = make_jobs(tables, self.rows, self.seeds, self.smoke)
        known = list(load_benchmarks()) if benches else []
        chosen = known if 'bench' in benches else [name.split('.', 1)[1] for name in benches]
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise ValueError(f'unknown benchmark {", ".join(unknown)}. Known are '
                             f'{", ".join(f"bench.{name}" for name in known)}.')
        if chosen and (self.workers > 1 or self.executor != 'local'):
            raise ValueError('benchmarks measure times and need the machine to themselves: leave '
                             '--jobs and --executor out, or --table bench.')
        self.jobs, self.benchmarks, self.seconds = jobs, chosen, seconds


def parse_budget(
    text:str,  # '3h', '45m', '1h30m', '90s'
)->float:      # seconds
    "A time in seconds; an error that shows how to write one."
    match = re.fullmatch(r'(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?', text.strip())
    if not text.strip() or not match:
        raise ValueError(f'a budget reads 3h, 45m, 1h30m or 90s, got {text!r}')
    return float(sum(int(n or 0)*unit for n, unit in zip(match.groups(), (3600, 60, 1))))


# --- how far it is, and what it takes

def other_settings(
    stored:dict[str, Any], # of a result file
    settings:Training,
)->list[str]:
    "What is different, in words; precision is the device's affair."
    wanted = asdict(settings) | {'precision': stored.get('precision')}
    return [f'{name} {stored.get(name)!r} instead of {value!r}' for name, value in wanted.items()
            if stored.get(name) != value]


def progress_of(
    job:Job,
    place:Place,
)->Progress:
    "How far a job is, read from its files."
    epochs, result, log = job.settings.epochs, place.result(job), place.folder(job)/LOG
    if result.exists():
        content = json.loads(result.read_text(encoding='utf-8'))
        other = other_settings(content['settings'], job.settings)
        if other:
            return Progress(0, epochs, obstacle=f'{result} is of another run '
                            f'({", ".join(other)}): move it, or choose another --out')
        return Progress(epochs, epochs, True, content.get('cpu_seconds', 0.),
                        mark=provenance_mark(content))
    if not log.exists(): return Progress(0, epochs)
    _, *history = map(json.loads, log.read_text(encoding='utf-8').splitlines())
    return Progress(len(history), epochs, False, sum(e['cpu_seconds'] for e in history))


def tried(
    jobs:Sequence[Job],
    file:Path,         # what was measured before is read from here
    say:Callable[[str], None]=say_now,
)->dict[Job, Guess]:
    "What each job takes by a few steps of it on this machine; measured once for all seeds."
    where = device_name(training_device())
    around = f'{where}, torch {torch.__version__}, {environment()["commit"]}'
    writable_folder(file.parent)
    with FileLock(file.with_suffix('.lock')):   # what one process measures, all read
        stored:dict[str, dict] = json.loads(file.read_text()) if file.exists() else {}
        for job in jobs:
            key = f'{replace(job.settings, seed=0)} on {around}'
            if key in stored: continue
            say(f'measuring {job.settings.network} on {job.settings.data} …')
            stored[key] = asdict(estimate_training(job.settings))
            write_json(file, stored)
    estimates = {job: stored[f'{replace(job.settings, seed=0)} on {around}'] for job in jobs}
    return {job: Guess(e['cpu_seconds'], 'measured', e['memory']) for job, e in estimates.items()}


def guesses(
    progress:dict[Job, Progress],
    place:Place,
    measure:bool=False,  # a few steps, where neither the run nor another seed's is known
    say:Callable[[str], None]=say_now,
)->dict[Job, Guess]:
    "What each job takes from its first epoch to its test, by the best there is to go by."
    device = environment(training_device())['hardware']['device']
    records, known = Records.read([place.out, results_folder()], device), dict[Job, Guess]()
    for job, p in progress.items():
        if p.complete and p.cpu_seconds: known[job] = Guess(p.cpu_seconds, 'run')
        elif p.epochs: known[job] = Guess(p.cpu_seconds/p.epochs*(p.of + 1), 'run')
        elif (job.settings.network, job.settings.data) in records.experiments:
            known[job] = records.guess(job.settings)
    rest = [job for job in progress if job not in known]
    if measure: return known | tried(rest, place.unfinished/'estimates.json', say)
    return known | {job: records.guess(job.settings, job.label) for job in rest}


def seconds_left(
    guess:Guess,
    progress:Progress,
)->float:
    "Processor seconds that a job still takes."
    if progress.complete: return 0.
    return guess.cpu_seconds*(1 - progress.epochs/(progress.of + 1))


def ranked(
    left:dict[Job, float],  # processor seconds
)->list[Job]:
    """Jobs by information per hour: the first seed of a row counts 1, the n-th 1/n, for so much
    narrower gets the mean; what is nearly done comes early."""
    def worth(job:Job)->float: return 1/(job.settings.seed + 1)/max(left[job], 1e-9)
    return sorted(left, key=worth, reverse=True)


@dataclass(frozen=True)
class Plan:
    "What is to be done, in order, and what it takes."
    jobs:list[Job]                  # the most informative first, complete ones last
    progress:dict[Job, Progress]
    guesses:dict[Job, Guess]
    benchmarks:dict[str, bool]=field(default_factory=dict)   # by name: is it complete?

    def left(self, job:Job)->float:
        "Processor seconds that a job still takes."
        return seconds_left(self.guesses[job], self.progress[job])

    def rows(self)->list[dict[str, Any]]:
        "A row a job, ready for JSON: what, how far, CPU seconds in all, left, and taken."
        return [dict(table=job.table, row=job.label, network=job.settings.network,
                     seed=job.settings.seed, state=str(self.progress[job]),
                     mark=self.progress[job].mark.strip(),
                     cpu_seconds=round(self.guesses[job].cpu_seconds),
                     source='taken' if self.progress[job].complete else self.guesses[job].source,
                     left=round(self.left(job)), memory=self.guesses[job].memory,
                     took=round(self.progress[job].cpu_seconds))
                for job in self.jobs]

    def __str__(self)->str:
        lines = [f'benchmark {name} ({"complete" if complete else "not complete"})'
                 for name, complete in self.benchmarks.items()]
        if not self.jobs: return '\n'.join(lines)
        lines.append(f'{"processor time":>14}  {"left":>8}  {"memory":>7}  {"by":10}  what')
        for row, job in zip(self.rows(), self.jobs):
            about = '≈'*(row['source'] != 'taken')
            whole, left = about + as_time(row['cpu_seconds']), about + as_time(row['left'])
            memory = as_size(row['memory']) if row['memory'] else '–'
            lines.append(f'{whole:>14}  {left:>8}  {memory:>7}  {row["source"]:10}  '
                         f'{job} ({row["state"]}){self.progress[job].mark}')
        total = sum(map(self.left, self.jobs))
        lines.append(f'{len(self.jobs)} runs, about {as_time(total)} of processor time left')
        used = {row['source'] for row in self.rows()}
        lines += [f'{name}: {text}' for name, text in SOURCES.items() if name in used]
        if used & {'benchmark', 'count', 'count only'}:
            lines.append('≈ is an estimate; --measure tries a few steps of each instead.')
        return with_note('\n'.join(lines))


def make_plan(
    jobs:Sequence[Job],
    place:Place,
    measure:bool=False,            # a few steps, where no run is known
    benchmarks:Sequence[str]=(),   # names
    say:Callable[[str], None]=say_now,
)->Plan:
    "How far each job is, what it takes, and the order to do them in."
    progress = {job: progress_of(job, place) for job in jobs}
    takes = guesses(progress, place, measure, say)
    left = {job: seconds_left(takes[job], progress[job]) for job in jobs}
    open_jobs = ranked({job: s for job, s in left.items() if not progress[job].complete})
    done = [job for job in jobs if progress[job].complete]
    return Plan([*open_jobs, *done], progress, takes,
                {name: place.benchmark(name).exists() for name in benchmarks})


# --- the work

@contextmanager
def claimed(
    work:Path,          # a folder or a file of it; the lock lies beside
)->Iterator[bool]:      # False if another process is at it
    "Inside, this process alone is at some work; the claim ends with the process at the latest."
    work.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work.with_name(f'{work.name}.lock'))
    try: lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try: yield True
    finally: lock.release()


def tidy(
    job:Job,
    place:Place,
)->None:
    "After the result is written: keep the first seed's weights and their checksum, drop the state."
    state = place.folder(job)
    if not (state/CHECKPOINT).exists(): return
    if job.settings.seed == 0:
        tensors, _ = read_checkpoint(state/CHECKPOINT)
        folder = writable_folder(place.out/'weights')
        name = f'{job.settings.experiment}.safetensors'
        with FileLock(folder/'SHA256SUMS.lock'):
            write_atomic(folder/name, save(part_of(tensors, 'net.')))
            sums = folder/'SHA256SUMS'
            lines = sums.read_text().splitlines() if sums.exists() else []
            rest = [line for line in lines if line.split()[1] != name]
            lines = sorted([*rest, f'{checksum(folder/name)}  {name}'], key=lambda s: s.split()[1])
            write_atomic(sums, ('\n'.join(lines) + '\n').encode())
    shutil.rmtree(state)


class Reporter:
    "Called after each epoch: says how far a job is, now and then, and stops it in time."
    def __init__(self,
        job:Job,
        deadline:float,            # by `time.time()`
        say:Callable[[str], None],
    ):
        self.job, self.deadline, self.say = job, deadline, say
        self.spoke = 0.

    def __call__(self, run:Run)->None:
        last, done = run.history[-1], len(run.history)
        left, now = self.job.settings.epochs - done, time.time()
        if now - self.spoke > QUIET or not left:
            self.spoke = now
            self.say(self.line(done, last, left))
        parent = multiprocessing.parent_process()
        orphan = parent is not None and not parent.is_alive()
        if left and (orphan or now + last['seconds'] > self.deadline): raise BudgetSpent

    def line(self, done:int, last:dict[str, Any], left:int)->str:
        "Epoch, validation error, time that is left."
        parts = [f'{self.job}: epoch {done} of {self.job.settings.epochs}']
        if 'valid_accuracy' in last:
            parts.append(f'validation error {1 - last["valid_accuracy"]:.2%}')
        if left: parts.append(f'about {as_time(left*last["seconds"])} left')
        return ', '.join(parts)


def run_job(
    job:Job,
    place:Place,
    deadline:float,            # by `time.time()`
    say:Callable[[str], None]=say_now,
)->None:
    "Begin a job, or go on with it, until it is done or the time is over."
    progress = progress_of(job, place)
    if progress.obstacle: raise ValueError(progress.obstacle)
    if not progress.complete:
        begun = (place.folder(job)/CHECKPOINT).exists()
        result = run_training(job.settings, place.out, place.unfinished, resume=begun, bar=False,
                              after_epoch=Reporter(job, deadline, say))
        error = f'{1 - result["test"]["accuracy"]:.2%}{provenance_mark(result)}'
        say(with_note(f'{job}: test error {error}'))
    tidy(job, place)


def work(
    jobs:Sequence[Job],        # in the order to try them
    place:Place,
    deadline:float=float('inf'),
    threads:int|None=None,     # of this process; torch's own choice if None
    say:Callable[[str], None]=say_now,
)->list[str]:                  # what could not be run, and why
    "Take one job after the other that nobody else has, until none is left or the time is over."
    if threads: torch.set_num_threads(threads)
    faults = []
    for job in jobs:
        if time.time() >= deadline: break
        with claimed(place.folder(job)) as mine:
            if not mine: continue
            try: run_job(job, place, deadline, say)
            except BudgetSpent: break
            except (ValueError, OSError, RuntimeError) as error:  # one row stops no other
                faults.append(f'{job}: {error}')
                say(faults[-1])
    return faults


def take_gpu(
    number:int,  # of this process, among those of this machine
)->None:
    "Before anything is on a GPU: see one of several, another in each process."
    gpus, name = torch.cuda.device_count(), 'CUDA_VISIBLE_DEVICES'
    if gpus < 2: return
    seen = os.environ[name].split(',') if name in os.environ else list(map(str, range(gpus)))
    os.environ[name] = seen[number % gpus]


def work_beside_others(number:int, *args:Any)->list[str]:
    "`work`, in a process of its own."
    take_gpu(number)
    return work(*args)


@contextmanager
def starting_elsewhere()->Iterator[None]:
    """While `multiprocessing` starts Python, which looks for modules in the current folder first.

    A process that it has started goes to this one's folder before it does anything.
    """
    before = os.getcwd()
    os.chdir('/')
    try:
        yield
    finally:
        os.chdir(before)


def work_here(
    jobs:Sequence[Job],
    place:Place,
    deadline:float,
    workers:int,  # processes side by side
)->list[str]:     # what could not be run, and why
    "Work in this process, or in several that share the cores and the GPUs of this machine."
    if workers == 1: return work(jobs, place, deadline)
    threads = max(1, torch.get_num_threads()//workers)
    with starting_elsewhere():   # the pool itself starts a process, too
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context('spawn'))
        running = [pool.submit(work_beside_others, i, jobs, place, deadline, threads)
                   for i in range(workers)]
    with pool:
        return [fault for future in running for fault in future.result()]


def work_on_cluster(
    jobs:Sequence[Job],
    place:Place,
    budget:float,           # seconds
    workers:int,            # jobs of the cluster side by side, a GPU each
    cluster:str='slurm',    # of submitit; 'local' tries the same on this machine
)->list[Any]:               # submitit's jobs: `job_id`, `result()`
    "Hand the work to a cluster; its jobs take rows from the same list, and may be cut off."
    submitit = require('submitit', 'cluster')
    executor = submitit.AutoExecutor(folder=place.unfinished/'cluster', cluster=cluster)
    gpus = {'gpus_per_node': 1} if cluster == 'slurm' else {}
    executor.update_parameters(name='eqtutor', timeout_min=max(1, int(budget/60)), **gpus)
    deadline = time.time() + budget
    return [executor.submit(work, jobs, place, deadline) for _ in range(workers)]


def run_benchmark(
    name:str,
    place:Place,
    deadline:float,     # by `time.time()`
    smoke:bool=False,   # two images, one repeat, one network of each table
    say:Callable[[str], None]=say_now,
)->list[str]:           # rows that are left out, and why
    "Measure a benchmark, or go on with it; its rows are kept until all are there."
    longest, began = 0., time.time()

    def after_row(row:str)->None:
        nonlocal longest, began
        now = time.time()
        longest, began = max(longest, now - began), now
        say(f'bench {name}: {row}')
        if now + longest > deadline: raise BudgetSpent

    store = place.unfinished/f'bench-{name}.rows'
    with claimed(store) as mine:
        if not mine: return [f'bench {name}: another process measures it in {place.out}']
        device = training_device().partition(':')[0]
        protocol = standard_protocol(device, smoke)
        outcome = measure(load_benchmarks()[name](), protocol, store, after_row=after_row)
        file = place.benchmark(name)
        writable_folder(file.parent)
        write_json(file, benchmark_record(name, outcome, protocol))
        store.unlink(missing_ok=True)
    return [f'bench {name}: {row}: {reason}' for row, reason in outcome.left_out.items()]


def carry_out(
    plan:Plan,
    place:Place,
    order:Order,
)->int:        # `DONE`; `FAILED` if something cannot be run; `AGAIN` if the time was over first
    "Run what is not complete, here or on a cluster: benchmarks first, then rows as planned."
    deadline = time.time() + order.seconds
    if order.executor == 'slurm':
        handed = work_on_cluster(plan.jobs, place, min(order.seconds, 86_400.), order.workers)
        say_now(f'handed to the cluster as {", ".join(job.job_id for job in handed)}')
        return DONE
    faults = []
    for name in [name for name, complete in plan.benchmarks.items() if not complete]:
        if time.time() >= deadline: return AGAIN
        try: faults += run_benchmark(name, place, deadline, order.smoke)
        except BudgetSpent: return AGAIN
        except (ValueError, OSError, RuntimeError) as error:   # one stops no other
            faults.append(f'bench {name}: {error}')
            say_now(faults[-1])
    faults += work_here(plan.jobs, place, deadline, order.workers)
    failed = [job for job in plan.jobs if any(f.startswith(f'{job}: ') for f in faults)]
    left = [job for job in plan.jobs
            if job not in failed and not progress_of(job, place).complete]
    if left: return AGAIN
    return FAILED if faults else DONE
