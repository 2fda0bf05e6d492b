"One record of what a network calls: layers whole, operations between them, each to be run again."
import pytest
import torch
from torch import nn

from eqtutor.nn import GroupConv2d, GroupPool, LiftingConv2d
from eqtutor.trace import OtherForm, Recorder, one_call, record_calls, up_to

X = torch.randn(2, 3)


class Does(nn.Module):
    "A network that is one function of itself and an input, with some layers."
    def __init__(self, function, **layers):
        super().__init__()
        self.idle = nn.Identity()    # without one it would be a layer itself
        for name, layer in layers.items(): setattr(self, name, layer)
        self.function = function

    def forward(self, x): return self.function(self, x)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad(): yield

def names(calls): return [call.name for call in calls]


def test_layers_are_whole_and_operations_between_them_have_lines():
    net = nn.Sequential(LiftingConv2d(1, 2, 3, 'p4'), GroupPool())
    x = torch.randn(1, 1, 5, 5)
    assert names(record_calls(net, x)) == ['0', '1', 'output']
    conv, add, out = record_calls(Does(lambda net, x: net.a(x) + 1, a=nn.Linear(3, 3)), X)
    assert conv.is_layer and conv.where == '' and not add.is_layer
    assert add.where.startswith('test_trace.py, line ') and 'net.a(x) + 1' in add.where
    assert [call.sources for call in (conv, add, out)] == [[(-1, 0)], [(0, 0)], [(1, 0)]]


def test_a_call_can_be_run_again_on_other_inputs():
    net = Does(lambda net, x: net.a(x)*x, a=nn.Linear(3, 3))
    linear, product, _ = record_calls(net, X)
    other = torch.randn(2, 3)
    assert torch.equal(linear.again([other])[0], net.a(other))
    assert torch.equal(product.again([other, X])[0], other*X)


def test_a_call_that_writes_into_a_constant_can_be_run_again():
    "What it wrote before is not in what it writes into now."
    net = Does(lambda net, x: torch.ones(2, 3).add_(x))
    add, _ = record_calls(net, X)
    for _ in range(2): assert torch.equal(add.again([X])[0], 1 + X)


def test_what_is_changed_in_place_behind_a_view_has_no_source():
    def forward(net, x):
        f = x + 1
        f[:, :1].mul_(2)
        return f.exp()
    calls = {call.name: call for call in record_calls(Does(forward), X)}
    assert calls['mul'].sources == [(1, 0)] and calls['exp'].sources == [None]


def test_a_tensor_with_the_id_of_one_that_is_gone_is_not_taken_for_it():
    recorder, t = Recorder(nn.Identity(), keep=False), torch.randn(3)
    recorder.learn([t], -1)
    origin = recorder.origins[id(t)]
    other = torch.randn(3)
    recorder.origins[id(other)] = origin
    assert recorder.knows(t) and not recorder.knows(other) and recorder.source(other) is None


def test_what_depends_on_nothing_is_no_call_unless_it_is_a_layer_that_is_asked_for():
    net = Does(lambda net, x: x + net.a(torch.ones(3)), a=nn.Linear(3, 3))
    assert names(record_calls(net, X)) == ['add', 'output']
    assert names(record_calls(net, X, constants=True)) == ['a', 'add', 'output']


def test_a_plain_form_is_written_down_in_the_place_of_a_layer():
    class Square(nn.Module):
        def forward(self, x): return x.square()
    net = nn.Sequential(nn.Linear(3, 3), Square(), nn.Tanh())
    def form(m): return (lambda m, x: x*x) if isinstance(m, Square) else None
    calls = record_calls(net, X, plain_form=form)
    assert names(calls) == ['0', 'mul', '2', 'output']
    assert torch.allclose(calls[-1].outputs[0], net(X)) and calls[2].sources == [(1, 0)]
    def wrong(m): return (lambda m, x: x*x*1.01) if isinstance(m, Square) else None
    with pytest.raises(OtherForm, match='plain form of 1 computes something else'):
        record_calls(net, X, plain_form=wrong)


def test_a_function_of_ours_can_be_one_call():
    @one_call
    def twice(x): return x.exp() + x.exp()
    assert names(record_calls(Does(lambda net, x: twice(x)), X)) == ['twice', 'output']
    assert torch.equal(twice(X), 2*X.exp())


def test_shapes_are_questions_and_no_calls():
    class Curious(Recorder):
        def note_question(self, name): self.asked = name
    recorder = Curious(Does(lambda net, x: x.exp().view(x.shape)))
    recorder.run((X,), {})
    assert recorder.asked == 'shape' and names(recorder.calls) == ['exp', 'view']


def test_hooks_go_even_if_the_network_fails():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    recorder = Recorder(net)
    with pytest.raises(RuntimeError): recorder.run((X,), {})
    assert recorder.inside is net[1]      # where it failed
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_up_to_a_layer():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    assert torch.equal(up_to(net, '1')(X), net[:2](X))
    with pytest.raises(ValueError, match="no layer '7'. There are: 0, 1, 2"): up_to(net, '7')
    lazy = Does(lambda net, x: x, a=nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="did not run its layer 'a'"): up_to(lazy, 'a')(X)


def test_nothing_of_torch_is_patched(monkeypatch):
    "Its functions are the same while a network is recorded as they were before."
    before = torch.compiler.is_compiling, torch.autograd.Function.apply
    def forward(net, x):
        assert (torch.compiler.is_compiling, torch.autograd.Function.apply) == before
        return net.a(x)
    from eqtutor.export import to_plain
    net = Does(forward, a=GroupConv2d(2, 2, 3, 'p4'))
    to_plain(net.eval(), x=torch.randn(2, 2, 4, 5, 5))
    assert not torch.compiler.is_compiling()
