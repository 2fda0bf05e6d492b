"""The list of a class as Moodle and Canvas export it, and their names for what students hand in.

Moodle: the grading worksheet of an assignment. Canvas: the grade book. Column names are the English
ones. The list says who a number is, when something came in (Moodle's zip holds the time at which
it was downloaded), and which team somebody is in; marks go back in the same list.
"""
# Plain module: edited by hand, no notebook exports it.
import csv
import hashlib
import io
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

# 'Ann Lee_17_assignsubmission_file_/05_convolution.ipynb', or in one name without folders
MOODLE = re.compile(r'(?P<name>[^_]+)_(?P<number>\d+)_assignsubmission_file_?(?P<file>.*)')
# 'leeann_LATE_17_203_05_convolution-1.ipynb': the student is 17, the file 203, the second attempt
CANVAS = re.compile(r'(?P<name>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)')
COLUMNS = {'moodle': {'Identifier', 'Grade', 'Maximum Grade'}, 'canvas': {'Student', 'ID'}}
TIME, TEAM, GRADE = 'Last modified (submission)', 'Group', 'Grade'
# what tells a student from others in all assignments: a Moodle number is one assignment's own
KEYS = {'moodle': ('ID number', 'Username', 'Email address'), 'canvas': ('SIS Login ID', 'ID')}
# what a spreadsheet takes for the beginning of a formula, in some locales in full width
FORMULA = re.compile(r'(^|[;\n])(?=[\s\u3000]*[=+\-@\uff1d\uff0b\uff0d\uff20])')
NUMBER = re.compile(r'[+-]?[\d.]*')   # and Moodle's '-' of what is not there


@dataclass(frozen=True)
class Participant:
    "A row of a class's list."
    row:dict[str, str]
    number:str    # in the names of the platform's zip
    name:str      # as the platform writes it
    student:str   # nbgrader's student: in each assignment the same
    team:str=''   # nbgrader's student for what the team handed in; '' without teams
    time:str=''   # when the submission came in, as the platform says it

    @property
    def marked_as(self)->str:
        "The student of nbgrader whose marks this one gets."
        return self.team or self.student


@dataclass(frozen=True)
class ClassList:
    "The list of a class: its file, the platform, its columns and rows."
    file:Path
    kind:str                  # 'moodle' or 'canvas'
    columns:list[str]
    rows:list[dict[str, str]]

    @property
    def participants(self)->list[Participant]:
        "The rows that are students, in order."
        said = [self.said_of(row) for row in self.rows]
        times = Counter(key for *_, key in said)
        people = []
        for row, (number, name, key) in zip(self.rows, said):
            if not number: continue   # Canvas has a row for the points
            own = student_id(key if times[key] == 1 else f'{key} {number}')
            team = row.get(TEAM, '').strip() if self.kind == 'moodle' else ''
            people.append(Participant(row, number, name, own, student_id(f'team {team}') if team
                                      else '', row.get(TIME, '').strip()))
        return people

    def said_of(self, row:dict[str, str])->tuple[str, str, str]:
        "A row's number, its name, and what tells it from others."
        column, name = {'moodle': ('Identifier', 'Full name'), 'canvas': ('ID', 'Student')}[self.kind]
        number = re.search(r'(\d+)\s*$', row.get(column, ''))
        words = row.get(name, '').strip() or row.get(column, '').strip()
        key = next((v for k in KEYS[self.kind] if (v := row.get(k, '').strip())), words)
        return number[1] if number else '', words, key

    def owner(self,
        name:str,   # in the zip: of a student, or of a team
        number:str, # beside it
    )->Participant|None:
        "Whose folder it is: number and name must both be those of a row; None if it is nobody's."
        people = self.participants
        for p in people:
            if p.number == number and same_name(name, p.name, self.kind): return p
        # a team's number is that of the group: it must not be taken for a student's
        return next((p for p in people if p.team and p.team == student_id(f'team {name}')), None)


def letters(text:str)->str:
    "What is left of a name where a platform drops signs and blanks."
    return re.sub(r'[\W_]', '', text).casefold()


def same_name(folder:str, name:str, kind:str)->bool:
    "Is a name in a zip that of a row? Canvas writes 'Lee, Ann' as 'leeann'; Moodle puts a team first."
    if kind == 'canvas':
        return sorted(letters(folder)) == sorted(letters(name))   # whichever stands first
    return letters(folder) == letters(name) or letters(folder.partition('-')[2]) == letters(name)


def student_id(words:str)->str:
    "A name that nbgrader may use as a folder's: no step up, nothing that a search takes for a sign."
    plain = re.sub(r'[^\w@.-]+', '_', words).strip('._-')
    if len(plain.encode()) <= 100: return plain
    return f'{plain[:24]}-{hashlib.sha256(words.encode()).hexdigest()[:8]}'


def read_list(folder:Path)->ClassList:
    "The one list (CSV) in a folder; an error that says what should lie there."
    files = sorted(p for p in folder.glob('*') if p.suffix.lower() == '.csv' and p.is_file())
    if len(files) != 1:
        raise ValueError(f'{folder} holds {len(files)} lists (*.csv). Put one there: of Moodle the '
                         'grading worksheet of this assignment, of Canvas the grade book')
    text = files[0].read_text(encoding='utf-8-sig')
    head = text.partition('\n')[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=';' if head.count(';') > head.count(',')
                          else ',')
    columns = list(rows.fieldnames or [])
    kind = next((k for k, names in COLUMNS.items() if names <= set(columns)), '')
    if not kind:
        needs = ' or '.join(', '.join(sorted(names)) for names in COLUMNS.values())
        raise ValueError(f'{files[0]} is neither a grading worksheet of Moodle nor a grade book of '
                         f'Canvas: it lacks the columns {needs} (download it in English)')
    return ClassList(files[0], kind, columns, [{c: r[c] or '' for c in columns} for r in rows])


def utc_time(
    said:str, # 'Friday, 20 November 2026, 11:40 PM'; '-' if nothing came in
    zone:str, # 'Europe/Vienna'; of this computer if ''
)->datetime|None:
    "A time as nbgrader keeps it: UTC, without a zone. An error for words that say no time."
    from dateutil import parser
    if said in ('', '-'): return None
    local = parser.parse(said)
    aware = local.replace(tzinfo=ZoneInfo(zone)) if zone else local.astimezone()
    return aware.astimezone(timezone.utc).replace(tzinfo=None)


def file_of(name:str)->str:
    "The last part of a name in a zip."
    return PurePosixPath(name.replace('\\', '/')).name


# --- tables

def spreadsheet_safe(x:object)->str:
    "Text that a spreadsheet does not run; what moves a cursor is shown as Python would."
    plain = ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in str(x))
    return plain if NUMBER.fullmatch(plain) else FORMULA.sub(r"\1'", plain)


def as_csv(columns:list[str], rows:list[dict[str, str]])->bytes:
    "Rows as CSV in which no cell is a formula."
    out = csv.writer(text := io.StringIO(), lineterminator='\n')
    out.writerow(map(spreadsheet_safe, columns))
    out.writerows([spreadsheet_safe(row.get(c, '')) for c in columns] for row in rows)
    return text.getvalue().encode('utf-8', 'backslashreplace')
