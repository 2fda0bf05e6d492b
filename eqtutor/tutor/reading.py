"""From the author's notebook to one that somebody opens: captions, folds, anchors and links.

The author writes for the site, in directives (`#| fig-cap: …`) and anchors (`{#sec-x}`) that no
notebook knows. An opened notebook says the same in its own ways: a caption is a line under the
figure; a fold is Jupyter's own, and the first line of its cell, which the folded cell shows, says
what it holds; an anchor is an HTML element in the heading, by the name that the site gives it.
"""
# Plain module: edited by hand, no notebook exports it.
import ast
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._modidx import d as _module_index

SETTINGS:Any = _module_index['settings']


# --- what the author has written

@dataclass(frozen=True)
class CodeCell:
    "A code cell of the author's notebook."
    source:str                     # with its directives
    kinds:frozenset[str]=frozenset()  # of what it puts out, 'image/png', 'stream'
    table:bool=False               # does it put out a table in markdown?

    @classmethod
    def read(cls,
        cell:dict, # of a notebook, as JSON
    )->'CodeCell':
        "A cell with what is stored of its outputs."
        outputs = cell.get('outputs', [])
        data = [o.get('data', {}) for o in outputs]
        table = any('|---' in ''.join(d.get('text/markdown', '')) for d in data)
        kinds = {k for d in data for k in d}
        if any(o.get('output_type') == 'stream' for o in outputs): kinds.add('stream')
        return cls(''.join(cell['source']), frozenset(kinds), table)

    @property
    def flags(self)->dict[str, str]:
        "Its directives and what they say, '' of one that says nothing."
        found = re.findall(r'^#\|[ \t]*([\w-]+):?[ \t]*(.*?)[ \t]*$', self.source, re.M)
        return {name: unquoted(value) for name, value in found}

    @property
    def code(self)->str:
        "The source without directives."
        return re.sub(r'^#\|.*\n?', '', self.source, flags=re.M).strip('\n')


def unquoted(
    value:str, # of a directive, as YAML has it
)->str:
    "The text of a directive."
    if value[:1] == '"': return str(json.loads(value))
    return value[1:-1].replace("''", "'") if value[:1] == "'" else value


# what a lesson shows when it is presented: `eqtutor.sessions`
SHOWN_AS = 'slide', 'more', 'beside', 'again', 'handout'
SHOWN_WORDS = rf'({"|".join(SHOWN_AS)})( ({"|".join(SHOWN_AS)}))*'
TEXT_MARK = re.compile(rf'<!-- (?P<uses>{SHOWN_WORDS}) -->\n*')


# --- folds

DRAWN = 'image/png', 'image/svg+xml'
# what nbdev puts before each exported cell
SHOWN = '#| code-fold: show\n#| code-summary: "Exported source"\n'


def why_folded(
    source:str,     # of a code cell, with the directives that are for Quarto
    drawn:bool,     # does it put out a picture?
    workshop:bool,  # does it stand in the workshop?
)->str:
    "What to write on the fold of a cell; '' if its code is there to be read."
    if 'code-fold: show' in source: return 'Exported source' if workshop else ''
    if 'code-fold' in source: return ''
    said = re.search(r'^(?!#\|)(.*\S.*)$', source, re.M)
    first = said[1] if said else ''
    if first.startswith('# Check'): return first.removeprefix('# ').rstrip('.:')
    if drawn: return 'How the figure is drawn'
    checks = re.search(r'^(?:assert|test_\w+\(|assert_\w+\()', source, re.M)
    return 'A check' if workshop and checks else ''


FOLD = re.compile(r'<details><summary>(.*?)</summary>\s*|</details>', re.S)


def folds_of_text(
    text:str, # markdown
)->tuple[str, str]:
    "The words of the folds with which a text begins and ends; '' where it does so in the open."
    first = FOLD.match(text)
    depth, last = 0, ''
    for tag in FOLD.finditer(text):
        if tag[1] is not None and not depth: last = tag[1]
        depth += 1 if tag[1] is not None else -1
    ends = text.rstrip().endswith('</details>')
    return (first and first[1]) or '', last if ends else ''


def fold_words(
    cell:CodeCell,
    workshop:bool=False,  # does it stand in the workshop?
)->str:
    "What to write on the fold of a cell; '' if the page shows its code."
    flags, drawn = cell.flags, bool(cell.kinds & {*DRAWN})
    if words := flags.get('fold') or flags.get('code-summary'): return words
    if flags.get('code-fold') == 'true' or flags.get('echo') == 'false':
        return 'How the figure is drawn' if drawn else how_made(cell)
    if 'hide' in flags: return why_hidden(cell.code)
    if {'export', 'exporti'} & flags.keys(): return what_library(cell.code)
    source = SHOWN + cell.source if 'exports' in flags else cell.source
    return why_folded(source, drawn, workshop)


def how_made(
    cell:CodeCell, # that draws nothing
)->str:
    "What to write on a cell of which the page shows what it puts out."
    if cell.table: return 'How the table is made'
    if 'text/markdown' in cell.kinds: return 'How this text is computed'
    return 'The widget' if 'text/html' in cell.kinds else 'Code'


def why_hidden(code:str)->str:
    "What to write on a cell that no page shows."
    if imports_only(code): return 'Imports'
    return 'A check' if any(map(is_check, walk(code))) else 'Set-up'


def is_check(node:ast.AST)->bool:
    "Is it an assertion, or a call of something that is named as a check is?"
    if not isinstance(node, ast.Call): return isinstance(node, ast.Assert)
    name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
    return bool(re.match(r'(test|assert|check)_', name))


def walk(code:str)->Iterator[ast.AST]:
    "All that a cell's statements consist of."
    return (node for statement in statements(code) for node in ast.walk(statement))


def what_library(code:str)->str:
    "What to write on a part of the library of which a page shows no code."
    if imports_only(code): return 'Imports of the library'
    defined = (ast.FunctionDef, ast.ClassDef)
    names = [b.name for b in statements(code) if isinstance(b, defined)]
    public = [name for name in names if not name.startswith('_')]
    return 'From the library: ' + (', '.join(public) or 'helpers')


def imports_only(code:str)->bool:
    "Does a cell import, and do nothing else?"
    body = statements(code)
    return bool(body) and all(isinstance(b, ast.Import | ast.ImportFrom) for b in body)


def statements(code:str)->list[ast.stmt]:
    "A cell's statements, without what is IPython's own."
    return ast.parse(re.sub(r'^\s*[%!].*$', '', code, flags=re.M)).body


def folded(
    code:str,
    words:str,       # on the fold
    colab:bool=False,
)->tuple[str, dict]:
    "Source and metadata of a cell whose code is folded."
    hidden = {'jupyter': {'source_hidden': True}}
    if colab: return f'#@title {words}\n{code}', {**hidden, 'cellView': 'form'}
    first = code.partition('\n')[0].lstrip('# ')
    said = code.startswith('#') and first.startswith(words)
    return code if said else f'# {words}\n{code}', hidden


# a fold of the page that is several cells of a notebook: 'Answer, with the picture'
WITH = re.compile(r', with the (?:\w+ )?(?:picture|table|network|figure)s?$')


def shown_as(
    cell:CodeCell,
    words:str,     # on its fold
)->str:
    "What to write on the fold of what a cell puts out."
    kind = 'table' if cell.table else 'output'
    if cell.kinds & {*DRAWN}: kind = 'picture'
    alone = WITH.sub('', words)   # the words stand in a cell of their own
    return words if kind in alone else f'{alone}: the {kind}'


def answer(
    code:str,
    words:str,   # on the fold of the code
    shown:str,   # on the fold of what it puts out
    caption:str, # '' if there is none
    colab:bool,
)->tuple[str, dict]:
    "Source and metadata of a cell that is folded with all that it puts out."
    said = ', '.join(map(repr, filter(None, [shown, caption])))
    lines = 'from eqtutor.tutor.folding import fold_output', f'fold_output({said})', '', code
    source, metadata = folded('\n'.join(lines), words, colab)
    metadata['jupyter']['outputs_hidden'] = True
    return source, metadata


# --- links

@dataclass(frozen=True)
class Links:
    "Where the links of a notebook lead in a copy of the course."
    path:str                              # of the notebook in nbs/
    # files of nbs/ that are in the copy, and where: a path in it, or an address
    places:Mapping[str, str] = field(default_factory=dict)

    def address(self,
        link:str, # as the author wrote it
    )->str:
        "A file of the copy, or else a page of the site."
        if re.match(r'[a-z][a-z0-9+.-]*:|#', link): return link
        file, mark, anchor = link.partition('#')
        target = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), file))
        place = self.places.get(target) or page_address(target)
        if '://' not in place:
            here = posixpath.dirname(self.places.get(self.path, self.path))
            place = posixpath.relpath(place, here or '.')
        return place + mark + anchor


def page_address(
    path:str, # of a file in nbs/, '1_foundations/05_convolution.ipynb'
)->str:
    "The address of a file on the site; a notebook's page has no number."
    site = SETTINGS['doc_host'].rstrip('/') + '/' + SETTINGS['doc_baseurl'].strip('/')
    page = re.sub(r'(^|/)\d+[a-z]?_([^/]*)\.ipynb$', r'\1\2.html', path)
    return f'{site}/{page.replace(".ipynb", ".html")}'


def colab_address(
    path:str, # of a notebook in nbs/
)->str:
    "Where Colab opens the student's copy of a notebook."
    from ..widgets.page import open_links
    links = open_links(f'nbs/{path}', SETTINGS['git_url'], SETTINGS['branch'])
    return re.findall(r'\[in Colab\]\(([^)]*)\)', links)[0]


# --- markdown

FENCE = r'^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$'
INERT = re.compile(rf'{FENCE}|(?P<ticks>`+).*?(?P=ticks)|\$\$.*?\$\$|\$[^$\n]+\$', re.S | re.M)


def outside_code(
    text:str,                      # markdown
    change:Callable[[str], str],
)->str:
    "The text, changed where it is neither code nor a formula."
    done, start = list[str](), 0
    for inert in INERT.finditer(text):
        done += [change(text[start:inert.start()]), inert[0]]
        start = inert.end()
    return ''.join([*done, change(text[start:])])


def anchor_of(
    heading:str, # without its #
)->str:
    "The anchor of a heading: the one that is written, or Pandoc's."
    if written := re.search(r'\{#([\w-]+)\}', heading): return written[1]
    slug = re.sub(r'\s+', '-', re.sub(r'[^\w\s.-]', '', heading.lower()).strip())
    return re.sub(r'^[^a-z]*', '', slug)


def reader_markdown(
    text:str,      # markdown, as the author writes it for the site
    links:Links,
    figures:Mapping[str, int]|None=None, # numbers of figures by their labels
)->str:
    "The text for a notebook: anchors as elements, links to what is there, no fences of divisions."
    def heading(m:re.Match)->str:
        if not m['level']: return m[0]
        title = re.sub(r'[ \t]*\{[#.][^}\n]*\}[ \t]*$', '', m['title'])
        anchor = f'<a id="{anchor_of(m["title"])}"></a>' if len(m['level']) > 1 else ''
        return f'{m["level"]} {anchor}{title}'

    def figure(m:re.Match)->str:
        number = (figures or {}).get(m[1])
        return f'Figure {number}' if number else m[0]

    def span(m:re.Match)->str:
        anchor = re.search(r'\{[^}]*#([\w-]+)', m[0])
        return (f'<a id="{anchor[1]}"></a>' if anchor else '') + m[1]

    def change(part:str)->str:
        part = re.sub(r'^:::.*\n?', '', part, flags=re.M)
        part = re.sub(r'\[([^\]\n]*)\]\{[#.][^}\n]*\}', span, part)
        part = re.sub(r'(?<![\w@])@(fig-[\w-]*\w)', figure, part)
        part = re.sub(r'(\]\(\s*<?)([^)\s>]+)', lambda m: m[1] + links.address(m[2]), part)
        return re.sub(r'((?:href|src)=")([^"]+)', lambda m: m[1] + links.address(m[2]), part)

    headed = re.sub(rf'{FENCE}|^(?P<level>#{{1,6}})[ \t]+(?P<title>[^\n]*)$', heading, text,
                    flags=re.S | re.M)
    return outside_code(headed, change)


# a fold on one line: without blank lines around it Jupyter reads no markdown in it
ONE_LINE = re.compile(
    r'^(<details><summary>.*?</summary>)[ \t]*(\S.*?)[ \t]*</details>[ \t]*$', re.M)


def open_to_markdown(
    text:str, # markdown
)->str:
    "A text in which what stands in a fold of one line, as hints do, is read as markdown."
    return ONE_LINE.sub(r'\1\n\n\2\n\n</details>', text)


def behind_folds(
    text:str, # markdown
)->list[str]:
    "A text in parts: JupyterLab leaves no gap between a closed fold and what follows in a cell."
    parts, start, depth = list[str](), 0, 0
    for tag in re.finditer(rf'{INERT.pattern}|</?details\b[^>\n]*>', text, re.S | re.M):
        if not tag[0].startswith(('<details', '</details')): continue
        depth += -1 if tag[0].startswith('</') else 1
        rest = text[tag.end():].lstrip()
        if depth or not rest or rest.startswith(('</', '<details', ':::')): continue
        parts.append(text[start:tag.end()])
        start = len(text) - len(rest)
    return [*parts, text[start:]]


def figure_numbers(
    sources:list[str], # of a notebook's cells, in order
)->dict[str, int]:
    "The numbers of figures by the labels that a text refers to."
    labels = [CodeCell(s).flags.get('label', '') for s in sources if '#| fig-cap:' in s]
    return {label: i for i, label in enumerate(labels, 1)}


# --- a notebook

@dataclass
class Reader:
    "Makes the cells of one opened notebook, in order."
    links:Links
    figures:Mapping[str, int]=field(default_factory=dict)
    colab:bool=False
    count:int=0  # of captions so far
    # the author's words on the fold before, and what is written on the neighbours that have them
    before:tuple[str, frozenset[str]]=('', frozenset())

    def markdown(self, source:str)->str:
        "The source of a text."
        return open_to_markdown(reader_markdown(source, self.links, self.figures))

    def texts(self,
        source:str,
        whole:bool=False, # is it graded, and stays one cell?
    )->Iterator[str]:
        "The sources of the cells that a text becomes: behind a fold begins another."
        source = TEXT_MARK.sub('', source)
        for part in [source] if whole else behind_folds(source):
            first, last = folds_of_text(part)
            if first:
                own, = self.own_words(first, WITH.sub(', in words', first))
                part = part.replace(f'<summary>{first}<', f'<summary>{own}<', 1)
            if last != first: self.before = last, frozenset({last})
            yield self.markdown(part)

    def own_words(self,
        words:str,   # the author's, on a fold
        *labels:str, # what to write on its parts
    )->list[str]:
        "The labels; one that a neighbouring fold with the author's words has says so."
        before = self.before[1] if words == self.before[0] else frozenset()
        own = [f'{label}, continued' if label in before else label for label in labels]
        self.before = words, before | {words, *labels}
        return own

    def in_the_open(self)->None:
        "What comes next is no neighbour of a fold."
        self.before = '', frozenset()

    def code(self,
        cell:CodeCell,
        words:str|None=None, # on the fold; None for those of the page
    )->Iterator[tuple[str, str, dict]]:
        "Kind, source and metadata of a code cell, and of the line under its figure."
        workshop = self.links.path.startswith('5_workshop')
        words = fold_words(cell, workshop) if words is None else words
        caption = self.caption(cell)
        plain = re.sub(r'(\]\()([^)\s{}]+\.ipynb)', self.link_in_code, cell.code)
        if 'fold' in cell.flags and (cell.kinds or caption):
            code = re.sub(rf'\A# *{re.escape(words)}.*\n', '', plain)
            bar, said = self.own_words(words, f'The code of: {words}', shown_as(cell, words))
            yield 'code', *answer(code, bar, said, caption, self.colab)
            return
        if 'fold' in cell.flags: words, = self.own_words(words, words)
        else: self.in_the_open()
        yield 'code', *(folded(plain, words, self.colab) if words else (plain, {}))
        if caption: yield 'markdown', caption, {}

    def link_in_code(self, m:re.Match)->str:
        "A link in a text that code puts out."
        return m[1] + self.links.address(m[2])

    def caption(self, cell:CodeCell)->str:
        "The line under a figure; '' if there is none."
        said = cell.flags.get('fig-cap', '')
        if not said: return ''
        self.count += 1
        return f'*Figure {self.count}.* {self.markdown(said)}'

    def outputs(self, outputs:list[dict])->list[dict]:
        "Stored outputs, their texts translated too."
        def one(output:dict)->dict:
            data = output.get('data', {})
            if 'text/markdown' not in data: return output
            text = self.markdown(''.join(data['text/markdown']))
            return output | {'data': data | {'text/markdown': text.splitlines(keepends=True)}}
        return [one(output) for output in outputs]
