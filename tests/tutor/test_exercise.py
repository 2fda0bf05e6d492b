"Exercises: ids, records, comparing answers, and the card."
import ast
import base64
import importlib.machinery
import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from eqtutor import tutor
from eqtutor.groups import D
from eqtutor.tutor.comparing import same_answer
from eqtutor.tutor.course import chapter_of, course_chapters, exercise_order
from eqtutor.tutor.diagnoses import UNSORTED
from eqtutor.tutor.exercise import (
    Exercise,
    Mistake,
    NotYet,
    all_exercises,
    chapter_exercises,
    check,
    first_hint,
    get_exercise,
    judge,
)
from eqtutor.tutor.relations import find_permutation
from eqtutor.tutor.student import student_copy
from eqtutor.tutor.values import decode, encode

FOLDER = Path(tutor.__file__).parent
EXERCISES = all_exercises()
CHECKED = [e for e in EXERCISES.values() if e.kind != 'proof']
CHAPTERS = sorted({e.chapter for e in EXERCISES.values()})


# --- ids

@pytest.mark.parametrize('name, chapter', [
    ('5.3', '05'), ('05', '05'), ('05_convolution', '05'), ('24b.1', '24b'), ('90.2', '90'),
    ('21_attentive', '21'), ('21b_attentive_networks', '21b'), ('index', ''), ('05xy_z', ''),
    ('../05', ''), ('9'*5000 + '.1', '')])
def test_the_chapter_of_a_name(name, chapter): assert chapter_of(name) == chapter


def test_exercises_are_sorted_by_chapter_letter_and_number():
    ids = ['90.1', '24b.2', '24.10', '5.3', '24b.1', '25.1', '24.9']
    right = ['5.3', '24.9', '24.10', '24b.1', '24b.2', '25.1', '90.1']
    assert sorted(ids, key=exercise_order) == right
    with pytest.raises(ValueError, match='expected something like'): exercise_order('24bc.1')


def test_a_file_holds_the_exercises_of_its_chapter_in_order():
    for file in (FOLDER/'answers').glob('ch*.py'):
        found = chapter_exercises(file.stem.removeprefix('ch'))
        assert found and all(f'ch{e.chapter}' == file.stem for e in found)
        numbers = [int(e.id.split('.')[1]) for e in found]   # one that went leaves a gap
        assert numbers == sorted({*numbers})
    assert len(EXERCISES) == sum(len(chapter_exercises(c)) for c in CHAPTERS)


@pytest.fixture
def chapter_24b(monkeypatch):
    "A chapter whose number has a letter, with one exercise."
    place = 'eqtutor.tutor.answers.ch24b'
    module = types.ModuleType(place)
    module.__spec__ = importlib.machinery.ModuleSpec(place, None)
    def double(x): return 2*x
    def twice_doubled(x): return 4*x
    module.EXERCISES = [Exercise('24b.1', 'code', 2, double, lambda seed: [(seed + 1,)],
                                 mistakes=[Mistake(twice_doubled, 'Once will do.')])]
    monkeypatch.setitem(sys.modules, place, module)


def cell(kind, source):
    code = {'outputs': [], 'execution_count': None} if kind == 'code' else {}
    return {'cell_type': kind, 'source': source, 'metadata': {}, **code}


def test_an_id_with_a_letter_works_from_notebook_to_card(chapter_24b):
    assert [e.id for e in chapter_exercises('24b_e4_networks')] == ['24b.1']
    task = '> **Exercise 24b.1 (code, 2 marks, 5 minutes, ●○○).** Double it.'
    solution = '#| solution 24b.1\ndef double(x):\n    return 2*x'
    author = {'cells': [cell('markdown', task), cell('code', solution),
                        cell('code', "#| check 24b.1\ncheck('24b.1', double)")]}
    nb = student_copy(author, '24b_e4_networks')
    marked = [c['metadata']['nbgrader']['grade_id'] for c in nb['cells']]
    assert marked == ['task-24b-1', 'ex-24b-1', 'check-24b-1']
    assert check('24b.1', lambda x: 4*x, strict=False).verdict.message == 'Once will do.'


def test_an_id_with_a_letter_is_graded(students, tmp_path):
    name = '24b_e4_networks'
    first, *_ = students.graded(students.solved(name), tmp_path)['parts']
    assert (first['id'], first['state']) == ('24b.1', 'passed')
    first, *_ = students.graded(students.empty(name), tmp_path)['parts']
    assert (first['id'], first['state']) == ('24b.1', 'unsolved')


# --- records

@pytest.mark.parametrize('e', CHECKED, ids=lambda e: e.id)
@pytest.mark.parametrize('seed', [0, 1])
def test_the_right_answer_passes_and_each_mistake_gets_its_message(e, seed):
    verdict = judge(e, e.answers_of(e.right, seed), seed)
    assert (verdict.state, verdict.marks) == ('passed', e.marks)
    for mistake in e.mistakes:
        verdict = judge(e, e.answers_of(mistake.answer, seed), seed)
        assert (verdict.state, verdict.marks, verdict.message) == (
            'wrong', mistake.worth, mistake.says)
        assert mistake.worth < e.marks and mistake.worth*2 == int(mistake.worth*2)
    assert len(e.mistakes) >= 3


@pytest.mark.parametrize('chapter', CHAPTERS)
def test_a_chapter_asks_for_a_proof_a_function_and_a_prediction(chapter):
    "The second half of a paper, as 24b, asks for what suits it."
    found, all_kinds = chapter_exercises(chapter), {'proof', 'code', 'predict'}
    kinds = {e.kind for e in found}
    assert kinds <= all_kinds and 1 <= len(found) <= 6
    if chapter.isdigit(): assert kinds == all_kinds


@pytest.mark.parametrize('chapter', CHAPTERS)
def test_the_author_s_solutions_pass(chapter, students):
    name = next(name for name in course_chapters() if chapter_of(name) == chapter)
    sources = students.solutions(name)
    names = vars(__import__('eqtutor.grading.prelude', fromlist=['torch']))
    for e in chapter_exercises(chapter):
        assert e.id in sources, f'{name} has no solution of {e.id}'
        if e.kind == 'proof': continue
        space = dict(names)
        exec(sources[e.id], space)
        assert check(e.id, space[e.name], seed=3, strict=True).passed


@pytest.mark.parametrize('e', EXERCISES.values(), ids=lambda e: e.id)
def test_a_chapter_gives_a_hint(e): assert len(first_hint(e.id)) > 5


def test_no_function_is_nameless_or_underscored():
    for file in FOLDER.rglob('*.py'):
        tree = ast.parse(file.read_text(encoding='utf-8'))
        names = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        assert not [n for n in names if re.fullmatch('_[^_].*|_', n) and n != '_repr_markdown_']


# --- who imports what

def test_importing_the_tutor_reads_no_answers():
    script = ('import sys; from eqtutor.tutor import check; '
              'print([m for m in sys.modules if "tutor.answers" in m])')
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, env=env)
    assert (done.stdout, done.returncode) == ('[]\n', 0), done.stderr


def imported(file):
    "The modules that a file imports, wherever it does."
    nodes = list(ast.walk(ast.parse(file.read_text(encoding='utf-8'))))
    plain = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    of = [n for n in nodes if isinstance(n, ast.ImportFrom)]
    return plain | {'.'*n.level + (n.module or a.name) for n in of for a in n.names}


def test_no_module_imports_the_answers():
    for file in FOLDER.glob('*.py'): assert not [m for m in imported(file) if 'answers' in m]
    assert any('exercise' in m for m in imported(FOLDER/'answers'/'ch05.py'))   # it does see them


# --- nothing that the student's process computes is believed

DECIDES = {'allclose', 'equal', 'isclose', 'abs', 'max', 'min', 'norm', 'all', 'any', 'bool',
           'float', 'std'}


def decided(call):
    "What an expression computes of a value, beyond putting cases to the function."
    nodes = [*ast.walk(ast.parse(call.strip()))]
    names = {getattr(n.func, 'attr', getattr(n.func, 'id', '')) for n in nodes
             if isinstance(n, ast.Call)}
    return names & DECIDES or {type(n).__name__ for n in nodes
                               if isinstance(n, ast.Compare | ast.BoolOp | ast.IfExp)}


def test_what_runs_beside_the_student_s_code_compares_nothing():
    assert [e.id for e in all_exercises().values() if decided(e.call)] == []
    assert decided('bool(fn(*case))') and decided('fn(*case) < 1') and decided('fn(*case).abs()')


# --- plain data

@pytest.mark.parametrize('value', [3, 'é', None, [1, [2.5, True]], {'a': [1]}, {2: 'b'},
                                   {(1, (2,)): 3}])
def test_plain_values_come_back(value):
    assert decode(json.loads(json.dumps(encode(value)))) == value


def test_sequences_groups_and_numpy_numbers_come_back_as_plain_ones():
    assert decode(encode((1, 2))) == [1, 2] and decode(encode({3, 1})) == [1, 3]
    assert decode(encode(D(3))) == D(3)
    numbers = {np.int64(2): [np.float64(.5), np.True_]}
    assert decode(encode(numbers)) == {2: [.5, True]}


@pytest.mark.parametrize('x', [torch.randn(2, 0, 3), torch.tensor(2j), torch.arange(3),
                               torch.tensor([True])])
def test_tensors_come_back(x):
    y = decode(encode(x))
    assert torch.equal(y, x) and y.dtype == x.dtype


def test_tensors_with_lazy_signs_half_the_bits_or_no_dense_storage_come_back():
    half = torch.ones(1, dtype=torch.bfloat16)
    unusual = torch.tensor([1 + 2j]).conj().imag, half, torch.eye(1).to_sparse()
    for x in unusual: assert torch.equal(decode(encode(x)).double(), x.to_dense().double())


class Evil:
    "An object that runs a command when it is unpickled."
    def __reduce__(self): return os.system, ('true',)


def test_no_object_travels():
    with pytest.raises(TypeError, match='not of object'): encode(object())
    np.save(file := io.BytesIO(), np.array([Evil()], dtype=object), allow_pickle=True)
    pickled = {'npy': base64.b64encode(file.getvalue()).decode()}
    with pytest.raises(ValueError, match='allow_pickle=False'): decode(pickled)


# --- comparing

@pytest.mark.parametrize('answer, right', [
    (torch.tensor([1., 2.]), [1, 2]), (['a', [1, 2]], ['a', [1, 2]]), ({'a': [1]}, {'a': [1]}),
    ([], []), ([torch.tensor([0, 2]), torch.tensor([1, 3])], [[0, 2], [1, 3]]),
    ([torch.tensor([0, 2]), torch.tensor([1])], [[0, 2], [1]])])
def test_equal_answers(answer, right): assert same_answer(answer, right)


@pytest.mark.parametrize('answer, right', [
    ([1, 2], [[1, 2]]), ([1, 2], [1, 3]), ('a', 1), (float('nan'), 1.), (['a'], ['b']),
    ({'a': 1}, {'b': 1}), (10**400, 3)])
def test_other_answers(answer, right): assert not same_answer(answer, right)


def test_a_permutation_is_found():
    right = torch.randn(2, 4, 3)
    assert find_permutation(right[:, [0, 3, 2, 1]], right) == (1, [0, 3, 2, 1])
    assert find_permutation(torch.randn(2, 4, 3), right) is None


def general(answer):
    "What is said of an answer to 5.4 that is no known mistake."
    right = get_exercise('5.4').right
    def fn(x, w, group): return answer(right(x, w, group))
    return check('5.4', fn, strict=False).verdict.message


@pytest.mark.parametrize('answer, says', [
    (lambda y: 3*y, '3 times the right one'), (lambda y: y[:, 1:3], 'has shape'),
    (lambda y: y[:, :, :1], 'the first element of the right answer over axis 2'),
    (lambda y: y*float('nan'), 'NaN'), (lambda y: y.flip(1), 'Which way does the group move it'),
    (lambda y: y + (y == y.max()), 'differ most at index'), (lambda y: 'a', 'It answers a')])
def test_what_is_no_known_mistake_is_described(answer, says): assert says in general(answer)


WORDS, NAMED = ['a', 'b', 'c'], {'x': True, 'y': [1, 2]}


@pytest.mark.parametrize('right, answer, says', [
    (WORDS, ['a', 'c', 'b'], 'Look again at entries (counted from 0) 1, 2. The rest is right.'),
    (WORDS, ['c', 'a', 'b'], 'Look again at entries (counted from 0) 0, 1, 2.'),
    (WORDS, ['a', 'b'], 'All that it lists is right, and one is missing.'),
    (WORDS, ['a', 'x'], 'Your list has 2 entries, 3 are expected.'),
    (WORDS, 'abc', 'Expected a list, got abc.'),
    (WORDS, None, '`guess` returns nothing (`None`). Does it end in `return …`? What is printed is '
     'no answer.'),
    (NAMED, {'x': False, 'y': [1, 2]}, "Look again at 'x'. The rest is right."),
    (NAMED, {'x': True, 'y': [3, 1]}, "Look again at 'y'. The rest is right."),
    (NAMED, {'x': True, 'y': [2, 1]}, UNSORTED),
    (NAMED, {'x': True}, "Your keys are ['x'], expected are ['x', 'y']."),
    (NAMED, [True], 'Expected a dict, got [True].')])
def test_a_prediction_hears_which_entries_are_wrong_and_not_what_is_right(right, answer, says):
    e = Exercise('1.3', 'predict', 2, name='guess', right=right)
    assert judge(e, e.answers_of(answer)).message == says


# --- the card

def centre_of_abelian(group): return list(group.elements)


def test_a_reader_gets_a_card_and_no_error(as_reader):
    right = check('1.2', get_exercise('1.2').right)
    assert right.passed and repr(right) == '1.2 passed: 7 cases'
    assert '✓ **1.2 passed**: 7 cases' in right._repr_markdown_()
    wrong = check('1.2', centre_of_abelian)
    assert not wrong.passed and not wrong.hint
    assert 'look at this**: You ask for *some* other element' in wrong._repr_markdown_()


def test_what_no_mistake_explains_gets_the_first_hint(as_reader):
    def broken(group): return group.nothing
    for answer in (broken, 3, lambda group: [7]):
        card = check('1.2', answer)
        assert 'Compare `mul` with its transpose.' in card._repr_markdown_()
        assert repr(card).endswith('\nHint 1: Compare `mul` with its transpose.')


def test_an_unsolved_exercise_is_one_s_turn(as_reader):
    def centre(group): raise NotImplementedError
    card = check('1.2', centre)
    assert '○ **1.2 your turn**: `centre` is still to be written.' in card._repr_markdown_()
    assert not card.hint


def test_what_a_student_s_code_says_is_shown_as_it_is(as_reader):
    def centre(group): raise ValueError('<b>*2* $x$\n# [a](b)')
    shown = check('1.2', centre)._repr_markdown_()
    assert r'\<b\>\*2\* \$x\$ \# \[a\](b)' in shown and '<b>' not in shown


def test_tuple_keys_are_an_answer_like_others(as_reader):
    assert check('20.3', lambda: {('mask', 'no encoding'): True}).verdict.state == 'wrong'


@pytest.mark.parametrize('name', ['EQTUTOR_STRICT', 'IN_TEST', 'NBGRADER_EXECUTION'])
def test_a_failed_check_is_an_error_where_marks_are_given_and_in_tests(as_reader, name):
    as_reader.setenv(name, '1')
    with pytest.raises(NotYet, match='1.2 wrong: You ask for'): check('1.2', centre_of_abelian)
    assert not check('1.2', centre_of_abelian, strict=False).passed


def test_an_unsolved_exercise_is_an_error_where_marks_are_given(as_reader):
    def centre(group): raise NotImplementedError
    as_reader.setenv('NBGRADER_EXECUTION', 'validate')
    with pytest.raises(NotYet, match='1.2 unsolved'): check('1.2', centre)


def test_a_failed_check_is_an_error_under_pytest():
    with pytest.raises(NotYet, match='1.2 wrong'): check('1.2', centre_of_abelian)


def test_a_failed_check_is_an_error_if_asked_for(as_reader):
    with pytest.raises(NotYet, match='1.2 wrong'): check('1.2', centre_of_abelian, strict=True)


def test_a_check_that_is_not_there_is_an_error(as_reader):
    for id in ('1.1', '1.9', 'x', '77.1'):
        with pytest.raises(ValueError, match=r'no exercise .* There are 1\.2, 1\.3'):
            check(id, print)


ALL, CENTRAL = 'list(group.elements)', '(group.mul == group.mul.T).all(1).nonzero().flatten()'


@pytest.mark.parametrize('answer, passes', [(ALL, False), (CENTRAL, True)])
def test_a_failed_check_fails_the_test_of_a_notebook(as_reader, tmp_path, answer, passes):
    from nbdev.test import test_nb
    code = f'from eqtutor.tutor import check\ndef centre(group): return {answer}\n'
    code += "check('1.2', centre)"
    about = {'kernelspec': {'name': 'python3', 'display_name': 'Python 3', 'language': 'python'}}
    nb = {'cells': [cell('code', code)], 'metadata': about, 'nbformat': 4, 'nbformat_minor': 5}
    (file := tmp_path/'x.ipynb').write_text(json.dumps(nb))
    as_reader.setenv('IN_TEST', '')   # set by nbdev itself, and taken back after the test
    assert test_nb(file, showerr=False)[0] == passes
