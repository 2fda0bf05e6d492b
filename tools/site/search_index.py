"""The text that the site's search looks through: Quarto's, less what no reader looks for.

Quarto runs this once all pages are built (`project: post-render` in `_quarto.yml`). It takes each
entry of the index from its page once more, without the lines that stand on every page, and with
each formula once: beside its MathML stands its LaTeX.
"""
# Plain module, edited by hand. Run as a file, it imports nothing of eqtutor.
import json
import os
import re
from html import escape
from pathlib import Path

from bs4 import BeautifulSoup, Tag

UNREAD = ('script, style, annotation, nav, header, summary, .skip-link, .page-head, .folds, '
          '[id^="eqtutor-"]')
SECTION = 'section.level2, section.footnotes'


def main_of(
    html:str, # of a page
)->Tag:
    "The text of a page as a tree, without what stands on every page."
    page = BeautifulSoup(html, 'html.parser')
    for part in page.select(UNREAD):
        if not part.decomposed: part.decompose()
    return page.select_one('main') or page


def words_of(
    part:Tag,
)->str:
    "Its text on one line."
    return re.sub(r'\s+', ' ', part.get_text(' ')).strip()


def text_at(
    main:Tag,   # of `main_of`
    anchor:str, # of a section; '' for what stands outside all sections
)->str:
    "The words of one entry."
    if anchor:
        section = main.find(id=anchor)
        if section is None: return ''
        heading = section.find('h2')
        text, title = words_of(section), words_of(heading) if heading else ''
        return text.removeprefix(title).strip()
    sections = {id(inner) for section in main.select(SECTION) for inner in section.descendants}
    return ' '.join(words_of(part) for part in main.children
                    if isinstance(part, Tag) and not part.select_one(SECTION)
                    and id(part) not in sections and not part.css.match(SECTION)).strip()


LAYER = re.compile(r'[A-Z]\w+')   # the heading over a class
STATED = re.compile(r'(?:Definition|Theorem|Lemma|Proposition|Corollary|Rule) [\w.]+'
                    r' \((?!P\d).+?\)\.')   # with a name that is no place in a paper

def in_words(
    name:str, # 'LiftingConv2d', 'Theorem 5.1 (linear and equivariant)'
)->str:
    "What one would type to find it: 'lifting convolution'."
    if not LAYER.fullmatch(name): return name
    parts = re.findall(r'[A-Z]+(?![a-z])|[A-Z][a-z]+', name.replace('2d', ''))
    return ' '.join('convolution' if part == 'Conv' else part.lower() for part in parts)


def stated_in(
    main:Tag,    # of `main_of`
    entry:dict, # of the page
)->list[dict]:
    """An entry for each statement with a name and each class of the library: a search for
    'lifting convolution' leads to its definition before all pages that speak of it."""
    found = []
    for part in main.select('.statement, h3[data-anchor-id], h3[id]'):
        section = part.find_parent('section', class_='level2')
        words = words_of(part)
        named = words if LAYER.fullmatch(words) else ''.join(STATED.findall(words[:120])[:1])[:-1]
        if not (section and section.get('id') and named): continue
        anchor = part.get('id') or section['id']
        href = f'{entry["href"]}#{anchor}'
        found.append({**entry, 'objectID': f'{href} {named}', 'href': href, 'section': named,
                      'text': in_words(named)})
    return found


def lean_index(
    entries:list[dict], # Quarto's
    folder:Path,        # where the pages are
)->list[dict]:
    "The same entries with the text of `text_at`; those without any text are left out."
    mains:dict[str, Tag] = {}
    lean = []
    for entry in entries:
        page, _, anchor = entry['href'].partition('#')
        if page not in mains: mains[page] = main_of((folder/page).read_text(encoding='utf-8'))
        text = text_at(mains[page], anchor)
        if text or entry.get('section'): lean.append({**entry, 'text': escape(text, quote=False)})
        if not anchor and re.match('[1-3]_', page): lean += stated_in(mains[page], entry)
    return lean


if __name__ == '__main__':
    pages = Path(os.environ['QUARTO_PROJECT_OUTPUT_DIR'])   # as seen from the project
    index = pages/'search.json'
    found = lean_index(json.loads(index.read_text(encoding='utf-8')), pages)
    index.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding='utf-8')
