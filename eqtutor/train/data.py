"""MNIST, CIFAR and PatchCamelyon in the splits of the papers, from files that are checked, and a
loader for what does not fit into memory."""
# Plain module: edited by hand, no notebook exports it.

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from einops import rearrange
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ..files import checksum
from ..names import require
from .images import (
    AUGMENTATIONS,
    Augment,
    ImageSet,
    Scale,
    TensorLoader,
    check_batch_size,
    check_split,
    digits,
    epoch_order,
    prepare,
)


def data_root()->Path: # the folder; it need not exist yet
    "The folder of the data: `EQTUTOR_DATA` where that is set, else `~/.cache/eqtutor`."
    return Path(os.environ.get('EQTUTOR_DATA') or '~/.cache/eqtutor').expanduser()

MNIST_MD5 = {
    'train-images-idx3-ubyte': '6bbc9ace898e44ae57da46a324031adb',
    'train-labels-idx1-ubyte': 'a25bea736e30d166cdddb491f175f624',
    't10k-images-idx3-ubyte': '2646ac647ad5339dbf082846283269ea',
    't10k-labels-idx1-ubyte': '27ae3e4e09519cfbb04c329615203637',
}

def check_file(
    path:str|Path, # the file
    md5:str,       # its published MD5 sum
)->Path:           # the same path
    "The path of a file whose MD5 sum is the published one; else an error with advice."
    if not (path := Path(path)).is_file():
        raise FileNotFoundError(
            f'{path} is missing. Load the data set again to download it, or set '
            'EQTUTOR_DATA to the folder that holds it.')
    actual = checksum(path, 'md5')
    if actual == md5: return path
    raise ValueError(
        f'{path} is damaged: {path.stat().st_size:,} bytes with MD5 {actual}, but the '
        f'published file has {md5}. A download or copy was probably cut off. Delete '
        'this file and load the data set again: it is fetched anew.')

def _fetch(name:str, folder:Path, files:str, download:Callable[[], Any])->None:
    "Let torchvision download a data set; one error where there is no way to get it."
    try:
        download()
    except Exception as error: # whatever it raises: gdown's errors are plain Exceptions
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        place = folder.relative_to(data_root()).as_posix()
        raise RuntimeError(
            f'{name} is not in {folder} and could not be downloaded ({reason}). '
            f'With a network, try again. Without one, copy {files} there from another '
            f'machine, or set EQTUTOR_DATA to a folder that has {place}, or use the '
            'embedded digits, which need no file: digits().') from error

def _torchvision()->Any:
    return require('torchvision.datasets', 'train')

def mnist_files()->dict[str, Path]: # file name to path
    "The four unpacked files of MNIST, each checked; downloaded where one is missing."
    folder = data_root() / 'MNIST' / 'raw'
    paths = {name: folder / name for name in MNIST_MD5}
    if not all(path.is_file() for path in paths.values()):
        kind = _torchvision().MNIST
        def download()->Any: return kind(str(data_root()), download=True)
        _fetch('MNIST', folder, f'the four files {", ".join(MNIST_MD5)}', download)
    return {name: check_file(path, MNIST_MD5[name]) for name, path in paths.items()}

_PARTS = {'train': slice(10_000), 'valid': slice(10_000, 12_000),
          'test': slice(12_000, 62_000)}

def mnist(
    split:str='train',
    turned:str='none',
    seed:int=0,
)->ImageSet:
    """MNIST in the split of the rotated benchmark, turned and normalised.

    Parameters
    ----------
    split : str, default 'train'
        'train' (10,000 images), 'valid' (2,000) or 'test' (50,000)
    turned : str, default 'none'
        'none', 'quarter' (multiples of 90°) or 'any'
    seed : int, default 0
        draws the angles, never the split

    Returns
    -------
    ImageSet
        x float32 `(n, 1, 28, 28)`, y int64 `(n,)`
    """
    return _mnist(_PARTS, split, turned, seed)

def _mnist(parts:dict[str, slice], split:str, turned:str, seed:int)->ImageSet:
    files = {name: str(path) for name, path in mnist_files().items()}
    halves, read = ('train', 't10k'), _torchvision().mnist
    images = [read.read_image_file(files[f'{half}-images-idx3-ubyte']) for half in halves]
    labels = [read.read_label_file(files[f'{half}-labels-idx1-ubyte']) for half in halves]
    order = torch.as_tensor(np.random.RandomState(0).permutation(sum(map(len, images))))
    index = {name: order[part] for name, part in parts.items()}
    return prepare(torch.cat(images)[:, None], torch.cat(labels), index, split, turned,
                   seed)

def rotated_mnist(
    split:str='train',
    seed:int=0,
)->ImageSet:
    """Rotated MNIST, rebuilt after Larochelle et al. (2007): one uniform angle an image.

    Parameters
    ----------
    split : str, default 'train'
        'train' (10,000 images), 'valid' (2,000) or 'test' (50,000)
    seed : int, default 0
        draws the angles

    Returns
    -------
    ImageSet
        x float32 `(n, 1, 28, 28)`, y int64 `(n,)`
    """
    return mnist(split, 'any', seed)

def rotated_mnist_12000(
    split:str='train',
    seed:int=0,
)->ImageSet:
    """Rotated MNIST, rebuilt, without validation images: it validates on *test* images.

    Parameters
    ----------
    split : str, default 'train'
        'train' (12,000), 'test' (50,000) or 'valid' (10,000 of it)
    seed : int, default 0
        draws the angles

    Returns
    -------
    ImageSet
        x float32 `(n, 1, 28, 28)`, y int64 `(n,)`
    """
    check_split(split)
    part = 'train' if split == 'train' else 'test'
    data = _mnist(_PARTS | {'train': slice(12_000)}, part, 'any', seed)
    if split != 'valid': return data
    x, y = data.tensors
    return ImageSet(x[:10_000], y[:10_000], data.mean, data.std)

AMAT_ROWS = {'train_valid': 12_000, 'test': 50_000}

def read_amat(
    path:str|Path,
    rows:int,
)->tuple[Tensor, Tensor]:
    """The images and labels of an `.amat` file; a damaged one is an error.

    Parameters
    ----------
    path : str | Path
        a file of the rotated-MNIST benchmark
    rows : int
        images it must have

    Returns
    -------
    tuple[Tensor, Tensor]
        float32 `(rows, 1, 28, 28)` in [0, 1], int64 `(rows,)`
    """
    if not (path := Path(path)).is_file():
        raise FileNotFoundError(
            f'{path} is missing. Unpack mnist_rotation_new.zip of Larochelle et al. '
            '(2007) there, or take the benchmark rebuilt from MNIST: rotated_mnist(), '
            "'rotmnist'.")
    values = _numbers_in(path)
    table = values.reshape(-1, 785) if values.size == rows*785 else np.empty((0, 785))
    x, y = table[:, :-1], table[:, -1]
    in_range = len(table) and x.min() >= 0 and x.max() <= 1
    if not in_range or not np.isin(y, np.arange(10)).all():
        raise ValueError(
            f'{path} is damaged: expected {rows:,} lines of 784 values in [0, 1] and a '
            f'label from 0 to 9, found {values.size:,} numbers. '
            'Unpack it again from mnist_rotation_new.zip.')
    return torch.as_tensor(x).reshape(-1, 1, 28, 28), torch.as_tensor(y).long()

def _numbers_in(path:Path)->np.ndarray:
    "The numbers of a text file, up to the first thing that is none."
    with warnings.catch_warnings():
        # how an older numpy meets text that is no number
        warnings.simplefilter('ignore', DeprecationWarning)
        try: return np.fromfile(path, dtype=np.float32, sep=' ')
        except ValueError: return np.empty(0, np.float32)

def rotated_mnist_original(
    split:str='train',
    seed:int=0,
)->ImageSet:
    """Rotated MNIST of Larochelle et al. (2007) from its `.amat` files, normalised.

    Parameters
    ----------
    split : str, default 'train'
        'train' (10,000 images), 'valid' (2,000) or 'test' (50,000)
    seed : int, default 0
        changes nothing: the angles are in the files

    Returns
    -------
    ImageSet
        x float32 `(n, 1, 28, 28)`, y int64 `(n,)`
    """
    check_split(split)
    halves = ['train_valid'] + ['test'] * (split == 'test')
    start = data_root() / 'mnist_rotation_new' / 'mnist_all_rotation_normalized_float_'
    tables = [read_amat(f'{start}{half}.amat', AMAT_ROWS[half]) for half in halves]
    images, labels = (torch.cat(column) for column in zip(*tables))
    rows, index = AMAT_ROWS['train_valid'], torch.arange(len(images))
    cut = rows - rows // 6
    parts = {'train': index[:cut], 'valid': index[cut:rows], 'test': index[rows:]}
    return prepare(images, labels, parts, split)

def take_per_class(
    dataset:ImageSet,
    n:int,
    seed:int=0,
)->ImageSet:
    """A seeded choice of n images of each class, in the order they had.

    Parameters
    ----------
    dataset : ImageSet
    n : int
        images of each class
    seed : int, default 0
        draws them
    """
    x, y = dataset.tensors
    counts, draw = y.bincount(), np.random.RandomState(seed)
    if not 1 <= n <= counts.min():
        raise ValueError(f'per_class must be from 1 to {counts.min()}, the images of '
                         f'the smallest class, got {n}.')
    chosen = [np.flatnonzero(y == c)[draw.permutation(int(m))[:n]]
              for c, m in enumerate(counts)]
    index = torch.as_tensor(np.sort(np.concatenate(chosen)))
    return ImageSet(x[index], y[index], dataset.mean, dataset.std)

def _cifar_files(kind:Any)->None:
    "Check the files of CIFAR-10 or CIFAR-100, or download them."
    folder, meta = data_root() / kind.base_folder, kind.meta
    sums = dict([*kind.train_list, *kind.test_list, [meta['filename'], meta['md5']]])
    if not all((folder / name).is_file() for name in sums):
        def download()->Any: return kind(str(data_root()), download=True)
        _fetch(kind.__name__, folder, ', '.join(sums), download)
    for name, md5 in sums.items(): check_file(folder / name, md5)

def _cifar(name:str, split:str, turned:str, seed:int, valid:int,
           per_class:int|None)->ImageSet:
    check_split(split)
    kind = getattr(_torchvision(), name)
    _cifar_files(kind)
    halves = [kind(str(data_root()), train=train) for train in (True, False)]
    pixels = [torch.as_tensor(half.data) for half in halves]
    # each half for itself: another layout in memory would sum in another order
    images = torch.cat([rearrange(x, 'n h w c -> n c h w') for x in pixels])
    labels = torch.cat([torch.tensor(half.targets) for half in halves])
    n, m = (len(half) for half in halves)
    _check_held_out(valid, n, split)
    order = torch.as_tensor(np.random.RandomState(0).permutation(n))
    parts = {'train': order[:n - valid], 'valid': order[n - valid:],
             'test': torch.arange(n, n + m)}
    data = prepare(images, labels, parts, split, turned, seed)
    if per_class is None or split != 'train': return data
    return take_per_class(data, per_class, seed)

def _check_held_out(valid:int, n:int, split:str)->None:
    "Some images must be left to train, and some to validate where that is asked for."
    if 0 <= valid < n and (valid or split != 'valid'): return
    lacking = 'train' if valid else 'validate'
    raise ValueError(f'valid={valid} leaves no images to {lacking}; '
                     f'expected 1 to {n - 1} of {n:,}.')

def cifar10(
    split:str='train',
    turned:str='none',
    seed:int=0,
    valid:int=10_000,
    per_class:int|None=None,
)->ImageSet:
    """CIFAR-10 in the splits of the papers, normalised a channel at a time.

    Parameters
    ----------
    split : str, default 'train'
        'train', 'valid' or 'test' (10,000 images)
    turned : str, default 'none'
        'none', 'quarter' (multiples of 90°) or 'any'
    seed : int, default 0
        draws angles, and images of `per_class`
    valid : int, default 10000
        held out of 50,000; P1, P3 10,000, P2 5,000, P4 0
    per_class : int | None, default None
        images of each class (P4: 1,000 to 5,000); None: all

    Returns
    -------
    ImageSet
        x float32 `(n, 3, 32, 32)`, y int64 `(n,)`
    """
    return _cifar('CIFAR10', split, turned, seed, valid, per_class)

def cifar100(
    split:str='train',
    turned:str='none',
    seed:int=0,
    valid:int=10_000,
    per_class:int|None=None,
)->ImageSet:
    """CIFAR-100 in the splits of the papers, normalised a channel at a time.

    Parameters
    ----------
    split : str, default 'train'
        'train', 'valid' or 'test' (10,000 images)
    turned : str, default 'none'
        'none', 'quarter' (multiples of 90°) or 'any'
    seed : int, default 0
        draws angles, and images of `per_class`
    valid : int, default 10000
        of the 50,000 training images, held out
    per_class : int | None, default None
        training images of each class; None: all

    Returns
    -------
    ImageSet
        x float32 `(n, 3, 32, 32)`, y int64, the 100 fine labels
    """
    return _cifar('CIFAR100', split, turned, seed, valid, per_class)

DATASETS:dict[str, Callable[..., Any]] = {
    'digits': digits, 'mnist': mnist, 'rotmnist': rotated_mnist,
    'rotmnist-12000': rotated_mnist_12000, 'rotmnist-original': rotated_mnist_original,
    'cifar10': cifar10, 'cifar100': cifar100}

PCAM_SIZES = {'train': 262_144, 'valid': 32_768, 'test': 32_768}

class _Opened(NamedTuple):
    "An HDF5 file's array, a memory map where it lies in one piece, and who opened it."
    process:int
    file:Any # keeps the array alive
    array:Any

def _open_h5(path:Path, name:str, shape:tuple[int, ...])->_Opened:
    "The one array of a file, checked."
    try: file = require('h5py', 'pcam').File(path, 'r')
    except OSError as error:
        reason = f'but HDF5 cannot read it ({error})'
        raise _damaged(path, name, shape, reason) from error
    array = file.get(name)
    actual = None if array is None else (array.shape, str(array.dtype))
    if actual != (shape, 'uint8'):
        file.close()
        raise _damaged(path, name, shape, f'found {actual}')
    start = array.id.get_offset() if array.chunks is None else None
    if start is None: return _Opened(os.getpid(), file, array)
    file.close()
    return _Opened(os.getpid(), file, np.memmap(path, np.uint8, 'r', start, shape))

def _damaged(path:Path, name:str, shape:tuple[int, ...], actual:str)->ValueError:
    return ValueError(
        f'{path} is damaged or of another kind: expected an array {name!r} of {shape} '
        f'unsigned bytes, {actual}. Delete it and load the data set again: '
        'the archive is checked and unpacked anew.')

class PCamImages(Scale, Dataset):
    "PatchCamelyon, left on the disk: uint8 images `(3, 96, 96)` and labels."
    def __init__(self,
        images:Path, # …_x.h5
        labels:Path, # …_y.h5
        n:int,       # images they must have
        size:int=96, # height and width
    ):
        self.images, self.shape = images, (n, size, size, 3)
        self._opened:_Opened|None = None
        y = _open_h5(labels, 'y', (n, 1, 1, 1))
        self.y = torch.as_tensor(np.array(y.array).reshape(n).astype(np.int64))
        y.file.close()
        if not bool(((self.y == 0) | (self.y == 1)).all()):
            raise ValueError(f'{labels} is damaged: a label is neither 0 nor 1. '
                             'Delete it and load the data set again.')
        self._array() # complains now, not in the first batch

    def __len__(self)->int:
        return self.shape[0]

    def __getitem__(self, i:int)->tuple[Tensor, Tensor]:
        return self.__getitems__([i])[0][0], self.y[i]

    def __getitems__(self, index:list[int])->tuple[Tensor, Tensor]:
        "A batch, `(b, 3, h, w)` and `(b,)`; torch's `DataLoader` calls this."
        array, where = self._array(), np.asarray(index)
        pixels = np.empty((len(where), *self.shape[1:]), np.uint8)
        for k in where.argsort(): # in the order of the file
            pixels[k] = array[int(where[k])]
        x = rearrange(torch.as_tensor(pixels), 'b h w c -> b c h w').contiguous()
        return x, self.y[torch.as_tensor(where)]

    def _array(self)->Any:
        "The images, opened once a process: an open HDF5 file does not survive a fork."
        if self._opened is None or self._opened.process != os.getpid():
            self._opened = _open_h5(self.images, 'x', self.shape)
        return self._opened.array

    def __getstate__(self)->dict[str, Any]:
        return self.__dict__ | {'_opened': None}

def pcam(
    split:str='train',
    seed:int=0,
)->PCamImages:
    """PatchCamelyon from its HDF5 files; `DiskLoader` normalises by the training part.

    Parameters
    ----------
    split : str, default 'train'
        'train' (262,144 images), 'valid' (32,768) or 'test' (32,768)
    seed : int, default 0
        changes nothing: the split is published

    Returns
    -------
    PCamImages
        uint8 `(3, 96, 96)`; 1 where there is a tumour in the middle
    """
    check_split(split)
    require('h5py', 'pcam')
    data = _pcam_part(split)
    train = data if split == 'train' else _pcam_part('train')
    n = len(train)
    few = list(range(0, n, max(1, n // 4096)))
    sample = train.__getitems__(few)[0].double() / 255
    data.mean, data.std = sample.mean((0, 2, 3)).float(), sample.std((0, 2, 3)).float()
    return data

def _pcam_part(split:str)->PCamImages:
    folder, name = data_root() / 'pcam', 'val' if split == 'valid' else split
    x, y = (folder / f'camelyonpatch_level_2_split_{split}_{kind}.h5' for kind in 'xy')
    if not (x.is_file() and y.is_file()):
        kind = _torchvision().PCAM
        def download()->Any: return kind(str(data_root()), name, download=True)
        _fetch('PatchCamelyon', folder, f'{x.name} and {y.name}', download)
    return PCamImages(x, y, PCAM_SIZES[split])

DATASETS['pcam'] = pcam

class DiskLoader:
    """Batches `(x, y)` of a set that stays on the disk; a function of `(seed, epoch)`.

    Parameters
    ----------
    dataset : PCamImages
    batch_size : int, default 64
        the last batch may be smaller
    shuffle : bool, default False
        a new order each epoch
    seed : int, default 0
        of the order and of the augmentation
    device : torch.device | str, default 'cpu'
        where the batches go
    augment : Augment | None, default None
        changes the images, anew each epoch
    workers : int, default 2
        processes that read ahead; 0 reads in this one
    """
    def __init__(self,
        dataset:PCamImages,
        batch_size:int=64,
        shuffle:bool=False,
        seed:int=0,
        device:torch.device|str='cpu',
        augment:Augment|None=None,
        workers:int=2,
    ):
        check_batch_size(batch_size)
        self.dataset, self.augment = dataset, augment
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.device, self.workers, self.epoch = torch.device(device), workers, 0

    def set_epoch(self, epoch:int)->None:
        "Choose the order and the augmentation of this epoch."
        self.epoch = epoch

    def __len__(self)->int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self)->Iterator[tuple[Tensor, Tensor]]:
        n, cuda = len(self.dataset), self.device.type == 'cuda'
        draws = self.augment.draw(n, self.seed, self.epoch) if self.augment else None
        order = epoch_order(n, self.shuffle, self.seed, self.epoch)
        parts = order.split(self.batch_size)
        for part, (x, y) in zip(parts, self._reader(parts)):
            x = self.dataset.normalise(x.to(self.device, non_blocking=cuda))
            if self.augment and draws is not None:
                x = self.augment(x, draws[part], self.dataset.black)
            yield x, y.to(self.device, non_blocking=cuda)

    def _reader(self, parts:tuple[Tensor, ...])->DataLoader:
        "Batches as they lie on the disk; `__getitems__` gives whole ones already."
        return DataLoader(
            self.dataset, batch_sampler=[p.tolist() for p in parts], collate_fn=_whole,
            num_workers=self.workers, pin_memory=self.device.type == 'cuda',
            # of its own: reading must not move on torch's, which dropout draws from
            generator=torch.Generator())

def _whole(batch:Any)->Any:
    return batch

def get_loader(
    dataset:ImageSet|PCamImages|TensorDataset,
    batch_size:int=128,
    shuffle:bool=False,
    seed:int=0,
    device:torch.device|str='cpu',
    augment:Augment|str|None=None,
)->TensorLoader|DiskLoader:
    """The loader that suits a data set: tensors on the device, or batches from the disk.

    Parameters
    ----------
    dataset : ImageSet | PCamImages | TensorDataset
        of `DATASETS`
    batch_size : int, default 128
        the last batch may be smaller
    shuffle : bool, default False
    seed : int, default 0
    device : torch.device | str, default 'cpu'
    augment : Augment | str | None, default None
        or a name of `AUGMENTATIONS`
    """
    if isinstance(augment, str):
        if augment not in AUGMENTATIONS:
            names = ', '.join(AUGMENTATIONS)
            raise ValueError(f'augment must be one of {names}, got {augment!r}.')
        augment = AUGMENTATIONS[augment]
    settings = batch_size, shuffle, seed, device, augment
    if isinstance(dataset, TensorDataset): return TensorLoader(dataset, *settings)
    return DiskLoader(dataset, *settings)
