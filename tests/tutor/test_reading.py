"What somebody opens is what the author wrote: every caption, fold and link, and no directive."
import json
import re

import pytest
from links import dead_links
from pages import NBS, links, prose, read_all

from eqtutor.sessions import SESSIONS, read_session
from eqtutor.tutor import student
from eqtutor.tutor.course import chapter_path
from eqtutor.tutor.reading import CodeCell, Links, fold_words, page_address, reader_markdown
from eqtutor.tutor.student import Copy, build, cell_mark, copy_course, student_copy

LINKS = Links('1_foundations/01_a.ipynb', {'1_foundations/01_a.ipynb': '01_a/01_a.ipynb',
                                           '3_papers/24b_b.ipynb': '24b_b/24b_b.ipynb'})
SITE = 'https://eqtutor.github.io/eqtutor'


# --- one text, one cell

@pytest.mark.parametrize('text, read', [
    ('## A *title* {#sec-x}', '## <a id="sec-x"></a>A *title*'),
    ('### What $x$ is', '### <a id="what-x-is"></a>What $x$ is'),
    ('# Title', '# Title'),
    ('```\n## no title {#x}\n```', '```\n## no title {#x}\n```'),
    ('[a](../3_papers/24b_b.ipynb#y), [b](#sec-x)', '[a](../24b_b/24b_b.ipynb#y), [b](#sec-x)'),
    ('[c](02_c.ipynb#z), [d](https://x.org)',
     f'[c]({SITE}/1_foundations/c.html#z), [d](https://x.org)'),
    ('`[c](02_c.ipynb)` $[c](02_c.ipynb)$', '`[c](02_c.ipynb)` $[c](02_c.ipynb)$'),
    ('::: {.callout-note}\nSee @fig-one, [here]{.mark}.\n:::\n', 'See Figure 2, here.\n')])
def test_anchors_links_and_divisions_are_read_as_text(text, read):
    assert reader_markdown(text, LINKS, {'fig-one': 2}) == read


@pytest.mark.parametrize('source, kinds, words', [
    ('#| code-fold: true\n#| code-summary: "May be \\"skipped\\""\nx', [], 'May be "skipped"'),
    ('#| fig-cap: "x"\nplot(x)', ['image/png'], 'How the figure is drawn'),
    ('#| fold Answer\nx', [], 'Answer'), ('#| hide\nimport x', [], 'Imports'),
    ('#| hide\nfor x in y:\n    test_eq(x, 1)', [], 'A check'),
    ('#| export\ndef f(): pass', [], 'From the library: f'),
    ('#| exports\ndef f(): pass', [], ''), ('x = 1', [], '')])
def test_what_stands_on_a_fold(source, kinds, words):
    assert fold_words(CodeCell(source, frozenset(kinds))) == words


JUPYTER = Copy()
TEXT = '<details><summary>Answer</summary>\n\nIt is.\n\n</details>'
FIGURE = '#| code-fold: true\n#| code-summary: "One"\n#| fig-cap: "A $\\\\pi$: [x](#y)."\nplot(x)'


def cells_of(*sources, how=JUPYTER):
    "The copy of code, of code that has put out a kind of data, and of texts, which are no code."
    def cell(source):
        code, kind = source if isinstance(source, tuple) else (source, '')
        text = isinstance(source, str) and source.startswith('<details>')
        output = {'output_type': 'display_data', 'data': {kind: 'x'}}
        return dict(cell_type='markdown' if text else 'code', source=code, metadata={},
                    outputs=[output] if kind else [])
    return student_copy({'cells': [*map(cell, sources)]}, '01_groups', how)['cells']


@pytest.mark.parametrize('colab, first, metadata', [
    (False, '# One\nplot(x)', {'jupyter': {'source_hidden': True}}),
    (True, '#@title One\nplot(x)', {'jupyter': {'source_hidden': True}, 'cellView': 'form'})])
def test_a_caption_is_a_line_under_the_figure_and_a_fold_is_jupyter_s(colab, first, metadata):
    code, caption, _, second = cells_of(FIGURE, FIGURE, how=Copy(colab=colab))
    assert ''.join(code['source']) == first and code['metadata'] == metadata
    assert caption['cell_type'] == 'markdown'
    assert caption['source'] == ['*Figure 1.* A $\\pi$: [x](#y).']
    assert second['source'][0].startswith('*Figure 2.*')


def test_an_answer_is_folded_with_its_caption_and_what_it_puts_out():
    answer, = cells_of(('#| fold Answer\n#| fig-cap: "The end."\n# Answer\nplot(x)', 'image/png'))
    assert answer['metadata'] == {'jupyter': {'source_hidden': True, 'outputs_hidden': True}}
    source = ''.join(answer['source'])
    assert source.startswith('# The code of: Answer\n') and source.endswith('\n\nplot(x)')
    assert "fold_output('Answer: the picture', '*Figure 1.* The end.')" in source


def test_parts_of_an_answer_with_a_picture_say_which_they_are():
    words = 'Answer, with the picture'
    text = TEXT.replace('Answer', words)
    picture = (f'#| fold {words}\n#| fig-cap: "The end."\nplot(x)', 'image/png')
    said = ''.join(''.join(c['source']) for c in cells_of(text, picture))
    assert '<summary>Answer, in words<' in said and "'Answer: the picture'" in said
    assert 'continued' not in said


LISTED = '*Not part of Run All. To run it, copy it into a new cell:*\n\n```python\n{}\n```'

@pytest.mark.parametrize('cells, read', [
    (['#| fold Answer\nx = 1'], ['# Answer\nx = 1']),
    # neighbours that are folded, or left out, for one reason are one cell
    (['#| fold Answer\nx = 1', '#| export\n#| fold Answer\ny = 2'], ['# Answer\nx = 1\n\ny = 2']),
    (['#| hide\nassert x', '#| hide\nassert y'], ['# A check\nassert x\n\nassert y']),
    (['#| fold Answer\nx = 1', '#| fold Why\ny = 2'], ['# Answer\nx = 1', '# Why\ny = 2']),
    (['#| eval: false\nx = 1', '#| eval: false\ny = 2'], [LISTED.format('x = 1\n\ny = 2')]),
    # no two neighbouring folds say the same
    ([TEXT, '#| fold Answer\nx = 1'], [TEXT, '# Answer, continued\nx = 1']),
    ([TEXT, 'x = 1', TEXT], [TEXT, 'x = 1', TEXT]),
    # what follows a fold is a cell of its own
    ([f'{TEXT}\n\nSo it is.'], [TEXT, 'So it is.']),
    ([f'{TEXT}\n\n## Title'], [TEXT, '## <a id="title"></a>Title']),
    ([f'{TEXT}\n{TEXT}'], [f'{TEXT}\n{TEXT}'])])
def test_cells_of_the_author_become_cells_of_a_reader(cells, read):
    assert [''.join(c['source']) for c in cells_of(*cells)] == read


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


@pytest.mark.parametrize('code', ['7*6;', 'print("two")\nNone\n7*6; ', '[41, 42];\n'])
def test_an_answer_shows_no_value_that_its_cell_silences(code):
    head = 'from eqtutor.tutor.folding import fold_output\nfold_output("Answer", "Words.")\n'
    shown = json.dumps(shown_after_running(head + code))
    assert '42' not in shown and ('two' in code) == ('two' in shown)
    assert '42' in json.dumps(shown_after_running(head + code.rstrip('; \n')))


def test_a_hint_on_one_line_is_read_as_markdown():
    hint = '<details><summary>Hint 1</summary>Use `torch.where`, *once*.</details>'
    text, = cells_of(hint)
    assert ''.join(text['source']) == ('<details><summary>Hint 1</summary>\n\n'
                                       'Use `torch.where`, *once*.\n\n</details>')


@pytest.mark.parametrize('kind', ['lab', 'solutions', 'colab'])
def test_no_fold_of_the_course_hides_its_markdown_in_a_line_of_html(copies, kind):
    for path, nb in copies[kind].items():
        for c in nb.cells:
            if c['cell_type'] != 'markdown': continue
            bare = re.search(r'^<details>.*</summary>[ \t]*\S.*$', c['source'], re.M)
            assert not bare, f'{path}: {bare[0]}'


# --- the whole copy

@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    "Each kind of copy."
    def made(make):
        make(folder := tmp_path_factory.mktemp('copy'))
        return folder
    # where files are not committed, no commit has them, and Colab's copies are refused
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student, 'own_requirement', lambda: 'eqtutor==0.0')
        colab = made(lambda folder: copy_course(folder, colab=True))
    return {'lab': made(copy_course), 'build': made(build),
            'student': made(lambda folder: build(folder, students=['ann'])),
            'some': made(lambda folder: build(folder, ['05', '06'])),
            'solutions': made(lambda folder: copy_course(folder, solutions=True)),
            'colab': colab}


@pytest.fixture(scope='module')
def copies(folders):
    "The notebooks of each copy by path."
    return {kind: read_all(folder) for kind, folder in folders.items()}


KINDS = pytest.mark.parametrize('kind', ['lab', 'build', 'student', 'some', 'solutions', 'colab'])
BOOK = read_all()
OPEN = r'^#\| (cuda|slow|data|sandbox|browser|eval: false)'   # listed, and not folded


def authors_cells(nb, kind):
    "The author's cells that a copy has: kind and source."
    dropped = r'^#\|\s*default_exp' + r'|^#\|\s*teacher'*(kind != 'solutions')
    for c in BOOK[chapter_path(nb.json['metadata']['eqtutor']['chapter'])].cells:
        if c['cell_type'] == 'code' and re.search(dropped, c['source'], re.M): continue
        if '#| repository' in c['source'] and not c['outputs']: continue
        c = student.as_read(c)
        yield c['cell_type'], c['source']


@KINDS
def test_every_caption_and_fold_is_there_and_no_directive(copies, kind):
    captions = folds = 0
    for nb in copies[kind].values():
        there = '\n'.join(c['source'] for c in nb.cells)
        author = [source for c, source in authors_cells(nb, kind) if c == 'code']
        asked = [source for source in author if '#| fig-cap' in source]
        numbers = [int(n) for n in re.findall(r"(?:^|'|, \")\*Figure (\d+)\.\* \S", there, re.M)]
        assert sorted(numbers) == [*range(1, len(asked) + 1)], nb.name
        captions += len(asked)
        asked = [CodeCell(source) for source in author
                 if re.search(r'^#\| (code-fold: true|fold |hide)', source, re.M)
                 and (kind == 'solutions' or not cell_mark(source))
                 and not re.search(OPEN, source, re.M)]
        closed = [c for c in nb.code() if c['metadata'].get('jupyter', {}).get('source_hidden')]
        inside, first = ([part(c['source']) for c in closed] for part in (
            str.splitlines, lambda source: source.partition('\n')[0]))
        hidden = {line for lines in inside for line in lines}
        assert [c.code for c in asked if c.code.splitlines()[-1] not in hidden] == []
        words = [c.flags.get('fold') or c.flags.get('code-summary', '') for c in asked]
        assert [said for said in words if not any(said in line for line in first)] == []
        assert all(re.match(r'#(@title)? \w', line) for line in first), first
        assert all((c['metadata'].get('cellView') == 'form') == (kind == 'colab') for c in closed)
        folds += len(asked)
        left = re.findall(r'\{#.*|^:::.*|^#\|.*', prose('\n\n'.join(nb.markdown())), re.M)
        assert left + [c for c in nb.code() if '\n#|' in '\n' + c['source']] == [], nb.name
    assert captions > (3 if kind in ('build', 'student', 'some') else 110)
    assert folds > (10 if kind == 'some' else 240)


@KINDS
def test_every_link_leads_somewhere_and_into_the_copy_if_it_can(folders, copies, kind):
    folder, books = folders[kind], copies[kind]
    assert dead_links([folder/path for path in books], folder) == {}
    # what a copy lacks is on the site; what it has is not linked there
    here = {page_address(chapter_path(nb.json['metadata']['eqtutor']['chapter']))
            for nb in books.values()}
    there = {page_address(name) for name in BOOK}
    there |= {f'{SITE}/slides/{name}/slides.html' for name in SESSIONS}
    there |= {f'{SITE}/slides/{name}/handout.html' for name in SESSIONS
              if read_session(name).handout}
    there |= {f'{SITE}/images/{p.name}' for p in (NBS/'images').iterdir()}
    for path, nb in books.items():
        out = {link.partition('#')[0] for text in nb.markdown() for link in links(text)}
        assert {link for link in out if link.startswith(f'{SITE}/')} <= there - here, path


def test_the_first_pages_are_in_the_copy(copies):
    assert {'nbs/index.ipynb', 'nbs/1_foundations/00_turn_a_digit.ipynb'} <= {*copies['lab']}
    assert {'index/index.ipynb', '00_turn_a_digit/00_turn_a_digit.ipynb'} <= {*copies['build']}
    assert {'ann/index.ipynb', 'ann/00_turn_a_digit.ipynb'} <= {*copies['student']}
    assert {*copies['some']} == {'05_convolution/05_convolution.ipynb', '06_layers/06_layers.ipynb'}
