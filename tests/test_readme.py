"The README's ten lines of library use run as printed."
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT/'tools'))
from quote_results import renewed, run_again  # noqa: E402

README = (ROOT/'README.md').read_text(encoding='utf-8')


def test_ten_lines_run(capsys):
    blocks = re.findall(r'```python\n(.*?)```', README, re.S)
    assert len(blocks) == 1
    exec(blocks[0], {})
    said = capsys.readouterr().out
    assert 'torch.Size([1, 32, 16, 16])' in said and 'GroupPool' in said
    assert 'breaks first' not in said


def test_numbers_are_those_of_the_result_files():
    "python tools/quote_results.py writes them."
    assert renewed(README) == README


def test_other_numbers_are_written_over():
    other = README.replace('| `p4-cnn` | 24,610', '| `p4-cnn` | 1')
    other = other.replace("escnn's takes 1", "escnn's takes 2")
    assert other != README and renewed(other) == README
    with pytest.raises(ValueError, match='expected one table'): renewed('# eqtutor')


def test_a_chapter_that_is_run_again_shows_what_it_finds(tmp_path):
    old = {'output_type': 'stream', 'name': 'stdout', 'text': ['old\n']}
    def cell(name, source):
        return {'cell_type': 'code', 'id': name, 'metadata': {}, 'source': source,
                'outputs': [old], 'execution_count': None}
    cells = [cell('a', '6*7'), cell('b', '#| data\n1/0')]
    copy = tmp_path/'30.ipynb'
    copy.write_text(json.dumps({'cells': cells, 'metadata': {}, 'nbformat': 4,
                                'nbformat_minor': 5}))
    run_again(copy)
    found, kept = (c['outputs'] for c in json.loads(copy.read_text())['cells'])
    assert found[0]['data']['text/plain'] == ['42'] and kept == [old]
