"""What the notebooks define, prove and ask, and the pages that list it."""
# Plain module: edited by hand, no notebook exports it.
import re
from collections.abc import Iterator
from dataclasses import dataclass

from eqtutor.tutor.chapters import Chapter, cells_of
from eqtutor.tutor.course import chapter_of, course_chapters, course_folder
from eqtutor.tutor.reading import anchor_of


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


# --- statements

KINDS = ('Definition', 'Lemma', 'Proposition', 'Theorem', 'Corollary', 'Rule', 'Counter-example',
         'Exercise')
# `> **Theorem 5.1 (a name).** What holds.`; a counter-example may go without a number
HEAD = re.compile(rf'^> \*\*({"|".join(KINDS)})(?: (\d+[a-z]?\.\d+))?'
                  r'(?: \(((?:[^()]|\([^()]*\))*)\))?\.\*\*\s?', re.M)
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
            if mark.re is not HEAD: anchor = anchor_of(mark[1])
            elif mark[2]: yield as_statement(mark, text, path, anchor)


def as_statement(mark:re.Match, text:str, path:str, anchor:str)->Statement:
    "The statement that begins at a mark."
    kind, number, name = mark[1], mark[2], mark[3] or ''
    # what it says may begin on the line after its head
    begins = '' if mark[0].endswith('\n') else '> '
    body = unquoted(begins + text[mark.end():]).partition('\n\n')[0]
    terms = terms_of(name, body) if kind == 'Definition' else ()
    return Statement(kind, number, name, first_words(body), path, anchor, terms)


def unquoted(
    text:str, # markdown that begins with a quotation
)->str:
    "The quotation, without the marks before its lines."
    quotation = re.match(r'(?:>.*(?:\n|$))*', text)
    return re.sub(r'^> ?', '', quotation[0], flags=re.M).strip()   # type: ignore[index]


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
    text = plain(' '.join(text.partition('$$')[0].removeprefix('- ').split()))
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
