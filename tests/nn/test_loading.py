"Weights reach a layer in many ways; its tables must be where the weights are, whichever it was."
import copy

import pytest
import torch
from accelerate import init_empty_weights
from accelerate.utils import set_module_tensor_to_device
from torch import nn

from eqtutor.equivariance import perturb_

from .every_layer import EXAMPLES


@pytest.fixture(params=EXAMPLES)
def trained(request):
    "A factory, a layer of it as after training, and an input."
    make, shape = EXAMPLES[request.param]
    torch.manual_seed(0)
    return make, perturb_(make()).eval(), torch.randn(shape)


def on_meta(make):
    with torch.device('meta'): return make().eval()


def assert_same(other, layer, x):
    with torch.no_grad(): want = layer(x)
    assert want.std() > 0
    torch.testing.assert_close(other(x), want, rtol=0, atol=0)


def test_load_state_dict(trained):
    make, layer, x = trained
    other = make().eval()
    other.load_state_dict(layer.state_dict())
    assert_same(other, layer, x)

def test_meta_then_assign(trained):
    make, layer, x = trained
    other = on_meta(make)
    other.load_state_dict(layer.state_dict(), assign=True)
    assert_same(other, layer, x)

def test_meta_then_to_empty(trained):
    make, layer, x = trained
    other = on_meta(make).to_empty(device='cpu')
    other.load_state_dict(layer.state_dict())
    assert_same(other, layer, x)

@pytest.mark.parametrize('buffers', [False, True])
def test_init_empty_weights(trained, buffers):
    make, layer, x = trained
    with init_empty_weights(include_buffers=buffers): other = make().eval()
    for name, value in layer.state_dict().items():
        set_module_tensor_to_device(other, name, 'cpu', value)
    assert_same(other, layer, x)

def test_replica(trained):
    "What `nn.DataParallel` does: shallow copies of the modules, with weights on another device."
    make, layer, x = trained
    replica = replicate(on_meta(make), layer)
    assert_same(replica, layer, x)

def replicate(module, weights):
    "A replica of a module that has been used on another device, with the weights of another."
    replica = module._replicate_for_data_parallel()
    replica._modules = dict(module._modules)
    for name, child in module._modules.items():
        if child is not None: replica._modules[name] = replicate(child, weights._modules[name])
    for name, p in weights._parameters.items():
        replica._parameters[name] = p
    for name, b in weights._buffers.items(): replica._buffers[name] = b
    return replica

@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
def test_on_a_gpu(trained):
    make, layer, x = trained
    want = layer(x)
    torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), want, rtol=1e-3, atol=1e-4)

def test_a_copy_that_was_elsewhere(trained):
    make, layer, x = trained
    far = copy.deepcopy(layer).to('meta')
    far.load_state_dict(layer.state_dict(), assign=True)
    assert_same(far, layer, x)


class TableAsBuffer(nn.Module):
    "The twin that must fail: a table kept as a buffer that is not saved."
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer('index', torch.tensor([2, 0, 3, 1]), persistent=False)

    def forward(self, x): return x*self.weight[self.index]

def test_a_table_that_is_a_buffer_is_lost():
    layer, x = TableAsBuffer(), torch.randn(3, 4)
    other = on_meta(TableAsBuffer)
    other.load_state_dict(layer.state_dict(), assign=True)
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        assert_same(other, layer, x)

def test_plain_tensors_in_place_of_parameters(trained):
    "As whoever differentiates through a step of training puts them there."
    make, layer, x = trained
    other = copy.deepcopy(layer)
    for m in other.modules():
        for name, p in list(m.named_parameters(recurse=False)):
            delattr(m, name)
            setattr(m, name, p.detach().clone())
    assert not list(other.parameters())
    assert_same(other, layer, x)

def test_memory_format_of_a_whole_network(trained):
    "What has four axes takes it; filters of five keep theirs, and no number changes."
    make, layer, x = trained
    net = nn.Sequential(nn.Identity(), copy.deepcopy(layer))
    assert net.to(memory_format=torch.channels_last) is net
    for p in net.parameters():
        assert p.is_contiguous(memory_format=torch.channels_last if p.ndim == 4 else
                               torch.contiguous_format)
    y, want = net(x), layer(x)
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-5)
    y.sum().backward()
    net.to(torch.float64, memory_format=torch.channels_last)
    assert all(p.dtype == p.grad.dtype == torch.float64 for p in net.parameters())
