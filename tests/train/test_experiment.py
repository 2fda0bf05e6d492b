"A training by its settings: what is refused, what is loaded, and the result file."
import json
from unittest.mock import patch

import pytest
import torch
from torch.utils.data import TensorDataset

from eqtutor.train import DATASETS, Training, first_images, run_training
from eqtutor.train.experiment import make_loaders


@pytest.fixture
def cifar():
    "An empty CIFAR-10 that notes what it is asked for."
    asked = {}

    def fake(split, **options):
        asked[split] = options
        return TensorDataset(torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long))
    with patch.dict(DATASETS, cifar10=fake): yield asked


def small(**options): return Training(network='z2-cnn', data='digits', epochs=1, **options)


def test_recipe_decides_whether_there_is_validation(cifar):
    def splits(recipe):
        settings = Training.read(None, recipe, network='p4-resnet18', data='cifar10')
        return list(make_loaders(settings, 'cpu'))
    assert splits('P4 CIFAR') == ['train', 'test']   # P4 validates on nothing
    assert splits('P2 ResNet29') == ['train', 'valid', 'test']
    assert cifar == {split: {'valid': 5000} for split in ('train', 'valid', 'test')}


@pytest.mark.parametrize('settings, match', [
    (Training(network='p4-cmm'), "did you mean 'p4-cnn'"),
    (Training(data='imagenet'), "unknown data 'imagenet'. Known are"),
    (small(images=5000), '5,000 images are asked for, and there are 1,197. Ask for'),
    (small(per_class=5), 'per_class: for CIFAR only'),
    (Training(network='p4-all-cnn', data='digits'), r'is made for images \(3, 32, 32\)')])
def test_what_does_not_fit_is_refused_before_any_training(tmp_path, settings, match):
    with pytest.raises(ValueError, match=match): run_training(settings, tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())   # not even an empty folder


def test_part_of_a_set_on_the_disk_is_refused():
    with pytest.raises(ValueError, match='list is read from the disk, whole'):
        first_images([1, 2], 1, 'train')
    assert first_images([1, 2], None, 'train') == [1, 2]


def test_run_leaves_its_settings_history_and_test_in_a_file(tmp_path):
    settings = small(images=100, test_images=50, batch_size=64)
    result = run_training(settings, tmp_path/'results', tmp_path/'runs', bar=False)
    file = tmp_path/'results'/'z2-cnn-digits-100'/'0.json'
    assert json.loads(file.read_text()) == json.loads(json.dumps(result))
    assert {'versions', 'hardware', 'commit', 'test', 'seconds'} <= set(result)
    assert (result['settings']['batch_size'], len(result['history'])) == (64, 1)
    assert (result['parameters'], result['config']['loader images'][0]) == (21_620, 100)
    assert (50*result['test']['accuracy']).is_integer()
    with pytest.raises(ValueError, match='already holds a run'):
        run_training(settings, tmp_path/'results', tmp_path/'runs', bar=False)


def test_average_of_the_weights_is_tested_too(tmp_path):
    settings = small(images=100, test_images=50, ema=.5)
    result = run_training(settings, tmp_path/'results', tmp_path/'runs', bar=False)
    assert result['ema_test']['loss'] != result['test']['loss']
    assert result['history'][0]['ema_loss'] != result['history'][0]['valid_loss']
