"What is said about a name that is not known."
import pytest

from eqtutor.names import unknown_name

KNOWN = {'p4': 4, 'p4m': 8, 'mirror': 2}


@pytest.mark.parametrize('name, message', [
    ('p4n', "unknown group 'p4n', did you mean 'p4'? Known are p4, p4m, mirror, or a Group."),
    ('mirrors', "unknown group 'mirrors', did you mean 'mirror'? Known are p4, p4m, mirror, "
                'or a Group.'),
    (17, 'unknown group 17. Known are p4, p4m, mirror, or a Group.')])
def test_an_unknown_name_is_answered_with_the_nearest(name, message):
    assert str(unknown_name('group', name, KNOWN, 'or a Group.')) == message
