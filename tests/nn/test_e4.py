"What a user may do to an E4 layer and to what writes its kernels, and what they answer."
import copy
import pickle
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act
from eqtutor.cost import count_macs, count_parameters, layer_costs
from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.groups import get_group
from eqtutor.kernels.windows import shifted
from eqtutor.nn.convolution import GroupConv2d
from eqtutor.nn.e4 import E4Conv2d, KernelGenerator

NORMS = 'instance', 'batch', 'layer', 'none', 'published'


def layer_and_input(group='p4', **kw):
    "A float64 layer as after training, and an input for it."
    torch.manual_seed(0)
    layer = perturb_(E4Conv2d(4, 6, 3, group, **kw).double()).eval()
    return layer, torch.randn(2, 4, len(layer.group), 6, 7).double()


def all_poses(pose_map, f, group):
    "A pose map, 1×1, of f `(c, |H|, h, w)` by its definition, Σ_a W_a f(x, ha)."
    if not isinstance(pose_map, GroupConv2d): return pose_map(f[None])[0]
    W = pose_map.weight[..., 0, 0]
    def at(h): return torch.einsum('oca,caij->oij', W, f[:, group.mul[h]])
    return torch.stack([at(h) for h in group.elements], 1)


def by_the_loop(layer, f):
    "The layer, with everything that can be switched on, for f `(c, |H|, h, w)` as a slow loop."
    generate, k, group = layer.generate, layer.kernel_size, layer.group
    values = all_poses(layer.encode, f, group)
    hidden = generate.norm(all_poses(generate.squeeze, f, group)[None])[0].relu()
    out, reach = torch.zeros_like(values), layer.dilation*(k//2)
    around = F.pad(values, [reach]*4)
    bias = 0 if generate.bias is None else generate.bias
    for h, i, j in product(group.elements, *map(range, f.shape[2:])):
        kernel = (generate.weight @ hidden[:, h, i, j] + bias).T.unflatten(1, (k, k))
        kernel = act(group, h, kernel[None])[0]
        kernel = kernel.repeat_interleave(layer.out_channels//layer.slices, 0)
        window = around[:, h, i:i + 2*reach + 1, j:j + 2*reach + 1]
        window = window[:, ::layer.dilation, ::layer.dilation]
        out[:, h, i, j] = (kernel*window).sum((1, 2))
    return out if layer.bias is None else out + layer.bias[:, None, None, None]


@pytest.mark.parametrize('group', ['mirror', 'p4', 'p4m'])
@pytest.mark.parametrize('options', [
    *(dict(norm=norm, bias=True, dilation=2) for norm in ('instance', 'batch', 'layer', 'none')),
    *(dict(concat=concat) for concat in ('kernel', 'value', 'none'))], ids=str)
@torch.no_grad()
def test_layer_is_the_loop(group, options):
    layer, x = layer_and_input(group, slices=3, reduction=2, **options)
    x = x[:1, ..., :4, :5]
    torch.testing.assert_close(layer(x)[0], by_the_loop(layer, x[0]))


def with_neighbours_written_out(layer, f):
    "The layer with its k² neighbours side by side and a batched product, which torch counts."
    values = layer.encode(f).unflatten(1, (layer.slices, -1))
    values = torch.stack(shifted(values, layer.kernel_size, layer.dilation), 2)
    y = torch.einsum('bsvghw,bsvdghw->bsdghw', layer.kernels(f), values).flatten(1, 2)
    return y if layer.bias is None else y + layer.bias[:, None, None, None]


@pytest.mark.parametrize('group', ['mirror', 'p4', 'p4m'])
@pytest.mark.parametrize('concat', ['both', 'kernel', 'value', 'none'])
def test_its_cost_is_what_torch_counts(group, concat):
    layer, x = layer_and_input(group, slices=2, reduction=2, concat=concat, bias=True)
    cost, = layer_costs(layer, x)
    torch.testing.assert_close(with_neighbours_written_out(layer, x), layer(x))
    assert cost.parameters == count_parameters(layer)
    assert cost.macs == count_macs(layer, x)
    with FlopCounterMode(display=False) as counter: with_neighbours_written_out(layer, x)
    assert 2*cost.macs == counter.get_total_flops()


@pytest.mark.parametrize('concat', ['none', 'kernel', 'value', 'both'])
def test_without_lists_no_pose_hears_another(concat):
    "Which pose of the output depends on which of the input, by the derivative."
    layer, x = layer_and_input(concat=concat, norm='layer')   # its statistics stay at a pose
    def energy(f): return layer(f).square().sum((0, 1, 3, 4))
    J = torch.autograd.functional.jacobian(energy, x[:1, ..., :5, :5])
    depends = J.abs().amax((1, 2, 4, 5)) > 1e-12
    assert torch.equal(depends, torch.eye(4) > 0) if concat == 'none' else depends.all()


def test_patches_are_read_to_the_right_of_their_place():
    "Patches f(gnᵢ) commute with every element of D4; patches f(nᵢg) do not."
    group, f = get_group('p4m'), torch.randn(8, 3).double()
    offsets = torch.tensor([0, 3, 6])
    def right(f): return f[group.mul[:, offsets]]
    def left(f): return f[group.mul[offsets].T]
    def moved(u, f): return f[group.mul[group.inv[u]]]
    assert all(torch.equal(right(moved(u, f)), moved(u, right(f))) for u in group.elements)
    assert max((left(moved(u, f)) - moved(u, left(f))).abs().max() for u in group.elements) > .5


@pytest.mark.parametrize('group', ['mirror', 'C2', 'D2'])
def test_oblong_images(group):
    layer, x = layer_and_input(group)
    for size in ((5, 8), (6, 3)):
        assert max(equivariance_error(layer, x[..., :size[0], :size[1]], group)) < 1e-12


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

@pytest.mark.parametrize('backend', ['aot_eager', pytest.param('inductor', marks=pytest.mark.slow)])
def test_compiles_to_one_graph(backend):
    torch.manual_seed(0)
    layer, x = E4Conv2d(4, 4, 3, 'p4m'), torch.randn(2, 4, 8, 6, 6)
    def gradients():
        layer(x).square().sum().backward()
        grads = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        return grads
    eager = gradients()
    layer.compile(fullgraph=True, backend=backend)
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
