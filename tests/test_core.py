"What layers share: checks and tools that later layers rely on."
import pytest
import torch

from eqtutor.core import check_divides, check_grid, once_differentiable
from eqtutor.groups import C, D


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
