"Affine self-convolution (P2) trained and measured: its start, a small task, short runs, times."
# Plain module: edited by hand, no notebook exports it.
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ...files import writable_folder, write_json
from ...models.affine import affine_resnet
from ...nn.affine import AffineLayer, AffineMap, AffineSelfConv2d, GroupAffineMap, map_pixels
from ...nn.attention import StandAloneSelfAttention2d
from ...train import cifar10, digits, evaluate, fit, get_loader, seed_everything
from ...train.checkpoints import environment
from ..protocol import Comparison, Networks
from . import benchmark

# axes: b images, n heads (on a group heads·|H|), d channels of a head, k offsets, q relative poses,
# y x pixels, p all pixels in one axis


# --- the layer with its windows written down

def written_down(
    A:AffineMap|GroupAffineMap,
    f:Tensor, # its input
)->Tensor:
    "The windows `(b, heads, c/heads, k², h, w)` of an affine map."
    psi, beta = A.psi_and_beta()
    if isinstance(A, AffineMap): psi, sources = psi[None], [A.by_head(f)]
    else: sources = A.sources(f)
    k, heads = A.kernel_size, sources[0].shape[1:3]
    near = [F.unfold(v.flatten(1, 2), k, padding=k//2).unflatten(1, (*heads, -1)) for v in sources]
    if len(near) == 1: moved = near[0]*psi[0, ..., None]
    else: moved = einsum(psi, torch.stack(near), 'q n d k, q b n d k p -> b n d k p')
    return (moved + beta[..., None]).unflatten(-1, f.shape[-2:])


def unfolded(
    layer:AffineLayer,
    f:Tensor, # its input
)->Tensor:    # its output
    "A layer with its windows written down, in k² times the memory: matrix products alone."
    if layer.images and f.ndim == 5: return unfolded(layer, f[:, :, 0])[:, :, None]
    if layer.simple:
        key = values = written_down(layer.affine, map_pixels(layer.embed, f))
        query = key[:, :, :, layer.kernel_size**2//2]
    else:
        query = written_down(layer.affine_query, map_pixels(layer.query, f))[:, :, :, 0]
        key = written_down(layer.affine_key, map_pixels(layer.key, f))
        values = written_down(layer.affine_value, map_pixels(layer.value, f))
    at_pixel = rearrange(query*layer.scale, 'b n d y x -> b n y x 1 d')
    scores = at_pixel @ rearrange(key, 'b n d k y x -> b n y x d k')
    weights = layer.softmax(rearrange(scores, 'b n y x 1 k -> b n k y x'))
    mixed = einsum(weights, values, 'b n k y x, b n d k y x -> b n d y x')
    return map_pixels(layer.out, layer.value_map.join(mixed))


# --- benchmark

class WrittenDown(AffineSelfConv2d):
    "The layer, computed by `unfolded`."
    def forward(self, f:Tensor, ignored:Tensor|None=None)->Tensor: return unfolded(self, f)

    def macs(self, x_shape:tuple[int, ...], y_shape:tuple[int, ...])->int:
        "Those of the layer; but β is added to ψf, not multiplied by query and weights."
        return super().macs(x_shape, y_shape) - 2*math.prod(y_shape)*self.kernel_size**2


class Convolved(AffineSelfConv2d):
    "The layer with its linear maps left as convolutions."
    def forward(self, f:Tensor, ignored:Tensor|None=None)->Tensor:
        query = self.affine_query.at_centre(self.query(f))*self.scale
        weights = self.softmax(self.affine_key.scores(query, self.key(f)))
        mixed = self.affine_value.mix(weights, self.value(f))
        return self.out(self.affine_value.join(mixed))


def alone(
    layer:Callable[..., nn.Module], # a class
    *args:int,                      # of it
)->nn.Sequential:
    "A layer between an identity that wants a gradient and a mean over places, to time a step by."
    return nn.Sequential(nn.PReLU(init=1.), layer(*args), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def convolution_alone()->nn.Sequential:
    "An ordinary convolution as the only layer that mixes places."
    return alone(partial(nn.Conv2d, padding=1), 64, 64, 3)


FORMS:Networks = {
    'written down': partial(alone, WrittenDown, 64, 64),
    'linear maps as conv2d': partial(alone, Convolved, 64, 64),
    'layer': partial(alone, AffineSelfConv2d, 64, 64)}
NETWORKS:Networks = {
    'ResNet29+SASA': partial(affine_resnet, 'sasa'),
    'ResNet29+Simple_ASC': partial(affine_resnet, 'simple'),
    'ResNet29+ASC': affine_resnet,
    'p4ResNet29': partial(affine_resnet, 'conv', 'p4'),
    'p4ResNet29+ASC': partial(affine_resnet, 'asc', 'p4')}


@benchmark('affine')
def affine_comparisons()->list[Comparison]:
    "The layer, in three forms, over a convolution; and the networks over ResNet29."
    title = 'layer alone, batch 16, 64 channels × 32×32, 8 heads, k = 5, over a 64→64 3×3 conv2d'
    return [Comparison(title, (16, 64, 32, 32), FORMS, FORMS, convolution_alone),
            Comparison('training step, batch 8, 3×32×32, over ResNet29', (8, 3, 32, 32), NETWORKS,
                       yardstick=partial(affine_resnet, 'conv'))]


# --- how a layer starts

@torch.no_grad()
def start_report(
    layer:AffineLayer,
    f:Tensor, # a typical input
)->dict[str, float]:
    """Spread of the scores; share of the places that attention uses (1: all alike); variance of the
    output; how much of that is β's alone, and how much is and changes from place to place."""
    query, key, value = layer.terms(f)
    scores = layer.key_map.scores(query, key)
    weights = layer.softmax(scores)
    # exp(entropy), over the neighbours there are
    used = torch.special.entr(weights).sum(2).exp()/(weights > 0).sum(2)
    mixed = layer.value_map.mix(weights, value)
    shift = layer.value_map.mix(weights, torch.zeros_like(value))   # of β alone
    moving = shift - shift.mean((0, -2, -1), keepdim=True)          # a constant is like a bias
    return {'scores': scores[weights > 0].std().item(), 'places used': used.mean().item(),
            'variance': mixed.var().item(), 'share of β': (shift.var()/mixed.var()).item(),
            'moving share of β': (moving.var()/mixed.var()).item()}


STARTS = {   # name -> `init` of the layers, `zero_init` of the network
    'published': ('published', True), 'conditioned': ('conditioned', True),
    'published, last norms at one': ('published', False)}


def compare_starts(
    seeds:int=3,
    epochs:int=2,
    out:str|Path='results', # the result goes to `out/affine-starts/0.json`
)->dict[str, Any]:
    "Training loss and validation accuracy of each epoch on the embedded digits, from three starts."
    folder = writable_folder(Path(out)/'affine-starts')
    settings = dict(seeds=seeds, epochs=epochs, lr=.1, widths=[8, 8, 8], data='digits')
    result:dict[str, Any] = {'settings': settings, 'runs': {name: [] for name in STARTS}}
    for (name, (init, zero)), seed in product(STARTS.items(), range(seeds)):
        seed_everything(seed)
        options = {'heads': 4, 'init': init}
        net = affine_resnet('asc', widths=(8, 8, 8), in_channels=1, zero_init=zero, options=options)
        train, valid = get_loader(digits('train'), 32, True, seed), get_loader(digits('valid'), 100)
        run = fit(net, train, valid, epochs, lr=.1, optimizer='nesterov', bar=False)
        result['runs'][name].append(run.history)
        result |= {k: run.header[k] for k in ('versions', 'hardware', 'commit')}
    write_json(folder/'0.json', result)
    return result


# --- what one head can do: the slope of a patch beside a step

def two_patches(
    n:int,
    size:int=10,
)->tuple[Tensor, Tensor]:
    "Pictures of two patches with a step between them, `(n, 1, size, size)`; slopes, by pixels."
    i, j = torch.arange(size)[:, None] - size/2, torch.arange(size) - size/2
    angle, at = 6.3*torch.rand(n, 1, 1, 1), 2*torch.randn(n, 1, 1, 1)
    first = i*angle.cos() + j*angle.sin() > at
    one, other = torch.randn(2, n, 1, 1, 1)
    slope = torch.where(first, one, other)
    return torch.where(first, 4., -4.) + .3*slope*j, slope


def without_psi()->AffineSelfConv2d:
    "One head of the layer with all ψ = 1: free shifts β at query, keys and values."
    layer = AffineSelfConv2d(1, 8, 5, 1)
    for A in (layer.affine_query, layer.affine_key, layer.affine_value):
        nn.init.ones_(A.psi).requires_grad_(False)
    return layer


SLOPE_LAYERS:dict[str, Callable[[], nn.Module]] = {   # window 5×5, 1 channel to 8
    'convolution': partial(nn.Conv2d, 1, 8, 5, padding=2),
    'attention, 1 head': partial(StandAloneSelfAttention2d, 1, 8, 5, 1),
    'attention, 4 heads': partial(StandAloneSelfAttention2d, 1, 8, 5, 4),
    'affine, 1 head, ψ = 1': without_psi,
    'affine, 1 head': partial(AffineSelfConv2d, 1, 8, 5, 1)}


def slope_network(
    name:str,      # of `SLOPE_LAYERS`
    seed:int=0,
    steps:int=500,
)->tuple[nn.Sequential, float]:
    "A layer and a linear map, trained to say the slope; its mean squared error on new pictures."
    torch.manual_seed(seed)
    net = nn.Sequential(SLOPE_LAYERS[name](), nn.Conv2d(8, 1, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=.03)
    for _ in range(steps):
        pictures, slopes = two_patches(32)
        loss = F.mse_loss(net(pictures), slopes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pictures, slopes = two_patches(400)
    with torch.no_grad(): return net, F.mse_loss(net(pictures), slopes).item()


def slope_runs(
    seeds:int=12,
    steps:int=500,
    out:str|Path='results', # the result goes to `out/affine-slope/0.json`
)->dict[str, Any]:
    "The errors of all `SLOPE_LAYERS`, by seeds."
    folder = writable_folder(Path(out)/'affine-slope')
    result:dict[str, Any] = environment() | dict(settings=dict(seeds=seeds, steps=steps, lr=.03))
    result['errors'] = {name: [slope_network(name, seed, steps)[1] for seed in range(seeds)]
                        for name in SLOPE_LAYERS}
    write_json(folder/'0.json', result)
    return result


# --- the networks, for a few minutes

def short_run(
    operator:str='asc',      # of `affine_resnet`
    init:str='published',    # of its layers, where they have it
    seed:int=0,
    per_class:int=200,       # training images of each class
    epochs:int=5,
    # the result goes to `out/affine-short/<run_name>-<seed>.json`
    out:str|Path='results',
    group:str='Z2',
    se:bool=False,           # squeeze-and-excitation in each block
)->dict[str, Any]:
    "ResNet29 on a part of CIFAR-10: the paper's recipe on fewer images and epochs."
    settings = dict(network=operator, init=init, data='cifar10', per_class=per_class, seed=seed)
    if group != 'Z2' or se: settings |= dict(group=group, se=se)
    options = {'init': init} if operator in ('simple', 'asc') else None
    net = partial(affine_resnet, operator, group, se, options=options)
    data = some_cifar10(per_class, seed)
    return _run(net, data, epochs, settings, Path(out)/'affine-short')


def small_run(
    operator:str='asc',      # of `affine_resnet`
    group:str='Z2',
    se:bool=False,           # squeeze-and-excitation in each block
    seed:int=0,
    epochs:int=6,
    # the result goes to `out/affine-small/<run_name>-<seed>.json`
    out:str|Path='results',
)->dict[str, Any]:
    "A ResNet29 of width 8 (on p4: 4) on upright digits of 16×16 pixels: what fits into minutes."
    settings = dict(network=operator, init='published', data='digits', seed=seed)
    settings |= dict(group=group, se=se)
    options = {'heads': 4} if operator != 'conv' else None
    widths = (8,)*3 if group == 'Z2' else (4,)*3
    net = partial(affine_resnet, operator, group, se, widths=widths, in_channels=1, options=options)
    train, valid, test = (small_digits(split) for split in ('train', 'valid', 'test'))
    upright = list(get_loader(test, 100))
    data = get_loader(train, 32, True, seed), list(get_loader(valid, 100)), upright
    # the same digits upside down, and after a quarter turn
    turned = [(x.rot90(k, (2, 3)), y) for k in (1, 2, 3) for x, y in upright]
    return _run(net, data, epochs, settings, Path(out)/'affine-small', turned)


def small_digits(
    split:str, # 'train', 'valid' or 'test'
)->TensorDataset:
    "The embedded digits, two pixels padded on each side, then halved: 16×16."
    images, labels = digits(split).tensors
    return TensorDataset(F.avg_pool2d(F.pad(images, [2]*4, value=images.min().item()), 2), labels)


def run_name(
    operator:str,
    init:str='published',
    group:str='Z2',
    se:bool=False,
)->str:
    "'asc', 'asc-conditioned', 'conv-se', 'p4-asc', …"
    words = [*([] if group == 'Z2' else [group]), operator, *(['se'] if se else [])]
    return '-'.join(words + ([] if init == 'published' else [init]))


def _run(make:Callable[..., nn.Module], data:tuple, epochs:int, settings:dict[str, Any],
         folder:Path, turned:list|None=None)->dict[str, Any]:
    "Train, test, and keep what came out."
    writable_folder(folder)
    train, valid, test = data
    seed = settings['seed']
    seed_everything(seed)
    net = make()
    began = time.perf_counter()
    run = fit(net, train, valid, epochs, lr=.05, weight_decay=1e-4, schedule='P2 ResNet29',
              optimizer='nesterov', config=settings, bar=False)
    parameters = sum(p.numel() for p in net.parameters())
    result = run.header | dict(settings=settings, parameters=parameters, history=run.history,
                               test=evaluate(net, test))
    if turned is not None: result['turned'] = evaluate(net, turned)
    result['seconds'] = round(time.perf_counter() - began, 1)
    name = run_name(settings['network'], settings['init'], settings.get('group', 'Z2'),
                    settings.get('se', False))
    write_json(folder/f'{name}-{seed}.json', result)
    return result


def some_cifar10(
    per_class:int, # training images
    seed:int,      # of their order
)->tuple:          # training, validation and test batches
    "A part of CIFAR-10: mirrored and shifted to train on; 500 images to validate, 2,000 to test."
    data = {split: cifar10(split, per_class=per_class) for split in ('train', 'valid', 'test')}
    train = get_loader(data['train'], 32, True, seed, augment='P2')
    valid = list(islice(get_loader(data['valid'], 250), 2))
    test = list(islice(get_loader(data['test'], 250), 8))
    return train, valid, test
