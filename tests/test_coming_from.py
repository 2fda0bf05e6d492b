"""Chapter 98: its lines are those of escnn and torch, its networks are formatted and counted alike,
and what it says of both libraries is what is measured."""
import ast
import importlib.util
import json
import re
import subprocess
import sys

import pytest
from pages import ROOT, headings_of, read

from eqtutor import nn as layers
from tools.beside_escnn import (
    CHAPTER,
    definitions,
    measured_networks,
    networks,
    prepare_escnn,
    tables,
)

NAMES = 'resnet', 'unet', 'vit', 'arrows', 'turns'
RECORD = json.loads((ROOT/'results'/'bench'/'beside_escnn.json').read_text(encoding='utf-8'))


def why_no_escnn():
    if not importlib.util.find_spec('escnn'): return 'escnn is not installed: pip install escnn'
    try: prepare_escnn()
    except ImportError as error: return f'escnn is installed and not complete: {error}'
    return ''

NO_ESCNN = why_no_escnn()
needs_escnn = pytest.mark.skipif(bool(NO_ESCNN), reason=NO_ESCNN)


# --- the lines

def test_every_line_is_one_of_python():
    for table in 'ESCNN', 'TORCH':
        pairs = tables()[table]
        assert len(pairs) > 15
        for _, theirs, ours in pairs: assert len(ast.parse(theirs).body) == 1 and ast.parse(ours)


def shape_of(line, space):
    "The shape of what a line makes."
    exec(line, space)
    item = ast.parse(line).body[0]
    made = item.targets[0] if isinstance(item, ast.Assign) else item.value
    return [*eval(ast.unparse(made), space).shape]


def test_the_lines_of_torch_run_and_ours_differ_by_the_axis_of_poses():
    theirs_space, ours_space = (vars(layers) | definitions() for _ in range(2))
    for what, theirs, ours in tables()['TORCH']:
        plain, on_group = shape_of(theirs, theirs_space), shape_of(ours, ours_space)
        if what == 'attention over places': plain = [*plain[::2], 32, 32]   # of tokens
        if len(on_group) == 5: assert on_group.pop(2) == 4
        assert plain == on_group, what


@needs_escnn
def test_the_lines_of_escnn_run():
    space = {}
    exec('import torch\nfrom escnn import gspaces, nn as enn', space)
    for what, theirs, _ in tables()['ESCNN']:
        try: exec(theirs, space)
        except Exception as error: raise AssertionError(f'{what}: {theirs}') from error


# --- the networks

def test_both_libraries_have_the_five():
    assert [*networks('here')] == [*networks('escnn')] == [*NAMES]


@pytest.mark.parametrize('library', ['here', 'escnn'])
@pytest.mark.parametrize('name', NAMES)
def test_a_network_is_formatted_by_ruff(library, name, tmp_path):
    path = tmp_path/'x.py'
    path.write_text(networks(library)[name])
    command = [sys.executable, '-m', 'ruff', 'format', '--isolated', '--line-length', '88']
    done = subprocess.run([*command, '--diff', path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def lines(source): return len([line for line in source.splitlines() if line.strip()])


@pytest.mark.parametrize('library', ['here', 'escnn'])
def test_the_record_is_of_the_networks_that_the_page_shows(library):
    "Otherwise: python tools/beside_escnn.py results/bench/beside_escnn.json"
    counted = {name: lines(source) for name, source in networks(library).items()}
    assert counted == {name: row['lines'] for name, row in RECORD[library].items()}


def same(found, recorded):
    for name, row in found.items():
        want = recorded[name] | dict(error=0.)
        assert row | dict(error=0.) == want | ({'even_side': row['even_side']}
                                               if 'even_side' in row else {}), name
        assert row['error'] < (1e-4 if name != 'turns' else .2), name


def test_what_is_said_of_ours_is_measured(): same(measured_networks('here'), RECORD['here'])


@needs_escnn
def test_what_is_said_of_escnn_is_measured():
    found = measured_networks('escnn')
    same(found, RECORD['escnn'])
    assert found['resnet']['even_side'] > 1e-3
    shapes = [{n: r['output'] for n, r in RECORD[where].items()} for where in ('here', 'escnn')]
    assert shapes[0] == shapes[1]


# --- the tasks

TASKS = 'I have a U-Net', 'My sizes are odd', 'My output is a field', 'I want C8'

def test_a_task_is_one_screen():
    nb = read(CHAPTER)
    for task in TASKS:
        start, = [i for i, c in enumerate(nb.cells) if f'## {task} {{#' in c['source']]
        text, code = (nb.cells[i]['source'] for i in (start, start + 1))
        assert len(text.split()) < 220 and lines(code) < 25, task


def test_what_names_a_task_names_one_that_is_there():
    "Error messages and the page of names."
    said = {p: re.findall(r"chapter 98, [‘'\"](.+?)[’'\"]", p.read_text(encoding='utf-8'))
            for p in (ROOT/'eqtutor').rglob('*.py')}
    named = {task for tasks in said.values() for task in tasks}
    assert named and named <= {text.partition(' {')[0] for _, _, text in headings_of(read(CHAPTER))}
