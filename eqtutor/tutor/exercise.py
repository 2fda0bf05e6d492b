"""Exercises: what is asked, how answers are compared, and the card that says what to look at."""
# Plain module: edited by hand, no notebook exports it.
import builtins
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .comparing import same_answers
from .course import chapter_of, course_chapters, exercise_order
from .diagnoses import (
    NOTHING,
    advice,
    changed_argument,
    describe_difference,
    diagnose,
    listed_case,
)
from .relations import is_slip
from .values import answer_cases, decode


def one_case(seed:int)->list[tuple]:
    """The cases of an exercise without arguments: one, and it is empty.

    It cannot depend on the seed: a prediction is a value that is found on paper, before any number
    is drawn.
    """
    return [()]


@dataclass
class Mistake:
    "A wrong answer that people really give, and the sentence that helps."
    answer:Any # a function of the case; of a prediction the value itself
    says:str   # what the student reads, as markdown
    worth:float=0 # marks, where it is one slip in an answer that has all else


@dataclass
class Exercise:
    "One exercise: its marks and, unless it is a proof, right answer, cases, known mistakes."
    id:str     # '5.3' is the third of chapter 05
    kind:str   # 'proof', 'code' or 'predict'
    marks:int
    right:Any=None                              # a function; of a prediction the value itself
    cases:Callable[[int], list[tuple]]=one_case # arguments drawn from a seed
    # how a case is put to the function `fn`: it runs beside the student's code, so it only calls
    call:str='fn(*case)'
    mistakes:list[Mistake]=field(default_factory=list)
    name:str=''                                 # of the student's function; `right`'s if empty
    # what is asked, where `measure` gives a list of facts: one each, '' for what only mistakes need
    facts:tuple[str, ...]=()
    # what is looked at in a value, given the case: by the judge, of the data that came back
    measure:Callable[[Any, tuple], Any]|None=None

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
        return self.answers_to(answer, self.cases(seed))

    def answers_to(self,
        answer:Any,         # a function, or a prediction's value
        cases:list[tuple],
    )->list[dict]:
        "What an answer says to these cases, as plain data."
        fn = answer if callable(answer) else lambda: answer
        return answer_cases(fn, self.call, cases)

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
        if not source.startswith(f'> **Exercise {id} '): continue
        hint = re.search(r'<summary>Hint 1</summary>(.*?)</details>', source, re.S)
        return hint[1].strip() if hint else ''
    return ''


# --- a verdict that teaches

@dataclass
class Verdict:
    """What became of one exercise, and why.

    Its state is 'passed', 'slip' (right but for a sign, a factor or a summand: half the marks),
    'wrong', 'error', 'unsolved', 'missing', 'stopped', or 'by hand', where a person has to look.
    """
    id:str          # '5.3'
    state:str
    marks:float|None # None until a person has marked it
    of:int          # marks at most
    message:str=''  # the sentence that teaches

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
    if said := changed_argument(e, answers, cases): return e.fails('wrong', said)
    raw, right_raw = decoded(answers), decoded(e.answers_of(e.right, seed))
    right = measured(e, right_raw, cases)
    try:
        values = measured(e, raw, cases)
    except Exception as error:   # it is of another kind than what is asked
        said = advice(e, f'{type(error).__name__}: {error}')
        return e.fails('wrong', describe_difference(raw[0], right_raw[0], tells=False) + said)
    if same_answers(values, right):
        return Verdict(e.id, 'passed', e.marks, e.marks, f'{len(cases)} cases' if cases[0] else '')
    for mistake in e.mistakes:
        theirs = measured(e, decoded(e.answers_of(mistake.answer, seed)), cases)
        if same_answers(values, theirs):
            return replace(e.fails('wrong', mistake.says), marks=mistake.worth)
    said = diagnose(e, values, right, seed)
    if e.facts or not cases[0] or not is_slip(values, right): return e.fails('wrong', said)
    return Verdict(e.id, 'slip', e.marks/2, e.marks, said)


def without_answer(e:Exercise, answers:list[dict], cases:list[tuple])->Verdict|None:
    "The verdict if a case has no answer: answers are missing, nothing is written yet, or an error."
    if len(answers) != len(cases):
        return e.fails('stopped', f'{len(answers)} answers came back to {len(cases)} cases.')
    if any('unsolved' in a for a in answers):
        return e.fails('unsolved', f'`{e.name}` is still to be written.')
    if any('value' in a and gives_nothing(e, a['value']) for a in answers):
        return e.fails('wrong', NOTHING.format(e.name))
    for case, a in zip(cases, answers):
        where = f' for {listed_case(e, case)}' if case else ''
        if 'error' not in a: continue
        said = str(a['error'])[:500]
        return e.fails('error', f'`{e.name}` raises {said}{where}.{advice(e, said)}')
    return None


def gives_nothing(e:Exercise, value:Any)->bool:
    "Is a value, or one of those of several calls, the function's own, and None?"
    if '[fn(' in e.call: return isinstance(value, list) and None in value
    return value is None and not e.call.endswith(')(case[0])')   # not that of what it returned


def decoded(answers:list[dict])->list:
    "The values of answers; None for an error."
    return [decode(a['value']) if 'value' in a else None for a in answers]


def measured(e:Exercise, values:list, cases:list[tuple])->list:
    "What the exercise looks at in each value: the value itself, unless it says otherwise."
    if e.measure is None: return values
    return [e.measure(value, case) for value, case in zip(values, cases)]


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
        return without_formulas(f'{self.verdict}{hint}')

    def _repr_markdown_(self)->str:
        v = self.verdict
        sign, head, colour = SIGNS.get(v.state, ('→', 'look at this', '#c77700'))
        text = v.message if self.known else escape_markdown(v.message)
        hint = f'\n\n<details><summary>Hint 1</summary>\n\n{self.hint}\n\n</details>'
        frame = f'border-left: 4px solid {colour}; padding: 0.1em 1em; margin: 0.5em 0'
        line = f'{sign} **{v.id} {head}**' + (f': {text}' if text else '')
        return f'<div style="{frame}">\n\n{line}{hint if self.hint else ""}\n\n</div>'


# state -> sign, words and colour of its card; all others ask to look at something
SIGNS = {'passed': ('✓', 'passed', '#2e7d32'), 'slip': ('½', 'nearly', '#c77700'),
         'unsolved': ('○', 'your turn', '#777777')}


def escape_markdown(text:str)->str:
    "Text that markdown shows as it is, on one line; what stands between backticks is code already."
    parts = re.split(r'(`[^`]+`)', ' '.join(text.split()))   # at odd places what was found
    parts[::2] = [re.sub(r'([\\`*_\[\]<>$|#&~@])', r'\\\1', part) for part in parts[::2]]
    return ''.join(parts)


LETTERS = {'cdot': '·', 'bmod': ' mod ', 'to': '→', 'pi': 'π', 'Omega': 'Ω', 'psi': 'ψ',
           'beta': 'β', 'alpha': 'α', 'rho': 'ρ', 'Delta': 'Δ', 'le': '≤', 'ge': '≥', 'ne': '≠',
           'in': '∈', 'sum': 'Σ', 'circ': '∘', 'mathcal L': '𝓛', 'tilde g': 'g̃',
           'tilde h': 'h̃', 'hat h': 'ĥ'}
RAISED = str.maketrans('0123456789+-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻')


def without_formulas(
    text:str, # markdown
)->str:
    "A text for where formulas are not set: `$g^{-1}\\bmod3$` as `g⁻¹ mod 3`."
    def plain(formula:re.Match)->str:
        said = formula[1]
        for command in sorted(LETTERS, key=len, reverse=True):
            end = '' if ' ' in command else '(?![a-zA-Z])'
            said = re.sub(rf'\\{command}{end} ?', LETTERS[command], said)
        said = re.sub(r'\\text\{([^}]*)\}|\\[,;! ]', r'\1', said)
        said = re.sub(r'\^(?:\{([+-]?\d+)\}|(\d))',
                      lambda m: (m[1] or m[2]).translate(RAISED), said)
        return re.sub(r'([_^])\{(.)\}', r'\1\2', said).replace('{', '(').replace('}', ')')
    return re.sub(r'\$([^$\n]+)\$', plain, text)


# set where a failed check has to be an error: by whoever wants it, by nbdev, pytest and nbgrader
STRICT_WHERE = 'EQTUTOR_STRICT', 'IN_TEST', 'PYTEST_CURRENT_TEST', 'NBGRADER_EXECUTION'


def check(
    id:str,
    answer:Callable,
    seed:int=0,
    strict:bool|None=None,
)->Card:
    """Try a function on an exercise's cases: a card that says passed, or what to look at.

    Parameters
    ----------
    id : str
        of the exercise
    answer : Callable
    seed : int, default 0
    strict : bool | None, default None
        raise `NotYet` unless it passes; if None, where marks are given: under nbgrader,
        in tests, or with `EQTUTOR_STRICT` set
    """
    e = get_exercise(id)
    if e is None or e.kind == 'proof':
        checked = [e.id for e in all_exercises().values() if e.kind != 'proof']
        raise ValueError(f'no exercise {id!r} with a check. There are {", ".join(checked)}.')
    verdict = try_answer(e, answer, seed)
    if strict is None: strict = any(map(os.environ.get, STRICT_WHERE))
    if strict and verdict.state != 'passed': raise NotYet(without_formulas(repr(verdict)))
    known = verdict.message in [mistake.says for mistake in e.mistakes]
    puzzling = not known and verdict.state not in ('passed', 'unsolved')
    card = Card(verdict, known, first_hint(id) if puzzling else '')
    if is_a_script(): print(card)   # nobody else would show it
    return card


def is_a_script()->bool:
    "Does Python run a file, in which what a call returns is not shown?"
    return not hasattr(sys, 'ps1') and not hasattr(builtins, '__IPYTHON__')


def try_answer(e:Exercise, answer:Any, seed:int)->Verdict:
    "The verdict on a student's function; what is no function is told so."
    if callable(answer): return judge(e, e.answers_of(answer, seed), seed)
    return e.fails('error', f'expected the function `{e.name}`, got {type(answer).__name__}. '
                            'Pass it without calling it.')
