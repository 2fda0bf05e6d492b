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

from eqtutor.grading.grade import grade
from eqtutor.grading.gradebook import marks_table, spreadsheet_safe, stored_record
from eqtutor.grading.handins import find_hand_ins
from eqtutor.grading.judging import (
    FAILED,
    answers_in,
    chapter_in,
    grade_notebook,
    judge_reply,
    notebook_cells,
    seed_of,
    task_of,
    within,
)
from eqtutor.grading.sandbox import Limits, without_isolation
from eqtutor.grading.worker import answer_task
from eqtutor.groups import Group
from eqtutor.tutor import judging, prelude
from eqtutor.tutor.course import course_chapters, marks_of
from eqtutor.tutor.exercise import all_exercises, chapter_exercises
from eqtutor.tutor.values import encode

GROUPS, CONVOLUTION = '01_groups', '05_convolution'
NAMES = {name: value for name, value in vars(prelude).items() if not name.startswith('__')}
WITH_EXERCISES = [name for name in course_chapters() if chapter_exercises(name)]


def table(out):
    "The rows of marks.csv by submission."
    with open(out/'marks.csv', encoding='utf-8-sig') as file:
        return {row['submission']: row for row in csv.DictReader(file)}


def mark_by_hand(out, name, marks):
    "What a teacher writes into the column of 1.1."
    text = (out/'marks.csv').read_text(encoding='utf-8')
    empty = f'{name}","{GROUPS}",""'
    assert empty in text
    (out/'marks.csv').write_text(text.replace(empty, f'{name}","{GROUPS}","{marks}"'))


# --- three students

def judged_here(name, answers):
    "What is said of answers, run in this process: the author's own need no sandbox."
    asked = [e for e in chapter_exercises(name) if e.kind != 'proof']
    replies = [answer_task(asdict(task_of(e, answers[e.id], 7)), NAMES) for e in asked]
    return [judge_reply(e, reply, 7) for e, reply in zip(asked, replies)]


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


# --- strange files

@pytest.mark.parametrize('content', ['', '{', '[]', '{"cells": 3}', '{"cells": [3]}', '\x00',
                                     '['*10**5, 'PK\x03\x04', '{"cells": [], "metadata": 3}'])
def test_what_is_no_notebook_is_a_result(content, students, tmp_path):
    record = students.graded(content, tmp_path, chapter='01')
    assert (record['marks'], record['of']) == (0, 11)
    assert 'cannot be graded' in record['problem'] or record['parts'][1]['state'] == 'missing'


def test_a_zip_is_told_and_a_mark_before_the_text_is_none(students, tmp_path):
    assert 'zip archive' in students.graded('PK\x03\x04', tmp_path, chapter='01')['problem']
    marked = b'\xef\xbb\xbf' + json.dumps({'cells': []}).encode()
    assert students.graded(marked, tmp_path, chapter='01')['problem'] == ''


def test_a_terabyte_of_nothing_is_not_read(tmp_path):
    (file := tmp_path/'x.ipynb').touch()
    os.truncate(file, 10**12)
    assert 'larger than 20 MB' in grade_notebook(file, chapter='01', unsafe=True)['problem']


def test_a_link_is_no_submission(tmp_path):
    (tmp_path/'x.ipynb').symlink_to('/etc/passwd')
    problem = grade_notebook(tmp_path/'x.ipynb', chapter='01', unsafe=True)['problem']
    assert 'not a plain file' in problem


def test_an_unknown_chapter_is_a_problem(students, tmp_path):
    record = students.graded('{"cells": []}', tmp_path)
    assert record['of'] == 0 and "no chapter with exercises is called 'ann'" in record['problem']


def told(chapter='', ids=(), name='x'):
    "The chapter of a notebook that says so in these three places."
    nb = {'metadata': {'eqtutor': {'chapter': chapter}}}
    return chapter_in(nb, [{'id': id} for id in ids], Path(f'{name}.ipynb'))


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
    monkeypatch.setattr(judging, 'judge', lambda *args: all(iter(lambda: 1, 0)))
    said = judge_reply(e, {'answers': []}, 0)
    assert said.state == 'stopped' and said.message == 'its answer cannot be judged (TimeoutError)'
    with within(9): pass


def test_a_group_of_twenty_thousand_and_a_long_name_are_no_answer():
    e = chapter_exercises(GROUPS)[1]
    cases = len(e.cases(0))
    large = {'group': encode(torch.eye(2, dtype=torch.long).expand(20_000, 2, 2)), 'name': 'G'}
    named = encode(Group('N'*4_000_000, torch.eye(2, dtype=torch.long)[None]))
    verdicts = [judge_reply(e, {'answers': [{'value': v}]*cases}, 0) for v in (large, named)]
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
    "Students with full marks, none, a loop and a script; files that are strange: graded once."
    folder = tmp_path_factory.mktemp('class')
    solved = students.solutions(GROUPS)
    eve = solved | {'1.2': LOOP, '1.1': '<script>alert(1)</script>'}
    files = {'ann': solved, '=bob': {}, 'eve': eve, 'zoe': {}, 'esc\x1b[2J': {}}
    students.hand_in(folder/'in', GROUPS, {f'{name}/{GROUPS}': a for name, a in files.items()})
    (folder/'in'/'zoe'/f'{GROUPS}.ipynb').write_text('{}')
    (folder/'in'/'ann'/'again').symlink_to(folder/'in', target_is_directory=True)
    os.mkfifo(folder/'in'/'fifo.ipynb')
    for link in ('loop.ipynb', 'folder'): (folder/'in'/link).symlink_to(folder/'in'/link)
    graded_class(folder, limits=QUICK, unsafe=bool(without_isolation()))
    return folder


@pytest.fixture
def course(first_run, tmp_path):
    "A copy of the class, with its results."
    for part in ('in', 'out'):
        shutil.copytree(first_run/part, tmp_path/part, symlinks=True,
                        ignore=shutil.ignore_patterns('fifo.ipynb'))
    return tmp_path


def graded_class(course, **options):
    "The records by student."
    isolated = {'limits': QUICK, 'unsafe': bool(without_isolation())}
    records = grade([course/'in'], course/'out', **{'workers': 2} | isolated | options)
    return {r['name'].split('/')[0]: r for r in records}


def test_a_class_is_graded_into_a_table_and_pages(first_run):
    out = first_run/'out'
    records = {r['name'].split('/')[0]: r for r in json.loads((out/'marks.json').read_text())}
    marks = {name: r['marks'] for name, r in records.items()}
    assert marks == {'ann': 8, '=bob': 0, 'eve': 5, 'zoe': 0, 'esc\x1b[2J': 0, 'fifo': 0, 'loop': 0}
    assert records['zoe']['of'] == 11 and 'not a plain file' in records['loop']['problem']
    assert 'not a plain file' in records['fifo']['problem']
    assert len({r['seed'] for r in records.values()}) == 7
    assert len({r['isolation'] for r in records.values()}) == 1
    page = (out/'feedback'/'eve'/f'{GROUPS}.html').read_text()
    assert '<script>' not in page and '&lt;script&gt;' in page and 'no answer within 4 s' in page
    rows = table(out)
    assert list(rows)[0].startswith("'=bob")   # a spreadsheet would run it
    assert [rows[f'{n}/{GROUPS}']['total'] for n in ('ann', 'eve', 'zoe')] == ['8', '5', '0']
    assert '1.2 stopped' in rows[f'eve/{GROUPS}']['remarks']
    assert not list(out.rglob('*.part'))


def test_a_second_run_takes_what_it_finds_and_keeps_a_teacher_s_marks(course, students):
    mark_by_hand(course/'out', f'ann/{GROUPS}', '2.5')
    theirs = (course/'out'/'marks.csv').read_text().replace(',', ';')    # a spreadsheet wrote it
    (course/'out'/'marks.csv').write_text(theirs, encoding='utf-8-sig')
    better = {'1.1': 'A better proof.'}
    students.hand_in(course/'in', GROUPS, {f'ann/{GROUPS}': better, f'zoe/{GROUPS}': {}})
    (course/'out'/'results'/'=bob'/f'{GROUPS}.json').write_text('{half')     # a damaged result
    new = {name: r['new'] for name, r in graded_class(course, workers=1).items()}
    assert {name for name, fresh in new.items() if fresh} == {'ann', 'zoe', '=bob'}
    ann = table(course/'out')[f'ann/{GROUPS}']
    assert (ann['1.1'], ann['total']) == ('2.5', '2.5') and 'before this version' in ann['remarks']
    assert table(course/'out')[f'eve/{GROUPS}']['total'] == '5'


def test_without_a_sandbox_every_result_says_so_and_none_is_taken_for_a_safe_one(course):
    before = graded_class(course, unsafe=False) if not without_isolation() else {}
    records = graded_class(course, unsafe=True)
    assert {r['isolation'] for r in records.values()} == {'none (--unsafe)'}
    assert all(r['new'] for r in records.values()) or not before
    page = (course/'out'/'feedback'/'ann'/f'{GROUPS}.html').read_text()
    assert 'without a sandbox' in page
    assert 'graded without a sandbox' in table(course/'out')[f'ann/{GROUPS}']['remarks']


def test_a_file_that_is_no_table_of_marks_is_not_touched(course):
    (course/'out'/'marks.csv').write_text('mine')
    with pytest.raises(ValueError, match='no table of marks'): graded_class(course)
    assert (course/'out'/'marks.csv').read_text() == 'mine'


def test_no_submission_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match='no submission at .*nowhere'):
        grade([tmp_path/'nowhere'], 'x', unsafe=True)


@pytest.mark.parametrize('text, safe', [('=1', "'=1"), ('a;=1', "a;'=1"), (' -1', "' -1"),
                                        ('a; b', 'a; b')])
def test_a_spreadsheet_runs_nothing(text, safe): assert spreadsheet_safe(text) == safe


def test_the_columns_stand_in_the_order_of_the_course():
    parts = [{'id': id, 'state': 'passed', 'marks': 1} for id in ('24b.1', '24.10', '5.1', '24.9')]
    record = {'name': 'a', 'chapter': '24', 'of': 4, 'problem': '', 'parts': parts,
              'isolation': ''}
    head = marks_table([record], {}).splitlines()[0]
    names = ['submission', 'chapter', '5.1', '24.9', '24.10', '24b.1', 'total', 'of', 'remarks',
             'comment']
    assert head == ','.join(f'"{name}"' for name in names)


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
    records = grade([folder], out, unsafe=True)
    assert sorted(r['marks'] for r in records) == [0, 0, 2, 2, 2, 2, 2] and len(table(out)) == 7
    assert not any(r['new'] for r in grade([folder], out, unsafe=True))


def proofs(out): return {name: row['1.1'] for name, row in table(out).items()}


def test_marks_stay_with_the_name_of_a_submission(students, tmp_path):
    out, proof = tmp_path/'out', {'1.1': 'my proof'}
    early = students.hand_in(tmp_path/'in', GROUPS, {'anna/01': proof, 'ben/01': proof})
    late = students.hand_in(tmp_path/'late', GROUPS, {'carl/01': proof})
    grade([early], out, unsafe=True)
    mark_by_hand(out, 'anna/01', 2)
    grade([late], out, unsafe=True)
    assert proofs(out) == {'anna/01': '2', 'ben/01': '', 'carl/01': ''}
    assert (out/'marks.csv.bak').exists()
    anna, ben = early/'anna'/'01.ipynb', early/'ben'/'01.ipynb'
    assert find_hand_ins([anna, ben], out) == find_hand_ins([ben, anna], out)
    grade([ben, anna], out, unsafe=True)
    assert proofs(out)['anna/01'] == '2'
    second = students.hand_in(tmp_path/'2', GROUPS, {'anna/01': {}})
    assert len(find_hand_ins([early/'anna', second/'anna'], out)) == 2   # even folders agree


def test_other_limits_and_the_machine_s_faults_are_another_attempt(students, tmp_path):
    slow = 'import time; time.sleep(1.5)\n' + students.solutions(GROUPS)['1.3']
    folder, out = students.hand_in(tmp_path/'in', GROUPS, {'dora': {'1.3': slow}}), tmp_path/'out'
    def result(seconds): return grade([folder], out, limits=Limits(seconds), unsafe=True)[0]
    assert [result(seconds)['marks'] for seconds in (0, 9)] == [0, 2]
    assert result(9)['new'] is False
    file = out/'results'/'dora.json'
    failed = stored_record(file) | {'problem': f'{FAILED}: OSError', 'marks': 0}
    file.write_text(json.dumps(failed))
    assert result(9)['marks'] == 2   # the machine's fault, not the student's


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
    records = grade([folder], tmp_path/'out', workers=2)
    assert time.monotonic() - start < 600
    full = sum(e.marks for e in chapter_exercises(CONVOLUTION) if e.kind != 'proof')
    assert [r['marks'] for r in records] == [full]*100


def test_an_interrupted_run_goes_on(students, tmp_path):
    n, folder, out = 5, hand_in_many(students, tmp_path/'in', 5), tmp_path/'out'
    script = ('from eqtutor.grading.grade import grade\n'
              f'grade([{str(folder)!r}], {str(out)!r}, workers=1, unsafe=True)')
    env = os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen([sys.executable, '-c', script], env=env)
    def results(): return len(list((out/'results').rglob('*.json')))
    while results() < 2 and run.poll() is None: time.sleep(.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = results()
    assert 2 <= before < n
    records = grade([folder], out, workers=2, unsafe=True)
    # a fork that was at work may have ended its own
    assert before <= sum(not r['new'] for r in records) <= before + 1
    assert len(records) == n and len({r['marks'] for r in records}) == 1


def own_memory(root):
    """MB that the grader holds: the command, the process that judges and its forks, no sandboxes.

    What processes share is counted once. Pages of libraries that lie on the disk are not counted:
    the system drops them when it needs room. (`import torch` alone reads 240 MB of them where torch
    is built for CUDA, and holds 280.)
    """
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            command = ' '.join(process.cmdline())
            if '_worker.py' in command or 'bwrap' in command: continue
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
    assert 100 < max(sizes) < 500, max(sizes)


def test_what_is_done_for_a_class_loads_no_torch():
    code = 'import sys; from eqtutor.grading.grade import grade; print("torch" in sys.modules)'
    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert said.stdout.strip() == 'False', said.stderr


def test_the_marks_that_a_chapter_says_are_those_of_the_records():
    told = {id: marks_of(id) for id in all_exercises()}
    assert told == {id: e.marks for id, e in all_exercises().items()}
    assert [marks_of(id) for id in ('77.1', '1.99', 'file')] == [None]*3
