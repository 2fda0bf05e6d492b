"What the meter refuses, what it leaves as it was, and what a report says of odd networks."
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import (
    assert_equivariant,
    equivariance_error,
    perturb_,
    symmetries,
    unchanged,
)
from eqtutor.groups import D
from eqtutor.nn import LiftingConv2d
from eqtutor.report import layer_report
from eqtutor.trace import up_to

X = torch.randn(2, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class SymmetricConv(nn.Conv2d):
    "A convolution whose filters are averaged over D(4)."
    def forward(self, x):
        w = torch.stack([act('p4m', h, self.weight) for h in D(4).elements]).mean(0)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation)


class Apply(nn.Module):
    "A plain function as a layer."
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x): return self.function(x)


def plain_conv(): return nn.Conv2d(3, 3, 3, padding=1).double()


def with_bright_rim(x):
    y = x.clone()
    y[..., 0, :] += 9
    return y


# --- bad input

@pytest.mark.parametrize('f, options, message', [
    (F.relu, dict(kind='picture'), "kind must be one of .*, got 'picture'"),
    (F.relu, dict(kind='feature map'), "this should be of kind 'feature map', got shape"),
    (F.relu, dict(margin=9), 'margin 9 leaves no pixel of an output of 9×9'),
    (lambda x: x[..., 1:, :], {}, 'at element 1 of C4: the output size depends on the orientation'),
    (lambda x: x.sum(), {}, r'an output of shape \(\) is none of .*: say kind=…'),
])
def test_outputs_that_cannot_be_compared_are_refused(f, options, message):
    with pytest.raises(ValueError, match=message): equivariance_error(f, X, 'p4', **options)


def test_integer_outputs_are_refused():
    with pytest.raises(ValueError, match='got torch.int64: look at the layer before'):
        assert_equivariant(lambda x: (x > 0).long(), X, 'p4')


def mean(x): return x.mean((-1, -2), keepdim=True).expand_as(x)


@pytest.mark.parametrize('f, x, why', [
    (lambda x: x*float('nan'), X, 'holds NaN or infinity'),
    (lambda x: 0*x, X, 'the output is zero'),
    (torch.ones_like, X, 'does not depend on the input'),
    (mean, X, 'constant over space'),
    (mean, X[..., :2, :2], 'constant over space'),
    (lambda x: x[:, :, None].expand(-1, -1, 4, -1, -1), X, 'constant over the group axis'),
    (F.relu, torch.ones(1, 1, 5, 5), r'does not change under element 1 \(90°\)'),
])
def test_a_test_that_proves_nothing_is_refused(f, x, why):
    with pytest.raises(AssertionError, match=f'to C4 would prove nothing: .*{why}'):
        assert_equivariant(f, x, 'p4')


def test_a_random_network_is_told_to_call_eval():
    with pytest.raises(AssertionError, match=r'at element 0 \(0°\).* f is random, call .eval\(\)'):
        assert_equivariant(nn.Dropout(.5), X, 'p4')


def test_the_message_names_element_place_and_values():
    def spot(x):
        y = x.clone()
        y[0, 1, 2, 3] += 9
        return y
    message = (
        r'^not equivariant to D1: relative error \S+ > 1e-10 at element 1 \(mirror, 0°\), worst at '
        r'index \(0, 1, 2, 3\) of the image: layer\(h f\) = \S+, h layer\(f\) = \S+\.$')
    with pytest.raises(AssertionError, match=message): assert_equivariant(spot, X, 'mirror')


def test_tolerances_follow_the_dtype():
    conv = SymmetricConv(3, 4, 3, padding=1)
    assert_equivariant(conv, X.float(), 'p4m')
    with pytest.raises(AssertionError, match='> 1e-10'):
        assert_equivariant(conv, X.float(), 'p4m', tol=1e-10)


# --- nothing is left behind

@pytest.mark.parametrize('measure', [
    lambda net: equivariance_error(net, X, 'p4'),
    lambda net: equivariance_error(net.forward, X, 'p4'),
    lambda net: equivariance_error(up_to(net, '2'), X, 'p4'),
    lambda net: layer_report(net, X, 'p4'),
    lambda net: symmetries(net, X, 'p4'),
])
def test_measuring_leaves_no_trace_in_running_statistics(measure):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).double()
    before = {name: b.clone() for name, b in net.named_buffers()}
    measure(net)
    for name, b in net.named_buffers(): assert torch.equal(b, before[name]), name
    net(X)
    assert net[1].num_batches_tracked == 1


def test_buffers_come_back_after_an_error():
    norm = nn.BatchNorm2d(3).double()
    with pytest.raises(ZeroDivisionError), unchanged(norm):
        norm(X)
        raise ZeroDivisionError
    assert norm.num_batches_tracked == 0 and (norm.running_mean == 0).all()


def test_layers_that_work_in_place_do_not_change_the_input():
    before = X.clone()
    assert_equivariant(nn.SiLU(inplace=True), X, 'p4')
    assert torch.equal(X, before)


# --- perturb_

def test_perturbing_twice_with_one_seed_gives_the_same():
    first, second = perturb_(nn.BatchNorm2d(5)), perturb_(nn.BatchNorm2d(5))
    other = perturb_(nn.BatchNorm2d(5), seed=1)
    for name, t in first.state_dict().items(): assert torch.equal(t, second.state_dict()[name])
    assert not torch.equal(first.weight, other.weight)


def test_perturbing_moves_equal_entries_whose_deviation_is_only_rounding():
    constant = nn.ParameterDict({'a': nn.Parameter(torch.full((64,), .1))})
    assert (perturb_(constant)['a'] - .1).abs().max() > .1


def test_perturbing_needs_no_default_device():
    expected = perturb_(nn.BatchNorm2d(5))
    norm = nn.BatchNorm2d(5)
    with torch.device('meta'): perturb_(norm)
    assert torch.equal(norm.weight, expected.weight)


def test_perturbing_breaks_a_scale_for_each_group_element():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 1, 1))

        def forward(self, f): return f*self.weight
    f, scale = torch.randn(1, 2, 4, 5, 5).double(), Scale().double()
    assert_equivariant(scale, f, 'p4')
    with pytest.raises(AssertionError, match='not equivariant to C4'):
        assert_equivariant(perturb_(scale), f, 'p4')


# --- reports

def test_a_size_that_depends_on_the_orientation_is_broken_and_not_unknown():
    lopsided = nn.Sequential(nn.Conv2d(3, 2, 3, stride=(2, 1), padding=1), nn.ReLU()).double()
    report = layer_report(lopsided, X[..., :8, :8], 'p4')
    assert report.first_broken == '0' and report.rows[0][2] == 'image'
    assert [error == torch.inf for error in report.rows[0][3]] == [False, True, False, True]


def test_not_a_number_counts_as_broken():
    net = nn.Sequential(nn.ReLU(), Apply(lambda x: x*float('nan')), nn.ReLU())
    assert layer_report(net, X, 'p4').first_broken == '1'


def test_a_layer_that_is_called_twice_is_marked_once_and_in_its_place():
    relu = nn.ReLU()
    report = layer_report(nn.Sequential(relu, plain_conv(), relu), X, 'p4')
    assert [row[0] for row in report.rows] == ['0', '1', '0'] and report.first_row == 1
    broken = layer_report(nn.Sequential(relu, Apply(with_bright_rim), relu), X, 'p4')
    lines = str(broken).splitlines()
    assert [('breaks first' in line) for line in lines[:4]] == [False, False, True, False]


def test_nested_layers_are_named_by_their_path():
    block = nn.Sequential(SymmetricConv(3, 2, 1), nn.ReLU(inplace=True))
    report = layer_report(nn.Sequential(block, nn.Dropout(.5)).double(), X, 'p4')
    assert [row[0] for row in report.rows] == ['0.0', '0.1', '1']
    assert 'the network is random. Call .eval() first.' in str(report)


def test_a_layer_with_a_group_is_one_layer():
    block = nn.Sequential(nn.ReLU(), nn.ReLU())
    block.group = D(4)
    report = layer_report(nn.Sequential(block, nn.ReLU()), X, 'p4')
    assert [row[:2] for row in report.rows] == [('0', 'Sequential'), ('1', 'ReLU')]


def test_outputs_are_recorded_before_a_later_layer_changes_them_in_place():
    hidden = Apply(lambda x: with_bright_rim(x) - 99)   # negative: the ReLU hides the rim
    report = layer_report(nn.Sequential(hidden, nn.ReLU(inplace=True)), X, 'p4')
    assert report.first_broken == '0' and max(report.rows[1][3]) == 0


# --- up_to

def test_what_follows_the_layer_does_not_run():
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True), nn.Linear(1, 1)).double()
    assert up_to(net, '0')(X).min() < 0
    assert torch.equal(up_to(net, '0')(X), net[:1](X))


def test_a_layer_that_does_not_exist_or_does_not_run_is_an_error():
    net = nn.Sequential(nn.ReLU(), nn.ReLU())
    with pytest.raises(ValueError, match="no layer '9'. There are: 0, 1"): up_to(net, '9')
    skipping = Apply(F.relu)
    skipping.unused = nn.ReLU()
    with pytest.raises(RuntimeError, match="did not run its layer 'unused'"):
        up_to(skipping, 'unused')(X)
    assert not skipping.unused._forward_hooks


# --- between the pixels

def smooth():
    line = torch.linspace(-1, 1, 33, dtype=torch.float64)
    return torch.exp(-8*((line - .1)**2 + (line[:, None] + .2)**2))[None, None]


def test_a_turn_between_pixels_is_excused_and_a_fault_on_the_grid_is_not():
    torch.manual_seed(0)
    lift = LiftingConv2d(1, 2, 3, 'C8', padding=1, dtype=torch.float64)
    with pytest.raises(AssertionError, match='at element 1 .*between its pixels.*smooth picture'):
        assert_equivariant(lift, torch.randn(1, 1, 33, 33).double(), 'C8')
    assert_equivariant(lift, smooth(), 'C8', tol=.02, margin=8)
    class Wrong(LiftingConv2d):
        def filters(self): return super().filters().flip(0)
    wrong = Wrong(1, 2, 3, 'C8', padding=1, dtype=torch.float64)
    with pytest.raises(AssertionError, match='at element 2') as error:   # 90°, before 45°
        assert_equivariant(wrong, smooth(), 'C8', tol=.02, margin=8)
    assert 'smooth' not in str(error.value)


def test_the_report_of_a_group_off_the_grid_says_what_pixels_allow():
    lift, x = LiftingConv2d(1, 2, 3, 'C8', padding=1), torch.randn(1, 1, 17, 17)
    assert 'the errors there blame nobody' in str(layer_report(lift, x, 'C8'))
    assert 'blame' not in str(layer_report(lift, x, 'C8', margin=4., tol=2.))
    assert 'blame' not in str(layer_report(LiftingConv2d(1, 2, 3, 'p4'), x, 'p4'))
