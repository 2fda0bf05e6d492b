"Every notebook is a pytest item: `pytest nbs/1_foundations/01_groups.ipynb` runs one, `pytest` all of them and tests/."
import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

os.environ.setdefault('MPLBACKEND', 'agg')

ROOT = Path(__file__).parent
BROWSERS = 'chromium', 'chromium-browser', 'google-chrome'


def data_root(): return Path(os.environ.get('EQTUTOR_DATA') or '~/.cache/eqtutor').expanduser()


def cuda_missing():
    import torch
    return '' if torch.cuda.is_available() else 'no CUDA device'


def browser_missing():
    if not any(map(shutil.which, BROWSERS)): return f"none of {', '.join(BROWSERS)} on the PATH"
    return '' if importlib.util.find_spec('playwright') else 'playwright is not installed'


def data_missing():
    file = data_root()/'MNIST'/'raw'/'train-images-idx3-ubyte'
    return '' if file.exists() else f'no {file} (EQTUTOR_DATA names the folder)'


# a flag of settings.ini -> why cells marked with it cannot run here; '' where they can
NEEDS = dict(cuda=cuda_missing, slow=str, browser=browser_missing, data=data_missing)


def missing_flags():
    "Flags whose cells are left out here, with the reason."
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    reasons = {flag: NEEDS[flag]() for flag in config['DEFAULT']['tst_flags'].split()}
    return {flag: why for flag, why in reasons.items() if why}


def pytest_configure(config): config.missing_flags = missing_flags()


def pytest_report_header(config):
    return [f'notebook cells marked {flag!r} are left out: {why}' for flag, why in config.missing_flags.items()]


def pytest_collect_file(file_path, parent):
    hidden = any(part.startswith(('.', '_')) for part in file_path.relative_to(ROOT).parts)
    if file_path.suffix == '.ipynb' and not hidden: return NotebookFile.from_parent(parent, path=file_path)


class NotebookFile(pytest.File):
    def collect(self): yield Notebook.from_parent(self, name=self.path.stem)


class NotebookError(Exception):
    "A notebook's cell failed; the message is what to show."


class Notebook(pytest.Item):
    def runtest(self):
        from nbdev.test import test_nb
        before, environ, sys_path, shown = self.siblings(), dict(os.environ), sys.path[:], io.StringIO()
        try:
            with contextlib.redirect_stderr(shown):
                passed, _ = test_nb(self.path, skip_flags=list(self.config.missing_flags))
        finally:  # nbdev and the cells may have changed both
            os.environ.clear()
            os.environ.update(environ)
            sys.path[:] = sys_path
            close_figures()
        if not passed: raise NotebookError(with_cell_source(self.path, shown.getvalue()))
        left = sorted(self.siblings() - before)
        if left: raise NotebookError(f'{self.path.name} left {left} behind; write to a temporary folder')

    def siblings(self):
        return {p.name for p in self.path.parent.iterdir() if p.suffix != '.ipynb' and p.name[0] not in '._'}

    def repr_failure(self, excinfo):
        return str(excinfo.value) if excinfo.errisinstance(NotebookError) else super().repr_failure(excinfo)

    def reportinfo(self): return self.path, 0, str(self.path.relative_to(ROOT))


def close_figures():
    "Free the figures a notebook left open; the next one starts without them."
    if 'matplotlib.pyplot' in sys.modules: sys.modules['matplotlib.pyplot'].close('all')


def with_cell_source(path, report):
    "nbdev's report names the failing cell by its number (from 1); put that cell's source behind it."
    from execnb.nbio import read_nb
    found = re.search(r'While Executing Cell #(\d+)', report)
    if not found: return report
    source = read_nb(path).cells[int(found[1]) - 1].source
    return f'{report}\nThe cell:\n\n' + '\n'.join(f'    {line}' for line in source.splitlines())
