"What the prepared widgets say and show: pictures, arrows, verdicts, places, read from their HTML."
import base64
import copy
import io
import json
import re
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import equivariance_error, relative_error
from eqtutor.groups import C, D
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import GroupPool
from eqtutor.widgets import (
    CayleyExplorer,
    ClickAndTurn,
    EquivarianceMeter,
    RotateAndPermute,
    ShareOnce,
    html_table,
    moved_pixel,
    raw_html,
    share_once,
    whole_page,
)
from eqtutor.widgets.page import clickable, frames_html, png_uri

from .examples import NoPermutation, error_in, letter, suspect, two_layers

P4 = C(4).elements


# --- pictures

def image_of(uri): return Image.open(io.BytesIO(base64.b64decode(uri.split(',')[1])))

def pixels(uri): return np.array(image_of(uri).convert('RGB')).astype(int)

def coloured(levels, most=255):
    "What the levels 0 to `most` look like."
    table = matplotlib.colormaps['cividis'](np.linspace(0, 1, most + 1))[:, :3]
    return (table*255).round().astype(int)[levels]

def alike(a, b):
    "Up to one step of the palette, which is at most 4 of 255 in each channel."
    return all(abs(pixels(u) - pixels(v)).max() <= 4 for u, v in zip(a, b, strict=True))

RAMP = torch.linspace(0, 1, 64).view(8, 8)


def test_pixels_are_the_values_and_the_same_values_the_same_bytes():
    uri = png_uri(RAMP)
    assert uri == png_uri(RAMP) != png_uri(RAMP.T) and len(uri) < 1500
    assert (image_of(uri).size, image_of(uri).mode) == ((8, 8), 'P')
    assert (pixels(uri) == coloured((RAMP*255).round().int().numpy())).all()
    assert image_of(png_uri(torch.rand(96, 130))).size == (44, 32), 'a large map is averaged'


def test_maps_stand_side_by_side_with_a_gap_that_is_clear():
    both = png_uri(torch.stack([RAMP, RAMP.T]), colours=64)
    assert image_of(both).size == (17, 8)
    assert (pixels(both)[:, :8] == coloured((RAMP*63).round().int().numpy(), 63)).all()
    assert (pixels(both)[:, 9:].transpose(1, 0, 2) == pixels(both)[:, :8]).all()
    opaque = np.array(image_of(both).convert('RGBA'))[0, 7:10, 3]
    assert opaque.tolist() == [255, 0, 255]
    assert len(png_uri(RAMP.round())) < len(both)/2, 'few values, few colours in the file'


# --- pages

def test_first_frame_is_shown_and_the_others_wait():
    labels, frames = ['first', 'second'], ['<p>one</p>', '<p>two</p>']
    two = frames_html(frames, labels, 'A & B')
    assert two == frames_html(frames, labels, 'A & B')
    assert 'A &amp; B' in two and 'http' not in two and '<p>one</p>' in two
    assert (two.count('data-frame="'), two.count(' hidden>')) == (2, 1)
    assert whole_page('T', two).startswith('<!doctype html>')


def test_what_outputs_have_in_common_stands_on_a_page_once():
    a, b = (f'<style id="eqtutor-{name}">p</style>' for name in ('0a', '0b'))
    assert share_once(a + 'one', a + b + 'two') == [a + 'one', b + 'two']
    shown = [{'data': {'text/html': text}} for text in (a + 'one', a + 'two')]
    ShareOnce(SimpleNamespace(cells=[{'outputs': [one]} for one in shown])).begin()
    assert [one['data']['text/html'] for one in shown] == [a + 'one', 'two']


def test_stored_html_becomes_a_raw_block_to_which_quarto_adds_nothing():
    cell = {'outputs': [{'data': {'text/html': ['<b>', 'x</b>']}}, {'text': 'plain'}]}
    raw_html(cell)
    raw = {'text/markdown': '`````{=html}\n<b>x</b>\n`````\n'}
    assert cell['outputs'] == [{'data': raw}, {'text': 'plain'}]


def test_table_of_accuracies():
    table = html_table({'a < b': {'upright': .5, '90°': .9375}})
    assert '<th scope="row">a &lt; b</th> <td>50.0%</td> <td>93.8%</td>' in table


# --- rotate and permute

@pytest.fixture(scope='module')
def net(): return two_layers()

@pytest.fixture(scope='module')
def good(net): return RotateAndPermute(net, letter(), 'p4')

@pytest.fixture(scope='module')
def broken(): return two_layers(NoPermutation)

@pytest.fixture(scope='module')
def bad(broken): return RotateAndPermute(broken, letter(), 'p4')


def test_verdict_at_each_element_and_none_where_nothing_has_moved(good, bad):
    assert len(good.html()) < 200_000 and 'http' not in good.html()
    for h in P4:
        assert ('class="good"' in good.frame(h)) == ('class="bad"' in bad.frame(h)) == (h > 0)
        assert ('Nothing has moved' in bad.frame(h)) == (h == 0)


def small_error_in(body): return float(re.search(r'error (\d\.\de[+-]\d\d)', body)[1])


def test_error_of_a_broken_layer_is_the_meter_s(broken, bad):
    errors = equivariance_error(lambda x: broken(x)[:, :1], letter()[None, None], 'p4')
    for h in P4[1:]: assert abs(small_error_in(bad.frame(h)) - errors[h]) <= .06*errors[h]


def rows(body):
    "The input, the maps, those of the moved image, and these carried back."
    uris = re.findall(r'src="(data:[^"]+)"', body)
    return uris[0], uris[1:5], uris[5:9], uris[9:13]


def test_pictures_are_what_the_network_makes(net, good, bad):
    f = net(letter()[None, None])[0, 0].detach()
    low, high = f.min().item(), f.max().item()
    for h in P4:
        hx = act('p4', h, letter()[None, None])
        image, before, after, back = rows(good.frame(h))
        assert image == png_uri(hx[0, 0], cmap='gray')
        assert before == [png_uri(m, low, high) for m in f]
        assert after == [png_uri(m, low, high) for m in net(hx)[0, 0]]
        assert alike(back, before)
        _, before, _, back = rows(bad.frame(h))
        assert alike(back, before) == (h == 0)


def test_arrows_run_from_q_to_hq(good):
    for h in P4:
        starts = [int(x) for x in re.findall(r'd="M(\d+) 4C', good.frame(h))]
        tips = [int(x) for x in re.findall(r'L(\d+) 62', good.frame(h))]
        assert starts == [50, 150, 250, 350]
        assert [(x - 50)//100 for x in tips] == C(4).mul[h].tolist()


def test_an_image_is_shown_too():
    pooled = nn.Sequential(LiftingConv2d(1, 2, 3, 'p4m'), GroupPool())
    assert RotateAndPermute(pooled, letter(), 'p4m').frame(5).count('<img') == 4


def test_between_the_elements_maps_are_carried_back_the_right_way_round():
    "The wrong way gives 57 %."
    torch.manual_seed(4)
    layers = nn.Sequential(LiftingConv2d(1, 4, 5, 'p4', padding=2), nn.ReLU(),
                           GroupConv2d(4, 4, 5, 'p4', padding=2), nn.ReLU()).eval()
    widget = RotateAndPermute(layers, letter(), 'p4')
    def off(angle):
        return int(re.search(r'carried back differ by (\d+)%', widget.at(angle)[1])[1])
    assert max(off(a) for a in (5, 95, 355)) < 45
    label, body = widget.at(37)
    assert 'not in C4' in label and 'approximate' in body and '% already' in body
    label, body = widget.at(90)
    assert 'element 1' in label and 'class="good"' in body


def test_at_an_element_the_live_face_is_the_frame_for_every_layer_and_channel(net, good):
    inner = RotateAndPermute(net, letter(), 'p4', until='0', channel=2)
    assert inner.view.name == '0' and inner.at(90)[1] == inner.frame(1)
    assert inner.at(90, layer='', channel=0)[1] == good.frame(1)


def test_the_image_follows_the_network_s_dtype(net):
    double = RotateAndPermute(copy.deepcopy(net).double(), letter(), 'p4')
    assert 'class="good"' in double.frame(1)


# --- the group, and a kernel under it

@pytest.mark.parametrize('group', [C(4), D(4), C(8), D(3)], ids=lambda H: H.name)
def test_explorer_has_a_position_for_each_element(group):
    explorer = CayleyExplorer(group)
    assert len(explorer.labels) == len(group) and len(explorer.html()) < 500_000


def test_explorer_reads_its_facts_from_the_tables():
    explorer = CayleyExplorer('p4m')
    assert explorer.facts(1) == 'order 4 · inverse 3 · commutes with 0, 1, 2, 3'
    assert 'aria-label' in explorer.frame(1)


# --- click and turn

@pytest.mark.parametrize('n', [6, 7])
def test_a_bright_pixel_goes_where_moved_pixel_says(n):
    bright = F.one_hot(torch.tensor(n + 2), n*n).view(1, 1, n, n)    # row 1, column 2
    for h in D(4).elements:
        place = act('p4m', h, bright)[0, 0].nonzero()[0].tolist()
        assert moved_pixel('p4m', h, (1, 2), n) == tuple(place)


def test_pixels_on_offer_are_closed_under_the_group():
    for n in range(5, 40):
        grid = clickable('p4m', n)
        assert len(grid) == (25 if n % 2 else 16)
        assert {moved_pixel('p4m', h, p, n) for h in D(4).elements for p in grid} == {*grid}
    assert clickable('p4', 7, [(0, 1)]) == [(0, 1), (1, 6), (5, 0), (6, 5)]
    assert [len(clickable('C1', 8, k)) for k in (1, 3, 8)] == [4, 4, 64]


def smooth(second=GroupConv2d):
    torch.manual_seed(3)
    lift = LiftingConv2d(1, 4, 3, 'p4', padding=1)
    return nn.Sequential(lift, nn.SiLU(), second(4, 1, 5, 'p4', padding=2)).eval()


def sensitivity(net):
    "A look: gradient of each pose's response by the image, around the pixel, `(|H|, 7, 7)`."
    def look(x, row, column):
        x = x.clone().requires_grad_()
        poses = net(x)[0, 0, :, row, column]
        slopes = [torch.autograd.grad(f, x, retain_graph=True)[0][0, 0] for f in poses]
        return F.pad(torch.stack(slopes), [3]*4)[:, row:row + 7, column:column + 7]
    return look


LOOK = sensitivity(smooth())

def unmoved(x, row, column): return LOOK(x, row, column)[[0, 0, 0, 0]]

WRONG = {'panels that stay': unmoved,
         'poses that are not permuted': sensitivity(smooth(NoPermutation)),
         'a pixel that stays': lambda x, *place: LOOK(x, 10, 17)}


def verdict(widget, *where):
    return re.search('class="(good|bad|near)"', widget.at(*where)[1])[1]


@pytest.fixture(scope='module')
def right(): return ClickAndTurn(LOOK, letter(), 'p4')


def test_right_look_is_found_right_at_every_pixel(right):
    places = [(*p, h) for p in right.pixels + [(0, 0), (13, 9)] for h in P4[1:]]
    assert {verdict(right, *place) for place in places} == {'good'}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_look_is_found_wrong_at_every_pixel(right, name):
    widget = ClickAndTurn(WRONG[name], letter(), 'p4')
    places = [(*p, h) for p in right.pixels + [(0, 0), (13, 9)] for h in P4[1:]]
    assert {verdict(widget, *place) for place in places} == {'bad'}
    assert widget.expect_broken() is widget


def test_panels_are_what_look_says_of_the_moved_image(right):
    x = letter()[None, None]
    for h in P4:
        hx, place = act('p4', h, x), moved_pixel('p4', h, (10, 3), 28)
        y, moved = LOOK(x, 10, 3), LOOK(hx, *place)
        top = y.abs().max().item()
        label, body = right.at(10, 3, h)
        image, before, after, back = re.findall(r'src="(data:[^"]+)"', body)
        assert image == png_uri(hx[0, 0], cmap='gray', colours=64)
        assert [before, after] == [png_uri(m, -top, top, 'PuOr', 33) for m in (y, moved)]
        assert alike([back], [before]) and label == f'element {h}: {90*h}°'
        assert f'Now, marked: row {place[0]}, column {place[1]}' in body
        above, left = (f'{100*(i + .5)/28:.4g}%' for i in place)
        assert f'class="mark" style="top:{above};left:{left}"' in body


def test_error_of_a_wrong_look_is_that_of_its_panels():
    widget, x = ClickAndTurn(unmoved, letter(), 'p4'), letter()[None, None]
    for h in P4[1:]:
        moved = unmoved(act('p4', h, x), *moved_pixel('p4', h, (10, 3), 28))
        exact = relative_error(C(4), h, moved[None, None], unmoved(x, 10, 3)[None, None])
        assert abs(error_in(widget.at(10, 3, h)[1]) - exact) <= .06*exact


def test_page_holds_every_position_as_it_is_said_beside_a_kernel(right):
    html = right.html()
    assert html == ClickAndTurn(LOOK, letter(), 'p4').html()
    assert len(html) < 120_000 and 'http' not in html
    data = json.loads(re.search('json">(.*?)</script>', html)[1])
    for h in P4:
        for i, p in enumerate(right.pixels):
            body = ''.join(data['pieces'][k] for k in data['frames'][h][i])
            assert right.at(*p, h)[1].endswith(body)
            assert right.pixels[data['to'][h][i]] == moved_pixel('p4', h, p, 28)
        assert image_of(data['pictures'][h]).size == (28, 28)
    buttons = re.findall('role="radio" .*?aria-label="(.*?)"', html)
    assert buttons == [f'row {r}, column {c}' for r, c in right.pixels]


LETTERS = torch.stack([act('p4m', h, letter()[None, None])[0, 0] for h in D(4).elements])

def weights(x, row, column):
    "A look: a softmax over the whole image, one map a pose."
    scores = (3*LETTERS + 2*x[0]).flatten(1)
    return (1 + x[0, 0, row, column])*scores.softmax(-1).view(8, 28, 28)


def test_maps_of_the_whole_image_are_judged():
    maps = ClickAndTurn(weights, letter(), 'p4m', signed=False, what='attention maps')
    places = [(*p, h) for h in D(4).elements[1:] for p in ((3, 9), (10, 18))]
    assert {verdict(maps, *place) for place in places} == {'good'}


def test_one_panel_moves_as_an_image():
    one = ClickAndTurn(lambda x, r, c: x[0, 0]*x[0, 0, r, c], letter(), 'p4m')
    assert verdict(one, 10, 8, 5) == 'good'
    assert one.frame(5).count('<img') == 4 and '<svg' not in one.frame(5)


def test_panels_are_averaged_where_there_would_be_too_much():
    big = ClickAndTurn(lambda *place: torch.randn(8, 28, 28).abs(), letter(), 'p4m', signed=False)
    assert 100_000 < len(big.html()) < 400_000


# --- the meter

def test_meter_names_the_first_layer_that_breaks():
    meter = EquivarianceMeter(suspect(), letter(), 'p4')
    first = meter.report.first_broken
    assert first == '2' and meter.expect_broken() is meter
    assert f'Layer {first} is the first' in meter.frame(1) and 'breaks first' in meter.frame(1)
    assert not {'✗', '✓'} & {*meter.frame(0)}, 'nothing has moved'


def test_meter_of_a_right_network_and_of_pixels_in_a_row(net):
    assert 'Every layer holds' in EquivarianceMeter(net, letter(), 'p4').frame(1)
    tokens = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(2))
    text = EquivarianceMeter(tokens, letter(), 'p4').frame(1)
    assert 'Every layer holds' in text and 'nan%' not in text
