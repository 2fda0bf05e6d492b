"""A session's slides, handout and notebook, from its page and from the chapters that it names."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..files import writable_folder, write_atomic
from ..names import needs
from ..tutor.course import chapter_path, course_chapters
from ..tutor.student import Copy, notebook_bytes, student_copy
from .marks import Piece, marked_pieces

HERE = Path(__file__).parent
# what is presented, and the chapters whose marks make its slides
SESSIONS = {
    'P1': ('71', '21', '21b'), 'P2': ('72', '22', '22b'),
    'P3': ('73', '23', '23b'), 'P4': ('74', '24', '24b'),
    '01': ('01',), '02': ('02',), '04': ('04',), '05': ('05',), '06': ('06',)}


@dataclass(frozen=True)
class Session:
    "What somebody presents: the pieces that its chapters mark, and what the page says of them."
    name:str
    title:str
    paths:tuple[Path, ...]     # of the notebooks, the session's own page first if it has one
    pieces:tuple[Piece, ...]
    notes:tuple[str, ...] = () # for the speaker, slide by slide
    paper:str = ''             # who wrote it, its title and year; '' of a lesson
    ask:str = ''               # what a listener can answer at the end

    @property
    def slides(self)->list[list[Piece]]:
        "The pieces of each slide."
        slides = list[list[Piece]]()
        for piece in self.pieces:
            if 'slide' in piece.uses:
                seen = slides[-1] if 'again' in piece.uses else []
                again = [replace(p, uses=frozenset({'beside'})) for p in seen if p.outputs]
                slides.append([piece, *again])
            elif piece.uses & {'more', 'beside'} and slides: slides[-1].append(piece)
        return slides

    @property
    def handout(self)->list[Piece]:
        "The pieces of the handout."
        return [piece for piece in self.pieces if 'handout' in piece.uses]


def read_session(
    name:str, # of `SESSIONS`; small letters will do
)->Session:
    "The session of a paper or a chapter, as its notebooks stand."
    if name.upper() not in SESSIONS:
        raise ValueError(f'There is no session {name!r}. There are {", ".join(SESSIONS)}.')
    paths = tuple(path_of(number) for number in SESSIONS[name.upper()])
    pieces = tuple(piece for path in (paths[1:] or paths) for piece in marked_pieces(path))
    lesson = (paths[1:] or paths)[0]
    paper, ask = PAPER.search(markdown_of(lesson)), ASK.search(markdown_of(paths[0]))
    session = Session(name.upper(), title_of(lesson), paths, pieces,
                      paper=paper[1] if paper else '', ask=ask[1] if ask else '')
    return replace(session, notes=notes_of(paths[0], session))


def markdown_of(path:Path)->str:
    "The text of a notebook."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    return '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')


def title_of(path:Path)->str:
    "The first heading of a notebook."
    first = json.loads(path.read_text(encoding='utf-8'))['cells'][0]
    return ''.join(first['source']).partition('\n')[0].removeprefix('# ')


def path_of(
    number:str, # of a chapter
)->Path:
    "Its notebook."
    return next(path for name, path in course_chapters().items()
                if name.partition('_')[0] == number)


# the lesson's line on its paper, without what follows the year; the last line of the page
PAPER = re.compile(r'^\*\*P\d\*\* is by (.*\), [^(]*?\d{4})', re.M)
ASK = re.compile(r'^## What a listener can say at the end\s+\*(.*\?)\*$', re.M)

# | minutes | what happens | cell to run | slide |
ROW = re.compile(r'^\| *(\d+)[–-](\d+) *\|(.*)\|([^|]*)\| *(\d+)?(?:[–-](\d+))? *\|$', re.M)

def notes_of(
    path:Path,       # of the session's page
    session:Session,
)->tuple[str, ...]:
    "Of each slide: the minutes and the words of the plan's row that shows it; '' without a plan."
    notes = [''] * len(session.slides)
    for start, end, what, _, first, last in ROW.findall(markdown_of(path)):
        for slide in range(int(first or 0), int(last or first or -1) + 1):
            if 0 < slide <= len(notes) and not notes[slide - 1]:
                notes[slide - 1] = f'Minutes {start} to {end}: {what.strip()}'
    return tuple(notes)


# --- HTML

@cache
def renderer():
    "What makes HTML of Markdown with tables and formulas; of the author's own text alone."
    with needs('lab'):
        from mistune import create_markdown
        from mistune.plugins.table import table, table_in_quote

        from ..grading.nbgrader.markup import formulas
    return create_markdown(escape=False, plugins=[table, table_in_quote, formulas])


# letters that browsers no longer make of others
SCRIPT = dict(zip('ABCDEFGHIJKLMNOPQRSTUVWXYZ', '𝒜ℬ𝒞𝒟ℰℱ𝒢ℋℐ𝒥𝒦ℒℳ𝒩𝒪𝒫𝒬ℛ𝒮𝒯𝒰𝒱𝒲𝒳𝒴𝒵'))
DOUBLE = dict(zip('CNQRZ', 'ℂℕℚℝℤ'))
LETTER = r'(?:\{([A-Z])\}|([A-Z]))'
# in a formula Att[f](g) is no link
FORMULA_OR_LINK = re.compile(r'(?P<formula>\$\$.*?\$\$|\$[^$\n]+\$)'
                             r'|\[(?P<words>[^\]]*)\]\((?!https?:)[^)]*\)', re.S)

def as_html(
    text:str, # Markdown
)->str:
    "Markdown as HTML; a link to another chapter is its words, for on paper it leads nowhere."
    text = re.sub(rf'\\mathcal\s*{LETTER}', lambda m: f'{{{SCRIPT[m[1] or m[2]]}}}', text)
    text = re.sub(rf'\\mathbb\s*{LETTER}', lambda m: f'{{{DOUBLE[m[1] or m[2]]}}}', text)
    text = re.sub(r'\\q?quad(?![a-z])', r'\\text{ }', text)
    text = re.sub(r'\\big(\\[lr]angle)', r'\1', text)
    text = re.sub(r'\\tag\{(.*?)\}', r'\\text{ (\1)}', text)
    text = FORMULA_OR_LINK.sub(lambda m: m['formula'] or m['words'], text)
    return str(renderer()(text))


def piece_html(piece:Piece)->str:
    "What is shown of a piece."
    if piece.text: return as_html(piece.text)
    shown = [output_html(output, piece) for output in piece.outputs]
    if any(shown): return '\n'.join(shown)
    return code_html(piece.code)


def code_html(code:str)->str:
    "Code with its colours."
    with needs('lab'):
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    return highlight(code, PythonLexer(), HtmlFormatter(noclasses=True, style='friendly'))


def output_html(
    output:dict[str, Any], # of a cell, as a notebook stores it
    piece:Piece,           # whose it is
)->str:
    "A stored picture, widget, table or text; '' of anything else."
    data = output.get('data', {})
    if 'text/html' in data:   # in which a section would be a slide
        html = ''.join(data['text/html']).replace('</section>', '</div>')
        return html.replace('<section', '<div role="region"')
    if 'text/markdown' in data: return as_html(''.join(data['text/markdown']))
    if 'image/png' in data:
        image = ''.join(data['image/png']).replace('\n', '')
        return (f'<figure><img alt="{escape(piece.alt)}" src="data:image/png;base64,{image}">'
                f'<figcaption>{as_html(piece.caption)}</figcaption></figure>')
    words = ''.join(output.get('text', ''))
    return f'<pre>{escape(words)}</pre>' if words.strip() else ''


def template(name:str)->Any:
    "A page of this folder to be filled."
    with needs('lab'):
        from jinja2 import Environment, FileSystemLoader
    env = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True,
                      lstrip_blocks=True)
    env.filters['piece'] = piece_html
    env.filters['line'] = lambda text: re.sub('</?p>', '', as_html(text)).strip()
    env.globals['text_of'] = lambda file: (HERE/file).read_text(encoding='utf-8')
    return env.get_template(name)


def deck(session:Session)->str:
    "The slides of a session, one file that needs nothing else."
    notes = [*session.notes, *['']*(len(session.slides) - len(session.notes))]
    return template('deck.html').render(session=session, slides=[*zip(session.slides, notes)])


def handout(session:Session)->str:
    "One page of paper."
    return template('handout.html').render(session=session)


def write_session(
    name:str,    # of `SESSIONS`
    folder:Path, # is made
)->list[Path]:
    "Slides, handout and notebooks of a session, in a folder; the files."
    session = read_session(name)
    pages = {'slides.html': deck(session)}
    if session.handout: pages['handout.html'] = handout(session)
    folder = writable_folder(folder, 'another folder')
    for file, page in pages.items(): write_atomic(folder/file, page.encode())
    books = {chapter_path(path.stem): path.name for path in session.paths}
    how = Copy(books, solutions=True)
    for path in session.paths:
        book = student_copy(json.loads(path.read_text(encoding='utf-8')), path.stem, how)
        write_atomic(folder/path.name, notebook_bytes(book))
    return [folder/file for file in [*pages, *(path.name for path in session.paths)]]
