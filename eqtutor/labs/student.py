"""Students' notebooks: computed from the author's, without solutions, with nbgrader's metadata."""
# Plain module: edited by hand, no notebook exports it.
import ast
import importlib.util
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..files import checksum, write_atomic, write_json
from ..interpreter import python
from .course import course_chapters, course_folder
from .exercise import chapter_exercises, get_exercise
from .handins import file_name, seed_of
from .origin import own_requirement

EMPTY_PROOF = '*Your proof:*'
# a flag of a cell -> why it is a listing in the student's copy
LEFT_OUT = {'cuda': 'needs a GPU', 'slow': 'takes long', 'browser': 'needs a browser',
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


def student_cell(
    cell_type:str, # 'code' or 'markdown'
    source:str,
)->tuple[str, str, dict]|None:
    "Kind, source and metadata of the student's cell; None if there is none."
    mark = cell_mark(source)
    if mark and not get_exercise(mark[1]):
        raise ValueError(f'exercise {mark[1]} is marked in the notebook, but has no record in '
                         'eqtutor.labs.answers: it is not registered')
    if cell_type == 'code': return student_code(source, mark)
    if mark: return 'markdown', EMPTY_PROOF, nbgrader_cell(mark[1], 'ex', 'markdown')
    task = re.match(r'\*\*Exercise (\d+[a-z]?\.\d+)', source)
    if task and get_exercise(task[1]):
        return cell_type, source, nbgrader_cell(task[1], 'task', 'markdown')
    return cell_type, source, {}


def student_code(source:str, mark:tuple[str, str]|None)->tuple[str, str, dict]|None:
    "A code cell's kind, source and metadata; None for a teacher's, or the package's own."
    plain = re.sub(r'^#\|.*\n?', '', source, flags=re.M).strip('\n')
    flags = set(re.findall(r'^#\|\s*([\w-]+)', source, re.M))
    if flags & {'default_exp', 'teacher'}: return None
    if mark and mark[0] == 'solution':
        return 'code', stub(plain, mark[1]), nbgrader_cell(mark[1], 'ex', 'code')
    if mark: return 'code', plain, nbgrader_cell(mark[1], 'check', 'code')
    why = [LEFT_OUT[flag] for flag in LEFT_OUT if flag in flags]
    if re.search(r'^#\|\s*eval:\s*false', source, re.M): why.append('is not run here')
    if why: return 'markdown', f'*This cell {why[0]}:*\n\n```python\n{plain}\n```', {}
    return 'code', plain, {}


# --- a notebook

def student_copy(
    nb:dict,      # the author's notebook, as JSON
    chapter:str,  # its name, '05_convolution'
)->dict:
    """The student's notebook.

    Solutions replaced by stubs, no outputs, nbgrader's metadata, cell ids by position.
    """
    cells:list[dict] = []
    for cell in nb['cells']:
        own = student_cell(cell['cell_type'], ''.join(cell['source']))
        if own is None: continue
        kind, source, metadata = own
        code:dict[str, Any] = {'outputs': [], 'execution_count': None} if kind == 'code' else {}
        cells.append({'cell_type': kind, 'id': f'{len(cells):08x}', 'metadata': metadata,
                      'source': source.splitlines(keepends=True), **code})
    kernel = {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'}
    about = {'kernelspec': kernel, 'language_info': {'name': 'python'},
             'eqtutor': {'chapter': chapter}}
    return {'cells': cells, 'metadata': about, 'nbformat': 4, 'nbformat_minor': 5}


def notebook_bytes(nb:dict)->bytes:
    "A notebook as a file holds it."
    return (json.dumps(nb, indent=1, ensure_ascii=False) + '\n').encode()


def build(
    out:str|Path,
    chapters:Iterable[str]=(), # numbers or names; all that have exercises if empty
    students:Iterable[str]=(), # each gets copies whose checks draw other numbers
    seed:int=0,                # of the class; `grade` with the same one puts the same cases
)->list[Path]:
    """Write students' notebooks as `out/<chapter>/<chapter>.ipynb`, nbgrader's source folder.

    With `students` they are `out/<student>/<chapter>.ipynb`, as they are handed in.
    """
    written, chapters, students = [], tuple(chapters), tuple(map(folder_name, students))
    for name, path in course_chapters(chapters).items():
        if not chapter_exercises(name) and not chapters: continue
        copied = student_copy(json.loads(path.read_text(encoding='utf-8')), name)
        for student in students:
            own = seeded(copied, seed_of(f'{student}/{name}', seed))
            (target := Path(out)/student/f'{name}.ipynb').parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, notebook_bytes(own))
            written.append(target)
        if students: continue
        text = json.dumps(copied)
        # links between the folders
        text = re.sub(r'(?<=\]\()(?:\.\./)?(?:\w+/)?(\w+)\.ipynb', r'../\1/\1.ipynb', text)
        (folder := Path(out)/name).mkdir(parents=True, exist_ok=True)
        write_atomic(folder/f'{name}.ipynb', notebook_bytes(json.loads(text)))
        written.append(folder/f'{name}.ipynb')
    return written


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
    for name, p in course_chapters(chapters).items():
        if name in TEACHERS and not (solutions or colab or complete): continue
        nb = json.loads(p.read_text(encoding='utf-8'))
        own = nb if solutions else reading_copy(nb, name)
        if not solutions: own['cells'][1:1] = install
        files[p.relative_to(root)] = notebook_bytes(own)
    return files


def reading_copy(
    nb:dict,      # the author's notebook, as JSON
    chapter:str,  # its name
)->dict:
    "The student's notebook, without what only a site or nbgrader understands."
    copied = student_copy(nb, chapter)
    text = '\n'.join(''.join(c['source']) for c in copied['cells'] if c['cell_type'] == 'markdown')
    titles = re.findall(r'^#+ (.*?)[ ]*\{#([\w-]+)[^}\n]*\}', text, re.M)
    places = {anchor: re.sub(r'\s+', '-', title.strip()) for title, anchor in titles}
    for c in copied['cells']:
        source = ''.join(c['source'])
        markdown = c['cell_type'] == 'markdown'
        source = without_anchors(source, places) if markdown else without_marks(source)
        c['source'] = source.splitlines(keepends=True)
    return copied


def install_cell(
    requirement:str, # what pip is to install
)->dict:
    "The cell that installs the package on Colab, and only there."
    line = f"! [ -e /content ] && pip install -Uqq '{requirement}' fastcore  # on Google Colab"
    return {'cell_type': 'code', 'id': 'install', 'metadata': {}, 'outputs': [],
            'execution_count': None, 'source': [line]}


def without_anchors(text:str, places:dict[str, str])->str:
    "Markdown without a site's anchors; links to one lead to the heading, or to the page."
    text = re.sub(r'[ ]*\{#[\w-]+[^}\n]*\}', '', text)
    text = re.sub(r'\]\(#([\w-]+)\)', lambda m: f'](#{places.get(m[1], m[1])})', text)
    return re.sub(r'(?<=\.ipynb)#[\w-]+(?=\))', '', text)


def without_marks(source:str)->str:
    "Code without nbgrader's marks around a solution."
    return re.sub(r'\n?^[ \t]*### (BEGIN|END) SOLUTION[ \t]*$', '', source, flags=re.M)


def copy_course(
    out:str|Path,
    solutions:bool=False,     # for teachers: the author's notebooks as they are
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
