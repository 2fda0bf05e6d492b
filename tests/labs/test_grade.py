"From files to marks: three students, strange files, a class of a hundred, an interrupted run."
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eqtutor.labs import chapter_exercises, course_chapters, grade, grade_notebook
from eqtutor.labs.grade import (FAILED, chapter_in, find_submissions, marks_table, spreadsheet_safe,
                                stored_record)

GROUPS, CONVOLUTION = '01_groups', '05_convolution'
WITH_EXERCISES = [name for name in course_chapters() if chapter_exercises(name)]


def table(out):
    "The rows of marks.csv by submission."
    with open(out/'marks.csv', encoding='utf-8-sig') as file:
        return {row['submission']: row for row in csv.DictReader(file)}


def mark_by_hand(out, name, marks):
    "What a teacher writes into the column of 1.1."
    text = (out/'marks.csv').read_text(encoding='utf-8')
    empty = f'{name}","{GROUPS}",""'
    assert empty in text
    (out/'marks.csv').write_text(text.replace(empty, f'{name}","{GROUPS}","{marks}"'))


# --- three students

@pytest.mark.parametrize('name', WITH_EXERCISES)
def test_solutions_have_full_marks_and_an_empty_copy_none(name, students, box, tmp_path):
    asked = chapter_exercises(name)
    best = students.graded(students.solved(name), tmp_path, box, seed=7)
    states = ['by hand' if e.kind == 'proof' else 'passed' for e in asked]
    assert [v['state'] for v in best['parts']] == states
    assert best['marks'] + best['by hand'] == sum(e.marks for e in asked)
    none = students.graded(students.empty(name), tmp_path, box)
    assert (none['marks'], none['by hand']) == (0, 0)
    assert {v['state'] for v in none['parts']} == {'unsolved'}


CLOCKWISE = '''
def lift_convolve(x, w, group):
    turned = [act(group, int(group.inv[h]), w) for h in group.elements]
    return torch.stack([F.conv2d(x, v.flip(-1, -2), padding=1) for v in turned], 2)'''


def test_who_turns_clockwise_is_told(students, box, tmp_path):
    wrong = students.solve(students.empty(CONVOLUTION), {'5.3': CLOCKWISE})
    parts = students.graded(wrong, tmp_path, box)['parts']
    assert [v['state'] for v in parts] == ['unsolved', 'unsolved', 'wrong', 'unsolved']
    assert parts[2]['message'].startswith('Your kernel turns clockwise')


# --- strange files

@pytest.mark.parametrize('content', ['', '{', '[]', '{"cells": 3}', '{"cells": [3]}', '\x00'])
def test_what_is_no_notebook_is_a_result(content, students, box, tmp_path):
    record = students.graded(content, tmp_path, box, chapter='01')
    assert (record['marks'], record['of']) == (0, 11) and 'cannot be read' in record['problem']


def test_a_terabyte_of_nothing_is_not_read(box, tmp_path):
    (file := tmp_path/'x.ipynb').touch()
    os.truncate(file, 10**12)
    assert 'larger than 20 MB' in grade_notebook(file, box, '01')['problem']


def test_a_link_is_no_submission(box, tmp_path):
    (tmp_path/'x.ipynb').symlink_to('/etc/passwd')
    assert 'not a plain file' in grade_notebook(tmp_path/'x.ipynb', box, '01')['problem']


def test_an_unknown_chapter_is_a_problem(students, box, tmp_path):
    record = students.graded('{"cells": []}', tmp_path, box)
    assert record['of'] == 0 and "no chapter with exercises is called 'ann'" in record['problem']


def test_the_chapter_is_read_from_the_file_or_its_name(tmp_path):
    assert chapter_in(b'{"chapter": "05_convolution"}', Path('x.ipynb')) == CONVOLUTION
    assert chapter_in(b'{"chapter": "77_none"}', Path('01_groups.ipynb')) == GROUPS


@pytest.fixture(scope='module')
def full(students): return students.solved(GROUPS)


def states(nb, students, folder, box):
    return [v['state'] for v in students.graded(nb, folder, box)['parts']]


def test_deleted_and_doubled_cells_are_told(full, students, box, tmp_path):
    without = [c for c in full['cells'] if 'centre' not in ''.join(c['source'])]
    assert states(full | {'cells': without}, students, tmp_path, box)[1] == 'missing'
    doubled = states(full | {'cells': full['cells']*2}, students, tmp_path, box)
    assert doubled[1:] == ['stopped']*3


@pytest.mark.parametrize('metadata', [{}, [1], None, {'nbgrader': 5}])
def test_without_metadata_functions_are_found_by_name(full, students, box, tmp_path, metadata):
    stripped = full | {'cells': [c | {'metadata': metadata} for c in full['cells']]}
    assert states(stripped, students, tmp_path, box) == ['missing', 'passed', 'passed', 'passed']


# --- a class

@pytest.fixture
def course(tmp_path, students):
    "Four students: full marks, none, a loop and a script, and a file that is empty."
    solved = students.solutions(GROUPS)
    eve = solved | {'1.2': 'while True: pass', '1.1': '<script>alert(1)</script>'}
    files = {'ann': solved, '=bob': {}, 'eve': eve, 'zoe': {}}
    students.hand_in(tmp_path/'in', GROUPS, {f'{name}/{GROUPS}': a for name, a in files.items()})
    (tmp_path/'in'/'zoe'/f'{GROUPS}.ipynb').write_text('{}')
    return tmp_path


def graded_class(course, **options):
    "The records by student."
    records = grade([course/'in'], course/'out', **{'seconds': 4, 'workers': 2} | options)
    return {r['name'].split('/')[0]: r for r in records}


def test_a_class_is_graded_into_a_table_and_pages(course):
    records = graded_class(course)
    assert {n: r['marks'] for n, r in records.items()} == {'ann': 8, '=bob': 0, 'eve': 5, 'zoe': 0}
    assert records['zoe']['of'] == 11
    page = (course/'out'/'feedback'/'eve'/f'{GROUPS}.html').read_text()
    assert '<script>' not in page and '&lt;script&gt;' in page and 'no answer within 4 s' in page
    rows = table(course/'out')
    assert list(rows)[0].startswith("'=bob")   # a spreadsheet would run it
    assert [r['total'] for r in rows.values()] == ['0', '8', '5', '0']
    assert '1.2 stopped' in rows[f'eve/{GROUPS}']['remarks']
    assert not list((course/'out').rglob('*.part'))
    assert len(json.loads((course/'out'/'marks.json').read_text())) == 4


def test_a_second_run_takes_what_it_finds_and_keeps_a_teacher_s_marks(course, students):
    graded_class(course)
    mark_by_hand(course/'out', f'ann/{GROUPS}', '2.5')
    students.hand_in(course/'in', GROUPS, {f'zoe/{GROUPS}': {}})            # one hands in again
    (course/'out'/'results'/'eve'/f'{GROUPS}.json').write_text('{half')     # a damaged result
    new = {name: r['new'] for name, r in graded_class(course, workers=1).items()}
    assert new == {'=bob': False, 'ann': False, 'eve': True, 'zoe': True}
    assert [r['total'] for r in table(course/'out').values()] == ['0', '10.5', '5', '0']


def test_a_table_from_a_spreadsheet_and_a_new_version_of_a_proof(course, students):
    graded_class(course)
    mark_by_hand(course/'out', f'ann/{GROUPS}', '1.5')
    theirs = (course/'out'/'marks.csv').read_text().replace(',', ';')
    (course/'out'/'marks.csv').write_text(theirs, encoding='utf-8-sig')
    better = students.solutions(GROUPS) | {'1.1': 'A better proof.'}
    students.hand_in(course/'in', GROUPS, {f'ann/{GROUPS}': better})
    graded_class(course)
    ann = table(course/'out')[f'ann/{GROUPS}']
    assert (ann['1.1'], ann['total']) == ('1.5', '9.5') and 'before this version' in ann['remarks']


def test_a_file_that_is_no_table_of_marks_is_not_touched(course):
    (course/'out').mkdir()
    (course/'out'/'marks.csv').write_text('mine')
    with pytest.raises(ValueError, match='no table of marks'): graded_class(course)
    assert (course/'out'/'marks.csv').read_text() == 'mine'


def test_no_submission_is_an_error():
    with pytest.raises(FileNotFoundError, match='no submission at /nowhere'):
        grade(['/nowhere'], 'x')


@pytest.mark.parametrize('text, safe', [('=1', "'=1"), ('a;=1', "a;'=1"), (' -1', "' -1"),
                                        ('a; b', 'a; b')])
def test_a_spreadsheet_runs_nothing(text, safe): assert spreadsheet_safe(text) == safe


def test_the_columns_stand_in_the_order_of_the_course():
    parts = [{'id': id, 'state': 'passed', 'marks': 1} for id in ('24b.1', '24.10', '5.1', '24.9')]
    record = {'name': 'a', 'chapter': '24', 'of': 4, 'problem': '', 'parts': parts}
    head = marks_table([record], {}).splitlines()[0]
    assert head == '"submission","chapter","5.1","24.9","24.10","24b.1","total","of","remarks"'


# --- names and files that would stop a class

def test_half_characters_long_names_and_names_of_results_are_graded(students, tmp_path):
    solved = students.solutions(GROUPS)
    half = {'1.3': 'def blocks(): raise ValueError(chr(0xd800))'}
    strange = {'good': solved, 'half': half, 'proof': {'1.1': 'my proof \ud800'}, 'x'*247: solved,
               'good.json/01': solved, 'good.html/01': solved, os.fsdecode(b'm\xfcller'): solved}
    out = tmp_path/'out'
    (out/'results').mkdir(parents=True)
    (out/'results'/'half.json').write_text('[]')
    folder = students.hand_in(tmp_path/'in', GROUPS, strange)
    records = grade([folder], out, workers=1)
    assert sorted(r['marks'] for r in records) == [0, 0, 8, 8, 8, 8, 8] and len(table(out)) == 7
    assert not any(r['new'] for r in grade([folder], out, workers=1))


def proofs(out): return {name: row['1.1'] for name, row in table(out).items()}


def test_marks_stay_with_the_name_of_a_submission(students, tmp_path):
    out, proof = tmp_path/'out', {'1.1': 'my proof'}
    early = students.hand_in(tmp_path/'in', GROUPS, {'anna/01': proof, 'ben/01': proof})
    late = students.hand_in(tmp_path/'late', GROUPS, {'carl/01': proof})
    grade([early], out, workers=1)
    mark_by_hand(out, 'anna/01', 2)
    grade([late], out, workers=1)
    assert proofs(out) == {'anna/01': '2', 'ben/01': '', 'carl/01': ''}
    assert (out/'marks.csv.bak').exists()
    anna, ben = early/'anna'/'01.ipynb', early/'ben'/'01.ipynb'
    assert find_submissions([anna, ben], out) == find_submissions([ben, anna], out)
    grade([ben, anna], out, workers=1)
    assert proofs(out)['anna/01'] == '2'
    second = students.hand_in(tmp_path/'2', GROUPS, {'anna/01': {}})
    assert len(find_submissions([early/'anna', second/'anna'], out)) == 2   # even folders agree


def test_other_limits_and_the_machine_s_faults_are_another_attempt(students, tmp_path):
    slow = 'import time; time.sleep(1.5)\n' + students.solutions(GROUPS)['1.3']
    folder, out = students.hand_in(tmp_path/'in', GROUPS, {'dora': {'1.3': slow}}), tmp_path/'out'
    def result(seconds): return grade([folder], out, seconds=seconds, workers=1)[0]
    assert [result(seconds)['marks'] for seconds in (0, 9)] == [0, 2]
    assert result(9)['new'] is False
    file = out/'results'/'dora.json'
    failed = stored_record(file) | {'problem': f'{FAILED}: OSError', 'marks': 0}
    file.write_text(json.dumps(failed))
    assert result(9)['marks'] == 2   # the machine's fault, not the student's


# --- at full size

HOSTILE = {'5.4': 'import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n'
                  'def mirrored_panels():\n    return [3, 2, 1, 0]',
           '5.3': 'def lift_convolve(x, w, group):\n    while True: pass'}


def hand_in_many(students, folder, n, answers):
    "n times the same answers to chapter 05; `None` for the author's."
    if answers is None: answers = students.solutions(CONVOLUTION)
    answers = {id: source for id, source in answers.items() if id in ('5.3', '5.4')}
    text = json.dumps(students.solve(students.empty(CONVOLUTION), answers))
    for i in range(n):
        (file := folder/f's{i:03d}'/f'{CONVOLUTION}.ipynb').parent.mkdir(parents=True)
        file.write_text(text)
    return folder


@pytest.mark.timeout(900)
def test_a_hundred_submissions_take_less_than_ten_minutes(students, tmp_path):
    honest = hand_in_many(students, tmp_path/'in', 98, None)
    hostile = hand_in_many(students, tmp_path/'hostile', 2, HOSTILE)
    start = time.monotonic()
    records = grade([honest, hostile], tmp_path/'out', workers=2)
    seconds = time.monotonic() - start
    full = sum(e.marks for e in chapter_exercises(CONVOLUTION) if e.kind != 'proof')
    marks = [r['marks'] for r in records]
    assert marks[:98] == [full]*98 and max(marks[98:]) < full and len(marks) == 100
    assert seconds < 600
    start = time.monotonic()
    again = grade([honest, hostile], tmp_path/'out', workers=2)
    assert not any(r['new'] for r in again) and time.monotonic() - start < 30


def test_an_interrupted_run_goes_on(students, tmp_path):
    folder, out = hand_in_many(students, tmp_path/'in', 30, None), tmp_path/'out'
    script = f'from eqtutor.labs import grade; grade([{str(folder)!r}], {str(out)!r}, workers=1)'
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen([sys.executable, '-c', script], env=env)
    def results(): return len(list((out/'results').rglob('*.json')))
    while results() < 3 and run.poll() is None: time.sleep(.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = results()
    assert 3 <= before < 30
    records = grade([folder], out, workers=2)
    assert sum(not r['new'] for r in records) in (before, before - 1)
    assert len(records) == 30 and len({r['marks'] for r in records}) == 1
