"What the notebooks say of themselves, and that pages made of it hold what they say today."
import json
import re

import pytest
from pages import labels, read_all, slugs

from eqtutor.labs.book import (
    Chapter,
    Minutes,
    anchor_of,
    direct_needs,
    first_words,
    glossary,
    link_to,
    listed,
    map_of_chapters,
    minutes_of,
    needs_of,
    read_chapters,
    read_statements,
    statements_of,
    table_of,
    terms_of,
)
from eqtutor.labs.course import course_chapters
from eqtutor.labs.exercise import all_exercises, chapter_exercises

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
         ('markdown', '**Definition 1.1 (group).** A set $H$ is a *group* if it has\n$$x$$'),
         ('code', '**Theorem 9.9.** no'),
         ('markdown', '## Two parts\n\n**Definition 1.2** *(a map; P2, Eq. 6)* *Let* it be.\n\n'
                      '<details>**Lemma 1.9.** folded</details>\n\n'
                      '**Exercise 1.1 (code, 2 marks).** Write `f[0](x)`. Then more.')]


def test_statements_are_found_with_their_sections():
    group, a_map, exercise = statements_of(CELLS, '1/01.ipynb')
    assert (group.kind, group.number, group.name, group.anchor) == (
        'Definition', '1.1', 'group', 'sec-one')
    assert group.says == 'A set $H$ is a group if it has' and group.terms == ('group',)
    assert a_map.name == 'a map; P2, Eq. 6' and a_map.terms == ('a map',)
    assert a_map.says == 'Let it be.' and link_to(a_map) == '../1/01.ipynb#two-parts'
    assert exercise.name == 'code, 2 marks' and exercise.chapter == '01'


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


def test_links_lead_to_sections_that_are_there():
    book = read_all()
    anchors = {name: {*labels(page), *slugs(page)} for name, page in book.items()}
    assert [s for s in STATEMENTS if s.anchor not in anchors[s.path]] == []


def test_a_list_has_a_line_a_statement_under_its_chapter():
    page = listed(STATEMENTS, CHAPTERS)
    assert page.count('\n- [') == len(STATEMENTS)
    assert '**[05 Convolution](../1_foundations/05_convolution.ipynb)**' in page
    assert '- [Theorem 5.1](../1_foundations/05_convolution.ipynb#' in page


def test_the_glossary_is_in_order():
    words = re.findall(r'^- \*\*(.*?)\*\*', glossary(STATEMENTS), re.M)
    plain = [word.removeprefix('the ').lower() for word in words]
    assert plain == sorted(plain) and {'group', 'equivariant', 'left coset'} <= {*words}


# --- pages that hold what was collected

def test_the_map_has_a_line_a_chapter_and_an_arc_a_need():
    page = map_of_chapters(CHAPTERS, 'the <map>')
    assert page.count('<circle') == len(CHAPTERS) and 'aria-label="the &lt;map&gt;"' in page
    assert page.count('<path') == sum(map(len, direct_needs(CHAPTERS).values()))


def outputs_of(name, kind):
    "What the cells of a notebook put out, by what their sources call."
    cells = json.loads(course_chapters()[name].read_text(encoding='utf-8'))['cells']
    return [(''.join(c['source']), ''.join(o['data'][kind])) for c in cells
            for o in c.get('outputs', []) if kind in o.get('data', {})]


def stored(name, call, kind='text/html'):
    found = [out for source, out in outputs_of(name, kind) if call in source]
    assert len(found) == 1, f'{len(found)} outputs of {call} in {name}'
    return found[0]


STALE = 'run the notebook again: the chapters have changed'


def test_the_map_on_the_first_page_is_that_of_today():
    lessons = {n: c for n, c in CHAPTERS.items() if c.part < '5'}
    page = stored('00_turn_a_digit', 'map_of_chapters(')
    first, all_ = re.findall(r'<svg.*?</svg>', page, re.S)
    words = re.search(r'aria-label="([^"]*)"', all_)[1]
    assert all_ == map_of_chapters(lessons, words), STALE
    foundations = [c for c in lessons.values() if c.part == '1_foundations']
    named = re.findall(r'>(\S+)</tspan> ([^<]*)', first)
    assert named[:len(foundations)] == [(c.number, c.title) for c in foundations], STALE
    assert len(named) == len(foundations) + len({c.part for c in lessons.values()}) - 1


COLLECTED = {
    'map_of_chapters(': lambda page: map_of_chapters(
        CHAPTERS, re.search(r'aria-label="([^"]*)"', page)[1]),
    'table_of(': lambda page: table_of(CHAPTERS),
    'glossary(': lambda page: glossary(STATEMENTS),
    "s.kind == 'Definition'": lambda page: listed(
        [s for s in STATEMENTS if s.kind == 'Definition'], CHAPTERS),
    's.kind not in aside': lambda page: listed(
        [s for s in STATEMENTS if s.kind not in ('Definition', 'Exercise')], CHAPTERS),
    "s.kind == 'Exercise'": lambda page: listed(
        [s for s in STATEMENTS if s.kind == 'Exercise'], CHAPTERS),
}


@pytest.mark.parametrize('call', COLLECTED)
def test_the_index_is_that_of_today(call):
    page = stored('91_index', call, 'text/html' if 'map' in call else 'text/markdown')
    assert page == COLLECTED[call](page), STALE


def run_cells(name, calls):
    "What the cells of a notebook that call these would put out today."
    space = {}
    cells = json.loads(course_chapters()[name].read_text(encoding='utf-8'))['cells']
    code = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
    for source in code:
        if '! [ -e' not in source: exec(source, space)
    return {call: eval(call, space) for call in calls}


def test_the_times_for_teachers_are_those_of_today():
    calls = ('chapter_table()', 'whole_course()', 'afternoon()[0]', 'reading_group()',
             'semester()')
    for call, page in run_cells('33_teaching', calls).items():
        name = {'afternoon()[0]': 'afternoon()'}.get(call, f'Markdown({call})')
        assert stored('33_teaching', name, 'text/markdown') == page, STALE
