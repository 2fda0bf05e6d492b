"The README's first command, end to end: trains, wins on turned digits, and leaves three whole files."
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent
QUARTERS = 'upright', '90°', '180°', '270°'


def eqtutor(*args):
    "Run the command in a process of its own; its exit code, output, seconds, and peak memory in bytes."
    began, peak = time.monotonic(), 0
    process = subprocess.Popen([sys.executable, '-c', 'from eqtutor.cli import app; app()', *map(str, args)],
                               cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding='utf-8')

    def watch():
        nonlocal peak
        while process.poll() is None:
            try: peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            except psutil.Error: return
            time.sleep(.05)
    (watcher := threading.Thread(target=watch)).start()
    output, _ = process.communicate()
    watcher.join()
    return process.returncode, output, time.monotonic() - began, peak


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp('demo')/'new'
    result = eqtutor('demo', '--out', out)
    busy = os.getloadavg()[0]/os.cpu_count() if hasattr(os, 'getloadavg') else 1
    return out, busy, *result


def test_demo_succeeds_within_its_budget(demo):
    out, busy, code, output, seconds, peak = demo
    assert code == 0, output[-3000:]
    limit = 120*max(1, busy)   # two minutes on two cores that have nothing else to do
    assert seconds < limit, f'took {seconds:.0f} s, expected less than {limit:.0f} s'
    assert 0 < peak < 2e9, f'peak memory {peak/1e9:.2f} GB'
    print(f'{seconds:.0f} s, {peak/1e9:.2f} GB')


def test_demo_says_what_it_found(demo):
    output = demo[3]
    for part in ('21,620', '24,610', 'any angle', 'conv7', 'demo.html'): assert part in output


def test_quarter_turns_change_nothing_for_p4_and_it_wins_elsewhere(demo):
    accuracy = json.loads((demo[0]/'demo.json').read_text(encoding='utf-8'))['accuracy']
    plain, p4 = accuracy['Z2-CNN'], accuracy['p4-CNN']
    assert len({p4[turn] for turn in QUARTERS}) == 1, p4
    assert p4['upright'] > .85 and plain['upright'] > .85, 'both must have learnt something'
    for turn in ('90°', '180°', '270°', 'any angle'): assert p4[turn] > plain[turn] + .15, turn


def test_layer_errors(demo):
    errors = json.loads((demo[0]/'demo.json').read_text(encoding='utf-8'))['layer_error']
    assert max(errors['p4-CNN'].values()) < 1e-12
    assert min(errors['Z2-CNN'].values()) > 1e-2


def test_files_are_whole(demo):
    out = demo[0]
    assert sorted(p.name for p in out.iterdir()) == ['demo.html', 'demo.json', 'demo.png']
    assert (out/'demo.png').read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
    html = (out/'demo.html').read_text(encoding='utf-8')
    assert html.endswith('</html>') and len(html) < 500_000 and html.count('type="range"') == 2
    assert not re.search(r'(src|href)="(?!data:)', html), 'the page must load nothing from anywhere'


def test_mistakes_get_one_paragraph(tmp_path):
    (tmp_path/'file').write_text('')
    code, output, *_ = eqtutor('demo', '--out', tmp_path/'file'/'below')
    assert code == 1 and 'cannot be written to' in output and '--out' in output and 'Traceback' not in output
    assert sorted(p.name for p in tmp_path.iterdir()) == ['file']


def test_damaged_data_gets_one_paragraph(tmp_path, monkeypatch):
    raw = tmp_path/'MNIST'/'raw'
    raw.mkdir(parents=True)
    for name in ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte', 't10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'):
        (raw/name).write_bytes(b'\0\0\x08\x03 cut off')
    monkeypatch.setenv('EQTUTOR_DATA', str(tmp_path))
    code, output, *_ = eqtutor('demo', '--data', 'mnist', '--out', tmp_path/'out')
    assert code == 1 and 'is damaged' in output and 'Delete this file' in output and 'Traceback' not in output
