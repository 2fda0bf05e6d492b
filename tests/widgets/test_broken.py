"""Every layer that is broken on purpose shows it: the widgets of all notebooks, in a browser.

They are tried as stored. A widget says ✗ at some turn and nothing at none. It is to show a fault if
its cell asks for one (`expect_broken`), if its title says so, or if one of its networks is called
broken.
"""
import re

import pytest
from pages import Notebook, read_all, stored

from eqtutor.widgets import TurnThePicture, whole_page

from .examples import MAKE, NoPermutation, letter, two_layers

WORDS = re.compile(r'\b(broken|breaks?|forgets|wrong|not turned|not permuted|twin)\b', re.I)
NAME = re.compile(r'<(?:div|section) id="eqtutor-[^>]*aria-label="([^"]*)"')
CARD = re.compile(r'<article [^>]*aria-label="([^"]*)"')
FINAL = '''() => [...document.querySelectorAll('.eqtutor-turn, .eqtutor-attention')].every(
  root => !root.widget.frame && !root.widget.moving && !root.widget.settling)'''


def is_broken(html, source):
    "Is a stored widget to show a fault?"
    named = [*NAME.findall(html), *CARD.findall(html)]
    return bool(named) and ('.expect_broken(' in source or any(map(WORDS.search, named)))


def broken_ones(nb):
    "(number of the cell, HTML) of each widget in a notebook that is to show a fault."
    return [(i, html) for i, html in stored(nb, 'text/html')
            if is_broken(html, nb.cells[i]['source'])]


BOOK = {name: nb for name, nb in read_all().items() if broken_ones(nb)}


def asked(source):
    "The networks that a cell expects to be broken, by name."
    match = re.search(r'expect_broken\(([^)]*)\)', source)
    return re.findall(r"'([^']+)'", match[1]) if match else []


def turned(page, names):
    """By what is to be broken (asked for, called so, or all): what it says at some turns."""
    all_ = [c.get_attribute('aria-label') for c in page.get_by_role('article').all()]
    names = names or [*filter(WORDS.search, all_)] or all_
    said = {name: [] for name in names}
    for degrees in 0, 90, 180, 270, 45:   # 45° is an element of C8
        page.evaluate(f"location.hash = 'turn={degrees}&ask.turn={degrees}'")
        page.wait_for_function(f"document.querySelector('.angle').textContent === '{degrees}°'")
        page.wait_for_function(FINAL, timeout=60_000)
        for name in names:
            card = page.get_by_role('article', name=name, exact=True)
            said[name].append(card.locator('.verdict').inner_text())
    return said


def faults(visit, html, names=()):
    "What is wrong with how a widget shows its fault."
    for name, words in turned(visit(whole_page('stored', html)), names).items():
        if re.search('[✓✗]|Equivariant:|breaks the symmetry', words[0]):
            yield f'{name}: a verdict upright: {words[0]}'
        if not any('✗' in said for said in words[1:]): yield f'{name}: no ✗ at any turn: {words}'


@pytest.mark.parametrize('name', BOOK)
def test_stored_widgets_of_broken_layers_show_it(visit, name):
    nb = BOOK[name]
    assert [f'cell {i}: {fault}' for i, html in broken_ones(nb)
            for fault in faults(visit, html, asked(nb.cells[i]['source']))] == []


def test_chapters_with_a_broken_layer_have_such_a_widget():
    parts = {name.split('/')[-1][:2] for name in BOOK}
    assert {'04', '05', '06', '07', '24'} <= parts
    assert asked("w.expect_broken('a', 'b c')") == ['a', 'b c'] and asked('w') == []


# --- what it finds

def test_silent_fault_and_verdict_upright_are_found(visit):
    twins = {'right': two_layers(), 'broken': two_layers(NoPermutation), 'twin': two_layers()}
    widget = TurnThePicture(twins, letter(), layer='2')
    [fault] = faults(visit, widget.html(), ['broken', 'twin'])
    assert 'no ✗' in fault
    html = MAKE['broken']().html().replace('Turn the picture to test it.', '✗ at once')
    [fault] = faults(visit, html)
    assert 'a verdict upright' in fault


def test_loud_fault_is_none(visit): assert [*faults(visit, MAKE['broken']().html())] == []


def test_which_widgets_are_to_show_a_fault():
    def cell(source, html):
        output = dict(output_type='display_data', data={'text/html': html})
        return dict(cell_type='code', source=source, outputs=[output])
    right = MAKE['right']().html()
    nb = Notebook('x.ipynb', {'cells': [
        cell('w', right), cell('w.expect_broken()', right), cell('w', MAKE['broken']().html()),
        cell('w.expect_broken()', '<p>no widget</p>'),
        cell('w', '<section id="eqtutor-1" aria-label="x"><article aria-label="broken network">')]})
    assert [i for i, _ in broken_ones(nb)] == [1, 2, 4]
