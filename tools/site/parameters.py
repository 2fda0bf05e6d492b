"""What a function's parameters are: read from its source, comments behind them included."""
# Plain module: edited by hand, no notebook exports it.
import ast
import io
import tokenize
from collections.abc import Mapping

Function = ast.FunctionDef|ast.AsyncFunctionDef


def comments(
    text:str, # of a module
)->dict[int, str]:
    "The comment that ends each line, but for what it says to a tool."
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    notes = {t.start[0]: t.string.lstrip('# ') for t in tokens if t.type == tokenize.COMMENT}
    return {line: note for line, note in notes.items() if not note.startswith(('noqa', 'type:'))}


def parameters(args:ast.arguments)->list[ast.arg]:
    "All but self, in the order in which they are written."
    stars = [a for a in (args.vararg, args.kwarg) if a]
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *stars]
    return sorted((a for a in every if a.arg not in ('self', 'cls')),
                  key=lambda a: (a.lineno, a.col_offset))


def default(a:ast.arg, args:ast.arguments)->ast.expr|None:
    "What a parameter is if it is not given."
    before = [*args.posonlyargs, *args.args]
    given = dict(zip(reversed(before), reversed(args.defaults)))
    return (given | dict(zip(args.kwonlyargs, args.kw_defaults))).get(a)


def meanings(
    function:Function,
    notes:Mapping[int, str], # comments by line
)->dict[str, str]:
    "What stands behind each parameter, the last one of its line, or on the lines above it."
    args, before = function.args, function.lineno - 1
    ends = {a.arg: (default(a, args) or a).end_lineno or 0 for a in parameters(args)}
    last = {end: name for name, end in ends.items()}   # of each line
    found = dict.fromkeys(ends, '')
    for end, name in last.items():
        found[name] = ' '.join(notes[n] for n in range(before + 1, end + 1) if n in notes)
        before = end
    return found


def constructors(
    item:ast.ClassDef,
    classes:Mapping[str, ast.ClassDef], # of its module, by name
)->list[Function]:
    "A class's `__init__` and those of its bases in the module, the nearest first."
    made = [f for f in item.body if isinstance(f, Function) and f.name == '__init__']
    bases = [classes[b.id] for b in item.bases if isinstance(b, ast.Name) and b.id in classes]
    return made + [f for base in bases for f in constructors(base, classes)]


def listed(
    function:Function,
    known:Mapping[str, str], # meanings, by the parameter's name
)->list[tuple[str, str]]:
    "Each parameter with its type and what it is if not given, and its meaning; '' if none is said."
    args = function.args
    stars = {a: star for a, star in ((args.vararg, '*'), (args.kwarg, '**')) if a}
    rows = []
    for a in parameters(args):
        value = default(a, args)
        kind = f' : {ast.unparse(a.annotation)}'.replace("'", '') if a.annotation else ''
        otherwise = f', default {ast.unparse(value)}' if value else ''
        rows.append((stars.get(a, '') + a.arg + kind + otherwise, known.get(a.arg, '')))
    return rows
