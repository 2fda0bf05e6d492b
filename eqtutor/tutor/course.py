"""Where the course lies, and what its chapters are called."""
# Plain module: edited by hand, no notebook exports it.
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

FIRST = 'index', '00_turn_a_digit'   # without exercises, and where everybody begins


def chapter_of(
    name:str, # of an exercise, a notebook or a chapter
)->str:
    "The chapter: '05' of '5.3', '05_convolution' and '05'; '24b' of '24b.1'; '' of anything else."
    parts = re.match(r'([0-9]{1,3})([a-z]?)(?=[._]|$)', name)
    return f'{int(parts[1]):02d}{parts[2]}' if parts else ''


def exercise_order(
    id:str, # '24b.1'
)->tuple[int, str, int]:
    "What exercises are sorted by: the chapter, its letter, the number in it."
    parts = re.fullmatch(r'([0-9]+)([a-z]?)\.([0-9]+)', id)
    if not parts: raise ValueError(f'{id!r} is no exercise: expected something like 5.3 or 24b.1')
    return int(parts[1]), parts[2], int(parts[3])


def package_folder()->Path:
    "The folder of the package eqtutor."
    return Path(str(importlib.util.find_spec('eqtutor').origin)).parent   # type: ignore[union-attr]


def course_folder()->Path:
    "Where the author's notebooks lie: inside an installed package, or beside it in a checkout."
    package = package_folder()
    for folder in (package/'course'/'nbs', package.parent/'nbs'):
        if (folder/'index.ipynb').is_file(): return folder
    raise FileNotFoundError(f'no notebooks beside {package}. Install eqtutor from its wheel, or '
                            'work in a checkout of the repository.')


def course_chapters(
    only:Iterable[str]=(), # numbers or names, '05' or '05_convolution'; all if empty
)->dict[str, Path]:
    "The author's notebooks by name, in order."
    folder, only = course_folder(), tuple(only)
    def hidden(p:Path)->bool: return any(part[0] in '._' for part in p.relative_to(folder).parts)
    own = sorted((p for p in folder.rglob('*.ipynb') if not hidden(p)), key=lambda p: p.name)
    chapters = {p.stem: p for p in own}
    names = {name: {name, chapter_of(name)} for name in chapters}
    if unknown := [c for c in only if not any(c in n for n in names.values())]:
        raise ValueError(f'no chapter {", ".join(unknown)}. There are {", ".join(chapters)}.')
    return {name: p for name, p in chapters.items() if not only or names[name] & set(only)}


def chapter_path(
    name:str, # '05_convolution'
)->str:
    "The path of a notebook in nbs/; its file where the course has no such chapter."
    folder = course_folder()
    return next((p.relative_to(folder).as_posix() for p in sorted(folder.rglob(f'{name}.ipynb'))),
                f'{name}.ipynb')


def marks_of(
    id:str, # of an exercise, '5.3'
)->int|None:
    "The marks of an exercise as its chapter says them; None if there is no such exercise."
    if not re.fullmatch(r'[0-9]+[a-z]?\.[0-9]+', id): return None
    try:
        paths = course_chapters([chapter_of(id)]).values()
    except (FileNotFoundError, ValueError):
        return None
    head = re.compile(rf'> \*\*Exercise {re.escape(id)} \([^()]*?([0-9]+) marks?,')
    found = (head.search(p.read_text(encoding='utf-8')) for p in paths)
    return next((int(m[1]) for m in found if m), None)
