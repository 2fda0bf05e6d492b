"""Labs: checks that teach, students' copies from one source, a grader that trusts nobody.

The right answers stay in their files until an exercise is checked or graded: importing this package
reads none of them.
"""
# Plain module: edited by hand, no notebook exports it.
from .course import chapter_of, course_chapters, course_folder, exercise_order
from .exercise import (Card, Exercise, Mistake, NotYet, Verdict, all_exercises, chapter_exercises,
                       check, first_hint, get_exercise, judge)
from .grade import grade, grade_answer, grade_notebook
from .gradebook import Policy
from .progress import progress, progress_table
from .sandbox import Limits, Submission, Task, run, without_isolation
from .student import build, copy_course, open_lab, student_copy, stub
from .values import answer_cases, decode, encode

__all__ = ['Card', 'Exercise', 'Limits', 'Mistake', 'NotYet', 'Policy', 'Submission', 'Task',
           'Verdict', 'all_exercises', 'answer_cases', 'build', 'chapter_exercises', 'chapter_of',
           'check', 'copy_course', 'course_chapters', 'course_folder', 'decode', 'encode',
           'exercise_order', 'first_hint', 'get_exercise', 'grade', 'grade_answer',
           'grade_notebook', 'judge', 'open_lab', 'progress', 'progress_table', 'run',
           'student_copy', 'stub', 'without_isolation']
