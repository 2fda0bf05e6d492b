"What happens to a notebook on its way to a page."
import base64
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from eqtutor.tutor.reading import SHOWN, why_folded
from tools.site.processors import (
    COLUMNS,
    FoldCells,
    FoldCode,
    NumberTitle,
    clean_signature,
    light,
    link_papers,
    local_links,
    share_pictures,
)

SITE = 'https://x.org/course/'
TEXT = '<details><summary>Answer</summary>\n\n{}\n\n</details>'


class cell(dict):
    "A cell as nbdev has it: fields that are also attributes."
    def __init__(self, kind, source, *kinds, fold=''):
        super().__init__(outputs=[dict(data=dict.fromkeys(kinds, ''))])
        self.cell_type, self.source = kind, source
        if fold: self.directives_ = {'fold': fold.split()}


def done(processor, *cells, path='nbs/1_foundations/02_x.ipynb'):
    "The sources of the cells when a processor has begun with their notebook."
    nb = SimpleNamespace(path_=path, cells=[*cells])
    processor(nb).begin()
    return [c.source if c.cell_type != 'code' else f'<{c.source}>' for c in nb.cells]


@pytest.mark.parametrize('path, title', [
    ('nbs/3_papers/24b_x.ipynb', "'24b A title'"), ('nbs/index.ipynb', 'A title')])
def test_title_has_the_number_of_its_chapter(path, title):
    said, = done(NumberTitle, cell('raw', '---\ntitle: A title\n---'), path=path)
    assert said == f'---\ntitle: {title}\n---'


def test_neighbouring_cells_with_one_fold_become_one_on_the_page():
    cells = [cell('markdown', 'Which? ' + TEXT.format('One.')), cell('code', 'f(1)', fold='Answer'),
             cell('code', 'f(2)', fold='Answer'),
             cell('markdown', TEXT.format('Two.') + '\n\nWe go on.')]
    assert ' '.join(' '.join(done(FoldCells, *cells)).split()) == (
        'Which? <details><summary>Answer</summary> One. <f(1)> <f(2)> Two. </details> We go on.')
    cells[1:3] = [cell('code', 'f(1)', fold='Check'), cell('markdown', 'Then')]
    assert ' '.join(done(FoldCells, *cells)).count('<details>') == 3


@pytest.mark.parametrize('source, drawn, workshop, words', [
    ('#| code-fold: show\nclass A: pass', False, False, ''),
    ('#| code-fold: show\nclass A: pass', False, True, 'Exported source'),
    ('# Check 6.1: turns\nassert x', False, False, 'Check 6.1: turns'),
    ('plot(x)', True, False, 'How the figure is drawn'),
    ('assert x', False, False, ''), ('assert x', False, True, 'A check'),
    ('#| code-fold: true\nplot(x)', True, True, '')])
def test_what_is_folded(source, drawn, workshop, words):
    assert why_folded(source, drawn, workshop) == words


def test_a_fold_is_written_as_directives_and_once():
    "Quarto refuses a cell in which a directive stands twice."
    own = '#| code-fold: true\n#| code-summary: "may be skipped"\nx = 1'
    cells = (cell('code', '#| fig-alt: x\nplot(x)', 'image/png'), cell('code', 'x = 1'),
             cell('code', SHOWN + own), cell('code', SHOWN + 'x = 1'))
    figure = '#| code-fold: true\n#| code-summary: "How the figure is drawn"\n#| fig-alt: x\nplot(x)'
    assert done(FoldCode, *cells) == [f'<{s}>' for s in (figure, 'x = 1', own, SHOWN + 'x = 1')]


def test_links_within_the_site_are_relative():
    page = f'{SITE}1_a/groups.html'
    text = f'[`Group`]({page}#group.inv), [`x`]({page}#x), [y](https://y)'
    assert local_links(text, SITE, '2_b', {'1_a/groups.html#group'}) == (
        '[`Group`](../1_a/groups.html#group), `x`, [y](https://y)')
    assert local_links(f'[a]({SITE}2_b/a.html)', SITE, '', set()) == '[a](2_b/a.html)'


def test_signature_is_plain_and_fits():
    code = ('def f(\n    a:__main__.Group | str, # a [`Group`](https://x.org/g), '
            + 'and many more words, '*5 + '\n    b:collections.abc.Callable[[int, int], str], '
            + ', '.join(f'argument_{i}:int={i}' for i in range(8)) + '\n)->None:')
    lines = clean_signature(code).splitlines()
    assert max(map(len, lines)) <= COLUMNS and '    b:Callable[[int, int], str],' in lines
    assert '    a:Group | str,' in lines and '](' not in ''.join(lines)
    assert clean_signature('def A(\n    *args:Any, **kwargs:Any\n)->None:') == 'class A'


def test_first_mention_of_a_paper_leads_to_its_entry():
    known = set()
    text = link_papers('# P1\n`P1`, P1 and P1; [P2](x) and $P2$.', 's.html', known)
    assert text == ('# P1\n`P1`, [P1](s.html#romero2020attentive) and P1; [P2](x) and $P2$.')
    fold = '<details><summary>One in P1</summary>'   # a link in it could not be reached
    assert link_papers(fold, 's.html', set()) == fold


def test_figure_is_lighter_and_looks_the_same():
    def png(image):
        image.save(file := BytesIO(), 'PNG')
        return base64.b64encode(file.getvalue()).decode()
    before = np.random.default_rng(0).integers(0, 9, (200, 300, 3), np.uint8)*28
    heavy = png(Image.fromarray(before))
    after = np.asarray(Image.open(BytesIO(base64.b64decode(light(heavy)))).convert('RGB'))
    assert len(light(heavy)) < len(heavy)
    assert after.shape == before.shape and abs(after.astype(int) - before).mean() < 12


def test_repeated_picture_is_stored_once():
    seen, source = {}, 'data:image/png;base64,AAAA'
    first = share_pictures(f'<img alt="a" src="{source}"><img src="{source}">', seen)
    assert first == f'<img alt="a" data-picture="0" src="{source}"><img data-as="0">'
    assert share_pictures(f'<img src="{source}">', seen) == '<img data-as="0">'
