"""Tutor: exercises from one source, checks that teach, students' copies.

A lesson writes `from eqtutor.tutor import check`, or `puzzle`; all else is imported from its
module. The right answers stay in their files until an exercise is checked or graded.
"""
# Plain module: edited by hand, no notebook exports it.
from typing import Any

__all__ = ['chapter_exercises', 'check', 'puzzle']


def __getattr__(name:str)->Any:
    "`check` loads torch, and is imported when it is asked for: who grades a class holds none."
    if name not in __all__: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    if name == 'puzzle':
        from . import puzzles
        return puzzles.puzzle
    from . import exercise
    return getattr(exercise, name)
