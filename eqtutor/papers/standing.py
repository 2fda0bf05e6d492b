"""Where the reproduction stands: how many rows of the papers' tables are run, which agree with the
print, and by how much the others miss it."""
# Plain module: edited by hand, no notebook exports it.
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..files import provenance_mark, with_note
from ..train.settings import Training
from .reproduce import Job, Place, progress_of
from .tables import ResultTable, Row, chosen_tables

SEEDS = 5        # runs of a row that are looked for
LATE = 20        # epochs at the end whose mean is taken: single ones jump by 0.1 to 0.2 points
NEAR = 2         # deviations within which a row agrees
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


@dataclass(frozen=True)
class Comparison:
    "A row of a paper's table beside our complete runs of it."
    label:str            # the paper's
    data:str             # of `DATASETS`, on which ours were trained
    printed:str          # per cent
    errors:list[float]   # test errors of our runs, per cent
    mark:str             # of `provenance_mark`

    @property
    def ours(self)->str:
        "Mean, deviation where there are several runs, and the mark."
        text = f'{statistics.mean(self.errors):.2f}'
        if len(self.errors) > 1: text += f' ± {statistics.stdev(self.errors):.2f}'
        return f'{text}{self.mark}'

    @property
    def gap(self)->float:
        "Ours less the print, in points."
        return statistics.mean(self.errors) - self.numbers[0]

    @property
    def numbers(self)->list[float]:
        "Printed mean and, where there is one, deviation."
        return [float(n) for n in re.findall(r'\d+(?:\.\d+)?', self.printed)]

    @property
    def deviations(self)->float|None:
        "The gap over both deviations together; None where nobody has one."
        spreads = self.numbers[1:]
        if len(self.errors) > 1: spreads.append(statistics.stdev(self.errors))
        return self.gap/math.hypot(*spreads) if spreads else None

    @property
    def agrees(self)->bool:
        "Whether the two are within two deviations."
        return self.deviations is not None and abs(self.deviations) <= NEAR

    @property
    def verdict(self)->str:
        "As a word; the deviation of a single run is not known, so that no distance is too large."
        if self.deviations is None: return 'not said'
        if self.agrees: return 'yes'
        return 'no' if len(self.errors) > 1 else 'open'

    def line(self)->str:
        "As a row of the page's table."
        return (f'| {self.label} | {TRAINED_ON.get(self.data, self.data)} | {self.printed} '
                f'| {self.ours} | {len(self.errors)} | {self.gap:+.2f} | {self.verdict} |')


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
            yield Comparison(row.label, on, row.printed, test_errors(found),
                             provenance_mark(*found))


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
    late:bool=False      # means over the last epochs, on the digits tested after each

    @property
    def points(self)->float:
        "By how many points the network errs less."
        return statistics.mean(self.opposed) - statistics.mean(self.errors)

    @property
    def interval(self)->tuple[float, float]|None:
        "95 % interval of the lead, by Welch's t-test; None where either has a single run."
        if min(len(self.errors), len(self.opposed)) < 2: return None
        from scipy.stats import ttest_ind
        found = ttest_ind(self.opposed, self.errors, equal_var=False).confidence_interval()
        return float(found.low), float(found.high)

    @property
    def verdict(self)->str:
        "In words: a lead is seen if its interval has one sign; whether that holds the print, too."
        if self.interval is None: return 'too few runs'
        low, high = self.interval
        word = 'ahead' if low > 0 else 'behind' if high < 0 else 'not told apart'
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
        text = (f'{self.points:+.2f}{self.mark} on {TRAINED_ON[self.pair.data]}'
                f'{f", last {LATE} epochs" if self.late else ""} '
                f'({len(self.errors)} and {len(self.opposed)} runs, ')
        if self.interval is None: return f'{text}too few to tell)'
        return f'{text}95 % {self.interval[0]:+.2f} to {self.interval[1]:+.2f})'

    def line(self)->str:
        "As a row of the page's table."
        pair = self.pair
        printed = '–' if pair.printed is None else f'{pair.printed:+.2f}'
        read = f'{TRAINED_ON[pair.data]}, ' + (f'last {LATE} epochs' if self.late else 'last epoch')
        between = '–' if self.interval is None else '{:+.2f} to {:+.2f}'.format(*self.interval)
        return (f'| {self.labels} | {pair.recipe[:2]} '
                f'| {read} | {len(self.errors)} and {len(self.opposed)} '
                f'| {printed} | {self.points:+.2f}{self.mark} | {between} | {self.verdict} |')


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
        yield Lead(pair, test_errors(ours), test_errors(opposed), mark)
        if pair.data == WHOLE:   # what is looked at after each epoch are test digits
            yield Lead(pair, late_errors(ours), late_errors(opposed), mark, late=True)


def test_errors(runs:Sequence[dict])->list[float]:
    "Of the last epoch, per cent."
    return [100*(1 - run['test']['accuracy']) for run in runs]


def late_errors(runs:Sequence[dict])->list[float]:
    "Means over the last epochs, per cent, on the digits that are looked at after each."
    return [100*(1 - statistics.mean(epoch['valid_accuracy'] for epoch in run['history'][-LATE:]))
            for run in runs]


def headline(
    place:Place, # of the results
)->str:
    "How many rows are run, which agree with the print, and what is seen of attention; a list."
    rows, whole = list(comparisons(place)), list(comparisons(place, WHOLE))
    of = sum(len(table.rows) for table in chosen_tables([]))
    says = f"- **{len(rows)} of the {of} rows** in the papers' tables were run by their full recipe"
    gaps = [c.gap for c in rows]
    if len(rows) > 1 and min(gaps) > 0:
        says += (f': all err more than printed, by {min(gaps):.2f} to {max(gaps):.2f} points '
                 f'(median {statistics.median(gaps):.2f})')
    says += '.'
    decided = [c for c in rows if c.verdict in ('yes', 'no')]
    if decided:
        near = ', '.join(c.label for c in decided if c.agrees) or 'none'
        says += f' Within {NEAR} deviations of the print: {near} of {len(decided)}'
        single = sum(c.verdict == 'open' for c in rows)
        says += f'; another {single} by a single run, too few to tell.' if single else '.'
    if whole:
        more = ', '.join(f'{c.label} {c.gap:+.2f} points' for c in whole)
        says += (f'\n- On 12,000 digits, as the published code of P1 trains, beside the print: '
                 f'{more}.')
    main = [lead for lead in leads(place) if lead.pair[:2] == PAIRS[0][:2]
            and lead.late == (lead.pair.data == WHOLE)]
    if main:
        first = main[0]
        says += (f'\n- **Attention**: {first.labels}, printed lead {first.pair.printed:+.2f} '
                 f'points; here {"; ".join(lead.in_words for lead in main)}.')
    return says


def table_of_rows(
    place:Place, # of the results
)->str:
    "The rows of which a run is complete, as markdown; '' if there are none."
    # a network on all digits stands below itself on those of the text
    rows = [*comparisons(place), *comparisons(place, WHOLE)]
    labels = list(dict.fromkeys(c.label for c in rows))
    lines = [c.line() for c in sorted(rows, key=lambda c: labels.index(c.label))]
    head = ['| network | trained on | error %, printed | ours | runs | points apart | agrees |',
            '|---|---:|---:|---:|---:|---:|---|']
    return with_note('\n'.join(head + lines)) if lines else ''


def table_of_leads(
    place:Place, # of the results
)->str:
    "The pairs of which both have a complete run, as markdown; '' if there are none."
    lines = [lead.line() for lead in leads(place)]
    head = ['| pair | recipe | trained on, read at | runs | lead printed, points | ours '
            "| 95 %, Welch's t | lead |", '|---|---|---|---:|---:|---:|---:|---|']
    return with_note('\n'.join(head + lines)) if lines else ''


def standing(
    place:Place, # of the results
)->str:
    "The state of the reproduction as markdown: what is run, which pairs differ, each row."
    tables = (("With attention beside without, by one recipe on the same digits:",
               table_of_leads(place)), ('', table_of_rows(place)))
    return '\n\n'.join([headline(place), *(part for title, table in tables if table
                                           for part in (title, table) if part)])
