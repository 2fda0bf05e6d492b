"Whom does a pixel listen to, driven like a person; its numbers are those of torch."
import re
from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import perturb_
from eqtutor.nn import (
    AttentiveGroupConv2d,
    E4Conv2d,
    GroupSelfAttention2d,
    LiftingConv2d,
    SelfAttention2d,
)
from eqtutor.nn.affine import LiftingAffineSelfConv2d, filters_at
from eqtutor.widgets import (
    AffineFilters,
    AttentionMap,
    broken_twin,
    four_encodings,
    looking_ahead,
    whole_page,
    whom_it_hears,
)

from .reading import faint, too_wide, unnamed

ASKS = 4, 4
GOES = {'.quarter': {'no encoding', 'on the group'},
        '.right': {'no encoding', 'relative', 'on the group'}, '.shuffle': {'no encoding'}}
RESTS = '''() => [...document.querySelectorAll('.eqtutor-attention')].every(
  ({ widget }) => !widget.frame && !widget.settling)'''
DONE = "document.querySelector('.eqtutor-attention').widget.everywhere?.done === true"


def crosses(n=16):
    picture = torch.full((3, n, n), .12)
    for row, column in (4, 4), (4, 11), (11, 6):
        for down, right in (0, 0), (0, 1), (1, 0), (0, -1), (-1, 0):
            picture[:, row + down, column + right] = torch.tensor([.9, .2, .2])
    picture[:, 8:10, 10:13] = torch.tensor([.2, .4, .9])[:, None, None]
    return picture.mul(255).round()/255     # as it travels


def digit(size=12):
    generator = torch.Generator().manual_seed(1)
    x = torch.zeros(size, size)
    x[2:10, 4:6] = x[2:4, 4:10] = 1
    return (x + .2*torch.rand(size, size, generator=generator)).clamp(0, 1)


def as_bytes(x):
    "A picture as it travels, `(1, 1, h, w)`."
    return (x.mul(255).round()/255).double()[None, None]


@cache
def html(): return whole_page('attention', whom_it_hears(crosses()).html())


@pytest.fixture
def see(visit):
    "Opens the four encodings, or another widget, in a window like a laptop's or a phone's."
    def open_(widget=None, width=1280, address='', **more):
        text = whole_page('attention', widget.html()) if widget else html()
        page = visit(text, width, **more)
        page.set_viewport_size(dict(width=width, height=720 if width > 400 else 844))
        if address: page.goto(f'{page.url.split("#")[0]}#{address}')
        settled(page)
        return page
    return open_


def settled(page): page.wait_for_function(RESTS, timeout=20_000)


def verdicts(page):
    "What each panel says, by its name."
    settled(page)
    return {view.get_attribute('aria-label'): view.locator('.verdict').inner_text()
            for view in page.locator('.view').all()}


def number(words): return int(re.search(r'(\d+) %', words)[1])


def state(page):
    return page.evaluate('document.querySelector(".eqtutor-attention").widget.state')


def pixel(page, row, column, size=16):
    "Where a pixel of the large picture is on the screen."
    box = page.locator('.asks').bounding_box()
    return (box['x'] + box['width']*(column + .5)/size, box['y'] + box['height']*(row + .5)/size)


# --- the numbers are those of torch

def elsewhere(layer, picture, moved, place, now):
    "The share of a pixel's attention that is not where the turn carries it."
    embed, attention = layer
    with torch.no_grad():
        def maps(x, at):
            f = embed(x.double()[None])
            if isinstance(attention, SelfAttention2d):
                return attention.attention(f)[0, 0, :, at[0], at[1]].view(1, 16, 16)
            return attention.attention(f, *at)[0, 0, :, 0, 0]    # `(pose, h, w)`
        before, after = maps(picture, place), maps(moved, now)
    group = 'p4' if len(before) > 1 else 'Z2'
    carried = act('p4', 1, before[None, None])[0, 0] if group == 'p4' else before.rot90(1, (1, 2))
    pose = 1 if group == 'p4' else 0
    return (after[pose] - carried[pose]).abs().sum().item()/2


SEEN = """document.querySelector('.eqtutor-attention').widget.sights.map(
  sight => [...sight.before])"""


def test_the_filters_of_affine_self_convolution_are_those_of_torch(see):
    torch.manual_seed(0)
    layer = perturb_(LiftingAffineSelfConv2d(1, 1, 5, 'p4', heads=1)).double()
    page = see(AttentionMap(AffineFilters(layer, 12), digit(), asks=(4, 5)))
    got = torch.tensor(page.evaluate(SEEN)).view(4, 12, 12)[:, 2:7, 3:8]
    want = filters_at(layer, as_bytes(digit()), 4, 5)[0, 0].float()
    assert (got - want).abs().max() < 2e-3*want.abs().max()
    with pytest.raises(ValueError, match='expected a layer of one channel out'):
        AffineFilters(LiftingAffineSelfConv2d(1, 8, 3, 'p4'), 12)


@pytest.mark.parametrize('turns', [True, False])
def test_attention_by_hand_looks_ahead_as_torch_says(see, turns):
    layer = looking_ahead(12, turns)
    page = see(AttentionMap(layer, digit(), asks=(4, 5)))
    got = torch.tensor(page.evaluate(SEEN)).view(4, 12, 12)
    want = layer.attention(as_bytes(digit()), 4, 5)[0, 0, :, 0, 0].float()
    assert (got - want).abs().max() < 2e-3 and (got[0].equal(got[1]) is not turns)
    page.locator('.quarter').click()
    assert all(('✓' if turns else '✗') in words for words in verdicts(page).values())


def test_how_far_each_encoding_goes_along_is_what_torch_says(see):
    page, picture = see(), crosses()
    page.locator('.quarter').click()
    row, column = ASKS
    for name, words in verdicts(page).items():
        want = elsewhere(four_encodings()[name], picture, picture.rot90(1, (1, 2)), ASKS,
                         (15 - column, row))
        assert abs(number(words) - 100*want) <= .51, name
    assert number(verdicts(page)['absolute']) > 20


def test_the_layers_by_hand_ask_for_what_the_page_says():
    "A red pixel: for all, the lower cross, the right one, and the right one in pose 0."
    layers, x = four_encodings(), crosses().double()[None]
    strongest = {}
    with torch.no_grad():
        for name, (embed, layer) in layers.items():
            weights = (layer.attention(embed(x), *ASKS)[0, 0, 0, 0, 0] if name == 'on the group'
                       else layer.attention(embed(x))[0, 0, :, 4, 4].view(16, 16))
            strongest[name] = divmod(weights.argmax().item(), 16)
    assert strongest['absolute'] == (11, 6)
    assert strongest['relative'] == strongest['on the group'] == (4, 11)


# --- as a person does

@pytest.mark.parametrize('button', GOES)
def test_right_encodings_follow_and_the_others_do_not(see, button):
    page = see()
    assert set(''.join(verdicts(page).values())) <= set('\n ')      # nothing was tested yet
    page.locator(button).click()
    said = verdicts(page)
    assert {name for name, words in said.items() if '✓ 0 %' in words} == GOES[button]
    assert {name for name, words in said.items() if '✗' in words} == set(said) - GOES[button]
    page.wait_for_function(DONE, timeout=20_000)
    for name, words in verdicts(page).items():
        worst = number(words.split('at most')[1])
        assert worst == 0 if name in GOES[button] else worst >= number(words) > 0
    heard = page.locator('.headline').inner_text()
    assert all(name in heard for name in said)
    page.locator('.undo').click()
    assert '✓' not in ''.join(verdicts(page).values())


def test_pointer_asks_click_holds_and_the_sum_is_that_of_the_pair(see):
    page, picture = see(), crosses()
    page.mouse.move(*pixel(page, 11, 6))
    settled(page)
    assert state(page)['asks'] == [11, 6] and not state(page)['held']
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(*pixel(page, 4, 11))
    settled(page)
    assert state(page)['held'] and state(page)['source'] == [4, 11]
    embed, layer = four_encodings()['relative']
    with torch.no_grad():
        weight = layer.attention(embed(picture.double()[None]))[0, 0, 4*16 + 11, 11, 6].item()
    said = page.locator('.sum').inner_text()
    assert float(re.search(r'weight (\S+) %', said)[1]) == pytest.approx(100*weight, abs=.01)
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(*pixel(page, 0, 0))
    settled(page)
    assert state(page)['asks'] == [0, 0]


def test_ring_turns_and_its_centre_stays(see):
    page = see()
    page.mouse.move(*pixel(page, 4, 4))
    box = page.locator('.dial').bounding_box()
    x, y, r = box['x'] + box['width']/2, box['y'] + box['height']/2, .46*box['width']
    page.mouse.move(x, y - r)
    page.mouse.down()
    for degrees in range(0, 95, 10):
        turn = torch.deg2rad(torch.tensor(float(min(degrees, 90))))
        page.mouse.move(x - r*turn.sin().item(), y - r*turn.cos().item())
        page.wait_for_function(RESTS.replace(' && !widget.settling', ''))
        assert page.locator('.dial').bounding_box() == box
    page.mouse.up()
    assert page.locator('.angle').inner_text() == '90°'
    # the pixel that asked is the same piece of the picture, at another place
    assert state(page)['asks'] == [4, 4] and '✓ 0 %' in verdicts(page)['on the group']


def test_keys_choose_hold_and_turn_and_the_address_keeps_it(see):
    page = see()
    page.locator('.asks').focus()
    for key in 'ArrowDown', 'ArrowDown', 'ArrowRight', 'Enter', 'ArrowRight':
        page.keyboard.press(key)
    assert state(page)['asks'] == [6, 5] and state(page)['source'] == [6, 6]
    page.get_by_role('slider').focus()
    page.keyboard.press('ArrowRight')
    settled(page)
    assert '≈' in verdicts(page)['relative'] and '✗' not in verdicts(page)['relative']
    page.locator('.shuffle').click()
    settled(page)
    assert 'absolute' in page.locator('.spoken').inner_text()
    address = page.url.split('#')[1]
    again = see(address=address)
    kept = ['asks', 'turn', 'shuffle', 'panel', 'pose']
    assert [state(again)[k] for k in kept] == [[6, 5], 1, True, 2, 0]


@pytest.mark.parametrize('width', [1280, 390])
def test_question_hand_and_answers_share_a_screen(see, width):
    page = see(width=width, has_touch=width < 400)
    page.locator('.eqtutor-attention').evaluate('root => scrollTo(0, root.offsetTop)')
    if width < 400: page.touchscreen.tap(*pixel(page, 11, 6))
    else: page.mouse.move(*pixel(page, 11, 6))
    settled(page)
    assert state(page)['asks'] == [11, 6] and not state(page)['held']
    page.locator('.quarter').click()
    settled(page)
    edges = '''() => ['.headline', '.dial', '.quarter', '.view .verdict b'].map(name => {
      const { top, bottom } = document.querySelector(name).getBoundingClientRect();
      return [top, bottom];
    })'''
    height = 720 if width > 400 else 844
    assert all(top >= 0 and bottom <= height for top, bottom in page.evaluate(edges))
    assert too_wide(page) <= 0 and unnamed(page) == []


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_words_are_legible_and_the_ink_is_the_pages(see, scheme):
    page = see(color_scheme=scheme)
    page.locator('.quarter').click()
    settled(page)
    assert faint(page) == []
    ink = page.locator('.view .before canvas').first.evaluate('''canvas => {
      const [x, y] = [11, 4];
      return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data];
    }''')
    assert (sum(ink[:3]) < 200) is (scheme == 'light')      # the right cross, without encoding


def test_drawing_is_on_the_picture_as_it_was(see):
    page = see()
    page.locator('.shuffle').click()
    page.locator('.draw').click()
    settled(page)
    assert not state(page)['shuffle'] and state(page)['picture'] == 'drawn'
    page.mouse.move(*pixel(page, 3, 3))
    page.mouse.down()
    page.mouse.move(*pixel(page, 12, 3), steps=4)
    page.mouse.up()
    page.locator('.draw').click()
    page.mouse.move(*pixel(page, 5, 3))
    settled(page)
    assert state(page)['asks'] == [5, 3]
    page.locator('.quarter').click()
    assert '✓ 0 %' in verdicts(page)['on the group'] and '✗' in verdicts(page)['absolute']


# --- what the other papers' layers show

def on_group(layer): return nn.Sequential(LiftingConv2d(1, 4, 3, 'p4', padding='same'), layer)


def attends(encoding):
    return on_group(GroupSelfAttention2d(4, 4, 'p4', window=5, heads=2, encoding=encoding))


def not_turned(net):
    "The kernels lie the same way at every pose."
    twin = deepcopy(net)
    generate = twin[1].generate
    moved = generate.tables()['moved'][:1].repeat(4, 1)
    generate.tables = lambda: dict(moved=moved)
    generate.make_tables()
    return twin


def gates(broken):
    net = on_group(AttentiveGroupConv2d(4, 4, 3, 'p4', padding='same', attend='input'))
    if broken: net[1].branch.spatial = broken_twin(net[1].branch.spatial)
    return net


def pairs():
    "A right layer and a wrong one, of each kind."
    torch.manual_seed(0)
    writes = perturb_(on_group(E4Conv2d(4, 4, 3, 'p4')))
    right, wrong = gates(False), gates(True)
    wrong.load_state_dict(right.state_dict(), strict=False)
    return {'attention': (perturb_(attends('relative')), perturb_(attends('printed'))),
            'kernel': (writes, not_turned(writes)), 'gate': (right, wrong)}


@pytest.mark.parametrize('kind', ['attention', 'kernel', 'gate'])
def test_right_layers_follow_every_quarter_turn_and_wrong_ones_do_not(see, kind):
    right, wrong = pairs()[kind]
    widget = AttentionMap({'right': right, 'wrong': wrong}, digit(), layer='1', asks=(4, 5))
    assert [place.kind for place in widget.places] == [kind]*2
    page = see(widget)
    for _ in range(3):
        page.locator('.quarter').click()
        settled(page)
        page.wait_for_function(DONE, timeout=20_000)
        said = verdicts(page)
        assert '✓ 0 %' in said['right'] and 'at most 0 %' in said['right']
        assert '✗' in said['wrong']
    assert page.locator('.sum p').count() >= 2


def test_of_one_layer_each_panel_is_a_pose(see):
    page = see(AttentionMap(pairs()['kernel'][0], digit(), layer='1', asks=(4, 5)))
    page.locator('.quarter').click()
    said = verdicts(page)
    assert list(said) == [f'pose {d}°' for d in (0, 90, 180, 270)]
    assert all('✓ 0 %' in words for words in said.values())
    assert 'pose 90°' in page.locator('.view .where').first.inner_text()
    assert 'to another pose' in page.locator('.headline').inner_text()


# --- what Python writes and refuses

def test_page_is_light_and_says_which_weights():
    assert len(html().encode()) < 700_000
    assert 'Weights set by hand' in html()
    layer = SelfAttention2d(1, 4, window=5)
    assert 'Random weights (seed 0)' in AttentionMap(layer, digit()).html()
    assert 'Trained by me' in AttentionMap(layer, digit(), weights='trained by me').html()


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match='no layer that attends'):
        AttentionMap(nn.Sequential(nn.Conv2d(1, 2, 3)), digit())
    with pytest.raises(ValueError, match="no layer at '0' that attends"):
        AttentionMap(pairs()['kernel'][0], digit(), layer='0')
    with pytest.raises(ValueError, match='expected a pixel'):
        AttentionMap(SelfAttention2d(1, 4, window=5), digit(), asks=(12, 0))
    with pytest.raises(ValueError, match='choose a layer before the first pooling'):
        pooled = nn.Sequential(nn.AvgPool2d(2), SelfAttention2d(1, 4, window=3))
        AttentionMap(pooled, torch.rand(24, 24))
    with pytest.raises(ValueError, match='one to four layers'):
        AttentionMap({str(i): SelfAttention2d(1, 4, window=3) for i in range(5)}, digit())
