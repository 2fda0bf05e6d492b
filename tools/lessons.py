"""What each lesson asks of its reader, printed:

    python tools/lessons.py [NOTEBOOK or FOLDER ...]

Minutes of reading are an estimate, with folded proofs and without exercises: 150 words a minute,
6 seconds a formula in the text, 25 a displayed one, 20 lines of open code a minute, 90 seconds a
question, 40 a figure. Beside it is what the lesson's head says. Nothing here is judged.
"""
import json
import re
import sys
from pathlib import Path

NBS = Path(__file__).parents[1]/'nbs'
HIDDEN = re.compile(r'^#\|\s*(solution|check|teacher|hide\b|export\b|code-fold:\s*true)', re.M)
NO_WORDS = r'\$[^$\n]*\$|^\|[^\n]*$|\]\([^)\n]*\)|<[^>\n]*>'


def lines_of(source:str)->int:
    "Lines of code, without comments."
    return sum(line.strip() != '' and line.strip()[0] != '#' for line in source.splitlines())


def measured(
    path:Path, # of a notebook
)->dict[str, str|int]:
    "Its row: name, minutes, what the head says, words, formulas, lines, figures."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    sources = [(c['cell_type'], ''.join(c['source'])) for c in cells]
    text = '\n'.join(s for kind, s in sources if kind == 'markdown' and '<!-- solution' not in s)
    shown = [s for kind, s in sources if kind == 'code' and not HIDDEN.search(s)]
    kinds = [{key for o in c.get('outputs', []) for key in o.get('data', {})} for c in cells]
    figures = sum(any(kind.startswith('image/') for kind in some) for some in kinds)
    displayed = len(re.findall(r'\$\$.*?\$\$', text, re.S))
    plain = re.sub(r'\$\$.*?\$\$', ' ', text, flags=re.S)
    inline = len(re.findall(r'\$[^$\n]+\$', plain))
    words = len(re.findall(r"\w[\w'’-]*", re.sub(NO_WORDS, ' ', plain, flags=re.M)))
    questions = len(re.findall(r'\*[^*\n]+\?\*', text))
    lines = sum(map(lines_of, shown))
    seconds = words*.4 + inline*6 + displayed*25 + lines*3 + questions*90 + figures*40
    said = re.search(r'read (\d+)|\*\*(\d+) minutes\*\*', text)
    return {'lesson': path.stem, 'minutes': round(seconds/60),
            'says': next(filter(None, said.groups())) if said else '–', 'words': words,
            'formulas': inline + displayed, 'open lines': lines, 'figures': figures}


def main(*names:str)->None:
    "Print a row a notebook."
    given = [Path(name) for name in names] or sorted(NBS.glob('[1-4]_*'))
    found = [sorted(path.glob('*.ipynb')) if path.is_dir() else [path] for path in given]
    rows = [measured(path) for some in found for path in some]
    if not rows: sys.exit(f'no notebooks in {", ".join(names)}: expected files or folders of nbs/')
    print(f'{"":25}', *rows[0])
    for row in rows:
        print(*(f'{str(value):{"<32" if name == "lesson" else f">{len(name)}"}}'
                for name, value in row.items()))


if __name__ == '__main__': main(*sys.argv[1:])
