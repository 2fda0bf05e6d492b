"What the kernels of attentive convolution withstand: few bits, no samples, compilers."
import pytest
import torch

from eqtutor.kernels import attentive
from eqtutor.kernels.attentive import (
    filter_each,
    patches_at,
    peaks,
    removed_from,
    statistics,
    sum_and_max,
    sum_products,
    window_means,
)
from eqtutor.kernels.native import find_compiler
from eqtutor.kernels.windows import Window
from eqtutor.nn import AttentiveGroupConv2d

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
    place, bank = peaks(w[0], x, WINDOW), torch.randn(2, 2, 5, 1, 3, 3)
    filters = w[0].unflatten(-2, (5, 1)).unflatten(-1, (3, 3))
    removed = removed_from(filters, bank, x, WINDOW, None, None, 1).total
    for y in (sum_and_max(w, x, WINDOW)[1], patches_at(x, place, WINDOW).square(),
              statistics(w[0], x, WINDOW)[1].square(), removed,
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


PLANES = [(9, 8), (5, 4), (12, 26), (4, 33)]
SIZES = [(2, 3, 2, 5, 1), (1, 1, 1, 1, 4), (2, 4, 3, 3, 4), (1, 2, 2, 1, 9)]
WINDOWS = [Window(3, 1, 0, 1), Window(3, 2, 2, 1), Window(1, 1, 0, 1), Window(5, 1, 4, 1),
           Window(7, 2, 3, 1), Window(4, 1, 0, 1), Window(3, 1, 1, 2), Window(2, 1, 2, 1)]

def removed(filters, bank, x, window, dilation):
    "What attention removes, and all gradients."
    def gate(mean, top): return (mean - top).sigmoid()
    y = removed_from(filters, bank, x, window, None, gate, dilation).total
    weights = torch.arange(y.numel(), dtype=y.dtype).sin().view_as(y)
    return y, *torch.autograd.grad(y, (filters, bank, x), weights)

@pytest.mark.skipif(find_compiler() is None, reason='no C compiler, or EQTUTOR_NATIVE=0')
@pytest.mark.parametrize('size, planes', [*zip(SIZES, PLANES)], ids=str)
@pytest.mark.parametrize('k, dilation', [(7, 1), (3, 2), (1, 1), (9, 1)])
@pytest.mark.parametrize('window', WINDOWS, ids=str)
def test_c_computes_what_torch_does(window, k, dilation, size, planes, monkeypatch):
    "Numbers and gradients; where C does not know the window, torch computes twice."
    torch.manual_seed(0)
    (b, q, i, o, poses), entries = size, window.kernel_size
    if entries > 4 and min(planes) < 6: planes = planes[0] + 9, planes[1] + 9   # where it fits
    filters = torch.randn(q, i, o, poses, entries, entries, dtype=torch.double)
    bank = torch.randn(q, 2, o, poses, k, k, dtype=torch.double)/k
    x = torch.randn(b, i, q, *planes, dtype=torch.double).transpose(1, 2)
    given = *(t.requires_grad_() for t in (filters, bank, x)), window, dilation
    fast = removed(*given)
    monkeypatch.setattr(attentive, 'runs_native', lambda *tensors: False)
    slow = removed(*given)
    same = all(torch.equal(a, c) for a, c in zip(fast, slow))
    assert same == (window.stride > 1 or window.padding > window.dilation*(entries - 1))
    for a, c in zip(fast, slow): torch.testing.assert_close(a, c, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('size', [(2, 8), (8, 2), (2, 2), (1, 1)])
def test_a_window_larger_than_the_plane_is_refused(size):
    x = torch.randn(1, 2, 3, *size, requires_grad=True)
    with pytest.raises(ValueError, match='smaller than the window.*at least 3×3'):
        statistics(torch.randn(2, 3, 4, 9), x, Window(3, 1, 0, 1))


def test_who_computes_is_decided_once():
    "Chunks are computed again in backward, there perhaps with no counter around."
    from torch.utils.flop_counter import FlopCounterMode
    layer = AttentiveGroupConv2d(2, 4, 3, 'p4', padding=1, chunk=2)
    f = torch.randn(1, 2, 4, 6, 6, requires_grad=True)
    want, = torch.autograd.grad(layer(f).square().sum(), f)
    with FlopCounterMode(display=False): y = layer(f).square().sum()
    torch.testing.assert_close(torch.autograd.grad(y, f)[0], want, rtol=1e-4, atol=1e-5)
    y = layer(f).square().sum()
    with FlopCounterMode(display=False): got, = torch.autograd.grad(y, f)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_no_number_stays_none():
    x = torch.randn(1, 1, 2, 5, 9)
    x[0, 0, 0, 2, 2] = torch.nan
    filters, bank = torch.randn(1, 2, 1, 1, 3, 3), torch.randn(1, 2, 1, 1, 3, 3)
    y = removed_from(filters, bank, x, WINDOW, None, None, 1).total
    assert y[0, 0, 2, 2].isnan() and y[0, 0, 4, 8].isfinite()


@pytest.mark.slow
def test_the_operators_shown_to_compilers_keep_their_word():
    "Schema, shapes of the results, gradients."
    w = torch.randn(2, 2, 3, 5, 9, requires_grad=True)
    x = torch.randn(2, 2, 3, 7, 8, requires_grad=True)
    torch.library.opcheck(attentive._sum_and_max, (w, x, list(WINDOW)))
    torch.library.opcheck(attentive._peaks, (torch.randn(2, 3, 5, 9), x.detach(), list(WINDOW)))
    if find_compiler() is None: return
    psi, gate = (torch.randn(s, requires_grad=True) for s in ((2, 3, 5, 9), (2, 2, 5, 7, 7)))
    torch.library.opcheck(attentive._statistics, (psi, x, list(WINDOW)))
    torch.library.opcheck(attentive._removed, (w, x, gate, list(WINDOW), 1))


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
