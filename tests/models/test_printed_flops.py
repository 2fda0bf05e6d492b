"What chapter 24b says of the FLOPs that P4's Tables 1 to 4 print."
import pytest
import torch

from eqtutor.cost import count_parameters, layer_costs
from eqtutor.models.backbones import resnet18
from eqtutor.models.e4 import E4_ABLATIONS, e4_net
from eqtutor.models.registry import build_model
from eqtutor.nn.e4 import E4Conv2d


def billions(rows): return sum(row.macs for row in rows)/1e9


def costs_of(net): return layer_costs(net, torch.randn(1, 3, 32, 32))


def in_blocks(at_each):
    "Multiplications of the eight E4 layers of p4-E⁴R18, if a place and pose has `at_each(C)`."
    sizes = zip((32, 64, 128, 256), (32, 16, 8, 4))       # widths, sides
    return sum(2*4*side*side*at_each(C) for C, side in sizes)/1e9


def test_r18_is_printed_with_ordinary_strides():
    rows, halving = costs_of(build_model('z2-resnet18')), ('stages.1.0', 'stages.2.0', 'stages.3.0')
    first = [row for row in rows
             if row.name.startswith(halving) and row.name.endswith(('conv1', 'shortcut'))]
    assert billions(rows) - .75*billions(first) == pytest.approx(.555, abs=1e-3)
    assert billions(rows) > .7   # ours computes at every pixel and pools afterwards


@pytest.mark.parametrize('name, printed', [('p4-resnet18', 2.99), ('p4m-resnet18', 5.63)])
def test_group_resnets_are_printed_with_our_multiplications(name, printed):
    assert billions(costs_of(build_model(name))) == pytest.approx(printed, abs=.03)


def test_no_slices_and_reduction_make_p4_e4_resnet18_as_cheap_as_printed():
    rows = costs_of(build_model('p4-e4-resnet18', norm='published'))
    as_built = in_blocks(lambda C: 6*C*C + 9*C*(1 + C/4))
    e4 = sum(row.macs for row in rows if row.kind == 'E4Conv2d')/1e9
    assert e4 == pytest.approx(as_built, rel=1e-9)
    values_alone = billions(rows) - as_built + in_blocks(lambda C: 4*C*C)
    assert values_alone == pytest.approx(1.90, abs=.01)     # printed: 1.85


def test_p4m_e4_resnet18_is_printed_with_a_slice_for_each_channel():
    def own_slice(in_channels, out_channels, kernel_size, group, **kwargs):
        return E4Conv2d(in_channels, out_channels, kernel_size, group, slices=out_channels,
                        reduction=2, norm='published', **kwargs)
    net = resnet18('p4m', (22, 44, 88, 176), operator=own_slice)
    assert count_parameters(net)/1e6 == pytest.approx(6.0, abs=.05)
    assert billions(costs_of(net)) == pytest.approx(3.87, abs=.02)


PLACES = 28**2 + 2*14**2 + 3*7**2   # of the six E4 layers of E4-Net


def million(text): return float(text.removesuffix('M'))


def digit_net(**change):
    "Parameters of an E4-Net with the published norm, and its multiplications in millions."
    net = e4_net(norm='published', **change)
    rows = layer_costs(net, torch.randn(1, 1, 28, 28))
    return count_parameters(net), sum(row.macs for row in rows)/1e6


def window_sums(k, C=16): return k**2*C*4*PLACES/1e6


def test_printed_flops_of_e4_net_grow_as_the_writing_does_without_the_window_sum():
    written = 2*(7**2 - 3**2)*16*4*PLACES/1e6                           # s/r = 2
    grown = digit_net(kernel_size=7)[1] - digit_net(kernel_size=3)[1]
    assert written + window_sums(7) - window_sums(3) == pytest.approx(grown, abs=1e-9)
    printed = {name: million(line.macs) for name, line in E4_ABLATIONS.items()}
    assert printed['k7'] - printed['k3'] == pytest.approx(written, abs=.1)
    assert printed['s4'] - printed['s1'] == pytest.approx(3*25*16*4*PLACES/1e6, abs=.1)


def test_without_the_window_sum_every_e4_net_is_printed_with_a_surplus():
    lines = [({}, '17M'), *((line.change, line.macs) for line in E4_ABLATIONS.values())]
    for change, printed in lines:
        alone = digit_net(**change)[1] - window_sums(change.get('kernel_size', 5))
        assert 1.1 < million(printed) - alone < 1.6


def test_large_e4_net_is_printed_as_with_three_slices_and_no_reduction():
    published = digit_net(channels=24, slices=12, reduction=2)
    fits = digit_net(channels=24, slices=3)
    assert published[0] == 45_514 and published[1] - window_sums(5, 24) > 36.9
    assert fits[0] == 40_852
    assert 1.1 < (36.9 - fits[1] + window_sums(5, 24))*16/24 < 1.6      # as wide as E4-Net
