"A student's own state."
from eqtutor.grading.results import own_verdicts
from eqtutor.tutor.progress import progress, progress_table

TABLE = '''01_groups: 3 of 11 marks, proofs not counted
  ✓ 1.1   proof    written
  ✓ 1.2   code     passed    7 cases
  ✗ 1.3   predict  wrong     Look again at entries (counted from 0) (1, 0). The rest is right.
  · 1.4   code     unsolved'''


def test_progress_says_what_is_written_passed_wrong_and_open(students, tmp_path):
    answers = students.solutions('01_groups')
    answers['1.3'] = answers['1.3'].replace('[1, 0, 2]', '[2, 0, 2]')
    del answers['1.4']
    students.hand_in(tmp_path, '01_groups', {'01_groups': answers})
    (tmp_path/'other.ipynb').write_text('{"cells": []}')   # without exercises: passed over
    rows = progress(own_verdicts([tmp_path]))
    assert [r['state'] for r in rows] == ['written', 'passed', 'wrong', 'unsolved']
    assert progress_table(rows) == TABLE


def test_no_exercises_are_said_to_be_none(): assert progress_table([]) == 'no exercises found'
