"The pictures of chapter 23: the numbers in them, against loops that read like the definitions."
from itertools import product

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.figure import Figure

from eqtutor.groups import get_group
from eqtutor.papers.self_attention_figures import (
    differing_cells,
    draw_lifting,
    draw_network,
    draw_table_and_function,
    draw_three_poses,
    lifting_parts,
    position_scores,
    three_pose_weights,
)

PIXEL, K = (3, 4), 3


def some(*shape): return torch.randn(*shape, dtype=torch.float64)


def case(name, c=2, d=3, size=(7, 8)):
    "A feature map, maps, encodings h⁻¹Δ by pose and pose vectors, for a group."
    torch.manual_seed(0)
    group = get_group(name)
    n = len(group)
    return group, some(c, n, *size), some(d, c), some(d, c), some(n, K*K, d), some(n, d)


def near(f, m, n): return f[..., PIXEL[0] + m - K//2, PIXEL[1] + n - K//2]


@pytest.fixture
def figure():
    "The figure that is drawn, and no other open."
    plt.close('all')
    yield lambda: plt.gcf()
    plt.close('all')


def panels(figure:Figure):
    "The arrays shown in a figure, with their axes, insets too."
    axes = [a for ax in figure.axes for a in (ax, *ax.child_axes)]
    return [(ax, torch.as_tensor(image.get_array().data)) for ax in axes for image in ax.images]


@pytest.mark.parametrize('name', ['mirror', 'p4', 'p4m'])
def test_three_pose_weights_are_those_of_the_definition(name):
    group, f, Q, keys, rho, eps = case(name)
    weights = three_pose_weights(f, PIXEL, Q, keys, rho, eps, group)
    n = len(group)
    for h, t in product(range(n), repeat=2):
        query = Q @ f[(slice(None), t, *PIXEL)]
        scores = torch.stack([
            query @ (keys @ near(f, i, j)[:, s] + rho[h, K*i + j] + eps[group.mul[group.inv[t], s]])
            for s, i, j in product(range(n), range(K), range(K))])
        torch.testing.assert_close(weights[h, t].flatten(), scores.softmax(0))


def test_position_scores_are_those_of_one_asker_in_one_pose():
    _, f, Q, _, rho, _ = case('p4')
    scores = position_scores(f, PIXEL, Q, rho)
    for h, t, i, j in product(range(4), range(4), range(K), range(K)):
        expected = (Q @ f[(slice(None), t, *PIXEL)]) @ rho[h, K*i + j]
        torch.testing.assert_close(scores[h, t, i, j], expected)


def test_lifting_parts_are_those_of_the_definition():
    _, f, Q, keys, rho, _ = case('p4', c=1)
    image = f[:, 0]
    patch, content, position, weights = lifting_parts(image, PIXEL, Q, keys, rho)
    query = Q @ image[(slice(None), *PIXEL)]
    for h in range(4):
        scores = torch.stack([query @ (keys @ near(image, i, j) + rho[h, K*i + j])
                              for i, j in product(range(K), repeat=2)])
        torch.testing.assert_close((content + position[h]).flatten(), scores)
        torch.testing.assert_close(weights[h].flatten(), scores.softmax(0))
    middle = patch[K//2, K//2]
    assert middle == image[(0, *PIXEL)] and (patch != middle).any()


def test_three_poses_show_the_named_asker_and_frame_its_panel(figure):
    group, f, Q, keys, rho, eps = case('p4')
    weights = three_pose_weights(f, PIXEL, Q, keys, rho, eps, group)
    place = position_scores(f, PIXEL, Q, rho)
    draw_three_poses(f[0, 0], PIXEL, weights, place, h=2, asker=3)
    shown = panels(figure())
    assert any(torch.equal(array, place[2, 3]) for _, array in shown)
    framed = [array for ax, array in shown if ax.spines['top'].get_linewidth() > 2]
    assert len(framed) == 1
    torch.testing.assert_close(framed[0], weights[2, 3].sum(0))
    assert any('read in pose h = 2' in ax.get_title() for ax in figure().axes)
    marked = [text.get_text() for ax in figure().axes for text in ax.texts
              if text.get_color() == 'w']
    assert marked == ['3']     # the asker
    said = [ax.get_xlabel() for ax, _ in shown if ax.get_xlabel()]    # each under its panel
    circled = differing_cells(weights.sum(2)[:, 3])
    assert said == [f'{weights[i, 3].sum(0)[cell]:.2f}' for i, cell in enumerate(circled)]


def test_arrows_of_three_poses_lead_to_the_brightest_pixel(figure):
    group, f, Q, keys, rho, eps = case('p4')
    weights = three_pose_weights(f, PIXEL, Q, keys, rho, eps, group)
    place = position_scores(f, PIXEL, Q, rho)
    draw_three_poses(f[0, 0], PIXEL, weights, place, h=2, asker=3)
    window = next(ax for ax in figure().axes if 'read in pose' in ax.get_title())
    ends = torch.tensor([t.xy for t in window.texts if t.get_text() == ''])
    x, y = ends.mean(0).round().int().tolist()
    assert len(ends) == 4
    assert weights[2, 3].sum(0)[K//2 - y, K//2 + x] == weights[2, 3].sum(0).max()


def test_differing_cells_are_one_cell_moved_with_the_encoding():
    torch.manual_seed(1)
    panel = some(5, 5)
    panels = torch.stack([panel.rot90(h) for h in range(4)])
    panels[2, 0, 1] += 9          # above, left of the middle; the others turn with it
    assert differing_cells(panels) == [(4, 3), (1, 4), (0, 1), (3, 0)]


def test_lifting_writes_the_sum_of_weights_times_patch(figure):
    _, f, Q, keys, rho, _ = case('p4', c=1)
    image = f[:, 0]
    parts = lifting_parts(image, PIXEL, Q, keys, rho)
    draw_lifting(image[0], PIXEL, *parts)
    said = [text.get_text() for ax in figure().axes for text in ax.texts]
    answers = [(parts[3][h]*parts[0]).sum() for h in range(4)]
    assert {f'{y:.2f}' for y in answers} <= {*said} and len({f'{y:.2f}' for y in answers}) > 1


def test_table_and_function_show_what_they_are_given(figure):
    torch.manual_seed(0)
    arrays = [some(5, 5) for _ in range(3)] + [some(9, 9), some(5, 5)]
    offsets, places = some(25, 2), some(25, 2)
    draw_table_and_function(*arrays, offsets, places)
    shown = [array for _, array in panels(figure())]
    for array, given in zip(shown, [*arrays[:4], arrays[3], arrays[4]], strict=True):
        assert torch.equal(array, given)
    dots = [line.get_xydata() for ax in figure().axes for line in ax.lines]
    frames = [torch.as_tensor(p.get_xy()) for ax in figure().axes for p in ax.patches]
    assert [torch.equal(torch.as_tensor(d), p) for d, p in zip(dots, (offsets, places))] == [True]*2
    # half a pixel beyond the outer places, of five: 5/4 of the way
    for frame, p in zip(frames, (offsets, places), strict=True):
        torch.testing.assert_close(frame[:4], 1.25*p[[0, 4, 24, 20]])


def test_network_has_a_box_for_each_part_and_an_arc_into_each_sum(figure):
    draw_network([('first', 8), ('second', 4), ('last', None)], [('a', 'b'), ('c',)],
                 {1: 'note'}, [(0, 1, 'span')])
    above, below = figure().axes
    assert [t.get_text() for t in above.texts if t.get_bbox_patch()] == ['first', 'second', 'last']
    sides = {t.get_position()[0]: t.get_text() for t in above.texts if '×' in t.get_text()}
    assert sides == {0: '8×8', 1: '4×4'}
    where = {t.get_text(): t.get_position()[0] for t in above.texts}
    assert (where['note'], where['span']) == (1, .5)
    boxes = [t.get_text() for t in below.texts if t.get_bbox_patch()]
    assert boxes == ['a', 'b', '+', 'c', '+']
    sums = [i for i, name in enumerate(boxes) if name == '+']
    assert [line.get_xdata()[-1] for line in below.lines] == pytest.approx(sums)
    starts = [line.get_xdata()[0] for line in below.lines]
    assert starts[0] < 0 and sums[0] < starts[1] < 3
