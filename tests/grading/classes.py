"A class as Moodle and Canvas hand it out: each student of a kind, what they hand in, their marks."
import csv
import io
import json
import re
import zipfile
from dataclasses import dataclass
from datetime import datetime, timedelta

DUE = datetime(2026, 11, 30, 22, 59)   # UTC; in Vienna a minute before midnight
DOWNLOADED = 2026, 12, 24, 8, 0, 0     # long after all of it: no hand-in time
FOREVER = '    while True: pass'


@dataclass(frozen=True)
class Student:
    "Somebody of the class."
    number:int
    kind:str

    @property
    def name(self):
        return f'{self.kind.capitalize()} Ng{self.number}'

    @property
    def mail(self):
        return f'{self.kind}{self.number}@uni.example'

    @property
    def time(self):
        "When it came in, UTC."
        days = {'late': 4.5, 'extended': 4.5}.get(self.kind, -1)
        return DUE + timedelta(days=days)


# kind -> what counts: machine's marks as parts of all, a person's proof marks, lateness
KINDS = ('right', 'wrong', 'half', 'empty', 'late', 'twice', 'renamed', 'damaged', 'pdf', 'zipped',
         'loops', 'extended')
REFUSED = 'renamed', 'pdf', 'zipped'   # not collected: no marks


def people(count):
    return [Student(n + 1, KINDS[n % len(KINDS)]) for n in range(count)]


def with_answers(nb, answers):
    "The released notebook with these texts in the answers' cells."
    nb = json.loads(json.dumps(nb))
    for cell in nb['cells']:
        id = cell['metadata'].get('nbgrader', {}).get('grade_id', '')
        new = answers.get(id.removeprefix('ex-').replace('-', '.'))
        if id.startswith('ex-') and new is not None: cell['source'] = new
        # what a student's own kernel has put out must not count
        if id.startswith('check-'):
            cell['outputs'] = [{'output_type': 'execute_result', 'execution_count': 1,
                                'metadata': {}, 'data': {'text/plain': '2'}}]
    return nb


def answers_of(kind, solutions, wrong, exercises):
    "What a student of a kind writes, by exercise."
    machine = [e.id for e in exercises if e.kind != 'proof']
    last = machine[-1]
    if kind in ('empty', 'damaged'): return {}
    if kind == 'wrong': return {id: solutions[id] for id in machine} | {last: wrong}
    if kind == 'half': return {id: solutions[id] for id in machine if id != last} | {
        e.id: 'By inspection.' for e in exercises if e.kind == 'proof'}
    if kind == 'loops':
        head = re.sub(r'^#\|.*\n', '', solutions[last], flags=re.M).partition('    "')[0]
        return {id: solutions[id] for id in machine} | {last: f'{head}{FOREVER}'}
    return dict(solutions)


def files_of(s, chapter, release, solutions, wrong, exercises):
    "The files of a student, by name."
    own = json.dumps(with_answers(release, answers_of(s.kind, solutions, wrong, exercises))).encode()
    file = f'{chapter}.ipynb'
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, 'w') as z: z.writestr(file, own)
    return {'renamed': {'my homework.ipynb': own}, 'pdf': {f'{chapter}.pdf': b'%PDF-1.7 ' + own},
            'zipped': {f'{chapter}.zip': inner.getvalue()}, 'damaged': {file: own[:3000]},
            'twice': {file: json.dumps(release).encode(), f'{chapter} (1).ipynb': own},
            }.get(s.kind, {file: own})


def archive(path, files):
    "A zip of names and contents, all stamped with the time of the download."
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z:
        for name, content in files.items(): z.writestr(zipfile.ZipInfo(name, DOWNLOADED), content)


def table(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', newline='', encoding='utf-8') as file:
        out = csv.DictWriter(file, columns)
        out.writeheader()
        out.writerows(rows)


def moodle(folder, students, files):
    "Moodle's zip and its grading worksheet."
    named = {f'{s.name}_{100 + s.number}_assignsubmission_file_/{name}': content
             for s in students for name, content in files[s].items()}
    archive(folder/'all.zip', named)
    columns = ['Identifier', 'Full name', 'Email address', 'Status', 'Grade', 'Maximum Grade',
               'Grade can be changed', 'Last modified (submission)', 'Last modified (grade)',
               'Feedback comments']
    def row(s):
        local = s.time + timedelta(hours=1)   # winter in Vienna
        return {'Identifier': f'Participant {100 + s.number}', 'Full name': s.name,
                'Email address': s.mail, 'Status': 'Submitted for grading', 'Maximum Grade': '100.00',
                'Grade can be changed': 'Yes', 'Last modified (grade)': '-',
                'Last modified (submission)': f'{local:%A, %d %B %Y, %I:%M %p}'}
    nobody = {'Identifier': 'Participant 99', 'Full name': '=1+1', 'Email address': 'none@uni.example',
              'Maximum Grade': '100.00', 'Last modified (submission)': '-'}
    table(folder/'worksheet.csv', columns, [*map(row, students), nobody])


def canvas(folder, students, files, title):
    "Canvas's zip and its grade book."
    def name(s, file):
        late = '_LATE' if s.kind in ('late', 'extended') else ''
        key = f'ng{s.number}{s.kind}'
        return f'{key}{late}_{100 + s.number}_{500 + s.number}_{file}'
    archive(folder/'submissions.zip', {name(s, file): content for s in students
                                       for file, content in files[s].items()})
    columns = ['Student', 'ID', 'SIS User ID', 'SIS Login ID', 'Section', title]
    head = {'Student': '    Points Possible', title: '50'}
    rows = [{'Student': f'Ng{s.number}, {s.kind.capitalize()}', 'ID': 100 + s.number,
             'SIS Login ID': s.mail, 'Section': '＝1+1'} for s in students]
    table(folder/'grades.csv', columns, [head, *rows])


def expected(s, exercises, proof):
    "Marks of a student in the end, where a person gives `proof` for each proof; None if there are none."
    machine = [e.marks for e in exercises if e.kind != 'proof']
    proofs = proof*sum(e.kind == 'proof' for e in exercises)
    if s.kind in REFUSED: return None
    if s.kind in ('empty', 'damaged'): return 0
    if s.kind == 'wrong': return sum(machine[:-1])
    if s.kind == 'half': return sum(machine[:-1]) + proofs
    if s.kind == 'loops': return sum(machine[:-1])
    return sum(machine) + proofs
