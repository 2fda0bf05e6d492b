"A class goes through nbgrader by the commands that chapter 33 prints: release to export."
import contextlib
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import time
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip('nbgrader', reason='nbgrader is not installed (pip install eqtutor[grading])')

from jupyter_core.application import NoStart
from jupyter_core.paths import jupyter_path
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from typer.testing import CliRunner

from eqtutor.cli import app
from eqtutor.grading.sandbox import without_isolation
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.exercise import chapter_exercises

from . import classes

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings('ignore:Object of type'),   # nbgrader's own, of its grade book
    pytest.mark.skipif(bool(without_isolation()), reason='bubblewrap does not work here')]
PROOF = 1.5   # marks that a person gives each proof that is written
# chapter -> a slip in its last exercise with a check, and what it is worth
WRONG = {'90_notation': ('mul[n*m, r]', 'mul[r, n*m]', 1),
         '05_convolution': ('.flip((-2, -1))', '', 2)}
# set by a test, and not where a teacher grades
OF_TESTS = 'PYTEST_CURRENT_TEST', 'IN_TEST', 'EQTUTOR_STRICT'


def commands():
    "What chapter 33 tells a teacher to type."
    nb = json.loads(course_chapters(['33'])['33_teaching'].read_text(encoding='utf-8'))
    blocks = [block for c in nb['cells'] if c['cell_type'] == 'markdown'
              for block in re.findall(r'```bash\n(.*?)```', ''.join(c['source']), re.S)]
    [block] = [b for b in blocks if 'nbgrader zip_collect' in b]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [words for words in lines if words]


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
    def __init__(self, folder, chapter, count, platform, run, hostile=False):
        self.folder, self.chapter, self.platform, self.run = folder, chapter, platform, run
        self.hostile = hostile
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
        wrong = solutions[last].replace(*WRONG[self.chapter][:2])
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
                for c in (c for n in s.notebooks for c in n.comments if c.name == 'ex-90-3'):
                    c.manual_comment = 'Why is $M^2=1$?'
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
                if words[1] == 'autograde' and self.hostile: hostile_folders(self)
                self.run(words, self.folder)
        return self

    def expected(self, s):
        marks = classes.expected(s, self.exercises, PROOF, WRONG[self.chapter][2])
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
    plain = re.compile(r'^#\|.*\n|<!--.*?-->|</?details>|<summary>.*?</summary>', re.M)
    return {id: plain.sub('', source).strip()
            for (kind, id), source in marked if kind == 'solution'}


def hostile_folders(lot):
    "What somebody puts into `submitted` who can write there, as on a hub."
    released = lot.source(lot.released)
    solved = classes.with_answers(released, {'90.1': RIGHT})
    def changed(change):
        nb = json.loads(json.dumps(solved))
        nb['cells'] = [c for cell in nb['cells'] for c in change(cell)]
        return nb
    def told(cell): return cell['metadata'].get('nbgrader', {})
    def newer(cell):   # nbgrader ends the whole class for one such cell
        if told(cell): told(cell)['schema_version'] = 99
        return [cell]
    def worth_more(cell):
        if told(cell).get('points'): told(cell)['points'] = 100
        return [cell]
    def active(cell):
        if told(cell).get('grade_id') == 'ex-90-3': cell['source'] = ACTIVE
        return [cell]
    hostile = {
        'newer': changed(newer), 'worth': changed(worth_more), 'active': changed(active),
        'deleted': changed(lambda c: [] if told(c).get('grade') else [c]),
        'doubled': changed(lambda c: [c, c] if told(c) else [c]),
        'stripped': changed(lambda c: [{**c, 'metadata': {}}])}
    for name, nb in hostile.items():
        folder = lot.folder/'submitted'/name/lot.chapter
        folder.mkdir(parents=True)
        (folder/f'{lot.chapter}.ipynb').write_text(json.dumps(nb))
    secret = lot.folder/'secret.txt'
    secret.write_text('hunter2')
    folder = lot.folder/'submitted'/'linked'/lot.chapter
    folder.mkdir(parents=True)
    (folder/f'{lot.chapter}.ipynb').symlink_to(secret)
    (folder/'notes.txt').symlink_to(secret)
    (folder/'nbgrader_config.py').write_text('raise SystemExit("a student wrote this")')


RIGHT = "def unmoved():\n    return ['h⁻¹h̃', 'h⁻¹h̃ĥ⁻¹h']"
# their exercise 90.1 is right, of all but one who deleted what nbgrader finds it by
HOSTILE = {'newer': 2, 'worth': 2, 'active': 2, 'deleted': 2, 'doubled': 0, 'stripped': 2,
           'linked': 0}
ACTIVE = r"""
<script>alert(1)</script> <img src=x onerror="alert(2)"> [here](javascript:alert(3))
![](http://tracker.example/x.png) ![](attachment:none) $\href{javascript:alert(4)}{x}$
$\text{<img src=x onerror=alert(5)>}$ and $g^{-1}<h$

```mermaid
<img src=x onerror=alert(6)>
```
"""


@pytest.fixture(scope='module')
def tools():
    "nbgrader calls `alembic` by its name."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
        yield


@pytest.fixture(scope='module')
def ten(tmp_path_factory, tools):
    "Twelve kinds of students by Moodle, and hostile folders beside them."
    folder = tmp_path_factory.mktemp('class')/'equivariance'
    return Class(folder, '90_notation', 12, 'moodle', in_process, hostile=True).lead()


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


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize('chapter, count, platform', [
    ('05_convolution', 60, 'moodle'), ('90_notation', 12, 'canvas')])
def test_a_whole_class_by_programs_as_a_teacher_calls_them(tmp_path, tools, chapter, count,
                                                           platform):
    start = time.monotonic()
    lot = Class(tmp_path/'equivariance', chapter, count, platform, by_program).lead()
    check_marks(lot)
    assert time.monotonic() - start < 600, 'a class takes more than ten minutes'


@pytest.mark.slow
def test_a_student_validates_the_own_notebook(ten, tools):
    "nbgrader's `validate` runs it in a kernel: what is wrong is said there, too."
    for kind, said in (('right', 'Success'), ('wrong', 'you multiply turn · mirror')):
        [student] = [s for s in ten.students if s.kind == kind]
        file = ten.folder/'submitted'/student.mail/ten.chapter/f'{ten.chapter}.ipynb'
        env = {name: v for name, v in os.environ.items() if name not in OF_TESTS}
        done = subprocess.run(['nbgrader', 'validate', str(file),
                               '--ExecutePreprocessor.timeout=300'], cwd=ten.folder, env=env,
                              capture_output=True, text=True)
        assert said in done.stdout + done.stderr


def test_a_hostile_folder_gets_its_own_marks_and_stops_nobody(ten):
    rows = ten.exported()
    assert {name: float(rows[name][ten.chapter]) for name in HOSTILE} == pytest.approx(
        HOSTILE | {'active': 2 + PROOF})


def test_nothing_that_a_link_leads_to_is_copied(ten):
    folders = ('autograded', 'feedback', 'judged', 'exported')
    files = [p for folder in folders for p in (ten.folder/folder).rglob('*') if p.is_file()]
    assert len(files) > 20 and not [p for p in files if b'hunter2' in p.read_bytes()]
    beside = {p.name for p in (ten.folder/'autograded').glob('*/*/*')}
    assert beside == {f'{ten.chapter}.ipynb', 'timestamp.txt'}


def test_the_release_has_no_solution_and_no_rubric(ten):
    source = (ten.folder/'source'/ten.chapter/f'{ten.chapter}.ipynb').read_text(encoding='utf-8')
    assert source.count('MARK SCHEME') == 2*len(ten.exercises) and 'Rubric' in source
    assert 'D(n).mul[n*m, r]' in source
    released = ten.released.read_text(encoding='utf-8')
    assert 'Exercise 90.3' in released and 'raise NotImplementedError' in released
    for word in ('MARK SCHEME', 'Rubric', 'D(n).mul[n*m, r]'): assert word not in released


def test_a_check_says_why_and_counts_what_the_judge_gives(ten):
    [wrong] = [s for s in ten.students if s.kind == 'wrong']
    file = ten.folder/'autograded'/wrong.mail/ten.chapter/f'{ten.chapter}.ipynb'
    [cell] = [c for c in ten.source(file)['cells']
              if c['metadata']['nbgrader']['grade_id'] == 'check-90-2']
    counted, said = cell['outputs']
    assert counted['output_type'] == 'execute_result' and counted['data']['text/plain'] == ['1']
    assert 'you multiply turn · mirror' in ''.join(said['data']['text/plain'])


def formgrader(lot, student):
    "The page of formgrader on which a person marks."
    if not any((Path(p)/'classic').is_dir() for p in jupyter_path('nbconvert', 'templates')):
        pytest.skip('this environment has no templates of nbconvert')
    from nbconvert.exporters import HTMLExporter
    from nbgrader.server_extensions.formgrader import handlers
    page = HTMLExporter(template_name='formgrade',
                        extra_template_basedirs=[handlers.template_path])
    about = {'notebook_id': lot.chapter, 'base_url': '', 'index': 0, 'total': 1,
             'assignment_id': lot.chapter, 'submission_id': '1', 'student': student,
             'last_name': '', 'first_name': '', 'notebook_path': ''}
    file = lot.folder/'autograded'/student/lot.chapter/f'{lot.chapter}.ipynb'
    return page.from_filename(str(file), resources=about)[0]


def test_formgrader_shows_the_rubric_above_the_answer(ten):
    [half] = [s for s in ten.students if s.kind == 'half']
    page = formgrader(ten, half.mail)
    assert page.index('Exercise 90.3') < page.index('Rubric') < page.index('By inspection.')


def active_parts(page):
    "Elements and attributes of a page that act, or ask another server."
    from html.parser import HTMLParser
    found = []
    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            for name, value in attributes:
                if name.startswith('on') or re.match('(javascript|data|vbscript):', value or ''):
                    found.append((tag, name, value))
            if tag in ('script', 'img', 'iframe', 'object', 'embed', 'link', 'form', 'base'):
                found.append((tag, '', ''))
    Reader().feed(page)
    return sorted(found)


def test_a_student_s_markdown_acts_neither_in_formgrader_nor_in_feedback(ten):
    page = (ten.folder/'feedback'/'active'/ten.chapter/f'{ten.chapter}.html').read_text()
    assert 'alert(1)' in page and active_parts(page) == []
    [half] = [s for s in ten.students if s.kind == 'half']
    assert active_parts(formgrader(ten, 'active')) == active_parts(formgrader(ten, half.mail))


def test_feedback_shows_task_answer_failure_marks_and_comment(ten):
    [wrong] = [s for s in ten.students if s.kind == 'wrong']
    page = ten.page(wrong).read_text(encoding='utf-8')
    assert '90.2: wrong, 1 of 3' in page and 'you multiply turn · mirror' in page
    assert 'Exercise 90.2' in page and 'D(n).mul[r, n*m]' in page
    [half] = [s for s in ten.students if s.kind == 'half']
    page = ten.page(half).read_text(encoding='utf-8')
    assert '90.3: marked, 1.5 of 2' in page and '<p>Why is ' in page and 'No response' not in page
    [late] = [s for s in ten.students if s.kind == 'late']
    assert '2.6 were taken off' in ten.page(late).read_text(encoding='utf-8')
    [damaged] = [s for s in ten.students if s.kind == 'damaged']
    assert 'the file is damaged' in ten.page(damaged).read_text(encoding='utf-8')


def page_at(lot, student, now):
    "A feedback page as it is written at some time."
    import nbformat

    from eqtutor.grading.nbgrader.feedback import page_of
    from eqtutor.grading.nbgrader.late import closed
    file = lot.folder/'autograded'/student.mail/lot.chapter/f'{lot.chapter}.ipynb'
    about = {'student': student.mail, 'assignment': lot.chapter, 'notebook': lot.chapter}
    with lot.book as book:
        return page_of(nbformat.read(file, 4), about, book, closed(book, lot.chapter, now))


def test_solutions_come_when_the_last_extension_is_over(ten):
    [student] = [s for s in ten.students if s.kind == 'empty']
    before, between, after = (page_at(ten, student, classes.DUE + timedelta(days=d))
                              for d in (-1, 4.9, 5.1))
    assert 'Rubric' not in before and 'Rubric' not in between and 'Rubric' in after
    assert '<details>' not in after


def test_formulas_are_set(ten):
    pytest.importorskip('latex2mathml')
    page = ten.page(ten.students[0]).read_text(encoding='utf-8')
    assert '<msup><mi>h</mi>' in page and '$' not in page


def test_an_export_has_no_formula(ten):
    for file in (ten.folder/'exported').glob('*.csv'):
        for row in csv.reader(file.read_text(encoding='utf-8').splitlines()):
            assert not [cell for cell in row if re.match(r'\s*[=+@＝＋＠－]|-.', cell)]
    [row] = [r for r in worksheet(ten) if r['Identifier'] == 'Participant 99']
    assert row['Full name'] == "'=1+1" and row['Grade'] == ''


def worksheet(lot):
    with (lot.folder/'exported'/f'{lot.chapter}-moodle.csv').open(encoding='utf-8') as file:
        return list(csv.DictReader(file))


def test_moodle_s_worksheet_comes_back_with_grades(ten):
    grades = {row['Email address']: row['Grade'] for row in worksheet(ten)}
    for s in ten.students:
        marks = ten.expected(s)
        assert grades[s.mail] == ('' if marks is None else f'{marks*100/7:.2f}')


def test_moodle_gets_a_zip_of_the_pages(ten):
    with zipfile.ZipFile(ten.folder/'exported'/f'{ten.chapter}-feedback.zip') as z:
        pages = {name: z.read(name) for name in z.namelist()}
    for s in ten.students:
        place = f'{s.name}_{100 + s.number}_assignsubmission_file_/{ten.chapter}.html'
        assert (place in pages) == (s.kind not in classes.REFUSED)
        if place in pages: assert pages[place] == ten.page(s).read_bytes()


def test_what_cannot_be_taken_is_named(ten):
    with (ten.folder/'downloaded'/ten.chapter/'collected.csv').open(encoding='utf-8') as file:
        rows = {(row['student'], row['what']) for row in csv.DictReader(file)}
    def of(kind): return next(s.mail for s in ten.students if s.kind == kind)
    assert {(of('renamed'), f'it is not called {ten.chapter}.ipynb'),
            (of('pdf'), 'it is no notebook (*.ipynb)'),
            (of('zipped'), 'it is an archive; hand in the notebook itself'),
            (of('twice'), 'a later version counts')} <= rows
