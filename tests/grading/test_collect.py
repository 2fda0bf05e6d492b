"What Moodle and Canvas hand out reaches the right student, or is refused with its name."
import csv
import re
import stat
import zipfile
from datetime import datetime, timedelta

import pytest

pytest.importorskip('nbgrader', reason='nbgrader is not installed (pip install eqtutor[grading])')

from nbgrader.api import Gradebook
from typer.testing import CliRunner

from eqtutor.cli import app
from eqtutor.grading.nbgrader.course import write_course
from eqtutor.grading.nbgrader.export import canvas_table, marks_table, moodle_table
from eqtutor.grading.nbgrader.late import LateDays, extend
from eqtutor.grading.nbgrader.platforms import CANVAS, MOODLE, as_csv, read_list, utc_time

from . import classes
from .test_course import in_process

LAB = '90_notation'
NB = f'{LAB}.ipynb'
DUE = classes.DUE
MOODLE_COLUMNS = ['Identifier', 'Full name', 'Email address', 'Grade', 'Maximum Grade',
                  'Last modified (submission)', 'Feedback comments']


@pytest.fixture(scope='module', autouse=True)
def tools():
    "nbgrader calls `alembic` by its name."
    import os
    import sys
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
        yield


@pytest.fixture(scope='module')
def empty_book(tmp_path_factory):
    "A grade book with one lab and its deadline."
    folder = tmp_path_factory.mktemp('book')
    write_course(folder, [LAB], 'Europe/Vienna')
    in_process(['nbgrader', 'generate_assignment', LAB], folder)
    with Gradebook(f'sqlite:///{folder}/gradebook.db') as book:
        book.update_or_create_assignment(LAB, duedate=DUE)
    return folder


@pytest.fixture
def course(empty_book, tmp_path):
    "A course of a test's own."
    import shutil
    shutil.copytree(empty_book, tmp_path/'course')
    return tmp_path/'course'


def archive_of(course): return course/'downloaded'/LAB/'archive'


def book_of(course): return Gradebook(f'sqlite:///{course}/gradebook.db')


def row(number, name, time='-', **more):
    return {'Identifier': f'Participant {number}', 'Full name': name, 'Maximum Grade': '100.00',
            'Email address': f'{name.split()[0].lower()}@uni.example',
            'Last modified (submission)': time} | more


def collect(course):
    "Run `zip_collect`: what was collected, by student, and the report's words by file."
    in_process(['nbgrader', 'zip_collect', LAB, '--force'], course)
    found = {p.parts[-3]: p.read_bytes() for p in (course/'submitted').glob(f'*/{LAB}/*.ipynb')}
    with (course/'downloaded'/LAB/'collected.csv').open(encoding='utf-8') as file:
        return found, {r['file']: r['what'] for r in csv.DictReader(file)}


def time_of(course, student):
    file = course/'submitted'/student/LAB/'timestamp.txt'
    return datetime.fromisoformat(file.read_text()) if file.exists() else None


# --- names

@pytest.mark.parametrize('name, number, file', [
    ('Ann Lee_17_assignsubmission_file_', '17', ''),
    ('Ann Lee_17_assignsubmission_file_05_x.ipynb', '17', '05_x.ipynb'),
    ('Ann_17_assignsubmission_file_Bob_18_assignsubmission_file_05.ipynb', '17',
     'Bob_18_assignsubmission_file_05.ipynb'),
    ('Žofie Nováková_3_assignsubmission_file_', '3', '')])
def test_the_pattern_of_moodle(name, number, file):
    hit = MOODLE.fullmatch(name)
    assert (hit['number'], hit['file']) == (number, file)


@pytest.mark.parametrize('name, number, late, file', [
    ('leeann_17_203_05_convolution.ipynb', '17', None, '05_convolution.ipynb'),
    ('leeann_LATE_17_203_05_convolution-1.ipynb', '17', 'LATE_', '05_convolution-1.ipynb'),
    ('leeann_17_203_ray_18_204_x.ipynb', '17', None, 'ray_18_204_x.ipynb')])
def test_the_pattern_of_canvas(name, number, late, file):
    hit = CANVAS.fullmatch(name)
    assert (hit['number'], hit['late'], hit['file']) == (number, late, file)


@pytest.mark.parametrize('name', ['05_convolution.ipynb', 'Ann Lee_17', 'all/05.ipynb'])
def test_a_student_s_own_name_is_no_platform_s(name):
    assert not MOODLE.fullmatch(name) and not CANVAS.fullmatch(name)


def test_a_time_is_that_of_its_zone():
    said = 'Friday, 20 November 2026, 11:40 PM'
    assert utc_time(said, 'Europe/Vienna') == datetime(2026, 11, 20, 22, 40)
    assert utc_time(said.replace('November', 'July'), 'Europe/Vienna').hour == 21
    assert utc_time('-', 'Europe/Vienna') is None


# --- Moodle

def test_work_is_booked_by_the_outer_folder(course):
    "Neither a folder nor a file of another's name inside it gives that other anything."
    inside = ('Ann Lee_17_assignsubmission_file_/'
              f'Bob Ray_18_assignsubmission_file_/{NB}')
    flat = f'Cy Moe_19_assignsubmission_file_Bob Ray_18_assignsubmission_file_{NB}'
    classes.archive(archive_of(course)/'a.zip', {f'again/{inside}': b'ann', flat: b'cy'})
    classes.table(archive_of(course)/'list.csv', MOODLE_COLUMNS,
                  [row(17, 'Ann Lee'), row(18, 'Bob Ray'), row(19, 'Cy Moe')])
    found, said = collect(course)
    assert found == {'ann@uni.example': b'ann'}
    assert said[flat] == f'it is not called {NB}'


def test_a_time_comes_from_the_worksheet_and_never_from_the_zip(course):
    local = DUE + timedelta(hours=1, days=-3)
    classes.archive(archive_of(course)/'a.zip', {
        f'Ann Lee_17_assignsubmission_file_/{NB}': b'ann',
        f'Bob Ray_18_assignsubmission_file_/{NB}': b'bob'})
    classes.table(archive_of(course)/'list.csv', MOODLE_COLUMNS, [
        row(17, 'Ann Lee', f'{local:%A, %d %B %Y, %I:%M %p}'), row(18, 'Bob Ray', 'Freitag früh')])
    collect(course)
    assert time_of(course, 'ann@uni.example') == DUE - timedelta(days=3)
    assert time_of(course, 'bob@uni.example') is None


def test_a_team_s_folder_is_no_student_s(course):
    "The number of a team's folder is the group's: here also Bob's."
    classes.archive(archive_of(course)/'a.zip', {
        f'Blue_18_assignsubmission_file_/{NB}': b'blue',
        f'Red_99_assignsubmission_file_/{NB}': b'red'})
    columns = [*MOODLE_COLUMNS, 'Group']
    classes.table(archive_of(course)/'list.csv', columns, [
        row(17, 'Ann Lee', Group='Blue'), row(18, 'Bob Ray', Group='Green'),
        row(19, 'Cy Moe', Group='Blue')])
    found, said = collect(course)
    assert found == {'team_Blue': b'blue'}
    assert said[f'Red_99_assignsubmission_file_/{NB}'] == 'it belongs to nobody in list.csv'
    give(course, 'team_Blue', 6)
    with book_of(course) as book:
        text = moodle_table(read_list(archive_of(course)), book.find_assignment(LAB), book)
    grades = {r['Full name']: r['Grade'] for r in csv.DictReader(text.decode().splitlines())}
    assert grades == {'Ann Lee': '85.71', 'Bob Ray': '', 'Cy Moe': '85.71'}


def give(course, student, marks, waits=False):
    "Autograded marks of a student."
    with book_of(course) as book:
        s = book.update_or_create_submission(LAB, student)
        first, *others = [g for n in s.notebooks for g in n.grades]
        first.auto_score, first.manual_score = 0, marks
        for g in others: g.auto_score, g.needs_manual_grade = 0, False
        first.needs_manual_grade = waits
        book.db.commit()


def test_what_cannot_be_taken_is_refused_and_the_rest_is_collected(course):
    folder = archive_of(course)
    people = ['Ann Lee', 'Bob Ray', 'Cy Moe', 'Di Fox', 'Ed Orr', 'Flo Kay', 'Gus Hay']
    of = {n: f'{n}_{i}_assignsubmission_file_/' for i, n in enumerate(people)}
    own = {f'{of["Ann Lee"]}{NB}': b'ann', f'{of["Bob Ray"]}report.pdf': b'%PDF',
           f'{of["Cy Moe"]}{LAB}.zip': b'PK', f'{of["Di Fox"]}mine.ipynb': b'{}',
           f'../../{of["Flo Kay"]}../{NB}': b'flo',
           f'Stranger_77_assignsubmission_file_/{NB}': b'',
           f'{of["Gus Hay"]}{LAB} (2).ipynb': b'two', f'{of["Gus Hay"]}{LAB}-1.ipynb': b'one'}
    classes.archive(folder/'a.zip', own)
    with zipfile.ZipFile(folder/'a.zip', 'a') as z:
        link = zipfile.ZipInfo(f'{of["Ed Orr"]}{NB}')
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        z.writestr(link, '/etc/passwd')
    (folder/'half.zip').write_bytes((folder/'a.zip').read_bytes()[:300])
    classes.table(folder/'list.csv', MOODLE_COLUMNS, [row(i, n) for i, n in enumerate(people)])
    found, said = collect(course)
    assert found == {f'{n}@uni.example': content for n, content in
                     (('ann', b'ann'), ('flo', b'flo'), ('gus', b'two'))}
    reasons = {f'{of["Bob Ray"]}report.pdf': 'no notebook',
               f'{of["Cy Moe"]}{LAB}.zip': 'an archive', f'{of["Ed Orr"]}{NB}': 'a link',
               f'{of["Di Fox"]}mine.ipynb': f'not called {NB}',
               f'Stranger_77_assignsubmission_file_/{NB}': 'nobody', '': 'damaged',
               f'{of["Gus Hay"]}{LAB}-1.ipynb': 'later version'}
    for file, words in reasons.items(): assert words in said[file]


def test_a_damaged_file_in_a_zip_costs_its_own_student(course):
    folder = archive_of(course)
    classes.archive(folder/'a.zip', {f'Ann Lee_17_assignsubmission_file_/{NB}': b'a'*5000,
                                     f'Bob Ray_18_assignsubmission_file_/{NB}': b'bob'})
    content = bytearray((folder/'a.zip').read_bytes())
    start = content.index(NB.encode()) + len(NB)
    content[start + 2:start + 9] = b'\xff'*7   # of Ann's compressed bytes
    (folder/'a.zip').write_bytes(content)
    classes.table(folder/'list.csv', MOODLE_COLUMNS, [row(17, 'Ann Lee'), row(18, 'Bob Ray')])
    found, said = collect(course)
    assert found == {'bob@uni.example': b'bob'}
    assert 'cannot be unpacked' in said[f'Ann Lee_17_assignsubmission_file_/{NB}']


def test_a_later_download_counts(course):
    folder = archive_of(course)
    name = f'Ann Lee_17_assignsubmission_file_/{NB}'
    classes.archive(folder/'b.zip', {name: b'old'})
    with zipfile.ZipFile(folder/'a.zip', 'w') as z:
        z.writestr(zipfile.ZipInfo(name, (2027, 1, 1, 0, 0, 0)), b'new')
    classes.table(folder/'list.csv', MOODLE_COLUMNS, [row(17, 'Ann Lee')])
    assert collect(course)[0] == {'ann@uni.example': b'new'}


@pytest.mark.parametrize('files, words', [
    ({}, '0 lists'), ({'a.csv': 'x\n', 'b.csv': 'x\n'}, '2 lists'),
    ({'a.csv': 'x\n1\n'}, 'neither')])
def test_a_list_that_is_missing_is_asked_for(tmp_path, files, words):
    for name, text in files.items(): (tmp_path/name).write_text(text)
    with pytest.raises(ValueError, match=words): read_list(tmp_path)


# --- Canvas

def canvas_class(course):
    classes.archive(archive_of(course)/'s.zip', {
        f'leeann_17_203_{LAB}-2.ipynb': b'ann', f'raybob_LATE_18_204_{NB}': b'bob',
        f'moecy_18_205_{NB}': b'forged'})
    columns = ['Student', 'ID', 'SIS Login ID', 'Section', '90 Notation (371)', 'Other (12)']
    classes.table(archive_of(course)/'g.csv', columns, [
        {'Student': '    Points Possible', '90 Notation (371)': '50'},
        {'Student': 'Lee, Ann', 'ID': '17', 'SIS Login ID': 'ann', 'Section': '＝1+1'},
        {'Student': 'Ray, Bob', 'ID': '18', 'SIS Login ID': 'bob', 'Section': '@x'},
        {'Student': 'Moe, Cy', 'ID': '19', 'SIS Login ID': 'cy'}])


def test_canvas_says_only_that_something_is_late(course):
    canvas_class(course)
    found, said = collect(course)
    assert found == {'ann': b'ann', 'bob': b'bob'}
    assert said[f'moecy_18_205_{NB}'] == 'it belongs to nobody in g.csv'
    assert time_of(course, 'ann') == DUE and time_of(course, 'bob') == DUE + timedelta(seconds=1)


def test_canvas_s_grade_book_comes_back_with_marks(course):
    canvas_class(course)
    collect(course)
    give(course, 'ann', 3.5)
    give(course, 'bob', 2, waits=True)
    with book_of(course) as book:
        text = canvas_table(read_list(archive_of(course)), book.find_assignment(LAB), book)
    rows = list(csv.DictReader(text.decode().splitlines()))
    assert [r['90 Notation (371)'] for r in rows] == ['50', '25.00', '', '']
    assert [r['Section'] for r in rows] == ['', "'＝1+1", "'@x", '']
    assert list(rows[0]) == ['Student', 'ID', 'SIS Login ID', 'Section', '90 Notation (371)']


@pytest.mark.parametrize('cell', ['=1', ' +1+1', '-1+1', '@a', '＝1', '＋a', '－a', '＠a', '\t=1',
                                  'a;=1', '\u3000=1', 'a\n=1', '\r=1'])
def test_a_formula_is_disarmed(cell):
    [[text]] = csv.reader([as_csv([cell], []).decode()])
    for part in re.split('[;\n]', text): assert not re.match(r'\s*[=+\-@＝＋－＠]', part)


@pytest.mark.parametrize('cell', ['-', '-5', '+3.5', 'a=b', 'x - y', 'ann@uni.example'])
def test_what_is_no_formula_stays(cell): assert as_csv([cell], []).decode().strip() == cell


# --- late days

def hand_in(book, lab, student, days):
    book.update_or_create_assignment(lab, duedate=DUE + timedelta(weeks=int(lab[0])))
    book.update_or_create_student(student)
    late = book.find_assignment(lab).duedate + timedelta(days=days)
    book.update_or_create_submission(lab, student, timestamp=late)


def test_days_of_grace_are_used_up_in_the_order_of_the_deadlines(tmp_path):
    late = LateDays(free=3, percent=20)
    with Gradebook(f'sqlite:///{tmp_path}/book.db') as book:
        for lab, days in (('1a', 1.5), ('3c', 0), ('2b', 2.1), ('4d', 9)):
            hand_in(book, lab, 'ann', days)
        # 2 of 3 days; then 3 of which one is left; none; nine days cost all and no more
        wanted = {'1a': 0, '2b': 4, '3c': 0, '4d': 10}
        assert {lab: late.penalty(book, lab, 'ann', 10) for lab in wanted} == wanted


def test_an_extension_may_come_before_and_after(course):
    with book_of(course) as book: book.update_or_create_student('ann')
    assert extend(course, LAB, 'ann', 2) == DUE + timedelta(days=2)
    with book_of(course) as book:
        hand_in_late = DUE + timedelta(days=4, minutes=-1)
        s = book.update_or_create_submission(LAB, 'ann', timestamp=hand_in_late)
        for g in s.notebooks[0].grades: g.auto_score = g.max_score
        book.db.commit()
        late = LateDays(free=0, percent=10)
        late.settle(book, LAB)
        assert s.late_submission_penalty == pytest.approx(.2*7)   # two days behind the extension
        for g in s.notebooks[0].grades: g.manual_score = 0        # a person marks afterwards
        late.settle(book, LAB)
        assert s.late_submission_penalty == 0
    assert extend(course, LAB, 'ann', 4) == DUE + timedelta(days=4)
    assert extend(course, LAB, 'ann', 0) == DUE


@pytest.mark.parametrize('words, said', [
    ([LAB, 'nobody', '--days', '2'], 'students: none yet'),
    (['nothing', 'ann', '--days', '2'], LAB)])
def test_an_extension_for_nobody_says_who_there_is(course, monkeypatch, words, said):
    monkeypatch.chdir(course)
    done = CliRunner().invoke(app, ['labs', 'extend', *words])
    assert done.exit_code == 1 and said in done.output


def test_an_extension_needs_a_deadline(tmp_path):
    with Gradebook(f'sqlite:///{tmp_path}/gradebook.db') as book:
        book.update_or_create_assignment('lab')
        book.update_or_create_student('ann')
    with pytest.raises(ValueError, match='no deadline'): extend(tmp_path, 'lab', 'ann', 2)
    with pytest.raises(FileNotFoundError, match="course's folder"):
        extend(tmp_path/'nowhere', 'lab', 'ann', 1)


def test_an_extension_alone_is_no_submission(course):
    canvas_class(course)
    collect(course)
    extend(course, LAB, 'cy', 2)
    with book_of(course) as book:
        text = canvas_table(read_list(archive_of(course)), book.find_assignment(LAB), book)
        marks = marks_table([book.find_assignment(LAB)], book).decode()
    assert [r['90 Notation (371)'] for r in csv.DictReader(text.decode().splitlines())][3] == ''
    [row] = [r for r in csv.DictReader(marks.splitlines()) if r['student'] == 'cy']
    assert row['to mark'] == '' and row[LAB] == ''


# --- the course folder

def test_what_is_there_stays(tmp_path):
    done = write_course(tmp_path, ['90'])
    assert {p.name for p in done['written']} == {'nbgrader_config.py', 'README.md', NB}
    (tmp_path/'nbgrader_config.py').write_text('# mine')
    (tmp_path/'README.md').unlink()
    again = write_course(tmp_path, ['90'])
    assert {p.name for p in again['written']} == {'README.md'}
    assert (tmp_path/'nbgrader_config.py').read_text() == '# mine'


def test_a_course_of_a_name_that_is_code(tmp_path):
    write_course(tmp_path/'a"\nb', ['90'], 'Europe/Vienna')
    compile((tmp_path/'a"\nb'/'nbgrader_config.py').read_text(), 'config', 'exec')


def test_a_course_without_exercises_is_refused(tmp_path):
    with pytest.raises(ValueError, match='no exercises'): write_course(tmp_path, ['00'])
