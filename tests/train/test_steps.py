"One step, one epoch, one evaluation: what is refused, half precision, and the world around."
import json
from types import SimpleNamespace

import pytest
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from torch import nn
from torch.utils.data import TensorDataset

from eqtutor.nn.layers import GroupBatchNorm2d
from eqtutor.train import (
    accelerated,
    digits,
    environment,
    evaluate,
    fit,
    get_loader,
    parallel,
    share,
    sync_batch_norm,
    train_epoch,
    train_step,
)


@pytest.fixture(scope='module')
def batch():
    return digits('valid').tensors


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def sgd(net):
    return torch.optim.SGD(net.parameters(), .1)


# --- labels

@pytest.mark.parametrize('wrong', [-100, -1])
def test_labels_below_zero_are_refused_from_any_loader(batch, wrong):
    "PyTorch's loss passes over -100 without a word."
    net, (x, y) = linear(), batch
    strange = [(x[:4], y[:4]), (x[4:8], torch.tensor([1, 2, wrong, 3]))]
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=f'Labels count from 0; there is {wrong}'):
        train_epoch(net, strange[1:], sgd(net))
    assert all(map(torch.equal, before, net.parameters()))
    with pytest.raises(ValueError, match=f'Labels count from 0; there is {wrong}'):
        evaluate(net, strange)


# --- processes and precision

@pytest.mark.parametrize('precision', ['no', 'bf16', 'no'])
def test_accelerate_leaves_nothing_behind(precision):
    "Or `notebook_launcher` would refuse to start, and another precision would be refused."
    with accelerated(nn.Linear(2, 2), precision) as accelerator:
        assert (accelerator.num_processes, accelerator.device.type) == (1, 'cpu')
        assert accelerator.mixed_precision == precision
    assert not AcceleratorState._shared_state and not PartialState._shared_state


def test_accelerate_leaves_nothing_behind_after_an_error():
    with pytest.raises(ValueError, match='fp16 needs a GPU'):
        with accelerated(nn.Linear(2, 2), 'fp16'): pass
    assert not AcceleratorState._shared_state and not PartialState._shared_state


def test_unknown_precision():
    with pytest.raises(ValueError, match="precision must be one of .* got 'fp8'"):
        with accelerated(nn.Linear(2, 2), 'fp8'): pass


def test_a_batch_smaller_than_the_processes():
    third = SimpleNamespace(process_index=0, num_processes=3)
    with pytest.raises(ValueError, match='2 images cannot be shared by 3'):
        share((torch.rand(2), torch.arange(2)), third)


def test_a_net_without_parameters_is_not_shared():
    two = SimpleNamespace(num_processes=2, device=torch.device('cpu'))
    with pytest.raises(ValueError, match='no parameter to train'):
        with parallel(nn.Flatten(), two): pass


def test_synchronised_batch_norm_is_taken_back():
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(GroupBatchNorm2d(2)))
    own, keys, x = list(net.modules()), list(net.state_dict()), torch.randn(1, 2, 4, 5, 5)
    with sync_batch_norm(net):
        assert sum(isinstance(m, nn.SyncBatchNorm) for m in net.modules()) == 2
        assert list(net.state_dict()) == keys
        net[2][0].running_mean += 3
        net.eval()  # alone and in evaluation mode it works on a CPU as well
        assert torch.equal(net[2](x), own[4].eval()(x))
    assert all(a is b for a, b in zip(net.modules(), own))
    assert net[2][0].running_mean.tolist() == [3, 3] and not own[2].training


def test_autocast_is_bf16(small_net, batch):
    with accelerated(small_net(), 'bf16') as accelerator, accelerator.autocast():
        assert small_net()(batch[0]).dtype == torch.bfloat16


def test_a_scaled_loss_needs_an_optimizer_that_scales_back(batch):
    net = linear()
    with accelerated(net, 'no') as accelerator:
        accelerator.scaler = torch.amp.GradScaler('cpu')
        with pytest.raises(ValueError, match='accelerator.prepare_optimizer'):
            train_step(net, batch, sgd(net), accelerator)


# --- what goes wrong

def test_scores_of_another_shape(batch):
    with pytest.raises(ValueError, match=r'gave \(200, 10, 24, 24\). End it with a pool'):
        evaluate(nn.Conv2d(1, 10, 5), [batch])


def test_no_batch(small_net):
    net = small_net()
    with pytest.raises(ValueError, match='gave no batch'): evaluate(net, [])
    with pytest.raises(ValueError, match='gave no batch'): train_epoch(net, [], sgd(net))


def test_modes_come_back_after_an_error(small_net):
    net = small_net()
    net[1].eval()
    with pytest.raises(ValueError, match='gave no batch'): evaluate(net, [])
    assert net.training and not net[1].training


def test_a_gradient_that_is_not_finite_stops_before_the_step(batch):
    net = linear()
    before = net[1].weight.detach().clone()
    net[1].weight.register_hook(lambda g: g * float('inf'))
    with pytest.raises(FloatingPointError, match='the gradient is .* in batch 1'):
        train_epoch(net, [batch], sgd(net), clip=1.)
    assert torch.equal(net[1].weight, before)


# --- the world around

def test_environment_is_json():
    assert json.loads(json.dumps(environment())) == environment()
    assert environment()['versions']['torch'].split('+')[0] == torch.__version__.split('+')[0]


def test_environment_without_git(monkeypatch):
    monkeypatch.setenv('PATH', '')
    assert environment()['commit'] is None


def test_each_pixel_may_have_a_label():
    "Loss and accuracy of a segmentation are means over the pixels."
    torch.manual_seed(0)
    net = nn.Conv2d(1, 3, 1)
    x, y = torch.randn(6, 1, 4, 5), torch.randint(3, (6, 4, 5))
    loader = get_loader(TensorDataset(x, y), 4)
    logits = net(x)
    expected = {'loss': nn.functional.cross_entropy(logits, y).item(),
                'accuracy': (logits.argmax(1) == y).float().mean().item()}
    assert evaluate(net, loader) == pytest.approx(expected, rel=1e-5)
    run = fit(net, loader, loader, epochs=2, lr=.1, bar=False)
    assert 0 <= run.history[-1]['train_accuracy'] <= 1
    with pytest.raises(ValueError, match=r'scores \(4, classes, 4, 5\), but gave \(4, 3, 2, 3\)'):
        evaluate(nn.Conv2d(1, 3, 3), loader)
