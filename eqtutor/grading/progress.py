"""A student's own state: the same grading, for oneself.

No files are written, nothing leaves the machine.
"""
# Plain module: edited by hand, no notebook exports it.
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ..tutor.exercise import get_exercise
from .handins import find_hand_ins
from .judging import grade_notebook

SIGNS = {'passed': '✓', 'written': '✓', 'unsolved': '·', 'missing': '·'}   # of a row; ✗ else


def progress(
    paths:Iterable[str|Path], # own notebooks, or folders of them
)->list[dict]:
    """A student's own state, one row an exercise.

    Chapter, exercise, kind, state, marks, message. Files without exercises are passed over. Nothing
    is shut in: run it on your own notebooks only.
    """
    found = find_hand_ins([Path(p) for p in paths], Path('/dev/null')).values()
    files = [h.path for h in found]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        records = list(pool.map(partial(grade_notebook, unsafe=True), files))
    return [progress_row(record['chapter'], v) for record in records for v in record['parts']]


def progress_row(
    chapter:str,
    v:dict,      # a verdict as plain data
)->dict:
    "A row of `progress`; a proof that waits for a person is 'written'."
    state = 'written' if v['state'] == 'by hand' else v['state']
    silent = state in ('written', 'unsolved')
    kind = get_exercise(v['id']).kind   # type: ignore[union-attr]
    return {'chapter': chapter, 'exercise': v['id'], 'kind': kind, 'state': state,
            'marks': v['marks'], 'of': v['of'], 'message': '' if silent else v['message']}


def progress_table(
    rows:list[dict], # of `progress`
)->str:
    "The rows as text, with the sum of each chapter, and what to look at."
    lines = []
    for chapter in dict.fromkeys(r['chapter'] for r in rows):
        own = [r for r in rows if r['chapter'] == chapter]
        done, of = sum(r['marks'] or 0 for r in own), sum(r['of'] for r in own)
        proofs = ', proofs not counted' if any(r['marks'] is None for r in own) else ''
        lines.append(f'{chapter}: {done} of {of} marks{proofs}')
        lines += map(progress_line, own)
    return '\n'.join(lines) if lines else 'no exercises found'


def progress_line(row:dict)->str:
    "A row as text."
    sign, about = SIGNS.get(row['state'], '✗'), f'{row["exercise"]:5} {row["kind"]:8}'
    return f'  {sign} {about} {row["state"]:9} {row["message"]}'.rstrip()
