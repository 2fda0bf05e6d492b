"""What happens to a notebook on its way to a page, as far as nobody would see on the page that it
went wrong: links, code that is too wide, doubled directives and lost pictures are found there
(`widgets/test_site_pages.py`)."""
import base64
from io import BytesIO
from types import SimpleNamespace

import numpy as np
from PIL import Image

from tools.site.processors import (
    FoldCells,
    FrameStatements,
    NumberTitle,
    PageHead,
    clean_signature,
    light,
)
from tools.site.search_index import lean_index

TEXT = '<details><summary>Answer</summary>\n\n{}\n\n</details>'


class cell(dict):
    "A cell as nbdev has it: fields that are also attributes."
    def __init__(self, kind, source, fold=''):
        super().__init__(outputs=[])
        self.cell_type, self.source = kind, source
        if fold: self.directives_ = {'fold': fold.split()}


def folded(*cells):
    "The page's text when cells are folded, <code> for code."
    nb = SimpleNamespace(path_='nbs/1_foundations/02_x.ipynb', cells=[*cells])
    FoldCells(nb).begin()
    page = ' '.join(c.source if c.cell_type != 'code' else f'<{c.source}>' for c in nb.cells)
    return ' '.join(page.split())


def test_neighbouring_cells_with_one_fold_become_one_on_the_page():
    first, last = 'Which? ' + TEXT.format('One.'), TEXT.format('Two.') + '\n\nWe go on.'
    codes = [cell('code', f'f({i})', fold='Answer') for i in (1, 2)]
    assert folded(cell('markdown', first), *codes, cell('markdown', last)) == (
        'Which? <details><summary>Answer</summary> One. <f(1)> <f(2)> Two. </details> We go on.')


def test_folds_with_other_words_or_with_text_between_stay_apart():
    one, two = (cell('markdown', TEXT.format(text)) for text in ('One.', 'Two.'))
    page = folded(one, cell('code', 'f(1)', fold='Check'), cell('markdown', 'Then'), two)
    assert page.count('<details>') == 3


def test_a_signature_is_plain():
    code = 'def f(\n    a:__main__.Group | str, # a [`Group`](https://x.org/g)\n)->None:'
    assert clean_signature(code).splitlines()[1].startswith('    a:Group | str,')
    assert '](' not in clean_signature(code)
    assert clean_signature('def A(\n    *args:Any, **kwargs:Any\n)->None:') == 'class A'


def test_figure_is_lighter_and_looks_the_same():
    def png(image):
        image.save(file := BytesIO(), 'PNG')
        return base64.b64encode(file.getvalue()).decode()
    before = np.random.default_rng(0).integers(0, 9, (200, 300, 3), np.uint8)*28
    heavy = png(Image.fromarray(before))
    after = np.asarray(Image.open(BytesIO(base64.b64decode(light(heavy)))).convert('RGB'))
    assert len(light(heavy)) < len(heavy)
    assert after.shape == before.shape and abs(after.astype(int) - before).mean() < 12


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


LINKS = 'Open this: [in Colab](C)'


def headed(path, *texts):
    "The page's cells once it has a head, beginning with the links that open it."
    cells = [cell('raw', '---'), cell('markdown', LINKS), *(cell('markdown', t) for t in texts)]
    nb = SimpleNamespace(path_=f'nbs/{path}', cells=cells)
    PageHead(nb).begin()
    return [c.source for c in nb.cells[1:]]


def test_head_of_a_page_has_a_row_for_each_label_and_takes_nothing_else_in():
    text = ('**P9** is a paper.\n\n**You will**\n\n- see;\n\n**You need** 01\n\n**Time** read 9'
            '\n\nIt begins.')
    head, rest = headed('1_foundations/02_actions.ipynb', text)
    assert rest == '**P9** is a paper.\n\nIt begins.'
    lines = head.split('\n')[1:-1]
    assert [line for line in lines if line and not line.startswith('::::')] == [
        '[You need]{.label}', '01', '[Time]{.label}', 'read 9',
        '<details open class="will"><summary>You will</summary>', '- see;', '</details>',
        '[Notebook]{.label}', '[in Colab](C)']


def test_minutes_behind_what_one_needs_have_a_row_of_their_own():
    head = headed('6_reference/90_a.ipynb', '**You need** nothing. · **read 5 minutes**')[0]
    assert '[You need]{.label}\n\nnothing\n' in head
    assert '[Time]{.label}\n\nread 5 minutes\n' in head and 'will' not in head


def test_map_has_no_head_and_ends_with_the_links():
    assert headed('index.ipynb', '**Time** flies.') == ['**Time** flies.', LINKS]


# --- search

PAGE = '''<a class="skip-link">Skip to the text</a><main><div class="page-head">in Colab</div>
<p>First <math><mi>K</mi><annotation>K\\le H</annotation></math>.</p>
<section class="level2" id="a"><h2>A</h2><p>Text.</p><details><summary>Code</summary>x</details>
<div class="statement definition"><p><strong>Definition 2.1 (orbit).</strong> All.</p></div>
<h3 id="liftingconv2d">LiftingConv2d</h3></section></main>'''


def test_the_search_reads_each_formula_once_and_no_line_that_stands_on_every_page(tmp_path):
    (tmp_path/'1_foundations').mkdir()
    (tmp_path/'1_foundations'/'x.html').write_text(PAGE, encoding='utf-8')
    href = '1_foundations/x.html'
    entries = [dict(objectID=h, href=h, title='X', section=s, text='Skip to the text')
               for h, s in ((href, ''), (f'{href}#a', 'A'))]
    found = lean_index(entries, tmp_path)
    assert [(e['href'][len(href):], e['section'], e['text']) for e in found] == [
        ('', '', 'First K .'),
        ('#a', 'Definition 2.1 (orbit)', 'Definition 2.1 (orbit)'),
        ('#liftingconv2d', 'LiftingConv2d', 'lifting convolution'),
        ('#a', 'A', 'Text. x Definition 2.1 (orbit). All. LiftingConv2d')]


def test_a_list_of_words_is_not_searched():
    for name, said in ('6_reference/92_api.ipynb', True), ('1_foundations/01_groups.ipynb', False):
        head = cell('raw', "---\ntitle: Names\n---")
        NumberTitle(SimpleNamespace(path_=f'nbs/{name}', cells=[head])).begin()
        assert head.source.startswith('---\nsearch: false\ntitle: ') == said
