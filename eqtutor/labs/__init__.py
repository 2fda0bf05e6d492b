"""Labs: checks that teach, students' copies from one source, a grader that trusts nobody.

The right answers stay in their files until an exercise is checked or graded: importing this package
reads none of them. Nor does it load torch: what needs it is loaded when it is asked for.
"""
# Plain module: edited by hand, no notebook exports it.
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .course import chapter_of, course_chapters, course_folder, exercise_order
from .grade import grade
from .gradebook import Policy
from .progress import progress, progress_table
from .sandbox import Limits, Submission, Task, run, without_isolation

if TYPE_CHECKING:
    from .exercise import (
        Card,
        Exercise,
        Mistake,
        NotYet,
        Verdict,
        all_exercises,
        chapter_exercises,
        check,
        first_hint,
        get_exercise,
        judge,
    )
    from .judging import grade_answer, grade_notebook
    from .student import build, copy_course, open_lab, stub, student_copy
    from .values import answer_cases, decode, encode

__all__ = ['Card', 'Exercise', 'Limits', 'Mistake', 'NotYet', 'Policy', 'Submission', 'Task',
           'Verdict', 'all_exercises', 'answer_cases', 'build', 'chapter_exercises', 'chapter_of',
           'check', 'copy_course', 'course_chapters', 'course_folder', 'decode', 'encode',
           'exercise_order', 'first_hint', 'get_exercise', 'grade', 'grade_answer',
           'grade_notebook', 'judge', 'open_lab', 'progress', 'progress_table', 'run',
           'student_copy', 'stub', 'without_isolation']

# a module that loads torch -> what this package has from it
LATE = {'exercise': ('Card', 'Exercise', 'Mistake', 'NotYet', 'Verdict', 'all_exercises',
                     'chapter_exercises', 'check', 'first_hint', 'get_exercise', 'judge'),
        'judging': ('grade_answer', 'grade_notebook'),
        'student': ('build', 'copy_course', 'open_lab', 'student_copy', 'stub'),
        'values': ('answer_cases', 'decode', 'encode')}


def __getattr__(name:str)->Any:
    "What a module has that was not loaded yet."
    for module, names in LATE.items():
        if name in names: return getattr(import_module(f'{__name__}.{module}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
