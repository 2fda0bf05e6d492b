"Rules of a page: a rule is a function of one notebook that yields its complaints."
import ast
import posixpath
import re
from itertools import accumulate

import yaml
from pages import (
    NBS,
    chapters,
    code_lines,
    directives,
    headings_of,
    is_export,
    is_run,
    kinds_of,
    labels,
    outputs,
    pages,
    parse,
    parsed,
    prose,
    relative_links,
    slug_of,
    slugs,
    stored,
    tags,
    texts,
    unfenced,
)


def syntax(nb):
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        try: parse(c['source'])
        except SyntaxError as e: yield f'cell {i}: {e}'

def title(nb):
    "The first cell becomes the page's title and the module's docstring, which is not raw."
    first = nb.cells[0] if nb.cells else dict(cell_type='', source='')
    head = re.match(r'# \S.*\n+> (\S.*)', first['source'])
    if first['cell_type'] != 'markdown' or not head:
        yield 'the first cell must be "# Title" and "> one sentence"'
    elif '\\' in head[1] or '"""' in head[1] or head[1].rstrip().endswith('"'):
        yield 'a subtitle has no backslash and no closing quote'

def headings(nb):
    "One title, no level left out, and no two headings that share an anchor."
    every, before = list(headings_of(nb)), 0
    for i, level, text in every:
        if level > before + 1: yield f'cell {i}: {text!r} is of level {level} after {before}'
        if level == 1 and before: yield f'cell {i}: a second title, {text!r}'
        before = level
    unnamed = [t for _, level, t in every if level > 1 and not re.search(r'\{[^}]*#', t)]
    own = [slug_of(text) for text in unnamed]
    for slug in sorted({x for x in own if own.count(x) > 1}):
        yield f'several headings have the anchor {slug}'

def folds(nb):
    "A notebook shows each cell by itself: a fold ends in the cell in which it begins."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'markdown': continue
        tags = re.findall(r'</?details\b', prose(c['source']))
        depths = list(accumulate(1 if tag == '<details' else -1 for tag in tags))
        if depths and min(depths) < 0: yield f'cell {i}: a fold is closed that was not opened'
        elif depths and depths[-1]:
            yield f'cell {i}: a fold does not end in it; code behind a fold says `#| fold WORDS`'

def unique_ids(nb):
    ids = [c['id'] for c in nb.cells if 'id' in c]
    for name in sorted({i for i in ids if ids.count(i) > 1}): yield f'two cells have the id {name}'


def unique_labels(nb):
    every = labels(nb)
    for label in sorted({x for x in every if every.count(x) > 1}):
        yield f'label {label} is there twice'

KINDS = 'eq|fig|tbl|sec|thm|lem|cor|prp|def|exm|exr|rem|lst'

def references(nb):
    "Quarto resolves `@eq-…` within a page only."
    known = set(labels(nb))
    for source in nb.markdown():
        for ref in re.findall(rf'(?<![\w@])@((?:{KINDS})-[\w-]*\w)', prose(source)):
            if ref not in known: yield f'@{ref} is nowhere on this page'

REFERENCES = (NBS/'references.bib').read_text(encoding='utf-8')
BIBLIOGRAPHY = re.findall(r'^@\w+\{([^,\s]+),', REFERENCES, re.M)

def citations(nb):
    for _, source in pages(nb):
        for key in re.findall(r'(?<![\w@.])@([A-Za-z][\w:-]*\w)', prose(source)):
            if re.match(f'({KINDS})-', key) or key in BIBLIOGRAPHY: continue
            yield f'@{key} is not in references.bib'

def links(nb):
    here = posixpath.dirname(nb.name)
    for link in (link for source in nb.markdown() for link in relative_links(source)):
        file, _, anchor = link.partition('#')
        target = posixpath.normpath(posixpath.join(here, file)) if file else nb.name
        page = nb if target == nb.name else nb.book.get(target)
        if not page and target not in nb.files: yield f'{link} leads nowhere in nbs/'
        elif anchor and page and anchor not in {*labels(page), *slugs(page)}:
            yield f'{link}: no such anchor'

def images(nb):
    for text in map(prose, nb.markdown()):
        for alt in re.findall(r'!\[(.*?)\]\(', text, re.S):
            if not alt.strip(): yield 'a picture without alt text'
        for tag in tags(text, 'img'):
            if not re.search(r'\balt="[^"]+"', tag): yield f'no alt text: {tag[:60]}'
        if 'data:image' in text: yield 'a picture pasted into markdown: draw it, or store a file'

def options(nb):
    "Quarto reads `#| key: value` as YAML: a colon or bracket in the wrong place spoils the page."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        for line in re.findall(r'^#\|\s*([\w-]+:.*)$', c['source'], re.M):
            try: fine = isinstance(yaml.safe_load(line), dict)
            except yaml.YAMLError: fine = False
            if not fine: yield f'cell {i}: {line!r} is no YAML'

def pictures(nb):
    "Every picture that a cell puts out is described in words."
    for i, c in enumerate(nb.cells):
        drawn = any(k.startswith('image/') for k in kinds_of(c))
        alt = directives(c['source']).get('fig-alt', '').strip('\'" ')
        if drawn and len(alt.split()) < 5:
            yield f'cell {i}: a picture without `#| fig-alt: …` of some words'

CONTROLS = 'input', 'select', 'textarea', 'button'

def html_names(nb):
    "Pictures and controls inside HTML have names, too."
    for i, html in stored(nb, 'text/html'):
        for tag in tags(html, 'img'):
            if not re.search(r'\balt="[^"]*\w', tag):
                yield f'cell {i}: no alt text: {re.sub("base64,[^ ]*", "…", tag)}'
        for tag in tags(html, 'svg', 'canvas'):
            if 'role="img"' not in tag or not re.search(r'aria-label="[^"]*\w', tag):
                yield f'cell {i}: {tag} has no label'
        for tag in tags(html, *CONTROLS):
            if not re.search(r'aria-label="[^"]*\w', tag): yield f'cell {i}: {tag} has no name'

def row_cells(line):
    return [x.strip() for x in re.split(r'(?<!\\)\|', re.sub(r'^\||\|$', '', line.strip()))]

def tables(nb):
    "A table has a header row with words in it, and all its rows are of its length."
    for i, source in pages(nb):
        for table in re.findall(r'(?:^[ \t]*\|.*(?:\n|\Z)){2,}', unfenced(source), re.M):
            head, line, *rest = table.strip().splitlines()
            if not re.fullmatch(r'[\s|:-]+', line):
                yield f'cell {i}: a table without a header row: {head[:60]}'
            elif not any(row_cells(head)):
                yield f'cell {i}: the header row of a table is empty, above {rest[:1]}'
            for row in rest:   # | splits a cell wherever it stands
                if len(row_cells(row)) != len(row_cells(head)):
                    yield f'cell {i}: not {len(row_cells(head))} columns: {row}'

def html_tables(nb):
    own = [(i, c['source']) for i, c in enumerate(nb.cells) if c['cell_type'] == 'markdown']
    for i, html in own + stored(nb, 'text/html'):
        for table in re.findall(r'<table\b.*?</table>', html, re.S):
            if '<th' not in table: yield f'cell {i}: an HTML table without header cells'
            if re.search(r'<thead>.*<td\b.*</thead>', table, re.S):
                yield f'cell {i}: a cell of the header row is no header'

REMOTE = re.compile('|'.join([
    r"""(?:\bsrc|\bsrcset|\bposter|\bdata)\s*=\s*\\?["']?\s*(?:https?:)?//[^"'\s>]+""",
    r"""<link\b[^>]*\bhref\s*=\s*\\?["']?(?:https?:)?//[^>]*""", r'@import\b[^;]*//[^;]*',
    r"""\burl\(\s*["']?(?:https?:)?//[^)]*""",
    r"""\b(?:import|fetch|importScripts)\(\s*["'`]https?:[^)]*""",
    r'!\[[^\]]*\]\(\s*<?https?:[^)]*']), re.I)
NEEDS_SCRIPT = r'javascript|plotly|bokeh|vega|vnd\.(?!jupyter\.widget)'

def remote(text): return REMOTE.findall(re.sub(r'data:[\w/+-]+;base64,[\w+/=]+', '', text))

def offline(nb):
    "Nothing on a page comes from another host; links may lead there."
    for i, c in enumerate(nb.cells):
        for kind in kinds_of(c):
            if re.search(NEEDS_SCRIPT, kind): yield f'cell {i} stores {kind}, which needs a script'
        shown = [texts(o) for o in c.get('outputs', [])]
        if c['cell_type'] == 'markdown': shown = [prose(c['source'])]
        for address in (x for text in shown for x in remote(text)):
            yield f'cell {i}: {address} comes from another host'

def next_chapter(nb):
    "A chapter ends with a link to the one after it, the last one with a link to the map."
    order = [*chapters(nb), 'index.ipynb']
    if nb.name not in order[:-1]: return
    said = [s.partition('**Next')[2] for s in nb.markdown() if '**Next' in s]
    to = posixpath.relpath(order[order.index(nb.name) + 1], posixpath.dirname(nb.name))
    if not said or relative_links(said[-1])[:1] != [to]:
        yield f'the first link after "**Next" does not lead to {to}'

INSTALL = '! [ -e /content ] && pip install -Uqq eqtutor fastcore  # on Google Colab'

def installs(nb):
    "On Colab, and only there, a chapter installs the package: in a cell that nobody else sees."
    if '/' not in nb.name: return
    install = [c['source'] for c in nb.code()
               if re.search(r'^\s*[!%].*\bpip install', c['source'], re.M)]
    first = next((c['source'] for c in nb.code()), '')
    if first not in install: yield f'the first code cell does not install the package: {INSTALL}'
    for source in install:
        flags, code = directives(source), code_lines(source)
        if code != [INSTALL]: yield f'not {INSTALL!r}: {code}'
        unseen = 'default_exp' in flags or {'hide', 'teacher'} <= flags.keys()
        if flags.get('eval') != 'false' or not unseen:
            yield ('the cell that installs runs in tests, or is shown: `#| eval: false`, and '
                   '`#| default_exp` or `#| hide` and `#| teacher`')

LINES = {'plot', 'step', 'semilogx', 'semilogy', 'loglog', 'errorbar', 'stairs'}
AREAS = {'scatter', 'bar', 'barh', 'hist', 'fill_between'}
STYLES = {None, 'marker', 'ls', 'linestyle', 'hatch', 'fmt'}

def calls(source):
    return (x for b in parsed(source) for x in ast.walk(b) if isinstance(x, ast.Call))

def is_styled(call, name):
    "Does the call say how its marks look, beside their colour?"
    def words(a):
        return isinstance(a, ast.Starred) or isinstance(getattr(a, 'value', None), str)
    if any(map(words, call.args)): return True
    return name in LINES and len(call.args) > 2

def colour_alone(nb):
    "What a legend tells apart by colour, a marker, line style or hatch tells apart as well."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code': continue
        for call in calls(c['source']):
            name, arguments = getattr(call.func, 'attr', ''), {k.arg for k in call.keywords}
            if name not in LINES | AREAS or 'label' not in arguments: continue
            if not arguments & STYLES and not is_styled(call, name):
                yield f'cell {i}: told apart by colour alone: {ast.unparse(call)}'

def package_only(nb):
    "Who installed the package runs every cell; nbdev is for those who work on the repository."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] == 'code' and re.search(r'^(?:import|from) nbdev\b', c['source'], re.M):
            yield f'cell {i} needs nbdev: {c["source"][:60]!r}'

IMPORTS = ast.Import, ast.ImportFrom

def import_cells(nb):
    "nbdev_docs runs every cell that has an import on its own: only definitions may stand there."
    for i, c in enumerate(nb.cells):
        if c['cell_type'] != 'code' or directives(c['source']).get('eval') == 'false': continue
        body = parsed(c['source'])
        inner = any(isinstance(x, IMPORTS) for b in body for x in ast.walk(b))
        top = any(isinstance(b, IMPORTS) for b in body)
        allowed = IMPORTS if top else (ast.FunctionDef, ast.ClassDef)
        if inner and not all(isinstance(b, allowed) for b in body):
            yield f'cell {i} mixes imports with other code'

DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef

def docstrings(nb):
    for b in (b for c in nb.code() if is_export(c['source']) for b in parsed(c['source'])):
        public = isinstance(b, DEFINITIONS) and not b.name.startswith('_')
        if public and not ast.get_docstring(b): yield f'exported without a docstring: {b.name}'

def file_size(nb):
    if nb.size >= 1_000_000: yield f'{nb.size:,} bytes, 1,000,000 are the limit: smaller figures'

def stored_errors(nb):
    for i, o in outputs(nb):
        if o['output_type'] == 'error': yield f"cell {i} stores an error: {o.get('ename')}"

def stored_widgets(nb):
    "A widget view needs a kernel, and a stored widget state breaks nbdev_docs."
    if 'widgets' in nb.metadata: yield 'widget state in the metadata'
    for i, o in outputs(nb):
        if 'application/vnd.jupyter.widget-view+json' in o.get('data', {}):
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
SAYS = r'print'
DRAWS = (r'plot_\w+|Picture|Markdown|HTML|Image|SVG|show|tight_layout|suptitle|display'
         r'|RotateAndPermute|CayleyExplorer|ClickAndTurn|EquivarianceMeter')
PICTURES = {'image/png', 'image/svg+xml', 'text/html', 'text/markdown'}

def stored_outputs(nb):
    "Pages show what is stored. A cell that ends in a plain value, prints or draws has an output."
    code = [c for c in nb.code() if is_run(c['source'])]
    shown = [c for c in code if not is_export(c['source']) and parsed(c['source'])]
    if shown and not any(c.get('outputs') for c in code): yield 'no stored outputs at all'
    for c in shown:
        source, end = c['source'], code_lines(c['source'])[-1]
        if ends_in_value(source) and not c.get('outputs'):
            yield f'not executed: {end!r} has no stored output'
        streams = [o for o in c.get('outputs', []) if o['output_type'] == 'stream']
        if says(source) and not streams: yield f'prints, and stores nothing printed: {end!r}'
        if draws(source) and not kinds_of(c) & PICTURES:
            yield f'draws, and stores no picture: {end!r}'

def silenced(source): return source.rstrip().endswith(';')

def ends_in_value(source):
    last = parsed(source)[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, VALUES) and not silenced(source)

def calls_one(b, names):
    if not isinstance(b, ast.Expr) or not isinstance(b.value, ast.Call): return False
    return bool(re.fullmatch(names, ast.unparse(b.value.func).split('.')[-1]))

def says(source):
    "Does the cell print for certain: in the open, in a loop, in a `with` that lets it out?"
    def walk(b):
        inside = isinstance(b, (ast.For, ast.With)) and 'redirect' not in ast.unparse(b)
        return any(map(walk, b.body)) if inside else calls_one(b, SAYS)
    return any(map(walk, parsed(source)))

def draws(source):
    "Is the cell's value a picture?"
    body = parsed(source)
    return bool(body) and calls_one(body[-1], DRAWS) and not silenced(source)
