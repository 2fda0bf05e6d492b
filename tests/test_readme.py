"The README's ten lines of library use run as printed."
import re
from pathlib import Path

README = (Path(__file__).parent.parent/'README.md').read_text(encoding='utf-8')


def test_ten_lines_run(capsys):
    blocks = re.findall(r'```python\n(.*?)```', README, re.S)
    assert len(blocks) == 1
    exec(blocks[0], {})
    said = capsys.readouterr().out
    assert 'torch.Size([1, 32, 16, 16])' in said and 'GroupPool' in said and 'breaks first' not in said
