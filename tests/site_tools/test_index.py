"What the notebooks say of themselves, and that pages made of it hold what they say today."
import ast
import importlib
import re

import pytest
from pages import read_all

from eqtutor.tutor.chapters import (
    Chapter,
    Minutes,
    asked_in,
    core_of,
    direct_needs,
    left_out,
    minutes_of,
    needs_of,
    read_chapters,
)
from eqtutor.tutor.exercise import all_exercises
from tools.site.index import link_to, read_statements, statements_of
from tools.site.names import all_names
from tools.site.sources import cited_in, read_sources

CHAPTERS = read_chapters()


# --- heads

@pytest.mark.parametrize('line, minutes', [
    ('**Time** read 35 · play 10 · exercises 30 minutes', Minutes(35, 10, 30)),
    ('**Time** read 7 · play 3 minutes', Minutes(7, 3, 0)),
    ('**You need** nothing. · **40 minutes**', Minutes(40)),
    ('**You need** nothing. · **read 15 minutes**', Minutes(15))])
def test_a_time_line_is_read(line, minutes): assert minutes_of(f'# T\n\n{line}\n') == minutes


def test_needs_are_the_linked_chapters_without_those_that_they_need():
    head = '**You need** [02 A](02_a.ipynb), of [21b](../3_p/21b_n.ipynb#sec-x) one, [P](x.md)'
    assert needs_of(f'{head}\n[03](03_b.ipynb)') == ('02', '21b')
    book = {number: Chapter(number, number, f'1/{number}', Minutes(1), needs)
            for number, needs in {'01': (), '02': ('01',), '05': ('01', '02')}.items()}
    assert direct_needs(book) == {'01': (), '02': ('01',), '05': ('02',)}


def test_what_a_syllabus_leaves_out_is_what_its_chapters_need():
    book = {number: Chapter(number, number, f'1/{number}', Minutes(1), needs)
            for number, needs in {'01': (), '02': ('01',), '05': ('01', '02')}.items()}
    assert left_out(['01', '05'], book) == ('02',) and left_out(['01', '02'], book) == ()


def test_the_core_of_a_chapter_stands_outside_its_sections_deeper():
    ask = '> **Exercise 1.{} (code, 3 marks, {} minutes, ●●○).** Do.'
    text = f'one {ask.format(1, 7)}\n\n## A\n\n{ask.format(2, 10)}\n\n## Deeper: b\n\n'
    text += f'{ask.format(3, 30)}\n\n### c\n\nfour\n\n## Summary\n\nsix words'
    assert asked_in(text) == {'1.2': 10, '1.3': 30}   # a task is a quotation of its own
    deeper = text[text.index('## Deeper'):text.index('## Summary')]
    share = 1 - len(deeper.split())/len(text.split())
    assert core_of(text, Minutes(40, 5, 50)) == round(40*share) + 5 + 10


def test_a_chapter_needs_only_earlier_ones():
    order = [*CHAPTERS]
    for number, chapter in CHAPTERS.items():
        assert all(order.index(need) < order.index(number) for need in chapter.needs)
    assert CHAPTERS['05'].needs and not CHAPTERS['00'].needs


# --- statements

CELLS = [('markdown', '# T\n\n> s'), ('markdown', '## One *part* {#sec-one}\n\ntext'),
         ('markdown', '> **Definition 1.1 (group).** A set $H$ is a *group* if it has\n> $$x$$'),
         ('code', '**Theorem 9.9.** no'),
         ('markdown', '## Two parts\n\n> **Definition 1.2 (a map; P2 (Eq. 6)).** *Let* it be.\n>\n'
                      '> No.\n\n<details>\n\n> **Lemma 1.9.** folded\n\n</details>\n\n'
                      '> **Exercise 1.1 (code, 2 marks, 10 minutes, ●○○).** '
                      f'{"word "*23}$a + b + c + d$ abbreviated\n\n'
                      '> **Counter-example.** It has no number.')]

def test_statements_are_found_with_their_sections():
    group, a_map, exercise = statements_of(CELLS, '1/01.ipynb')
    assert (group.kind, group.number, group.name, group.anchor) == (
        'Definition', '1.1', 'group', 'sec-one')
    assert group.says == 'A set $H$ is a group if it has' and group.terms == ('group',)
    assert a_map.terms == ('a map',) and a_map.says == 'Let it be.'
    assert link_to(a_map) == '../1/01.ipynb#two-parts'
    assert exercise.chapter == '01' and exercise.says.endswith('$a + b + c + d$ …')


@pytest.mark.parametrize('below, says', [
    ('> $$x$$', ''), ('>\n> - (a) Let it be so.\n> - (b) Or not.', '(a) Let it be so.'),
    ('> Let it be so.', 'Let it be so.')])
def test_a_statement_may_begin_on_the_line_after_its_head(below, says):
    [found] = statements_of([('markdown', f'> **Definition 1.1 (it).**\n{below}')], '1/01.ipynb')
    assert found.says == says


def test_exercises_are_registered_and_numbers_are_there_once():
    found = read_statements()
    asked = [s.number for s in found if s.kind == 'Exercise']
    assert sorted(asked) == sorted(all_exercises()) and len({*asked}) == len(asked)
    theorems = [s.number for s in found if s.kind != 'Exercise']
    assert len(theorems) > 60 and len({*theorems}) == len(theorems)


# --- the bibliography

PAPERS = 'arxiv.org', 'doi.org', 'openreview.net', 'proceedings.', 'neurips.cc'

def test_every_paper_that_a_chapter_links_is_an_entry_and_each_is_there_once():
    urls = [s.url for s in read_sources()]
    papers = {url for url in cited_in() if any(host in url for host in PAPERS)}
    assert len(papers) > 10 and papers <= {*urls} and len({*urls}) == len(urls)


# --- names

@pytest.mark.parametrize('package', ['nn', 'models', 'widgets', 'train'])
def test_no_name_of_a_package_is_missing_or_without_docstring(package):
    offered = importlib.import_module(f'eqtutor.{package}')
    named = {n for n in offered.__all__ if callable(getattr(offered, n))}
    says = {n.name: re.sub(r'`[^`]*`', '', n.says) for n in all_names()}
    assert named <= {*says} and len(named) > 3 and all(says.values())
    assert not [s for s in says.values() if re.search(r'\[[^\]]*\][(\[]', s)], 'a link to markdown'


# --- pages that hold what was collected

# and a word of their cells that collect: all where it is ''
COLLECTED = {'1_foundations/00_turn_a_digit': 'map_of_chapters(', '4_course/33_teaching': '',
             '6_reference/91_index': '', '6_reference/92_api': '', '6_reference/93_sources': ''}
BOOK = read_all()


def value_of(source, space):
    "What a cell ends in, once it was run."
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr): return exec(source, space)
    exec(compile(ast.Module(body, []), 'cell', 'exec'), space)
    return eval(compile(ast.Expression(last.value), 'cell', 'eval'), space)


@pytest.mark.parametrize('name', COLLECTED)
def test_what_a_page_collects_is_that_of_today(name):
    space, compared = {}, 0
    for c in BOOK[f'{name}.ipynb'].code():
        ours = 'import ' in c['source'] or COLLECTED[name] in c['source']
        if '! [ -e' in c['source'] or not ours: continue
        value = value_of(c['source'], space)
        data = [o['data'] for o in c['outputs']]
        stored = [''.join(d.get('text/markdown', d.get('text/html', ''))) for d in data]
        today = [value.data] if value is not None else []
        assert stored == today, f'run {name} again: the chapters have changed'
        compared += len(today)
    assert compared
