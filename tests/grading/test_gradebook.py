"The grade book: a person's marks are checked and carried everywhere; one row a student."
import csv
import io
import json

import pytest

from eqtutor.grading.gradebook import (
    marks_of_a_person,
    marks_table,
    students_table,
    with_hand,
    write_tables,
)
from eqtutor.grading.pages import feedback_page
from eqtutor.grading.roster import read_roster
from eqtutor.tutor.exercise import get_exercise

PROOF = get_exercise('1.1')   # of 3 marks


def part(id, marks, of, state='passed'):
    return dict(id=id, state=state, marks=marks, of=of, message='', task='', answer='')


def record(name, chapter='01_groups', hand=True, **changes):
    "A result of chapter 01 with a proof that waits, or of chapter 02 without."
    parts = [part('1.1', None, 3, 'by hand'), part('1.2', 3, 3)] if hand else [part('2.2', 2, 4)]
    plain = dict(name=name, chapter=chapter, parts=parts, marks=3 if hand else 2,
                 of=6 if hand else 4, problem='', isolation='bubblewrap')
    return plain | {'by hand': 3 if hand else 0} | changes


CLASS = [record('ann/01'), record('ann/02', '02_actions', hand=False), record('ben/01')]


def read(text): return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def marks(tmp_path):
    "A class whose table a person has in hand."
    for r in CLASS:
        file = tmp_path/'results'/f'{r["name"]}.json'
        page = tmp_path/'feedback'/f'{r["name"]}.html'
        for f, text in ((file, json.dumps(r)), (page, feedback_page(r))):
            f.parent.mkdir(parents=True, exist_ok=True)
            f.write_text(text)
    write_tables(CLASS, tmp_path)
    return tmp_path


def fill_in(folder, name, **columns):
    "What a person writes into the row of a submission."
    rows = read((folder/'marks.csv').read_text())
    for row in rows:
        if row['submission'] == name: row |= columns
    out = csv.DictWriter(text := io.StringIO(), rows[0])
    out.writeheader()
    out.writerows(rows)
    (folder/'marks.csv').write_text(text.getvalue())


@pytest.mark.parametrize('wrong', ['7', 'two', '-1', '3,5', '1/2', 'nan'])
def test_what_is_no_mark_is_refused_with_its_line(marks, wrong):
    fill_in(marks, 'ben/01', **{'1.1': wrong})
    before = (marks/'marks.csv').read_bytes()
    said = f'line 4, column 1.1: {wrong!r} is no mark. Expected a number from 0 to {PROOF.marks}'
    with pytest.raises(ValueError, match=said): marks_of_a_person(marks/'marks.csv')
    with pytest.raises(ValueError, match=said): write_tables(CLASS, marks)
    assert (marks/'marks.csv').read_bytes() == before


@pytest.mark.parametrize('right, value', [('0', 0), ('2,5', 2.5), (' 3 ', 3), ('1.5', 1.5)])
def test_a_mark_and_a_comment_go_everywhere_and_stay(marks, right, value):
    fill_in(marks, 'ann/01', **{'1.1': right, 'comment': 'Fine, <b>and short</b>.'})
    for _ in range(2): write_tables(CLASS, marks)
    ann = read((marks/'marks.csv').read_text())[0]
    assert (float(ann['1.1']), float(ann['total'])) == (value, 3 + value)
    assert ann['comment'] == 'Fine, <b>and short</b>.'
    stored = json.loads((marks/'marks.json').read_text())[0]
    assert (stored['marks'], stored['by hand']) == (3 + value, 0)
    assert stored['parts'][0]['marks'] == value
    page = (marks/'feedback'/'ann'/'01.html').read_text()
    assert f'{3 + value:g} of 6 marks' in page and 'Fine, &lt;b&gt;' in page
    assert '<title>ann: 01_groups</title>' in page
    assert 'to be marked by a person' in (marks/'feedback'/'ben'/'01.html').read_text()


def test_a_page_shows_task_answer_and_what_failed():
    failed = part('1.2', 0, 3, 'wrong') | dict(task='Write centre.', answer='def centre(g): <x>',
                                               message='It answers None.')
    page = feedback_page(record('ann/01', parts=[failed]))
    assert 'Write centre.' in page and 'def centre(g): &lt;x&gt;' in page
    assert '1.2: wrong, 0 of 3' in page and 'It answers None.' in page


def test_one_row_a_student_over_all_chapters():
    ann, ben = read(students_table(CLASS))
    assert ann == {'student': 'ann', '01_groups': '3', '02_actions': '2', 'total': '5', 'of': '10',
                   'still to mark': '3'}
    assert (ben['02_actions'], ben['total']) == ('', '3')


def test_the_better_of_two_hand_ins_counts():
    late = record('ann/late/01', marks=1)
    assert read(students_table([*CLASS, late]))[0]['total'] == '5'


ROSTER = '"ID number";"Full name"\n17;ann\n18;cat\n'


def test_a_roster_gives_rows_and_columns(tmp_path):
    (file := tmp_path/'class.csv').write_text(ROSTER, encoding='utf-8-sig')
    ann, cat, ben = read(students_table(CLASS, read_roster(file)))
    assert (ann['ID number'], ann['Full name'], ann['total']) == ('17', 'ann', '5')
    assert (cat['ID number'], cat['total'], cat['01_groups']) == ('18', '0', '')
    assert (ben['ID number'], ben['total']) == ('ben', '3')   # handed in, and not on the list


def test_an_empty_roster_is_refused(tmp_path):
    (file := tmp_path/'class.csv').touch()
    with pytest.raises(ValueError, match='is an empty list'): read_roster(file)


def test_a_mark_counts_only_where_a_person_is_asked():
    written = {('ann/01', '1.2'): '1', ('ann/01', '1.1'): '2'}
    assert [v['marks'] for v in with_hand(CLASS[0], written)['parts']] == [2, 3]
    assert read(marks_table(CLASS, written))[0]['total'] == '5'
