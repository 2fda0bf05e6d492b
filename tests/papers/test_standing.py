"Where the reproduction stands is computed from the result files, and says no more than they do."
import json
from dataclasses import asdict

import pytest

from eqtutor.papers.reproduce import Job, Place
from eqtutor.papers.standing import WHOLE, comparisons, standing
from eqtutor.papers.tables import RESULT_TABLES


def write(place, network, errors, data='rotmnist'):
    "Result files of the first row with this network, of its recipe."
    table, row = next((t, r) for t in RESULT_TABLES for r in t.rows if r.network == network)
    for seed, error in enumerate(errors):
        settings = table.training(row, seed)
        path = place.result(Job(table.name, row.label, settings))
        path = path.parent.with_name(f'{network}-{data}')/path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({'settings': {**asdict(settings), 'data': data},
                                    'commit': '0'*40, 'test': {'accuracy': 1 - error/100}}))
    return row


@pytest.fixture
def place(tmp_path): return Place(tmp_path, tmp_path/'unfinished')


def test_nothing_is_claimed_without_runs(place):
    assert standing(place) == ("**0 of the 74 rows** in the papers' tables were run by their full "
                               'recipe. Within 2 deviations of the print: none.')


@pytest.mark.parametrize('errors, gap, deviations, agrees', [
    ([2.10], .052, .052/.045, True),
    ([2.39, 2.40, 2.41], .352, .352/(.045**2 + .01**2)**.5, False),
    ([2.20], .152, .152/.045, False),
    ([2.0, 2.4], .152, .152/(.045**2 + .08)**.5, True)])   # .08: the variance of these two
def test_a_row_agrees_within_two_deviations_of_both_sides(place, errors, gap, deviations, agrees):
    write(place, 'p4-cnn', errors)
    found, = comparisons(place)
    assert found.gap == pytest.approx(gap) and found.deviations == pytest.approx(deviations)
    assert found.agrees is agrees and ('none.' in standing(place)) is not agrees
    assert found.verdict == ('yes' if agrees else 'no' if len(errors) > 1 else 'open')


def test_without_any_deviation_nothing_is_said(place):
    write(place, 'z2-cnn', [5.03])
    found, = comparisons(place)
    assert found.deviations is None and not found.agrees and '| – | not said |' in found.line()


def test_runs_on_all_digits_stand_apart(place):
    write(place, 'p4-cnn', [2.4])
    write(place, 'p4-cnn', [2.1], WHOLE)
    first, second = standing(place).split('Trained on 12,000')
    assert '2.40 | 1 |' in first and '2.10 | 1 |' in second
    assert 'trains: p4-CNN +0.05 points.' in first
    assert [c.errors for c in comparisons(place, WHOLE)] == [pytest.approx([2.1])]


def test_a_common_direction_is_said_if_there_is_one(place):
    write(place, 'p4-cnn', [2.4])
    assert 'All err' not in standing(place)
    write(place, 'z2-cnn', [6.])
    assert 'All err more than printed, by 0.35 to 0.97 points; within 2 ' in standing(place)
    write(place, 'z2-cnn', [5.])
    assert 'All err' not in standing(place)
