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


VALUES = "document.querySelector('.eqtutor-paint').widget"


@pytest.mark.parametrize('group', [C(2), C(4), D(1), D(2), D(4)], ids=lambda H: H.name)
def test_the_page_moves_panels_as_the_group_acts(visit, group):
    f = torch.randn(len(group), SIZE, SIZE, generator=torch.Generator().manual_seed(0)) > 0
    page = visit(whole_page('paint', PaintAndMove(f, group).html()))
    for h in group.elements:
        moved = page.evaluate(f'[...{VALUES}.movedBy({h})]')
        want = act(group, h, f.double()[None, None])[0, 0]
        assert torch.equal(torch.tensor(moved).view_as(want).double(), want)


def test_an_image_has_one_panel():
    paint = PaintAndMove(torch.eye(SIZE)[None], 'p4')
    assert len(re.findall('class="row (?:sheet|moved)"', paint.html())) == 4


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
    "How many pixels of a row are painted."
    return page.evaluate("""number => {
      const row = document.querySelectorAll('.eqtutor-paint .row')[number];
      const canvases = [...row.querySelectorAll('canvas')];
      const ink = getComputedStyle(document.querySelector('.eqtutor-paint')).color;
      const red = Number(ink.match(/\\d+/)[0]);
      return canvases.flatMap(canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height);
        const pen = copy.getContext('2d', { willReadFrequently: true });
        pen.drawImage(canvas, 0, 0);
        const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
        return [...data].filter((value, i) => i % 4 === 0 && value === red);
      }).length;
    }""", number)


def rings(page):
    "In each row the panel, row and column of the ring."
    return [tuple(place) for place in page.evaluate("""size => {
      const rows = [...document.querySelectorAll('.eqtutor-paint .row')];
      return rows.map(row => {
        const panels = [...row.children];
        const panel = panels.findIndex(each => !each.querySelector('.spot').hidden);
        const ring = panels[panel].querySelector('.spot').getBoundingClientRect();
        const box = panels[panel].querySelector('canvas').getBoundingClientRect();
        const at = (value, start, length) => Math.floor(((value - start) / length) * size);
        return [panel, at(ring.top + ring.height / 2, box.top, box.height),
          at(ring.left + ring.width / 2, box.left, box.width)];
      });
    }""", SIZE)]


def settled(page): page.wait_for_function(f'!{VALUES}.frame && !{VALUES}.settling')


def pixel(page, panel, row, column):
    "Where a pixel of the first row is on the screen."
    box = page.locator('.sheet canvas').nth(panel).bounding_box()
    return (box['x'] + box['width']*(column + .5)/SIZE, box['y'] + box['height']*(row + .5)/SIZE)


@pytest.mark.parametrize('group', [C(4), D(1), D(4)], ids=lambda H: H.name)
def test_keys_and_clicks_paint_and_the_moves_follow(visit, group):
    page = visit(whole_page('paint', widget(group).html()))
    settled(page)
    assert ends(page) == rings(page) == wanted(group, (1, 0, 0))
    page.locator('.sheet').focus()
    page.keyboard.press('ArrowDown')
    settled(page)
    assert ends(page) == rings(page) == wanted(group, (1, 1, 0)) and dark(page, 0) == 1
    page.keyboard.press(' ')
    settled(page)
    assert [dark(page, n) for n in range(len(group))] == [2]*len(group)
    last = len(group) - 1
    page.mouse.click(*pixel(page, last, 4, 3))
    settled(page)
    assert ends(page) == rings(page) == wanted(group, (last, 4, 3)) and dark(page, 1) == 3
    page.reload()
    settled(page)
    assert dark(page, 0) == 3, 'the address brings it back'
    page.get_by_role('button').click()
    settled(page)
    assert [dark(page, n) for n in range(len(group))] == [0]*len(group)


@pytest.mark.parametrize('group', [C(4), D(1), D(4)], ids=lambda H: H.name)
@pytest.mark.parametrize('width', WIDTHS)
def test_a_stroke_paints_what_it_passes(visit, width, group):
    page = visit(whole_page('paint', widget(group).html()), width)
    page.mouse.move(*pixel(page, 0, 1, 0))
    page.mouse.down()
    page.mouse.move(*pixel(page, 0, 1, 4), steps=20)
    page.mouse.up()
    page.mouse.move(*pixel(page, 0, 4, 4), steps=5)
    settled(page)
    assert [dark(page, n) for n in range(len(group))] == [6]*len(group)
    assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
