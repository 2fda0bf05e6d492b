"""The style sheet of the site on small examples: tables, figures and formulas on a phone.

`test_site_pages.py` measures the pages themselves.
"""
import base64
import struct
import zlib

import pytest
import site_pages

from .examples import ROOT, measure
from .reading import spoken, stops, too_wide, unnamed

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

@pytest.mark.parametrize('width', (390, 320))
def test_style_sheet_keeps_a_page_as_wide_as_the_phone(visit, width):
    page = visit(like_the_site(SAMPLE, CSS), width)
    assert too_wide(page) == 0 and unnamed(page) == []
    roles = {role for role, _ in spoken(page)}
    assert {'table', 'row', 'columnheader', 'cell'} <= roles, 'a table that scrolls is still one'
    scrolls = [stop['tag'] for stop in stops(page)]
    assert 'TABLE' in scrolls and 'P' in scrolls, 'what scrolls can be scrolled with the keyboard'
    assert too_wide(visit(like_the_site(SAMPLE, ''), width)) > 100


def test_pages_are_measured_with_wide_fonts_of_the_tests(visit):
    words = '<p><span>mmmmmmmmmmmmmmmmmmmm</span> <code>mmmmmmmmmmmmmmmmmmmm</code></p>'
    page = visit(like_the_site(f'<main>{words}</main>', ''))
    for tag, em in ('span', .974), ('code', .602):   # DejaVu's m, in units of the font size
        element = page.locator(tag)
        size = float(element.evaluate('e => parseFloat(getComputedStyle(e).fontSize)'))
        assert abs(element.bounding_box()['width']/(20*size) - em) < .01


def png(width, height):
    "An empty picture of this size."
    def chunk(kind, data):
        check = struct.pack('>I', zlib.crc32(kind + data))
        return struct.pack('>I', len(data)) + kind + data + check
    rows = zlib.compress((b'\0' + bytes(width))*height)
    header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    picture = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', rows)
    return base64.b64encode(picture + chunk(b'IEND', b'')).decode()


def figure(data, alt, size=''):
    return f'<p><img src="data:image/png;base64,{data}" class="figure-img" alt="{alt}"{size}></p>'


@pytest.mark.parametrize('width', (1280, 390))
def test_no_figure_is_cut_or_bent(visit, width):
    "Quarto gives a retina figure its size as attributes, and no class that would let it shrink."
    body = '<main>' + figure(png(3000, 1000), 'wide', ' width="1500" height="500"') + '</main>'
    page = visit(like_the_site(body, CSS), width)
    assert page.evaluate(measure('size'))['cut'] == [] and too_wide(page) == 0
    bad = visit(like_the_site(body, CSS.replace('figure-img', 'other')), width)
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
