"What layers share: checks and tools that later layers rely on."
import pytest
import torch

from eqtutor.core import once_differentiable


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
