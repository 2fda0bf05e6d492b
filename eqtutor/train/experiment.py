"What `eqtutor train` does: loaders, a run, and its result in a file."
# Plain module: edited by hand, no notebook exports it.
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..files import writable_folder, write_json
from ..models.registry import get_model
from .data import DATASETS, get_loader
from .fitting import Run, fit
from .loop import evaluate, seed_everything
from .processes import is_first_process, training_device
from .settings import Training


def check_data(
    data:str,
)->None:
    "Raise a `ValueError` unless there is a data set of that name."
    if data in DATASETS: return
    raise ValueError(f'unknown data {data!r}. Known are {", ".join(DATASETS)}.')


def first_images(
    data:Any,      # a data set
    n:int|None,    # None takes all
    split:str,     # for the message
)->Any:
    "The first n images; an error if there are fewer, or if they lie on the disk."
    if n is None: return data
    if not hasattr(data, 'tensors'):
        raise ValueError('images and test_images take a part of a set in memory; '
                         f'{type(data).__name__} is read from the disk, whole. Leave them out.')
    if not 0 < n <= len(data):
        raise ValueError(f'{split}: {n:,} images are asked for, and there are {len(data):,}. '
                         f'Ask for 1 to {len(data):,}, or leave the option out for all.')
    part = copy.copy(data)
    part.tensors = tuple(t[:n] for t in data.tensors)
    return part


def make_loaders(
    settings:Training,
    device:str,
)->dict[str, Any]:
    """A loader for each split: the training images shuffled and augmented, the others in order.

    An error if the images do not fit the network; no 'valid' where a recipe does without.
    """
    check_data(settings.data)
    options = {name: value for name in ('per_class', 'valid')
               if (value := getattr(settings, name)) is not None}
    if options and not settings.data.startswith('cifar'):
        raise ValueError(f'{" and ".join(options)}: for CIFAR only, got data={settings.data!r}. '
                         '`images` takes the first so many of any set.')
    sizes = {'train': settings.images, 'valid': None, 'test': settings.test_images}
    if settings.valid == 0: del sizes['valid']
    sets = {split: first_images(DATASETS[settings.data](split, **options), n, split)
            for split, n in sizes.items()}
    shape = get_model(settings.network).input_shape
    if (given := tuple(sets['test'][0][0].shape)) != shape:
        raise ValueError(f'{settings.network} is made for images {shape}, but {settings.data} has '
                         f'{given}. Choose another network or data set: `eqtutor models` says what '
                         'belongs together.')
    train = sets.pop('train')
    loaders = {'train': get_loader(train, settings.batch_size, True, settings.seed, device,
                                   settings.augment)}
    return loaders | {split: get_loader(data, 500, False, settings.seed, device)
                      for split, data in sets.items()}


@contextmanager
def removed_if_refused(
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


def run_training(
    settings:Training,
    out:Path=Path('results'),
    runs:Path=Path('runs'),
    resume:bool=False,
    bar:bool=True,
    after_epoch:Callable[[Run], None]|None=None,
)->dict[str, Any]:
    """Train, test, and write the result; returns it. Several processes (`accelerate launch`)
    share each batch, and the first one writes.

    Parameters
    ----------
    settings : Training
    out : Path, default Path('results')
        the result goes to `out/<experiment>/<seed>.json`
    runs : Path, default Path('runs')
        checkpoint and log to `runs/<experiment>/<seed>/`
    resume : bool, default False
        go on with the run in `runs`
    bar : bool, default True
    after_epoch : Callable[[Run], None] | None, default None
        as for `fit`
    """
    folder, first, device = out/settings.experiment, is_first_process(), training_device()
    with removed_if_refused(folder) if first else nullcontext():
        loaders = make_loaders(settings, device)
        seed_everything(settings.seed)
        net = get_model(settings.network).make().to(device)
        about = {name: getattr(settings, name) for name in ('network', 'data', 'seed', 'augment')}
        run = fit(net, loaders['train'], loaders.get('valid'), settings=settings, config=about,
                  out=runs/settings.experiment/str(settings.seed), resume=resume, bar=bar,
                  after_epoch=after_epoch)
        result = run.header | {
            'settings': asdict(settings), 'parameters': sum(p.numel() for p in net.parameters()),
            'history': run.history, 'test': evaluate(net, loaders['test'])}
        if run.ema is not None: result['ema_test'] = evaluate(run.ema, loaders['test'])
        for name in 'seconds', 'cpu_seconds':   # of all epochs, those before a resume included
            result[name] = round(sum(epoch[name] for epoch in run.history), 1)
        if first: write_json(folder/f'{settings.seed}.json', result)
    return result
