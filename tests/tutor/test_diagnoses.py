"What the check says of answers that are no known mistake: natural ones, and that none misfires."
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from eqtutor.actions import act
from eqtutor.groups import Group
from eqtutor.tutor.diagnoses import listed_case, only_unsorted
from eqtutor.tutor.exercise import (
    STRICT_WHERE,
    all_exercises,
    check,
    first_hint,
    get_exercise,
    judge,
    without_formulas,
)

CODE = [e for e in all_exercises().values() if e.kind == 'code']


def right(id): return get_exercise(id).right


def changed(id, change):
    "The right function with something done to its answer."
    return lambda *case: change(right(id)(*case))


def said(id, answer):
    "The check's message."
    verdict = check(id, answer, strict=False).verdict
    assert verdict.state in ('wrong', 'error', 'slip')
    return verdict.message


def in_place(x, top, left, size, value):
    x[:] = right('10.2')(x, top, left, size, value)
    return x


def emptied(n, layers):
    is_exact = right('2.4')(n, layers)
    layers.clear()
    return is_exact


def conjugates(group, n): return [group.mul[group.mul[g, n], group.inv[g]] for g in group.elements]


def by_the_quarter(x, w, group):
    "Right for turns: a mirror is taken for one."
    kernels = [w.rot90(h*4//len(group), (-2, -1)).flip((-2, -1)) for h in group.elements]
    return torch.stack([F.conv2d(x, kernel, padding=1) for kernel in kernels], 2)


def around(x, w, group):
    kernels = [act(group, h, w).flip((-2, -1)) for h in group.elements]
    return torch.stack([F.conv2d(F.pad(x, [1]*4, 'circular'), k) for k in kernels], 2)


def group_for_its_name(f, group):
    return lambda x: sum(act(group, int(group.inv[h]), f(act(group, h, x)))
                         for h in group.elements)/len(group)


DIRECTIONS = torch.tensor([1, 1j, -1, -1j]).view(4, 1, 1)
NATURAL = [
    # nothing, or what is no answer
    ('1.2', lambda group: print(), 'returns nothing (`None`)'),
    ('4.2', lambda f, group: lambda x: None, 'Is a `return` missing?'),
    ('1.2', lambda group: (h for h in group.elements), 'Make a list of it'),
    ('13.2', lambda f: f.amax, 'You return a function'),
    ('2.4', changed('2.4', str), 'a text, \'False\', and True or False is expected'),
    ('1.2', changed('1.2', len), 'one number, and 4 of them are expected'),
    ('1.4', changed('1.4', lambda n: [n]), 'one number is expected'),
    ('10.2', in_place, 'changes its argument `x` in place'),
    ('2.4', emptied, 'changes its argument `layers` in place'),
    # errors
    ('1.2', lambda: [0], 'Keep the arguments'),
    ('1.2', lambda group: [h for h in group.elements if group.mul[h] == group.mul[:, h]],
     'ask for one truth value'),
    ('4.2', group_for_its_name, 'A group may come as its name'),
    ('5.4', lambda x, w, group: F.conv2d(x, w.float()), 'Numbers come as float64'),
    ('6.3', lambda f: f.softmax(2)*DIRECTIONS.flatten(), 'Write the shapes down'),
    ('6.3', lambda f: (f*DIRECTIONS).softmax(2), 'in which order are the steps?'),
    ('12.2', lambda t: torch.cos(t), 'a function of tensors'),
    ('15.2', lambda o, s, tol=0: o[s >= s.max(0) - tol].mean(0), 'take `.values`, or `amax`'),
    ('26.1', lambda n: [[1, 0, 0], [0, 1, 0], [0, 0, 1]], 'You have a list there'),
    ('21b.2', lambda *sizes: {}[sizes[-1]], 'Which keys'),
    ('24b.1', lambda C, n, s, r: 1/(C*n - 1 - s/r), 'is the divisor 0?'),
    ('26b.1', lambda layer, f, x, h: f(x)[0, 9], 'How many axes are there'),
    # lists
    ('1.2', changed('1.2', lambda v: v[1:]), 'All that it lists is right, and one is missing'),
    ('25.5', changed('25.5', lambda v: [*v, 99]), 'all that is right, and one is too many'),
    ('1.2', changed('1.2', lambda v: v[::-1]), 'not in the order asked'),
    ('25.5', lambda group, n: sorted({*conjugates(group, n)}), 'In a set no two tensors are equal'),
    ('1.2', changed('1.2', lambda v: [h + 1 for h in v]), 'too large by 1 everywhere'),
    # shapes
    ('5.4', changed('5.4', lambda y: y.transpose(0, 2)), 'look at axes 0, 2'),
    ('20.1', changed('20.1', lambda y: y.T), 'look at axes 0, 1'),
    ('21.1', changed('21.1', lambda y: y[None]), 'look at the axes of size 1'),
    ('5.4', changed('5.4', lambda y: y.flatten(1, 2)), 'the shape is (2, 10, 7, 6) where'),
    ('5.4', changed('5.4', lambda y: y.transpose(1, 2).flatten(1, 2)), 'axes in another order'),
    ('23.2', changed('23.2', lambda y: y.mean(1)), 'the mean of the right answer over axis 1'),
    ('5.4', changed('5.4', lambda y: y[0]), 'the first element of the right answer over axis 0'),
    ('6.3', lambda f: f.softmax(2)*DIRECTIONS, 'over axis 2, its sum is right'),
    ('23.2', changed('23.2', lambda y: y[..., 1:-1, 1:-1]), 'a border of 1 is missing'),
    ('5.4', changed('5.4', lambda y: F.pad(y, [1]*4)), 'a border of 1 too much'),
    ('6.3', changed('6.3', torch.view_as_real), 'as pairs of real numbers'),
    ('20.1', changed('20.1', lambda y: (y, 2*y)), 'The answer is the one at place 0'),
    ('13.2', lambda f: f.flatten(3).max(3), 'Its answer, 2 tensors, has shape'),
    # values
    ('14.2', changed('14.2', torch.zeros_like), '0 everywhere'),
    ('5.4', changed('5.4', lambda y: -y), 'but for the sign'),
    ('6.3', changed('6.3', lambda y: y/4), '1/4 times the right one'),
    ('22.6', changed('22.6', lambda y: y.flip((1, 2))), 'turned by 180°'),
    ('21.1', changed('21.1', lambda y: y[:, :1].expand_as(y)), 'all elements of yours agree'),
    ('7.2', changed('7.2', lambda v: [c[::-1] for c in v]), 'Yours runs backwards'),
    ('5.4', changed('5.4', torch.relu), 'a ReLU too much'),
    ('21.1', changed('21.1', torch.logit), 'The sigmoid is missing'),
    ('6.3', changed('6.3', torch.angle), 'It is the angle'),
    ('6.3', lambda f: f.mean(2), 'complex ones are expected'),
    ('10.2', changed('10.2', torch.Tensor.long), 'rounded to whole ones'),
    ('22.6', changed('22.6', torch.Tensor.half), 'agrees in about three digits'),
    ('10.2', changed('10.2', lambda y: y < 0), 'True and False, a mask'),
    ('5.4', around, 'The middle is right and the border is wrong'),
    ('10.2', lambda x, *c: torch.cat([right('10.2')(x, *c)[:, :1], x[:, 1:]], 1),
     'Along axis 1 only element 0 is right'),
    ('5.4', changed('5.4', lambda y: y*torch.arange(2., 2 + y.shape[-3])[:, None, None].to(y)),
     'it is a multiple of the right'),
    # numbers
    ('2.4', changed('2.4', lambda b: not b), 'True and False are exchanged'),
    ('1.4', lambda n, m: 1, 'the same answer to all cases, 1'),
    ('23b.2', lambda *c: right('23b.2')(*c) - .6, 'take the next larger whole number'),
    ('11.2', lambda *c: 2*right('11.2')(*c), 'is 2 times the right one'),
    ('11.2', lambda *c: right('11.2')(*c)//c[1], 'is 1/`out_channels` times the right one'),
    ('22b.1', lambda c, n, k: right('22b.1')(c, n, k) - 2*c*k*k, 'too small by 2·`c`·`k`²'),
    ('14.2', lambda w, n: right('14.2')(w, n)*n, 'is `poses` times the right one'),
    ('1.4', lambda n, m: min(n, m), 'Wherever it is wrong it is too large'),
    ('21b.2', lambda *c: right('21b.2')(*c) + 5*(c[-1] == 'rotation'),
     'and wrong where it is rotation'),
    # other arguments
    ('5.4', by_the_quarter, 'right for all groups of turns alone, and for no group with mirrors'),
    ('20.1', lambda f, q, k, *c: right('20.1')(f, k, q, *c), 'as if `Wq` and `Wk` were exchanged'),
    ('20.1', lambda f, q, k, v, *c: right('20.1')(f, q, k, v.T, *c), '`Wv` were transposed'),
    ('22.2', lambda f, psi, beta: right('22.2')(f, psi, 0*beta), 'place of `beta`. Is it used?'),
    ('22.2', lambda f, psi, beta: right('22.2')(f, psi.flip((1, 2)), beta), '`psi` were turned by'),
    ('23.2', lambda *c: right('23.2')(*c[:6], c[6] + 1), '`reach` were larger by 1: off by one'),
    ('24.2', lambda f, K, V, group, N1, N2: right('24.2')(f, K, V, group, N1[1:], N2),
     'the first entry of `N1` were left out'),
    # facts
    ('26.1', lambda n: torch.eye(3, dtype=torch.float64)[[1, 0, 2]], 'does not hold: a negative'),
    ('21.5', lambda alpha, *c: 2*alpha, 'does not hold: Φf stays as it is')]


@pytest.mark.parametrize('id, answer, words', NATURAL)
def test_a_natural_mistake_is_named(id, answer, words): assert words in said(id, answer)


def test_a_product_on_the_wrong_side_is_named():
    e = get_exercise('7.2')
    answers = e.answers_of(lambda group, h: right('7.2')(Group('', group.matrices.mT), h))
    assert 'multiply on the right' in judge(e, answers).message   # a known mistake goes first
    unknown = judge(replace(e, mistakes=[]), answers).message
    assert 'as if each product gh of the group were hg' in unknown


# --- none of them misfires

GENERIC = re.compile(r'(differ most at index|, and right is) ')


@pytest.mark.parametrize('id', ['5.4', '6.3', '10.2', '13.2', '20.1', '21.1', '22.2'])
def test_noise_gets_no_diagnosis(id):
    def noisy(*case):
        y = right(id)(*case)
        return y + torch.rand(y.shape, generator=torch.Generator().manual_seed(y.numel()))
    assert GENERIC.search(said(id, noisy))


ODD = [None, '', [], {}, [[1, 2], [3]], [None], True, 1j, float('nan'), 10**400, torch.empty(0),
       torch.full((2, 3), torch.nan), torch.ones(1, 1, 1, 1), torch.tensor([True, False]),
       torch.ones(2, dtype=torch.complex64), [torch.ones(2), 'x'], {'a': torch.ones(2)},
       (torch.ones(3), torch.ones(2)), torch.arange(8).view(2, 2, 2)]


@pytest.mark.parametrize('e', CODE, ids=lambda e: e.id)
def test_an_odd_answer_costs_no_more_than_its_marks(e):
    for odd in ODD:
        verdict = judge(replace(e, mistakes=[]), e.answers_of(lambda *case, odd=odd: odd))
        assert verdict.state in ('wrong', 'error', 'slip') and verdict.message


OTHER_WAYS = [
    ('1.2', changed('1.2', set)), ('1.2', changed('1.2', torch.tensor)),
    ('7.2', changed('7.2', lambda v: {tuple(c) for c in v})), ('11.2', changed('11.2', float)),
    ('2.4', changed('2.4', torch.tensor)), ('5.4', changed('5.4', lambda y: y.tolist())),
    ('14.2', changed('14.2', torch.Tensor.float)), ('20.1', changed('20.1', list)),
    ('12.2', changed('12.2', torch.tensor)),
    ('21.1', changed('21.1', lambda y: y.requires_grad_())),
    ('13.2', changed('13.2', torch.Tensor.numpy)), ('6.3', changed('6.3', lambda y: y.cfloat()))]


@pytest.mark.parametrize('id, answer', OTHER_WAYS)
def test_a_right_answer_of_another_kind_passes(id, answer):
    assert check(id, answer, strict=True).passed


def test_a_prediction_is_not_told():
    for e in (e for e in all_exercises().values() if e.kind == 'predict' and not callable(e.right)):
        for m in e.mistakes:
            message = judge(replace(e, mistakes=[]), e.answers_of(m.answer)).message
            assert 'right is' not in message and 'ours' not in message


def swapped(value):
    "The value with each sorted list in reverse order."
    if isinstance(value, dict): return {k: swapped(v) for k, v in value.items()}
    if value and isinstance(value[0], list): return [swapped(v) for v in value]
    return value[::-1]

def test_right_values_that_are_not_sorted_are_told_so():
    assert 'not sorted' in said('6.1', lambda: swapped(right('6.1')))
    assert only_unsorted([[2, 1], True], [[1, 2], True]) and not only_unsorted([3, 1], [1, 3])

def test_capitals_and_spaces_are_no_mistake():
    worded = [e for e in all_exercises().values() if isinstance(e.right, str)]
    assert worded
    for e in worded:
        assert judge(e, e.answers_of(e.right.capitalize() + ' ')).state == 'passed', e.id
        assert judge(e, e.answers_of(e.right + ' not')).state == 'wrong', e.id

def test_the_arguments_of_a_case_have_their_names():
    "Wherever the function has them."
    def often(n, group): return n*n//len(group) + 1
    assert re.match(r'Case \d+ of 30, n = \d+, group = \w+: ', said('2.2', often))
    case = 1, Group('C1', torch.eye(2)[None])
    assert listed_case(get_exercise('2.2'), case) == 'n = 1, group = C1'

SPOKEN = [(e.id, text) for e in all_exercises().values()
          for text in [first_hint(e.id), *(m.says for m in e.mistakes)]]

def test_no_formula_is_left_raw_in_plain_text():
    raw = [(id, plain) for id, text in SPOKEN
           if set(plain := without_formulas(text)) & {'$', '\\'}]
    assert raw == [] and any('$' in text for _, text in SPOKEN)

def test_a_formula_in_plain_text():
    assert without_formulas(r'As $(n-4)\bmod3$, $k\tilde hh^{-1}$, $2\cdot\text{padding}$.') == (
        'As (n-4) mod 3, kh̃h⁻¹, 2·padding.')

SCRIPT = 'from eqtutor.tutor import check\ncheck("1.2", lambda group: [0, 1, 99])\n'

def test_a_script_prints_what_check_says(tmp_path):
    (tmp_path/'mine.py').write_text(SCRIPT)
    env = {k: v for k, v in os.environ.items() if k not in STRICT_WHERE}
    done = subprocess.run([sys.executable, tmp_path/'mine.py'], env=env, cwd=tmp_path, text=True,
                          capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith('1.2 '), done.stderr
