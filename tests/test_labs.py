"The grader at full size: a class of a hundred, an interrupted run, a system that cannot isolate."
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from eqtutor import labs
from eqtutor.labs import chapter_exercises, copy_course, course_chapters, grade, student_copy

CHAPTER = '05_convolution'
RIGHT = {'ex-5-4': 'def mirrored_panels():\n    return [3, 2, 1, 0]',
         'ex-5-3': 'def lift_convolve(x, w, group):\n    return torch.stack([F.conv2d(x, act(group, h, w).flip((-2, -1)), padding=1) for h in group.elements], 2)'}
HOSTILE = {'ex-5-4': 'import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef mirrored_panels():\n    return [3, 2, 1, 0]',
           'ex-5-3': 'def lift_convolve(x, w, group):\n    while True: pass'}


def submissions(folder, n, answers=RIGHT):
    nb = student_copy(json.loads(course_chapters([CHAPTER])[CHAPTER].read_text(encoding='utf-8')), CHAPTER)
    for c in nb['cells']:
        if new := answers.get(c['metadata'].get('nbgrader', {}).get('grade_id')): c['source'] = new
    for i in range(n):
        (folder/f's{i:03d}').mkdir(parents=True)
        (folder/f's{i:03d}'/f'{CHAPTER}.ipynb').write_text(json.dumps(nb))


@pytest.mark.timeout(900)
def test_a_hundred_submissions_take_less_than_ten_minutes(tmp_path):
    submissions(tmp_path/'in', 98)
    submissions(tmp_path/'hostile', 2, HOSTILE)
    for p in (tmp_path/'hostile').iterdir(): p.rename(tmp_path/'in'/f'x{p.name}')
    began = time.monotonic()
    records = grade([tmp_path/'in'], tmp_path/'out', workers=2)
    seconds = time.monotonic() - began
    print(f'\n100 submissions, {seconds:.0f} s')
    full = sum(e.marks for e in chapter_exercises(CHAPTER) if e.kind != 'proof')
    assert [r['marks'] for r in records[:98]] == [full]*98 and all(r['marks'] < full for r in records[98:]) and len(records) == 100
    assert seconds < 600
    began = time.monotonic()
    assert not any(r['new'] for r in grade([tmp_path/'in'], tmp_path/'out', workers=2)) and time.monotonic() - began < 30


def test_an_interrupted_run_goes_on(tmp_path):
    submissions(tmp_path/'in', 30)
    script = f'from eqtutor.labs import grade; grade([{str(tmp_path/"in")!r}], {str(tmp_path/"out")!r}, workers=1)'
    run = subprocess.Popen([sys.executable, '-c', script], env=os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)})
    done = tmp_path/'out'/'results'
    while len(list(done.rglob('*.json'))) < 3 and run.poll() is None: time.sleep(.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = len(list(done.rglob('*.json')))
    assert 3 <= before < 30
    records = grade([tmp_path/'in'], tmp_path/'out', workers=2)
    assert sum(not r['new'] for r in records) in (before, before - 1) and len(records) == 30 and len({r['marks'] for r in records}) == 1


def test_without_namespaces_sockets_are_blocked_and_the_result_says_so():
    script = ('import sys; from eqtutor import labs; sys.platform = "other"; done = labs._isolate()\n'
              'assert done == {"network": "blocked in the process only", "processes": "not separated", "files": "not protected", "calls": "not filtered"}, done\n'
              'import socket\n'
              'for make in (socket.socket, lambda: socket.create_connection(("localhost", 1)), lambda: socket.getaddrinfo("localhost", 1)):\n'
              '    try: make()\n'
              '    except OSError as error: assert "no network" in str(error)\n'
              '    else: raise SystemExit("a socket")')
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, env=os.environ | {'PYTHONPATH': os.pathsep.join(p for p in sys.path if p)})
    assert done.returncode == 0, done.stderr


def test_without_landlock_or_seccomp_nothing_is_claimed(monkeypatch):
    "An old kernel refuses the calls; on another architecture their numbers are not known, and nothing is filtered by wrong ones."
    class Old: syscall = prctl = staticmethod(lambda *args: -1)
    assert not labs._landlock(Old()) and not labs._forbid(Old())
    monkeypatch.setattr(os, 'uname', lambda: os.uname_result(('Linux', '', '', '', 'riscv64')))
    assert not labs._forbid(ctypes.CDLL(None))


def test_the_whole_course_is_copied(tmp_path):
    "All chapters for a teacher; all but the two for teachers for a student."
    def names(folder, **options): return {p.stem for p in copy_course(folder, **options)['written'] if p.suffix == '.ipynb'}
    assert names(tmp_path/'teacher', solutions=True) == set(course_chapters())
    assert names(tmp_path/'student') == set(course_chapters()) - {'31_labs', '33_teaching'}
