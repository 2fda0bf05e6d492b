"""Answers by angle, stages from the picture down, and the tour: driven like a person, and as torch.

The layers around a network, which read copies of a picture, are tried in the engine first.
"""
import copy
import re

import pytest
import torch
from torch import nn

from eqtutor.actions import act, rotate
from eqtutor.equivariance import equivariance_error
from eqtutor.groups import get_group
from eqtutor.trace import up_to
from eqtutor.widgets import (
    AttentionMap,
    TurnThePicture,
    as_pictures,
    looking_ahead,
    three_layers,
    turn_a_digit,
)
from eqtutor.widgets.graph import network_graph
from eqtutor.wrappers import Canonicalise, Symmetrise

from .examples import letter, measure, scores, two_layers
from .reading import faint, stops, too_wide, unnamed
from .test_turn import settled, slider, turn_by_hand


class ThreeMarks(nn.Module):
    "What stands at the left is not what stands above: three scores that a turn changes smoothly."
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.read = nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                  nn.Flatten(), nn.Linear(4, 3))
        with torch.no_grad(): self.read[-1].weight.mul_(40)

    def forward(self, x): return self.read(x)


def ways():
    "Three ways to one symmetry, of one plain network; and one that forgets two of the turns."
    net = ThreeMarks().eval()
    return {'built in': scores('p4'), 'averaged': Symmetrise(net, 'p4').eval(),
            'upright first': Canonicalise(net, 'p4').eval()}


# --- copies of a picture, in the engine

def masks(): return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 1))


def marks(): return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(147, 4))


WRAPPERS = {
    f'{wrap.__name__} {make.__name__} {group}': (wrap, make, group)
    for wrap in (Symmetrise, Canonicalise) for make in (masks, marks) for group in ('p4', 'p4m')}


@pytest.mark.parametrize('name', WRAPPERS)
def test_a_network_that_reads_copies_is_the_one_of_torch(engine, name):
    wrap, make, group = WRAPPERS[name]
    torch.manual_seed(1)
    net, x = wrap(make(), group).eval(), torch.randn(1, 1, 9, 9)
    group = get_group(group)
    for h, value in engine.turned(network_graph(net, x, 'single'), group, x).items():
        with torch.no_grad(): want = net.double()(act(group, h, x.double()))[0]
        assert (value - want).abs().max() < 1e-5*want.abs().max(), h


def test_a_learned_score_chooses_too(engine):
    torch.manual_seed(1)
    score = nn.Sequential(nn.Conv2d(1, 1, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten(0))
    net, x = Canonicalise(marks(), 'p4', score).eval(), torch.randn(1, 1, 9, 9)
    graph = network_graph(net, x, 'single')
    assert [node['op'] for node in graph['nodes']].count('choose') == 1
    with torch.no_grad(): want = net(x)[0]
    assert (engine.run(graph, x)[0] - want).abs().max() < 1e-5


# --- answers by angle

MEASURED = {name: dict(zip(range(0, 361, 45), values)) for name, values in {
    'built in': [.9, .4, .9, .4, .9, .4, .9, .4, .9],
    'averaged': [.8, .7, .6, .5, .4, .5, .6, .7, .8],
    'upright first': [.7]*9}.items()}


def answers(curves=None):
    return TurnThePicture(ways(), letter(), 'p4', face='answers', curves=curves, title='Answers')


@pytest.fixture
def see(visit, tmp_path):
    def open_(widget, width=1280, **more):
        page = visit(widget.save(tmp_path/'one.html').read_text('utf-8'), width, **more)
        page.set_viewport_size(dict(width=width, height=720 if width > 400 else 844))
        settled(page)
        return page
    return open_


def verdicts(page): return page.locator('.verdict').all_inner_texts()


def swept(page):
    "The curves are all there."
    page.wait_for_function("""() => document.querySelector('.eqtutor-turn').widget.views
      .find(view => view.sweep).isDone""", timeout=60_000)


KNOWN = """() => document.querySelector('.eqtutor-turn').widget.views
  .find(view => view.sweep).known.map(known => [...known].sort(([a], [b]) => a - b))"""


def test_the_curves_are_those_of_torch_and_jump_where_another_copy_wins(see):
    page = see(answers())
    swept(page)
    for (name, net), curve in zip(ways().items(), page.evaluate(KNOWN)):
        assert [angle for angle, _ in curve] == [*range(0, 360, 2)]
        x = torch.cat([rotate(letter()[None, None], float(a)) for a, _ in curve])
        with torch.no_grad(): shares = net(x).softmax(1)
        want = shares[:, shares[0].argmax()]
        assert (torch.tensor([value for _, (value, _) in curve]) - want).abs().max() < .01, name
    copies = [copy_ for _, (_, copy_) in curve]
    with torch.no_grad(): assert copies == net.scores(x).argmax(0).tolist()
    switches = sum(a != b for a, b in zip(copies, copies[1:] + copies[:1]))
    assert switches >= 4 and page.locator('.answers g .jump').count() == switches
    assert page.locator('.answers path.line2').last.get_attribute('d').count('M') == 1 + switches
    assert page.locator('.answers g path.line1').get_attribute('d').count('M') == 1


@pytest.mark.parametrize('width', (1280, 390))
def test_the_accuracy_curve_is_a_dial(see, width):
    "Turned by hand the points move on their curves; and a drag on the chart turns the picture."
    page = see(answers(MEASURED), width=width)
    assert 'accuracy' in page.locator('.what').inner_text()
    def heights(): return [float(e.get_attribute('cy')) for e in page.locator('.point').all()]
    def said(): return page.locator('.rate').all_inner_texts()
    upright = heights()
    turn_by_hand(page, 0, 45)
    settled(page, 45)
    assert said()[0] == '40 % of the test digits are read rightly at 45°.'
    assert heights()[0] > upright[0] and heights()[2] == upright[2]
    box = page.locator('.answers > svg').bounding_box()
    x = box['x'] + 44 + (box['width'] - 58)*200/360
    page.mouse.move(x - 40, box['y'] + 40)
    page.mouse.down()
    page.mouse.move(x, box['y'] + 50, steps=4)
    page.mouse.up()
    settled(page)
    turn = int(page.locator('.angle').inner_text()[:-1])
    assert abs(turn - 200) <= 1
    low, high = MEASURED['averaged'][180], MEASURED['averaged'][225]
    value = low + (high - low)*(turn - 180)/45
    assert said()[1].startswith(f'about {100*value:.0f} %')
    label = page.locator('.answers > svg').get_attribute('aria-label')
    assert f'at {turn}°: ' in label and too_wide(page) == 0


def test_right_ways_pass_and_a_wrapper_that_forgets_turns_does_not(see):
    nets = ways() | {'averaged': Symmetrise(ThreeMarks().eval(), 'C2')}
    widget = TurnThePicture(nets, letter(), 'p4', face='answers').expect_broken('averaged')
    page = see(widget)
    assert verdicts(page) == ['Turn the picture to test it.']*3
    slider(page).focus()
    for degrees, sign in (90, '✗'), (180, '✓'), (270, '✗'):
        page.keyboard.press('ArrowRight')
        settled(page, degrees)
        assert [v[0] for v in verdicts(page)] == ['✓', sign, '✓']
    page.keyboard.press('ArrowUp')
    settled(page)
    assert all(v.startswith('≈') for v in verdicts(page))


def test_the_copy_that_is_read_is_shown_and_flips(see):
    page = see(answers())
    net, seen = ways()['upright first'], set()
    for turn in 0, 30, 60, 90:
        page.evaluate(f"location.hash = 'turn={turn}'")
        settled(page, turn)
        words = page.locator('.reads:not([hidden])').inner_text()
        with torch.no_grad(): h = net.scores(rotate(letter()[None, None], float(turn))).argmax()
        assert words == f'reads it turned by {90*int(h)}°'
        seen.add(words)
    assert len(seen) > 1


def test_what_has_no_answers_or_stages_says_so():
    with pytest.raises(ValueError, match='scores'):
        TurnThePicture(two_layers(), letter(), face='answers')
    with pytest.raises(ValueError, match='one network'):
        TurnThePicture({'a': two_layers(), 'b': two_layers()}, letter(), face='stages')
    with pytest.raises(ValueError, match='expected curves of'):
        TurnThePicture(ways(), letter(), face='answers', curves={'built in': {0: 1.}})
    with pytest.raises(ValueError, match='LiftingConv2d'):
        TurnThePicture(nn.Conv2d(1, 2, 3), letter(), face='stages')


def test_normalised_images_come_back():
    images = torch.randn(3, 1, 8, 8)
    given = as_pictures(images, 'abc')
    widget = TurnThePicture(two_layers(), **given)
    for name, image in zip('abc', images):
        torch.testing.assert_close(widget.input(widget.pictures[name])[0], image)


# --- stages

STAGES = ['picture', 'lifting', 'group convolution', 'projection']
CANVASES = """row => [...row.querySelectorAll('canvas')].map(canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return [...data].filter((_, i) => i % 4 === 0);
})"""


def stage(page, name): return page.get_by_role('article', name=name, exact=True)


def test_the_right_side_fills_when_the_picture_moves(see):
    page = see(three_layers())
    assert page.locator('.step').evaluate_all('e => e.map(x => x.ariaLabel)') == STAGES
    after = page.locator('.step .after canvas').first
    assert page.locator('.chain').get_attribute('class') == 'chain waits'
    assert after.evaluate('e => getComputedStyle(e).opacity') == '0' and set(verdicts(page)) == {''}
    turn_by_hand(page, 0, 30)
    settled(page, 30)
    page.wait_for_timeout(1200)   # stage after stage
    assert after.evaluate('e => getComputedStyle(e).opacity') == '1' and set(verdicts(page)) == {''}
    shapes = page.locator('.what code').all_inner_texts()
    assert shapes[1] == '(b, c, |H|, rows, columns) = (1, 1, 4, 15, 15)'
    assert shapes[3] == '(b, c, rows, columns) = (1, 1, 15, 15)'


@pytest.mark.parametrize('h', (1, 2, 3))
def test_stages_show_what_torch_computes_and_where_each_pose_went(see, h):
    widget = three_layers()
    page = see(widget)
    page.evaluate(f"location.hash = 'turn={90*h}'")
    settled(page, 90*h)
    [net] = widget.networks.values()
    x = act('p4', h, widget.input(widget.first))
    for name, layer in zip(STAGES[1:], ('1', '3', '4')):
        with torch.no_grad(): want = up_to(net, layer)(x)[0, 0]
        got = torch.tensor(stage(page, name).locator('.after').evaluate(CANVASES)).view(-1, 15, 15)
        assert torch.equal(got < got.max(), (want > 0).view(-1, 15, 15)), name   # ink or not
        if name == 'projection': continue
        words = stage(page, name).locator('.after small').all_inner_texts()
        assert [re.findall(r'\d+', w) for w in words] == [
            [str(90*q), str(90*((q - h) % 4))] for q in range(4)]
    assert all(v.startswith('✓') for v in verdicts(page)) and len(verdicts(page)) == 3


def test_a_wrong_layer_shows_from_itself_on(see):
    page = see(three_layers(wrong=True).expect_broken())
    for degrees in 90, 180, 270:
        slider(page).press('ArrowRight')
        settled(page, degrees)
        assert [v[0] for v in verdicts(page)] == ['✓', '✗', '✗']
        spoken = page.locator('.spoken').inner_text()
        assert 'lifting: ✓' in spoken and 'projection: ✗' in spoken


def test_the_three_layers_find_two_brackets_and_keep_the_symmetry():
    widget = three_layers()
    [net] = widget.networks.values()
    x = widget.input(widget.first)
    assert max(equivariance_error(net.double(), x.double(), 'p4')) < 1e-12
    with torch.no_grad(): found, laid = up_to(net, '3')(x.double()), net(x.double())
    assert found.sum() == 2 and [int(q) for q in found[0, 0].nonzero()[:, 0]] == [0, 1]
    assert laid.sum() == 18 and (laid*(x == 0)).sum() == 0   # two brackets of nine pixels


def test_a_pixel_of_a_stage_is_a_sum(see):
    page = see(three_layers())
    slider(page).press('ArrowRight')
    settled(page, 90)
    stage(page, 'projection').locator('.after button').focus()
    page.keyboard.press('Enter')
    settled(page)
    assert 'filter × patch' in page.locator('.value').inner_text()
    assert page.locator('.step .pixel').count() == 1


# --- the dial, the screen, the eye

FACES = {'stages': three_layers, 'answers': answers, 'measured': lambda: answers(MEASURED)}


@pytest.mark.parametrize('name', FACES)
@pytest.mark.parametrize('width', (1280, 390))
def test_nothing_moves_under_the_finger(see, name, width):
    page = see(FACES[name](), width=width)
    page.evaluate(measure('watch'))
    turn_by_hand(page, 0, 90)
    settled(page, 90)
    assert len(page.evaluate('[...window.centres]')) == 1


@pytest.mark.parametrize('name', FACES)
def test_question_hand_and_answers_are_on_one_screen(see, name):
    page = see(FACES[name]())
    slider(page).press('ArrowRight')
    settled(page, 90)
    parts = ['.headline', '.dial', '.turning', '.step:last-of-type .row.after'
             if name == 'stages' else '.answers > svg']
    for width, height in (1280, 720), (780, 720), (390, 844):
        page.set_viewport_size(dict(width=width, height=height))
        settled(page)
        boxes = [page.locator(part).bounding_box() for part in parts]
        boxes += [box.bounding_box() for box in page.locator('.card').all()]
        assert all(box['y'] >= 0 and box['y'] + box['height'] <= height for box in boxes), width
        assert too_wide(page) == 0


# --- the tour

def tour_of(page): return page.get_by_role('group', name='the tour')


def step(page): return page.locator('.tour .number').inner_text()


def is_done(page):
    settled(page)
    return page.locator('.tour .state').inner_text() == '✓ done'


def told(page): return page.locator('.told').inner_text()


@pytest.mark.parametrize('width', (1280, 390))
def test_a_tour_waits_until_each_thing_is_done(see, width):
    "From the networks to a layer to the one sum; every step is done by hand."
    page = see(turn_a_digit(broken=False, simple=True, tour=True), width=width)
    assert not tour_of(page).is_visible()
    page.get_by_role('button', name='Show me around').click()
    level = 'document.querySelector(".eqtutor-turn").dataset.level'
    assert step(page) == '1 of 5' and page.evaluate(level) == 'network' and not is_done(page)
    turn_by_hand(page, 0, 40)
    assert is_done(page) and told(page) == 'Done. Press Next to go on.'
    page.get_by_role('button', name='Next').click()
    assert step(page) == '2 of 5' and not is_done(page)
    slider(page).press('ArrowRight')
    assert is_done(page)
    page.get_by_role('button', name='Next').click()
    assert page.evaluate(level) == 'layer' and not is_done(page)
    page.locator('.more summary').click()
    page.get_by_label('layer', exact=True).select_option('layers.relu1')
    assert is_done(page)
    page.get_by_role('button', name='Next').click()
    assert page.evaluate(level) == 'pixel' and not is_done(page)
    page.get_by_role('button', name=re.compile('^p4 network, map 90°')).click()
    assert is_done(page)
    page.get_by_role('button', name='Next').click()
    assert 'filter × patch' in page.locator('.value').inner_text()
    numbers = page.locator('.numbers').first
    assert numbers.is_visible() and re.search(r'0\.\d\d', numbers.inner_text())
    page.get_by_role('button', name='Turn on by a quarter').click()
    assert is_done(page) and told(page).endswith('end of the tour.')
    assert too_wide(page) == 0
    page.get_by_role('button', name='End', exact=True).click()
    assert not tour_of(page).is_visible() and page.evaluate(level) is None


def test_the_tour_by_keyboard_is_said_and_blocks_nothing(see):
    page = see(turn_a_digit(broken=False, simple=True, tour=True))
    button = page.get_by_role('button', name='Show me around')
    button.press('Enter')
    assert button.get_attribute('aria-expanded') == 'true'
    assert page.evaluate('document.activeElement.className').startswith('next')
    assert told(page).startswith('Step 1 of 5, network: Turn the picture')
    page.get_by_role('button', name='Take the keyboard there').press('Enter')
    assert page.evaluate('document.activeElement.type') == 'range'
    for key in 'PageUp', 'PageUp': page.keyboard.press(key)
    assert is_done(page) and unnamed(page) == []
    assert all(stop['ring'] and stop['name'] for stop in stops(page))
    page.get_by_role('button', name='Next').press('Enter')
    page.get_by_role('button', name='Skip').press('Enter')   # nobody has to
    assert step(page) == '3 of 5'
    page.get_by_role('button', name='Back').press('Enter')
    assert step(page) == '2 of 5'
    page.keyboard.press('Escape')
    assert not tour_of(page).is_visible() and button.get_attribute('aria-expanded') == 'false'
    assert page.evaluate('document.activeElement.className') == 'guide'


@pytest.mark.parametrize('width', (1280, 390))
def test_a_tour_of_attention(visit, width):
    widget = AttentionMap(looking_ahead(28), letter(), tour=True)
    page = visit(widget.html().join(['<title>x</title><body>', '']), width)
    def begun(): return page.evaluate("""() => {
      const { widget } = document.querySelector('.eqtutor-attention');
      return !widget.frame;
    }""")
    page.get_by_role('button', name='Show me around').click()
    acts = [lambda: page.get_by_role('button', name='turn by 90°').click(),
            lambda: page.get_by_role('button', name='pose 180°').click(),
            lambda: page.locator('.asks').press('ArrowUp'),
            lambda: page.locator('.asks').press('ArrowLeft')]
    for number, do in enumerate(acts, 1):
        assert step(page) == f'{number} of 4'
        assert page.locator('.tour .state').inner_text() == 'try it'
        do()
        page.locator('.tour.done').wait_for()
        assert begun() is not None and 'Done' in told(page)
        page.locator('.tour .next').click()
    assert not tour_of(page).is_visible() and too_wide(page) == 0


@pytest.mark.parametrize('scheme', ('light', 'dark'))
def test_the_tour_can_be_read(see, scheme):
    page = see(turn_a_digit(broken=False, simple=True, tour=True), color_scheme=scheme)
    page.get_by_role('button', name='Show me around').click()
    slider(page).press('ArrowRight')
    assert is_done(page) and faint(page) == []


def test_only_who_asks_for_a_tour_has_one():
    assert 'Show me around' not in turn_a_digit().html()
    assert 'TurnThePicture(net' in turn_a_digit(tour=True).html()   # yours runs in the page, too


def test_weights_of_the_copies_travel_once():
    "Four copies in the graph of an average, and the tensors of one."
    net = ThreeMarks().eval()
    one, four = (network_graph(n, letter()[None, None])['tensors'] for n in (
        net, Symmetrise(copy.deepcopy(net), 'p4')))
    assert set(one) == set(four)
