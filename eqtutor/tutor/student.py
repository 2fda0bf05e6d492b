"""Students' notebooks: computed from the author's, without solutions, with nbgrader's metadata."""
# Plain module: edited by hand, no notebook exports it.
import ast
import csv
import importlib.util
import io
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import checksum, write_atomic, write_json
from ..interpreter import python
from .course import FIRST, chapter_path, course_chapters, course_folder
from .exercise import chapter_exercises, get_exercise
from .origin import own_requirement
from .reading import CodeCell, Links, Reader, colab_address, figure_numbers, fold_words
from .seeds import file_name, seed_of

EMPTY_PROOF = '*Your proof:*'
# a flag of a cell -> why it is a listing in the student's copy
LEFT_OUT = {'slow': 'takes long', 'cuda': 'needs a GPU', 'browser': 'needs a browser',
            'data': 'needs data that is downloaded', 'sandbox': 'needs bubblewrap'}
TEACHERS = '31_labs', '33_teaching'   # chapters that a student's course does without


# --- a solution without its body

def stub(
    source:str, # a solution cell
    id:str,     # of its exercise
)->str:
    "The functions of a solution without their bodies, and without the helpers, `_name`."
    nodes = [b for b in ast.parse(source).body
             if isinstance(b, ast.FunctionDef | ast.ClassDef) and not b.name.startswith('_')]
    if not nodes:
        raise ValueError(f'solution {id} defines no function: there is nothing to leave for the '
                         'student')
    lines = source.splitlines()
    return '\n\n'.join('\n'.join(stub_lines(node, lines, id)) for node in nodes)


def stub_lines(node:Any, lines:list[str], id:str)->list[str]:
    "Head, docstring, and an error for the body; of a class, the heads of its methods."
    if node.body[0].lineno == node.lineno:
        raise ValueError(f'solution {id}: the body of {node.name} stands on the line of its head; '
                         'put it below')
    start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    left = lines[start - 1:docstring_end(node)]
    while left[-1].strip().startswith('#') or not left[-1].strip():
        left.pop()   # comments above the body belong to the body
    if isinstance(node, ast.ClassDef):
        methods = [b for b in node.body if isinstance(b, ast.FunctionDef)]
        return left + [line for m in methods for line in stub_lines(m, lines, id)]
    indent = ' '*(node.col_offset + 4)
    body = ('### BEGIN SOLUTION', f"raise NotImplementedError('your turn: exercise {id}')",
            '### END SOLUTION')
    return left + [indent + line for line in body]


def docstring_end(node:Any)->int:
    "The last line of what stays: the head, and the docstring if there is one."
    first = node.body[0]
    if ast.get_docstring(node) is not None: return first.end_lineno
    return first.lineno - 1


# --- a cell

def cell_mark(
    source:str, # of a cell
)->tuple[str, str]|None:
    "'solution' or 'check' and the exercise's id, if a cell is marked so."
    directives = r'\s*(?:#\|.*\n\s*)*?'
    mark = re.match(directives + r'(?:#\||<!--)\s*(solution|check)\s+(\d+[a-z]?\.\d+)\b', source)
    return (mark[1], mark[2]) if mark else None


def nbgrader_cell(
    id:str,        # of the exercise
    part:str,      # 'task', 'ex' or 'check'
    cell_type:str, # 'code' or 'markdown'
)->dict:
    """nbgrader's metadata.

    A task is read-only, an answer is the student's, a check or a proof has the marks.
    """
    graded = part == 'check' or part == 'ex' and cell_type == 'markdown'
    points = {'points': get_exercise(id).marks} if graded else {}   # type: ignore[union-attr]
    return {'nbgrader': {'schema_version': 3, 'grade_id': f'{part}-{id.replace(".", "-")}',
                         'grade': graded, 'solution': part == 'ex', 'locked': part != 'ex',
                         'cell_type': cell_type, 'task': False, **points}}


def student_code(
    cell:CodeCell,
    reader:Reader,
)->Iterator[tuple[str, str, dict]]:
    "Kind, source and metadata of what a student gets for a code cell."
    mark = marked_exercise(cell.source)
    if mark: reader.in_the_open()
    if mark and mark[0] == 'solution':
        yield 'code', stub(cell.code, mark[1]), nbgrader_cell(mark[1], 'ex', 'code')
    elif mark:
        yield 'code', cell.code, nbgrader_cell(mark[1], 'check', 'code')
    elif words := listed_as(cell):
        yield 'markdown', f'*{words}*\n\n```python\n{cell.code}\n```', {}
    else:
        yield from reader.code(cell)


def student_text(source:str)->tuple[str, dict]:
    "What a student gets for a text, and its metadata."
    if mark := marked_exercise(source): return EMPTY_PROOF, nbgrader_cell(mark[1], 'ex', 'markdown')
    task = re.match(r'> \*\*Exercise (\d+[a-z]?\.\d+)', source)
    if task and get_exercise(task[1]):
        return source, nbgrader_cell(task[1], 'task', 'markdown')
    return source, {}


def teacher_code(
    cell:CodeCell,
    reader:Reader,
)->Iterator[tuple[str, str, dict]]:
    "Kind, source and metadata of what a teacher gets for a code cell."
    mark = marked_exercise(cell.source)
    words = None
    if mark: words = f'Solution {mark[1]}' if mark[0] == 'solution' else ''
    elif 'teacher' in cell.flags: words = 'For teachers'
    if words: words = cell.flags.get('code-summary') or words
    yield from reader.code(cell, words)


def marked_exercise(source:str)->tuple[str, str]|None:
    "The mark of a cell, if the exercise has a record."
    mark = cell_mark(source)
    if mark and not get_exercise(mark[1]):
        raise ValueError(f'exercise {mark[1]} is marked in the notebook, but has no record in '
                         'eqtutor.tutor.answers: it is not registered')
    return mark


def listed_as(cell:CodeCell)->str:
    "What to write above a cell that is a listing in the student's copy; '' if it is run there."
    why = [reason for flag, reason in LEFT_OUT.items() if flag in cell.flags]
    if not why and cell.flags.get('eval') != 'false': return ''
    because = f', for it {" and ".join(why)}' if why else ''
    return f'Not part of Run All{because}. To run it, copy it into a new cell:'


# --- a notebook

HOW_TO_RUN = '*Pictures and tables appear as you run the cells, one by one: Shift+Enter.*'

@dataclass(frozen=True)
class Copy:
    "What a copy of the course is for."
    # files of nbs/ that are in it, and where; a link to any other leads to the site
    places:Mapping[str, str]=field(default_factory=dict)
    solutions:bool=False  # for teachers: solutions, and what is stored of the outputs
    nbgrader:bool=False   # with nbgrader's marks around what is to be solved
    colab:bool=False      # opened in Colab, where each notebook installs the package


def is_copied(
    cell:dict, # of the author's notebook, as JSON
    how:Copy,
)->bool:
    "Is a cell for those who open the copy, and no part of how the package is made?"
    if cell['cell_type'] != 'code': return True
    source = ''.join(cell['source'])
    flags = CodeCell(source).flags.keys()
    if 'repository' in flags and not cell['outputs']: return False
    return 'default_exp' not in flags and (how.solutions or 'teacher' not in flags)


def as_read(
    cell:dict, # of the author's notebook, as JSON
)->dict:
    "What only the repository can run, as the text that it puts out; other cells as they are."
    if cell['cell_type'] != 'code' or 'repository' not in CodeCell.read(cell).flags: return cell
    text = '\n\n'.join(''.join(o['data']['text/markdown']) for o in cell['outputs'])
    # only the site has an anchor for each name
    return {'cell_type': 'markdown',
            'source': re.sub(r'(\[<code>[^\n]+?</code>\]\([^)#]+)#[\w.]+\)', r'\1)', text)}


def joined(
    cells:list[dict], # that are copied
    how:Copy,
    workshop:bool,    # do they stand in the workshop?
)->list[dict]:
    "The cells; neighbours that would be two listings, or two folds with the same words, are one."
    done, before = list[dict](), ''
    for cell in cells:
        kind = joins(cell, how, workshop)
        if kind and kind == before:
            source = ''.join(done[-1]['source']) + '\n\n' + ''.join(cell['source'])
            done[-1] = done[-1] | {'source': source}
        else: done.append(cell)
        before = kind
    return done


def joins(
    cell:dict,
    how:Copy,
    workshop:bool,
)->str:
    "What a cell has in common with neighbours that become one cell with it; '' if it stands alone."
    if cell['cell_type'] != 'code': return ''
    code = CodeCell.read(cell)
    flags = code.flags.keys()
    if cell_mark(code.source) or {'fig-cap', 'teacher'} & flags or '%%' in code.code: return ''
    if listed_as(code): return '' if how.solutions else 'a listing'
    closed = {'fold', 'hide'} & flags and not cell.get('outputs')
    return f'fold: {fold_words(code, workshop)}' if closed else ''


def student_copy(
    nb:dict,      # the author's notebook, as JSON
    chapter:str,  # its name, '05_convolution'
    how:Copy=Copy(nbgrader=True),
)->dict:
    """The notebook as somebody opens it, with captions, folds and links of its own.

    Solutions replaced by stubs, no outputs, nbgrader's metadata, cell ids by position.
    """
    code_of = teacher_code if how.solutions else student_code
    path = chapter_path(chapter)
    copied = [as_read(c) for c in nb['cells'] if is_copied(c, how)]
    authors = joined(copied, how, path.startswith('5_workshop'))
    numbers = figure_numbers([''.join(c['source']) for c in authors])
    reader = Reader(Links(path, how.places), numbers, how.colab)
    cells:list[dict] = []
    def add(kind:str, source:str, metadata:dict, outputs:list[dict])->None:
        code:dict[str, Any] = {'outputs': outputs, 'execution_count': None}
        cells.append({'cell_type': kind, 'id': f'{len(cells):08x}', 'metadata': metadata,
                      'source': source.splitlines(keepends=True),
                      **(code if kind == 'code' else {})})
    for cell in authors:
        source = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            text, metadata = (source, {}) if how.solutions else student_text(source)
            for part in reader.texts(text, whole=bool(metadata)):
                add('markdown', part, metadata, [])
        elif cell['cell_type'] == 'code':
            outputs = reader.outputs(cell['outputs']) if how.solutions else []
            for kind, text, metadata in code_of(CodeCell.read(cell), reader):
                add(kind, text if how.nbgrader else without_marks(text), metadata, outputs)
    if not how.solutions and any(c['cell_type'] == 'code' for c in cells):
        kind, source = cells[0]['cell_type'], cells[0]['source']
        if kind == 'markdown' and source[0].startswith('# '): source += ['\n', '\n', HOW_TO_RUN]
    kernel = {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'}
    about = {'kernelspec': kernel, 'language_info': {'name': 'python'},
             'eqtutor': {'chapter': chapter}}
    return {'cells': cells, 'metadata': about, 'nbformat': 4, 'nbformat_minor': 5}


def without_marks(source:str)->str:
    "Code without nbgrader's marks around a solution."
    return re.sub(r'\n?^[ \t]*### (BEGIN|END) SOLUTION[ \t]*$', '', source, flags=re.M)


def notebook_bytes(nb:dict)->bytes:
    "A notebook as a file holds it."
    return (json.dumps(nb, indent=1, ensure_ascii=False) + '\n').encode()


def build(
    out:str|Path,
    chapters:Iterable[str]=(), # numbers or names; if empty the first pages, and all with exercises
    students:Iterable[str]=(), # each gets copies whose checks draw other numbers
    seed:int=0,                # of the class; `grade` with the same one puts the same cases
)->list[Path]:
    """Write students' notebooks as `out/<chapter>/<chapter>.ipynb`, nbgrader's source folder.

    With `students` they are `out/<student>/<chapter>.ipynb`, as they are handed in. A link to a
    notebook that is not written leads to its page on the site.
    """
    written, chapters, students = [], tuple(chapters), tuple(map(folder_name, students))
    chosen = {name: path for name, path in course_chapters(chapters).items()
              if chapters or name in FIRST or chapter_exercises(name)}
    places = {chapter_path(name): f'{name}.ipynb' if students else f'{name}/{name}.ipynb'
              for name in chosen}
    for name, path in chosen.items():
        nb = json.loads(path.read_text(encoding='utf-8'))
        copied = student_copy(nb, name, Copy(places, nbgrader=True))
        seeds = {student: seed_of(f'{student}/{name}', seed) for student in students}
        copies = {Path(student)/f'{name}.ipynb': seeded(copied, s) for student, s in seeds.items()}
        for file, own in (copies or {Path(places[chapter_path(name)]): copied}).items():
            (target := Path(out)/file).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, notebook_bytes(own))
            written.append(target)
    return written


def first_column(
    file:Path, # CSV with a head; a spreadsheet may have put semicolons
)->list[str]:
    "The names in the first column of a list of the class; an error for an empty file."
    text = file.read_text(encoding='utf-8-sig')
    head = text.partition('\n')[0]
    parted = ';' if head.count(';') > head.count(',') else ','
    rows = csv.reader(io.StringIO(text), delimiter=parted)
    names = [row[0] for row in rows if row and row[0].strip()][1:]
    if not names: raise ValueError(f'{file} is an empty list: expected a head, and a row a student')
    return names


def folder_name(student:str)->str:
    "A student's name as that of a folder: no step up, nothing that a system forbids."
    name = file_name(re.sub(r'[^\w @+=,.-]', '_', student).strip(' .'))
    if not name: raise ValueError(f'{student!r} cannot be the name of a folder')
    return name


def seeded(
    nb:dict,  # a student's notebook
    seed:int,
)->dict:
    "The notebook with the seed in its checks."
    def own(cell:dict)->dict:
        grade_id = cell['metadata'].get('nbgrader', {}).get('grade_id', '')
        if not grade_id.startswith('check-'): return cell
        lines = [re.sub(r"\bcheck\(('[\w.]+', *\w+)\)", rf'check(\1, seed={seed})', line)
                 for line in cell['source']]
        return cell | {'source': lines}
    return nb | {'cells': [own(cell) for cell in nb['cells']]}


# --- the course

def course_files(
    solutions:bool,
    chapters:tuple[str, ...],
    colab:bool,
    complete:bool,
)->dict[Path, bytes]:
    "The course's files by their place: notebooks, the pictures they show, the results they read."
    install = [install_cell(own_requirement())] if colab else []
    root = course_folder().parent
    around = [p for pattern in ('nbs/images/*', 'results/**/*.json', 'results/weights/*')
              for p in root.glob(pattern)]
    files = {p.relative_to(root): p.read_bytes() for p in sorted(around) if p.is_file()}
    chosen = {name: p for name, p in course_chapters(chapters).items()
              if solutions or colab or complete or name not in TEACHERS}
    paths = [p.relative_to('nbs').as_posix() for p in files if p.parts[0] == 'nbs']
    paths += map(chapter_path, chosen)
    places = {path: colab_address(path) if colab else path for path in paths}
    how = Copy(places, solutions=solutions, colab=colab)
    for name, p in chosen.items():
        nb = json.loads(p.read_text(encoding='utf-8'))
        copied = student_copy(nb, name, how)
        copied['cells'][1:1] = install
        files[p.relative_to(root)] = notebook_bytes(copied)
    return files


def install_cell(
    requirement:str, # what pip is to install
)->dict:
    "The cell that installs the package on Colab, and only there."
    line = (f"! [ -e /content ] && pip install -Uqq '{requirement}' fastcore ipywidgets"
            '  # on Google Colab')
    return {'cell_type': 'code', 'id': 'install', 'metadata': {}, 'outputs': [],
            'execution_count': None, 'source': [line]}


def copy_course(
    out:str|Path,
    solutions:bool=False,     # for teachers: nothing is left out
    chapters:Iterable[str]=(),
    colab:bool=False,         # all chapters, and each installs this commit of the package on Colab
    complete:bool=False,      # all chapters, those for teachers too
)->dict[str, list[Path]]:
    """Copy the course, notebooks to `out/nbs` and results to `out/results`.

    Which files were 'written', which 'kept', for somebody changed them.
    """
    out, done = Path(out), {'written': list[Path](), 'kept': list[Path]()}
    out.mkdir(parents=True, exist_ok=True)
    record = out/'.eqtutor-course.json'
    sums = stored_sums(record)
    for name, content in course_files(solutions, tuple(chapters), colab, complete).items():
        target, new = out/name, checksum(content)
        now = checksum(target) if target.is_file() else None
        if now not in (None, new, sums.get(name.as_posix())):
            done['kept'].append(target)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if now != new: write_atomic(target, content)
        sums[name.as_posix()] = new
        done['written'].append(target)
    write_json(record, sums)
    return done


def stored_sums(record:Path)->dict[str, str]:
    "The checksums an earlier copy left; none if there was none."
    try:
        return dict(json.loads(record.read_text(encoding='utf-8')))
    except (OSError, ValueError):
        return {}


def open_lab(
    folder:str|Path,
    arguments:Iterable[str]=(), # for JupyterLab
)->int:
    "Open JupyterLab at the first page of the course in a folder; its exit code."
    if importlib.util.find_spec('jupyterlab') is None:
        raise RuntimeError("JupyterLab is not installed: `pip install 'eqtutor[lab]'`. The "
                           f'notebooks lie in {folder}; any other editor opens them, too.')
    first = '/lab/tree/nbs/index.ipynb' if (Path(folder)/'nbs'/'index.ipynb').exists() else '/lab'
    start = "from runpy import run_module; run_module('jupyterlab', None, '__main__', True)"
    return subprocess.call(python(start, f'--LabApp.default_url={first}', *arguments, str(folder)))
