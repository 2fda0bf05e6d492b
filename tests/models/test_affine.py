"Networks of affine self-convolution as members of the library: bad input, and what is registered."
import pytest
import torch

from eqtutor.cost import layer_costs
from eqtutor.models.affine import affine_resnet, asc_operator
from eqtutor.models.registry import MODELS
from eqtutor.nn.affine import AffineSelfConv2d, GroupAffineSelfConv2d, GroupSimpleAffineSelfConv2d
from eqtutor.papers.benchmarks.affine import start_report


@pytest.mark.parametrize('arguments, message', [
    (dict(operator='sasa', group='p4'), 'translations only'),
    (dict(operator='attention'), "'conv', 'sasa', 'simple', 'asc'"),
    (dict(depth=50), "'29', '83'"),
])
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message): affine_resnet(**arguments)


@pytest.mark.parametrize('options', [dict(padding=0), dict(bias=True)])
def test_an_operator_keeps_the_size_and_has_no_output_bias(options):
    with pytest.raises(ValueError, match="padding='same'"): asc_operator(8, 8, 3, **options)


def test_a_size_that_leaves_a_pixel_over_is_refused():
    net = affine_resnet('asc', 'p4')     # sides 10, then 5
    with pytest.raises(ValueError, match='not equivariant to C4'): net(torch.randn(1, 3, 10, 10))


@pytest.mark.parametrize('arguments, cls, kernel_size', [
    (dict(), AffineSelfConv2d, 5),
    (dict(window=None), AffineSelfConv2d, 3),
    (dict(group='p4'), GroupAffineSelfConv2d, 5),
    (dict(group='p4', simple=True, window=7), GroupSimpleAffineSelfConv2d, 7),
])
def test_an_operator_is_the_layer_of_its_group_and_window(arguments, cls, kernel_size):
    layer = asc_operator(8, 16, 3, **arguments)
    assert type(layer) is cls
    assert (layer.in_channels, layer.out_channels, layer.kernel_size) == (8, 16, kernel_size)


def test_the_networks_of_the_paper_are_registered():
    names = {'z2-resnet29-sasa', 'z2-resnet29-asc-se'}
    for name in ('z2-resnet29-simple-asc', 'z2-resnet29-asc', 'p4-resnet29-asc', 'p4-resnet29-se'):
        names |= {name, f'{name}-cifar100'}
    assert names <= set(MODELS)


# --- what the audit of P2 says of the networks

PRINTED = {'z2-resnet29-simple-asc': 217, 'z2-resnet29-simple-asc-cifar100': 240,
           'z2-resnet29-asc': 268, 'z2-resnet29-asc-cifar100': 291,
           'p4-resnet29-asc': 272, 'p4-resnet29-asc-cifar100': 283}
# what a layout changes in a layer of width c on n poses with so many input maps
LAYOUTS = {
    'output map with bias': lambda c, n, maps: c,
    'no output map': lambda c, n, maps: -c*c*n,
    'no bias in the input maps': lambda c, n, maps: -maps*c,
    'factor and shift of the query over the window': lambda c, n, maps: 24*c*(n + 1)*(maps == 3),
    'shifts on G, against Eq. 24': lambda c, n, maps: (n - 1)*c*(51 if maps == 3 else 25)}


def thousands(name, change):
    "Parameters of a network, three layers in each of three stages, in another layout."
    n, maps = 4 if 'p4' in name else 1, 1 if 'simple' in name else 3
    widths = (8, 16, 32) if n > 1 else (16, 32, 64)
    return round((MODELS[name].exact + 3*sum(change(c, n, maps) for c in widths))/1e3)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_another_layout_misses_two_printed_counts_or_more(layout):
    assert all(thousands(name, lambda *_: 0) == k for name, k in PRINTED.items())
    assert sum(thousands(name, LAYOUTS[layout]) != k for name, k in PRINTED.items()) >= 2


def test_the_count_of_sasa_does_not_decide_about_its_biases():
    exact, biases = MODELS['z2-resnet29-sasa'].exact, 3*(16 + 32 + 64)
    assert {round(n/1e3) for n in (exact, exact + biases, exact - biases)} == {235}


def test_networks_need_the_work_that_the_audit_says():
    boxes = [*[(16, 32*32)]*3, (32, 32*32), *[(32, 16*16)]*2, (64, 16*16), *[(64, 8*8)]*2]
    less = {('simple',): 25, ('asc', 'p4'): 100}     # ψf + β first: ψ in place of both β
    def work(*args):
        costs = layer_costs(affine_resnet(*args), torch.randn(1, 3, 32, 32))
        return sum(r.macs for r in costs) - less.get(args, 0)*sum(c*at for c, at in boxes)
    ours = work('conv')
    strided = ours - sum(9*c*c*(at - at//4) for c, at in (boxes[3], boxes[6]))
    networks = ('sasa',), ('simple',), ('asc',), ('conv', 'p4'), ('asc', 'p4')
    ratios = [[round(work(*args)/over, 2) for args in networks] for over in (ours, strided)]
    assert ratios == [[.83, .75, .90, 3.99, 3.77], [1.02, .93, 1.11, 4.93, 4.66]]


def test_a_third_of_a_new_layer_says_where_attention_went():
    for seed in range(5):
        reports = {}
        for init in ('published', 'conditioned'):
            torch.manual_seed(seed)
            x = torch.randn(8, 64, 16, 16)
            reports[init] = start_report(asc_operator(64, 64, 3, init=init), x)
        published, conditioned = reports.values()
        assert .31 < published['share of β'] < .375
        assert .17 < published['moving share of β'] < .24
        assert conditioned['moving share of β'] == conditioned['share of β'] == 0
        assert .63 < published['places used'] < .72 and .80 < conditioned['places used'] < .83


def test_what_se_adds_in_the_paper_is_as_many_standard_errors_as_the_audit_says():
    "P2, Table 2: mean and deviation of eight seeds, without SE and with it."
    tables = (((93.02, .16), (93.24, .17)), ((91.18, .34), (91.39, .15)),
              ((91.24, .32), (91.21, .11)))
    said = [(round(with_se - mean, 2), round((with_se - mean)/((a*a + b*b)/8)**.5, 1))
            for (mean, a), (with_se, b) in tables]
    assert said == [(.22, 2.7), (.21, 1.6), (-.03, -.3)]
