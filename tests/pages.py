"Notebooks as documents: how to read them, and what their cells hold."
import ast
import json
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NBS = ROOT/'nbs'


@dataclass
class Notebook:
    name: str       # path in nbs/
    cells: list
    size: int = 0   # bytes on disk

    def markdown(self): return [c['source'] for c in self.cells if c['cell_type'] == 'markdown']
    def code(self): return [c for c in self.cells if c['cell_type'] == 'code']


def read(path):
    content = json.loads(path.read_text(encoding='utf-8'))
    cells = [dict(c, source=''.join(c['source'])) for c in content['cells']]
    name = path.relative_to(NBS).as_posix()
    return Notebook(name, cells, size=path.stat().st_size)


def read_all():
    "Every notebook by its name."
    def hidden(p): return any(part[0] in '._' for part in p.relative_to(NBS).parts)
    return {nb.name: nb for nb in (read(p) for p in sorted(NBS.rglob('*.ipynb')) if not hidden(p))}


# --- parts of a cell

def page_of(name):
    "The file of a notebook's page: the folders keep their numbers, the pages lose theirs."
    return re.sub(r'(^|/)\d+[a-z]?_([^/]*)\.ipynb$', r'\1\2.html', name).replace('.ipynb', '.html')

def directives(source): return dict(re.findall(r'^#\|\s*([\w-]+):?[ \t]*(.*)$', source, re.M))

def is_export(source): return bool({'export', 'exports', 'exporti'} & directives(source).keys())

def is_run(source):
    "Is the cell run in every test and whenever outputs are stored?"
    d = directives(source)
    flagged = {'cuda', 'slow', 'browser', 'data'} & d.keys()
    return d.get('eval', '').strip() != 'false' and not flagged

def parsed(source):
    "The cell's statements; none for a cell in another language, or one that ruff complains of."
    if re.match(r'\s*(#\|.*\n\s*)*%%', source): return []
    try: return ast.parse(re.sub(r'^\s*[%!].*$', '', source, flags=re.M)).body
    except SyntaxError: return []

NO_PROSE = (r'^(```+|~~~+).*?^\1', r'(`+).*?\1', r'<code>.*?</code>', r'\$\$.*?\$\$',
            r'\$[^$\n]+\$')

def prose(source):
    "Markdown without code and formulas, whose brackets and @ mean something else."
    for pattern in NO_PROSE: source = re.sub(pattern, '', source, flags=re.M | re.S)
    return source

def unfenced(source): return re.sub(r'^(```+|~~~+).*?^\1', '', source, flags=re.M | re.S)

def code_lines(source):
    return [s for s in source.splitlines() if s.strip() and not s.strip().startswith('#')]


# --- outputs

def as_text(part):
    if isinstance(part, list): return ''.join(part)
    return part if isinstance(part, str) else json.dumps(part)

def texts(output):
    "What an output shows as text; pictures, also those inside HTML, are left out."
    data = output.get('data', {})
    shown = [v for k, v in data.items() if not k.startswith('image/') or 'svg' in k]
    text = '\n'.join(map(as_text, [output.get('text', ''), *shown]))
    return re.sub(r'data:[\w/+-]+;base64,[\w+/=]+', '', text)

def outputs(nb): return [(i, o) for i, c in enumerate(nb.cells) for o in c.get('outputs', [])]

def kinds_of(cell): return {k for o in cell.get('outputs', []) for k in o.get('data', {})}

def stored(nb, kind):
    "What outputs hold of a kind, with the numbers of their cells."
    return [(i, ''.join(o['data'][kind])) for i, o in outputs(nb) if kind in o.get('data', {})]

def pages(nb):
    "All markdown of a page, in order: its own, and what cells put out."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] == 'markdown': yield i, c['source']
        for o in c.get('outputs', []):
            if 'text/markdown' in o.get('data', {}): yield i, ''.join(o['data']['text/markdown'])


# --- anchors and links

def labels(nb):
    "All anchors of a page: written ones, and those of its headings as Pandoc makes them."
    known = []
    for c in nb.cells:
        if c['cell_type'] == 'code':
            known += re.findall(r'^#\|\s*label:\s*([\w-]+)', c['source'], re.M)
            continue
        known += re.findall(r'\{[^}\n]*#([\w:-]+)', prose(c['source']))
        known += re.findall(r'\bid="([^"]+)"', c['source'])
    return known

def slug_of(heading):
    slug = re.sub(r'\{[^}]*\}\s*$', '', heading).lower()
    slug = re.sub(r'\s+', '-', re.sub(r'[^\w\s.-]', '', slug).strip())
    return re.sub(r'^[^a-z]*', '', slug)

def headings_of(nb):
    "(cell, level, text) of each heading."
    for i, source in pages(nb):
        for marks, text in re.findall(r'^(#+)\s+(.*)$', unfenced(source), re.M):
            yield i, len(marks), text

def slugs(nb):
    "Anchors that Pandoc makes. The title has none, it becomes front matter; a label is one."
    return [slug_of(text) for _, level, text in headings_of(nb) if level > 1 and '{#' not in text]

def relative_links(markdown):
    text = prose(markdown)
    every = re.findall(r'\]\(\s*<?([^)\s>]+)', text) + re.findall(r'(?:href|src)="([^"]+)"', text)
    return [link for link in every if not re.match(r'https?:|mailto:|data:', link)]

def chapters():
    "The names of all chapters, in the order in which they are read."
    names = (p.relative_to(NBS).as_posix() for p in NBS.glob('[0-9]*/*.ipynb'))
    return sorted(names, key=posixpath.basename)
