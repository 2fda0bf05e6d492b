"""What `eqtutor reproduce` does: rows of the papers' tables by their full recipes, the most
informative first; stopped at any moment, it goes on where it was."""
# Plain module: edited by hand, no notebook exports it.
import json
import multiprocessing
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import save

from ..files import checksum, provenance_mark, with_note, write_atomic, write_json
from ..train import CHECKPOINT, LOG, Run, environment, read_checkpoint
from .estimate import Estimate, as_size, as_time, device_name, estimate_training
from .tables import chosen_tables
from .train import Training, own_device, run_training, writable_folder

QUIET = 20.   # seconds between two lines of progress


def say_now(line:str)->None:
    "Print, and do not wait for the buffer to fill: runs are long."
    print(line, flush=True)


class BudgetSpent(Exception):
    "The time is over; what was trained is saved."


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
)->list[Job]:
    "The trainings asked for, in the order of the tables; an error if there are none."
    jobs = [Job(table.name, row.label, table.training(row, seed))
            for table in chosen_tables(list(tables)) for row in table.rows
            for seed in range(seeds)
            if not rows or any(fnmatch(name, pattern) for pattern in rows
                               for name in (row.network, row.label))]
    if jobs: return [job_for_device(job) for job in jobs]
    known = [row.network for table in chosen_tables(list(tables)) for row in table.rows]
    raise ValueError(f'no row is called {" or ".join(rows)}. Known are {", ".join(known)}.')


def job_for_device(job:Job)->Job:
    "Half precision with a scaled loss needs a GPU; on a processor it is left out."
    if own_device() != 'cpu' or job.settings.precision != 'fp16': return job
    return replace(job, settings=replace(job.settings, precision='no'))


def other_settings(
    found:dict[str, Any],  # of a result file
    settings:Training,
)->list[str]:
    "What is different, in words; precision is the device's affair."
    wanted = asdict(settings) | {'precision': found.get('precision')}
    return [f'{name} {found.get(name)!r} instead of {value!r}' for name, value in wanted.items()
            if found.get(name) != value]


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


def estimates(
    jobs:Sequence[Job],
    file:Path,         # what was measured before is read from here
    say:Callable[[str], None]=say_now,
)->dict[Job, Estimate]:
    "What each job takes from its first epoch to its test; measured once for all seeds."
    around = f'{device_name(own_device())}, torch {torch.__version__}, {environment()["commit"]}'
    found = {}
    writable_folder(file.parent)
    with FileLock(file.with_suffix('.lock')):   # what one process measures, all read
        measured:dict[str, dict] = json.loads(file.read_text()) if file.exists() else {}
        for job in jobs:
            key = f'{replace(job.settings, seed=0)} on {around}'
            if key not in measured:
                say(f'measuring {job.settings.network} on {job.settings.data} …')
                measured[key] = asdict(estimate_training(job.settings))
                write_json(file, measured)
            found[job] = Estimate(**measured[key])
    return found


def seconds_left(
    estimate:Estimate,
    progress:Progress,
)->float:
    "Processor seconds that a job still takes."
    if progress.complete: return 0.
    return estimate.cpu_seconds*(1 - progress.epochs/(progress.of + 1))


def ranked(
    left:dict[Job, float],  # processor seconds
)->list[Job]:
    """Jobs by information per hour: the first seed of a row counts 1, the n-th 1/n, for so much
    narrower gets the mean; what is nearly done comes early."""
    def worth(job:Job)->float: return 1/(job.settings.seed + 1)/max(left[job], 1e-9)
    return sorted(left, key=worth, reverse=True)


def parse_budget(
    text:str,  # '3h', '45m', '1h30m', '90s'
)->float:      # seconds
    "A time in seconds; an error that shows how to write one."
    match = re.fullmatch(r'(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?', text.strip())
    if not text.strip() or not match:
        raise ValueError(f'a budget reads 3h, 45m, 1h30m or 90s, got {text!r}')
    return float(sum(int(n or 0)*unit for n, unit in zip(match.groups(), (3600, 60, 1))))


@contextmanager
def claimed(
    job:Job,
    place:Place,
)->Iterator[bool]:  # False if another process is at it
    "Inside, this process alone works on a job; the claim ends with the process at the latest."
    folder = place.folder(job)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f'{folder.name}.lock'))
    try: lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try: yield True
    finally: lock.release()


def add_weights(
    job:Job,
    place:Place,
)->None:
    "The trained weights of the run, and their checksum, beside the others."
    tensors, _ = read_checkpoint(place.folder(job)/CHECKPOINT)
    weights = {k.removeprefix('net.'): t for k, t in tensors.items() if k.startswith('net.')}
    folder = writable_folder(place.out/'weights')
    name = f'{job.settings.experiment}.safetensors'
    with FileLock(folder/'SHA256SUMS.lock'):
        write_atomic(folder/name, save(weights))
        sums = folder/'SHA256SUMS'
        lines = sums.read_text().splitlines() if sums.exists() else []
        rest = [line for line in lines if line.split()[1] != name]
        lines = sorted([*rest, f'{checksum(folder/name)}  {name}'], key=lambda s: s.split()[1])
        write_atomic(sums, ('\n'.join(lines) + '\n').encode())


def tidy(
    job:Job,
    place:Place,
)->None:
    "After the result is written: keep the first seed's weights, drop the state."
    folder = place.folder(job)
    if not (folder/CHECKPOINT).exists(): return
    if job.settings.seed == 0: add_weights(job, place)
    shutil.rmtree(folder)


class Reporter:
    "Called after each epoch: says how far a job is, now and then, and stops it in time."
    def __init__(self,
        job:Job,
        deadline:float,            # by `time.time()`
        say:Callable[[str], None],
    ):
        self.job, self.deadline, self.say = job, deadline, say
        self.said = 0.

    def __call__(self, run:Run)->None:
        last, done = run.history[-1], len(run.history)
        left, now = self.job.settings.epochs - done, time.time()
        if now - self.said > QUIET or not left:
            self.said = now
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
        with claimed(job, place) as mine:
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
    try: import submitit
    except ImportError as error:
        raise ValueError('a cluster is reached by submitit, which is not installed: '
                         'pip install "eqtutor[cluster]".') from error
    executor = submitit.AutoExecutor(folder=place.unfinished/'cluster', cluster=cluster)
    gpus = {'gpus_per_node': 1} if cluster == 'slurm' else {}
    executor.update_parameters(name='eqtutor', timeout_min=max(1, int(budget/60)), **gpus)
    deadline = time.time() + budget
    return [executor.submit(work, jobs, place, deadline) for _ in range(workers)]


@dataclass(frozen=True)
class Plan:
    "What is to be done, in order, and what it takes."
    jobs:list[Job]                  # the most informative first, complete ones last
    progress:dict[Job, Progress]
    estimates:dict[Job, Estimate]

    def left(self, job:Job)->float:
        "Processor seconds that a job still takes."
        return seconds_left(self.estimates[job], self.progress[job])

    def rows(self)->list[dict[str, Any]]:
        "A row a job, ready for JSON: what, how far, CPU seconds in all, left, and taken."
        return [dict(table=job.table, row=job.label, network=job.settings.network,
                     seed=job.settings.seed, state=str(self.progress[job]),
                     mark=self.progress[job].mark.strip(),
                     cpu_seconds=round(self.estimates[job].cpu_seconds),
                     left=round(self.left(job)), memory=self.estimates[job].memory,
                     took=round(self.progress[job].cpu_seconds))
                for job in self.jobs]

    def __str__(self)->str:
        lines = [f'{"processor time":>14}  {"left":>7}  {"memory":>7}  what']
        for row, job in zip(self.rows(), self.jobs):
            memory, state = as_size(row['memory']), f'{job} ({row["state"]})'
            state += self.progress[job].mark
            lines.append(f'{as_time(row["cpu_seconds"]):>14}  {as_time(row["left"]):>7}  '
                         f'{memory:>7}  {state}')
        total = as_time(sum(map(self.left, self.jobs)))
        total = f'{len(self.jobs)} runs, {total} of processor time left'
        return with_note('\n'.join([*lines, total]))


def make_plan(
    jobs:Sequence[Job],
    place:Place,
    say:Callable[[str], None]=say_now,
)->Plan:
    "How far each job is, what it takes here, and the order to do them in."
    progress = {job: progress_of(job, place) for job in jobs}
    measured = estimates(jobs, place.unfinished/'estimates.json', say)
    left = {job: seconds_left(measured[job], progress[job]) for job in jobs}
    open_jobs = ranked({job: s for job, s in left.items() if not progress[job].complete})
    done = [job for job in jobs if progress[job].complete]
    return Plan([*open_jobs, *done], progress, measured)


EXECUTORS = 'local', 'slurm'


def carry_out(
    plan:Plan,
    place:Place,
    budget:str|None=None,   # as '3h'; as long as it takes if None
    workers:int=1,          # runs side by side
    executor:str='local',   # or 'slurm'
)->list[str]:               # what could not be run, and why
    "Run what is not complete, here or on a cluster."
    if executor not in EXECUTORS:
        raise ValueError(f'executor must be {" or ".join(EXECUTORS)}, got {executor!r}')
    seconds = parse_budget(budget) if budget else float('inf')
    if executor == 'local':
        return work_here(plan.jobs, place, time.time() + seconds, workers)
    handed = work_on_cluster(plan.jobs, place, min(seconds, 86_400.), workers)
    say_now(f'handed to the cluster as {", ".join(job.job_id for job in handed)}')
    return []
