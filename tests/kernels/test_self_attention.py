"The plan of streamed attention, and that what is changed between forward and backward is noticed."
import itertools

import pytest
import torch
from torch import nn

from eqtutor.kernels.self_attention import (
    AttentionPlan,
    TiledAttention,
    Workspace,
    draw_seed,
    dropout_mask,
    plan_attention,
    recompute_later,
)

SIZES = [(28, 28), (7, 9), (1, 1), (13, 4)]

CASES = [c for c in itertools.product(SIZES, (1, 3, 5, 9), (0, 1)) if min(c[0]) > 2*c[2]]

@pytest.mark.parametrize('image, window, crop', CASES)
def test_tiles_divide_the_output_and_see_all_of_their_windows(image, window, crop):
    plan = plan_attention(image, window, 4, 4, 90, crop)
    for n, t, k in zip(image, plan.tile, plan.extent):
        assert (n - 2*crop) % t == 0 and k == t + window - 1
    assert plan.padding == window//2 - crop and plan.images >= 1 and plan.size >= 1

def test_a_plan_holds_about_a_cache_of_scores_and_more_on_a_gpu():
    plan, gpu = (plan_attention((28, 28), 5, 4, 4, 90, cuda=cuda) for cuda in (False, True))
    scores = 28*28*36*16
    assert plan.size*scores <= 2**19 or plan.size == 1
    assert 2**22 < gpu.size*scores <= 2**23

def test_while_compiling_heads_are_split_and_no_batch_decides(monkeypatch):
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    plan = plan_attention((28, 28), 5, 4, 4, 90)
    assert plan.images is None and 1 <= plan.size < 9

def test_workspace_hands_out_one_memory_a_slot():
    space = Workspace(torch.zeros(1), 12)
    a, b, other = space('scratch', 3, 4), space('scratch', 2, 5), space('masked', 3, 4)
    a.fill_(1.)
    other.fill_(2.)
    assert (b == 1).all() and (a == 1).all()
    with pytest.raises(KeyError, match='slot 3'): space('slot 3', 2)

def test_a_seed_is_drawn_only_for_dropout():
    torch.manual_seed(0)
    assert draw_seed(0.) is None and draw_seed(.1) != draw_seed(.1)

def test_dropout_masks_take_odd_and_empty_shapes():
    assert dropout_mask((3, 5, 7), .5, 'cpu').shape == (3, 5, 7)
    assert dropout_mask((0, 4), .5, 'cpu').shape == (0, 4)

def test_recompute_watches_input_and_weights():
    lin, x = nn.Linear(3, 3), torch.randn(2, 3)
    for changed in (lin.weight, x):
        recompute = recompute_later(lambda: (lin(x), x), x, *lin.parameters())
        assert torch.equal(recompute()[0], lin(x)) and not recompute()[0].requires_grad
        with torch.no_grad(): changed.add_(1)
        with pytest.raises(RuntimeError, match='changed in place'): recompute()

def test_without_gradients_nothing_is_recomputed():
    with torch.no_grad(): assert recompute_later(lambda: (), torch.zeros(1)) is None

def test_second_derivatives_are_an_error():
    shapes = [(2, 1, 4, 1, 3), (2, 1, 2, 2, 6), (1, 1, 3), (4, 1, 4, 3)]
    args = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    plan = AttentionPlan(None, 0, (2, 2), (2, 2), 1, 2)
    bias = torch.zeros(1, 4, 4, dtype=torch.float64)
    y = TiledAttention.apply(*args, bias, plan, None, None, None)
    with pytest.raises(RuntimeError, match='first derivatives only'):
        torch.autograd.grad(y.square().sum(), args, create_graph=True)
