"Every notebook is a pytest item: `pytest nbs/1_foundations/01_groups.ipynb` runs one."
import importlib.util
import os
import re
import shutil
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.forked import TooLong
from tests.run_notebook import run_apart

os.environ.setdefault('MPLBACKEND', 'agg')
# tests side by side share the cores: each takes its part
WORKERS = int(os.environ.get('PYTEST_XDIST_WORKER_COUNT', 1))
THREADS = max(1, (os.cpu_count() or 1)//WORKERS)
if WORKERS > 1: os.environ.setdefault('OMP_NUM_THREADS', str(THREADS))

ROOT = Path(__file__).parent
BROWSERS = 'chromium', 'chromium-browser', 'google-chrome'


def data_root():
    return Path(os.environ.get('EQTUTOR_DATA') or '~/.cache/eqtutor').expanduser()


def cuda_missing():
    import torch
    return '' if torch.cuda.is_available() else 'no CUDA device'


def browser_missing():
    if not any(map(shutil.which, BROWSERS)): return f"none of {', '.join(BROWSERS)} on the PATH"
    return '' if importlib.util.find_spec('playwright') else 'playwright is not installed'


def data_missing():
    file = data_root()/'MNIST'/'raw'/'train-images-idx3-ubyte'
    return '' if file.exists() else f'no {file} (EQTUTOR_DATA names the folder)'


def slow_missing():
    return '' if os.environ.get('EQTUTOR_SLOW') else 'EQTUTOR_SLOW=1 runs them'


def sandbox_missing():
    from eqtutor.grading.sandbox import without_isolation
    return without_isolation()


# a flag of settings.ini -> why what is marked with it is left out here; '' where it is not
NEEDS = dict(cuda=cuda_missing, slow=slow_missing, browser=browser_missing, data=data_missing,
             sandbox=sandbox_missing)


def missing_flags():
    "Flags whose cells are left out here, with the reason."
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(ROOT/'settings.ini', encoding='utf-8')
    reasons = {flag: NEEDS[flag]() for flag in config['DEFAULT']['tst_flags'].split()}
    return {flag: why for flag, why in reasons.items() if why}


def pytest_configure(config): config.missing_flags = missing_flags()


def pytest_report_header(config):
    missing = config.missing_flags.items()
    return [f'notebook cells marked {flag!r} are left out: {why}' for flag, why in missing]


def pytest_collection_modifyitems(config, items):
    for item in items:
        for flag, why in config.missing_flags.items():
            if item.get_closest_marker(flag): item.add_marker(pytest.mark.skip(reason=why))
    # files are given to the workers in this order: those with a browser take longest
    items.sort(key=lambda item: item.path.parent.name != 'widgets')


def pytest_collect_file(file_path, parent):
    hidden = any(part.startswith(('.', '_')) for part in file_path.relative_to(ROOT).parts)
    if file_path.suffix != '.ipynb' or hidden: return None
    return NotebookFile.from_parent(parent, path=file_path)


class NotebookFile(pytest.File):
    def collect(self): yield Notebook.from_parent(self, name=self.path.stem)


class NotebookError(Exception):
    "A notebook's cell failed; the message is what to show."


SECONDS = 560   # for one notebook: less than the time limit of a test, so that its output is shown


class Notebook(pytest.Item):
    def runtest(self):
        before = self.siblings()
        with TemporaryDirectory() as folder:
            output = Path(folder)/'output.txt'
            try: passed = run_apart(self.path, [*self.config.missing_flags], output, SECONDS)
            except TooLong as late:
                said = f'{self.path.name} took more than {SECONDS} s'
                raise NotebookError(f'{said}\n{late}') from None
            if not passed:
                report = output.read_text(errors='replace')
                raise NotebookError(with_cell_source(self.path, report))
        left = sorted(self.siblings() - before)
        if left:
            raise NotebookError(f'{self.path.name}, or a notebook that ran beside it, left {left} '
                                'behind: write to a temporary folder')

    def siblings(self):
        beside = self.path.parent.iterdir()
        return {p.name for p in beside if p.suffix != '.ipynb' and p.name[0] not in '._'}

    def repr_failure(self, excinfo):
        if excinfo.errisinstance(NotebookError): return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self): return self.path, 0, str(self.path.relative_to(ROOT))


def with_cell_source(path, report):
    "nbdev's report names the failing cell by its number (from 1); add that cell's source."
    from execnb.nbio import read_nb
    found = re.search(r'While Executing Cell #(\d+)', report)
    if not found: return report
    source = read_nb(path).cells[int(found[1]) - 1].source
    return f'{report}\nThe cell:\n\n' + '\n'.join(f'    {line}' for line in source.splitlines())
