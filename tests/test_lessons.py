"""A lesson says in its head what it takes, and answers each question that it asks.

All chapters of the first three parts keep to it.
"""
import re

import pytest
from pages import read_all

from tools.site.index import HEAD

LESSONS = {name: nb for name, nb in read_all().items() if re.match('[1-3]_', name)}


def head_faults(cells):
    "What the first cells of a lesson do not say."
    text = '\n'.join(c['source'] for c in cells[:3])
    wanted = {'what the reader will do': r'^\*\*You will\*\*',
              'what is needed, with links': r'^\*\*You need\*\* .*\]\(',
              'the time': r'^\*\*Time\*\* (read|play|exercises) \d+.* minutes'}
    return [what for what, pattern in wanted.items() if not re.search(pattern, text, re.M)]


def questions_without_answer(cells):
    "Questions in italics that no folded answer follows, in their cell or the next four."
    texts = [c['source'] for c in cells]
    for i, text in enumerate(texts):
        if cells[i]['cell_type'] != 'markdown': continue
        folded = re.sub(r'<details.*?</details>', '', text, flags=re.S)
        asked = re.findall(r'(?<!\*)\*([^*\n]+\?)[^*\n]*\*(?!\*)', folded)
        if asked and '<summary>Answer' not in '\n'.join(texts[i:i + 5]): yield asked[-1]


STATED = re.compile(r'\*\*(Definition|Lemma|Proposition|Theorem|Corollary|Rule|Counter-example|'
                    r'Exercise)\b( \d|\.| \()')
ASKED = re.compile(r'> \*\*Exercise \d+[a-z]?\.\d+ \([a-z: ]+, \d marks?, \d+ minutes, '
                   r'(●○○|●●○|●●●)\)\.\*\* \S')


def statements_in_another_form(cells):
    "Statements and exercises that are no quotation with a head that the page can read."
    for text in (c['source'] for c in cells if c['cell_type'] == 'markdown'):
        for line in text.split('\n'):
            if not STATED.match(line.lstrip('> ')): continue
            good = ASKED.match(line) if '**Exercise' in line else HEAD.match(line)
            if not good: yield line


def exercises_with_open_ends(cells):
    "Exercises between whose quoted task and the first fold something stands unquoted."
    for text in (c['source'] for c in cells if c['cell_type'] == 'markdown'):
        if not ASKED.match(text): continue
        rest = re.sub(r'\A(?:>.*(?:\n|\Z))+', '', text).strip()
        if rest and not rest.startswith('<details'): yield text


@pytest.mark.parametrize('name', LESSONS)
def test_lesson_keeps_the_rules(name):
    cells = LESSONS[name].cells
    assert [*head_faults(cells), *questions_without_answer(cells),
            *statements_in_another_form(cells), *exercises_with_open_ends(cells)] == []


def cell(source, kind='markdown'): return dict(cell_type=kind, source=source)


@pytest.mark.parametrize('rule, cells', [
    (head_faults, [cell('# Title'), cell('**You will**\n\n**You need** nothing · 20 minutes')]),
    (questions_without_answer, [cell('*Which of the two is larger?*'), cell('x = 1', 'code')]),
    *[(statements_in_another_form, [cell(text)]) for text in (
        '**Theorem 1.1.** It holds.', '> **Theorem 1.1** It holds.',
        '> **Exercise 1.1 (code, 2 marks, 5 minutes).** Do.',
        '> **Exercise 1.1 (code, 2 marks, ●○○).** Do.')],
    (exercises_with_open_ends,
     [cell('> **Exercise 1.1 (code, 2 marks, 5 minutes, ●○○).** Do.\n\nAnd this.')])])
def test_fault_of_a_lesson_is_found(rule, cells): assert [*rule(cells)]
