"What all data sets share: turning, splitting, choosing, and files that are checked."
from pathlib import Path

import pytest
import torch
from torchvision.datasets.mnist import read_image_file

from eqtutor.files import checksum
from eqtutor.train import (
    DATASETS,
    SPLITS,
    check_file,
    data_root,
    digits,
    prepare,
    take_per_class,
    turn,
)


def test_turn_says_what_it_takes():
    said = r"must be one of \('none', 'quarter', 'any'\), got 'half'"
    with pytest.raises(ValueError, match=said): turn(torch.zeros(2, 1, 8, 8), 'half')
    for turned in ('quarter', 'any'):
        with pytest.raises(ValueError, match='must be square, got 8×6'):
            turn(torch.zeros(2, 1, 8, 6), turned)


@pytest.mark.parametrize('turned', ['none', 'quarter', 'any'])
def test_turning_leaves_its_input(turned):
    images = torch.rand(7, 1, 8, 8)
    before = images.clone()
    turn(images, turned)
    assert torch.equal(images, before)


def test_angles_are_spread_over_the_whole_circle():
    "A bright spot right of the centre tells where each copy was turned to."
    spot = torch.zeros(800, 1, 28, 28)
    spot[..., 12:16, 22:25] = 1
    where, line = turn(spot, 'any').squeeze(1), torch.arange(28) - 13.5
    up, right = -(where.sum(2)*line).sum(1), (where.sum(1)*line).sum(1)
    eighths = ((torch.atan2(up, right)/torch.pi + 1)*4).long().clamp(0, 7)
    octants = torch.bincount(eighths, minlength=8)
    assert octants.min() > 65 and octants.max() < 140


def test_classes_keep_their_shares_and_parts_their_labels_under_any_seed():
    for split in SPLITS:
        labels = digits(split, 'any').tensors[1]
        assert (labels.bincount(minlength=10)/len(labels) - .1).abs().max() < .01
        assert torch.equal(labels, digits(split, 'any', seed=1).tensors[1])


def test_unknown_split():
    with pytest.raises(ValueError, match='split must be one of'): digits('training')


def test_each_part_of_a_split_is_stratified():
    for split in SPLITS:
        y = digits(split).tensors[1]
        assert (y.bincount(minlength=10) / len(y) - .1).abs().max() < .01


def test_size_of_the_digits():
    assert digits(size=14).tensors[0].shape[-2:] == (14, 14)


def test_splits_have_lists_of_angles_of_their_own():
    "One list of images as all three splits: the angles differ."
    images, everything = torch.rand(50, 1, 9, 9), dict.fromkeys(SPLITS, torch.arange(50))
    parts = [prepare(images, torch.zeros(50), everything, s, 'any').tensors[0] for s in SPLITS]
    assert not any(torch.equal(parts[i], parts[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_prepare_leaves_its_images():
    images = torch.rand(50, 1, 9, 9)
    before = images.clone()
    prepare(images, torch.zeros(50), dict.fromkeys(SPLITS, torch.arange(50)), 'train')
    assert torch.equal(images, before)


@pytest.mark.parametrize('n', [0, 500])
def test_per_class_is_at_most_the_smallest_class(n):
    with pytest.raises(ValueError, match='per_class must be from 1 to 116'):
        take_per_class(digits('train'), n)


def test_per_class_draws_as_many_of_each_class_by_seed():
    a, b, c = (take_per_class(digits('train'), 20, seed) for seed in (0, 0, 1))
    assert a.tensors[1].bincount().tolist() == [20]*10
    assert torch.equal(a.tensors[0], b.tensors[0])
    assert not torch.equal(a.tensors[0], c.tensors[0])
    label_of = {x.numpy().tobytes(): y for x, y in zip(*digits('train').tensors)}
    assert all(label_of[x.numpy().tobytes()] == y for x, y in zip(*a.tensors))


def test_digits_by_name():
    by_name = DATASETS['digits'](split='valid', seed=0)
    assert torch.equal(by_name.tensors[0], digits('valid').tensors[0])


def test_data_root(monkeypatch):
    monkeypatch.setenv('EQTUTOR_DATA', '~/numbers')
    assert data_root() == Path.home()/'numbers'
    monkeypatch.setenv('EQTUTOR_DATA', '')
    assert data_root() == Path.home()/'.cache'/'eqtutor'


# --- a file is right or it is refused

@pytest.fixture
def idx(tmp_path, write_idx):
    "Six images of 2×2 pixels."
    return write_idx(tmp_path/'images', torch.arange(24).view(6, 2, 2))


def test_a_whole_file(idx):
    assert check_file(str(idx), checksum(idx, 'md5')) == idx
    assert read_image_file(str(idx)).shape == (6, 2, 2)


def test_a_damaged_file(idx):
    "One byte less, one bit flipped, nothing."
    whole, md5 = idx.read_bytes(), checksum(idx, 'md5')
    assert whole[-1] == 0x17
    for damaged in (whole[:-1], whole[:-1] + b'\x16', b''):
        idx.write_bytes(damaged)
        said = f'is damaged: {len(damaged)} bytes .* Delete this file'
        with pytest.raises(ValueError, match=said): check_file(idx, md5)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match='set EQTUTOR_DATA'): check_file(tmp_path/'none', '')
