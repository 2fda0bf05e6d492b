"The small networks on finer groups: what is measured, on a few digits."
import json

from eqtutor.papers.finer_turns import COMPARED, WIDTHS, TurnNet, measure_accuracy, measure_training


def test_accuracy_is_measured_and_stored(tmp_path):
    file = tmp_path/'a.json'
    rows = measure_accuracy(file, 1, 1, 64, 16, ('C4', 'C8'))
    assert [r['group'] for r in rows] == ['C4', 'C8']
    for row in rows:
        assert row['changed at 90°'] == 0 and 0 <= row['error'] <= 1
    stored = json.loads(file.read_text(encoding='utf-8'))
    assert stored['runs'] == rows and stored['config']['images'] == 64


def test_logits_move_at_45_degrees_only(tmp_path):
    rows = measure_training(tmp_path/'t.json', 1, 64, (0, 4))
    for row in rows:
        assert all(len(row[name]) == 2 for name in COMPARED)
        assert max(row['90°']) < 1e-10 < 1e-4 < min(row['45°, both blurred'])


def test_all_groups_have_nearly_as_many_parameters():
    sizes = [sum(p.numel() for p in TurnNet(g, c).parameters()) for g, c in WIDTHS.items()]
    assert min(sizes) > 13_500 and max(sizes) < 17_000
