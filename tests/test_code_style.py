"How code looks, what may import what, types: ruff, import-linter, mypy (`pyproject.toml`)."
import os
import subprocess
import sys

import pytest
from pages import ROOT

LINT_IMPORTS = 'from importlinter.cli import lint_imports_command as c; c()'
TOOLS = {'ruff': ['-m', 'ruff', 'check', '--output-format', 'concise'],
         'import-linter': ['-c', LINT_IMPORTS, '--no-cache'],
         'mypy': ['-m', 'mypy', '--cache-dir', os.devnull, 'eqtutor']}


def run(*args):
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize('tool', TOOLS)
def test_a_tool_has_nothing_to_say(tool):
    done = run(*TOOLS[tool])
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_reads_package_tests_tools_and_notebooks():
    files = run('-m', 'ruff', 'check', '--show-files').stdout
    for name in ('eqtutor/core.py', 'eqtutor/nn/e4.py', 'tests/pin.py', 'tools/record.py',
                 'nbs/3_papers/24_e4.ipynb', 'conftest.py'): assert f'{ROOT}/{name}\n' in files


def test_contributing_says_what_each_folder_holds_and_fits():
    text = (ROOT/'CONTRIBUTING.md').read_text(encoding='utf-8')
    folders = {p.parent.relative_to(ROOT) for p in (ROOT/'eqtutor').rglob('__init__.py')}
    assert [name for name in folders if f'`{name.as_posix()}/' not in text] == []
    lines = text.splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 100
