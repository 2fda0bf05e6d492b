"The p4-CNN's step beside plain convolutions, and the loader's share, as ratios inside one run."
import statistics

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from eqtutor.cost import count_macs
from eqtutor.measure import interleaved, time_ratio, training_step
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.train import AUGMENTATIONS, TensorLoader

ATTEMPTS = 4   # one measurement may be spoilt, not all
BATCH = 128    # P1's


class MaxOverPoses(nn.Module):
    def forward(self, x): return x.unflatten(1, (-1, 4)).amax((2, 3, 4))


def plain_cnn():
    "The p4-CNN's layers with free filters: convolutions 40 channels wide, torch's norms and pools."
    layers = []
    for i in range(1, 7):
        after = nn.MaxPool2d(2) if i == 2 else nn.Dropout(.3)
        layers += [nn.Conv2d(1 if i == 1 else 40, 40, 3, bias=False),
                   nn.BatchNorm2d(40, eps=2e-5), nn.ReLU(), after]
    return nn.Sequential(*layers, nn.Conv2d(40, 40, 4, bias=False), MaxOverPoses())


def test_the_plain_network_does_the_same_work():
    torch.manual_seed(0)
    ours, plain, x = p4_cnn().eval(), plain_cnn().eval(), torch.randn(2, 1, 28, 28)
    convs = [m for m in plain.modules() if isinstance(m, nn.Conv2d)]
    groups = [m for m in ours.modules() if isinstance(m, (LiftingConv2d, GroupConv2d))]
    for conv, layer in zip(convs, groups, strict=True):
        conv.weight.data = layer.filters().detach().clone()
    torch.testing.assert_close(ours(x), plain(x))
    assert ours(x).std() > 1e-3 and count_macs(ours, x) == count_macs(plain, x)


@pytest.mark.timeout(600)
def test_expanding_filters_is_no_bottleneck(processor_time):
    torch.manual_seed(0)
    ours, plain, best = p4_cnn(), plain_cnn(), float('inf')
    x = torch.randn(BATCH, 1, 28, 28)
    for _ in range(ATTEMPTS):
        best = min(best, time_ratio(ours, plain, x, repeats=5))
        print(f'\np4-CNN, training step, batch {BATCH}: {best:.2f} × plain convolutions '
              f'of the expanded widths, torch {torch.__version__}, '
              f'{torch.get_num_threads()} threads')
        if best <= 1.1: return
    assert best <= 1.1


@pytest.mark.timeout(600)
@pytest.mark.parametrize('augment', [None, 'cifar+', 'p4m'])
def test_the_loader_is_no_bottleneck(augment, processor_time):
    "Beside the cheapest network of the papers, batches take at most a tenth of an epoch's time."
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2*BATCH, 1, 28, 28), torch.arange(2*BATCH) % 10)
    transform = AUGMENTATIONS[augment] if augment else None
    loader = TensorLoader(data, BATCH, shuffle=True, augment=transform)
    net, best = p4_cnn(), float('inf')

    def load():
        for _ in loader: pass
    def train():
        for x, _ in loader: training_step(net, x)
    for _ in range(ATTEMPTS):
        times = interleaved(dict(load=load, train=train), repeats=3)
        best = min(best, statistics.median(times['load'])/statistics.median(times['train']))
        print(f'\nloader, augment={augment}: {best:.2%} of an epoch of the p4-CNN')
        if best <= .1: return
    assert best <= .1
