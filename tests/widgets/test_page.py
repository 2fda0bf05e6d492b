"What a widget is made of: its pages as text, what it refuses, and how quick it is."
import json
import re
import statistics
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from eqtutor.groups import C, Group, get_group
from eqtutor.measure import interleaved
from eqtutor.nn.convolution import LiftingConv2d
from eqtutor.widgets import (
    ClickAndTurn,
    EquivarianceMeter,
    RotateAndPermute,
    whole_page,
)

from .examples import (
    BROKEN,
    MAKE,
    ROOT,
    error_in,
    letter,
    photograph,
    textured,
    two_layers,
    unmoved,
    window,
)

page = import_module('eqtutor.widgets.page')
ASSETS = ROOT/'eqtutor'/'widgets'


# --- pages as text

@pytest.mark.parametrize('name', MAKE)
def test_pages_are_small_and_equal_on_every_run(name):
    torch.manual_seed(1)
    first = MAKE[name]().html()
    torch.manual_seed(2)
    assert MAKE[name]().html() == first
    assert len(first.encode()) < 500_000
    print(f'{name}: {len(first.encode())/1000:.0f} kB')


@pytest.mark.parametrize('name', BROKEN)
def test_widget_of_a_broken_layer_shows_it(name):
    widget = MAKE[name]()
    assert widget.expect_broken() is widget
    assert '✗' in widget.fixed + widget.frame(1) and '✗' not in widget.frame(0)


@pytest.mark.parametrize('name', ('right', 'p4m', 'click', 'whole', 'group'))
def test_right_widget_is_not_taken_for_a_broken_one(name):
    with pytest.raises(AssertionError, match='shows ✗ at no position'):
        MAKE[name]().expect_broken()


def test_twin_whose_fault_the_widget_does_not_call_is_refused():
    class Written(nn.Module):
        "Its `forward` is broken, and the widget looks at something else."
        layers = two_layers()
        def forward(self, x): return self.layers(x)[:, :, [0, 0, 0, 0]]
        def window(self, *where): return window(self.layers)(*where)
    with pytest.raises(AssertionError, match='does the widget call what was broken'):
        ClickAndTurn(Written().window, textured(), 'p4').expect_broken()
    RotateAndPermute(Written(), letter(), 'p4').expect_broken()


# --- nothing that comes from outside is taken for HTML

EVIL = '</script><img src=x onerror=alert(1)>\'"&'


def evil_pages():
    group = Group(EVIL, get_group('p4').matrices)
    lift = LiftingConv2d(1, 2, 3, group, padding=1)
    yield EquivarianceMeter(nn.Sequential(lift), letter(), group).html()
    yield RotateAndPermute(lift, letter(), group, title=EVIL).at(33.)[1]
    yield RotateAndPermute(lift, letter(), group, title=EVIL).html()
    yield ClickAndTurn(window(two_layers()), textured(), 'p4', what=EVIL, title=EVIL).html()
    yield page.frames_html(['<p>x</p>', '<p>y</p>'], [EVIL, 'b'], EVIL)
    yield page.html_table({EVIL: {EVIL: .5}})
    yield whole_page(EVIL)


def test_what_comes_from_outside_is_escaped():
    for html in evil_pages():
        assert '<img src=x' not in html and '&lt;img src=x' in html
        assert html.count('<script') == html.count('</script>')


def test_data_survive_and_cannot_end_their_script():
    html = ClickAndTurn(window(two_layers()), textured(), 'p4', what=EVIL).html()
    data = re.search(r'<script type="application/json">(.*?)</script>', html)[1]
    assert not {*'<>&\''} & {*data}
    parts = json.loads(data)
    assert parts.keys() == {'start', 'to', 'at', 'pictures', 'labels', 'frames', 'pieces'}
    assert any('onerror' in piece for piece in parts['pieces'])


# --- files

def test_page_holds_its_files_as_they_are():
    html = MAKE['click']().html()
    for file in 'widget.css', 'spots.css', 'spots.js':
        assert (ASSETS/file).read_text(encoding='utf-8').strip() in html, file
    assert (ASSETS/'frames.js').read_text(encoding='utf-8').strip() in MAKE['right']().html()


def faults(text):
    "What makes a style sheet, script or template hard to read."
    for line in text.splitlines():
        if len(line) > 100: yield f'{len(line)} columns: {line}'
        if line != line.rstrip() or '\t' in line: yield f'white space: {line!r}'
        if (len(line) - len(line.lstrip())) % 2 and line.strip()[0] != '*': yield f'indent: {line}'
        if re.search(r'\bvar\b[^(]|https?:(?!//www.w3.org/)', line):
            yield f'var, or an address: {line}'
        code = re.sub(r"'[^']*'|`[^`]*`|for \(.*?\) ", '', line)  # no text, no loop's head
        if code.count(';') > 1 and 'style="' not in line: yield f'two statements: {line}'


FILES = sorted(p for p in ASSETS.iterdir() if p.suffix in ('.js', '.css', '.html'))
FILES += sorted((Path(__file__).parent/'measure').glob('*.js'))


@pytest.mark.parametrize('file', FILES, ids=lambda p: p.name)
def test_files_are_formatted(file): assert [*faults(file.read_text(encoding='utf-8'))] == []


def test_bad_format_is_found():
    for bad in 'a;b;c', '\tx', ' x', 'var x = 1;', 'x ', 'x'*101: assert [*faults(bad)], bad
    assert not [*faults('  const x = 1;\n  color: var(--n);')]


def test_files_are_packaged():
    setup = (ROOT/'setup.py').read_text(encoding='utf-8')
    assert "'eqtutor.widgets': ['*.js', '*.css', '*.html', '*.safetensors']" in setup


# --- what does not fit is refused in words

def test_pictures_refuse_what_is_no_map():
    with pytest.raises(ValueError, match=r'expected a map \(h, w\)'): page.png_uri(torch.ones(3))
    with pytest.raises(ValueError, match='NaN or infinity'): page.png_uri(torch.ones(3, 3)/0)
    with pytest.raises(ValueError, match='one caption a map'):
        page.strip_row(torch.ones(2, 3, 3), ['a'], 't')
    with pytest.raises(ValueError, match='zip'):
        page.panel_row(torch.ones(2, 3, 3), ['a'], 't')
    with pytest.raises(ValueError, match='one label a frame'): page.frames_html(['x'], [], 't')


@pytest.mark.parametrize('image, group, more, words', [
    (torch.ones(28, 20), 'p4', {}, 'must be square'),
    (letter()/0, 'p4', {}, 'NaN or infinity'),
    (torch.ones(2, 1, 8, 8), 'p4', {}, 'expected one image'),
    (letter(), 'p4m', {}, 'has 4 poses, but D4 has order 8'),
    (letter(), 'p4', dict(channel=4), r'channels 0\.\.3'),
    (letter(), 'p4', dict(until='7'), "no layer '7'")])
def test_rotate_and_permute_refuses(image, group, more, words):
    with pytest.raises(ValueError, match=words):
        RotateAndPermute(two_layers(), image, group, **more)


def test_rotate_and_permute_refuses_layers_and_angles():
    net = two_layers()
    with pytest.raises(ValueError, match='the layer has the group C4, the widget D4'):
        RotateAndPermute(net[0], letter(), 'p4m')
    with pytest.raises(ValueError, match='choose a layer whose output is an image'):
        RotateAndPermute(nn.Sequential(net, nn.Flatten()), letter(), 'p4')
    with pytest.raises(ValueError, match='has no mirrors'):
        RotateAndPermute(net, letter(), 'p4').at(30, mirror=True)


@pytest.mark.parametrize('group, pixels, words', [
    ('p4', [(7, 0)], r'rows and columns are 0\.\.6'), ('p4', 9, r'choose 1\.\.7'),
    ('p4', [], 'at least one'), (C(8), 5, 'expected a subgroup of D4')])
def test_pixels_that_cannot_be_clicked_are_refused(group, pixels, words):
    with pytest.raises(ValueError, match=words): page.clickable(group, 7, pixels)


@pytest.mark.parametrize('look, group, more, words', [
    (window(two_layers()), 'p4m', {}, 'gives 4 panels, but D4 has order 8'),
    (lambda *a: torch.ones(4, 3, 5), 'p4', {}, r'gives shape \(4, 3, 5\)'),
    (lambda *a: 1., 'p4', {}, 'gives a float'),
    (lambda *a: torch.ones(4, 3, 3)/0, 'p4', {}, 'NaN or infinity'),
    (window(two_layers()), 'p4', dict(signed=False), 'say signed=True'),
    (window(two_layers()), C(8), {}, 'expected a subgroup of D4'),
    (lambda x, r, c: torch.ones(4, *[3 + (r + c) % 2]*2), 'p4', dict(pixels=[(3, 4)]),
     'expected one shape')])
def test_click_and_turn_refuses(look, group, more, words):
    with pytest.raises(ValueError, match=words): ClickAndTurn(look, textured(), group, **more)


def test_click_and_turn_refuses_places_and_pages():
    widget = MAKE['click']()
    with pytest.raises(ValueError, match=r'rows and columns are 0\.\.27'): widget.at(28, 0)
    with pytest.raises(ValueError, match=r'has the elements 0\.\.3'): widget.at(3, 3, 4)
    with pytest.raises(ValueError, match='must be square'):
        ClickAndTurn(window(two_layers()), torch.ones(28, 20), 'p4')
    with pytest.raises(ValueError, match='offer fewer pixels than 16'):
        ClickAndTurn(window(two_layers()), textured(), 'p4', kilobytes=9).html()


@pytest.mark.parametrize('value', (0., 1.))
def test_panels_without_pattern_prove_nothing(value):
    widget = ClickAndTurn(lambda *a: torch.full((4, 3, 3), value), letter(), 'p4')
    assert 'no pattern at this pixel' in widget.at(3, 3, 1)[1]


def test_broken_look_has_the_error_of_its_panels():
    look = unmoved(two_layers())
    assert error_in(ClickAndTurn(look, textured(), 'p4').frame(1)) > 1e-2


# --- the live face is quick

def in_forward_passes(layers, *steps):
    "The longest of some steps, beside the layers alone, on one thread; they take turns."
    x = photograph()[None, None]
    names = {f'step {i}': step for i, step in enumerate(steps)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)   # more are faster, but wait for each other on a busy machine
    try: times = interleaved({'layers': lambda: layers(x), **names}, repeats=9)
    finally: torch.set_num_threads(threads)
    layers_alone, *others = map(statistics.median, times.values())
    return max(others)/layers_alone


def is_quick(most, layers, *steps):
    "One measurement may be spoilt, not all."
    for _ in range(4):
        ratio = in_forward_passes(layers, *steps)
        print(f'a step of the live face, 96×96: {ratio:.1f} forward passes')
        if ratio < most: return True
    return False


def runs(layers, step):
    "How often a step runs the layers."
    calls = []
    with layers.register_forward_hook(lambda *call: calls.append(1)): step()
    return len(calls)


def test_a_move_to_another_pixel_takes_little_more_than_its_two_forward_passes(processor_time):
    layers = two_layers(channels=8)
    widget = ClickAndTurn(window(layers), photograph(), 'p4')
    steps = [partial(widget.at, row, 17, 1) for row in range(3)]
    assert [runs(layers, step) for step in steps] == [2]*3
    assert is_quick(4, layers, *steps)


def test_a_slider_step_on_a_photograph_takes_little_more_than_its_two_passes(processor_time):
    layers = two_layers(channels=8)
    widget = RotateAndPermute(layers, photograph(), 'p4')
    steps = [partial(widget.at, degrees) for degrees in (90, 180, 37, 225)]
    assert [runs(layers, step) for step in steps] == [2]*4
    assert is_quick(6, layers, *steps)


def test_a_step_that_dawdles_is_noticed(processor_time):
    layers, x = two_layers(channels=8), photograph()[None, None]
    def dawdles():
        for _ in range(8): layers(x)
    assert not is_quick(6, layers, dawdles) and runs(layers, dawdles) == 8
