"Panels to paint on: what a click, a key and a stroke do, and where the script says it goes."
import re

import pytest
import torch

from eqtutor.actions import act
from eqtutor.groups import C, D
from eqtutor.widgets import PaintAndMove
from eqtutor.widgets.page import whole_page

from .examples import WIDTHS

SIZE = 5


def panels(group, *painted):
    f = torch.zeros(len(group), SIZE, SIZE)
    for place in painted: f[place] = 1
    return f


def widget(group=C(4)): return PaintAndMove(panels(group, (1, 0, 0)), group)


def scale(group, box):
    "Pixels of the screen for one of the canvas: panels of 60, and 10 between them."
    return box['width']/(len(group)*70 - 10)


@pytest.mark.parametrize('group', [C(2), C(4), D(1), D(2), D(4)], ids=lambda H: H.name)
def test_the_page_moves_panels_as_the_group_acts(group):
    f = torch.randn(len(group), SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    paint = PaintAndMove(f, group)
    for h in group.elements:
        moved = f.flatten()[paint.sources(h)]
        assert torch.equal(moved, act(group, h, f[None, None])[0, 0])


def test_an_image_has_one_panel():
    paint = PaintAndMove(torch.eye(SIZE)[None], 'p4')
    assert paint.sources(1).shape == (1, SIZE, SIZE) and paint.html().count('<canvas') == 4


@pytest.mark.parametrize('f, group', [(torch.zeros(3, 5, 5), 'p4'), (torch.zeros(4, 5, 6), 'p4'),
                                      (torch.zeros(8, 5, 5), 'C8'), (torch.zeros(5, 5), 'p4')])
def test_what_is_no_stack_of_panels_is_refused(f, group):
    with pytest.raises(ValueError, match='got shape'): PaintAndMove(f, group)


def ends(page):
    "Where the script says that the pixel under the cursor goes, the pixel itself first."
    said = page.locator('.eqtutor-paint output').inner_text()
    places = re.findall(r'panel (\d), row (\d), column (\d)', said)
    return [tuple(map(int, place)) for place in places]


def wanted(group, place):
    f = panels(group, place)[None, None]
    return [tuple(act(group, h, f)[0, 0].nonzero()[0].tolist()) for h in group.elements]


def dark(page, number):
    "How many cells of a canvas are painted."
    return page.evaluate('''number => {
      const canvas = document.querySelectorAll('.eqtutor-paint canvas')[number];
      const copy = new OffscreenCanvas(canvas.width, canvas.height);
      const pen = copy.getContext('2d', { willReadFrequently: true });
      pen.drawImage(canvas, 0, 0);
      const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
      const cells = [];
      for (let y = 5; y < canvas.height; y += 12) for (let x = 5; x < canvas.width; x++) {
        const panel = Math.floor(x / 70);
        if ((x - panel * 70) % 12 === 5 && x - panel * 70 < 60) {
          cells.push(data[4 * (y * canvas.width + x)] === 0x12);
        }
      }
      return cells.filter(Boolean).length;
    }''', number)


@pytest.mark.parametrize('group', [C(4), D(1), D(4)], ids=lambda H: H.name)
def test_keys_and_clicks_paint_and_the_moves_follow(visit, group):
    page = visit(whole_page('paint', widget(group).html()))
    assert ends(page) == wanted(group, (1, 0, 0))
    original = page.locator('canvas.original')
    original.focus()
    page.keyboard.press('ArrowDown')
    assert ends(page) == wanted(group, (1, 1, 0)) and dark(page, 0) == 1
    page.keyboard.press(' ')
    assert [dark(page, n) for n in range(len(group))] == [2]*len(group)
    one, last = scale(group, original.bounding_box()), len(group) - 1
    original.click(position=dict(x=(last*70 + 3*12 + 5)*one, y=(4*12 + 5)*one))
    assert ends(page) == wanted(group, (last, 4, 3)) and dark(page, 1) == 3
    page.get_by_role('button').click()
    assert [dark(page, n) for n in range(len(group))] == [0]*len(group)


@pytest.mark.parametrize('group', [C(4), D(1), D(4)], ids=lambda H: H.name)
@pytest.mark.parametrize('width', WIDTHS)
def test_a_stroke_paints_what_it_passes(visit, width, group):
    page = visit(whole_page('paint', widget(group).html()), width)
    box = page.locator('canvas.original').bounding_box()
    one = scale(group, box)
    page.mouse.move(box['x'] + 5*one, box['y'] + 17*one)
    page.mouse.down()
    page.mouse.move(box['x'] + 53*one, box['y'] + 17*one, steps=20)
    page.mouse.up()
    page.mouse.move(box['x'] + 53*one, box['y'] + 53*one, steps=5)
    assert [dark(page, n) for n in range(len(group))] == [6]*len(group)
    assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
