"A mask of attention layers: places to which nobody listens."
from functools import partial

import pytest
import torch

from eqtutor import nn as layers
from eqtutor.actions import act
from eqtutor.equivariance import perturb_
from eqtutor.groups import get_group
from eqtutor.nn.self_attention import attention_scores

IMAGES = dict(
    window=partial(layers.SelfAttention2d, 4, 6, 3, 2),
    zero=partial(layers.SelfAttention2d, 4, 6, 3, 2, boundary='zero'),
    everywhere=partial(layers.SelfAttention2d, 4, 6, None, 2, size=(9, 9)),
    without=partial(layers.SelfAttention2d, 4, 6, None, 2, 'none'),
    sasa=partial(layers.StandAloneSelfAttention2d, 4, 8, 3, 2),
    affine=partial(layers.AffineSelfConv2d, 4, 6, 3, 2),
    simple=partial(layers.SimpleAffineSelfConv2d, 4, 6, 3, 2))
SOME = dict(heads=2, head_channels=3)
ON_GROUP = {
    f'{name} {group} {window}': partial(cls, 4, 6, group, window, **SOME)
    for group in ('p4', 'p4m') for window in (3, None)
    for name, cls in (('lift', layers.LiftingSelfAttention2d),
                      ('group', layers.GroupSelfAttention2d))} | {
    f'{cls.__name__} {group}': partial(cls, 4, 6, 3, group, 2)
    for group in ('p4', 'p4m')
    for cls in (layers.LiftingAffineSelfConv2d, layers.GroupAffineSelfConv2d,
                layers.GroupSimpleAffineSelfConv2d)} | {
    'e4': partial(layers.E4Conv2d, 4, 4, 3, 'p4', norm='layer'),
    'e4 dilated': partial(layers.E4Conv2d, 4, 4, 3, 'p4m', norm='none', dilation=2, bias=True)}
ALL = IMAGES | ON_GROUP


def made(name, size=(6, 7)):
    "A perturbed layer in float64, an input, and a mask: a corner, a row, single places."
    torch.manual_seed(0)
    layer = perturb_(ALL[name](dtype=torch.float64)).eval()
    image = name in IMAGES or getattr(layer, 'lifts', False)
    poses = () if image else (len(layer.group) if hasattr(layer, 'group') else 4,)
    x = torch.randn(2, 4, *poses, *size, dtype=torch.float64)
    ignored = torch.zeros(2, *size, dtype=torch.bool)
    ignored[0, :2, :3] = ignored[1, 3] = ignored[:, -1, -1] = ignored[1, 0, 1] = True
    return layer, x, ignored


@pytest.mark.parametrize('name', ALL)
def test_what_is_ignored_is_heard_by_nobody_and_the_rest_is(name):
    layer, x, ignored = made(name)
    y, places = layer(x, ignored), ignored.view(2, *[1]*(x.ndim - 3), *ignored.shape[1:])
    other = layer(torch.where(places, x + torch.randn_like(x), x), ignored)
    stay = ~ignored.view(2, *[1]*(y.ndim - 3), *ignored.shape[1:])
    torch.testing.assert_close(y*stay, other*stay, rtol=0, atol=1e-12)
    assert ((y - layer(x))*stay).abs().max() > 1e-3      # the mask does something
    torch.testing.assert_close(layer(x, torch.zeros_like(ignored)), layer(x))


@pytest.mark.parametrize('name', [n for n in ALL if n != 'zero'])
def test_a_picture_in_a_frame_to_ignore_is_the_picture(name):
    "What a padded batch is for: pictures of several sizes."
    layer, x, _ = made(name, (5, 4))
    frame = torch.randn(*x.shape[:-2], 8, 8, dtype=torch.float64)
    frame[..., 2:7, 1:5] = x
    ignored = torch.ones(2, 8, 8, dtype=torch.bool)
    ignored[:, 2:7, 1:5] = False
    torch.testing.assert_close(layer(frame, ignored)[..., 2:7, 1:5], layer(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize('name', ON_GROUP)
def test_it_is_equivariant_when_the_mask_turns_along(name):
    layer, x, ignored = made(name)
    y, marks = layer(x, ignored), ignored[:, None].double()
    for h in layer.group.elements:
        turned = layer(act(layer.group, h, x), act(layer.group, h, marks)[:, 0] > .5)
        want = act(layer.group, h, y)
        torch.testing.assert_close(turned, want, rtol=0, atol=1e-10*y.abs().max().item())
    still = layer(act(layer.group, 1, x[..., :6]), ignored[..., :6])  # the twin: it stays
    want = act(layer.group, 1, layer(x[..., :6], ignored[..., :6]))
    assert (still - want).abs().max() > 1e-2


@pytest.mark.parametrize('name', ALL)
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
def test_where_all_is_ignored_there_are_numbers_and_gradients(name, dtype):
    layer, x, ignored = made(name)
    layer, x = layer.to(dtype), x.to(dtype).requires_grad_()
    ignored[0] = True
    ignored[1, :4, :5] = True
    y = layer(x, ignored)
    y.square().sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
    # an answer from nothing: the output map's bias, the same at every place
    if name.startswith('e4'): return
    assert (y[0] - y[0, ..., :1, :1]).abs().max() < 1e-6


@pytest.mark.parametrize('name', ['group p4 3', 'group p4m None', 'lift p4m 3', 'lift p4 None'])
@pytest.mark.parametrize('encoding', ['relative', 'target', 'printed', 'none'])
@pytest.mark.parametrize('native', ['0', '1'])
def test_group_attention_is_the_loop_that_leaves_places_out(name, encoding, native, monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', native)
    torch.manual_seed(1)
    layer = perturb_(ON_GROUP[name](encoding=encoding, dtype=torch.float64))
    H, (h, w) = layer.group, (4, 5)
    poses = () if layer.lifts else (len(H),)
    x = torch.randn(1, 4, *poses, h, w, dtype=torch.float64)
    ignored = torch.rand(1, h, w) < .4
    y = layer(x, ignored)
    f = x[:, :, None] if layer.lifts else x
    q, kv = layer.queries_keys_values(f)
    k, v = kv.chunk(2, -1)
    r, c = (h - 1, w - 1) if layer.window is None else (1, 1)
    table, pose = layer.offset_vectors((r, c)), layer.pose_vectors()
    for row, column in [(0, 0), (2, 3), (3, 1)]:
        heard = [(i, j) for i in range(h) for j in range(w) if not ignored[0, i, j]
                 and abs(i - row) <= r and abs(j - column) <= c]
        if not heard: continue
        offsets = [(i - row + r)*(2*c + 1) + j - column + c for i, j in heard]
        keys, values = (torch.stack([t[:, :, :, i, j] for i, j in heard], 3) for t in (k, v))
        s = attention_scores(q[:, :, :, row, column], keys, table[offsets], pose)
        a = s.flatten(4).softmax(-1).view(s.shape)
        z = torch.einsum('bnhqsk,bnskd->bhnd', a, values).flatten(2)
        want = layer.out(z).expand(-1, len(H), -1).mT
        torch.testing.assert_close(y[..., row, column], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize('name', ['window', 'zero', 'everywhere', 'sasa'])
def test_attention_of_images_is_the_loop_that_leaves_places_out(name):
    layer, x, ignored = made(name)
    _, _, v = layer.maps(x)
    y, (h, w) = layer(x, ignored), x.shape[-2:]
    weights, full = layer.attention(x, ignored), layer.attention(x)
    for b, row, column in [(0, 1, 2), (1, 4, 4), (1, 0, 0)]:
        total = torch.zeros(layer.heads, v.shape[2], dtype=torch.float64)
        norm = torch.zeros(layer.heads, 1, dtype=torch.float64)
        reach = range(-1, 2) if layer.window else None
        places = [(row + i, column + j) for i in reach for j in reach] if reach else [
            (i, j) for i in range(h) for j in range(w)]
        for source, (i, j) in enumerate(places):
            inside = 0 <= i < h and 0 <= j < w
            if inside and ignored[b, i, j] or not inside and name != 'zero':
                assert weights[b, :, source, row, column].eq(0).all()
                continue
            share = full[b, :, source, row, column, None]
            norm += share
            if inside: total += share*v[b, :, :, i, j]
        want = layer.out((total/norm).view(1, -1, 1, 1))[0, :, 0, 0]
        torch.testing.assert_close(y[b, :, row, column], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize('name', [n for n in ALL if 'ffine' in n or n in ('simple', 'affine')])
def test_affine_attention_is_the_loop_that_leaves_places_out(name):
    layer, x, ignored = made(name)
    query, key, value = layer.terms(x)
    scores, (h, w) = layer.key_map.scores(query, key), x.shape[-2:]
    weights = torch.zeros_like(scores)
    for b in range(2):
        for row in range(h):
            for column in range(w):
                near = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
                heard = [d for d, (i, j) in enumerate(near)
                         if 0 <= row + i < h and 0 <= column + j < w
                         and not ignored[b, row + i, column + j]]
                if not heard: continue
                at = b, slice(None), heard, row, column
                weights[at] = scores[at].softmax(-1)
    want = layer.out(layer.value_map.join(layer.value_map.mix(weights, value)))
    torch.testing.assert_close(layer(x, ignored), want, rtol=0, atol=1e-10)


@pytest.mark.parametrize('name', ['window', 'group p4 3', 'affine', 'e4'])
def test_a_mask_of_another_form_is_refused(name):
    layer, x, ignored = made(name)
    for wrong in ignored.float(), ignored[:1], ignored[:, None], 'all':
        with pytest.raises(ValueError, match=r'ignored: expected .* torch.bool \(2, 6, 7\)'):
            layer(x, wrong)


def test_e4_refuses_a_mask_where_its_norm_hears_all_places():
    layer = layers.E4Conv2d(4, 4, 3, 'p4')
    with pytest.raises(ValueError, match="norm='layer' or 'none'"):
        layer(torch.randn(1, 4, 4, 5, 5), torch.zeros(1, 5, 5, dtype=torch.bool))


def test_e4_is_the_loop_that_leaves_places_out():
    layer, x, ignored = made('e4')
    kernels, values = layer.kernels(x), layer.encode(x)
    y = layer(x, ignored)
    for row, column in [(0, 0), (2, 3), (5, 5)]:
        want = torch.zeros(2, 4, 4, dtype=torch.float64)
        for d, (i, j) in enumerate((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
            r, c = row + i, column + j
            if not (0 <= r < 6 and 0 <= c < 7): continue
            kernel = kernels[:, :, d, :, row, column].repeat_interleave(2, 1)
            want += kernel*values[..., r, c]*~ignored[:, r, c, None, None]
        torch.testing.assert_close(y[..., row, column], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize('mode', ['circular', 'reflect', 'replicate'])
def test_e4_takes_its_values_beyond_the_rim_from_the_picture(mode):
    layer = perturb_(layers.E4Conv2d(4, 4, 3, 'p4m', padding_mode=mode, dtype=torch.float64))
    zeros = layers.E4Conv2d(4, 4, 3, 'p4m', dtype=torch.float64)
    zeros.load_state_dict(layer.state_dict())
    x, H = torch.randn(1, 4, 8, 5, 6, dtype=torch.float64), get_group('p4m')
    y = layer(x)
    torch.testing.assert_close(y[..., 1:-1, 1:-1], zeros(x)[..., 1:-1, 1:-1])
    assert (y - zeros(x)).abs().max() > .01
    for h in H.elements:
        torch.testing.assert_close(layer(act(H, h, x)), act(H, h, y), rtol=0, atol=1e-10)
    if mode == 'circular':
        torch.testing.assert_close(layer(x.roll(2, -1)), y.roll(2, -1), rtol=0, atol=1e-10)
