"The U-Net on even and on odd sides, and what it says of others."
import pytest
import torch

from eqtutor.equivariance import assert_equivariant, perturb_
from eqtutor.models.unet import GroupUNet
from eqtutor.nn import GroupConvTranspose2d
from eqtutor.report import exact_sizes


@pytest.mark.parametrize('up', ['upsample', 'transposed'])
@pytest.mark.parametrize('depth, size', [(1, (13, 9)), (2, (13, 17)), (3, (17, 25))])
def test_odd_sides_have_a_network_of_their_own(up, depth, size):
    torch.manual_seed(0)
    net = perturb_(GroupUNet('p4m', 2, depth=depth, up=up, sides='odd').double()).eval()
    x = torch.randn(1, 1, *size).double()
    assert net(x).shape[-2:] == size
    assert_equivariant(net, x, 'p4m', kind='image')


@pytest.mark.parametrize('sides, size, words', [
    ('even', (65, 47), r"multiples of 4, .*\. 64×48 would do, or 65×49 with sides='odd'$"),
    ('odd', (65, 47), r"one more than multiples of 4, .*\. 65×49 would do, or 64×48 .*'even'$"),
    ('odd', (16, 12), '17×13 would do, or 16×12 with'), ('even', (1, 3), '4×4 would do, or 5×5')])
def test_other_sides_are_answered_with_the_nearest(sides, size, words):
    net = GroupUNet('p4', 2, sides=sides)
    with pytest.raises(ValueError, match=words): net(torch.zeros(1, 1, *size))


def test_upsampling_off_the_grid_takes_even_sides_alone():
    with pytest.raises(ValueError, match="C8 .*sides='odd'.* up='transposed' needs none"):
        GroupUNet('C8', 2, sides='odd')
    net = GroupUNet('C8', 2, up='transposed', sides='odd')
    assert net(torch.zeros(1, 1, 9, 13)).shape[-2:] == (9, 13)
    assert {m.kernel_size for m in net.modules() if isinstance(m, GroupConvTranspose2d)} == {3}


def test_the_recipe_for_odd_sides_is_among_the_exact_sizes():
    net = GroupUNet('p4', 2, up='transposed', sides='odd')
    assert exact_sizes(net, 'p4', near=20) == [13, 17, 21, 25, 29]
    assert exact_sizes(net, 'p4', near=(14, 9), count=3) == [(13, 9), (17, 9), (9, 9)]
