"`fit`: what it refuses, what stops it, and what it leaves behind then."
import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from eqtutor.train import (
    CHECKPOINT,
    LOG,
    TensorLoader,
    digits,
    fit,
    fitting,
    load_weights,
    read_checkpoint,
    seed_everything,
)


class Altered:
    "A loader whose third batch of the `at`-th epoch is another one."
    def __init__(self, loader, at, alter):
        self.loader, self.at, self.alter = loader, at, alter
        self.epoch = 0

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.epoch += 1
        for i, (x, y) in enumerate(self.loader):
            yield (self.alter(x) if (self.epoch, i) == (self.at, 2) else x), y

    def __getattr__(self, name):  # set_epoch, and what the settings record
        return getattr(self.loader, name)


def nan(x):
    return x * float('nan')


def ctrl_c(x):
    raise KeyboardInterrupt


def same(a, b):
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


@pytest.fixture(scope='module')
def finished(small_net, shuffled, valid, tmp_path_factory):
    "The folder of a run of four epochs under a cosine."
    out = tmp_path_factory.mktemp('finished')/'run'
    fit(small_net(), shuffled(), valid, 4, schedule='cosine', out=out, bar=False)
    return out


@pytest.fixture
def check_refuses(small_net, shuffled, valid, finished):
    "`fit` must refuse by one paragraph that says so, and change nothing in the folder."
    def check(error, match, **kwargs):
        files = {p: p.read_bytes() for p in finished.iterdir()}
        settings = dict(net=small_net(), train=shuffled(), valid=valid, epochs=4, bar=False)
        with pytest.raises(error, match=match) as caught: fit(**settings | kwargs)
        assert '\n' not in str(caught.value)
        assert files == {p: p.read_bytes() for p in finished.iterdir()}
    return check


@pytest.fixture
def check_resume_refuses(check_refuses, finished):
    def check(match, **kwargs):
        settings = dict(out=finished, resume=True, schedule='cosine')
        check_refuses(ValueError, match, **settings | kwargs)
    return check


# --- it refuses

@pytest.mark.parametrize('match, settings', [
    ('epochs must be at least 1, got -1', dict(epochs=-1)),
    ('epochs must be a whole number, got 1.5', dict(epochs=1.5)),
    ('epochs must be a whole number, got True', dict(epochs=True)),
    (r"schedule must be one of constant, cosine", dict(schedule='step')),
    (r"optimizer must be one of adam, sgd, nesterov, got 'lion'", dict(optimizer='lion')),
    ('precision must be one of', dict(precision='fp8')),
    ('fp16 needs a GPU', dict(precision='fp16')),
    ('ema must be above 0 and below 1, got 1.5', dict(ema=1.5)),
    ('clip must be above 0, got -1', dict(clip=-1)),
    ('patience must be at least 1, got 0', dict(patience=0)),
    ('patience follows the validation loss', dict(valid=None, patience=3)),
    ('resume=True needs out=', dict(resume=True)),
    ('must have a length', dict(train=iter([]))),
    ('must have a length', dict(train=[])),
    ('Labels count from 0; there is -100', dict(train=DataLoader(TensorDataset(
        torch.zeros(2, 1, 28, 28), torch.tensor([3, -100]))))),
], ids=lambda v: '' if isinstance(v, str) else next(iter(v)))
def test_refused_settings(check_refuses, match, settings):
    check_refuses(ValueError, match, **settings)


def test_a_folder_that_holds_a_run_is_left_alone(check_refuses, finished):
    check_refuses(ValueError, 'already holds a run', out=finished)


def test_a_folder_that_cannot_be_there_is_found_before_training(check_refuses, finished, shuffled):
    "Its parent is a file. The first epoch would end in Ctrl-C."
    early = Altered(shuffled(), 1, ctrl_c)
    check_refuses(RuntimeError, 'cannot be written', out=finished/LOG/'new', train=early)


@pytest.mark.parametrize('match, settings', [
    ('lr was 0.001, now 0.01', dict(lr=.01)),
    ('epochs was 4, now 8', dict(epochs=8)),
    ("data was None, now 'digits'", dict(config={'data': 'digits'})),
    ('holds 4 epochs already, more than epochs=3 asks for', dict(epochs=3)),
], ids=['lr', 'epochs of a cosine', 'config', 'fewer epochs'])
def test_resume_refuses_other_settings(check_resume_refuses, match, settings):
    check_resume_refuses(match, **settings)


def test_resume_refuses_another_net_or_order(check_resume_refuses, small_net, shuffled):
    check_resume_refuses('does not fit this net', net=small_net(9))
    check_resume_refuses('loader seed was 4, now 5', train=shuffled(seed=5))


RAW, LABELS = digits('valid').tensors
OTHERS = {
    'deviation': ((RAW * .3 + .13 - .1307) / .3081, LABELS),  # as MNIST's are normalised
    'tops': (RAW.flip(-2), LABELS),                           # turned another way
    'labels': (RAW, 9 - LABELS),
}


@pytest.mark.parametrize('name', OTHERS)
def test_resume_refuses_other_images(check_resume_refuses, name):
    "They would train on quietly, a little worse."
    other = TensorLoader(TensorDataset(*OTHERS[name]), 32, shuffle=True, seed=4)
    check_resume_refuses(f'loader {name} was', train=other)


def test_resume_where_nothing_is(check_refuses, finished):
    check_refuses(FileNotFoundError, 'There is no checkpoint', resume=True, schedule='cosine',
                  out=finished.with_name('typo'))


def test_a_damaged_checkpoint(check_resume_refuses, finished):
    whole = (finished/CHECKPOINT).read_bytes()
    (finished/CHECKPOINT).write_bytes(whole[:len(whole) // 2])
    check_resume_refuses('is damaged')
    (finished/CHECKPOINT).write_bytes(whole)


def test_among_processes_a_loader_has_no_order_of_its_own(check_refuses, monkeypatch):
    "Drawn from each process's own generator, some images would come twice and others never."
    @contextmanager
    def among_two(net, precision):
        yield SimpleNamespace(num_processes=2, device=torch.device('cpu'), mixed_precision='no',
                              prepare_model=lambda net: net, unwrap_model=lambda net, **kw: net)
    monkeypatch.setattr(fitting, 'accelerated', among_two)
    own = DataLoader(digits('valid'), batch_size=32, shuffle=True)
    check_refuses(ValueError, 'must agree on the order of the images', train=own)


# --- it stops

def test_a_disk_that_fills_up(small_net, shuffled, valid, tmp_path):
    "In the second epoch: the checkpoint of the first is there and resumes."
    room = [None] * 8  # two files, two fsyncs each, written before and after epoch 1
    settings = dict(out=tmp_path/'run', bar=False)
    with patch('os.fsync', side_effect=room + [OSError('no space left on device')]):
        with pytest.raises(RuntimeError, match='no space left on device'):
            fit(small_net(), shuffled(), valid, 3, **settings)
    assert len(read_checkpoint(tmp_path/'run'/CHECKPOINT)[1]['history']) == 1
    assert len(fit(small_net(), shuffled(), valid, 3, resume=True, **settings).history) == 3


@pytest.mark.parametrize('poisoned, place', [
    ('train', 'nan in batch 3 of epoch 2'), ('valid', 'nan in the validation of epoch 2')])
def test_nan_is_named_and_not_saved(small_net, shuffled, valid, tmp_path, poisoned, place):
    loaders = dict(train=shuffled(), valid=valid)
    loaders[poisoned] = Altered(shuffled(), 2, nan)
    said = f'Training stopped: the loss is {place}. Lower'
    with pytest.raises(RuntimeError, match=said) as caught:
        fit(small_net(), **loaders, epochs=3, out=tmp_path, bar=False)
    assert f'The state after epoch 1 is safe in {tmp_path}' in str(caught.value)
    tensors, about = read_checkpoint(tmp_path/CHECKPOINT)
    assert len(about['history']) == 1 and all(t.isfinite().all() for t in tensors.values())


def test_without_a_folder_nothing_is_said_to_be_safe(small_net, shuffled, valid):
    with pytest.raises(KeyboardInterrupt, match='Stopped in epoch 1. Nothing was saved'):
        fit(small_net(), Altered(shuffled(), 1, ctrl_c), valid, 1, bar=False)


def test_a_rate_too_high_is_heard(small_net, valid):
    "The loss stays a number, so only the alarm speaks, and once."
    seed_everything(0)
    train = TensorLoader(digits('train'), shuffle=True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        fit(small_net(), train, valid, 2, lr=3., optimizer='nesterov', bar=False)
    said = [str(w.message) for w in heard if w.category is RuntimeWarning]
    assert ['Training diverges' in text for text in said] == [True]


# --- it goes on

def test_a_finished_run_resumes_to_itself(small_net, shuffled, valid, finished):
    net = small_net()
    run = fit(net, shuffled(), valid, 4, out=finished, resume=True, schedule='cosine', bar=False)
    assert len(run.history) == 4 and same(load_weights(small_net(), finished/CHECKPOINT), net)


def test_without_validation_nothing_is_measured(small_net, shuffled):
    [epoch] = fit(small_net(), shuffled(), None, 1, bar=False).history
    assert not any(name.startswith('valid') for name in epoch) and 'train_loss' in epoch


def test_the_average_asks_for_no_gradient(small_net, shuffled, valid):
    run = fit(small_net(), shuffled(), valid, 1, ema=.9, bar=False)
    assert not any(p.requires_grad for p in run.ema.parameters())


@pytest.fixture
def with_scaler(monkeypatch):
    "fp16's scaler without its half precision, which a CPU lacks; it doubles each third step."
    @contextmanager
    def accelerated(net, precision):
        with original(net, precision) as accelerator:
            accelerator.scaler = torch.amp.GradScaler('cpu', 2.**10 + .5, growth_interval=3)
            yield accelerator
    original = fitting.accelerated
    monkeypatch.setattr(fitting, 'accelerated', accelerated)


def test_the_scale_of_fp16_is_remembered(with_scaler, small_net, shuffled, valid, tmp_path):
    "An epoch has 7 batches: where the scale grows depends on the steps before the stop."
    def train(name, epochs, seed=1, resume=False):
        seed_everything(seed)
        net = small_net()
        fit(net, shuffled(), valid, epochs, out=tmp_path/name, resume=resume, bar=False)
        tensors, _ = read_checkpoint(tmp_path/name/CHECKPOINT)
        return net, {k: v.item() for k, v in tensors.items() if k.startswith('scaler.')}
    straight, scale = train('straight', 2)
    _, half_way = train('stopped', 1)
    stopped, resumed_scale = train('stopped', 2, seed=99, resume=True)
    assert same(straight, stopped) and scale == resumed_scale != half_way
    assert scale['scaler.scale'] == (2.**10 + .5) * 2**4 and scale['scaler._growth_tracker'] == 2


@pytest.mark.cuda
def test_half_precision_on_a_gpu(small_net, valid, tmp_path):
    seed_everything(0)
    train = TensorLoader(digits('train'), shuffle=True)
    half = dict(precision='fp16', clip=1., ema=.9, out=tmp_path/'gpu', bar=False)
    net = small_net().cuda()
    run = fit(net, train, valid, 5, **half)
    assert run.curve('valid_accuracy')[-1] > .8
    assert net[0].weight.is_cuda and run.ema[0].weight.is_cuda
    assert 'scaler.scale' in read_checkpoint(tmp_path/'gpu'/CHECKPOINT)[0]
    assert len(fit(small_net().cuda(), train, valid, 6, resume=True, **half).history) == 6
