"What is said about a name that is not known, and about a library that is not installed."
import sys

import pytest

from eqtutor.names import MissingExtra, needs, require, unknown_name

KNOWN = {'p4': 4, 'p4m': 8, 'mirror': 2}


@pytest.mark.parametrize('name, message', [
    ('p4n', "unknown group 'p4n', did you mean 'p4'? Known are p4, p4m, mirror, or a Group."),
    ('mirrors', "unknown group 'mirrors', did you mean 'mirror'? Known are p4, p4m, mirror, "
                'or a Group.'),
    (17, 'unknown group 17. Known are p4, p4m, mirror, or a Group.')])
def test_an_unknown_name_is_answered_with_the_nearest(name, message):
    assert str(unknown_name('group', name, KNOWN, 'or a Group.')) == message


def test_a_library_that_is_there_is_imported():
    assert require('json.decoder', 'train') is sys.modules['json.decoder']


@pytest.mark.parametrize('module', ['matplotlib', 'matplotlib.figure'])
def test_a_missing_library_is_named_with_the_command(module, monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    monkeypatch.delitem(sys.modules, 'matplotlib.figure', raising=False)
    words = r"^This needs matplotlib, which is not installed: pip install 'eqtutor\[lab\]'$"
    with pytest.raises(MissingExtra, match=words): require(module, 'lab')
    with pytest.raises(MissingExtra, match=words), needs('lab'):
        from matplotlib.figure import Figure  # noqa: F401


def test_what_a_library_itself_lacks_is_named(monkeypatch, tmp_path):
    (tmp_path/'halfway.py').write_text('import nowhere')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra, match='This needs nowhere, which'): require('halfway', 'onnx')


def test_a_library_that_fails_says_why_itself(monkeypatch, tmp_path):
    (tmp_path/'broken.py').write_text('from json import nothing')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match='cannot import') as caught: require('broken', 'onnx')
    assert caught.type is ImportError
