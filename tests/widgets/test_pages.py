"""The style sheet of the site on small examples: tables, figures and formulas on a phone.

`test_site_pages.py` measures the pages themselves.
"""
import base64
from io import BytesIO

import pytest
import site_pages
from PIL import Image

from .examples import ROOT, WIDTHS, measure
from .reading import stops, too_wide, unnamed

CSS = (ROOT/'nbs'/'styles.css').read_text(encoding='utf-8')
SUM = '<mrow>' + '<mi>x</mi><mo>+</mo>'*60 + '</mrow>'
SAMPLE = f'''<main><h1>x</h1>
<table><thead><tr>{'<th>a header</th>'*12}</tr></thead>
<tbody><tr>{'<td>long_word</td>'*12}</tr></tbody></table>
<p>Inline <math>{SUM}</math>.</p><p><math display="block">{SUM}</math></p>
<ul><li>In a list <math>{SUM}</math>.</li><li><code>{'a.b/'*40}</code></li></ul>
<details><summary>Fold <code>{'a_long_name_'*9}</code> <math>{SUM}</math></summary>x</details>
<p><a href="#x"><code>{'a_long_name_'*9}</code></a></p><h2><code>{'a_long_name_'*9}</code></h2>
<blockquote><p>{'Q'*90}</p></blockquote></main>'''
LIKE_THE_SITE = ('body{margin:0;padding:0 12px;font:17px/1.5 sans-serif}'
                 'pre,div.sourceCode{overflow-x:auto}td,th{padding:.5rem}code{font-size:.875em}')


def like_the_site(body, css):
    return ('<!doctype html><html lang="en"><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
            f'<title>x</title><style>{LIKE_THE_SITE}{css}</style><body>{body}</body></html>')


# --- the style sheet

def table_roles(page):
    "What a screen reader is told: a table that is laid out as a block may lose its roles."
    nodes = page.context.new_cdp_session(page).send('Accessibility.getFullAXTree')['nodes']
    return {n['role']['value'] for n in nodes if not n['ignored']}


def test_style_sheet_keeps_a_page_as_wide_as_the_phone(visit):
    page, without = visit(like_the_site(SAMPLE, CSS)), visit(like_the_site(SAMPLE, ''))
    for width in 390, 320:
        for p in page, without: p.set_viewport_size(dict(width=width, height=900))
        assert too_wide(page) == 0 and too_wide(without) > 100
        scrolls = {stop['tag'] for stop in stops(page)}
        assert {'TABLE', 'P'} <= scrolls, 'what scrolls can be scrolled with the keyboard'
    assert unnamed(page) == []
    assert {'table', 'row', 'columnheader', 'cell'} <= table_roles(page)


def test_pages_are_measured_with_wide_fonts_of_the_tests(visit):
    words = '<p><span>mmmmmmmmmmmmmmmmmmmm</span> <code>mmmmmmmmmmmmmmmmmmmm</code></p>'
    page = visit(like_the_site(f'<main>{words}</main>', ''))
    for tag, em in ('span', .974), ('code', .602):   # DejaVu's m, in units of the font size
        element = page.locator(tag)
        size = float(element.evaluate('e => parseFloat(getComputedStyle(e).fontSize)'))
        assert abs(element.bounding_box()['width']/(20*size) - em) < .01


def test_no_figure_is_cut_or_bent(visit):
    "Quarto gives a retina figure its size as attributes, and no class that would let it shrink."
    file = BytesIO()
    Image.new('L', (3000, 1000)).save(file, 'PNG')
    data = base64.b64encode(file.getvalue()).decode()
    body = (f'<main><p><img src="data:image/png;base64,{data}" class="figure-img" alt="wide" '
            'width="1500" height="500"></p></main>')
    page = visit(like_the_site(body, CSS))
    bad = visit(like_the_site(body, CSS.replace('figure-img', 'other')))
    for width in WIDTHS:
        for p in page, bad: p.set_viewport_size(dict(width=width, height=900))
        assert page.evaluate(measure('size'))['cut'] == [] and too_wide(page) == 0
        assert bad.evaluate(measure('size'))['cut'] == ['wide']


def column(text, share): return f'<col style="width:{share}%">', f'<td>{text}</td>'


def test_column_widths_of_pandoc_are_ignored(visit):
    "They squeeze a long command into a sliver: 1 % of the page here."
    columns = [column('a', 99), column('<code>eqtutor train --recipe p4</code>', 1)]
    cols, cells = (''.join(part) for part in zip(*columns))
    table = (f'<main><table style="width:100%"><colgroup>{cols}</colgroup><thead><tr><th>a</th>'
             f'<th>b</th></tr></thead><tbody><tr>{cells}</tr></tbody></table></main>')
    wide = visit(like_the_site(table, CSS), 390).locator('td').nth(1).bounding_box()
    assert wide['height'] < 80 and wide['width'] > 150


# --- formulas

def test_formula_that_is_no_mathml_is_found():
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    with pytest.raises(RuntimeError): site_pages.pandoc(r'$\nosuchthing{x}$')
