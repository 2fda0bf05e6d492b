"""The papers that the course speaks of, from `references.bib`, and the chapters that link them."""
# Plain module: edited by hand, no notebook exports it.
import re
from dataclasses import dataclass
from pathlib import Path

from eqtutor.tutor.chapters import cells_of
from eqtutor.tutor.course import chapter_of, course_chapters, course_folder


@dataclass(frozen=True)
class Source:
    "An entry of the bibliography."
    key:str                  # 'romero2021group'
    authors:tuple[str, ...]  # 'David W. Romero'
    title:str
    venue:str                # journal or proceedings; '' of a preprint
    year:str
    url:str


def read_sources(
    path:Path|None=None, # a BibTeX file; that of the course
)->list[Source]:
    "All entries, by the first author's last name and the year."
    text = (path or course_folder()/'references.bib').read_text(encoding='utf-8')
    entries = re.findall(r'^@\w+\{([^,\s]+),\n(.*?)^\}', text, re.M | re.S)
    sources = [as_source(key, fields) for key, fields in entries]
    return sorted(sources, key=lambda s: (s.authors[0].split()[-1], s.year))


def as_source(key:str, text:str)->Source:
    "The entry of a key, from its fields as they are written."
    found = re.findall(r'^\s*(\w+)\s*=\s*\{(.*)\},?$', text, re.M)
    fields = {name: re.sub(r'[{}]|\\[Ll](?=\w)', '', value.replace(r'{\L}', 'Ł'))
              for name, value in found}
    people = [' '.join(reversed(person.split(', '))) for person in fields['author'].split(' and ')]
    venue = fields.get('booktitle') or fields.get('journal') or fields.get('howpublished', '')
    volume = f', volume {fields["volume"]}' if 'volume' in fields else ''
    return Source(key, tuple(people), fields['title'], venue + volume, fields['year'],
                  fields['url'])


def cited_in()->dict[str, list[Path]]:
    "For each address of a link in the course, the notebooks that have it, in order."
    found = dict[str, list[Path]]()
    for path in course_chapters().values():
        text = '\n'.join(source for kind, source in cells_of(path) if kind == 'markdown')
        for url in dict.fromkeys(re.findall(r'\]\((https?://[^)\s]+)\)', text)):
            found.setdefault(url, []).append(path)
    return found


def bibliography(
    sources:list[Source],
    cited:dict[str, list[Path]], # notebooks by the address they link
)->str:
    "The sources as a markdown list, each with its anchor, its link and the chapters that cite it."
    return '\n'.join(entry(s, cited.get(s.url, [])) for s in sources)


def entry(s:Source, chapters:list[Path])->str:
    "One line of the bibliography."
    folder = course_folder()
    links = ', '.join(f'[{chapter_of(p.name) or p.stem}](../{p.relative_to(folder).as_posix()})'
                      for p in chapters)
    venue = f'{s.venue}, ' if s.venue else ''
    where = f' Chapters: {links}.' if links else ''
    anchor = f'<a id="{s.key}"></a>'
    return f'- {anchor}{", ".join(s.authors)}. [*{s.title}*]({s.url}). {venue}{s.year}.{where}'
