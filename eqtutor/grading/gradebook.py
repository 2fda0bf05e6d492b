"""The grade book: marks of the machine and of a person, by submission and by student.

A person writes into `marks.csv`: marks of proofs in their columns, a comment in the last. What is
written stays when the grader runs again, and goes into `marks.json`, `students.csv` and the pages.
"""
# Plain module: edited by hand, no notebook exports it.
import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_atomic
from ..tutor.course import exercise_order, marks_of
from ..tutor.seeds import as_bytes
from .handins import student_of
from .pages import feedback_page, marking_page, moodle_feedback, visible
from .roster import Roster, canvas_file, moodle_file, rows_of
from .sandbox import UNSAFE

# what a record has in any case
NOTHING:dict[str, Any] = {'marks': 0, 'of': 0, 'by hand': 0, 'parts': [], 'isolation': ''}
COMMENT = 'comment'


@dataclass(frozen=True)
class Policy:
    "What late and repeated hand-ins count."
    late:float=100      # percent of the marks
    repeated:str='best' # or 'last'

    def __post_init__(self)->None:
        if self.repeated not in ('best', 'last'):
            raise ValueError(f'--repeated is best or last, got {self.repeated!r}')


def spreadsheet_safe(x:Any)->str:
    "Text that a spreadsheet does not run; some part cells at a semicolon."
    return re.sub(r"(^|;)(?=\s*[=+\-@])", r"\1'", visible(str(x)))


def stored_record(file:Path)->dict:
    "A result as it lies there; empty if there is none, or a damaged one."
    try:
        return dict(json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError, TypeError):
        return {}


# --- what a person has written

def marks_of_a_person(file:Path)->dict[tuple, str]:
    "What a person has written into `marks.csv`, by submission and column; an error names the line."
    if not file.exists(): return {}
    columns, rows = rows_of(file)
    if 'submission' not in columns:
        raise ValueError(f'{file} is no table of marks: its first column should be "submission". '
                         'Move it away; it is not touched.')
    written = {(row['submission'], k): v or '' for _, row in rows for k, v in row.items() if k}
    for line, row in rows:
        for id in columns:
            if re.fullmatch(r'\d+[a-z]?\.\d+', id): check_mark(file, line, id, row[id] or '')
    return written


def marks_from_page(file:Path)->dict[tuple, str]:
    "What was saved on the page of proofs, by submission and column; an error names the line."
    columns, rows = rows_of(file)
    if not {'submission', 'exercise', 'mark'} <= set(columns):
        raise ValueError(f'{file} was not saved on the page of proofs: it needs the columns '
                         'submission, exercise and mark')
    for line, row in rows: check_mark(file, line, row['exercise'], row['mark'] or '')
    return {(spreadsheet_safe(row['submission']), row['exercise']): row['mark']
            for _, row in rows if row['mark']}


def check_mark(file:Path, line:int, id:str, text:str)->None:
    "An error unless a mark is a number that the exercise can have."
    of = marks_of(id)
    if not text.strip() or of is None: return
    mark = as_number(text)
    if mark is None or mark > of:
        raise ValueError(f'{file}, line {line}, column {id}: {text!r} is no mark. Expected a '
                         f'number from 0 to {of}, or nothing; correct it and run again.')


def as_number(text:Any)->float|None:
    "The mark that a text says; a comma is a point."
    text = str(text).strip().replace(',', '.')
    return float(text) if re.fullmatch(r'\d+(\.\d+)?', text) else None


def with_hand(record:dict, written:dict[tuple, str], policy:Policy=Policy())->dict:
    "The record with the marks and the comment that a person has given, and what it counts."
    name = spreadsheet_safe(record['name'])
    parts = []
    for v in record['parts']:
        mark = as_number(written.get((name, v['id']), '')) if v['state'] == 'by hand' else None
        parts.append(v if mark is None else v | {'marks': mark, 'state': 'marked by hand'})
    by_hand = sum(v['of'] for v in parts if v['state'] == 'by hand')
    counts = policy.late if record.get('late') else 100
    total = sum(v['marks'] or 0 for v in parts)
    return record | {'parts': parts, 'marks': total if counts == 100 else total*counts/100,
                     'by hand': by_hand, 'counts': counts,
                     COMMENT: written.get((name, COMMENT), '')}


# --- tables

def table(columns:Iterable[str], rows:Iterable[Iterable[Any]])->str:
    "Rows as CSV in which every cell is quoted."
    out = csv.writer(text := io.StringIO(), lineterminator='\n', quoting=csv.QUOTE_ALL)
    out.writerow(columns)
    out.writerows(rows)
    return text.getvalue()


def shown(mark:float|None)->str:
    "A mark as it stands in a table; nothing where a person has not marked yet."
    return '' if mark is None else f'{mark:g}'


def marks_table(
    records:list[dict],
    written:dict[tuple, str],
    policy:Policy=Policy(),
)->str:
    "`marks.csv`: a row for each submission; what a person has written stays."
    ids = sorted({v['id'] for r in records for v in r['parts']}, key=exercise_order)
    rows = []
    for r in (with_hand(r, written, policy) for r in records):
        marks = {v['id']: shown(v['marks']) for v in r['parts']}
        remarks = spreadsheet_safe('; '.join(remarks_on(r)))
        rows.append([spreadsheet_safe(r['name']), spreadsheet_safe(r['chapter']),
                     *(marks.get(id, '') for id in ids), shown(r['marks']), r['of'], remarks,
                     r[COMMENT]])
    return table(['submission', 'chapter', *ids, 'total', 'of', 'remarks', COMMENT], rows)


def remarks_on(record:dict)->list[str]:
    "What a teacher should know of a submission."
    remarks = [record['problem']] if record['problem'] else []
    if record.get('late'): remarks.append(f'late ({record.get("time")})')
    if record['isolation'] == UNSAFE: remarks.append('graded without a sandbox')
    for v in record['parts']:
        if v['state'] in ('stopped', 'missing'): remarks.append(f'{v["id"]} {v["state"]}')
        if v['state'] == 'marked by hand' and record.get('changed'):
            remarks.append(f'{v["id"]} was marked before this version came in')
    return remarks


def by_student(records:list[dict])->dict[str, list[dict]]:
    "The results of each student."
    found:dict[str, list[dict]] = {}
    for r in records: found.setdefault(student_of(r['name']), []).append(r)
    return found


def students_table(
    records:list[dict],
    roster:Roster|None=None, # of the class: a column of it holds the names of the folders
    policy:Policy=Policy(),
)->str:
    "`students.csv`: a row for each student, with the marks of each chapter and of all."
    chapters, own = chapters_of(records), by_student(records)
    columns, rows = ['student'], [({'student': s}, s) for s in own]
    if roster: columns, rows = roster.columns, roster.matched(records)
    lines = [[*(spreadsheet_safe(row[c] or '') for c in columns),
              *sums(own.pop(student, []), chapters, policy)] for row, student in rows]
    for student, rest in own.items():   # handed in, and not on the list
        lines.append([spreadsheet_safe(student), *['']*(len(columns) - 1),
                      *sums(rest, chapters, policy)])
    return table([*columns, *chapters, 'total', 'of', 'still to mark'], lines)


def chapters_of(records:list[dict])->list[str]:
    "The chapters that were handed in."
    return sorted({r['chapter'] for r in records if r['parts']})


def counting(records:list[dict], chapter:str, policy:Policy)->dict|None:
    "A student's result that counts for a chapter: the best, or the last; None if there is none."
    own = [r for r in records if r['chapter'] == chapter]
    def last(r:dict)->tuple: return r.get('time', ''), r['name']
    def best(r:dict)->float: return r['marks']
    return max(own, key=last if policy.repeated == 'last' else best, default=None)


def sums(records:list[dict], chapters:list[str], policy:Policy=Policy())->list[str]:
    "A student's marks in each chapter, in all, of how many, and what waits for a person."
    counts = [counting(records, c, policy) for c in chapters]
    there = [r for r in counts if r]
    total = sum(r['marks'] for r in there)
    return [*(shown(r['marks'] if r else None) for r in counts), shown(total),
            shown(sum(r['of'] for r in there)), shown(sum(r['by hand'] for r in there))]


def write_tables(
    records:list[dict],
    out:Path,
    roster:Roster|None=None,
    policy:Policy=Policy(),
    by_hand:dict[tuple, str]|None=None, # of `marks_from_page`: it goes before what is written
)->None:
    """`marks.csv`, with the one before as `marks.csv.bak`, `students.csv`, and `marks.json`.

    These records, and those of earlier runs; the pages on which a person's marks are new; and what
    Moodle and Canvas take.
    """
    file, own = out/'marks.csv', {r['name'] for r in records}
    stored = map(stored_record, (out/'results').rglob('*.json'))
    older = [r for r in stored
             if r.get('name', '') not in {'', *own} and r.keys() >= NOTHING.keys()]
    everything = sorted(records + older, key=lambda r: r['name'])
    # read only now: a person may have written meanwhile
    written = marks_of_a_person(file) | (by_hand or {})
    if file.exists(): write_atomic(out/'marks.csv.bak', file.read_bytes())
    write_atomic(file, as_bytes(marks_table(everything, written, policy)))
    passing = 'new', 'changed'   # of this run
    marked = [{k: v for k, v in with_hand(r, written, policy).items() if k not in passing}
              for r in everything]
    write_atomic(out/'students.csv', as_bytes(students_table(marked, roster, policy)))
    text = json.dumps(marked, indent=1, ensure_ascii=False) + '\n'
    write_atomic(out/'marks.json', as_bytes(text))
    for record in marked: renew_page(out/'feedback'/f'{record["name"]}.html', record)
    write_for_others(marked, out, roster, policy)


def write_for_others(
    records:list[dict],
    out:Path,
    roster:Roster|None,
    policy:Policy,
)->None:
    "`proofs.html`; `moodle.csv` or `canvas.csv`, as the roster is one's; `feedback-moodle.zip`."
    write_atomic(out/'proofs.html', as_bytes(marking_page(records)))
    if any(r.get('origin') == 'moodle' for r in records):
        write_atomic(out/'feedback-moodle.zip', moodle_feedback(records, out/'feedback'))
    if not roster or not roster.kind: return
    own = by_student(records)
    counts = {student: {c: r for c in chapters_of(records) if (r := counting(rs, c, policy))}
              for student, rs in own.items()}
    text = {'moodle': moodle_file, 'canvas': canvas_file}[roster.kind](roster, records, counts)
    write_atomic(out/f'{roster.kind}.csv', as_bytes(text))


def renew_page(page:Path, record:dict)->None:
    "Write a student's page again if it says something else now."
    content = as_bytes(feedback_page(record))
    if page.exists() and page.read_bytes() != content: write_atomic(page, content)
