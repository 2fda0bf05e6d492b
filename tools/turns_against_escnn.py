"""Off the grid: how far two layers of C8 err at 45° on a smooth picture, ours beside escnn's.

    pip install escnn
    python tools/turns_against_escnn.py

A lifting and a group convolution of 8 channels, a ReLU between them and a maximum over the poses
behind; windows of 3, 5 and 7; the mean of five draws of the weights. The picture is noise of
65×65 pixels behind a Gaussian blur of 3 pixels; both networks are given the same bilinear turn of
it, and are compared inside a disc. `filters` is the number of filters that the weights of one
channel pair span. Without escnn its columns stay empty.
"""
import torch
from torch import Tensor, nn

from eqtutor.actions import act, disc
from eqtutor.nn import GroupConv2d, GroupPool, LiftingConv2d

try:
    import escnn
except ImportError: escnn = None

SIZES, CHANNELS, SEEDS, MARGIN = (3, 5, 7), 8, 5, 8


def smooth_picture(pixels:int=65, blur:float=3., seed:int=0)->Tensor:
    "Noise behind a Gaussian blur, `(1, 1, pixels, pixels)`, of variance 1."
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 1, pixels, pixels, generator=draw, dtype=torch.float64)
    reach = round(4*blur)
    bell = torch.exp(-torch.arange(-reach, reach + 1, dtype=torch.float64)**2/(2*blur**2))
    x = nn.functional.conv2d(x, torch.outer(bell, bell)[None, None], padding=reach)
    return x/x.std()


@torch.no_grad()
def error_at_45(net, x:Tensor)->float:
    "Root mean square of net(hx) − h net(x) over that of h net(x), inside a disc."
    turned, want = net(act('C8', 1, x)), act('C8', 1, net(x))
    inside = disc(*want.shape[-2:], MARGIN)
    return ((turned - want)*inside).norm().item()/(want*inside).norm().item()


def ours(kernel_size:int)->tuple[nn.Module, int]:
    "Our network, and how many filters a pair of channels spans."
    options = dict(padding='same', dtype=torch.float64)
    lift = LiftingConv2d(1, CHANNELS, kernel_size, 'C8', **options)
    conv = GroupConv2d(CHANNELS, CHANNELS, kernel_size, 'C8', **options)
    # without turns, on the grid, every entry counts
    spanned = torch.linalg.matrix_rank(lift.originals['turns'][0], atol=1e-6).item()
    return nn.Sequential(lift, nn.ReLU(), conv, GroupPool()), spanned


def theirs(kernel_size:int):
    "The same network in escnn, and the same number."
    space, padding = escnn.gspaces.rot2dOnR2(8), kernel_size//2
    image = escnn.nn.FieldType(space, [space.trivial_repr])
    field = escnn.nn.FieldType(space, CHANNELS*[space.regular_repr])
    lift = escnn.nn.R2Conv(image, field, kernel_size, padding=padding)
    net = escnn.nn.SequentialModule(
        lift, escnn.nn.ReLU(field), escnn.nn.R2Conv(field, field, kernel_size, padding=padding),
        escnn.nn.GroupPooling(field)).double().eval()
    return lambda x: net(escnn.nn.GeometricTensor(x, image)).tensor, len(lift.weights)//CHANNELS


def measured(make, kernel_size:int, x:Tensor)->tuple[float, int]:
    "The mean error over the draws, and the number of filters."
    total = 0.
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        net, spanned = make(kernel_size)
        total += error_at_45(net, x)/SEEDS
    return total, spanned


def main()->None:
    "Print a row a window."
    x = smooth_picture()
    print('window  ours  filters  escnn  filters')
    for k in SIZES:
        row = [measured(make, k, x) for make in (ours, theirs) if make is ours or escnn]
        print(f'{k}×{k}   ', '  '.join(f'{error:.3f}  {spanned:7}' for error, spanned in row))


if __name__ == '__main__': main()
