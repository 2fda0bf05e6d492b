"""The notebooks as documents: what would break the site, the package or the reader, found without building any of them.

A rule is a function of one notebook that yields its complaints. Each is tried on every notebook, and on examples that
break it.
"""
import ast
import json
import posixpath
import re
from configparser import ConfigParser
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

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

def stored(nb, kind):
    "What outputs hold of a kind, with the numbers of their cells."
    return [(i, ''.join(o['data'][kind])) for i, o in outputs(nb) if kind in o.get('data', {})]

def tags(html, name):
    "The opening tags of a name; what a script holds is text."
    return re.findall(rf'<{name}\b[^>]*>', re.sub(r'<script\b[^>]*>.*?</script>', '', html, flags=re.S))

def unfenced(source): return re.sub(r'^(```+|~~~+).*?^\1', '', source, flags=re.M | re.S)

def pages(nb):
    "All markdown of a page, in order: its own, and what cells put out."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] == 'markdown': yield i, c['source']
        for o in c.get('outputs', []):
            if 'text/markdown' in o.get('data', {}): yield i, ''.join(o['data']['text/markdown'])


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

def slug_of(heading):
    slug = re.sub(r'[^\w\s.-]', '', re.sub(r'\{[^}]*\}\s*$', '', heading).lower()).strip()
    return re.sub(r'^[^a-z]*', '', re.sub(r'\s+', '-', slug))

def headings_of(nb):
    "(cell, level, text) of each heading."
    for i, source in pages(nb):
        for marks, text in re.findall(r'^(#+)\s+(.*)$', unfenced(source), re.M): yield i, len(marks), text

def slugs(nb):
    "Anchors that Pandoc makes; the title has none, it becomes front matter."
    return [slug_of(text) for _, level, text in headings_of(nb) if level > 1]

def headings(nb):
    "One title, no level left out, and no two headings that share an anchor."
    found, before = list(headings_of(nb)), 0
    for i, level, text in found:
        if level > before + 1: yield f'cell {i}: {text!r} is of level {level} after one of level {before}'
        if level == 1 and before: yield f'cell {i}: a second title, {text!r}'
        before = level
    own = [slug_of(text) for _, level, text in found if level > 1 and not re.search(r'\{[^}]*#', text)]
    for slug in sorted({x for x in own if own.count(x) > 1}): yield f'several headings have the anchor {slug}'

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

BIBLIOGRAPHY = re.findall(r'^@\w+\{([^,\s]+),', (NBS/'references.bib').read_text(encoding='utf-8'), re.M)

def citations(nb):
    for _, source in pages(nb):
        for key in re.findall(r'(?<![\w@.])@([A-Za-z][\w:-]*\w)', prose(source)):
            if not re.match(f'({KINDS})-', key) and key not in BIBLIOGRAPHY: yield f'@{key} is not in references.bib'

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

def options(nb):
    "Quarto reads `#| key: value` as YAML: a colon or a bracket in the wrong place spoils the page."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        for line in re.findall(r'^#\|\s*([\w-]+:.*)$', c['source'], re.M):
            try: fine = isinstance(yaml.safe_load(line), dict)
            except yaml.YAMLError: fine = False
            if not fine: yield f'cell {i}: {line!r} is no YAML'

def pictures(nb):
    "Every picture that a cell puts out is described in words, and those inside HTML, too."
    for i, c in enumerate(nb.cells):
        kinds = {k for o in c.get('outputs', []) for k in o.get('data', {})}
        alt = directives(c['source']).get('fig-alt', '').strip('\'" ')
        if any(k.startswith('image/') for k in kinds) and len(alt.split()) < 5:
            yield f'cell {i}: a picture without `#| fig-alt: …` of some words'
    for i, html in stored(nb, 'text/html'):
        for tag in tags(html, 'img'):
            if not re.search(r'\balt="[^"]*\w', tag): yield f'cell {i}: no alt text: {re.sub("base64,[^ ]*", "…", tag)}'
        for tag in tags(html, 'svg') + tags(html, 'canvas'):
            if 'role="img"' not in tag or not re.search(r'aria-label="[^"]*\w', tag): yield f'cell {i}: {tag} has no label'
        for tag in (t for name in ('input', 'select', 'textarea', 'button') for t in tags(html, name)):
            if not re.search(r'aria-label="[^"]*\w', tag): yield f'cell {i}: {tag} has no name'

def row_cells(line): return [x.strip() for x in re.split(r'(?<!\\)\|', re.sub(r'^\||\|$', '', line.strip()))]

def tables(nb):
    "A table has a header row with words in it, and all its rows are of its length: | splits a cell wherever it stands."
    for i, source in pages(nb):
        for table in re.findall(r'(?:^[ \t]*\|.*(?:\n|\Z)){2,}', unfenced(source), re.M):
            head, line, *rest = table.strip().splitlines()
            if not re.fullmatch(r'[\s|:-]+', line): yield f'cell {i}: a table without a header row: {head[:60]}'
            elif not any(row_cells(head)): yield f'cell {i}: the header row of a table is empty, above {rest[:1]}'
            for row in rest:
                if len(row_cells(row)) != len(row_cells(head)): yield f'cell {i}: not {len(row_cells(head))} columns: {row}'
    for i, html in [(i, c['source']) for i, c in enumerate(nb.cells) if c['cell_type'] == 'markdown'] + stored(nb, 'text/html'):
        for table in re.findall(r'<table\b.*?</table>', html, re.S):
            if '<th' not in table: yield f'cell {i}: an HTML table without header cells'
            if re.search(r'<thead>.*<td\b.*</thead>', table, re.S): yield f'cell {i}: a cell of the header row is no header'

REMOTE = re.compile(r"""(?:\bsrc|\bsrcset|\bposter|\bdata)\s*=\s*\\?["']?\s*(?:https?:)?//[^"'\s>]+|<link\b[^>]*\bhref\s*=\s*\\?["']?(?:https?:)?//[^>]*"""
                    r"""|@import\b[^;]*//[^;]*|\burl\(\s*["']?(?:https?:)?//[^)]*|\b(?:import|fetch|importScripts)\(\s*["'`]https?:[^)]*"""
                    r"""|!\[[^\]]*\]\(\s*<?https?:[^)]*""", re.I)

def remote(text): return REMOTE.findall(re.sub(r'data:[\w/+-]+;base64,[\w+/=]+', '', text))

def offline(nb):
    "Nothing on a page comes from another host; links may lead there."
    for i, c in enumerate(nb.cells):
        kinds = {k for o in c.get('outputs', []) for k in o.get('data', {})}
        for kind in kinds:
            if re.search(r'javascript|plotly|bokeh|vega|vnd\.(?!jupyter\.widget)', kind): yield f'cell {i} stores {kind}, which needs a script'
        shown = [prose(c['source'])] if c['cell_type'] == 'markdown' else [texts(o) for o in c.get('outputs', [])]
        for found in (x for text in shown for x in remote(text)): yield f'cell {i}: {found} comes from another host'

def chapters(nb): return sorted((n for n in nb.book if '/' in n), key=posixpath.basename)

def next_chapter(nb):
    "A chapter ends with a link to the one after it, the last one with a link to the map."
    order = [*chapters(nb), 'index.ipynb']
    if nb.name not in order[:-1]: return
    said = [s.partition('**Next')[2] for s in nb.markdown() if '**Next' in s]
    to = posixpath.relpath(order[order.index(nb.name) + 1], posixpath.dirname(nb.name))
    if not said or relative_links(said[-1])[:1] != [to]: yield f'the first link after "**Next" does not lead to {to}'

INSTALL = '! [ -e /content ] && pip install -Uqq eqtutor fastcore  # on Google Colab'

def installs(nb):
    "On Colab, and only there, a chapter installs the package: in a cell that neither tests nor pages nor copies for students see."
    if '/' not in nb.name: return
    found = [c['source'] for c in nb.code() if re.search(r'^\s*[!%].*\bpip install', c['source'], re.M)]
    first = next((c['source'] for c in nb.code()), '')
    if first not in found: yield f'the first code cell does not install the package on Colab: {INSTALL}'
    for source in found:
        flags, code = directives(source), code_lines(source)
        if code != [INSTALL]: yield f'not {INSTALL!r}: {code}'
        if flags.get('eval') != 'false' or not {'default_exp', 'teacher'} & flags.keys() or not {'default_exp', 'hide'} & flags.keys():
            yield 'the cell that installs runs in tests, or is shown: `#| eval: false`, and `#| default_exp` or `#| hide` and `#| teacher`'

def colour_alone(nb):
    "What a legend tells apart by colour, a marker, a line style or a hatch tells apart as well."
    kinds = {'plot', 'step', 'semilogx', 'semilogy', 'loglog', 'scatter', 'errorbar', 'bar', 'barh', 'hist', 'stairs', 'fill_between'}
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        for call in (x for b in parsed(c['source']) for x in ast.walk(b) if isinstance(x, ast.Call)):
            name, given = getattr(call.func, 'attr', ''), {k.arg for k in call.keywords}
            styled = given & {None, 'marker', 'ls', 'linestyle', 'hatch', 'fmt'}
            styled = styled or any(isinstance(a, (ast.Starred, ast.Constant)) and isinstance(getattr(a, 'value', ''), (str, ast.AST)) for a in call.args)
            styled = styled or name not in ('scatter', 'bar', 'barh', 'hist', 'fill_between') and len(call.args) > 2
            if name in kinds and 'label' in given and not styled: yield f'cell {i}: told apart by colour alone: {ast.unparse(call)}'

def package_only(nb):
    "Who installed the package runs every cell; nbdev is for those who work on the repository."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] == 'code' and re.search(r'^(?:import|from) nbdev\b', c['source'], re.M): yield f'cell {i} needs nbdev: {c["source"][:60]!r}'

def import_cells(nb):
    "nbdev_docs runs every cell that has an import, on its own: nothing else may stand there but definitions."
    for i, c in enumerate(nb.cells):
        source, imports = c['source'], (ast.Import, ast.ImportFrom)
        if c['cell_type'] != 'code' or directives(source).get('eval') == 'false': continue
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
    "Pages show what is stored. A cell that ends in a plain value, prints or draws has an output."
    code = [c for c in nb.code() if is_run(c['source'])]
    values = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Tuple, ast.List, ast.Dict,
              ast.JoinedStr)
    shown = [c for c in code if not is_export(c['source']) and parsed(c['source'])]
    if shown and not any(c.get('outputs') for c in code): yield 'no stored outputs at all'
    for c in shown:
        last = parsed(c['source'])[-1]
        value = isinstance(last, ast.Expr) and isinstance(last.value, values) and not c['source'].rstrip().endswith(';')
        if value and not c.get('outputs'): yield f'not executed: {code_lines(c["source"])[-1]!r} has no stored output'
        if does(c['source'], SAYS) and not any(o['output_type'] == 'stream' for o in c.get('outputs', [])):
            yield f'prints, and stores nothing that was printed: {code_lines(c["source"])[-1]!r}'
        kinds = {k for o in c.get('outputs', []) for k in o.get('data', {})}
        if does(c['source'], DRAWS, last=True) and not kinds & {'image/png', 'image/svg+xml', 'text/html', 'text/markdown'}:
            yield f'draws, and stores no picture: {code_lines(c["source"])[-1]!r}'

SAYS = r'print'
DRAWS = (r'plot_\w+|Picture|Markdown|HTML|Image|SVG|show|tight_layout|suptitle|display'
         r'|RotateAndPermute|CayleyExplorer|KernelOrbit|ClickAndTurn|EquivarianceMeter')

def does(source, names, last=False):
    "Does the cell call one of these for certain: as its value if `last`; else in the open, in a loop, in a `with` that lets it out?"
    def walk(b):
        if isinstance(b, (ast.For, ast.With)) and not last and 'redirect' not in ast.unparse(b): return any(map(walk, b.body))
        return isinstance(b, ast.Expr) and isinstance(b.value, ast.Call) and re.fullmatch(names, ast.unparse(b.value.func).split('.')[-1])
    body = parsed(source)
    return bool(body) and any(map(walk, body[-1:] if last else body)) and not (last and source.rstrip().endswith(';'))


# --- a notebook that keeps every rule, and one for each rule that breaks it

def md(source): return dict(cell_type='markdown', source=source)
def py(source, *outs): return dict(cell_type='code', source=source, outputs=list(outs))
def says(text): return dict(output_type='stream', name='stdout', text=[text])
def shows(**data): return dict(output_type='display_data', data={k.replace('__', '/'): v for k, v in data.items()})
def html(text): return shows(text__html=text)

HEAD = md('# Title\n\n> One sentence')
GOOD = Notebook('1_part/02_good.ipynb', [
    HEAD, py(f'#| default_exp good\n#| eval: false\n{INSTALL}'), py('#| export\nimport math\nfrom eqtutor.first import one'),
    md('## A part {#sec-part}\n\n$$ a[i](x) $$ {#eq-one}\n\nBy @eq-one, `f[0](x)`, <code>f[0](x)</code>, ![a cat](cat.png)'),
    md('See [there](01_first.ipynb#sec-a), [up](#sec-part), [it](#a-part), [elsewhere](https://x.org).'),
    py('#| export\ndef f(x):\n    "Doubles `x`."\n    import os\n    return 2*x'),
    py('%time f(2)\nf(2)', says('4')), py('f(1), 2', says('(2, 2)')),
    py('#| cuda\nx'), py('%%bash\nls -l'),
    md('### Smaller\n\n| | b |\n|---|---|\n| $\\lvert H\\rvert$ | 1 \\| 2 |\n\n```\n# no heading\n| no table |\n```\n\nAfter @he2021efficient.'),
    py('for i in range(2): print(i)', says('0\n1\n')), py('with redirect_stdout(file): print(1)'), py('plot_ring(f);'),
    py('#| fig-alt: "A ring: four panels, one a pose"\nplot_ring(f)', shows(image__png='AAAA')),
    py('a.plot(x, y, "o-", label="a"); a.plot(x, y, label="b", ls="--"); a.plot(x, y); a.bar(x, y, label="c", hatch="/")'),
    py('RotateAndPermute(f)', html('<img src="data:image/png;base64,//AAAA" alt="x"><svg role="img" aria-label="y"></svg>'
       '<input aria-label="z"><table><thead><tr><th>u</th></tr></thead><tr><td>1</td></tr></table><a href="https://x.org">x</a>'
       '<script>"<img>"</script>')),
    md('## Summary\n\n**Next**: [03](03_later.ipynb) and [01](01_first.ipynb).')], size=10)
FIRST = Notebook('1_part/01_first.ipynb', [md('# First\n\n> It\n\n## A {#sec-a}'), py('#| default_exp first')])
LATER = Notebook('1_part/03_later.ipynb', [HEAD, py('#| default_exp later'), md('**Next**: the [map](../index.ipynb)')])
for nb in (GOOD, FIRST, LATER): nb.files, nb.book = {'1_part/cat.png'}, {n.name: n for n in (FIRST, GOOD, LATER)}

BAD = {
    syntax: [py('def f(:')],
    title: [*([md(t)] for t in ('## T\n\n> No', '# T', '# T\n\n> A "quote"', '# T\n\n> In $\\mathbb{Z}$')), [py('#')]],
    unique_labels: [md('$$ a $$ {#eq-a}\n\n$$ b $$ {#eq-a}')],
    references: [md('By @eq-nowhere')],
    links: [[md(f'[x]({to})')] for to in ('no.ipynb', '01_first.ipynb#sec-b', '#sec-c', '#title', '../README.md', '/cat.png')],
    headings: [[md(s)] for s in ('### Deep', '## A\n\n#### B', '# Again', '## Two words\n\n## Two *words*', '### Deep {#sec-d}')],
    citations: [[md(s)] for s in ('By @nobody2020', 'By [@he2021efficient; @nobody2020, p. 3]')],
    options: [[py(f'#| fig-alt: {alt}\nx')] for alt in ('A ring: four panels', '[0, 1 and more', '@home')],
    pictures: [[py(s, shows(image__png='AAAA'))] for s in ('plot(x)', '#| fig-alt: ""\nplot(x)', '#| fig-alt: A figure\nplot(x)')] +
              [[py('x', html(s))] for s in ('<img src="a.png">', '<img src="a.png" alt="">', '<svg></svg>', '<svg role="img"></svg>',
                                            '<svg aria-label="a"></svg>', '<canvas></canvas>', '<input type="range">', '<button>✓</button>')],
    tables: [[md(s)] for s in ('| | |\n|--|--|\n| a | b |', '| a | b |\n| c | d |', '| a | b |\n|--|--|\n| |H| | 1 |', '<table><tr><td>1</td></tr></table>')] +
            [[py('x', html('<table><thead><tr><th>a</th><td></td></tr></thead></table>'))], [py('x', shows(text__markdown='| | |\n|--|--|\n| a | b |'))]],
    offline: [[py('x', html(s))] for s in (
                  '<script src="https://x.org/a.js"></script>', '<img alt="x" src=\'//x.org/a.png\'>', '<style>@import "https://x.org/a.css"</style>',
                  '<link rel="stylesheet" href="https://x.org/a.css">', '<i style="background:url(https://x.org/a.png)"></i>',
                  '<script>import("https://x.org")</script>')] +
             [[md('![a cat](https://x.org/cat.png)')], [md('<img alt="x" src="https://x.org/a.png">')], [py('x', shows(**{'application__javascript': 'x'}))],
              [py('x', shows(**{'application__vnd.plotly.v1+json': {}}))]],
    next_chapter: [[md('## Summary')], [md('**Next**: [01](01_first.ipynb), [03](03_later.ipynb)')], [md('**Next**: 03')]],
    installs: [[py(s)] for s in (
        '#| default_exp good', f'#| default_exp good\n{INSTALL}', f'#| hide\n#| eval: false\n{INSTALL}', f'#| eval: false\n#| teacher\n{INSTALL}',
        '#| default_exp good\n#| eval: false\n! pip install eqtutor', 'x = 1')],
    colour_alone: [[py(s)] for s in (
        'a.plot(x, y, label="a")', 'for k in z: a.semilogy(y, label=k, color="r")', 'a.bar(x, y, label="c")', 'a.scatter(x, y, s, label="c")')],
    images: [[md('![](cat.png)')], [md('<img src="cat.png">')], [md('![a cat](data:image/png;base64,AAAA)')]],
    package_only: [py('#| hide\nimport nbdev; nbdev.nbdev_export()')],
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
    stored_outputs: [[py('x = 1')], *([py('f()', says('1')), py(s, *out)] for s, *out in (
        ['x'], ['print(1)'], ['for i in x: print(i)'], ['print(1); x', shows(text__plain='1')], ['with f(): print(1)'], ['plot_ring(f)'],
        ['fig.suptitle("a")', shows(text__plain='Text(0, 0)')], ['widgets.ClickAndTurn(f, x)']))],
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


# --- the site: what Quarto is told, and the map

def yaml_of(path): return yaml.safe_load((ROOT/path).read_text(encoding='utf-8'))

def settings():
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    return config['DEFAULT']

def strings(x):
    "All strings in a configuration, with the keys that lead to them."
    if isinstance(x, dict): yield from ((f'{k}.{path}', s) for k, v in x.items() for path, s in strings(v))
    elif isinstance(x, list): yield from (found for v in x for found in strings(v))
    elif isinstance(x, str): yield '', x

NO_WEB_FONT = {'default', 'slate', 'none'}   # the other themes of Quarto load a font from another host

def site_faults(site, inner, names, map_parts, repository):
    "What is wrong with `_quarto.yml` and `nbs/_quarto.yml` for notebooks of these names, and for the parts of the map."
    website, page = site.get('website', {}), site.get('format', {}).get('html', {})
    want = {'format.html.html-math-method': (page.get('html-math-method'), 'mathml'), 'format.html.toc': (page.get('toc'), True),
            'website.page-navigation': (website.get('page-navigation'), True), 'website.search': (website.get('search'), True),
            'website.repo-url': (website.get('repo-url'), repository), 'execute.enabled': (site.get('execute', {}).get('enabled'), False)}
    for key, (found, right) in want.items():
        if found != right: yield f'{key} is {found!r}, not {right!r}'
    if 'issue' not in website.get('repo-actions', []): yield 'website.repo-actions does not offer to report an issue'
    themes = page.get('theme')
    if not isinstance(themes, dict) or themes.keys() != {'light', 'dark'}: yield 'format.html.theme does not have a light and a dark one'
    elif len({*themes.values()}) < 2 or not {*themes.values()} <= NO_WEB_FONT: yield f'themes {themes} are one, or load a font'
    for path, s in [*strings(site), *strings(inner)]:
        if re.search(r'(?:https?:)?//', s) and path != 'website.repo-url.': yield f'{path} {s}: nothing on a page comes from another host'
    css = inner.get('format', {}).get('html', {}).get('css', [])
    for name in [inner.get('bibliography', ''), *([css] if isinstance(css, str) else css)]:
        if name not in names: yield f'no style sheet or bibliography nbs/{name}'
    parts = website.get('sidebar', {}).get('contents', [])
    listed = [(p.get('section'), sorted(n for n in names if n.endswith('.ipynb') and fnmatch(n, p.get('contents', '')))) for p in parts]
    if listed != map_parts: yield f'the sidebar lists {listed}, the map {map_parts}'

def parts_of(rows):
    "Parts of a table of chapters, (part, files); a part's name stands in its first row."
    parts = []
    for name, *_, target in rows:
        if name: parts.append((name, []))
        parts[-1][1].append(target)
    return parts

def map_of(text, base=''):
    "Rows of a table of chapters: part, text of the link, file."
    found = re.findall(r'^\|\s*([^|]*?)\s*\|\s*\[([^]]+)\]\(([^)]+\.ipynb)\)\s*\|', text, re.M)
    return [(re.sub(r'[*\d]', '', part).strip(), words, target.removeprefix(base)) for part, words, target in found]

def numbers_off(rows):
    "Links of a table of chapters that do not begin with the chapter's number, or leave its title's words out."
    def title_of(name): return re.match(r'# (.*)', BOOK[name].cells[0]['source'])[1].lower() if name in BOOK else ''
    def wrong(words, name):
        number, _, rest = words.partition(' ')
        return number != posixpath.basename(name)[:2] or not {rest.lower().split()[-1]} & {*re.findall(r'[\w-]+', title_of(name))}
    return [words for _, words, name in rows if wrong(words, name)]

CHAPTERS = [n for n in BOOK if '/' in n]
FILES = {p.relative_to(NBS).as_posix() for p in NBS.rglob('*') if p.is_file()}
INDEX = '\n\n'.join(BOOK['index.ipynb'].markdown())

def test_site_is_told_all_it_needs():
    faults = site_faults(yaml_of('_quarto.yml'), yaml_of('nbs/_quarto.yml'), FILES, parts_of(map_of(INDEX)), settings()['git_url'])
    assert list(faults) == []

def broken_sites():
    def change(path, value):
        site, inner = yaml_of('_quarto.yml'), yaml_of('nbs/_quarto.yml')
        *way, last = path.split('.')
        at = inner if way[0] == 'inner' else site
        for key in way[way[0] == 'inner':]: at = at.setdefault(key, {})
        at[last] = value
        return site, inner
    yield from (change(path, value) for path, value in {
        'format.html.html-math-method': 'mathjax', 'format.html.toc': False, 'website.page-navigation': False, 'website.search': False,
        'website.repo-url': 'https://x.org', 'execute.enabled': True, 'website.repo-actions': [], 'format.html.theme': 'default',
        'format.html.include-in-header': ['https://x.org/a.html'], 'format.html.mainfont': 'url(//x.org/a)', 'inner.format.html.css': 'none.css',
        'inner.bibliography': ''}.items())
    for dark in ({}, {'dark': 'default'}, {'dark': 'darkly'}): yield change('format.html.theme', {'light': 'default', **dark})
    first, *rest = yaml_of('_quarto.yml')['website']['sidebar']['contents']
    for contents in (rest, [*rest, first], [dict(first, section='Other'), *rest], [dict(first, contents='1_foundations/00*.ipynb'), *rest]):
        yield change('website.sidebar.contents', contents)

def test_fault_of_the_site_is_found():
    for site, inner in broken_sites():
        assert list(site_faults(site, inner, FILES, parts_of(map_of(INDEX)), settings()['git_url'])), (site, inner)

def test_map_and_readme_list_every_chapter_in_order():
    for rows in (map_of(INDEX), map_of((ROOT/'README.md').read_text(encoding='utf-8'), 'nbs/')):
        assert [name for *_, name in rows] == sorted(CHAPTERS, key=posixpath.basename)
        assert len(parts_of(rows)) == 4 and numbers_off(rows) == []

def test_wrong_line_of_a_map_is_found():
    groups, actions = '1_foundations/01_groups.ipynb', '1_foundations/02_actions.ipynb'
    rows = [('', '02 Groups', groups), ('', '01 Groups', actions), ('', '01 Rings', groups), ('', '01 Groups', groups)]
    assert numbers_off(rows) == ['02 Groups', '01 Groups', '01 Rings']


# --- links that open a notebook elsewhere

def opened(page):
    "Addresses in Colab, on Binder and on GitHub that a processed page offers."
    return [a for s in page if s.startswith('Open this notebook') for a in re.findall(r'\]\((https:[^)]+)\)', s)]

def processed(name):
    "Markdown of a page as it goes to Quarto, as far as front matter and links are concerned."
    from nbdev.frontmatter import FrontmatterProc
    from nbdev.process import NBProcessor
    from eqtutor.widgets import OpenLinks
    nb = NBProcessor(NBS/name, procs=[FrontmatterProc, OpenLinks], process=True).nb
    assert nb.cells[0].source.startswith('---')
    return [c.source for c in nb.cells if c.cell_type == 'markdown']

@pytest.mark.parametrize('name', BOOK)
def test_page_begins_with_links_that_open_its_notebook(name):
    page = processed(name)
    assert page[0].startswith('Open this notebook')
    repository, branch = settings()['git_url'], settings()['branch']
    colab, binder, source = opened(page)
    inside = source.removeprefix(f'{repository}/blob/{branch}/')
    assert (ROOT/inside).samefile(NBS/name)
    owner = repository.removeprefix('https://github.com/')
    assert colab == f'https://colab.research.google.com/github/{owner}/blob/{branch}/{inside}'
    assert binder == f'https://mybinder.org/v2/gh/{owner}/{branch}?urlpath=lab/tree/{inside}'

def test_pages_are_processed_so(): assert settings()['procs'].split() == ['eqtutor.widgets:raw_html', 'eqtutor.widgets:OpenLinks']

def test_binder_installs_the_repository():
    "repo2docker takes the folder binder/ where there is one, and reads requirements.txt in the repository's root."
    assert {p.name for p in (ROOT/'binder').iterdir()} == {'requirements.txt', 'runtime.txt'}
    lines = [s for s in (ROOT/'binder/requirements.txt').read_text().splitlines() if s and not s.startswith('#')]
    assert lines[-1] == '-e .[dev]'
    version = (ROOT/'binder/runtime.txt').read_text().strip().removeprefix('python-')
    tested = yaml_of('.github/workflows/test.yml')['jobs']['test']['strategy']['matrix']['python']
    assert version in tested
