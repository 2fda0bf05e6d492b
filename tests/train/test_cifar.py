"""CIFAR from small files in its format: a pickled dictionary, an image a row of 3·32·32 bytes.

The label is the first byte modulo 10, so that images and labels cannot part unnoticed.
"""
import pickle

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10, CIFAR100

from eqtutor.files import checksum
from eqtutor.train import SPLITS, cifar10, cifar100

KINDS = {cifar10: CIFAR10, cifar100: CIFAR100}
IMAGES = 60  # a file
both = pytest.mark.parametrize('load, n', [(cifar10, 5 * IMAGES), (cifar100, IMAGES)])


def write(path, content):
    "A pickle; its name and sum, as torchvision keeps them."
    path.write_bytes(pickle.dumps(content, protocol=2))
    return [path.name, checksum(path, 'md5')]


def write_half(folder, names, key, seed):
    files = []
    for i, (name, _) in enumerate(names):
        data = np.random.RandomState(seed + i).randint(256, size=(IMAGES, 3072)).astype(np.uint8)
        labels = (data[:, 0] % 10).tolist()
        files.append(write(folder/name, {'data': data, key: labels}))
    return files


def write_cifar(root, kind):
    "All files of a CIFAR; torchvision's lists of names and sums, for these."
    (folder := root/kind.base_folder).mkdir()
    key = 'labels' if kind is CIFAR10 else 'fine_labels'
    names = {kind.meta['key']: list('abcdefghij')}
    _, md5 = write(folder/kind.meta['filename'], names)
    return dict(train_list=write_half(folder, kind.train_list, key, 0),
                test_list=write_half(folder, kind.test_list, key, 50),
                meta=kind.meta | {'md5': md5})


@pytest.fixture(scope='module')
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp('cifar')
    return root, {kind: write_cifar(root, kind) for kind in KINDS.values()}


@pytest.fixture
def files(small, monkeypatch):
    "The small files, whose sums take the place of the published ones."
    root, lists = small
    monkeypatch.setenv('EQTUTOR_DATA', str(root))
    for kind, changed in lists.items():
        for name, value in changed.items(): monkeypatch.setattr(kind, name, value)
    return root


@both
def test_splits(files, first_bytes, load, n):
    sets = [load(split, valid=20) for split in SPLITS]
    assert [len(data) for data in sets] == [n - 20, 20, IMAGES]
    for data in sets:
        assert data.tensors[0].shape[1:] == (3, 32, 32)
        assert torch.equal(first_bytes(data).long() % 10, data.tensors[1])
    assert sets[0].tensors[0].mean((0, 2, 3)).abs().max() < 1e-4
    distinct = {x.numpy().tobytes() for data in sets for x in data.tensors[0]}
    assert len(distinct) == n + IMAGES


def test_images_stand_upright(files):
    "A row of a file is red, green, blue, each 32 rows of 32 pixels."
    data, raw = cifar10(valid=0), np.random.RandomState(0).randint(256, size=(IMAGES, 3072))
    x = data.tensors[0] * data.std.view(3, 1, 1) + data.mean.view(3, 1, 1)
    rows = {tuple(row) for row in (x * 255).round().int().flatten(1).tolist()}
    assert all(tuple(row) in rows for row in raw.astype(np.uint8).tolist())


def test_nothing_held_out(files, first_bytes):
    whole, most = cifar10(valid=0), cifar10(valid=20)
    assert len(whole) == 5 * IMAGES
    assert not torch.equal(first_bytes(whole)[:60], first_bytes(most)[60:120])


def test_per_class_leaves_the_normalisation(files):
    whole, some = cifar10(valid=0), cifar10(valid=0, per_class=5, seed=2)
    assert some.tensors[1].bincount().tolist() == [5]*10 and torch.equal(some.mean, whole.mean)
    assert len(cifar10('test', valid=0, per_class=5)) == IMAGES, 'it thins out training images only'


def test_the_smaller_validation_part_lies_in_the_larger(files, first_bytes):
    large, small = cifar10('valid', valid=20), cifar10('valid', valid=8)
    assert torch.equal(first_bytes(large)[-8:], first_bytes(small))


def test_a_seed_draws_never_the_split(files, same_pixels):
    data = cifar10('valid', valid=20).tensors[0]
    assert torch.equal(cifar10('valid', valid=20, seed=3).tensors[0], data)
    assert same_pixels(cifar10('valid', 'quarter', valid=20).tensors[0], data)


@pytest.mark.parametrize('split, valid, said', [
    ('valid', 0, 'valid=0 leaves no images to validate'),
    ('train', 5 * IMAGES, 'valid=300 leaves no images to train; expected 1 to 299 of 300'),
    ('train', -1, 'valid=-1 leaves no images to train'),
    ('val', 20, 'split must be one of')])
def test_parts_that_cannot_be(files, split, valid, said):
    with pytest.raises(ValueError, match=said): cifar10(split, valid=valid)


def test_a_file_cut_short_is_refused_by_name(files):
    batch = files/'cifar-10-batches-py/data_batch_3'
    whole = batch.read_bytes()
    batch.write_bytes(whole[:1000])
    with pytest.raises(ValueError, match='data_batch_3 is damaged: 1,000 bytes .*Delete this file'):
        cifar10()
    batch.write_bytes(whole)


def test_without_a_network(root, monkeypatch):
    monkeypatch.setattr(CIFAR100, 'url', 'http://127.0.0.1:9/x.tar.gz')
    with pytest.raises(RuntimeError, match='CIFAR100 is not in .*has cifar-100-python') as caught:
        cifar100()
    assert '\n' not in str(caught.value)
