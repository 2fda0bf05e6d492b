"Settings of a training run: where they come from, what is refused, and the result file."
import json
import math
from unittest.mock import patch

import pytest
import torch
from torch.utils.data import TensorDataset

from eqtutor.papers.train import Training, first_images, make_loaders, run_training, writable_folder
from eqtutor.train import DATASETS, RECIPES


@pytest.fixture
def cifar():
    "An empty CIFAR-10 that notes what it is asked for."
    asked = {}

    def fake(split, **options):
        asked[split] = options
        return TensorDataset(torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long))
    with patch.dict(DATASETS, cifar10=fake): yield asked


def small(**options): return Training(network='z2-cnn', data='digits', epochs=1, **options)


def test_options_win_over_a_file_and_a_file_over_a_recipe(tmp_path):
    file = tmp_path/'c.json'
    file.write_text('{"epochs": 5, "batch_size": 64}')
    c = Training.read(file, 'P4 rotMNIST', network='p4-e4-net', epochs=3, lr=None)
    assert (c.network, c.epochs, c.batch_size) == ('p4-e4-net', 3, 64)
    assert (c.lr, c.schedule) == (.02, 'P4 rotMNIST')


@pytest.mark.parametrize('recipe', RECIPES)
def test_every_recipe_makes_settings(recipe): assert Training.read(None, recipe).epochs > 1


@pytest.mark.parametrize('text, match', [
    ('{', 'is not JSON'), ('[1]', 'Expected an object'), ('{"network": 3}', 'network must be str'),
    ('{"epochs": "3"}', 'epochs must be int'), ('{"epochs": true}', 'epochs must be int'),
    ('{"batch_size": 0}', 'batch_size must be at least 1'), ('{"lr": "fast"}', 'lr must be float'),
    ('{"speed": 5}', 'unknown settings speed. Known are network, data')])
def test_file_that_holds_no_settings_is_refused(tmp_path, text, match):
    file = tmp_path/'c.json'
    file.write_text(text)
    with pytest.raises(ValueError, match=match): Training.read(file)


def test_whole_number_does_for_a_rate(tmp_path):
    file = tmp_path/'c.json'
    file.write_text('{"lr": 1}')
    assert Training.read(file).lr == 1


@pytest.mark.parametrize('name, value', [
    ('images', 0), ('images', -5), ('test_images', 0), ('per_class', -1), ('valid', -1),
    ('weight_decay', -1.), ('weight_decay', math.nan), ('patience', 0), ('lr', 0.), ('lr', -1.),
    ('lr', math.nan), ('lr', math.inf)])
def test_a_setting_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f'^{name} must be'): Training.read(None, **{name: value})


def test_unknown_recipe_is_refused():
    with pytest.raises(ValueError, match='Known are P1 rotMNIST'): Training.read(None, 'P5')


def test_folder_says_what_is_special_about_the_data():
    assert Training().experiment == 'p4-cnn-rotmnist'
    assert Training(data='cifar10', per_class=1000).experiment == 'p4-cnn-cifar10-1000-per-class'
    c = Training.read(None, 'P2 ResNet29', network='z2-resnet29', data='cifar10')
    assert c.experiment == 'z2-resnet29-cifar10-P2'   # augmented
    assert small(images=100).experiment == 'z2-cnn-digits-100'


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
    (small(images=5000), '5,000 pictures are asked for'), (small(test_images=0), 'Ask for 1 to'),
    (small(per_class=5), 'per_class: for CIFAR only'),
    (Training(network='p4-all-cnn', data='digits'), r'is made for pictures \(3, 32, 32\)')])
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


def test_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path/'file').write_text('')
    with pytest.raises(ValueError, match='cannot be written to.*Nothing was trained'):
        writable_folder(tmp_path/'file'/'below')
    assert list(writable_folder(tmp_path/'a'/'b').iterdir()) == []
