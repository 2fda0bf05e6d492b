"""Pages and files made of results: a student's page, the page on which proofs are marked, a zip."""
# Plain module: edited by hand, no notebook exports it.
import io
import zipfile
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..tutor.course import exercise_order
from .handins import student_of

YEAR = 1980, 1, 1, 0, 0, 0   # of every file in a zip: the same pages make the same zip


def visible(text:Any)->Any:
    "Text without what moves a cursor or is half a character, shown as Python would; others as is."
    if not isinstance(text, str): return text
    return ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text)


TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'grading'), autoescape=True, trim_blocks=True,
    lstrip_blocks=True, undefined=StrictUndefined, finalize=visible)


def feedback_page(record:dict)->str:
    "The page a student gets; the template escapes whatever comes from the submission."
    plain = {'comment': '', 'late': False, 'counts': 100}
    return TEMPLATES.get_template('feedback.html').render(record=plain | record)


def marking_page(records:list[dict])->str:
    "The page on which a person marks proofs: all answers to one, then the next; a key a mark."
    proofs:dict[str, list[dict]] = {}
    for r in records:
        for v in r['parts']:
            if v['state'] not in ('by hand', 'marked by hand'): continue
            mark = '' if v['marks'] is None else f'{v["marks"]:g}'
            proofs.setdefault(v['id'], []).append(v | {'name': r['name'], 'mark': mark})
    ordered = {id: proofs[id] for id in sorted(proofs, key=exercise_order)}
    return TEMPLATES.get_template('proofs.html').render(proofs=ordered)


def moodle_feedback(records:list[dict], pages:Path)->bytes:
    "The students' pages as a zip that Moodle takes: a folder a student, called as in its own zip."
    with zipfile.ZipFile(text := io.BytesIO(), 'w', zipfile.ZIP_DEFLATED) as z:
        for r in records:
            page = pages/f'{r["name"]}.html'
            if r.get('origin') != 'moodle' or not page.exists(): continue
            student = student_of(r['name'])
            rest = r['name'][len(student) + 1:].replace('/', '-')
            place = f'{student}_assignsubmission_file_/{rest}.html'
            z.writestr(zipfile.ZipInfo(place, YEAR), page.read_bytes())
    return text.getvalue()
