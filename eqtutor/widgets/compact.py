"""Scripts and style sheets without what only eyes need, so that a page which holds them is small.

A script is read token by token, because a slash may begin a comment, divide, or begin a regular
expression, and what looks like a comment may stand in a text. White space goes where no two tokens
become another one, and a line break only where JavaScript would not have ended a statement there.
Where a slash can be read in two ways the script is refused.
"""
# Plain module: edited by hand, no notebook exports it.
import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(r'''
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<string> '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" )
  | (?P<word> \.?[\w$]+ )
  | (?P<space> \s+ )
  | (?P<mark> \+\+ | -- | => | . )''', re.S | re.X)
REGEX = re.compile(r'/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+/\w*')
# behind these words a value begins, so a slash begins a regular expression
BEFORE_VALUES = set(['return', 'typeof', 'case', 'in', 'of', 'instanceof', 'new', 'delete', 'void', 'do', 'else', 'throw', 'yield', 'await'])
HEADS = {'if', 'while', 'for', 'with'}   # behind their brackets a statement begins
TIGHT = set('{}()[];,:?=<>*|&!+-')       # next to these no space is needed …
CLASHES = re.compile(r'\+\+|--|<!|</|->')   # … unless these would come about
# behind these a semicolon may be all there is of a statement
EMPTY = {')', ':', 'else', 'do', ';'}
NO_END = set('{([,;=?:&|<>*!'), set('})]?:&|=<>')   # of a statement: behind these, before those


class Token(NamedTuple):
    "A piece of a script."
    kind:str   # 'comment', 'string' (also a template or a regular expression), 'word', …
    text:str


def tokens(
    text:str,     # a script
    start:int=0,  # where to begin
)->Iterator[Token]:
    "The tokens of a script, up to a closing brace that it has not opened."
    last, head = Token('mark', ';'), False
    opened:list[bool] = []   # brackets: is each the head of a loop or a condition?
    while start < len(text):
        token = _next(text, start, last, head)
        if token.text == '}' and not opened: return
        yield token
        start += len(token.text)
        if token.kind in ('space', 'comment'): continue
        head = False
        if token.text in ('(', '[', '{'): opened.append(last.text in HEADS)
        elif token.text in (')', ']', '}') and opened: head = opened.pop() and token.text == ')'
        last = token


def _next(text:str, start:int, last:Token, head:bool)->Token:
    "The token that begins here; `last` stood before it, `head`: and it closed the head of a loop."
    if text[start] == '`': return Token('string', text[start:_template_end(text, start + 1)])
    match = TOKEN.match(text, start)
    assert match and match.lastgroup   # every letter is one of these
    if match[0] != '/': return Token(match.lastgroup, match[0])
    if last.text in ('}', '++', '--'):
        line = text.count('\n', 0, start) + 1
        raise ValueError(f'line {line}: a slash behind {last.text} may divide or begin a regular '
                         'expression: put what stands before it in brackets')
    divides = last.text in (')', ']') or last.kind in ('word', 'string')
    if divides and not head and last.text not in BEFORE_VALUES: return Token('mark', '/')
    match = REGEX.match(text, start)
    if match is None: raise ValueError(f'a regular expression has no end: {text[start:start + 40]}')
    return Token('string', match[0])


def _template_end(text:str, at:int)->int:
    "Behind the template literal whose text begins at `at`; what stands in its ${…} is code."
    while text[at] != '`':
        if text.startswith('${', at):
            at += 2
            at += sum(len(token.text) for token in tokens(text, at))
        at += 2 if text[at] == '\\' else 1
    return at + 1


def compact_script(
    text:str, # an ES module
)->str:       # what may stand in a function
    "A module without imports, the word export, comments, and white space that nothing needs."
    kept, gaps, gap = [';'], [''], ''
    for token in _body(tokens(text)):
        if token.kind in ('space', 'comment'):
            gap += token.text if token.kind == 'space' else ' '
            continue
        if token.text == '}' and kept[-1] == ';' and kept[-2] not in EMPTY:
            kept.pop()
            gaps.pop()
        gaps.append(_gap(kept[-1], gap, token.text))
        kept.append(token.text)
        gap = ''
    return ''.join(before + text for before, text in zip(gaps[1:], kept[1:]))


def _body(all_:Iterator[Token])->Iterator[Token]:
    "The tokens without `import …;` and without `export`, which stand at the outermost level."
    depth, skips = 0, False
    for token in all_:
        depth += (token.text in ('{', '(', '[')) - (token.text in ('}', ')', ']'))
        if depth == 0 and token == Token('word', 'export'): continue
        skips = skips or depth == 0 and token == Token('word', 'import')
        if not skips: yield token
        if token.text == ';': skips = False


def _gap(before:str, gap:str, after:str)->str:
    "What has to stay of the white space between two tokens: nothing, a space or a line break."
    if not gap: return ''
    a, b = before[-1], after[0]
    tight = a in TIGHT or b in TIGHT
    if CLASHES.fullmatch(a + b): tight = False
    if '\n' not in gap: return '' if tight else ' '
    behind, ahead = NO_END
    ends = before in ('++', '--') or not (before in behind or after in ahead or before == '=>')
    if ends: return '\n'
    return '' if tight else ' '


def compact_style(
    text:str, # a style sheet
)->str:
    "A style sheet without comments, and without white space around its marks."
    text = re.sub(r'''("[^"\n]*"|'[^'\n]*')|/\*.*?\*/''', lambda m: m[1] or ' ', text, flags=re.S)
    parts = re.split(r'''("[^"\n]*"|'[^'\n]*')''', text)   # texts stand at odd places
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r'\s*([{};,])\s*|\s+', lambda m: m[1] or ' ', parts[i])
        parts[i] = parts[i].replace(': ', ':').replace(';}', '}')
    return ''.join(parts).strip()
