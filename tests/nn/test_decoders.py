"Layers that enlarge: bad input, sizes, dtypes, blocks of channels, compilation, cost."
import re
from math import prod

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from eqtutor.actions import act
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.export import to_plain
from eqtutor.groups import C, D, get_group
from eqtutor.nn import (
    GroupAdaptivePool2d,
    GroupConv2d,
    GroupConvTranspose2d,
    GroupUpsample2d,
    LiftingConv2d,
)

GROUPS = {'p4': 4, 'p4m': 8, 'mirror': 2}


@pytest.fixture(params=[1, 2])
def blocks(request): return request.param

@pytest.mark.parametrize('group', GROUPS)
@pytest.mark.parametrize('sizes', [(3, 1, 1), (2, 2, 0), (4, 2, 1), (3, 2, 1), (5, 3, 2)])
@pytest.mark.parametrize('shape', [(7, 7), (6, 4), (5, 8), (1, 1)])
def test_a_transposed_convolution_is_exact_at_every_size(group, sizes, shape, blocks):
    torch.manual_seed(0)
    kernel_size, stride, padding = sizes
    layer = GroupConvTranspose2d(4, 2, kernel_size, group, stride, padding, groups=blocks).double()
    f = torch.randn(1, 4, GROUPS[group], *shape).double()
    if min((n - 1)*stride + kernel_size - 2*padding for n in shape) < 1: return
    assert_equivariant(layer, f, group)
    assert_equivariant(perturb_(layer), f, group)

def test_without_symmetry_they_are_torch_s_own(blocks):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 7)
    same = nn.Upsample(scale_factor=3, mode='bilinear')(x)
    torch.testing.assert_close(GroupUpsample2d(3, 'bilinear')(x), same)
    layer = GroupConvTranspose2d(4, 6, 4, 'Z2', 3, 1, dilation=2, groups=blocks)
    own = nn.ConvTranspose2d(4, 6, 4, 3, 1, dilation=2, groups=blocks)
    filters = layer.weight.unflatten(0, (blocks, -1))[:, :, :, 0]
    own.weight.data = filters.transpose(1, 2).flatten(0, 1)
    own.bias.data = layer.bias.data
    torch.testing.assert_close(layer(x[:, :, None])[:, :, 0], own(x))

def blocks_of(x, s):
    "Pixel (i, j) of the large map is pixel (⌊i/s⌋, ⌊j/s⌋) of the small one."
    rows, cols = ([i//s for i in range(n*s)] for n in x.shape[-2:])
    return x[..., rows, :][..., cols]

@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize('shape', [(1, 2, 2, 3), (1, 1, 4, 1, 5), (1, 1, 16, 1)])
def test_nearest_is_exact_at_every_factor_up_to_200(shape, dtype):
    x = torch.arange(prod(shape)).view(shape).to(dtype)
    wrong = [s for s in range(1, 201)
             if not torch.equal(GroupUpsample2d(s)(x), blocks_of(x, s))]
    assert wrong == []

@pytest.mark.parametrize('s', [2, 41, 97])
def test_nearest_is_exact_in_every_layout_and_program(s):
    layer, x = GroupUpsample2d(s), torch.randn(2, 3, 4, 5)
    right = blocks_of(x, s)
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), right)
    for program in (torch.export.export(layer, (x,)).module(),
                    to_plain(layer, x=x)):
        assert torch.equal(program(x), right)

@pytest.mark.slow
def test_nearest_is_exact_when_compiled():
    layer, x = GroupUpsample2d(41), torch.randn(2, 3, 4, 5)
    assert torch.equal(torch.compile(layer, fullgraph=True)(x), blocks_of(x, 41))

def test_the_gradient_of_a_pixel_is_the_sum_over_its_block():
    x = torch.randn(1, 1, 4, 2, 3).double().requires_grad_()
    weight = torch.randn(1, 1, 4, 82, 123).double()
    (GroupUpsample2d(41)(x)*weight).sum().backward()
    sums = weight.unflatten(-1, (3, 41)).sum(-1).unflatten(-2, (2, 41)).sum(-2)
    torch.testing.assert_close(x.grad, sums)

@pytest.mark.parametrize('n', [2, 33, 257])
def test_bilinear_is_exact_up_to_rounding_at_every_factor_up_to_200(n):
    torch.manual_seed(0)
    x = torch.randn(1, 1, 1, n)
    for s in range(1, 201, 1 if n < 33 else 8):
        layer = GroupUpsample2d(s, 'bilinear')
        apart = (layer(x.flip(-1)).flip(-1) - layer(x)).abs().max()
        assert apart < 1e-6*(n + 1), s

@pytest.mark.parametrize('cls', [LiftingConv2d, GroupConv2d, GroupConvTranspose2d])
def test_blocks_of_channels_do_not_hear_of_each_other(cls):
    torch.manual_seed(0)
    layer = cls(4, 6, 3, 'p4', groups=2, padding=1).double()
    f = torch.randn(1, 4, *(() if layer.lifts else (4,)), 6, 6).double()
    changed = f.clone()
    changed[:, 2:] += 1
    same = (layer(f) == layer(changed)).flatten(2).all(-1)[0]
    assert same.tolist() == [True]*3 + [False]*3
    assert_equivariant(perturb_(layer), f, 'p4')

def test_one_block_is_two_layers_side_by_side():
    torch.manual_seed(0)
    both = GroupConv2d(4, 6, 3, 'p4', groups=2).double()
    f = torch.randn(1, 4, 4, 6, 6).double()
    for k in range(2):
        one = GroupConv2d(2, 3, 3, 'p4').double()
        one.weight.data = both.weight.data[3*k:3*k + 3]
        torch.testing.assert_close(one(f[:, 2*k:2*k + 2]), both(f)[:, 3*k:3*k + 3])

def test_blocks_must_divide_the_channels():
    with pytest.raises(ValueError, match='divisible by groups, got in_channels=3'):
        GroupConv2d(3, 4, 3, 'p4', groups=2)
    with pytest.raises(ValueError, match='groups must be a positive int'):
        GroupConv2d(3, 4, 3, 'p4', groups=0)

@pytest.mark.parametrize('cls, poses', [(GroupConv2d, 4), (GroupConvTranspose2d, 4)])
def test_macs_with_blocks_are_those_that_torch_counts(cls, poses):
    layer = cls(4, 6, 3, 'p4', stride=2, padding=1, groups=2)
    x = torch.randn(2, 4, poses, 9, 11)
    with FlopCounterMode(display=False) as counter, torch.no_grad(): y = layer(x)
    assert layer.macs(x.shape, y.shape) == counter.get_total_flops()//2

def test_pixels_at_one_end_are_refused():
    with pytest.raises(ValueError, match='kernel_size=4 and padding=1 make each side 2 times'):
        GroupConvTranspose2d(3, 2, 3, 'p4', stride=2, padding=1, output_padding=1)

@pytest.mark.parametrize('group, poses', [('p4', 4), ('C8', 8)])
@pytest.mark.parametrize('kernel_size', [1, 3, 5])
@pytest.mark.parametrize('stride', [1, 2, 3, 4])
@pytest.mark.parametrize('dilation', [1, 2, 3])
def test_what_the_refusal_advises_makes_each_side_so_many_times_longer(
        group, poses, kernel_size, stride, dilation):
    sizes = dict(stride=stride, dilation=dilation)
    with pytest.raises(ValueError) as refused:
        GroupConvTranspose2d(1, 1, kernel_size, group, padding=1, output_padding=1, **sizes)
    f, text = torch.randn(1, 1, poses, 4, 7), str(refused.value)
    followed = [GroupUpsample2d(int(s)) for s in re.findall(r'GroupUpsample2d\((\d+)\)', text)]
    assert followed
    for k, p in re.findall(r'kernel_size=(\d+) and padding=(\d+)', text):
        followed.append(GroupConvTranspose2d(1, 1, int(k), group, padding=int(p), **sizes))
    for layer in followed: assert layer(f).shape[-2:] == (4*stride, 7*stride)
    possible = stride % 2 or (dilation % 2 and group == 'p4')   # 2p = d(k - 1) + 1 - s
    assert len(followed) == (2 if possible else 1)

def test_wrong_input_is_named():
    layer = GroupConvTranspose2d(3, 2, 2, 'p4', 2)
    with pytest.raises(ValueError, match='begin with LiftingConv2d'):
        layer(torch.randn(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r'expected an image .* got \(2, 3\)'):
        GroupUpsample2d()(torch.randn(2, 3))
    with pytest.raises(ValueError, match='scale_factor must be a positive int'):
        GroupUpsample2d(1.5)
    with pytest.raises(ValueError, match="'nearest', 'bilinear'"): GroupUpsample2d(2, 'bicubic')

def test_the_signal_keeps_its_size():
    "With the fan-in of a convolution it would shrink by the stride each time."
    def moment(seed):
        torch.manual_seed(seed)
        f = torch.randn(2, 8, 4, 4, 4)
        for _ in range(3): f = GroupConvTranspose2d(8, 8, 4, 'p4', 2, 1)(f.relu())
        return f.pow(2).mean().log()
    assert .3 < torch.stack([moment(seed) for seed in range(8)]).mean().exp() < 3

@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_dtypes_and_batches(dtype):
    layer = nn.Sequential(GroupConvTranspose2d(2, 3, 4, 'p4m', 2, 1),
                          GroupUpsample2d(3, 'bilinear')).to(dtype)
    for batch in 0, 1, 3:
        y = layer(torch.randn(batch, 2, 8, 5, 6, dtype=dtype))
        assert y.shape == (batch, 3, 8, 30, 36) and y.dtype == dtype

def test_off_the_grid_it_is_close():
    torch.manual_seed(0)
    layer = GroupConvTranspose2d(2, 2, 5, 'C8', 1, 2).double()
    rows = torch.linspace(-3, 3, 33).double()
    blob = torch.exp(-rows**2 - (rows[:, None] - .5)**2)
    f = blob*torch.randn(1, 2, 8, 1, 1).double()
    errors = equivariance_error(layer, f, 'C8', margin=4)
    assert max(errors[::2]) < 1e-10 < max(errors) < .2

def test_compiles_and_exports():
    net = nn.Sequential(GroupConv2d(2, 4, 3, 'p4', padding=1, groups=2),
                        GroupConvTranspose2d(4, 2, 4, 'p4', 2, 1), GroupUpsample2d(2),
                        GroupAdaptivePool2d(3))
    x = torch.randn(2, 2, 4, 5, 5)
    expected = net(x)
    compiled = torch.compile(net, fullgraph=True, dynamic=False, backend='aot_eager')
    torch.testing.assert_close(compiled(x), expected)
    program = torch.export.export(net, (x,))
    torch.testing.assert_close(program.module()(x), expected)

@pytest.mark.parametrize('group', [C(4), D(4)], ids=lambda H: H.name)
def test_the_adjoint(group):
    "⟨C f, y⟩ = ⟨f, Cᵀ y⟩ with blocks of channels, by autograd's own transpose."
    conv = GroupConv2d(4, 2, 3, group, stride=2, padding=1, bias=False, groups=2).double()
    f = torch.randn(1, 4, len(group), 5, 7).double().requires_grad_()
    y = conv(f)
    back, = torch.autograd.grad(y, f, torch.ones_like(y))
    layer = GroupConvTranspose2d(2, 4, 3, group, 2, 1, bias=False, groups=2).double()
    H = get_group(group)
    turned = torch.stack([act(H, r, conv.weight[:, :, H.inv[r]]) for r in H.elements], 2)
    swapped = turned.unflatten(0, (2, 1)).transpose(1, 2).flatten(0, 1)
    layer.weight.data = swapped.detach()
    torch.testing.assert_close(layer(torch.ones_like(y)), back)

@pytest.mark.parametrize('n', [7, 8, 9, 10])
def test_the_transpose_has_the_pixels_that_a_stride_leaves_over(n):
    "Proposition 67.4: without a rest it is (67.1), with one it is larger by the rest."
    torch.manual_seed(0)
    sizes = dict(stride=3, padding=1, bias=False)
    conv, back = (cls(1, 1, 3, 'Z2', **sizes).double()
                  for cls in (GroupConv2d, GroupConvTranspose2d))
    back.weight.data = conv.weight.data
    f = torch.randn(1, 1, 1, n, n).double().requires_grad_()
    y = conv(f)
    transposed, = torch.autograd.grad(y, f, y.detach())
    shorter, rest = back(y.detach()), (n - 1) % 3
    assert shorter.shape[-1] == n - rest
    torch.testing.assert_close(transposed[..., :n - rest, :n - rest], shorter)


def test_a_transposed_convolution_fills_nothing_in():
    layer = GroupConvTranspose2d(2, 3, (4, 4), 'p4', (2, 2), 1, output_padding=(0, 0))
    assert (layer.kernel_size, layer.stride) == (4, 2)
    with pytest.raises(ValueError, match="expected padding_mode='zeros', got 'circular'; Group"):
        GroupConvTranspose2d(2, 3, 4, 'p4', 2, 1, padding_mode='circular')
