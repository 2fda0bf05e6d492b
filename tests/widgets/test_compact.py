"""Scripts and style sheets without white space and comments: they do what they did before.

Each script is run in a browser as it is and compacted; where a slash can be read in two ways it is
refused.
"""
import re

import pytest

from eqtutor.widgets.compact import compact_script, compact_style, tokens

from .examples import ROOT

ASSETS = ROOT/'eqtutor'/'widgets'
SCRIPTS = {
    'texts': r"""return ['a  //  b', "c  /* d */", 'it\'s;  }', "\\", "'  '"];""",
    'templates': r"""
        const n = 2;   // two
        return `a  //  b ${n  +  1} \` \${ n } ${ `in  ${ {n}.n /* two */ }  '` } /* c */  `;""",
    'lines of a template': 'return `a\n   export b;\nimport  c;\n // d\n`;',
    'regular expressions': r"""
        const text = "it's  // a";
        return [text.replace(/'s  \/\/ /, '-'), /["'`]  +/.test("'  "), /[/"]  x/.exec('/  x')[0],
          text.split(/ +/g).length, [1, /  \//].length, text.match(/a$/) ? 1 : 2];""",
    'regular expressions behind words and heads': r"""
        const found = [];
        if (found.length === 0) /'  "/.test('') || found.push(1);
        for (const i of [1]) /`/.exec('`') && found.push(i);
        const f = text => { return /  '/.test(text); };
        return [found, f("  '"), typeof /x  y/];""",
    'quotients': """
        const [a, b, list, g] = [8, 2, [4], 3];
        return [a / b / g, (a) / b /* x */ / g, list[0] / b, a /b/ g, 1 / 2 / 4, `8` / b, '8' / b,
          { return: 8 }.return / b / g, $ / b / g];""".replace('$', '_$'),
    'signs': """
        let [a, b] = [1, 2];
        const all = [a + +b, a - -b, a + ++b, a - --b, a++ + b, a-- - b, - -a, a < !b, b-- > a,
          !(!b)];
        return [...all, a, b];""",
    'ends of lines': """
        let a = 1
        let b = [a]
        const f = () => { return a }
        a
        ++b[0]
        const c = b
        const d = f()
        let e = a
          + 1
          , g = a === 1
          ? 'one'
          : 'other'
        class K {
          x
          *all() { yield a }
          static
          make() { return new K }
        }
        const h = x =>
          x * 2
        return [a, b, c, d, e, g, [...K.make().all()], h(4), (() => {
          return
          5
        })() ?? 'none']""",
    'statements that are empty': """
        let n = 0;
        { for (; n < 3; n++); }
        { while (n < 5 && ++n); }
        if (n) { if (n < 0) n = 9; else; }
        { label:; }
        do { n++; } while (n < 8);
        return n;""",
    'numbers': 'const a = 1; return [.5, 1., 1e-3 - .5, a ? .25 : 0, 1 .toFixed(2), [...[1]]];',
    'texts with marks': "const a = { b: ' { } ; , ', 'c  d': 1 };\n/* e\n */ return [a.b, a];",
}


@pytest.fixture(scope='module')
def values(engine):
    "The value of the body of a function, as JSON."
    return lambda body: engine.ask('body => JSON.stringify(new Function("_$", body)(64))', body)


@pytest.mark.parametrize('name', SCRIPTS)
def test_script_does_what_it_did(values, name):
    text = SCRIPTS[name]
    small = compact_script(text)
    assert len(small) <= len(text) and ''.join(token.text for token in tokens(text)) == text
    assert values(small) == values(text) and values(small) not in ('null', '[]')
    assert compact_script(small) == small


def test_comments_and_spaces_are_gone():
    text = ("export const a = { b: 'c  // d' }; // e\n\n/* f */\n  g(a, `h : i`);\n"
            "import x from 'y';\n")
    assert compact_script(text) == "const a={b:'c  // d'};g(a,`h : i`);"
    text = ('import {\n  a, b,\n} from "c";\nexport function f() {\n  return a - b;\n}\n'
            'export class C {}')
    assert compact_script(text) == 'function f(){return a-b}\nclass C{}'
    assert compact_script('f(() => import("x"));\nexport default 1;') == (
        'f(()=>import("x"));default 1;')


def test_no_tag_comes_about():
    for text in 'a < /re/.x', 'a < ! --b', 'a-- > b', 'a < !--b':
        small = compact_script(text)
        assert not re.search('</|<!--|-->', small), small


@pytest.mark.parametrize('text, why', [
    ('a\nb = {} / 2', 'line 2: a slash behind } may divide'), ('a++ / 2', r'behind \+\+'),
    ('x = /abc\n', 'a regular expression has no end: /abc')])
def test_slash_that_may_be_two_things_is_refused(text, why):
    with pytest.raises(ValueError, match=why): compact_script(text)


@pytest.mark.parametrize('name', ('engine.js', 'turn.js'))
def test_tokens_of_our_scripts_are_all_there(name):
    text = (ASSETS/name).read_text(encoding='utf-8')
    assert ''.join(token.text for token in tokens(text)) == text
    small = compact_script(text)
    assert len(small) < .75*len(text) and compact_script(small) == small
    strings = [token.text for token in tokens(text) if token.kind == 'string']
    kept = [token.text for token in tokens(small) if token.kind == 'string']
    imports = re.findall(r"from ('[^']+')", text)
    assert [s for s in strings if s not in imports] == kept
    words = [token.text for token in tokens(small) if token.kind == 'word']
    assert 'export' not in words and 'import' not in words


STYLE = '''a::before , b:hover { content: "x ;  /* y */ }"; color : red; } /* c
 d */ @media (max-width: 9px) { .e  .f > g { margin: 0 1px; } }'''

def test_style_is_what_it_was():
    assert compact_style(STYLE) == (
        'a::before,b:hover{content:"x ;  /* y */ }";color :red}'
        '@media (max-width:9px){.e .f > g{margin:0 1px}}')
