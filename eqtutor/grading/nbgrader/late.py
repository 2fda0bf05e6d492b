"""Late days and extensions: what a late hand-in costs, from what the grade book holds at the time.

nbgrader fixes a penalty when it autogrades, before a person has marked the proofs and perhaps before
an extension is granted. So `settle` computes all penalties of an assignment anew, whenever feedback
is written or marks are exported.
"""
# Plain module: edited by hand, no notebook exports it.
import math
from datetime import datetime
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry, SubmittedAssignment
from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Float, Integer

DAY = 24*60*60   # seconds


class LateDays(LateSubmissionPlugin):
    "A student has days of grace in the whole course; a late day beyond them costs a percentage."

    free = Integer(0, help='Days of grace of a student, in all assignments.').tag(config=True)
    percent = Float(10, help='Of the marks, for each late day beyond them.').tag(config=True)

    def late_submission_penalty(self,
        student_id:str,
        score:float,
        total_seconds_late:float,
    )->float:
        "What nbgrader asks when it autogrades."
        step = self.parent   # `AssignLatePenalties`, which has the grade book open
        return self.penalty(step.gradebook, step.assignment_id, student_id, score)

    def penalty(self,
        book:Gradebook,
        assignment:str,
        student:str,
        score:float,
    )->float:
        "Marks that a late hand-in costs: earlier deadlines have used days of grace before it."
        left = self.free
        for s in sorted(book.student_submissions(student), key=deadline):
            late = late_days(s)
            charged = max(0, late - left)
            left = max(0, left - late)
            if s.assignment.name == assignment: return score*min(100, self.percent*charged)/100
        return 0.

    def settle(self, book:Gradebook, assignment:str)->None:
        "Compute all penalties of an assignment from what the grade book holds now."
        for s in book.assignment_submissions(assignment):
            for notebook in s.notebooks:
                cost = self.penalty(book, assignment, s.student.id, notebook.score)
                notebook.late_submission_penalty = cost or None
        book.db.commit()


def deadline(s:SubmittedAssignment)->tuple[datetime, str]:
    "What a student's submissions are ordered by."
    return s.assignment.duedate or datetime.max, s.assignment.name


def late_days(s:SubmittedAssignment)->int:
    "Days that a submission is late, each that has begun; the extension does not count."
    if s.assignment.duedate is None: return 0
    return math.ceil(s.total_seconds_late/DAY)


def extend(
    folder:Path,  # of the course
    assignment:str,
    student:str,
    days:float,   # in all: 0 takes an extension back
)->datetime:
    "Give a student, or a team, an extension: their deadline, in UTC."
    file = folder/'gradebook.db'
    if not file.is_file():
        raise FileNotFoundError(f"no grade book at {file}: call it in the course's folder")
    with Gradebook(f'sqlite:///{file.absolute()}') as book:
        try:
            due = book.find_assignment(assignment).duedate
            book.find_student(student)
        except MissingEntry:
            known = [f'{what}: {", ".join(names) or "none yet"}' for what, names in
                     (('assignments', [a.name for a in book.assignments]),
                      ('students', [s.id for s in book.students]))]
            raise ValueError(f'no assignment {assignment!r} or no student {student!r}; '
                             + '; '.join(known)) from None
        if due is None:
            raise ValueError(f'{assignment} has no deadline: nbgrader db assignment add '
                             f'{assignment} --duedate="2026-11-30 23:59 Europe/Vienna"')
        book.update_or_create_submission(assignment, student)   # it need not be there yet
        book.grant_extension(assignment, student, days=days)
        return book.find_submission(assignment, student).duedate


def closed(
    book:Gradebook,
    assignment:str,
    now:datetime, # in UTC, without a zone
)->bool:
    "Is the deadline over for everybody? Never, where there is none."
    due = book.find_assignment(assignment).duedate
    if due is None: return False
    return all(now > s.duedate for s in book.assignment_submissions(assignment)) and now > due
