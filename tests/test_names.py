"What is said about a name that is not known."
import sys

import pytest

from eqtutor.names import require, unknown_name

KNOWN = {'p4': 4, 'p4m': 8, 'mirror': 2}


@pytest.mark.parametrize('name, message', [
    ('p4n', "unknown group 'p4n', did you mean 'p4'? Known are p4, p4m, mirror, or a Group."),
    ('mirrors', "unknown group 'mirrors', did you mean 'mirror'? Known are p4, p4m, mirror, "
                'or a Group.'),
    (17, 'unknown group 17. Known are p4, p4m, mirror, or a Group.')])
def test_an_unknown_name_is_answered_with_the_nearest(name, message):
    assert str(unknown_name('group', name, KNOWN, 'or a Group.')) == message


def test_a_missing_library_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, 'h5py', None)
    with pytest.raises(ImportError, match=r"needs h5py, .*pip install 'eqtutor\[pcam\]'"):
        require('h5py', 'pcam')
    assert require('json.decoder', 'pcam').JSONDecoder


def test_a_library_that_lacks_another_one_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path/'outer_library.py').write_text('import inner_library')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'inner_library'"):
        require('outer_library', 'pcam')
