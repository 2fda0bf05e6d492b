"""The notebooks as documents: what would break the site, the package or the reader, found without building any of them.

A rule is a function of one notebook that yields its complaints. Each is tried on every notebook, and on examples that
break it.
"""
import ast
import json
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NBS = ROOT/'nbs'


@dataclass
class Notebook:
    name: str                                     # path in nbs/
    cells: list
    metadata: dict = field(default_factory=dict)
    files: set = field(default_factory=set)       # every file in nbs/, to resolve links
    book: dict = field(default_factory=dict)      # every notebook by name, to resolve anchors and imports
    size: int = 0                                 # bytes on disk

    def markdown(self): return [c['source'] for c in self.cells if c['cell_type'] == 'markdown']
    def code(self): return [c for c in self.cells if c['cell_type'] == 'code']


def read(path):
    content = json.loads(path.read_text(encoding='utf-8'))
    cells = [dict(c, source=''.join(c['source'])) for c in content['cells']]
    return Notebook(path.relative_to(NBS).as_posix(), cells, content['metadata'], size=path.stat().st_size)


def read_all():
    hidden = lambda p: any(part[0] in '._' for part in p.relative_to(NBS).parts)
    found = sorted(p for p in NBS.rglob('*') if p.is_file() and not hidden(p))
    files = {p.relative_to(NBS).as_posix() for p in found}
    book = {nb.name: nb for nb in (read(p) for p in found if p.suffix == '.ipynb')}
    for nb in book.values(): nb.files, nb.book = files, book
    return book


# --- parts of a cell

def directives(source): return dict(re.findall(r'^#\|\s*([\w-]+):?[ \t]*(.*)$', source, re.M))

def is_export(source): return bool({'export', 'exports', 'exporti'} & directives(source).keys())

def is_run(source):
    "Is the cell run in every test and whenever outputs are stored?"
    d = directives(source)
    return d.get('eval', '').strip() != 'false' and not {'cuda', 'slow', 'browser', 'data'} & d.keys()

def parse(source):
    "The cell's statements; none for a cell in another language."
    if re.match(r'\s*(#\|.*\n\s*)*%%', source): return []
    return ast.parse(re.sub(r'^\s*[%!].*$', '', source, flags=re.M)).body

def parsed(source):
    try: return parse(source)
    except SyntaxError: return []   # `syntax` reports it

def prose(source):
    "Markdown without code and formulas, whose brackets and @ mean something else."
    for pattern in (r'^(```+|~~~+).*?^\1', r'(`+).*?\1', r'<code>.*?</code>', r'\$\$.*?\$\$', r'\$[^$\n]+\$'):
        source = re.sub(pattern, '', source, flags=re.M | re.S)
    return source

def code_lines(source): return [s for s in source.splitlines() if s.strip() and not s.strip().startswith('#')]

def texts(output):
    "What an output shows as text; pictures, also those inside HTML, are left out."
    data = output.get('data', {})
    parts = [output.get('text', '')] + [v for k, v in data.items() if not k.startswith('image/') or 'svg' in k]
    text = '\n'.join(''.join(p) if isinstance(p, list) else p if isinstance(p, str) else json.dumps(p) for p in parts)
    return re.sub(r'data:[\w/+-]+;base64,[\w+/=]+', '', text)

def outputs(nb): return [(i, o) for i, c in enumerate(nb.cells) for o in c.get('outputs', [])]


# --- rules

def syntax(nb):
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        try: parse(c['source'])
        except SyntaxError as e: yield f'cell {i}: {e}'

def title(nb):
    "The first cell becomes the page's title and the module's docstring, which is not raw."
    first = nb.cells[0] if nb.cells else dict(cell_type='', source='')
    found = re.match(r'# \S.*\n+> (\S.*)', first['source'])
    if first['cell_type'] != 'markdown' or not found: yield 'the first cell must be "# Title" and "> one sentence"'
    elif '\\' in found[1] or '"""' in found[1] or found[1].rstrip().endswith('"'):
        yield 'a subtitle has no backslash and no closing quote'

def labels(nb):
    "All anchors of a page: written ones, and those of its headings as Pandoc makes them."
    found = []
    for c in nb.cells:
        if c['cell_type'] == 'code': found += re.findall(r'^#\|\s*label:\s*([\w-]+)', c['source'], re.M)
        else:
            found += re.findall(r'\{[^}\n]*#([\w:-]+)', prose(c['source'])) + re.findall(r'\bid="([^"]+)"', c['source'])
    return found

def slugs(nb):
    for source in nb.markdown():
        for heading in re.findall(r'^#+\s+(.*)$', re.sub(r'^```.*?^```', '', source, flags=re.M | re.S), re.M):
            slug = re.sub(r'[^\w\s.-]', '', re.sub(r'\{[^}]*\}\s*$', '', heading).lower()).strip()
            yield re.sub(r'^[^a-z]*', '', re.sub(r'\s+', '-', slug))

def unique_labels(nb):
    found = labels(nb)
    for label in sorted({x for x in found if found.count(x) > 1}): yield f'label {label} is there twice'

KINDS = 'eq|fig|tbl|sec|thm|lem|cor|prp|def|exm|exr|rem|lst'

def references(nb):
    "Quarto resolves `@eq-…` within a page only."
    known = set(labels(nb))
    for source in nb.markdown():
        for ref in re.findall(rf'(?<![\w@])@((?:{KINDS})-[\w-]*\w)', prose(source)):
            if ref not in known: yield f'@{ref} is nowhere on this page'

def relative_links(markdown):
    text = prose(markdown)
    found = re.findall(r'\]\(\s*<?([^)\s>]+)', text) + re.findall(r'(?:href|src)="([^"]+)"', text)
    return [link for link in found if not re.match(r'https?:|mailto:|data:', link)]

def links(nb):
    for source in nb.markdown():
        for link in relative_links(source):
            file, _, anchor = link.partition('#')
            target = posixpath.normpath(posixpath.join(posixpath.dirname(nb.name), file)) if file else nb.name
            page = nb if target == nb.name else nb.book.get(target)
            if not page and target not in nb.files: yield f'{link} leads nowhere in nbs/'
            elif anchor and page and anchor not in {*labels(page), *slugs(page)}: yield f'{link}: no such anchor'

def images(nb):
    for source in nb.markdown():
        text = prose(source)
        for alt in re.findall(r'!\[(.*?)\]\(', text, re.S):
            if not alt.strip(): yield 'a picture without alt text'
        for tag in re.findall(r'<img\b[^>]*>', text):
            if not re.search(r'\balt="[^"]+"', tag): yield f'no alt text: {tag[:60]}'
        if 'data:image' in text: yield 'a picture pasted into markdown; draw it in a cell, or store it as a file'

def import_cells(nb):
    "nbdev_docs runs every cell that has an import, on its own: nothing else may stand there but definitions."
    for i, c in enumerate(nb.cells):
        source, imports = c['source'], (ast.Import, ast.ImportFrom)
        if c['cell_type'] != 'code' or 'nbdev_export()' in source or directives(source).get('eval') == 'false': continue
        body = parsed(source)
        inner = any(isinstance(x, imports) for b in body for x in ast.walk(b))
        top = any(isinstance(b, imports) for b in body)
        allowed = imports if top else (ast.FunctionDef, ast.ClassDef)
        if inner and not all(isinstance(b, allowed) for b in body): yield f'cell {i} mixes imports with other code'

def own_imports(node):
    "Modules of eqtutor that an import statement names."
    if isinstance(node, ast.Import): names = [a.name for a in node.names]
    elif not isinstance(node, ast.ImportFrom): names = []
    elif node.module == 'eqtutor': names = [f'eqtutor.{a.name}' for a in node.names]
    else: names = [node.module or '']
    return [n.removeprefix('eqtutor.') for n in names if n.startswith('eqtutor.') and n != 'eqtutor.__version__']

def import_order(nb):
    "Exported cells import only from chapters of a lower number."
    module = lambda other: ''.join(directives(c['source']).get('default_exp', '') for c in other.code()).strip()
    order = {module(other): posixpath.basename(name) for name, other in nb.book.items()}
    here = posixpath.basename(nb.name)
    for c in nb.code():
        if not is_export(c['source']): continue
        for name in (n for b in parsed(c['source']) for x in ast.walk(b) for n in own_imports(x)):
            if name not in order: yield f'no notebook exports eqtutor.{name}'
            elif order[name] >= here: yield f'imports eqtutor.{name}, which comes later ({order[name]})'

def docstrings(nb):
    for c in nb.code():
        if not is_export(c['source']): continue
        for b in parsed(c['source']):
            public = isinstance(b, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not b.name.startswith('_')
            if public and not ast.get_docstring(b): yield f'exported without a docstring: {b.name}'

def cell_length(nb):
    for i, c in enumerate(nb.cells):
        n = len(code_lines(c['source'])) if c['cell_type'] == 'code' else 0
        if n > 30: yield f'cell {i} has {n} lines of code, 30 are the limit'

def file_size(nb):
    if nb.size >= 1_000_000: yield f'{nb.size:,} bytes, 1,000,000 are the limit: fewer or smaller figures'

def stored_errors(nb):
    for i, o in outputs(nb):
        if o['output_type'] == 'error': yield f"cell {i} stores an error: {o.get('ename')}"

def stored_widgets(nb):
    "A widget view needs a kernel, and a stored widget state breaks nbdev_docs."
    if 'widgets' in nb.metadata: yield 'widget state in the metadata'
    for i, o in outputs(nb):
        if 'application/vnd.jupyter.widget-view+json' in o.get('data', {}): yield f'cell {i} stores a widget view'

def machine_paths(nb):
    machine = re.compile(r'(?<![\w.:/-])/(?:root|home|Users|work|tmp|private|var/folders)/\w*')
    for i, c in enumerate(nb.cells):
        for text in [c['source'], *map(texts, c.get('outputs', []))]:
            for path in machine.findall(text): yield f'cell {i}: {path}… is a path of one machine'

def stored_times(nb):
    "Times differ from run to run: in a page they are noise in every diff."
    time = re.compile(r'\d\s?(?:ms|µs|ns)\b|\d\.\d+\s?(?:s|sec|secs|seconds)\b|\d\s?it/s\b|\d+%\||\b\d\d:\d\d:\d\d\b'
                      r'|\bWall time\b|\bCPU times\b|\bper loop\b')
    for i, o in outputs(nb):
        data = {k: v for k, v in o.get('data', {}).items() if k != 'text/html'}   # a style sheet has times of its own
        if found := time.search(texts({**o, 'data': data})): yield f'cell {i} stores a time: {found[0]!r}'

def stored_outputs(nb):
    "Pages show what is stored. A cell that ends in a plain value has an output; what a call shows is not known here."
    code = [c for c in nb.code() if is_run(c['source']) and 'nbdev_export()' not in c['source']]
    values = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Tuple, ast.List, ast.Dict,
              ast.JoinedStr)
    shown = [c for c in code if not is_export(c['source']) and parsed(c['source'])]
    if shown and not any(c.get('outputs') for c in code): yield 'no stored outputs at all'
    for c in shown:
        last = parsed(c['source'])[-1]
        value = isinstance(last, ast.Expr) and isinstance(last.value, values) and not c['source'].rstrip().endswith(';')
        if value and not c.get('outputs'): yield f'not executed: {code_lines(c["source"])[-1]!r} has no stored output'


# --- a notebook that keeps every rule, and one for each rule that breaks it

def md(source): return dict(cell_type='markdown', source=source)
def py(source, *outs): return dict(cell_type='code', source=source, outputs=list(outs))
def says(text): return dict(output_type='stream', name='stdout', text=[text])
def shows(**data): return dict(output_type='display_data', data={k.replace('__', '/'): v for k, v in data.items()})

HEAD = md('# Title\n\n> One sentence')
GOOD = Notebook('1_part/02_good.ipynb', [
    HEAD, py('#| default_exp good'), py('#| export\nimport math\nfrom eqtutor.first import one'),
    md('## A part {#sec-part}\n\n$$ a[i](x) $$ {#eq-one}\n\nBy @eq-one, `f[0](x)`, <code>f[0](x)</code>, ![a cat](cat.png)'),
    md('See [there](01_first.ipynb#sec-a), [up](#sec-part), [it](#a-part), [elsewhere](https://x.org).'),
    py('#| export\ndef f(x):\n    "Doubles `x`."\n    import os\n    return 2*x'),
    py('%time f(2)\nf(2)', says('4')), py('f(1), 2', says('(2, 2)')),
    py('#| cuda\nx'), py('%%bash\nls -l'), py('#| hide\nimport nbdev; nbdev.nbdev_export()')], size=10)
FIRST = Notebook('1_part/01_first.ipynb', [md('# First\n\n> It\n\n## A {#sec-a}'), py('#| default_exp first')])
LATER = Notebook('1_part/03_later.ipynb', [HEAD, py('#| default_exp later')])
for nb in (GOOD, FIRST, LATER): nb.files, nb.book = {'1_part/cat.png'}, {n.name: n for n in (FIRST, GOOD, LATER)}

BAD = {
    syntax: [py('def f(:')],
    title: [*([md(t)] for t in ('## T\n\n> No', '# T', '# T\n\n> A "quote"', '# T\n\n> In $\\mathbb{Z}$')), [py('#')]],
    unique_labels: [md('$$ a $$ {#eq-a}\n\n$$ b $$ {#eq-a}')],
    references: [md('By @eq-nowhere')],
    links: [[md(f'[x]({to})')] for to in ('no.ipynb', '01_first.ipynb#sec-b', '#sec-c', '../README.md', '/cat.png')],
    images: [[md('![](cat.png)')], [md('<img src="cat.png">')], [md('![a cat](data:image/png;base64,AAAA)')]],
    import_cells: [[py(s)] for s in ('import os\nx = 1', 'try: import os\nfinally: pass', 'def f(): import os\nf()')],
    import_order: [[py(f'#| export\n{s}')] for s in
                   ('from eqtutor.later import x', 'import eqtutor.never', 'from eqtutor import later')],
    docstrings: [[py('#| export\ndef f(x): return x')], [py('#| exports\nclass A:\n    x = 1')]],
    cell_length: [py('x = 1\n'*31)],
    file_size: 1_000_001,
    stored_errors: [py('x', dict(output_type='error', ename='NameError'))],
    stored_widgets: [py('x', shows(**{'application__vnd.jupyter.widget-view+json': {}}))],
    machine_paths: [[py('open("/tmp/x")')], [py('x', says('"/home/ann/x"'))], [py('x', shows(text__html='"/root/x"'))]],
    stored_times: [[py('x', says(t))] for t in ('0.52 s', '12 ms', 'Wall time: 2', '40%|####', '12:30:01', '31.2it/s')],
    stored_outputs: [[py('x = 1')], [py('f()', says('1')), py('x')]],
}
RULES = list(BAD)
BOOK = read_all()


def broken(rule):
    "Notebooks that break `rule`, each the good one with other cells."
    bad = BAD[rule]
    if isinstance(bad, int): return [Notebook(GOOD.name, GOOD.cells, size=bad)]
    variants = bad if isinstance(bad[0], list) else [bad]
    return [Notebook(GOOD.name, v if rule is title else [HEAD, *v], files=GOOD.files, book=GOOD.book) for v in variants]


def test_there_are_notebooks(): assert BOOK

@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
@pytest.mark.parametrize('name', BOOK)
def test_notebook(name, rule):
    complaints = list(rule(BOOK[name]))
    assert not complaints, '\n'.join([f'nbs/{name}', *complaints])

@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_rule_accepts_a_good_notebook(rule): assert list(rule(GOOD)) == []

@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_rule_can_fail(rule):
    for nb in broken(rule): assert list(rule(nb)), f'{rule.__name__} accepts {nb.cells[-1]["source"]!r}'

def test_widget_state_is_found(): assert list(stored_widgets(Notebook('x.ipynb', [], metadata=dict(widgets={}))))


def broken_links(text, base):
    "Relative links and pictures of a markdown file that lead to no file."
    return [link for link in relative_links(text) if not (base/link.partition('#')[0]).exists()]

@pytest.mark.parametrize('name', ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'])
def test_links_of(name): assert broken_links((ROOT/name).read_text(encoding='utf-8'), ROOT) == []

def test_broken_links_are_found():
    text = '[a](https://x.org) [b](README.md#x) [c](none.md) <img src="none.png">'
    assert broken_links(text, ROOT) == ['none.md', 'none.png']
