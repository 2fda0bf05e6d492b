"Wrappers that make any network equivariant, and where they do not."
import pytest
import torch
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import assert_equivariant, equivariance_error
from eqtutor.groups import get_group
from eqtutor.nn import LiftingConv2d
from eqtutor.wrappers import Canonicalise, PatternScore, Symmetrise, turned_back

WRAPPERS = [Symmetrise, Canonicalise]


@pytest.fixture(params=['p4', 'p4m', 'mirror'])
def group(request): return request.param

@pytest.fixture(params=['image', 'invariant'])
def net(request):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 4)
    if request.param == 'invariant': layers += nn.Flatten(), nn.Linear(2*6*6, 5)
    return nn.Sequential(*layers).double()

@pytest.mark.parametrize('wrap', [Symmetrise,
                                  lambda net, group: Canonicalise(net, group, channels=3)])
def test_wrapped_networks_are_equivariant(wrap, net, group):
    x = torch.randn(4, 3, 9, 9).double()
    kind = 'image' if net(x).ndim == 4 else 'invariant'
    assert max(equivariance_error(net, x, group, kind)) > .1     # the plain one is not
    assert_equivariant(wrap(net, group), x, group, kind=kind)

def test_what_is_equivariant_already_stays_as_it_is(group):
    "Averaged, or on a copy that is turned back: the same numbers."
    net = nn.Conv2d(3, 2, 1).double()
    x = torch.randn(4, 3, 9, 9).double()
    for wrapped in Symmetrise(net, group), Canonicalise(net, group, channels=3):
        torch.testing.assert_close(wrapped(x), net(x))

def test_each_picture_of_a_batch_is_turned_by_itself(net):
    x = torch.randn(5, 3, 9, 9).double()
    wrapped = Canonicalise(net, 'p4', channels=3)
    assert len(wrapped.scores(x).argmax(0).unique()) > 1
    torch.testing.assert_close(wrapped(x), torch.cat([wrapped(x[i:i + 1]) for i in range(5)]))

def test_a_tie_breaks_it():
    cross = torch.zeros(1, 1, 9, 9).double()
    cross[..., 4, 1:8] = cross[..., 1:8, 4] = 1
    torch.manual_seed(0)
    wrapped = Canonicalise(nn.Conv2d(1, 1, 3, padding=1).double(), 'p4')
    assert max(equivariance_error(wrapped, cross, 'p4')) > .1

class LeftMinusRight(nn.Module):
    def forward(self, x): return (x[..., 0] - x[..., 1]).sum((1, 2))

def test_where_the_winner_switches_at_a_symmetric_picture_nothing_jumps():
    "Proposition 15.3 asks for a path without symmetric pictures."
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    mirrored = Canonicalise(net, 'mirror', LeftMinusRight())
    # two columns, which tie where they are equal: there the picture is its mirror image
    before, after = (torch.tensor([[[[1 - t, t]]*2]], dtype=torch.float64)
                     for t in (.5 - 1e-9, .5 + 1e-9))
    assert [mirrored.scores(x).argmax(0).item() for x in (before, after)] == [0, 1]
    torch.testing.assert_close(mirrored(before), mirrored(after), rtol=0, atol=1e-8)

def test_gradients_and_weights():
    torch.manual_seed(0)
    for wrap in Symmetrise, Canonicalise:
        wrapped = wrap(nn.Conv2d(1, 2, 3), 'p4')
        wrapped(torch.randn(3, 1, 6, 6)).sum().backward()
        assert wrapped.net.weight.grad.abs().sum() > 0
        other = wrap(nn.Conv2d(1, 2, 3), 'p4')
        other.load_state_dict(wrapped.state_dict())
    assert torch.equal(PatternScore(seed=3).weight, PatternScore(seed=3).weight)

def test_pictures_that_are_not_square():
    x = torch.randn(1, 1, 6, 8)
    assert Symmetrise(nn.Conv2d(1, 1, 3), 'p4')(x).shape == (1, 1, 4, 6)
    with pytest.raises(ValueError, match='must be square'):
        Canonicalise(nn.Conv2d(1, 1, 3), 'p4')(x)

@pytest.mark.parametrize('wrap', WRAPPERS)
@pytest.mark.parametrize('group', ['C8', 'D8', 'C6', 'D3'])
def test_groups_off_the_grid_are_refused(wrap, group):
    with pytest.raises(ValueError, match=f'{group} turns pictures between pixels.*subgroup of D4'):
        wrap(nn.Conv2d(1, 1, 3), group)

# --- what an output is, read from its axes or said

def to_feature_maps(poses): return nn.Sequential(
    nn.Conv2d(1, 2*poses, 3, padding=1), nn.Tanh(), nn.Unflatten(1, (2, poses))).double()

def to_vectors(poses): return nn.Sequential(
    nn.Conv2d(1, 2*poses, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Unflatten(1, (2, poses))).double()

@pytest.mark.parametrize('wrap', WRAPPERS)
@pytest.mark.parametrize('group, poses', [('p4', 4), ('p4m', 8), ('mirror', 2)])
def test_feature_maps_are_turned_back_with_their_poses(wrap, group, poses):
    torch.manual_seed(0)
    net, x = to_feature_maps(poses), torch.randn(3, 1, 7, 7).double()
    assert_equivariant(wrap(net, group), x, group, kind='feature map')
    right = LiftingConv2d(1, 2, 3, group, padding=1).double()      # equivariant already
    torch.testing.assert_close(wrap(right, group)(x), right(x))

@pytest.mark.parametrize('wrap', WRAPPERS)
def test_outputs_that_may_turn_or_not_must_be_named(wrap):
    torch.manual_seed(0)
    net, x = to_vectors(4), torch.randn(3, 1, 7, 7).double()
    with pytest.raises(ValueError, match=r'\(\d, 2, 4\) may turn .* or not: say kind='):
        wrap(net, 'p4')(x)
    for kind in 'vector on H', 'invariant':
        assert_equivariant(wrap(net, 'p4', kind=kind), x, 'p4', kind=kind)
    with pytest.raises(ValueError, match="kind 'image', got shape"):
        wrap(net, 'p4', kind='image')(x)
    with pytest.raises(ValueError, match='kind must be one of .* got .scores.'):
        wrap(net, 'p4', kind='scores')(x)
    with pytest.raises(ValueError, match=r'axis 2 must be the group axis of C4, \|H\| = 4'):
        wrap(to_feature_maps(3), 'p4')(x)

def test_one_number_a_picture_is_invariant():
    y = torch.randn(3)
    assert turned_back(get_group('p4'), 1, y) is y

# --- scores that learn

def learnt_score(): return nn.Sequential(
    nn.Conv2d(1, 2, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1),
    nn.Flatten(0)).double()

@pytest.fixture
def learning():
    torch.manual_seed(0)
    return Canonicalise(nn.Conv2d(1, 2, 3, padding=1).double(), 'p4m', score=learnt_score())

def test_a_learnt_score_has_the_gradient_of_the_weighted_mean(learning):
    x = torch.randn(2, 1, 6, 6).double()
    def loss(): return learning(x).square().sum()
    loss().backward()
    for p in learning.score.parameters():
        slope, step = torch.zeros_like(p), torch.zeros_like(p)
        for k in range(p.numel()):
            step.view(-1)[k] = 1e-6
            with torch.no_grad():
                p.add_(step)
                above = loss()
                p.sub_(2*step)
                slope.view(-1)[k] = (above - loss())/2e-6
                p.add_(step)
            step.zero_()
        torch.testing.assert_close(p.grad, slope, atol=1e-6, rtol=1e-5)
    assert all(p.grad.abs().max() > 1e-6 for p in learning.score[0].parameters())

def test_while_it_learns_it_is_equivariant_at_ties_too(learning):
    cross = torch.zeros(1, 1, 9, 9).double()
    cross[..., 4, 1:8] = cross[..., 1:8, 4] = 1
    assert max(equivariance_error(learning.train(), cross, 'p4m')) < 1e-12
    assert max(equivariance_error(learning.eval(), cross, 'p4m')) > .1

def test_the_winner_answers_alone_in_eval_mode_and_for_a_frozen_score(learning):
    x = torch.randn(5, 1, 6, 6).double()
    group, winner = learning.group, learning.scores(x).argmax(0)
    alone = torch.cat([turned_back(group, h, learning.net(act(group, h, x[i:i + 1])))
                       for i, h in enumerate(winner.tolist())])
    assert (learning(x) - alone).abs().max() > .01
    torch.testing.assert_close(learning.eval()(x), alone)
    learning.train().score.requires_grad_(False)
    torch.testing.assert_close(learning(x), alone)

def test_a_score_is_one_number_a_picture():
    score = nn.Sequential(nn.Flatten(), nn.Linear(36, 1))
    with pytest.raises(ValueError, match=r'one number for each picture, got \(2, 1\) for 2'):
        Canonicalise(nn.Conv2d(1, 1, 3), 'p4', score)(torch.randn(2, 1, 6, 6))

def test_pictures_with_other_channels_are_told_so():
    with pytest.raises(ValueError, match=r'with 1 channels, got \(1, 3, 6, 6\): use channels=3'):
        Canonicalise(nn.Conv2d(3, 1, 3), 'p4')(torch.randn(1, 3, 6, 6))
