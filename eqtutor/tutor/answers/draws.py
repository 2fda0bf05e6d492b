"""Cases by chance, from a seed: tensors, and groups whose elements stand in another order."""
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...groups import Group, get_group


def dice(seed:int)->torch.Generator:
    "A source of chance that begins at the seed."
    return torch.Generator().manual_seed(seed)


def normal(*shape:int, seed:int)->Tensor:
    "A float64 tensor of normal numbers."
    return torch.randn(shape, dtype=torch.float64, generator=dice(seed))


def relabelled(name:str, seed:int)->Group:
    "The group with its elements, the identity excepted, in random order."
    group = get_group(name)
    order = [0, *(1 + torch.randperm(len(group) - 1, generator=dice(seed))).tolist()]
    return Group(f'{group.name} in the order {order}', group.matrices[order])


def some(values:Iterable, number:int, seed:int)->list:
    "So many of the values, in their order."
    values = [*values]
    return [values[i] for i in sorted(torch.randperm(len(values), generator=dice(seed))[:number])]


def shuffled(values:Sequence, seed:int)->list:
    "The values in another order."
    return [values[i] for i in torch.randperm(len(values), generator=dice(seed))]


def one(values:Sequence, die:torch.Generator)->Any:
    "One of the values."
    return values[int(torch.randint(len(values), (), generator=die))]


def told_apart(
    draw:Callable[[torch.Generator], list[tuple]], # cases by chance
    right:Callable,
    wrong:Iterable[Callable],                      # mistakes
    seed:int,
)->list[tuple]:
    "The first cases that are drawn to which no two of all functions give the same answers."
    die, functions = dice(seed), [right, *wrong]
    while True:
        cases = draw(die)
        if len({tuple(f(*case) for case in cases) for f in functions}) == len(functions):
            return cases
