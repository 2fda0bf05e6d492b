"""Rules of a page: a rule is a function of one notebook that yields its complaints.

What a page looks like, what is said to those who do not see it, and what it loads is measured in a
browser (`widgets/test_site_pages.py`); links are `links.py`'s; code is ruff's; public names without
a docstring are found by `site_tools/test_names.py`.
"""
import ast
import posixpath
import re
from itertools import accumulate

from pages import (
    NBS,
    chapters,
    code_lines,
    directives,
    is_export,
    is_run,
    kinds_of,
    labels,
    outputs,
    pages,
    parsed,
    prose,
    relative_links,
    slugs,
    stored,
    texts,
    unfenced,
)


def twice(names): return sorted({n for n in names if names.count(n) > 1})


# --- text

def title(nb):
    "The first cell becomes the page's title and the module's docstring, which is not raw."
    head = re.match(r'# \S.*\n+> (\S.*)', nb.cells[0]['source'])
    if nb.cells[0]['cell_type'] != 'markdown' or not head:
        yield 'the first cell must be "# Title" and "> one sentence"'
    elif re.search(r'\\|"""|"\s*$', head[1]):
        yield 'a subtitle has no backslash and no closing quote'

def folds(nb):
    "A notebook shows each cell by itself: a fold ends in the cell in which it begins."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'markdown': continue
        tags = re.findall(r'</?details\b', prose(c['source']))
        depths = [0, *accumulate(1 if tag == '<details' else -1 for tag in tags)]
        if min(depths) < 0 or depths[-1]:
            yield f'cell {i}: a fold does not end in it; code behind a fold says `#| fold WORDS`'

def unique(nb):
    "Cells have ids, labels and headings have anchors, each its own."
    every = [c['id'] for c in nb.cells if 'id' in c], labels(nb), slugs(nb)
    for name in (name for names in every for name in twice(names)): yield f'{name} is there twice'

REFERENCES = (NBS/'references.bib').read_text(encoding='utf-8')
BIBLIOGRAPHY = re.findall(r'^@\w+\{([^,\s]+),', REFERENCES, re.M)

def references(nb):
    "Quarto resolves `@eq-…` within a page, and `@name` in the bibliography."
    known = {*labels(nb), *BIBLIOGRAPHY}
    for i, source in pages(nb):
        for name in re.findall(r'(?<![\w@.])@([A-Za-z][\w:-]*\w)', prose(source)):
            if name not in known: yield f'cell {i}: @{name} is neither on this page nor a source'

def tables(nb):
    "Each row has a cell for each column: what is too much, Pandoc leaves out. | splits everywhere."
    for i, source in pages(nb):
        for table in re.findall(r'(?:^[ \t]*\|.*(?:\n|\Z)){2,}', unfenced(source), re.M):
            rows = [row.strip().strip('|') for row in table.strip().splitlines()]
            widths = [len(re.split(r'(?<!\\)\|', row)) for row in rows]
            if not re.fullmatch(r'[\s|:-]+', rows[1]): yield f'cell {i}: no header above {rows[1]}'
            if len({*widths}) > 1: yield f'cell {i}: a table with rows of {widths} cells'

def next_chapter(nb):
    "A chapter ends with a link to the one after it, the last one with a link to the map."
    order = [*chapters(), 'index.ipynb']
    if nb.name not in order[:-1]: return
    said = [s.partition('**Next')[2] for s in nb.markdown() if '**Next' in s]
    to = posixpath.relpath(order[order.index(nb.name) + 1], posixpath.dirname(nb.name))
    if not said or relative_links(said[-1])[:1] != [to]:
        yield f'the first link after "**Next" does not lead to {to}'


# --- cells of code

INSTALL = ("! [ -e /content ] && pip install -Uqq 'eqtutor[train]' fastcore ipywidgets"
           '  # on Colab')

def installs(nb):
    "On Colab, and only there, a chapter installs the package: in a cell that nobody else sees."
    if '/' not in nb.name: return
    pip = re.compile(r'^\s*[!%].*\bpip install', re.M)
    cells = [c['source'] for c in nb.code()]
    if [i for i, source in enumerate(cells) if pip.search(source)] != [0]:
        yield f'the first code cell, and no other, installs the package: {INSTALL}'
        return
    flags = directives(cells[0])
    unseen = 'default_exp' in flags or {'hide', 'teacher'} <= flags.keys()
    if code_lines(cells[0]) != [INSTALL] or flags.get('eval') != 'false' or not unseen:
        yield (f'the cell that installs is {INSTALL!r} with `#| eval: false`, and '
               '`#| default_exp` or `#| hide` and `#| teacher`')


WORDS = re.compile(r'\b(broken|breaks?|forgets|wrong|not turned|not permuted|twin)\b', re.I)

def faults_are_meant(nb):
    "A widget that shows a fault, or says so in its title, is asked for one: or its cell raises."
    for i, html in stored(nb, 'text/html'):
        named = re.findall(r'<div id="eqtutor-[^>]*aria-label="([^"]*)"', html)
        if not named or '.expect_broken()' in nb.cells[i]['source']: continue
        if '✗' in html or any(map(WORDS.search, named)):
            yield f'cell {i}: {named} shows or promises a fault: .expect_broken()'


# --- what is stored

def file_size(nb):
    if nb.size >= 1_000_000: yield f'{nb.size:,} bytes, 1,000,000 are the limit: smaller figures'

def stored_widgets(nb):
    "They need a kernel."
    for i, _ in stored(nb, 'application/vnd.jupyter.widget-view+json'):
        yield f'cell {i} stores a widget view'

MACHINE = re.compile(r'(?<![\w.:/-])/(?:root|home|Users|work|tmp|private|var/folders)/\w*')

def machine_paths(nb):
    for i, c in enumerate(nb.cells):
        for text in [c['source'], *map(texts, c.get('outputs', []))]:
            for path in MACHINE.findall(text): yield f'cell {i}: {path}… is a path of one machine'

TIME = re.compile(r'\d\s?(?:ms|µs|ns)\b|\d\.\d+\s?(?:s|sec|secs|seconds)\b|\d\s?it/s\b|\d+%\||'
                  r'\b\d\d:\d\d:\d\d\b|\bWall time\b|\bCPU times\b|\bper loop\b')

def stored_times(nb):
    "Times differ from run to run: in a page they are noise in every diff."
    for i, o in outputs(nb):
        # a style sheet has times of its own
        data = {k: v for k, v in o.get('data', {}).items() if k != 'text/html'}
        if match := TIME.search(texts({**o, 'data': data})):
            yield f'cell {i} stores a time: {match[0]!r}'

VALUES = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Tuple, ast.List,
          ast.Dict, ast.JoinedStr)
DRAWS = (r'plot_\w+|Picture|Markdown|HTML|Image|SVG|show|tight_layout|suptitle|display'
         r'|RotateAndPermute|CayleyExplorer|ClickAndTurn|EquivarianceMeter')
PICTURES = {'image/png', 'image/svg+xml', 'text/html', 'text/markdown'}

def calls_one(b, names):
    if not isinstance(b, ast.Expr) or not isinstance(b.value, ast.Call): return False
    return bool(re.fullmatch(names, ast.unparse(b.value.func).split('.')[-1]))

def prints(b):
    "Does a statement print for certain: in the open, in a loop, in a `with` that lets it out?"
    inside = isinstance(b, (ast.For, ast.With)) and 'redirect' not in ast.unparse(b)
    return any(map(prints, b.body)) if inside else calls_one(b, 'print')

def stored_outputs(nb):
    "Pages show what is stored. A cell that ends in a plain value, prints or draws has an output."
    run = [c for c in nb.code() if is_run(c['source'])]
    shown = [c for c in run if not is_export(c['source']) and parsed(c['source'])]
    if shown and not any(c.get('outputs') for c in run): yield 'no stored outputs at all'
    for c in shown:
        body, end = parsed(c['source']), code_lines(c['source'])[-1]
        value = not c['source'].rstrip().endswith(';') and isinstance(body[-1], ast.Expr)
        if value and isinstance(body[-1].value, VALUES) and not c.get('outputs'):
            yield f'not executed: {end!r} has no stored output'
        streams = [o for o in c.get('outputs', []) if o['output_type'] == 'stream']
        if any(map(prints, body)) and not streams:
            yield f'prints, and stores nothing printed: {end!r}'
        if value and calls_one(body[-1], DRAWS) and not kinds_of(c) & PICTURES:
            yield f'draws, and stores no picture: {end!r}'


RULES = [title, folds, unique, references, tables, next_chapter, installs, faults_are_meant,
         file_size, stored_widgets, machine_paths, stored_times, stored_outputs]
