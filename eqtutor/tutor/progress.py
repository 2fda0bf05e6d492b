"""A student's own state, an exercise a row."""
# Plain module: edited by hand, no notebook exports it.
from .exercise import Verdict, get_exercise

SIGNS = {'passed': '✓', 'written': '✓', 'slip': '½', 'unsolved': '·', 'missing': '·'}   # ✗ else


def progress(
    verdicts:dict[str, dict[str, Verdict]], # of each chapter, by exercise
)->list[dict]:
    "Chapter, exercise, kind, state, marks, message: one row an exercise."
    return [progress_row(chapter, v) for chapter, own in verdicts.items() for v in own.values()]


def progress_row(
    chapter:str,
    v:Verdict,
)->dict:
    "A row of `progress`; a proof that waits for a person is 'written'."
    state = 'written' if v.state == 'by hand' else v.state
    silent = state in ('written', 'unsolved')
    kind = get_exercise(v.id).kind   # type: ignore[union-attr]
    return {'chapter': chapter, 'exercise': v.id, 'kind': kind, 'state': state,
            'marks': v.marks, 'of': v.of, 'message': '' if silent else v.message}


def progress_table(
    rows:list[dict], # of `progress`
)->str:
    "The rows as text, with the sum of each chapter, and what to look at."
    lines = []
    for chapter in dict.fromkeys(r['chapter'] for r in rows):
        own = [r for r in rows if r['chapter'] == chapter]
        done, of = sum(r['marks'] or 0 for r in own), sum(r['of'] for r in own)
        proofs = ', proofs not counted' if any(r['marks'] is None for r in own) else ''
        lines.append(f'{chapter}: {done:g} of {of} marks{proofs}')
        lines += map(progress_line, own)
    return '\n'.join(lines) if lines else 'no exercises found'


def progress_line(row:dict)->str:
    "A row as text."
    sign, about = SIGNS.get(row['state'], '✗'), f'{row["exercise"]:5} {row["kind"]:8}'
    return f'  {sign} {about} {row["state"]:9} {row["message"]}'.rstrip()
