"The notebooks as documents: what would break the site, the package or the reader."
import page_rules as rules
import pytest
from page_rules import INSTALL
from pages import ROOT, Notebook, read_all, relative_links

# --- a notebook that keeps every rule, and for each rule some that break it

def md(source): return dict(cell_type='markdown', source=source)

def py(source, *outs): return dict(cell_type='code', source=source, outputs=list(outs))

def says(text): return dict(output_type='stream', name='stdout', text=[text])

def shows(**data):
    return dict(output_type='display_data', data={k.replace('__', '/'): v for k, v in data.items()})

def html(text): return shows(text__html=text)

def texts_of(*sources): return [[md(s)] for s in sources]

def codes(*sources, output=()): return [[py(s, *output)] for s in sources]

def htmls(*sources): return [[py('x', html(s))] for s in sources]


HEAD = md('# Title\n\n> One sentence')
SMALLER = '''### Smaller

| | b |
|---|---|
| $\\lvert H\\rvert$ | 1 \\| 2 |

```
# no heading
| no table |
```

After @he2021efficient.'''
WIDGET = ('<img src="data:image/png;base64,//AAAA" alt="x"><svg role="img" aria-label="y"></svg>'
          '<input aria-label="z"><table><thead><tr><th>u</th></tr></thead><tr><td>1</td></tr>'
          '</table>'
          '<a href="https://x.org">x</a><script>"<img>"</script>')
PLOTS = ('a.plot(x, y, "o-", label="a")\na.plot(x, y, label="b", ls="--")\na.plot(x, y)\n'
         'a.bar(x, y, label="c", hatch="/")')
GOOD = Notebook('1_part/02_good.ipynb', [
    HEAD,
    py(f'#| default_exp good\n#| eval: false\n{INSTALL}'),
    py('#| export\nimport math\nfrom eqtutor.first import one'),
    md('## A part {#sec-part}\n\n$$ a[i](x) $$ {#eq-one}\n\nBy @eq-one, `f[0](x)`, '
       '<code>f[0](x)</code>, ![a cat](cat.png)'),
    md('See [there](01_first.ipynb#sec-a), [up](#sec-part), [it](#a-part), [out](https://x.org).'),
    py('#| export\ndef f(x):\n    "Doubles `x`."\n    import os\n    return 2*x'),
    py('%time f(2)\nf(2)', says('4')),
    py('f(1), 2', says('(2, 2)')),
    py('#| cuda\nx'),
    py('%%bash\nls -l'),
    md(SMALLER),
    md('<details><summary>Answer</summary>\n\nYes: a page opens a fold by `<details>`.\n\n'
       '</details>'),
    py('#| fold Answer\nf(3)', says('6')),
    py('for i in range(2): print(i)', says('0\n1\n')),
    py('with redirect_stdout(file): print(1)'),
    py('plot_ring(f);'),
    py('#| fig-alt: "A ring: four panels, one a pose"\nplot_ring(f)', shows(image__png='AAAA')),
    py(PLOTS),
    py('RotateAndPermute(f)', html(WIDGET)),
    md('## Summary\n\n**Next**: [03](03_later.ipynb) and [01](01_first.ipynb).')], size=10)
FIRST = Notebook('1_part/01_first.ipynb', [md('# First\n\n> It\n\n## A {#sec-a}')])
LATER = Notebook('1_part/03_later.ipynb', [HEAD, md('**Next**: the [map](../index.ipynb)')])
for nb in (GOOD, FIRST, LATER):
    nb.files, nb.book = {'1_part/cat.png'}, {n.name: n for n in (FIRST, GOOD, LATER)}

EMPTY_HEAD = '| | |\n|--|--|\n| a | b |'
CELL_IN_HEAD = '<table><thead><tr><th>a</th><td></td></tr></thead></table>'
FIGURE = [shows(image__png='AAAA')]
BAD = {
    rules.syntax: codes('def f(:'),
    rules.title: [*texts_of('## T\n\n> No', '# T', '# T\n\n> A "quote"',
                            '# T\n\n> In $\\mathbb{Z}$'), [py('#')]],
    rules.unique_ids: [[py('x') | dict(id='a'), py('y') | dict(id='a')]],
    rules.unique_labels: texts_of('$$ a $$ {#eq-a}\n\n$$ b $$ {#eq-a}'),
    rules.references: texts_of('By @eq-nowhere'),
    rules.links: texts_of('[x](no.ipynb)', '[x](01_first.ipynb#sec-b)', '[x](#sec-c)',
                          '[x](#title)', '[x](../README.md)', '[x](/cat.png)'),
    rules.headings: texts_of('### Deep', '## A\n\n#### B', '# Again', '### Deep {#sec-d}',
                             '## Two words\n\n## Two *words*'),
    rules.folds: texts_of('<details><summary>Answer</summary>\n\nYes.', 'Yes.\n\n</details>',
                          '</details><details>'),
    rules.citations: texts_of('By @nobody2020', 'By [@he2021efficient; @nobody2020, p. 3]'),
    rules.options: codes('#| fig-alt: A ring: four panels\nx', '#| fig-alt: [0, 1 and more\nx',
                         '#| fig-alt: @home\nx'),
    rules.pictures: codes('plot(x)', '#| fig-alt: ""\nplot(x)', '#| fig-alt: A figure\nplot(x)',
                          output=FIGURE),
    rules.html_names: htmls('<img src="a.png">', '<img src="a.png" alt="">', '<svg></svg>',
                            '<svg role="img"></svg>', '<svg aria-label="a"></svg>',
                            '<canvas></canvas>', '<input type="range">', '<button>✓</button>'),
    rules.tables: [*texts_of(EMPTY_HEAD, '| a | b |\n| c | d |', '| a | b |\n|--|--|\n| |H| | 1 |'),
                   [py('x', shows(text__markdown=EMPTY_HEAD))]],
    rules.html_tables: [*texts_of('<table><tr><td>1</td></tr></table>'), *htmls(CELL_IN_HEAD)],
    rules.offline: [
        *htmls('<script src="https://x.org/a.js"></script>', "<img alt='x' src='//x.org/a.png'>",
               '<style>@import "https://x.org/a.css"</style>',
               '<link rel="stylesheet" href="https://x.org/a.css">',
               '<i style="background:url(https://x.org/a.png)"></i>',
               '<script>import("https://x.org")</script>'),
        *texts_of('![a cat](https://x.org/cat.png)', '<img alt="x" src="https://x.org/a.png">'),
        [py('x', shows(**{'application__javascript': 'x'}))],
        [py('x', shows(**{'application__vnd.plotly.v1+json': {}}))]],
    rules.next_chapter: texts_of('## Summary', '**Next**: 03',
                                 '**Next**: [01](01_first.ipynb), [03](03_later.ipynb)'),
    rules.installs: codes(
        '#| default_exp good', f'#| default_exp good\n{INSTALL}',
        f'#| hide\n#| eval: false\n{INSTALL}', f'#| eval: false\n#| teacher\n{INSTALL}',
        '#| default_exp good\n#| eval: false\n! pip install eqtutor', 'x = 1'),
    rules.colour_alone: codes(
        'a.plot(x, y, label="a")', 'for k in z: a.semilogy(y, label=k, color="r")',
        'a.bar(x, y, label="c")', 'a.scatter(x, y, s, label="c")'),
    rules.images: texts_of('![](cat.png)', '<img src="cat.png">',
                           '![a cat](data:image/png;base64,AAAA)'),
    rules.package_only: codes('#| hide\nimport nbdev; nbdev.nbdev_export()'),
    rules.import_cells: codes('import os\nx = 1', 'try: import os\nfinally: pass',
                              'def f(): import os\nf()'),
    rules.docstrings: codes('#| export\ndef f(x): return x', '#| exports\nclass A:\n    x = 1'),
    rules.stored_errors: [[py('x', dict(output_type='error', ename='NameError'))]],
    rules.stored_widgets: [
        [py('x', shows(**{'application__vnd.jupyter.widget-view+json': {}}))]],
    rules.machine_paths: [[py('open("/tmp/x")')], [py('x', says('"/home/ann/x"'))],
                          [py('x', shows(text__html='"/root/x"'))]],
    rules.stored_times: [[py('x', says(t))] for t in (
        '0.52 s', '12 ms', 'Wall time: 2', '40%|####', '12:30:01', '31.2it/s')],
    rules.stored_outputs: [[py('x = 1')], *([py('f()', says('1')), py(s, *out)] for s, *out in (
        ['x'], ['print(1)'], ['for i in x: print(i)'], ['with f(): print(1)'],
        ['print(1)\nx', shows(text__plain='1')], ['plot_ring(f)'],
        ['fig.suptitle("a")', shows(text__plain='Text(0, 0)')], ['widgets.ClickAndTurn(f, x)']))],
}
RULES = [*BAD, rules.file_size]
BOOK = read_all()


def broken(rule):
    "Notebooks that break `rule`, each the good one with other cells."
    if rule is rules.file_size: return [Notebook(GOOD.name, GOOD.cells, size=1_000_001)]
    head = [] if rule is rules.title else [HEAD]
    return [Notebook(GOOD.name, [*head, *v], files=GOOD.files, book=GOOD.book) for v in BAD[rule]]


def test_there_are_notebooks(): assert BOOK

@pytest.mark.parametrize('name', BOOK)
def test_notebook(name):
    complaints = [f'{rule.__name__}: {text}' for rule in RULES for text in rule(BOOK[name])]
    assert not complaints, '\n'.join([f'nbs/{name}', *complaints])

@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_rule_accepts_a_good_notebook(rule): assert list(rule(GOOD)) == []

@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_rule_can_fail(rule):
    for nb in broken(rule):
        assert list(rule(nb)), f'{rule.__name__} accepts {nb.cells[-1]["source"]!r}'

def test_widget_state_is_found():
    assert list(rules.stored_widgets(Notebook('x.ipynb', [], metadata=dict(widgets={}))))


def broken_links(text, base):
    "Relative links and pictures of a markdown file that lead to no file."
    return [link for link in relative_links(text) if not (base/link.partition('#')[0]).exists()]

@pytest.mark.parametrize('name', ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'])
def test_links_of(name): assert broken_links((ROOT/name).read_text(encoding='utf-8'), ROOT) == []

def test_broken_links_are_found():
    text = '[a](https://x.org) [b](README.md#x) [c](none.md) <img src="none.png">'
    assert broken_links(text, ROOT) == ['none.md', 'none.png']
