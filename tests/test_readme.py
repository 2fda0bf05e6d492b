"The README's ten lines of library use run as printed."
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT/'tools'))
from quote_results import renewed, run_again   # noqa: E402

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
    cell = {'cell_type': 'code', 'id': 'a', 'metadata': {}, 'source': '6*7', 'outputs': [],
            'execution_count': None}
    copy = tmp_path/'30.ipynb'
    copy.write_text(json.dumps({'cells': [cell], 'metadata': {}, 'nbformat': 4,
                                'nbformat_minor': 5}))
    run_again(copy)
    shown, = json.loads(copy.read_text())['cells'][0]['outputs']
    assert shown['data']['text/plain'] == ['42']
