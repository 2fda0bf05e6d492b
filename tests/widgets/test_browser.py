"The widgets in a real browser, as pages of their own without any network."
import re

import pytest
import torch

from eqtutor.actions import rotate
from eqtutor.demo import telling_digit
from eqtutor.models.group_cnn import p4_cnn, z2_cnn
from eqtutor.widgets import demo_page, moved_pixel, upright_networks, whole_page
from eqtutor.widgets.turn import TEN_LINES

from .examples import (
    MAKE,
    WIDTHS,
    drag,
    error_in,
    is_red,
    letter,
    measure,
    name_of,
    state,
    without_scripts_and_styles,
)


def at(root, label, name):
    "What a widget says, once it was checked to be at this element, and right about it."
    now = state(root)
    assert now['positions'] == 1 and now['label'] == now['spoken'] == label
    assert label in now['text']
    if label.startswith('element 0') and name != 'kernel':
        assert 'Nothing has moved yet' in now['text'] and not {*'✓✗'} & {*now['text']}
        assert 'Equivariant:' not in now['text']
    elif name in ('right', 'p4m', 'halves', 'click', 'mirrors', 'whole'):
        assert error_in(now['text']) < 1e-5 and 'Equivariant:' in now['text']
    elif name in ('broken', 'unmoved') and not label.startswith('element 0'):
        assert error_in(now['text']) > 1e-2 and 'breaks the symmetry' in now['text']
    return now


def fits(page): return page.evaluate(measure('size'))['excess'] == 0


@pytest.fixture(params=WIDTHS)
def width(request): return request.param


# --- the slider

@pytest.mark.parametrize('name', MAKE)
def test_page_follows_the_mouse_without_network(visit, tmp_path, name, width):
    widget = MAKE[name]()
    page = visit(widget.save(tmp_path/'saved.html').read_text(encoding='utf-8'), width)
    root, slider = page.locator('[role=group]'), page.get_by_role('slider')
    start = at(root, widget.labels[0], name)
    box = slider.bounding_box()
    left, right, middle = box['x'] + 4, box['x'] + box['width'] - 4, box['y'] + box['height']/2
    page.mouse.click(right, middle)
    end = at(root, widget.labels[-1], name)
    assert end['html'] != start['html']
    drag(page, (right, middle), (left, middle))
    assert at(root, widget.labels[0], name) == start
    images = page.evaluate('[...document.images].map(i => i.alt.trim() && i.naturalWidth)')
    assert all(images), 'a picture without description, or not loaded'


@pytest.mark.parametrize('name', MAKE)
def test_page_follows_the_keyboard(visit, htmls, name, width):
    labels = MAKE[name]().labels
    page = visit(whole_page('keyboard', htmls(name)), width)
    root = page.locator('[role=group]')
    page.get_by_role('slider').focus()
    page.keyboard.press('Home')
    states = [at(root, labels[0], name)]
    for label in labels[1:]:
        page.keyboard.press('ArrowRight')
        states.append(at(root, label, name))
    assert len({s['html'] for s in states}) == len(labels)
    if name not in ('group', 'meter'): assert len({(*s['images'],) for s in states}) == len(labels)
    page.keyboard.press('ArrowLeft')
    at(root, labels[-2], name)
    page.keyboard.press('End')
    assert at(root, labels[-1], name) == states[-1]
    assert fits(page) and page.evaluate(measure('arrows')) < 1


def test_page_without_scripts_shows_everything(visit, width):
    html = MAKE['right']().html()
    page = visit(whole_page('no scripts', html), width, scripts=False)
    frames = page.locator('[data-frame]')
    assert frames.count() == 4 and all(frame.is_visible() for frame in frames.all())
    bare = visit(without_scripts_and_styles(html), width)
    visible = [frame.is_visible() for frame in bare.locator('[data-frame]').all()]
    assert visible == [True, False, False, False], 'the first position'


@pytest.mark.parametrize('names', [
    ('right', 'broken'), ('right', 'right'), ('click', 'unmoved'), ('click', 'click'),
    ('click', 'right')], ids='-'.join)
def test_widgets_on_one_page_do_not_interfere(visit, htmls, names, width):
    "Also the same widget twice, whose ids are equal."
    page = visit(whole_page('two', *(htmls(name) for name in names)), width)
    roots = page.locator('[role=group]').all()
    for i, j in (0, 1), (1, 0):
        before = state(roots[j])
        page.get_by_role('slider').nth(i).focus()
        page.keyboard.press('ArrowRight')
        at(roots[i], MAKE[names[i]]().labels[1], names[i])
        assert state(roots[j]) == before


@pytest.mark.parametrize('name', ('broken', 'unmoved', 'meter'))
def test_a_broken_layer_goes_red_in_words_too(visit, htmls, name):
    page = visit(whole_page('broken', htmls(name)))
    assert page.locator(':is(.good, .bad):visible').count() == 0   # nothing has moved yet
    page.get_by_role('slider').focus()
    page.keyboard.press('ArrowRight')
    verdict = page.locator('.bad:visible')
    assert '✗' in verdict.inner_text() and page.locator('.good:visible').count() == 0
    assert 'breaks the symmetry' in verdict.inner_text() and is_red(verdict)


# --- pixels to click

def spots(page):
    "The places on the image, in reading order: what they are called, and which is chosen."
    radios = page.get_by_role('radio').all()
    names = [r.get_attribute('aria-label') for r in radios]
    chosen = [n for n, r in zip(names, radios) if r.get_attribute('aria-checked') == 'true']
    return names, chosen


def at_pixel(page, widget, pixel, element, name):
    "Checks that the page shows what the widget has at this pixel of the upright image."
    now = at(page.locator('[role=group]'), widget.labels[element], name)
    place = name_of(moved_pixel(widget.group, element, pixel, widget.size))
    assert spots(page)[1] == [place]
    assert f'Pixel: {name_of(pixel)} of the image as it was. Now, marked: {place}.' in now['text']
    picture, *panels = re.findall(r'<img[^>]* src="([^"]+)"', widget.at(*pixel, element)[1])
    if name != 'whole': assert now['images'] == panels   # those are averaged on the page
    spot = page.locator('.spot img').first
    assert spot.get_attribute('src') == picture
    assert spot.get_attribute('alt') == f'the moved image; marked: {place}'


@pytest.mark.parametrize('name', ('click', 'mirrors', 'whole', 'unmoved'))
def test_a_click_chooses_the_pixel_and_the_slider_carries_it_along(visit, htmls, name, width):
    widget = MAKE[name]()
    page = visit(whole_page('click', htmls(name)), width)
    assert spots(page)[0] == [name_of(p) for p in widget.pixels]
    slider, (first, last) = page.get_by_role('slider'), (widget.pixels[1], widget.pixels[-2])
    at_pixel(page, widget, widget.pixels[widget.start], 0, name)
    page.get_by_role('radio', name=name_of(first), exact=True).click()
    at_pixel(page, widget, first, 0, name)
    for element in widget.group.elements[1:]:
        slider.focus()
        page.keyboard.press('ArrowRight')
        at_pixel(page, widget, first, element, name)
    # a click on the turned image: the pixel that lies there now
    place = moved_pixel(widget.group, element, last, widget.size)
    page.get_by_role('radio', name=name_of(place), exact=True).click()
    at_pixel(page, widget, last, element, name)
    slider.focus()
    page.keyboard.press('Home')
    at_pixel(page, widget, last, 0, name)


def test_every_button_lies_on_its_pixel_and_can_be_hit(visit, width):
    widget = MAKE['mirrors']()
    page = visit(whole_page('click', widget.html()), width)
    image = page.locator('.spot img').bounding_box()
    for pixel in widget.pixels:
        y, x = (image[side] + image['width']*(i + .5)/widget.size for side, i in zip('yx', pixel))
        page.mouse.click(x, y)
        at_pixel(page, widget, pixel, 0, 'mirrors')
        box = page.get_by_role('radio', checked=True).bounding_box()
        assert abs(box['x'] + box['width']/2 - x) < 1 and abs(box['y'] + box['height']/2 - y) < 1
        assert box['width'] > 24   # a fingertip
    assert fits(page)


STEPS = [('ArrowRight', 1), ('ArrowDown', 5), ('ArrowDown', 5), ('ArrowLeft', -1), ('ArrowUp', -5)]


def test_arrow_keys_walk_over_the_image(visit, width):
    widget = MAKE['mirrors']()
    page = visit(whole_page('click', widget.html()), width)
    page.get_by_role('slider').focus()
    page.keyboard.press('Tab')      # to the chosen pixel, the only stop of all 25
    assert page.evaluate('document.activeElement.getAttribute("aria-checked")') == 'true'
    place = widget.start
    for key, step in STEPS:
        page.keyboard.press(key)
        place += step
        at_pixel(page, widget, widget.pixels[place], 0, 'mirrors')
    for _ in range(6): page.keyboard.press('ArrowLeft')      # it stops at the rim
    at_pixel(page, widget, widget.pixels[place - place % 5], 0, 'mirrors')
    now = page.evaluate(measure('focus'))
    assert now['role'] == 'radio' and now['ring']
    page.keyboard.press('Tab')
    assert page.evaluate('document.activeElement.getAttribute("role")') != 'radio'


def test_pixels_without_scripts_show_every_element(visit, width):
    widget = MAKE['click']()
    page = visit(whole_page('no scripts', widget.html()), width, scripts=False)
    text = page.locator('[role=group]').inner_text()
    assert all(label in text for label in widget.labels) and text.count('Equivariant:') == 3
    assert page.locator('.spot img').count() == 4 and page.locator('.strip img').count() == 12
    bare = visit(without_scripts_and_styles(widget.html()), width)
    assert bare.locator('.strip img').count() == 3 and bare.locator('.strip img').first.is_visible()


# --- the demo

def test_page_of_the_demo(visit, width):
    torch.manual_seed(0)
    nets = {'Z2-CNN': z2_cnn().eval(), 'p4-CNN': p4_cnn().eval()}
    numbers = dict.fromkeys(('upright', '90°', '180°', '270°', 'any angle'), .5)
    text = demo_page(dict.fromkeys(nets, numbers), nets, letter()[None, None], 'Turn & look.')
    assert len(text.encode()) < 300_000
    page = visit(text, width)
    assert fits(page) and page.get_by_text('Turn & look.').is_visible()
    assert page.get_by_role('row').nth(1).inner_text().split() == ['Z2-CNN'] + ['50.0%']*5
    assert page.locator('.angle').inner_text() == '0°'   # nothing is answered beforehand
    edge = page.get_by_role('heading', level=1).bounding_box()['x']
    assert edge >= 16 and page.locator('h2').last.inner_text() == 'Where to go on'
    assert page.get_by_role('link').get_attribute('href').endswith('/00_turn_a_digit.html')
    page.locator('.more summary').click()
    page.get_by_role('slider').press('ArrowRight')
    for name, sign in ('p4-CNN', '✓'), ('Z2-CNN', '✗'):
        verdict = page.get_by_role('article', name=name).locator('.verdict')
        verdict.filter(has_text=sign).wait_for()


def test_the_ten_lines_of_the_demo_run():
    exec(TEN_LINES, {})
    assert len(TEN_LINES.splitlines()) <= 10


def test_the_digit_of_the_demo_tells_the_two_networks_apart():
    nets, pictures, about = upright_networks()
    x = torch.stack(list(pictures.values()))
    x, y = (x - about['mean'][0])/about['std'][0], torch.tensor(about['classes'])
    two = {'p4-CNN': nets['p4 network'], 'Z2-CNN': nets['plain network']}
    digit = telling_digit(two, x, y)
    answers = {name: [int(net(rotate(digit, 90*k)).argmax()) for k in range(4)]
               for name, net in two.items()}
    assert len(set(answers['p4-CNN'])) == 1 and answers['Z2-CNN'][0] == answers['p4-CNN'][0]
    assert all(said != answers['Z2-CNN'][0] for said in answers['Z2-CNN'][1:])
