"Turn the picture, driven like a person: mouse, keyboard, phone; and what Python writes into it."
import io
import re
from functools import cache

import pytest
import torch
from PIL import Image, PngImagePlugin
from torch import nn

from eqtutor.actions import rotate
from eqtutor.equivariance import equivariance_error
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.nn.convolution import LiftingConv2d, ProjectionConv2d
from eqtutor.nn.vectors import VectorProjectionConv2d
from eqtutor.report import layer_report
from eqtutor.widgets import TurnThePicture, share_once, turn_a_digit, which_layer, whole_page
from eqtutor.widgets.turn import upright_networks

from .examples import NoPermutation, letter, measure, two_layers
from .reading import faint, stops, too_wide, unnamed

HERO = ['p4 network', 'broken network', 'plain network']
SEVEN = [(.3, .25), (.72, .25), (.45, .85)]    # corners of a drawn 7, as shares of the picture


@cache
def hero(): return turn_a_digit()


@cache
def hero_page(folder):
    return hero().save(folder/'hero.html').read_text(encoding='utf-8')


@pytest.fixture
def see(visit, tmp_path_factory):
    "Opens the hero, or another widget, on a page of its own."
    def open_(widget=None, width=1280, address='', **more):
        folder = tmp_path_factory.getbasetemp()
        text = widget.save(folder/'one.html').read_text('utf-8') if widget else hero_page(folder)
        page = visit(text, width, **more)
        page.set_viewport_size(dict(width=width, height=720 if width > 400 else 844))
        if address: page.goto(f'{page.url.split("#")[0]}#{address}')
        settled(page)
        return page
    return open_


RESTS = '''degrees => [...document.querySelectorAll('.eqtutor-turn')].every(root => {
  const {state, settling, moving, frame} = root.widget;
  return !settling && !moving && !frame && (degrees === null || state.turn === degrees);
})'''

def settled(page, degrees=None):
    "Waits until nothing moves, and the state is said and stands in the address."
    if page.locator('.eqtutor-turn').count() == 0: return
    page.wait_for_function(RESTS, arg=degrees, timeout=15_000)


def headline(page): return page.locator('.headline').first.inner_text()

def card(page, name): return page.get_by_role('article', name=name, exact=True).first

def verdict(page, name): return card(page, name).locator('.verdict').inner_text()

def error(page, name): return float(re.search(r'Error (\S+?)\.?$', verdict(page, name))[1])

def answer(page, name): return card(page, name).locator('.digit').inner_text()

def slider(page): return page.get_by_role('slider').first

def pixels(page, name, row):
    "The maps of a row, as the canvases hold them."
    canvases = card(page, name).locator(f'.{row} canvas')
    return canvases.evaluate_all('all => all.map(c => c.toDataURL())')


def arrows(page, name):
    "Where each map goes, in words."
    return card(page, name).locator('.arrows').get_attribute('aria-label').split(': ')[1]


def hand(page, degrees):
    "Where the knob is, once the picture was turned."
    box = page.locator('.dial').bounding_box()
    turn = torch.deg2rad(torch.tensor(float(degrees)))
    x, y, r = box['x'] + box['width']/2, box['y'] + box['height']/2, .46*box['width']
    return x - r*turn.sin().item(), y - r*turn.cos().item()


def turn_by_hand(page, start, end):
    page.mouse.move(*hand(page, start))
    page.mouse.down()
    for degrees in torch.linspace(start, end, 8).tolist(): page.mouse.move(*hand(page, degrees))
    page.mouse.up()


def draw_seven(page):
    page.get_by_role('button', name='draw a picture').click()
    box = page.locator('.picture').bounding_box()
    points = [(box['x'] + x*box['width'], box['y'] + y*box['height']) for x, y in SEVEN]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]: page.mouse.move(*point, steps=6)
    page.mouse.up()
    page.locator('.draw').click()


# --- like a person

def draw_seven_with_keys(page):
    "The pen begins in the middle of 28 × 28 pixels: to the left, up; then the two strokes."
    page.locator('.draw').focus()
    page.keyboard.press('Enter')
    for key, times in (('ArrowLeft', 7), ('ArrowUp', 6), ('Space', 1), ('ArrowRight', 11)):
        for _ in range(times): page.keyboard.press(key)
    for _ in range(6):
        for key in ('ArrowDown', 'ArrowDown', 'ArrowLeft'): page.keyboard.press(key)
    page.keyboard.press('Enter')


def turn_with_keys(page):
    "By 37 degrees."
    assert page.evaluate('document.activeElement.type') == 'range'   # where Enter has led
    for key, times in ('PageUp', 3), ('ArrowUp', 7):
        for _ in range(times): page.keyboard.press(key)


@pytest.mark.parametrize('width', (1280, 390))
@pytest.mark.parametrize('draw, turn', [
    (draw_seven, lambda page: turn_by_hand(page, 0, 37)),
    (draw_seven_with_keys, turn_with_keys)], ids=('mouse', 'keys'))
def test_draw_a_seven_turn_it_and_press_the_right_arrow(see, width, draw, turn):
    page = see(width=width)
    draw(page)
    settled(page)
    assert headline(page) == 'All 3 networks say 7. Now turn the picture.'
    upright = {row: pixels(page, 'plain network', row) for row in ('before', 'after')}
    assert upright['before'] == upright['after'] and 'Turn the picture' in verdict(page, HERO[0])
    turn(page)
    settled(page, 37)
    assert answer(page, 'plain network') != '7'
    assert pixels(page, 'plain network', 'after') != upright['after']
    assert pixels(page, 'plain network', 'before') == upright['before']
    assert 'Between the turns' in verdict(page, 'p4 network')
    page.keyboard.press('ArrowRight')
    settled(page, 90)
    assert answer(page, 'p4 network') == '7' and answer(page, 'plain network') != '7'
    assert f'The plain network now says {answer(page, "plain network")}.' in headline(page)
    assert error(page, 'p4 network') < 1e-6 and '✓' in verdict(page, 'p4 network')
    assert arrows(page, 'p4 network') == '0 to 1, 1 to 2, 2 to 3, 3 to 0'
    assert too_wide(page) == 0


def test_the_keyboard_alone(see):
    page = see(width=390)
    names = [stop['name'] for stop in stops(page)]
    assert all(stop['ring'] or stop['tag'] == 'INPUT' for stop in stops(page)), names
    assert 'turn the picture, in degrees counter-clockwise' in names and not unnamed(page)
    slider(page).focus()
    for key, degrees in ('ArrowRight', 90), ('ArrowUp', 91), ('ArrowLeft', 90), ('ArrowLeft', 0), (
            'ArrowDown', 359), ('PageUp', 9), ('Home', 0), ('Shift+ArrowRight', 1):
        page.keyboard.press(key)
        settled(page, degrees)
    assert slider(page).get_attribute('aria-valuetext') == '1°'
    assert headline(page) in page.locator('.spoken').inner_text()
    page.get_by_role('button', name=re.compile('^p4 network, map 90°')).focus()
    assert card(page, 'p4 network').locator('.arrows .lit').count() == 1
    page.keyboard.press('ArrowDown')
    settled(page)
    assert 'row 13, column 12' in page.locator('.value').inner_text()


@pytest.mark.parametrize('width', (1280, 758, 390))
def test_nothing_moves_under_the_finger(see, width):
    "Answers and headline change on the way; the dial stays where it is, and so does its angle."
    page = see(width=width)
    page.evaluate(measure('watch'))
    turn_by_hand(page, 0, 45)
    settled(page, 45)
    assert len(page.evaluate('[...window.centres]')) == 1
    assert len(page.evaluate('[...window.said]')) > 1


def test_no_ring_round_the_slider_after_the_mouse(see):
    page = see()
    turn_by_hand(page, 0, 45)
    ring = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate('document.activeElement.type') == 'range'
    assert page.evaluate(ring) == 'none'
    page.keyboard.press('ArrowUp')
    assert page.evaluate(ring) == 'solid'


def test_question_hand_and_answers_are_on_one_screen(see):
    page = see(turn_a_digit(simple=True))
    for width, height in (1280, 720), (758, 720), (390, 844):
        page.set_viewport_size(dict(width=width, height=height))
        settled(page)
        boxes = [page.locator(part).bounding_box() for part in ('.headline', '.dial', '.turning')]
        boxes += [card(page, name).bounding_box() for name in HERO]
        assert all(box['y'] >= 0 and box['y'] + box['height'] <= height for box in boxes), width
        cards = page.locator('.cards').bounding_box()
        area = sum(box['width']*box['height'] for box in boxes[3:])
        assert area > .85*cards['width']*cards['height']   # no hole


def test_no_verdict_before_the_reader_has_turned(see):
    page = see(turn_a_digit(turn=30))
    assert 'Turn the picture to test it' in verdict(page, HERO[0])
    slider(page).press('ArrowUp')
    settled(page, 31)
    assert verdict(page, HERO[0]).startswith('≈ Between the turns of C4 nothing is exact')


def test_play_moves_and_stops(see):
    page = see()
    slider(page).press('Space')
    page.wait_for_function("parseFloat(document.querySelector('.angle').textContent) > 20")
    slider(page).press('Space')
    settled(page)
    now = page.locator('.angle').inner_text()
    page.wait_for_timeout(300)
    assert page.locator('.angle').inner_text() == now


def test_without_motion_a_step_is_there_at_once(see):
    page = see(reduced_motion='reduce')
    page.evaluate('''() => {
        window.seen = new Set();
        new MutationObserver(() => window.seen.add(document.querySelector('.angle').textContent))
          .observe(document.querySelector('.angle'), {childList: true});
    }''')
    slider(page).press('ArrowRight')
    settled(page, 90)
    assert page.evaluate('[...window.seen]') == ['90°']


def test_a_first_look_says_nothing_beforehand(see):
    page = see(turn_a_digit(broken=False, simple=True))
    folded = [page.locator(f'.{name}').first for name in ('maps', 'choices', 'verdict', 'below')]
    assert headline(page) == 'Both networks say 7. Now turn the picture.'
    assert '%' not in page.locator('header').inner_text()
    assert not any(part.is_visible() for part in folded)
    slider(page).press('ArrowRight')
    settled(page, 90)
    assert answer(page, 'p4 network') == '7' and answer(page, 'plain network') != '7'
    page.locator('.more summary').click()
    assert all(part.is_visible() for part in folded) and '✓' in verdict(page, 'p4 network')


# --- is it true?

def test_the_page_says_what_torch_says(see):
    nets, pictures, _ = upright_networks()
    for degrees in 37, 90:
        page = see(address=f'turn={degrees}&picture=1')
        x = hero().input(rotate(pictures['a 4'][None], float(degrees))[0])
        for name, net in nets.items():
            with torch.no_grad(): shares = net(x).softmax(1)[0]
            top = int(shares.argmax())
            words = card(page, name).locator('.words').inner_text()
            said = re.match(r'says (\d) \((\d+) %\)', words)
            assert int(said[1]) == top and abs(int(said[2]) - 100*shares[top]) < 1.5


def test_a_broken_network_shows_it_and_no_verdict_upright(see):
    page = see()
    for turn in 0, 90, 180, 270:
        page.evaluate(f"location.hash = 'turn={turn}'")
        settled(page, turn)
        signs = [verdict(page, name)[0] for name in HERO]
        assert signs == (['T', 'T', 'T'] if turn == 0 else ['✓', '✗', '✗'])
        if turn: assert error(page, 'p4 network') < 1e-6 and error(page, 'broken network') > .1


def test_each_broken_layer_of_the_course_shows_it(see):
    nets = {'right': two_layers(), 'not permuted': two_layers(NoPermutation)}
    widget = TurnThePicture(nets, letter(), layer='2').expect_broken('not permuted')
    page = see(widget, address='turn=90')
    assert '✓' in verdict(page, 'right') and '✗' in verdict(page, 'not permuted')
    with pytest.raises(AssertionError, match='at no element'): widget.expect_broken('right')


GUILTY = dict(A='conv2', B='pool', C='norm1')


def test_the_game_of_chapter_04_has_one_broken_layer_a_network():
    game = which_layer()
    x = game.input(game.first).double()
    reports = {name: layer_report(net.double(), x, 'p4') for name, net in game.networks.items()}
    assert not game.unknown and {name: r.first_broken for name, r in reports.items()} == GUILTY
    assert all(len(r.offenders) == 1 for r in reports.values())


def test_the_broken_layer_of_the_first_page_breaks_the_symmetry_from_itself_on():
    nets, digits, _ = upright_networks()
    x = hero().input(digits['a 7']).double()
    layers = dict(nets['broken network'].double().layers.named_children())
    for name, rises in ('relu1', False), ('conv2', True), ('relu2', True):
        upto = nn.Sequential(*[*layers.values()][:[*layers].index(name) + 1])
        errors = max(equivariance_error(upto, x, 'p4'))
        assert errors > .1 if rises else errors < 1e-10, name


def test_the_first_page_is_asked_for_its_fault():
    assert hero().expect_broken('broken network', 'plain network') is hero()
    with pytest.raises(AssertionError, match='shows ✗'): hero().expect_broken('p4 network')


def test_a_page_of_two_layers_is_small_and_has_the_same_bytes_each_time():
    text = TurnThePicture(two_layers(), letter(), layer='2').html()
    assert len(text) < 120_000 and text == TurnThePicture(two_layers(), letter(), layer='2').html()


def test_whoever_goes_through_the_layers_finds_the_broken_one(see):
    page = see(which_layer(), address='turn=90')
    menu = page.locator('select.layer')
    layers = menu.locator('option').evaluate_all('all => all.map(each => each.value)')
    assert len(layers) == 10 and not re.search('Wrong|Uneven|Pose', menu.inner_text())
    for i, layer in enumerate(layers):
        menu.select_option(layer)
        page.wait_for_function("name => location.hash.includes(`layer=${name}`)", arg=layer)
        settled(page)
        broken = {name for name, guilty in GUILTY.items() if i >= layers.index(guilty)}
        for name in GUILTY: assert ('✗' if name in broken else '✓') in verdict(page, name), layer


def test_a_mirror(see):
    widget = TurnThePicture(two_layers(group='p4m', channels=2), letter(), layer='2')
    page = see(widget)
    page.get_by_role('checkbox', name='mirror the picture first').check()
    slider(page).press('ArrowRight')
    settled(page, 90)
    assert page.locator('.angle').inner_text() == 'mirror, 90°'
    assert error(page, 'network') < 1e-6
    table = widget.group.mul[5].tolist()
    assert arrows(page, 'network') == ', '.join(f'{q} to {to}' for q, to in enumerate(table))


def test_between_the_turns_of_eight(see):
    "C8 turns by 45°: a step there; off the grid nothing is exact."
    torch.manual_seed(0)
    net = nn.Sequential(LiftingConv2d(1, 2, 5, 'C8', padding=2), nn.ReLU()).eval()
    page = see(TurnThePicture(net, letter()))
    slider(page).press('ArrowRight')
    settled(page, 45)
    assert arrows(page, 'network').startswith('0 to 1, 1 to 2') and '✗' in verdict(page, 'network')


def test_filter_times_patch(see):
    page = see(address='turn=90&layer=layers.conv2')
    page.get_by_role('button', name=re.compile('^p4 network, map 90°')).click()
    settled(page)
    text = page.locator('.value').inner_text().replace('−', '-')
    left, right = re.search(r'patch = (.*) = (\S+)', text).groups()
    terms = re.findall(r'-?\d+\.\d+', left.replace('- ', '-'))
    assert len(terms) == 4 and abs(sum(map(float, terms)) - float(right)) < .03
    assert page.locator('.terms figure').count() == 3
    assert 'turned by 90°, from channel' in page.locator('.terms').inner_text()


class Inside(nn.Module):
    "A group layer that the engine does not know by its class, as one written in a lesson."
    def __init__(self, layer):
        super().__init__()
        self.filters = layer.filters().detach()
        self.bias = layer.bias.detach().repeat_interleave(4)

    def forward(self, f):
        y = nn.functional.conv2d(f.flatten(1, -3), self.filters, self.bias, padding=2)
        return y.unflatten(1, (4, 4))


def test_a_layer_that_is_looked_into_is_shown_by_its_name(see):
    known = two_layers()
    net = nn.Sequential(*known[:2], Inside(known[2]))
    widget = TurnThePicture({'inside': net, 'known': known}, letter(), layer='2', channel=1)
    page = see(widget, address='turn=90&pixel=0.2.9.11')
    for name in 'known', 'inside': assert error(page, name) < 1e-6
    assert pixels(page, 'inside', 'after') == pixels(page, 'known', 'after')
    layers = page.get_by_label('layer', exact=True)
    assert layers.input_value() == '2' and layers.locator('option').all_inner_texts() == [
        '0: convolution', '1: ReLU', '2.convolution: convolution', '2']
    values = []
    for pixel in '0.2.9.11', '1.2.9.11':
        page.evaluate(f"location.hash = 'turn=90&pixel={pixel}'")
        settled(page)
        values.append(re.search(r'patch = .* = (\S+)', page.locator('.value').inner_text())[1])
    assert values[0] == values[1] and float(values[0].replace('−', '-')) != 0


def test_hovering_lights_an_arrow_and_its_target(see):
    page = see(address='turn=90')
    card(page, 'p4 network').locator('.before > *').first.hover()
    lit = card(page, 'p4 network').evaluate('''card => ['before', 'after', 'back'].map(row =>
        [...card.querySelector(`.${row}`).children].findIndex(e => e.classList.contains('lit')))''')
    assert lit == [0, 1, 0] and card(page, 'p4 network').locator('.arrows .lit').count() == 1


PLACES = ['.dial', '.before > *', '.after > *', '.back > *']

def rings(page):
    "Where the rings are, row and column as shares: on the picture, and in each row of maps."
    return page.evaluate("""parts => parts.map(part => {
      const box = document.querySelector(part);
      const ring = box.querySelector('.spot').getBoundingClientRect();
      const frame = box.querySelector('canvas').getBoundingClientRect();
      return ['y', 'x'].map(k => {
        const side = k === 'y' ? 'height' : 'width';
        return (ring[k] + ring[side] / 2 - frame[k]) / frame[side];
      });
    })""", PLACES)


def is_near(a, b): return max(abs(x - y) for x, y in zip(a, b)) < .02


@pytest.mark.parametrize('way', ('pointer', 'touch', 'map'))
def test_a_pixel_is_followed_to_where_it_goes(see, way):
    "The same place in the picture, in the maps before and after, and in those carried back."
    page = see(TurnThePicture(two_layers(), letter(), layer='2'), width=1280)
    box = page.locator('.picture').bounding_box()
    x, y = box['x'] + box['width']*8.5/28, box['y'] + box['height']*5.5/28
    if way == 'pointer': page.mouse.move(x, y)
    elif way == 'touch': page.mouse.click(x, y)
    else: page.evaluate("location.hash = 'turn=0&spot=5.8'")
    page.wait_for_function("location.hash !== '' || !document.querySelector('.dial .spot').hidden")
    settled(page)
    upright = 5.5/28, 8.5/28
    assert all(is_near(ring, upright) for ring in rings(page))
    if way == 'pointer': page.mouse.move(*hand(page, 0))   # it is let go
    slider(page).press('ArrowRight')
    settled(page, 90)
    if way == 'pointer': return page.locator('.dial .spot').wait_for(state='hidden')
    turned = 1 - upright[1], upright[0]
    assert [is_near(ring, turned) for ring in rings(page)] == [True, False, True, False]
    assert is_near(rings(page)[3], upright)
    assert page.locator('.where').inner_text() == 'Row, column 5, 8 is now at 19, 5.'
    assert 'spot=5.8' in page.url


def test_a_pixel_of_a_map_is_found_in_the_picture_behind_windows_and_steps(see):
    "Both roads through the layers of a network, where windows leave out a rim and a pool halves."
    page = see()
    found = page.evaluate("""() => {
      const eye = document.querySelector('.eqtutor-turn').widget.eyes[0];
      return eye.maps.map(({ name, shape }) => {
        const middle = (shape.at(-1) - 1) / 2;
        return [eye.placeIn(name, [13.5, 13.5])[0] - middle,
          eye.placeIn(name, eye.placeFrom(name, [2, 3]))[1] - 3];
      });
    }""")
    assert len(found) > 10 and all(abs(off) < 1e-9 for pair in found for off in pair)


def test_the_keys_follow_a_pixel_too(see):
    page = see(address='turn=90&layer=layers.conv2')
    page.get_by_role('button', name=re.compile('^p4 network, map 90°')).focus()
    page.keyboard.press('ArrowUp')
    settled(page)
    assert 'spot=' in page.url and page.locator('.dial .spot').is_visible()
    assert page.locator('.where').inner_text() in page.locator('.spoken').inner_text()


def test_the_first_broken_layer_is_named_and_a_click_shows_it(see):
    page = see(which_layer(), address='turn=90')
    said = page.locator('.first')
    assert said.inner_text() == '✗ first broken: conv2 (A), pool.pool (B), norm1.multiply (C)'
    assert page.locator('.layers path.line').count() == 3
    box = page.locator('.layers > svg').bounding_box()
    page.mouse.click(box['x'] + 46, box['y'] + 20)
    settled(page)
    assert page.get_by_label('layer', exact=True).input_value() == 'conv1'
    slider(page).press('ArrowUp')
    settled(page, 91)
    assert said.inner_text() == 'Turn to an element of the group.'


def test_the_errors_by_layer_are_those_of_torch(see):
    net, x = two_layers(NoPermutation), letter()[None, None]
    page = see(TurnThePicture(net, letter(), layer='2'), address='turn=90')
    errors = page.evaluate("""() => {
      const { eyes: [eye], state } = document.querySelector('.eqtutor-turn').widget;
      const { values } = eye.widget.sights[0];
      return eye.layerErrors(values, state);
    }""")
    for i in range(3):
        want = equivariance_error(net[:i + 1], x, 'p4')[1]
        assert abs(errors[i] - want) < 1e-3*want + 1e-6


def test_the_error_is_drawn_as_the_reader_turns(see):
    page = see()
    for degrees in 1, 2, 3, 4:
        slider(page).press('ArrowUp')
        settled(page, degrees)
    path = page.locator('.angles > svg path.line0').get_attribute('d')
    assert len(re.findall('[ML]', path)) == 5 and path.count('M') == 1


def test_whose_labels_and_arrows_turn_along(see):
    "A picture comes out: at each element right layers carry it along, others do not."
    torch.manual_seed(0)
    ways = {'labels': (lambda group: nn.Sequential(
                LiftingConv2d(2, 4, 5, group, padding=2), nn.ReLU(),
                ProjectionConv2d(4, 4, 5, group, padding=2)), 'Z2'),
            'arrows': (lambda head: nn.Sequential(
                LiftingConv2d(2, 4, 5, 'p4', padding=2), nn.ReLU(),
                head(4, 2, 5, 'p4', padding=2)), ProjectionConv2d)}
    right = dict(labels='p4', arrows=VectorProjectionConv2d)
    for output, (make, wrong) in ways.items():
        nets = {'right': make(right[output]).eval(), 'wrong': make(wrong).eval()}
        widget = TurnThePicture(nets, torch.rand(2, 16, 16), 'p4', output=output, simple=True)
        page = see(widget, width=390)
        assert headline(page) == f'Turn the picture: do the {output} turn along?'
        assert card(page, 'right').locator('.words').inner_text() == ''   # nothing was tested
        for degrees in 90, 180, 270:
            slider(page).press('ArrowRight')
            settled(page, degrees)
            share = [card(page, name).locator('.words').inner_text()[:5].strip() for name in nets]
            assert share[0] == '✓ 100' and share[1][0] == '✗'
            assert f'The wrong did not turn the {output} along.' in headline(page)
        assert card(page, 'right').locator('.outcome').is_visible() and too_wide(page) == 0
        page.locator('.more summary').click()      # of arrows, too, the last layer passes
        page.get_by_label('layer', exact=True).select_option('2')
        settled(page)
        signs = [verdict(page, name)[0] for name in nets]
        assert signs == ['✓', '✗'] and '(right)' not in page.locator('.first').inner_text()


# --- state

def test_the_address_brings_everything_back(see):
    page = see()
    draw_seven(page)
    page.get_by_role('checkbox', name='broken network').uncheck()
    page.get_by_label('layer', exact=True).select_option('layers.relu3')
    slider(page).press('ArrowRight')
    settled(page, 90)
    shown = headline(page), pixels(page, 'p4 network', 'after')
    assert 'ink=' in page.url and 'turn=90' in page.url
    page.reload()
    settled(page, 90)
    assert (headline(page), pixels(page, 'p4 network', 'after')) == shown
    assert not card(page, 'broken network').is_visible()


def test_the_address_brings_the_pixel_back(see):
    page = see(address='turn=90&layer=layers.conv2')
    page.get_by_role('button', name=re.compile('^p4 network, map 90°')).click()
    settled(page)
    shown = page.locator('.value').inner_text()
    assert 'filter × patch' in shown and 'pixel=0.1.' in page.url
    page.reload()
    settled(page)
    assert page.locator('.value').inner_text() == shown and page.locator('.pixel').count() == 1
    page.get_by_label('layer', exact=True).select_option('layers.relu3')   # has no such pixel
    settled(page)
    assert 'pixel=' not in page.url and page.locator('.pixel').count() == 0


NOWHERE = '0.4.0.0', '3.0.0.0', '0.0.99.0', '0.0.0', '0.0.0.-1', '0.0.x.1'

@pytest.mark.parametrize('pixel', NOWHERE)
def test_a_pixel_that_is_not_there(see, pixel):
    page = see(address=f'turn=90&layer=layers.conv2&pixel={pixel}')
    assert page.locator('.pixel').count() == 0
    assert 'Click a pixel' in page.locator('.value').inner_text()


BAD = ['turn=x&layer=nowhere&picture=99&channel=-4&show=7', 'ink=%3Cscript%3E&picture=drawn',
       'picture=constructor&layer=__proto__&turn=1e999']

@pytest.mark.parametrize('address', BAD)
def test_an_address_that_makes_no_sense(see, address):
    page = see(address=address)
    assert page.locator('.pictures [aria-pressed=true]').count() == 1
    assert headline(page).endswith('say 7. Now turn the picture.')


def test_two_widgets_share_a_page(visit):
    html = hero().html()
    text = whole_page('two', html, html)
    assert len(text) < 1.2*len(html) and text.count('eqtutorTurn ??=') == 1
    page = visit(text)
    settled(page)
    sliders = page.get_by_role('slider').all()
    sliders[1].press('Shift+ArrowRight')
    settled(page)
    assert [s.input_value() for s in sliders] == ['0', '1'] and '2.turn=1' in page.url
    assert page.evaluate('''() => {
        const [a, b] = [...document.querySelectorAll('.eqtutor-turn')].map(e => e.widget.eyes);
        return a.every((eye, i) => eye.network === b[i].network);
    }'''), 'one copy of each network'


# --- files

EVIL = '<img src=x onerror="document.title=1">.png'

def png(picture, text=''):
    info = PngImagePlugin.PngInfo()
    info.add_text('Comment', f'<script>document.title = "{text}"</script>')
    picture.save(buffer := io.BytesIO(), 'PNG', pnginfo=info)
    return buffer.getvalue()


def load(page, data, name='digit.png', kind='image/png'):
    file = dict(name=name, mimeType=kind, buffer=data)
    page.get_by_label('load a picture').set_input_files(file)
    settled(page)


def test_a_loaded_picture_is_made_small_and_nothing_in_it_runs(see):
    page = see()
    photo = Image.new('L', (300, 200), 255)
    photo.paste(0, (100, 20, 200, 60))   # dark on light, as on paper
    load(page, png(photo, 'run'), EVIL)
    assert page.title() == 'Turn a digit' and 'onerror' not in page.content()
    values = page.evaluate("document.querySelector('.eqtutor-turn').widget.gallery.get('loaded')")
    x = torch.tensor(values['data']).view(values['shape'])
    assert values['shape'] == [1, 28, 28] and x[0, 5, 14] > .9 and x[0, 20, 14] < .1
    assert 'sent nowhere' in page.locator('.said').inner_text()
    assert 'picture=' not in page.url   # nor into the address


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=1"><script>x</script></svg>'

@pytest.mark.parametrize('data, kind', [(b'no picture', 'image/png'), (SVG, 'image/svg+xml')])
def test_a_file_that_is_no_picture(see, data, kind):
    page = see()
    load(page, data, kind=kind)
    said = page.locator('.said', has_text='no picture that a browser reads')
    said.wait_for(state='attached')   # the file is read while the test goes on
    assert page.title() == 'Turn a digit' and '7' in headline(page)


# --- how it looks

@pytest.mark.parametrize('scheme', ('light', 'dark'))
def test_above_the_fold_and_easy_to_read(see, scheme):
    page = see(color_scheme=scheme, address='turn=90')
    bottom = page.locator('.eqtutor-turn').evaluate('e => e.getBoundingClientRect().bottom')
    assert bottom <= 720 and too_wide(page) == 0
    assert faint(page) == []
    page.set_viewport_size(dict(width=390, height=844))
    settled(page)
    assert too_wide(page) == 0
    assert page.locator('.dial').bounding_box()['y'] + 300 < 844


def test_size_of_a_page_of_three_networks(tmp_path):
    nets = {}
    for seed in range(3):
        torch.manual_seed(seed)
        rest = nn.Linear(10, 73), nn.BatchNorm1d(73)   # to make the number round
        nets[f'network {seed}'] = nn.Sequential(p4_cnn(channels=11), *rest).eval()
    sizes = [sum(p.numel() for p in net.parameters()) for net in nets.values()]
    assert sizes == [30_000]*3
    widget = TurnThePicture(nets, letter())
    pictures = sum(len(p['data']) for p in widget._spec()['pictures'])
    size = widget.save(tmp_path/'three.html').stat().st_size - pictures
    print(f'{size/1000:.1f} kB without pictures')
    assert size <= 360_000   # 240 of them are weights; a page may weigh 700


# --- Python's side

class Sorted(nn.Module):
    def forward(self, f): return f.flatten(-2).sort(-1).values.view_as(f)


def test_a_layer_the_engine_does_not_know(see):
    nets = {'two layers': two_layers(), 'strange network': nn.Sequential(two_layers(), Sorted())}
    widget = TurnThePicture(nets, letter())
    page = see(widget)
    assert 'strange network: the engine in the page does not know' in page.content()
    assert '1 (Sorted)' in page.content() and page.get_by_role('slider').count() == 0
    assert too_wide(page) == 0 and faint(page) == []


def test_outputs_of_a_notebook(monkeypatch):
    monkeypatch.setenv('EQTUTOR_STATIC', '1')
    bundle = hero()._repr_mimebundle_()
    assert set(bundle) == {'text/plain', 'text/html'} and len(bundle['text/html']) < 300_000
    assert bundle == turn_a_digit()._repr_mimebundle_()
    first, second = share_once(bundle['text/html'], bundle['text/html'])
    assert first == bundle['text/html'] and len(second) < .2*len(first)


# --- beside a kernel

def test_a_notebook_gets_the_live_page_and_the_one_that_stays(monkeypatch):
    for name in 'EQTUTOR_STATIC', 'IN_TEST': monkeypatch.delenv(name, raising=False)
    widget = TurnThePicture(two_layers(), letter())
    bundle = widget._repr_mimebundle_()
    assert bundle['text/html'] == widget.html()
    assert 'application/vnd.jupyter.widget-view+json' in bundle


def live_page(visit, widget):
    "The page as a notebook shows it, with a place for letters; and the latest letter."
    output, mail = widget.live().children
    [shown] = output.outputs
    assert widget.html() in shown['data']['text/html'] and mail.value == ''
    page = visit(whole_page('live', shown['data']['text/html'], '<div class="mail"></div>'))
    settled(page)
    return page, mail


def deliver(page, mail):
    "As ipywidgets shows HTML."
    page.locator('.mail').evaluate('(box, html) => (box.innerHTML = html)', mail.value)
    settled(page)


def test_a_live_page_shows_what_python_sends(visit, see):
    net = two_layers()
    widget = TurnThePicture({'mine': net}, letter(), layer='2')
    page, mail = live_page(visit, widget)
    slider(page).press('ArrowRight')
    settled(page, 90)
    old = pixels(page, 'mine', 'after')
    with torch.no_grad(): net[2].weight.normal_()
    widget.update()
    assert pixels(page, 'mine', 'after') == old   # nothing was delivered yet
    deliver(page, mail)
    new = pixels(page, 'mine', 'after')
    assert new != old and new == pixels(see(widget, address='turn=90'), 'mine', 'after')
    assert page.locator('.angle').inner_text() == '90°' and error(page, 'mine') < 1e-6
    widget.update({'mine': two_layers(NoPermutation)}, letter().flip(1))
    deliver(page, mail)
    assert '✗' in verdict(page, 'mine') and pixels(page, 'mine', 'before') != old
    assert page.locator('.pictures canvas').count() == 1


def test_a_letter_to_another_page_is_not_read(visit):
    widget, other = (TurnThePicture(two_layers(), letter(), layer='2') for _ in range(2))
    page, _ = live_page(visit, widget)
    _, mail = other.live().children
    other.update(two_layers(NoPermutation))
    assert 'eqtutor-letter' in mail.value
    deliver(page, mail)
    slider(page).press('ArrowRight')
    settled(page, 90)
    assert '✓' in verdict(page, 'network')


def test_a_live_page_gets_another_network_with_other_layers(visit):
    widget = TurnThePicture(two_layers(), letter(), layer='2', channel=3)
    page, mail = live_page(visit, widget)
    first = nn.Sequential(LiftingConv2d(1, 2, 5, 'p4', padding=2), nn.ReLU()).eval()
    widget.update(first)
    deliver(page, mail)
    layers = page.get_by_label('layer', exact=True)
    assert layers.locator('option').all_inner_texts() == ['0: convolution', '1: ReLU']
    assert layers.input_value() == '1' == widget.layer


def test_what_a_live_page_cannot_show():
    widget = TurnThePicture({'mine': two_layers()}, letter())
    for given in ({'other': two_layers()}, letter()), (None, letter()[:14, :14]):
        with pytest.raises(ValueError, match=r"keeps its \['mine', \(1, 28, 28\)\], got"):
            widget.update(*given)
    with pytest.raises(ValueError, match='does not know'):
        widget.update({'mine': nn.Sequential(two_layers(), Sorted())})


@pytest.mark.parametrize('pictures, options, why', [
    (torch.ones(28, 28)*2, {}, 'expected 0 to 1'), (torch.ones(28, 20), {}, 'square'),
    ({'a': torch.ones(28, 28), 'b': torch.ones(14, 14)}, {}, 'of one shape'), ({}, {}, 'one pict'),
    (torch.ones(28, 28), dict(layer='nowhere'), 'expected one of 0, 1, 2'),
    (torch.ones(28, 28), dict(mean=[0, 0]), 'mean has 2 values')])
def test_what_does_not_fit(pictures, options, why):
    with pytest.raises(ValueError, match=why): TurnThePicture(two_layers(), pictures, **options)


@pytest.mark.slow
@pytest.mark.parametrize('names, frames', [(HERO[:1], 20), (HERO, 8)])
def test_frames_a_second(see, names, frames):
    "On an idle machine."
    nets, pictures, about = upright_networks()
    widget = TurnThePicture({name: nets[name] for name in names}, pictures, layer='layers.relu2',
                            mean=about['mean'], std=about['std'])
    page = see(widget)
    rate = page.evaluate('''async () => {
        const widget = document.querySelector('.eqtutor-turn').widget;
        const began = performance.now();
        for (let i = 1; i <= 40; i++) {
          widget.set({turn: 7 * i});
          await new Promise(requestAnimationFrame);
          await new Promise(requestAnimationFrame);
        }
        return 40000 / (performance.now() - began);
    }''')
    print(f'{len(names)} networks: {rate:.1f} frames a second')
    assert rate > frames
