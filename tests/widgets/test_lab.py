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

from .examples import ROOT, drag

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
    books = {LESSON.name: book, 'turn.ipynb': notebook(*TURN), 'ended.ipynb': notebook(*TURN[:1])}
    for name, nb in books.items():
        (folder/'work'/name).write_text(json.dumps(nb), encoding='utf-8')
    keep_quiet(folder, {'notebook-extension/tracker': dict(windowingMode='none')})


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
    "A widget in the notebook, the n-th of its kind: a page beside the kernel."
    def __init__(self, page, n, kind='turn'):
        from playwright.sync_api import expect
        self.page, self.expect = page, expect
        self.box = page.locator(f'.eqtutor-{kind}').nth(n)
        self.slider, self.angle = self.box.locator('.turning input'), self.box.locator('.angle')
        self.slider.scroll_into_view_if_needed()

    def turn(self, key, degrees):
        self.slider.press(key)
        self.expect(self.angle).to_have_text(f'{degrees}°', timeout=15_000)

    def says(self, words):
        self.expect(self.box.locator('.verdict').first).to_contain_text(words, timeout=15_000)


def test_keyboard_stops_at_every_group_element(lab):
    live = Live(lab, 0)
    live.turn('Home', 0)
    for degrees in 90, 180, 270, 0:
        live.turn('ArrowRight', degrees)
        live.says('✓' if degrees else 'Turn the picture to test it')


def test_mouse(lab):
    live = Live(lab, 0)
    live.turn('Home', 0)
    live.box.locator('.dial').scroll_into_view_if_needed()
    box = live.box.locator('.dial').bounding_box()
    x, y, r = box['x'] + box['width']/2, box['y'] + box['height']/2, .46*box['width']
    drag(lab, (x, y - r), (x - r, y))
    live.expect(live.angle).to_have_text('90°', timeout=15_000)
    live.says('✓')


def test_broken_layer(lab):
    live = Live(lab, 3)
    live.turn('Home', 0)
    for degrees, sign in (90, '✗'), (180, '✓'):
        live.turn('ArrowRight', degrees)
        live.says(sign)


def test_whom_a_pixel_hears(lab):
    live = Live(lab, 0, 'attention')
    live.box.locator('.quarter').click()
    live.expect(live.angle).to_have_text('90°', timeout=15_000)
    live.says('✓')


LINE = '.eqtutor-needs-kernel'


def end_kernel(url, name):
    sessions = json.load(urllib.request.urlopen(f'{url}/api/sessions?token=secret'))
    own, = (s['id'] for s in sessions if s['path'] == name)
    request = urllib.request.Request(f'{url}/api/sessions/{own}?token=secret', method='DELETE')
    urllib.request.urlopen(request).close()


def test_a_widget_without_its_kernel_says_so(browser, server):
    from playwright.sync_api import expect
    with visitor(browser, server) as page:
        open_notebook(page, server, 'ended.ipynb')
        run_cell(page, 0)
        line = page.locator(LINE)
        expect(page.locator('.widget-vbox')).to_be_visible(timeout=60_000)
        expect(line).to_be_hidden()
        page.keyboard.press('Control+s')
        expect(page.locator('.jp-mod-dirty')).to_have_count(0)
        end_kernel(server, 'ended.ipynb')
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
