"Where the reproduction stands is computed from the result files, and says no more than they do."
import json
import re
from dataclasses import asdict

import pytest
import torch
from scipy.stats import norm, t as t_quantile, ttest_ind, ttest_ind_from_stats

from eqtutor.papers.reproduce import Job, Place
from eqtutor.papers.standing import (
    OTHER_RECIPE,
    SCATTER,
    WHOLE,
    comparisons,
    headline,
    leads,
    mean_and_deviation,
    power,
    runs_that_find,
    standing,
)
from eqtutor.papers.tables import RESULT_TABLES
from eqtutor.train.settings import Training


def write(place, network, errors, data='rotmnist'):
    "Result files of the first row with this network, of its recipe."
    table, row = next((t, r) for t in RESULT_TABLES for r in t.rows if r.network == network)
    for seed, error in enumerate(errors):
        settings = table.training(row, seed)
        path = place.result(Job(table.name, row.label, settings))
        path = path.parent.with_name(f'{network}-{data}')/path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({'settings': {**asdict(settings), 'data': data},
                                    'commit': '0'*40, 'test': {'accuracy': 1 - error/100},
                                    'history': [{'valid_accuracy': epoch/100}
                                                for epoch in range(seed, seed + 100)]}))
    return row


@pytest.fixture
def place(tmp_path): return Place(tmp_path, tmp_path/'unfinished')


def test_nothing_is_claimed_without_runs(place):
    assert standing(place) == ("- **0 of the 74 rows** in the papers' tables were run by the "
                               'full recipe of the text.')


@pytest.mark.parametrize('errors, gap, verdict', [
    ([2.10], .052, 'a single run'), ([2.39, 2.40, 2.41], .352, 'differs'),
    ([2.20], .152, 'a single run'), ([2.0, 2.4], .152, 'not told apart')])
def test_a_row_differs_if_zero_lies_outside_the_interval_of_the_gap(place, errors, gap, verdict):
    write(place, 'p4-cnn', errors)
    found, = comparisons(place)
    assert found.gap == pytest.approx(gap) and found.verdict == verdict
    assert found.line().endswith(f'| {verdict} |')
    text = standing(place)
    said = 'beyond the chance of the seeds these are off their print: '
    assert (f'{said}p4-CNN.' in text) is (verdict == 'differs')
    assert (f'{said}none.' in text) is (verdict == 'not told apart')
    assert ('beyond' in text) is not (verdict == 'a single run')


def test_the_interval_of_a_gap_is_welchs_for_five_printed_runs(place):
    errors, printed, spread = [2.0, 2.2, 2.4], 2.048, .045
    write(place, 'p4-cnn', errors)
    found, = comparisons(place)
    low, high = found.interval
    assert (low + high)/2 == pytest.approx(.152)
    # the p-value of a gap that lies just at the end of its interval is 5 %
    test = ttest_ind_from_stats(2.2 - low, .2, 3, printed, spread, 5, equal_var=False)
    assert test.pvalue == pytest.approx(.05)


def test_who_prints_a_deviation_has_so_many_runs():
    for table in RESULT_TABLES:
        assert (table.runs is not None) == any('±' in row.printed for row in table.rows), table.name
    assert {table.runs for table in RESULT_TABLES} == {None, 5, 8}


def test_a_print_without_deviation_is_a_constant(place):
    write(place, 'z2-cnn', [5.03])
    found, = comparisons(place)
    assert found.interval is None and '| a single run |' in found.line()
    write(place, 'z2-cnn', [5.9, 6.1])
    found, = comparisons(place)
    # t-quantile of one degree of freedom
    assert found.interval == pytest.approx((.97 - 12.7062*.1, .97 + 12.7062*.1), abs=1e-4)
    assert found.verdict == 'not told apart'


def test_runs_on_all_digits_stand_below_their_row_read_as_the_published_code_does(place):
    write(place, 'z2-cnn', [6.])
    write(place, 'p4-cnn', [2.4])
    write(place, 'alpha-F-p4-cnn', [2.3])
    write(place, 'p4-cnn', [2.1], WHOLE)   # its best epoch has an accuracy of 99 cents
    text = standing(place)
    assert 'the printed one, in points: p4-CNN -1.05 (a single run).' in text
    line = r'^\| (\S+) \| (1[02],000) digits, (\S+) epoch .* (\d\.\d\d) \| 1 '
    rows = re.findall(line, text, re.M)
    assert rows == [('Z2-CNN', '10,000', 'last', '6.00'), ('p4-CNN', '10,000', 'last', '2.40'),
                    ('p4-CNN', '12,000', 'best', '1.00'), ('α_F-p4-CNN', '10,000', 'last', '2.30')]
    assert [c.errors for c in comparisons(place, WHOLE)] == [pytest.approx([1.])]


@pytest.mark.parametrize('ours, verdict', [
    ([2.0], 'too few runs'), ([1.99, 2.02], 'ahead; the print lies outside'),
    ([2.11, 2.13], 'perhaps ahead'), ([2.8, 2.82], 'behind; the print lies outside'),
    ([2.1, 2.6], 'not told apart'), ([2.39, 2.40], 'not told apart; the print lies outside')])
def test_a_lead_is_seen_if_both_intervals_have_one_sign(place, ours, verdict):
    plain = [2.38, 2.41]
    write(place, 'p4-cnn', plain)
    assert not list(leads(place))
    write(place, 'alpha-F-p4-cnn', ours)
    lead, = leads(place)
    assert lead.points == pytest.approx(sum(plain)/2 - sum(ours)/len(ours))
    assert lead.verdict == verdict and lead.line().endswith(f'| {verdict} |')
    if len(ours) > 1:   # Welch's, by its formula
        variances = [(a - b)**2/4 for a, b in (plain, ours)]
        spread = sum(variances)**.5
        freedom = sum(variances)**2/sum(v**2 for v in variances)
        width = t_quantile.ppf(.975, freedom)*spread
        assert lead.interval == pytest.approx((lead.points - width, lead.points + width))
    # the quantile of known deviations
    width = norm.ppf(.975)*SCATTER*(1/len(ours) + 1/2)**.5
    assert lead.cautious == pytest.approx((lead.points - width, lead.points + width), abs=1e-4)
    assert '| {:+.2f} to {:+.2f} | {} |'.format(*lead.cautious, verdict) in lead.line()


def test_test_digits_are_read_in_three_ways_where_they_are_looked_at(place):
    for network, errors in (('p4-cnn', [2.1]), ('alpha-F-p4-cnn', [2., 2.])):
        for data in 'rotmnist', WHOLE: write(place, network, errors, data)
    last, whole, late, best = leads(place)
    assert last.points == pytest.approx(whole.points)
    assert [lead.reading for lead in (last, whole, late, best)] == [
        'last epoch', 'last epoch', 'last 20 epochs', 'best epoch']
    # accuracies go up by one a cent: epochs 80 to 99 are the last, and those of seed 1 are one more
    assert late.opposed == pytest.approx([100 - 89.5])
    assert late.errors == pytest.approx([100 - 89.5, 100 - 90.5])
    assert best.opposed == pytest.approx([1]) and best.errors == pytest.approx([1, 0])
    assert '12,000 digits, last 20 epochs |' in late.line()
    assert ('lead +0.25 points; here +0.10 on 10,000 digits (2 and 1 runs, too few to tell); '
            '+0.50 on 12,000 digits, last 20 epochs (2 and 1 runs, too few to tell); '
            '+0.50 on 12,000 digits, best epoch (2 and 1 runs, ') in standing(place)
    write(place, 'p4-cnn', [2.1, 2.1], WHOLE)
    assert re.search(r'12,000 digits, last 20 epochs \(2 and 2 runs, 95 % [+-]\d+\.\d\d to ',
                     standing(place))


def test_a_pair_is_of_one_recipe_and_of_the_same_digits(place):
    write(place, 'p4-cnn', [2.4])
    write(place, 'alpha-F-p4-cnn', [2.3], WHOLE)
    write(place, 'p4-e4-net', [1.5])
    assert not list(leads(place))
    by_p4 = Training.read(None, 'P4 rotMNIST', network='p4-cnn', data='rotmnist')
    path = place.out/OTHER_RECIPE/'p4-cnn-rotmnist'/'0.json'
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({'settings': asdict(by_p4), 'commit': '0'*40,
                                'test': {'accuracy': .98}}))
    lead, = leads(place)
    assert lead.points == pytest.approx(.5) and lead.pair.network == 'p4-e4-net'
    assert ("E⁴-Net over p4-CNN: +0.50 on 10,000 digits by P4's recipe (1 and 1 runs, too few to "
            'tell).') in headline(place)


def test_a_common_direction_is_said_if_there_is_one(place):
    write(place, 'p4-cnn', [2.4])
    assert 'all err' not in standing(place)
    write(place, 'z2-cnn', [6.])
    assert 'all err more than printed, by 0.35 to 0.97 points (median 0.66).' in standing(place)
    write(place, 'z2-cnn', [5.])
    assert 'all err' not in standing(place)
    write(place, 'z2-cnn', [6.])
    write(place, 'alpha-F-p4-cnn', [2.3, 2.31])
    assert '1 of them were run several times; ' in standing(place)
    assert 'these are off their print: α_F-p4-CNN.' in standing(place)


def test_a_deviation_needs_several_runs():
    assert mean_and_deviation([1., 3.]) == '2.00 ± 1.41'
    assert mean_and_deviation([1.]) == '1.00' and mean_and_deviation([1.], 1) == '1.0'


def test_the_power_is_that_of_experiments():
    torch.manual_seed(0)
    lead, scatter, runs = .25, .2, 6
    a, b = scatter*torch.randn(2, 20_000, runs)
    found = ttest_ind(a.numpy() + lead, b.numpy(), axis=1).pvalue < .05
    assert power(runs, lead, scatter) == pytest.approx(found.mean(), abs=.01)
    # without a lead a test at 5 % finds one by chance, on either side
    assert power(runs, 0, scatter) == pytest.approx(.025)


@pytest.mark.parametrize('lead, scatter, runs', [(.25, .18, 10), (.2, .18, 14), (.5, .3, 7)])
def test_fewer_runs_find_a_lead_less_often_than_in_four_of_five(lead, scatter, runs):
    assert runs_that_find(lead, scatter) == runs
    assert power(runs, lead, scatter) >= .8 > power(runs - 1, lead, scatter)
