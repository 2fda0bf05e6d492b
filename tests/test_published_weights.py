"The published weights on our digits: a fake clone, and the record of the repository."
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from eqtutor.equivariance import perturb_
from eqtutor.papers.tables import chosen_tables

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT/'tools'))
import published_weights as tool  # noqa: E402
from test_against_published import clone_of, forgotten, git  # noqa: E402, F401

NAME = 'p4-CNN'


def their_network(clone):
    torch.manual_seed(0)
    with tool.importable(clone): return tool.NETWORKS[NAME].like.theirs()


@pytest.fixture
def saved(tmp_path):
    "A fake clone with moved weights and a history of 30 epochs, the last but one without errors."
    clone = clone_of(tmp_path/'att_gconvs')
    net, folder = perturb_(their_network(clone)), clone/tool.FOLDER.format(tool.SAVED[NAME])
    folder.mkdir(parents=True)
    torch.save(net.state_dict(), folder/'model.pth')
    errors = np.arange(30, 0, -1.)   # per cent
    errors[-2] = 0
    np.save(folder/'model_history.npy', np.stack([1 - errors/100]*4))
    git(clone, 'add', '-A')
    git(clone, 'commit', '-qm', 'Add weights')
    return clone, folder, net.eval()


def test_our_network_answers_as_theirs_with_their_weights(saved):
    clone, folder, theirs = saved
    x = torch.randn(2, 1, 28, 28)
    ours = tool.with_their_weights(NAME, clone, folder)
    with torch.no_grad(): ours, expected = ours(x), theirs(x)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_row_has_their_history_and_the_error_on_given_digits(saved):
    clone, folder, theirs = saved
    x = torch.randn(40, 1, 28, 28)
    with torch.no_grad(): y = theirs(x).argmax(1)
    y[:4] = (y[:4] + 1) % 10
    row = tool.row(NAME, clone, (x, y))
    assert row['rebuilt'] == 10
    there = row['original']
    assert (there['epochs'], there['best_epoch']) == (30, 29)
    assert (there['best'], there['last']) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    late = [*range(20, 2, -1), 0, 1]
    assert there['late'] == pytest.approx(np.mean(late))
    assert there['late_deviation'] == pytest.approx(np.std(late, ddof=1))


def test_missing_and_other_weights_are_refused(saved):
    clone, folder, _ = saved
    torch.save({'other': torch.zeros(1)}, folder/'model.pth')
    with pytest.raises(SystemExit, match=f'(?s)weights of {NAME}: .*other'):
        tool.with_their_weights(NAME, clone, folder)
    (folder/'model.pth').unlink()
    with pytest.raises(SystemExit, match='no model.pth in model_p4cnn'): tool.row(NAME, clone, ())
    with pytest.raises(SystemExit, match='is not there. git clone'):
        tool.main(['--p1', str(clone/'nowhere')])


def test_tool_says_how_it_is_called():
    done = subprocess.run([sys.executable, 'tools/published_weights.py', '--help'], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0 and '--p1' in done.stdout


def test_record_is_of_the_published_code():
    record = json.loads((ROOT/'results/published-weights.json').read_text(encoding='utf-8'))
    rows = {r['name']: r for r in next(iter(record['tables'].values()))}
    assert rows.keys() == tool.SAVED.keys()
    printed = {r.network: r.printed for t in chosen_tables(['P1.1']) for r in t.rows}
    for row in rows.values():   # one run of those whose mean the paper prints
        mean, deviation = map(float, printed[row['network']].split(' ± '))
        assert abs(row['original']['best'] - mean) < 5*deviation
