"""Exercises: what is asked, how answers are compared, and the card that says what to look at."""
# Plain module: edited by hand, no notebook exports it.
import importlib
import importlib.util
import json
import os
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..groups import Group
from .course import chapter_of, course_chapters, exercise_order
from .values import answer_cases, decode


def one_case(seed:int)->list[tuple]:
    "The cases of an exercise without arguments: one, and it is empty."
    return [()]


@dataclass
class Mistake:
    "A wrong answer that people really give, and the sentence that helps."
    answer:Any # a function of the case; of a prediction the value itself
    says:str   # what the student reads, as markdown


@dataclass
class Exercise:
    "One exercise: its marks and, unless it is a proof, right answer, cases, known mistakes."
    id:str     # '5.3' is the third of chapter 05
    kind:str   # 'proof', 'code' or 'predict'
    marks:int
    right:Any=None                              # a function; of a prediction the value itself
    cases:Callable[[int], list[tuple]]=one_case # arguments drawn from a seed
    call:str='fn(*case)'                        # how a case is put to the function `fn`
    mistakes:list[Mistake]=field(default_factory=list)
    name:str=''                                 # of the student's function; `right`'s if empty

    def __post_init__(self)->None:
        self.name = self.name or getattr(self.right, '__name__', '')

    @property
    def chapter(self)->str:
        "The chapter it belongs to, '05' or '24b'."
        return chapter_of(self.id)

    def answers_of(self,
        answer:Any, # a function, or a prediction's value
        seed:int=0,
    )->list[dict]:
        "What an answer says to the cases, as plain data."
        fn = answer if callable(answer) else lambda: answer
        return answer_cases(fn, self.call, self.cases(seed))

    def fails(self,
        state:str, # of the verdict
        message:str,
    )->'Verdict':
        "The verdict on an answer that brings no marks."
        return Verdict(self.id, state, 0, self.marks, message)


# --- the exercises of the course, read from `answers` when they are asked for

def chapter_exercises(
    chapter:str, # '05', or a notebook's name
)->list[Exercise]:
    "The exercises of a chapter, in order."
    number = chapter_of(chapter)
    place = f'{__package__}.answers.ch{number}'
    if not number or importlib.util.find_spec(place) is None: return []
    return sorted(importlib.import_module(place).EXERCISES, key=lambda e: exercise_order(e.id))


def all_exercises()->dict[str, Exercise]:
    "The exercises of all chapters by their id, in order."
    answers = importlib.import_module(f'{__package__}.answers')
    files = [m.name for m in pkgutil.iter_modules(answers.__path__) if m.name.startswith('ch')]
    exercises = {e.id: e for name in files for e in chapter_exercises(name.removeprefix('ch'))}
    return {id: exercises[id] for id in sorted(exercises, key=exercise_order)}


def get_exercise(
    id:str, # '5.3'
)->Exercise|None:
    "The exercise; None if there is none with this id."
    return next((e for e in chapter_exercises(chapter_of(id)) if e.id == id), None)


def first_hint(
    id:str, # of the exercise
)->str:
    "Hint 1 as it stands in the chapter, in markdown; '' where there is none."
    try:
        paths = course_chapters([chapter_of(id)]).values()
    except (FileNotFoundError, ValueError):
        return ''
    cells = [c for p in paths for c in json.loads(p.read_text(encoding='utf-8'))['cells']]
    for source in (''.join(c['source']) for c in cells):
        if not source.startswith(f'**Exercise {id} '): continue
        hint = re.search(r'<summary>Hint 1</summary>(.*?)</details>', source, re.S)
        return hint[1].strip() if hint else ''
    return ''


# --- comparing answers

def as_numbers(value:Any)->Tensor|None:
    "A tensor of what consists of numbers; None for anything else."
    def listed(v:Any)->Any:
        if isinstance(v, Tensor): return v.tolist()
        return [listed(x) for x in v] if isinstance(v, list) else v
    if isinstance(value, Tensor):
        return value.to(torch.complex128 if value.is_complex() else torch.float64)
    try:
        return torch.tensor(listed(value), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def same_answer(
    answer:Any, # decoded
    right:Any,
)->bool:
    "Equal, up to rounding; a list of numbers equals the tensor of them."
    if isinstance(right, dict):
        same_keys = isinstance(answer, dict) and answer.keys() == right.keys()
        return same_keys and all(same_answer(answer[k], v) for k, v in right.items())
    a, r = as_numbers(answer), as_numbers(right)
    if r is None and isinstance(right, list):
        return isinstance(answer, list) and same_answers(answer, right)
    if r is None: return type(answer) is type(right) and answer == right
    if a is None or a.shape != r.shape: return False
    if a.is_complex() != r.is_complex():
        a, r = a.to(torch.complex128), r.to(torch.complex128)
    scale = r.abs().max() if r.numel() else 1.
    return bool(((a - r).abs() <= 1e-7 + 1e-5*scale).all())


def same_answers(
    answers:list, # one a case
    right:list,
)->bool:
    "Do all answers agree?"
    return len(answers) == len(right) and all(map(same_answer, answers, right))


def find_permutation(
    answer:Tensor,
    right:Tensor,
)->tuple[int, list[int]]|None:
    "An axis and a permutation p of it with answer[i] = right[p[i]], if there is one."
    for axis, n in enumerate(right.shape):
        if n > 64: continue
        a, r = answer.movedim(axis, 0), right.movedim(axis, 0)
        p = [next((j for j in range(n) if same_answer(a[i], r[j])), -1) for i in range(n)]
        if -1 not in p and p != list(range(n)): return axis, p
    return None


# --- a verdict that teaches

def in_words(value:Any)->str:
    "A value in a few words."
    if isinstance(value, Tensor) and value.numel() > 8: return f'a tensor {tuple(value.shape)}'
    text = value.name if isinstance(value, Group) else str(value)
    if isinstance(value, Tensor): text = str(value.tolist())
    return text if len(text) < 160 else text[:150] + ' …'


def describe_difference(
    answer:Any,
    right:Any,
)->str:
    "In what respect two answers differ, in general."
    if said := describe_entries(answer, right): return said
    a, r = as_numbers(answer), as_numbers(right)
    if a is None or r is None: return f'It answers {in_words(answer)}.'
    if max(a.numel(), r.numel()) < 2:
        return f'It answers {in_words(answer)}, and right is {in_words(right)}.'
    if a.shape != r.shape:
        return f'Its answer has shape {tuple(a.shape)}, and {tuple(r.shape)} is expected.'
    if not a.isfinite().all(): return 'Its answer holds NaN or infinity.'
    if permutation := find_permutation(a, r): return describe_permutation(*permutation)
    peak = r.abs().argmax()
    ratio = a.flatten()[peak]/r.flatten()[peak]
    if r.flatten()[peak] != 0 and ratio.abs() > 1e-6 and same_answer(a, ratio*r):
        return f'Its answer is {ratio.item():.4g} times the right one.'
    place = tuple(int(i) for i in torch.unravel_index((a - r).abs().argmax(), a.shape))
    return (f'The answers differ most at index {place}: yours is {a[place].item():.4g}, '
            f'ours {r[place].item():.4g}.')


def describe_entries(answer:Any, right:Any)->str:
    "Which entries of a dictionary, or of a list of words, are wrong; '' for anything else."
    words = isinstance(right, list) and as_numbers(right) is None
    if not (isinstance(right, dict) or words): return ''
    if type(answer) is not type(right):
        return f'Expected a {type(right).__name__}, got {in_words(answer)}.'
    if words and len(answer) != len(right):
        return f'Your list has {len(answer)} entries, {len(right)} are expected.'
    if not words and answer.keys() != right.keys():
        return f'Your keys are {in_words([*answer])}, expected are {in_words([*right])}.'
    pairs = [*enumerate(right)] if words else [*right.items()]
    wrong = [repr(k) for k, value in pairs if not same_answer(answer[k], value)]
    rest = '' if len(wrong) == len(right) else ' The rest is right.'
    where = 'entries (counted from 0) ' if words else ''
    return f'Look again at {where}{", ".join(wrong)}.{rest}'


def describe_permutation(axis:int, p:list[int])->str:
    "The same values at other places: the first that moved."
    i = next(i for i, j in enumerate(p) if i != j)
    return (f'The values are right but stand elsewhere: along axis {axis}, element {i} of yours '
            f'agrees with ours at element {p[i]}. Which way does the group move it?')


@dataclass
class Verdict:
    "What became of one exercise, and why."
    id:str
    state:str          # 'passed', 'wrong', 'error', 'unsolved', 'missing', 'stopped', 'by hand'
    marks:int|None     # None until a person has marked it
    of:int
    message:str=''

    def __repr__(self)->str:
        return f'{self.id} {self.state}' + (f': {self.message}' if self.message else '')


def judge(
    e:Exercise,
    answers:list[dict], # of `answer_cases`
    seed:int=0,         # the one the cases came from
)->Verdict:
    "Compare a function's answers with the right ones; where they differ, say what to look at."
    cases = e.cases(seed)
    if problem := without_answer(e, answers, cases): return problem
    values, right = decoded(answers), decoded(e.answers_of(e.right, seed))
    if same_answers(values, right):
        return Verdict(e.id, 'passed', e.marks, e.marks, f'{len(cases)} cases' if cases[0] else '')
    for mistake in e.mistakes:
        if same_answers(values, decoded(e.answers_of(mistake.answer, seed))):
            return e.fails('wrong', mistake.says)
    i = next(i for i in range(len(cases)) if not same_answer(values[i], right[i]))
    where = f'Case {i + 1} of {len(cases)}, {listed_case(cases[i])}: ' if cases[i] else ''
    return e.fails('wrong', where + describe_difference(values[i], right[i]))


def without_answer(e:Exercise, answers:list[dict], cases:list[tuple])->Verdict|None:
    "The verdict if a case has no answer: answers are missing, nothing is written yet, or an error."
    if len(answers) != len(cases):
        return e.fails('stopped', f'{len(answers)} answers came back to {len(cases)} cases.')
    if any('unsolved' in a for a in answers):
        return e.fails('unsolved', f'`{e.name}` is still to be written.')
    for case, a in zip(cases, answers):
        where = f' for {listed_case(case)}' if case else ''
        if 'error' not in a: continue
        return e.fails('error', f'`{e.name}` raises {str(a["error"])[:500]}{where}.')
    return None


def decoded(answers:list[dict])->list:
    "The values of answers; None for an error."
    return [decode(a['value']) if 'value' in a else None for a in answers]


def listed_case(case:tuple)->str:
    "The arguments of a case in words."
    return ', '.join(map(in_words, case))


# --- the check of a notebook

class NotYet(AssertionError):
    "An answer does not pass, where that is an error; the message says what to look at."


@dataclass
class Card:
    "A verdict as a notebook shows it, with hint 1 where no known mistake explains it."
    verdict:Verdict
    known:bool=False # is the message that of a known mistake, and markdown?
    hint:str=''      # markdown

    @property
    def passed(self)->bool:
        "Is the exercise solved?"
        return self.verdict.state == 'passed'

    def __repr__(self)->str:
        hint = f'\nHint 1: {self.hint}' if self.hint else ''
        return f'{self.verdict}{hint}'

    def _repr_markdown_(self)->str:
        v = self.verdict
        sign, head, colour = SIGNS.get(v.state, ('→', 'look at this', '#c77700'))
        text = v.message if self.known else escape_markdown(v.message)
        hint = f'\n\n<details><summary>Hint 1</summary>\n\n{self.hint}\n\n</details>'
        frame = f'border-left: 4px solid {colour}; padding: 0.1em 1em; margin: 0.5em 0'
        line = f'{sign} **{v.id} {head}**' + (f': {text}' if text else '')
        return f'<div style="{frame}">\n\n{line}{hint if self.hint else ""}\n\n</div>'


# state -> sign, words and colour of its card; all others ask to look at something
SIGNS = {'passed': ('✓', 'passed', '#2e7d32'), 'unsolved': ('○', 'your turn', '#777777')}


def escape_markdown(text:str)->str:
    "Text that markdown shows as it is, on one line; what stands between backticks is code already."
    parts = re.split(r'(`[^`]+`)', ' '.join(text.split()))   # at odd places what was found
    parts[::2] = [re.sub(r'([\\`*_\[\]<>$|#&~@])', r'\\\1', part) for part in parts[::2]]
    return ''.join(parts)


# set where a failed check has to be an error: by whoever wants it, by nbdev, pytest and nbgrader
STRICT_WHERE = 'EQTUTOR_STRICT', 'IN_TEST', 'PYTEST_CURRENT_TEST', 'NBGRADER_EXECUTION'


def check(
    id:str,           # of the exercise
    answer:Callable,
    seed:int=0,
    # raise `NotYet` unless it passes; if None, where marks are given: under nbgrader, in tests, or
    # with `EQTUTOR_STRICT` set
    strict:bool|None=None,
)->Card:
    "Try a function on an exercise's cases: a card that says passed, or what to look at."
    e = get_exercise(id)
    if e is None or e.kind == 'proof':
        checked = [e.id for e in all_exercises().values() if e.kind != 'proof']
        raise ValueError(f'no exercise {id!r} with a check. There are {", ".join(checked)}.')
    verdict = try_answer(e, answer, seed)
    if strict is None: strict = any(map(os.environ.get, STRICT_WHERE))
    if strict and verdict.state != 'passed': raise NotYet(repr(verdict))
    known = verdict.message in [mistake.says for mistake in e.mistakes]
    puzzling = not known and verdict.state not in ('passed', 'unsolved')
    return Card(verdict, known, first_hint(id) if puzzling else '')


def try_answer(e:Exercise, answer:Any, seed:int)->Verdict:
    "The verdict on a student's function; what is no function is told so."
    if callable(answer): return judge(e, e.answers_of(answer, seed), seed)
    return e.fails('error', f'expected the function `{e.name}`, got {type(answer).__name__}. '
                            'Pass it without calling it.')
