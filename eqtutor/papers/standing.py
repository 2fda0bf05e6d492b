"""Where the reproduction stands: how many rows of the papers' tables are run, by how much they miss
the print, and which networks are told apart."""
# Plain module: edited by hand, no notebook exports it.
import json
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..files import provenance_mark, with_note
from ..train.settings import Training
from .reproduce import Job, Place, progress_of
from .tables import ResultTable, Row, chosen_tables

SEEDS = 5        # runs of a row that are looked for
SCATTER = .18    # standard deviation of single runs, points: cautious, as chapter 30 says
LATE = 20        # epochs at the end whose mean is taken: single ones jump by 0.1 to 0.2 points
WHOLE = 'rotmnist-12000'   # the digits to validate are trained on as well, as in the published code
TRAINED_ON = {'rotmnist': '10,000 digits', WHOLE: '12,000 digits'}
OTHER_RECIPE = 'p4-recipe' # folder of the runs by P4's recipe that no paper's table has


class Pair(NamedTuple):
    "A network with attention and one without, trained by one recipe on the same digits."
    network:str
    opponent:str
    recipe:str           # of `RECIPES`
    data:str             # of `DATASETS`
    printed:float|None   # lead of the network in the paper, points
    apart:str = ''       # folder of the opponent's runs, where it is not that of the tables


PAIRS = [
    Pair('alpha-F-p4-cnn', 'p4-cnn', 'P1 rotMNIST', 'rotmnist', 2.048 - 1.795),
    Pair('alpha-F-p4-cnn', 'p4-cnn', 'P1 rotMNIST', WHOLE, 2.048 - 1.795),
    Pair('alpha-F-p4-cnn', 'p4-cnn-big11', 'P1 rotMNIST', 'rotmnist', 1.996 - 1.795),
    Pair('alpha-F-p4-cnn', 'p4-cnn-big15', 'P1 rotMNIST', 'rotmnist', 1.848 - 1.795),
    Pair('alpha-F-p4-cnn', 'p4-cnn-big19', 'P1 rotMNIST', 'rotmnist', 1.796 - 1.795),
    Pair('alpha-RH-p4-cnn', 'p4-cnn', 'P1 rotMNIST', 'rotmnist', 2.048 - 1.980),
    Pair('p4-e4-net', 'p4-cnn', 'P4 rotMNIST', 'rotmnist', None, OTHER_RECIPE)]


class Sample(NamedTuple):
    "Mean and standard deviation of a number of runs; a constant has none."
    mean:float
    deviation:float=0.
    runs:int=2

    @classmethod
    def of(cls, values:Sequence[float])->'Sample':
        return cls(statistics.mean(values), statistics.stdev(values), len(values))


def welch_interval(
    a:Sample,
    b:Sample,
)->tuple[float, float]:
    "95 % interval of the difference of two means, by Welch's t-test."
    from scipy.stats import t
    squares = [s.deviation**2/s.runs for s in (a, b)]
    apart, error = a.mean - b.mean, sum(squares)**.5
    if not error: return apart, apart
    freedom = sum(squares)**2/sum(v**2/(s.runs - 1) for v, s in zip(squares, (a, b)))
    width = float(t.ppf(.975, freedom))*error
    return apart - width, apart + width


def mean_and_deviation(
    values:Sequence[float],
    digits:int=2,
)->str:
    "As in 2.40 ± 0.01; the mean alone of a single value."
    mean = f'{statistics.mean(values):.{digits}f}'
    return mean if len(values) < 2 else f'{mean} ± {statistics.stdev(values):.{digits}f}'


def interval_if_known(
    lead:float,             # of the means, points
    runs:int,               # of the one network
    opposed:int,            # of the other
    scatter:float=SCATTER,  # standard deviation of the runs of either, points
)->tuple[float, float]:
    "95 % interval of a lead, were the scatter of single runs known."
    width = 1.96*scatter*(1/runs + 1/opposed)**.5
    return lead - width, lead + width


def power(
    runs:int,       # of each of two networks
    lead:float,     # the true one, points
    scatter:float,  # standard deviation of the runs of either, points
)->float:
    "How often a two-sided t-test at 5 % finds the lead."
    from scipy.stats import nct, t
    freedom = 2*runs - 2
    return float(1 - nct.cdf(t.ppf(.975, freedom), freedom, lead/scatter*(runs/2)**.5))


def runs_that_find(
    lead:float,     # the true one, points
    scatter:float,  # standard deviation of the runs of either network, points
)->int:
    "The fewest runs of each of two networks that find a lead in four of five experiments."
    runs = 2
    while power(runs, lead, scatter) < .8: runs += 1
    return runs


@dataclass(frozen=True)
class Comparison:
    "A row of a paper's table beside our complete runs of it."
    label:str            # the paper's
    data:str             # of `DATASETS`, on which ours were trained
    printed:str          # per cent
    printed_runs:int|None # behind the printed mean and its deviation
    errors:list[float]   # test errors of our runs, per cent
    mark:str             # of `provenance_mark`
    reading:str='last epoch' # of `READINGS`: which errors these are

    @property
    def ours(self)->str:
        "Mean, deviation where there are several runs, and the mark."
        return f'{mean_and_deviation(self.errors)}{self.mark}'

    @property
    def gap(self)->float:
        "Ours less the print, in points."
        return statistics.mean(self.errors) - self.numbers[0]

    @property
    def numbers(self)->list[float]:
        "Printed mean and, where there is one, deviation."
        return [float(n) for n in re.findall(r'\d+(?:\.\d+)?', self.printed)]

    @property
    def interval(self)->tuple[float, float]|None:
        "95 % interval of the gap; None of a single run. A print without deviation is a constant."
        if len(self.errors) < 2: return None
        mean, *spread = self.numbers
        runs = self.printed_runs
        printed = Sample(mean, spread[0], runs) if spread and runs else Sample(mean)
        return welch_interval(Sample.of(self.errors), printed)

    @property
    def verdict(self)->str:
        "In words; how far a network's runs scatter, a single one does not tell."
        if self.interval is None: return 'a single run'
        low, high = self.interval
        return 'not told apart' if low <= 0 <= high else 'differs'

    @property
    def in_words(self)->str:
        "The gap, and how well it is known."
        return f'{self.label} {self.gap:+.2f} ({in_per_cent(self.interval) or "a single run"})'

    def line(self)->str:
        "As a row of the page's table."
        return (f'| {self.label} | {TRAINED_ON.get(self.data, self.data)}, {self.reading} '
                f'| {self.printed} '
                f'| {self.ours} | {len(self.errors)} | {self.gap:+.2f} '
                f'| {between(self.interval)} | {self.verdict} |')


def between(interval:tuple[float, float]|None)->str:
    "As a cell of a table."
    return '–' if interval is None else '{:+.2f} to {:+.2f}'.format(*interval)


def in_per_cent(interval:tuple[float, float]|None)->str:
    "In a sentence; '' if there is none."
    return '' if interval is None else f'95 % {between(interval)}'


def comparisons(
    place:Place,
    data:str|None=None, # another data set in place of the table's
)->Iterator[Comparison]:
    "The rows of all tables of which a run is complete."
    seen = set()
    for table in chosen_tables([]):
        for row in table.rows:
            if data and table.data != data.split('-')[0]: continue
            on = data or table.data
            found = complete_runs(place, replace(table, data=on), row)
            key = row.label, row.printed
            if not found or key in seen: continue
            seen.add(key)
            # as the published code trains and reads
            reading = BEST if data == WHOLE else LAST
            yield Comparison(row.label, on, row.printed, table.runs,
                             READINGS[reading](found), provenance_mark(*found), reading)


def complete_runs(place:Place, table:ResultTable, row:Row)->list[dict]:
    "The result files of a row's full recipe."
    jobs = [Job(table.name, row.label, table.training(row, s)) for s in range(SEEDS)]
    return [json.loads(place.result(job).read_text(encoding='utf-8')) for job in jobs
            if progress_of(job, place).complete]


@dataclass(frozen=True)
class Lead:
    "Errors of a network with attention beside those of its opponent, per cent."
    pair:Pair
    errors:list[float]
    opposed:list[float]
    mark:str             # of `provenance_mark`
    reading:str='last epoch' # of `READINGS`: which errors these are

    @property
    def points(self)->float:
        "By how many points the network errs less."
        return statistics.mean(self.opposed) - statistics.mean(self.errors)

    @property
    def interval(self)->tuple[float, float]|None:
        "95 % interval of the lead, by Welch's t-test; None where either has a single run."
        if min(len(self.errors), len(self.opposed)) < 2: return None
        return welch_interval(Sample.of(self.opposed), Sample.of(self.errors))

    @property
    def cautious(self)->tuple[float, float]:
        "95 % interval of the lead, if the runs of both scatter by `SCATTER`."
        return interval_if_known(self.points, len(self.errors), len(self.opposed))

    @property
    def verdict(self)->str:
        "In words: a lead is seen if both intervals have one sign; whether Welch's holds the print."
        if self.interval is None: return 'too few runs'
        low, high = self.interval
        word, cautious = ('ahead' if a > 0 else 'behind' if b < 0 else 'not told apart'
                          for a, b in (self.interval, self.cautious))
        # few runs may lie close by chance, or apart
        if word != cautious: word = f"perhaps {'ahead' if self.points > 0 else 'behind'}"
        printed = self.pair.printed
        if printed is None or low <= printed <= high: return word
        return f'{word}; the print lies outside'

    @property
    def labels(self)->str:
        "Of the two networks."
        named = {row.network: row.label for table in chosen_tables([]) for row in table.rows}
        return f'{named[self.pair.network]} over {named[self.pair.opponent]}'

    @property
    def in_words(self)->str:
        "The lead, how often it was run, and how well it is known."
        read = '' if self.reading == LAST else f', {self.reading}'
        read += '' if self.pair.recipe.startswith('P1') else f" by {self.pair.recipe[:2]}'s recipe"
        return (f'{self.points:+.2f}{self.mark} on {TRAINED_ON[self.pair.data]}{read} '
                f'({len(self.errors)} and {len(self.opposed)} runs, '
                f'{in_per_cent(self.interval) or "too few to tell"})')

    def line(self)->str:
        "As a row of the page's table."
        pair = self.pair
        printed = '–' if pair.printed is None else f'{pair.printed:+.2f}'
        return (f'| {self.labels} | {pair.recipe[:2]} '
                f'| {TRAINED_ON[pair.data]}, {self.reading} '
                f'| {len(self.errors)} and {len(self.opposed)} '
                f'| {printed} | {self.points:+.2f}{self.mark} | {between(self.interval)} '
                f'| {between(self.cautious)} | {self.verdict} |')


def leads(
    place:Place, # of the results
)->Iterator[Lead]:
    "The pairs of which both have a complete run."
    for pair in PAIRS:
        aside = replace(place, out=place.out/pair.apart) if pair.apart else place
        ours, opposed = (
            [json.loads(here.result(job).read_text(encoding='utf-8')) for job in (
                 Job('', network, Training.read(None, pair.recipe, network=network,
                                                data=pair.data, seed=seed))
                 for seed in range(SEEDS)) if progress_of(job, here).complete]
            for network, here in ((pair.network, place), (pair.opponent, aside)))
        if not ours or not opposed: continue
        mark = provenance_mark(*ours, *opposed)
        for reading, errors in READINGS.items():
            # what is looked at after each epoch are test digits on all digits alone
            if reading != LAST and pair.data != WHOLE: continue
            yield Lead(pair, errors(ours), errors(opposed), mark, reading)


def test_errors(runs:Sequence[dict])->list[float]:
    "Of the last epoch, per cent."
    return [100*(1 - run['test']['accuracy']) for run in runs]


def late_errors(runs:Sequence[dict])->list[float]:
    "Means over the last epochs, per cent, on the digits that are looked at after each."
    return [100*(1 - statistics.mean(epoch['valid_accuracy'] for epoch in run['history'][-LATE:]))
            for run in runs]


def best_errors(runs:Sequence[dict])->list[float]:
    "Of the best epoch, per cent, chosen by the digits that it is read on, as papers print."
    return [100*(1 - max(epoch['valid_accuracy'] for epoch in run['history'])) for run in runs]


LAST, BEST = 'last epoch', 'best epoch'
READINGS:dict[str, Callable[[Sequence[dict]], list[float]]] = {
    LAST: test_errors, f'last {LATE} epochs': late_errors, BEST: best_errors}


def headline(
    place:Place, # of the results
)->str:
    "How many rows are run, which agree with the print, and what is seen of attention; a list."
    rows, whole = list(comparisons(place)), list(comparisons(place, WHOLE))
    of = sum(len(table.rows) for table in chosen_tables([]))
    says = (f"- **{len(rows)} of the {of} rows** in the papers' tables were run by the full recipe "
            'of the text')
    gaps = [c.gap for c in rows]
    if len(rows) > 1 and min(gaps) > 0:
        says += (f': all err more than printed, by {min(gaps):.2f} to {max(gaps):.2f} points '
                 f'(median {statistics.median(gaps):.2f})')
    says += '.'
    several = [c for c in rows if c.interval]
    if several:
        differ = ', '.join(c.label for c in several if c.verdict == 'differs') or 'none'
        says += (f' {len(several)} of them were run several times; beyond the chance of the seeds '
                 f'these are off their print: {differ}.')
    if whole:
        says += ('\n- Trained and read as the published code of P1 does (12,000 training digits; '
                 'the best epoch, chosen on our test digits), our error less the printed one, '
                 f'in points: {"; ".join(c.in_words for c in whole)}.')
    found = list(leads(place))
    main = [lead for lead in found if lead.pair[:2] == PAIRS[0][:2]
            and (lead.pair.data != WHOLE or lead.reading != LAST)]
    seen = []
    if main:
        first = main[0]
        seen = [f'{first.labels}, printed lead {first.pair.printed:+.2f} points; here '
                f'{"; ".join(lead.in_words for lead in main)}.']
    seen += [f'{lead.labels}: {lead.in_words}.' for lead in found if lead.pair.apart]
    if seen: says += f'\n- **Attention**: {" ".join(seen)}'
    return says


def table_of_rows(
    place:Place, # of the results
)->str:
    "The rows of which a run is complete, as markdown; '' if there are none."
    # a network on all digits stands below itself on those of the text
    rows = [*comparisons(place), *comparisons(place, WHOLE)]
    labels = list(dict.fromkeys(c.label for c in rows))
    lines = [c.line() for c in sorted(rows, key=lambda c: labels.index(c.label))]
    head = ['| network | trained on, read at | error %, printed | ours | runs | ours − printed '
            "| 95 %, Welch's t | beside the print |", '|---|---:|---:|---:|---:|---:|---:|---|']
    return with_note('\n'.join(head + lines)) if lines else ''


def table_of_leads(
    place:Place, # of the results
)->str:
    "The pairs of which both have a complete run, as markdown; '' if there are none."
    lines = [lead.line() for lead in leads(place)]
    head = ['| pair | recipe | trained on, read at | runs | lead printed, points | ours '
            f"| 95 %, Welch's t | if runs scatter by {SCATTER} | lead |",
            '|---|---|---|---:|---:|---:|---:|---:|---|']
    return with_note('\n'.join(head + lines)) if lines else ''


def standing(
    place:Place, # of the results
)->str:
    "The state of the reproduction as markdown: what is run, which pairs differ, each row."
    tables = (("With attention beside without, by one recipe on the same digits:",
               table_of_leads(place)), ('', table_of_rows(place)))
    return '\n\n'.join([headline(place), *(part for title, table in tables if table
                                           for part in (title, table) if part)])
