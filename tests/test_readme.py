"The README's ten lines of library use run as printed."
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT/'README.md').read_text(encoding='utf-8')


def test_ten_lines_run(capsys):
    blocks = re.findall(r'```python\n(.*?)```', README, re.S)
    assert len(blocks) == 1
    exec(blocks[0], {})
    said = capsys.readouterr().out
    assert 'torch.Size([1, 32, 16, 16])' in said and 'GroupPool' in said
    assert 'breaks first' not in said


def first_table(name):
    "Rows of the first table of a result file."
    text = (ROOT/'results'/'bench'/name).read_text(encoding='utf-8')
    return next(iter(json.loads(text)['tables'].values()))


def test_costs_are_those_of_the_result_file():
    table = re.search(r'<!-- costs -->\n+((?:\|.*\n)+)', README)
    assert table, 'expected a table after <!-- costs -->'
    lines = table[1].splitlines()[2:]
    shown = [[cell.strip() for cell in line.strip('|\n').split('|')] for line in lines]
    assert shown == [[f'`{r["name"]}`', f'{r["parameters"]:,}', f'{r["time"]:.1f}',
                      f'{r["memory_ratio"]:.1f}'] for r in first_table('networks.json')]


def test_comparison_with_escnn_is_that_of_the_result_file():
    ours, theirs = (r['time'] for r in first_table('escnn.json')[1:])
    assert re.search(r'takes ([\d.]+) times as long as the plain', README)[1] == f'{ours:.2f}'
    assert re.search(r"escnn's takes ([\d.]+) times", README)[1] == f'{theirs:.2f}'
