"Small tasks: no shortcut, equal networks, who is blind and who sees, runs that resume, verdicts."
import json
import statistics
from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from eqtutor.cost import count_parameters
from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.papers import small_runs
from eqtutor.papers.small_runs import (
    FACTORS,
    TASKS,
    A,
    B,
    C,
    D,
    Entry,
    compared,
    learnt,
    measure_times,
    run_task,
    runs_of,
    spread,
    try_rates,
)
from eqtutor.papers.small_tasks import (
    IGNORED,
    DepthE4,
    ReadOut,
    accuracy,
    compare_net,
    defocus,
    dice,
    few_digits,
    in_cell,
    look_up,
    relative_error,
    same_pose,
    shapes,
    train,
)
from eqtutor.train import digits

BLIND = ('convolution', 'convolution 3×3', 'convolution, joint maximum', 'E4', 'ASC',
         'self-attention, no encoding')
SEE = ('self-attention', 'α_F', 'convolution 7×7', 'plain convolution 3×3',
       'convolution, places first')
ENTRIES = [(task, entry) for task in TASKS.values() for entry in task.entries]


# --- data

def test_partners_differ_in_a_turn_of_one_frame():
    x, y = same_pose(40, dice(0))
    assert y.tolist() == [1, 0]*20 and set(x.unique().tolist()) == {0, 1}
    for a, b in zip(x[::2], x[1::2]):
        assert a.sum() == b.sum() == 10
        top, left = ((a != b)[0].nonzero().amin(0) - 2)//4*4 + 2       # of the cell
        one, other = (t[0, top:top + 4, left:left + 4] for t in (a, b))
        assert any(torch.equal(one.rot90(k), other) for k in (1, 2, 3))
        assert (a != b).sum() == (one != other).sum()                  # and nothing else


def test_neither_a_glyph_nor_its_place_tells_the_answer():
    "Each of the 16 forms of a cell occurs as often with one answer as with the other."
    x, y = same_pose(4000, dice(1))
    # cells begin at 2 modulo 4
    cells = x[:, 0, 2:38, 2:38].unfold(1, 4, 4).unfold(2, 4, 4).flatten(3)   # `(n, 9, 9, 16)`
    inked = cells.sum(-1) == 5
    assert (inked.sum((1, 2)) == 2).all()
    weights = 2.**torch.arange(16)
    for answer in (0, 1):
        forms = (cells[y == answer][inked[y == answer]] @ weights).unique(return_counts=True)[1]
        assert len(forms) == 16 and (forms/250 - 1).abs().max() < .25


def test_a_corner_that_does_not_turn_is_the_same_for_both_glyphs():
    x, _ = same_pose(40, dice(0), corner_turns=False)
    cells = x[:, 0, 2:38, 2:38].unfold(1, 4, 4).unfold(2, 4, 4)
    for picture in cells:
        inked = picture[picture.sum((-2, -1)) == 5]
        empty = [(c.sum(0) == 0).nonzero().item()*4 + (c.sum(1) == 0).nonzero().item()
                 for c in inked]
        assert len(empty) == 2 and empty[0] == empty[1]


@pytest.mark.parametrize('pairs, each', [(2, 1), (3, 1), (4, 2), (6, 2), (8, 4)])
def test_each_colour_belongs_to_as_many_pairs(pairs, each):
    x, y = look_up(50, dice(0), pairs)
    for answers in y:
        counts = answers[answers != IGNORED].unique(return_counts=True)[1]
        assert counts.tolist() == [each]*(pairs//each)
    assert ((y != IGNORED).sum((1, 2)) == pairs).all()


def trimmed(cell):
    rows, columns = cell.nonzero().T
    box = cell[rows.min():rows.max() + 1, columns.min():columns.max() + 1]
    return {tuple(box.rot90(k).flatten().tolist()) for k in range(4)}


def test_each_grey_glyph_has_one_twin_and_it_has_the_colour():
    x, y = look_up(20, dice(1), 6)
    cells = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)  # `(n, 4, 4, 3, 4, 4)`
    for scene, answers in zip(cells, y):
        flat, answers = scene.flatten(0, 1), answers.flatten()
        coloured = [i for i in range(16) if answers[i] == IGNORED and flat[i].any()]
        assert len(coloured) == 6
        for i in (answers != IGNORED).nonzero()[:, 0]:
            assert torch.equal(flat[i, 0], flat[i, 1])               # grey
            twins = [j for j in coloured if trimmed(flat[j].amax(0)) == trimmed(
                (flat[i, 0] > 0).float())]
            assert len(twins) == 1
            assert flat[twins[0]].sum((1, 2)).nonzero().item() == answers[i]


def test_new_shapes_are_new():
    forms = [trimmed(shape[0, 0]) for shape in shapes()]
    assert len(forms) == 24 and all(len(f) == 4 for f in forms)
    assert all(a.isdisjoint(b) for i, a in enumerate(forms) for b in forms[:i])
    seen = {tuple(sorted(trimmed(c.amax(0)))) for c in
            look_up(60, dice(0), new=True)[0].unfold(2, 4, 4).unfold(3, 4, 4)
            .permute(0, 2, 3, 1, 4, 5).flatten(0, 2) if c.amax() == 1}
    assert seen == {tuple(sorted(f)) for f in forms[16:]}


def test_blur_is_a_sum_with_the_width_of_the_pixel():
    x, y = defocus(2, dice(3))
    texture, depth = x[1].double()
    row, column = 7, 9
    sigma = .3 + 1.7*depth[row, column]
    total = weight = 0.
    for down in range(-2, 3):
        for right in range(-2, 3):
            w = torch.exp(-(down**2 + right**2)/(2*sigma**2))
            total, weight = total + w*texture[row + down, column + right], weight + w
    assert abs(y[1, 0, row, column] - total/weight) < 1e-5
    strong = defocus(2, dice(3), 3.)
    torch.testing.assert_close(strong[1], 3*y)
    assert torch.equal(strong[0][:, 1], x[:, 1])


def test_few_digits_are_none_of_the_test():
    x, y = few_digits(50, dice(0))
    test = digits('test', size=8).tensors[0].flatten(1)
    assert x.shape == (50, 1, 8, 8) and len(y) == 50
    assert torch.cdist(x.flatten(1), test).min() > 1e-3
    assert not torch.equal(x, few_digits(50, dice(1))[0])


# --- networks

@pytest.mark.parametrize('task', TASKS.values(), ids=TASKS)
def test_networks_have_as_many_parameters_within_a_tenth(task):
    sizes = [count_parameters(e.make()) for e in task.entries if 'four times' not in e.name]
    assert all(abs(size/statistics.median(sizes) - 1) < .1 for size in sizes), sizes


def change(name, train=False):
    "Of the scores when one glyph alone is turned, relative; all weights are moved."
    torch.manual_seed(0)
    net = perturb_(A.entry(name).make().double()).train(train)
    with torch.no_grad(): scores = net(same_pose(12, dice(7))[0].double())
    assert scores.std() > 1e-4
    return ((scores[::2] - scores[1::2]).abs().max()/scores.abs().max()).item()


@pytest.mark.parametrize('name', BLIND)
def test_local_networks_with_a_joint_read_out_are_blind(name):
    "Also while they train: batches consist of partners."
    assert max(change(name), change(name, train=True)) < 1e-12

@pytest.mark.parametrize('name', SEE)
def test_the_others_see(name): assert change(name) > 1e-6

def test_all_networks_of_task_a_are_blind_or_see():
    assert {*BLIND, *SEE} == {e.name for e in A.entries if not e.equal_time}


INPUTS = {'A': partial(same_pose, 2), 'B': partial(look_up, 2), 'C': partial(defocus, 2),
          'D': partial(few_digits, 2)}

@pytest.mark.parametrize('task, entry', [
    pytest.param(t, e, id=f'{t.letter} {e.label}') for t, e in ENTRIES
    if not e.equal_time and e.longer == 1])
def test_networks_turn_with_the_picture_but_the_plain_ones(task, entry):
    torch.manual_seed(0)
    net = perturb_(entry.make().double()).eval()
    x = INPUTS[task.letter](dice(3))[0].double()
    worst = max(equivariance_error(net, x, 'p4'))
    assert worst > 1e-3 if entry.name.startswith('plain') else worst < 1e-12


def test_kernels_are_written_from_the_depth_alone():
    layer = perturb_(DepthE4(3, 2, 3, 'p4', norm='none').double())
    f = torch.randn(1, 3, 4, 5, 5, dtype=torch.float64)
    other = f.clone()
    other[:, :2] = torch.randn(1, 2, 4, 5, 5)
    assert torch.equal(layer.kernels(f), layer.kernels(other))
    assert (layer(f) - layer(other)).abs().max() > 1e-3
    other[:, 2] += 1
    assert (layer.kernels(f) - layer.kernels(other)).abs().max() > 1e-3


def test_read_outs_differ_in_the_order_of_two_sums():
    f = torch.zeros(1, 1, 4, 1, 2)
    f[0, 0, 0] = 1.                       # two glyphs in pose 0 …
    g = f.clone()
    g[0, 0, 0, 0, 1], g[0, 0, 1, 0, 1] = 0., 1.    # … and one of them in pose 1
    for how in ('joint mean', 'joint maximum'): assert ReadOut(how)(f) == ReadOut(how)(g)
    assert ReadOut('places first')(f) == 2*ReadOut('places first')(g) == 1


# --- what is measured

def test_accuracy_counts_where_one_is_asked():
    net = torch.nn.Identity()
    scores = torch.tensor([[[2., 2, 0]], [[1., 1, 1]]]).transpose(0, 1)   # `(1, 2, 3)`
    assert accuracy(net, (scores, torch.tensor([[0, 1, IGNORED]]))) == 50

def test_relative_error_is_a_share_of_the_variance():
    y = torch.randn(500, generator=dice(0))
    assert abs(relative_error(torch.nn.Identity(), (y + y.std(), y)) - 100) < .1


# --- runs

@pytest.fixture
def small(tmp_path, monkeypatch):
    "Task A with one quick network, and an empty folder of results."
    (tmp_path/'bench').mkdir()
    for place in (small_runs, __import__('eqtutor.files', fromlist=['files'])):
        monkeypatch.setattr(place, 'results_folder', lambda: tmp_path)
    net = 'convolution', partial(compare_net, 'conv', 2, 2, 1)
    entries = [Entry(*net), Entry(*net, equal_time='self-attention')]
    task = replace(A, steps=2, entries=entries,
                   scores=lambda net, variant: {'right': accuracy(net, same_pose(20, dice(9)))})
    monkeypatch.setitem(TASKS, 'A', task)
    return task, tmp_path/'when-attention-pays'/'same-pose.json'


def test_runs_resume_and_give_the_same_again(small):
    (task, file), said = small, []
    run_task(task, range(2), said.append)
    record = json.loads(file.read_text())
    assert [r['seed'] for r in record['runs']] == [0, 1]
    assert {'versions', 'hardware', 'commit'} == record['environment'].keys()
    assert sum('--times comes first' in line for line in said) == 2
    said.clear()
    run_task(task, range(2), said.append)
    assert json.loads(file.read_text()) == record and not [s for s in said if 'seed' in s]
    lost = record | {'runs': record['runs'][1:],
                     'environment': record['environment'] | {'commit': 'another'}}
    file.write_text(json.dumps(lost))
    run_task(task, range(2), said.append)
    again = json.loads(file.read_text())
    assert sorted(again['runs'], key=lambda r: r['seed']) == record['runs']
    assert [e['commit'] for e in again['resumed']] == ['another']


def test_equal_time_is_a_number_of_steps_by_the_benchmark(small):
    task, file = small
    bench = file.parents[1]/'bench'/'small-tasks.json'
    rows = [{'name': 'A convolution', 'time': 1.}, {'name': 'A self-attention', 'time': 6.4}]
    bench.write_text(json.dumps({'tables': {'same-pose': rows}}))
    assert task.steps_of(task.entries[1]) == 13 and task.steps_of(task.entries[0]) == 2
    assert [e.label for e in task.entries] == ['convolution', 'convolution, time of self-attention']


def test_longer_is_a_multiple_of_the_steps():
    assert D.steps_of(D.entry('ASC, 3 × the steps')) == 3*D.steps


def test_a_run_of_other_steps_is_done_anew(small):
    task, file = small
    run_task(task, range(1), lambda line: None)
    run_task(replace(task, steps=3), range(1), lambda line: None)
    assert [r['steps'] for r in json.loads(file.read_text())['runs']] == [3]


def test_a_rate_is_chosen_by_what_it_misses(small):
    "And a run with another rate is done anew."
    task, file = small
    task = replace(task, entries=[replace(task.entries[0], searched=True)],
                   choice=lambda net: abs(next(net.parameters()).std().item()))
    run_task(task, range(1), lambda line: None)
    said = []
    try_rates(task, said.append)
    tried = json.loads((file.parent/'rates.json').read_text())['runs']
    assert [r['lr'] for r in tried] == [f*task.lr for f in FACTORS] and len(said) == 3
    best = min(tried, key=lambda r: r['loss'])['lr']
    assert task.rate_of(task.entries[0], '') == best != task.lr
    run_task(task, range(1), lambda line: None)
    assert [r['lr'] for r in json.loads(file.read_text())['runs']] == [best]
    try_rates(task, said.append)
    assert len(said) == 3


def test_times_are_measured_once(small):
    task, file = small
    bench = file.parents[1]/'bench'/'small-tasks.json'
    ticks = iter(range(10**6))
    measure_times([replace(task, entries=task.entries[:1])], 1, lambda: next(ticks))
    assert [r['name'] for r in json.loads(bench.read_text())['tables']['same-pose']] == [
        'A convolution']
    more = Entry('E4', partial(compare_net, 'E4', 2, 2))
    measure_times([replace(task, entries=[*task.entries, more])], 1, lambda: next(ticks))
    rows = json.loads(bench.read_text())['tables']['same-pose']
    assert [(r['name'], r['time']) for r in rows] == [('A convolution', 1.), ('A E4', 1.)]


@pytest.mark.parametrize('task', TASKS.values(), ids=TASKS)
def test_no_stored_run_is_stale(task):
    "Steps and rate are those of today, and each network is there once a variant and seed."
    runs = runs_of(task)
    for run in runs:
        entry = task.entry(run['network'])
        today = task.steps_of(entry), task.rate_of(entry, run['variant'])
        assert (run['steps'], run['lr']) == today, (run['variant'], entry.label, run['seed'])
    keys = [(r['variant'], r['network'], r['seed']) for r in runs]
    assert len({*keys}) == len(keys)


@pytest.mark.parametrize('first, second, says', [
    ([90, 91], [50, 60], 'each run of E4 is ahead'),
    ([50, 60], [90, 91], 'each run of ASC is ahead'), ([90, 50], [60, 40], 'do not separate'),
    ([60], [90, 91], 'a single run is no verdict'), ([90], [60], 'no verdict'),
    ([], [60], 'not run: `python')])
def test_a_verdict_is_what_the_runs_separate(monkeypatch, first, second, says):
    numbers = {'E4': first, 'ASC': second}
    monkeypatch.setattr(small_runs, 'values', lambda letter, name, *_: numbers[name])
    assert says in compared('A', 'E4', 'ASC', 'right')
    if says.startswith('each'):
        other = 'ASC' if 'E4' in says else 'E4'
        assert f'each run of {other} is ahead' in compared('A', 'E4', 'ASC', 'right', lower=True)


def test_numbers_in_words(monkeypatch):
    assert (spread([1, 2, 3]), spread([2]), spread([])) == ('2.0 ± 1.0', '2.0', '')
    monkeypatch.setattr(small_runs, 'values', lambda *_: [50, 100, 100])
    assert learnt('A', 'E4', 'right', 90) == '2 of 3'


def test_the_table_has_all_runs_and_says_what_is_missing(small):
    task, _ = small
    missing = small_runs.runs_table('A')
    assert missing.count('not run') == 2
    run_task(task, range(2), lambda line: None)
    filled = small_runs.runs_table('A')
    assert filled.count('not run') == 1 and '| 2 | right 5' in filled


# --- the verdicts, with seeds that no stored run has

FRESH_SEEDS = 11, 12, 13

@cache
def runs(letter, label):
    task = TASKS[letter]
    (variant, *_), entry = task.variants, task.entry(label)
    return [small_runs.perform(task, variant, entry, seed, task.steps_of(entry))
            for seed in FRESH_SEEDS]

def scores(task, label, score): return [run[score] for run in runs(task.letter, label)]


@pytest.mark.slow
def test_fresh_seeds_task_a():
    assert max(scores(A, 'convolution', 'right')) < 60
    for name in ('α_F', 'convolution, places first'): assert min(scores(A, name, 'right')) > 90
    assert sum(s > 90 for s in scores(A, 'self-attention', 'right')) >= 2

@pytest.mark.slow
@pytest.mark.parametrize('score', ['known shapes', 'new shapes'])
@pytest.mark.parametrize('ahead', ['self-attention',
                                   'plain self-attention, time of self-attention'])
def test_fresh_seeds_task_b(ahead, score):
    "With the group and without it."
    rival = 'convolution and the mean, time of self-attention'
    assert min(scores(B, ahead, score)) > max(scores(B, rival, score))

@pytest.mark.slow
def test_fresh_seeds_task_c():
    """The bill of E4, and that a kernel which reads the depth alone does not get it.

    It is ahead of the convolutions in most trainings: the share is the verdict.
    """
    rival, score = 'convolution 3×3, three, time of E4 5×5', 'error at contrast × 3'
    assert min(scores(C, 'E4 5×5', score)) > max(scores(C, rival, score))
    depth = scores(C, 'depth E4 5×5', score)
    assert max(depth) < .1*min(scores(C, 'E4 5×5', score))
    assert sum(s < min(scores(C, rival, score)) for s in depth) >= 2
    better = [s < min(scores(C, 'E4 5×5', 'error')) for s in scores(C, 'depth E4 5×5', 'error')]
    assert sum(better) >= 2

@pytest.mark.slow
def test_fresh_seeds_task_d():
    best = min(scores(D, 'convolution 3×3', 'turned'))
    for name in ('E4', 'ASC', 'plain convolution 3×3'):
        assert best > max(scores(D, name, 'turned'))


def test_training_is_the_same_for_the_same_seed():
    def weights():
        torch.manual_seed(0)
        net = train(compare_net('conv', 2, 2, 1), partial(same_pose, 4), 3, .01, seed=5)
        return torch.cat([p.flatten() for p in net.parameters()])
    assert torch.equal(weights(), weights())


def test_a_cell_has_four_corners():
    glyph = torch.ones(3, 3)
    assert len({tuple(in_cell(glyph, c).flatten().tolist()) for c in range(4)}) == 4
