"Students' notebooks in nbgrader's own hands: release, validate, autograde, feedback, on a real course folder."
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from eqtutor.labs import build, chapter_exercises, course_chapters

pytestmark = [pytest.mark.skipif(not importlib.util.find_spec('nbgrader'), reason='nbgrader is not installed (pip install eqtutor[nbgrader])'),
              pytest.mark.timeout(900)]
CHAPTER = '00_notation'   # runs in seconds, and has a proof, a prediction and code


def solutions(name):
    "The author's solutions by exercise, code and proofs."
    cells = [''.join(c['source']) for c in json.loads(course_chapters([name])[name].read_text(encoding='utf-8'))['cells']]
    found = {m[1]: s for s in cells if (m := re.search(r'^(?:#\||<!--) solution (\d+\.\d+)', s, re.M))}
    return {id: re.sub(r'^#\|.*\n', '', s, flags=re.M) for id, s in found.items()}


def filled(path, answers):
    "The notebook at `path` with these sources in the cells of the answers."
    nb = json.loads(path.read_text(encoding='utf-8'))
    for c in nb['cells']:
        name = c['metadata'].get('nbgrader', {}).get('grade_id', '')
        if name.startswith('ex-') and (new := answers.get(name[3:].replace('-', '.'))): c['source'] = new
    return json.dumps(nb)


def nbgrader(course, *args):
    env = os.environ | {'EQTUTOR_STATIC': '1', 'OMP_NUM_THREADS': '1', 'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, '-m', 'nbgrader', *args], cwd=course, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope='module', autouse=True)
def tools():
    "nbgrader calls `alembic` by its name."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'])
        yield


@pytest.fixture(scope='module')
def course(tmp_path_factory):
    "A course folder in which nbgrader has released the chapter, and three students have handed it in."
    folder = tmp_path_factory.mktemp('course')
    (folder/'nbgrader_config.py').write_text("c = get_config()\nc.CourseDirectory.course_id = 'equivariance'\nc.ExecutePreprocessor.timeout = 300\n")
    build(folder/'source', [CHAPTER])
    code, said = nbgrader(folder, 'generate_assignment', CHAPTER, '--create')
    assert code == 0, said
    released = folder/'release'/CHAPTER/f'{CHAPTER}.ipynb'
    right = solutions(CHAPTER)
    wrong = right | {'0.2': right['0.2'].replace('D(n).mul[n*m, r]', 'D(n).mul[r, n*m]')}
    for student, answers in {'ann': right, 'bob': {}, 'eve': wrong}.items():
        (target := folder/'submitted'/student/CHAPTER).mkdir(parents=True)
        (target/f'{CHAPTER}.ipynb').write_text(filled(released, answers))
    return folder


def test_the_release_keeps_heads_and_marks(course):
    nb = json.loads((course/'release'/CHAPTER/f'{CHAPTER}.ipynb').read_text(encoding='utf-8'))
    about = {c['metadata']['nbgrader']['grade_id']: c for c in nb['cells'] if 'nbgrader' in c['metadata']}
    source = ''.join(about['ex-0-2']['source'])
    assert 'def translation(' in source and '"Entry `n*m + r`' in source and 'raise NotImplementedError' in source and 'mul[n*m' not in source
    assert sum(c['metadata']['nbgrader'].get('points', 0) for c in about.values()) == sum(e.marks for e in chapter_exercises(CHAPTER))


@pytest.mark.parametrize('student, passes', [('ann', True), ('bob', False), ('eve', False)])
def test_validate(course, student, passes):
    code, said = nbgrader(course, 'validate', f'submitted/{student}/{CHAPTER}/{CHAPTER}.ipynb')
    assert ('Success' in said) == passes and ('VALIDATION FAILED' in said) != passes, said
    if student == 'eve': assert 'you multiply turn · mirror' in said, said   # the message reaches the student


def test_autograde_and_feedback(course):
    code, said = nbgrader(course, 'autograde', CHAPTER)
    assert code == 0, said
    code, said = nbgrader(course, 'generate_feedback', CHAPTER)
    assert code == 0 and all((course/'feedback'/s/CHAPTER/f'{CHAPTER}.html').exists() for s in ('ann', 'bob', 'eve')), said
    from nbgrader.api import Gradebook
    with Gradebook(f'sqlite:///{course}/gradebook.db') as book:
        found = {s: {g.name: (g.auto_score, g.needs_manual_grade) for n in book.find_submission(CHAPTER, s).notebooks for g in n.grades} for s in ('ann', 'bob', 'eve')}
    marks = {s: [found[s][f'check-0-{i}'][0] for i in (1, 2)] for s in found}
    assert marks == {'ann': [2, 3], 'bob': [0, 0], 'eve': [2, 0]}
    assert found['ann']['ex-0-3'][1] and not found['bob']['ex-0-3'][1]   # a proof waits for a person; an empty one does not
