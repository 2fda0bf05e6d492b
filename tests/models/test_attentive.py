"What the networks of attentive convolution withstand: copies, chunks, wrong variants."
import copy
import pickle

import pytest
import torch

from eqtutor.models.attentive import alpha_all_cnn, alpha_cnn, alpha_densenet, alpha_resnet44

NETWORKS = {
    'full': (lambda: alpha_cnn(channels=3), (1, 28, 28)),
    'all-cnn': (lambda: alpha_all_cnn('p4m', (3, 4), 'full'), (3, 8, 8)),
    'resnet44': (lambda: alpha_resnet44('p4m', (2, 3, 4)), (3, 8, 8)),
    'densenet': (lambda: alpha_densenet('p4', 2), (3, 16, 16)),
}


def loaded_from_meta(net, make):
    with torch.device('meta'): new = make()
    new.load_state_dict(net.state_dict(), assign=True)
    return new


WAYS = {
    'meta device': loaded_from_meta,
    'deep copy': lambda net, make: copy.deepcopy(net),
}


@pytest.mark.parametrize('way', WAYS.values(), ids=WAYS)
@pytest.mark.parametrize('make, shape', NETWORKS.values(), ids=NETWORKS)
def test_a_copy_computes_the_same(make, shape, way):
    net, x = make().eval(), torch.randn(2, *shape)
    with torch.no_grad(): assert torch.equal(way(net, make).eval()(x), net(x))


def test_a_pickled_network_computes_the_same():
    net, x = alpha_cnn(channels=3).eval(), torch.randn(2, 1, 28, 28)
    with torch.no_grad(): assert torch.equal(pickle.loads(pickle.dumps(net))(x), net(x))


@pytest.mark.parametrize('make', [alpha_cnn, alpha_all_cnn], ids=lambda f: f.__name__)
def test_a_wrong_variant_is_refused(make):
    with pytest.raises(ValueError, match="'full', 'channel', 'spatial', 'input', 'rotation'"):
        make(attend='all')
    with pytest.raises(ValueError, match='chunk must be a positive int'): make(chunk=0)


def test_chunks_change_no_output():
    torch.manual_seed(0)
    net, x = alpha_cnn(channels=4, chunk=None).eval(), torch.randn(2, 1, 28, 28)
    chunked = alpha_cnn(channels=4, chunk=1).eval()
    chunked.load_state_dict(net.state_dict())
    with torch.no_grad(): torch.testing.assert_close(chunked(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('attend, dilation', [('full', 1), ('spatial', 1), ('input', 4)])
def test_only_attention_on_the_input_dilates_its_first_filter(attend, dilation):
    first, *_ = (m for m in alpha_cnn(attend, channels=3).modules() if hasattr(m, 'branch'))
    spatial = first.branch.spatial if attend == 'input' else first.branch
    assert spatial.dilation == dilation
