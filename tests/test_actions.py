"Moving what cannot be moved; half precision, autocast, and a default device that is not the CPU."
import warnings

import pytest
import torch

from eqtutor.actions import act, act_points, check_exact, disc, is_exact, reversed_axes, rotate
from eqtutor.groups import C, D, get_group


def randn(*shape, **kw):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, **kw)


# --- bad input

@pytest.mark.parametrize('h', [-1, 4])
@pytest.mark.parametrize('move, x', [(act, randn(1, 1, 3, 3)), (act_points, randn(5, 2))])
def test_what_is_no_element_is_refused(move, x, h):
    with pytest.raises(ValueError, match=rf'C4 has the elements 0\.\.3, got {h}'): move('p4', h, x)


@pytest.mark.parametrize('shape, group, message', [
    ((7,), 'p4', r'2 to 5 axes\), got shape \(7,\)'),
    ((1, 1, 4, 3, 3), 'p4m', r'axis 2 must be the group axis of D4, \|H\| = 8'),
    ((1, 1, 4), 'p4m', r'\|H\| = 8, got shape \(1, 1, 4\)'),
])
def test_shapes_that_no_group_acts_on_are_refused(shape, group, message):
    with pytest.raises(ValueError, match=message): act(group, 1, randn(*shape))


def test_rotate_refuses_what_is_no_batch_of_images_or_angles():
    x = randn(3, 2, 9, 9)
    with pytest.raises(ValueError, match=r'\(b, c, h, w\), got \(2, 9, 9\)'): rotate(x[0], 30)
    with pytest.raises(ValueError, match=r'one an image, \(3,\), got shape \(2,\)'):
        rotate(x, torch.ones(2))


def test_integer_images_turn_by_quarter_turns_and_no_other():
    x = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3)
    assert rotate(x, 90).dtype == torch.uint8
    with pytest.raises(ValueError, match=r'got torch.uint8: convert with .float\(\)'): rotate(x, 30)


def test_integer_points_become_floating_point():
    moved = act_points('C8', 1, torch.tensor([[10, 0]]))
    torch.testing.assert_close(moved, torch.tensor([[50**.5, 50**.5]]))


# --- precision and layout

LARGE = torch.linspace(0, 1, 224).expand(1, 1, 224, 224)


def test_autocast_rounds_no_coordinates():
    with torch.autocast('cpu', torch.bfloat16):
        turned, point = rotate(LARGE, 30.), act_points('C8', 1, torch.tensor([[30., 111.]]))
    assert torch.equal(turned, rotate(LARGE, 30.)) and point.dtype == torch.float32


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_is_that_of_values_and_not_of_coordinates(dtype):
    turned = rotate(LARGE.to(dtype), 30.)
    assert turned.dtype == dtype and (turned - rotate(LARGE, 30.)).abs().max() < .01


def test_turned_images_keep_their_dtype():
    assert rotate(randn(1, 1, 5, 5).float(), 30).dtype == torch.float32
    assert rotate(randn(1, 1, 5, 5), 30).dtype == torch.float64


def test_moved_images_are_contiguous():
    assert all(act('D4', h, randn(1, 2, 3, 3)).is_contiguous() for h in range(8))
    assert rotate(LARGE, 90).is_contiguous()


# --- discs

@pytest.mark.parametrize('margin, pixels', [(0, 21), (.5, 13), (1.5, 5), (8, 0)])
def test_a_margin_shrinks_the_disc(margin, pixels):
    assert disc(5, 5, margin).sum() == pixels


def test_the_disc_of_a_wide_image_leaves_its_sides_free():
    mask = disc(5, 9)
    assert not mask[:, 0].any() and not mask[:, -1].any() and mask[0, 4]


# --- the exactness rule

def test_check_exact_believes_the_axes_it_is_told():
    x = torch.empty(1, 1, 6, 6)
    check_exact(x, C(1), 3, stride=2)
    with pytest.raises(ValueError, match='stride 2 on width 6'):
        check_exact(x, C(1), 3, stride=2, axes=(False, True))


def test_check_exact_says_what_to_do():
    message = (
        r'^stride 2 on height 6 \(kernel_size 3, padding 0, dilation 1\) leaves 1 pixel\(s\) over '
        r'at one end, so the layer is not equivariant to C4; 5 or 7 would be exact here\. '
        r'Expected \(size .* % stride == 0\. '
        r"Choose another size for the network's input: exact_sizes\(.*, or take other windows: "
        r'with stride 2, those of 3 pixels and padding 1 are exact on odd sides \(65×49 .*\), '
        r'those of 2 pixels on even ones, .*\. '
        r"strict=False makes this a warning\. Recipes: chapter 98, 'My sizes are odd'\.$")
    with pytest.raises(ValueError, match=message): check_exact(torch.empty(6, 6), C(4), 3, stride=2)


def test_the_windows_that_it_advises_are_exact():
    for k, padding, odd in (3, 1, 1), (2, 0, 0):
        assert [n for n in range(3, 40) if is_exact(n, k, 2, padding)] == [*range(4 - odd, 40, 2)]
    sides = [65, 49]
    for halved in ([33, 25], [17, 13], [9, 7]):
        assert all(is_exact(n, 3, 2, 1) for n in sides)
        sides = [(n + 2 - 3)//2 + 1 for n in sides]
        assert sides == halved


def test_check_exact_can_warn_instead():
    with pytest.warns(UserWarning, match='not equivariant to C4'):
        check_exact(torch.empty(1, 1, 6, 6), C(4), 3, stride=2, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        check_exact(torch.empty(1, 1, 7, 7), C(4), 3, stride=2, strict=False)


# --- where it is computed

@pytest.mark.parametrize('group', ['p4', 'p4m', 'C8'])
def test_data_on_the_cpu_move_alike_wherever_they_are_moved(group, elsewhere):
    H, p = get_group(group), randn(10, 2)
    x, f, v = randn(2, 3, 5, 7), randn(2, 3, len(H), 6, 6), randn(2, 3, len(H))
    def moves(): return [act_points(H, 3, p), *(act(H, 3, y) for y in (x, f, v)), rotate(x, 30.)]
    expected = moves()
    with elsewhere(): moved = moves()
    for y, want in zip(moved, expected, strict=True): assert torch.equal(y, want)


def test_index_permutations_are_those_of_the_group_wherever_they_are_computed(elsewhere):
    index = torch.arange(9).view(1, 1, 3, 3)
    with elsewhere(): permutations = [act(D(4), h, index).flatten().tolist() for h in range(8)]
    assert permutations[1] == [2, 5, 8, 1, 4, 7, 0, 3, 6]
    assert permutations == [act(D(4), h, index).flatten().tolist() for h in range(8)]
    assert len(set(map(tuple, permutations))) == 8


def test_axes_and_discs_are_computed_on_the_cpu(elsewhere):
    with elsewhere(): axes, mask = [reversed_axes(g) for g in ('Z2', 'mirror', 'p4')], disc(4, 4)
    assert axes == [(False, False), (False, True), (True, True)]
    assert mask.device.type == 'cpu' and mask.int().tolist()[0] == [0, 1, 1, 0]


def test_the_exactness_rule_is_checked_on_the_meta_device():
    with torch.device('meta'):
        check_exact(torch.empty(1, 1, 7, 7), C(4), 3, stride=2)
        with pytest.raises(ValueError, match='stride 2 on height 6'):
            check_exact(torch.empty(1, 1, 6, 7), C(4), 3, stride=2)
