"""The site without Quarto: notebooks processed by nbdev, turned into pages by Pandoc.

Each page has the site's own style sheet, scripts and fonts, and as much of Quarto's frame as they
refer to: sidebar, title block, folds, figures with captions. Quarto's themes, its search, its
table of contents and its button that copies code are not here.
"""
import base64
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

import matplotlib
import pytest
import yaml
from pages import ROOT

PROCESS = 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=0)'

# what Quarto's frame is like: a sidebar of 220 pixels, a margin of 200, a column between them
FRAME = '''
body { margin: 0; font: 17px/1.5 sans-serif; }
#quarto-content { display: grid; gap: 24px; padding: 0 12px; }
#quarto-content { grid-template-columns: minmax(0, 1fr); }
#quarto-sidebar { display: none; font-size: 14px; }
div.sourceCode, pre { position: relative; }
code { white-space: pre; }
.card { color: #6c757d; }   /* Bootstrap's, in the dark */
td, th { padding: .5rem; }
@media (min-width: 992px) {
  #quarto-content { grid-template-columns: 220px minmax(0, 758px) 200px; }
  #quarto-sidebar { display: block; }
}
'''
# wide fonts, the same on each machine; formulas keep the font that the site brings
FONTS = [('test sans', 'normal', 'DejaVuSans'), ('test sans', 'bold', 'DejaVuSans-Bold'),
         ('test mono', 'normal', 'DejaVuSansMono'), ('test math', 'normal', 'DejaVuSerif')]
FAMILIES = (':not(math, math *) { font-family: "test sans" !important; }\n'
            ':is(pre, code), :is(pre, code) * { font-family: "test mono" !important; }\n')

def fonts():
    "The style sheet of the tests' own fonts, which come with matplotlib."
    folder = Path(matplotlib.get_data_path())/'fonts'/'ttf'
    faces = [f'@font-face {{ font-family: "{family}"; font-weight: {weight}; '
             f'src: url("{(folder/f"{file}.ttf").as_uri()}"); }}\n'
             for family, weight, file in FONTS]
    return ''.join(faces) + FAMILIES


def build(folder):
    "All pages of the site in a folder; their files by the names of the notebooks."
    processed = process(folder)
    names = sorted(p.relative_to(processed).as_posix() for p in processed.rglob('*.ipynb'))
    books = {name: json.loads((processed/name).read_text(encoding='utf-8')) for name in names}
    files = {name: posixpath.join(posixpath.dirname(name), front_matter(nb)['output-file'])
             for name, nb in books.items()}
    site = folder/'_docs'
    site.mkdir()
    for part in 'styles.css', 'fonts', 'images':
        copy = shutil.copytree if (processed/part).is_dir() else shutil.copy
        copy(processed/part, site/part)
    (site/'frame.css').write_text(fonts() + FRAME, encoding='utf-8')
    for name, nb in books.items(): write_page(site, name, nb, files, processed)
    return {name: site/file for name, file in files.items()}


def process(folder):
    "The notebooks as nbdev hands them to Quarto, with all that lies beside them."
    for part in 'nbs', 'settings.ini', '_quarto.yml':
        copy = shutil.copytree if (ROOT/part).is_dir() else shutil.copy
        copy(ROOT/part, folder/part)
    before = os.environ.get('PYTHONPATH', '')
    env = {**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{before}'}
    done = subprocess.run([sys.executable, '-c', PROCESS], cwd=folder, env=env, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder/'_proc'


# --- one page

def front_matter(nb): return yaml.safe_load(text_of(nb['cells'][0]['source']).strip().strip('-'))

def text_of(source): return ''.join(source)


def write_page(site, name, nb, files, processed):
    page = site/files[name]
    page.parent.mkdir(exist_ok=True)
    pictures = page.parent/f'{page.stem}_files'
    parts = [part for cell in nb['cells'][1:] for part in parts_of(cell, pictures)]
    body = local(pandoc('\n\n'.join(parts)), name, files)
    html = whole(front_matter(nb), body, name, files, processed)
    page.write_text(html, encoding='utf-8')


def reader():
    "What Quarto is told to read: Pandoc's Markdown, with or without some of its extensions."
    return yaml.safe_load((ROOT/'_quarto.yml').read_text(encoding='utf-8')).get('from', 'markdown')


def pandoc(markdown, read=None, *more):
    pypandoc = pytest.importorskip('pypandoc', reason='pypandoc_binary is not installed')
    options = ['--mathml', '--wrap=none', *(more or ['--fail-if-warnings'])]
    return pypandoc.convert_text(markdown, 'html', read or reader(), extra_args=options)


def raw(html): return f'`````{{=html}}\n{html}\n`````'

def parts_of(cell, pictures):
    "A cell as Markdown: its text, or its code, folded or not, and what that put out."
    source = text_of(cell['source'])
    if cell['cell_type'] == 'markdown': yield source
    if cell['cell_type'] != 'code': return
    said, code = options_of(source), re.sub(r'^#\|.*\n?', '', source, flags=re.M).strip()
    fold, words = said.get('code-fold'), escape(said.get('code-summary', 'Code'))
    if code and said.get('echo') is not False:
        opened = raw(f'<details class="code-fold"{" open"*(fold == "show")}>'
                     f'<summary>{words}</summary>')
        shown = f'```python\n{code}\n```'
        yield from [opened, shown, raw('</details>')] if fold in (True, 'show') else [shown]
    for output in cell.get('outputs', []): yield output_of(output, said, pictures)


def options_of(source):
    "The directives of a cell, which Quarto reads as YAML: it refuses a key that stands twice."
    lines = re.findall(r'^#\|\s*(.*)$', source, re.M)
    options = yaml.safe_load('\n'.join(lines)) or {}
    if len(options) < len(lines): raise ValueError(f'a directive stands twice: {lines}')
    return options


def output_of(output, said, pictures):
    data = output.get('data', {})
    if output['output_type'] == 'error' or 'text/html' in data:   # nbdev_docs would publish both
        raise ValueError(f'an error, or HTML, which needs scripts from elsewhere: {[*data]}')
    if 'text/markdown' in data:
        kind = raw('<div class="cell-output cell-output-display cell-output-markdown">')
        return '\n\n'.join([kind, text_of(data['text/markdown']), raw('</div>')])
    if 'image/png' in data: return figure_of(output, said, pictures)
    words = text_of(data.get('text/plain', output.get('text', '')))
    return raw(f'<div class="cell-output"><pre><code>{escape(words)}</code></pre></div>')


def figure_of(output, said, pictures):
    "A picture in a file of its own, with the size, the alt text and the caption of its cell."
    pictures.mkdir(exist_ok=True)
    file = pictures/f'{len([*pictures.iterdir()])}.png'
    file.write_bytes(base64.b64decode(text_of(output['data']['image/png'])))
    size = output.get('metadata', {}).get('image/png', {})
    caption = said.get('fig-cap')
    numbers = ''.join(f' {k}="{v}"' for k, v in size.items() if k in ('width', 'height'))
    image = (f'<figure class="figure"><p><img src="{pictures.name}/{file.name}" '
             f'class="figure-img" alt="{escape(said.get("fig-alt", ""))}"{numbers}></p>')
    parts = [raw('<figcaption>'), caption, raw('</figcaption>')] if caption else []
    return '\n\n'.join([raw(image), *parts, raw('</figure>')])


def local(html, name, files):
    "HTML whose links to notebooks lead to their pages."
    here = posixpath.dirname(name)

    def link(match):
        target = posixpath.normpath(posixpath.join(here, match[1]))
        return f'href="{posixpath.relpath(files.get(target, target), here or ".")}'
    return re.sub(r'href="(?!https?:)([^"#]+\.ipynb)', link, html)


def whole(head, body, name, files, processed):
    "A page with the parts of Quarto's frame."
    up = posixpath.relpath('.', posixpath.dirname(name) or '.')
    here = posixpath.dirname(name) or '.'
    links = ''.join(f'<li><a href="{posixpath.relpath(file, here)}">{posixpath.basename(file)}</a>'
                    for file in files.values())
    before, after = ((processed/f'{part}-body.html').read_text(encoding='utf-8')
                     for part in ('before', 'after'))
    title, subject = escape(head['title']), escape(head.get('description', ''))
    return f'''<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{up}/images/favicon.svg">
<link rel="stylesheet" href="{up}/frame.css"><link rel="stylesheet" href="{up}/styles.css">
<body class="quarto-light">{before}<div id="quarto-content">
<nav id="quarto-sidebar"><ul>{links}</ul></nav>
<main class="content" id="quarto-document-content">
<header id="title-block-header"><h1 class="title">{title}</h1>
<div class="description">{subject}</div></header>
{body}</main></div>{after}</body></html>'''


# --- what a renderer makes of the text

def read_page(html):
    "A page without its code, its formulas and Quarto's frame."
    from bs4 import BeautifulSoup
    unread = r'<(pre|script|style|math|nav)\b.*?</\1>|<section id="footnotes".*?</section>'
    return BeautifulSoup(re.sub(unread, '', html, flags=re.S), 'html.parser')


def lists_of(html):
    "Of each list: its kind, where it starts and how it counts, how many items, how it begins."
    for found in read_page(html).find_all(['ol', 'ul']):
        counts = found.get('start', '1'), found.get('type', '1')
        items = len(found.find_all('li', recursive=False))
        yield found.name, counts, items, found.get_text().strip()[:60]


def list_faults(html):
    "Numbered lists that no author meant: of one item, past 1 at the start, or with letters."
    return [found for found in lists_of(html)
            if found[0] == 'ol' and (found[2] < 2 or found[1] != ('1', '1'))]


def pipe_faults(html):
    r"Words and code within a line that show `\|`: Pandoc keeps the backslash inside code."
    return re.findall(r'.{0,40}\\\|.{0,40}', read_page(html).get_text())
