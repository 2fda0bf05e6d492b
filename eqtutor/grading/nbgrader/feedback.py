"""A student's page: of each exercise the task, the answer, what failed, the marks and a comment.

When the deadline is over for everybody, also the solution and how it is marked.
"""
# Plain module: edited by hand, no notebook exports it.
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from nbconvert.exporters import Exporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from .course import parts_of_task
from .late import LateDays, closed
from .markup import safe_html

TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'grading/nbgrader'), autoescape=True, trim_blocks=True,
    lstrip_blocks=True, undefined=StrictUndefined)
TEMPLATES.filters['markdown'] = lambda text: Markup(safe_html(text))


class Feedback(Exporter):
    "Pages from graded notebooks and the grade book; `GenerateFeedback.exporter_class`."

    def __init__(self, **kwargs:Any):
        super().__init__(**kwargs)
        self.file_extension, self.output_mimetype = '.html', 'text/html'
        self.settled = set[str]()

    def from_filename(self, filename:str, resources:Any=None, **kw:Any)->tuple[Any, Any]:
        "The page of a graded notebook."
        step:Any = self.parent   # nbgrader's `GenerateFeedback`
        about, course = (resources or {})['nbgrader'], step.coursedir
        with Gradebook(about['db_url'], course.course_id) as book:
            if about['assignment'] not in self.settled:
                LateDays(parent=self).settle(book, about['assignment'])
                self.settled.add(about['assignment'])
            now = datetime.now(UTC).replace(tzinfo=None)
            page = page_of(nbformat.read(Path(filename), as_version=4), about, book,
                           closed(book, about['assignment'], now))
        return page, self._init_resources(resources)


def page_of(
    nb:NotebookNode,
    about:dict,       # student, assignment, notebook
    book:Gradebook,
    solutions:bool,
)->str:
    "The page as HTML; whatever a student wrote is escaped, or Markdown that cannot act."
    notebook = book.find_submission_notebook(about['notebook'], about['assignment'],
                                             about['student'])
    grades = {g.name: g for g in notebook.grades}
    comments = {c.name: c.manual_comment for c in notebook.comments if c.manual_comment}
    parts = dict[str, dict]()
    for cell in nb.cells:
        id = cell.metadata.nbgrader.grade_id
        kind, _, number = id.partition('-')
        part = parts.setdefault(number, dict.fromkeys(
            ('task', 'scheme', 'answer', 'code', 'state', 'says', 'comment', 'mark', 'of'), ''))
        if kind == 'task': part['task'], part['scheme'] = parts_of_task(cell.source)
        if cell.metadata.nbgrader.solution:
            part['answer'], part['code'] = cell.source, cell.cell_type == 'code'
            part['comment'] = comments.get(id, '')
        if told := cell.metadata.get('eqtutor'): part |= {'state': told['state'],
                                                         'says': told['message']}
        if grade := grades.get(id):
            open_ = grade.needs_manual_grade and grade.manual_score is None
            part |= {'mark': None if open_ else grade.score, 'of': grade.max_score}
            if not part['state']: part['state'] = (
                'to be marked' if open_ else 'marked' if grade.auto_score is None else 'empty')
    lost = notebook.late_submission_penalty or 0
    return TEMPLATES.get_template('feedback.html').render(
        about=about, parts={n.replace('-', '.'): p for n, p in parts.items()}, lost=lost,
        score=notebook.score - lost, most=notebook.max_score, solutions=solutions,
        problem=nb.metadata.get('eqtutor', {}).get('problem', ''),
        waits=sum(p['of'] for p in parts.values() if p['mark'] is None))
