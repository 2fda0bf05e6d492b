"The bibliography: its entries, and that all papers the course links are in it."
from collections import Counter

from eqtutor.tutor.course import course_folder
from tools.site.sources import Source, as_source, bibliography, cited_in, read_sources

PAPERS = 'arxiv.org', 'doi.org', 'openreview.net', 'proceedings.', 'neurips.cc'


def test_every_paper_that_a_chapter_links_is_an_entry():
    known = {s.url for s in read_sources()}
    papers = {url for url in cited_in() if any(host in url for host in PAPERS)}
    assert len(papers) > 10 and papers <= known


def test_entries_are_there_once():
    keys = Counter(s.key for s in read_sources())
    assert set(keys.values()) == {1} and len(keys) == len({s.url for s in read_sources()})


def test_an_entry_is_read():
    fields = '''  title  = {{CBAM}: A Title},
  author = {Kaiser, {\\L}ukasz and Woo, A. B.},
  booktitle = {A Venue},
  volume = {3},
  year   = {2018},
  url    = {https://x.org}
'''
    source = Source('k', ('Łukasz Kaiser', 'A. B. Woo'), 'CBAM: A Title', 'A Venue, volume 3',
                    '2018', 'https://x.org')
    assert as_source('k', fields) == source
    chapter = course_folder()/'3_papers'/'24_e4.ipynb'
    assert bibliography([source], {'https://x.org': [chapter]}) == (
        '- <a id="k"></a>Łukasz Kaiser, A. B. Woo. [*CBAM: A Title*](https://x.org). A Venue, '
        'volume 3, 2018. Chapters: [24](../3_papers/24_e4.ipynb).')
