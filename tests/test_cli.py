"""The command: the README's first line end to end, in a process of its own, and the others here.

The demo trains, wins on turned digits, and leaves three whole files.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.main import get_command
from typer.testing import CliRunner

from eqtutor import __version__
from eqtutor.cli import app, group_of
from eqtutor.demo import run_demo, turn_digits
from eqtutor.grading.sandbox import INSTALL
from eqtutor.groups import GROUPS
from eqtutor.models import MODELS
from eqtutor.models.group_cnn import z2_cnn
from eqtutor.models.registry import get_model, model_rows
from eqtutor.names import MissingExtra
from eqtutor.papers.benchmarks import BENCHMARKS
from eqtutor.papers.protocol import Comparison
from eqtutor.train import digits, load_weights
from eqtutor.widgets import turn_a_digit

ROOT = Path(__file__).parent.parent
QUARTERS = 'upright', '90°', '180°', '270°'
SLOW = bool(os.environ.get('EQTUTOR_SLOW'))   # then as typed: ten epochs


def eqtutor(*args):
    "Run the command in a process of its own; exit code, output, seconds, peak memory in bytes."
    began, peak = time.monotonic(), 0
    command = [sys.executable, '-c', 'from eqtutor.cli import app; app()', *map(str, args)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, encoding='utf-8')

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
    return out, *eqtutor('demo', '--out', out, *([] if SLOW else ['--epochs', 4]))


def test_demo_succeeds_in_little_memory(demo):
    _, code, output, seconds, peak = demo
    assert code == 0, output[-3000:]
    assert 0 < peak < 2e9, f'peak memory {peak/1e9:.2f} GB'
    print(f'{seconds:.0f} s, {peak/1e9:.2f} GB')


@pytest.mark.slow
def test_demo_takes_less_than_two_minutes(demo):
    "On two cores that have nothing else to do."
    assert demo[3] < 120


def test_demo_says_what_it_found(demo):
    output = demo[2]
    parts = '21,620', '24,610', 'any angle', 'conv7', 'demo.html'
    assert all(part in output for part in parts), output


def test_quarter_turns_change_nothing_for_p4_and_it_wins_elsewhere(demo):
    accuracy = json.loads((demo[0]/'demo.json').read_text(encoding='utf-8'))['accuracy']
    plain, p4 = accuracy['Z2-CNN'], accuracy['p4-CNN']
    assert len({p4[turn] for turn in QUARTERS}) == 1, p4
    learnt = .85 if SLOW else .7
    assert p4['upright'] > learnt and plain['upright'] > learnt, 'both must have learnt something'
    for turn in ('90°', '180°', '270°', 'any angle'): assert p4[turn] > plain[turn] + .15, turn


def test_layer_errors(demo):
    errors = json.loads((demo[0]/'demo.json').read_text(encoding='utf-8'))['layer_error']
    assert max(errors['p4-CNN'].values()) < 1e-12
    assert min(errors['Z2-CNN'].values()) > 1e-2


def test_demo_records_its_data_and_shows_a_line_for_every_layer(demo):
    record = json.loads((demo[0]/'demo.json').read_text(encoding='utf-8'))
    assert record['config']['train'] == 1_197
    table = demo[2].partition('equivariance error after layer')[2].partition('\n\n')[0]
    shown = [line.split()[0] for line in table.splitlines()[1:]]
    assert shown == list(record['layer_error']['p4-CNN']) and len(shown) > 7


def test_files_are_whole(demo):
    out = demo[0]
    assert sorted(p.name for p in out.iterdir()) == ['demo.html', 'demo.json', 'demo.png']
    assert (out/'demo.png').read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
    html = (out/'demo.html').read_text(encoding='utf-8')
    assert html.endswith('</html>') and len(html) < 500_000 and html.count('type="range"') == 1
    loads = re.search(r'(src=|<link[^>]*href=)"(?!data:)', html)
    assert not loads, 'the page must load nothing from anywhere'


def test_mistakes_get_one_paragraph(tmp_path):
    (tmp_path/'file').write_text('')
    output = refused('demo', '--out', tmp_path/'file'/'below')
    assert 'cannot be written to' in output and '--out' in output
    assert sorted(p.name for p in tmp_path.iterdir()) == ['file']


def test_damaged_data_gets_one_paragraph(tmp_path, monkeypatch):
    raw = tmp_path/'MNIST'/'raw'
    raw.mkdir(parents=True)
    for split in ('train', 't10k'):
        for kind in ('images-idx3', 'labels-idx1'):
            (raw/f'{split}-{kind}-ubyte').write_bytes(b'\0\0\x08\x03 cut off')
    monkeypatch.setenv('EQTUTOR_DATA', str(tmp_path))
    output = refused('demo', '--data', 'mnist', '--out', tmp_path/'out')
    assert 'is damaged' in output and 'Delete this file' in output


# --- what it loads before it works

HEAVY = ('torch', 'numpy', 'torchvision', 'matplotlib', 'accelerate', 'sklearn', 'PIL', 'jinja2',
         'ipywidgets')
MEASURED = """
import json, sys, time
from pathlib import Path
sys.argv = ['eqtutor', *{words!r}]
try:
    {code}
finally:
    status = Path('/proc/self/status')
    lines = status.read_text().splitlines() if status.exists() else []
    peak = [int(line.split()[1]) for line in lines if line.startswith('VmHWM')]
    loaded = [name for name in {names!r} if name in sys.modules]
    print(json.dumps([loaded, time.process_time(), *peak]), file=sys.stderr)
"""

def measured(*words, code='from eqtutor.__main__ import main; main()'):
    "In a fresh process: what it says, heavy libraries, seconds of the processor, peak in kB."
    text = MEASURED.format(words=words, code=code, names=HEAVY)
    done = subprocess.run([sys.executable, '-c', text], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, *json.loads(done.stderr.splitlines()[-1])

def commands(group, *words):
    "The words of every command, and of every group of commands."
    yield words
    for name, command in getattr(group, 'commands', {}).items():
        yield from commands(command, *words, name)

@pytest.fixture(scope='module')
def torch_alone(): return measured(code='import torch')

def is_light(loaded, seconds, *peak, beside):
    return loaded == [] and seconds < .5*beside[2] and all(kB < 60_000 for kB in peak)

@pytest.mark.parametrize('words', [
    ('--version',), *((*words, '--help') for words in commands(get_command(app)))], ids=' '.join)
def test_version_and_help_load_nothing_heavy(words, torch_alone):
    said, *cost = measured(*words)
    assert __version__ in said if words == ('--version',) else 'Usage: eqtutor' in said
    assert is_light(*cost, beside=torch_alone), cost

def test_what_loads_something_heavy_is_found(torch_alone):
    assert not is_light(*torch_alone[1:], beside=torch_alone)


# --- what an extra brings

@pytest.mark.parametrize('library, extra, words', [
    ('sklearn', 'train', 'demo'), ('accelerate', 'train', 'demo'),
    ('torchvision', 'train', 'train --data mnist'), ('h5py', 'pcam', 'train --data pcam'),
    ('submitit', 'cluster', 'reproduce --table P1.1 --executor slurm'),
    ('onnxscript', 'onnx', 'export p4-cnn -o net.onnx'), ('jupyterlab', 'lab', 'lab course')])
def test_a_missing_library_is_named_with_the_command_that_brings_it(
        library, extra, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith(f'{library}.')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    assert f"pip install 'eqtutor[{extra}]'" in refused(*words.split())

IMPORTS = """
import os, sys
import torch
from eqtutor.names import MissingExtra
for module, library in {cases!r}:
    if os.fork():   # the child has imported torch already
        os.wait()
        continue
    sys.modules[library] = None
    try: __import__(module)
    except MissingExtra as error: print(error, flush=True)
    os._exit(0)
"""

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork')
def test_a_module_that_needs_an_extra_names_it():
    extras = {('eqtutor.plot', 'matplotlib'): 'lab', ('eqtutor.demo', 'matplotlib'): 'train'} | {
        ('eqtutor.widgets', name): 'lab' for name in ('matplotlib', 'jinja2', 'PIL', 'rjsmin')}
    code = IMPORTS.format(cases=[*extras])
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    wanted = [f"This needs {library}, which is not installed: pip install 'eqtutor[{extra}]'"
              for (_, library), extra in extras.items()]
    assert (done.stdout.splitlines(), done.returncode) == (wanted, 0), done.stderr

def test_a_widget_without_ipywidgets_is_a_page(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ipywidgets', None)
    monkeypatch.delenv('EQTUTOR_STATIC', raising=False)
    monkeypatch.delenv('IN_TEST', raising=False)
    widget = turn_a_digit()
    with pytest.raises(MissingExtra, match=r"ipywidgets.*pip install 'eqtutor\[lab\]'"):
        widget.live()
    assert set(widget._repr_mimebundle_()) == {'text/plain', 'text/html'}


# --- in this process

def run(*args): return CliRunner().invoke(app, [str(a) for a in args])

def refused(*args):
    "What a command says that ends with exit code 1."
    said = run(*args)
    assert said.exit_code == 1 and 'Traceback' not in said.output, said.output
    return said.output


def test_wrong_options_are_refused():
    assert run('demo', '--epochs', 0).exit_code == 2
    assert run('demo', '--data', 'cifar').exit_code == 2
    with pytest.raises(ValueError, match='at least 1'): run_demo(epochs=0)


def test_help_names_the_commands_and_their_options():
    assert run('--version').stdout.split()[0] == 'eqtutor'
    assert 'demo' in run('--help').stdout
    words = run('demo', '--help').stdout
    for word in ('--seed', '--epochs', '--out', '--data', 'UPRIGHT', 'quarter turns'):
        assert word in words, word


def test_turned_digits_have_paper_in_their_corners():
    x, _ = digits('test')[:2]
    assert turn_digits(x, 45.)[:, 0, 0, 0].tolist() == [x.min().item()]*2


def test_models_as_json_are_the_rows_of_the_table(monkeypatch):
    monkeypatch.setattr('eqtutor.models.registry.model_rows', cache(model_rows))
    rows, text = json.loads(run('models', '--json').stdout), run('models').stdout
    assert {r['name'] for r in rows} == set(MODELS)
    for r in rows:
        line = rf'{re.escape(r["name"])} .*{r["ours"]:,} +{r["difference"]:,} '
        assert re.search(line, text), r


def test_group_is_read_from_the_name():
    "Without a group `check` takes the one of the network's name: every name has one."
    assert all(group_of(name) in GROUPS for name in MODELS)
    assert group_of('alpha-F-p4m-resnet44') == 'p4m' and group_of('gsa-r4') == 'R4'


def test_check_says_yes_no_or_nothing():
    good = run('check', 'p4-cnn')
    assert good.exit_code == 0 and 'equivariant to C4 in every layer' in good.output
    bad = refused('check', 'z2-cnn', '--group', 'p4')
    assert 'layers.conv1 breaks the symmetry first' in bad and '← breaks first' in bad
    assert 'Nothing is claimed' in refused('check', 'p4-cnn', '--group', 'C3')   # four poses
    assert "did you mean 'p4-cnn'" in refused('check', 'p4-cmm')
    refused('check', 'p4-cnn', '--weights', 'nowhere.safetensors')
    record = json.loads(run('check', 'p4-cnn', '--json').stdout)
    errors = record['errors']
    assert max(errors['layers.conv7']) < 1e-10 and len(errors['layers.conv7']) == 4
    assert record['offenders'] == [] and record['first_broken'] is None


def test_check_takes_a_network_of_ones_own(tmp_path):
    (tmp_path/'own.py').write_text(OWN)
    own = f'{tmp_path/"own.py"}:make', '--input', '3,8,8', '--group', 'p4'
    said = refused('check', *own)
    assert '3.head (Conv2d): its filters do not turn' in said and 'GroupConv2d(4, 2' in said
    faults = json.loads(run('check', *own, '--json').stdout)['offenders']
    assert [f['name'] for f in faults] == ['3.head'] and 'GroupConv2d' in faults[0]['remedy']
    flat = [own[0].replace(':make', ':flat'), '--input', '8,7,7', '--group', 'p4',
            '--layout', 'flattened']
    assert run('check', *flat).exit_code == 0 and run('check', *flat[:-2]).exit_code == 1
    assert 'needs --input' in refused('check', own[0])
    assert "has no 'no'" in refused('check', f'{tmp_path/"own.py"}:no', *own[1:])
    assert 'expected file.py:make' in refused('check', 'no.py:make', *own[1:])
    said = refused('check', 'p4-cmm')
    assert said.count('cnn') <= 6 and 'Near are p4-cnn, ' in said and 'lists all 71' in said

def test_export_writes_what_torch_reads(tmp_path):
    file = tmp_path/'new'/'net.pt2'
    said = run('export', 'p4-cnn', '--weights', 'p4-cnn-rotmnist', '-o', file)
    assert said.exit_code == 0 and 'plain torch' in said.output, said.output
    net = load_weights(get_model('p4-cnn').make(), 'p4-cnn-rotmnist').eval()
    x = torch.randn(3, 1, 28, 28)
    assert (torch.export.load(file).module()(x) - net(x)).abs().max() < 1e-4*net(x).abs().max()
    assert "expected one of '.pt2'" in refused('export', 'p4-cnn', '-o', tmp_path/'net.pth')

def test_a_network_of_ones_own_is_exported(tmp_path):
    (tmp_path/'mine.py').write_text(
        'from eqtutor.models.unet import GroupUNet\ndef make(): return GroupUNet("p4", 2)\n')
    file = tmp_path/'mine.pt2'
    run('export', f'{tmp_path}/mine.py:make', '--input', '1,8,12', '-o', file)
    assert torch.export.load(file).module()(torch.randn(3, 1, 8, 12)).shape == (3, 2, 8, 12)
    assert '--input 3,224,224' in refused('export', f'{tmp_path}/mine.py:make', '-o', file)

def test_weights_are_exported_in_place_of_banks(tmp_path):
    large, small = tmp_path/'large.safetensors', tmp_path/'small.safetensors'
    run('export', 'p4-cnn', '-o', large)
    run('export', 'p4-cnn', '--compact', '-o', small)
    assert large.stat().st_size > 3*small.stat().st_size


OWN = """
from torch import nn
from eqtutor.nn import GroupConv2d, GroupPool, LiftingConv2d
def make():
    return nn.Sequential(LiftingConv2d(3, 4, 3, 'p4', padding=1), GroupPool(),
                         nn.Sequential()).append(Head())
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(4, 2, 3, padding=1)
    def forward(self, x): return dict(out=self.head(x))
def flat():
    return nn.Sequential(nn.Unflatten(1, (2, 4)), GroupConv2d(2, 3, 3, 'p4'), nn.Flatten(1, 2))
"""


def test_bench_prints_and_writes_what_it_measured(tmp_path):
    said = run('bench', 'z2-cnn', '--batch', 2).stdout
    assert re.search(r'\| z2-cnn \| 21,620 \| [\d.]+ M \| × [\d.]+ \|', said), said
    assert 'unknown network' in refused('bench', 'nothing')


def test_bench_of_a_chapter_leaves_a_record_with_its_protocol(tmp_path, monkeypatch):
    quick = Comparison('a title', (1, 1, 28, 28), {'z2-cnn': z2_cnn}, time=False, memory=False)
    monkeypatch.setitem(BENCHMARKS, 'quick', lambda: [quick])
    rows = tmp_path/'rows.json'
    said = run('bench', 'quick', '--out', tmp_path/'new'/'quick.json', '--rows', rows).stdout
    record = json.loads((tmp_path/'new'/'quick.json').read_text())
    assert 'a title' in said and '21,620' in said and record['benchmark'] == 'quick'
    assert record['tables']['a title'][0]['parameters'] == 21_620
    assert {'versions', 'hardware', 'commit', 'protocol'} <= set(record)
    assert record['protocol']['repeats'] > 1 and not rows.exists()
    assert 'stands alone' in refused('bench', 'quick', 'z2-cnn')
    assert 'variants must be some of eager' in refused('bench', 'quick', '--variants', 'fast')


def test_bench_says_what_it_left_out_and_fails(tmp_path, monkeypatch):
    small = Comparison('a title', (1, 1, 9, 9), {'z2-cnn': z2_cnn}, yardstick=z2_cnn)
    monkeypatch.setitem(BENCHMARKS, 'small', lambda: [small])
    said = refused('bench', 'small', '--out', tmp_path/'small.json')
    assert 'left out: a title: z2-cnn: ' in said and 'at least 28×28' in said
    record = json.loads((tmp_path/'small.json').read_text())
    assert record['tables'] == {} and list(record['left out']) == ['a title: z2-cnn']


def test_train_takes_a_file_and_options_and_runs_once(tmp_path):
    folders = '--out', tmp_path/'results', '--runs', tmp_path/'runs'
    file = tmp_path/'c.json'
    file.write_text('{"network": "z2-cnn", "data": "digits", "epochs": 5, "images": 100}')
    done = run('train', file, '--epochs', 1, *folders)
    assert done.exit_code == 0 and 'test accuracy' in done.output, done.output
    result = json.loads((tmp_path/'results'/'z2-cnn-digits-100'/'0.json').read_text())
    assert (result['settings']['images'], len(result['history'])) == (100, 1)
    assert 'already holds a run' in refused('train', file, '--epochs', 1, *folders)


def test_messages_name_the_flag_that_was_typed(tmp_path):
    folders = '--out', tmp_path/'results', '--runs', tmp_path/'runs'
    new = 'train', '--network', 'z2-cnn', '--data', 'digits', *folders
    said = refused(*new, '--resume')
    assert 'Leave out --resume' in said and 'correct --runs' in said
    held = tmp_path/'runs'/'z2-cnn-digits'/'0'
    held.mkdir(parents=True)
    (held/'log.jsonl').touch()
    said = refused(*new)
    assert 'Go on with it by --resume, or give another folder by --runs' in said
    assert 'resume=True' not in said and not (tmp_path/'results').exists()
    (tmp_path/'file').touch()
    assert 'Choose another folder.' in refused('lab', tmp_path/'file', '--no-open')
    assert 'Choose another folder.' in refused('labs', 'build', tmp_path/'file')


@pytest.mark.parametrize('command', [
    ('bench', 'p4-cnn', '--out'), ('bench', 'p4-cnn', '--rows'), ('export', 'p4-cnn', '--out'),
    ('widget', 'p4-cnn', '--out')])
def test_a_folder_for_a_file_is_refused_before_the_work(command, tmp_path, monkeypatch):
    def late(*args, **options): raise AssertionError('it was measured')
    monkeypatch.setattr('eqtutor.papers.protocol.measure', late)
    assert 'is a folder: expected a file to write' in refused(*command, tmp_path)


def test_train_explains_what_is_wrong(tmp_path):
    folders = '--out', tmp_path/'results', '--runs', tmp_path/'runs'
    for flag in ('--images', '--test-images', '--per-class'):
        name = flag.strip('-').replace('-', '_')
        for wrong in (0, -5):
            said = refused('train', '--estimate', flag, wrong, *folders)
            assert f'{name} must be at least 1' in said
    (tmp_path/'c.json').write_text('{')
    assert 'is not JSON' in refused('train', tmp_path/'c.json', *folders)
    assert 'Known are P1 rotMNIST' in refused('train', '--recipe', 'P5', *folders)
    assert 'unknown data' in refused('train', '--data', 'imagenet', *folders)


def test_estimate_says_and_does_nothing(tmp_path):
    said = run('train', '--estimate', '--network', 'z2-cnn', '--data', 'digits', '--epochs', 2,
               '--out', tmp_path/'results', '--runs', tmp_path/'runs')
    assert said.exit_code == 0 and 'z2-cnn: 20 steps of 128 images' in said.output, said.output
    assert not list(tmp_path.iterdir())


def test_labs_build_and_tell_progress(tmp_path):
    out = tmp_path/'out'
    assert '1 notebooks' in run('labs', 'build', out, '--chapters', '01').output
    rows = json.loads(run('labs', 'progress', out, '--json').stdout)
    assert [r['state'] for r in rows] == ['unsolved']*4
    refused('labs', 'build', out, '--chapters', '89')
    for i, words in enumerate([('01', '05'), ('01,05',), ('01', '--chapters', '05')]):
        said = run('labs', 'build', tmp_path/str(i), '--chapters', *words).output
        assert '2 notebooks' in said and '05_convolution' in said, said


@pytest.mark.sandbox
def test_labs_grade(tmp_path):
    out, marks = tmp_path/'out', tmp_path/'marks'
    run('labs', 'build', out, '--chapters', '01')
    marked = run('labs', 'grade', out, '--out', marks)
    assert marked.exit_code == 0 and '01_groups/01_groups: 0 of 11' in marked.output, marked.output
    assert (marks/'marks.csv').exists()
    assert 'as before' in run('labs', 'grade', out, '--out', marks).output
    refused('labs', 'grade', tmp_path/'nowhere', '--out', tmp_path/'none')
    assert not (tmp_path/'none').exists()


def test_labs_grade_refuses_without_a_sandbox_unless_told(tmp_path, monkeypatch):
    out, marks = tmp_path/'out', tmp_path/'marks'
    run('labs', 'build', out, '--chapters', '01')
    (out/'01_groups'/'01_groups.ipynb').rename(out/'e\x1b[2Jve.ipynb')
    monkeypatch.setattr('eqtutor.grading.grade.without_isolation', lambda: INSTALL)
    assert 'apt-get install bubblewrap' in refused('labs', 'grade', out, '--out', marks)
    assert not marks.exists()
    marked = run('labs', 'grade', out, '--out', marks, '--unsafe')
    assert marked.exit_code == 0 and 'Nothing is shut in' in marked.output, marked.output
    assert r'e\x1b[2Jve: 0 of 11' in marked.output and '\x1b' not in marked.output


def test_lab_copies_the_course(tmp_path, monkeypatch):
    said = run('lab', tmp_path/'course', '--no-open')
    assert said.exit_code == 0, said.output
    assert (tmp_path/'course'/'nbs'/'1_foundations'/'01_groups.ipynb').exists()
    assert 'is empty' in refused('lab', '')


@pytest.mark.parametrize('words, folder', [(['mine', '--', '--allow-root'], 'mine'),
                                           (['--', '--allow-root'], 'eqtutor-course')])
def test_lab_passes_arguments_on(tmp_path, monkeypatch, words, folder):
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('eqtutor.tutor.student.open_lab', lambda *told: opened.append(told) or 0)
    assert run('lab', *words).exit_code == 0
    assert opened == [(Path(folder), ['--allow-root'])]


def test_widget_is_one_page_or_nothing(tmp_path):
    page = tmp_path/'w.html'
    Image.new('RGB', (60, 40), 'red').save(tmp_path/'red.png')
    own = tmp_path/'own.safetensors'
    save_file(get_model('p4-cnn').make().state_dict(), own)
    for args in (['p4-cnn'], ['gsa-r4'], ['p4-all-cnn', '--image', tmp_path/'red.png']):
        said = run('widget', *args, '--out', page)
        assert said.exit_code == 0 and 'type="range"' in page.read_text(), said.output
        page.unlink()
    said = run('widget', 'p4-cnn', '--compare', 'broken,plain', '--out', page)
    names = [f'aria-label="{name}"' in page.read_text() for name in ('broken p4-cnn', 'z2-cnn')]
    assert said.exit_code == 0 and all(names), said.output
    assert said.output.count('trained on 10,000 upright digits') == 2, said.output
    text = page.read_text()
    assert 'z2-cnn: trained on 10,000 upright digits.' in text
    assert re.search('"layer": ?"layers.relu2"', text)
    page.unlink()
    for args, known in ((['--weights', 'p4-cnn-rotmnist'], 'z2-cnn: weights of z2-cnn-rotmnist'),
                        (['--weights', own], 'z2-cnn: random weights, never trained')):
        said = run('widget', 'p4-cnn', '--compare', 'plain', *args, '--out', page)
        assert said.exit_code == 0 and known in said.output, said.output
        assert known in page.read_text()
        page.unlink()
    refused('widget', 'p4-cnn', '--image', tmp_path/'none.png', '--out', page)
    refused('widget', 'p4-cnn', '--layer', 'layers.nothing', '--out', page)
    refused('widget', 'p4-cnn', '--compare', 'worse', '--out', page)
    refused('widget', 'z2-cnn', '--compare', 'broken', '--weights', tmp_path/'no', '--out', page)
    assert not page.exists()
