"""The five networks of chapter 98 beside the same in escnn: its own cells, run and measured.

    pip install escnn
    python tools/beside_escnn.py results/bench/beside_escnn.json
"""
import ast
import re
import sys
from pathlib import Path

from eqtutor.files import write_json
from eqtutor.train import environment
from eqtutor.tutor.chapters import cells_of

CHAPTER = Path(__file__).parents[1]/'nbs'/'6_reference'/'98_coming_from.ipynb'
TABLES = 'NETWORKS', 'ESCNN', 'TORCH'   # of the chapter


def code_cells()->list[str]:
    "The chapter's code, cell by cell, without directives."
    texts = [text for kind, text in cells_of(CHAPTER) if kind == 'code']
    return [re.sub(r'^#\|.*\n', '', text, flags=re.M) for text in texts]


def networks(
    library:str, # 'here', whose networks are cells, or 'escnn', whose are shown
)->dict[str, str]:
    "The source of each network, by name."
    shown = [re.fullmatch(r'```python\n(.*?)\n```\s*', text, re.S)
             for kind, text in cells_of(CHAPTER) if kind == 'markdown']
    texts = code_cells() if library == 'here' else [block[1] for block in shown if block]
    heads = [(re.match(rf'# {library}: (\w+)\n', text), text) for text in texts]
    return {head[1]: text[head.end():] + '\n' for head, text in heads if head}


def definitions()->dict:
    "What the chapter measures with: its imports, functions and tables."
    space:dict = {}
    for text in code_cells():
        if re.match(r'# here: |! ', text): continue
        for item in ast.parse(text).body:
            told = isinstance(item, ast.Import|ast.ImportFrom|ast.FunctionDef)
            if told or isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) in TABLES:
                exec(compile(ast.Module([item], []), CHAPTER.name, 'exec'), space)
    return space


def tables()->dict[str, list[tuple[str, str, str]]]:
    "What stands side by side, line by line: what it is for, theirs, ours."
    space = definitions()
    return {name: space[name] for name in ('ESCNN', 'TORCH')}


def prepare_escnn()->str:
    "escnn's version; scikit-learn, which it need not have, refuses the matrices that it is given."
    import escnn
    from escnn.group import _numerical
    _numerical.randomized_svd = None
    return escnn.__version__


def measured_networks(
    library:str, # 'here' or 'escnn'
)->dict[str, dict]:
    "A row for each network, and what the residual one says to an even side."
    space, rows = definitions(), {}
    for name, source in networks(library).items():
        own:dict = {}
        space['torch'].manual_seed(0)
        exec(source, own)
        rows[name] = space['measured'](name, own[name], source)
        if name == 'resnet': rows[name]['even_side'] = space['even_side'](own[name])
    return rows


def main(out:str)->None:
    version = prepare_escnn()
    record = {'benchmark': 'beside_escnn', **environment('cpu'), 'version': version,
              **{library: measured_networks(library) for library in ('here', 'escnn')}}
    write_json(Path(out), record)
    print(Path(out).read_text(encoding='utf-8'))


if __name__ == '__main__': main(*sys.argv[1:])
