"""One hand-in: its answers run in a sandbox, and judged here: marks and a sentence for each.

`judge` is what others call. It reads nothing but the notebook, and believes nothing that comes out
of the sandbox: a reply is data, decoded without pickle, under limits of time; every comparison,
norm and truth value is computed here.
"""
# Plain module: edited by hand, no notebook exports it.
import functools
import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..tutor import exercise
from ..tutor.course import chapter_of, course_chapters
from ..tutor.exercise import Exercise, Verdict, chapter_exercises
from ..tutor.student import EMPTY_PROOF, student_copy, without_marks
from ..tutor.values import encode
from .limits import JUDGING, LONGEST_MESSAGE, LONGEST_PROOF, Limits
from .sandbox import Submission, Task, run
from .tables import shortened, visible


def judge(
    notebook:dict,         # a hand-in as JSON, of a file or of nbformat
    chapter:str|None=None, # '05' or '05_convolution'; if None, as the notebook says
    seed:int=0,            # of the cases: `seed_of(student, seed of the class)`
    limits:Limits=Limits(),
    unsafe:bool=False,     # without a sandbox: for one's own answers
)->dict[str, Verdict]:
    """The verdicts on a hand-in, by exercise, in the order of the chapter.

    A `Verdict` has `marks` (of `of`; half of them for a slip, None for a proof, which a person
    marks), `state` and `message`, the sentence that teaches, as markdown. An error, which says why,
    for what is no notebook of the course. `server.judge` does the same in a process of its own.
    """
    cells = notebook_cells(notebook)
    number = chapter_of(chapter) if chapter else chapter_in(notebook, cells)
    exercises = chapter_exercises(number)
    if not exercises: raise ValueError(f'no chapter with exercises is called {chapter or number!r}')
    return {v.id: v for v in grade_cells(cells, exercises, limits, seed, unsafe)}


# --- one answer

def grade_answer(
    e:Exercise,
    source:str,            # of the cell
    limits:Limits=Limits(),
    seed:int=0,            # of the cases
    unsafe:bool=False,
)->Verdict:
    "Run an answer apart and judge what it returned."
    reply = run(Submission((task_of(e, source, seed),)), limits, unsafe)[0]
    return judge_reply(e, reply, seed)


def task_of(e:Exercise, source:str, seed:int)->Task:
    "What a sandbox is asked about an answer."
    return Task(source, e.name, encode(e.cases(seed)), e.call)


def judge_reply(e:Exercise, reply:dict, seed:int)->Verdict:
    "The verdict on what came out of a sandbox, within a time; whatever goes wrong is its fault."
    try:
        with within(JUDGING): verdict = verdict_on(e, reply, seed)
    except Exception as error:
        verdict = e.fails('stopped', f'its answer cannot be judged ({type(error).__name__})')
    return replace(verdict, message=shortened(visible(verdict.message), LONGEST_MESSAGE))


def verdict_on(e:Exercise, reply:dict, seed:int)->Verdict:
    "The verdict on a reply: right, wrong, broken, or stopped."
    if 'answers' in reply: return exercise.judge(e, [dict(a) for a in reply['answers']], seed)
    if 'broken' not in reply: return e.fails('stopped', str(reply.get('stopped')))
    broken = f'{shortened(str(reply["broken"]), 500)}.'
    if broken.startswith('NameError'):
        broken += (' Everything an answer needs stands in its own cell; torch, nn, F, math and the '
                   'exports of chapters 01 to 06 are there.')
    return e.fails('error', broken)


@contextmanager
def within(seconds:float)->Iterator[None]:
    "A `TimeoutError` for what takes longer, in the main thread; elsewhere there is no clock."
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, 'setitimer'):
        yield
        return
    def late(*_:Any)->None: raise TimeoutError(f'took more than {seconds:g} s')
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- one notebook

def read_notebook(content:bytes)->dict:
    "The notebook in a file's bytes; an error that says what is there instead."
    if content.startswith(b'PK'):
        raise ValueError('it is a zip archive; hand in the notebook, or unpack the archive first')
    if content.startswith(b'%PDF'):
        raise ValueError('it is a PDF; hand in the notebook itself, the file that ends in .ipynb')
    try:
        nb = json.loads(content.decode('utf-8-sig'))   # some editors put a mark before the text
    except (ValueError, RecursionError):
        raise ValueError('the file is damaged, or no notebook: it is not JSON') from None
    notebook_cells(nb)
    return nb


def nested(value:Any, *keys:str)->str:
    "The text at some keys of nested dictionaries; '' if they are none."
    for key in keys: value = value.get(key, '') if isinstance(value, dict) else ''
    return value if isinstance(value, str) else ''


def notebook_cells(nb:dict)->list[dict]:
    "The notebook's cells: source and, where there is one, nbgrader's id."
    if not isinstance(nb, dict) or not isinstance(nb.get('cells'), list):
        raise ValueError('it is no notebook: it has no list of cells')
    def text(source:Any)->str:
        return ''.join(map(str, source)) if isinstance(source, list) else str(source)
    if not all(isinstance(c, dict) for c in nb['cells']):
        raise ValueError('a cell of it is none')
    return [{'kind': c.get('cell_type'), 'source': text(c.get('source', '')),
             'id': nested(c, 'metadata', 'nbgrader', 'grade_id')} for c in nb['cells']]


def answers_in(cells:list[dict], e:Exercise)->list[str]:
    "The cells that answer an exercise: one, if nobody has deleted or doubled it."
    own = [c['source'] for c in cells if c['id'] == f'ex-{e.id.replace(".", "-")}']
    if own or not e.name: return own
    code = [c['source'] for c in cells if c['kind'] == 'code']
    return [source for source in code if re.search(rf'^def {e.name}\b', source, re.M)]


def without_running(e:Exercise, answers:list[str])->Verdict|None:
    "The verdict where nothing is to be run: no answer, several, or a proof; None for the rest."
    if not answers: return e.fails('missing', 'there is no cell with an answer')
    if e.kind == 'proof':
        text = '\n'.join(answers).strip()
        if text in ('', EMPTY_PROOF, 'YOUR ANSWER HERE'):
            return e.fails('unsolved', 'the proof is still to be written')
        return Verdict(e.id, 'by hand', None, e.marks, shortened(text, LONGEST_PROOF))
    if len(answers) > 1:
        return e.fails('stopped', f'{len(answers)} cells answer this exercise; leave one')
    if without_marks(answers[0]).strip() != given(e.chapter).get(f'ex-{e.id}'): return None
    return e.fails('unsolved', f'`{e.name}` is still to be written.')


@functools.cache
def given(chapter:str)->dict[str, str]:
    "What a student is given, by cell: 'task-5.3' and 'ex-5.3', where an answer should stand."
    cells:list[dict] = []
    for name, path in course_chapters([chapter]).items():
        nb = json.loads(path.read_text(encoding='utf-8'))
        cells += notebook_cells(student_copy(nb, name))
    return {re.sub(r'-(\d+)$', r'.\1', c['id']): without_marks(c['source']).strip() for c in cells}


def grade_cells(
    cells:list[dict],
    exercises:list[Exercise],
    limits:Limits,
    seed:int,
    unsafe:bool,
)->list[Verdict]:
    "The verdicts on a notebook's exercises; what is to be run shares one sandbox."
    answers = {e.id: answers_in(cells, e) for e in exercises}
    verdicts = {e.id: without_running(e, answers[e.id]) for e in exercises}
    asked = [e for e in exercises if verdicts[e.id] is None]
    tasks = tuple(task_of(e, answers[e.id][0], seed) for e in asked)
    for e, reply in zip(asked, run(Submission(tasks), limits, unsafe)):
        verdicts[e.id] = judge_reply(e, reply, seed)
    return [v for v in verdicts.values() if v]


def chapter_in(nb:dict, cells:list[dict], file:str='')->str:
    "The chapter of a hand-in: its metadata, its exercises and its name must not disagree."
    ids = (re.fullmatch(r'ex-(\d+[a-z]?)-\d+', c['id']) for c in cells)
    told = {'its metadata': [nested(nb, 'metadata', 'eqtutor', 'chapter')],
            'its exercises': sorted({m[1] for m in ids if m}),
            'its name': [file] if file in course_chapters() else []}
    found = {where: sorted({chapter_of(name) for name in names if chapter_exercises(name)})
             for where, names in told.items()}
    chapters = sorted({c for own in found.values() for c in own})
    if len(chapters) > 1:
        says = '; '.join(f'{where}: {", ".join(own)}' for where, own in found.items() if own)
        raise ValueError(f'it names several chapters ({says}). Grade it with --chapter')
    if chapters: return chapters[0]
    if chapter_exercises(file): return chapter_of(file)
    raise ValueError(f'it names no chapter with exercises, and neither does {file!r}, its name; '
                     'name one with --chapter')
