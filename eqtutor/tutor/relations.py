"""How a wrong answer is related to the right one: each relation is a sentence, '' if it fails."""
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from .comparing import as_numbers, in_words, same_answer

# --- slips

def is_slip(
    answers:list, # one a case, all of them
    right:list,
)->bool:
    "Are answers right but for a sign, one factor or one summand, the same in all cases?"
    pairs = [(as_numbers(a), as_numbers(r)) for a, r in zip(answers, right)]
    if any(a is None or r is None or a.shape != r.shape for a, r in pairs): return False
    a, r = (torch.cat([x.flatten() for x in xs]) for xs in zip(*pairs))   # type: ignore[arg-type]
    # a few numbers are related by chance
    if r.numel() < 4 or len({*r.tolist()}) < 2: return False
    if any(of_truth(x) for x in (*answers, *right)): return False
    return bool(a.isfinite().all()) and any(of(a, r) for of in (has_multiple, has_summand))


def has_multiple(a:Tensor, r:Tensor)->bool:
    "Is the answer a multiple of the right one?"
    return ratio_of(a, r) is not None


def has_summand(a:Tensor, r:Tensor)->bool:
    "Is the answer the right one and a number?"
    return any(constant_too_large(a, r))


def of_truth(x:Any)->bool:
    "Is a value True or False, or a tensor or list of these?"
    if isinstance(x, Tensor): return x.dtype == torch.bool
    return isinstance(x, bool) or isinstance(x, list) and any(map(of_truth, x))


# --- lists of whole numbers: elements of a group, places

def list_relation(a:Any, r:Any)->str:
    "Two lists as collections: order, repetitions, what is missing or does not belong."
    got, expected = as_entries(a), as_entries(r)
    if not (isinstance(r, list) and len(expected) == len({*expected})): return ''
    if not got and isinstance(a, list):
        return f'Its answer has shape (0,), and ({len(r)},) is expected.'
    if not got: return ''
    if {*got} <= {'True', 'False'} and [i for i, x in enumerate(got) if x == 'True'] == r:
        return 'These are truth values. Asked are the places at which they are True.'
    if sorted(got) == sorted(expected): return 'Its entries are right, but not in the order asked.'
    extra, missing = {*got} - {*expected}, {*expected} - {*got}
    if not extra and not missing:
        says = 'It lists entries more than once.'
        of_tensors = isinstance(a, list) and any(isinstance(x, Tensor) for x in a)
        return says + ' In a set no two tensors are equal: take `int(…)`.'*of_tensors
    if len(got) > len({*got}): return ''
    if not extra: return f'All that it lists is right, and {how_many(missing)} missing.'
    if not missing: return f'It lists all that is right, and {how_many(extra)} too many.'
    return ''


def as_entries(values:Any)->list[str]:
    "The entries of a list as text, by which they are compared; none of what is no list."
    if isinstance(values, Tensor): values = values.tolist()
    if not isinstance(values, list): return []
    return [str(v.tolist() if isinstance(v, Tensor) else v) for v in values]


def how_many(entries:set)->str:
    "Their number, with a verb."
    return 'one is' if len(entries) == 1 else f'{len(entries)} are'


# --- tensors of another shape

Relation = Callable[[Tensor, Tensor], Iterator[str]]   # of an answer and the right one


def axes_in_another_order(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the right one with its axes permuted?"
    if a.dim() != r.dim() or not 2 <= r.dim() <= 6 or sorted(a.shape) != sorted(r.shape): return
    for p in permutations(range(r.dim())):
        moved = [str(i) for i, j in enumerate(p) if i != j]
        if not moved or a.shape != r.permute(p).shape or not same_answer(a, r.permute(p)): continue
        yield (f'Its values are right, but its axes are in another order: look at axes '
               f'{", ".join(moved)}.')


def axes_of_size_1(a:Tensor, r:Tensor)->Iterator[str]:
    "Are there too many axes of size 1, or too few?"
    if a.shape != r.shape and same_answer(a.squeeze(), r.squeeze()):
        yield (f'Its values are right, but its shape is {tuple(a.shape)} where {tuple(r.shape)} is '
               'expected: look at the axes of size 1.')


REDUCTIONS:dict[str, Callable[[Tensor, int], Tensor]] = {
    'mean': lambda x, axis: x.mean(axis), 'sum': lambda x, axis: x.sum(axis),
    'maximum': lambda x, axis: (x if x.is_complex() else x.amax(axis)),
    'first element': lambda x, axis: x.select(axis, 0)}


def an_axis_too_many_or_few(a:Tensor, r:Tensor)->Iterator[str]:
    "Is one the sum, the mean or the maximum of the other, over one axis?"
    for long, short, says in (
            (a, r, 'It has an axis too many: over axis {1}, its {0} is right.'),
            (r, a, 'It is the {0} of the right answer over axis {1}, which should stay.')):
        if short.numel() in (0, long.numel()): continue
        for axis, name in product(range(long.dim()), REDUCTIONS):
            if same_answer(REDUCTIONS[name](long, axis).squeeze(), short.squeeze()):
                yield says.format(name, axis)


def border(a:Tensor, r:Tensor)->Iterator[str]:
    "Is one the other without its border?"
    if min(a.dim(), r.dim()) < 2 or a.shape[:-2] != r.shape[:-2]: return
    small, large = sorted((a, r), key=lambda x: x.shape[-1])
    p = (large.shape[-1] - small.shape[-1])//2
    if p < 1 or not same_answer(small, large[..., p:-p, p:-p]): return
    if small is a: yield f'The middle is right; a border of {p} is missing. Look at the padding.'
    else: yield f'The middle is right; there is a border of {p} too much. Look at the padding.'


def only_the_shape(a:Tensor, r:Tensor)->Iterator[str]:
    "Are the values the same, with axes merged or split?"
    if a.shape == r.shape or a.numel() != r.numel() or r.dim() > 6: return
    for p in permutations(range(r.dim())):
        if not same_answer(a.flatten(), r.permute(p).flatten()): continue
        order = '' if p == (*range(r.dim()),) else ', and their axes in another order'
        yield (f'Its values are right; the shape is {tuple(a.shape)} where {tuple(r.shape)} is '
               f'expected{order}.')
        return


def pairs_of_reals(a:Tensor, r:Tensor)->Iterator[str]:
    "Are complex numbers answered as two real ones?"
    if r.is_complex() and not a.is_complex() and a.shape[-1:] == (2,):
        if same_answer(torch.view_as_complex(a.contiguous()), r):
            yield 'Its values are right, as pairs of real numbers where complex ones are expected.'


# --- tensors of the same shape

def all_the_same(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the same number everywhere?"
    value = a.flatten()[0]
    if same_answer(a, value.expand_as(a)) and not same_answer(r, r.flatten()[0].expand_as(r)):
        yield f'Its answer is {in_words_of(complex(value))} everywhere.'


def not_finite(a:Tensor, r:Tensor)->Iterator[str]:
    "Does the answer hold what is no number?"
    if not a.isfinite().all(): yield 'Its answer holds NaN or infinity.'


def multiple(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer a multiple of the right one?"
    ratio = ratio_of(a, r)
    if ratio == -1: yield 'Its answer is right but for the sign.'
    elif ratio is not None: yield f'Its answer is {in_words_of(ratio)} times the right one.'


def multiple_along(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer a multiple along an axis, by factors that change along the others?"
    if a.is_complex() or r.is_complex(): return
    for axis, n in enumerate(r.shape):
        factor = (a*r).sum(axis, keepdim=True)/(r*r).sum(axis, keepdim=True)
        if n > 1 and factor.abs().min() > 1e-6 and same_answer(a, factor*r):
            yield (f'Along axis {axis} it is a multiple of the right answer, with other factors at '
                   'other places. Is a division missing, or one too much?')


def ratio_of(a:Tensor, r:Tensor)->complex|None:
    "The number by which the right answer is multiplied, if there is one."
    if a.shape != r.shape or not r.numel() or not a.isfinite().all(): return None
    peak = r.abs().argmax()
    if r.flatten()[peak] == 0: return None
    ratio = a.flatten()[peak]/r.flatten()[peak]
    if ratio.abs() < 1e-6 or not same_answer(a, ratio*r): return None
    z = complex(ratio)
    return complex(round(z.real, 9), round(z.imag, 9))


def in_words_of(z:complex)->str:
    "A number with four digits, or one part of a whole."
    if z.imag: return f'{z:.4g}'
    parts = round(1/z.real) if 0 < abs(z.real) < 1 else 0
    return f'1/{parts}' if parts and abs(z.real*parts - 1) < 1e-6 else f'{z.real:.4g}'


def constant_too_large(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the right one and a number?"
    by = (a - r).flatten()[0]
    if by.abs() < 1e-6 or not same_answer(a - by, r): return
    more = 'too large' if by.real > 0 else 'too small'
    yield f'Its answer is {more} by {in_words_of(complex(by.abs()))} everywhere.'


def elementwise(x:Tensor)->Iterator[tuple[str, Tensor]]:
    "What is easily forgotten, or done once too often, by its name."
    if x.is_complex():
        yield 'complex conjugation', x.conj().resolve_conj()
        return
    yield 'sigmoid', x.sigmoid()
    yield 'ReLU', x.relu()
    yield 'tanh', x.tanh()
    yield 'exponential', x.exp()
    yield 'square', x**2
    yield 'reciprocal', 1/x
    yield 'absolute value', x.abs()
    for axis in range(x.dim()): yield f'softmax over axis {axis}', x.softmax(axis)
    for axis in range(x.dim()):
        yield f'division by the sum over axis {axis}', x/x.sum(axis, keepdim=True)


def a_function_missing(a:Tensor, r:Tensor)->Iterator[str]:
    "Does a sigmoid, a softmax, a root, … lie between the two?"
    if a.is_complex() != r.is_complex(): return
    for name, b in elementwise(a):
        if not same_answer(a, b) and same_answer(b, r): yield f'The {name} is missing at the end.'
    for name, b in elementwise(r):
        if not same_answer(r, b) and same_answer(a, b): yield f'There is a {name} too much.'


def a_part(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the real part of a complex one, its angle, …?"
    if a.is_complex() or not r.is_complex(): return
    parts = {'real part': r.real, 'imaginary part': r.imag, 'absolute value': r.abs(),
             'angle': r.angle()}
    for name, part in parts.items():
        if same_answer(a, part): yield f'It is the {name} of the right answer.'
    yield 'Its numbers are real, and complex ones are expected.'


def cut_to_whole_numbers(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer rounded, or are few of its digits right?"
    if a.is_complex() or r.is_complex() or same_answer(r, r.round()): return
    if any(same_answer(a, b) for b in (r.round(), r.trunc(), r.floor(), r.ceil())):
        yield 'Its numbers are rounded to whole ones. Look at a dtype, `int`, or `//`.'
    if (a - r).abs().max() < 2e-3*r.abs().max():
        yield 'Nearly right: it agrees in about three digits. Something is rounded on the way.'


def turned(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the right one, turned or mirrored in its last two axes?"
    if r.dim() < 2: return
    for k, words in ((1, '90° counter-clockwise'), (2, '180°'), (3, '90° clockwise')):
        if (b := r.rot90(k, (-2, -1))).shape == a.shape and same_answer(a, b):
            yield f'Its answer is the right one turned by {words} in the last two axes.'


def permutation(a:Tensor, r:Tensor)->Iterator[str]:
    "Is the answer the right one with the entries along an axis permuted?"
    if found := find_permutation(a, r): yield describe_permutation(*found)


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


def describe_permutation(axis:int, p:list[int])->str:
    "The same values at other places: the first that moved."
    i = next(i for i, j in enumerate(p) if i != j)
    says = (f'The values are right but stand elsewhere: along axis {axis}, element {i} of yours '
            f'agrees with ours at element {p[i]}.')
    if len({*p}) == 1:
        return f'Along axis {axis} all elements of yours agree with ours at element {p[0]}.'
    if len({*p}) < len(p): return f'{says} Some of ours occur more than once.'
    if p == [*range(len(p))][::-1]: says += ' Yours runs backwards.'
    return f'{says} Which way does the group move it?'


def right_inside(a:Tensor, r:Tensor)->Iterator[str]:
    "Is only the border wrong, in the last two axes?"
    if r.dim() < 2 or r.shape[-1] == r.shape[-2]: return   # may be two axes of poses
    for p in (1, 2, 3):
        if min(r.shape[-2:]) > 2*p + 1 and same_answer(a[..., p:-p, p:-p], r[..., p:-p, p:-p]):
            yield ('The middle is right and the border is wrong. What do you take for the pixels '
                   'beyond it?')


def right_along_an_axis(a:Tensor, r:Tensor)->Iterator[str]:
    "Are some entries along an axis right, and the others wrong?"
    scale = 1e-7 + 1e-5*r.abs().max()
    for axis, n in enumerate(r.shape):
        wrong = ((a - r).abs() > scale).movedim(axis, 0).reshape(n, -1).any(1)
        if wrong.all() or not wrong.any(): continue
        for mask, word in ((~wrong, 'right'), (wrong, 'wrong')):
            yield f'Along axis {axis} only {listed(mask)} {word}. What is different there?'


def listed(mask:Tensor)->str:
    "Where a mask is True: 'element 3 is', 'elements 1, 2 are'."
    places = [str(i) for i in mask.nonzero().flatten().tolist()]
    return f'elements {", ".join(places)} are' if len(places) > 1 else f'element {places[0]} is'


# --- all of them

# what is said of them names a case's own numbers: it may differ from case to case
OF_A_CASE = axes_of_size_1, only_the_shape, border, multiple, constant_too_large, permutation
OF_SHAPES = (axes_in_another_order, axes_of_size_1, an_axis_too_many_or_few, border,
             only_the_shape, pairs_of_reals)
OF_VALUES = (not_finite, all_the_same, multiple, axes_in_another_order, turned, permutation,
             constant_too_large, a_function_missing, a_part, cut_to_whole_numbers)
OF_PLACES = right_inside, right_along_an_axis, multiple_along   # where, and not why


def relation(
    pairs:list[tuple[Any, Any]], # answers and what is right, of cases that differ
)->str:
    "The first relation that holds for all; its sentence for the first pair."
    said = [list_relation(a, r) for a, r in pairs]
    if all(said): return said[0]
    return (a_pair_returned(pairs) or first_to_hold(pairs, OF_SHAPES, OF_VALUES)
            or truth_values(pairs))


def first_to_hold(
    pairs:list[tuple[Any, Any]],
    of_shapes:tuple[Relation, ...], # if a shape is another than asked
    of_values:tuple[Relation, ...], # if none is
)->str:
    "The sentence of the first relation that holds for all pairs of numbers."
    numbers = [(as_numbers(a), as_numbers(r)) for a, r in pairs]
    told = [(a, r) for a, r in numbers if a is not None and r is not None]
    if len(told) < len(pairs) or not all(a.numel() and r.numel() for a, r in told): return ''
    # a few numbers are related by chance
    if max(r.numel() for _, r in told) < 2: return ''
    if len({x for _, r in told for x in r.flatten().tolist()}) < 3: return ''
    for holds in of_values if all(a.shape == r.shape for a, r in told) else of_shapes:
        said = [sentences(holds, a, r) for a, r in told]
        common = [s for s in said[0] if all(s in others for others in said)]
        if common: return common[0]
        if holds in OF_A_CASE and all(said): return said[0][0]
    return ''


def sentences(holds:Relation, a:Tensor, r:Tensor)->list[str]:
    "What a relation says; nothing where torch does not have it for such numbers or shapes."
    try:
        return [*holds(a, r)]
    except (RuntimeError, IndexError):
        return []


def truth_values(pairs:list[tuple[Any, Any]])->str:
    "Are numbers expected and truth values answered?"
    def are_truth(x:Any)->bool: return isinstance(x, Tensor) and x.dtype == torch.bool
    if not all(are_truth(a) and not are_truth(r) for a, r in pairs): return ''
    return 'It answers with True and False, a mask, where numbers are expected.'


def where_it_is_right(pairs:list[tuple[Any, Any]])->str:
    "The places at which all answers are right, if there are such."
    return first_to_hold(pairs, (), OF_PLACES)


def a_pair_returned(pairs:list[tuple[Any, Any]])->str:
    "Is the answer one of several things that are returned together?"
    several = all(isinstance(a, list) and len(a) > 1 for a, _ in pairs)
    for i in range(3 if several else 0):
        if all(i < len(a) and same_answer(a[i], r) for a, r in pairs):
            return (f'It returns {len(pairs[0][0])} things. The answer is the one at place {i} '
                    'alone.')
    return ''


# --- one answer and the right one

def describe_difference(
    answer:Any,
    right:Any,
    tells:bool=True, # what is right
)->str:
    "In what respect two answers differ, in general."
    if answer is None: return 'It answers None. Is a `return` missing?'
    if said := describe_entries(answer, right): return said
    a, r = as_numbers(answer), as_numbers(right)
    if a is None or r is None:
        text = isinstance(answer, str) and not isinstance(right, str)
        shown = f'a text, {in_words(answer)!r}' if text else in_words(answer)
        return f'It answers {shown}{kind_of(right)}.'
    if said := describe_shapes(answer, a, r): return said
    if max(a.numel(), r.numel()) < 2:
        return f'It answers {in_words(answer)}' + (f', and right is {in_words(right)}.' if tells
                                                   else '.')
    if not a.isfinite().all(): return 'Its answer holds NaN or infinity.'
    if not tells: return 'Look again at ' + wrong_entries(a, r)
    place = tuple(int(i) for i in torch.unravel_index((a - r).abs().argmax(), a.shape))
    return (f'The answers differ most at index {place}: yours is {a[place].item():.4g}, '
            f'ours {r[place].item():.4g}.')


def describe_shapes(answer:Any, a:Tensor, r:Tensor)->str:
    "What is said of an answer, as a tensor `a`, of another shape than the right one."
    if a.shape == r.shape: return ''
    if not a.dim():
        return f'It answers one number, and {"×".join(map(str, r.shape))} of them are expected.'
    if not r.dim(): return f'It answers {in_words(answer)}, and one number is expected.'
    several = isinstance(answer, list) and any(isinstance(x, Tensor) for x in answer)
    what = f'Its answer, {len(answer)} tensors,' if several else 'Its answer'
    return f'{what} has shape {tuple(a.shape)}, and {tuple(r.shape)} is expected.'


def wrong_entries(a:Tensor, r:Tensor)->str:
    "The places at which two tensors differ."
    wrong = (a - r).abs() > 1e-5*r.abs().max()
    places = [str(p[0] if len(p) == 1 else tuple(p)) for p in wrong.nonzero().tolist()]
    return (f'entries (counted from 0) {", ".join(places)}.'
            + ('' if wrong.all() else ' The rest is right.'))


def kind_of(right:Any)->str:
    "What is expected in the place of what is no number, in a few words."
    if isinstance(right, bool): return ', and True or False is expected'
    if isinstance(right, Tensor) and right.dim(): return ', and a tensor is expected'
    if as_numbers(right) is None: return ''
    return ', and a list of numbers is expected' if isinstance(right, list) else (
        ', and a number is expected')


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
