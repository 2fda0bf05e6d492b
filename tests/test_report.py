"""Who breaks the symmetry: nobody in thirty sound networks, the right one in thirty broken ones.

The networks stand in `report_bench`.
"""
import pytest
import report_bench as bench
import torch
import torch.nn.functional as F
from torch import nn

from eqtutor.equivariance import equivariance_error, perturb_
from eqtutor.models.registry import build_model
from eqtutor.nn import GroupConv2d, GroupPool, LiftingConv2d
from eqtutor.report import exact_sizes, layer_report

pytestmark = pytest.mark.filterwarnings('ignore:stride')   # faults that are planted
SOUND, FAULTY = bench.SOUND, bench.FAULTY


def double(x): return tuple(map(double, x)) if isinstance(x, tuple) else x.double()

def group_of(net): return next((m.group for m in net.modules() if hasattr(m, 'group')), 'p4')

def report_on(net, x, **options):
    return layer_report(perturb_(net).double().eval(), double(x), group_of(net), **options)


def test_there_are_thirty_of_each():
    assert len(SOUND) == len(FAULTY) == 30 and len({kind for kind, *_ in FAULTY}) == 10


@pytest.mark.parametrize('name', SOUND)
def test_nobody_is_accused(name):
    report = report_on(*SOUND[name])
    assert report.offenders == [] and report.first_broken is None, str(report)
    assert all(s.kind not in ('unknown', 'rearranged') for s in report.steps), str(report)


@pytest.mark.parametrize('n', range(30), ids=[f'{kind} {n}' for n, (kind, *_) in enumerate(FAULTY)])
def test_the_one_at_fault_is_named_and_nobody_else(n):
    _, net, x, names = FAULTY[n]
    report = report_on(net, x)
    (fault,) = report.offenders
    assert fault.name in names and report.first_broken == fault.name, str(report)
    assert fault.reason and fault.remedy and f'- {fault.name} ' in str(report)


# what stands before the first convolution, in a network that no layer lifts
BEFORE = {'nothing': [], 'a pool': [nn.AvgPool2d(3, 1), nn.ReLU()],
          'a pool that halves': [nn.AvgPool2d(2)]}

@pytest.mark.parametrize('before', BEFORE)
def test_the_first_convolution_on_pictures_is_to_lift_and_no_other(before):
    convolutions = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)
    net = nn.Sequential(*BEFORE[before], *convolutions).double()
    report = layer_report(net, torch.randn(1, 1, 12, 12).double(), 'p4')
    remedies = [s.remedy for s in report.offenders]
    assert [text.split('(')[0] for text in remedies] == ['LiftingConv2d', 'GroupConv2d']


def test_a_convolution_behind_pooled_poses_is_not_to_lift():
    net = nn.Sequential(LiftingConv2d(1, 4, 3, 'p4'), GroupPool(), nn.Conv2d(4, 4, 3)).double()
    (fault,) = layer_report(net, torch.randn(1, 1, 9, 9).double(), 'p4').offenders
    assert fault.remedy.startswith('GroupConv2d(4, 4, 3')


# name -> (network, input, options, first offender, how many, words of a remedy)
FOREIGN = {
    'ResNet18': (bench.resnet18, (1, 3, 32, 32), {}, 'conv1', 18, 'SpatialPool2d(2'),
    'U-Net': (bench.UNet, (1, 2, 8, 8), {}, 'down.0', 4, 'GroupConvTranspose2d'),
    'ViT': (bench.ViT, (1, 3, 16, 16), {}, 'patches', 2, 'no absolute positions'),
    'flattened fields': (bench.flat_model, (1, 8, 7, 7), dict(layout='flattened'), '1', 1,
                         'GroupBatchNorm2d(16)'),
    'segmentation head': (bench.Segmenter, (1, 3, 8, 8), {}, 'head', 1, 'GroupConv2d(4, 2, 3')}

@pytest.mark.parametrize('name', FOREIGN)
def test_networks_of_others_are_diagnosed(name):
    make, shape, options, first, faults, remedy = FOREIGN[name]
    net = perturb_(make()).double().eval()
    report = layer_report(net, torch.randn(shape).double(), 'p4', **options)
    assert report.first_broken == first and len(report.offenders) == faults, str(report)
    assert remedy in str(report)


# --- what a report says

X = torch.randn(1, 1, 28, 28, dtype=torch.float64)

class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.pool = LiftingConv2d(1, 4, 3, 'p4', padding='same'), GroupPool()

    def forward(self, x): return self.pool(self.lift(x))[..., ::2, ::2]

class Placed(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = LiftingConv2d(1, 4, 3, 'p4', padding='same')
        self.g = GroupConv2d(4, 4, 3, 'p4', padding='same')
        self.pos = nn.Parameter(torch.randn(4, 1, 28, 28))

    def forward(self, x): return self.g(F.relu(self.l(x)) + self.pos)


def test_a_forward_that_slices_is_found_and_the_output_is_shown():
    net = Cut().double()
    report = layer_report(net, X, 'p4')
    assert max(equivariance_error(net, X, 'p4')) > .5
    assert [row[0] for row in report.rows] == ['lift', 'pool', 'getitem', 'output']
    (cut,) = report.offenders
    assert cut.cls == 'between pool and output' and '[..., ::2, ::2]' in cut.where


def test_a_layer_behind_a_fault_is_not_accused():
    report = layer_report(Placed().double(), X, 'p4')
    (fault,) = report.offenders
    assert (fault.name, fault.cls) == ('add', 'between l and g') and '+ self.pos' in fault.where
    g = next(s for s in report.steps if s.name == 'g')
    assert max(g.inputs) > .1 and max(g.errors) > .1 and not g.is_at_fault


def test_flattened_poses_are_a_field_and_no_fault():
    report = layer_report(nn.Sequential(LiftingConv2d(1, 2, 3, 'p4'), nn.Flatten(1, 2)).double(),
                          X, 'p4')
    assert report.first_broken is None and report.rows[-1][2] == 'flattened'


def test_turns_off_the_grid_are_judged_where_a_margin_is_given():
    lift = LiftingConv2d(1, 4, 3, 'C8').double()
    report = layer_report(lift, X, 'C8')
    assert report.first_broken is None and report.judged == (0, 2, 4, 6)
    assert min(report.rows[0][3][1::2]) > 1e-3          # shown, and known to be approximate
    judged = layer_report(lift, X, 'C8', margin=2., tol=1e-3)
    assert judged.first_broken == 'LiftingConv2d' and len(judged.judged) == 8


def test_a_long_report_is_folded():
    layers = [m for _ in range(40) for m in (nn.Conv2d(2, 2, 1), nn.Tanh())]
    layers[31] = nn.Conv2d(2, 2, 3, padding=1)
    text = str(report_on(nn.Sequential(*layers), torch.randn(1, 2, 7, 7)))
    assert len(text.splitlines()) < 20 and '31' in text and '…' in text


def test_zeros_are_not_taken_for_a_symmetry():
    net = nn.Sequential(nn.Conv2d(1, 1, 1), bench.Net(lambda n, x: 0*x), nn.Conv2d(1, 1, 3))
    report = layer_report(net.double(), X, 'p4')
    assert report.silent == '1' and '1 gives zeros only: what follows was not' in str(report)


def test_several_inputs_and_outputs_have_names():
    report = report_on(*SOUND['dictionary'])
    names = [row[0] for row in report.rows]
    assert names[-3:] == ["output['out']", "output['aux'][0]", "output['aux'][1][0]"]
    kinds = [row[2] for row in report.rows[-3:]]
    assert kinds == ['image', 'vector on H', 'invariant']

    def run(net, image, scale): return net.lift(image)*scale[:, :, None, None, None]
    net, x = bench.Net(run, lift=bench.lift()), torch.randn(2, 2, 8, 8)
    by_name = dict(image=x.double(), scale=torch.randn(2, bench.C).double())
    assert layer_report(net.double(), by_name, 'p4').first_broken is None


def test_a_path_that_depends_on_the_input_is_an_error():
    def run(net, x): return x.abs() if x[0, 0, 0, 0] > x[0, 0, 0, -1] else x.exp()
    net = bench.Net(run, relu=nn.ReLU())
    with pytest.raises(ValueError, match='takes another path on a turned input'):
        layer_report(net, X, 'p4')
    with pytest.raises(ValueError, match='layout must be one of invariant'):
        layer_report(net, X, 'p4', layout='flat')


def test_what_changes_in_place_behind_a_view_is_not_misread():
    def run(net, x):
        f = net.lift(x)
        half = f[:, :2]
        half.mul_(2)
        return f.relu()
    report = report_on(bench.Net(run, lift=bench.lift()), torch.randn(1, 2, 8, 8))
    assert report.first_broken is None, str(report)


# --- sizes

def test_sizes_are_those_on_which_strides_are_exact():
    assert exact_sizes(bench.resnet18().eval(), 'p4', 30, count=2) == [33, 65]


def test_a_network_that_cannot_take_the_size_names_others():
    assert exact_sizes(bench.UNet().eval(), 'p4', 33) == [28, 30, 32, 34, 36]
    assert exact_sizes(bench.UNet().eval(), 'Z2', 33, count=3) == [30, 32, 34]


def test_functional_pools_count():
    net = bench.Net(lambda n, x: F.max_pool2d(n.conv(x), 3, stride=2), conv=nn.Conv2d(1, 1, 3))
    assert exact_sizes(net, 'p4', 20, count=4) == [17, 19, 21, 23]

@pytest.mark.parametrize('name, options', [
    ('p4-e4-net', {}), ('p4-e4-net-k3', {}),
    ('gsa-r4', dict(stem=6, widths=((6, 6), (6, 6, 6)), heads=1))])
def test_sizes_behind_crops_and_windows_that_keep_the_size(name, options):
    "A network runs on the sizes that are named, and on no other near them."
    net = build_model(name, **options).eval()
    sizes = exact_sizes(net, 'p4', 28, count=5)
    def runs(n):
        try: return net(torch.zeros(1, 1, n, n)) is not None
        except ValueError as error: return 'leaves' not in str(error)
    with torch.no_grad(): tried = [n for n in range(26, 31) if runs(n)]
    assert tried == [n for n in sizes if n in range(26, 31)] and 28 in tried
