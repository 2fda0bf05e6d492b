"Why a call breaks the symmetry, in a sentence, and code to put there."
# Plain module: edited by hand, no notebook exports it.

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..groups import Group
from ..trace import Source
from .examination import NORMS, Examination
from .layout import Layout

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d


def short_name(
    group:Group,
)->str:
    "The name that users of a group know: p4 for C4."
    return {'C4': 'p4', 'D4': 'p4m', 'D1': 'mirror'}.get(group.name, group.name)


def advice(
    examination:Examination,
    number:int,              # of a call at fault
)->tuple[str, str]:
    "Why a call is at fault, in a sentence, and code to put there."
    call, group = examination.still[number], short_name(examination.group)
    if call is examination.still[-1]: return unlike_asked(examination, group)
    if not call.is_layer:
        for names, why, code in OPERATIONS:
            if call.name in names: return why, code.format(group=group)
        return (f'{call.name} does not commute with the turns',
                f"a layer of eqtutor.nn; assert_equivariant(…, '{group}') measures it")
    m:Any = call.function
    rest = pixels_left(m, call.inputs[0])
    if str(examination.input_layout(number, 0)) == 'vector':
        return ('its input holds arrows, and it takes their two components for two scalars',
                for_arrows(m, group))
    if type(m).__module__.startswith('torch.nn'):   # with the forward it came with
        for classes, explains, remedy in LAYERS:
            if not isinstance(m, classes): continue
            why = explains if isinstance(explains, str) else explains(m, rest)
            poses = meets_poses(examination, call.sources[0])
            cure = remedy if isinstance(remedy, str) else remedy(m, group, poses)
            return ', and '.join(filter(None, [why, rest])), cure
    if rest: return rest, f"stride 1, then SpatialPool2d({window_of(m)[1]}, '{group}')"
    return ('by itself it does not turn and permute its output with its input',
            f"a layer of eqtutor.nn; assert_equivariant(net.{call.name}, …, '{group}') "
            'measures it alone')


def for_arrows(
    m:Any,     # a layer that takes arrows for scalars
    group:str,
)->str:
    "What to put in its place."
    if isinstance(m, nn.Conv2d) or type(m).__name__ == 'LiftingConv2d':
        k, s, p, d = window_of(m)
        more = f', padding={p}' + (f', dilation={d}' if d > 1 else '')
        more += f', stride={s}' if s > 1 else ''
        return f"VectorLiftingConv2d({m.in_channels}, {m.out_channels}, {k}, '{group}'{more})"
    return (f"VectorLiftingConv2d(…, '{group}') before it; or each arrow times a function of its "
            'length')


def unlike_asked(
    examination:Examination,
    group:str,
)->tuple[str, str]:
    "Why an output is not of the kind that was asked, and what to put there."
    i, asked = len(examination.still) - 1, str(examination.asked)
    found = str(examination.input_layout(i, 0))
    if asked == 'vector' and found == 'image':
        return ('it moves as an image: none of its channels becomes another when the picture '
                'turns, so two of them are two scalars and no arrow',
                f"VectorProjectionConv2d(channels, 2, 1, '{group}') as the last layer")
    return f'asked was {asked}, and it moves as {found}', f"kind='{found}', if that is meant"


def meets_poses(
    examination:Examination,
    source:Source|None,      # of a tensor
)->bool:
    "Does anything on the way to a tensor carry poses, once the faults are mended?"
    ahead, visited = [source], set[Source|None]()
    while ahead:
        source = ahead.pop()
        if source in visited: continue
        visited.add(source)
        if source is None: return True   # changed in place: who knows
        layout = examination.layouts.get(source)
        if isinstance(layout, Layout) and any('g' in axis for axis in layout.axes):
            return True
        if source[0] < 0: continue       # the input
        call = examination.still[source[0]]
        if source[0] in examination.blamed and isinstance(call.function, CONVOLUTIONS):
            return True
        ahead += call.sources
    return False


# --- windows

def one_number(
    value:Any, # a number, or one for each axis
)->int:
    "That of the first axis."
    return value[0] if isinstance(value, tuple) else value


def window_of(
    m:Any, # a layer that has windows
)->tuple[int, int, int, int]:
    "Kernel size, stride, padding and dilation."
    k, d = one_number(m.kernel_size), one_number(getattr(m, 'dilation', 1))
    p = getattr(m, 'padding', 0)
    if isinstance(p, str): p = d*(k - 1)//2 if p == 'same' else 0
    return k, one_number(getattr(m, 'stride', 1) or k), one_number(p), d


def pixels_left(
    m:nn.Module,
    x:Tensor,    # its input
)->str:
    "What a stride leaves over at one end, in words; '' if nothing, or if it has no windows."
    if not hasattr(m, 'kernel_size') or isinstance(m, nn.ConvTranspose2d) or x.ndim < 4: return ''
    k, s, p, d = window_of(m)
    for n in x.shape[-2:]:
        rest = (n + 2*p - d*(k - 1) - 1) % s
        if not rest: continue
        return (f'stride {s} on {n} pixels leaves {rest} over at one end '
                f'({n - rest} or {n - rest + s} would be exact)')
    return ''


# --- code to put in the place of a layer: of the layer, the group, and whether poses enter

def convolution(m:Any, group:str, poses:bool)->str:
    "The equivariant layer in the place of a convolution."
    k, s, p, d = window_of(m)
    cls = 'GroupConv2d' if poses else 'LiftingConv2d'
    more = f', padding={p}' + (f', dilation={d}' if d > 1 else '')
    code = f"{cls}({m.in_channels}, {m.out_channels}, {k}, '{group}'{more})"
    return code if s == 1 else f"{code}, then SpatialPool2d({s}, '{group}')"


def transposed_convolution(m:Any, group:str, poses:bool)->str:
    "The same of a transposed one."
    sizes = f"{m.in_channels}, {m.out_channels}, {one_number(m.kernel_size)}, '{group}'"
    stride, padding = one_number(m.stride), one_number(m.padding)
    if not any(m.output_padding): return f'GroupConvTranspose2d({sizes}, {stride}, {padding})'
    return (f'GroupUpsample2d({stride}), then GroupConv2d'
            f"({m.in_channels}, {m.out_channels}, 3, '{group}', padding=1)")


def why_a_convolution(m:Any, rest:str)->str:
    "What is wrong with a plain convolution, beside its stride."
    if max(m.kernel_size) > 1: return 'its filters do not turn with the picture'
    return '' if rest else 'a 1×1 convolution mixes the poses without regard to their order'


def why_a_transposed_one(m:Any, rest:str)->str:
    "The same of a transposed one."
    more = ', and its output_padding lies at one end' if any(m.output_padding) else ''
    return 'its filters do not turn with the picture' + more


# classes; why, as words or a function of the layer and of what its stride leaves over; and code
LAYERS:list[tuple[tuple[type, ...], str|Callable[[Any, str], str],
                  str|Callable[[Any, str, bool], str]]] = [
    (CONVOLUTIONS, why_a_convolution, convolution),
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
     why_a_transposed_one, transposed_convolution),
    ((nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool3d, nn.AvgPool3d, nn.LPPool2d),
     lambda m, rest: '' if rest else 'its windows mix poses',
     lambda m, group, _: f"SpatialPool2d(2, '{group}', reduce="
                         f"'{'max' if 'Max' in type(m).__name__ else 'mean'}'), or stride 1"),
    ((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
      nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
     'it averages over poses as if they stood beside each other',
     lambda m, group, _: f"GroupAdaptivePool2d({m.output_size!r}), which leaves the "
                         'poses alone'),
    (NORMS, 'its scale, shift or statistics differ from pose to pose, or from place to place',
     lambda m, group, _: f"GroupBatchNorm2d({getattr(m, 'num_features', None) or 'channels'}) "
                         'on (b, c, |H|, h, w): one scale a channel'),
    ((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
     'it is random', 'net.eval() before measuring'),
    ((nn.ConstantPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d,
      nn.ConstantPad3d, nn.ReflectionPad3d, nn.ReplicationPad3d, nn.CircularPad3d),
     'it pads one side more than the other', 'the same number of pixels on all sides'),
    ((nn.Linear,), 'it weighs each place, or each pose, by itself',
     'GroupPool(), then .mean((-1, -2)), before it: (b, c)'),
    ((nn.MultiheadAttention,), 'it knows where its tokens stand',
     lambda m, group, _: f"GroupSelfAttention2d({m.embed_dim}, {m.embed_dim}, '{group}')")]

# names of operations, why, and code
OPERATIONS:list[tuple[set[str], str, str]] = [
    ({'add', 'iadd', 'radd', 'sub', 'isub', 'mul', 'imul', 'rmul', 'truediv'},
     'it joins the features with a tensor that stays where it is when the picture '
     'turns, as absolute positions do',
     'no absolute positions; relative ones are in GroupSelfAttention2d'),
    ({'cat', 'concat', 'stack'},
     'it joins tensors of which one stays where it is when the picture turns',
     'no coordinates, or only the distance from the centre'),
    ({'getitem', 'narrow', 'index_select', 'select', 'setitem', 'gather', 'take'},
     'it picks places or poses that change when the picture turns',
     "SpatialPool2d(2, '{group}') to halve; act('{group}', h, f) to turn; the same "
     'margin on all sides to crop'),
    ({'roll', 'flip', 'rot90', 'fliplr', 'flipud'},
     'it moves places or poses in one direction',
     "act('{group}', h, f), which moves places and poses together"),
    ({'pad'}, 'it pads one side more than the other',
     'the same number of pixels on all sides'),
    ({'reshape', 'view', 'flatten', 'unflatten', 'permute', 'transpose', 'squeeze',
      'movedim', 'ravel'},
     'it puts poses or places where the next layer expects channels',
     "f.flatten(1, 2) and .unflatten(1, (-1, |H|)): channels first, poses fastest"),
    ({'conv2d', 'conv1d', 'conv3d', 'linear', 'matmul', 'einsum', 'bmm'},
     'its weights do not turn with the picture', "GroupConv2d(…, '{group}')"),
    ({'conv_transpose2d'}, 'its weights do not turn with the picture',
     "GroupConvTranspose2d(…, '{group}')"),
    ({'max_pool2d', 'avg_pool2d', 'max_pool3d', 'avg_pool3d'},
     'its windows do not fit the size, or mix poses', "SpatialPool2d(2, '{group}')"),
    ({'adaptive_avg_pool2d', 'adaptive_avg_pool3d', 'adaptive_max_pool2d',
      'adaptive_max_pool3d'},
     'it averages over poses as if they stood beside each other',
     'GroupAdaptivePool2d(…)'),
    ({'interpolate', 'upsample', 'grid_sample'},
     'it reads the picture more on one side than on the other',
     'a whole factor, or a size that leaves the same rest on both sides'),
    ({'dropout', 'rand_like', 'randn_like', 'bernoulli'}, 'it is random',
     'net.eval() before measuring')]

