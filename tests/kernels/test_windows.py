"What the window operators withstand: `torch.func`, few bits, compilers, wrong shapes."
import pytest
import torch

from eqtutor.kernels.windows import Window, window_mask, window_scores, window_sum

SHAPES = dict(w=(1, 2, 9, 3, 4), v=(1, 2, 2, 3, 4), psi=(2, 2, 9), q=(1, 2, 2, 3, 4))


def factors(dtype=torch.float64):
    "Weights, values, a factor for each offset and channel, queries."
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in SHAPES.values()]


def test_gradients_by_torch_func():
    w, v, psi, _ = factors()
    def loss(v): return window_sum(w, v, 3, psi).square().sum()
    want, = torch.autograd.grad(loss(v), v)
    assert want.abs().min() > 0
    got = torch.func.grad(loss)(v.detach())
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_what_vmap_batches_may_be_one_factor_alone():
    "A sum that is written in place would be too small for it."
    w, v, psi, q = (t.detach() for t in factors())
    many = torch.stack([w, -w, w.flip(2)])
    want = torch.stack([window_sum(w, v, 3, psi) for w in many])
    torch.testing.assert_close(torch.func.vmap(lambda w: window_sum(w, v, 3, psi))(many), want)
    many = torch.stack([q, -q])
    want = torch.stack([window_scores(q, v, 3, psi) for q in many])
    torch.testing.assert_close(torch.func.vmap(lambda q: window_scores(q, v, 3, psi))(many), want)


@pytest.mark.slow
@pytest.mark.parametrize('missing', range(4))
def test_the_operator_keeps_its_word(missing):
    "Schema, shapes and strides of the results, gradients."
    w, v, psi, q = factors()
    given = [w, psi[..., None, None].detach().requires_grad_(), v, q]
    given[missing] = None
    by = ('weights', 'scale', 'values', 'target')[missing]
    torch.library.opcheck(torch.ops.eqtutor.window_form.default, (by, [*Window.same(3)], 1, *given))


# --- few bits

def positive():
    "Weights and values, none of them negative: sums of them cancel nothing."
    torch.manual_seed(0)
    return torch.rand(1, 1, 25, 9, 9), torch.rand(1, 1, 4, 9, 9)

ONE_ROUNDING = 2**-8   # of bfloat16's 8 bits

def test_sums_of_half_precision_are_rounded_once():
    w, v = (t.bfloat16() for t in positive())
    half, exact = window_sum(w, v, 5), window_sum(w.double(), v.double(), 5)
    assert half.dtype == torch.bfloat16
    assert ((half - exact).abs()/exact).max() < ONE_ROUNDING

def test_scores_of_half_precision_are_rounded_once():
    _, v = (t.bfloat16() for t in positive())
    half, exact = window_scores(v, v, 5), window_scores(v.double(), v.double(), 5)
    assert half.dtype == torch.bfloat16
    assert ((half - exact).abs()/exact.clamp_min(1e-9)).max() < ONE_ROUNDING

@pytest.mark.parametrize('of_weights, of_sum', [
    (torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16),
    (torch.float64, torch.float64)])
def test_autocast_decides_instead_of_float32(of_weights, of_sum):
    "So that it saves memory where the memory is."
    w, v = positive()
    with torch.autocast('cpu', torch.bfloat16): y = window_sum(w.to(of_weights), v, 5)
    assert y.dtype == of_sum

def test_the_widest_dtype_decides_without_autocast():
    w, v = positive()
    assert window_sum(w.bfloat16(), v, 5).dtype == torch.float32


@pytest.mark.parametrize('backend', ['aot_eager', pytest.param('inductor', marks=pytest.mark.slow)])
def test_compiled_gradients_are_the_same(backend):
    def loss(w, v, psi, q):
        return window_sum(w, v, 3, psi).square().sum() + window_scores(q, v, 3, psi).square().sum()
    inputs = factors(torch.float32)
    want = torch.autograd.grad(loss(*inputs), inputs)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    got = torch.autograd.grad(compiled(*inputs), inputs)
    for a, b in zip(got, want): torch.testing.assert_close(a, b)


# --- what does not fit is refused, with the shape that would

V = 2, 2, 3, 6, 7

@pytest.mark.parametrize('weights, values, arguments, words', [
    ((2, 2, 16, 6, 7), V, (4,), 'odd kernel_size, got 4; use 3 or 5'),
    ((2, 1, 9, 6, 7), V, (3,), r'expected shape \(2, 2, 9, 6, 7\) .* got \(2, 1, 9, 6, 7\)'),
    ((2, 9, 6, 7), (2, 3, 6, 7), (3,), r'values \(b, heads, channels, …, h, w\)'),
    ((2, 2, 9, 6, 7), V, (3, torch.randn(3, 9)), r'scale: .* \(2, 3, 9\), got \(3, 9\)'),
    ((2, 2, 9, 6, 7), V, (3, None, 0), 'dilation must be a positive int .* got 0')])
def test_sum_refuses_what_does_not_fit(weights, values, arguments, words):
    with pytest.raises(ValueError, match=words):
        window_sum(torch.randn(weights), torch.randn(values), *arguments)

def test_scores_refuse_what_does_not_fit():
    keys = torch.randn(V)
    with pytest.raises(ValueError, match=r'queries: expected shape \(2, 2, 3, 6, 7\)'):
        window_scores(keys[..., :5], keys, 3)

@pytest.mark.parametrize('arguments, words', [
    ((4, 6, 7), 'odd kernel_size'), ((3, 0, 7), 'at least 1×1 pixels, got 0×7')])
def test_mask_refuses_what_does_not_fit(arguments, words):
    with pytest.raises(ValueError, match=words): window_mask(*arguments)
