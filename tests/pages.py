"Notebooks as documents: how tests read them, and what their cells hold."
import ast
import json
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from eqtutor.tutor.reading import CodeCell, anchor_of

ROOT = Path(__file__).parents[1]
NBS = ROOT/'nbs'


@dataclass
class Notebook:
    name: str    # path in its folder
    json: dict   # its content; a source is one text

    @property
    def cells(self): return self.json['cells']
    def markdown(self): return [c['source'] for c in self.cells if c['cell_type'] == 'markdown']
    def code(self): return [c for c in self.cells if c['cell_type'] == 'code']


def read(path, folder=NBS):
    content = json.loads(path.read_text(encoding='utf-8'))
    for c in content['cells']: c['source'] = ''.join(c['source'])
    return Notebook(path.relative_to(folder).as_posix(), content)


def read_all(folder=NBS):
    "Every notebook below a folder by its name."
    paths = [p for p in sorted(folder.rglob('*.ipynb'))
             if not any(part[0] in '._' for part in p.relative_to(folder).parts)]
    return {nb.name: nb for nb in (read(path, folder) for path in paths)}


def chapters():
    "The names of all chapters, in the order in which they are read."
    names = (p.relative_to(NBS).as_posix() for p in NBS.glob('[0-9]*/*.ipynb'))
    return sorted(names, key=posixpath.basename)


# --- parts of a cell

def directives(source): return CodeCell(source).flags

def is_run(source):
    "Is the cell run in every test and whenever outputs are stored?"
    flags = directives(source)
    return flags.get('eval') != 'false' and not {'cuda', 'slow', 'browser', 'data'} & flags.keys()

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


# --- outputs

def outputs(nb): return [(i, o) for i, c in enumerate(nb.cells) for o in c.get('outputs', [])]

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
    "The anchors that an author has written."
    known = []
    for c in nb.cells:
        if c['cell_type'] == 'code':
            known += re.findall(r'^#\|\s*label:\s*([\w-]+)', c['source'], re.M)
            continue
        known += re.findall(r'\{[^}\n]*#([\w:-]+)', prose(c['source']))
        known += re.findall(r'\bid="([^"]+)"', c['source'])
    return known

def headings_of(nb):
    "(cell, level, text) of each heading."
    for i, source in pages(nb):
        for marks, text in re.findall(r'^(#+)\s+(.*)$', unfenced(source), re.M):
            yield i, len(marks), text

def slugs(nb):
    "Anchors that Pandoc makes. The title has none, it becomes front matter; a label is one."
    return [anchor_of(text) for _, level, text in headings_of(nb) if level > 1 and '{#' not in text]

def links(markdown):
    text = prose(markdown)
    return re.findall(r'\]\(\s*<?([^)\s>]+)', text) + re.findall(r'(?:href|src)="([^"]+)"', text)

def relative_links(markdown):
    return [link for link in links(markdown) if not re.match(r'https?:|mailto:|data:', link)]
