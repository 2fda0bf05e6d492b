"""One letter, one meaning: what a chapter of the papers does with the letters that clash.

90_notation says what each means in the course. A chapter that uses one of them says so in the
table at its head, and one that means something else says there what it means elsewhere.
"""
import re

import pytest
from pages import NBS, read

CHAPTERS = sorted((NBS/'3_papers').glob('*.ipynb'))
# as they stand in formulas, alone: no part of a name, no index and no label above a letter
ALONE = r'(?<![\\A-Za-z{{_^]){}(?![A-Za-z])'
LETTERS = {'𝒜': r'\\mathcal\s*\{?A\b\}?|𝒜', 'σ': r'\\sigma(?![A-Za-z])',
           **{letter: ALONE.format(letter) for letter in 'qsP'}}


def used_letters(texts):
    "The letters that clash, as far as formulas use them; tables aside."
    plain = (re.sub(r'(?m)^\|.*$', '', text) for text in texts)
    formulas = [f for text in plain for f in re.findall(r'\$\$.*?\$\$|\$[^$]+\$', text, re.S)]
    return {letter for letter, pattern in LETTERS.items()
            if any(re.search(pattern, f) for f in formulas)}


def meanings(texts, head):
    "Letter -> what the table with this head says it is, in the column *here*."
    found, text = {}, '\n'.join(texts)
    for table in re.findall(rf'^\| {head} \| here \|.*\n\|[-:| ]+\n((?:\|.*\n?)+)', text, re.M):
        for row in table.splitlines():
            thing, here = (part.strip() for part in re.split(r'(?<!\\)\|', row)[1:3])
            for letter, pattern in LETTERS.items():
                if re.search(pattern, here): found.setdefault(letter, []).append(thing)
    return found


def words(text): return {word.rstrip('s') for word in re.findall(r'[a-z]+', text.lower())}


COURSE = meanings(read(NBS/'6_reference'/'90_notation.ipynb').markdown(), 'thing')


def faults(texts):
    "Letters that are used and not declared, declared twice, or mean something else in silence."
    own = meanings(texts, 'in this chapter')
    for letter in sorted(used_letters(texts) - set(own)):
        yield f'{letter} is used and stands in no row of the table at the head'
    for letter, things in own.items():
        if len(things) > 1: yield f'{letter} has two rows: {things}'
        common = ' '.join(COURSE.get(letter, []))
        same = words(common) & words(things[0]) - {'the', 'of', 'a', 'and', 'or', 'on'}
        if not same and 'elsewhere' not in things[0]:
            yield f'{letter}: {things[0]!r} here, {common!r} in the course'


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda p: p.stem)
def test_letters_keep_their_meaning(path): assert [*faults(read(path).markdown())] == []
