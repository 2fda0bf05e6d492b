"""From files to marks.

Each answer run apart and judged here, results as JSON, a table, and a page for each student.
"""
# Plain module: edited by hand, no notebook exports it.
import csv
import hashlib
import io
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..files import checksum, write_atomic
from .course import exercise_order
from .exercise import Exercise, Verdict, chapter_exercises, judge
from .sandbox import Sandbox, Submission
from .student import EMPTY_PROOF
from .values import encode

LARGEST_FILE = 2e7   # bytes
NOTHING:dict[str, Any] = {'marks': 0, 'of': 0, 'by hand': 0, 'parts': [], 'isolation': {}}
FAILED = 'the grader failed'
TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'labs'), autoescape=True, trim_blocks=True,
    lstrip_blocks=True, undefined=StrictUndefined)


# --- one answer

def grade_answer(
    e:Exercise,
    source:str,       # of the cell
    sandbox:Sandbox,
    seed:int=0,       # of the cases
)->Verdict:
    "Run an answer apart and judge what it returned."
    reply = sandbox.run(Submission(source, e.name, encode(e.cases(seed)), e.call))
    try:
        if 'answers' in reply: return judge(e, [dict(a) for a in reply['answers']], seed)
    except Exception as error:
        return e.fails('stopped', f'its answer cannot be read ({type(error).__name__})')
    if 'broken' not in reply:
        return e.fails('stopped', str(reply.get('stopped', 'no answer came'))[:500])
    broken = f'{str(reply["broken"])[:500]}.'
    if broken.startswith('NameError'):
        broken += (' Everything an answer needs stands in its own cell; torch, nn, F, math and the '
                   'exports of chapters 01 to 06 are there.')
    return e.fails('error', broken)


# --- one file

def notebook_cells(content:bytes)->list[dict]:
    "The notebook's cells: source and, where there is one, nbgrader's id."
    def text(source:Any)->str:
        return ''.join(map(str, source)) if isinstance(source, list) else str(source)
    def grade_id(metadata:Any)->str:
        for key in ('nbgrader', 'grade_id'):
            metadata = metadata.get(key, '') if isinstance(metadata, dict) else ''
        return str(metadata)
    cells = json.loads(content.decode('utf-8'))['cells']
    return [{'kind': c.get('cell_type'), 'source': text(c.get('source', '')),
             'id': grade_id(c.get('metadata', {}))} for c in cells]


def answers_in(cells:list[dict], e:Exercise)->list[str]:
    "The cells that answer an exercise: one, if nobody has deleted or doubled it."
    own = [c['source'] for c in cells if c['id'] == f'ex-{e.id.replace(".", "-")}']
    if own or not e.name: return own
    code = [c['source'] for c in cells if c['kind'] == 'code']
    return [source for source in code if re.search(rf'^def {e.name}\b', source, re.M)]


def grade_exercise(e:Exercise, cells:list[dict], sandbox:Sandbox, seed:int)->Verdict:
    "The verdict on an exercise of a notebook."
    answers = answers_in(cells, e)
    if not answers: return e.fails('missing', 'there is no cell with an answer')
    if e.kind == 'proof':
        text = '\n'.join(answers).strip()
        if text in ('', EMPTY_PROOF, 'YOUR ANSWER HERE'):
            return e.fails('unsolved', 'the proof is still to be written')
        return Verdict(e.id, 'by hand', None, e.marks, text)
    if len(answers) > 1:
        return e.fails('stopped', f'{len(answers)} cells answer this exercise; leave one')
    return grade_answer(e, answers[0], sandbox, seed)


def read_submission(path:Path)->bytes:
    "The file's bytes; an error for what is no plain file of a sensible size."
    if path.is_symlink() or not path.is_file(): raise ValueError('not a plain file')
    if path.stat().st_size > LARGEST_FILE:   # before it is read
        raise ValueError('the file is larger than 20 MB')
    return path.read_bytes()


def chapter_in(content:bytes, path:Path)->str:
    "The chapter a submission says it is; else the file's name."
    told = re.search(r'"chapter":\s*"(\w+)"', content.decode('utf-8'))
    return told[1] if told and chapter_exercises(told[1]) else path.stem


def grade_notebook(
    path:str|Path,
    sandbox:Sandbox,
    chapter:str|None=None, # '05'; if None, from the file's own record or its name
    seed:int=0,
)->dict:
    """Grade one submission: its chapter, marks and verdicts as plain data.

    A file that cannot be read is a result too.
    """
    path, problem = Path(path), ''
    name, cells = chapter or path.stem, list[dict]()
    try:
        content = read_submission(path)
        cells = notebook_cells(content)
        name = chapter or chapter_in(content, path)
    except Exception as error:
        problem = f'cannot be read: {type(error).__name__}: {error}'[:300]
    parts = [grade_exercise(e, cells, sandbox, seed) for e in chapter_exercises(name)]
    if not parts and not problem:
        problem = f'no chapter with exercises is called {name!r}; name it with --chapter'
    return {'file': path.name, 'chapter': name, 'seed': seed, 'problem': problem,
            'marks': sum(v.marks or 0 for v in parts), 'of': sum(v.of for v in parts),
            'by hand': sum(v.of for v in parts if v.state == 'by hand'),
            'parts': [asdict(v) for v in parts], 'isolation': sandbox.isolation}


# --- names of results

def fingerprint()->str:
    "Changes with the exercises, their checks, the grader and its page."
    here = Path(__file__).parent
    files = sorted([*here.rglob('*.py'), *here.glob('*.html')])
    return hashlib.sha256(b''.join(p.read_bytes() for p in files)).hexdigest()[:12]


def as_bytes(text:str)->bytes:
    "The text as UTF-8; half a character from a submission stops no class."
    return text.encode('utf-8', 'backslashreplace')


def short_hash(text:str)->str:
    "Eight digits that tell texts apart."
    return hashlib.sha256(as_bytes(text)).hexdigest()[:8]


def file_name(part:str)->str:
    "A part of a name, if it can be a file's or folder's beside those we write; else shortened."
    fits = len(part.encode()) < 200 and not part.endswith(('.json', '.html'))
    return part if fits else f'{part[:40]}-{short_hash(part)}'


def find_submissions(
    paths:Iterable[Path], # notebooks, or folders of them
    out:Path,             # results, in which none is looked for
)->dict[str, Path]:
    """Notebooks by the name their results get; it depends on the file and not on the order.

    Where names agree, the folder's stands before them, or a number of the file.
    """
    named:list[tuple[str, Path]] = []
    for path in paths:
        if not path.exists(): raise FileNotFoundError(f'no submission at {path}')
        for p in sorted(path.rglob('*.ipynb')) if path.is_dir() else [path]:
            if out.resolve() in p.resolve().parents or '.ipynb_checkpoints' in p.parts: continue
            in_folder = path.is_dir()
            name = p.relative_to(path).with_suffix('').as_posix() if in_folder else p.stem
            named.append((name, p))
    if not named: raise FileNotFoundError('no notebooks (*.ipynb) there')
    for before in (lambda p: p.resolve().parent.name, lambda p: short_hash(str(p.resolve()))):
        times = Counter(name for name, _ in named)
        named = [(f'{before(p)}/{name}' if times[name] > 1 else name, p) for name, p in named]
    return {'/'.join(map(file_name, as_bytes(name).decode().split('/'))): p for name, p in named}


# --- one result

def feedback_page(record:dict)->str:
    "The page a student gets; the template escapes whatever comes from the submission."
    return TEMPLATES.get_template('feedback.html').render(record=record)


def failed_record(error:Exception, **about:Any)->dict:
    "The result of a submission that the grader itself failed on."
    return NOTHING | about | {'problem': f'{FAILED}: {error!a}'}


def grade_in_any_case(path:Path, box:Sandbox, chapter:str|None, seed:int)->dict:
    "The result of a submission, whatever happens."
    try:
        return grade_notebook(path, box, chapter, seed)
    except Exception as error:
        box.close()
        return failed_record(error, file=path.name, chapter=chapter, seed=seed)


def stored_record(file:Path)->dict:
    "A result as it lies there; empty if there is none, or a damaged one."
    try:
        return dict(json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError, TypeError):
        return {}


def grade_submission(
    name:str,           # of its results
    path:Path,
    out:Path,
    box:Sandbox,
    chapter:str|None,
    seed:int,
)->dict:
    "The result of one submission: as it lies in `out`, or new."
    target, page = out/'results'/f'{name}.json', out/'feedback'/f'{name}.html'
    plain = path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_FILE
    sha = checksum(path) if plain else ''
    key = {'sha256': sha, 'exercises': fingerprint(), 'asked': chapter, 'limits': box.limits}
    before = stored_record(target)
    same = page.exists() and all(before.get(k) == v for k, v in key.items())
    if same and not str(before.get('problem')).startswith(FAILED): return before | {'new': False}
    record = grade_in_any_case(path, box, chapter, seed) | {'name': name} | key
    text = json.dumps(record, indent=1, ensure_ascii=False) + '\n'
    for file, content in ((page, feedback_page(record)), (target, text)):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, as_bytes(content))
    return record | {'new': True, 'changed': before.get('sha256') != sha}


# --- the tables of a class

def spreadsheet_safe(x:Any)->str:
    "Text that a spreadsheet does not run; some part cells at a semicolon."
    return re.sub(r"(^|;)(?=\s*[=+\-@])", r"\1'", str(x))


def marks_of_a_person(file:Path)->dict[tuple, str]:
    """What a person has written into `marks.csv`, by submission and column.

    A spreadsheet may have put semicolons.
    """
    if not file.exists(): return {}
    text = file.read_text(encoding='utf-8-sig')
    head = text.partition('\n')[0]
    delimiter = ';' if head.count(';') > head.count(',') else ','
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    if 'submission' not in (rows.fieldnames or []):
        raise ValueError(f'{file} is no table of marks: its first column should be "submission". '
                         'Move it away; it is not touched.')
    return {(r['submission'], k): v for r in rows for k, v in r.items()}


def add_up(marks:Iterable[Any])->float:
    "The sum of the marks that are numbers; a comma is a point."
    texts = [str(m).replace(',', '.') for m in marks]
    return sum(float(m) for m in texts if re.fullmatch(r'\d+(\.\d+)?', m))


def marks_table(records:list[dict], written:dict[tuple, str])->str:
    "`marks.csv`: automatic marks, and those that a person has written into the file."
    ids = sorted({v['id'] for r in records for v in r['parts']}, key=exercise_order)
    out = csv.writer(text := io.StringIO(), lineterminator='\n', quoting=csv.QUOTE_ALL)
    out.writerow(['submission', 'chapter', *ids, 'total', 'of', 'remarks'])
    for r in records:
        name = spreadsheet_safe(r['name'])
        marks = {v['id']: v['marks'] for v in r['parts']}
        by_hand = {v['id'] for v in r['parts'] if v['state'] == 'by hand'}
        marks |= {id: written.get((name, id), '') for id in by_hand}
        remarks = spreadsheet_safe('; '.join(remarks_on(r, marks)))
        out.writerow([name, spreadsheet_safe(r['chapter']), *(marks.get(id, '') for id in ids),
                      f'{add_up(marks.values()):g}', r['of'], remarks])
    return text.getvalue()


def remarks_on(record:dict, marks:dict)->list[str]:
    "What a teacher should know of a submission."
    remarks = [record['problem']] if record['problem'] else []
    for v in record['parts']:
        id, state = v['id'], v['state']
        if state in ('stopped', 'missing'): remarks.append(f'{id} {state}')
        if state == 'by hand' and marks[id] and record.get('changed'):
            remarks.append(f'{id} was marked before this version came in')
    return remarks


def write_tables(records:list[dict], out:Path)->None:
    """`marks.csv`, with the one before as `marks.csv.bak`, and `marks.json`.

    These records, and those of earlier runs.
    """
    table, own = out/'marks.csv', {r['name'] for r in records}
    stored = map(stored_record, (out/'results').rglob('*.json'))
    older = [r for r in stored
             if r.get('name', '') not in {'', *own} and r.keys() >= NOTHING.keys()]
    everything = sorted(records + older, key=lambda r: r['name'])
    written = marks_of_a_person(table)   # read only now: a person may have written meanwhile
    if table.exists(): write_atomic(out/'marks.csv.bak', table.read_bytes())
    write_atomic(table, as_bytes(marks_table(everything, written)))
    passing = 'new', 'changed'   # of this run
    plain = [{k: v for k, v in r.items() if k not in passing} for r in everything]
    text = json.dumps(plain, indent=1, ensure_ascii=False) + '\n'
    write_atomic(out/'marks.json', as_bytes(text))


def grade(
    paths:Iterable[str|Path],  # notebooks, or folders of them
    out:str|Path,              # results: marks.csv, marks.json, results/, feedback/
    chapter:str|None=None,     # '05' for all; if None, read from each file
    seconds:int=10,            # for one answer
    memory:int=1024,           # MB for one answer
    workers:int|None=None,     # processes side by side; one a core if None
    seed:int|None=None,        # of the cases; a new one if None
    report:Callable[[dict], None]=lambda record: None, # called after each submission
)->list[dict]:
    """Grade submissions side by side.

    What lies in `out` already is not graded again, and stays in the tables.
    """
    out, seed = Path(out), secrets.randbelow(2**31) if seed is None else seed
    work = find_submissions([Path(p) for p in paths], out)
    marks_of_a_person(out/'marks.csv')   # raises before the work if it is no table of marks
    out.mkdir(parents=True, exist_ok=True)
    count = min(workers or os.cpu_count() or 1, len(work))
    boxes, free = [Sandbox(seconds, memory) for _ in range(count)], SimpleQueue[Sandbox]()
    for box in boxes: free.put(box)
    def one(name:str)->dict:
        record = grade_with_free_box(name, work[name], out, free, chapter, seed)
        report(record)
        return record
    try:
        with ThreadPoolExecutor(count) as pool: records = list(pool.map(one, work))
    finally:
        for box in boxes: box.close()
    write_tables(records, out)
    return records


def grade_with_free_box(
    name:str,
    path:Path,
    out:Path,
    free:'SimpleQueue[Sandbox]',
    chapter:str|None,
    seed:int,
)->dict:
    """The result of a submission, from the next sandbox that is free.

    An error of ours is a result, too.
    """
    box = free.get()
    try:
        return grade_submission(name, path, out, box, chapter, seed)
    except Exception as error:
        return failed_record(error, name=name, file=path.name, chapter=chapter, seed=seed, new=True)
    finally:
        free.put(box)
