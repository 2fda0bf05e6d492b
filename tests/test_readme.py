"The README: its ten lines run as printed, its numbers are those of the result files."
import re

import pytest
from pages import ROOT

from tools.quote_results import renewed

README = (ROOT/'README.md').read_text(encoding='utf-8')


def test_ten_lines_run(capsys):
    lines, = re.findall(r'```python\n(.*?)```', README, re.S)
    exec(lines, {})
    said = capsys.readouterr().out
    assert 'torch.Size([1, 32, 16, 16])' in said and 'breaks first' not in said


def test_numbers_are_those_of_the_result_files():
    "python tools/quote_results.py writes them."
    assert renewed(README) == README
    other = README.replace('| `p4-cnn` | 24,610', '| `p4-cnn` | 1')
    assert other != README and renewed(other) == README
    with pytest.raises(ValueError, match='expected one table'): renewed('# eqtutor')
