"""Where the reproduction stands: how many rows of the papers' tables are run, which agree with the
print, and by how much the others miss it."""
# Plain module: edited by hand, no notebook exports it.
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..files import provenance_mark, with_note
from .reproduce import Job, Place, progress_of
from .tables import ResultTable, Row, chosen_tables

SEEDS = 5        # runs of a row that are looked for
NEAR = 2         # deviations within which a row agrees
WHOLE = 'rotmnist-12000'   # the digits to validate are trained on as well, as in the published code


@dataclass(frozen=True)
class Comparison:
    "A row of a paper's table beside our complete runs of it."
    label:str            # the paper's
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
        apart = '–' if self.deviations is None else f'{self.deviations:+.1f}'
        return (f'| {self.label} | {self.printed} | {self.ours} | {len(self.errors)} '
                f'| {self.gap:+.2f} | {apart} | {self.verdict} |')


def comparisons(
    place:Place,
    data:str|None=None, # another data set in place of the table's
)->Iterator[Comparison]:
    "The rows of all tables of which a run is complete."
    seen = set()
    for table in chosen_tables([]):
        for row in table.rows:
            if data is None: found = complete_runs(place, table, row)
            elif table.data != data.split('-')[0]: continue
            else: found = complete_runs(place, replace(table, data=data), row)
            key = row.label, row.printed
            if not found or key in seen: continue
            seen.add(key)
            errors = [100*(1 - run['test']['accuracy']) for run in found]
            yield Comparison(row.label, row.printed, errors, provenance_mark(*found))


def complete_runs(place:Place, table:ResultTable, row:Row)->list[dict]:
    "The result files of a row's full recipe."
    jobs = [Job(table.name, row.label, table.training(row, s)) for s in range(SEEDS)]
    return [json.loads(place.result(job).read_text(encoding='utf-8')) for job in jobs
            if progress_of(job, place).complete]


def headline(
    rows:Sequence[Comparison],     # of which a run is complete
    whole:Sequence[Comparison]=(), # the same, trained on all digits
)->str:
    "How many rows are run, and which agree with the print, as sentences in markdown."
    of = sum(len(table.rows) for table in chosen_tables([]))
    near = [c.label for c in rows if c.agrees]
    says = f"**{len(rows)} of the {of} rows** in the papers' tables were run by their full recipe. "
    gaps = [c.gap for c in rows]
    if len(rows) > 1 and min(gaps) > 0:
        says += f'All err more than printed, by {min(gaps):.2f} to {max(gaps):.2f} points; within '
    else: says += 'Within '
    says += f'{NEAR} deviations of the print: {", ".join(near) or "none"}.'
    if not whole: return says
    more = ', '.join(f'{c.label} {c.gap:+.2f} points' for c in whole)
    return f'{says} On 12,000 digits, as the published code of P1 trains: {more}.'


def standing(
    place:Place, # of the results
)->str:
    "The state of the reproduction as markdown: a sentence, and a table of what is complete."
    rows, whole = list(comparisons(place)), list(comparisons(place, WHOLE))
    says = [headline(rows, whole)]
    head = ['| network | error %, printed | ours | runs | points apart | deviations | agrees |',
            '|---|---:|---:|---:|---:|---:|---|']
    if rows: says += ['', *head, *(c.line() for c in rows)]
    if whole:
        says += ['', 'Trained on 12,000 digits, not on the 10,000 that the text of P1 says:',
                 '', *head, *(c.line() for c in whole)]
    return with_note('\n'.join(says))
