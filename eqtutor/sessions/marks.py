"""The pieces of a chapter that are marked to be shown."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tutor.reading import SHOWN_WORDS, TEXT_MARK, CodeCell

CODE_MARK = re.compile(rf'^#\| (?P<uses>{SHOWN_WORDS}) *$', re.M)


@dataclass(frozen=True)
class Piece:
    "A marked piece of a chapter: some text, or a cell with what it put out."
    uses:frozenset[str]         # of `SHOWN_AS`
    section:str                 # the heading it stands under
    text:str = ''               # Markdown
    code:str = ''               # of a cell, without its directives
    caption:str = ''            # of a figure
    alt:str = ''                # of a figure
    outputs:tuple[Any, ...] = ()

    @property
    def beside(self)->bool:
        "Does it stand in a column on the right?"
        return 'beside' in self.uses


def marked_pieces(
    path:Path, # of a notebook
)->list[Piece]:
    "What a chapter marks, in its order."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    section, found = '', list[Piece]()
    for cell in cells:
        source = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            for block in blocks_of(source):
                if heading := re.match(r'#+ (.*?)(?: *\{#[\w-]+\})?$', block): section = heading[1]
                if mark := TEXT_MARK.match(block):
                    found.append(Piece(uses_of(mark), section, block[mark.end():]))
        elif mark := CODE_MARK.search(source):
            read = CodeCell.read(cell)
            found.append(Piece(uses_of(mark), section, '', read.code, read.flags.get('fig-cap', ''),
                               read.flags.get('fig-alt', ''), tuple(cell['outputs'])))
    return found


def uses_of(
    mark:re.Match, # of a block or a cell
)->frozenset[str]:
    "What the mark says that its piece is for, of `USES`."
    return frozenset(mark['uses'].split())


FOLD_TAG = re.compile(r'<details[^>]*>(?:\s*<summary>.*?</summary>)?|</details>', re.S)

def blocks_of(
    text:str, # Markdown of a cell
)->Iterator[str]:
    "Its paragraphs, headings, quotations, tables, with the mark before them; folds are opened."
    block = list[str]()
    for line in FOLD_TAG.sub('\n', text).split('\n'):
        so_far = '\n'.join(block)
        inside = so_far.count('$$') % 2 or len(re.findall('^```', so_far, re.M)) % 2
        if line.strip() or inside: block.append(line)
        # a mark belongs to what follows, also behind an empty line
        elif block and not TEXT_MARK.fullmatch(so_far):
            yield so_far
            block = []
    if block: yield '\n'.join(block)
