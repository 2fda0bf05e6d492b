"Sessions: what is marked is there and shown once, plans add up, and slides and handouts fit."
import json
import re

import pytest
from click import unstyle
from pages import NBS, read
from typer.testing import CliRunner

from eqtutor.cli import app
from eqtutor.sessions import SESSIONS, marked_pieces, read_session, write_session
from eqtutor.sessions.marks import blocks_of
from eqtutor.sessions.pages import ROW, as_html, deck, handout
from eqtutor.tutor.reading import TEXT_MARK
from eqtutor.tutor.student import student_copy

PAGES = [*NBS.glob('7_sessions/7[1-9]_*.ipynb')]
ALIKE = re.compile(r'<!--.*?-->|#\| (slide|more|beside|handout)')


def markdown(path): return '\n\n'.join(read(path).markdown())


def outputs_of(path):
    return [o for c in read(path).code() for o in c['outputs']]


# --- marks

def test_a_mark_belongs_to_the_block_behind_it(tmp_path):
    text = ('# T\n\n## A {#sec-a}\n\nno\n\n<!-- slide -->\n\none\ntwo\n\n'
            '<details><summary>S</summary>\n\n<!-- more handout -->\n\n$$a\n\nb$$\n\nno'
            '\n\n</details>')
    cells = [{'cell_type': 'markdown', 'source': text},
             {'cell_type': 'code', 'source': '#| beside\n#| fig-cap: "C."\nx = 1', 'outputs': []},
             {'cell_type': 'code', 'source': '#| slider\ny', 'outputs': []}]
    (tmp_path/'n.ipynb').write_text(json.dumps({'cells': cells}))
    one, two, three = marked_pieces(tmp_path/'n.ipynb')
    assert (one.text, one.section, one.uses) == ('one\ntwo', 'A', {'slide'})
    assert (two.text, two.uses) == ('$$a\n\nb$$', {'more', 'handout'})
    assert (three.code, three.caption, three.beside) == ('x = 1', 'C.', True)
    assert [*blocks_of('a\n\n```\nb\n\nc\n```')] == ['a', '```\nb\n\nc\n```']


@pytest.mark.parametrize('name', SESSIONS)
def test_every_mark_of_a_chapter_is_read(name):
    "A word that is spelt otherwise, or a mark in the middle of a paragraph, would be passed over."
    for path in read_session(name).paths:
        text, code = markdown(path), '\n'.join(c['source'] for c in read(path).code())
        comments = re.findall(r'<!-- *(?:slide|more|beside|again|handout)\b.*?-->', text)
        flags = re.findall(r'^#\| *(?:slide|more|beside|handout)\b.*', code, re.M)
        assert len(marked_pieces(path)) == len(comments) + len(flags)


def test_a_students_copy_has_no_marks():
    path = read_session('P4').paths[1]
    copy = student_copy(json.loads(path.read_text(encoding='utf-8')), path.stem)
    text = '\n'.join(''.join(c['source']) for c in copy['cells'])
    assert len(TEXT_MARK.findall(markdown(path))) > 5 and 'Its promise' in text
    assert not TEXT_MARK.search(text) and not re.search(r'^#\| *slide', text, re.M)


# --- slides

@pytest.mark.parametrize('name', SESSIONS)
def test_a_deck_says_whose_paper_it_is_and_ends_in_what_a_listener_can_say(name):
    session = read_session(name)
    html = deck(session)
    if name[0] != 'P':
        assert not session.paper and not session.ask and 'class="last"' not in html
        return
    assert re.fullmatch(r'[A-Z].*, \[\*.*\*\]\(https.*\), \w+ 20\d\d', session.paper)
    assert f'*{session.ask}*' in markdown(session.paths[0]).split('\n')
    last = html.rindex('<section')
    assert f'data-number="{len(session.slides) + 1}"' in html[last:]
    assert html.index(session.ask) < html.index('data-number="1"') < last < html.rindex(session.ask)


def test_notes_leave_the_slide_whole_and_have_a_window_of_their_own(browser, tmp_path):
    session = read_session('P4')
    (tmp_path/'slides.html').write_text(deck(session), encoding='utf-8')
    page = browser.new_page(viewport=dict(width=1280, height=720))
    page.goto((tmp_path/'slides.html').as_uri())
    page.evaluate('Reveal.slide(3)')
    with page.expect_popup() as opened: page.keyboard.press('s')
    said = 'document.body.textContent'
    assert opened.value.evaluate(said) == f'3. {session.notes[2]}'
    page.evaluate('Reveal.slide(4)')
    assert opened.value.evaluate(said) == f'4. {session.notes[3]}'
    page.keyboard.press('n')
    page.wait_for_timeout(300)
    left, right, notes = page.evaluate('''() => {
      const slide = Reveal.getCurrentSlide().getBoundingClientRect();
      return [slide.left, slide.right,
              document.querySelector('.speaker-notes').getBoundingClientRect().left];
    }''')
    assert 0 <= left < right <= notes
    page.close()


@pytest.mark.parametrize('name', SESSIONS)
def test_a_deck_has_eight_to_twelve_slides_of_what_the_lesson_stores(name):
    session = read_session(name)
    stored = [o for path in session.paths for o in outputs_of(path)]
    assert 8 <= len(session.slides) <= 12
    for piece in session.pieces:
        assert bool(piece.text) != bool(piece.code)
        assert all(output in stored for output in piece.outputs)
    images = [o['data']['image/png'].strip().replace('\n', '') for p in session.pieces
              for o in p.outputs if 'image/png' in o.get('data', {})]
    html = deck(session)
    assert images and all(image in html for image in images)


@pytest.mark.parametrize('name', SESSIONS)
def test_nothing_is_written_twice(name):
    "Not on two slides, nor again on the session's page."
    session = read_session(name)
    texts = [p.text or p.code for p in session.pieces]
    assert len({*texts}) == len(texts)
    if len(session.paths) == 1: return
    lines = {line for path in session.paths[1:] for line in markdown(path).split('\n')}
    own = [line for line in markdown(session.paths[0]).split('\n') if len(line) > 60]
    assert own and not lines & {*own}


def test_an_answer_has_the_picture_of_its_question_beside_it():
    slides = read_session('P4').slides
    again = next(s for s in slides if 'again' in s[0].uses)
    before = slides[slides.index(again) - 1]
    assert [p.outputs for p in again if p.outputs] == [p.outputs for p in before if p.outputs]
    assert all(p.beside for p in again if p.outputs) and any(p.outputs for p in again)


def test_formulas_keep_their_letters_and_links_lead_nowhere():
    html = as_html(r'$\mathbb Z^2$, $\mathcal{L}_u$, [a](b.ipynb#c), [d](https://e.org)')
    assert 'ℤ' in html and 'ℒ' in html and 'b.ipynb' not in html and 'https://e.org' in html
    assert as_html(r'$a^{\mathcal X}(x)$') == as_html('$a^{{𝒳}}(x)$')
    assert as_html(r'$\mathrm{Att}[f](g)$').count('<mi>g</mi>') == 1   # no link


# --- plans

def plans(path):
    "(start, end, first slide, last slide) of the rows of each plan, by its heading."
    parts = re.split(r'^## (.*)$', markdown(path), flags=re.M)
    found = {title: ROW.findall(text) for title, text in zip(parts[1::2], parts[2::2])}
    return {title: [(int(a), int(b), int(i or 0), int(j or i or 0)) for a, b, _, _, i, j in rows]
            for title, rows in found.items() if rows}


@pytest.mark.parametrize('path', PAGES, ids=lambda p: p.stem)
def test_the_minutes_of_a_plan_add_up_and_its_slides_exist(path):
    session = next(read_session(n) for n in SESSIONS if n[0] == 'P' and n[1] == path.name[1])
    assert {title.split()[0]: rows[-1][1] for title, rows in plans(path).items()} == {
        'Ninety': 90, 'Thirty': 30}
    for title, rows in plans(path).items():
        starts, ends, first, last = zip(*rows)
        assert starts == (0, *ends[:-1]) and all(a < b for a, b in zip(starts, ends))
        shown = [n for i, j in zip(first, last) for n in range(i, j + 1) if i]
        assert shown == sorted({*shown}) and max(shown) <= len(session.slides)
        if title.startswith('Ninety'): assert shown == [*range(1, len(session.slides) + 1)]
    assert len(session.notes) == len(session.slides) and all(session.notes)


@pytest.mark.parametrize('path', PAGES, ids=lambda p: p.stem)
def test_a_page_has_six_to_eight_open_questions_and_a_last_line(path):
    parts = re.split(r'^## (.*)$', markdown(path), flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2]))
    questions = re.findall(r'^\d\. (.*)$', sections['Open questions'], re.M)
    assert 6 <= len(questions) <= 8 and all('?' in q for q in questions)
    assert '<details' not in sections['Open questions']
    assert re.search(r'^\*.*\?\*$', sections['What a listener can say at the end'], re.M)


# --- the command

def test_the_command_writes_what_it_lists(tmp_path):
    done = CliRunner().invoke(app, ['sessions', 'p4', str(tmp_path/'out')])
    assert done.exit_code == 0, done.output
    names = {p.name for p in (tmp_path/'out').iterdir()}
    assert names == {'slides.html', 'handout.html', '74_e4.ipynb', '24_e4.ipynb',
                     '24b_e4_networks.ipynb'}
    assert all(name in done.output for name in names)
    text = (tmp_path/'out'/'slides.html').read_text(encoding='utf-8')
    assert not re.findall(r'(?:src|href)="(?!data:|https:|#|\$\{)[^"]*"', text)
    assert 'Minutes 0 to 10' in text


@pytest.mark.parametrize('words, said', [
    (['P9', 'out'],
     f"There is no session 'P9'. There are {', '.join(SESSIONS)}."), (['out'], 'Name a session')])
def test_a_wrong_name_is_explained(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ['sessions', *words])
    assert done.exit_code == 1 and said in unstyle(done.output) and not [*tmp_path.iterdir()]


# --- in a browser

# of the slide that is shown: how far what it holds stands out, in pixels, and how small it is shown
FITS = '''() => {
  const slide = Reveal.getCurrentSlide(), edge = slide.getBoundingClientRect();
  const over = [...slide.querySelectorAll('h1, h2, .columns, .columns *')].map(e => {
    const box = e.getBoundingClientRect();
    return box.width ? Math.max(box.right - edge.right, box.bottom - edge.bottom) : 0;
  });
  const columns = slide.querySelector('.columns');
  return [Math.max(slide.scrollHeight - slide.clientHeight, ...over),
          Number(columns && columns.style.zoom || 1)];
}'''

def measured(browser, file):
    "Overflow and zoom of each slide, and what went wrong."
    context = browser.new_context(viewport=dict(width=1280, height=720), offline=True)
    page, wrong, found = context.new_page(), [], []
    page.on('console', lambda m: wrong.append(m.text) if m.type == 'error' else None)
    page.on('pageerror', lambda e: wrong.append(str(e)))
    page.goto(file.as_uri())
    for slide in range(page.evaluate('Reveal.getTotalSlides()')):
        page.evaluate(f'Reveal.slide({slide})')
        for _ in range(8):   # a widget draws, and is measured again; on a busy machine late
            page.wait_for_timeout(200)
            fits = page.evaluate(FITS)
            if fits[0] <= 1: break
        found.append(fits)
    context.close()
    return found, wrong


@pytest.mark.parametrize('name', SESSIONS)
def test_slides_fit_and_the_handout_is_one_page(name, browser, tmp_path):
    write_session(name, tmp_path)
    found, wrong = measured(browser, tmp_path/'slides.html')
    ends = 2 if name[0] == 'P' else 1   # a title, and the page's last line
    assert len(found) == len(read_session(name).slides) + ends and not wrong
    assert max(over for over, _ in found) <= 1, found
    assert min(zoom for _, zoom in found) >= .66, found   # of 26 pixels: 17
    assert pages_of(browser, tmp_path/'slides.html', '?print-pdf') == len(found)
    if (tmp_path/'handout.html').is_file():
        assert pages_of(browser, tmp_path/'handout.html') == 1


def pages_of(browser, file, query=''):
    "How many pages a file has in print."
    page = browser.new_page()
    page.goto(file.as_uri() + query)
    if query: page.wait_for_function('document.querySelectorAll(".pdf-page").length > 5')
    page.wait_for_timeout(300)
    pdf = page.pdf(prefer_css_page_size=True)
    page.close()
    return len(re.findall(rb'/Type\s*/Page\b', pdf))


def test_a_slide_and_a_handout_that_are_too_long_are_found(browser, tmp_path):
    session = read_session('P4')
    long = deck(session).replace('<h2>', '<p>word</p>'*40 + '<h2>')
    (tmp_path/'slides.html').write_text(long, encoding='utf-8')
    assert max(over for over, _ in measured(browser, tmp_path/'slides.html')[0]) > 100
    (tmp_path/'handout.html').write_text(
        handout(session).replace('</main>', '<p>word</p>'*30), encoding='utf-8')
    assert pages_of(browser, tmp_path/'handout.html') == 2
