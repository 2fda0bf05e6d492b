"""Every number of README and of chapters 30, 30b and 99 once more, from the files in `results`:

    python tools/quote_results.py

README's tables and the sentence about escnn are written again, and the chapters are run again,
figures and all. Git then shows what a new result file has changed.
"""
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eqtutor.files import provenance_mark, with_note
from eqtutor.papers.reproduce import Place
from eqtutor.papers.standing import headline

ROOT = Path(__file__).parents[1]
CHAPTERS = [ROOT/'nbs'/name for name in ('4_course/30_results.ipynb',
                                         '4_course/30b_when_equivariance_pays.ipynb',
                                         '6_reference/99_every_table.ipynb')]
Rows = list[dict[str, Any]]


def bench(
    name:str, # of a file in results/bench
)->dict[str, Any]:
    return json.loads((ROOT/'results'/'bench'/f'{name}.json').read_text(encoding='utf-8'))


def first_rows(record:dict[str, Any])->Rows: return next(iter(record['tables'].values()))


def costs(rows:Rows)->Rows:
    "README's table of costs."
    return [{'network': f'`{r["name"]}`', 'parameters': f'{r["parameters"]:,}',
             '× time': f'{r["time"]:.1f}', '× memory': f'{r["memory_ratio"]:.1f}'} for r in rows]


def published(rows:Rows)->Rows:
    "README's table of ours beside the authors' code."
    def error(r:dict[str, Any], who:str)->str:
        return f'{r["equivariance"][who]["perturbed"]:.0e}' if r['equivariance'] else '–'
    return [{'network': f'`{r["network"]}`', '× time': f'{r["time"]:.2f}', '±': f'{r["noise"]:.0%}',
             '× memory': f'{r["memory_ratio"]:.2f}',
             'error of equivariance, ours': error(r, 'ours'), 'theirs': error(r, 'published')}
            for r in rows]


TABLES:dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    'costs': ('networks', costs), 'published': ('published', published)}
ESCNN = (r'(takes )[\d.]+(?: †)?( times as long as the plain[^;]*; escnn\'s takes )'
         r'[\d.]+(?: †)?( times)')


COUNTED = 'network', 'parameters'   # what is not measured


def table(
    rows:Rows,
    mark:str='', # of their record
)->str:
    "Markdown; numbers to the right; what the mark says below."
    heads = [name if name in COUNTED else f'{name}{mark}' for name in rows[0]]
    head, *body = (f'| {" | ".join(line)} |' for line in (heads, *(row.values() for row in rows)))
    lines = [head, '|---|' + '---:|'*(len(rows[0]) - 1), *body]
    return with_note('\n'.join(lines)) + '\n'


def renewed(
    text:str, # README
)->str:
    "The text with the numbers of the result files."
    for mark, (name, make) in TABLES.items():
        record = bench(name)
        new = table(make(first_rows(record)), provenance_mark(record))
        written, found = re.subn(rf'(<!-- {mark} -->\n)(\|.*\n)+(\n†.*\n)?',
                                 lambda m, new=new: m[1] + new, text)
        if found != 1: raise ValueError(f'expected one table after <!-- {mark} -->, got {found}')
        text = written
    place = Place(ROOT/'results', ROOT/'results'/'unfinished')
    said = with_note(headline(place)) + '\n'
    text, found = re.subn(r'(<!-- standing -->\n)(- .*\n)+(\n†.*\n)?', lambda m: m[1] + said, text)
    if found != 1: raise ValueError(f'expected one list after <!-- standing -->, got {found}')
    escnn = bench('escnn')
    ours, theirs = (f'{r["time"]:.2f}' for r in first_rows(escnn)[1:])
    mark = provenance_mark(escnn)
    text, found = re.subn(ESCNN, rf'\g<1>{ours}{mark}\g<2>{theirs}{mark}\g<3>', text)
    if found != 1: raise ValueError('expected one sentence about escnn')
    return text


def run_again(chapter:Path)->None:
    "Run a notebook and keep what it shows; cells that want data or a GPU keep their outputs."
    os.environ.setdefault('EQTUTOR_STATIC', '1')   # a view that needs a kernel is not stored
    from execnb.nbio import read_nb, write_nb
    from execnb.shell import CaptureShell
    from nbdev.clean import nbdev_clean
    from nbdev.config import get_config
    flags = '|'.join(get_config().tst_flags.split())
    left_out = re.compile(rf'^#\| *({flags}|eval: *false)\b', re.M)
    def skips(cell)->bool: return cell.cell_type != 'code' or bool(left_out.search(cell.source))
    notebook = read_nb(chapter)
    CaptureShell(chapter).run_all(notebook, exc_stop=True, preproc=skips)
    write_nb(notebook, chapter)
    nbdev_clean(str(chapter))


if __name__ == '__main__':
    readme = ROOT/'README.md'
    readme.write_text(renewed(readme.read_text(encoding='utf-8')), encoding='utf-8')
    for chapter in CHAPTERS: run_again(chapter)
