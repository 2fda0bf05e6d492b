"What `tools/export.py` makes of the modules that nbdev writes."
import importlib.util
from pathlib import Path

import pytest

from eqtutor import nn as layers

SPEC = importlib.util.spec_from_file_location(
    'export_tool', Path(__file__).parents[1]/'tools'/'export.py')
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

CODE = '''\
class Base:
    def __init__(self,
        size:int,
        # how it is turned,
        # counter-clockwise
        degrees:float=90., # of the grid
        *more:int,         # as many as one likes
    ): ...

class Turned(Base):
    "An image, turned."

def turn(x:Tensor, # image `(c, h, w)`
         by=2**8,
)->Tensor:         # as large
    """Turned.

    Twice, maybe.
    """
    # done
    return x
'''
TURNED = '''\
class Turned(Base):
    """An image, turned.

    Parameters
    ----------
    size : int
    degrees : float, default 90.0
        how it is turned, counter-clockwise of the grid
    *more : int
        as many as one likes
    """
'''
TURN = '''\
    """Turned.

    Twice, maybe.

    Parameters
    ----------
    x : Tensor
        image `(c, h, w)`
    by, default 2 ** 8

    Returns
    -------
    Tensor
        as large
    """
    # done
'''


def test_comments_behind_parameters_are_in_the_docstring():
    new = tool.documented(CODE)
    assert TURNED in new and TURN in new
    compile(new, 'x.py', 'exec')


def test_what_a_class_leaves_out_is_said_by_its_base():
    code = CODE + """
class Slightly(Base):
    "Turned by little."
    def __init__(self, size, degrees=5., # less
                 why=''): ...
"""
    lines = tool.documented(code).split('class Slightly')[1].splitlines()
    assert [line.strip() for line in lines[5:10]] == [
        'size', 'degrees, default 5.0', 'less', "why, default ''", '"""']
    upright = code.replace('degrees=5., # less', 'degrees=5.,')
    assert 'how it is turned' in tool.documented(upright).split('class Slightly')[1]


@pytest.mark.parametrize('code', [
    'def f(x): # noqa: E731\n    "One line."\n',
    'def _f(\n    x, # private\n):\n    "One line."\n',
    'def f(\n    x, # no docstring\n):\n    return x\n'])
def test_nothing_is_added_where_nothing_is_said(code): assert tool.documented(code) == code


def test_directives_go_and_imports_are_relative():
    text = '"""A module."""\n\n#| code-fold: true\nfrom eqtutor.core import x\n"P4"\n'
    new = tool.straight(text, depth=1)
    assert 'code-fold' not in new and 'from ..core import x' in new
    assert 'Lingshen He, ' in new and 'https://proceedings.neurips.cc' in new


def test_help_shows_each_parameter_of_a_layer():
    text = layers.GroupSelfAttention2d.__doc__
    assert 'heads : int, default 9' in text and 'odd side of it; None: the whole image' in text


def test_a_second_export_changes_nothing():
    "Modules lie as the tool leaves them: no directive, no long line, no absolute import."
    for path in tool.generated_modules():
        text = path.read_text(encoding='utf-8')
        assert '\n#|' not in text and '\nfrom eqtutor.' not in text, path.name
