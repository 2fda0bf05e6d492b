"Groups that are described wrongly, and groups built where the default device is not the CPU."
import pytest
import torch

from eqtutor.actions import act
from eqtutor.groups import (
    C,
    D,
    Group,
    check_axioms,
    cosets,
    generate,
    get_group,
    is_homomorphism,
    subgroups,
)

PLANE = [[1, 0], [0, 1]], [[-1, 0], [0, -1]], [[0, -1], [-1, 0]], [[0, 1], [1, 0]]

# --- bad input

@pytest.mark.parametrize('name, message', [
    ('C0', "unknown group 'C0'"),
    ('p4n', "did you mean 'p4'"),
    ('bad', "unknown group 'bad'. Known are"),
    *[(name, f'did you mean {meant!r}') for name, meant in {
        'p6': 'C6', 'p8': 'C8', 'c8': 'C8', 'C_8': 'C8', 'C(8)': 'C8', 'Z4': 'C4', 'R6': 'C6',
        'p6m': 'D6', 'd4': 'D4', 'p4mm': 'D4', 'R8M': 'D8', 'P4': 'p4', 'Mirror': 'mirror',
        'SO2': 'C16', 'SO(2)': 'C16', 'O(2)': 'D16', 4: 'C4'}.items()],
    ('SO3', "unknown group 'SO3'. Known are"),
    (None, 'or pass a Group'),
])
def test_an_unknown_group_is_refused(name, message):
    with pytest.raises(ValueError, match=message): get_group(name)


@pytest.mark.parametrize('matrices, message', [
    ([PLANE[0], PLANE[2], PLANE[3]], 'not closed: the product of elements 1 and 2'),
    ([PLANE[1], PLANE[0]], 'identity fails'),
    ([PLANE[0], PLANE[2], PLANE[2]], 'listed twice'),
    (PLANE[0], r'shape \(n, 2, 2\), got \(2, 2\)'),
    (torch.zeros(1, 2, 2), 'times its transpose'),
    ([PLANE[0], [[0, 2], [.5, 0]]], r'of element 1, \[\[0.0, 2.0\], \[0.5, 0.0\]\], is not$'),
    (C(6).matrices.mul(1e3).round()/1e3, 'of element 1, .*is not, by 4e-05. .* rounded?'),
    (C(6).matrices.mul(1e5).round()/1e5, 'not in the list, by .*e-05. .* rounded?'),
])
def test_matrices_that_are_no_point_group_are_refused(matrices, message):
    with pytest.raises(ValueError, match=message): Group('bad', matrices)


@pytest.mark.parametrize('table', [torch.zeros(2, 3).long(), torch.zeros(0, 0).long()])
def test_a_table_that_is_not_square_or_empty_is_refused(table):
    with pytest.raises(ValueError, match='square and not empty, got shape'): check_axioms(table)


@pytest.mark.parametrize('make', [C, D])
def test_an_order_below_one_is_refused(make):
    with pytest.raises(ValueError, match='needs n ≥ 1, got 0'): make(0)


def test_generators_outside_the_group_are_refused():
    with pytest.raises(ValueError, match=r'C4 has the elements 0\.\.3, got -1'): generate('C4', -1)


def test_cosets_of_what_is_no_subgroup_are_refused():
    with pytest.raises(ValueError, match=r'\(0, 1\) is not a subgroup of C4'): cosets('p4', (0, 1))
    with pytest.raises(ValueError, match="'left' or 'right', got 'up'"): cosets('p4', (0,), 'up')


def test_a_map_with_an_image_too_few_is_refused():
    with pytest.raises(ValueError, match='one image for each of the 4 elements'):
        is_homomorphism([0, 1], C(4), C(2))


# --- rounding and kinds of input

def test_rounded_matrices_give_the_same_group():
    assert Group('rounded', C(3).matrices.float()) == C(3)
    assert Group('float32', C(4).matrices.float() + 1e-8).is_grid


def test_groups_are_compared_as_point_groups_and_can_be_keys():
    assert C(2) != D(1) and torch.equal(C(2).mul, D(1).mul)
    assert C(4) != 'C4'
    assert {C(4): 'quarter turns'}[Group('other name', C(4).matrices)] == 'quarter turns'


# --- where the group is built

def assert_ordinary(*tables):
    for t in tables: assert t.device.type == 'cpu' and not t.is_inference()


def test_tables_are_computed_on_the_cpu_wherever_a_group_is_built(elsewhere):
    C.cache_clear()
    D.cache_clear()
    with elsewhere():
        groups = [Group('diagonal', PLANE), get_group('C14'), C(14), D(5)]
    for group, n in zip(groups, (4, 14, 14, 10), strict=True):
        assert_ordinary(group.matrices, group.mul, group.inv, group.relative)
        assert len(group) == n
        assert torch.equal(group.mul[torch.arange(n), group.inv], torch.zeros(n).long())
    assert groups[0] == Group('diagonal', PLANE) and groups[0].mul.sum() > 0


def test_a_group_can_be_asked_anything_wherever_it_is_used(elsewhere):
    def answers():
        p4m = get_group('p4m')
        facts = p4m.is_grid, p4m.is_abelian, [p4m.describe(h) for h in p4m.elements]
        sets = subgroups(p4m), cosets(p4m, (0, 4), 'right'), generate(p4m, 1, 4)
        return facts, sets, is_homomorphism([0, 0, 0, 0, 1, 1, 1, 1], p4m, 'mirror')
    expected = answers()
    with elsewhere(): assert answers() == expected


def test_a_group_built_in_inference_mode_can_be_trained_with():
    C.cache_clear()
    with torch.inference_mode(): get_group('C14')
    f = torch.randn(1, 1, 14, 5, 5, requires_grad=True)
    act('C14', 1, f).sum().backward()
    assert f.grad.abs().sum() > 0


def test_a_list_of_matrices_is_told_how_to_become_a_group():
    with pytest.raises(ValueError, match=r"2 entries: matrices .* by Group\('name', matrices\)"):
        get_group([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
