"P3's third pose on scales: what the printed index does when everything is enlarged."
from functools import partial

import torch

from eqtutor.papers.scales import dense_window, dilation_error, drawn_maps, waves_on_scales


def three_poses(f, x, h, printed):
    "Queries around h, sources around each query, no factor; the printed index, or h̃⁻¹ĥ."
    Q, K, V, rho = drawn_maps()
    offsets, steps, y = dense_window(h), (2**-.5, 1, 2**.5), 0.
    log_w = -(offsets/h).square().sum(-1)/2
    for asking in steps:
        query, Z, S = Q @ f(x, asking*h), 0., 0.
        for ratio in steps:                                       # h̃⁻¹ĥ
            source, pose = f(x + offsets, ratio*asking*h), ratio/h if printed else ratio
            scores = (source @ K.T + rho(offsets/h, pose)) @ query
            weights = (scores + log_w).exp()
            Z, S = Z + weights.sum(), S + weights @ (source @ V.T)
        y = y + S/Z
    return y


def test_with_the_repaired_index_three_poses_keep_an_enlargement_and_with_the_printed_one_not():
    repaired, as_printed = (
        dilation_error(partial(three_poses, printed=printed), waves_on_scales, 2.)
        for printed in (False, True))
    assert repaired < 1e-8 < 1e-3 < as_printed


def test_maps_depend_on_the_seed():
    first, again, other = (drawn_maps(seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
