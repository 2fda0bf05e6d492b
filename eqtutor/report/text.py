"What a report says: a row a layer, who is at fault, why, and what to put there."
# Plain module: edited by hand, no notebook exports it.

import math
from dataclasses import dataclass

from ..groups import Group

ROWS = 30   # that are shown in any case


@dataclass(frozen=True)
class Step:
    "A layer, an operation at fault, or the network's output, as a report shows it."
    name:str
    cls:str              # class of a layer; between which layers an operation stands
    kind:str             # of its output
    errors:list[float]   # of its output, one a group element
    inputs:list[float]   # of its input, one a group element
    alone:float|None     # by itself; None where it is not at fault
    where:str=''         # line of the program, of an operation
    reason:str=''        # why it is at fault
    remedy:str=''        # code to put there

    @property
    def is_at_fault(self)->bool: return self.alone is not None


@dataclass(frozen=True)
class LayerReport:
    "Equivariance error of each layer, in the order of the calls, and who is at fault."
    group:Group
    tol:float
    steps:list[Step]
    judged:tuple[int, ...]   # elements that the tolerance is for
    silent:str|None=None     # from this layer on all is zero, and nothing is measured
    # two channels of the input are an arrow perhaps, and nobody said so
    may_hold_arrows:bool=False

    @property
    def rows(self)->list[tuple[str, str, str, list[float]]]:
        "Name, class, kind of output, and one error a group element."
        return [(s.name, s.cls, s.kind, s.errors) for s in self.steps]

    @property
    def offenders(self)->list[Step]:
        "All that break the symmetry by themselves."
        return [s for s in self.steps if s.is_at_fault]

    @property
    def first_row(self)->int|None:
        "Number of the first row at fault; if none is, the first above tolerance."
        for i, s in enumerate(self.steps):
            if s.is_at_fault: return i
        for i, s in enumerate(self.steps):
            if s.kind == 'unknown': continue
            if any(not s.errors[h] <= self.tol for h in self.judged): return i   # or NaN
        return None

    @property
    def first_broken(self)->str|None:
        "Name of the first layer or operation that breaks the symmetry, if any."
        return None if self.first_row is None else self.steps[self.first_row].name

    @property
    def is_random(self)->bool:
        "Does the network give two answers to one question?"
        return any(s.errors[0] > self.tol for s in self.steps)

    def __str__(self)->str: return '\n'.join([*self.table_lines(), *self.advice_lines()])

    def table_lines(self)->list[str]:
        "The rows; where they are many, those at both ends and around the first fault."
        n, first = len(self.steps), self.first_row
        if n <= ROWS: shown = {*range(n)}
        elif first is None: shown = {*range(8), *range(n - 8, n)}
        else: shown = {*range(3), *range(first - 3, first + 4), n - 1}
        steps = {i: s for i, s in enumerate(self.steps) if i in shown}
        wide = max([len(s.name) for s in steps.values()] + [5])
        def largest(errors:list[float])->str:
            known = [e for e in errors if not math.isnan(e)]
            return f'{max(known):.1e}' if known else 'unknown'
        lines = [f'{"layer":{wide}}  {"class":20}  {"output":12}  {"input error":11}  '
                 'output error']
        for i, s in steps.items():
            if i and i - 1 not in steps: lines.append('…')
            mark = '  ← also at fault' if s.is_at_fault else ''
            if i == first: mark = '  ← breaks first'
            lines.append(f'{s.name:{wide}}  {s.cls:20}  {s.kind:12}  '
                         f'{largest(s.inputs):11}  {largest(s.errors)}{mark}')
        return lines

    def advice_lines(self)->list[str]:
        "What stands below the table: who is at fault, why, and what to put there."
        lines = []
        if self.is_random:
            lines.append('Element 0, doing nothing, fails: the network is random. '
                         'Call .eval() first.')
        if self.silent:
            lines.append(f'{self.silent} gives zeros only: what follows was not tested.')
        if len(self.judged) < len(self.group):
            lines.append(f'{self.group.name} turns between pixels, where no layer is exact '
                         '(Theorem 26.4): the errors there blame nobody, and on noise they are '
                         'large whatever the layers. Measure them on a smooth picture, with '
                         'margin=8 and tol=0.2, say.')
        if self.may_hold_arrows and self.offenders:
            lines.append("The input's two channels were read as two scalars; if they are an arrow, "
                         "say layout='vector'.")
        alike:dict[tuple[str, str], list[Step]] = {}
        for s in self.offenders: alike.setdefault((s.cls, s.reason), []).append(s)
        if alike: lines.append(f'{len(self.offenders)} at fault, tried one by one:')
        for (cls, reason), steps in alike.items():
            names = ', '.join(s.name for s in steps[:4])
            if len(steps) > 4: names += f' and {len(steps) - 4} more'
            lines.append(f'- {names} ({cls}): {reason}')
            if steps[0].where: lines.append(f'    at {steps[0].where}')
            if steps[0].remedy: lines.append(f'    put there: {steps[0].remedy}')
        return lines
