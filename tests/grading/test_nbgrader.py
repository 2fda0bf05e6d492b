"Students' notebooks in nbgrader's own hands: release, validate, autograde, feedback."
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from eqtutor.tutor.exercise import chapter_exercises
from eqtutor.tutor.student import build

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec('nbgrader'),
                       reason='nbgrader is not installed (pip install eqtutor[grading])'),
    pytest.mark.timeout(900)]
CHAPTER = '90_notation'   # runs in seconds, and has a proof, a prediction and code
CONFIG = '''c = get_config()
c.CourseDirectory.course_id = 'equivariance'
c.ExecutePreprocessor.timeout = 300
'''
STUDENTS = 'ann', 'bob', 'eve'
# set by a test, and not where a teacher grades
OF_TESTS = 'PYTEST_CURRENT_TEST', 'IN_TEST', 'EQTUTOR_STRICT'


def nbgrader(course, *args):
    env = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    env |= {'EQTUTOR_STATIC': '1', 'OMP_NUM_THREADS': '1',
            'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, '-m', 'nbgrader', *args], cwd=course, env=env,
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope='module', autouse=True)
def tools():
    "nbgrader calls `alembic` by its name."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
        yield


@pytest.fixture(scope='module')
def course(tmp_path_factory, students):
    "A course folder in which nbgrader has released the chapter, and three have handed it in."
    folder = tmp_path_factory.mktemp('course')
    (folder/'nbgrader_config.py').write_text(CONFIG)
    build(folder/'source', [CHAPTER])
    code, said = nbgrader(folder, 'generate_assignment', CHAPTER, '--create')
    assert code == 0, said
    released = json.loads((folder/'release'/CHAPTER/f'{CHAPTER}.ipynb').read_text(encoding='utf-8'))
    right = students.solutions(CHAPTER)
    wrong = right | {'90.2': right['90.2'].replace('D(n).mul[n*m, r]', 'D(n).mul[r, n*m]')}
    assert wrong != right
    for student, answers in zip(STUDENTS, (right, {}, wrong)):
        target = folder/'submitted'/student/CHAPTER
        target.mkdir(parents=True)
        handed_in = json.dumps(students.solve(released, answers))
        (target/f'{CHAPTER}.ipynb').write_text(handed_in)
    return folder


def test_the_release_keeps_heads_and_marks(course):
    file = course/'release'/CHAPTER/f'{CHAPTER}.ipynb'
    cells = json.loads(file.read_text(encoding='utf-8'))['cells']
    about = {c['metadata']['nbgrader']['grade_id']: c for c in cells if 'nbgrader' in c['metadata']}
    source = ''.join(about['ex-90-2']['source'])
    assert 'def translation(' in source and '"Entry `n*m + r`' in source
    assert 'raise NotImplementedError' in source and 'mul[n*m' not in source
    points = sum(c['metadata']['nbgrader'].get('points', 0) for c in about.values())
    assert points == sum(e.marks for e in chapter_exercises(CHAPTER))


@pytest.mark.parametrize('student, passes', [('ann', True), ('bob', False), ('eve', False)])
def test_validate(course, student, passes):
    code, said = nbgrader(course, 'validate', f'submitted/{student}/{CHAPTER}/{CHAPTER}.ipynb')
    assert ('Success' in said) == passes and ('VALIDATION FAILED' in said) != passes, said
    # the message reaches the student
    if student == 'eve': assert 'you multiply turn · mirror' in said, said


def grades(book, student):
    "Automatic marks, and whether a person is asked, by the cell."
    notebooks = book.find_submission(CHAPTER, student).notebooks
    return {g.name: (g.auto_score, g.needs_manual_grade) for n in notebooks for g in n.grades}


def test_autograde_and_feedback(course):
    code, said = nbgrader(course, 'autograde', CHAPTER)
    assert code == 0, said
    code, said = nbgrader(course, 'generate_feedback', CHAPTER)
    pages = [course/'feedback'/student/CHAPTER/f'{CHAPTER}.html' for student in STUDENTS]
    assert code == 0 and all(page.exists() for page in pages), said
    from nbgrader.api import Gradebook
    with Gradebook(f'sqlite:///{course}/gradebook.db') as book:
        found = {student: grades(book, student) for student in STUDENTS}
    marks = {s: [found[s][f'check-90-{i}'][0] for i in (1, 2)] for s in STUDENTS}
    assert marks == {'ann': [2, 3], 'bob': [0, 0], 'eve': [2, 0]}
    # a proof waits for a person; an empty one does not
    assert found['ann']['ex-90-3'][1] and not found['bob']['ex-90-3'][1]


# --- a whole chapter of each part

WHOLE = ['05_convolution', '12_training', '24_e4', '54_plot', '90_notation']


@pytest.mark.slow
@pytest.mark.parametrize('chapter', WHOLE)
def test_the_author_s_answers_get_all_marks(chapter, students, tmp_path):
    "Released, handed in with the solutions, run from top to bottom by nbgrader, and marked."
    (tmp_path/'nbgrader_config.py').write_text(CONFIG)
    build(tmp_path/'source', [chapter])
    code, said = nbgrader(tmp_path, 'generate_assignment', chapter, '--create')
    assert code == 0, said
    released = (tmp_path/'release'/chapter/f'{chapter}.ipynb').read_text(encoding='utf-8')
    target = tmp_path/'submitted'/'ann'/chapter
    target.mkdir(parents=True)
    solved = students.solve(json.loads(released), students.solutions(chapter))
    (target/f'{chapter}.ipynb').write_text(json.dumps(solved))
    code, said = nbgrader(tmp_path, 'autograde', chapter)
    assert code == 0, said
    from nbgrader.api import Gradebook
    with Gradebook(f'sqlite:///{tmp_path}/gradebook.db') as book:
        [notebook] = book.find_submission(chapter, 'ann').notebooks
        found = {g.name: (g.auto_score, g.needs_manual_grade) for g in notebook.grades}
    for e in chapter_exercises(chapter):
        place = e.id.replace('.', '-')
        if e.kind == 'proof': assert found[f'ex-{place}'][1]
        else: assert found[f'check-{place}'] == (e.marks, False)
