"""The list of a class as Moodle and Canvas export it, and the same list with marks for import.

Moodle: the grading worksheet of an assignment (Identifier, Full name, …, Grade). Canvas: the
grade book (Student, ID, …, Section, assignments). Column names are the English ones. Marks are
scaled to the points that the list gives an assignment. What waits for a person gets no grade.
"""
# Plain module: edited by hand, no notebook exports it.
import csv
import io
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .handins import student_of

KINDS = {'moodle': {'Identifier', 'Grade', 'Maximum Grade'}, 'canvas': {'Student', 'ID', 'Section'}}
CANVAS_COLUMNS = 'Student', 'ID', 'SIS User ID', 'SIS Login ID', 'Section'
Counting = dict[str, dict[str, dict]]   # student -> chapter -> the result that counts


@dataclass(frozen=True)
class Roster:
    "The list of a class."
    columns:list[str]
    rows:list[dict]

    @property
    def kind(self)->str:
        "'moodle', 'canvas', or '' for any other list."
        return next((k for k, names in KINDS.items() if names <= set(self.columns)), '')

    @property
    def names(self)->list[str]:
        "What stands in the first column, without what is empty."
        return [name for row in self.rows if (name := row[self.columns[0]].strip())]

    def matched(self, records:list[dict])->list[tuple[dict, str]]:
        "Each row with the student in the names of results, '' who has handed in nothing."
        names = {student_of(r['name']): r.get('origin', '') for r in records}
        ids = {(origin, s.rpartition('_')[2]): s for s, origin in names.items() if origin}
        def owner(row:dict)->str:
            number = row.get({'moodle': 'Identifier', 'canvas': 'ID'}.get(self.kind, ''), '') or ''
            by_id = ids.get((self.kind, number.split(' ')[-1]))
            return by_id or next((v for v in row.values() if v in names), '')
        return [(row, owner(row)) for row in self.rows]


def rows_of(file:Path)->tuple[list[str], list[tuple[int, dict]]]:
    "The columns of a table, and its rows with their lines; a spreadsheet may have put semicolons."
    text = file.read_text(encoding='utf-8-sig')
    head = text.partition('\n')[0]
    delimiter = ';' if head.count(';') > head.count(',') else ','
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    return list(rows.fieldnames or []), [(rows.line_num, row) for row in rows]


def read_roster(file:Path)->Roster:
    "The list of a class; an error for an empty file."
    columns, rows = rows_of(file)
    if not columns:
        raise ValueError(f'{file} is an empty list: expected a head, and a row a student')
    return Roster(columns, [{c: row[c] or '' for c in columns} for _, row in rows])


def as_csv(columns:list[str], rows:list[dict])->str:
    "Rows as CSV, columns as the list had them."
    out = csv.DictWriter(text := io.StringIO(), columns, lineterminator='\n', extrasaction='ignore')
    out.writeheader()
    out.writerows(rows)
    return text.getvalue()


def scaled(results:list[dict], of:float, most:str)->str:
    "Marks as points of `most`; '' while some wait for a person."
    if not results or any(r['by hand'] for r in results): return ''
    points = float(most) if re.fullmatch(r'\s*\d+(\.\d+)?\s*', most) else of
    return f'{sum(r["marks"] for r in results)*points/of:.2f}' if of else ''


def whole(counts:Counting)->dict[str, float]:
    "The marks that each chapter can bring."
    return {c: r['of'] for own in counts.values() for c, r in own.items()}


def moodle_file(roster:Roster, records:list[dict], counts:Counting)->str:
    "The grading worksheet with grades and comments: of all chapters that were graded."
    of, rows = whole(counts), []
    for row, student in roster.matched(records):
        own = list(counts.get(student, {}).values())
        grade = scaled(own, sum(of.values()), row['Maximum Grade'])
        said = '<br>'.join(f'{r["chapter"]}: {r["marks"]:g} of {r["of"]}. {escape(r["comment"])}'
                           for r in own)
        new = {'Grade': grade, 'Feedback comments': said} if grade else {}
        rows.append(row | {k: v for k, v in new.items() if k in row})
    return as_csv(roster.columns, rows)


def canvas_file(roster:Roster, records:list[dict], counts:Counting)->str:
    "The grade book with a column a chapter: the assignment so called, or a new one."
    of = whole(counts)
    column = {c: assignment_of(c, roster.columns) for c in of}
    head = next((r for r in roster.rows if r['Student'].strip() == 'Points Possible'), {})
    most = {c: head.get(column[c], '').strip() or f'{of[c]:g}' for c in of}
    rows = []
    for row, student in roster.matched(records):
        own = counts.get(student, {})
        new = {column[c]: scaled([own[c]], of[c], most[c]) for c in own}
        if row is head: new = {column[c]: most[c] for c in of}
        rows.append(row | {k: v for k, v in new.items() if v})
    columns = [c for c in CANVAS_COLUMNS if c in roster.columns]
    return as_csv([*columns, *column.values()], rows)


def assignment_of(chapter:str, columns:list[str])->str:
    "The column whose title begins with the chapter's name, '05 Convolution (371)'; or a new one."
    def letters(text:str)->str: return re.sub(r'[\W_]', '', text.lower())
    return next((c for c in columns if letters(c).startswith(letters(chapter))), chapter)
