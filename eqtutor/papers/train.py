"What `eqtutor train` does: settings, loaders, a run, and its result in a file."
# Plain module: edited by hand, no notebook exports it.
import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from ..files import writable_folder, write_json
from ..models.registry import get_model
from ..train import DATASETS, RECIPES, Run, evaluate, fit, get_loader, seed_everything

EXAMPLE = 'Expected an object such as {"network": "p4-cnn", "epochs": 10}.'
# what a setting is at least
LEAST = dict(epochs=1, batch_size=1, images=1, test_images=1, per_class=1, patience=1, valid=0,
             weight_decay=0)


@dataclass(frozen=True)
class Training:
    "The settings of `eqtutor train`."
    network:str='p4-cnn'       # of `MODELS`
    data:str='rotmnist'        # of `DATASETS`
    epochs:int=10
    seed:int=0                 # of weights, order and augmentation; the data stay the same
    batch_size:int=128
    lr:float=1e-3
    weight_decay:float=1e-4
    schedule:str='constant'    # of `SCHEDULES`
    optimizer:str='adam'       # of `OPTIMIZERS`
    augment:str='none'         # of `AUGMENTATIONS`
    patience:int|None=None     # epochs without a better validation loss that halve the rate
    precision:str|None=None    # 'no', 'bf16' or 'fp16'; as launched if None
    valid:int|None=None        # CIFAR's images held out to validate, 0 for none; 10,000 if None
    per_class:int|None=None    # training images of each class, of CIFAR; all if None
    images:int|None=None       # train on the first so many pictures; all if None
    test_images:int|None=None  # test on the first so many; all if None

    @property
    def experiment(self)->str:
        "The folder's name: network and data, and what is special about the data."
        parts = [get_model(self.network).name, self.data]
        if self.images: parts.append(str(self.images))
        if self.per_class: parts.append(f'{self.per_class}-per-class')
        if self.augment != 'none': parts.append(self.augment)
        return '-'.join(parts)

    @classmethod
    def read(cls,
        path:Path|None,         # a JSON file of settings
        recipe:str|None=None,   # of `RECIPES`
        **options,              # None where an option is not given
    )->'Training':
        "Settings from a recipe, overridden by a JSON file, overridden by options that are given."
        if recipe is not None and recipe not in RECIPES:
            raise ValueError(f'unknown recipe {recipe!r}. Known are {", ".join(RECIPES)}.')
        settings = dict(vars(RECIPES[recipe])) if recipe else {}
        settings |= read_object(path, [f.name for f in fields(cls)])
        settings |= {name: value for name, value in options.items() if value is not None}
        for f in fields(cls): check_setting(f.name, f.type, settings.get(f.name, f.default))
        return cls(**settings)


def read_object(
    path:Path|None,   # None reads as an empty object
    known:list[str],  # names that may stand in it
)->dict[str, Any]:
    "The settings of a JSON file; an error that says what is wrong with it."
    if path is None: return {}
    try: content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'{path} is not JSON ({error}). {EXAMPLE}') from error
    if not isinstance(content, dict): raise ValueError(f'{path} holds {content!r}. {EXAMPLE}')
    unknown = [name for name in content if name not in known]
    if not unknown: return content
    raise ValueError(f'{path}: unknown settings {", ".join(unknown)}. '
                     f'Known are {", ".join(known)}.')


def check_setting(
    name:str,
    kind:Any,   # the annotation of the field
    value:Any,
)->None:
    "Raise a `ValueError` unless a setting has its type and, where it counts, is positive."
    kinds = (int, float) if kind is float else kind
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(f'{name} must be {getattr(kind, "__name__", kind)}, got {value!r}.')
    if value is not None and name in LEAST and not LEAST[name] <= value < math.inf:
        raise ValueError(f'{name} must be at least {LEAST[name]}, got {value}.')
    if name == 'lr' and not 0 < value < math.inf:
        raise ValueError(f'lr must be above 0, got {value}.')


@contextmanager
def gone_if_refused(
    folder:Path,
)->Iterator[None]:
    "Make a folder that can be written to; after an error those that are empty are gone again."
    new = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        writable_folder(folder)
        yield
    except BaseException:
        for p in new:
            if p.is_dir() and not any(p.iterdir()): p.rmdir()
        raise


def own_device()->str:
    "This process's GPU, or the CPU."
    return f'cuda:{os.environ.get("LOCAL_RANK", 0)}' if torch.cuda.is_available() else 'cpu'


def is_first_process()->bool:
    "Is this the process that writes and prints, of those that `accelerate launch` started?"
    return os.environ.get('RANK', '0') == '0'


def first_images(
    data:Any,      # a data set
    n:int|None,    # None takes all
    split:str,     # for the message
)->Any:
    "The first n pictures; an error if there are fewer, or if they lie on the disk."
    if n is None: return data
    if not hasattr(data, 'tensors'):
        raise ValueError('images and test_images take a part of a set in memory; '
                         f'{type(data).__name__} is read from the disk, whole. Leave them out.')
    if not 0 < n <= len(data):
        raise ValueError(f'{split}: {n:,} pictures are asked for, and there are {len(data):,}. '
                         f'Ask for 1 to {len(data):,}, or leave the option out for all.')
    part = copy.copy(data)
    part.tensors = tuple(t[:n] for t in data.tensors)
    return part


def check_data(
    data:str,
)->None:
    "Raise a `ValueError` unless there is a data set of that name."
    if data in DATASETS: return
    raise ValueError(f'unknown data {data!r}. Known are {", ".join(DATASETS)}.')


def data_sets(
    settings:Training,
)->dict[str, Any]:
    "The data set of each split, or an error if the pictures do not fit the network."
    check_data(settings.data)
    options = {name: value for name in ('per_class', 'valid')
               if (value := getattr(settings, name)) is not None}
    if options and not settings.data.startswith('cifar'):
        raise ValueError(f'{" and ".join(options)}: for CIFAR only, got data={settings.data!r}. '
                         '`images` takes the first so many pictures of any set.')
    sizes = {'train': settings.images, 'valid': None, 'test': settings.test_images}
    if settings.valid == 0: del sizes['valid']
    sets = {split: first_images(DATASETS[settings.data](split, **options), n, split)
            for split, n in sizes.items()}
    want, got = get_model(settings.network).input_shape, tuple(sets['test'][0][0].shape)
    if got == want: return sets
    raise ValueError(f'{settings.network} is made for pictures {want}, but {settings.data} has '
                     f'{got}. Choose another network or data set: `eqtutor models` says what '
                     'belongs together.')


def make_loaders(
    settings:Training,
    device:str,
)->dict[str, Any]:
    "A loader for each split: the training images shuffled and augmented, the others in order."
    s, loaders = settings, {}
    for split, data in data_sets(s).items():
        train = split == 'train'
        loaders[split] = get_loader(data, s.batch_size if train else 500, train, s.seed, device,
                                    s.augment if train else None)
    return loaders


def total_seconds(
    history:list[dict[str, Any]],  # of a `Run`, the epochs before a resume included
)->dict[str, float]:
    "Wall and processor seconds of all epochs."
    names = 'seconds', 'cpu_seconds'
    return {name: round(sum(epoch[name] for epoch in history), 1) for name in names}


def run_training(
    settings:Training,
    out:Path=Path('results'), # the result goes to `out/<experiment>/<seed>.json`
    runs:Path=Path('runs'),   # checkpoint and log to `runs/<experiment>/<seed>/`
    resume:bool=False,        # go on with the run in `runs`
    bar:bool=True,
    after_epoch:Callable[[Run], None]|None=None, # as for `fit`
)->dict:
    """Train, test, and write the result; returns it. Several processes (`accelerate launch`)
    share each batch, and the first one writes."""
    folder = out/settings.experiment
    with gone_if_refused(folder) if is_first_process() else nullcontext():
        result = trained(settings, runs, resume, bar, after_epoch)
        if is_first_process(): write_json(folder/f'{settings.seed}.json', result)
    return result


def trained(
    settings:Training,
    runs:Path,
    resume:bool,
    bar:bool,
    after_epoch:Callable[[Run], None]|None,
)->dict:
    "The result of a run, not yet written."
    s, device = settings, own_device()
    loaders = make_loaders(s, device)
    seed_everything(s.seed)
    net = get_model(s.network).make().to(device)
    run = fit(net, loaders['train'], loaders.get('valid'), s.epochs, lr=s.lr,
              weight_decay=s.weight_decay, schedule=s.schedule, optimizer=s.optimizer,
              patience=s.patience, precision=s.precision, out=runs/s.experiment/str(s.seed),
              resume=resume, bar=bar, after_epoch=after_epoch,
              config=dict(network=s.network, data=s.data, seed=s.seed, augment=s.augment))
    return run.header | {
        'settings': asdict(s), 'parameters': sum(p.numel() for p in net.parameters()),
        'history': run.history, 'test': evaluate(net, loaders['test']),
        **total_seconds(run.history)}
