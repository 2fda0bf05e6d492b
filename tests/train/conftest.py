"What the tests of training share: one thread, a net with a memory, digits in batches, a data root."
import struct

import pytest
import torch
from torch import nn

from eqtutor.train import TensorLoader, digits


@pytest.fixture(scope='module', autouse=True)
def one_thread():
    "Other threads, other last bits."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope='session')
def small_net():
    "Makes an ordinary network for digits, with batch norm and dropout."
    def make(width=8):
        return nn.Sequential(
            nn.Conv2d(1, width, 5), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Dropout(.2), nn.Flatten(), nn.Linear(2 * width * 25, 10))
    return make


@pytest.fixture(scope='session')
def shuffled():
    "Makes a loader of the 200 validation digits, seven batches in an order of its own."
    def make(seed=4):
        return TensorLoader(digits('valid'), batch_size=32, shuffle=True, seed=seed)
    return make


@pytest.fixture(scope='session')
def valid():
    return TensorLoader(digits('valid'))


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
