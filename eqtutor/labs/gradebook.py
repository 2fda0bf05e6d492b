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
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..files import write_atomic
from .course import exercise_order
from .exercise import get_exercise
from .sandbox import UNSAFE

# what a record has in any case
NOTHING:dict[str, Any] = {'marks': 0, 'of': 0, 'by hand': 0, 'parts': [], 'isolation': ''}
COMMENT = 'comment'


def as_bytes(text:str)->bytes:
    "The text as UTF-8; half a character from a submission stops no class."
    return text.encode('utf-8', 'backslashreplace')


def visible(text:Any)->Any:
    "Text without what moves a cursor or is half a character, shown as Python would; others as is."
    if not isinstance(text, str): return text
    return ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text)


def spreadsheet_safe(x:Any)->str:
    "Text that a spreadsheet does not run; some part cells at a semicolon."
    return re.sub(r"(^|;)(?=\s*[=+\-@])", r"\1'", visible(str(x)))


TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'labs'), autoescape=True, trim_blocks=True,
    lstrip_blocks=True, undefined=StrictUndefined, finalize=visible)


def feedback_page(record:dict)->str:
    "The page a student gets; the template escapes whatever comes from the submission."
    return TEMPLATES.get_template('feedback.html').render(record={COMMENT: ''} | record)


def stored_record(file:Path)->dict:
    "A result as it lies there; empty if there is none, or a damaged one."
    try:
        return dict(json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError, TypeError):
        return {}


# --- what a person has written

def rows_of(file:Path)->tuple[list[str], list[tuple[int, dict]]]:
    "The columns of a table, and its rows with their lines; a spreadsheet may have put semicolons."
    text = file.read_text(encoding='utf-8-sig')
    head = text.partition('\n')[0]
    delimiter = ';' if head.count(';') > head.count(',') else ','
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    return list(rows.fieldnames or []), [(rows.line_num, row) for row in rows]


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


def check_mark(file:Path, line:int, id:str, text:str)->None:
    "An error unless a mark is a number that the exercise can have."
    e = get_exercise(id)
    if not text.strip() or e is None: return
    mark = as_number(text)
    if mark is None or mark > e.marks:
        raise ValueError(f'{file}, line {line}, column {id}: {text!r} is no mark. Expected a '
                         f'number from 0 to {e.marks}, or nothing; correct it and run again.')


def as_number(text:Any)->float|None:
    "The mark that a text says; a comma is a point."
    text = str(text).strip().replace(',', '.')
    return float(text) if re.fullmatch(r'\d+(\.\d+)?', text) else None


def with_hand(record:dict, written:dict[tuple, str])->dict:
    "The record with the marks and the comment that a person has given."
    name = spreadsheet_safe(record['name'])
    parts = []
    for v in record['parts']:
        mark = as_number(written.get((name, v['id']), '')) if v['state'] == 'by hand' else None
        parts.append(v if mark is None else v | {'marks': mark, 'state': 'marked by hand'})
    by_hand = sum(v['of'] for v in parts if v['state'] == 'by hand')
    return record | {'parts': parts, 'marks': sum(v['marks'] or 0 for v in parts),
                     'by hand': by_hand, COMMENT: written.get((name, COMMENT), '')}


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


def marks_table(records:list[dict], written:dict[tuple, str])->str:
    "`marks.csv`: a row for each submission; what a person has written stays."
    ids = sorted({v['id'] for r in records for v in r['parts']}, key=exercise_order)
    rows = []
    for r in (with_hand(r, written) for r in records):
        marks = {v['id']: shown(v['marks']) for v in r['parts']}
        remarks = spreadsheet_safe('; '.join(remarks_on(r)))
        rows.append([spreadsheet_safe(r['name']), spreadsheet_safe(r['chapter']),
                     *(marks.get(id, '') for id in ids), shown(r['marks']), r['of'], remarks,
                     r[COMMENT]])
    return table(['submission', 'chapter', *ids, 'total', 'of', 'remarks', COMMENT], rows)


def remarks_on(record:dict)->list[str]:
    "What a teacher should know of a submission."
    remarks = [record['problem']] if record['problem'] else []
    if record['isolation'] == UNSAFE: remarks.append('graded without a sandbox')
    for v in record['parts']:
        if v['state'] in ('stopped', 'missing'): remarks.append(f'{v["id"]} {v["state"]}')
        if v['state'] == 'marked by hand' and record.get('changed'):
            remarks.append(f'{v["id"]} was marked before this version came in')
    return remarks


def student_of(name:str)->str:
    "The student of a submission: the first folder of its name, or the file."
    return name.split('/')[0]


def students_table(
    records:list[dict],
    roster:Path|None=None, # a list of the class: a column of it holds the names of the folders
)->str:
    "`students.csv`: a row for each student, with the marks of each chapter and of all."
    chapters = sorted({r['chapter'] for r in records if r['parts']})
    by_student:dict[str, list[dict]] = {}
    for r in records: by_student.setdefault(student_of(r['name']), []).append(r)
    columns, rows = (['student'], [{'student': s} for s in by_student])
    if roster: columns, rows = read_roster(roster)
    lines = []
    for row in rows:
        own = next((by_student.pop(v) for v in row.values() if v in by_student), [])
        lines.append([*(spreadsheet_safe(row[c] or '') for c in columns), *sums(own, chapters)])
    for student, own in by_student.items():   # handed in, and not on the list
        lines.append([spreadsheet_safe(student), *['']*(len(columns) - 1), *sums(own, chapters)])
    return table([*columns, *chapters, 'total', 'of', 'still to mark'], lines)


def read_roster(file:Path)->tuple[list[str], list[dict]]:
    "Columns and rows of a list of the class, as Moodle or Canvas exports it."
    columns, rows = rows_of(file)
    if not columns:
        raise ValueError(f'{file} is an empty list: expected a head, and a row a student')
    return columns, [row for _, row in rows]


def sums(records:list[dict], chapters:list[str])->list[str]:
    "A student's marks in each chapter, the best where it was handed in twice; in all; what waits."
    best = [max((r for r in records if r['chapter'] == c), key=lambda r: r['marks'], default=None)
            for c in chapters]
    there = [r for r in best if r]
    total = sum(r['marks'] for r in there)
    return [*(shown(r['marks'] if r else None) for r in best), shown(total),
            shown(sum(r['of'] for r in there)), shown(sum(r['by hand'] for r in there))]


def write_tables(records:list[dict], out:Path, roster:Path|None=None)->None:
    """`marks.csv`, with the one before as `marks.csv.bak`, `students.csv`, and `marks.json`.

    These records, and those of earlier runs; and the pages on which a person's marks are new.
    """
    file, own = out/'marks.csv', {r['name'] for r in records}
    stored = map(stored_record, (out/'results').rglob('*.json'))
    older = [r for r in stored
             if r.get('name', '') not in {'', *own} and r.keys() >= NOTHING.keys()]
    everything = sorted(records + older, key=lambda r: r['name'])
    written = marks_of_a_person(file)   # read only now: a person may have written meanwhile
    if file.exists(): write_atomic(out/'marks.csv.bak', file.read_bytes())
    write_atomic(file, as_bytes(marks_table(everything, written)))
    marked = [with_hand(r, written) for r in everything]
    write_atomic(out/'students.csv', as_bytes(students_table(marked, roster)))
    passing = 'new', 'changed'   # of this run
    plain = [{k: v for k, v in r.items() if k not in passing} for r in marked]
    text = json.dumps(plain, indent=1, ensure_ascii=False) + '\n'
    write_atomic(out/'marks.json', as_bytes(text))
    for record in plain: renew_page(out/'feedback'/f'{record["name"]}.html', record)


def renew_page(page:Path, record:dict)->None:
    "Write a student's page again if it says something else now."
    content = as_bytes(feedback_page(record))
    if page.exists() and page.read_bytes() != content: write_atomic(page, content)
