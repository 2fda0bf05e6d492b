"Students, and readers, whom tests of the tutor and of the grader share."
import copy
import json
import re

import pytest

from eqtutor.grading.judging import grade_notebook
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.student import cell_mark, student_copy

STRICT_WHERE = 'EQTUTOR_STRICT', 'IN_TEST', 'NBGRADER_EXECUTION'


@pytest.fixture
def as_reader(monkeypatch):
    "As somebody who reads a notebook, and not as a test."
    for name in STRICT_WHERE: monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr('eqtutor.tutor.exercise.STRICT_WHERE', STRICT_WHERE)   # not pytest
    return monkeypatch


class Students:
    "Notebooks as students hand them in."

    @staticmethod
    def read(name):
        "The author's notebook."
        return json.loads(course_chapters([name])[name].read_text(encoding='utf-8'))

    @staticmethod
    def solutions(name):
        "The author's solutions by exercise, code and proofs."
        cells = [''.join(c['source']) for c in Students.read(name)['cells']]
        marked = [(cell_mark(source) or ('', ''), source) for source in cells]
        return {id: re.sub(r'^#\|.*\n', '', source, flags=re.M)
                for (kind, id), source in marked if kind == 'solution'}

    @staticmethod
    def empty(name):
        "The student's copy, nothing solved."
        return student_copy(Students.read(name), name)

    @staticmethod
    def solve(nb, answers):
        "The notebook with these sources in the cells of the answers."
        nb = copy.deepcopy(nb)
        for c in nb['cells']:
            name = c['metadata'].get('nbgrader', {}).get('grade_id', '')
            new = answers.get(name.removeprefix('ex-').replace('-', '.'))
            if name.startswith('ex-') and new: c['source'] = new
        return nb

    @staticmethod
    def solved(name, **changes):
        "The student's copy with all solutions."
        return Students.solve(Students.empty(name), Students.solutions(name) | changes)

    @staticmethod
    def hand_in(folder, name, files):
        "A chapter handed in by several: the answers of each, by the name of the file."
        for file, answers in files.items():
            target = folder/f'{file}.ipynb'
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(Students.solve(Students.empty(name), answers)))
        return folder

    @staticmethod
    def graded(nb, folder, **options):
        "The result of a notebook, or of a file that is none: bytes, text or a notebook."
        file = folder/'ann.ipynb'
        if not isinstance(nb, str | bytes): nb = json.dumps(nb)
        file.write_bytes(nb if isinstance(nb, bytes) else nb.encode())
        return grade_notebook(file, **{'unsafe': True} | options)


@pytest.fixture(scope='session')
def students(): return Students
