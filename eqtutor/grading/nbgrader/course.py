"""A course folder in which nbgrader works at once: its notebooks, its settings, the steps."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from ...files import write_atomic
from ...tutor.course import chapter_path, course_chapters
from ...tutor.exercise import chapter_exercises
from ...tutor.reading import CodeCell, Links, reader_markdown
from ...tutor.student import Copy, cell_mark, notebook_bytes, student_copy

BEGIN, END = '<!-- BEGIN MARK SCHEME -->', '<!-- END MARK SCHEME -->'
TEMPLATES = Environment(loader=PackageLoader('eqtutor', 'grading/nbgrader'), trim_blocks=True,
                        keep_trailing_newline=True, undefined=StrictUndefined)


def write_course(
    out:str|Path,
    chapters:Iterable[str]=(), # numbers or names; all that have exercises if empty
    zone:str='',               # of deadlines and of Moodle's times, 'Europe/Vienna'; the computer's
    seed:int|None=None,        # of the numbers that are put to answers; a secret one if None
)->dict[str, list[Path]]:
    """Write `source/<chapter>/<chapter>.ipynb`, `nbgrader_config.py` and `README.md`.

    Which files were 'written', which 'kept': what is there stays.
    """
    out, chapters = Path(out), tuple(chapters)
    names = {name: path for name, path in course_chapters(chapters).items()
             if chapter_exercises(name)}
    if not names: raise ValueError(f'no exercises in {", ".join(chapters)}')
    about = {'name': json.dumps(out.resolve().name), 'zone': json.dumps(zone), 'lab': next(iter(names)),
             'seed': secrets.randbelow(2**31) if seed is None else seed}
    files = {Path(name): TEMPLATES.get_template(f'{name}.j2').render(about).encode()
             for name in ('nbgrader_config.py', 'README.md')}
    for name, path in names.items():
        files[Path('source')/name/f'{name}.ipynb'] = notebook_bytes(source_notebook(name, path))
    done = {'written': list[Path](), 'kept': list[Path]()}
    for place, content in files.items():
        kept = (out/place).exists()
        done['kept' if kept else 'written'].append(out/place)
        if kept: continue
        (out/place).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out/place, content)
    return done


def source_notebook(
    name:str,  # of a chapter
    path:Path, # of the author's notebook
)->dict:
    """A student's copy whose tasks end in the solution and how it is marked.

    nbgrader takes a mark scheme out of what it releases, and puts it back where it autogrades:
    formgrader then shows it right above the answer.
    """
    authors = json.loads(path.read_text(encoding='utf-8'))
    place = chapter_path(name)
    links = Links(place, {place: f'{name}.ipynb'})   # all else leads to the site
    nb = student_copy(authors, name, Copy(links.places, nbgrader=True))
    schemes = {f'task-{id.replace(".", "-")}': scheme
               for id, scheme in mark_schemes(authors['cells'], links).items()}
    for cell in nb['cells']:
        about = cell['metadata'].get('nbgrader', {})
        if scheme := schemes.get(about.get('grade_id')):
            text = f'{"".join(cell["source"])}\n\n{BEGIN}\n\n{scheme}\n\n{END}'
            cell['source'] = text.splitlines(keepends=True)
    return nb


def mark_schemes(
    cells:list[dict], # of the author's notebook
    links:Links,
)->dict[str, str]:
    "The solution of each exercise, and how it is marked, as Markdown."
    found = dict[str, str]()
    for cell in cells:
        source = ''.join(cell['source'])
        mark = cell_mark(source)
        if not mark or mark[0] != 'solution': continue
        if cell['cell_type'] == 'code':
            found[mark[1]] = f'**Solution**\n\n```python\n{CodeCell(source).code}\n```'
        else:
            text = re.sub(r'<!--.*?-->|</?details>|<summary>.*?</summary>', '', source, flags=re.S)
            found[mark[1]] = f'**Solution**\n\n{reader_markdown(text, links).strip()}'
    return found


def parts_of_task(
    source:str, # of a task's cell in a graded notebook
)->tuple[str, str]:
    "What is asked, without hints, and the mark scheme."
    task, _, scheme = source.partition(BEGIN)
    task = re.sub(r'<details>.*?</details>', '', task, flags=re.S)
    return task.strip(), scheme.partition(END)[0].strip()
