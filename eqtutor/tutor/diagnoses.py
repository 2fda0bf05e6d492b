"""What is said of an answer that is no known mistake, from all cases of its exercise.

Nothing here guesses: a diagnosis is said where it is true of every case.
"""
# Plain module: edited by hand, no notebook exports it.
import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..groups import Group, get_group
from .comparing import as_numbers, in_words, same_answer, same_answers
from .relations import (
    describe_difference,
    in_words_of,
    list_relation,
    ratio_of,
    relation,
    where_it_is_right,
)
from .values import decode

if TYPE_CHECKING:
    from .exercise import Exercise


def diagnose(
    e:'Exercise',
    answers:list, # one a case, of which some are wrong
    right:list,
    seed:int=0,   # of the cases
)->str:
    "In what respect the answers differ from the right ones."
    cases = e.cases(seed)
    wrong = [i for i in range(len(cases)) if not same_answer(answers[i], right[i])]
    pairs = [(answers[i], right[i]) for i in wrong]
    if e.facts: return without_facts(e, *pairs[0]) or describe_difference(*pairs[0])
    if not cases[0]: return of_a_prediction(*pairs[0])
    if said := of_all_cases(e, cases, answers, right): return said
    where = in_case(e, cases, wrong[0])
    if said := relation(pairs): return where + said
    if tell_enough(pairs) and (said := as_if(e, seed, answers, wrong[0])): return said
    said = where_it_is_right(pairs) or describe_difference(*pairs[0])
    return where + said + which_way(pairs) + which_cases(e, cases, wrong)


def of_a_prediction(answer:Any, right:Any)->str:
    "Where to look again; what is right is not told."
    if only_unsorted(answer, right): return UNSORTED
    longer = isinstance(answer, list) and isinstance(right, list) and len(answer) != len(right)
    said = list_relation(answer, right) if longer else ''
    return said or describe_difference(answer, right, tells=False)


UNSORTED = 'The values are right, and they are not sorted: `sorted(…)`, from the smallest on.'


def only_unsorted(answer:Any, right:Any)->bool:
    "Are the lists inside an answer right but for their order, where sorted ones are asked?"
    def is_plain(value:Any)->bool:
        return isinstance(value, list) and all(isinstance(v, int | float) for v in value)
    def in_order(value:Any)->Any:
        if isinstance(value, dict): return {k: in_order(v) for k, v in value.items()}
        if is_plain(value): return sorted(value)
        return [in_order(v) for v in value] if isinstance(value, list) else value
    nested = isinstance(right, dict | list) and not is_plain(right)
    return nested and in_order(right) == right and same_answer(in_order(answer), right)


def in_case(e:'Exercise', cases:list[tuple], i:int)->str:
    "The case's number and arguments, before what is said of it."
    return f'Case {i + 1} of {len(cases)}, {listed_case(e, cases[i])}: '


def listed_case(e:'Exercise', case:tuple)->str:
    "The arguments of a case in words, with their names where the function has them."
    names = argument_names(e)
    return ', '.join(f'{names[i]} = {in_words(value)}' if i in names else in_words(value)
                     for i, value in enumerate(case))


def argument_names(e:'Exercise')->dict[int, str]:
    "By its place in a case, the name of what is put to the function as it is."
    if not callable(e.right): return {}
    names, found = [*inspect.signature(e.right).parameters], dict[int, str]()
    calls = [n for n in ast.walk(ast.parse(e.call.strip())) if isinstance(n, ast.Call)]
    for call in (n for n in calls if ast.unparse(n.func) == 'fn'):
        at = 0   # in the signature
        for text in map(ast.unparse, call.args):
            some = re.fullmatch(r'\*case(?:\[(\d*):(\d*)\])?', text)
            one = re.fullmatch(r'case\[(\d+)\]', text)
            if some: places = range(int(some[1] or 0), int(some[2] or len(names)))
            else: places = range(int(one[1]), int(one[1]) + 1) if one else range(0)
            found |= dict(zip(places, names[at:]))
            at += len(places) or 1
    return found


# --- before anything is compared

NOTHING = '`{}` returns nothing (`None`). Does it end in `return …`? What is printed is no answer.'


def changed_argument(e:'Exercise', answers:list[dict])->str:
    "Which argument a function changes, as a sentence; '' if none."
    changed = [i for a in answers for i in a.get('changed', ()) if isinstance(i, int)]
    if not changed: return ''
    names = argument_names(e)
    what = f'its argument `{names[changed[0]]}`' if changed[0] in names else 'an argument'
    return f'`{e.name}` changes {what} in place. Whoever calls it still needs it: work on a copy.'


# what an error says -> what to do about it
ADVICE = {
    r'^TypeError: ({name}|<lambda>)\(\) (takes|missing|got)':
        'Keep the arguments as they were given.',
    r'not of (generator|map|zip|filter|reversed|dict_\w+)$': 'Make a list of it: `list(…)`.',
    r'not of (function|method|builtin_function\w*|type)$':
        'You return a function: call it, and return what it returns.',
    r'dtype|expected scalar type|should be the same|type Float|type Double':
        'Numbers come as float64: make new tensors with the dtype of what is given, '
        '`x.new_zeros(…)` or `.to(x)`.',
    r'Boolean value of Tensor|truth value of an array':
        '`if`, `and` and `not` ask for one truth value: `.all()`, `.any()`, or `torch.where`.',
    r'torch.return_types': '`max(axis)` returns values and places: take `.values`, or `amax`.',
    r'not implemented for': 'Torch does not do this for numbers of that dtype: in which order are '
                            'the steps?',
    r"'NoneType'": 'Something there is `None`: which function has no `return`?',
    r"'str' object has no attribute": 'A group may come as its name: `get_group` takes both.',
    r"^AttributeError: '(list|tuple|generator|range)'|not (list|tuple)$":
        'You have a list there: `torch.stack` or `torch.tensor` makes a tensor of it.',
    r"^AttributeError: '(int|float|bool)'|(must be Tensor|expected), not (int|float)$":
        'You have a number of Python there, and a function of tensors: see `math`, or '
        '`torch.tensor`.',
    r'^KeyError': 'Which keys has the dictionary, and which values may that argument have?',
    r'out of (range|bounds)|too many indices':
        'An index counts from 0 to n − 1, and each axis has its own n. How many axes are there, '
        'and how long are they?',
    r'size of tensor|cannot be multiplied|must match|number of (dims|dimensions)|shape'
    r'|size mismatch|Expected .*D|inconsistent tensor size|equal size|channels|at least 1D':
        'Write the shapes down, axis by axis, before that line.',
    r'^(ZeroDivisionError)': 'For which arguments is the divisor 0?',
    r'in-place operation': 'Work on a copy: `x.clone()`.'}


def advice(e:'Exercise', error:str)->str:
    "What to do about an error, as a sentence; '' where nothing general is known."
    found = [says for pattern, says in ADVICE.items()
             if re.search(pattern.replace('{name}', re.escape(e.name)), error)]
    return f' {found[0]}' if found else ''


# --- facts that are asked of an answer

def without_facts(e:'Exercise', answer:Any, right:Any)->str:
    "Which of the facts that make an answer right do not hold."
    if not isinstance(answer, list): return ''
    failed = [fact for fact, a, r in zip(e.facts, answer, right) if fact and not same_answer(a, r)]
    return f'What is asked and does not hold: {"; ".join(failed)}.' if failed else ''


# --- numbers and all cases

def of_all_cases(e:'Exercise', cases:list[tuple], answers:list, right:list)->str:
    "What holds for the answers to all cases together."
    if len(cases) > 1 and not isinstance(answers[0], str | None):
        same = all(same_answer(a, answers[0]) for a in answers)
        if same and not all(same_answer(r, right[0]) for r in right):
            return (f'`{e.name}` gives the same answer to all cases, {in_words(answers[0])}, and '
                    'right answers differ.')
    if all(isinstance(x, bool) for x in [*answers, *right]):
        opposite = [not r for r in right]
        return 'True and False are exchanged in every case.' if answers == opposite else ''
    return a_term(e, cases, answers, right)


def a_term(e:'Exercise', cases:list[tuple], answers:list, right:list)->str:
    "The factor or the summand by which all answers differ, as a product of arguments."
    pairs = [(as_numbers(a), as_numbers(r)) for a, r in zip(answers, right)]
    known = [(a, r) for a, r in pairs if a is not None and r is not None and not a.is_complex()]
    if len(known) < len(cases) or len(cases) < 3: return ''
    scalars = all(a.numel() == r.numel() == 1 for a, r in known)
    if scalars and (of := rounding(known)): return of
    counts = [quantities(e, case) for case in cases]
    factors = [z.real for a, r in known if (z := ratio_of(a, r)) is not None]
    if len(factors) == len(known) and (word := in_terms(factors, counts, (-2, -1, 0, 1, 2))):
        if word == '-1': return 'In every case your answer is right but for the sign.'
        return f'In every case your answer is {word} times the right one.'
    if not scalars: return ''
    by = [float((a - r).flatten()[0]) for a, r in known]
    if word := in_terms([abs(d) for d in by], counts, (0, 1, 2)):
        if all(d > 0 for d in by): return f'In every case your answer is too large by {word}.'
        if all(d < 0 for d in by): return f'In every case your answer is too small by {word}.'
    return ''


def rounding(pairs:list[tuple[Tensor, Tensor]])->str:
    "Is what should be whole not rounded, or rounded the wrong way?"
    if not all(same_answer(r, r.round()) for _, r in pairs): return ''
    if all(same_answer(a, a.round()) for a, _ in pairs): return ''
    ways = {'nearest': torch.round, 'next smaller': torch.floor, 'next larger': torch.ceil}
    for name, way in ways.items():
        if all(same_answer(way(a), r) for a, r in pairs):
            return f'Right but for a last step: take the {name} whole number.'
    return ''


def quantities(e:'Exercise', case:tuple)->dict[str, float]:
    "The numbers of a case by name: arguments, entries of a shape, the order of a group."
    found = dict[str, float]()
    for i, value in enumerate(case):
        name = argument_names(e).get(i)
        if isinstance(value, Group): found['|H|'] = len(value)
        if not name: continue
        if type(value) in (int, float): found[f'`{name}`'] = value
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            found |= {f'`{name}[{j}]`': v for j, v in enumerate(value)}
    return found


def in_terms(values:list[float], counts:list[dict], powers:tuple[int, ...])->str:
    "The values as a whole number times a product of quantities, '' if they are none."
    names = [*counts[0]]
    if any(count.keys() != counts[0].keys() or 0 in count.values() for count in counts): return ''
    for exponents in sorted(product(powers, repeat=len(names)), key=lambda p: sum(map(abs, p))):
        if sum(map(abs, exponents)) > 3: return ''
        terms = [math.prod(float(count[n])**p for n, p in zip(names, exponents))
                 for count in counts]
        c = values[0]/terms[0]
        if not same_answer(values, [c*t for t in terms]): continue
        if c > .9 and abs(c - round(c)) < 1e-6 or not any(exponents):
            return as_product(c, names, exponents)
    return ''


def as_product(c:float, names:list[str], exponents:tuple[int, ...])->str:
    "A product or a quotient in words: '2·`d`²', '1/`k`'."
    def factors(sign:int)->list[str]:
        return [n + ('²' if abs(p) == 2 else '') for n, p in zip(names, exponents) if p*sign > 0]
    above, below = [in_words_of(c)]*(c != 1) + factors(1), factors(-1)
    return '·'.join(above or [in_words_of(c)]) + ''.join(f'/{factor}' for factor in below)


# --- the right answer to other cases

TENSORS:dict[str, Callable[[Tensor], Tensor]] = {
    '0 stood in the place of {}. Is it used?': lambda x: 0*x,
    'the sign of {} were the other': lambda x: -x,
    'only the first entry of {} were used, for all': lambda x: x[:1].expand_as(x),
    'the order of {} were reversed': lambda x: x.flip(0)}
SQUARES:dict[str, Callable[[Tensor], Tensor]] = {
    '{} were transposed: look at the order of its axes': lambda x: x.mT,
    '{} were turned by 180° in its last two axes': lambda x: x.flip((-2, -1)),
    'the rows of {} stood in reverse order': lambda x: x.flip(-2),
    'the columns of {} stood in reverse order': lambda x: x.flip(-1),
    '{} were turned clockwise by 90°': lambda x: x.rot90(-1, (-2, -1)),
    '{} were turned counter-clockwise by 90°': lambda x: x.rot90(1, (-2, -1))}
LISTS:dict[str, Callable[[list], list]] = {
    'only the first entry of {} were used': lambda v: v[:1],
    'the first entry of {} were left out': lambda v: v[1:],
    'the last entry of {} were left out': lambda v: v[:-1],
    'the order of {} were reversed': lambda v: v[::-1]}
WHOLE:dict[str, Callable[[int], int]] = {
    '{} were larger by 1: off by one': lambda n: n + 1,
    '{} were smaller by 1: off by one': lambda n: n - 1}
BACKWARDS = ('each product gh of the group were hg, and `act` moved by h⁻¹: look at the order of a '
             'product, or at an inverse')


def tell_enough(pairs:list[tuple[Any, Any]])->bool:
    "Is it no chance if something else has these answers, several whole numbers or fractions?"
    values = [as_numbers(a) for a, _ in pairs]
    fractions = any(v is not None and not same_answer(v, v.real.round()) for v in values)
    return fractions or len({str(a) for a, _ in pairs}) > 3


def as_if(
    e:'Exercise',
    seed:int,     # of the cases
    answers:list,
    wrong:int,    # a case that is
)->str:
    "The change of the arguments under which the answers would be right."
    names = argument_names(e)
    def right_there(change:Callable, chosen:slice)->list:
        cases = [change(case) for case in e.cases(seed)[chosen]]
        return [decode(a['value']) if 'value' in a else None for a in e.answers_to(e.right, cases)]
    first = slice(wrong, wrong + 1)   # most changes fail there, and no other case is tried
    for words, change in changes(names, e.cases(seed)):
        if not same_answers(answers[first], right_there(change, first)): continue
        if same_answers(answers, right_there(change, slice(None))):
            return f'You answer as if {words}.'.replace('?.', '?')
    return ''


def changes(
    names:dict[int, str], # of what a case holds
    cases:list[tuple],
)->Iterator[tuple[str, Callable[[tuple], tuple]]]:
    "What may be done to one argument or two, with its words."
    def at(i:int, f:Callable)->Callable[[tuple], tuple]:
        return lambda case: (*case[:i], f(case[i]), *case[i + 1:])
    kinds = [[case[i] for case in cases] for i in range(len(cases[0]))]
    for i, values in enumerate(kinds):
        if all(isinstance(v, Group | str) for v in values) and isinstance(values[0], Group):
            yield BACKWARDS, at(i, opposite)
    named = [i for i in names if i < len(kinds)]
    for i in named:
        for words, f in changes_of(kinds[i]): yield words.format(f'`{names[i]}`'), at(i, f)
    for i, j in combinations(named, 2):
        if not all(map(alike, kinds[i], kinds[j])): continue
        def exchanged(case:tuple, i:int=i, j:int=j)->tuple:
            return (*case[:i], case[j], *case[i + 1:j], case[i], *case[j + 1:])
        yield f'`{names[i]}` and `{names[j]}` were exchanged', exchanged


def alike(a:Any, b:Any)->bool:
    "Can one argument stand in the other's place?"
    if isinstance(a, Tensor): return isinstance(b, Tensor) and a.shape == b.shape
    return type(a) is type(b) and isinstance(a, int | float)


def changes_of(values:list)->Any:
    "What may be done to an argument, by the values it has in the cases: words and functions."
    if all(isinstance(v, list) for v in values): return LISTS.items()
    if all(type(v) is int for v in values): return WHOLE.items()
    if not all(isinstance(v, Tensor) and v.dim() for v in values): return ()
    square = all(v.dim() > 1 and v.shape[-1] == v.shape[-2] for v in values)
    return (TENSORS | (SQUARES if square else {})).items()


def opposite(group:Group|str)->Group:
    "The group in which gh is hg and every matrix its inverse."
    group = get_group(group)
    return Group(group.name, group.matrices.mT)


# --- which cases are wrong, and how

WAYS = {(True, True): ' Wherever you are wrong you say True: a condition is missing.',
        (True, False): ' Wherever you are wrong you say False: a condition is too strict.',
        (False, True): ' Wherever it is wrong it is too large.',
        (False, False): ' Wherever it is wrong it is too small.'}


def which_way(pairs:list[tuple[Any, Any]])->str:
    "Are single numbers, or True and False, wrong in one direction?"
    if len(pairs) < 2 or not all(isinstance(x, int | float) for pair in pairs for x in pair):
        return ''
    truth = all(isinstance(x, bool) for pair in pairs for x in pair)
    larger = {a > r for a, r in pairs}
    return WAYS[truth, larger.pop()] if len(larger) == 1 else ''


def which_cases(e:'Exercise', cases:list[tuple], wrong:list[int])->str:
    "What the wrong cases have in common and the others have not, as a sentence."
    if len(wrong) == len(cases): return ''
    names = argument_names(e)
    for i, name in [(i, names.get(i, 'group')) for i in range(len(cases[0]))]:
        values = [case[i] for case in cases]
        if all(isinstance(v, Group) for v in values):
            for kind, words in GROUPS.items():
                if [j for j, v in enumerate(values) if words[1](v)] == wrong:
                    return f' Your answer is right for all {words[0]}, and for no {kind}.'
        if not all(isinstance(v, int | str) for v in values): continue
        bad = {values[j] for j in wrong}
        good = {v for j, v in enumerate(values) if j not in wrong}
        if not bad & good and len(bad | good) < len(cases):
            return (f' Your answer is right where `{name}` is {among(good)}, and wrong where it is '
                    f'{among(bad)}.')
    return ''


def among(values:set)->str:
    "Values in words."
    shown = [str(v) for v in sorted(values)]
    return ', '.join(shown[:6]) + (', …' if len(shown) > 6 else '')


# kind -> what the others are, and the test
GROUPS:dict[str, tuple[str, Callable[[Group], bool]]] = {
    'group with mirrors': ('groups of turns alone', lambda g: bool((g.matrices.det() < 0).any())),
    'group that is not abelian': ('abelian groups', lambda g: not g.is_abelian)}
