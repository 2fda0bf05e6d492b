"What happens to a notebook on its way to a page."
import base64
from io import BytesIO
from types import SimpleNamespace

import numpy as np
from PIL import Image

from eqtutor.tutor.reading import SHOWN, why_folded
from tools.site.processors import (
    COLUMNS,
    FoldCells,
    FoldCode,
    FrameStatements,
    NumberTitle,
    clean_signature,
    light,
    link_papers,
    local_links,
    share_pictures,
)

SITE = 'https://x.org/course/'


def notebook(path, *cells):
    return SimpleNamespace(path_=path, cells=[cell(*c) for c in cells])


class cell(dict):
    "A cell as nbdev has it: fields that are also attributes."
    def __init__(self, kind, source, *kinds):
        super().__init__(outputs=[dict(data=dict.fromkeys(kinds, ''))])
        self.cell_type, self.source = kind, source


def test_title_has_the_number_of_its_chapter():
    nb = notebook('nbs/3_papers/24b_x.ipynb', ('raw', '---\ntitle: A title\n---'))
    NumberTitle(nb).begin()
    assert nb.cells[0].source == "---\ntitle: '24b A title'\n---"
    page = notebook('nbs/index.ipynb', ('raw', '---\ntitle: A title\n---'))
    NumberTitle(page).begin()
    assert page.cells[0].source == '---\ntitle: A title\n---'


def answer(text): return f'<details><summary>Answer</summary>\n\n{text}\n\n</details>'

def folded(source, words='Answer'):
    c = cell('code', source)
    c.directives_ = {'fold': words.split()}
    return c

def page_of(*cells):
    "The markdown of a page, and <code> for each cell of code, once its cells are folded."
    nb = SimpleNamespace(path_='nbs/1_foundations/02_x.ipynb', cells=[*cells])
    FoldCells(nb).begin()
    parts = (c.source if c.cell_type == 'markdown' else f'<{c.source}>' for c in nb.cells)
    return ' '.join(' '.join(parts).split())

def test_cell_is_folded_with_what_it_puts_out():
    assert page_of(cell('markdown', 'Which?'), folded('f(1)')) == (
        'Which? <details><summary>Answer</summary> <f(1)> </details>')

def test_folds_with_the_same_words_become_one_on_the_page():
    cells = (cell('markdown', 'Which? ' + answer('One.')), folded('f(1)'), folded('f(2)'),
             cell('markdown', answer('Two.') + '\n\nWe go on.'))
    assert page_of(*cells) == ('Which? <details><summary>Answer</summary> One. <f(1)> <f(2)> Two. '
                               '</details> We go on.')

def test_folds_with_other_words_or_with_text_between_stay_apart():
    cells = cell('markdown', answer('One.')), folded('f(1)', 'Check'), cell('markdown', 'Then')
    assert page_of(*cells, cell('markdown', answer('Two.'))).count('<details>') == 3

def test_signature_is_folded_with_what_it_is_of():
    shown = cell('code', '#| echo: false\nshow_doc(f)')
    assert page_of(cell('markdown', 'Text'), shown, folded('def f()')).startswith('Text <details>')


def test_what_is_folded():
    layer = '#| code-fold: show\nclass A: pass'
    assert why_folded(layer, False, workshop=False) == ''
    assert why_folded(layer, False, workshop=True) == 'Exported source'
    assert why_folded('# Check 6.1: turns\nassert x', False, workshop=False) == 'Check 6.1: turns'
    assert why_folded('plot(x)', True, workshop=False) == 'How the figure is drawn'
    assert why_folded('assert x', False, workshop=False) == ''
    assert why_folded('assert x', False, workshop=True) == 'A check'
    assert why_folded('#| code-fold: true\nplot(x)', True, workshop=True) == ''


def test_folds_are_written_as_directives():
    nb = notebook('nbs/1_foundations/01_x.ipynb', ('code', '#| fig-alt: x\nplot(x)', 'image/png'),
                  ('code', 'x = 1'))
    FoldCode(nb).begin()
    assert nb.cells[0].source == ('#| code-fold: true\n#| code-summary: "How the figure is drawn"\n'
                                  '#| fig-alt: x\nplot(x)')
    assert nb.cells[1].source == 'x = 1'


def test_fold_of_an_exported_cell_is_written_once():
    "Quarto refuses a cell in which a directive stands twice."
    own = '#| code-fold: true\n#| code-summary: "may be skipped"\nx = 1'
    nb = notebook('nbs/1_foundations/01_x.ipynb', ('code', SHOWN + own), ('code', SHOWN + 'x = 1'))
    FoldCode(nb).begin()
    assert [c.source for c in nb.cells] == [own, SHOWN + 'x = 1']


def test_links_within_the_site_are_relative():
    shown = {'1_a/groups.html#group'}
    page = f'{SITE}1_a/groups.html'
    text = f'[`Group`]({page}#group.inv), [`x`]({page}#x), [y](https://y)'
    assert local_links(text, SITE, '2_b', shown) == (
        '[`Group`](../1_a/groups.html#group), `x`, [y](https://y)')
    assert local_links(f'[a]({SITE}2_b/a.html)', SITE, '', shown) == '[a](2_b/a.html)'


def test_signature_is_plain_and_fits():
    code = ('def f(\n    a:__main__.Group | str, # a [`Group`](https://x.org/g), '
            + 'and many more words, '*5 + '\n    b:collections.abc.Callable[[int, int], str], '
            + ', '.join(f'argument_{i}:int={i}' for i in range(8)) + '\n)->None:')
    lines = clean_signature(code).splitlines()
    assert max(map(len, lines)) <= COLUMNS and '    b:Callable[[int, int], str],' in lines
    assert '    a:Group | str,' in lines and '__main__' not in ''.join(lines)
    assert not any('](' in line for line in lines)
    assert clean_signature('def A(\n    *args:Any, **kwargs:Any\n)->None:') == 'class A'
    assert clean_signature('def f(\n    *args:int\n):') == 'def f(\n    *args:int\n):'


def test_first_mention_of_a_paper_leads_to_its_entry():
    known = set()
    text = link_papers('# P1\n`P1`, P1 and P1; [P2](x) and $P2$.', 's.html', known)
    assert text == ('# P1\n`P1`, [P1](s.html#romero2020attentive) and P1; [P2](x) and $P2$.')
    fold = '<details><summary>One in P1</summary>'   # a link in it could not be reached
    assert link_papers(fold, 's.html', set()) == fold
    assert link_papers('P1, P10', 's.html', known) == 'P1, P10'


def png(image):
    file = BytesIO()
    image.save(file, 'PNG')
    return base64.b64encode(file.getvalue()).decode()


def test_figure_is_lighter_and_looks_the_same():
    random = np.random.default_rng(0)
    before = random.integers(0, 9, (200, 300, 3), np.uint8)*28
    small = light(png(Image.fromarray(before)))
    after = np.asarray(Image.open(BytesIO(base64.b64decode(small))).convert('RGB'))
    assert len(small) < len(png(Image.fromarray(before)))
    assert after.shape == before.shape and abs(after.astype(int) - before).mean() < 12
    assert light(small) == light(light(small))


def test_repeated_picture_is_stored_once():
    seen, source = {}, 'data:image/png;base64,AAAA'
    first = share_pictures(f'<img alt="a" src="{source}"><img src="{source}">', seen)
    assert first == f'<img alt="a" data-picture="0" src="{source}"><img data-as="0">'
    assert share_pictures(f'<img src="{source}">', seen) == '<img data-as="0">'


# --- statements and exercises

def framed_page(*cells):
    nb = SimpleNamespace(path_='nbs/1_foundations/02_x.ipynb', cells=[*cells])
    FrameStatements(nb).begin()
    return '\n\n'.join(c.source for c in nb.cells)


def test_a_statement_is_a_division_of_its_kind_and_its_proof_stays_outside():
    page = framed_page(cell('markdown', 'So:\n\n> **Counter-example 2.1 (a (b)).** It\n>\n'
                                        '> $$x$$\n\n<details>'))
    assert page == ('So:\n\n:::: {.statement .counter-example}\n'
                    '**Counter-example 2.1 (a (b)).** It\n\n$$x$$\n::::\n\n<details>')


def test_another_quotation_is_left_alone():
    assert framed_page(cell('markdown', '# T\n\n> one sentence')) == '# T\n\n> one sentence'


def test_an_exercise_holds_its_hints_its_solution_and_its_check():
    task = cell('markdown', '> **Exercise 2.1 (code, 3 marks, 9 minutes, ●●○).** Do `it`.\n>\n'
                            '> - a\n\n<details>hint</details>')
    solution, check, after = (cell('code', s) for s in ('solution', 'check', 'after'))
    solution.directives_, check.directives_ = {'solution': ['2.1']}, {'check': ['2.1']}
    proof = cell('markdown', '<!-- solution 2.2 -->')
    parts = framed_page(task, solution, check, after, proof).split('\n\n')
    assert parts[0] == '::::: {.exercise}' and 'aria-label="difficulty 2 of 3">●●○<' in parts[1]
    assert 'code · 3 marks · 9 minutes' in parts[1]
    assert parts[2:] == ['Do `it`.', '- a', '<details>hint</details>', 'solution', 'check', ':::::',
                         'after', '<!-- solution 2.2 -->']
    task.source = '> **Exercise 2.2 (proof, 1 mark, 9 minutes, ●○○).** Do.'
    assert framed_page(task, proof).endswith('<!-- solution 2.2 -->\n\n:::::')
