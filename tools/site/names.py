"""Every public name of the package, read from its files: what it is, and where it is explained."""
# Plain module: edited by hand, no notebook exports it.
import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from eqtutor.tutor.course import chapter_of, package_folder

from .parameters import comments, constructors, listed, meanings

FIRST = 'groups', 'actions', 'equivariance', 'nn', 'models', 'kernels', 'one_frame', 'dependence'


@dataclass(frozen=True)
class Name:
    "A function, a class or a table that a module offers."
    module:str     # that defines it, 'eqtutor.nn.attentive'
    name:str       # 'AttentiveGroupConv2d'
    says:str       # the first line of its docstring
    signature:str  # its arguments, 'attend(x, group)'
    path:str       # in nbs/, of the notebook that exports it; '' where none does
    file:str       # in the repository, 'eqtutor/nn/attentive.py'
    parameters:tuple[tuple[str, str], ...]=()   # 'stride : int, default 1', and what it is


# --- one module

def public_names(
    path:Path,   # of a module
    root:Path,   # the folder that the package lies in
)->Iterator[Name]:
    "The public functions and classes that a module defines itself, in its order."
    text = path.read_text(encoding='utf-8')
    tree = ast.parse(text)
    file = path.relative_to(root).as_posix()
    module = file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')
    lines = text.splitlines()
    offered, notes = listed_in_all(tree), comments(text)
    classes = {item.name: item for item in tree.body if isinstance(item, ast.ClassDef)}
    for item in tree.body:
        if not isinstance(item, (ast.FunctionDef, ast.ClassDef)): continue
        if item.name.startswith('_') or (offered and item.name not in offered): continue
        says = (ast.get_docstring(item) or '').partition('\n')[0]
        made = constructors(item, classes) if isinstance(item, ast.ClassDef) else [item]
        rows = written_parameters(ast.get_docstring(item) or '')
        if not rows and made: rows = listed(made[0], meanings(made[0], notes))
        call = signature(item.name, made[0].args) if made else without_types(item.name, rows)
        above = '\n'.join(lines[:item.lineno])   # nbdev says above each cell whose it is
        cells = re.findall(r'^# %% (?:\.\./)*nbs/(\S+\.ipynb)', above, re.M)
        yield Name(module, item.name, says, call, cells[-1] if cells else '', file, tuple(rows))


def listed_in_all(
    tree:ast.Module,
)->set[str]:
    "The names in `__all__`; none where there is no such list."
    for item in tree.body:
        if not isinstance(item, ast.Assign) or ast.unparse(item.targets[0]) != '__all__': continue
        if isinstance(item.value, (ast.List, ast.Tuple)): return set(ast.literal_eval(item.value))
    return set()


def written_parameters(
    docstring:str,
)->list[tuple[str, str]]:
    "What numpy's section of parameters says of each; none where there is no such section."
    section = re.search(r'^Parameters\n-+\n(.*?)(?:\n\n|\Z)', docstring, re.M | re.S)
    if not section: return []
    rows = re.findall(r'^(\S.*)((?:\n +.*)*)', section[1], re.M)
    return [(name, ' '.join(meaning.split())) for name, meaning in rows]


def signature(
    name:str,
    args:ast.arguments,
)->str:
    "The name with its arguments, without their types: `lift(x, group='p4')`."
    plain = copy.deepcopy(args)   # with their types they are read again
    every = [*plain.posonlyargs, *plain.args, *plain.kwonlyargs, plain.vararg, plain.kwarg]
    for a in every:
        if a: a.annotation = None
    return f'{name}({re.sub(r"^self(, )?", "", ast.unparse(plain))})'


def without_types(
    name:str,
    rows:list[tuple[str, str]], # of its parameters
)->str:
    "The same, of what a docstring lists; the name alone where it lists nothing."
    said = [re.sub(r'^(\S+?)(?: :.*?)?(?:, default (.*))?$',
                   lambda m: m[1] + (f'={m[2]}' if m[2] else ''), row) for row, _ in rows]
    return f'{name}({", ".join(said)})' if rows else name


# --- the package

def all_names()->list[Name]:
    "The public names of the package; what a reader meets first stands first."
    package = package_folder()
    names = [name for path in sorted(package.rglob('*.py')) if not inner(path.relative_to(package))
             for name in public_names(path, package.parent)]
    return sorted(names, key=lambda n: (rank(n.module), n.module))


def inner(path:Path)->bool:
    "Does a file hold nothing for users: the course's answers, its copies, machinery?"
    return any(part.startswith('_') and part != '__init__.py' for part in path.parts) or (
        path.parts[:2] in (('tutor', 'answers'), ('course', 'nbs')))


def rank(module:str)->int:
    "The place of a module's package on the page."
    part = module.split('.')[1] if '.' in module else ''
    return FIRST.index(part) if part in FIRST else len(FIRST)


def reference(
    names:list[Name],
    source:str, # address of the repository's files, for modules that no notebook exports
)->str:
    "The names as markdown: a section a module, which the site's search finds, a line a name."
    lines = list[str]()
    for module, group in groupby(names, key=lambda n: n.module):
        lines += ['', f'## {module}', '', *(line_of(n, source) for n in group)]
    return '\n'.join(lines).strip()


def of_the_library(n:Name)->bool:
    "Is a name of what a notebook exports, or of the models: not of what runs the course?"
    return bool(n.path) or n.module.startswith('eqtutor.models')


def line_of(n:Name, source:str)->str:
    "One name: its link, what it is, its chapter; folded below, what its parameters are."
    says = n.says if '`' in n.says else re.sub(r'([\[*])', r'\\\1', n.says)
    # nbdev makes a link of each name between backticks, also within a link
    if not n.path:
        return f'- [<code>{escape(n.signature)}</code>]({source}/{n.file}): {says}' + folded(n)
    number = chapter_of(Path(n.path).name)
    name = f'[<code>{escape(n.signature)}</code>](../{n.path}#{n.name.lower()})'
    return f'- {name}: {says} [{number}](../{n.path}){folded(n)}'


def folded(n:Name)->str:
    "A fold with what is said of each parameter; nothing where nothing is."
    if not any(meaning for _, meaning in n.parameters): return ''
    items = (f'<li><code>{as_html(name)}</code>{": "*bool(meaning)}{as_html(meaning)}</li>'
             for name, meaning in n.parameters)
    return f' <details><summary>parameters</summary><ul>{"".join(items)}</ul></details>'


def as_html(text:str)->str:
    "Text as HTML in which Markdown, where it is read as such, finds nothing to change."
    code = re.sub(r'`([^`]*)`', r'<code>\1</code>', escape(text))
    return re.sub(r'[*_$\[\]`~^]', lambda m: f'&#{ord(m[0])};', code)
