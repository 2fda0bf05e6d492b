"The digits, and batches whose order and augmentation are a function of seed and epoch alone."
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from eqtutor.actions import rotate
from eqtutor.train import (
    AUGMENTATIONS,
    SPLITS,
    Augment,
    ImageSet,
    TensorLoader,
    digits,
    enlarge,
    turn,
)


@pytest.fixture(scope='module')
def colour():
    torch.manual_seed(0)
    mean, std = torch.tensor([.5, .4, .3]), torch.tensor([.2, .3, .2])
    return ImageSet(torch.randn(40, 3, 8, 8), torch.arange(40), mean, std)


def epoch(loader, number):
    loader.set_epoch(number)
    return [torch.cat(column) for column in zip(*loader)]


def pairs(x, y):
    return sorted((image.numpy().tobytes(), label.item()) for image, label in zip(x, y))


def slowly(x, draws, fill, pad):
    "Each image by its own row of draws, one after the other."
    (h, w), out = x.shape[-2:], []
    for image, (mirrored, rows, columns, degrees) in zip(x, draws):
        if mirrored: image = image.flip(-1)
        big = fill.repeat(1, h + 2*pad, w + 2*pad)
        big[:, pad:pad + h, pad:pad + w] = image
        top, left = pad - int(rows), pad - int(columns)
        cropped = big[:, top:top + h, left:left + w] - fill
        out.append(rotate(cropped[None], degrees.item())[0] + fill)
    return torch.stack(out)


# --- digits

def test_enlarging_cuts_off_what_overshoots():
    raw = torch.tensor(load_digits().images[:100], dtype=torch.float32)[:, None]/16
    assert F.interpolate(raw, size=20, mode='bicubic').min() < -.05
    assert enlarge(raw).min() == 0 and enlarge(raw).max() <= 1
    assert enlarge(raw, 21).shape == (100, 1, 21, 21)


def test_quarter_turns_are_equally_likely_and_another_list_by_seed_and_stream():
    x = digits('train').tensors[0] - digits('train').black
    quarter = turn(x, 'quarter')
    turned = torch.stack([(quarter == rotate(x, 90.*q)).flatten(1).all(1) for q in range(4)])
    shares = turned.float().mean(1)   # a symmetric digit counts twice
    assert (shares - .25).abs().max() < .04 and shares.sum() >= 1
    assert torch.equal(quarter, turn(x, 'quarter'))
    assert not torch.equal(quarter, turn(x, 'quarter', seed=1))
    assert not torch.equal(quarter, turn(x, 'quarter', stream=1))


def test_splits_are_normalised_by_the_upright_training_part_and_share_no_image():
    parts = {split: digits(split) for split in SPLITS}
    x, y = parts['train'].tensors
    assert x.dtype == torch.float32 and y.dtype == torch.int64
    assert x.mean().abs() < 1e-4 and (x.std() - 1).abs() < 1e-4
    distinct = {x.numpy().tobytes() for data in parts.values() for x in data.tensors[0]}
    assert len(distinct) == 1797 == sum(map(len, parts.values()))
    for turned in ('none', 'any'):
        data = digits('test', turned)
        assert torch.allclose(data.tensors[0].min(), data.black)


# --- batches

def test_every_image_comes_once_an_epoch():
    data = digits('train')
    loader = TensorLoader(data, batch_size=128, shuffle=True)
    sizes = [len(x) for x, y in loader]
    assert len(loader) == len(sizes) == 10 and sum(sizes) == 1197 and sizes[-1] == 45
    assert torch.equal(torch.cat([x for x, y in TensorLoader(data)]), data.tensors[0])
    x, y = epoch(loader, 0)
    assert pairs(x, y) == pairs(*data.tensors) and not torch.equal(x, data.tensors[0])


def test_the_order_is_a_function_of_seed_and_epoch():
    data = digits('valid')
    loader, twin = TensorLoader(data, shuffle=True), TensorLoader(data, shuffle=True)
    other = TensorLoader(data, shuffle=True, seed=1)
    assert torch.equal(epoch(loader, 5)[0], epoch(twin, 5)[0])
    assert not torch.equal(epoch(loader, 0)[0], epoch(loader, 1)[0])
    assert not torch.equal(epoch(loader, 0)[0], epoch(other, 0)[0])


@pytest.mark.parametrize('augment', [*AUGMENTATIONS.values(), Augment(True, 2, 'quarter')])
def test_augmenting_a_batch_is_the_slow_loop(colour, augment):
    x, black = colour.tensors[0], colour.black
    draws = augment.draw(40, seed=1, epoch=2)
    z = augment(x, draws, black)
    slow = slowly(x, draws, black.view(-1, 1, 1), augment.shift)
    torch.testing.assert_close(z, slow, rtol=1e-4, atol=1e-4)
    assert (augment == Augment()) == torch.equal(z, x) and z.shape == x.shape
    if augment.turned == 'any': return
    assert set(z.flatten().tolist()) <= {*x.flatten().tolist(), *black.tolist()}


def test_augmentation_is_a_function_of_seed_and_epoch(colour):
    def augmented(number, seed=0):
        loader = TensorLoader(colour, 16, True, seed, augment=Augment(True, 2, 'quarter'))
        x, y = epoch(loader, number)
        return x[y.argsort()]
    assert torch.equal(augmented(3), augmented(3))
    assert not torch.equal(augmented(3), augmented(4))
    assert not torch.equal(augmented(3), augmented(3, seed=1))
    assert not torch.equal(augmented(3), colour.tensors[0])
