"""A finger on a phone, on a page from the disk and on one from a server.

It moves each widget, nothing moves away from under it, and question, hand and answers are on one
screen.
"""
import math

import pytest

from eqtutor.widgets import whole_page

from .examples import MAKE
from .reading import too_wide

STATE = "document.querySelector('.eqtutor-live').widget.state"
MIDDLE = """() => {
  const { x, y, width, height } = document.querySelector('.dial').getBoundingClientRect();
  return [x + width / 2, y + height / 2];
}"""
# question, hand and answers
PARTS = {'cayley': ('.headline', '.turning', '.map', '.row.after'),
         'paint': ('.headline', '.sheet', '.moved:last-of-type'),
         'attention': ('.headline', '.dial', '.turning', '.view:last-of-type .verdict'),
         'stages': ('.headline', '.dial', '.turning', '.step:last-of-type .after'),
         'answers': ('.headline', '.dial', '.turning', '.card:last-of-type', '.answers > svg')}
TURN = '.headline', '.dial', '.turning', '.card:last-of-type'


class Finger:
    "Touches, as the system of a phone sends them."
    def __init__(self, page): self.session = page.context.new_cdp_session(page)

    def send(self, kind, *points):
        points = [dict(x=x, y=y) for x, y in points]
        self.session.send('Input.dispatchTouchEvent', dict(type=kind, touchPoints=points))

    def draw(self, *points, meanwhile=lambda: None):
        "Down at the first point, along the others, up; what was seen meanwhile."
        self.send('touchStart', points[0])
        seen = []
        for point in points[1:]:
            self.send('touchMove', point)
            seen.append(meanwhile())
        self.send('touchEnd')
        return seen


def ring(page, *degrees):
    "Points on the ring of the dial."
    (x, y), box = page.evaluate(MIDDLE), page.locator('.dial').bounding_box()
    turns = [math.radians(d) for d in degrees]
    return [(x - .46*box['width']*math.sin(t), y - .46*box['width']*math.cos(t)) for t in turns]


def along(page, part):
    "From the left end of a part to beyond its middle."
    box = page.locator(part).first.bounding_box()
    y = box['y'] + box['height']/2
    return [(box['x'] + box['width']*share, y) for share in (.03, .2, .4, .6, .7)]


def is_seen(page, part):
    box, size = page.locator(part).first.bounding_box(), page.viewport_size
    return box['y'] >= -1 and box['y'] + box['height'] <= size['height']


@pytest.mark.parametrize('way', ('file', 'http'))
@pytest.mark.parametrize('name', MAKE)
def test_a_finger_moves_a_widget_that_is_on_one_screen(visit, htmls, name, way):
    page = visit(whole_page('widget', htmls(name)), 390, way=way, has_touch=True, is_mobile=True)
    page.set_viewport_size(dict(width=390, height=844))
    root = page.locator('.eqtutor-live')
    root.evaluate('root => scrollTo(0, root.offsetTop)')
    kind = root.get_attribute('class').split()[1].removeprefix('eqtutor-')
    top, finger = page.evaluate('scrollY'), Finger(page)
    if kind in ('turn', 'attention'):
        middles = finger.draw(*ring(page, *range(0, 91, 10)),
                              meanwhile=lambda: page.evaluate(MIDDLE))
        page.wait_for_function(f'{STATE}.turn === 90')
        middles.append(page.evaluate(MIDDLE))
        assert max(max(values) - min(values) for values in zip(*middles)) <= 1
    else:
        before = page.evaluate(f'JSON.stringify({STATE})')
        finger.draw(*along(page, {'cayley': 'input', 'paint': '.sheet'}[kind]))
        page.wait_for_function(f'before => JSON.stringify({STATE}) !== before', arg=before)
    assert page.evaluate('scrollY') == top and too_wide(page) == 0
    parts = PARTS.get(name if name in PARTS else kind, TURN)
    assert [part for part in parts if not is_seen(page, part)] == []
    page.set_viewport_size(dict(width=1280, height=720))
    assert [part for part in parts if not is_seen(page, part)] == []
