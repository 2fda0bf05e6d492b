"""In a student's copy nothing of a solution stands open beside its exercise: neither between the
task and its check, nor in the five cells after it."""
import json
import re

import pytest

from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.student import cell_mark, student_copy

CHAPTERS = course_chapters()
BEHIND = 5      # cells after the check, or after a proof's place
LONG = 20       # letters: shorter lines say nothing of a solution
# lines that belong to the text, too
SHARED:dict[str, set[str]] = {}


def words(line): return ' '.join(line.split())

def lines_of(text):
    "Lines that say something, as they are compared: spaces, directives and HTML do not count."
    kept = (words(line) for line in text.splitlines() if not line.lstrip().startswith(('#|', '<')))
    return [line for line in kept if len(line) >= LONG]

def read(path): return json.loads(path.read_text(encoding='utf-8'))

def solutions(nb):
    "Exercise -> the lines of its solutions."
    found = {}
    for source in (''.join(c['source']) for c in nb['cells']):
        mark = cell_mark(source)
        if mark and mark[0] == 'solution': found.setdefault(mark[1], []).extend(lines_of(source))
    return found

def open_text(cell):
    "What of a cell is seen before anything is opened."
    if cell['metadata'].get('jupyter', {}).get('source_hidden'): return ''
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'code': return source
    while '<details' in source:   # the innermost first
        shorter = re.sub(r'<details(?:(?!<details).)*?</details>', '', source, flags=re.S)
        if shorter == source: break
        source = shorter
    return source

def exercise_of(cell):
    grade_id = cell['metadata'].get('nbgrader', {}).get('grade_id', '')
    part, _, id = grade_id.partition('-')
    return part, id.replace('-', '.')

def shown_beside(copy, id):
    "Lines that stand open between a task and its check, and in the cells after it."
    parts = [exercise_of(c) for c in copy['cells']]
    own = [i for i, (part, other) in enumerate(parts) if other == id]
    first, last = min(own), max(own)
    beside = [c for i, c in enumerate(copy['cells'][first:last + 1 + BEHIND], first)
              if parts[i] != ('task', id)]
    return {line for c in beside for line in lines_of(open_text(c))}

def given(copy, id):
    "Lines of the place where the answer goes: heads and docstrings are there to begin with."
    return {line for c in copy['cells'] if exercise_of(c) in (('ex', id), ('task', id))
            for line in lines_of(''.join(c['source']))}

def leaks(nb, chapter):
    copy = student_copy(nb, chapter)
    for id, lines in solutions(nb).items():
        hidden = {*lines} - given(copy, id) - SHARED.get(id, set())
        for line in sorted(hidden & shown_beside(copy, id)): yield f'{id}: {line}'


@pytest.mark.parametrize('chapter', [c for c, path in CHAPTERS.items() if solutions(read(path))])
def test_no_line_of_a_solution_stands_open_beside_its_exercise(chapter):
    assert [*leaks(read(CHAPTERS[chapter]), chapter)] == []

def test_every_exercise_is_looked_at():
    assert sum(len(solutions(read(path))) for path in CHAPTERS.values()) > 80

def test_an_open_answer_is_found():
    nb = read(CHAPTERS['21_attentive'])
    at = next(i for i, c in enumerate(nb['cells'])
              if cell_mark(''.join(c['source'])) == ('solution', '21.1'))
    solution = nb['cells'][at]
    text = re.sub(r'^(#\||<!--).*\n', '', ''.join(solution['source']), flags=re.M)
    kind = solution['cell_type']
    again = {'cell_type': kind, 'id': 'again', 'metadata': {}, 'source': text}
    if kind == 'code': again |= {'outputs': [], 'execution_count': None}
    folded = again | {'source': f'#| code-fold: true\n{text}' if kind == 'code' else
                      f'<details><summary>Answer</summary>\n\n{text}\n\n</details>'}
    def with_cell(cell):
        return nb | {'cells': [*nb['cells'][:at + 2], cell, *nb['cells'][at + 2:]]}
    assert [*leaks(with_cell(again), '21_attentive')]
    assert not [*leaks(with_cell(folded), '21_attentive')]
