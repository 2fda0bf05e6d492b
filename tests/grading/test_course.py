"A class goes through nbgrader by the commands that chapter 33 prints: release to export."
import contextlib
import csv
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

pytest.importorskip('nbgrader', reason='nbgrader is not installed (pip install eqtutor[grading])')

from jupyter_core.application import NoStart
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from typer.testing import CliRunner

from eqtutor.cli import app
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.exercise import chapter_exercises
from eqtutor.grading.sandbox import without_isolation

from . import classes

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(without_isolation()), reason='bubblewrap does not work here')]
PROOF = 1.5   # marks that a person gives each proof that is written
# chapter -> an answer to its last exercise with a check that a mistake explains
WRONG = {'90_notation': ('mul[n*m, r]', 'mul[r, n*m]'), '05_convolution': ('.flip((-2, -1))', '')}
# set by a test, and not where a teacher grades
OF_TESTS = 'PYTEST_CURRENT_TEST', 'IN_TEST', 'EQTUTOR_STRICT'


def commands():
    "What chapter 33 tells a teacher to type."
    nb = json.loads(course_chapters(['33'])['33_teaching'].read_text(encoding='utf-8'))
    blocks = [block for c in nb['cells'] if c['cell_type'] == 'markdown'
              for block in re.findall(r'```bash\n(.*?)```', ''.join(c['source']), re.S)]
    [block] = [b for b in blocks if 'nbgrader zip_collect' in b]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.split('#')[0].strip()]


def in_process(words, cwd):
    "Run a command as its program would, without the seconds that its start takes."
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name in OF_TESTS: patch.delenv(name, raising=False)
        if words[0] == 'eqtutor':
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, done.output
            return
        nbgrader = NbGraderApp.instance()
        try:
            nbgrader.initialize(words[1:])
            with contextlib.suppress(NoStart): nbgrader.start()
        finally:
            nbgrader.reset()
            NbGraderApp.clear_instance()


def by_program(words, cwd):
    "Run a command as a teacher does."
    env = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Class:
    "A course folder, and the students who have been led through it."
    def __init__(self, folder, chapter, count, platform, run):
        self.folder, self.chapter, self.platform, self.run = folder, chapter, platform, run
        self.students = classes.people(count)
        self.exercises = chapter_exercises(chapter)

    def source(self, file):
        return json.loads(file.read_text(encoding='utf-8'))

    @property
    def released(self):
        return self.folder/'release'/self.chapter/f'{self.chapter}.ipynb'

    def hand_in(self):
        "The platform's zip and list, where chapter 33 wants them."
        author = self.source(course_chapters([self.chapter])[self.chapter])
        solutions = solutions_of(author)
        last = [e.id for e in self.exercises if e.kind != 'proof'][-1]
        wrong = solutions[last].replace(*WRONG[self.chapter])
        assert wrong != solutions[last]
        files = {s: classes.files_of(s, self.chapter, self.source(self.released), solutions, wrong,
                                     self.exercises) for s in self.students}
        archive = self.folder/'downloaded'/self.chapter/'archive'
        title = f'{self.chapter.replace("_", " ").title()} (371)'
        if self.platform == 'moodle': classes.moodle(archive, self.students, files)
        else: classes.canvas(archive, self.students, files, title)

    @property
    def book(self):
        return Gradebook(f'sqlite:///{self.folder}/gradebook.db')

    def mark(self):
        "What a person does in formgrader: each proof that waits gets its marks."
        with self.book as book:
            for s in book.assignment_submissions(self.chapter):
                for grade in (g for n in s.notebooks for g in n.grades if g.needs_manual_grade):
                    grade.manual_score, grade.needs_manual_grade = PROOF, False
            book.db.commit()

    def lead(self):
        "The commands of chapter 33, in their order, for this chapter."
        for words in commands():
            words = [w.replace('05_convolution', self.chapter) for w in words]
            if words[0] in ('pip', 'cd'): continue
            if words[:2] == ['jupyter', 'lab']: self.mark()
            elif words[:3] == ['eqtutor', 'labs', 'course']:
                self.run([*words[:4], '--chapters', self.chapter, *words[-2:]], self.folder.parent)
                config = self.folder/'nbgrader_config.py'
                config.write_text(config.read_text().replace('seconds = 10', 'seconds = 2'))
            elif words[:3] == ['eqtutor', 'labs', 'extend']:
                for s in (s for s in self.students if s.kind == 'extended'):
                    self.run([*words[:4], s.mail, *words[5:]], self.folder)
            else:
                if words[1] == 'zip_collect': self.hand_in()
                self.run(words, self.folder)
        return self

    def expected(self, s):
        marks = classes.expected(s, self.exercises, PROOF)
        # five days late, three of grace, twenty percent for each of the others
        return marks*.6 if s.kind == 'late' and self.platform == 'moodle' else marks

    def exported(self):
        with (self.folder/'exported'/'marks.csv').open(encoding='utf-8') as file:
            return {row['student']: row for row in csv.DictReader(file)}

    def page(self, s):
        return self.folder/'feedback'/s.mail/self.chapter/f'{self.chapter}.html'


def solutions_of(author):
    "The author's solutions by exercise."
    from eqtutor.tutor.student import cell_mark
    cells = [''.join(c['source']) for c in author['cells']]
    marked = [(cell_mark(source) or ('', ''), source) for source in cells]
    return {id: re.sub(r'^#\|.*\n', '', source, flags=re.M)
            for (kind, id), source in marked if kind == 'solution'}


@pytest.fixture(scope='module')
def ten(tmp_path_factory):
    "Ten kinds of students, and two with a deadline behind them, by Moodle."
    with pytest.MonkeyPatch.context() as patch:   # nbgrader calls `alembic` by its name
        patch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
        folder = tmp_path_factory.mktemp('class')/'equivariance'
        return Class(folder, '90_notation', 12, 'moodle', in_process).lead()


def check_marks(lot):
    "All marks are those expected, to the half mark, and nobody is missing."
    rows = lot.exported()
    assert {s.mail for s in lot.students} <= rows.keys()
    found = {s: rows[s.mail][lot.chapter] for s in lot.students}
    wanted = {s: lot.expected(s) for s in lot.students}
    assert {s: m for s, m in found.items() if m == ''}.keys() == {
        s for s, m in wanted.items() if m is None}
    for s, marks in wanted.items():
        if marks is not None: assert float(found[s]) == pytest.approx(marks), s
    assert not any(row['to mark'] for row in rows.values())


def test_marks_are_those_expected(ten): check_marks(ten)
