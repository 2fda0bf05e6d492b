"""A student's page, made of a result; the template escapes whatever comes from the hand-in."""
# Plain module: edited by hand, no notebook exports it.
from jinja2 import Environment, PackageLoader, StrictUndefined

from .tables import visible

TEMPLATES = Environment(
    loader=PackageLoader('eqtutor', 'grading'), autoescape=True, trim_blocks=True,
    lstrip_blocks=True, undefined=StrictUndefined, finalize=visible)


def result_page(result:dict)->str:
    "The page on a hand-in."
    return TEMPLATES.get_template('page.html').render(record=result)
