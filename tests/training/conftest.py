"What the tests of training share: one thread, a net with a memory, digits in batches."
import pytest
import torch
from torch import nn

from eqtutor.data import TensorLoader, digits


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
