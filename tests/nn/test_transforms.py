"Every layer with meta and fake tensors, and under torch.func; where it cannot go, one sentence."
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, vmap

from tests.nn.every_layer import EXAMPLES

# a backward pass of their own, without rules for transforms
CLOSED = [name for name in EXAMPLES if 'GroupSelfAttention2d' in name
          or 'LiftingSelfAttention2d' in name or name.endswith(('full', 'channel', 'spatial'))]
OPEN = [name for name in EXAMPLES if name not in CLOSED]


@pytest.fixture
def layer(name):
    "A layer in float64, and an input."
    torch.manual_seed(0)
    make, shape = EXAMPLES[name]
    return make().double().eval(), torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize('name', EXAMPLES)
def test_on_meta_a_layer_has_the_same_shapes_and_a_gradient(name, layer):
    net, x = layer
    with torch.device('meta'): empty = EXAMPLES[name][0]().double()
    y = empty(x.to('meta'))
    assert y.is_meta and y.shape == net(x).shape
    y.sum().backward()
    assert all(p.grad.shape == p.shape for p in empty.parameters())


@pytest.mark.parametrize('name', EXAMPLES)
def test_with_fake_tensors_a_layer_has_the_same_shapes_and_is_itself_afterwards(name, layer):
    net, x = layer
    right = net(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = net(mode.from_tensor(x))
    assert (y.shape, y.dtype) == (right.shape, right.dtype)
    assert net(x).equal(right)


def gradients(net, x):
    "The gradient of each image, by autograd."
    params = list(net.parameters())
    each = [torch.autograd.grad(net(v[None]).square().sum(), params, allow_unused=True) for v in x]
    return [torch.stack([g[i] for g in each]) for i in range(len(params))]


def gradients_by_transforms(net, x):
    "The same by torch.func."
    params = {name: p.detach() for name, p in net.named_parameters()}
    def loss(p, v): return functional_call(net, p, (v[None],)).square().sum()
    return list(vmap(grad(loss), in_dims=(None, 0))(params, x).values())


@pytest.mark.filterwarnings('ignore:There is a performance drop')
@pytest.mark.parametrize('name', OPEN)
def test_a_gradient_for_each_image(name, layer):
    ours, right = gradients_by_transforms(*layer), gradients(*layer)
    assert max(g.abs().max() for g in right) > .01
    torch.testing.assert_close(ours, right)


@pytest.mark.parametrize('name', CLOSED)
def test_where_transforms_cannot_go_one_sentence_says_so(name, layer):
    net, x = layer
    said = f'^{type(net).__name__} has a backward pass of its own, into which vmap'
    with pytest.raises(RuntimeError, match=said): vmap(net)(x[None])
    with pytest.raises(RuntimeError, match=said): grad(lambda v: net(v).sum())(x)
