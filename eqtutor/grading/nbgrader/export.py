"""Marks for Moodle and Canvas, in the lists that they gave; and a table of all."""
# Plain module: edited by hand, no notebook exports it.
import io
import re
import zipfile
from html import escape
from pathlib import Path

from nbgrader.api import Assignment, Gradebook, MissingEntry, SubmittedAssignment
from nbgrader.plugins import ExportPlugin

from .late import LateDays
from .platforms import GRADE, ClassList, as_csv, letters, read_list

# what Canvas wants beside the marks
CANVAS_COLUMNS = 'Student', 'ID', 'SIS User ID', 'SIS Login ID', 'Section'
COMMENT = 'Feedback comments'
YEAR = 1980, 1, 1, 0, 0, 0   # of every file in a zip: the same pages make the same zip


class Marks(ExportPlugin):
    """`exported/<assignment>-moodle.csv` or `-canvas.csv`, and `exported/marks.csv`.

    For Moodle also the pages, `exported/<assignment>-feedback.zip`, which it hands on to students.
    Who has handed in nothing, and whose proofs wait for a person, gets no mark.
    """

    def export(self, gradebook:Gradebook)->None:
        "What nbgrader asks of an exporter; `--to` names another folder."
        course = self.parent.coursedir
        out = Path(self.to or Path(course.root)/'exported')
        out.mkdir(parents=True, exist_ok=True)
        chosen = [a for a in gradebook.assignments
                  if not self.assignment or a.name in map(str, self.assignment)]
        for assignment in chosen:
            LateDays(parent=self).settle(gradebook, assignment.name)
            lists = Path(course.root)/'downloaded'/assignment.name/'archive'
            try:
                people = read_list(lists)
            except (OSError, ValueError) as error:
                self.log.warning('%s: only in marks.csv, for %s', assignment.name, error)
                continue
            make = {'moodle': moodle_table, 'canvas': canvas_table}[people.kind]
            file = out/f'{assignment.name}-{people.kind}.csv'
            file.write_bytes(make(people, assignment, gradebook))
            self.log.info('Exporting grades to %s', file)
            if people.kind == 'moodle':
                pages = Path(course.root)/course.feedback_directory
                zipped = out/f'{assignment.name}-feedback.zip'
                zipped.write_bytes(moodle_feedback(people, pages, assignment.name))
        (out/'marks.csv').write_bytes(marks_table(chosen, gradebook))


def submission_of(
    book:Gradebook,
    assignment:str,
    student:str,
)->SubmittedAssignment|None:
    "A submission that was graded; None if there is none: an extension alone is no submission."
    try:
        found = book.find_submission(assignment, student)
    except MissingEntry:
        return None
    graded = any(g.auto_score is not None for n in found.notebooks for g in n.grades)
    return found if graded or found.timestamp else None


def points(s:SubmittedAssignment|None)->float|None:
    "The marks of a submission, less what lateness costs; None while there are none."
    if not s or s.needs_manual_grade: return None
    return max(0., s.score - s.late_submission_penalty)


def scaled(marks:float|None, of:float, most:str)->str:
    "Marks as points of `most`, a number that the platform says; '' of none."
    if marks is None: return ''
    top = float(most) if re.fullmatch(r'\s*\d+([.]\d+)?\s*', most) else of
    return f'{marks*top/of:.2f}' if of else ''


def moodle_table(people:ClassList, assignment:Assignment, book:Gradebook)->bytes:
    "The grading worksheet with grades and comments; of a team each member gets the team's."
    rows = []
    for p in people.participants:
        s = submission_of(book, assignment.name, p.marked_as)
        marks = points(s)
        if s and marks is not None:
            late = s.late_submission_penalty
            words = f'{marks:g} of {assignment.max_score:g} marks' + (
                f'; {late:g} were taken off, for it came in late' if late else '')
            new = {GRADE: scaled(marks, assignment.max_score, p.row['Maximum Grade'])}
            if COMMENT in people.columns: new[COMMENT] = escape(words)
            rows.append(p.row | new)
        else: rows.append(p.row)
    return as_csv(people.columns, rows)


def moodle_feedback(people:ClassList, pages:Path, assignment:str)->bytes:
    "The feedback pages as a zip that Moodle takes: a folder for each student, as in its own zip."
    with zipfile.ZipFile(content := io.BytesIO(), 'w', zipfile.ZIP_DEFLATED) as z:
        for p in people.participants:
            for page in sorted((pages/p.marked_as/assignment).glob('*.html')):
                name = re.sub(r'[_/\\]', ' ', p.name)
                place = f'{name}_{p.number}_assignsubmission_file_/{page.name}'
                z.writestr(zipfile.ZipInfo(place, YEAR), page.read_bytes())
    return content.getvalue()


def canvas_table(people:ClassList, assignment:Assignment, book:Gradebook)->bytes:
    "The grade book's students with the assignment's column: the one so called, or a new one."
    own = letters(assignment.name)
    column = next((c for c in people.columns if letters(c).startswith(own)), assignment.name)
    head = next((r for r in people.rows if r['Student'].strip() == 'Points Possible'), None)
    most = (head or {}).get(column, '').strip() or f'{assignment.max_score:g}'
    rows = [head | {column: most}] if head else []
    for p in people.participants:
        marks = points(submission_of(book, assignment.name, p.marked_as))
        rows.append(p.row | {column: scaled(marks, assignment.max_score, most)})
    return as_csv([c for c in CANVAS_COLUMNS if c in people.columns] + [column], rows)


def marks_table(assignments:list[Assignment], book:Gradebook)->bytes:
    "`marks.csv`: a row for each student, a column for each assignment, and what is not marked yet."
    names = [a.name for a in assignments]
    rows = []
    for student in sorted(book.students, key=lambda s: s.id):
        found = {name: submission_of(book, name, student.id) for name in names}
        marks = {name: points(s) for name, s in found.items()}
        waits = [name for name, s in found.items() if s and s.needs_manual_grade]
        rows.append({'student': student.id, 'last name': student.last_name or '',
                     'first name': student.first_name or '',
                     **{name: '' if m is None else f'{m:g}' for name, m in marks.items()},
                     'total': f'{sum(m for m in marks.values() if m is not None):g}',
                     'to mark': ' '.join(waits)})
    return as_csv(['student', 'last name', 'first name', *names, 'total', 'to mark'], rows)
