"MNIST from small files in its format: 70,000 images of 2×2 pixels, the label in the first pixel."
import numpy as np
import pytest
import torch
from torchvision.datasets import MNIST

from eqtutor.files import checksum
from eqtutor.train import (
    AMAT_ROWS,
    MNIST_MD5,
    SPLITS,
    mnist,
    mnist_files,
    read_amat,
    rotated_mnist,
    rotated_mnist_original,
)


@pytest.fixture(scope='module')
def small(tmp_path_factory, write_idx):
    "A data root; if pool, order or halves get mixed up, images and labels part."
    root = tmp_path_factory.mktemp('mnist')
    for half, n in dict(train=60_000, t10k=10_000).items():
        images = torch.as_tensor(np.random.RandomState(n).randint(256, size=(n, 2, 2)))
        write_idx(root/'MNIST/raw'/f'{half}-images-idx3-ubyte', images)
        write_idx(root/'MNIST/raw'/f'{half}-labels-idx1-ubyte', images[:, 0, 0] % 10)
    return root


@pytest.fixture
def files(small, monkeypatch):
    "The small files, whose sums take the place of the published ones."
    monkeypatch.setenv('EQTUTOR_DATA', str(small))
    for name in MNIST_MD5:
        monkeypatch.setitem(MNIST_MD5, name, checksum(small/'MNIST/raw'/name, 'md5'))
    return small/'MNIST/raw'


def test_sizes_and_scale(files):
    sets = [mnist(split) for split in SPLITS]
    assert [len(data) for data in sets] == [10_000, 2_000, 50_000]
    x, y = sets[0].tensors
    assert x.mean().abs() < 1e-4 and (x.std() - 1).abs() < 1e-4 and y.dtype == torch.int64


@pytest.mark.parametrize('split', SPLITS)
def test_images_keep_their_labels(files, first_bytes, split):
    data = mnist(split)
    assert torch.equal(first_bytes(data).long() % 10, data.tensors[1])


def test_the_pool_is_shuffled(files):
    "Not the head of the first file."
    head = np.random.RandomState(60_000).randint(256, size=(60_000, 2, 2))[:10_000, 0, 0] % 10
    assert not torch.equal(mnist('train').tensors[1], torch.as_tensor(head))


def test_turned_sets(files, same_pixels):
    x, y = mnist('test').tensors
    quarter, rotated = mnist('test', 'quarter').tensors, rotated_mnist('test', seed=1).tensors
    assert same_pixels(x, quarter[0]) and torch.equal(y, quarter[1])
    assert not same_pixels(x, rotated[0])


def test_a_seed_draws_angles_never_the_split(files):
    first, second = mnist('test', 'any', seed=1).tensors, rotated_mnist('test', seed=1).tensors
    other = rotated_mnist('test', seed=2).tensors
    assert torch.equal(first[0], second[0]) and not torch.equal(first[0], other[0])
    assert torch.equal(first[1], other[1])


def test_a_file_cut_short_is_refused_by_name(files):
    labels = files/'t10k-labels-idx1-ubyte'
    whole = labels.read_bytes()
    labels.write_bytes(whole[:5_000])
    said = 't10k-labels-idx1-ubyte is damaged: 5,000 bytes .*Delete this file'
    with pytest.raises(ValueError, match=said) as caught: mnist()
    assert '\n' not in str(caught.value)
    labels.write_bytes(whole)


def test_without_a_network_the_error_names_the_ways_out(root, monkeypatch):
    "The mirror is a port of this very machine where nobody answers."
    monkeypatch.setattr(MNIST, 'mirrors', ['http://127.0.0.1:9/'])
    with pytest.raises(RuntimeError, match='could not be downloaded') as caught: mnist_files()
    text = str(caught.value)
    assert text.startswith(f'MNIST is not in {root/"MNIST"/"raw"}') and '\n' not in text
    for way in ('try again', 'copy the four files', 'set EQTUTOR_DATA', 'digits()'):
        assert way in text


# --- the benchmark's own files: 60 and 20 lines; the label is written into the first pixel, too

ROWS = {'train_valid': 60, 'test': 20}


def amat(root, half):
    return root/'mnist_rotation_new'/f'mnist_all_rotation_normalized_float_{half}.amat'


@pytest.fixture
def original(root, monkeypatch):
    for half, rows in ROWS.items():
        monkeypatch.setitem(AMAT_ROWS, half, rows)
        draw, path = np.random.RandomState(rows), amat(root, half)
        pixels, labels = draw.uniform(size=(rows, 784)), draw.randint(10, size=(rows, 1))
        pixels[:, 0] = labels[:, 0] / 10
        path.parent.mkdir(exist_ok=True)
        np.savetxt(path, np.concatenate([pixels, labels], 1), fmt='%.6f')
    return root


def test_the_original_files(original):
    sets = [rotated_mnist_original(split) for split in SPLITS]
    assert [len(data) for data in sets] == [50, 10, 20]
    for data in sets:
        tenths = (data.tensors[0][:, 0, 0, 0] * data.std + data.mean) * 10
        assert torch.equal(tenths.round().long(), data.tensors[1])
    means = [data.tensors[0].mean().abs() for data in sets]
    assert means[0] < 1e-4 < means[2], 'the training part normalises all'


def damages(text):
    yield 'cut off', text[:-2000]
    yield 'a letter', text.replace('.', 'x', 1)
    yield 'a number more', text + '0.5'
    yield 'a value above 1', text.replace(' 0.', ' 7.', 1)
    yield 'half a label', text.rstrip()[:-8] + '4.500000'
    yield 'not a number', 'nan' + text[text.index(' '):]
    yield 'nothing', ''


def test_a_damaged_original_file(original):
    file = amat(original, 'test')
    for _, damaged in damages(file.read_text()):
        file.write_text(damaged)
        with pytest.raises(ValueError, match='is damaged: expected 20 lines'): read_amat(file, 20)


def test_a_missing_original_file(root):
    with pytest.raises(FileNotFoundError, match='rebuilt from MNIST'): read_amat('none.amat', 20)
    with pytest.raises(FileNotFoundError, match='rebuilt from MNIST'): rotated_mnist_original()
    with pytest.raises(ValueError, match='split must be one of'): rotated_mnist_original('all')
