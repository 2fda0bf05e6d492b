"""What `help()` says of each public layer beyond its first line and its parameters.

`tools/export.py` writes it into the docstrings of `eqtutor.nn`, so that lessons keep their classes
short. `tests/nn/test_layer_docs.py` runs the use, measures for which groups a layer is exact, and
compares the cost with what `count_macs` counts; a new layer without an entry fails there.
"""
import textwrap
from dataclasses import dataclass

WIDTH = 88   # of a docstring's lines

# for which groups a layer is exact
EXACT = dict(
    grid='every subgroup of D(4): p4, p4m, mirror, or one of your own. C8, C16 and the like are '
         'taken, too; their filters are turned between pixels, so that of their turns only those '
         'that keep the grid are exact.',
    refuses='every subgroup of D(4): p4, p4m, mirror, or one of your own; other groups are '
            'refused, as windows would have to turn between pixels.',
    windows='every subgroup of D(4): p4, p4m, mirror, or one of your own. C8, C16 and the like are '
            'taken, too, but the square windows stay as they are while the picture turns between '
            'pixels.',
    poses='every subgroup of D(4). It takes any other group as well, since it permutes poses and '
          'reads every pixel alike; what is then inexact is the turning of the picture alone.',
    told_none='every subgroup of D(4). It is told no group, and treats all poses alike.',
    encoding='every subgroup of D(4). C8, C16 and the like are taken, too: offsets are turned '
             'exactly, at any angle, but the picture itself is turned between pixels.',
    translations='translations by whole pixels, away from the border; not for turns or mirrors.')

STRIDE = ('A stride may leave no pixel over: (n + 2·padding − dilation·(kernel_size − 1) − 1) % '
          'stride == 0 on both sides, or the layer raises and names the nearest sizes.')
AXES = 'Both sides must agree on it: the layer is exact on rectangles as on squares. '

# parameters that a class takes from torch, or whose name says enough where the class is derived
PARAMETERS = dict(
    in_channels='channels of the input', out_channels='channels of the output',
    channels='channels of the feature map', num_features='channels of the feature map',
    kernel_size='side of the window, in pixels', group='a `Group` or its name',
    bias='add a learned number to each output channel',
    value_dropout='share of the values that training leaves out',
    num_channels='channels of the feature map', num_groups='blocks of channels',
    eps='added to the variance', momentum='of the running mean and variance; None: their average',
    affine='learn a scale and a shift for each channel',
    track_running_stats='keep a mean and a variance for evaluation',
    device='of the parameters', dtype='of the parameters')


@dataclass(frozen=True)
class LayerDoc:
    "An entry: what a layer computes, in words, and what a user asks before taking it."
    sources:str            # keys of `references.bib`
    words:str              # its equation
    exact:str              # a key of `EXACT`
    cost:str               # multiply-accumulates, in `LETTERS`; '0' where none are counted
    takes:tuple[int, ...]  # shape of an input
    use:str                # its arguments, with |H| = 8
    gives:tuple[int, ...]  # shape of the output
    provided:str=''        # when it is exact
    per:str='place'        # 'place' of the output, 'input place' or 'picture'
    about:float=1.         # how much more than `cost` it may be
    spends:str=''          # more about its cost
    arrows:str=''          # where pairs of channels are arrows: 'input' or 'output'


LETTERS = ('i and o are the channels of input and output (c, where they are one number), k is the '
           'window, |H| the order of the group')
IMAGE, ON_GROUP = (2, 4, 16, 16), (2, 4, 8, 16, 16)

LAYERS = dict(
    # --- convolution
    LiftingConv2d=LayerDoc(
        'cohen2016group',
        'the image is correlated with every filter in every pose. The output at place x and pose h '
        'is large where the filter, moved by h, fits the image around x.',
        'grid', 'o·|H|·i·k²', IMAGE, "4, 6, 3, 'p4m', padding='same'", (2, 6, 8, 16, 16), STRIDE,
        spends='|H| times a plain convolution of the same channels, at as many parameters.'),
    GroupConv2d=LayerDoc(
        'cohen2016group romero2020attentive',
        'every pose h of the output reads every pose q of the input through a filter moved by h. '
        'Which slice of the filter it takes depends on the relative pose h⁻¹q alone.',
        'grid', 'o·|H|·i·|H|·k²', ON_GROUP, "4, 6, 3, 'p4m', padding='same'", (2, 6, 8, 16, 16),
        STRIDE, spends='That is a plain convolution from i·|H| to o·|H| channels, at 1/|H| of its '
                       'parameters.'),
    ProjectionConv2d=LayerDoc(
        'weiler2019general',
        'every pose q of the input is correlated with the filter moved by q, and the poses are '
        'added. What is left is an image that turns with the input and has no poses.',
        'grid', 'o·i·|H|·k²', ON_GROUP, "4, 6, 3, 'p4m', padding='same'", (2, 6, 16, 16), STRIDE),
    GroupConvTranspose2d=LayerDoc(
        'dumoulin2016guide',
        'every place and pose of the input writes a window into the output, `stride` pixels from '
        'its neighbour: a filter moved by the pose, times the feature. Windows that overlap add '
        'up.',
        'grid', 'o·|H|·i·|H|·k²', ON_GROUP, "4, 6, 4, 'p4m', stride=2, padding=1",
        (2, 6, 8, 32, 32), per='input place', spends='kernel_size 4, stride 2 and padding 1 double '
        'the sides.'),
    VectorLiftingConv2d=LayerDoc(
        'weiler2019general',
        'pairs of channels are arrows, which turn with the picture. In every pose h each is '
        'written in the axes that h has turned, as two numbers; these are correlated with a '
        'filter moved by h.',
        'grid', 'o·|H|·i·k²', IMAGE, "4, 6, 3, 'p4m', padding='same'", (2, 6, 8, 16, 16), STRIDE,
        about=1.1,
        spends='That is as much as lifting i numbers costs.', arrows='input'),
    VectorProjectionConv2d=LayerDoc(
        'weiler2019general',
        'every pose q of the input is correlated with the filters moved by q, two for each arrow, '
        'whose answers are steps along the axes that q has turned; the steps of all poses are '
        'added. Pairs of channels of the output are arrows, which turn with the picture.',
        'grid', 'o·i·|H|·k²', ON_GROUP, "4, 6, 3, 'p4m', padding='same'", (2, 6, 16, 16), STRIDE,
        about=1.1,
        spends='That is as much as projecting to o numbers costs.', arrows='output'),
    # --- norms and pools
    GroupBatchNorm2d=LayerDoc(
        'ioffe2015batch cohen2016group',
        'of each channel the mean is taken off, and the rest is divided by the standard deviation, '
        'both over the batch, all poses and all places; then it is scaled and shifted. Scale and '
        'shift belong to the channel, not to the pose, so that they do not break the symmetry once '
        'they are trained.',
        'told_none', '0', ON_GROUP, '4', (2, 4, 8, 16, 16)),
    GroupLayerNorm2d=LayerDoc(
        'ba2016layer',
        'at each place and pose the mean of the channels is taken off, and the rest is divided by '
        'their standard deviation; then each channel is scaled and shifted, alike in all poses.',
        'told_none', '0', ON_GROUP, '4', (2, 4, 8, 16, 16)),
    GroupGroupNorm2d=LayerDoc(
        'wu2018group',
        'the channels are parted into num_groups blocks. Of each block the mean is taken off, and '
        'the rest is divided by the standard deviation, both over its channels, all poses and all '
        'places of one picture; then each channel is scaled and shifted, alike in all poses.',
        'told_none', '0', ON_GROUP, '2, 4', (2, 4, 8, 16, 16)),
    GroupInstanceNorm2d=LayerDoc(
        'ulyanov2016instance',
        'of each channel the mean is taken off, and the rest is divided by the standard deviation, '
        'both over all poses and all places of one picture. With affine=True each channel is then '
        'scaled and shifted, alike in all poses.',
        'told_none', '0', ON_GROUP, '4', (2, 4, 8, 16, 16)),
    BlurPool2d=LayerDoc(
        'zhang2019making',
        'every number becomes a mean of its window, weighed by the binomial numbers of its row '
        'times those of its column; of these means every `stride`-th is kept.',
        'windows', '3·c·|H|·k', ON_GROUP, "4, 'p4m'", (2, 4, 8, 8, 8), STRIDE, about=1.1,
        spends='That is at stride 2: first along the columns, then along the rows.'),
    SpatialPool2d=LayerDoc(
        'cohen2016group',
        'the largest number of each window, or the mean, in every channel and pose by itself.',
        'windows', '0', ON_GROUP, "2, 'p4m'", (2, 4, 8, 8, 8), STRIDE),
    GroupAdaptivePool2d=LayerDoc(
        'he2014spatial',
        'rows and columns are parted into output_size cells each, which lie symmetrically and '
        'share a pixel where the number does not divide; of each cell the mean or the largest '
        'number.',
        'told_none', '0', ON_GROUP, '1', (2, 4, 8, 1, 1)),
    GroupPool=LayerDoc(
        'cohen2016group',
        'at each place the largest number of the poses, or their mean. The result is an image that '
        'turns with the input; its channels no longer know in which pose they were found. With '
        '`subgroup` the poses of each of its cosets are pooled, and a map on the cosets is left.',
        'told_none', '0', ON_GROUP, '', (2, 4, 16, 16),
        'With `subgroup` it is told one: what is left is a feature map on `out_group`, and where '
        'that is None, a map on cosets that no other layer takes.'),
    GroupUpsample2d=LayerDoc(
        'odena2016deconvolution',
        'every pixel becomes a square of scale_factor² equal pixels, or the pixels between are '
        'interpolated, in every channel and pose by itself.',
        'told_none', '0', ON_GROUP, '2', (2, 4, 8, 32, 32)),
    # --- attention of images
    SelfAttention2d=LayerDoc(
        'vaswani2017attention romero2021group',
        'every pixel compares its query with the keys of the pixels around it, or of all, and with '
        'an encoding of where they lie; a softmax of the scores weighs their values. Heads do so '
        'side by side, and a linear map joins them.',
        'translations', 'o·(3·i + o + 3·k²)', IMAGE, '4, 6, window=5, heads=2', (2, 6, 16, 16),
        "With encoding='none' and window=None it commutes with every permutation of the pixels; "
        "with 'absolute', with none.", spends='Without a window k² is h·w, and the relative '
        'encoding is compared with (2h − 1)·(2w − 1) offsets.'),
    StandAloneSelfAttention2d=LayerDoc(
        'ramachandran2019stand',
        'every pixel compares its query with the keys of its window, and with an encoding, half of '
        'whose channels know the row of the offset, half the column; a softmax of the scores '
        'weighs the values.',
        'translations', 'o·(3·i + o + 2·k² + k)', IMAGE, '4, 8, 5, heads=2', (2, 8, 16, 16)),
    SqueezeExcitation=LayerDoc(
        'hu2018squeeze diaconu2019affine',
        'the mean of each channel, over all poses and places, goes through two linear maps with a '
        'ReLU between them; a sigmoid makes a factor for each channel of it.',
        'poses', '2·c·⌊c/r⌋', ON_GROUP, "4, 'p4m', reduction=2", ON_GROUP, per='picture',
        spends='r is `reduction`.'),
    ChannelAttention=LayerDoc(
        'woo2018cbam romero2020attentive',
        'mean and maximum over the places, of each channel and pose, go through two 1×1 group '
        'convolutions with a ReLU between them; a sigmoid of the sum makes a factor for each '
        'channel and pose.',
        'poses', '4·c·⌊c/r⌋·|H|²', ON_GROUP, "4, 'p4m', reduction=2", ON_GROUP, per='picture',
        spends='r is `reduction`.'),
    SpatialAttention=LayerDoc(
        'woo2018cbam',
        'mean and maximum over the channels, at each place and pose, go through a group '
        'convolution with one output channel; a sigmoid makes a factor for each place and pose.',
        'grid', '2·|H|²·k²', ON_GROUP, "4, 'p4m', kernel_size=3", ON_GROUP),
    # --- P1
    AttentiveLiftingConv2d=LayerDoc(
        'romero2020attentive',
        'a lifting convolution, each of whose terms (one input channel, correlated with one filter '
        'in one pose) is weighed by a factor between 0 and 1 before they are added. Channel '
        'attention and spatial attention of these terms write the factors.',
        'grid', '3·o·|H|·i·k² + 98·o·|H|', IMAGE, "4, 6, 3, 'p4m', padding='same'",
        (2, 6, 8, 16, 16), STRIDE, about=1.1,
        spends="That is attend='full'; 98 is 2·attention_kernel². 'input' and 'rotation' weigh the "
               'input alone and cost little more than the convolution.'),
    AttentiveGroupConv2d=LayerDoc(
        'romero2020attentive',
        'a group convolution, each of whose terms (one channel and pose of the input, correlated '
        'with its slice of a filter in the pose of the output) is weighed by a factor between 0 '
        'and 1 before they are added. Channel attention and spatial attention of these terms write '
        'the factors, and know only the relative pose of the two.',
        'grid', '3·o·|H|²·i·k² + 98·o·|H|²', ON_GROUP, "4, 6, 3, 'p4m', padding='same'",
        (2, 6, 8, 16, 16), STRIDE, about=1.1,
        spends="That is attend='full'; 98 is 2·attention_kernel². `chunk` trades memory for time. "
               "'input' and 'rotation' weigh the input alone and cost little more than the "
               'convolution.'),
    # --- P2
    SimpleAffineSelfConv2d=LayerDoc(
        'diaconu2019affine',
        'a convolution whose filter is weighed anew at every place. The features of a window are '
        'multiplied by ψ and shifted by β, each by those of its offset; a softmax of their '
        'products with the one in the middle weighs them. Query, key and value are one map.',
        'translations', 'o·(i + o + 4·k²)', IMAGE, '4, 6, 3, heads=2', (2, 6, 16, 16)),
    AffineSelfConv2d=LayerDoc(
        'diaconu2019affine',
        'a convolution whose filter is weighed anew at every place. Keys and values of a window '
        'are multiplied by ψ and shifted by β, each by those of its offset; a softmax of the '
        'products of the keys with the query in the middle weighs the values.',
        'translations', 'o·(3·i + o + 4·k²)', IMAGE, '4, 6, 3, heads=2', (2, 6, 16, 16)),
    GroupSimpleAffineSelfConv2d=LayerDoc(
        'diaconu2019affine',
        'as `SimpleAffineSelfConv2d`, in every pose h: ψ and β are moved by h, ψ has a slice for '
        'each relative pose of the features that it multiplies, and those of all poses are added.',
        'refuses', 'o·(|H|²·(i + o + 2·k² + 1) + 4·|H|·k²)', ON_GROUP, "4, 6, 3, 'p4m', heads=2",
        (2, 6, 8, 16, 16)),
    GroupAffineSelfConv2d=LayerDoc(
        'diaconu2019affine',
        'as `AffineSelfConv2d`, in every pose h: ψ and β are moved by h, ψ has a slice for each '
        'relative pose of the keys and values that it multiplies, and those of all poses are '
        'added.',
        'refuses', 'o·(|H|²·(3·i + o + 2·k² + 1) + 4·|H|·k²)', ON_GROUP, "4, 6, 3, 'p4m', heads=2",
        (2, 6, 8, 16, 16)),
    LiftingAffineSelfConv2d=LayerDoc(
        'diaconu2019affine',
        'query, key and value of an image are taken once; in every pose h its windows are '
        'multiplied by ψ and shifted by β, both moved by h, and weighed by a softmax of their '
        'products with the query.',
        'refuses', 'o·(3·i + |H|²·o + 4·|H|·k² + |H|)', IMAGE, "4, 6, 3, 'p4m', heads=2",
        (2, 6, 8, 16, 16)),
    # --- P3
    LiftingSelfAttention2d=LayerDoc(
        'romero2021group',
        'every pixel compares its query with the keys around it and with an encoding of their '
        'offsets, once for each pose h: the offsets are turned back by h before they are encoded. '
        'The pictures of all poses together turn with the image.',
        'encoding', 'd·(|H|·(2·k² + o) + 3·i)', IMAGE,
        "4, 6, 'p4m', window=5, heads=2, head_channels=3", (2, 6, 8, 16, 16), about=2,
        spends='d is heads·head_channels. Without a window k² is h·w.'),
    GroupSelfAttention2d=LayerDoc(
        'romero2021group',
        'every place x and pose h̃ compares its query with the keys of all poses ĥ around it, with '
        'an encoding of their offsets and with one of the relative pose h̃⁻¹ĥ, once for each pose '
        'h of the output, by which the offsets are turned back. The results of all h̃ are '
        'added.',
        'encoding', 'd·|H|·(|H|·3·k² + 3·i + o)', ON_GROUP,
        "4, 6, 'p4m', window=5, heads=2, head_channels=3", (2, 6, 8, 16, 16),
        "encoding='printed' is the published formula, which breaks the symmetry.", about=2,
        spends='d is heads·head_channels. Without a window k² is h·w. With wide windows it may be '
               '1.7 times as much, since tiles overlap. Scores are never all kept: '
               'they are computed again in the backward pass.'),
    # --- P4
    E4Conv2d=LayerDoc(
        'he2021efficient',
        'every place and pose writes a kernel of its own from its features (a linear map, norm, '
        'ReLU, a linear map), which is moved by the pose; with it the window around the place is '
        'summed, after a linear map of its features.',
        'refuses', '|H|·(|H|·i·o + k²·o + |H|·i²/r + s·k²·i/r)', ON_GROUP,
        "4, 6, 3, 'p4m', slices=2", (2, 6, 8, 16, 16),
        "norm='published' breaks the symmetry once it is trained.",
        spends="s is `slices`, r is `reduction`; that is concat='both', the others cost less."))


def extended(name:str)->str:
    "What follows the first line of a layer's docstring."
    return filled(f'In words: {LAYERS[name].words}')


def closing(
    name:str,
    papers:dict[str, str], # authors, title, year and link, by the key in the bibliography
)->list[str]:
    "The lines that follow a layer's parameters: notes, references, an example."
    doc = LAYERS[name]
    exact = ' '.join(filter(None, [EXACT[doc.exact], doc.provided]))
    unit = dict(place='for each place of the output', picture='for each picture')
    per = unit.get(doc.per, 'for each place of the input')
    cost = f'about {doc.cost}' if doc.about > 1 else doc.cost
    cost = (f'{cost} multiply-accumulates {per}; {LETTERS}. {doc.spends}' if doc.cost != '0' else
            f'no products are counted; the feature map is read and written. {doc.spends}')
    references = [filled(papers[key]) for key in doc.sources.split()]
    return ['Notes', '-----', *filled(f'Exact for {exact}').splitlines(), '',
            *filled(f'Cost: {cost}').splitlines(), '',
            'References', '----------', *'\n\n'.join(references).splitlines(), '',
            'Examples', '--------',
            f'>>> from eqtutor.nn import {name}',
            f'>>> x = torch.randn{doc.takes}',
            f'>>> layer = {name}({doc.use})',
            '>>> layer(x).shape',
            f'torch.Size({list(doc.gives)})']


def filled(text:str)->str:
    return textwrap.fill(text.strip(), WIDTH, break_long_words=False, break_on_hyphens=False)
