"""What the notebooks say of themselves: times, what they need, what they define, prove and ask."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .course import chapter_of, course_chapters, course_folder
from .exercise import chapter_exercises


@dataclass(frozen=True)
class Minutes:
    "A chapter's own time line; None where the line does not say."
    read:int
    play:int|None=None
    exercises:int|None=None

    def total(self,
        asks:bool, # has the chapter exercises?
    )->int:
        "All of it. Where exercises have no time of their own, they take as long as the reading."
        exercises = self.exercises
        if exercises is None: exercises = self.read if asks else 0
        return self.read + (self.play or 0) + exercises


@dataclass(frozen=True)
class Chapter:
    "The head of a notebook."
    number:str            # '05', '24b'
    title:str
    path:str              # in nbs/, '1_foundations/05_convolution.ipynb'
    minutes:Minutes
    needs:tuple[str, ...] # numbers of the chapters that "You need" links

    @property
    def part(self)->str:
        "The folder, '1_foundations'."
        return self.path.partition('/')[0]

    @property
    def total(self)->int:
        "Minutes for all of it, each exercise once."
        return self.minutes.total(bool(chapter_exercises(self.number)))

    def takes(self,
        exercises:tuple[str, ...], # that are worked on, by id
    )->int:
        "Minutes for reading and playing, and the share of the exercises' time, by their marks."
        marks = {e.id: e.marks for e in chapter_exercises(self.number)}
        asked = sum(marks.get(id, 0) for id in exercises)
        read = self.minutes.read + (self.minutes.play or 0)
        return read + round((self.total - read)*asked/max(sum(marks.values()), 1))


@dataclass(frozen=True)
class Statement:
    "A numbered definition, theorem or exercise, and where it stands."
    kind:str    # 'Definition', 'Theorem', 'Exercise', …
    number:str  # '5.1'
    name:str    # what its brackets say, 'group'; '' if there are none
    says:str    # its first sentence, or as much of it as fits on a line
    path:str    # of the notebook, in nbs/
    anchor:str  # of the section it stands in
    terms:tuple[str, ...] # of a definition: the words it defines

    @property
    def chapter(self)->str:
        "The chapter it belongs to."
        return chapter_of(self.number)


# --- heads

def cells_of(path:Path)->list[tuple[str, str]]:
    "Kind and text of each cell."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    return [(c['cell_type'], ''.join(c['source'])) for c in cells]


def minutes_of(
    head:str, # the first cells of a chapter
)->Minutes:
    "The time line: `**Time** read 35 · play 10 · exercises 30 minutes`, or minutes for reading."
    line = re.search(r'^\*\*Time\*\*.*$', head, re.M)
    if line:
        spent = {what: int(n) for what, n in re.findall(r'(read|play|exercises) (\d+)', line[0])}
        return Minutes(spent['read'], spent.get('play', 0), spent.get('exercises', 0))
    one = re.search(r'\*\*(?:read )?(\d+) minutes\*\*', head)
    if one: return Minutes(int(one[1]))
    raise ValueError('no time line: expected **Time** read 35 · play 10 · exercises 30 minutes')


def needs_of(
    head:str, # the first cells of a chapter
)->tuple[str, ...]:
    "The chapters that the line You need links, by number, in the order of the line."
    line = re.search(r'^\*\*You need\*\*.*$', head, re.M)
    files = re.findall(r'\]\(([^)#]+\.ipynb)', line[0]) if line else []
    return tuple(dict.fromkeys(chapter_of(Path(file).name) for file in files))


def read_chapters()->dict[str, Chapter]:
    "The heads of all chapters by number, in order."
    folder, chapters = course_folder(), dict[str, Chapter]()
    for name, path in course_chapters().items():
        number = chapter_of(name)
        if not number: continue
        head = '\n'.join(text for _, text in cells_of(path)[:3])
        title = head.partition('\n')[0].removeprefix('# ')
        place = path.relative_to(folder).as_posix()
        # a link to a later chapter says where to go on
        needs = tuple(need for need in needs_of(head) if need in chapters)
        chapters[number] = Chapter(number, title, place, minutes_of(head), needs)
    return chapters


def direct_needs(
    chapters:dict[str, Chapter],
)->dict[str, tuple[str, ...]]:
    "For each chapter, what it needs and does not already get through another one."
    def behind(number:str)->set[str]:
        needs = set(chapters[number].needs) & chapters.keys()
        return needs.union(*map(behind, needs))
    def kept(chapter:Chapter)->tuple[str, ...]:
        known = [n for n in chapter.needs if n in chapters]
        return tuple(n for n in known if not any(n in behind(other) for other in known))
    return {number: kept(chapter) for number, chapter in chapters.items()}


# --- statements

KINDS = 'Definition', 'Lemma', 'Proposition', 'Theorem', 'Corollary', 'Rule', 'Exercise'
HEAD = re.compile(rf'^\*\*({"|".join(KINDS)}) (\d+[a-z]?\.\d+)(?: \(([^)]*)\))?\.?\*\*\.?[ ]?',
                  re.M)
FIRST_WORDS = 110   # letters of a statement that fit on a line


def read_statements()->list[Statement]:
    "All numbered statements and exercises of the course, in the order of the chapters."
    folder = course_folder()
    return [s for path in course_chapters().values()
            for s in statements_of(cells_of(path), path.relative_to(folder).as_posix())]


def statements_of(
    cells:list[tuple[str, str]], # kind and text of each
    path:str,                    # of the notebook, in nbs/
)->Iterator[Statement]:
    "The statements of one notebook."
    anchor = ''
    for kind, text in cells:
        if kind != 'markdown': continue
        text = re.sub(r'<details.*?</details>', '', text, flags=re.S)
        marks = [*HEAD.finditer(text), *re.finditer(r'^##+ (.*)$', text, re.M)]
        for mark in sorted(marks, key=lambda m: m.start()):
            if mark.re is HEAD: yield as_statement(mark, text, path, anchor)
            else: anchor = anchor_of(mark[1])


def as_statement(mark:re.Match, text:str, path:str, anchor:str)->Statement:
    "The statement that begins at a mark."
    kind, number, name = mark[1], mark[2], mark[3] or ''
    body = text[mark.end():].partition('\n\n')[0]
    if aside := re.match(r'(?:\*\(([^)]*)\)\*|\(([^)]*)\)\.?)\s*', body):
        name, body = name or aside[1] or aside[2], body[aside.end():]
    terms = terms_of(name, body) if kind == 'Definition' else ()
    return Statement(kind, number, name, first_words(body), path, anchor, terms)


def anchor_of(
    heading:str, # without its #
)->str:
    "The anchor of a heading: the one that is written, or Pandoc's."
    if written := re.search(r'\{#([\w-]+)\}', heading): return written[1]
    slug = re.sub(r'\s+', '-', re.sub(r'[^\w\s.-]', '', heading.lower()).strip())
    return re.sub(r'^[^a-z]*', '', slug)


CODE = r'(\$[^$]*\$|`[^`]*`)'   # what keeps its stars and brackets
SHORT = 'Eq.', 'Eqs.', 'Prop.', 'App.', 'e.g.', 'i.e.'

def plain(
    text:str, # markdown
)->str:
    "The text without links and emphasis; formulas and code stay as they are."
    text = re.sub(rf'{CODE}|\[([^\]$`]*)\]\([^)]*\)', lambda m: m[1] or m[2], text)
    return re.sub(rf'{CODE}|\*', lambda m: m[1] or '', text)


def first_words(
    text:str, # markdown
)->str:
    "The first sentence, cut at a space outside formulas where it is long."
    text = plain(' '.join(text.partition('$$')[0].split()))
    said, cut = list[str](), False
    for piece in re.findall(rf'(?:{CODE[1:-1]})\S*|\S+', text):
        cut = sum(map(len, said)) + len(piece) > FIRST_WORDS
        if cut: break
        said.append(piece)
        ends = piece.endswith(('.', '?', ':')) and piece not in SHORT
        if ends and re.search(r'[\w`$)"].$', piece) and len(said) > 3: break
    return ' '.join(said).rstrip(' ,;:') + ' …'*(cut and bool(said))


def terms_of(name:str, body:str)->tuple[str, ...]:
    "The words a definition defines: its name, or else what it sets in italics."
    named = re.split(r'[;,]', name)[0].strip()
    if named and not re.match(r'P\d|\(?Eq', named): return (named,)
    words = re.findall(r'(?<!\*)\*{1,2}([a-z][\w -]{2,28}?)\*{1,2}(?!\*)', body)
    return tuple(dict.fromkeys(words))


# --- pages made of them

def link_to(
    s:Statement,
    start:str='../', # from the page that links to nbs/
)->str:
    "The address of the section a statement stands in."
    return f'{start}{s.path}' + (f'#{s.anchor}' if s.anchor else '')


def listed(
    statements:list[Statement],
    chapters:dict[str, Chapter],
)->str:
    "Statements as markdown lists, a list a chapter, each with a link to its section."
    lines, chapter = list[str](), ''
    for s in statements:
        if s.chapter != chapter:
            chapter = s.chapter
            lines += ['', f'**[{chapter} {chapters[chapter].title}](../{s.path})**', '']
        lines.append(f'- [{s.kind} {s.number}]({link_to(s)})' + in_short(s))
    return '\n'.join(lines).strip()


def in_short(s:Statement)->str:
    "The name and the first words of a statement."
    name = f' ({s.name})' if s.name else ''
    return name + (f': {s.says}' if s.says else '')


def glossary(
    statements:list[Statement],
)->str:
    "The words that are defined, in the order of the alphabet, with links."
    entries = {term: s for s in reversed(statements) for term in s.terms}
    def alphabetical(term:str)->str: return term.removeprefix('the ').lower()
    return '\n'.join(f'- **{term}**: [{s.kind} {s.number}]({link_to(s)}). {s.says}'.rstrip()
                     for term, s in sorted(entries.items(), key=lambda e: alphabetical(e[0])))


def table_of(
    chapters:dict[str, Chapter],
)->str:
    "Chapters with what they need and how long they take, as a markdown table."
    lines = ['| chapter | needs | minutes |', '|---|---|---:|']
    for c in chapters.values():
        needs = ', '.join(c.needs) or 'nothing'
        lines.append(f'| [{c.number} {c.title}](../{c.path}) | {needs} | {c.total} |')
    return '\n'.join(lines)


ROW, LEFT, WIDTH = 23, 84, 372   # pixels: a line, the room for the arcs, all


def map_of_chapters(
    chapters:dict[str, Chapter],
    words:str, # what the map is, for those who do not see it
)->str:
    "The map as SVG: a line a chapter, an arc to each that it needs directly."
    rows = {number: i for i, number in enumerate(chapters)}
    height = ROW*len(rows) + 8
    needs = direct_needs(chapters)
    arcs = [arc(rows[need], rows[number]) for number in chapters for need in needs[number]]
    lines = [line_of(chapter, i) for i, chapter in enumerate(chapters.values())]
    style = f'max-width:{WIDTH}px;width:100%;height:auto;display:block;margin:auto'
    return (f'<svg role="img" aria-label="{escape(words)}" viewBox="0 0 {WIDTH} {height}" '
            f'style="{style}" font-size="13" fill="currentColor" '
            'font-family="system-ui, sans-serif">\n' + '\n'.join([*arcs, *lines]) + '\n</svg>')


def middle(row:int)->float:
    "The height of a row's middle."
    return 4 + ROW*(row + .5)


def arc(above:int, below:int)->str:
    "A line from the chapter that is needed to the one that needs it, bent to the left."
    top, bottom = middle(above), middle(below)
    reach = LEFT - min(LEFT + 22, 8 + 8.5*(below - above))
    shade = 1 if below - above == 1 else .45
    return (f'<path d="M{LEFT} {top} C{reach:.0f} {top} {reach:.0f} {bottom} {LEFT} {bottom}" '
            f'fill="none" stroke="currentColor" stroke-width="1.3" opacity="{shade}"/>')


# a colour a part that is readable on white and on black
COLOURS = '#1f77b4', '#2e8540', '#b85c00', '#9467bd', '#777777', '#777777'


def line_of(chapter:Chapter, row:int)->str:
    "A chapter's dot, number and title."
    y, colour = middle(row), COLOURS[int(chapter.part[0]) - 1]
    title = escape(chapter.title.partition(':')[0])
    return (f'<circle cx="{LEFT}" cy="{y}" r="5" fill="{colour}"/>'
            f'<text x="{LEFT + 12}" y="{y + 5}"><tspan font-weight="bold" fill="{colour}">'
            f'{chapter.number}</tspan> {title}</text>')
