"""Data, the loop, and a run that goes on where it stopped: what trains a network.

A name loads its module when it is asked for: the command lists the options of `eqtutor train`,
which stand in `settings`, without loading torch.
"""
# Plain module: edited by hand, no notebook exports it.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import (
        environment,
        load_weights,
        read_checkpoint,
        save_checkpoint,
        trained_weights,
        weights_file,
    )
    from .data import (
        AMAT_ROWS,
        DATASETS,
        MNIST_MD5,
        PCAM_SIZES,
        DiskLoader,
        PCamImages,
        check_file,
        cifar10,
        cifar100,
        data_root,
        get_loader,
        mnist,
        mnist_files,
        pcam,
        read_amat,
        rotated_mnist,
        rotated_mnist_12000,
        rotated_mnist_original,
        take_per_class,
    )
    from .experiment import first_images, run_training
    from .fitting import CHECKPOINT, LOG, DivergenceAlarm, Run, fit
    from .images import (
        AUGMENTATIONS,
        SPLITS,
        TURNS,
        Augment,
        ImageSet,
        TensorLoader,
        digits,
        enlarge,
        epoch_order,
        prepare,
        turn,
    )
    from .loop import (
        OPTIMIZERS,
        RECIPES,
        SCHEDULES,
        average_into,
        evaluate,
        plateaus,
        seed_everything,
        steps,
        train_epoch,
        train_step,
        warm_up,
    )
    from .processes import PRECISIONS, accelerated, parallel, share, sync_batch_norm
    from .settings import Training

__all__ = ['AMAT_ROWS', 'AUGMENTATIONS', 'Augment', 'CHECKPOINT', 'DATASETS', 'DiskLoader',
           'DivergenceAlarm', 'ImageSet', 'LOG', 'MNIST_MD5', 'OPTIMIZERS', 'PCAM_SIZES',
           'PCamImages', 'PRECISIONS', 'RECIPES', 'Run', 'SCHEDULES', 'SPLITS', 'TURNS',
           'TensorLoader', 'Training', 'accelerated', 'average_into', 'check_file', 'cifar10',
           'cifar100', 'data_root', 'digits', 'enlarge', 'environment', 'epoch_order', 'evaluate',
           'first_images', 'fit', 'get_loader', 'load_weights', 'mnist', 'mnist_files', 'parallel',
           'pcam', 'plateaus', 'prepare', 'read_amat', 'read_checkpoint', 'rotated_mnist',
           'rotated_mnist_12000', 'rotated_mnist_original', 'run_training', 'save_checkpoint',
           'seed_everything', 'share', 'steps', 'sync_batch_norm', 'take_per_class', 'train_epoch',
           'train_step', 'trained_weights', 'turn', 'warm_up', 'weights_file']

# each needs some of those before it
MODULES = 'settings', 'processes', 'checkpoints', 'images', 'loop', 'data', 'fitting', 'experiment'


def __getattr__(name:str)->Any:
    if name in __all__:
        for module in MODULES:
            home = import_module(f'.{module}', __name__)
            if hasattr(home, name): return getattr(home, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__()->list[str]: return __all__
