"Students' notebooks: no line of a solution, nbgrader's metadata; a course that overwrites nothing."
import ast
import json
import re
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from eqtutor.files import results_folder, stored
from eqtutor.tutor.course import course_chapters, package_folder
from eqtutor.tutor.exercise import all_exercises, chapter_exercises
from eqtutor.tutor.seeds import seed_of
from eqtutor.tutor.student import (
    HOW_TO_RUN,
    Copy,
    build,
    cell_mark,
    copy_course,
    first_column,
    open_lab,
    seeded,
    stub,
    student_copy,
)

SOLVED = '''
def _helper(x): return x + 1   # secret one
def double(
    x,       # a number
):           # twice the number
    "Doubles `x`."
    # secret two
    return 2*_helper(x) - 2

class Twice:
    "Doubles."
    secret = 3
    def __init__(self, x):
        self.x = x      # secret four
    def get(self):
        "The double."
        return double(self.x)
'''


def test_a_stub_keeps_heads_and_docstrings_and_nothing_else():
    left = stub(SOLVED, '9.1')
    assert not re.search('secret|return|self.x|2[*]', left) and '# twice the number' in left
    assert left.count('raise NotImplementedError') == 3 and left.count('"Doubles') == 2
    exec(left, space := {})
    with pytest.raises(NotImplementedError, match='your turn: exercise 9.1'): space['double'](1)


def test_a_solution_that_leaves_nothing_to_do_is_refused():
    with pytest.raises(ValueError, match='defines no function'): stub('x = 1', '9.1')
    with pytest.raises(ValueError, match='put it below'): stub('def f(x): return x', '9.1')


def cell(kind, source):
    outputs = {'outputs': [{'text': 'secret'}]} if kind == 'code' else {}
    return {'cell_type': kind, 'source': source, 'metadata': {'x': 'secret'}, **outputs}


def small_notebook():
    "A notebook with a cell of each kind."
    solution = ('#| code-fold: true\n#| solution 1.2\n'
                'def centre(group):\n    "It."\n    return secret')
    task = '> **Exercise 1.1 (proof, 3 marks, 9 minutes, ●○○).** Show it.'
    cells = [cell('code', '#| default_exp x'), cell('markdown', task),
             cell('markdown', '<!-- solution 1.1 -->\nsecret'), cell('code', solution),
             cell('code', "#| check 1.2\ncheck('1.2', centre)"), cell('code', '#| cuda\ntrain()'),
             cell('code', '#| hide\nx = 1'), cell('code', '#| teacher\nsecret()')]
    return {'metadata': {'y': 'secret'}, 'cells': cells}


def test_a_copy_has_the_metadata_of_nbgrader_and_nothing_secret():
    small = student_copy(small_notebook(), '01_groups')
    about = [c['metadata'].get('nbgrader', {}) for c in small['cells']]
    assert 'secret' not in json.dumps(small)
    names = ['task-1-1', 'ex-1-1', 'ex-1-2', 'check-1-2', None, None]
    assert [a.get('grade_id') for a in about] == names
    assert [a.get('points') for a in about[:4]] == [None, 3, None, 3]
    def flagged(flag): return [a[flag] for a in about[:4]]
    assert flagged('grade') == [False, True, False, True]
    assert flagged('solution') == [False, True, True, False]
    assert flagged('locked') == [True, False, False, True]
    assert [c['cell_type'] for c in small['cells'][4:]] == ['markdown', 'code']


def test_a_mark_without_a_record_is_refused():
    nb = {'cells': [cell('code', '#| solution 1.9\ndef f():\n    return 1')]}
    with pytest.raises(ValueError, match='exercise 1.9 .* not registered'): student_copy(nb, 'x')


# --- the whole course

def secrets_of(path):
    "The lines of a chapter's solutions that stand nowhere else in it."
    cells = [(c['cell_type'], ''.join(c['source']))
             for c in json.loads(path.read_text(encoding='utf-8'))['cells']]
    marked = [(kind, re.sub(r'^#\|.*\n', '', source, flags=re.M), cell_mark(source))
              for kind, source in cells if cell_mark(source)]
    solutions = [(kind, source, mark[1]) for kind, source, mark in marked if mark[0] == 'solution']
    stubs = [stub(source, id) for kind, source, id in solutions if kind == 'code']
    elsewhere = '\n'.join([source for _, source in cells if not cell_mark(source)] + stubs)
    # marks, and lines that tell nothing
    plain = r'#\||```|</?details|<!--|return \w+$|for \w+ in (range\([\d, ]+\)|[\w.]+):$'
    lines = [line.strip() for _, source, _ in solutions for line in source.splitlines()]
    return [x for x in lines if len(x) > 8 and x not in elsewhere and not re.match(plain, x)]


@pytest.fixture(scope='module')
def built(tmp_path_factory): return build(tmp_path_factory.mktemp('build'))


def test_the_first_pages_and_all_chapters_with_exercises_are_built(built):
    right = {e.chapter for e in all_exercises().values()}
    assert {f.stem.split('_')[0] for f in built} == right | {'index', '00'}


def test_no_line_of_a_solution_is_left(built):
    for file in built:
        text = file.read_text(encoding='utf-8')
        cells = json.loads(text)['cells']
        text += '\n'.join(''.join(c['source']) for c in cells)
        hidden = secrets_of(course_chapters([file.stem])[file.stem])
        assert hidden or not chapter_exercises(file.stem)
        assert not [line for line in hidden if line in text], file.stem
        assert not any(c.get('outputs') for c in cells)
        assert all(set(c['metadata']) <= {'nbgrader', 'jupyter'} for c in cells)


def test_the_marks_are_those_of_the_records(built):
    for file in built:
        cells = json.loads(file.read_text(encoding='utf-8'))['cells']
        about = [c['metadata']['nbgrader'] for c in cells if 'nbgrader' in c['metadata']]
        points = {a['grade_id']: a.get('points', 0) for a in about}
        asked = chapter_exercises(file.stem)
        assert sum(points.values()) == sum(e.marks for e in asked)
        text = '\n'.join(''.join(c['source']) for c in cells)
        for e in asked:
            assert re.search(rf'\({e.kind}( the picture)?, {e.marks} marks?, ', text), e.id


def test_no_exercise_asks_for_what_the_chapter_shows():
    for name, path in course_chapters().items():
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        code = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
        shown = [source for source in code if not cell_mark(source)]
        for e in chapter_exercises(name):
            if e.kind == 'proof': continue
            assert not any(re.search(rf'^(def|class) {e.name}\b', s, re.M) for s in shown), e.id


def test_no_exercise_asks_for_what_the_package_exports():
    package = package_folder()
    files = [p for p in package.rglob('*.py')
             if p.relative_to(package).parts[0] not in ('tutor', 'grading')]
    texts = [p.read_text(encoding='utf-8') for p in files]
    lists = [m for text in texts for m in re.findall(r'__all__ = \[(.*?)\]', text, re.S)]
    exported = {name for names in lists for name in re.findall(r"'(\w+)'", names)}
    assert 'LiftingConv2d' in exported
    assert not exported & {e.name for e in all_exercises().values()}


# --- the course without cloning

def test_what_its_owner_changed_is_never_overwritten(tmp_path):
    folder = tmp_path/'nbs'/'1_foundations'
    mine, theirs = folder/'05_convolution.ipynb', folder/'01_groups.ipynb'
    first = copy_course(tmp_path, chapters=['01', '05'])
    assert {mine, theirs} <= set(first['written']) and not first['kept']
    mine.write_text('mine')
    before = theirs.read_bytes()
    assert copy_course(tmp_path, chapters=['01', '05'])['kept'] == [mine]
    assert (mine.read_text(), theirs.read_bytes()) == ('mine', before)
    assert copy_course(tmp_path, solutions=True, chapters=['01', '05'])['kept'] == [mine]
    assert mine.read_text() == 'mine' and theirs.read_bytes() != before
    mine.unlink()
    assert not copy_course(tmp_path, chapters=['05'])['kept'] and mine.stat().st_size > 1000


def test_an_unknown_chapter_is_named():
    with pytest.raises(ValueError, match='no chapter 89'): course_chapters(['89'])


def test_a_paper_in_two_is_found_by_each_number(tmp_path, monkeypatch):
    names = '20_attention', '21_attentive', '21b_attentive_networks', '90_notation'
    for name in names: (tmp_path/f'{name}.ipynb').write_text('{}')
    monkeypatch.setattr('eqtutor.tutor.course.course_folder', lambda: tmp_path)
    assert list(course_chapters()) == list(names)
    assert list(course_chapters(['21'])) == ['21_attentive']
    assert list(course_chapters(['21b', '90'])) == ['21b_attentive_networks', '90_notation']


def test_the_whole_course_is_copied_without_a_line_of_a_solution(tmp_path):
    "All chapters for a teacher; for a student all but the two for teachers."
    def notebooks(folder, **options):
        return [p for p in copy_course(folder, **options)['written'] if p.suffix == '.ipynb']
    teacher = notebooks(tmp_path/'teacher', solutions=True)
    student = notebooks(tmp_path/'student')
    assert {p.stem for p in teacher} == set(course_chapters())
    assert {p.stem for p in student} == set(course_chapters()) - {'31_labs', '33_teaching'}
    copies = [json.loads(p.read_text(encoding='utf-8')) for p in student]
    text = '\n'.join(''.join(c['source']) for nb in copies for c in nb['cells'])
    hidden = [line for name, path in course_chapters().items() if chapter_exercises(name)
              for line in secrets_of(path)]
    assert len(hidden) > 50 and not [line for line in hidden if line in text]


def cards_of(nb):
    "Run a notebook's code as a kernel would; what its checks show."
    from execnb.shell import CaptureShell
    shell, cards = CaptureShell(), []
    for c in nb['cells']:
        if c['cell_type'] != 'code': continue
        shell.run(''.join(c['source']))
        assert not shell.exc, ''.join(c['source'])
        if c['metadata'].get('nbgrader', {}).get('grade'): cards.append(str(shell.result))
    return cards


@pytest.mark.parametrize('chapter', ['01_groups', '02_actions'])
def test_run_all_goes_on_behind_an_unsolved_exercise(chapter, students, as_reader):
    checked = [e.id for e in chapter_exercises(chapter) if e.kind != 'proof']
    cards = cards_of(students.empty(chapter))
    # a chapter may ask them in another order than that of their numbers
    assert sorted(card.split()[:2] for card in cards) == [[id, 'unsolved:'] for id in checked]


def test_run_all_passes_every_check_of_a_solved_copy(students, as_reader):
    as_reader.setenv('EQTUTOR_STRICT', '1')
    cards = cards_of(students.solved('01_groups'))
    words = [card.replace(':', ' ').split()[:2] for card in cards]
    assert words == [[f'1.{n}', 'passed'] for n in (2, 3, 4)]


# --- as a student gets it from a wheel

def test_only_nbgrader_s_notebooks_have_its_marks_around_a_solution():
    nb = {'cells': [cell('code', "#| solution 1.2\ndef centre(group):\n    return 1")]}
    def source(how): return ''.join(student_copy(nb, '01_groups', how)['cells'][0]['source'])
    stopped = "raise NotImplementedError('your turn: exercise 1.2')"
    assert source(Copy()) == f'def centre(group):\n    {stopped}'
    assert '### BEGIN SOLUTION' in source(Copy(nbgrader=True))


def test_a_teacher_gets_the_solutions_folded_and_the_outputs():
    nb = {'cells': [cell('code', '#| solution 1.2\ndef centre(group):\n    return 1')]}
    solution, = student_copy(nb, '01_groups', Copy(solutions=True))['cells']
    assert ''.join(solution['source']) == '# Solution 1.2\ndef centre(group):\n    return 1'
    assert solution['metadata'] == {'jupyter': {'source_hidden': True}}
    assert solution['outputs'] == [{'text': 'secret'}]


def test_a_copy_without_outputs_says_how_they_come():
    nb = {'cells': [cell('markdown', '# Groups\n\n> Tables.'), cell('code', 'plot()')]}
    first, _ = student_copy(nb, '01_groups')['cells']
    assert ''.join(first['source']) == f'# Groups\n\n> Tables.\n\n{HOW_TO_RUN}'
    stored, _ = student_copy(nb, '01_groups', Copy(solutions=True))['cells']
    nothing_to_run, = student_copy({'cells': nb['cells'][:1]}, '01_groups')['cells']
    for text in stored, nothing_to_run: assert HOW_TO_RUN not in ''.join(text['source'])


def requirements(*extras):
    "The names of what an installation with these extras brings."
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(Path(__file__).parents[2]/'settings.ini', encoding='utf-8')
    lists = ['requirements', *(f'{extra}_requirements' for extra in extras)]
    words = [Requirement(word) for name in lists for word in config['DEFAULT'][name].split()]
    inside = [requirements(*r.extras) for r in words if r.name == 'eqtutor']
    return {r.name for r in words if r.name != 'eqtutor'}.union(*inside)


IMPORTED_AS = {'scikit-learn': 'sklearn', 'pillow': 'PIL'}
COME_ALONG = {'IPython', 'PIL', 'ipykernel', 'nbformat', 'typing_extensions', 'click'}


def imported(source):
    "The packages that a cell imports."
    tree = ast.parse(re.sub(r'^\s*[%!].*', '', source, flags=re.M))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import): yield from (a.name.split('.')[0] for a in node.names)
        if isinstance(node, ast.ImportFrom) and node.module: yield node.module.split('.')[0]


def test_what_a_student_s_notebooks_import_comes_with_the_extra(tmp_path):
    "`pip install 'eqtutor[lab]'` is enough; without the extra it would not be."
    brought = {IMPORTED_AS.get(name, name) for name in requirements('lab')} | COME_ALONG
    standard = {*sys.stdlib_module_names, 'eqtutor'}
    missing = {}
    for p in copy_course(tmp_path)['written']:
        if p.suffix != '.ipynb': continue
        cells = json.loads(p.read_text(encoding='utf-8'))['cells']
        sources = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
        names = {name for s in sources for name in imported(s)} - standard
        if left := names - brought: missing[p.stem] = left
    assert not missing
    assert 'fastcore' in requirements('lab') - requirements()


def test_jupyter_opens_the_first_page_with_the_arguments(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr('subprocess.call', lambda command: called.append(command) or 0)
    copy_course(tmp_path, chapters=['index'])
    assert open_lab(tmp_path, ['--allow-root']) == 0
    assert called[0][-3:] == ['--LabApp.default_url=/lab/tree/nbs/index.ipynb', '--allow-root',
                              str(tmp_path)]


def test_without_jupyter_one_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install 'eqtutor\[lab\]'"): open_lab(tmp_path)


def test_with_a_list_of_the_class_each_student_s_checks_draw_other_numbers(tmp_path):
    table = tmp_path/'class.csv'
    table.write_text('name,group\nann,1\nben,1\n../eve,2\n')
    names = first_column(table)
    files = build(tmp_path/'out', ['01'], names, seed=7)
    assert [p.parent.name for p in files] == ['ann', 'ben', '_eve']
    seeds = {p.parent.name: {*re.findall(r'check\(.*, seed=(\d+)\)', p.read_text())}
             for p in files}
    assert [len(own) for own in seeds.values()] == [1]*3
    assert len(set.union(*seeds.values())) == 3
    checks = [c for c in json.loads(files[0].read_text())['cells']
              if c['metadata'].get('nbgrader', {}).get('grade_id', '').startswith('check-')]
    assert checks and all('seed=' in ''.join(c['source']) for c in checks)
    assert seeds['ann'] == {str(seed_of('ann/01_groups', 7))}   # those that `grade` puts


def test_every_check_of_the_course_takes_a_seed(built):
    copies = [seeded(json.loads(p.read_text(encoding='utf-8')), 5) for p in built]
    cells = [c for nb in copies for c in nb['cells']]
    checks = [''.join(c['source']) for c in cells
              if c['metadata'].get('nbgrader', {}).get('grade_id', '').startswith('check-')]
    assert len(checks) > 40 and [c for c in checks if 'seed=5)' not in c] == []


def test_the_copied_course_finds_its_results(tmp_path, monkeypatch):
    "What `eqtutor lab` laid beside the chapters: records, and weights with their checksums."
    copy_course(tmp_path, chapters=['26', '30'])
    monkeypatch.chdir(tmp_path/'nbs'/'3_papers')
    assert stored('beyond-training') and stored('beyond-accuracy')
    assert results_folder().samefile(tmp_path/'results')
    assert (tmp_path/'results'/'weights'/'SHA256SUMS').is_file()
