"Wrappers that make any network equivariant, and where they do not."
import pytest
import torch
from torch import nn

from eqtutor.equivariance import assert_equivariant, equivariance_error
from eqtutor.wrappers import Canonicalise, PatternScore, Symmetrise


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
