"""Tutor: exercises from one source, checks that teach, students' copies.

A lesson writes `from eqtutor.tutor import check`; all else is imported from its module. The right
answers stay in their files until an exercise is checked or graded.
"""
# Plain module: edited by hand, no notebook exports it.
from typing import Any

__all__ = ['chapter_exercises', 'check']


def __getattr__(name:str)->Any:
    "`check` loads torch, and is imported when it is asked for: who grades a class holds none."
    if name not in __all__: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from . import exercise
    return getattr(exercise, name)
