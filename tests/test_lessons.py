"""A lesson is one sitting: so much prose, so much code, a time line that says what it takes.

All chapters of the first three parts keep to it.
"""
import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PARTS = '1_foundations', '2_training', '3_papers'
LESSONS = [path for part in PARTS for path in sorted((ROOT/'nbs'/part).glob('*.ipynb'))]
# a fifth more than a sitting's 2,500 words, 200 lines and 250 exported ones: the most there may be
WORDS, CELLS = 3000, 45
LINES, FOLDED, EXPORTED = 240, 180, 300


class Size(NamedTuple):
    "What a reader has before them."
    words:int     # of open prose, exercises aside
    cells:int     # of code, imports aside
    lines:int     # of code that is shown and not exported
    folded:int    # lines behind a fold, as those of figures
    exported:int  # lines that become the package


def prose(text):
    "Words of markdown, without formulas, tables and what is folded."
    text = re.sub(r'<details.*?</details>', '', text, flags=re.S)
    text = re.sub(r'\$\$.*?\$\$', '', text, flags=re.S)
    text = re.sub(r'\$[^$]*\$', 'x', text)
    return sum(len(line.split()) for line in text.splitlines() if not line.startswith('|'))


def imports_only(source):
    try: body = ast.parse(source).body
    except SyntaxError: return True   # shell commands
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


def code_lines(source):
    return sum(bool(line.strip()) and not line.startswith('#|') for line in source.splitlines())


def size(cells):
    "The size of a lesson from its cells."
    texts = [(c['cell_type'], ''.join(c['source'])) for c in cells]
    code = [s for kind, s in texts if kind == 'code' and s.strip()]
    code = [s for s in code if not imports_only(s)]
    exported = [s for s in code if re.search(r'^#\| *exports?\b', s, re.M)]
    aside = [s for s in code if re.search(r'^#\| *(solution|teacher|check)\b', s, re.M)]
    rest = [s for s in code if s not in exported + aside]
    folded = [s for s in rest if re.search(r'^#\| *(code-fold|hide)\b', s, re.M)]
    shown = [s for s in rest if s not in folded]
    told = [s for kind, s in texts if kind == 'markdown' and not s.startswith('**Exercise')]
    words = sum(map(prose, told))
    lines = [sum(map(code_lines, part)) for part in (shown, folded, exported)]
    return Size(words, len(code), *lines)


def too_large(cells):
    "What of a lesson is more than a sitting holds."
    limits = Size(WORDS, CELLS, LINES, FOLDED, EXPORTED)
    found = zip(Size._fields, size(cells), limits, strict=True)
    return [f'{name}: {n}, {most} are the limit' for name, n, most in found if n > most]


def head_faults(cells):
    "What the first cells of a lesson do not say."
    text = '\n'.join(''.join(c['source']) for c in cells[:3])
    wanted = {'what the reader will do': r'^\*\*You will\*\*',
              'what is needed, with links': r'^\*\*You need\*\* .*\]\(',
              'the time': r'^\*\*Time\*\* (read|play|exercises) \d+.* minutes'}
    return [what for what, pattern in wanted.items() if not re.search(pattern, text, re.M)]


def questions_without_answer(cells):
    "Questions in italics that no folded answer follows, in their cell or the next four."
    texts = [''.join(c['source']) for c in cells]
    kinds = [c['cell_type'] for c in cells]
    faults = []
    for i, text in enumerate(texts):
        if kinds[i] != 'markdown': continue
        folded = re.sub(r'<details.*?</details>', '', text, flags=re.S)
        asked = re.findall(r'(?<!\*)\*([^*\n]+\?)[^*\n]*\*(?!\*)', folded)
        answered = '<summary>Answer' in '\n'.join(texts[i:i + 5])
        if asked and not answered: faults.append(asked[-1])
    return faults


def cells_of(path): return json.loads(path.read_text(encoding='utf-8'))['cells']


@pytest.mark.parametrize('path', LESSONS, ids=lambda p: p.stem)
@pytest.mark.parametrize('rule', [too_large, head_faults, questions_without_answer])
def test_lesson_is_one_sitting(rule, path): assert rule(cells_of(path)) == []


def cell(source, kind='markdown'): return dict(cell_type=kind, source=source)


@pytest.mark.parametrize('rule, cells', [
    (too_large, [cell('word '*(WORDS + 1))]),
    (too_large, [cell('x = 1', 'code')]*(CELLS + 1)),
    (too_large, [cell('x = 1\n'*(LINES + 1), 'code')]),
    (too_large, [cell('#| code-fold: true\n' + 'x = 1\n'*(FOLDED + 1), 'code')]),
    (too_large, [cell('#| export\n' + 'x = 1\n'*(EXPORTED + 1), 'code')]),
    (head_faults, [cell('# Title'), cell('**You will**\n\n**You need** nothing · 20 minutes')]),
    (questions_without_answer, [cell('*Which of the two is larger?*'), cell('x = 1', 'code')])])
def test_fault_of_a_lesson_is_found(rule, cells): assert rule(cells)


def test_what_is_folded_or_an_exercise_does_not_count():
    folded = cell('<details><summary>Proof</summary>' + 'word '*9 + '</details> $a b c$ | seven')
    asked = cell('**Exercise 1.1 (code, 2 marks).** Write it.')
    solution = cell('#| solution 1.1\n' + 'x = 1\n'*9, 'code')
    assert size([folded, asked, solution, cell('import torch', 'code')]) == Size(3, 1, 0, 0, 0)
