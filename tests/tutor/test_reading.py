"What somebody opens is what the author wrote: every caption, fold and link, and no directive."
import json
import posixpath
import re

import pytest
from pages import labels, page_of, prose, read_all, slugs

from eqtutor.tutor import student
from eqtutor.tutor.course import chapter_path, course_chapters, course_folder
from eqtutor.tutor.reading import (
    SETTINGS,
    CodeCell,
    Links,
    colab_address,
    fold_words,
    page_address,
    reader_markdown,
)
from eqtutor.tutor.student import Copy, build, cell_mark, copy_course, student_copy

LINKS = Links('1_foundations/01_a.ipynb', {'1_foundations/01_a.ipynb': '01_a/01_a.ipynb',
                                           '3_papers/24b_b.ipynb': '24b_b/24b_b.ipynb'})
SITE = 'https://eqtutor.github.io/eqtutor'


# --- one text, one cell

def test_an_anchor_is_an_element_by_the_name_that_the_site_gives_it():
    def heading(text): return reader_markdown(text, LINKS)
    assert heading('## A *title* {#sec-x}') == '## <a id="sec-x"></a>A *title*'
    assert heading('### What $x$ is') == '### <a id="what-x-is"></a>What $x$ is'
    assert heading('# Title') == '# Title'
    assert heading('```\n## no title {#x}\n```') == '```\n## no title {#x}\n```'


def test_a_link_leads_into_the_copy_or_to_the_site():
    text = '[a](../3_papers/24b_b.ipynb#sec-y), [b](#sec-x), [c](02_c.ipynb#z), [d](https://x.org)'
    assert reader_markdown(text, LINKS) == (
        '[a](../24b_b/24b_b.ipynb#sec-y), [b](#sec-x), '
        f'[c]({SITE}/1_foundations/c.html#z), [d](https://x.org)')
    assert reader_markdown('`[c](02_c.ipynb)` $[c](02_c.ipynb)$', LINKS) == (
        '`[c](02_c.ipynb)` $[c](02_c.ipynb)$')


def test_divisions_spans_and_references_are_read_as_text():
    text = '::: {.callout-note}\nSee @fig-one, [here]{.mark}.\n:::\n'
    assert reader_markdown(text, LINKS, {'fig-one': 2}) == 'See Figure 2, here.\n'


@pytest.mark.parametrize('source, kinds, words', [
    ('#| code-fold: true\n#| code-summary: "May be \\"skipped\\""\nx', [], 'May be "skipped"'),
    ('#| code-fold: true\nx', ['image/png'], 'How the figure is drawn'),
    ('#| fig-cap: "x"\nplot(x)', ['image/png'], 'How the figure is drawn'),
    ('#| code-fold: true\nx', [], 'Code'), ('#| fold Answer\nx', [], 'Answer'),
    ('#| code-fold: true\nx', ['text/html', 'text/plain'], 'The widget'),
    ('#| echo: false\nx', ['text/markdown', 'text/plain'], 'How this text is computed'),
    ('#| hide\nimport x', [], 'Imports'), ('#| hide\nx = 1', [], 'Set-up'),
    ('#| hide\nassert x', [], 'A check'), ('#| hide\ncheck_cost(net, 7)', [], 'A check'),
    ('#| hide\nfor x in y:\n    test_eq(x, 1)', [], 'A check'),
    ('#| export\ndef f(): pass', [], 'From the library: f'),
    ('#| exports\ndef f(): pass', [], ''), ('x = 1', [], ''),
    ('# Check 1.2: both\nassert x', [], 'Check 1.2: both')])
def test_what_stands_on_a_fold(source, kinds, words):
    assert fold_words(CodeCell(source, frozenset(kinds))) == words


JUPYTER = Copy()

def cells_of(*sources, how=JUPYTER):
    "The copy of code, of code that has put out a kind of data, and of texts, which are no code."
    def cell(source):
        code, kind = source if isinstance(source, tuple) else (source, '')
        text = isinstance(source, str) and source.startswith('<details>')
        output = {'output_type': 'display_data', 'data': {kind: 'x'}}
        return dict(cell_type='markdown' if text else 'code', source=code, metadata={},
                    outputs=[output] if kind else [])
    return student_copy({'cells': [*map(cell, sources)]}, '01_groups', how)['cells']


def sources_of(*sources):
    return [''.join(c['source']) for c in cells_of(*sources)]


FIGURE = '#| code-fold: true\n#| code-summary: "One"\n#| fig-cap: "A $\\\\pi$: [x](#y)."\nplot(x)'


def test_a_caption_is_a_line_under_the_figure_and_a_fold_is_jupyter_s():
    code, caption, _, second = cells_of(FIGURE, FIGURE)
    assert ''.join(code['source']) == '# One\nplot(x)'
    assert code['metadata'] == {'jupyter': {'source_hidden': True}}
    assert caption['cell_type'] == 'markdown'
    assert caption['source'] == ['*Figure 1.* A $\\pi$: [x](#y).']
    assert second['source'][0].startswith('*Figure 2.*')


def test_colab_folds_by_a_form_that_has_a_title():
    code, _ = cells_of(FIGURE, how=Copy(colab=True))
    assert ''.join(code['source']) == '#@title One\nplot(x)'
    assert code['metadata']['cellView'] == 'form'


def test_an_answer_is_folded_with_its_caption_and_what_it_puts_out():
    answer, = cells_of(('#| fold Answer\n#| fig-cap: "The end."\n# Answer\nplot(x)', 'image/png'))
    assert answer['metadata'] == {'jupyter': {'source_hidden': True, 'outputs_hidden': True}}
    source = ''.join(answer['source'])
    assert source.startswith('# The code of: Answer\n') and source.endswith('\n\nplot(x)')
    assert "fold_output('Answer: the picture', '*Figure 1.* The end.')" in source


def test_code_that_puts_out_nothing_is_folded_as_it_is():
    assert sources_of('#| fold Answer\nx = 1') == ['# Answer\nx = 1']


TEXT = '<details><summary>Answer</summary>\n\nIt is.\n\n</details>'


def test_no_two_neighbouring_folds_say_the_same():
    table, text, code = sources_of(('#| fold Answer\nplot(x)', 'text/html'), TEXT,
                                   '#| fold Answer\nx = 1')
    assert table.startswith('# The code of: Answer\n') and "'Answer: the output'" in table
    assert text.startswith('<details><summary>Answer, continued</summary>')
    assert code.startswith('# Answer, continued\n')
    named, text = sources_of(('#| fold Answer, with the picture\nplot(x)', 'image/png'),
                             TEXT.replace('Answer', 'Answer, with the picture'))
    assert "fold_output('Answer, with the picture')" in named and 'picture, continued<' in text
    for between in 'x = 1', '#| hide\nassert x', '#| solution 1.2\ndef f():\n    return 1':
        assert sources_of(TEXT, between, TEXT)[2] == TEXT


def test_neighbours_that_are_folded_for_one_reason_are_one_cell():
    assert sources_of('#| fold Answer\nx = 1', '#| export\n#| fold Answer\ny = 2') == [
        '# Answer\nx = 1\n\ny = 2']
    assert sources_of('#| hide\nassert x', '#| hide\nassert y') == [
        '# A check\nassert x\n\nassert y']
    for other in ('#| fold Why\ny', ('#| fold Answer\ny', 'text/html'), '#| hide\nassert y',
                  '#| cuda\n#| fold Answer\ny', FIGURE, '#| fold Answer\n%%time\ny'):
        assert len(cells_of('#| fold Answer\nx = 1', other)) >= 2
    check = "#| hide\n#| check 1.2\nassert f()"
    assert len(cells_of('#| hide\nassert x', check)) == 2


def test_neighbouring_listings_are_one_and_say_why():
    first = '*Not part of Run All. To run it, copy it into a new cell:*'
    assert sources_of('#| eval: false\nx = 1', '#| eval: false\ny = 2') == [
        f'{first}\n\n```python\nx = 1\n\ny = 2\n```']
    both, = sources_of('#| cuda\nx = 1', '#| slow\ny = 2')
    assert both.startswith('*Not part of Run All, for it takes long and needs a GPU. To run it')
    assert len(cells_of('#| cuda\nx = 1', 'y = 2', '#| cuda\nz = 3')) == 3


def test_what_follows_a_fold_is_a_cell_of_its_own():
    assert sources_of(f'{TEXT}\n\nSo it is.') == [TEXT, 'So it is.']
    assert sources_of(f'{TEXT}\n\n## Title') == [TEXT, '## <a id="title"></a>Title']
    inner = TEXT.replace('It is.', f'{TEXT}\n\nIt is.')
    hints = '> **Exercise 1.1 (proof, 3 marks, 9 minutes, ●○○).** Show.\n\n' + TEXT + '\n\nBy hand'
    for whole in inner, f'{TEXT}\n{TEXT}', f'{TEXT}\n\n', '<details>`</details>` x':
        assert len(cells_of(whole)) == 1
    nb = {'cells': [dict(cell_type='markdown', source=hints, metadata={})]}
    assert len(student_copy(nb, '01_groups')['cells']) == 1   # an exercise with its hints


def shown_after_running(source):
    from execnb.shell import CaptureShell
    shell = CaptureShell(mpl_format=None)
    return shell.run(source)


def test_an_answer_that_runs_stays_closed():
    source = ('from eqtutor.tutor.folding import fold_output\n'
              'from IPython.display import Markdown, display\n'
              'fold_output("Answer", "*Figure 1.*")\n'
              'print("a < b")\ndisplay(Markdown("**four**"))\n42')
    shown = shown_after_running(source)
    texts = [''.join(o.get('data', {}).get('text/markdown', '')) for o in shown]
    whole, = filter(None, texts)
    assert whole.startswith('<details><summary>Answer</summary>') and whole.endswith('</details>')
    for part in '<pre>a &lt; b\n</pre>', '**four**', '<pre>42</pre>', '*Figure 1.*':
        assert part in whole
    elsewhere = json.dumps([o for o, text in zip(shown, texts) if not text])
    assert 'a < b' not in elsewhere and '42' not in elsewhere


# --- the whole copy

def notebooks(folder):
    "The notebooks below a folder by their paths in it."
    return {p.relative_to(folder).as_posix(): json.loads(p.read_text(encoding='utf-8'))
            for p in sorted(folder.rglob('*.ipynb'))}


@pytest.fixture(scope='module')
def copies(tmp_path_factory):
    "Each kind of copy: its notebooks by path, and where it has the notebooks of nbs/."
    def made(make):
        make(folder := tmp_path_factory.mktemp('copy'))
        return notebooks(folder)
    # where files are not committed, no commit has them, and Colab's copies are refused
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student, 'own_requirement', lambda: 'eqtutor==0.0')
        colab = made(lambda folder: copy_course(folder, colab=True))
    return {'lab': made(copy_course), 'build': made(build),
            'student': made(lambda folder: build(folder, students=['ann'])),
            'some': made(lambda folder: build(folder, ['05', '06'])),
            'solutions': made(lambda folder: copy_course(folder, solutions=True)),
            'colab': colab}


KINDS = 'lab', 'build', 'student', 'some', 'solutions', 'colab'


def author_of(nb): return course_chapters([nb['metadata']['eqtutor']['chapter']])


def authors_cells(nb, kind):
    "The author's cells that a copy has: kind and source."
    path, = author_of(nb).values()
    for c in json.loads(path.read_text(encoding='utf-8'))['cells']:
        source = ''.join(c['source'])
        dropped = r'^#\|\s*default_exp|pip install' + ('' if kind == 'solutions' else
                                                       r'|^#\|\s*teacher')
        if c['cell_type'] == 'code' and re.search(dropped, source, re.M): continue
        if '#| repository' in source and not c['outputs']: continue
        c = student.as_read(c)
        yield c['cell_type'], ''.join(c['source'])


def texts(nb, kind='markdown'):
    return [''.join(c['source']) for c in nb['cells'] if c['cell_type'] == kind]


@pytest.mark.parametrize('kind', KINDS)
def test_every_caption_is_there(copies, kind):
    total = 0
    for nb in copies[kind].values():
        asked = [source for c, source in authors_cells(nb, kind) if '#| fig-cap' in source]
        there = '\n'.join(texts(nb) + texts(nb, 'code'))
        numbers = [int(n) for n in re.findall(r"(?:^|')\*Figure (\d+)\.\* \S", there, re.M)]
        assert sorted(numbers) == [*range(1, len(asked) + 1)], nb['metadata']
        total += len(asked)
    assert total > (110 if kind in ('lab', 'solutions', 'colab') else 3)


@pytest.mark.parametrize('kind', KINDS)
def test_every_fold_is_closed_and_says_what_it_holds(copies, kind):
    total = 0
    for nb in copies[kind].values():
        closed = [c for c in nb['cells'] if c['metadata'].get('jupyter', {}).get('source_hidden')]
        asked = [source for c, source in authors_cells(nb, kind) if c == 'code'
                 and re.search(r'^#\| (code-fold: true|fold |hide)', source, re.M)
                 and (kind == 'solutions' or not cell_mark(source))
                 and not re.search(r'^#\| (cuda|slow|data|sandbox|browser|eval: false)', source,
                                   re.M)]
        first = [''.join(c['source']).partition('\n')[0] for c in closed]
        flags = [CodeCell(source).flags for source in asked]
        said = [f.get('fold') or f.get('code-summary', '') for f in flags]
        last = [CodeCell(source).code.splitlines()[-1] for source in asked]
        inside = ''.join(''.join(c['source']) + '\n' for c in closed)
        assert not [line for line in last if not line.isspace() and line not in inside]
        assert not [words for words in said if not any(words in line for line in first)]
        assert all(re.match(r'#(@title)? \w', line) for line in first), first
        assert all((c['metadata'].get('cellView') == 'form') == (kind == 'colab') for c in closed)
        total += len(asked)
    assert total > (240 if kind in ('lab', 'build', 'solutions', 'colab', 'student') else 10)


@pytest.mark.parametrize('kind', KINDS)
def test_no_directive_of_the_site_is_left(copies, kind):
    for nb in copies[kind].values():
        left = [x for text in texts(nb) for x in re.findall(r'\{#.*|^:::.*|^#\|.*', prose(text),
                                                            re.M)]
        left += [x for text in texts(nb, 'code') for x in re.findall(r'^#\|.*', text, re.M)]
        assert not left, nb['metadata']


def links_of(text):
    text = prose(text)
    return re.findall(r'\]\(\s*<?([^)\s>]+)', text) + re.findall(r'(?:href|src)="([^"]+)"', text)


def anchors_of(nb): return {a for text in texts(nb) for a in re.findall(r'<a id="([^"]+)"', text)}


@pytest.fixture(scope='module')
def site():
    "The anchors of each page of the site."
    return {page_of(name): {*labels(nb), *slugs(nb)} for name, nb in read_all().items()}


def is_there(link, path, books, site):
    "Does a link of a notebook in a copy lead somewhere?"
    file, _, anchor = link.partition('#')
    if file.startswith(f'{SITE}/'):
        page = site.get(file.removeprefix(f'{SITE}/'))
        return page is not None and (not anchor or anchor in page)
    if '/github/' in file and file.startswith('https://colab'):
        file = 'nbs/' + file.partition('/nbs/')[2]
    elif re.match(r'https?:', file):
        return True   # another's
    else:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    return file in books and (not anchor or anchor in anchors_of(books[file]))


@pytest.mark.parametrize('kind', KINDS)
def test_every_link_leads_somewhere(copies, site, kind):
    books, asked, there = copies[kind], 0, 0
    for path, nb in books.items():
        links = [link for text in texts(nb) for link in links_of(text)]
        assert not [x for x in links if not is_there(x, path, books, site)], path
        # in a copy without solutions, proofs and what they link are missing
        written = [source for c, source in authors_cells(nb, kind) if c == 'markdown'
                   and (kind == 'solutions' or not cell_mark(source))]
        there += len(links)
        asked += sum(len(links_of(source)) for source in written)
    # captions have a few
    assert asked <= there <= asked + 20 and asked > (500 if kind != 'some' else 15)


@pytest.mark.parametrize('kind', ['lab', 'build', 'student'])
def test_what_is_in_the_copy_is_not_looked_for_on_the_site(copies, kind):
    pages = {page_address(chapter_path(nb['metadata']['eqtutor']['chapter']))
             for nb in copies[kind].values()}
    links = [link.partition('#')[0] for nb in copies[kind].values() for text in texts(nb)
             for link in links_of(text)]
    assert not pages & {*links}


@pytest.mark.parametrize('kind', ['solutions'])
def test_links_in_stored_tables_lead_somewhere(copies, site, kind):
    for path, nb in copies[kind].items():
        for c in nb['cells']:
            for output in c.get('outputs', []):
                text = ''.join(output.get('data', {}).get('text/markdown', ''))
                files = {link.partition('#')[0] for link in links_of(text)}
                assert not [x for x in files if not is_there(x, path, copies[kind], site)], path
                assert '{#' not in prose(text), path


def test_the_first_pages_are_in_the_copy(copies):
    assert {'nbs/index.ipynb', 'nbs/1_foundations/00_turn_a_digit.ipynb'} <= {*copies['lab']}
    assert {'index/index.ipynb', '00_turn_a_digit/00_turn_a_digit.ipynb'} <= {*copies['build']}
    assert {'ann/index.ipynb', 'ann/00_turn_a_digit.ipynb'} <= {*copies['student']}
    assert {*copies['some']} == {'05_convolution/05_convolution.ipynb', '06_layers/06_layers.ipynb'}


def test_addresses_are_those_of_the_site_and_of_its_links():
    assert page_address('index.ipynb') == f'{SITE}/index.html'
    assert page_address('3_papers/24b_e4_networks.ipynb') == f'{SITE}/3_papers/e4_networks.html'
    for path in course_folder().rglob('[0-9]*.ipynb'):
        name = path.relative_to(course_folder()).as_posix()
        assert page_address(name) == f'{SITE}/{page_of(name)}'
    user = SETTINGS['git_url'].removeprefix('https://github.com/')
    assert colab_address('index.ipynb') == (
        f'https://colab.research.google.com/github/{user}/blob/student/nbs/index.ipynb')
