"""11 Cost: the multiplications of a transposed convolution, and shares that one can estimate."""
# Plain module: edited by hand, no notebook exports it.
import math

from ..exercise import Exercise, Mistake
from .draws import dice, one, some


def shapes_and_layers(seed):
    layers, die = ((4, 6, 1), (4, 6, 2), (6, 9, 3)), dice(seed)   # channels in and out, groups
    return [((b, c, one(range(4, 30), die), one(range(4, 30), die)), o, k, g)
            for b in (1, 3) for c, o, g in layers for k in (1, 2, 3)]

def transposed_macs(shape, out_channels, kernel_size, groups):
    return math.prod(shape)*out_channels//groups*kernel_size**2

def without_groups(shape, out_channels, kernel_size, groups):
    return math.prod(shape)*out_channels*kernel_size**2

def window_not_squared(shape, out_channels, kernel_size, groups):
    return math.prod(shape)*out_channels//groups*kernel_size

def one_image(shape, out_channels, kernel_size, groups):
    return transposed_macs(shape[1:], out_channels, kernel_size, groups)

def ordinary_convolution(shape, out_channels, kernel_size, groups):
    b, c, h, w = shape
    places = (h - kernel_size + 1)*(w - kernel_size + 1)
    return b*c*places*out_channels//groups*kernel_size**2


def each_output_pixel(shape, out_channels, kernel_size, groups):
    b, c, h, w = shape
    grown = b, c, h + kernel_size - 1, w + kernel_size - 1
    return transposed_macs(grown, out_channels, kernel_size, groups)


def odd_sizes(seed): return [(k,) for k in some(range(1, 20, 2), 4, seed)]

def overcount(kernel_size): return kernel_size**2

def only_the_side(kernel_size): return kernel_size

def squared_twice(kernel_size): return kernel_size**4

def the_wasted_ones(kernel_size): return kernel_size**2 - 1


EXERCISES = [
    Exercise('11.1', 'proof', 3),
    Exercise('11.2', 'code', 3, transposed_macs, shapes_and_layers, mistakes=[
        Mistake(without_groups,
                'You forget the groups: an input channel meets only the output channels of its own '
                'group.'),
        Mistake(window_not_squared, 'The window has kernel_size² places, not kernel_size.'),
        Mistake(one_image, 'You count one image; the pass has a batch of them.'),
        Mistake(ordinary_convolution,
                'These are the MACs of an ordinary convolution without padding, which counts '
                '*output* pixels. Here each input pixel is multiplied by a whole window.'),
        Mistake(each_output_pixel,
                'You count a window at each *output* pixel. A transposed convolution multiplies '
                'each *input* pixel by a whole window.'),
    ]),
    Exercise('11.3', 'predict', 2, name='share_before_pool', right='50 to 75 %', mistakes=[
        Mistake('below 25 %',
                'Layers 3 to 7 together cost less than you think: the pool leaves a quarter of the '
                'pixels, and each layer takes two more off a side.'),
        Mistake('25 to 50 %',
                'Layer 2 works at 24×24 pixels, all later ones together at 100 + 64 + 36 + 16 and '
                'one last place: compare.'),
        Mistake('above 75 %',
                'Nearly. Layer 2 has 576 places of its kind, but the later ones add up to more '
                'than a third of it.'),
    ]),
    Exercise('11.4', 'predict', 2, overcount, odd_sizes, mistakes=[
        Mistake(only_the_side, 'A k×k kernel has k² entries, of which one is not zero.'),
        Mistake(squared_twice,
                'These are the products for all k² offsets together. For one of them the counter '
                'sees the entries of *one* kernel.'),
        Mistake(the_wasted_ones,
                'k² − 1 products are wasted. The counter sees the one that is needed, too.'),
    ]),
]
