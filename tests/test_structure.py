"The notebooks as documents: what would break the site, the package or the reader."
import page_rules as rules
import pytest
from links import dead_links
from page_rules import INSTALL, RULES
from pages import NBS, ROOT, Notebook, page_of, read_all

BOOK = read_all()
TEXTS = [ROOT/name for name in ('README.md', 'CHANGELOG.md', 'CONTRIBUTING.md')]


def test_each_notebook_has_a_page_of_its_own():
    "nbdev strips the numbers, as in 21b_."
    assert len({page_of(name) for name in BOOK}) == len(BOOK) > 40

@pytest.mark.parametrize('name', BOOK)
def test_notebook(name):
    complaints = [f'{rule.__name__}: {text}' for rule in RULES for text in rule(BOOK[name])]
    assert not complaints, '\n'.join([f'nbs/{name}', *complaints])


# --- links

def test_links_of_the_notebooks_lead_somewhere():
    "Within nbs/: the site has nothing else."
    assert dead_links([NBS/name for name in BOOK], NBS) == {}

def test_links_of_the_other_documents_lead_somewhere():
    assert dead_links(TEXTS, ROOT, known=[NBS/name for name in BOOK]) == {}

def test_dead_links_are_found(tmp_path):
    (tmp_path/'b.md').write_text('# B\n\n## Two *words*\n\n[out](https://x.org) [up](#two-words)')
    (tmp_path/'c.html').write_text('<h1 id="c">C</h1><a href="#d">d</a>\n<a href="b.md">b</a>')
    bad = ['none.md', 'b.md#none', '#none', '../a.md', '/b.md', 'none.png']
    fine = '[x](b.md#two-words) `[x](none)` [x](c.html#c)<img src="none.png">'
    (tmp_path/'a.md').write_text(' '.join(f'[x]({b})' for b in bad[:-1]) + fine)
    files = sorted(tmp_path.iterdir())
    assert dead_links(files, tmp_path) == {'a.md': bad, 'c.html': ['#d']}


# --- the rules: a notebook that keeps all, and for each a cell or two that break it

def md(source): return dict(cell_type='markdown', source=source)

def py(source, *outs): return dict(cell_type='code', source=source, outputs=list(outs))

def says(text): return dict(output_type='stream', name='stdout', text=[text])

def shows(**data):
    return dict(output_type='display_data', data={k.replace('__', '/'): v for k, v in data.items()})

def widget(title, body):
    return shows(text__html=f'<div id="eqtutor-0" role="group" aria-label="{title}">{body}</div>')


HEAD = md('# Title\n\n> One sentence')
FIRST = py(f'#| default_exp good\n#| eval: false\n{INSTALL}')
NEXT = md('## Summary\n\n**Next**: [02](02_actions.ipynb) and [00](00_turn_a_digit.ipynb).')
GOOD = [
    HEAD, FIRST,
    md('## A part {#sec-part}\n\n$$ a[i](x) $$ {#eq-one}\n\nBy @eq-one and @he2021efficient, `@f`'),
    md('### Smaller\n\n| | b |\n|---|---|\n| $\\lvert H$ | 1 \\| 2 |\n\n```\n# none\n| no\n```'),
    md('<details><summary>Answer</summary>\n\nYes: `<details>` opens one.\n\n</details>'),
    py('#| export\ndef f(x):\n    "Doubles `x`."\n    return 2*x'), py('#| cuda\nx'),
    py('%time f(2)\nf(2)', says('4')), py('f(1), 2', says('(2, 2)')), py('%%bash\nls -l'),
    py('for i in range(2): print(i)', says('0\n1\n')),
    py('with redirect_stdout(file): print(1)'), py('plot_ring(f);'),
    py('#| fig-alt: "A ring: four panels, one a pose"\nplot_ring(f)', shows(image__png='AAAA')),
    py('RotateAndPermute(f)', widget('A layer', '<a href="https://x.org">x</a>')),
    py('RotateAndPermute(g).expect_broken()', widget('Broken', '✗')), NEXT]

BAD = [
    (rules.folds, md('<details><summary>Answer</summary>\n\nYes.')),
    (rules.folds, md('</details><details>')),
    (rules.unique, md('$$ a $$ {#eq-one}')), (rules.unique, md('## Smaller')),
    (rules.references, md('By @eq-nowhere')), (rules.references, md('By [@nobody2020, p. 3]')),
    (rules.tables, md('| a | b |\n|--|--|\n| |H| | 1 |')), (rules.tables, md('| a |\n| b |')),
    (rules.next_chapter, md('**Next**: [00](00_turn_a_digit.ipynb)')),
    (rules.installs, py('! pip install eqtutor')),
    (rules.faults_are_meant, py('w', widget('The same, not turned', 'fine'))),
    (rules.faults_are_meant, py('w', widget('A layer', '✗'))),
    (rules.stored_widgets, py('x', shows(**{'application__vnd.jupyter.widget-view+json': {}}))),
    (rules.machine_paths, py('open("/tmp/x")')), (rules.machine_paths, py('x', says('"/home/a"'))),
    *((rules.stored_times, py('x', says(t))) for t in ('0.52 s', '12 ms', '40%|####', '12:30:01')),
    (rules.stored_outputs, py('x')), (rules.stored_outputs, py('for i in x: print(i)')),
    (rules.stored_outputs, py('plot_ring(f)', shows(text__plain='1')))]


def notebook(*cells, size=10): return Notebook('1_foundations/01_groups.ipynb', [*cells], size=size)

BROKEN = [
    *((rule, notebook(*GOOD, cell)) for rule, cell in BAD),
    (rules.title, notebook(md('# T\n\n> A "quote"'), *GOOD[1:])),
    (rules.title, notebook(md('# T'), *GOOD[1:])),
    (rules.installs, notebook(HEAD, py(f'#| hide\n#| eval: false\n{INSTALL}'), *GOOD[2:])),
    (rules.unique, notebook(*GOOD, py('') | dict(id='a'), py('') | dict(id='a'))),
    (rules.stored_outputs, notebook(HEAD, py('x = 1'))),
    (rules.file_size, notebook(*GOOD, size=1_000_001))]


def test_rules_accept_a_good_notebook():
    assert [(rule.__name__, c) for rule in RULES for c in rule(notebook(*GOOD))] == []

@pytest.mark.parametrize('rule, nb', BROKEN, ids=[rule.__name__ for rule, _ in BROKEN])
def test_broken_rule_is_found(rule, nb): assert list(rule(nb))

def test_each_rule_has_a_notebook_that_breaks_it(): assert {*RULES} == {rule for rule, _ in BROKEN}
