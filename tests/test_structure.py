"""The notebooks as documents: what would break the site, the package or the reader.

What a page looks like, what is said to those who do not see it, and what it loads is measured in a
browser (`widgets/test_site_pages.py`); code is ruff's. A rule is a function of one notebook that
yields its complaints.
"""
import ast
import posixpath
import re
from itertools import accumulate

import pytest
from links import dead_links
from pages import (
    NBS,
    ROOT,
    chapters,
    directives,
    is_run,
    labels,
    outputs,
    pages,
    parsed,
    prose,
    read_all,
    relative_links,
    unfenced,
)

from tools.site.index import HEAD

BOOK = read_all()
TEXTS = [ROOT/name for name in ('README.md', 'CHANGELOG.md', 'CONTRIBUTING.md')]
BIBLIOGRAPHY = re.findall(r'^@\w+\{([^,\s]+),', (NBS/'references.bib').read_text('utf-8'), re.M)


# --- text

def title(nb):
    "The first cell becomes the page's title and the module's docstring, which is not raw."
    head = re.match(r'# \S.*\n+> (\S.*)', nb.cells[0]['source'])
    if not head or re.search(r'\\|"""|"\s*$', head[1]):
        yield 'first "# Title" and "> one sentence", which has no backslash and no closing quote'

def head(nb):
    "A lesson says what the reader will do, what is needed, with links, and the time."
    said = '\n'.join(nb.markdown()[:3])
    patterns = (r'^\*\*You will\*\*', r'^\*\*You need\*\* .*\]\(',
                r'^\*\*Time\*\* (read|play|exercises) \d+.* minutes')
    for pattern in patterns:
        if re.match('[1-3]_', nb.name) and not re.search(pattern, said, re.M):
            yield f'a lesson has a line {pattern} in its head'

def answers(nb):
    "A question in italics is followed by its answer, folded, in its cell or the next four."
    if not re.match('[1-3]_', nb.name): return
    texts = [c['source'] for c in nb.cells]
    for i, text in enumerate(texts):
        folded = re.sub(r'<details.*?</details>', '', text, flags=re.S)
        asked = re.findall(r'(?<!\*)\*([^*\n]+\?)[^*\n]*\*(?!\*)', folded)
        if nb.cells[i]['cell_type'] != 'markdown' or not asked: continue
        below = '\n'.join(texts[i:i + 5])
        if not re.search(r'<summary>Answer|^#\| fold Answer', below, re.M):
            yield f'no answer: {asked[-1]}'

def folds(nb):
    "A notebook shows each cell by itself: a fold ends in the cell in which it begins."
    for i, c in enumerate(nb.cells):
        tags = re.findall(r'</?details\b', prose(c['source']))
        depths = [0, *accumulate(1 if tag == '<details' else -1 for tag in tags)]
        if c['cell_type'] == 'markdown' and (min(depths) < 0 or depths[-1]):
            yield f'cell {i}: a fold does not end in it; code behind a fold says `#| fold WORDS`'

def references(nb):
    "Quarto resolves `@eq-…` within a page, and `@name` in the bibliography."
    known = {*labels(nb), *BIBLIOGRAPHY}
    for i, source in pages(nb):
        for name in re.findall(r'(?<![\w@.])@([A-Za-z][\w:-]*\w)', prose(source)):
            if name not in known: yield f'cell {i}: @{name} is neither on this page nor a source'

STATED = re.compile(r'\*\*(Definition|Lemma|Proposition|Theorem|Corollary|Rule|Counter-example|'
                    r'Exercise)\b( \d|\.| \()')
ASKED = re.compile(r'> \*\*Exercise \d+[a-z]?\.\d+ \([a-z: ]+, \d marks?, \d+ minutes, '
                   r'(●○○|●●○|●●●)\)\.\*\* \S')

def markup(nb):
    "A statement is a quotation with a head that the page can read, an exercise and its folds too."
    if not re.match('[1-3]_', nb.name): return
    for text in nb.markdown():
        for line in text.split('\n'):
            if not STATED.match(line.lstrip('> ')): continue
            good = ASKED.match(line) if '**Exercise' in line else HEAD.match(line)
            if not good: yield f'not in the form of CONTRIBUTING: {line[:70]!r}'
        if not ASKED.match(text): continue
        rest = re.sub(r'\A(?:>.*(?:\n|\Z))+', '', text).strip()
        if rest and not rest.startswith('<details'): yield f'unquoted in a task: {rest[:50]!r}'


def tables(nb):
    "Each row has a cell for each column: what is too much, Pandoc leaves out. | splits everywhere."
    for i, source in pages(nb):
        for table in re.findall(r'(?:^[ \t]*\|.*(?:\n|\Z)){2,}', unfenced(source), re.M):
            rows = [row.strip().strip('|') for row in table.strip().splitlines()]
            widths = {len(re.split(r'(?<!\\)\|', row)) for row in rows}
            if len(widths) > 1: yield f'cell {i}: a table with rows of {widths} cells'

def next_chapter(nb):
    "A chapter ends with a link to the one after it, the last one with a link to the map."
    order = [*chapters(), 'index.ipynb']
    if nb.name not in order[:-1]: return
    to = posixpath.relpath(order[order.index(nb.name) + 1], posixpath.dirname(nb.name))
    said = [s.partition('**Next')[2] for s in nb.markdown() if '**Next' in s]
    if not said or relative_links(said[-1])[:1] != [to]:
        yield f'the first link after "**Next" does not lead to {to}'


# --- what is stored

VALUES = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Tuple, ast.List,
          ast.Dict, ast.JoinedStr)

def stored_outputs(nb):
    "Pages show what is stored. A cell that draws, prints, or ends in a value has an output."
    for c in nb.code():
        body, flags = parsed(c['source']), directives(c['source'])
        if not body or not is_run(c['source']) or c['outputs']: continue
        last = body[-1].value if isinstance(body[-1], ast.Expr) else None
        shown = isinstance(last, VALUES) and not c['source'].rstrip().endswith(';')
        said = ast.unparse(body[-1])
        if 'fig-cap' in flags or shown or re.match(r'(for .*:\s+)?print\(', said):
            yield f'not executed: nothing is stored of {said!r}'

NOISE = re.compile(
    r'(?<![\w.:/-])/(?:root|home|Users|work|tmp|private|var/folders)/\w*'   # a path of one machine
    r'|\d\s?(?:ms|µs|ns)\b|\d\.\d+\s?(?:s|sec|secs|seconds)\b|\d\s?it/s\b|\d+%\||'
    r'\b\d\d:\d\d:\d\d\b|\bWall time\b|\bCPU times\b|\bper loop\b')

def stored_noise(nb):
    "Times and paths of one machine differ from run to run, and a view of a widget needs a kernel."
    for i, o in outputs(nb):
        data = o.get('data', {})
        said = ''.join(o.get('text', '')) + ''.join(data.get('text/plain', ''))
        said += ''.join(data.get('text/markdown', ''))
        if found := NOISE.search(said): yield f'cell {i} stores {found[0]!r}'
        if 'application/vnd.jupyter.widget-view+json' in data: yield f'cell {i} stores a view'


RULES = [title, head, answers, folds, references, markup, tables, next_chapter, stored_outputs,
         stored_noise]


@pytest.mark.parametrize('name', BOOK)
def test_notebook(name):
    complaints = [f'{rule.__name__}: {text}' for rule in RULES for text in rule(BOOK[name])]
    assert not complaints, '\n'.join([f'nbs/{name}', *complaints])


def test_links_of_the_notebooks_lead_somewhere():
    "Within nbs/: the site has nothing else."
    assert len(BOOK) > 40 and dead_links([NBS/name for name in BOOK], NBS) == {}

def test_links_of_the_other_documents_lead_somewhere():
    assert dead_links(TEXTS, ROOT, known=[NBS/name for name in BOOK]) == {}

def test_dead_links_are_found(tmp_path):
    (tmp_path/'b.md').write_text('# B\n\n## Two *words*\n\n[out](https://x.org) [up](#two-words)')
    (tmp_path/'c.html').write_text('<h1 id="c">C</h1><a href="#d">d</a>\n<a href="b.md">b</a>')
    bad = ['none.md', 'b.md#none', '#none', '../a.md', '/b.md', 'none.png']
    fine = '[x](b.md#two-words) `[x](none)` [x](c.html#c)<img src="none.png">'
    (tmp_path/'a.md').write_text(' '.join(f'[x]({b})' for b in bad[:-1]) + fine)
    files = sorted(tmp_path.iterdir())
    assert dead_links(files, tmp_path) == {'a.md': bad, 'c.html': ['#d']}
