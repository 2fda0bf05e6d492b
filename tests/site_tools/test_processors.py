"""What happens to a notebook on its way to a page, as far as nobody would see on the page that it
went wrong: links, code that is too wide, doubled directives and lost pictures are found there
(`widgets/test_site_pages.py`)."""
import base64
from io import BytesIO
from types import SimpleNamespace

import numpy as np
from PIL import Image

from tools.site.processors import FoldCells, clean_signature, light

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
