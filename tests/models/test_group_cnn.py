"The networks of chapter 13, against plain `conv2d` and formulas of their parameter counts."
import pytest
import torch
import torch.nn.functional as F

from eqtutor.cost import count_parameters
from eqtutor.equivariance import perturb_
from eqtutor.models.group_cnn import AllCNN, GroupCNN, p4_cnn, z2_cnn


def by_hand(net, x):
    "The layers in evaluation mode, with |H| folded into the channels."
    L = net.layers
    for i in range(1, 7):
        x = F.conv2d(x, getattr(L, f'conv{i}').filters())
        n = getattr(L, f'norm{i}')
        order = x.shape[1]//len(n.weight)
        mean, var, scale, shift = (t.repeat_interleave(order)[:, None, None]
                                   for t in (n.running_mean, n.running_var, n.weight, n.bias))
        x = F.relu((x - mean)/(var + 2e-5).sqrt()*scale + shift)
        if i == 2: x = F.max_pool2d(x, 2)
    return F.conv2d(x, L.conv7.filters()).view(len(x), 10, -1).amax(2)

@pytest.mark.parametrize('make', [z2_cnn, p4_cnn, lambda: GroupCNN('p4m', 4)])
def test_group_cnn_is_its_layers_by_hand(make):
    torch.manual_seed(0)
    net = perturb_(make().double().eval())
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    torch.testing.assert_close(net(x), by_hand(net, x))

@pytest.mark.parametrize('net, c, order, known', [
    (z2_cnn(), 20, 1, 21_620), (p4_cnn(), 10, 4, 24_610), (p4_cnn(11), 11, 4, 29_051),
    (p4_cnn(15), 15, 4, 50_415), (p4_cnn(19), 19, 4, 77_539)])
def test_parameters_of_group_cnn(net, c, order, known):
    formula = 9*c + 5*9*order*c*c + 16*order*10*c + 12*c   # lifting, five, last, norms
    assert count_parameters(net) == formula == known

@pytest.mark.parametrize('group, order, a, b, known', [
    ('Z2', 1, 96, 192, 1_370_996), ('p4', 4, 48, 96, 1_370_372), ('p4m', 8, 32, 64, 1_219_252)])
def test_parameters_of_all_cnn(group, order, a, b, known):
    weights = 27*a + order*(18*a*a + 9*a*b + 27*b*b + b*b + 10*b)
    norms = 2*(3*a + 5*b + 10)
    assert count_parameters(AllCNN(group, (a, b))) == weights + norms == known
