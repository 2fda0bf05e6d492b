"""What was handed in: notebooks in folders, and in the zips that Moodle and Canvas make of a class.

A name of a result begins with the student. Moodle's zip says `Ann Lee_17_assignsubmission_file_`,
Canvas's `leeann_LATE_17_203_05_convolution-1.ipynb`: 17 is the student, 203 the file, -1 the second
attempt. Both become `Ann Lee_17/…` and `leeann_17/…`.
"""
# Plain module: edited by hand, no notebook exports it.
import os
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from ..files import checksum
from ..tutor.course import FIRST
from ..tutor.seeds import as_bytes, short_hash
from ..tutor.student import file_name

LARGEST_FILE = 2e7      # bytes
MOODLE = re.compile(r'([^_]+)_(\d+)_assignsubmission_file_?(.*)')
CANVAS = re.compile(r'([^_]+)_(LATE_)?(\d+)_\d+_(.+)')
HIDDEN = '.ipynb_checkpoints', '__MACOSX'


@dataclass(frozen=True)
class HandIn:
    "A file that somebody handed in."
    path:str       # where it lies
    name:str       # of its results: the student, then the file
    origin:str=''  # 'moodle', 'canvas', or a plain folder
    late:bool=False
    time:str=''    # when the file was written, '2026-11-22T23:59:00'


def student_of(name:str)->str:
    "The student of a submission: the first folder of its name, or the file."
    return name.split('/')[0]


# --- one name

def named(parts:tuple[str, ...], path:Path, time:datetime)->HandIn:
    "A hand-in from its place in a folder or zip, as Moodle and Canvas name it or as it is."
    origin, late = '', False
    for i, part in enumerate(parts):
        if m := MOODLE.fullmatch(part):
            parts, origin = (f'{m[1]}_{m[2]}', *filter(None, [m[3]]), *parts[i + 1:]), 'moodle'
            break
    if not origin and (m := CANVAS.fullmatch(parts[-1])):
        parts = f'{m[1]}_{m[3]}', re.sub(r'-\d+(?=\.\w+$)', '', m[4])
        origin, late = 'canvas', bool(m[2])
    name = PurePosixPath(*parts).with_suffix('').as_posix()
    return HandIn(str(path), name, origin, late, time.isoformat(timespec='seconds'))


# --- many

def find_hand_ins(
    paths:Iterable[Path],    # notebooks, folders of them, or zips
    out:Path,                # results, in which none is looked for
    unpacked:Path|None=None, # an empty folder for what zips hold; without one they are refused
    due:datetime|None=None,   # what was written later is late
)->dict[str, HandIn]:
    """Hand-ins by the name their results get; it depends on the file and not on the order.

    Copies of the first pages, which ask nothing, are none.
    Where names agree, what they were found in is put behind the student, or a number of the file.
    """
    found:list[tuple[HandIn, Path]] = []   # with what it was found in
    for path in paths:
        if not path.exists(): raise FileNotFoundError(f'no submission at {path}')
        own = in_zip(path, unpacked) if is_zip(path) else in_folder(path, out)
        found += [(h, path) for h in own if PurePosixPath(h.name).name not in FIRST]
    if not found: raise FileNotFoundError('no notebooks (*.ipynb) there')
    found = apart(found, lambda h, source: found_in(source))
    found = apart(found, lambda h, source: short_hash(content_or_place(h, source)))
    late = due.isoformat() if due else '9999'
    def final(h:HandIn)->HandIn:
        name = '/'.join(map(file_name, as_bytes(h.name).decode().split('/')))
        return replace(h, name=name, late=h.late or h.time > late)
    return {h.name: h for h in (final(h) for h, _ in found)}


def is_zip(path:Path)->bool:
    "Is it a file that is called a zip?"
    return path.is_file() and path.suffix.lower() == '.zip'


def found_in(source:Path)->str:
    "What a folder or zip is called; of a notebook the folder it lies in."
    whole = source.is_dir() or is_zip(source)
    return source.absolute().stem if whole else source.absolute().parent.name


def content_or_place(h:HandIn, source:Path)->str:
    "What tells two files apart in each run: where they lie; in zips what they hold."
    return checksum(Path(h.path)) if is_zip(source) else str(Path(h.path).absolute())


def apart(
    found:list[tuple[HandIn, Path]],
    mark:Callable[[HandIn, Path], str],
)->list[tuple[HandIn, Path]]:
    "The hand-ins, with a mark in the names of those that agree: before a file, behind a student."
    times = Counter(h.name for h, _ in found)
    def marked(h:HandIn, source:Path)->str:
        student, _, rest = h.name.partition('/')
        return f'{student}/{mark(h, source)}/{rest}' if rest else f'{mark(h, source)}/{student}'
    return [(replace(h, name=marked(h, s)) if times[h.name] > 1 else h, s) for h, s in found]


def in_folder(path:Path, out:Path)->list[HandIn]:
    "The notebooks of a folder, or the one file."
    own = Path(os.path.realpath(out))
    def results(p:Path)->bool: return own in Path(os.path.realpath(p)).parents
    files = sorted(path.rglob('*.ipynb')) if path.is_dir() else [path]
    return [named(p.relative_to(path).parts if path.is_dir() else (p.name,), p,
                  datetime.fromtimestamp(p.lstat().st_mtime))
            for p in files if not results(p) and not any(part in HIDDEN for part in p.parts)]


def in_zip(archive:Path, unpacked:Path|None)->list[HandIn]:
    "The notebooks of a zip; of a student who handed in none, the first file that there is."
    if unpacked is None: raise ValueError(f'{archive} is a zip archive; unpack it first')
    try:
        with zipfile.ZipFile(archive) as z: return unpack(z, unpacked)
    except zipfile.BadZipFile:
        raise ValueError(f'{archive} is no zip archive, or a damaged one; download it '
                         'again') from None


def unpack(z:zipfile.ZipFile, folder:Path)->list[HandIn]:
    "Write what counts in an archive, each into a folder of its own: no name of it leads elsewhere."
    places = {m: place_of(m) for m in z.infolist() if not m.is_dir()}
    members = {m: place for m, place in places.items() if place}
    # a folder around all students is nobody's
    shared = len({place[0] for place in members.values()}) == 1
    outer = shared and min(map(len, members.values())) > 2
    found, others = list[HandIn](), dict[str, HandIn]()
    for m, place in members.items():
        target = Path(tempfile.mkdtemp(dir=folder))/file_name(place[-1])
        h = named(place[outer:], target, time_of(m))
        notebook = place[-1].endswith('.ipynb')
        if not notebook and (not h.origin or student_of(h.name) in others): continue
        target.write_bytes(content_of(z, m))
        if notebook: found.append(h)
        else: others[student_of(h.name)] = h
    there = {student_of(h.name) for h in found}
    return found + [h for student, h in others.items() if student not in there]


def place_of(member:zipfile.ZipInfo)->tuple[str, ...]:
    "Where a member stands, without steps up; () for what no student wrote."
    parts = tuple(p for p in PurePosixPath(member.filename).parts if p not in ('/', '..'))
    hidden = any(part.startswith('.') or part in HIDDEN for part in parts)
    return () if hidden else parts


def time_of(member:zipfile.ZipInfo)->datetime:
    "When a member was written; the first day of zips where it says nonsense."
    try:
        return datetime(*member.date_time)
    except ValueError:
        return datetime(1980, 1, 1)


def content_of(z:zipfile.ZipFile, member:zipfile.ZipInfo)->bytes:
    "The bytes of a member, one more than are allowed at most; none where it cannot be read."
    try:
        with z.open(member) as file: return file.read(int(LARGEST_FILE) + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, OSError, EOFError):
        return b''
