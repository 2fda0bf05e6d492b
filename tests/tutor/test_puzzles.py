"Puzzles: the line that is wanted is right, others are not, and what the picture says of them."
import json
import re

import pytest
import torch

from eqtutor.tutor import puzzle
from eqtutor.tutor.course import course_chapters
from eqtutor.tutor.puzzles import PUZZLES

RIGHT = {
    'quarter_turn': lambda f: f.T.flip(0),
    'seen_from': lambda pictures, g, mul, inv: pictures[mul[inv[g]]],
    'commute': lambda mul: mul == mul.T,
    'turned_maps': lambda f: torch.rot90(f, 1, (1, 2)).roll(1, 0),
    'read_pixels': lambda f, numbers: f.flatten()[numbers],
    'moved_vector': lambda v, h, relative: v[relative[h]],
    'two_roads': lambda f, layer, turn: torch.stack([layer(turn(f)), turn(layer(f))]),
    'carried_back': lambda f, h: torch.rot90(f, -h, (1, 2)).roll(-h, 0),
    'matrix_from_row': lambda row, mul, inv: row[mul[inv]],
    'shared_scales': lambda g: g.mean(1, keepdim=True).expand_as(g),
}
WRONG = [
    ('quarter_turn', lambda f: f.T.flip(1)), ('quarter_turn', lambda f: f.T),
    ('seen_from', lambda pictures, g, mul, inv: pictures[mul[g]]),
    ('seen_from', lambda pictures, g, mul, inv: pictures[mul[:, inv[g]]]),
    ('commute', lambda mul: mul.T), ('commute', lambda mul: mul == 0),
    ('turned_maps', lambda f: torch.rot90(f, 1, (1, 2))),
    ('turned_maps', lambda f: torch.rot90(f, 1, (1, 2)).roll(-1, 0)),
    ('turned_maps', lambda f: f.roll(1, 0)),
    ('read_pixels', lambda f, numbers: f.flatten()[numbers.T]),
    ('moved_vector', lambda v, h, relative: v[relative[:, h]]),
    ('two_roads', lambda f, layer, turn: torch.stack([turn(layer(f)), layer(turn(f))])),
    ('two_roads', lambda f, layer, turn: torch.stack([layer(turn(f)), layer(turn(f))])),
    ('two_roads', lambda f, layer, turn: torch.stack([layer(f), turn(f)])),
    ('carried_back', lambda f, h: torch.rot90(f, -h, (1, 2))),
    ('carried_back', lambda f, h: torch.rot90(f, -h, (1, 2)).roll(h, 0)),
    ('carried_back', lambda f, h: torch.rot90(f, -1, (1, 2)).roll(-1, 0)),
    ('matrix_from_row', lambda row, mul, inv: row[mul]),
    ('matrix_from_row', lambda row, mul, inv: row[mul[:, inv]]),
    ('matrix_from_row', lambda row, mul, inv: row[mul[inv]].T),
    ('shared_scales', lambda g: g.mean(0, keepdim=True).expand_as(g)),
    ('shared_scales', lambda g: g.mean().expand_as(g)), ('shared_scales', lambda g: g.mean(1)),
    ('quarter_turn', lambda f: f[0]), ('quarter_turn', lambda f: f.tolist()),
    ('quarter_turn', lambda f: None), ('read_pixels', lambda f, numbers: f[numbers]),
]


def named(name, fn):
    fn.__name__ = name
    return fn


def test_each_puzzle_is_in_this_list(): assert RIGHT.keys() == PUZZLES.keys()


@pytest.mark.parametrize('name', RIGHT)
def test_the_line_that_is_wanted_solves_it(name):
    fig = puzzle(named(name, RIGHT[name]))
    assert fig.solved and fig.alt.endswith('and yours: right.')


@pytest.mark.parametrize('name, fn', WRONG)
def test_a_wrong_line_is_shown_and_solves_nothing(name, fn):
    fig = puzzle(named(name, fn))
    assert not fig.solved and not fig.alt.endswith('right.')
    assert 'image/png' in fig._repr_mimebundle_()[0]


@pytest.mark.parametrize('name', RIGHT)
def test_who_copies_the_picture_is_told(name):
    drawn = PUZZLES[name].wanted(*PUZZLES[name].shown)
    assert 'right here, not in other cases' in puzzle(named(name, lambda *args: drawn)).alt


def test_what_is_no_puzzle_is_refused():
    with pytest.raises(ValueError, match='no puzzle .* There are quarter_turn'): puzzle(lambda x: x)


@pytest.mark.parametrize('name', RIGHT)
def test_a_chapter_asks_it_unsolved_and_folds_the_answer(name):
    cells = [''.join(c['source']) for path in course_chapters().values()
             for c in json.loads(path.read_text(encoding='utf-8'))['cells']]
    found = [s for s in cells if re.search(rf'^def {name}\(', s, re.M) and 'puzzle(' in s]
    asked, answer = found
    assert '# your line' in asked and '.solved' not in asked
    assert answer.startswith('#| fold Answer\n') and f'assert puzzle({name}).solved' in answer
