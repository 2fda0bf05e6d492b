"""20 Attention: what a constant image becomes, BAM's gate, and an operator without a frame."""
# Plain module: edited by hand, no notebook exports it.
import torch
import torch.nn.functional as F

from ..exercise import Exercise, Mistake
from .draws import normal

BORDERS = 'mask, no encoding', 'mask, relative', 'zero, no encoding', 'zero, relative'
# the student's `on_torus`, on a convolution that pads with zeros
ON_A_CONVOLUTION = ('fn(lambda x: F.conv2d(x, case[1], padding=case[1].shape[-1]//2), '
                    'case[1].shape[-1]//2)(case[0])')


def at_borders(*constant): return dict(zip(BORDERS, constant))


def features_and_scores(seed):
    return [(normal(2, 3, n, 4, 5, seed=seed), 2*normal(2, 3, n, 1, 1, seed=seed + 1),
             2*normal(2, 1, n, 4, 5, seed=seed + 2)) for n in (1, 4, 8)]

def bam(f, channel, spatial): return f*(1 + torch.sigmoid(channel + spatial))

def gates_added(f, channel, spatial):
    return f*(1 + torch.sigmoid(channel) + torch.sigmoid(spatial))

def gates_multiplied(f, channel, spatial): return f*torch.sigmoid(channel)*torch.sigmoid(spatial)

def input_lost(f, channel, spatial): return f*torch.sigmoid(channel + spatial)


def images_and_filters(seed):
    x = normal(1, 2, 7, 8, seed=seed)
    return [(x, normal(3, 2, k, k, seed=seed + k)) for k in (3, 5)]

def padded_and_cropped(f, pad, crop, mode='circular'):
    "f on the image with `pad` pixels more on each side, and `crop` of them off its output."
    def on_padded(x):
        h, w = x.shape[-2] + 2*pad - crop, x.shape[-1] + 2*pad - crop
        return f(F.pad(x, (pad,)*4, mode=mode))[..., crop:h, crop:w]
    return on_padded

def on_torus(f, margin): return padded_and_cropped(f, margin, margin)

def padded_with_zeros(f, margin): return padded_and_cropped(f, margin, margin, 'constant')

def reflected(f, margin): return padded_and_cropped(f, margin, margin, 'reflect')

def not_cropped(f, margin): return padded_and_cropped(f, margin, 0)

def margin_too_small(f, margin): return padded_and_cropped(f, margin - 1, margin - 1)


EXERCISES = [
    Exercise('20.1', 'proof', 3),
    Exercise('20.2', 'predict', 2, name='constant_output',
             right=at_borders(True, True, False, False), mistakes=[
        Mistake(at_borders(True, False, False, False),
                'With the mask all weights go to pixels of the same value, and weights sum to one: '
                'the output is that value, whatever the encoding says.'),
        Mistake(at_borders(True, True, True, False),
                'Zeros outside take part of the attention with them: near the border less of it is '
                'left for the image.'),
        Mistake(at_borders(True, True, False, True),
                'An encoding does not give back what has gone to the zeros outside.'),
    ]),
    Exercise('20.3', 'code', 3, bam, features_and_scores, mistakes=[
        Mistake(gates_added,
                'You add the gates; BAM adds the *scores*, and takes one sigmoid of the sum.'),
        Mistake(gates_multiplied,
                'You multiply the gates one after the other: that is CBAM.'),
        Mistake(input_lost, 'The input is not kept: the factor is 1 + σ, between 1 and 2.'),
    ]),
    Exercise('20.4', 'code', 3, on_torus, images_and_filters, ON_A_CONVOLUTION, [
        Mistake(padded_with_zeros, 'You pad with zeros: the frame is still there.'),
        Mistake(reflected,
                'You reflect the image at its border. On a torus the opposite side comes next: '
                'mode="circular".'),
        Mistake(not_cropped, 'You do not crop: the output has the size of the padded image.'),
        Mistake(margin_too_small,
                'Off by one: the window reaches `margin` pixels to each side, so pad by '
                '`margin`.'),
    ]),
]
