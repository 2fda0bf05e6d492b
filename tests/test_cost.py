"Cost: what is counted, what is refused, and that counting leaves no trace."
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.cost import cost_formula, count_macs, count_parameters, layer_costs, mac_formula
from eqtutor.measure import (
    CostRow,
    as_factor,
    cost_table,
    in_fresh_process,
    interleaved,
    markdown_table,
    peak_memory,
    time_ratio,
    training_step,
    with_prefix,
)
from eqtutor.models.group_cnn import p4_cnn, z2_cnn
from eqtutor.nn.convolution import GroupConv2d


def conv(): return nn.Conv2d(6, 6, 3, padding=1)


class Twice(nn.Module):
    "One convolution, used twice."
    def __init__(self):
        super().__init__()
        self.conv = conv()

    def forward(self, x): return self.conv(self.conv(x))


class Borrowed(Twice):
    "Uses a layer's weights without calling the layer."
    def forward(self, x): return F.conv2d(x, self.conv.weight, padding=1)


class Wider(nn.Conv2d):
    "Holds more than the formula of a convolution knows."
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.more = nn.Linear(7, 7)

    def forward(self, x): return self.more(super().forward(x))


class OwnWord(Wider):
    "The same, and it says what it costs."
    def macs(self, x_shape, y_shape): return 7


@pytest.fixture
def image(): return torch.randn(2, 6, 9, 7)


@pytest.fixture
def torch_formulas():
    "Formulas registered in a test go with it."
    from eqtutor.cost import FORMULAS
    before = dict(FORMULAS)
    yield
    FORMULAS.clear()
    FORMULAS.update(before)


def test_layers_of_torch_in_a_network_are_counted_as_carried_out(image):
    net = nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.PReLU(), nn.Flatten(),
                        nn.Linear(8*7*5, 3), nn.LayerNorm(3))
    rows = layer_costs(net, image)
    assert sum(r.macs for r in rows) == count_macs(net, image) > 0
    assert sum(r.parameters for r in rows) == count_parameters(net) > 0


def test_counting_leaves_no_trace(image):
    net = Twice()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    layer_costs(net, image)
    count_macs(net, image)
    assert net.training and net.conv.training and not net.conv._forward_hooks
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_hooks_go_even_if_the_network_fails(image):
    net = nn.Sequential(nn.Conv2d(6, 6, 3), nn.Linear(9, 9))
    with pytest.raises(RuntimeError, match='mat1 and mat2'): layer_costs(net, image)
    assert not net[0]._forward_hooks and net.training


def test_parameter_that_no_layer_answers_for_is_named(image):
    net = Twice()
    net.scale = nn.Parameter(torch.ones(6))
    with pytest.raises(ValueError, match='no cost formula for scale: give the layer'):
        layer_costs(net, image)


def test_weights_used_without_calling_the_layer_are_refused(image):
    with pytest.raises(ValueError, match='conv was never called, so its MACs are missing'):
        layer_costs(Borrowed(), image)


def test_formula_of_a_type_is_not_believed_for_a_subclass_that_holds_more(image):
    assert mac_formula(Wider(6, 6, 3)) is None
    with pytest.raises(ValueError, match=r'no cost formula for 0\.weight, 0\.bias'):
        layer_costs(nn.Sequential(Wider(6, 6, 3, padding=1)), image)


def test_subclass_of_a_layer_of_torch_without_more_is_counted(image):
    class Named(nn.Conv2d): pass
    assert layer_costs(Named(6, 4, 3), image)[0].macs == count_macs(nn.Conv2d(6, 4, 3), image) > 0


def test_layers_own_word_comes_first(image):
    (row,) = layer_costs(nn.Sequential(OwnWord(6, 6, 3, padding=1)), image)
    assert row.macs == 7 and row.parameters == 6*6*9 + 6 + 7*7 + 7


def test_tied_weights_count_once(image):
    net = nn.Sequential(conv(), conv())
    net[1].weight = net[0].weight
    rows = layer_costs(net, image)
    assert [r.parameters for r in rows] == [6*6*9 + 6, 6]
    assert rows[0].macs == rows[1].macs > 0


def test_registered_formula_is_used_and_can_be_counted(image, torch_formulas):
    layer = nn.ConvTranspose2d(6, 4, 3, stride=2)
    with pytest.raises(ValueError, match='no cost formula'): layer_costs(layer, image)
    cost_formula(nn.ConvTranspose2d)(lambda layer, x, y: 2*6*9*7*4*9)
    assert layer_costs(layer, image)[0].macs == count_macs(layer, image) == 2*6*9*7*4*9


def test_training_step_drops_gradients():
    net = p4_cnn(2)
    loss = training_step(net, torch.randn(8, 1, 28, 28))
    assert 1 < loss < 10 and all(p.grad is None for p in net.parameters())


def test_time_ratio_takes_another_input_for_the_yardstick():
    x, other = torch.randn(2, 1, 28, 28), torch.randn(2, 6, 9, 7)
    yardstick = nn.Sequential(conv(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert time_ratio(p4_cnn(2), yardstick, x, other, repeats=2) > 0


class Times(nn.Module):
    "The same network n times, averaged."
    def __init__(self, net, n):
        super().__init__()
        self.net, self.n = net, n

    def forward(self, x): return sum(self.net(x) for _ in range(self.n))/self.n


@pytest.mark.parametrize('n, low, high', [(1, .7, 1.4), (4, 2, 6)])
def test_time_ratio_is_the_one_that_is_known(n, low, high):
    "A network beside itself, and beside itself four times. A busy machine may spoil some."
    torch.manual_seed(0)
    x = torch.randn(8, 1, 28, 28)
    ratios = (time_ratio(Times(p4_cnn(), n), p4_cnn(), x, repeats=5) for _ in range(15))
    assert any(low < ratio < high for ratio in ratios)


def test_memory_is_at_least_what_batch_norms_keep_and_grows_with_the_batch():
    maps = sum(n*n for n in (26, 24, 10, 8, 6, 4))      # of the six layers, 40 = 10·|H| channels
    small, large = (peak_memory(p4_cnn, (b, 1, 28, 28)) for b in (32, 128))
    assert 32*40*maps*4 < small < 12*32*40*maps*4 and 2 < large/small < 6


@pytest.mark.cuda
def test_memory_of_a_gpu_grows_with_the_batch():
    small, large = (peak_memory(p4_cnn, (b, 1, 28, 28), 'cuda') for b in (16, 64))
    assert 3 < large/small < 5


class Own(nn.Conv2d):
    "Defined where a fresh process does not look."


Own.__module__ = '__main__'


@pytest.mark.parametrize('make', [lambda: p4_cnn(), Own, partial(p4_cnn, conv=Own)],
                         ids=['lambda', 'own class', 'own class as an argument'])
def test_memory_of_what_cannot_be_imported_is_refused(make):
    with pytest.raises(ValueError, match='must be able to import'):
        peak_memory(make, (1, 1, 28, 28))


def test_memory_of_a_slow_or_failing_step_is_an_error():
    with pytest.raises(RuntimeError, match='Give a larger timeout='):
        peak_memory(p4_cnn, (1, 1, 28, 28), timeout=.01)
    with pytest.raises(RuntimeError, match='failed in its own process: .*at least 28×28'):
        peak_memory(p4_cnn, (1, 1, 9, 9))


def test_fresh_process_has_the_threads_of_this_one():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try: assert in_fresh_process('torch:get_num_threads') == before + 1
    finally: torch.set_num_threads(before)


def test_slow_steps_get_one_round_and_others_all_of_them():
    calls = []
    times = interleaved({'slow': lambda: calls.append(1)}, 9, warm_up=3, seconds=-1)
    assert len(calls) == 2 and len(times['slow']) == 1
    assert len(interleaved({'fast': lambda: calls.append(1)}, 9, warm_up=3)['fast']) == 9
    assert len(calls) == 2 + 12


def test_step_in_half_precision_is_another_step():
    torch.manual_seed(0)
    net, x = p4_cnn(2).eval(), torch.randn(4, 1, 28, 28)
    full, half = training_step(net, x), training_step(net, x, 'bf16')
    assert full != half and full == pytest.approx(half, rel=.05)


def test_time_without_a_yardstick_is_refused():
    with pytest.raises(ValueError, match='give yardstick='):
        cost_table({'Z2-CNN': z2_cnn}, (2, 1, 28, 28), time=True)


def test_table_leaves_out_what_nobody_measured():
    rows = [CostRow('a', 999, 12_345), CostRow('b', 1_000, 2*10**9, time=.5)]
    assert markdown_table(rows).splitlines() == [
        '| network | parameters | MACs | time |', '| --- | ---: | ---: | ---: |',
        '| a | 999 | 12.3 K | – |', '| b | 1,000 | 2 G | × 0.5 |']
    full = [CostRow('c', 1, 1, 2., 3*2**20, 1.5)]
    assert markdown_table(full).splitlines()[0].endswith('| time | peak memory | memory |')
    assert markdown_table(full).splitlines()[2] == '| c | 1 | 1 | × 2 | 3 MB | × 1.5 |'
    compiled = markdown_table([*rows, CostRow('d', 1, 1, 2., compile=90.4)]).splitlines()
    assert compiled[0].endswith('| time | compile |') and compiled[-1].endswith('| × 2 | 90 s |')
    assert compiled[2].endswith('| – | – |')


def test_table_holds_what_was_measured():
    rows = cost_table({'Z2-CNN': z2_cnn}, (16, 1, 28, 28), p4_cnn, time=True, memory=True,
                      repeats=3)
    assert [r.name for r in rows] == ['p4-CNN', 'Z2-CNN'][-len(rows):]
    assert all(r.time > 0 and r.memory > 2**20 and r.memory_ratio > 0 for r in rows)


def test_numbers_are_shown_with_three_digits():
    assert [with_prefix(n) for n in (999, 999_600, 1_300_000_000_000)] == ['999', '1 M', '1.3 T']
    ratios = [as_factor(t) for t in (.333, 99.4, 99.6, 1234.5)]
    assert ratios == ['× 0.33', '× 99', '× 100', '× 1,234'] and as_factor(None) is None


def test_layer_off_the_grid_pays_for_turning_its_filters_once_a_step():
    layer, x = GroupConv2d(2, 3, 3, 'R8', padding=1), torch.randn(1, 2, 8, 9, 7)
    one, three = (layer_costs(layer, x.repeat(b, 1, 1, 1, 1))[0].macs for b in (1, 3))
    turning = one - (three - one)//2
    assert turning == 8*layer.weight.numel()*9
