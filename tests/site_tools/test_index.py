"What the notebooks say of themselves, and that pages made of it hold what they say today."
import ast
import json
import re

import pytest

from eqtutor.tutor.chapters import (
    Chapter,
    Minutes,
    direct_needs,
    map_of_chapters,
    minutes_of,
    needs_of,
    read_chapters,
)
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.exercise import all_exercises, chapter_exercises
from eqtutor.tutor.reading import anchor_of
from tools.site.index import (
    first_words,
    glossary,
    link_to,
    read_statements,
    statements_of,
    terms_of,
)

CHAPTERS = read_chapters()
STATEMENTS = read_statements()


# --- heads

@pytest.mark.parametrize('line, minutes', [
    ('**Time** read 35 · play 10 · exercises 30 minutes', Minutes(35, 10, 30)),
    ('**Time** read 7 · play 3 minutes', Minutes(7, 3, 0)),
    ('**You need** nothing. · **40 minutes**', Minutes(40)),
    ('**You need** nothing. · **read 15 minutes**', Minutes(15)),
])
def test_a_time_line_is_read(line, minutes): assert minutes_of(f'# T\n\n{line}\n') == minutes


def test_a_chapter_without_a_time_line_is_refused():
    with pytest.raises(ValueError, match='expected .*Time'): minutes_of('# T\n\n> It takes long')


def test_exercises_without_a_time_take_as_long_as_the_reading():
    assert Minutes(40).total(asks=True) == 80 and Minutes(40).total(asks=False) == 40
    assert Minutes(40, 5, 30).total(asks=True) == 75


def test_some_exercises_take_their_share_of_the_time():
    chapter = CHAPTERS['02']
    ids = tuple(e.id for e in chapter_exercises('02'))
    read = chapter.minutes.read + (chapter.minutes.play or 0)
    assert (chapter.takes(()), chapter.takes(ids)) == (read, chapter.total)
    assert read < chapter.takes(ids[:1]) < chapter.takes(ids)


def test_needs_are_the_linked_chapters():
    head = '**You need** [02 A](02_a.ipynb), of [21b](../3_p/21b_n.ipynb#sec-x) one, [P](x.md)'
    assert needs_of(f'{head}\n[03](03_b.ipynb)') == ('02', '21b')


def test_what_is_needed_through_another_chapter_is_left_out():
    def chapter(number, *needs): return Chapter(number, number, f'1/{number}', Minutes(1), needs)
    book = {c.number: c for c in (chapter('01'), chapter('02', '01'), chapter('05', '01', '02'))}
    assert direct_needs(book) == {'01': (), '02': ('01',), '05': ('02',)}


def test_every_chapter_is_read_and_needs_only_earlier_ones():
    assert len(CHAPTERS) == len([name for name in course_chapters() if name != 'index'])
    order = [*CHAPTERS]
    for number, chapter in CHAPTERS.items():
        assert all(order.index(need) < order.index(number) for need in chapter.needs)
        assert chapter.total >= chapter.minutes.read > 0
    assert CHAPTERS['05'].needs and not CHAPTERS['00'].needs


# --- statements

CELLS = [('markdown', '# T\n\n> s'), ('markdown', '## One *part* {#sec-one}\n\ntext'),
         ('markdown', '> **Definition 1.1 (group).** A set $H$ is a *group* if it has\n> $$x$$'),
         ('code', '**Theorem 9.9.** no'),
         ('markdown', '## Two parts\n\n> **Definition 1.2 (a map; P2 (Eq. 6)).** *Let* it be.\n>\n'
                      '> No.\n\n'
                      '<details>\n\n> **Lemma 1.9.** folded\n\n</details>\n\n'
                      '> **Exercise 1.1 (code, 2 marks, 10 minutes, ●○○).** Write `f[0](x)`.\n\n'
                      '> **Counter-example.** It has no number.')]


def test_statements_are_found_with_their_sections():
    group, a_map, exercise = statements_of(CELLS, '1/01.ipynb')
    assert (group.kind, group.number, group.name, group.anchor) == (
        'Definition', '1.1', 'group', 'sec-one')
    assert group.says == 'A set $H$ is a group if it has' and group.terms == ('group',)
    assert a_map.name == 'a map; P2 (Eq. 6)' and a_map.terms == ('a map',)
    assert a_map.says == 'Let it be.' and link_to(a_map) == '../1/01.ipynb#two-parts'
    assert exercise.name == 'code, 2 marks, 10 minutes, ●○○' and exercise.chapter == '01'


def test_a_sentence_is_cut_outside_formulas_and_code():
    long = 'word '*23 + '$a + b + c + d$ ' + 'word '*9
    assert first_words(long).endswith('$a + b + c + d$ …')
    assert first_words('By (P3, Eq. 11) *it* is [so](x.md) with $*$ and `a*b`. More.') == (
        'By (P3, Eq. 11) it is so with $*$ and `a*b`.')


def test_a_term_is_the_name_or_what_is_in_italics():
    assert terms_of('P1, Eq. 3', 'A *subgroup* is; **normal** too.') == ('subgroup', 'normal')


def test_anchors_are_those_of_the_page():
    assert anchor_of('On *scales* {#sec-scale}') == 'sec-scale'
    assert anchor_of('The slow loop, in ten lines') == 'the-slow-loop-in-ten-lines'


def test_all_exercises_of_the_notebooks_are_registered():
    asked = [s.number for s in STATEMENTS if s.kind == 'Exercise']
    assert sorted(asked) == sorted(all_exercises()) and len(set(asked)) == len(asked)


def test_no_statement_has_the_number_of_another():
    theorems = [s.number for s in STATEMENTS if s.kind != 'Exercise']
    assert len(theorems) > 60 and len({*theorems}) == len(theorems)
    assert all(s.anchor for s in STATEMENTS)


def test_the_glossary_is_in_order():
    words = re.findall(r'^- \*\*(.*?)\*\*', glossary(STATEMENTS), re.M)
    plain = [word.removeprefix('the ').lower() for word in words]
    assert plain == sorted(plain) and {'group', 'equivariant', 'left coset'} <= {*words}


# --- pages that hold what was collected

def test_the_map_has_a_line_a_chapter_and_an_arc_a_need():
    page = map_of_chapters(CHAPTERS, 'the <map>')
    assert page.count('<circle') == len(CHAPTERS) and 'aria-label="the &lt;map&gt;"' in page
    assert page.count('<path') == sum(map(len, direct_needs(CHAPTERS).values()))


# pages that collect, and a word of their cells that do: all where it is ''
COLLECTED = {'00_turn_a_digit': 'map_of_chapters(', '33_teaching': '', '91_index': '',
             '92_api': '', '93_sources': ''}


def value_of(source, space):
    "What a cell ends in, once it was run."
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr): return exec(source, space)
    exec(compile(ast.Module(body, []), 'cell', 'exec'), space)
    return eval(compile(ast.Expression(last.value), 'cell', 'eval'), space)


def stale(nb, word):
    "Cells of a notebook that would put out something else today."
    space = {}
    for c in nb['cells']:
        source = ''.join(c['source'])
        ours = 'import ' in source or word in source
        if c['cell_type'] != 'code' or '! [ -e' in source or not ours: continue
        value = value_of(source, space)
        stored = [''.join(o['data'].get('text/markdown', o['data'].get('text/html', '')))
                  for o in c['outputs']]
        if stored != ([value.data] if value is not None else []): yield source


@pytest.mark.parametrize('name', COLLECTED)
def test_what_a_page_collects_is_that_of_today(name):
    nb = json.loads(course_chapters()[name].read_text(encoding='utf-8'))
    assert [*stale(nb, COLLECTED[name])] == [], f'run {name} again: the chapters have changed'
    shown = [c for c in nb['cells'] if c.get('outputs') and COLLECTED[name] in ''.join(c['source'])]
    shown[-1]['outputs'] = []
    assert len([*stale(nb, COLLECTED[name])]) == 1
