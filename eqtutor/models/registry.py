"Networks by name: how each is built, and how many parameters it must have (P1, P2, P3 and P4)."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

INPUT_SHAPES:dict[str, tuple[int, int, int]] = {   # channels, height and width of the pictures
    'rot-MNIST': (1, 28, 28), 'CIFAR-10': (3, 32, 32), 'CIFAR-100': (3, 32, 32),
    'PCam': (3, 96, 96)}


@dataclass(frozen=True)
class Model:
    "A network of the papers: how to build it, and how many parameters it must have."
    name:str
    make:Callable[..., nn.Module] # takes the keyword arguments of the family
    data:str                      # a key of `INPUT_SHAPES`
    paper:str                     # the count as printed, as '1.37M'
    exact:int                     # the count to the last digit
    source:str                    # paper and table

    @property
    def input_shape(self)->tuple[int, int, int]:
        "Channels, height and width of the pictures."
        return INPUT_SHAPES[self.data]


MODELS:dict[str, Model] = {}   # whole as soon as `eqtutor.models` is imported


def register_model(
    name:str,
    make:Callable[..., nn.Module],
    data:str,
    paper:str,
    exact:int,
    source:str,
)->None:
    """Add a network to `MODELS`; its name again replaces the same entry only (a cell run twice).

    Parameters
    ----------
    name : str
        lower case, the group first: 'p4-all-cnn'
    make : Callable[..., nn.Module]
    data : str
        'rot-MNIST', 'CIFAR-10', 'CIFAR-100' or 'PCam'
    paper : str
        the count as printed
    exact : int
        the count to the last digit
    source : str
    """
    new, old = Model(name, make, data, paper, exact, source), MODELS.get(name)
    if old and (old.data, old.exact, old.source) != (data, exact, source):
        raise ValueError(f'there is another network {name!r} ({old.source}): '
                         'choose a different name')
    if data not in INPUT_SHAPES:
        *others, last = map(repr, INPUT_SHAPES)
        raise ValueError(f'data must be {", ".join(others)} or {last}, got {data!r}')
    MODELS[name] = new


def plain_name(name:str)->str:
    "A name without what does not matter in it: case, '-' and '_'."
    return name.lower().replace('-', '').replace('_', '')


def get_model(
    name:str,
)->Model:
    """The registered network of that name.

    Parameters
    ----------
    name : str
        as in `MODELS`; case, '-' and '_' do not matter
    """
    known = {plain_name(key): model for key, model in MODELS.items()}
    if plain_name(name) in known: return known[plain_name(name)]
    close = [known[n].name for n in get_close_matches(plain_name(name), known, n=5, cutoff=.3)]
    message = f'unknown network {name!r}'
    if close: message += f', did you mean {close[0]!r}? Near are {", ".join(close)}.'
    raise ValueError(f'{message} `eqtutor models` lists all {len(MODELS)}; a network of your own '
                     'is a file and the function in it that makes it, file.py:make.')


def build_model(
    name:str,
    **kwargs,
)->nn.Module:
    """A new network by its registered name.

    Parameters
    ----------
    name : str
        as in `MODELS`
    **kwargs
        of the family's class: `classes`, `in_channels`, `conv`, …
    """
    return get_model(name).make(**kwargs)


def rounds_to(
    n:int,
    printed:str, # '1.37M', '310K'
)->bool:
    "Does `n`, rounded to as many digits, read as `printed`?"
    number, unit = printed[:-1], {'K': 1e3, 'M': 1e6}[printed[-1]]
    decimals = len(number.partition('.')[2])
    return abs(n/unit - float(number)) <= .5*10**-decimals + 1e-9


def model_rows(
    names:Iterable[str]|None=None,
)->list[dict[str, Any]]:
    """A row a network: name, data, paper, exact, ours (counted), difference, rounded, source.

    Parameters
    ----------
    names : Iterable[str] | None, default None
        all of `MODELS` if None
    """
    rows = []
    for model in [get_model(n) for n in (MODELS if names is None else names)]:
        with torch.device('meta'): net = model.make()   # shapes only
        ours = sum(p.numel() for p in net.parameters())
        rows.append(dict(
            name=model.name, data=model.data, paper=model.paper, exact=model.exact, ours=ours,
            difference=ours - model.exact, rounded=rounds_to(ours, model.paper),
            source=model.source))
    return rows
