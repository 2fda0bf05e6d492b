"""Our judge in the place of nbgrader's kernel.

nbgrader autogrades in two steps. The first reads what was submitted: `Submission` builds the
notebook from the teacher's source and takes of the student's the text of the answers alone, so
no output, mark, id or other metadata of a student's reaches the second. That would run the cells;
`Judge` writes verdicts as outputs of the check cells instead, and nbgrader counts them: the number
that an `execute_result` shows. A check without one would count in full, so each gets one.

nbgrader goes from student to student; all that wait are judged side by side meanwhile.
"""
# Plain module: edited by hand, no notebook exports it.
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Integer, Unicode

from ...tutor.exercise import without_formulas
from ...tutor.student import EMPTY_PROOF
from .. import server
from ..folder import HandIn
from ..judge import notebook_cells, read_notebook
from ..limits import LONGEST_PROOF, Limits
from ..results import read_file
from ..sandbox import not_held, without_isolation
from ..tables import shortened, visible
from .markup import inert

STUBS = '', EMPTY_PROOF, 'YOUR ANSWER HERE'


class Submission(NotebookExporter):
    "Reads what was submitted, whatever it is, and has it judged; `Autograde.exporter_class`."

    seed = Integer(0, help='Of the course; each student gets cases of their own.').tag(config=True)
    seconds = Integer(10, help='Time for one answer.').tag(config=True)
    memory = Integer(1024, help='MB for a student, beyond what torch needs.').tag(config=True)
    workers = Integer(0, help='Students side by side; 0 for one a core.').tag(config=True)
    kept = Unicode('judged', help='Folder of the course for results.').tag(config=True)

    def __init__(self, **kwargs:Any):
        super().__init__(**kwargs)
        self.step:Any = self.parent   # nbgrader's `Autograde`
        self.pool:ThreadPoolExecutor|None = None
        self.records = dict[str, Future]()

    def from_filename(self, filename:str, resources:Any=None, **kw:Any)->tuple[Any, Any]:
        "The notebook in a file; of a submission, the teacher's with the student's answers."
        if not self.step._sanitizing: return super().from_filename(filename, resources, **kw)
        record = self.record(filename)
        # the judge finds code also where its cell has lost its id
        judged = {f'ex-{v["id"].replace(".", "-")}': v.get('answer', '') for v in record['parts']}
        about = (resources or {})['nbgrader']
        course = self.step.coursedir
        source = Path(course.format_path(course.source_directory, '.', about['assignment']),
                      f'{about["notebook"]}.ipynb')
        target = Path(course.format_path(course.autograded_directory, about['student'],
                                         about['assignment']))
        for p in target.glob('*'):   # nbgrader has copied what lay beside
            if p.suffix == '.ipynb' or p.name == 'timestamp.txt': continue
            shutil.rmtree(p) if p.is_dir() else p.unlink()
        with Gradebook(about['db_url']) as book:
            stubs = {c.name: c.source for c in
                     book.find_notebook(about['notebook'], about['assignment']).source_cells}
        nb = filled_in(nbformat.read(source, as_version=4), judged | answers_of(Path(filename)),
                       stubs)
        return self.from_notebook_node(nb, resources, **kw)

    def record(self, filename:str)->dict:
        "The verdicts on a submission; those that nbgrader comes to later are judged meanwhile."
        if self.pool is None:
            if why := without_isolation(): raise RuntimeError(why)
            if told := not_held(): self.log.warning(told)
            self.pool = ThreadPoolExecutor(self.workers or os.cpu_count())
            found = sorted(path for own in self.step.assignments.values() for path in own)
            for path in filter(self.waits, found): self.begin(path)
        try:
            return self.begin(filename).result()
        except KeyboardInterrupt:
            self.pool.shutdown(wait=False, cancel_futures=True)
            raise

    def waits(self, path:str)->bool:
        "Will nbgrader autograde this submission? A wrong guess costs time alone."
        about = self.step.init_single_notebook_resources(path)['nbgrader']
        course = self.step.coursedir
        done = course.format_path(course.autograded_directory, about['student'],
                                  about['assignment'])
        if self.step.force or not Path(done).exists(): return True
        with suppress(Exception):   # a damaged time is told when its student's turn has come
            new, old = map(course.get_existing_timestamp, (os.path.dirname(path), done))
            return bool(new and old and new > old)
        return False

    def begin(self, path:str)->Future:
        "Have a notebook judged: its chapter is that of the name that the teacher gave it."
        if path in self.records: return self.records[path]
        about = self.step.init_single_notebook_resources(path)['nbgrader']
        out = Path(self.step.coursedir.root).absolute()/self.kept/about['assignment']
        settings = server.Settings(str(out), Limits(self.seconds, self.memory), about['notebook'],
                                   self.seed)
        h = HandIn(os.path.abspath(path), about['student'],
                   f'{about["student"]}/{about["notebook"]}')
        assert self.pool
        self.records[path] = self.pool.submit(server.result, h, settings)
        return self.records[path]


def answers_of(path:Path)->dict[str, str]:
    "The text of a notebook's answers, by the ids of their cells; none where it cannot be read."
    try:
        cells = notebook_cells(read_notebook(read_file(str(path))))
    except (Exception, RecursionError, MemoryError):
        return {}   # the record says why
    found = dict[str, list[str]]()
    for c in cells: found.setdefault(c['id'], []).append(c['source'])
    return {id: shortened(visible('\n\n'.join(dict.fromkeys(texts))), LONGEST_PROOF)
            for id, texts in found.items() if id}


def filled_in(
    source:NotebookNode,
    answers:dict[str, str],
    stubs:dict[str, str],    # what was released
)->NotebookNode:
    """The teacher's exercises with a student's answers, and nothing else of theirs.

    A text that is not there, or still empty, is the released one: nbgrader gives it no mark.
    """
    cells = []
    for cell in source.cells:
        about = cell.metadata.get('nbgrader', {})
        if not about.get('grade_id'): continue
        if about.get('solution'):
            answer, stub = answers.get(about['grade_id'], ''), stubs.get(about['grade_id'], '')
            if cell.cell_type == 'markdown': answer = inert(answer)
            cell.source = stub if answer.strip() in STUBS else answer
        if cell.cell_type == 'code': cell.outputs, cell.execution_count = [], None
        cells.append(cell)
    return new_notebook(cells=cells, metadata=source.metadata)


class Judge(NbGraderPreprocessor):
    "Verdicts in the place of what cells put out; the first of `Autograde.autograde_preprocessors`."

    def preprocess(self, nb:NotebookNode, resources:Any)->tuple[NotebookNode, Any]:
        "Write each check's verdict; an error where the judge itself failed, which is no zero."
        submission = self.parent
        about, course = resources['nbgrader'], submission.step.coursedir
        path = Path(course.format_path(course.submitted_directory, about['student'],
                                       about['assignment']), f'{about["notebook"]}.ipynb')
        record = submission.record(str(path))
        if record['problem'].startswith(server.FAILED):
            raise RuntimeError(f'{path}: {record["problem"]}')
        verdicts = {v['id']: v for v in record['parts']}
        nb.metadata['eqtutor'] = {'problem': record['problem']}
        for cell in nb.cells:
            told = cell.metadata.get('nbgrader', {})
            if cell.cell_type != 'code' or not told.get('grade') or told.get('solution'): continue
            id = told['grade_id'].removeprefix('check-').replace('-', '.')
            none = {'state': 'not judged', 'marks': 0, 'message': 'a person marks this'}
            verdict = verdicts.get(id, none)
            cell.outputs = outputs_of(verdict, told['points'])
            cell.metadata['eqtutor'] = {k: verdict[k] for k in ('state', 'message')}
        return nb, resources


def outputs_of(verdict:dict, points:float)->list[NotebookNode]:
    "What nbgrader counts, the number, and what a person reads."
    marks = min(max(float(verdict['marks'] or 0), 0.), float(points))
    words = f'{verdict["state"]}: {verdict["message"]}' if verdict['message'] else verdict['state']
    return [new_output('execute_result', {'text/plain': f'{marks:g}'}, execution_count=None),
            new_output('display_data', {'text/plain': without_formulas(words)})]
