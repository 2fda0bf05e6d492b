"What attentive convolutions withstand: wrong arguments, autocast, no images, compilers."
import copy
import pickle

import pytest
import torch

from eqtutor.nn.attentive import AttentiveGroupConv2d, AttentiveLiftingConv2d, PairAttention

ATTEND = 'full', 'channel', 'spatial', 'input', 'rotation'


def group_layer(attend='full', **options):
    return AttentiveGroupConv2d(3, 4, 3, 'p4', attend=attend, **options)


def lifting_layer(attend='full', **options):
    return AttentiveLiftingConv2d(3, 4, 3, 'p4', attend=attend, **options)


def an_input(layer, b=2, size=(6, 6)):
    poses = () if layer.lifts else (len(layer.group),)
    return torch.randn(b, layer.in_channels, *poses, *size)


# --- bad input

@pytest.mark.parametrize('arguments, message', [
    (dict(attend='all'), "'full', 'channel', 'spatial', 'input', 'rotation'"),
    (dict(chunk=0), 'chunk must be a positive int'),
    (dict(chunk='all'), 'chunk must be a positive int'),
    (dict(hidden=0), 'hidden must be a positive int'),
    (dict(reduction=0), 'reduction must be a positive int'),
    (dict(attention_kernel=4), 'expected an odd attention_kernel, got 4'),
    (dict(attend='input', attention_kernel=4), 'expected an odd attention_kernel, got 4'),
    (dict(padding='same', attention_dilation=0), 'attention_dilation must be a positive int'),
])
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message): group_layer(**arguments)


def test_a_branch_wants_an_odd_window():
    layer = group_layer()
    with pytest.raises(ValueError, match='expected an odd kernel_size, got 6'):
        PairAttention(3, 4, layer.branch.window, layer.group, kernel_size=6)


@pytest.mark.parametrize('attend', ATTEND)
def test_wrong_inputs_are_refused(attend):
    layer, lifting = group_layer(attend), lifting_layer(attend)
    image, on_p4, on_p4m = (torch.randn(2, 3, *poses, 6, 6) for poses in ((), (4,), (8,)))
    with pytest.raises(ValueError, match='looks like an image'): layer(image)
    with pytest.raises(ValueError, match=r'\|H\| = 4'): layer(on_p4m)
    with pytest.raises(ValueError, match='expected a feature map'): layer.attention(image)
    with pytest.raises(ValueError, match='expected an image'): lifting(on_p4)


@pytest.mark.parametrize('attend', ATTEND)
def test_a_stride_that_breaks_the_symmetry_is_refused(attend):
    layer = group_layer(attend, stride=2)
    with pytest.raises(ValueError, match='stride 2 on height 6'): layer(an_input(layer))


@pytest.mark.parametrize('attend', ['input', 'rotation'])
def test_attention_on_the_input_has_no_factors(attend):
    layer = group_layer(attend)
    with pytest.raises(ValueError, match=r'use \.attention\(x\)'): layer.factors(an_input(layer))


# --- precision, empty batches, chunks

@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
def test_full_attention_stays_in_the_precision_of_the_weights_under_autocast(attend):
    layer = group_layer(attend, padding=1)
    f = an_input(layer)
    expected = layer(f)
    with torch.autocast('cpu', torch.bfloat16): y = layer(f)
    assert torch.equal(y, expected)


@pytest.mark.parametrize('attend', ['input', 'rotation'])
def test_attention_on_the_input_runs_under_autocast(attend):
    layer = group_layer(attend, padding=1)
    f = an_input(layer)
    expected = layer(f)
    with torch.autocast('cpu', torch.bfloat16): y = layer(f)
    torch.testing.assert_close(y.float(), expected, rtol=.1, atol=.1)


@pytest.mark.parametrize('make', [group_layer, lifting_layer])
@pytest.mark.parametrize('attend', ['full', 'channel', 'spatial'])
def test_no_images_give_an_empty_output(make, attend):
    layer = make(attend)
    y = layer(an_input(layer, b=0))
    y.sum().backward()
    assert y.shape == (0, 4, 4, 4, 4)


def test_large_inputs_are_computed_in_chunks():
    layer, fixed = (AttentiveGroupConv2d(3, 64, 3, 'p4', chunk=chunk) for chunk in ('auto', 5))
    inputs = [torch.empty(b, 3, 4, 16, 16) for b in (1, 64, 4096)]
    assert [layer.chunk_for(x) for x in inputs] == [None, 2, 1]
    assert [fixed.chunk_for(x) for x in inputs] == [5, 5, 5]


# --- the state, and where the tables are

@pytest.mark.parametrize('attend, names', [
    ('full', ['channel.squeeze', 'channel.excite', 'spatial.weight']),
    ('channel', ['channel.squeeze', 'channel.excite']),
    ('spatial', ['spatial.weight']),
    ('input', ['squeeze.weight', 'excite.weight', 'spatial.weight']),
    ('rotation', ['scores.weight']),
])
@pytest.mark.parametrize('make', [group_layer, lifting_layer])
def test_the_state_holds_the_parameters_and_no_tables(make, attend, names):
    layer = make(attend)
    expected = ['weight', 'bias', *(f'branch.{name}' for name in names)]
    assert [name for name, _ in layer.named_parameters()] == expected
    assert set(layer.state_dict()) == set(expected)


WAYS = {
    'deep copy': copy.deepcopy,
    'pickle': lambda layer: pickle.loads(pickle.dumps(layer)),
    'double and back': lambda layer: copy.deepcopy(layer).double().float(),
}


@pytest.mark.parametrize('way', WAYS.values(), ids=WAYS)
@pytest.mark.parametrize('attend', ATTEND)
@pytest.mark.parametrize('kind', [AttentiveGroupConv2d, AttentiveLiftingConv2d])
def test_a_copy_computes_the_same(kind, attend, way):
    layer = kind(3, 4, 3, 'p4m', attend=attend, padding=1)
    f = an_input(layer)
    assert torch.equal(way(layer)(f), layer(f))


def test_a_new_layer_computes_in_inference_mode_and_trains_after_it():
    with torch.inference_mode():
        layer = group_layer(padding=1)
        y = layer(an_input(layer))
    assert y.isfinite().all()
    with torch.inference_mode(): state = {k: v.clone() for k, v in layer.state_dict().items()}
    other = group_layer(padding=1)
    with torch.inference_mode(): other(an_input(other))
    with torch.no_grad(): other.load_state_dict(state)
    other(an_input(other)).sum().backward()
    assert other.branch.channel.squeeze.grad.abs().max() > 0


# --- compilers

@pytest.mark.slow
@pytest.mark.parametrize('attend, chunk, backend', [
    ('full', None, 'inductor'), ('full', 1, 'inductor'), ('channel', None, 'aot_eager'),
    ('channel', 1, 'aot_eager'), ('spatial', None, 'aot_eager'), ('input', None, 'aot_eager'),
])
def test_a_compiled_layer_computes_the_same(attend, chunk, backend):
    layer = AttentiveGroupConv2d(2, 2, 3, 'p4', attend=attend, chunk=chunk)
    f = an_input(layer).requires_grad_()
    fast = torch.compile(layer, fullgraph=True, backend=backend)
    torch.testing.assert_close(fast(f), layer(f), rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(m(f).square().sum(), f)[0] for m in (fast, layer)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_one_graph_serves_all_sizes_of_a_batch():
    torch.compiler.reset()
    layer = AttentiveGroupConv2d(2, 2, 3, 'p4')
    counter = torch._dynamo.testing.CompileCounterWithBackend('aot_eager')
    fast = torch.compile(layer, fullgraph=True, backend=counter)
    for b in range(2, 12): assert len(fast(torch.randn(b, 2, 4, 5, 5))) == b
    assert counter.frame_count <= 2    # the first size, then any
