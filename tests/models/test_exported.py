"Networks leave Python: `torch.export` and ONNX give their outputs, for any number of images."
import pytest
import torch

from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.models.e4 import e4_net
from eqtutor.models.group_cnn import p4_cnn

BATCH = ({0: torch.export.Dim('batch')},)
EXTRA = "ONNX is an extra: pip install 'eqtutor[onnx]'"


def two_e4_layers():
    "What the published network begins with: each later layer of it is one of these once more."
    net = e4_net()
    net.layers = net.layers[:11]
    return net

@pytest.fixture(scope='module', ids=['p4_cnn', 'two_e4_layers', 'e4_net'],
                params=[p4_cnn, two_e4_layers, pytest.param(e4_net, marks=pytest.mark.slow)])
def exported(request):
    "A network as after training, and its program, traced with two images."
    torch.manual_seed(0)
    net = perturb_(request.param()).eval()
    return net, torch.export.export(net, (torch.randn(2, 1, 28, 28),), dynamic_shapes=BATCH)

def assert_same(net, run):
    for n in (1, 5):
        x = torch.randn(n, 1, 28, 28)
        with torch.no_grad(): want = net(x)
        assert n == 1 or want.std(0).min() > 0, 'the network gives every image the same answer'
        assert (run(x) - want).abs().max() <= 1e-5*want.abs().max()

def test_torch_export(exported, tmp_path):
    net, program = exported
    torch.export.save(program, tmp_path/'net.pt2')
    loaded = torch.export.load(tmp_path/'net.pt2').module()
    assert_same(net, loaded)
    assert max(equivariance_error(loaded, torch.randn(2, 1, 28, 28), 'p4', kind='invariant')) < 1e-4

def test_onnx(exported, tmp_path):
    runtime = pytest.importorskip('onnxruntime', reason=EXTRA)
    pytest.importorskip('onnxscript', reason=EXTRA)
    net, program = exported
    torch.onnx.export(program, dynamo=True, optimize=False).save(tmp_path/'net.onnx')
    session = runtime.InferenceSession(tmp_path/'net.onnx', providers=['CPUExecutionProvider'])
    name = session.get_inputs()[0].name
    def run(x): return torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    assert_same(net, run)
