"The real files, where EQTUTOR_DATA says they are: parts, classes, brightness."
import pytest
import torch

from eqtutor.papers.estimate import IMAGES
from eqtutor.train import (
    SPLITS,
    cifar10,
    data_root,
    mnist,
    rotated_mnist,
    rotated_mnist_12000,
)

pytestmark = pytest.mark.data


def brightness(data): return data.tensors[0].mean()


def test_mnist_is_one_pool_in_three_parts():
    train, test = mnist('train'), mnist('test')
    sizes = len(train), len(mnist('valid')), len(test)
    assert sizes == IMAGES['mnist'] == IMAGES['rotmnist'] == (10_000, 2_000, 50_000)
    assert test.tensors[1].bincount().min() > 4_000 and train.tensors[0].mean().abs() < 1e-4


def test_turned_digits_have_lost_no_ink_to_speak_of():
    test, turned = mnist('test'), rotated_mnist('test')
    assert torch.equal(turned.tensors[1], test.tensors[1])
    assert not torch.equal(turned.tensors[0], test.tensors[0])
    lost = brightness(test) - brightness(turned)
    assert lost.abs() < .005*(brightness(test) - test.tensors[0].min())


def test_the_12000_are_measured_on_the_test_digits():
    "As in the code that was published with P1 and P4: its `valid` part is the head of `test`."
    larger, seen, same = map(rotated_mnist_12000, SPLITS)
    sizes = len(larger), len(seen), len(same)
    assert sizes == IMAGES['rotmnist-12000'] == (12_000, 10_000, 50_000)
    assert torch.equal(seen.tensors[0], same.tensors[0][:10_000])
    turned = rotated_mnist('test')
    (x, y), (of_test, labels) = same.tensors, turned.tensors   # only their scale differs
    assert torch.equal(y, labels)
    x, of_test = x*same.std + same.mean, of_test*turned.std + turned.mean
    assert torch.allclose(x, of_test, atol=1e-5)


def test_cifar10_has_the_splits_of_the_papers():
    if not (data_root()/'cifar-10-batches-py').is_dir(): pytest.skip('no CIFAR-10')
    train, valid, test = map(cifar10, SPLITS)
    assert (len(train), len(valid), len(test)) == (40_000, 10_000, 10_000)
    assert test.tensors[1].bincount().tolist() == [1000]*10
    assert (train.mean - torch.tensor([.491, .482, .447])).abs().max() < .002
    everything = cifar10(valid=0, per_class=5000)
    assert everything.tensors[1].bincount().tolist() == [5000]*10
    assert len(cifar10('valid', valid=5000)) == 5000
