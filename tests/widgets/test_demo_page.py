"The page of the demo in a real browser, without any network."
import pytest
import torch

from eqtutor.actions import rotate
from eqtutor.demo import telling_digit
from eqtutor.models.group_cnn import p4_cnn, z2_cnn
from eqtutor.widgets import demo_page, upright_networks
from eqtutor.widgets.turn import TEN_LINES

from .examples import WIDTHS, letter
from .reading import too_wide


@pytest.mark.parametrize('width', WIDTHS)
def test_page_of_the_demo(visit, width):
    torch.manual_seed(0)
    nets = {'Z2-CNN': z2_cnn().eval(), 'p4-CNN': p4_cnn().eval()}
    numbers = dict.fromkeys(('upright', '90°', '180°', '270°', 'any angle'), .5)
    text = demo_page(dict.fromkeys(nets, numbers), nets, letter()[None, None], 'Turn & look.')
    assert len(text.encode()) < 300_000
    page = visit(text, width)
    assert too_wide(page) == 0 and page.get_by_text('Turn & look.').is_visible()
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
