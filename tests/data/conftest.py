"What the tests of data share: a data root of their own, and a look at pixels and bytes."
import struct

import pytest
import torch


@pytest.fixture
def root(tmp_path, monkeypatch):
    "An empty folder for data files; nothing is downloaded into it."
    monkeypatch.setenv('EQTUTOR_DATA', str(tmp_path))
    return tmp_path


@pytest.fixture(scope='session')
def same_pixels():
    "Tells whether images have the same values, wherever they are."
    def same(x, y):
        return torch.equal(x.flatten(1).sort().values, y.flatten(1).sort().values)
    return same


@pytest.fixture(scope='session')
def first_bytes():
    "The first value of each image of a set, its normalisation undone."
    def undo(data):
        return ((data.tensors[0][:, 0, 0, 0] * data.std[0] + data.mean[0]) * 255).round()
    return undo


@pytest.fixture(scope='session')
def epoch():
    "Makes an epoch of a loader: its batches, one after the other."
    def whole(loader, number):
        loader.set_epoch(number)
        return [torch.cat(column) for column in zip(*loader)]
    return whole


@pytest.fixture(scope='session')
def write_idx():
    "Writes an idx file of unsigned bytes (type 8), MNIST's format."
    def write(path, array):
        path.parent.mkdir(parents=True, exist_ok=True)
        head = struct.pack(f'>HBB{array.ndim}I', 0, 8, array.ndim, *array.shape)
        path.write_bytes(head + array.to(torch.uint8).numpy().tobytes())
        return path
    return write
