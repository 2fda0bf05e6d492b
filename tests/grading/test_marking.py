"The page on which proofs are marked, and how what it saves comes into the grade book."
import csv
import json
import re

import pytest

from eqtutor.grading.gradebook import marks_from_page, write_tables
from eqtutor.grading.pages import marking_page
from eqtutor.tutor.exercise import get_exercise
from tests.grading.test_handins import result
from tests.widgets.conftest import browser, visit  # noqa: F401

CLASS = [result(name, 3, '', waits=4) for name in ('=ann/01', 'ben/01', 'cat/01')]
MOST = get_exercise('1.1').marks


def test_all_answers_to_a_proof_stand_together_and_escaped():
    page = marking_page(CLASS)
    assert page.count('<section>') == 1 and page.count('<article') == 3
    assert '&lt;b&gt;proof' in page and '<b>proof' not in page and 'Prove it.' in page
    assert '<article' not in marking_page([r | {'parts': r['parts'][1:]} for r in CLASS])


def written(file, rows):
    "A file as the page saves it."
    lines = [['submission', 'exercise', 'mark'], *rows]
    file.write_text('\n'.join(','.join(f'"{cell}"' for cell in row) for row in lines) + '\n')
    return marks_from_page(file)


def test_saved_marks_go_into_the_grade_book(tmp_path):
    marks = written(tmp_path/'by-hand.csv', [['=ann/01', '1.1', '2.5'], ['ben/01', '1.1', '']])
    write_tables(CLASS, tmp_path, by_hand=marks)
    write_tables(CLASS, tmp_path)   # and stay
    ann, ben, cat = json.loads((tmp_path/'marks.json').read_text())
    assert (ann['marks'], ann['by hand']) == (5.5, 0)
    assert (ben['marks'], ben['by hand']) == (3, 4)
    page = (tmp_path/'proofs.html').read_text()
    assert re.findall('data-mark="(.*?)"', page) == ['2.5', '', '']


@pytest.mark.parametrize('row', [['ann', '1.1', '9'], ['ann', '1.1', 'two']])
def test_what_is_no_mark_is_refused_with_its_line(row, tmp_path):
    with pytest.raises(ValueError, match=f'line 2, column 1.1: {row[2]!r} is no mark'):
        written(tmp_path/'by-hand.csv', [row])


def test_another_file_is_refused(tmp_path):
    (file := tmp_path/'x.csv').write_text('a,b\n1,2\n')
    with pytest.raises(ValueError, match='was not saved on the page of proofs'):
        marks_from_page(file)


@pytest.mark.browser
def test_a_key_gives_a_mark_and_goes_on(visit, tmp_path):   # noqa: F811
    page = visit(marking_page(CLASS), accept_downloads=True)
    for key in ('3', '9', '1', 'h', 'k', 'h', 'j', '2', 'Backspace'): page.keyboard.press(key)
    assert page.locator('output').all_inner_texts() == ['3', '1.5', '–']
    assert page.locator('#left').inner_text() == '1 of 3 still to mark'
    page.reload()   # nothing is lost
    assert page.locator('output').all_inner_texts() == ['3', '1.5', '–']
    with page.expect_download() as download: page.click('#save')
    download.value.save_as(tmp_path/'by-hand.csv')
    with open(tmp_path/'by-hand.csv') as file: rows = list(csv.reader(file))
    assert rows[1:] == [['=ann/01', '1.1', '3'], ['ben/01', '1.1', '1.5'], ['cat/01', '1.1', '']]
