"The comparison with the authors' code: fake clones, and what the texts quote from its record."
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from eqtutor.measure import peak_memory
from eqtutor.models import build_model
from eqtutor.models.self_attention import GSANet
from eqtutor.nn import AttentiveGroupConv2d, AttentiveLiftingConv2d

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT/'tools'))
import against_published as tool  # noqa: E402

# our network under the names of theirs; CONSTANT is what its group convolutions are counted with
FAKE = '''
import math
from torch import nn
from eqtutor.models import build_model

class P4CNN(nn.Module):
    def __init__(self):
        super().__init__()
        net = build_model('p4-cnn')
        self.inside = [net]
        for i in range(1, 8):
            conv = getattr(net.layers, f'conv{i}')
            if i > 1: conv.register_forward_hook(lambda layer, args, y: y*CONSTANT)
            setattr(self, f'c{i}', conv)
            if i < 7: setattr(self, f'bn{i}', getattr(net.layers, f'norm{i}'))

    def train(self, mode=True):
        self.inside[0].train(mode)
        return super().train(mode)

    def forward(self, x): return self.inside[0](x) + CORNER*x[:, :, 0, 0]
'''
MODULE = 'experiments/rot_mnist/models/z2cnn.py'
TOPS = 'attgconv', 'experiments', 'g_selfatt', 'model', 'models'


def git(folder, *command):
    names = '-c', 'user.name=a', '-c', 'user.email=a@b.c'
    done = subprocess.run(['git', *names, *command], cwd=folder, check=True, capture_output=True,
                          text=True)
    return done.stdout.strip()


def clone_of(folder, constant='math.pi/2', corner='0', text=FAKE):
    "A fake clone of P1's repository."
    files = dict.fromkeys(tool.REPOSITORIES['P1'].files, '')
    files[MODULE] = text.replace('CONSTANT', constant).replace('CORNER', corner)
    for name, content in files.items():
        path = folder/name
        path.parent.mkdir(parents=True, exist_ok=True)
        # packages, as published: a namespace would lose against a package elsewhere on the path
        for folder_of in path.relative_to(folder).parents[:-1]:
            (folder/folder_of/'__init__.py').touch()
        path.write_text(content)
    for command in (('init', '-q'), ('add', '-A'), ('commit', '-qm', 'Publish')):
        git(folder, *command)
    return folder


def forget():
    for name in [n for n in sys.modules if n.split('.')[0] in TOPS]: del sys.modules[name]


@pytest.fixture(autouse=True)
def forgotten():
    "No test sees the modules of another one's clone, nor test folders of the same names."
    ours = {name: m for name, m in sys.modules.items() if name.split('.')[0] in TOPS}
    forget()
    yield
    forget()
    sys.modules.update(ours)


@pytest.fixture
def two_networks(monkeypatch):
    "Of the table, P1's p4-CNN and P4's network; memory as if measured."
    names = 'p4-CNN', 'E4-Net'
    monkeypatch.setattr(tool, 'NETWORKS', {n: tool.NETWORKS[n] for n in names})
    sizes = iter([300, 1, 500, 400, 400, 1000])
    monkeypatch.setattr(tool, 'peak_memory', lambda make, shape, timeout: next(sizes))


def rows_of(record): return next(iter(record['tables'].values()))


def test_record_of_a_clone_and_of_a_missing_one(tmp_path, two_networks, capsys):
    clone, out = clone_of(tmp_path/'att_gconvs'), tmp_path/'published.json'
    tool.main(['--p1', str(clone), '--quick', '--out', str(out)])
    record = json.loads(out.read_text(encoding='utf-8'))
    ours, missing = rows_of(record)
    assert ours['parameters'] == {'ours': 24_610, 'published': 24_610}
    assert ours['output_difference'] < 1e-12
    assert all(e < 1e-10 for side in ours['equivariance'].values() for e in side.values())
    seconds = ours['seconds']
    assert ours['time'] == seconds['ours']/seconds['published'] and ours['noise'] >= 0
    assert ours['memory_ratio'] == 300/400 and ours['repeats'] == 3
    assert record['repositories']['P1']['commit'] == git(clone, 'rev-parse', 'HEAD')
    assert record['quick'] and str(tmp_path) not in record['command']
    assert missing.keys() == {'name', 'network', 'paper', 'measured', 'reason'}
    assert not missing['measured'] and tool.REPOSITORIES['P4'].url in missing['reason']
    assert 'P4 is not measured: no clone' in capsys.readouterr().out
    assert git(clone, 'status', '--porcelain', '--ignored') == ''   # untouched


def test_other_outputs_and_a_broken_symmetry_are_seen(tmp_path):
    network = tool.NETWORKS['p4-CNN']
    clone = clone_of(tmp_path, constant='1', corner='1')
    assert tool.outputs(network, clone)['output_difference'] > .01
    errors = tool.symmetry(network, clone)['equivariance']
    assert max(errors['ours'].values()) < 1e-10 < 1e-3 < min(errors['published'].values())


def test_full_attention_is_compared_as_it_is_registered():
    "Nothing of it is replaced, and nothing is said to be: it has no dilation."
    like = tool.NETWORKS['α-p4-CNN'].like
    assert like.words == tool.NETWORKS['p4-CNN'].like.words == 'the published Haar constant'
    kinds = AttentiveLiftingConv2d, AttentiveGroupConv2d
    branches = [[m.branch.dilation for m in net.modules() if isinstance(m, kinds)]
                for net in (like.ours(), build_model('alpha-p4-cnn'))]
    assert branches == [[1]*7]*2


def test_self_attention_is_compared_with_its_crops(tmp_path, monkeypatch):
    "A network like the published one, cropped after the norm, is equal; one not cropped is not."
    def theirs(**options):
        class Summed(GSANet):
            def forward(self, x):
                y = self.layers(x).amax(2)
                return y.flatten(2).sum(2)
        net = Summed('Z2', **options)
        for m in net.modules():
            if hasattr(m, 'eps'): m.eps = 1e-12
        return net

    network, differences = tool.NETWORKS['Z2_SA'], []
    for options in ({'late_crop': True}, {}, {'crops': None}):
        like = replace(network.like, theirs=partial(theirs, **options),
                       translate=lambda name, tensor: (name, tensor))
        found = tool.outputs(replace(network, like=like), tmp_path)
        differences.append(found['output_difference'])
    assert differences[0] < 1e-12 and min(differences[1:]) > 1e-3
    assert 'crop' in found['outputs'] and 'nothing cropped' not in found['outputs']


def test_without_clones_nothing_is_measured(tmp_path, capsys):
    record = tool.main(['--p1', str(tmp_path/'nowhere')])
    assert [r['name'] for r in rows_of(record)] == list(tool.NETWORKS)
    assert not any(r['measured'] or 'time' in r for r in rows_of(record))
    said = capsys.readouterr().out
    assert 'nowhere is not there' in said and 'give --p3 FOLDER' in said


@pytest.mark.parametrize('name', [MODULE, 'new.py'])
def test_changed_clone_is_refused(tmp_path, name):
    clone = clone_of(tmp_path)
    tool.checked_commit(clone, 'P1')
    with open(clone/name, 'a') as file: file.write('\nchanged = True\n')
    with pytest.raises(SystemExit, match=f'got changed files:\n.*{name}'):
        tool.main(['--p1', str(clone), '--quick'])


def test_unknown_layout_is_refused(tmp_path):
    network, clone = tool.NETWORKS['p4-CNN'], clone_of(tmp_path/'a', text='class Other: pass')
    with pytest.raises(SystemExit, match='no p4-CNN in it: .*P4CNN'):
        tool.published('p4-CNN', clone)
    forget()
    other = clone_of(tmp_path/'b', text=FAKE.replace("f'bn{i}'", "f'norm{i}'"))
    with pytest.raises(SystemExit, match="weights of p4-CNN: 'norm1"): tool.outputs(network, other)
    (other/tool.REPOSITORIES['P1'].files[0]).unlink()
    with pytest.raises(SystemExit, match='has no attgconv/attention_layers.py'):
        tool.main(['--p1', str(other), '--quick'])


def test_network_from_elsewhere_is_refused(tmp_path):
    clone, other = clone_of(tmp_path/'a'), clone_of(tmp_path/'b')
    tool.published('p4-CNN', clone)   # its modules are imported now
    with pytest.raises(SystemExit, match=f'p4-CNN came from {clone}'):
        tool.published('p4-CNN', other)


def test_folder_without_git_is_refused(tmp_path):
    clone = clone_of(tmp_path)
    shutil.rmtree(clone/'.git')
    with pytest.raises(SystemExit, match='expected a git clone'):
        tool.main(['--p1', str(clone), '--quick'])


def test_fresh_process_can_build_theirs(tmp_path):
    make = partial(tool.published, 'p4-CNN', clone_of(tmp_path))
    assert peak_memory(make, (1, 1, 28, 28)) > 0


# --- the record of the repository, and the texts that quote it

def stored_rows():
    "The rows of the stored record, by name."
    record = json.loads((ROOT/'results'/'bench'/'published.json').read_text(encoding='utf-8'))
    assert record['hardware']['threads'] == 2   # as README says
    assert not record['quick'] and set(record['repositories']) == set(tool.REPOSITORIES)
    return {r['name']: r for r in rows_of(record)}


def test_stored_record_is_whole():
    rows = stored_rows()
    assert list(rows) == list(tool.NETWORKS) and all(r['measured'] for r in rows.values())
    for name, r in rows.items():
        if name != 'R4_SA': assert r['output_difference'] < 1e-13, name
        if r['equivariance']: assert max(r['equivariance']['ours'].values()) < 1e-12, name


def test_stored_record_says_what_was_compared():
    "As the tool says it now; where it was another thing then, the record says which."
    record = json.loads((ROOT/'results'/'bench'/'published.json').read_text(encoding='utf-8'))
    for name, r in stored_rows().items():
        like = tool.NETWORKS[name].like
        words = like if isinstance(like, str) else f'weights copied, {like.words}'
        assert 'in place of 4' not in r['outputs']
        noted = any(note.startswith(f'{name}, outputs:') for note in record.get('corrected', ()))
        assert r['outputs'] == words or noted, name


@pytest.mark.parametrize('their_name', [
    'lifting_self_attention.row_embedding.0.weight', 'lifting_self_attention.query.bias',
    'transformer.0.attention.2.group_embedding.weight',
    'transformer.5.attention.2.wout.weight'])
def test_their_weights_have_names_of_ours(their_name):
    here, _ = tool.self_attention_weight(their_name, torch.zeros(90, 90))
    assert here in build_model('gsa-r4').state_dict()


QUOTED = {'6_reference/94_audit_attentive': ['p4-CNN', 'α_F-p4-CNN', 'α-p4-CNN'],
          '6_reference/96_audit_self_attention': ['Z2_SA', 'R4_SA'],
          '6_reference/97_audit_e4': ['E4-Net']}


@pytest.mark.parametrize('chapter', QUOTED)
def test_chapter_quotes_the_stored_record(chapter):
    notebook = json.loads((ROOT/f'nbs/{chapter}.ipynb').read_text(encoding='utf-8'))
    text = '\n'.join(''.join(c['source']) for c in notebook['cells'])
    said = re.findall(r'(\S+) takes ([\d.]+) of the time and ([\d.]+) of the memory', text)
    table = re.search(r'\| ours over theirs, .*\n\|[-:|]+\n((?:\|.*\n)+)', text)
    if table: said += re.findall(r'\| (\S+) \| ([\d.]+) \| ([\d.]+) \|', table[1])
    rows = [stored_rows()[name] for name in QUOTED[chapter]]
    assert said == [(r['name'], f'{r["time"]:.2f}', f'{r["memory_ratio"]:.2f}') for r in rows]
    assert f'noise up to ± {max(r["noise"] for r in rows):.0%}' in text
