"""What the notebooks say of themselves: their times, and what they need."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    core:int = 0          # minutes for it without its sections "Deeper"
    asked:dict[str, int] = field(default_factory=dict) # exercises by id: minutes that each states

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
        "Minutes for reading and playing, and for these exercises of the chapter."
        worked = sum(self.asked.get(id, 0) for id in exercises)
        return self.minutes.read + (self.minutes.play or 0) + worked


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


EXERCISE = re.compile(r'^> \*\*Exercise (\S+) \([^)]*?(\d+) minutes', re.M)


def asked_in(
    text:str, # of a chapter or of a part
)->dict[str, int]:
    "Its exercises by id: the minutes that each states."
    return {id: int(minutes) for id, minutes in EXERCISE.findall(text)}


def core_of(
    text:str, # all prose of a chapter
    minutes:Minutes,
)->int:
    "Minutes without the sections whose titles begin with Deeper: reading by words, and exercises."
    sections = re.split(r'^(?=## )', text, flags=re.M)
    core = ''.join(s for s in sections if not s.startswith('## Deeper'))
    read = minutes.read*len(core.split())/max(len(text.split()), 1)
    return round(read) + (minutes.play or 0) + sum(asked_in(core).values())


def read_chapters()->dict[str, Chapter]:
    "The heads of all chapters by number, in order."
    folder, chapters = course_folder(), dict[str, Chapter]()
    for name, path in course_chapters().items():
        number = chapter_of(name)
        if not number: continue
        prose = [text for kind, text in cells_of(path) if kind == 'markdown']
        head = '\n'.join(prose[:3])   # a paper's picture may stand between them
        title = head.partition('\n')[0].removeprefix('# ')
        place = path.relative_to(folder).as_posix()
        # a link to a later chapter says where to go on
        needs = tuple(need for need in needs_of(head) if need in chapters)
        text = '\n\n'.join(prose)
        minutes = minutes_of(head)
        chapters[number] = Chapter(number, title, place, minutes, needs, core_of(text, minutes),
                                   asked_in(text))
    return chapters


def left_out(
    numbers:Sequence[str], # of the chapters that somebody reads
    chapters:dict[str, Chapter],
)->tuple[str, ...]:
    "The chapters that these need and that are not among them."
    needed = {need for number in numbers for need in chapters[number].needs}
    return tuple(number for number in chapters if number in needed - {*numbers})


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


# --- the map

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
COLOURS = ('#1f77b4', '#2e8540', '#b85c00', '#9467bd', '#777777', '#777777', '#9467bd')


def line_of(chapter:Chapter, row:int)->str:
    "A chapter's dot, number and title."
    y, colour = middle(row), COLOURS[int(chapter.part[0]) - 1]
    title = escape(chapter.title.partition(':')[0])
    return (f'<circle cx="{LEFT}" cy="{y}" r="5" fill="{colour}"/>'
            f'<text x="{LEFT + 12}" y="{y + 5}"><tspan font-weight="bold" fill="{colour}">'
            f'{chapter.number}</tspan> {title}</text>')
