"Affine self-convolution as a member of the library: bad input, copies, gradients, export."
import copy
import pickle
from functools import partial

import pytest
import torch

from eqtutor.equivariance import perturb_
from eqtutor.nn.affine import (AffineMap, AffineSelfConv2d, GroupAffineMap, GroupAffineSelfConv2d,
                               GroupSimpleAffineSelfConv2d, LiftingAffineSelfConv2d,
                               SimpleAffineSelfConv2d, attention_weights, filters_at)

LAYERS = (SimpleAffineSelfConv2d, AffineSelfConv2d, GroupSimpleAffineSelfConv2d,
          GroupAffineSelfConv2d, LiftingAffineSelfConv2d)
ids = dict(ids=lambda cls: cls.__name__)


def example(cls, dtype=torch.float64):
    "A layer with perturbed parameters, and an input for it."
    torch.manual_seed(0)
    layer = cls(3, 4, 3, heads=2)
    poses = () if cls.images or cls.lifts else (4,)
    return perturb_(layer.to(dtype)), torch.randn(2, 3, *poses, 4, 5, dtype=dtype)


@pytest.fixture(params=LAYERS, **ids)
def layer_and_input(request): return example(request.param)


def test_state_dict_holds_weights_alone(layer_and_input):
    layer, _ = layer_and_input
    assert {k.split('.')[-1] for k in layer.state_dict()} == {'weight', 'bias', 'psi', 'beta'}


def test_a_layer_is_loaded_copied_and_pickled(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    other = type(layer)(3, 4, 3, heads=2).double()
    assert not torch.equal(other(x), y)
    other.load_state_dict(layer.state_dict())
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), y)


def test_repr_names_the_arguments(layer_and_input):
    layer, _ = layer_and_input
    group = 'C1' if layer.images else 'C4'
    for text in (f'group={group}', "boundary='mask'", "init='published'", 'heads=2'):
        assert text in repr(layer)


def test_autocast_stays_close(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        low = copy.deepcopy(layer).float()(x.float())
    assert y.dtype == torch.float64
    assert 0 < (low - y).abs().max() < .1*y.abs().max()


def test_inference_mode_and_an_empty_batch(layer_and_input):
    layer, x = layer_and_input
    y = layer(x)
    with torch.inference_mode(): assert torch.equal(layer(x), y)
    assert layer(x[:0]).shape == (0, *y.shape[1:])


def test_gradients_are_right(layer_and_input):
    layer, x = layer_and_input
    small = x[:1, ..., :2, :2].clone().requires_grad_()
    names = [name for name, _ in layer.named_parameters()]
    def sums(x, *parameters):
        state = dict(zip(names, parameters))
        return torch.func.functional_call(layer, state, (x,)).sum((-2, -1))
    assert torch.autograd.gradcheck(sums, (small, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize('cls', LAYERS, **ids)
def test_export_with_a_dynamic_batch(cls):
    layer, x = example(cls, torch.float32)
    layer.eval()
    batch = ({0: torch.export.Dim('batch')},)
    program = torch.export.export(layer, (x,), dynamic_shapes=batch).module()
    for n in (1, 2, 5):
        x = torch.randn(n, *x.shape[1:])
        torch.testing.assert_close(program(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('cls, group, backend', [
    (LiftingAffineSelfConv2d, 'p4', 'inductor'), (GroupAffineSelfConv2d, 'mirror', 'inductor'),
    (GroupAffineSelfConv2d, 'p4', 'aot_eager'), (GroupSimpleAffineSelfConv2d, 'p4', 'aot_eager')])
def test_compilation_gives_one_graph_and_the_same_gradients(cls, group, backend):
    torch.manual_seed(0)
    layer = perturb_(cls(3, 4, 3, group, 2))
    x = torch.randn(2, 3, *(() if cls.lifts else (len(layer.group),)), 4, 5)
    parameters = list(layer.parameters())
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    fast, plain = (torch.autograd.grad(f(x).square().sum(), parameters) for f in (compiled, layer))
    for a, b in zip(fast, plain): torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('cls, shape, message', [
    (AffineSelfConv2d, (1, 4, 8, 8), r'expected an image \(b, 3, h, w\), got \(1, 4, 8, 8\)'),
    (AffineSelfConv2d, (1, 3, 4, 8, 8), r'\|H\| = 1'),
    (GroupAffineSelfConv2d, (1, 3, 8, 8), 'begin with'),
    (GroupAffineSelfConv2d, (1, 3, 8, 8, 8), r'\|H\| = 4 for C4'),
    (LiftingAffineSelfConv2d, (1, 3, 4, 8, 8), 'expected an image'),
])
def test_input_of_another_shape_is_refused(cls, shape, message):
    with pytest.raises(ValueError, match=message): cls(3, 4, heads=2)(torch.randn(shape))


@pytest.mark.parametrize('build, message', [
    (partial(AffineSelfConv2d, 3, 4), 'divisible by heads, got out_channels=4 and heads=8'),
    (partial(AffineSelfConv2d, 3, 8, 4), 'odd kernel_size, got 4; use 3 or 5'),
    (partial(AffineSelfConv2d, 0, 8), 'in_channels must be a positive int'),
    (partial(GroupAffineSelfConv2d, 3, 8, group='C8'), 'expected a subgroup of D4'),
    (partial(GroupAffineMap, 8, 3, 'C8'), 'expected a subgroup of D4'),
    (partial(AffineSelfConv2d, 3, 8, boundary='wrap'), "'mask', 'zero', got 'wrap'"),
    (partial(AffineSelfConv2d, 3, 8, scale='model'), "'channels', 'root'"),
    (partial(AffineSelfConv2d, 3, 8, init='zero'), "'published', 'conditioned'"),
    (partial(AffineMap, 4, 3, start='zero'), "'normal'"),
    (partial(GroupAffineMap, 4, 3, 'p4', start='zero'), "'normal'"),
])
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message): build()


def test_attention_weights_of_a_feature_map_of_the_trivial_group():
    layer, x = example(AffineSelfConv2d)
    assert torch.equal(attention_weights(layer, x[:, :, None]), attention_weights(layer, x))


def test_attention_weights_have_an_axis_of_poses():
    assert attention_weights(*example(GroupAffineSelfConv2d)).shape == (2, 2, 9, 4, 4, 5)


def test_filters_refuse_an_input_of_another_shape():
    layer, x = example(AffineSelfConv2d)
    with pytest.raises(ValueError, match='expected an image'): filters_at(layer, x[:, :1], 2, 3)
