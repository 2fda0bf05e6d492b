"""One letter, one meaning: what a chapter of the papers does with the letters that clash.

90_notation says what each means in the course. A chapter that uses one of them says so in the
table at its head, and one that means something else says there what it means elsewhere.
"""
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT/'nbs'/'3_papers').glob('*.ipynb'))
NOTATION = ROOT/'nbs'/'6_reference'/'90_notation.ipynb'
# as they stand in formulas, alone: no part of a name, no index and no label above a letter
ALONE = r'(?<![\\A-Za-z{{_^]){}(?![A-Za-z])'
LETTERS = {'𝒜': r'\\mathcal\s*\{?A\b\}?|𝒜', 'σ': r'\\sigma(?![A-Za-z])',
           **{letter: ALONE.format(letter) for letter in 'qsP'}}


def prose(cells):
    texts = (''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
    return [re.sub(r'(?m)^\|.*$', '', text) for text in texts]


def used_letters(cells):
    "The letters that clash, as far as the chapter's formulas use them; tables aside."
    formula = re.compile(r'\$\$.*?\$\$|\$[^$]+\$', re.S)
    formulas = [f for text in prose(cells) for f in formula.findall(text)]
    return {letter for letter, pattern in LETTERS.items()
            if any(re.search(pattern, f) for f in formulas)}


def meanings(cells, head):
    "Letter -> what the table with this head says it is, in the column *here*."
    text = '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
    found = {}
    for table in re.findall(rf'^\| {head} \| here \|.*\n\|[-:| ]+\n((?:\|.*\n?)+)', text, re.M):
        for row in table.splitlines():
            thing, here = (part.strip() for part in re.split(r'(?<!\\)\|', row)[1:3])
            for letter, pattern in LETTERS.items():
                if re.search(pattern, here): found.setdefault(letter, []).append(thing)
    return found


def cells_of(path): return json.loads(path.read_text(encoding='utf-8'))['cells']


def words(text): return {word.rstrip('s') for word in re.findall(r'[a-z]+', text.lower())}


def faults(cells, course):
    "Letters that are used and not declared, declared twice, or mean something else in silence."
    own = meanings(cells, 'in this chapter')
    wrong = [f'{letter} is used and stands in no row of the table at the head'
             for letter in sorted(used_letters(cells) - set(own))]
    for letter, things in own.items():
        if len(things) > 1: wrong.append(f'{letter} has two rows: {things}')
        common = ' '.join(course.get(letter, []))
        same = words(common) & words(things[0]) - {'the', 'of', 'a', 'and', 'or', 'on'}
        if not same and 'elsewhere' not in things[0]:
            wrong.append(f'{letter}: {things[0]!r} here, {common!r} in the course')
    return wrong


@pytest.fixture(scope='module')
def course(): return meanings(cells_of(NOTATION), 'thing')


def test_the_course_says_what_the_letters_are(course): assert {'s', 'q', 'σ'} <= set(course)


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda p: p.stem)
def test_letters_keep_their_meaning(path, course): assert faults(cells_of(path), course) == []


def chapter(row, text):
    head = f'| in this chapter | here | P1 |\n|---|---|---|\n{row}\n'
    return [dict(cell_type='markdown', source=head), dict(cell_type='markdown', source=text)]


@pytest.mark.parametrize('row, text', [
    ('| target | $g$ | $g$ |', r'The weights $\mathcal A[f]$.'),
    ('| target | $g$ | $g$ |', r'The softmax $\sigma(\alpha)$.'),
    ('| slices | $s$ | $s$ |', 'There are $s$ kernels.'),
    ('| query | $q$ | – |', r'The score $\langle q,k\rangle$.'),
    ('| positional encoding | $P$ | – |', 'It reads $P(x)$.'),
    ('| scores | $s$ | – |\n| slices | $s$ | – |', 'Scores $s$.')])
def test_other_meaning_is_found(row, text, course): assert faults(chapter(row, text), course)


@pytest.mark.parametrize('row, text', [
    ('| attention scores | $s$ | – |', r'The score $s(i,j)$ of $W_q$ and $\rho^P$.'),
    ('| slices (elsewhere s is a score) | $s$ | $s$ |', 'There are $s$ kernels.'),
    (r'| attention operator | $\mathrm{Att}$ | $\mathcal A$ |', r'Weights $\mathrm{Att}[f]$.')])
def test_meaning_that_is_said_is_accepted(row, text, course):
    assert faults(chapter(row, text), course) == []
