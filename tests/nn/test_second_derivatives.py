"Gradient penalties: which layers can be differentiated twice, and which say that they cannot."
from functools import partial

import pytest
import torch

from eqtutor.equivariance import perturb_
from eqtutor.nn import SelfAttention2d

from .every_layer import EXAMPLES

# their backward passes compute again what forward did not keep, and have no derivative
ONCE = {name for name in EXAMPLES if name.startswith(('LiftingSelf', 'GroupSelf'))
        or name.startswith('Attentive') and name.split()[1] in ('full', 'channel', 'spatial')}
EVERYWHERE = {f'SelfAttention2d everywhere {kind}': (
    partial(SelfAttention2d, 4, 6, None, 2, kind, (3, 4)), (2, 4, 3, 4))
    for kind in ('none', 'absolute', 'relative')}
TWICE = {name: case for name, case in (EXAMPLES | EVERYWHERE).items() if name not in ONCE}


def layer_and_input(make, shape, dtype=torch.float64):
    torch.manual_seed(0)
    x = torch.randn(1, *shape[1:-2], 3, 4, dtype=dtype, requires_grad=True)
    return perturb_(make(dtype=dtype)).eval(), x


@pytest.mark.parametrize('name', TWICE)
def test_it_can_be_differentiated_twice(name):
    layer, x = layer_and_input(*TWICE[name])
    assert torch.autograd.gradgradcheck(layer, x, fast_mode=True)
    layer, x = layer_and_input(*TWICE[name], torch.float32)     # other kernels, it may be
    slope, = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize('name', sorted(ONCE))
def test_it_says_that_it_cannot(name):
    layer, x = layer_and_input(*EXAMPLES[name])
    with pytest.raises(RuntimeError, match='first derivatives only.*gradient penalties'):
        torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
