"""One submission: each answer run apart and judged here, its result, and a page for the student."""
# Plain module: edited by hand, no notebook exports it.
import functools
import hashlib
import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..files import checksum, write_atomic
from ..tutor.course import chapter_of, course_chapters
from ..tutor.exercise import Exercise, Verdict, chapter_exercises, judge
from ..tutor.seeds import as_bytes, seed_of
from ..tutor.student import EMPTY_PROOF, student_copy, without_marks
from ..tutor.values import encode
from .gradebook import NOTHING, stored_record
from .handins import LARGEST_FILE, HandIn
from .judges import Settings
from .pages import feedback_page, visible
from .sandbox import Limits, Submission, Task, isolation, run

LONGEST_MESSAGE = 2000  # letters
LONGEST_PROOF = 50_000  # letters
JUDGING = 20            # seconds for one answer
FAILED = 'the grader failed'


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
    if 'answers' in reply: return judge(e, [dict(a) for a in reply['answers']], seed)
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


def shortened(text:str, most:int)->str:
    "The text, or its beginning."
    return text if len(text) <= most else text[:most - 2] + ' …'


# --- one file

def read_notebook(content:bytes)->dict:
    "The notebook in a file's bytes; an error that says what is there instead."
    if content.startswith(b'PK'):
        raise ValueError('it is a zip archive; hand in the notebook, or unpack the archive first')
    nb = json.loads(content.decode('utf-8-sig'))   # some editors put a mark before the text
    if not isinstance(nb, dict) or not isinstance(nb.get('cells'), list):
        raise ValueError('it is no notebook: it has no list of cells')
    return nb


def nested(value:Any, *keys:str)->str:
    "The text at some keys of nested dictionaries; '' if they are none."
    for key in keys: value = value.get(key, '') if isinstance(value, dict) else ''
    return value if isinstance(value, str) else ''


def notebook_cells(nb:dict)->list[dict]:
    "The notebook's cells: source and, where there is one, nbgrader's id."
    def text(source:Any)->str:
        return ''.join(map(str, source)) if isinstance(source, list) else str(source)
    if not all(isinstance(c, dict) for c in nb['cells']): raise ValueError('a cell of it is none')
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


def read_submission(path:Path)->bytes:
    "The file's bytes; an error for what is no plain file of a sensible size."
    if path.is_symlink() or not path.is_file(): raise ValueError('not a plain file')
    if path.stat().st_size > LARGEST_FILE:   # before it is read
        raise ValueError('the file is larger than 20 MB')
    return path.read_bytes()


def chapter_in(nb:dict, cells:list[dict], path:Path)->str:
    "The chapter of a submission: its metadata, its exercises and its name must not disagree."
    ids = (re.fullmatch(r'ex-(\d+[a-z]?)-\d+', c['id']) for c in cells)
    told = {'its metadata': [nested(nb, 'metadata', 'eqtutor', 'chapter')],
            'its exercises': sorted({m[1] for m in ids if m}),
            'its name': [path.stem] if path.stem in course_chapters() else []}
    found = {where: sorted({chapter_of(name) for name in names if chapter_exercises(name)})
             for where, names in told.items()}
    chapters = sorted({c for own in found.values() for c in own})
    if len(chapters) > 1:
        says = '; '.join(f'{where}: {", ".join(own)}' for where, own in found.items() if own)
        raise ValueError(f'it names several chapters ({says}). Grade it with --chapter')
    if chapters: return chapters[0]
    if chapter_exercises(path.stem): return chapter_of(path.stem)
    raise ValueError(f'no chapter with exercises is called {path.stem!r}; name it with --chapter')


def grade_notebook(
    path:str|Path,
    limits:Limits=Limits(),
    chapter:str|None=None, # '05'; if None, from the file's own record or its name
    seed:int=0,
    unsafe:bool=False,     # without a sandbox: for one's own answers
)->dict:
    """Grade one submission: its chapter, marks and verdicts as plain data.

    A file that cannot be read is a result too.
    """
    path, problem = Path(path), ''
    cells, name = list[dict](), chapter or ''
    try:
        nb = read_notebook(read_submission(path))
        cells = notebook_cells(nb)
        name = chapter or chapter_in(nb, cells, path)
    except Exception as error:
        problem = shortened(f'cannot be graded: {type(error).__name__}: {error}', 300)
        cells, name = [], name or chapter_of(path.stem)
    exercises = chapter_exercises(name)
    if not exercises and not problem: problem = f'no chapter with exercises is called {name!r}'
    parts = grade_cells(cells, exercises, limits, seed, unsafe)
    return {'file': path.name, 'chapter': course_name(name), 'seed': seed, 'problem': problem,
            'marks': sum(v.marks or 0 for v in parts), 'of': sum(v.of for v in parts),
            'by hand': sum(v.of for v in parts if v.state == 'by hand'),
            'parts': [asdict(v) | told(v, cells) for v in parts],
            'isolation': isolation(unsafe)}


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


# --- one result

def fingerprint()->str:
    "Changes with the exercises, their checks, the grader and its page."
    here = Path(__file__).parent
    files = sorted([*here.rglob('*.py'), here/'feedback.html'])
    return hashlib.sha256(b''.join(p.read_bytes() for p in files)).hexdigest()[:12]


def failed_record(why:str, **about:Any)->dict:
    "The result of a submission that the grader itself failed on."
    return NOTHING | about | {'problem': f'{FAILED}: {why}'}


def grade_submission(h:HandIn, settings:Settings)->dict:
    "The result of one submission: as it lies in `out`, or new."
    out, name, path = settings.out, h.name, Path(h.path)
    target, page = out/'results'/f'{name}.json', out/'feedback'/f'{name}.html'
    plain = path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_FILE
    sha = checksum(path) if plain else ''
    key = {'sha256': sha, 'exercises': fingerprint(), 'asked': settings.chapter,
           'limits': asdict(settings.limits), 'unsafe': settings.unsafe, 'late': h.late}
    before = stored_record(target)
    same = page.exists() and all(before.get(k) == v for k, v in key.items())
    if same and not str(before.get('problem')).startswith(FAILED): return before | {'new': False}
    record = grade_notebook(path, settings.limits, settings.chapter, seed_of(name, settings.seed),
                            settings.unsafe)
    record |= {'name': name, 'origin': h.origin, 'time': h.time} | key
    write_result(record, target, page)
    return record | {'new': True, 'changed': before.get('sha256') != sha}


def write_result(record:dict, target:Path, page:Path)->None:
    "The result and the student's page."
    text = json.dumps(record, indent=1, ensure_ascii=False) + '\n'
    for file, content in ((page, feedback_page(record)), (target, text)):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, as_bytes(content))
