"""The pieces of a chapter that are marked to be shown."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USES = 'slide', 'more', 'handout'
WORDS = rf'((?:{"|".join(USES)})(?: (?:{"|".join(USES)}))*)'
TEXT_MARK = re.compile(rf'<!-- *{WORDS} *-->\n?')
CODE_MARK = re.compile(rf'^#\| *{WORDS} *$', re.M)
OPTION = re.compile(r'^#\| *(?:([\w-]+): *)?(.*)\n?', re.M)


@dataclass(frozen=True)
class Piece:
    "A marked piece of a chapter: some text, or a cell with what it put out."
    uses:frozenset[str]         # of `USES`
    section:str                 # the heading it stands under
    text:str = ''               # Markdown
    code:str = ''               # of a cell, without its directives
    caption:str = ''            # of a figure
    outputs:tuple[Any, ...] = ()


def marked_pieces(
    path:Path, # of a notebook
)->list[Piece]:
    "What a chapter marks, in its order."
    cells, section, found = json.loads(path.read_text(encoding='utf-8'))['cells'], '', []
    for cell in cells:
        source = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            for block in blocks_of(source):
                if heading := re.match(r'#+ (.*?)(?: *\{#[\w-]+\})?$', block): section = heading[1]
                if mark := TEXT_MARK.match(block):
                    text = block[mark.end():]
                    found.append(Piece(uses_of(mark), section, without_fold(text)))
        elif mark := CODE_MARK.search(source):
            options = dict(OPTION.findall(source))
            found.append(Piece(uses_of(mark), section, code=OPTION.sub('', source).strip(),
                               caption=options.get('fig-cap', '').strip('"\''),
                               outputs=tuple(cell['outputs'])))
    return found


def uses_of(mark:re.Match)->frozenset[str]: return frozenset(mark[1].split())


def blocks_of(
    text:str, # Markdown of a cell
)->Iterator[str]:
    "Its paragraphs, headings, quotations, tables; a fold, a displayed formula and code are one."
    block = list[str]()
    for line in text.split('\n'):
        so_far = '\n'.join(block)
        inside = (so_far.count('<details') > so_far.count('</details>')
                  or so_far.count('$$') % 2 or len(re.findall('^```', so_far, re.M)) % 2)
        if line.strip() or inside: block.append(line)
        # a mark belongs to what follows, also behind an empty line
        elif block and not TEXT_MARK.fullmatch(so_far + '\n'):
            yield so_far
            block = []
    if block: yield '\n'.join(block)


def without_fold(
    text:str, # Markdown
)->str:
    "What a fold holds, open; other text as it is."
    fold = re.fullmatch(r'\s*<details[^>]*>\s*<summary>.*?</summary>(.*)</details>\s*', text, re.S)
    return fold[1].strip() if fold else text
