"What a user may do to an E4 layer and to what writes its kernels, and what they answer."
import copy
import pickle

import pytest
import torch

from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.nn.e4 import E4Conv2d, KernelGenerator

NORMS = 'instance', 'batch', 'layer', 'none', 'published'


def layer_and_input(group='p4', **kw):
    "A float64 layer as after training, and an input for it."
    torch.manual_seed(0)
    layer = perturb_(E4Conv2d(4, 6, 3, group, **kw).double()).eval()
    return layer, torch.randn(2, 4, len(layer.group), 6, 7).double()


@pytest.mark.parametrize('norm', NORMS)
def test_state_dict_holds_weights_alone(norm):
    layer, x = layer_and_input(norm=norm)
    keys = {key for key in layer.state_dict() if 'norm' not in key}
    assert keys == {'encode.weight', 'generate.weight', 'generate.bias', 'generate.squeeze.weight'}
    other = E4Conv2d(4, 6, 3, 'p4', norm=norm).double().eval()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))

def test_biases_are_optional():
    layer, _ = layer_and_input(norm='none', bias=True, kernel_bias=False)
    assert sorted(layer.state_dict()) == ['bias', 'encode.weight', 'generate.squeeze.weight',
                                          'generate.weight']

def test_copies_and_pickles_compute_the_same():
    layer, x = layer_and_input()
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), layer(x))

def test_kernels_are_those_of_the_forward_pass():
    "The middle entry of a kernel alone: the output is the kernel there times the value there."
    layer, x = layer_and_input(slices=6)
    at_middle = layer.kernels(x)[:, :, 4]
    with torch.no_grad():
        layer.generate.weight[torch.arange(9) != 4] = 0
        layer.generate.bias[torch.arange(9) != 4] = 0
    torch.testing.assert_close(layer(x), at_middle*layer.encode(x))

def test_same_padding_may_be_a_number():
    layer, x = layer_and_input()
    other = E4Conv2d(4, 6, 3, 'p4', padding=2, dilation=2).double()
    assert other(x).shape == layer(x).shape

@pytest.mark.parametrize('concat', ['both', 'none'])
def test_empty_batch(concat):
    y = E4Conv2d(4, 4, 3, 'p4', concat=concat)(torch.zeros(0, 4, 4, 5, 6))
    y.sum().backward()
    assert y.shape == (0, 4, 4, 5, 6)

def test_first_and_second_derivatives():
    torch.manual_seed(0)
    layer = E4Conv2d(2, 2, 3, 'C2').double()
    x = torch.randn(1, 2, 2, 3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradgradcheck(layer, x)

def test_autocast():
    torch.manual_seed(0)
    layer, x = E4Conv2d(4, 4, 5, 'p4'), torch.randn(2, 4, 4, 8, 8)
    with torch.autocast('cpu', torch.bfloat16): low, kernels = layer(x), layer.kernels(x)
    assert low.dtype == kernels.dtype == torch.bfloat16
    assert (low - layer(x)).abs().max() < .1*layer(x).abs().max()

def test_compiles_to_one_graph():
    torch.manual_seed(0)
    layer, x = E4Conv2d(4, 4, 3, 'p4m'), torch.randn(2, 4, 8, 6, 6)
    def gradients():
        layer(x).square().sum().backward()
        grads = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        return grads
    eager = gradients()
    layer.compile(fullgraph=True)
    torch.testing.assert_close(gradients(), eager, rtol=1e-3, atol=1e-4)

def test_exports_with_a_dynamic_batch():
    layer, x = layer_and_input()
    batch = torch.export.Dim('batch', min=1)
    program = torch.export.export(layer, (x,), dynamic_shapes=((({0: batch}),)))
    for n in 1, 2: torch.testing.assert_close(program.module()(x[:n]), layer(x[:n]))

def test_generator_whose_kernels_stay_is_no_symmetry():
    layer, x = layer_and_input()
    x = x[..., :6]
    assert max(equivariance_error(layer, x, 'p4')) < 1e-12
    moved = layer.generate.originals['moved']
    layer.generate.originals['moved'] = moved[:1].repeat(4, 1)
    layer.double()    # the copies are made anew
    assert min(equivariance_error(layer, x, 'p4')[1:]) > .1

@pytest.mark.parametrize('arguments, options, words', [
    ((4, 4, 3, 'p4'), dict(slices=3),
     r'out_channels to be divisible by slices, got out_channels=4 .* one of \[1, 2, 4\]'),
    ((4, 4, 3, 'p4'), dict(reduction=3), 'divisible by reduction, got in_channels=4'),
    ((4, 4, 4, 'p4'), {}, 'odd kernel_size, got 4; use 3 or 5'),
    ((4, 4, 3, 'C8'), {}, 'C8 would turn .* between pixels: expected a subgroup of D4, such as p4'),
    ((4, 4, 3, 'p4'), dict(padding=0), "expected padding='same', got 0"),
    ((4, 4, 3, 'p4'), dict(padding='valid'), "expected padding='same', got 'valid'"),
    ((4, 4, 3, 'p4'), dict(padding=True), "expected padding='same', got True"),
    ((4, 4, 3, 'p4'), dict(norm='group'), "'instance', .*'published', got 'group'"),
    ((4, 4, 3, 'p4'), dict(concat='poses'), "'kernel', .* got 'poses'"),
    ((4, 4, 3, 'p4'), dict(slices=0), 'slices must be a positive int')])
def test_wrong_argument_is_named(arguments, options, words):
    with pytest.raises(ValueError, match=words): E4Conv2d(*arguments, **options)

def test_generator_checks_its_own_arguments():
    with pytest.raises(ValueError, match='odd kernel_size, got 4'): KernelGenerator(4, 4, 'p4')
    with pytest.raises(ValueError, match='reduction must be a positive int'):
        KernelGenerator(4, 3, 'p4', reduction=0)

@pytest.mark.parametrize('cls', [E4Conv2d, KernelGenerator])
def test_wrong_input_is_named(cls):
    layer = cls(4, 4, 3, 'p4') if cls is E4Conv2d else cls(4, 3, 'p4')
    with pytest.raises(ValueError, match='LiftingConv2d'): layer(torch.randn(1, 4, 5, 5))
    with pytest.raises(ValueError, match=r'\|H\| = 4'): layer(torch.randn(1, 4, 8, 5, 5))

def test_prints_its_group(): assert 'group=C4' in repr(E4Conv2d(4, 4, 3, 'p4'))
