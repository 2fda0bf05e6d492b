"""What happens to a notebook on its way to a page of the site (`procs` in `settings.ini`)."""
# Plain module: edited by hand, no notebook exports it.
import posixpath
import re
import textwrap
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from eqtutor.tutor.course import chapter_of
from eqtutor.tutor.reading import DRAWN, FOLD, SHOWN, folds_of_text, why_folded
from eqtutor.tutor.student import cell_mark

from .index import HEAD, unquoted
from .names import all_names

COLUMNS = 88   # of code on a page
Notebook = Any  # nbdev's, with `cells`, `path_` and, once processed, front matter in cell 0


def folder_of(nb:Notebook)->str:
    "The part of the course a notebook stands in, '5_workshop'; '' for the map."
    return next((p for p in Path(nb.path_).parts if re.match(r'[1-9]_\w+$', p)), '')


def change_markdown(
    nb:Notebook, # changed in place
    change:Callable[[str], str],
)->None:
    "Apply a function to all markdown of a page: what is written, and what code puts out."
    for cell in nb.cells:
        if cell.cell_type == 'markdown': cell.source = change(cell.source)
        for output in cell.get('outputs', []):
            data = output.get('data', {})
            if 'text/markdown' in data:
                data['text/markdown'] = change(''.join(data['text/markdown']))


# --- titles

UNSEARCHED = '92_api.ipynb', '91_index.ipynb'   # lists of words would come before every lesson


class NumberTitle:
    """Puts the chapter's number before its title, in the sidebar and wherever the page is named;
    keeps pages that list words out of the search."""
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        number, head = chapter_of(Path(self.nb.path_).name), self.nb.cells[0]
        if not number or head.cell_type != 'raw': return
        named = re.sub(r"^title: '?(.*?)'?$", rf"title: '{number} \1'", head.source, flags=re.M)
        unsearched = Path(self.nb.path_).name in UNSEARCHED
        head.source = re.sub(r'^---\n', '---\nsearch: false\n', named) if unsearched else named


# --- the head of a page

HEAD_LINES = re.compile(r'\*\*(You will|You need|Time)\*\*')
MINUTES = re.compile(r'\.? · \*\*((?:read )?\d+ minutes)\*\*$')   # behind what one needs


class PageHead:
    """Makes one block of what a page needs, takes and gives, and where it opens, a row for each.
    Runs after `OpenLinks`, whose line it takes in."""
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        from execnb.nbio import mk_cell
        cells = self.nb.cells
        links = cells.pop(1).source
        if not folder_of(self.nb):   # the map begins with its picture
            cells.append(mk_cell(links, 'markdown'))
            return
        heads = [cell for cell in cells[1:4] if cell.cell_type == 'markdown']
        rows = head_rows([part for cell in heads for part in taken_head(cell)])
        rows.append(head_row('Notebook', links.partition(': ')[2]))
        block = '\n\n'.join(['::::: {.page-head}', *rows, ':::::'])
        cells.insert(1, mk_cell(block, 'markdown'))


def head_rows(
    parts:list[str], # paragraphs of a head
)->list[str]:
    "A row for each label: what one needs, how long it takes, and, in a fold, what one learns."
    said = dict[str, str]()
    for part in parts:
        if label := HEAD_LINES.match(part): name = label[1]
        said[name] = f'{said.get(name, "")}\n\n{HEAD_LINES.sub("", part, count=1)}'.strip()
    if minutes := MINUTES.search(said.get('You need', '')):
        said['You need'] = MINUTES.sub('', said['You need'])
        said.setdefault('Time', minutes[1])
    rows = [head_row(name, said[name]) for name in ('You need', 'Time') if name in said]
    if 'You will' not in said: return rows
    return [*rows, f'<details open class="will"><summary>You will</summary>\n\n'
                   f'{said["You will"]}\n\n</details>']


def head_row(
    label:str,
    text:str,  # markdown
)->str:
    "A label and what is said beside it."
    return f':::: {{.row}}\n[{label}]{{.label}}\n\n{text}\n::::'


def taken_head(
    cell:Any, # markdown; the head is taken out of it
)->list[str]:
    "The paragraphs of a cell that tell what a chapter gives, needs and how long it takes."
    paragraphs = cell.source.split('\n\n')
    taken = [n for n, text in enumerate(paragraphs) if HEAD_LINES.match(text)]
    taken += [n + 1 for n in taken if paragraphs[n] == '**You will**']
    cell.source = '\n\n'.join(text for n, text in enumerate(paragraphs) if n not in taken)
    return [paragraphs[n] for n in sorted(taken)]


# --- folds

class FoldCode:
    "Folds the workshop's sources, the code of figures and checks; a lesson's own code stays open."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        workshop = folder_of(self.nb) == '5_workshop'
        for cell in self.nb.cells:
            if cell.cell_type != 'code': continue
            kinds = {kind for o in cell.get('outputs', []) for kind in o.get('data', {})}
            source = ''.join(cell.source)
            own = source.replace(SHOWN, '', 1)
            # Quarto stops at a directive that stands in a cell twice: the author's own wins
            if 'code-fold' in own: cell.source = own
            words = why_folded(cell.source, bool(kinds & {*DRAWN}), workshop)
            if not words: continue
            rest = re.sub(r'^#\| code-(?:fold|summary):.*\n', '', source, flags=re.M)
            quoted = words.replace('\\', '').replace('"', "'")
            cell.source = f'#| code-fold: true\n#| code-summary: "{quoted}"\n{rest}'


def folded_as(
    cell:Any,
)->str:
    "The words under which a whole cell is folded, after `#| fold`; '' if it is not."
    return ' '.join((getattr(cell, 'directives_', None) or {}).get('fold', []))


def first_and_last_fold(
    cell:Any,
)->tuple[str, str]:
    "The words of the folds with which a cell begins and ends; '' where it does so in the open."
    if words := folded_as(cell): return words, words
    return folds_of_text(cell.source) if cell.cell_type == 'markdown' else ('', '')


class FoldCells:
    """Folds whole cells, code and what it puts out, that say `#| fold WORDS`. In a notebook a fold
    ends with its cell; on a page neighbours with the same words become one fold."""
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        from execnb.nbio import mk_cell
        def text(source:str)->Any: return mk_cell(source, 'markdown')
        cells = self.nb.cells
        for before, cell, after in zip(cells, cells[1:], cells[2:]):
            # nbdev shows signatures beside what is exported: they are folded with it
            words = folded_as(after) or folded_as(before)
            if words and re.search(r'^show_doc', ''.join(cell.source), re.M):
                cell.directives_ = {'fold': [words]}
        ends = [first_and_last_fold(cell) for cell in cells]
        seams = [bool(a[1]) and a[1] == b[0] for a, b in zip(ends, ends[1:])]
        self.nb.cells = []
        for cell, before, after in zip(cells, [False, *seams], [*seams, False]):
            words = folded_as(cell)
            if words and not before:
                self.nb.cells.append(text(f'<details><summary>{words}</summary>'))
            if before and not words: cell.source = FOLD.sub('', cell.source, count=1)
            if after and not words:
                cell.source = cell.source.rstrip().removesuffix('</details>').rstrip()
            self.nb.cells.append(cell)
            if words and not after: self.nb.cells.append(text('</details>'))


# --- statements and exercises

BLOCK = re.compile(rf'(?={HEAD.pattern})(?:^>.*(?:\n|\Z))+', re.M)


class FrameStatements:
    """Makes a division of each quoted statement and exercise, `.statement.theorem` or `.exercise`.
    That of an exercise holds its hints, too, and the solution and check that follow."""
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        from execnb.nbio import mk_cell
        cells, asked = list[Any](), ''
        for cell in self.nb.cells:
            if asked and exercise_of(cell) != asked:
                cells.append(mk_cell(':::::', 'markdown'))
                asked = ''
            if cell.cell_type == 'markdown':
                head = HEAD.match(cell.source)
                if head and head[1] == 'Exercise':
                    asked = head[2]
                    cells.append(mk_cell('::::: {.exercise}', 'markdown'))
                cell.source = BLOCK.sub(framed, cell.source)
            cells.append(cell)
        self.nb.cells = cells + [mk_cell(':::::', 'markdown')]*bool(asked)


def exercise_of(
    cell:Any,
)->str:
    "The exercise that a cell solves or checks, '5.4'; '' of any other cell."
    directives = getattr(cell, 'directives_', None) or {}
    mark = cell_mark(cell.source) if isinstance(cell.source, str) else None
    return mark[1] if mark else ''.join(directives.get('solution') or directives.get('check') or [])


def framed(
    block:re.Match, # a quotation that begins with the head of a statement
)->str:
    "The statement as a division; of an exercise what it asks, under a line about it."
    text, head = unquoted(block[0]), HEAD.match(block[0])
    if head[1] != 'Exercise':   # type: ignore[index]
        kind = head[1].lower()   # type: ignore[index]
        return f':::: {{.statement .{kind}}}\n{text}\n::::\n'
    *about, difficulty = head[3].split(', ')   # type: ignore[index]
    points = difficulty.count('●')
    task = unquoted('> ' + block[0][head.end():])   # type: ignore[index]
    return (f'[**Exercise {head[2]}** [{" · ".join(about)} · '   # type: ignore[index]
            f'<span role="img" aria-label="difficulty {points} of 3">{difficulty}</span>]'
            f'{{.about}}]{{.exercise-head}}\n\n{task}\n')


# --- links

class LocalLinks:
    "Makes links between the pages relative: they work in a fork, and in a copy on a disk."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        from nbdev.config import get_config
        settings = get_config()
        site = settings.doc_host.rstrip('/') + '/' + settings.doc_baseurl.strip('/') + '/'
        here = folder_of(self.nb)
        change_markdown(self.nb, lambda text: local_links(text, site, here, shown_names()))


@cache
def shown_names()->set[str]:
    "Where the site shows signatures: '1_foundations/groups.html#group'."
    names = (n for n in all_names() if n.path)
    return {re.sub(r'/[0-9]+[a-z]?_', '/', n.path).replace('.ipynb', f'.html#{n.name.lower()}')
            for n in names}


def local_links(
    text:str,       # markdown
    site:str,       # the address that all pages of the site begin with
    here:str,       # the folder of the page in the site, '' for the site's own
    shown:set[str], # places in the site that a link to a name may lead to
)->str:
    "Markdown whose links within the site are relative; one to a name that is not shown is none."
    def relative(link:re.Match)->str:
        words, page, name = link[1], link[2], (link[3] or '').partition('.')[0]
        if name and f'{page}#{name}' not in shown: return words
        anchor = f'#{name}' if name else ''
        return f'[{words}]({posixpath.relpath(page, here or ".")}{anchor})'
    return re.sub(rf'\[([^\]]*)\]\({re.escape(site)}([^)\s#]+)(?:#([^)\s]*))?\)', relative, text)


# --- signatures

# of a class that only inherits how it is made
NOTHING_SAID = r'def (\w+)\(\s*\*args(?::Any)?, \*\*kwargs(?::Any)?\s*\)(?:->\w+)?:?'


def clean_signature(
    code:str, # as nbdev shows it
)->str:
    "A signature whose comments are plain words, none wider than the page."
    plain = re.sub(r'\[(`[^`]*`)\]\([^)]*\)', r'\1', code)
    plain = re.sub(r'\b(?:[a-z_]\w*\.)+(?=[A-Z])', '', plain)   # where a type is defined
    plain = re.sub(NOTHING_SAID, r'class \1', plain)
    return '\n'.join(line for long in plain.splitlines() for line in narrow(long))


def narrow(
    line:str, # of a signature
)->list[str]:
    "The line; where it is too wide, its comment stands above it, and an argument on each line."
    if len(line) <= COLUMNS: return [line]
    indent = ' '*(len(line) - len(line.lstrip()))
    code, _, comment = line.partition(' # ')
    above = textwrap.wrap(comment, COLUMNS, initial_indent=f'{indent}# ',
                          subsequent_indent=f'{indent}# ')
    if len(code) <= COLUMNS: return [*above, code.rstrip()]
    return [*above, *(f'{indent}{part}' for part in arguments(code.strip()))]


def arguments(
    code:str, # arguments, with commas between them
)->list[str]:
    "Each argument with the comma behind it; a comma inside brackets parts nothing."
    parts, depth = [''], 0
    for letter in code:
        depth += (letter in '([{') - (letter in ')]}')
        parts[-1] += letter
        if letter == ',' and not depth: parts.append('')
    return [part.strip() for part in parts if part.strip()]


class CleanSignatures:
    "Takes markdown and names of notebooks out of the signatures that nbdev writes."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        for cell in self.nb.cells:
            if not re.search(r'^show_doc', ''.join(cell.source or ''), re.M): continue
            for output in cell.get('outputs', []):
                data = output.get('data', {})
                if 'text/markdown' not in data: continue
                text = ''.join(data['text/markdown'])
                data['text/markdown'] = re.sub(
                    r'(?<=```python\n).*?(?=\n```)', lambda m: clean_signature(m[0]), text,
                    flags=re.S)


# --- papers

PAPERS = dict(P1='romero2020attentive', P2='diaconu2019affine', P3='romero2021group',
              P4='he2021efficient')
NOT_PROSE = re.compile(r'(```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\[[^\]\n]*\]\([^)\n]*\)'
                       r'|<summary>.*?</summary>|<[^>]*>|^#[^\n]*|^\|[^\n]*)', re.S | re.M)


def link_papers(
    text:str,     # markdown
    sources:str,  # the page of the bibliography, as seen from this one
    known:set,    # papers that have been linked already; changed
)->str:
    "Markdown in which the first mention of each paper, P1 to P4, leads to its entry."
    def link(mention:re.Match)->str:
        if mention[0] in known: return mention[0]
        known.add(mention[0])
        return f'[{mention[0]}]({sources}#{PAPERS[mention[0]]})'
    parts = NOT_PROSE.split(text)   # odd ones: code, formulas, links, headings, …
    return ''.join(part if i % 2 else re.sub(r'\bP[1-4]\b', link, part)
                   for i, part in enumerate(parts))


SOURCES = Path('6_reference/93_sources.ipynb')


class LinkPapers:
    "Links the first mention of each of the four papers on a page."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        here = folder_of(self.nb)
        if Path(self.nb.path_).name == SOURCES.name: return
        sources, known = posixpath.relpath(str(SOURCES), here or '.'), set[str]()
        for cell in self.nb.cells:
            if cell.cell_type != 'markdown': continue
            cell.source = link_papers(cell.source, sources, known)


# --- weight

class LightPictures:
    "Reduces figures to 256 colours, a third of their weight; repeated small pictures come once."
    def __init__(self, nb): self.nb = nb

    def begin(self)->None:
        seen = dict[str, int]()
        for cell in self.nb.cells:
            for output in cell.get('outputs', []):
                data = output.get('data', {})
                if 'image/png' in data: data['image/png'] = light(''.join(data['image/png']))
                if '{=html}' in ''.join(data.get('text/markdown', '')):
                    data['text/markdown'] = share_pictures(''.join(data['text/markdown']), seen)


def light(
    picture:str, # a PNG, base64
)->str:
    "The picture with 256 colours at most, if that is shorter."
    from PIL import Image
    file = BytesIO()
    image = Image.open(BytesIO(b64decode(picture)))
    image = image.convert('RGBA' if image.has_transparency_data else 'RGB')
    image.quantize(256, dither=Image.Dither.NONE).save(file, 'PNG', optimize=True)
    return min(picture, b64encode(file.getvalue()).decode(), key=len)


def share_pictures(
    html:str,
    seen:dict[str, int], # numbers of the pictures that the page has had; added to
)->str:
    "HTML whose pictures have a source once, and a number that the page's script follows after."
    def one(match:re.Match)->str:
        before, source = match[1], match[2]
        if source in seen: return f'{before}data-as="{seen[source]}"'
        seen[source] = len(seen)
        return f'{before}data-picture="{seen[source]}" src="{source}"'
    return re.sub(r'(<img\b[^>]*?)src="(data:image/png;base64,[\w+/=]+)"', one, html)
