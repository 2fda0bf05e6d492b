"What `help()` says of each public layer: all a user asks, and true."
import doctest
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch

from eqtutor import nn as layers
from eqtutor.cost import count_macs
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.groups import get_group
from tools.site.processors import PAPERS
from tools.site.sources import read_sources

sys.path.append(str(Path(__file__).parents[2]/'tools'))
from layer_docs import LAYERS  # noqa: E402

NAMES = layers.__all__
SECTIONS = ('In words:', 'Parameters\n---', 'Exact for ', 'Cost: ', 'References\n---',
            'Examples\n---')


def test_each_public_layer_has_an_entry_and_no_other_name_has():
    assert sorted(LAYERS) == sorted(NAMES)


def unsaid(text, parameters):
    "What a docstring leaves out: sections in order, a meaning of each parameter, a link."
    text = inspect.cleandoc(text)
    places = [text.find(section) for section in SECTIONS]
    if -1 in places or places != sorted(places):
        yield f'sections {[s for s, at in zip(SECTIONS, places) if at < 0] or "out of order"}'
    for name in parameters:
        if not re.search(rf'^\*{{0,2}}{name}( :.*|, default .*)?\n    \S', text, re.M): yield name
    references = text.partition('References\n---')[2].partition('Examples\n---')[0]
    if not re.search(r',\s(19|20)\d\d,\s+https://\S+', references): yield 'a paper with its link'
    urls = {s.key: s.url for s in read_sources()}
    for paper in set(re.findall(r'\bP[1-4]\b', text)):
        if urls[PAPERS[paper]] not in references: yield f'the link of {paper}'


@pytest.mark.parametrize('name', NAMES)
def test_help_says_all_of_a_layer(name):
    cls = getattr(layers, name)
    assert [*unsaid(cls.__doc__, inspect.signature(cls).parameters)] == []


@pytest.mark.parametrize('cut, missing', [
    (r'Cost: ', 'sections'), (r'\n    kernel_size : int\n        \S.*', 'kernel_size'),
    (r', 2016, https\S+', 'a paper'), (r'https://arxiv.org/abs/2002.03830', 'the link of P1')])
def test_what_is_left_out_is_found(cut, missing):
    cls = layers.GroupConv2d
    text = re.sub(r'https\S+1602\S+', '' if missing == 'a paper' else r'\g<0>', cls.__doc__)
    text = re.sub(r'https\S+2002\S+', '', text) if missing == 'a paper' else re.sub(cut, '', text)
    found = [*unsaid(text, inspect.signature(cls).parameters)]
    assert any(str(what).startswith(missing) for what in found), found


def used(name, group='p4m'):
    "The lines of use: what they print, the layer and its input."
    lines = doctest.DocTestParser().get_examples(getattr(layers, name).__doc__)
    space, printed = dict(torch=torch), []
    torch.manual_seed(0)
    for line in lines:
        source = line.source.replace("'p4m'", f"'{group}'").strip()
        if group == 'C8': source = source.replace('6, 4,', '6, 3,')   # kernels must be odd there
        if not line.want: exec(source, space)
        else: printed.append((repr(eval(source, space)), line.want.strip()))
    return space['layer'], space['x'], printed


@pytest.mark.parametrize('name', NAMES)
def test_the_lines_of_use_run_and_print_what_they_say(name):
    layer, x, printed = used(name)
    assert type(layer).__name__ == name and len(printed) == 1
    assert all(got == want for got, want in printed)
    assert (tuple(x.shape), tuple(layer(x).shape)) == (LAYERS[name].takes, LAYERS[name].gives)


def moved(layer, x, group):
    "Errors for the elements that keep the grid, and for the others, of a layer with any weights."
    perturb_(layer.double())
    errors = equivariance_error(layer.eval(), x.double(), group, margin=3)
    quarters = [(4*h) % len(get_group(group)) == 0 for h in get_group(group).elements]
    return (max(e for e, kept in zip(errors, quarters) if kept),
            max(e for e, kept in zip(errors, quarters) if not kept))


@pytest.mark.parametrize('name', NAMES)
def test_a_layer_is_exact_for_the_groups_that_it_names(name):
    layer, x, _ = used(name)
    layer = perturb_(layer.double()).eval()
    x, kind = x.double(), LAYERS[name].exact
    if kind != 'translations': return assert_equivariant(layer, x, 'p4m', tol=1e-9)
    turned = layer(torch.rot90(x, 1, (-2, -1))) - torch.rot90(layer(x), 1, (-2, -1))
    shifted = layer(x.roll((1, 2), (-2, -1))) - layer(x).roll((1, 2), (-2, -1))
    assert turned.abs().max() > 1e-2 and shifted[..., 5:-5, 5:-5].abs().max() < 1e-9


@pytest.mark.parametrize('name', [n for n in NAMES if LAYERS[n].exact not in
                                  ('told_none', 'translations')])
def test_finer_groups_are_treated_as_is_said(name):
    kind = LAYERS[name].exact
    if kind == 'refuses':
        with pytest.raises(ValueError, match='subgroup of D4'): used(name, 'C8')
        return
    exact, between = moved(*used(name, 'C8')[:2], 'C8')
    assert exact < 1e-9 and (kind == 'poses' or between > 1e-3)


def number(cost, letters):
    "The value of a formula as it is printed: `o·|H|·i·k²`."
    code = cost.replace('|H|', 'H').replace('·', '*').replace('²', '**2')
    code = code.replace('⌊', '(').replace('⌋', ')').replace('c/r', 'c//r')
    return eval(code, dict(letters))


@pytest.mark.parametrize('name', NAMES)
def test_the_cost_is_what_is_counted(name):
    doc, (layer, x, _) = LAYERS[name], used(name)
    x = torch.randn(1, *x.shape[1:-2], 48, 48)
    with torch.no_grad(): y = layer(x)
    k = getattr(layer, 'kernel_size', None) or getattr(layer, 'window', None)
    if name == 'SpatialAttention': k = layer.look.kernel_size
    squeeze = getattr(layer, 'squeeze', None)
    r = x.shape[1]//squeeze.weight.shape[0] if squeeze is not None else 1
    d = getattr(layer, 'heads', 1)*getattr(layer, 'head_channels', 1)
    letters = dict(i=x.shape[1], c=x.shape[1], o=y.shape[1], H=8, k=k, r=r, s=2, d=d)
    size = x if doc.per == 'input place' else y
    places = 1 if doc.per == 'picture' else size.shape[-2]*size.shape[-1]
    counted, said = count_macs(layer, x), number(doc.cost, letters)*places
    assert said <= counted <= said*doc.about, (counted/places, said/places)


# --- an input of the wrong kind

def hinted(layer, x, words):
    "The layer that an error names: `words` and its name, at the size of the input."
    with pytest.raises(ValueError, match=f'{words} [A-Z]') as refused: layer(x)
    name = re.search(rf'{words} (\w+)', str(refused.value))[1]
    enough = dict(in_channels=4, out_channels=4, kernel_size=3, group='p4m', heads=2, window=3)
    cls = getattr(layers, name)
    return cls(**{n: enough[n] for n in inspect.signature(cls).parameters if n in enough})


ASKING = [n for n in NAMES if LAYERS[n].takes == (2, 4, 8, 16, 16)
          and LAYERS[n].exact not in ('told_none', 'windows')]

@pytest.mark.parametrize('name', ASKING)
def test_an_image_is_sent_to_the_layer_that_lifts_it(name):
    layer, x, _ = used(name)
    lift = hinted(layer, x[:, :, 0], 'begin with')
    layer(lift(x[:, :, 0]))
    family = re.search('SelfAttention|Attentive|Affine|$', name)[0]
    assert family in type(lift).__name__


@pytest.mark.parametrize('name', [n for n in NAMES if 'Lifting' in n])
def test_a_feature_map_is_sent_to_the_layer_on_the_group(name):
    layer, x, _ = used(name)
    f = layer(x)
    on_group = hinted(layer, f[:, :4], 'use')
    on_group(f[:, :4])
    assert re.search('SelfAttention|Attentive|Affine|$', name)[0] in type(on_group).__name__
