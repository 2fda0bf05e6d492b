"""A training run that says what went wrong, is never half written, goes on bit for bit, and works
on many devices."""
# Plain module: edited by hand, no notebook exports it.

import json
import math
import time
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..files import lock_folder, remove_litter, write_atomic
from .checkpoints import (
    environment,
    load_into,
    part_of,
    read_checkpoint,
    save_checkpoint,
    set_python_generators,
    torch_generators,
)
from .loop import (
    OPTIMIZERS,
    SCHEDULES,
    average_into,
    check_labels,
    evaluate,
    plateaus,
    train_epoch,
)
from .processes import Accelerator, accelerated, device_of, parallel
from .settings import FITTED, Training


class DivergenceAlarm:
    "Warns once, when the mean loss of ten batches is far above the first and guessing."
    def __init__(self,
        factor:float=1.5, # how far above
        window:int=10,    # batches
    ):
        self.factor, self.window = factor, window
        self.losses = deque[float](maxlen=window)
        self.first, self.warned = -math.inf, False

    def __call__(self, loss:float, classes:int, place:str)->None:
        if self.first == -math.inf: self.first = loss
        self.losses.append(loss)
        mean, guessing = sum(self.losses) / len(self.losses), math.log(classes)
        high = mean > self.factor * max(self.first, guessing)
        if self.warned or len(self.losses) < self.window or not high: return
        self.warned = True
        warnings.warn(
            f'Training diverges: the last {len(self.losses)} losses up to {place} have '
            f'a mean of {mean:.3g}, the first was {self.first:.3g} and guessing costs '
            f'{guessing:.3g}. Lower the learning rate, warm it up, or clip the '
            'gradient.',
            RuntimeWarning, stacklevel=2)

CHECKPOINT, LOG = 'checkpoint.safetensors', 'log.jsonl'

@dataclass
class Run:
    "A training run: what it was told, how it went, where it lies."
    header:dict[str, Any]     # settings, versions, hardware
    history:list[dict[str, Any]] = field(default_factory=list) # a dictionary an epoch
    out:Path|None = None      # its folder
    ema:nn.Module|None = None # the averaged net

    def curve(self,
        name:str, # such as 'valid_accuracy'
    )->list[float]:
        "One metric, a value an epoch."
        return [epoch[name] for epoch in self.history]

    def save(self,
        net:nn.Module,
        optimizer:torch.optim.Optimizer,
        epoch:dict[str, Any]|None=None,    # the metrics of an epoch that has just ended
        extra:dict[str, Tensor]|None=None, # more state by name
    )->None:
        "Write checkpoint and log, if there is a folder; the epoch joins the history."
        history = self.history + ([epoch] if epoch else [])
        about = {'header': self.header, 'history': history}
        if self.out is not None: _write(self.out, net, optimizer, about, extra)
        self.history = history

def _write(out:Path, net:nn.Module, optimizer:torch.optim.Optimizer,
           about:dict[str, Any], extra:dict[str, Tensor]|None)->None:
    "Checkpoint first, log second: the log never claims an epoch that the first lacks."
    lines = [json.dumps(line) + '\n' for line in [about['header'], *about['history']]]
    try:
        out.mkdir(parents=True, exist_ok=True)
        save_checkpoint(out / CHECKPOINT, net, optimizer, about, extra)
        write_atomic(out / LOG, ''.join(lines).encode())
    except OSError as error: raise _not_written(out, error) from error

def _not_written(out:Path, error:OSError)->RuntimeError:
    return RuntimeError(
        f'The run cannot be written to {out} ({error}). Free some space, or choose a '
        'folder you may write to; what was saved there before is still whole.')

@dataclass
class _State:
    "What changes while a run trains."
    net:nn.Module
    called:nn.Module           # the net as training calls it: wrapped among processes
    optimizer:torch.optim.Optimizer
    accelerator:Accelerator
    ema:nn.Module|None

    def extra(self)->dict[str, Tensor]:
        "What to save beside weights and optimizer; every process must call it."
        from accelerate.utils import gather_object
        generators = gather_object([torch_generators(self.net)])
        extra = {f'{name}.{rank}': t for rank, g in enumerate(generators) if rank
                 for name, t in g.items()}
        if self.ema is not None:
            extra |= {f'ema.{name}': t for name, t in self.ema.state_dict().items()}
        scaler = self.accelerator.scaler
        scale = scaler.state_dict() if scaler is not None else {}
        return extra | {f'scaler.{name}': torch.tensor(v, dtype=torch.float64)
                        for name, v in scale.items()}

    def save(self, run:Run, epoch:dict[str, Any]|None=None)->None:
        "Every process brings its state, the first one writes."
        extra = self.extra()
        if self.accelerator.is_main_process:
            run.save(self.net, self.optimizer, epoch, extra)
        elif epoch:
            run.history = [*run.history, epoch]

def _load_state(state:_State, tensors:dict[str, Tensor], path:Path)->None:
    "Weights, average, optimizer, scale and torch's generators, from a checkpoint."
    load_into(state.net, part_of(tensors, 'net.'), path)
    if state.ema is not None: load_into(state.ema, part_of(tensors, 'ema.'), path)
    moments:dict[int, dict[str, Tensor]] = {}
    for key, t in part_of(tensors, 'optimizer.').items():
        number, name = key.split('.', 1)
        moments.setdefault(int(number), {})[name] = t
    state.optimizer.load_state_dict(state.optimizer.state_dict() | {'state': moments})
    scale, scaler = part_of(tensors, 'scaler.'), state.accelerator.scaler
    if scale and scaler is not None:
        kinds = {name: type(value) for name, value in scaler.state_dict().items()}
        scaler.load_state_dict({name: kinds[name](t.item()) for name, t in scale.items()})
    _set_torch_generators(state.net, tensors, state.accelerator.process_index)

def _set_torch_generators(net:nn.Module, tensors:dict[str, Tensor], rank:int)->None:
    "This process's generators; one that the run did not have gets a seed of its own."
    suffix, device = f'.{rank}' if rank else '', device_of(net)
    torch.set_rng_state(tensors['rng.torch'])
    if f'rng.torch{suffix}' not in tensors:
        torch.manual_seed(torch.initial_seed() + rank)
        return
    torch.set_rng_state(tensors[f'rng.torch{suffix}'])
    if f'rng.cuda{suffix}' in tensors and device.type == 'cuda':
        torch.cuda.set_rng_state(tensors[f'rng.cuda{suffix}'], device)

@contextmanager
def _locked(out:str|Path|None, resume:bool, accelerator:Accelerator)->Iterator[None]:
    "The run's folder for this run alone; of several processes the first locks it."
    missing = out is None or resume and not Path(out).is_dir()
    if missing or not accelerator.is_main_process:
        yield
        return
    folder = Path(str(out))
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock_folder(folder))
        except OSError as error: raise _not_written(folder, error) from error
        # nobody else writes here: what killed runs left is nobody's
        for name in (CHECKPOINT, LOG): remove_litter(folder / name, 0)
        yield

def _begin(state:_State, header:dict[str, Any], out:str|Path|None, resume:bool)->Run:
    """A new run, or the old one with net, optimizer and generators as they were.

    All is checked before anything is changed.
    """
    run = Run(header, out=None if out is None else Path(out), ema=state.ema)
    rank = state.accelerator.process_index
    if not resume:
        if run.out and any((run.out / name).exists() for name in (CHECKPOINT, LOG)):
            raise ValueError(f'{run.out} already holds a run. Go on with it by resume=True, '
                             'or give another folder: nothing is overwritten.')
        if rank: torch.manual_seed(torch.initial_seed() + rank)  # its own dropout
    elif run.out is None:
        raise ValueError('resume=True needs out=, the folder of the run to go on with.')
    else:
        tensors, about = read_checkpoint(run.out / CHECKPOINT)
        old, new, done = about['header']['config'], header['config'], len(about['history'])
        if done > new['epochs']:
            raise ValueError(f'{run.out} holds {done} epochs already, '
                             f'more than epochs={new["epochs"]} asks for.')
        free = {'epochs'} if new['schedule'] == 'constant' else set()  # it may train longer
        changed = [k for k in old | new if old.get(k) != new.get(k) and k not in free]
        if changed:
            changes = [f'{k} was {old.get(k)!r}, now {new.get(k)!r}' for k in changed]
            raise ValueError(f'{run.out} holds a run with other settings ({"; ".join(changes)}). '
                             'Resume with the old ones, or start a new run in another folder.')
        _load_state(state, tensors, run.out / CHECKPOINT)
        set_python_generators(about['generators'])
        around = {k: header[k] for k in ('versions', 'hardware', 'commit')}
        resumed = [*about['header'].get('resumed', []), {'epoch': done} | around]
        run.header = about['header'] | {'config': new, 'resumed': resumed}
        run.history = about['history']
    state.accelerator.wait_for_everyone()  # all have looked before one writes
    state.save(run)
    return run

def _rounded(numbers:Tensor)->list[float]:
    return [round(v, 2) for v in numbers.flatten().tolist()]

def _describe(loader:Any)->dict[str, Any]:
    """What a loader shows of its order and of its images, to tell them from others: black, sizes,
    moments, labels."""
    names = 'batch_size', 'shuffle', 'seed', 'augment'
    shown:dict[str, Any] = {k: getattr(loader, k) for k in names if hasattr(loader, k)}
    data = loader if hasattr(loader, 'tensors') else getattr(loader, 'dataset', None)
    black, tensors = getattr(data, 'black', None), getattr(data, 'tensors', None)
    if isinstance(black, Tensor): shown['black'] = _rounded(black)
    if tensors:
        x = tensors[0].float()
        shown |= {'images': list(x.shape), 'mean': round(x.mean().item(), 2),
                  'deviation': round(x.std().item(), 2)}
        if x.ndim == 4: # the upper halves of a few: another angle changes them
            few, half = x[::max(1, len(x) // 8)][:8], max(1, x.shape[-2] // 2)
            shown['tops'] = _rounded(few[..., :half, :].flatten(1).mean(1))
        if len(tensors) > 1:
            shown['labels'] = zlib.crc32(tensors[1].cpu().numpy().tobytes())
    return {f'loader {k}': v for k, v in shown.items()}

def _header(settings:Training, net:nn.Module, train:Any, accelerator:Accelerator,
            config:dict[str, Any])->dict[str, Any]:
    "Settings and circumstances, as the checkpoint will give them back; or an error."
    if not isinstance(train, Sized) or not len(train):
        raise ValueError('The training loader must have a length, the number of its '
                         'batches, above 0.')
    data = train if hasattr(train, 'tensors') else getattr(train, 'dataset', None)
    labels = (getattr(data, 'tensors', None) or [None])[-1]
    if isinstance(labels, Tensor): check_labels(labels.cpu())
    if accelerator.num_processes > 1 and not hasattr(train, 'set_epoch'):
        raise ValueError(
            'Several processes must agree on the order of the images: the training '
            'loader needs set_epoch, as a TensorLoader has it.')
    fitted = {name: getattr(settings, name) for name in FITTED if name != 'precision'}
    used = {'batches': len(train), 'precision': accelerator.mixed_precision}
    around = environment(device_of(net))
    around['hardware'] |= {'processes': accelerator.num_processes}
    everything = config | fitted | used | _describe(train)
    return {'config': json.loads(json.dumps(everything, default=str)), **around}

def fit(
    net:nn.Module,
    train:Iterable,
    valid:Iterable|None,
    epochs:int|None=None,
    settings:Training|None=None,
    out:str|Path|None=None,
    resume:bool=False,
    config:dict[str, Any]|None=None,
    bar:bool=True,
    sync_bn:bool=True,
    after_epoch:Callable[[Run], None]|None=None,
    **changes,
)->Run:
    """Train, measure and save, epoch by epoch; resumes bit for bit on one device.

    Of the settings these count: epochs, lr, weight_decay, schedule, optimizer, clip, patience, ema
    and precision. The others say what net and loaders are made of.

    Parameters
    ----------
    net : nn.Module
        images to scores `(b, classes)`, or `(b, classes, h, w)` where each pixel has a
        label; on the device to train on; all of it will train
    train : Iterable
        batches `(x, y)`; has a length, and `set_epoch` if its order depends on the
        epoch
    valid : Iterable | None
        batches `(x, y)` to measure after each epoch; None: trained without
    epochs : int | None, default None
        in all, those before a resume included; or of `settings`
    settings : Training | None, default None
        such as one of `RECIPES`; the defaults of `Training` if None
    out : str | Path | None, default None
        folder for checkpoint and log; nothing without
    resume : bool, default False
        go on with the run in `out`
    config : dict[str, Any] | None, default None
        what else belongs to the run: network, data, seed
    bar : bool, default True
        show a progress bar
    sync_bn : bool, default True
        on several GPUs, BatchNorm sees the whole batch
    after_epoch : Callable[[Run], None] | None, default None
        called when an epoch is saved; an error that it raises ends the run there
    **changes
        of the settings, by name: `lr=.01, schedule='cosine'`
    """
    unknown = [name for name in changes if name not in FITTED]
    if unknown:
        raise TypeError(f'fit has no setting {", ".join(unknown)}. It has {", ".join(FITTED)}; the '
                        'others of a Training belong to the net and to the loaders.')
    if epochs is not None: changes['epochs'] = epochs
    settings = replace(settings or Training(), **changes)
    if valid is None and settings.patience is not None:
        raise ValueError(
            'patience follows the validation loss: give valid=, or leave it out.')
    mean = None if settings.ema is None else deepcopy(net).requires_grad_(False).eval()
    with accelerated(net, settings.precision) as accelerator, \
         parallel(net, accelerator, sync_bn) as called:
        header = _header(settings, net, train, accelerator, config or {})
        make = OPTIMIZERS[settings.optimizer]
        optimizer = make(net.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        optimizer = accelerator.prepare_optimizer(optimizer)
        # what the wrapping has made equal everywhere
        if mean is not None: mean.to(device_of(net)).load_state_dict(net.state_dict())
        state = _State(net, called, optimizer, accelerator, mean)
        with _locked(out, resume, accelerator):
            run = _begin(state, header, out, resume)
            loop = _Loop(run, state, settings, train, valid, after_epoch)
            loop.run_all(bar and accelerator.is_main_process)
    return run

@dataclass
class _Loop:
    "A run under way."
    run:Run
    state:_State
    settings:Training
    train:Any
    valid:Iterable|None
    after_epoch:Callable[[Run], None]|None=None
    alarm:DivergenceAlarm = field(default_factory=DivergenceAlarm)

    def run_all(self, show:bool)->None:
        "The epochs that are left."
        epochs, done, n = self.settings.epochs, len(self.run.history), len(self.train)
        bar = tqdm(total=epochs * n, initial=done * n, unit='batch', disable=not show)
        with bar, _explained(self.run):
            while len(self.run.history) < epochs:
                self.epoch(bar)
                if self.after_epoch: self.after_epoch(self.run)

    def epoch(self, bar:tqdm)->None:
        "Train, measure and save the next epoch."
        number = len(self.run.history)
        began, cpu_began = time.perf_counter(), time.process_time()
        bar.set_description(f'epoch {number + 1}', refresh=False)
        if hasattr(self.train, 'set_epoch'): self.train.set_epoch(number)
        state = self.state
        trained = train_epoch(
            state.called, self.train, state.optimizer, self.rates(), bar,
            state.accelerator, self.settings.clip, self.after)
        metrics = {'epoch': number + 1, 'lr': state.optimizer.param_groups[0]['lr']}
        metrics |= {f'train_{k}': v for k, v in trained.items()}
        metrics |= _measure(state, self.valid)
        metrics |= {'seconds': time.perf_counter() - began,
                    'cpu_seconds': time.process_time() - cpu_began}
        state.save(self.run, metrics)

    def rates(self)->Callable[[int], float]:
        "The learning rate of each batch of this epoch."
        asked, n, halved = self.settings, len(self.train), 0
        first, schedule = len(self.run.history) * n, SCHEDULES[asked.schedule]
        if asked.patience:
            halved = plateaus(self.run.curve('valid_loss'), asked.patience)
        def rate(i:int)->float:
            return asked.lr * schedule((first + i) / (asked.epochs * n)) * .5**halved
        return rate

    def after(self, i:int, loss:float, classes:int)->None:
        "After batch i of this epoch: the average of the weights, and the alarm."
        state, number = self.state, len(self.run.history)
        if state.ema is not None and self.settings.ema is not None:
            first = number * len(self.train)
            average_into(state.ema, state.net, self.settings.ema, first + i)
        if state.accelerator.is_main_process:
            self.alarm(loss, classes, f'batch {i + 1} of epoch {number + 1}')

def _measure(state:_State, valid:Iterable|None)->dict[str, float]:
    "Loss and accuracy of the net and of its average, by name."
    metrics:dict[str, float] = {}
    if valid is None: return metrics
    for name, net in {'valid': state.net, 'ema': state.ema}.items():
        if net is None: continue
        if state.accelerator.num_processes > 1:
            from accelerate.utils import broadcast
            for buffer in net.buffers(): broadcast(buffer)
        measured = evaluate(net, valid, state.accelerator)
        if not math.isfinite(measured['loss']):
            raise FloatingPointError(
                f'the loss is {measured["loss"]} in the validation')
        metrics |= {f'{name}_{k}': v for k, v in measured.items()}
    return metrics

@contextmanager
def _explained(run:Run)->Iterator[None]:
    "Say of Ctrl-C and of a loss that is not finite where it happened and what is safe."
    try:
        yield
    except (KeyboardInterrupt, FloatingPointError) as error:
        done = len(run.history)
        safe = 'Nothing was saved: out= keeps a checkpoint each epoch.'
        if run.out:
            safe = (f'The state after epoch {done} is safe in {run.out / CHECKPOINT}: '
                    'fit(…, resume=True) goes on from there, '
                    'load_weights takes its weights.')
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f'Stopped in epoch {done + 1}. {safe}') from None
        raise RuntimeError(
            f'Training stopped: {error} of epoch {done + 1}. '
            f'Lower the learning rate or look at that batch. {safe}') from None
