"What the kernels of attentive convolution withstand: few bits, no samples, compilers."
import pytest
import torch

from eqtutor.kernels import attentive
from eqtutor.kernels.attentive import (Window, filter_each, patches_at, peaks, sum_and_max,
                                       sum_products, window_means)

WINDOW = Window(kernel_size=3, dilation=1, padding=1, stride=1)


def test_the_channel_of_a_maximum_is_exact_above_256_in_bfloat16():
    "bfloat16 has no odd whole numbers above 256."
    filters = torch.zeros(1, 1, 600, 1, 9, dtype=torch.bfloat16)
    planes = torch.zeros(1, 1, 600, 4, 4, dtype=torch.bfloat16)
    filters[..., 4] = 1
    planes[:, :, 299:302] = torch.tensor([.5, 1, .5]).view(3, 1, 1)
    planes.requires_grad_()
    gradient, = torch.autograd.grad(sum_and_max(filters, planes, WINDOW)[1].sum(), planes)
    assert gradient.abs().sum((0, 1, 3, 4)).nonzero().flatten().tolist() == [300]


@pytest.mark.parametrize('channels, dtype', [(255, torch.uint8), (256, torch.int16)])
def test_the_channel_of_a_maximum_is_kept_in_as_few_bytes_as_hold_it(channels, dtype):
    filters, planes = torch.randn(1, 1, channels, 1, 9), torch.randn(1, 1, channels, 4, 4)
    winner = attentive._sum_and_max(filters, planes, WINDOW)[2]
    products = filters @ WINDOW.unfold(planes)
    assert winner.dtype == dtype
    assert torch.equal(winner.long(), products.argmax(2) + 1)


def test_second_derivatives_are_refused():
    w = torch.randn(1, 2, 3, 5, 9, requires_grad=True)
    x = torch.randn(1, 2, 3, 6, 7, requires_grad=True)
    place = peaks(w[0], x, WINDOW)
    for y in (sum_and_max(w, x, WINDOW)[1], patches_at(x, place, WINDOW).square(),
              filter_each(x[0], w[0, 0, :, 0].unflatten(-1, (3, 3)), 2).square()):
        with pytest.raises(RuntimeError, match='first derivatives only'):
            torch.autograd.grad(y.sum(), x, create_graph=True)


def test_second_derivatives_are_refused_where_the_sum_alone_has_some():
    "torch's own `once_differentiable` lets `hvp` pass, with wrong numbers."
    w, x = torch.randn(1, 2, 3, 5, 9, requires_grad=True), torch.randn(1, 2, 3, 6, 7)
    def cubic(x): return (sum_and_max(w, x, WINDOW)[1] + x.sum()**3).sum()
    with pytest.raises(RuntimeError, match='first derivatives only'):
        torch.autograd.functional.hvp(cubic, x, torch.ones_like(x))


def test_no_samples_give_empty_results_and_gradients():
    w = torch.zeros(0, 2, 3, 5, 9, requires_grad=True)
    x = torch.zeros(0, 2, 3, 6, 7, requires_grad=True)
    place = peaks(torch.randn(2, 3, 5, 9), x, WINDOW)
    assert place.shape == (0, 2, 3, 5)
    assert window_means(x, WINDOW).shape == (0, 2, 3, 9)
    total, top = sum_and_max(w, x, WINDOW)
    assert total.shape == top.shape == (0, 2, 5, 6, 7)
    (total + top).sum().backward()
    assert w.grad.shape == w.shape
    assert x.grad.shape == x.shape


@pytest.mark.slow
def test_the_operators_shown_to_compilers_keep_their_word():
    "Schema, shapes of the results, gradients."
    w = torch.randn(2, 2, 3, 5, 9, requires_grad=True)
    x = torch.randn(2, 2, 3, 7, 8, requires_grad=True)
    torch.library.opcheck(attentive._sum_and_max_op, (w, x, list(WINDOW)))
    torch.library.opcheck(attentive._peaks_op, (torch.randn(2, 3, 5, 9), x.detach(), list(WINDOW)))


@pytest.mark.slow
@pytest.mark.parametrize('kernel', [sum_and_max, sum_products], ids=lambda f: f.__name__)
def test_a_compiled_kernel_computes_the_same(kernel):
    w = torch.randn(2, 2, 3, 5, 9, requires_grad=True)
    x = torch.randn(2, 2, 3, 7, 8, requires_grad=True)
    fast = torch.compile(kernel, fullgraph=True, backend='aot_eager')
    for f in (fast, kernel):
        y = f(w, x, WINDOW)
        y = y if isinstance(y, tuple) else (y,)
        f.results = [*y, *torch.autograd.grad([v.square().sum() for v in y], (w, x))]
    for a, b in zip(fast.results, kernel.results):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
