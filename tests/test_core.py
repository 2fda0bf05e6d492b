"What layers share: checks and tools that later layers rely on."
import pytest
import torch

from eqtutor.actions import act, keeps_grid
from eqtutor.core import (
    autocast_as,
    autocast_dtype,
    check_divides,
    check_grid,
    check_input,
    check_odd,
    check_positive,
    each_pose,
    filter_index,
    filter_matrices,
    moved_entries,
    once_differentiable,
    one_of,
    ring_filters,
    same_padding,
    square_sizes,
)
from eqtutor.groups import C, D

# --- what does not fit is refused, and the message says what would

def test_a_word_that_is_not_allowed_is_answered_with_those_that_are():
    assert one_of('max', 'max', 'mean') == 'max'
    with pytest.raises(ValueError, match="one of 'max', 'mean', got 'top'$"):
        one_of('top', 'max', 'mean')

@pytest.mark.parametrize('padding, kernel_size, message', [
    ('same', 4, 'odd kernel_size: use 3 or 5, or give padding as a number'),
    ('full', 3, "≥ 0, 'same' or 'valid', got 'full'"),
    (-1, 3, "an int ≥ 0, 'same' or 'valid', got -1"),
    (True, 3, 'got True'),
    (1.5, 3, r'got 1\.5'),
])
def test_padding_that_is_none_is_refused(padding, kernel_size, message):
    with pytest.raises(ValueError, match=message): same_padding(padding, kernel_size)

def test_padding_is_counted_in_pixels():
    cases = {('same', 5): 2, ('same', 3, 2): 2, ('valid', 4): 0, (2, 4): 2, (0, 3): 0}
    assert {case: same_padding(*case) for case in cases} == cases

@pytest.mark.parametrize('n', [0, -1, 2., True, (3, 3), None])
def test_a_size_is_a_positive_int(n):
    check_positive(kernel_size=1, stride=2)
    with pytest.raises(ValueError, match='^stride must be a positive int .*, got '):
        check_positive(kernel_size=1, stride=n)

def test_a_pair_of_equal_numbers_is_one_number():
    assert square_sizes(kernel_size=(3, 3), stride=[2, 2], padding='same') == [3, 2, 'same']
    for pair in (3, 5), (3,), (3, 3, 3), ():
        with pytest.raises(ValueError, match='kernel_size must be one number, or two equal ones'):
            square_sizes(stride=1, kernel_size=pair)

def test_an_even_window_is_refused_by_its_name():
    check_odd(window=1, kernel_size=3)
    with pytest.raises(ValueError, match='expected an odd kernel_size, got 4; use 3 or 5'):
        check_odd(window=1, kernel_size=4)

def test_a_feature_map_where_an_image_is_expected_is_named():
    said = r'layer expected an image \(b, 3, h, w\), got \(2, 3, 4, 5, 5\)\. .*use GroupConv2d'
    with pytest.raises(ValueError, match=said):
        check_input(torch.empty(2, 3, 4, 5, 5), 3, None, 'layer')


def test_divisor_is_checked_by_name():
    check_divides('heads', 4, in_channels=8, out_channels=12)
    words = r'divisible by heads, got out_channels=10 and heads=4; .*\[1, 2, 5, 10\]'
    with pytest.raises(ValueError, match=words): check_divides('heads', 4, a=8, out_channels=10)

@pytest.mark.parametrize('group', [C(1), C(2), C(4), D(1), D(2), D(4)])
def test_groups_of_the_grid_are_let_pass(group): check_grid(group, 'turns windows')

@pytest.mark.parametrize('group', [C(3), C(8), D(3), D(8)])
def test_other_groups_are_refused(group):
    words = f'{group.name} turns windows: expected a subgroup of D4'
    with pytest.raises(ValueError, match=words): check_grid(group, 'turns windows')


# --- filters that move

@pytest.mark.parametrize('group', [C(4), D(4)], ids=lambda H: H.name)
def test_a_moved_filter_is_one_gather(group):
    w = torch.randn(1, 1, 5, 5)
    for h in group.elements:
        moved = w.flatten()[filter_index(group, 5)[h]]
        assert torch.equal(moved.view(5, 5), act(group, h, w)[0, 0])

@pytest.mark.parametrize('group', [C(4), D(4), C(8)], ids=lambda H: H.name)
def test_entries_of_moved_filters_are_read_in_the_filter_or_off_the_grid_in_its_copies(group):
    w = torch.randn(1, 3, 5, 5, dtype=torch.float64)
    moved = (filter_matrices(group, 5) @ w.view(3, 25).T).mT         # (|H|, slices, k²)
    source = moved
    if group.is_grid:
        source = w
        moved = torch.stack([act(group, h, w).view(3, 25) for h in group.elements])
    assert torch.equal(source.flatten()[moved_entries(group, 5, 3)], moved)

@pytest.mark.parametrize('group', [C(3), C(8), C(16), D(3), D(8)], ids=lambda H: H.name)
@pytest.mark.parametrize('kernel_size, harmonics', [(1, 1), (3, 6), (5, 13), (7, 22)])
def test_off_the_grid_filters_turn_as_the_group_does(group, kernel_size, harmonics):
    moves = filter_matrices(group, kernel_size)
    products = torch.einsum('apr,brq->abpq', moves, moves)
    torch.testing.assert_close(products, moves[group.mul], rtol=0, atol=1e-10)
    assert torch.linalg.matrix_rank(moves[0], atol=1e-6) == harmonics
    w = torch.randn(kernel_size**2).double()
    kept = (moves[0] @ w).view(1, 1, kernel_size, kernel_size)
    for h in group.elements:       # those that keep the grid move pixels
        if not keeps_grid(group, h): continue
        moved = act(group, h, kept).flatten()
        torch.testing.assert_close(moves[h] @ w, moved, rtol=0, atol=1e-10)

def test_a_ring_s_filter_answers_smooth_pictures_as_the_ring_does():
    "The mean of a plane wave over a circle is a Bessel function."
    side = torch.arange(-2., 3).double()
    for matrix in C(8).matrices[:2]:
        basis = ring_filters(5, matrix)/64
        mean = basis[:, 6]       # of radius 2: behind the centre and the five of radius 1
        wave = torch.cos(.5*side).expand(5, 5)
        assert abs(mean @ wave.flatten() - torch.special.bessel_j0(torch.tensor(1.))) < .01
    assert basis.shape == (25, 13)

def test_a_bias_is_repeated_once_a_pose_in_a_compiled_graph_too():
    "Up to version 2.8 PyTorch's compiler refuses a bias that is a view."
    bias = torch.randn(3)
    compiled = torch.compile(each_pose, backend='eager', fullgraph=True)
    assert torch.equal(each_pose(bias, 4), bias[:, None].expand(3, 4).flatten())
    assert torch.equal(compiled(bias, 4), each_pose(bias, 4))


# --- autocast

def test_autocast_is_asked_and_set_where_the_tensor_lies():
    x = torch.ones(2, 2)
    with autocast_as(torch.bfloat16, x):
        assert (autocast_dtype(x), (x@x).dtype) == (torch.bfloat16, torch.bfloat16)
        with autocast_as(None, x): assert (autocast_dtype(x), (x@x).dtype) == (None, x.dtype)
    far = x.to('meta')   # which PyTorch knows no autocast for
    with autocast_as(None, far): assert autocast_dtype(far) is None


# --- first derivatives only

class Cube(torch.autograd.Function):
    "x³, with a backward pass that `autograd` cannot see into."
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad): return 3*grad*ctx.saved_tensors[0].detach()**2


def test_once_differentiable_gives_first_derivatives():
    x = torch.tensor([1., 2.], requires_grad=True)
    gradient, = torch.autograd.grad(Cube.apply(x).sum(), x)
    assert gradient.tolist() == [3, 12]

def test_once_differentiable_refuses_second_derivatives():
    "torch's own decorator lets `hvp` pass: it gave wrong numbers in silence."
    def f(x): return (Cube.apply(x) + x**3).sum()
    with pytest.raises(RuntimeError, match='first derivatives only'):
        torch.autograd.functional.hvp(f, torch.ones(2), torch.ones(2))
