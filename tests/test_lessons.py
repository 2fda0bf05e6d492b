"""A lesson says in its head what it takes, and answers each question that it asks.

All chapters of the first three parts keep to it.
"""
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = '1_foundations', '2_training', '3_papers'
LESSONS = [path for part in PARTS for path in sorted((ROOT/'nbs'/part).glob('*.ipynb'))]


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
@pytest.mark.parametrize('rule', [head_faults, questions_without_answer])
def test_lesson_keeps_the_rule(rule, path): assert rule(cells_of(path)) == []


def cell(source, kind='markdown'): return dict(cell_type=kind, source=source)


@pytest.mark.parametrize('rule, cells', [
    (head_faults, [cell('# Title'), cell('**You will**\n\n**You need** nothing · 20 minutes')]),
    (questions_without_answer, [cell('*Which of the two is larger?*'), cell('x = 1', 'code')])])
def test_fault_of_a_lesson_is_found(rule, cells): assert rule(cells)
