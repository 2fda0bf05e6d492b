"""Handwriting to turn, without a download, and batches whose order and augmentation repeat.

P2: Nichita Diaconu, Daniel E. Worrall, Affine Self Convolution, 2019,
https://arxiv.org/abs/1911.07704
"""
# Plain module: edited by hand, no notebook exports it.

# axes: n images of a set or b of a batch, c channels, h rows, w columns
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset

from ..actions import rotate
from ..names import require

__all__ = ['TURNS', 'SPLITS', 'AUGMENTATIONS', 'enlarge', 'turn', 'Scale', 'ImageSet', 'prepare',
           'check_split', 'digits', 'epoch_order', 'TensorLoader', 'check_batch_size', 'Augment']


def enlarge(
    images:Tensor,
    size:int=28,
)->Tensor:
    """Images enlarged into the middle 5/7 of an empty frame: 20×20 in 28×28, as MNIST.

    Parameters
    ----------
    images : Tensor
        grey images in [0, 1], `(n, 1, h, w)`
    size : int, default 28
        height and width of the frame

    Returns
    -------
    Tensor
        `(n, 1, size, size)`
    """
    margin = round(size / 7)
    inside = F.interpolate(
        images, size=size - 2 * margin, mode='bicubic', align_corners=False)
    # bicubic overshoots: ink is never below 0 or above 1
    return F.pad(inside.clamp(0, 1), [margin] * 4)


TURNS = ('none', 'quarter', 'any')


def turn(
    images:Tensor,
    turned:str='any',
    seed:int=0,
    stream:int=0,
)->Tensor:
    """Each image turned once about its centre by its own seeded angle.

    Parameters
    ----------
    images : Tensor
        `(n, c, h, w)`, background 0
    turned : str, default 'any'
        'none', 'quarter' (multiples of 90°) or 'any' (in [0°, 360°))
    seed : int, default 0
        draws the angles
    stream : int, default 0
        another list of angles from the same seed

    Returns
    -------
    Tensor
        `(n, c, h, w)`
    """
    _check_turned(turned)
    if turned == 'none': return images
    _check_square(images)
    draw, n = np.random.RandomState([seed, stream]), len(images)
    if turned == 'quarter':
        return _turn_quarters(images, torch.as_tensor(draw.randint(4, size=n)))
    degrees = torch.as_tensor(draw.uniform(0, 360, n), dtype=images.dtype)
    # in parts: the sampling grid is twice as large as the images
    parts = zip(images.split(4096), degrees.split(4096))
    return torch.cat([rotate(x, angle) for x, angle in parts])


def _check_turned(turned:str)->None:
    if turned in TURNS: return
    raise ValueError(f'turned must be one of {TURNS}, got {turned!r}.')


def _check_square(images:Tensor)->None:
    h, w = images.shape[-2:]
    if h == w: return
    raise ValueError('images are turned inside their frame and must be square, '
                     f'got {h}×{w}: pad or crop them.')


def _turn_quarters(images:Tensor, quarters:Tensor)->Tensor:
    "Each image by its own number of quarter turns: pixels move and are never mixed."
    turned = images.clone()
    for q in (1, 2, 3):
        who = (quarters == q).nonzero().flatten()
        turned[who] = rotate(images[who], 90. * q)
    return turned


class Scale:
    "What images are normalised by, and what that makes of black."
    mean, std = torch.zeros(3), torch.ones(3)

    @property
    def black(self)->Tensor:
        "What 0 becomes, `(c,)`."
        return -self.mean / self.std

    def normalise(self, x:Tensor)->Tensor:
        "uint8 images `(b, c, h, w)`, normalised, on the device where they lie."
        mean, std = (t.to(x.device).view(-1, 1, 1) for t in (self.mean, self.std))
        return (x / 255 - mean) / std


class ImageSet(Scale, TensorDataset):
    """Normalised images `(n, c, h, w)`, labels `(n,)`, and what normalised them.

    Parameters
    ----------
    x : Tensor
        normalised images, `(n, c, h, w)`
    y : Tensor
        labels, `(n,)`
    mean : Tensor
        one a channel, `(c,)`
    std : Tensor
        one a channel, `(c,)`
    """
    def __init__(self,
        x:Tensor,
        y:Tensor,
        mean:Tensor,
        std:Tensor,
    ):
        super().__init__(x, y)
        self.mean, self.std = mean, std


SPLITS = ('train', 'valid', 'test')


def prepare(
    images:Tensor,
    labels:Tensor,
    parts:Mapping[str, Tensor],
    split:str,
    turned:str='none',
    seed:int=0,
)->ImageSet:
    """One split, each image turned once, normalised by the upright training part.

    Parameters
    ----------
    images : Tensor
        `(n, c, h, w)`, float in [0, 1] or uint8
    labels : Tensor
        `(n,)`
    parts : Mapping[str, Tensor]
        which images make up 'train', 'valid', 'test'
    split : str
        the part to return
    turned : str, default 'none'
        see `turn`
    seed : int, default 0
        draws the angles, never the split

    Returns
    -------
    ImageSet
        x float32 `(m, c, h, w)`, y int64 `(m,)`
    """
    check_split(split)
    train = _from_0_to_1(images[parts['train']])
    axes = 0, 2, 3
    mean, std = train.mean(axes, keepdim=True), train.std(axes, keepdim=True)
    x = train
    if split != 'train': x = _from_0_to_1(images[parts[split]])
    x = turn(x, turned, seed, stream=SPLITS.index(split))
    x = x.sub_(mean).div_(std) # in place: CIFAR takes half a gigabyte
    return ImageSet(x, labels[parts[split]].long(), mean.flatten(), std.flatten())


def _from_0_to_1(images:Tensor)->Tensor:
    return images / 255 if images.dtype == torch.uint8 else images.float()


def check_split(
    split:str,
)->None:
    "Raise unless this is a name of a split."
    if split in SPLITS: return
    raise ValueError(f'split must be one of {SPLITS}, got {split!r}.')


def digits(
    split:str='train',
    turned:str='none',
    seed:int=0,
    size:int=28,
)->ImageSet:
    """scikit-learn's handwritten digits, enlarged, split, turned and normalised.

    Parameters
    ----------
    split : str, default 'train'
        'train' (1,197 images), 'valid' (200) or 'test' (400)
    turned : str, default 'none'
        'none', 'quarter' (multiples of 90°) or 'any'
    seed : int, default 0
        draws the angles, never the split
    size : int, default 28
        height and width

    Returns
    -------
    ImageSet
        x float32 `(n, 1, size, size)`, y int64 `(n,)`
    """
    raw = require('sklearn.datasets', 'train').load_digits()
    selection = require('sklearn.model_selection', 'train')
    labels = raw.target
    rest, test = selection.train_test_split(
        np.arange(len(labels)), test_size=400, stratify=labels, random_state=0)
    train, valid = selection.train_test_split(
        rest, test_size=200, stratify=labels[rest], random_state=0)
    chosen = {'train': train, 'valid': valid, 'test': test}
    parts = {name: torch.as_tensor(index) for name, index in chosen.items()}
    grey = torch.as_tensor(raw.images, dtype=torch.float32)[:, None] / 16
    return prepare(
        enlarge(grey, size), torch.as_tensor(labels), parts, split, turned, seed)


def epoch_order(
    n:int,
    shuffle:bool,
    seed:int,
    epoch:int,
)->Tensor:
    """The order of the images in an epoch: a function of `(seed, epoch)` alone.

    Parameters
    ----------
    n : int
        images
    shuffle : bool
    seed : int
    epoch : int

    Returns
    -------
    Tensor
        int64 `(n,)`
    """
    order = np.arange(n)
    if shuffle: order = np.random.RandomState([seed, epoch]).permutation(n)
    return torch.as_tensor(order, dtype=torch.int64)


class TensorLoader:
    """Batches `(x, y)` sliced from tensors on the device; a function of `(seed, epoch)`.

    Parameters
    ----------
    dataset : TensorDataset
        tensors of equal length
    batch_size : int, default 128
        the last batch may be smaller
    shuffle : bool, default False
        a new order each epoch
    seed : int, default 0
        of the order and of the augmentation
    device : torch.device | str, default 'cpu'
        where the tensors go, once
    augment : Any, default None
        an `Augment` (below): changes the images
    """
    def __init__(self,
        dataset:TensorDataset,
        batch_size:int=128,
        shuffle:bool=False,
        seed:int=0,
        device:torch.device|str='cpu',
        augment:Any=None,
    ):
        check_batch_size(batch_size)
        self.tensors = tuple(t.to(device) for t in dataset.tensors)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.epoch, self.augment = 0, augment
        self.black = getattr(dataset, 'black', torch.zeros(1)).to(device)

    def set_epoch(self, epoch:int)->None:
        "Choose order and augmentation of this epoch, as `DistributedSampler` does."
        self.epoch = epoch

    def __len__(self)->int:
        return -(-len(self.tensors[0]) // self.batch_size) # rounded up

    def __iter__(self)->Iterator[tuple[Tensor, ...]]:
        n, device = len(self.tensors[0]), self.tensors[0].device
        draws = self.augment.draw(n, self.seed, self.epoch) if self.augment else None
        order = epoch_order(n, self.shuffle, self.seed, self.epoch)
        for part in order.split(self.batch_size):
            index = part.to(device)
            x, *rest = (t[index] for t in self.tensors)
            if self.augment and draws is not None:
                x = self.augment(x, draws[part], self.black)
            yield x, *rest


def check_batch_size(
    batch_size:int,
)->None:
    "Raise unless a batch has at least one image."
    if batch_size < 1:
        raise ValueError(f'batch_size must be at least 1, got {batch_size}.')


@dataclass(frozen=True)
class Augment:
    "Random mirrors, shifts and turns of images; a function of `(seed, epoch)` alone."
    mirror:bool=False # mirror each image with probability 1/2
    shift:int=0       # pad by so many black pixels, crop at a random place
    turned:str='none' # 'none', 'quarter' or 'any', as in `turn`

    def __post_init__(self)->None:
        _check_turned(self.turned)
        if self.shift < 0:
            raise ValueError(f'shift must be at least 0 pixels, got {self.shift}.')

    def draw(self, n:int, seed:int, epoch:int)->Tensor:
        "For n images `(n, 4)`: mirrored or not, rows and columns to shift by, degrees."
        random = np.random.RandomState([seed, epoch, 1]) # 1: not the order's stream
        shifts = random.randint(-self.shift, self.shift + 1, size=(n, 2))
        quarters, angles = random.randint(4, size=n), random.uniform(0, 360, n)
        degrees = {'none': np.zeros(n), 'quarter': 90. * quarters, 'any': angles}
        mirrored = random.randint(2, size=(n, 1)) * self.mirror
        columns = [mirrored, shifts, degrees[self.turned][:, None]]
        return torch.as_tensor(np.concatenate(columns, 1))

    def __call__(self, x:Tensor, draws:Tensor, black:Tensor|None=None)->Tensor:
        "The batch `(b, c, h, w)` as drawn; `black` `(c,)` fills what comes in."
        fill = (torch.zeros(1) if black is None else black).to(x).view(1, -1, 1, 1)
        mirrored, rows, columns, degrees = draws.to(x.device).unbind(1)
        if self.mirror or self.shift:
            moved = mirrored.bool(), rows.long(), columns.long()
            x = _move(x, fill, *moved, pad=self.shift)
        if self.turned == 'none': return x
        if self.turned == 'any': return rotate(x - fill, degrees) + fill
        _check_square(x)
        return _turn_quarters(x, (degrees / 90).round().long())


def _move(x:Tensor, fill:Tensor, mirrored:Tensor, rows:Tensor, columns:Tensor,
          pad:int)->Tensor:
    "Mirror, shift down by `rows` and right by `columns`, in one indexing operation."
    b, c, h, w = x.shape
    high, wide = h + 2*pad, w + 2*pad
    padded = fill.expand(b, c, high, wide).clone()
    padded[..., pad:pad + h, pad:pad + w] = x
    i = pad + torch.arange(h, device=x.device) - rows[:, None]
    j = pad + torch.arange(w, device=x.device) - columns[:, None]
    j = torch.where(mirrored[:, None], wide - 1 - j, j)
    source = (i[:, :, None]*wide + j[:, None]).view(b, 1, h*w).expand(b, c, h*w)
    return padded.flatten(2).gather(2, source).view(b, c, h, w)


AUGMENTATIONS = {
    'none': Augment(),
    'P2': Augment(mirror=True, shift=2),
    'cifar+': Augment(mirror=True, shift=4),
    'p4': Augment(turned='quarter'),
    'p4m': Augment(mirror=True, turned='quarter'),
    'turn': Augment(turned='any'),
}
