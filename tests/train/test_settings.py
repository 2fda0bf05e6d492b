"""The settings of a training: where they come from, what is refused, and that the command, `fit`,
the recipes and what was stored long ago mean the same by them."""
import json
import math
import shutil
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from eqtutor.models import MODELS
from eqtutor.train import (
    CHECKPOINT,
    LOG,
    RECIPES,
    TensorLoader,
    Training,
    data_root,
    digits,
    experiment,
    fit,
    fitting,
    run_training,
)
from eqtutor.train.settings import FITTED, settings_as_options

RESULTS = Path(__file__).parents[2]/'results'
STATE = Path(__file__).parent/'older_state'/'p4-cnn-rotmnist'/'0'   # of a commit before this code
MNIST = data_root()/'MNIST'/'raw'/'train-images-idx3-ubyte'
NAMES = [f.name for f in fields(Training)]


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
    ('{', 'is not JSON'), ('[1]', 'Expected an object'),
    ('{"network": 3}', 'network must be a word'), ('{"epochs": "3"}', 'epochs must be a whole'),
    ('{"epochs": true}', 'epochs must be a whole number, got True'),
    ('{"batch_size": 0}', 'batch_size must be at least 1'),
    ('{"lr": "fast"}', 'lr must be a number'),
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


# --- one class

def test_every_setting_says_what_it_is_and_what_none_means():
    for f in fields(Training):
        assert len(f.metadata['text']) > 10 and f.metadata['text'].endswith('.'), f.name
        assert bool(f.metadata['without']) == (f.default is None), f.name


@pytest.fixture
def told():
    "A command with the settings as options, and what it was called with."
    calls, app = [], typer.Typer()

    @app.command()
    @settings_as_options
    def train(file:Path=typer.Argument(None), quick:bool=False, **settings):
        calls.append(settings)
    def call(*words):
        done = CliRunner().invoke(app, list(map(str, words)), terminal_width=200)
        assert done.exit_code == 0, done.output
        return calls.pop() if calls else done.output
    return call


def test_command_has_every_setting_and_gives_none_where_it_is_not_typed(told):
    assert told() == dict.fromkeys(NAMES)
    given = dict(network='gsa-r4', epochs=3, lr=.5, patience=4, clip=1.5, ema=.9, valid=0)
    words = [w for name, value in given.items() for w in (f'--{name}', value)]
    assert told(*words) == dict.fromkeys(NAMES) | given


def test_help_shows_the_defaults_of_the_class(told):
    shown = ' '.join(told('--help').replace('│', ' ').split())
    for f in fields(Training):
        default = f.metadata['without'] if f.default is None else f.default
        assert f'--{f.name.replace("_", "-")} ' in shown and f'[default: ({default})]' in shown


def test_options_load_no_large_library():
    code = ('import sys; from eqtutor.train.settings import Training; '
            'print([m for m in ("torch", "numpy", "typer") if m in sys.modules])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.strip() == '[]', done.stdout + done.stderr


def test_training_loads_torch_and_nothing_that_one_part_alone_needs():
    code = ('import sys; from eqtutor.train import fit, pcam, digits, RECIPES, run_training; '
            'print([m for m in ("accelerate", "torchvision", "sklearn", "h5py", "matplotlib") '
            'if m in sys.modules], "torch" in sys.modules)')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.strip() == '[] True', done.stdout + done.stderr


def test_fit_reads_a_recipe_and_what_is_changed_of_it(small_net):
    loader = TensorLoader(digits('valid'), 100)
    run = fit(small_net(), loader, loader, settings=RECIPES['P4 rotMNIST'], epochs=1, ema=.5,
              bar=False)
    expected = asdict(RECIPES['P4 rotMNIST']) | dict(epochs=1, ema=.5)
    assert {name: run.header['config'][name] for name in FITTED} == {
        name: expected[name] for name in FITTED}
    plain = fit(small_net(), loader, loader, 1, bar=False).header['config']
    for name in set(FITTED) - {'epochs', 'precision'}:
        assert plain[name] == getattr(Training(), name)


@pytest.mark.parametrize('name', sorted({*NAMES} - {*FITTED, 'valid'}))
def test_fit_refuses_a_setting_that_it_would_not_read(small_net, name):
    loader = TensorLoader(digits('valid'), 100)
    with pytest.raises(TypeError, match=f'fit has no setting {name}. It has epochs, lr'):
        fit(small_net(), loader, loader, 1, bar=False, **{name: 1})


def test_every_recipe_names_a_network_and_its_data():
    for name, recipe in RECIPES.items():
        assert recipe.network in MODELS and recipe.precision is not None, name
        assert {'rotMNIST': 'rotmnist', 'PCam': 'pcam'}.get(name[3:], 'cifar10') == recipe.data


# --- what was stored

RUNS = {str(p.relative_to(RESULTS)): json.loads(p.read_text(encoding='utf-8'))
        for p in sorted(RESULTS.glob('*/*/0.json')) + sorted(RESULTS.glob('*-rotmnist/*.json'))}
RUNS = {name: r for name, r in RUNS.items() if r.get('settings', {}).get('network') in MODELS}

@pytest.mark.parametrize('name', RUNS)
def test_stored_settings_are_read_and_stand_in_the_header_as_then(name):
    stored = RUNS[name]['settings']
    settings = Training(**stored)
    assert asdict(settings) == asdict(Training()) | stored
    header = {key: getattr(settings, key) for key in FITTED if key != 'precision'}
    assert header.items() <= RUNS[name]['config'].items()


def test_there_are_stored_runs(): assert len(RUNS) > 15


def test_state_that_older_code_left_has_the_settings_of_its_recipe():
    header, *history = map(json.loads, (STATE/LOG).read_text(encoding='utf-8').splitlines())
    settings = Training.read(None, 'P4 rotMNIST', network='p4-cnn')
    now = {key: getattr(settings, key) for key in (*FITTED, 'network', 'data', 'seed', 'augment')}
    assert now.items() <= header['config'].items() and settings.experiment == STATE.parent.name
    assert header['config']['loader batch_size'] == settings.batch_size and len(history) > 50


@pytest.mark.skipif(not MNIST.exists(), reason=f'no {MNIST} (EQTUTOR_DATA names the folder)')
def test_run_under_way_goes_on_from_the_state_that_older_code_left(tmp_path, monkeypatch):
    "Up to its next epoch: settings, images, network and optimizer are those of the state."
    class Enough(Exception): pass
    begun = []
    def train_epoch(net, loader, optimizer, lr, *args):
        begun.extend([loader.epoch, lr(0), len(optimizer.state)])
        raise Enough
    monkeypatch.setattr(fitting, 'train_epoch', train_epoch)
    monkeypatch.setattr(experiment, 'training_device', lambda: 'cpu')
    shutil.copytree(STATE, tmp_path/STATE.parent.name/'0')
    header, *epochs = map(json.loads, (STATE/LOG).read_text().splitlines())
    done, rate = len(epochs), epochs[-1]['lr']   # no step of the rate is near
    settings = Training.read(None, 'P4 rotMNIST', network='p4-cnn')
    with pytest.raises(Enough):
        run_training(settings, tmp_path/'results', tmp_path, resume=True, bar=False)
    assert begun[0] == done and begun[1] == pytest.approx(rate) and rate < .02
    assert begun[2] > 10 and (tmp_path/STATE.parent.name/'0'/CHECKPOINT).exists()
