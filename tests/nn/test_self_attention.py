"Group self-attention as users treat it: bad input, half precision, lent weights, dropout, export."
import copy
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.actions import act, act_points
from eqtutor.cost import count_macs, count_parameters, layer_costs
from eqtutor.equivariance import assert_equivariant, perturb_
from eqtutor.groups import get_group
from eqtutor.nn.self_attention import (
    GroupSelfAttention2d,
    LiftingSelfAttention2d,
    PositionalEncoding,
    moved_offsets,
    pose_index,
)

LAYERS = [LiftingSelfAttention2d, GroupSelfAttention2d]
both = pytest.mark.parametrize('cls', LAYERS)
neighbourhoods = pytest.mark.parametrize('window', [5, None])


def inputs(layer, size, b=2, dtype=torch.float64):
    "A seeded input for a layer."
    poses = () if layer.lifts else (len(layer.group),)
    noise = torch.Generator().manual_seed(1)
    return torch.randn(b, layer.in_channels, *poses, *size, dtype=dtype, generator=noise)


def perturbed(cls, group='p4', **options):
    "A small layer as after training."
    torch.manual_seed(0)
    layer = cls(3, 4, group, heads=2, head_channels=5, **options)
    return perturb_(layer.double()).eval()


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


BAD_ARGUMENTS = [
    (dict(window=4), 'use 3 or 5'), (dict(heads=0), 'heads must be a positive int'),
    (dict(window=0), 'window must be a positive int'),
    (dict(value_dropout=1.), 'value_dropout must be at least 0 and below 1'),
    (dict(attention_dropout=-.1), 'attention_dropout must be at least 0 and below 1'),
    (dict(encoding='absolute'), "'relative', 'target', 'printed', 'none'"),
    (dict(encoding='published'), "'relative', 'target', 'printed', 'none'"),
    (dict(group='p5'), 'unknown group')]

@both
@pytest.mark.parametrize('bad, message', BAD_ARGUMENTS)
def test_refuses_bad_arguments(cls, bad, message):
    with pytest.raises((ValueError, KeyError), match=message): cls(3, 4, **dict(group='p4') | bad)

@pytest.mark.parametrize('width, kind, message', [
    (2, 'split', "use kind='plane'"), (4, 'cube', "'plane', 'split'")])
def test_the_encoding_refuses_bad_arguments(width, kind, message):
    with pytest.raises(ValueError, match=message): PositionalEncoding(width, 'p4', kind=kind)

@pytest.mark.parametrize('cls, shape, message', [
    (GroupSelfAttention2d, (1, 3, 6, 6), 'looks like an image'),
    (LiftingSelfAttention2d, (1, 3, 4, 6, 6), 'expected an image'),
    (GroupSelfAttention2d, (1, 3, 4, 6, 8), 'crop=3 expects more than 6')])
def test_refuses_bad_input(cls, shape, message):
    with pytest.raises(ValueError, match=message): cls(3, 4, 'p4', crop=3)(torch.randn(shape))

def test_refuses_a_pixel_outside_the_image():
    layer = GroupSelfAttention2d(3, 4, 'p4')
    with pytest.raises(ValueError, match='outside the image of 6×6'):
        layer.attention(torch.randn(1, 3, 4, 6, 6), -1, 3)

def test_derived_tables_stay_out_of_the_checkpoint():
    keys = sorted(GroupSelfAttention2d(3, 4, 'p4').state_dict())
    assert keys[:2] == ['encoder.mlps.0.0.bias', 'encoder.mlps.0.0.weight']
    assert not any('index' in key for key in keys)

def test_print_shows_the_group(): assert 'group=C4' in repr(GroupSelfAttention2d(3, 4, 'p4'))

@both
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_scores_beyond_half_precision_stay_finite(cls, dtype):
    torch.manual_seed(0)
    layer = cls(3, 4, 'p4', heads=2).to(dtype)
    f = inputs(layer, (6, 6), dtype=dtype)
    with torch.no_grad():
        for m in (layer.query, layer.key): m.weight.mul_(400/m.weight.abs().max())
    q, kv = layer.queries_keys_values(f[:, :, None] if layer.lifts else f)
    assert (q @ kv.chunk(2, -1)[0].mT).abs().max() > 1e4
    y = layer(f.requires_grad_())
    y.sum().backward()
    assert y.dtype == dtype and y.std() > 0
    for t in (y, f.grad, *(p.grad for p in layer.parameters())): assert t.isfinite().all()

@both
@pytest.mark.parametrize('size', [(7, 7), (3, 9), (12, 5)])
def test_one_layer_takes_images_of_any_size(cls, size):
    layer = perturbed(cls)
    y = layer(inputs(layer, size, b=1))
    assert y.shape == (1, 4, 4, *size) and y.std() > .01

@both
@neighbourhoods
def test_takes_an_empty_batch(cls, window):
    layer = perturbed(cls, window=window)
    f = inputs(layer, (5, 6), b=0).requires_grad_()
    y = layer(f)
    y.sum().backward()
    assert y.shape == (0, 4, 4, 5, 6) and f.grad.shape == f.shape

@both
@neighbourhoods
def test_inference_mode_changes_nothing(cls, window):
    layer = perturbed(cls, window=window)
    f = inputs(layer, (5, 6))
    want = layer(f).detach()
    with torch.inference_mode():
        close(layer(f), want)
        frozen = f.clone()
        close(layer(frozen), want)
    close(layer.requires_grad_(False)(frozen), want)

def test_autocast_gives_its_precision():
    layer = LiftingSelfAttention2d(3, 4, 'p4', heads=2)
    with torch.autocast('cpu', torch.bfloat16): y = layer(torch.randn(2, 3, 6, 6))
    assert y.dtype == torch.bfloat16 and y.isfinite().all()

def test_what_is_recomputed_is_computed_in_the_same_precision(monkeypatch):
    layer, computed = LiftingSelfAttention2d(3, 4, 'p4', heads=2), []
    compute = layer.queries_keys_values
    def spy(*x): return computed.append(compute(*x)) or computed[-1]
    monkeypatch.setattr(layer, 'queries_keys_values', spy)
    with torch.autocast('cpu', torch.bfloat16): y = layer(torch.randn(2, 3, 6, 6))
    y.sum().backward()
    assert len(computed) == 2
    for a, b in zip(*computed): assert torch.equal(a, b)

def test_weights_lent_for_one_call_are_those_of_the_backward_pass():
    layer = perturbed(GroupSelfAttention2d)
    f = inputs(layer, (5, 5))
    lent = {n: (1.5*p.detach()).requires_grad_() for n, p in layer.named_parameters()}
    torch.func.functional_call(layer, lent, f).square().sum().backward()
    with torch.no_grad():
        for p in layer.parameters(): p.mul_(1.5)
    layer(f).square().sum().backward()
    for n, p in layer.named_parameters(): close(lent[n].grad, p.grad, 1e-8)

def test_weights_may_be_parametrised():
    layer = perturbed(GroupSelfAttention2d)
    f = inputs(layer, (5, 5))
    want = layer(f)
    nn.utils.parametrize.register_parametrization(layer.query, 'weight', nn.Identity())
    close(layer(f), want)

@pytest.mark.parametrize('encoding', ['relative', 'none'])
def test_the_output_may_be_changed_in_place(encoding):
    layer = perturbed(GroupSelfAttention2d, encoding=encoding)
    y = layer(inputs(layer, (5, 5)))
    want = y.detach().clone().relu()
    assert torch.equal(y.relu_(), want)

def test_a_weight_changed_before_the_backward_pass_is_an_error():
    layer = perturbed(GroupSelfAttention2d)
    y = layer(inputs(layer, (5, 5)))
    with torch.no_grad(): layer.key.weight.add_(1)
    with pytest.raises(RuntimeError, match='changed in place'): y.sum().backward()

def test_second_derivatives_are_an_error():
    layer = perturbed(GroupSelfAttention2d)
    f = inputs(layer, (5, 5))
    def cubic(f): return (layer(f) + f.sum()**3).sum()
    with pytest.raises(RuntimeError, match='first derivatives only'):
        torch.autograd.functional.hvp(cubic, f, torch.ones_like(f))

def euler(layer, f, run):
    "⟨parameter, gradient⟩ of the values, and ⟨y, g⟩: equal, since y is linear in the values."
    layer.zero_grad()
    y = run(f)
    g = torch.randn_like(y)
    (y*g).sum().backward()
    linear = layer.value.weight, layer.value.bias, layer.out.bias
    return sum((p*p.grad).sum() for p in linear).detach(), (y*g).sum().detach()

@pytest.mark.parametrize('encoding', ['relative', 'target'])
def test_the_backward_pass_draws_the_masks_of_the_forward_pass_again(encoding):
    rates = dict(attention_dropout=.3, value_dropout=.3)
    layer = perturbed(GroupSelfAttention2d, encoding=encoding, **rates)
    a, b = euler(layer.train(), inputs(layer, (8, 6)), layer)
    close(a, b, 1e-9)
    assert b.abs() > .1

@pytest.mark.slow
def test_compiled_the_masks_meet_too():
    torch.manual_seed(0)
    layer = GroupSelfAttention2d(3, 4, 'p4', 3, heads=2, attention_dropout=.5, value_dropout=.5)
    f = inputs(layer, (6, 6), dtype=torch.float32)
    close(*euler(layer, f, torch.compile(layer, fullgraph=True)), 1e-3)

def spread(y): return (y - y[:, :, :1]).abs().max()

@pytest.mark.parametrize('encoding', ['relative', 'target'])
def test_one_dropout_mask_serves_all_poses(encoding):
    "With a window of 1, and no word of h in the encoding, the output stays constant over H."
    layer = perturbed(GroupSelfAttention2d, window=1, encoding=encoding, attention_dropout=.5)
    layer.train()
    with torch.no_grad(): layer.encoder.pose.weight.zero_()
    f = inputs(layer, (3, 4))
    y = layer(f)
    assert spread(y) < 1e-12 < .01 < (y - layer(f)).abs().max()

def test_dropout_is_off_in_evaluation_and_right_on_average():
    torch.manual_seed(0)
    layer = perturbed(GroupSelfAttention2d, window=1, attention_dropout=.5).train()
    f = inputs(layer, (3, 4))
    y, want = layer(f), perturbed(GroupSelfAttention2d, window=1)(f)
    mean = torch.stack([layer(f) for _ in range(400)]).mean(0)
    assert (mean - want).abs().max() < .2*(y - layer(f)).abs().max()
    close(layer.eval()(f), want)

def test_values_are_dropped():
    layer = perturbed(GroupSelfAttention2d, value_dropout=.5)
    f = inputs(layer, (5, 5))
    assert (layer.train()(f) - layer(f)).abs().max() > .01
    close(layer.eval()(f), layer(f))

@pytest.mark.parametrize('cls, options, size, batch', [
    (GroupSelfAttention2d, dict(), (28, 28), 16), (LiftingSelfAttention2d, dict(), (28, 28), 16),
    (GroupSelfAttention2d, dict(window=None, heads=3), (18, 18), 2)])
def test_the_cost_is_the_count_where_a_batch_is_split(cls, options, size, batch):
    layer = cls(8, 8, 'p4', **options)
    f = inputs(layer, size, b=batch, dtype=torch.float32)
    plan = layer.plan(f.shape)
    assert plan.images < batch or plan.tile[0] < size[0]
    cost, = layer_costs(layer, f)
    assert cost.macs == count_macs(layer, f)

def test_any_plan_gives_the_same_output(monkeypatch):
    layer = perturbed(GroupSelfAttention2d)
    f = inputs(layer, (6, 7), b=5)
    want, plan = layer(f), layer.plan(f.shape)
    for change in (dict(images=2), dict(size=1), dict(images=3, size=4), dict(images=None, size=1)):
        monkeypatch.setattr(layer, 'plan', lambda shape, change=change: replace(plan, **change))
        close(layer(f), want)

EXPORTS = [dict(), dict(window=None, crop=1), dict(encoding='target', positions='split', window=3)]

@pytest.mark.parametrize('cls, options', [(LiftingSelfAttention2d, EXPORTS[0]),
                                          *((GroupSelfAttention2d, more) for more in EXPORTS)])
def test_torch_export_with_a_dynamic_batch(cls, options):
    layer = perturbed(cls, **options)
    shapes, example = ({0: torch.export.Dim('batch')},), inputs(layer, (7, 8))
    program = torch.export.export(layer, (example,), dynamic_shapes=shapes).module()
    for b in (1, 2, 5):
        f = inputs(layer, (7, 8), b=b)
        close(program(f), layer(f), 1e-10)
    assert layer(f).std(0).min() > 0

def meta_and_assign(cls):
    with torch.device('meta'): layer = cls(3, 4, 'p4', heads=2, head_channels=5).double()
    layer.load_state_dict(perturbed(cls).state_dict(), assign=True)
    return layer.eval()

WAYS = [meta_and_assign, lambda cls: copy.deepcopy(perturbed(cls)),
        lambda cls: pickle.loads(pickle.dumps(perturbed(cls))),
        lambda cls: perturbed(cls).to('cpu', torch.float64)]

@both
@pytest.mark.parametrize('way', WAYS, ids=['meta', 'deepcopy', 'pickle', 'to'])
def test_tables_follow_the_weights(cls, way):
    layer, want = way(cls), perturbed(cls)
    f = inputs(want, (5, 6))
    assert torch.equal(layer(f), want(f))

@pytest.mark.parametrize('group', ['p4', 'p4m', 'C8'])
@pytest.mark.parametrize('reach', [(1, 1), (2, 1)])
def test_offsets_are_listed_row_by_row_and_moved_back(group, reach):
    p = moved_offsets(group, reach)
    assert p[0, 0].tolist() == [-reach[1], reach[0]]      # top left
    for h in range(p.shape[1]): close(act_points(group, h, p[:, h]), p[:, 0], 1e-14)

@pytest.mark.parametrize('kind', ['plane', 'split'])
def test_the_encoding_of_a_pose_is_that_of_the_first_pose_turned(kind):
    encoding = PositionalEncoding(10, 'p4m', kind=kind).double()
    table = encoding((2, 2)).unflatten(0, (5, 5)).permute(2, 3, 0, 1)   # (|H|, d, y, x)
    for h in range(8): close(act('p4m', h, table[:1]), table[h:h + 1], 1e-14)
    poses = encoding.poses()
    assert poses.shape == (8, 10) and (kind == 'plane') == bool(poses[:, :6].any())

@pytest.mark.parametrize('group', ['mirror', 'p4', 'p4m'])
def test_tables_of_the_index(group):
    H = get_group(group)
    h, t, s = torch.meshgrid(*[torch.arange(len(H))]*3, indexing='ij')
    want = dict(relative=H.relative[t, s], target=H.relative[h, s],
                printed=H.mul[H.inv[h], H.relative[t, s]])
    for encoding, table in want.items():
        assert torch.equal(pose_index(H, encoding, False).expand_as(table), table)

@pytest.mark.parametrize('window', [3, None])
def test_attention_sums_to_one_and_mixes_the_values(window):
    layer = perturbed(GroupSelfAttention2d, window=window)
    f = inputs(layer, (4, 5))
    a = layer.attention(f, 0, 3)
    close(a.sum((4, 5, 6)), torch.ones(2, 2, 4, 4, dtype=torch.float64))
    v = layer.queries_keys_values(f)[1].chunk(2, -1)[1]
    if window: v = F.pad(v, (0, 0, 1, 1, 1, 1))[:, :, :, 0:3, 3:6]
    y = torch.einsum('bnRSQyx,bnQyxd->bRnd', a, v).flatten(2)
    close(layer.out(y).transpose(1, 2), layer(f)[..., 0, 3], 1e-10)

def test_what_is_out_of_reach_has_no_share():
    layer = perturbed(GroupSelfAttention2d)
    y = layer(torch.ones(1, 3, 4, 6, 6, dtype=torch.float64))
    close(y, y[..., :1, :1].expand_as(y), 1e-10)
    assert y.std() > .01

def test_without_an_encoding_any_order_of_the_pixels_is_as_good():
    layer = perturbed(GroupSelfAttention2d, window=None, encoding='none')
    f, order = inputs(layer, (3, 4)), torch.randperm(12)
    y, shuffled = layer(f), layer(f.flatten(3)[..., order].unflatten(3, (3, 4)))
    close(shuffled, y.flatten(3)[..., order].view_as(y))
    assert spread(y) == 0 and y.std() > .01

def test_global_lifting_is_torchs_own_attention_once_a_pose():
    layer = perturbed(LiftingSelfAttention2d, window=None)
    x = inputs(layer, (5, 4))
    q, kv = layer.queries_keys_values(x[:, :, None])
    q, k, v = (t[:, :, 0].flatten(2, 3) for t in (q, *kv.chunk(2, -1)))
    table, places = layer.encoder((4, 3)).view(9, 7, 4, 5), torch.arange(20)
    rows, cols = places//4, places % 4
    codes = table[rows - rows[:, None] + 4, cols - cols[:, None] + 3]
    masks = torch.einsum('bnqd,qkhd->hbnqk', q, codes)
    poses = [F.scaled_dot_product_attention(q, k, v, mask, scale=1.) for mask in masks]
    y = torch.stack(poses, 1).permute(0, 1, 3, 2, 4).flatten(3).unflatten(2, (5, 4))
    close(layer.out(y).movedim(-1, 1), layer(x), 1e-10)

@both
@pytest.mark.parametrize('options', [
    dict(crop=1), dict(positions='split', head_channels=6), dict(window=7),
    dict(window=None, crop=1)])
def test_equivariant_with_every_option(cls, options):
    layer = cls(3, 4, 'p4', heads=2, **options).double()
    f = inputs(layer, (5, 6), b=1)
    assert_equivariant(layer, f, 'p4')
    assert_equivariant(perturb_(layer), f, 'p4')
    assert_equivariant(layer.float(), f.float(), 'p4')

@both
@pytest.mark.parametrize('options', [
    dict(), dict(window=3, positions='split', head_channels=6), dict(crop=2), dict(window=None),
    dict(window=None, crop=1), dict(encoding='target'), dict(encoding='none')])
def test_cost_by_formula_and_by_counting(cls, options):
    layer = cls(3, 8, 'p4', heads=2, **options)
    f = inputs(layer, (8, 6), dtype=torch.float32)
    cost, = layer_costs(layer, f)
    assert cost.parameters == count_parameters(layer) and cost.macs == count_macs(layer, f)
