"The widgets of the lesson in JupyterLab, beside a kernel."
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from eqtutor.tutor.exercise import STRICT_WHERE
from eqtutor.widgets import moved_pixel

from .examples import ROOT, drag, error_in, is_red, name_of

LESSON = ROOT/'nbs'/'1_foundations'/'07_watch.ipynb'
OWN = dict(JUPYTER_CONFIG_DIR='config', JUPYTER_DATA_DIR='data', JUPYTER_RUNTIME_DIR='runtime',
           IPYTHONDIR='ipython', JUPYTERLAB_SETTINGS_DIR='settings',
           JUPYTERLAB_WORKSPACES_DIR='workspaces')


TURN = '''
import torch
from torch import nn
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.widgets import TurnThePicture

torch.manual_seed(0)
layers = (LiftingConv2d(1, 4, 5, 'p4', padding=2), nn.ReLU(),
          GroupConv2d(4, 4, 5, 'p4', padding=2))
net, picture = nn.Sequential(*layers).eval(), torch.zeros(28, 28)
picture[4:24, 7:11] = picture[4:8, 7:21] = 1
widget = TurnThePicture({'mine': net}, picture, layer='2')
widget
''', '''
with torch.no_grad(): net[2].weight.normal_()
widget.update(pictures=picture.flip(1))
'''


METER = '''
import torch
from eqtutor.nn.convolution import LiftingConv2d
from eqtutor.widgets import EquivarianceMeter
torch.manual_seed(0)
EquivarianceMeter(LiftingConv2d(1, 2, 3, 'p4', padding=1).eval(), torch.randn(9, 9), 'p4')
'''


def notebook(*cells):
    def code(i, text):
        return dict(cell_type='code', id=f'c{i}', source=text.strip(), metadata={}, outputs=[],
                    execution_count=None)
    kernel = dict(name='python3', display_name='Python 3', language='python')
    return dict(nbformat=4, nbformat_minor=5, metadata=dict(kernelspec=kernel),
                cells=[code(i, text) for i, text in enumerate(cells)])


def prepare(folder):
    "A folder with the lesson and a short notebook, and settings that keep JupyterLab quiet."
    (folder/'work').mkdir()
    book = json.loads(LESSON.read_text(encoding='utf-8'))
    books = {LESSON.name: book, 'turn.ipynb': notebook(*TURN), 'meter.ipynb': notebook(METER)}
    for name, nb in books.items():
        (folder/'work'/name).write_text(json.dumps(nb), encoding='utf-8')
    keep_quiet(folder)


def keep_quiet(folder, more=()):
    "Settings of a JupyterLab that asks nothing, and more settings by name."
    silence = dict(fetchNews='false', checkForUpdates=False, doNotDisturbMode=True)
    for name, values in {'apputils-extension/notification': silence, **dict(more)}.items():
        file = folder/'settings'/'@jupyterlab'/f'{name}.jupyterlab-settings'
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))


def free_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


def answered(url, server, log):
    "Wait until the server answers."
    for _ in range(120):
        assert server.poll() is None, log.read_text()
        try: return urllib.request.urlopen(f'{url}/api/status?token=secret', timeout=5).close()
        except OSError: time.sleep(.25)
    raise AssertionError(f'JupyterLab does not answer\n{log.read_text()}')


@contextmanager
def jupyterlab(folder):
    "The address of a JupyterLab that works in this folder; it ends its kernel, too."
    # what tests ask for: the page's face alone, no figures, strict checks
    of_tests = 'EQTUTOR_STATIC', 'MPLBACKEND', *STRICT_WHERE
    env = {k: v for k, v in os.environ.items() if k not in of_tests}
    env |= {k: str(folder/v) for k, v in OWN.items()} | dict(PYTHONPATH=str(ROOT))
    port = free_port()
    command = [sys.executable, '-m', 'jupyterlab', '--no-browser', '--allow-root',
               '--ip=127.0.0.1', f'--port={port}', '--ServerApp.port_retries=0',
               '--ServerApp.token=secret', f'--ServerApp.root_dir={folder/"work"}']
    with open(folder/'log', 'wb') as log:
        server = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log)
    try:
        answered(url := f'http://127.0.0.1:{port}', server, folder/'log')
        yield url
    finally:
        server.terminate()
        try: server.wait(20)
        except subprocess.TimeoutExpired: server.kill()


def open_notebook(page, url, name):
    "In a workspace of its own, where no other notebook is open."
    from playwright.sync_api import expect
    workspace = Path(name).stem
    page.goto(f'{url}/lab/workspaces/{workspace}/tree/{name}?token=secret')
    expect(page.get_by_text(re.compile(r'\| Idle$'))).to_be_visible(timeout=60_000)   # the kernel


def run_all(page, url):
    "Open the lesson and run all its cells."
    from playwright.sync_api import expect
    open_notebook(page, url, LESSON.name)
    page.get_by_role('menuitem', name='Run', exact=True).click()
    page.get_by_text('Run All Cells', exact=True).click()
    # a cell that has run has a number; the last one gets it only if none failed
    last = page.locator('.jp-CodeCell .jp-InputPrompt').last
    expect(last).to_have_text(re.compile(r'\[\d+\]'), timeout=240_000)


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    "The address of a JupyterLab."
    pytest.importorskip('jupyterlab')
    prepare(folder := tmp_path_factory.mktemp('lab'))
    with jupyterlab(folder) as url: yield url


@contextmanager
def visitor(browser, url):
    "A page that gets nothing from elsewhere, and in which nothing goes wrong."
    context, wrong = browser.new_context(viewport=dict(width=1280, height=1000)), []
    page, allowed = context.new_page(), (url, 'data:', 'blob:')
    page.on('pageerror', lambda error: wrong.append(f'page: {error}'))
    page.on('request', lambda r: r.url.startswith(allowed) or wrong.append(f'request: {r.url}'))
    yield page
    context.close()
    assert not wrong


@pytest.fixture(scope='module')
def lab(browser, server):
    "The lesson in JupyterLab, a kernel behind it, all cells run."
    with visitor(browser, server) as page:
        run_all(page, server)
        yield page


class Live:
    "A live widget in the notebook, found by its title."
    def __init__(self, page, title):
        from playwright.sync_api import expect
        self.page, self.expect = page, expect
        self.box = page.locator('.widget-vbox', has_text=title)
        self.label, self.sliders = self.box.locator('output'), self.box.locator('.noUi-handle')
        self.handle = self.sliders.last   # the group element's
        self.handle.scroll_into_view_if_needed()

    def press(self, key, times=1):
        self.handle.focus()
        for _ in range(times): self.page.keyboard.press(key)

    def drag(self, part):
        "The handle to a part of the slider's length, 0 to 1."
        track = self.box.locator('.noUi-base').bounding_box()
        handle = self.handle.bounding_box()
        y = handle['y'] + handle['height']/2
        begin, end = handle['x'] + handle['width']/2, track['x'] + part*track['width']
        drag(self.page, (begin, y), (end, y))

    def says(self, label): self.expect(self.label).to_have_text(label, timeout=15_000)
    def text(self): return self.box.inner_text()
    def images(self): return self.box.locator('img').evaluate_all('all => all.map(i => i.src)')

    def holds(self, below=1e-5):
        assert error_in(self.text()) < below and 'Equivariant:' in self.text()

    def breaks(self):
        assert error_in(self.text()) > 1e-2 and 'breaks the symmetry' in self.text()
        assert is_red(self.box.locator('.bad'))

    def shows(self, words): self.expect(self.box.get_by_text(words)).to_be_visible(timeout=15_000)


def test_keyboard_stops_at_every_group_element(lab):
    live, pictures = Live(lab, 'Two p4 layers'), set()
    live.press('Home')
    for element in range(4):
        live.says(f'element {element}: {90*element}°')
        if element: live.holds()
        else: live.shows('Nothing has moved yet')
        pictures.add(tuple(live.images()))
        live.press('ArrowRight')
        live.says(f'{90*element + 1}°: not in C4, approximate')
        assert re.search(r'approximate: .* differ by \d+%; .* by \d+% already', live.text())
        assert 'Relative error' not in live.text()
        live.press('ArrowLeft')
        live.press('PageUp', 18)   # of 5 degrees each
    assert len(pictures) == 4


def test_mouse(lab):
    live = Live(lab, 'Two p4 layers')
    live.press('Home')
    live.says('element 0: 0°')
    start = live.images()
    live.drag(.6)
    live.says(re.compile(r'^2[01]\d°: not in C4, approximate$'))
    assert re.search(r'differ by \d+%', live.text()) and live.images() != start
    live.drag(-.2)
    live.says('element 0: 0°')
    assert live.images() == start
    live.shows('Nothing has moved yet')


def test_layer_and_channel(lab):
    live = Live(lab, 'Two p4 layers')
    live.press('Home')
    layer, channel = live.box.get_by_label('layer'), live.box.get_by_label('channel')
    live.expect(layer.locator('option:checked')).to_have_text('whole')
    live.press('PageUp', 18)
    live.says('element 1: 90°')
    for choose in (lambda: layer.select_option('0'), lambda: channel.fill('3')):
        before = live.images()[1]
        choose()
        lab.keyboard.press('Tab')   # a number counts when its field is left
        live.expect(live.box.locator('img').nth(1)).not_to_have_attribute('src', before)
        live.holds()


def test_channel_that_is_not_there(lab):
    live = Live(lab, 'Two p4 layers')
    channel = live.box.get_by_label('channel')
    for number, label in ('99', 'this choice does not work'), ('0', re.compile('element|not in')):
        channel.fill(number)
        lab.keyboard.press('Tab')
        live.says(label)
        assert ('channels 0..3' in live.text()) == (number == '99')


def test_broken_layer(lab):
    live = Live(lab, 'Half a pool')
    live.press('PageUp', 18)
    live.says('element 1: 90°')
    live.breaks()
    live.press('PageUp', 18)
    live.says('element 2: 180°')
    live.holds()


def test_click_and_turn(lab):
    live = Live(lab, 'Where a pixel looks')
    row, column, _ = live.sliders.all()
    live.says('element 0: 0°')
    place, pictures = [5, 8], set()
    for slider, key, (down, right) in [(row, 'ArrowRight', (1, 0)), (column, 'ArrowRight', (0, 1)),
                                       (row, 'End', (10, 0))]:
        slider.focus()
        lab.keyboard.press(key)
        place = [place[0] + down, place[1] + right]
        live.shows(f'Pixel: {name_of(place)} of the image as it was.')
        live.shows('Nothing has moved yet')
        pictures.add(tuple(live.images()))
    for h in 1, 2, 3:
        live.press('ArrowRight')
        live.says(f'element {h}: {90*h}°')
        live.shows(f'Now, marked: {name_of(moved_pixel("p4", h, place, 17))}.')
        live.holds(1e-4)
        pictures.add(tuple(live.images()))
    assert len(pictures) == 6 and live.box.locator('.mark').is_visible()


def test_click_and_turn_broken(lab):
    live = Live(lab, 'All poses look to the right')
    live.says('element 0: 0°')
    live.press('ArrowRight')
    live.says('element 1: 90°')
    live.breaks()


LINE = '.eqtutor-needs-kernel'


def end_kernel(url, name):
    sessions = json.load(urllib.request.urlopen(f'{url}/api/sessions?token=secret'))
    own, = (s['id'] for s in sessions if s['path'] == name)
    request = urllib.request.Request(f'{url}/api/sessions/{own}?token=secret', method='DELETE')
    urllib.request.urlopen(request).close()


def test_a_widget_without_its_kernel_says_so(browser, server):
    from playwright.sync_api import expect
    with visitor(browser, server) as page:
        open_notebook(page, server, 'meter.ipynb')
        run_cell(page, 0)
        line = page.locator(LINE)
        expect(page.locator('.widget-vbox')).to_be_visible(timeout=60_000)
        expect(line).to_be_hidden()
        page.keyboard.press('Control+s')
        expect(page.locator('.jp-mod-dirty')).to_have_count(0)
        end_kernel(server, 'meter.ipynb')
        expect(line).to_be_visible(timeout=15_000)
        expect(line).to_contain_text('needs a running kernel')


# --- the network in the page, with a kernel behind it

MAPS = "all => all.map(canvas => canvas.toDataURL())"


def run_cell(page, number):
    from playwright.sync_api import expect
    cell = page.locator('.jp-CodeCell').nth(number)
    cell.locator('.cm-content').click()
    page.keyboard.press('Shift+Enter')
    expect(cell.locator('.jp-InputPrompt')).to_have_text(re.compile(r'\[\d+\]'), timeout=60_000)


def test_turn_the_picture_and_send_other_weights(browser, server):
    from playwright.sync_api import expect
    with visitor(browser, server) as page:
        open_notebook(page, server, 'turn.ipynb')
        run_cell(page, 0)
        box = page.locator('.widget-vbox .eqtutor-turn')
        expect(box.locator('.verdict')).to_have_text(
            'Turn the picture to test it.', timeout=60_000)   # the notebook loads its widgets first
        slider, angle = box.locator('.turning input'), box.locator('.angle')
        slider.focus()
        for key, degrees in ('ArrowRight', 90), ('ArrowUp', 91), ('ArrowDown', 90):
            page.keyboard.press(key)   # of which the notebook makes nothing else
            expect(angle).to_have_text(f'{degrees}°', timeout=15_000)
        expect(box.locator('.verdict')).to_contain_text('✓', timeout=15_000)
        after = box.locator('.after canvas')
        old = after.evaluate_all(MAPS)
        run_cell(page, 1)
        page.wait_for_function(f"""old => String(({MAPS})(
            [...document.querySelectorAll('.after canvas')])) !== String(old)""", arg=old)
        expect(angle).to_have_text('90°')
        expect(box.locator('.verdict')).to_contain_text('✓', timeout=15_000)
