"The protocol of all benchmarks: what is measured of a network, how, and what the file says of it."
# Plain module: edited by hand, no notebook exports it.
import ctypes
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..cost import Shape, count_parameters, layer_costs
from ..files import write_json
from ..measure import CostRow, in_fresh_process, interleaved, step_peak, training_step
from ..train import environment

Networks = Mapping[str, Callable[[], nn.Module]]   # names and factories of importable modules
DEVICES = 'cpu', 'cuda'


@dataclass(frozen=True)
class Variant:
    "A way to run a network."
    compiled:bool=False
    precision:str='no'   # 'no' (float32), or 'bf16' by autocast


VARIANTS = {'eager': Variant(), 'compiled': Variant(compiled=True), 'bf16': Variant(False, 'bf16'),
            'compiled bf16': Variant(True, 'bf16')}


@dataclass(frozen=True)
class Comparison:
    "Networks to measure at one shape, over a yardstick: a table, or a part of one."
    title:str                                            # of the table
    shape:Shape                                          # of the input, batch included
    networks:Networks=field(default_factory=dict)        # run as they are
    compiled:Networks=field(default_factory=dict)        # run compiled
    yardstick:Callable[[], nn.Module]|None=None          # None: no ratios, and no time
    yardstick_shape:Shape|None=None                      # of its input; `shape` if None
    time:bool=True
    memory:bool=True


@dataclass(frozen=True)
class Protocol:
    "How a benchmark is measured: the same for all of its tables, and for all benchmarks."
    device:str='cpu'                   # or 'cuda'
    variants:tuple[str, ...]=('eager', 'compiled')   # of `VARIANTS`
    warm_up:int=2                      # rounds that do not count
    repeats:int=9                      # rounds that do
    seconds:float=60                   # after so many a row gets no more rounds than one
    timeout:float=3600                 # seconds after which a row is left out, and says so
    compiler:str='inductor'
    largest_batch:int|None=None
    smoke:bool=False                   # proves that the code runs; the numbers mean nothing

    def __post_init__(self)->None:
        unknown = [name for name in self.variants if name not in VARIANTS]
        if unknown or not self.variants:
            raise ValueError(f'variants must be some of {", ".join(VARIANTS)}, '
                             f'got {", ".join(self.variants) or "none"}.')
        if self.device not in DEVICES:
            raise ValueError(f"device must be 'cpu' or 'cuda', got {self.device!r}.")
        if self.device == 'cuda' and not torch.cuda.is_available():
            raise ValueError('There is no CUDA device here: measure with --device cpu, '
                             'or on a machine that has one.')

    def record(self)->dict[str, Any]:
        "What a file says of it."
        how = {name: {'precision': PRECISION[v.precision], 'compiled': v.compiled}
               for name, v in VARIANTS.items() if name in self.variants}
        return {'step': 'forward, cross-entropy, backward', 'process': 'a new one for each row',
                'warm-up rounds': self.warm_up, 'repeats': self.repeats,
                'most seconds for repeats': self.seconds,
                'order': 'network and yardstick take turns', 'statistic': 'ratio of medians',
                'yardstick': 'not compiled, float32', 'threads': torch.get_num_threads(),
                'device': self.device, 'clock': CLOCK[self.device], 'memory': memory_method(self),
                'compile': f'seconds of the first step, {self.compiler}, empty cache',
                'variants': how, 'smoke': self.smoke}


PR_SET_PDEATHSIG = 1   # of `prctl`
PRECISION = {'no': 'float32', 'bf16': 'autocast to bfloat16'}
CLOCK = {'cpu': 'perf_counter', 'cuda': 'perf_counter, the device waited for'}


def standard_protocol(
    device:str='cpu',
    smoke:bool=False,                       # one network of a table, two images, one repeat
    variants:Sequence[str]|None=None,       # of `VARIANTS`; those of the device if None
    timeout:float=3600,                     # seconds for a row
)->Protocol:
    "The protocol of stored files; on a GPU, or to try the code, half precision as well."
    if variants is None: variants = ('eager', 'compiled') if device == 'cpu' else tuple(VARIANTS)
    protocol = Protocol(device, tuple(variants), timeout=timeout)
    if not smoke: return protocol
    return replace(protocol, variants=tuple(VARIANTS), warm_up=1, repeats=1, largest_batch=2,
                   compiler='aot_eager', smoke=True)


# --- one row, in a process of its own

@dataclass(frozen=True)
class Case:
    "A row to be measured."
    name:str
    make:Callable[[], nn.Module]
    variant:Variant
    of:Comparison          # without its networks

    def input(self, protocol:Protocol, shape:Shape)->Tensor:
        "Noise, in a batch that the protocol allows."
        batch = min(shape[0], protocol.largest_batch or shape[0])
        return torch.randn(batch, *shape[1:], device=protocol.device)


def cases(
    comparison:Comparison,
    protocol:Protocol,
)->Iterator[Case]:
    "The rows of a comparison: each network, in each variant of the protocol that is meant for it."
    of = replace(comparison, networks={}, compiled={})
    names = dict.fromkeys([*comparison.networks, *comparison.compiled])
    for name in names:
        for label in protocol.variants:
            variant = VARIANTS[label]
            makes = comparison.compiled if variant.compiled else comparison.networks
            if name not in makes: continue
            yield Case(name if label == 'eager' else f'{name}, {label}', makes[name], variant, of)


def measure_case(
    case:Case,
    protocol:Protocol,
    cache:str,          # an empty folder for what the compiler writes
)->dict[str, Any]:      # a `CostRow`
    "Count, compile, time and weigh one network; for a process that did nothing before."
    os.environ |= {'TORCHINDUCTOR_CACHE_DIR': cache, 'TRITON_CACHE_DIR': cache}
    torch.manual_seed(0)
    net, x = case.make().to(protocol.device), case.input(protocol, case.of.shape)
    macs = sum(r.macs for r in layer_costs(net, x[:1]))
    row = CostRow(case.name, count_parameters(net), macs)
    step = partial(training_step, net, x, case.variant.precision)
    if case.variant.compiled: row = replace(row, compile=compile_seconds(net, step, protocol))
    other = None
    if case.of.yardstick:
        other_x = case.input(protocol, case.of.yardstick_shape or case.of.shape)
        other = partial(training_step, case.of.yardstick().to(protocol.device), other_x)
    if other and case.of.time: row = with_time(row, step, other, protocol)
    if case.of.memory: row = with_memory(row, step, other, protocol)
    return asdict(row)


def end_with_parent(
    parent:int,         # the number of the process that began this one
)->None:
    "Linux: this process ends with the one that began it, however that ends, or has ended."
    if sys.platform != 'linux': return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent: os.kill(os.getpid(), signal.SIGKILL)


def measure_alone(case:Case, protocol:Protocol, cache:str, parent:int)->dict[str, Any]:
    "The same, as long as a process waits for it: when a benchmark is killed its row ends too."
    end_with_parent(parent)
    return measure_case(case, protocol, cache)


def compile_seconds(
    net:nn.Module,            # compiled in place
    step:Callable[[], Any],   # of it
    protocol:Protocol,
)->float:
    "Seconds of the first step."
    # a size that was seen before would become a variable, and its code slower
    net.compile(dynamic=False, backend=protocol.compiler)
    return interleaved({'first': step}, 1, 0)['first'][0]


def with_time(
    row:CostRow,
    step:Callable[[], Any],
    yardstick:Callable[[], Any],  # another step
    protocol:Protocol,
)->CostRow:
    "The row with its time: medians of steps that took turns."
    times = interleaved({'net': step, 'yardstick': yardstick}, protocol.repeats, protocol.warm_up,
                        protocol.seconds)
    net, other = (statistics.median(times[name]) for name in ('net', 'yardstick'))
    return replace(row, time=net/other, seconds=net, repeats=len(times['net']))


def with_memory(
    row:CostRow,
    step:Callable[[], Any],
    yardstick:Callable[[], Any]|None,  # another step
    protocol:Protocol,
)->CostRow:
    "The row with its memory: the peak of a step after one like it, freed blocks given back."
    # elsewhere a peak of resident memory cannot be set back
    if protocol.device == 'cpu' and sys.platform != 'linux': return row
    peaks = []
    for weighed in filter(None, (step, yardstick)):
        if protocol.device == 'cpu': after_freeing(weighed)
        else: weighed()
        peaks.append(step_peak(weighed, protocol.device))
    ratio = peaks[0]/peaks[1] if yardstick else None
    return replace(row, memory=peaks[0], memory_ratio=ratio)


MMAP_THRESHOLD, BLOCK = -3, 65_536   # `mallopt`'s parameter, and bytes


def after_freeing(
    step:Callable[[], Any],
)->None:
    """Make a step, and have glibc give freed blocks back to the system, now and from now on: then
    resident memory follows what is in use. Other libraries go on as they are."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, 'mallopt'): libc.mallopt(MMAP_THRESHOLD, BLOCK)
    step()
    if hasattr(libc, 'malloc_trim'): libc.malloc_trim(0)


def memory_method(
    protocol:Protocol,
)->str:
    "How the peak of a step is measured here."
    if protocol.device == 'cuda':
        return "peak of torch's allocator in a step after one like it, less what it held before"
    if sys.platform != 'linux': return 'not measured: on a processor this needs Linux'
    return ('peak resident size in a step after one like it, freed blocks given back, '
            'less what was resident before')


# --- all rows

@dataclass
class Measured:
    "What came of a benchmark."
    tables:dict[str, list[CostRow]]=field(default_factory=dict)   # by title
    left_out:dict[str, str]=field(default_factory=dict)           # 'title: name' -> reason


def measured(
    case:Case,
    protocol:Protocol,
)->dict[str, Any]:  # a `CostRow`; or 'error', why there is none
    "The row of a case; if memory or time are not enough, the others go on without it."
    with TemporaryDirectory(prefix='eqtutor-bench-') as cache:
        try:
            return in_fresh_process(f'{__name__}:measure_alone', case, protocol, cache, os.getpid(),
                                    timeout=protocol.timeout)
        except RuntimeError as error: return {'error': str(error)}


def measure(
    comparisons:Sequence[Comparison],
    protocol:Protocol,
    store:Path|None=None,    # rows are kept here as they come, and those that are here already
    bar:bool=False,          # are not measured again
    # called when a row is kept, with its name; an error that it raises ends the measuring there
    after_row:Callable[[str], None]|None=None,
)->Measured:
    "The tables of a benchmark, each row measured by the protocol in a process of its own."
    rows, done = stored_rows(store, protocol), Measured()
    if protocol.smoke: comparisons = smallest(comparisons)
    todo = [(c.title, case) for c in comparisons for case in cases(c, protocol)]
    check_names([f'{title}: {case.name}' for title, case in todo])
    for title, case in (shown := tqdm(todo, unit='row', disable=not bar)):
        shown.set_description(case.name)
        key = f'{title}: {case.name}'
        if key not in rows:
            rows[key] = measured(case, protocol)
            if store: keep_rows(store, protocol, rows)
            if after_row: after_row(key)
        if 'error' in rows[key]: done.left_out[key] = rows[key]['error']
        else: done.tables.setdefault(title, []).append(CostRow(**rows[key]))
    return done


def check_names(
    names:Sequence[str], # of all rows
)->None:
    "Raise a `ValueError` where two rows have one name."
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice: raise ValueError(f'two rows have one name: {"; ".join(twice)}. Rename one.')


def smallest(
    comparisons:Sequence[Comparison],
)->list[Comparison]:
    "Of each table one network, and one that is compiled."
    first:dict[str, Comparison] = {}
    for c in comparisons: first.setdefault(c.title, c)
    return [replace(c, networks=dict([*c.networks.items()][:1]),
                    compiled=dict([*c.compiled.items()][:1])) for c in first.values()]


def circumstances(
    protocol:Protocol,
)->dict[str, Any]:
    "What must be equal for rows to stand in one table: protocol, versions, hardware."
    around = environment(protocol.device)
    return {'protocol': protocol.record(), **{k: around[k] for k in ('versions', 'hardware')}}


def stored_rows(
    store:Path|None,
    protocol:Protocol,
)->dict[str, dict[str, Any]]:
    "The rows in a file, if they were measured in these circumstances."
    if store is None or not store.exists(): return {}
    content = json.loads(store.read_text(encoding='utf-8'))
    rows = content.pop('rows')
    return rows if content == circumstances(protocol) else {}


def keep_rows(
    store:Path,
    protocol:Protocol,
    rows:Mapping[str, dict[str, Any]],
)->None:
    "Write the rows, whole, with the circumstances they belong to."
    store.parent.mkdir(parents=True, exist_ok=True)
    write_json(store, circumstances(protocol) | {'rows': rows})


def benchmark_record(
    name:str,            # of the benchmark
    outcome:Measured,
    protocol:Protocol,
)->dict[str, Any]:
    "What a benchmark's file holds."
    tables = {title: list(map(asdict, rows)) for title, rows in outcome.tables.items()}
    record = {'benchmark': name, **environment(protocol.device), 'protocol': protocol.record(),
              'tables': tables}
    return record | ({'left out': outcome.left_out} if outcome.left_out else {})


def conditions(
    record:Mapping[str, Any], # of a benchmark's file
)->str:
    "How a file's numbers were measured, in a line; of an old file what is known."
    hardware, p = record['hardware'], record.get('protocol')
    where = (f"{hardware['device']}, {plural(hardware['threads'], 'thread')}, "
             f"torch {record['versions']['torch']}")
    if p is None: return f'{where}; measured before there was one protocol'
    rounds = (f"{plural(p['repeats'], 'round')} after {p['warm-up rounds']} to warm up, "
              f"{p['order']}")
    smoke = 'a try of the code, no measurement; ' if p['smoke'] else ''
    return f"{smoke}{where}; {p['statistic']}, {rounds}; memory: {p['memory']}"


def plural(n:int, word:str)->str:
    "A number and what it counts: '1 seed', '2 seeds'."
    return f'{n} {word}{"s"*(n != 1)}'
