"PatchCamelyon from small files in its format: the label is the first byte modulo 2."
import pickle
import sys

import numpy as np
import pytest
import torch
from torchvision.datasets import PCAM

from eqtutor.train import (
    AUGMENTATIONS,
    PCAM_SIZES,
    DiskLoader,
    ImageSet,
    TensorLoader,
    get_loader,
    pcam,
)

h5py = pytest.importorskip('h5py')
SIZES = {'train': 24, 'valid': 6, 'test': 5}


def path_of(root, split, kind):
    return root/'pcam'/f'camelyonpatch_level_2_split_{split}_{kind}.h5'


def write(root, split, **storage):
    n = SIZES[split]
    x = np.random.RandomState(n).randint(256, size=(n, 96, 96, 3)).astype(np.uint8)
    for kind, array in dict(x=x, y=x[:, :1, :1, :1] % 2).items():
        with h5py.File(path_of(root, split, kind), 'w') as file:
            file.create_dataset(kind, data=array, **storage)


@pytest.fixture
def files(root, monkeypatch):
    "Images in one piece, and in compressed ones to validate."
    (root/'pcam').mkdir()
    for split, n in SIZES.items(): monkeypatch.setitem(PCAM_SIZES, split, n)
    for split in ('train', 'test'): write(root, split)
    write(root, 'valid', chunks=True, compression='gzip')
    return root


@pytest.mark.parametrize('split', SIZES)
def test_images_and_labels(files, split):
    data = pcam(split)
    x, y = data.__getitems__([4, 0, 2])
    assert x.shape == (3, 3, 96, 96) and x.dtype == torch.uint8
    assert torch.equal(x[:, 0, 0, 0] % 2, y) and len(set(x[:, 0, 0, 0].tolist())) == 3
    assert torch.equal(data[2][0], x[2]) and data[2][1] == y[2] and len(data) == SIZES[split]


def test_one_piece_is_mapped_into_memory(files):
    mapped = {split: isinstance(pcam(split)._array(), np.memmap) for split in SIZES}
    assert mapped == {'train': True, 'valid': False, 'test': True}


def test_the_training_part_normalises_all(files, epoch):
    sets = {split: pcam(split) for split in SIZES}
    for data in sets.values():
        assert torch.equal(data.mean, sets['train'].mean)
        assert torch.equal(data.std, sets['train'].std)
    x, y = epoch(DiskLoader(sets['train'], 7, workers=0), 0)
    assert x.mean((0, 2, 3)).abs().max() < 1e-4 and (x.std((0, 2, 3)) - 1).abs().max() < 1e-3
    assert torch.equal(y, sets['train'].y)


SETTINGS = dict(shuffle=True, seed=3, augment=AUGMENTATIONS['p4m'])


def test_worker_processes_change_nothing(files, epoch):
    "Neither the batches nor torch's random numbers; and a set can be handed to another process."
    data, state = pickle.loads(pickle.dumps(pcam())), torch.get_rng_state()
    alone, helped = (epoch(DiskLoader(data, 7, workers=w, **SETTINGS), 2) for w in (0, 2))
    assert all(map(torch.equal, alone, helped)) and torch.equal(state, torch.get_rng_state())


def test_batches_are_those_of_a_tensor_loader(files, epoch):
    data = pcam()
    x, y = data.__getitems__(range(24))
    memory = ImageSet(data.normalise(x), y, data.mean, data.std)
    read = epoch(DiskLoader(data, 7, workers=0, **SETTINGS), 2)
    assert all(map(torch.equal, read, epoch(TensorLoader(memory, 7, **SETTINGS), 2)))
    assert not torch.equal(read[0], epoch(DiskLoader(data, 7, workers=0, **SETTINGS), 3)[0])


def test_loader_of_a_set_on_the_disk(files):
    loader = get_loader(pcam('test'), 2)
    assert type(loader) is DiskLoader and len(loader) == 3
    with pytest.raises(ValueError, match='at least 1'): DiskLoader(pcam('test'), 0)


def test_without_h5py(files, monkeypatch):
    monkeypatch.setitem(sys.modules, 'h5py', None)
    with pytest.raises(ImportError, match=r"pip install 'eqtutor\[pcam\]'"): pcam()


def test_without_a_network(root, monkeypatch):
    def fail(*args): raise OSError('no network')
    monkeypatch.setattr(PCAM, '_download', fail)
    said = 'PatchCamelyon is not in .*copy camelyonpatch_level_2_split_train_x.h5'
    with pytest.raises(RuntimeError, match=said): pcam()


@pytest.mark.parametrize('damage', ['short', 'other', 'empty'])
def test_a_damaged_file(files, damage):
    file = path_of(files, 'test', 'x')
    file.write_bytes(dict(short=file.read_bytes()[:-100], other=b'no HDF5', empty=b'')[damage])
    with pytest.raises(ValueError, match='damaged or of another kind'): pcam('test')


def test_another_number_of_images(files, monkeypatch):
    monkeypatch.setitem(PCAM_SIZES, 'test', 6)
    said = r"expected an array 'y' of \(6, 1, 1, 1\) .*found \(\(5, 1, 1, 1\), 'uint8'\)"
    with pytest.raises(ValueError, match=said): pcam('test')


def test_a_label_that_is_none(files):
    with h5py.File(path_of(files, 'test', 'y'), 'r+') as file: file['y'][0] = 2
    with pytest.raises(ValueError, match='neither 0 nor 1'): pcam('test')
