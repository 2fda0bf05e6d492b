"""In a student's copy nothing of a solution stands open beside its exercise: neither between the
task and its check, nor in the five cells after it."""
import re

import pytest
from pages import read_all

from eqtutor.tutor.course import chapter_path
from eqtutor.tutor.student import cell_mark, student_copy

BEHIND = 5      # cells after the check, or after a proof's place
LONG = 20       # letters: shorter lines say nothing of a solution


def lines_of(text):
    "Lines that say something, as they are compared: spaces, directives and HTML do not count."
    kept = (' '.join(line.split()) for line in text.splitlines()
            if not line.lstrip().startswith(('#|', '<')))
    return {line for line in kept if len(line) >= LONG}

def solutions(nb):
    "Exercise -> the lines of its solutions."
    found = {}
    for source in (c['source'] for c in nb.cells):
        mark = cell_mark(source)
        if mark and mark[0] == 'solution': found.setdefault(mark[1], set()).update(lines_of(source))
    return found

def open_text(cell):
    "What of a cell is seen before anything is opened."
    if cell['metadata'].get('jupyter', {}).get('source_hidden'): return ''
    source, before = ''.join(cell['source']), ''
    while cell['cell_type'] != 'code' and source != before:   # the innermost first
        before = source
        source = re.sub(r'<details(?:(?!<details).)*?</details>', '', source, flags=re.S)
    return source

def part_of(cell):
    "The part of which exercise a cell is: ('task', '21.1')."
    grade_id = cell['metadata'].get('nbgrader', {}).get('grade_id', '')
    part, _, id = grade_id.partition('-')
    return part, id.replace('-', '.')

def leaks(nb, name):
    "Lines of solutions that stand open between a task and its check, and in the cells after it."
    cells = student_copy(nb.json, name)['cells']
    parts = [part_of(c) for c in cells]
    for id, lines in solutions(nb).items():
        own = [i for i, (_, other) in enumerate(parts) if other == id]
        near = range(min(own), min(max(own) + 1 + BEHIND, len(cells)))
        beside = (lines_of(open_text(cells[i])) for i in near if parts[i] != ('task', id))
        # heads and docstrings of the place where the answer goes are there to begin with
        places = (''.join(cells[i]['source']) for i in own if parts[i][0] in ('ex', 'task'))
        given = map(lines_of, places)
        for line in lines & set().union(*beside) - set().union(*given): yield f'{id}: {line}'


BOOK = {name: nb for name, nb in read_all().items() if solutions(nb)}


def stem(name): return name.rpartition('/')[2].removesuffix('.ipynb')

@pytest.mark.parametrize('name', BOOK)
def test_no_line_of_a_solution_stands_open_beside_its_exercise(name):
    assert chapter_path(stem(name)) == name and [*leaks(BOOK[name], stem(name))] == []

def test_every_exercise_is_looked_at(): assert sum(len(solutions(nb)) for nb in BOOK.values()) > 80

def test_an_open_answer_is_found():
    nb = BOOK['3_papers/21_attentive.ipynb']
    at = next(i for i, c in enumerate(nb.cells) if cell_mark(c['source']) == ('solution', '21.1'))
    text = re.sub(r'^(#\||<!--).*\n', '', nb.cells[at]['source'], flags=re.M)
    again = dict(nb.cells[at], id='again', source=text)
    nb.cells.insert(at + 2, again)
    assert [*leaks(nb, '21_attentive')]
    again['source'] = f'<details><summary>Answer</summary>\n\n{text}\n\n</details>'
    if again['cell_type'] == 'code': again['source'] = f'#| code-fold: true\n{text}'
    assert not [*leaks(nb, '21_attentive')]
    nb.cells.remove(again)
