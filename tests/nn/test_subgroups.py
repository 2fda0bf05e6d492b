"A feature map, a layer and a pool of a group, to one of its subgroups."
import itertools

import pytest
import torch
from torch import nn

from eqtutor.actions import act
from eqtutor.equivariance import assert_equivariant, equivariance_error, perturb_
from eqtutor.export import to_plain
from eqtutor.groups import C, D, Group, Subgroup, cosets, generate, get_group, subgroups
from eqtutor.nn import (
    AttentiveGroupConv2d,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupConvTranspose2d,
    GroupPool,
    LiftingConv2d,
    ProjectionConv2d,
    VectorLiftingConv2d,
    VectorProjectionConv2d,
)
from eqtutor.nn.subgroups import restrict, restrict_map

LAYERS = (LiftingConv2d, GroupConv2d, ProjectionConv2d, VectorLiftingConv2d,
          VectorProjectionConv2d)
# in another order the first elements of left and right cosets differ
SHUFFLED = Group('p4m, shuffled', D(4).matrices[[0, 5, 1, 6, 2, 7, 4, 3]])
PAIRS = [(name, part) for name in ('Z2', 'mirror', 'C2', 'p4', 'D2', 'p4m', SHUFFLED)
         for part in subgroups(name)]


# --- the group itself

@pytest.mark.parametrize('whole', [C(6), C(8), D(3), D(4), D(6), SHUFFLED],
                         ids=str)
def test_every_subgroup_is_a_group_that_knows_where_it_stands(whole):
    for members in subgroups(whole):
        part = whole.subgroup(members)
        assert part.embedding == members and part.whole is whole and len(part) == len(members)
        at = torch.tensor(part.embedding)
        assert torch.equal(at[part.mul], whole.mul[at][:, at])   # its products are the whole's
        assert torch.equal(part.matrices, whole.matrices[at])
        assert sorted(part.right_cosets.flatten().tolist()) == list(whole.elements)
        for t, row in zip(part.right_cosets[:, 0], part.right_cosets):
            assert row.tolist() == [int(whole.mul[k, t]) for k in members]

def test_a_name_gives_the_order_of_the_group_that_has_it():
    p4m = get_group('p4m')
    assert p4m.subgroup('p4') == C(4) and p4m.subgroup('p4').name == 'C4'
    assert p4m.subgroup('mirror').embedding == (0, 4)
    assert p4m.subgroup('D2').embedding == (0, 2, 4, 6)
    other = Group('p4 backwards', C(4).matrices[[0, 3, 2, 1]])
    assert p4m.subgroup(other).embedding == (0, 3, 2, 1)
    assert get_group('C8').subgroup('p4').embedding == (0, 2, 4, 6)
    assert p4m.subgroup((4, 0)).name == 'D1' and p4m.subgroup((0, 5)).name == 'D4[0, 5]'
    assert p4m.subgroup(p4m.subgroup('p4')) == C(4)
    assert cosets('p4m', 'p4') == [(0, 1, 2, 3), (4, 5, 6, 7)]

@pytest.mark.parametrize('whole, which, words', [
    ('p4m', (0, 1), r'\(0, 1\) is not a subgroup of D4: it generates \(0, 1, 2, 3\)'),
    ('p4m', (1, 2, 3), 'is not a subgroup of D4'),
    ('p4', 'mirror', 'D1 is not a subgroup of C4: its element 1 is none of the whole'),
    ('p4', 'C8', 'C8 is not a subgroup of C4'), ('p4m', (0, 9), 'has the elements 0..7, got 9'),
    ('p4m', 'p5', "unknown group 'p5'")])
def test_what_is_no_subgroup_is_refused(whole, which, words):
    with pytest.raises(ValueError, match=words): get_group(whole).subgroup(which)

def test_a_complement_has_one_element_in_each_left_coset():
    for whole in C(8), D(4), D(6), SHUFFLED:
        for members in subgroups(whole):
            part = whole.subgroup(members)
            parts, other = cosets(whole, members), part.complement
            those = [n for n in subgroups(whole)
                     if all(len(set(n) & set(p)) == 1 for p in parts)]
            assert (other is None and not those) or other.embedding == those[0]
    assert get_group('p4').subgroup((0, 2)).complement is None


# --- feature maps

@pytest.mark.parametrize('name, members', PAIRS, ids=str)
def test_a_restricted_map_moves_as_a_map_on_the_subgroup(name, members):
    group = get_group(name)
    part, f = group.subgroup(members), torch.randn(2, 3, len(group), 4, 5)
    less = restrict_map(group, members, f)
    assert less.shape == (2, 3*len(group)//len(part), len(part), 4, 5)
    for k, h in enumerate(members):
        assert torch.equal(restrict_map(group, members, act(group, h, f)), act(part, k, less))
    t = len(group)//len(part)
    for c, s, k in itertools.product(range(3), range(t), range(len(part))):
        q = group.mul[members[k], part.right_cosets[s, 0]]
        assert torch.equal(less[:, c*t + s, k], f[:, c, q])
    vector = f.mean((-1, -2))
    assert torch.equal(restrict_map(group, members, vector), less.mean((-1, -2)))

def test_left_cosets_would_not_do():
    group, f = D(4), torch.randn(1, 1, 8, 5, 5)
    part = group.subgroup((0, 4))
    def by_left(f): return f[:, :, group.mul[:4][:, [0, 4]]].flatten(1, 2)
    assert (by_left(act(group, 4, f)) - act(part, 1, by_left(f))).abs().max() > .1

def test_wrong_maps_are_named():
    for f in torch.randn(1, 2, 5, 5), torch.randn(1, 2, 4, 5, 5):
        with pytest.raises(ValueError, match=r'with \|H\| = 8 for D4, got'):
            restrict_map('p4m', 'p4', f)


# --- layers

def layer_and_input(cls, group, **options):
    torch.manual_seed(0)
    poses = () if cls.lifts else (len(group),)
    layer = perturb_(cls(4, 4, 3, group, **options).double())
    return layer, torch.randn(1, 4, *poses, 7, 9).double()

def as_restricted(group, members, f): return restrict_map(group, members, f) if f.ndim == 5 else f

@pytest.mark.parametrize('name, members', PAIRS, ids=str)
@pytest.mark.parametrize('cls', LAYERS)
def test_a_restricted_layer_computes_the_same(cls, name, members):
    group = get_group(name)
    for options in {}, dict(stride=2, padding=1, dilation=1), dict(groups=2, padding='same'):
        layer, x = layer_and_input(cls, group, **options)
        less = restrict(layer, members)
        want = as_restricted(group, members, layer(x))
        got = less(as_restricted(group, members, x))
        assert want.std() > 0
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        assert less.group == group.subgroup(members) and layer.group == group

@pytest.mark.parametrize('members', [m for n, m in PAIRS if n == 'p4m'], ids=str)
def test_its_weights_are_those_of_the_proposition(members):
    "W'[(o, s), (i, t), μ] = 𝓛_s W[o, i, s⁻¹μt]."
    group = D(4)
    layer, _ = layer_and_input(GroupConv2d, group)
    less, part = restrict(layer, members), group.subgroup(members)
    firsts = part.right_cosets[:, 0].tolist()
    n = len(firsts)
    for (s, h), (t, q) in itertools.product(enumerate(firsts), repeat=2):
        for m, mu in enumerate(members):
            pose = group.mul[group.inv[h], group.mul[mu, q]]
            want = act(group, h, layer.weight[:, :, pose])
            assert torch.equal(less.weight[s::n, t::n, m], want)

def test_trained_further_it_keeps_the_subgroup_alone():
    layer, _ = layer_and_input(GroupConv2d, D(4))
    net = nn.Sequential(restrict(layer, 'p4'), nn.ReLU(), GroupPool())
    x = torch.randn(1, 8, 4, 7, 7).double()
    assert_equivariant(perturb_(net), x, 'p4')
    lift = restrict(LiftingConv2d(1, 4, 3, 'p4m').double(), 'p4')
    image, whole = torch.randn(1, 1, 9, 9).double(), D(4)
    def pooled(x): return lift(x).amax((1, 2))[:, None]
    assert max(equivariance_error(pooled, image, whole)) < 1e-12
    perturb_(lift)
    assert max(equivariance_error(pooled, image, whole)[:4]) < 1e-12
    assert min(equivariance_error(pooled, image, whole)[4:]) > .01

def test_off_the_grid_down_to_a_grid_group():
    for cls in LAYERS:
        layer, x = layer_and_input(cls, get_group('C8'))
        less = restrict(layer, 'p4')
        got = less(as_restricted('C8', 'p4', x))
        torch.testing.assert_close(got, as_restricted('C8', 'p4', layer(x)), rtol=0, atol=1e-12)

def test_restricted_weights_are_those_of_any_such_layer():
    layer, x = layer_and_input(GroupConv2d, D(4), padding=1)
    less = restrict(layer, 'p4')
    other = GroupConv2d(8, 8, 3, 'p4', padding=1).double()
    other.load_state_dict(less.state_dict())
    f = restrict_map('p4m', 'p4', x)
    assert torch.equal(other(f), less(f)) and repr(other) == repr(less)
    assert less.weight.requires_grad and less.weight.is_leaf
    less.weight.data.zero_()
    assert layer.weight.abs().max() > 0
    assert not restrict(GroupConv2d(1, 1, 3, 'p4').requires_grad_(False), 'C2').weight.requires_grad

@pytest.mark.parametrize('layer, which, words', [
    (GroupConv2d(1, 1, 3, 'C16'), 'C8', 'restrict to a subgroup of D4'),
    (GroupConv2d(1, 1, 3, 'p4m'), (0, 1), 'is not a subgroup of D4'),
    (GroupConv2d(1, 1, 3, 'p4'), 'mirror', 'D1 is not a subgroup of C4'),
    (AttentiveGroupConv2d(1, 1, 3, 'p4'), 'C2', 'got AttentiveGroupConv2d'),
    (GroupConvTranspose2d(1, 1, 2, 'p4', 2), 'C2', 'got GroupConvTranspose2d'),
    (GroupBatchNorm2d(1), 'C2', 'got GroupBatchNorm2d')])
def test_what_has_no_restriction_is_refused(layer, which, words):
    with pytest.raises(ValueError, match=words): restrict(layer, which)


# --- pools

@pytest.mark.parametrize('name, members', PAIRS, ids=str)
@pytest.mark.parametrize('reduce', ['max', 'mean'])
def test_a_pool_over_cosets(name, members, reduce):
    group = get_group(name)
    pool = GroupPool(reduce, group, members)
    f = torch.randn(2, 3, len(group), 4, 5).double()
    parts, rest = cosets(group, members), pool.out_group
    if rest is not None: parts = [next(p for p in parts if n in p) for n in rest.embedding]
    for i, part in enumerate(parts):
        of_part = f[:, :, list(part)]
        want = of_part.amax(2) if reduce == 'max' else of_part.mean(2)
        torch.testing.assert_close(pool(f)[:, :, i], want, rtol=0, atol=1e-14)
    for u in group.elements:      # the whole group acts on the cosets
        order = [next(i for i, p in enumerate(parts) if int(group.mul[group.inv[u], part[0]]) in p)
                 for part in parts]
        want = torch.stack([act(group, u, pool(f)[:, :, i]) for i in order], 2)
        torch.testing.assert_close(pool(act(group, u, f)), want, rtol=0, atol=1e-14)
    for n, u in enumerate(rest.embedding if rest else ()):
        want = act(rest, n, pool(f))
        torch.testing.assert_close(pool(act(group, u, f)), want, rtol=0, atol=1e-14)

def test_right_cosets_would_not_do():
    group, f = D(4), torch.randn(1, 1, 8, 5, 5)
    turns = C(4)
    def by_right(f): return torch.maximum(f[:, :, :4], f[:, :, group.mul[4, :4]])
    assert (by_right(act(group, 1, f)) - act(turns, 1, by_right(f))).abs().max() > .1

def test_mirrors_pooled_away_leave_a_map_on_the_turns():
    torch.manual_seed(0)
    pool = GroupPool(group='p4m', subgroup=(0, 4))
    assert pool.out_group == C(4) and repr(pool) == 'GroupPool(max, group=D4, subgroup=D1)'
    net = nn.Sequential(LiftingConv2d(3, 4, 3, 'p4m', padding='same'), pool, nn.ReLU(),
                        GroupConv2d(4, 4, 3, 'p4'), GroupPool()).double()
    x = torch.randn(1, 3, 9, 9).double()
    assert_equivariant(net, x, 'p4')
    assert_equivariant(net[:2], x, 'p4')
    plain = to_plain(net.eval(), x=x)
    torch.testing.assert_close(plain(x), net(x), rtol=0, atol=1e-9)
    compiled = torch.compile(net[1], fullgraph=True, backend='eager')
    f = net[0](x)
    assert torch.equal(compiled(f), net[1](f))
    assert not pool.state_dict()

def test_a_subgroup_needs_its_group():
    with pytest.raises(ValueError, match='of which group'): GroupPool(subgroup=(0, 4))
    part = get_group('p4m').subgroup('mirror')
    assert isinstance(part, Subgroup)
    f = torch.randn(1, 2, 8, 3, 3)
    assert torch.equal(GroupPool(subgroup=part)(f), GroupPool(group='p4m', subgroup='mirror')(f))
    with pytest.raises(ValueError, match=r'with \|H\| = 8 for D4, got \(1, 2, 4, 3, 3\)'):
        GroupPool(subgroup=part)(f[:, :, :4])
    with pytest.raises(ValueError, match='is not a subgroup'): GroupPool('max', 'p4m', (0, 1))
    assert generate('p4m', 4) == part.embedding
