"""Cases by chance, from a seed: tensors, and groups whose elements stand in another order."""
# Plain module: edited by hand, no notebook exports it.
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
