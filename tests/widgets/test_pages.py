"""The pages of the site: formulas, anchors, tables and figures, and whether they fit a phone.

Pandoc turns a notebook into HTML as Quarto does; the site's own style sheet is the one that is
tested, the fonts are wide ones that the tests bring.
"""
import base64
import re
import struct
import zlib

import pytest
from pages import directives, headings_of, labels, pages as markdown_of, read_all, slugs

from .examples import ROOT, measure
from .reading import spoken, stops, too_wide, unnamed

BOOK = read_all()
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
    page = visit(like_the_site(f'<main>{words}</main>', CSS))
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


# --- the pages

def pandoc(markdown):
    import pypandoc
    options = ['--mathml', '--wrap=none', '--fail-if-warnings']
    return pypandoc.convert_text(markdown, 'html', 'markdown', extra_args=options)


def shown(output, alt):
    "An output as Markdown."
    data = output.get('data', {})
    if 'text/html' in data: return '`````{=html}\n' + ''.join(data['text/html']) + '\n`````'
    if 'image/png' in data:
        size = output.get('metadata', {}).get('image/png', {})
        attributes = ''.join(f' {k}="{v}"' for k, v in size.items())
        picture = figure(''.join(data['image/png']).strip(), alt, attributes)
        return f'`````{{=html}}\n{picture}\n`````'
    if 'text/markdown' in data: return ''
    text = data.get('text/plain', output.get('text'))
    return '```\n' + ''.join(text) + '\n```' if text else ''


def as_site(nb):
    "A notebook's text and outputs as Pandoc makes HTML of them: what Quarto does, less its theme."
    parts, sources = [], list(markdown_of(nb))
    for i, cell in enumerate(nb.cells):
        parts += [source for k, source in sources if k == i]
        alt = directives(cell['source']).get('fig-alt', '').strip('\'" ').replace('"', '&quot;')
        parts += [shown(output, alt) for output in cell.get('outputs', [])]
    title, _, rest = '\n\n'.join(parts).partition('\n')   # front matter on the site, no anchor
    return f'<h1>{title.removeprefix("# ")}</h1>{pandoc(rest)}'


def text_of(html):
    return re.sub(r'<(pre|code|script|annotation)\b.*?</\1>', '', html, flags=re.S)


@pytest.mark.parametrize('name', BOOK)
def test_page_in_pandoc(visit, name):
    "Formulas become MathML, anchors are those that links are checked against, it fits a phone."
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    html, nb = as_site(BOOK[name]), BOOK[name]
    assert 'class="math' not in text_of(html)
    assert not re.findall(r'\$[^$\n<]*\\[a-z]+[^$\n<]*\$', text_of(html))
    anchors = re.findall(r'<h[2-6][^>]* id="([^"]+)"', html)
    assert len(anchors) == sum(level > 1 for _, level, _ in headings_of(nb))
    assert {*anchors} <= {*slugs(nb), *labels(nb)}
    for table in re.findall(r'<table.*?</table>', html, re.S):
        assert re.search(r'<th\b[^>]*>\s*\S', table), table[:200]
    page = visit(like_the_site(f'<main>{html}</main>', CSS), 390)
    assert too_wide(page) == 0 and unnamed(page) == []
    assert page.evaluate(measure('size'))['cut'] == []


def test_formula_that_is_no_mathml_is_found():
    pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    with pytest.raises(RuntimeError): pandoc(r'$\nosuchthing{x}$')
