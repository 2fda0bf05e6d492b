"Where links lead: one checker for notebooks, for Markdown files and for the pages of the site."
import re
from pathlib import Path

from pages import labels, read, relative_links, slugs

from eqtutor.tutor.reading import anchor_of


def links_and_anchors(path:Path):
    "The links of a document within the project, and where one may link in it."
    if path.suffix == '.ipynb':
        nb = read(path, path.parent)
        return relative_links('\n\n'.join(nb.markdown())), {*labels(nb), *slugs(nb)}
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.html':
        shown = re.sub(r'<(script|style)\b.*?</\1>', '', text, flags=re.S)
        links = re.findall(r'<a\b[^>]*\bhref="([^"]*)"', shown)
        inner = [link for link in links if not re.match(r'https?:|mailto:', link)]
        return inner, {*re.findall(r'\bid="([^"]+)"', text)}
    headings = re.findall(r'^#+ (.*)$', text, re.M)
    return relative_links(text), {anchor_of(h) for h in headings}


def dead_links(files, folder:Path, known=()):
    """Per file, links that lead to no file of the folder, or to no anchor of a document.

    Anchors are looked up in the files, and in those of `known`.
    """
    documents = {path.resolve(): links_and_anchors(path) for path in (*files, *known)}
    dead = {}
    for file in (path.resolve() for path in files):
        for link in dict.fromkeys(documents[file][0]):
            path, _, anchor = link.partition('#')
            target = (file.parent/path).resolve() if path else file
            if target.is_dir() and file.suffix == '.html': target /= 'index.html'
            there = target.exists() and target.is_relative_to(folder.resolve())
            if not there or anchor and target in documents and anchor not in documents[target][1]:
                dead.setdefault(file.name, []).append(link)
    return dead
