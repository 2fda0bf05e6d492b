"""The result of one file: read, judged, kept, with a page for the student.

This runs in a process that has read no other file (`server`).
"""
# Plain module: edited by hand, no notebook exports it.
import functools
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from ..files import checksum, write_atomic
from ..tutor.course import course_chapters
from ..tutor.exercise import Verdict, chapter_exercises
from ..tutor.seeds import as_bytes, seed_of
from .folder import HandIn, hand_ins
from .judge import answers_in, chapter_in, given, judge, notebook_cells, read_notebook
from .limits import LARGEST_FILE, LONGEST_PROOF, Limits
from .pages import result_page
from .sandbox import isolation
from .server import FAILED, Settings, no_result
from .tables import shortened, visible


def result(h:HandIn, settings:Settings)->dict:
    "The result of a hand-in: as it lies in the folder of results, or new."
    target = Path(settings.out)/'results'/f'{h.name}.json'
    content, problem = b'', h.problem
    try:
        if not problem: content = read_file(h.path)
    except (OSError, ValueError) as error:
        problem = getattr(error, 'strerror', None) or str(error)
    key = {'sha256': checksum(content), 'exercises': fingerprint(), 'asked': settings.chapter,
           'limits': asdict(settings.limits), 'unsafe': settings.unsafe, 'path': h.path}
    before = stored(target)
    same = all(before.get(k) == v for k, v in key.items()) and before.get('problem') == problem
    page = Path(settings.out)/'pages'/f'{h.name}.html'
    if content and same and page.exists(): return before | {'new': False}
    seed = seed_of(h.name, settings.seed)
    found = no_result(h, problem) | key | {'seed': seed, 'isolation': isolation(settings.unsafe)}
    if not problem: found |= judged(content, Path(h.path).stem, seed, settings)
    write(found, target, page)
    return found


def read_file(path:str)->bytes:
    "The bytes of a file; an error for what is no plain file of a sensible size."
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, 'rb') as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode): raise ValueError('not a plain file')
        if about.st_size > LARGEST_FILE: raise ValueError('the file is larger than 20 MB')
        return file.read(LARGEST_FILE)


def judged(content:bytes, file:str, seed:int, settings:Settings)->dict:
    "Chapter, marks and verdicts of a file's content; a file that is no hand-in is a result, too."
    chapter = settings.chapter or ''
    try:
        nb = read_notebook(content)
        cells = notebook_cells(nb)
        chapter = chapter or chapter_in(nb, cells, file)
        verdicts = judge(nb, chapter, seed, settings.limits, settings.unsafe)
    except ValueError as error:
        return {'problem': shortened(f'cannot be graded: {visible(str(error))}', 300)}
    parts = [asdict(v) | told(v, cells) for v in verdicts.values()]
    return {'chapter': course_name(chapter), 'parts': parts,
            'marks': sum(v.marks or 0 for v in verdicts.values()),
            'of': sum(v.of for v in verdicts.values()),
            'by hand': sum(v.of for v in verdicts.values() if v.marks is None)}


def told(v:Verdict, cells:list[dict])->dict:
    "What a student's page shows beside a verdict: the task and the answer."
    e = next(e for e in chapter_exercises(v.id) if e.id == v.id)
    answer = '\n\n'.join(answers_in(cells, e)).strip()
    return {'task': given(e.chapter).get(f'task-{e.id}', ''),
            'answer': shortened(visible(answer), LONGEST_PROOF)}


def course_name(chapter:str)->str:
    "The name of a chapter's notebook, '05_convolution' of '05'; what is none stays."
    try:
        return next(iter(course_chapters([chapter])))
    except (ValueError, FileNotFoundError):
        return chapter


@functools.cache
def fingerprint()->str:
    "Changes with the exercises, their checks, the grader and its page."
    here = Path(__file__).parent
    files = sorted([*here.glob('*'), *(here.parent/'tutor').rglob('*.py')])
    content = b''.join(p.read_bytes() for p in files if p.is_file())
    return hashlib.sha256(content).hexdigest()[:12]


def stored(file:Path)->dict:
    "A result as it lies there; empty if there is none, a damaged one, or the grader's own failure."
    try:
        found = dict(json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError, TypeError):
        return {}
    return {} if str(found.get('problem')).startswith(FAILED) else found


def write(found:dict, target:Path, page:Path)->None:
    "The result and the student's page."
    text = json.dumps(found, indent=1, ensure_ascii=False) + '\n'
    for file, content in ((page, result_page(found)), (target, text)):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, as_bytes(content))


def own_verdicts(
    paths:Iterable[str|Path], # one's own notebooks, or folders of them
)->dict[str, dict[str, Verdict]]:
    "The verdicts on one's own notebooks, by chapter, without a sandbox; others are passed over."
    found:dict[str, dict[str, Verdict]] = {}
    for h in (h for p in paths for h in hand_ins(Path(p), Path('/dev/null'))):
        try:
            nb = read_notebook(read_file(h.path))
            chapter = chapter_in(nb, notebook_cells(nb), Path(h.path).stem)
            found[course_name(chapter)] = judge(nb, chapter, limits=Limits(), unsafe=True)
        except (OSError, ValueError):
            continue
    return found
