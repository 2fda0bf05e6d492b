"From files to marks: three students, strange files, a class of a hundred, an interrupted run."
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
import torch

from eqtutor.grading import judge as judging, prelude
from eqtutor.grading.folder import hand_ins
from eqtutor.grading.grade import grade, marks_table
from eqtutor.grading.judge import (
    answers_in,
    chapter_in,
    judge_reply,
    notebook_cells,
    task_of,
    within,
)
from eqtutor.grading.limits import DEEPEST, MOST_NOTEBOOKS, Limits
from eqtutor.grading.results import stored
from eqtutor.grading.sandbox import without_isolation
from eqtutor.grading.server import FAILED
from eqtutor.grading.tables import spreadsheet_safe, table as as_csv
from eqtutor.grading.worker import answer_task
from eqtutor.groups import Group
from eqtutor.tutor import exercise
from eqtutor.tutor.course import course_chapters, marks_of
from eqtutor.tutor.exercise import all_exercises, chapter_exercises
from eqtutor.tutor.relations import is_slip
from eqtutor.tutor.seeds import seed_of
from eqtutor.tutor.values import encode

GROUPS, CONVOLUTION = '01_groups', '05_convolution'
NAMES = {name: value for name, value in vars(prelude).items() if not name.startswith('__')}
WITH_EXERCISES = [name for name in course_chapters() if chapter_exercises(name)]


def table(out):
    "The rows of marks.csv by hand-in."
    with open(out/'marks.csv', encoding='utf-8-sig') as file:
        return {row['hand-in']: row for row in csv.DictReader(file)}


# --- three students

def judged_here(name, answers, seed=7):
    "What is said of answers, run in this process: the author's own need no sandbox."
    asked = [e for e in chapter_exercises(name) if e.kind != 'proof']
    replies = [answer_task(asdict(task_of(e, answers[e.id], seed)), NAMES) for e in asked]
    return [judge_reply(e, reply, seed) for e, reply in zip(asked, replies)]


@pytest.mark.parametrize('name', WITH_EXERCISES)
def test_solutions_have_full_marks_and_an_empty_copy_none(name, students):
    verdicts = judged_here(name, students.solutions(name))
    assert {v.state for v in verdicts} == {'passed'}, verdicts
    cells = students.empty(name)['cells']
    about = [(c['metadata'].get('nbgrader', {}).get('grade_id', ''), c) for c in cells]
    stubs = {id.removeprefix('ex-').replace('-', '.'): ''.join(c['source']) for id, c in about}
    assert {v.state for v in judged_here(name, stubs)} == {'unsolved'}


@pytest.mark.sandbox
@pytest.mark.parametrize('name', [GROUPS, *(pytest.param(name, marks=pytest.mark.slow)
                                            for name in WITH_EXERCISES if name != GROUPS)])
def test_the_same_in_a_sandbox(name, students, tmp_path):
    asked = chapter_exercises(name)
    best = students.graded(students.solved(name), tmp_path, seed=7, unsafe=False)
    states = ['by hand' if e.kind == 'proof' else 'passed' for e in asked]
    assert [v['state'] for v in best['parts']] == states
    assert best['marks'] + best['by hand'] == sum(e.marks for e in asked)
    assert best['isolation'].startswith('bubblewrap')


CLOCKWISE = '''
def lift_convolve(x, w, group):
    turned = [act(group, int(group.inv[h]), w) for h in group.elements]
    return torch.stack([F.conv2d(x, v.flip(-1, -2), padding=1) for v in turned], 2)'''


def test_who_turns_clockwise_is_told(students):
    verdict = judged_here(CONVOLUTION, students.solutions(CONVOLUTION) | {'5.4': CLOCKWISE})[-1]
    assert verdict.state == 'wrong' and verdict.message.startswith('Your kernel turns clockwise')


# --- a slip

def doubled(source): return source.replace('return sum(', 'return 2*sum(')


@pytest.mark.parametrize('seed', range(6))
def test_a_slip_brings_half_of_the_marks_and_its_sentence(seed, students):
    "For any seed."
    right = students.solutions(GROUPS)
    twice = judged_here(GROUPS, right | {'1.4': doubled(right['1.4'])}, seed)[-1]
    assert (twice.state, twice.marks, twice.of) == ('slip', 1.5, 3)
    assert '2 times the right one' in twice.message


def test_two_truth_values_or_a_few_numbers_are_no_slip():
    assert is_slip([2, 4, 6, 8], [1, 2, 3, 4]) and is_slip([2, 3, 4, 5], [1, 2, 3, 4])
    assert not is_slip([2, 4], [1, 2]) and not is_slip([2, 4, 6, 9], [1, 2, 3, 4])
    assert not is_slip([True]*4, [False]*4) and not is_slip([1, 1, 1, 1], [2, 2, 2, 2])


# --- strange files

@pytest.mark.parametrize('content', ['', '{', '[]', '{"cells": 3}', '{"cells": [3]}', '\x00',
                                     '['*10**5, 'PK\x03\x04', '{"cells": [], "metadata": 3}'])
def test_what_is_no_notebook_is_a_result(content, students, tmp_path):
    found = students.graded(content, tmp_path, chapter='01')
    assert found['marks'] == 0
    assert 'cannot be graded' in found['problem'] or found['parts'][1]['state'] == 'missing'


def test_zips_and_pdfs_are_told_and_a_mark_before_the_text_is_none(students, tmp_path):
    assert 'zip archive' in students.graded('PK\x03\x04', tmp_path, chapter='01')['problem']
    assert 'it is a PDF' in students.graded('%PDF-1.5', tmp_path, chapter='01')['problem']
    marked = b'\xef\xbb\xbf' + json.dumps({'cells': []}).encode()
    assert students.graded(marked, tmp_path, chapter='01')['problem'] == ''


def test_a_terabyte_of_nothing_is_not_read(students, tmp_path):
    (file := tmp_path/'x.ipynb').touch()
    os.truncate(file, 10**12)
    assert 'larger than 20 MB' in students.result(file)['problem']


def test_a_link_is_no_hand_in(students, tmp_path):
    (tmp_path/'x.ipynb').symlink_to('/etc/passwd')
    assert 'symbolic links' in students.result(tmp_path/'x.ipynb')['problem']


def test_an_unknown_chapter_is_a_problem(students, tmp_path):
    found = students.graded('{"cells": []}', tmp_path)
    assert found['of'] == 0 and "names no chapter with exercises" in found['problem']


def told(chapter='', ids=(), name='x'):
    "The chapter of a notebook that says so in these three places."
    nb = {'metadata': {'eqtutor': {'chapter': chapter}}}
    return chapter_in(nb, [{'id': id} for id in ids], name)


def test_the_chapter_is_read_from_the_file_or_its_name():
    assert told(CONVOLUTION) == told('05') == told('77_none', name=CONVOLUTION) == '05'
    assert told(ids=['ex-5-1', 'check-1-2', 'task-1-1', 'ex-x']) == told(name='5_ann') == '05'
    assert told(CONVOLUTION, ['ex-5-1'], '01_ann') == '05'   # no chapter, but a person's name


@pytest.mark.parametrize('where', [dict(name=GROUPS), dict(ids=['ex-1-2']),
                                   dict(ids=['ex-5-1', 'ex-1-2'])])
def test_a_file_that_names_another_chapter_is_a_problem(where):
    with pytest.raises(ValueError, match=r'several chapters \(its metadata: 05; .*: .*01'):
        told(CONVOLUTION, **where)


@pytest.fixture(scope='module')
def full(students): return students.solved(GROUPS)


def states(nb, students, folder): return [v['state'] for v in students.graded(nb, folder)['parts']]


def test_deleted_and_doubled_cells_are_told(full, students, tmp_path):
    doubled = states(full | {'cells': full['cells']*2}, students, tmp_path)
    assert doubled[1:] == ['stopped']*3
    assert states(full | {'cells': []}, students, tmp_path) == ['missing']*4


def test_without_metadata_functions_are_found_by_name(full):
    strange = [{}, [1], None, {'nbgrader': 5}]*99
    cells = [c | {'metadata': m} for c, m in zip(full['cells'], strange)]
    found = notebook_cells({'cells': cells})
    asked = {e.id: len(answers_in(found, e)) for e in chapter_exercises(GROUPS)}
    assert asked == {'1.1': 0, '1.2': 1, '1.3': 1, '1.4': 1}


# --- results are judged under limits

def test_a_result_that_takes_long_to_judge_costs_itself(monkeypatch):
    e = chapter_exercises(GROUPS)[1]
    monkeypatch.setattr(judging, 'JUDGING', .05)
    monkeypatch.setattr(exercise, 'judge', lambda *args: all(iter(lambda: 1, 0)))
    said = judge_reply(e, {'answers': []}, 0)
    assert said.state == 'stopped' and said.message == 'its answer cannot be judged (TimeoutError)'
    with within(9): pass


def test_a_group_of_twenty_thousand_and_a_long_name_are_no_answer():
    e = chapter_exercises(GROUPS)[1]
    after = [{'after': [group.name]} for group, in e.cases(0)]
    large = {'group': encode(torch.eye(2, dtype=torch.long).expand(20_000, 2, 2)), 'name': 'G'}
    named = encode(Group('N'*4_000_000, torch.eye(2, dtype=torch.long)[None]))
    verdicts = [judge_reply(e, {'answers': [a | {'value': v} for a in after]}, 0)
                for v in (large, named)]
    assert [v.state for v in verdicts] == ['stopped', 'wrong']
    assert all(len(v.message) < 2001 for v in verdicts)


def test_every_submission_has_its_own_seed():
    assert len({seed_of(name, 3) for name in map(str, range(99))}) == 99
    assert seed_of('ann', 3) == seed_of('ann', 3) != seed_of('ann', 4)


# --- a class

LOOP = 'def centre(group):\n    while True: pass'
QUICK = Limits(seconds=4, memory=300)


@pytest.fixture(scope='module')
def first_run(tmp_path_factory, students):
    "Students with full marks, none, a slip and a loop; files that are strange: graded once."
    folder = tmp_path_factory.mktemp('class')
    solved = students.solutions(GROUPS)
    eve = solved | {'1.2': LOOP, '1.1': '<script>alert(1)</script>'}
    slip = solved | {'1.4': doubled(solved['1.4'])}
    files = {'ann': solved, '=bob': {}, 'eve': eve, 'zoe': {}, 'esc\x1b[2J': {}, 'lou': slip}
    students.hand_in(folder/'in', GROUPS, {f'{name}/{GROUPS}': a for name, a in files.items()})
    (folder/'in'/'zoe'/f'{GROUPS}.ipynb').write_text('{}')
    (folder/'in'/'ann'/'again').symlink_to(folder/'in', target_is_directory=True)
    os.mkfifo(folder/'in'/'fifo.ipynb')
    (folder/'in'/'loop.ipynb').symlink_to(folder/'in'/'loop.ipynb')
    graded_class(folder)
    return folder


@pytest.fixture
def course(first_run, tmp_path):
    "The class's results, in a folder of their own."
    shutil.copytree(first_run/'out', tmp_path/'out')
    (tmp_path/'in').symlink_to(first_run/'in')
    return tmp_path


def graded_class(course, **options):
    "The results by hand-in."
    isolated = {'limits': QUICK, 'unsafe': bool(without_isolation())}
    results = grade((course/'in').resolve(), course/'out', **{'workers': 2} | isolated | options)
    return {r['name']: r for r in results}


def of(name): return f'{name}/{GROUPS}'


def test_a_class_is_graded_into_a_table_and_pages(first_run):
    out = first_run/'out'
    results = {r['name']: r for r in json.loads((out/'marks.json').read_text())}
    marks = {name: r['marks'] for name, r in results.items()}
    assert marks == {of('ann'): 8, of('=bob'): 0, of('eve'): 5, of('zoe'): 0, of('lou'): 6.5,
                     of('esc\x1b[2J'): 0, 'fifo': 0, 'loop': 0, 'ann/again': 0}
    problems = {name: r['problem'] for name, r in results.items() if r['problem']}
    assert problems.keys() == {of('zoe'), 'fifo', 'loop', 'ann/again'}
    assert 'links are not followed' in problems['ann/again'] and 'link' in problems['loop']
    assert 'not a plain file' in problems['fifo']
    assert len({r['isolation'] for r in results.values()}) == 1
    page = (out/'pages'/'eve'/f'{GROUPS}.html').read_text()
    assert '<script>' not in page and '&lt;script&gt;' in page and 'no answer within 4 s' in page
    assert {r['path'] for r in results.values() if os.path.isabs(r['path'])} == {
        r['path'] for r in results.values()}
    rows = table(out)
    assert rows[f"'{of('=bob')}"]['student'] == "'=bob"   # a spreadsheet would run it
    assert [rows[of(n)]['marks'] for n in ('ann', 'eve', 'lou')] == ['8', '5', '6.5']
    assert rows[of('ann')]['1.1'] == '' and '1.2 stopped' in rows[of('eve')]['remarks']
    assert not list(out.rglob('*.part'))


def test_a_second_run_grades_what_is_new(course):
    results = course/'out'/'results'
    (results/'=bob'/f'{GROUPS}.json').write_text('{half')     # a damaged result
    failed = stored(results/'lou'/f'{GROUPS}.json') | {'problem': f'{FAILED}: OSError', 'marks': 0}
    (results/'lou'/f'{GROUPS}.json').write_text(json.dumps(failed))   # the machine's fault
    now = graded_class(course)
    assert {name for name, r in now.items() if r['new'] and not r['problem']} == {
        of('=bob'), of('lou')}
    assert now[of('lou')]['marks'] == 6.5


def test_under_other_limits_it_is_another_attempt(students, tmp_path):
    slow = 'import time; time.sleep(1.5)\n' + students.solutions(GROUPS)['1.3']
    folder, out = students.hand_in(tmp_path/'in', GROUPS, {'dora': {'1.3': slow}}), tmp_path/'out'
    def result(seconds): return grade(folder, out, limits=Limits(seconds), unsafe=True)[0]
    assert [result(seconds)['marks'] for seconds in (0, 9)] == [0, 2]
    assert result(9)['new'] is False
    assert result(9)['isolation'] == 'none (--unsafe)'
    assert 'graded without a sandbox' in table(out)['dora']['remarks']


def test_no_hand_in_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match='no hand-ins at .*nowhere'):
        grade(tmp_path/'nowhere', 'x', unsafe=True)
    with pytest.raises(FileNotFoundError, match='no notebooks'): grade(tmp_path, 'x', unsafe=True)


@pytest.mark.parametrize('text, safe', [
    ('=1', "'=1"), ('a;=1', "a;'=1"), (' -1', "' -1"), ('a; b', 'a; b'), ('＝1+1', "'＝1+1"),
    ('a;"=1;b', "a;\"'=1;b"),
    ('＋1', "'＋1"), ('－1', "'－1"), ('＠x', "'＠x"), ('﹦1', "'﹦1"), ('⁺1', "'⁺1"),
    ('−1', "'−1"),
    ('a\n@x', "a\n'@x"), ('a,+1', "a,'+1"), ('\t=1', "\\t=1"), ('\u200b=1', '\\u200b=1')])
def test_a_spreadsheet_runs_nothing(text, safe):
    assert spreadsheet_safe(text).replace(" '", "' ") == safe.replace(" '", "' ")
    assert as_csv(['x'], [[text], [None], [1.5]]).splitlines()[-2:] == ['""', '"1.5"']


def test_the_columns_stand_in_the_order_of_the_course():
    parts = [{'id': id, 'state': 'passed', 'marks': 1} for id in ('24b.1', '24.10', '5.1', '24.9')]
    result = {'student': 'a', 'name': 'a', 'chapter': '24', 'of': 4, 'problem': '', 'parts': parts,
              'isolation': '', 'marks': 4, 'by hand': 0}
    names = ['student', 'hand-in', 'chapter', '5.1', '24.9', '24.10', '24b.1', 'marks', 'of',
             'by hand', 'remarks']
    assert marks_table([result]).splitlines()[0] == ','.join(f'"{name}"' for name in names)


# --- names and files that would stop a class

def test_half_characters_long_names_and_names_of_results_are_graded(students, tmp_path):
    solved = {'1.3': students.solutions(GROUPS)['1.3']}
    half = {'1.3': 'def mirror_block(): raise ValueError(chr(0xd800))'}
    strange = {'good': solved, 'half': half, 'proof': {'1.1': 'my proof \ud800'}, 'x'*247: solved,
               'good.json/01': solved, 'good.html/01': solved, os.fsdecode(b'm\xfcller'): solved}
    out = tmp_path/'out'
    (out/'results').mkdir(parents=True)
    (out/'results'/'half.json').write_text('[]')
    folder = students.hand_in(tmp_path/'in', GROUPS, strange)
    results = grade(folder, out, unsafe=True)
    assert sorted(r['marks'] for r in results) == [0, 0, 2, 2, 2, 2, 2] and len(table(out)) == 7
    assert not any(r['new'] for r in grade(folder, out, unsafe=True))


def found_in(folder):
    "Student and problem of each hand-in in a folder."
    return {h.name: (h.student, h.problem) for h in hand_ins(folder, folder/'out')}


def test_work_is_booked_by_the_folder(tmp_path):
    "Whatever a name inside it says."
    for name in ('ann/good_17_203_01_groups.ipynb', 'mal/Ann Lee_17_assignsubmission_file_x.ipynb',
                 'mal/ann/01_groups.ipynb', 'mal/.ipynb_checkpoints/x.ipynb', 'out/ann/x.ipynb',
                 'eve.ipynb', 'ann/index.ipynb'):
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).touch()
    assert {name: student for name, (student, _) in found_in(tmp_path).items()} == {
        'ann/good_17_203_01_groups': 'ann', 'mal/Ann Lee_17_assignsubmission_file_x': 'mal',
        'mal/ann/01_groups': 'mal', 'eve': 'eve'}


@pytest.fixture
def deep_folder(tmp_path):
    "Deeper than Python's own functions can follow: they could not remove it either."
    deep, here = tmp_path/'deep', os.getcwd()
    deep.mkdir()
    try:   # a path as long as this cannot be made in one step
        os.chdir(deep)
        for _ in range(1900):
            os.mkdir('d')
            os.chdir('d')
    finally:
        os.chdir(here)
    yield deep
    subprocess.run(['rm', '-rf', deep], check=True)

def test_one_student_s_folder_stops_no_class(tmp_path, deep_folder):
    (tmp_path/'ann').mkdir()
    (tmp_path/'ann'/'x.ipynb').touch()
    (tmp_path/'many').mkdir()
    for i in range(MOST_NOTEBOOKS + 9): (tmp_path/'many'/f'{i:03}.ipynb').touch()
    os.utime(tmp_path/'ann'/'x.ipynb', (3e11, 3e11))
    found = found_in(tmp_path)
    assert found['ann/x'] == ('ann', '')
    (problem,) = [p for student, p in found.values() if student == deep_folder.name]
    assert f'more than {DEEPEST} folders' in problem
    many = [p for student, p in found.values() if student == 'many']
    assert len(many) == MOST_NOTEBOOKS + 1 and 'more than' in many[-1]


def test_two_names_are_never_one(tmp_path):
    "Half a character is written out, and another student may be called so."
    names = [os.fsdecode(b'm\xfcller'), 'm\\udcfcller']
    for name in names:
        (tmp_path/name).mkdir()
        (tmp_path/name/'x.ipynb').touch()
    found = found_in(tmp_path)
    assert len(found) == len({student for student, _ in found.values()}) == 2


# --- processes

# --- at full size

def hand_in_many(students, folder, n):
    "n times the author's answers to what a machine marks in chapter 05."
    answers = {id: students.solutions(CONVOLUTION)[id] for id in ('5.1', '5.4')}
    text = json.dumps(students.solve(students.empty(CONVOLUTION), answers))
    for i in range(n):
        (file := folder/f's{i:03d}'/f'{CONVOLUTION}.ipynb').parent.mkdir(parents=True)
        file.write_text(text)
    return folder


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.timeout(900)
def test_a_hundred_submissions_take_less_than_ten_minutes(students, tmp_path):
    folder = hand_in_many(students, tmp_path/'in', 100)
    start = time.monotonic()
    records = grade(folder, tmp_path/'out', workers=2)
    assert time.monotonic() - start < 600
    full = sum(e.marks for e in chapter_exercises(CONVOLUTION) if e.kind != 'proof')
    assert [r['marks'] for r in records] == [full]*100


def test_an_interrupted_run_goes_on(students, tmp_path):
    n, folder, out = 5, hand_in_many(students, tmp_path/'in', 5), tmp_path/'out'
    script = ('from eqtutor.grading.grade import grade\n'
              f'grade({str(folder)!r}, {str(out)!r}, workers=1, unsafe=True)')
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen([sys.executable, '-c', script], env=env)
    def results(): return len(list((out/'results').rglob('*.json')))
    while results() < 2 and run.poll() is None: time.sleep(.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = results()
    assert 2 <= before < n
    records = grade(folder, out, workers=2, unsafe=True)
    # a fork that was at work may have ended its own
    assert before <= sum(not r['new'] for r in records) <= before + 1
    assert len(records) == n and len({r['marks'] for r in records}) == 1


def own_memory(root):
    """MB that the grader holds: the command, the process that judges and its forks, no sandboxes.

    What processes share is counted once. Pages of libraries that lie on the disk are not counted:
    the system drops them when it needs room. (`import torch` alone reads 240 MB of them where torch
    is built for CUDA, and holds 280.) The processes are read one after another: one that forks
    meanwhile is counted twice, so a single reading can be too large.
    """
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            command = ' '.join(process.cmdline())
            if 'worker.py' in command or 'bwrap' in command: continue
            sums = Path(f'/proc/{process.pid}/smaps_rollup').read_text()
        except (psutil.Error, OSError):
            continue   # it has ended
        total += sum(int(kb) for kb in re.findall(r'^Pss_(?:Anon|Shmem):\s+(\d+) kB', sums, re.M))
    return total/1024


@pytest.mark.skipif(sys.platform != 'linux', reason='only Linux tells shared memory apart')
def test_the_grader_itself_holds_less_than_500_mb(students, tmp_path):
    hand_in_many(students, tmp_path/'in', 4)
    command = [sys.executable, '-m', 'eqtutor', 'labs', 'grade', tmp_path/'in', '--out',
               tmp_path/'out', '--workers', '2', *['--unsafe']*bool(without_isolation())]
    with psutil.Popen(command, stdout=subprocess.DEVNULL) as process:
        sizes = []
        while process.poll() is None:
            sizes.append(own_memory(process))
            time.sleep(.02)
    assert process.returncode == 0 and len(table(tmp_path/'out')) == 4
    held = [min(few) for few in zip(*(sizes[i:] for i in range(5)))]
    assert 100 < max(held) < 500, (max(held), max(sizes))


def test_what_is_done_for_a_class_loads_no_torch():
    code = 'import sys; from eqtutor.grading.grade import grade; print("torch" in sys.modules)'
    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert said.stdout.strip() == 'False', said.stderr


def test_the_marks_that_a_chapter_says_are_those_of_the_records():
    told = {id: marks_of(id) for id in all_exercises()}
    assert told == {id: e.marks for id, e in all_exercises().items()}
    assert [marks_of(id) for id in ('77.1', '1.99', 'file')] == [None]*3
