"""What lies in a folder of hand-ins: a folder for each student, and whatever students put there.

Work is booked by the folder: the student is the first folder below the one that is graded, or the
file that lies in it, and no name further inside says anything. What cannot be graded is refused
with its name, and the rest is graded: a folder too deep, a link, a file that is none, too many.
"""
# Plain module: edited by hand, no notebook exports it.
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..tutor.course import FIRST
from ..tutor.seeds import as_bytes, file_name, short_hash
from .limits import DEEPEST, MOST_FILES, MOST_NOTEBOOKS
from .tables import shortened

HIDDEN = '__MACOSX',   # beside what begins with a point


@dataclass(frozen=True)
class HandIn:
    "A file that somebody handed in, or what was found in its place."
    path:str        # absolute
    student:str
    name:str        # of its result: the student, then the file
    problem:str=''  # why it is refused


def hand_ins(
    folder:Path, # of the class, or one notebook
    out:Path,    # results, in which none is looked for
)->list[HandIn]:
    "All that was handed in, in an order that depends on names alone."
    if not folder.exists(): raise FileNotFoundError(f'no hand-ins at {folder}')
    root = Path(os.path.abspath(folder))
    if not root.is_dir(): return [hand_in(root, (root.name,), '')]
    own = os.path.realpath(out)
    found:list[HandIn] = []
    for entry, problem in entries(root):
        if os.path.realpath(entry) == own: continue
        if entry.is_dir(follow_symlinks=False): found += of_student(entry, root, own)
        elif wanted(entry.name) or leads_to_a_folder(entry):
            found.append(hand_in(Path(entry.path), (entry.name,), problem))
    if not found: raise FileNotFoundError(f'no notebooks (*.ipynb) in {folder}')
    return found


def of_student(top:os.DirEntry, root:Path, own:str)->Iterator[HandIn]:
    "What one student has handed in: not more than a class can bear."
    looked, notebooks, waiting = 0, 0, [(top, 1)]
    def refused(entry:os.DirEntry, why:str)->HandIn:
        return hand_in(Path(entry.path), Path(entry.path).relative_to(root).parts, why)
    while waiting:
        place, depth = waiting.pop()
        if depth > DEEPEST:
            yield refused(place, f'more than {DEEPEST} folders inside one another')
            continue
        try:
            inside = list(entries(Path(place.path)))
        except OSError as error:
            yield refused(place, f'cannot be read: {error.strerror}')
            continue
        folders = []
        for entry, problem in inside:
            looked += 1
            if looked > MOST_FILES:
                yield refused(place, f'more than {MOST_FILES} files of one student')
                return
            if entry.is_dir(follow_symlinks=False):
                if os.path.realpath(entry) != own: folders.append((entry, depth + 1))
            elif wanted(entry.name) or leads_to_a_folder(entry):
                notebooks += 1
                if notebooks > MOST_NOTEBOOKS:
                    yield refused(entry, f'more than {MOST_NOTEBOOKS} notebooks of one student')
                    return
                yield refused(entry, problem)
        waiting += reversed(folders)


def entries(folder:Path)->Iterator[tuple[os.DirEntry, str]]:
    "What a folder holds, in order, and why it is refused; what is hidden is left out."
    with os.scandir(folder) as found: inside = sorted(found, key=lambda e: os.fsencode(e.name))
    for entry in inside:
        if entry.name.startswith('.') or entry.name in HIDDEN: continue
        yield entry, problem_of(entry)


def problem_of(entry:os.DirEntry)->str:
    "Why a file is not read; '' for a plain one."
    if entry.is_symlink(): return 'a link; links are not followed'
    return '' if entry.is_file(follow_symlinks=False) else 'not a plain file'


def leads_to_a_folder(entry:os.DirEntry)->bool:
    "Is it a link to a folder?"
    return entry.is_symlink() and os.path.isdir(entry.path)


def wanted(name:str)->bool:
    "Is a file called a notebook, and none of the first pages, which ask nothing?"
    return name.endswith('.ipynb') and name.removesuffix('.ipynb') not in FIRST


def hand_in(path:Path, parts:tuple[str, ...], problem:str)->HandIn:
    "A hand-in from its place in the class's folder."
    whole = PurePosixPath(*parts)
    plain = (whole.with_suffix('') if whole.suffix == '.ipynb' else whole).parts
    shown = [result_name(part) for part in plain]
    if len('/'.join(shown).encode()) > 2000: shown = [shown[0], file_name('/'.join(shown))]
    return HandIn(str(path), shown[0], '/'.join(shown), problem and shortened(problem, 300))


def result_name(part:str)->str:
    "A part of a name as we write it: text, and no other part's."
    text = as_bytes(part).decode()
    return file_name(text if text == part else f'{text}-{short_hash(part)}')
