"What a widget is made of: its pages as text, its files, and what the site makes of its outputs."
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from eqtutor.actions import act
from eqtutor.groups import C, D, Group, get_group
from eqtutor.nn.convolution import LiftingConv2d
from eqtutor.widgets import (
    CayleyExplorer,
    PaintAndMove,
    ShareOnce,
    TurnThePicture,
    moved_pixel,
    raw_html,
    share_once,
    whole_page,
)

from .examples import MAKE, ROOT, letter, painted, two_layers

page = import_module('eqtutor.widgets.page')
ASSETS = ROOT/'eqtutor'/'widgets'


# --- pages as text

@pytest.mark.parametrize('name', MAKE)
def test_pages_are_small_and_equal_on_every_run(name):
    torch.manual_seed(1)
    first = MAKE[name]().html()
    torch.manual_seed(2)
    assert MAKE[name]().html() == first
    assert len(first.encode()) < 180_000
    print(f'{name}: {len(first.encode())/1000:.0f} kB')


@pytest.mark.parametrize('name', MAKE)
def test_a_widget_is_shown_and_saved_as_the_same_page(name, tmp_path, monkeypatch):
    monkeypatch.setenv('EQTUTOR_STATIC', '1')
    widget = MAKE[name]()
    bundle = widget._repr_mimebundle_()
    assert set(bundle) == {'text/plain', 'text/html'} and bundle['text/html'] == widget.html()
    saved = widget.save(tmp_path/'saved.html').read_text(encoding='utf-8')
    assert widget.html().strip() in saved and 'src="http' not in saved


# --- nothing that comes from outside is taken for HTML

EVIL = '</script><img src=x onerror=alert(1)>\'"&'


def evil_pages():
    group = Group(EVIL, get_group('p4').matrices)
    lift = LiftingConv2d(1, 2, 3, group, padding=1)
    yield TurnThePicture({EVIL: lift}, {EVIL: letter()}, title=EVIL, note=EVIL).html()
    yield CayleyExplorer(group).html()
    yield PaintAndMove(painted(), 'p4m', what=EVIL, title=EVIL).html()
    yield whole_page(EVIL)


def test_what_comes_from_outside_is_escaped():
    for html in evil_pages():
        assert '<img src=x' not in html and ('&lt;img src=x' in html or 'u003cimg src=x' in html)
        assert html.count('<script') == html.count('</script>')


# --- files

def test_scripts_styles_and_the_engine_stand_on_a_page_once():
    htmls = [make().html() for make in MAKE.values()]
    text = whole_page('all', *htmls)
    assert len(text) < .6*sum(map(len, htmls)) and text.count('eqtutorShared ??=') == 1
    for part in 'Turn', 'Attention', 'Cayley', 'Paint': assert text.count(f'eqtutor{part} ??=') == 1


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


# --- what the site makes of stored outputs

def test_what_outputs_have_in_common_stands_on_a_page_once():
    a, b = (f'<style id="eqtutor-{name}">p</style>' for name in ('0a', '0b'))
    assert share_once(a + 'one', a + b + 'two') == [a + 'one', b + 'two']
    shown = [{'data': {'text/html': text}} for text in (a + 'one', a + 'two')]
    ShareOnce(SimpleNamespace(cells=[{'outputs': [one]} for one in shown])).begin()
    assert [one['data']['text/html'] for one in shown] == [a + 'one', 'two']


def test_stored_html_becomes_a_raw_block_to_which_quarto_adds_nothing():
    cell = {'outputs': [{'data': {'text/html': ['<b>', 'x</b>']}}, {'text': 'plain'}]}
    raw_html(cell)
    raw = {'text/markdown': '`````{=html}\n<b>x</b>\n`````\n'}
    assert cell['outputs'] == [{'data': raw}, {'text': 'plain'}]


# --- what does not fit is refused in words

@pytest.mark.parametrize('image, words', [
    (torch.ones(28, 20), 'must be square'), (letter()/0, 'NaN or infinity'),
    (torch.ones(2, 1, 8, 8), 'expected one image'), (letter()*2, 'expected 0 to 1')])
def test_pictures_that_do_not_fit_are_refused(image, words):
    with pytest.raises(ValueError, match=words): TurnThePicture(two_layers(), image)


# --- places, and the walk through a group

@pytest.mark.parametrize('n', [6, 7])
def test_a_bright_pixel_goes_where_moved_pixel_says(n):
    bright = F.one_hot(torch.tensor(n + 2), n*n).view(1, 1, n, n)    # row 1, column 2
    for h in D(4).elements:
        place = act('p4m', h, bright)[0, 0].nonzero()[0].tolist()
        assert moved_pixel('p4m', h, (1, 2), n) == tuple(place)


def test_explorer_reads_its_facts_from_the_tables():
    explorer = CayleyExplorer('p4m')
    back = 'back at the start after 4 steps'
    assert explorer.facts(1) == f'{back} · inverse 3 · commutes with 0, 1, 2, 3'


@pytest.mark.parametrize('group', [C(4), D(4), C(8), D(3), D(1)], ids=lambda H: H.name)
def test_a_walk_through_a_group(visit, group):
    "At each g: where each element goes, what is said, and where the letters stand on the map."
    page = visit(whole_page('group', CayleyExplorer(group).html()))
    slider = page.get_by_role('slider')
    for g in group.elements:
        ways = ', '.join(f'{h} to {q}' for h, q in enumerate(group.mul[g].tolist()))
        assert page.locator('.arrows').get_attribute('aria-label').endswith(f': {ways}')
        assert page.locator('.angle').inner_text() == f'g = {g}: {group.describe(g)}'
        assert page.locator('.map text').all_text_contents() == [*map(str, group.mul[g].tolist())]
        slider.press('ArrowRight')
        now = f"walk.g={min(g + 1, len(group) - 1)}"
        page.wait_for_function('now => location.hash.includes(now)', arg=now)
    page.reload()
    assert slider.input_value() == str(len(group) - 1)


def test_the_letters_are_moved_as_the_group_says(visit):
    page = visit(whole_page('group', CayleyExplorer('p4m').html()))
    found = page.locator('.before .letter').evaluate_all("""all => all.map(each => {
      const { a, b, c, d } = each.transform.baseVal.consolidate().matrix;
      return [[a, -c], [-b, d]];     // y points up
    })""")
    assert torch.equal(torch.tensor(found), D(4).matrices.float())
