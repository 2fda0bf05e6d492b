"GSA-Nets leave Python: exported for any number of images, and compiled."
import pytest
import torch

from eqtutor.models.self_attention import GSANet


def test_torch_export_with_a_dynamic_batch():
    torch.manual_seed(0)
    net = GSANet('p4', 6, ((6,),), ((2,),), heads=2).eval()
    shapes, example = ({0: torch.export.Dim('batch')},), torch.randn(2, 1, 8, 8)
    program = torch.export.export(net, (example,), dynamic_shapes=shapes).module()
    for b in (1, 2, 5):
        x = torch.randn(b, 1, 8, 8)
        torch.testing.assert_close(program(x), net(x), rtol=1e-4, atol=1e-5)
    assert net(x).std(0).min() > 0

def test_the_old_word_for_the_printed_index_is_refused():
    with pytest.raises(ValueError, match="'relative', 'target', 'printed', 'none'"):
        GSANet('p4', 6, ((6,),), None, heads=2, encoding='published')

@pytest.mark.slow
def test_compiled_output_and_gradients_are_those_of_the_net():
    torch.manual_seed(0)
    net, x = GSANet('p4', 6, ((6,),), ((2,),), heads=2).eval(), torch.randn(2, 1, 8, 8)
    want = net(x)
    want.sum().backward()
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    y = torch.compile(net, fullgraph=True)(x)
    y.sum().backward()
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-5)
    for p, g in zip(net.parameters(), grads):
        torch.testing.assert_close(p.grad, g, rtol=1e-3, atol=1e-4)
