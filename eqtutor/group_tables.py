"""From matrices that somebody gives, or a name, to a group: tidied, multiplied, understood."""
# Plain module: edited by hand, no notebook exports it.
import re
from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ['cayley_table', 'likely_group', 'tidy_matrices']


def tidy_matrices(
    matrices,  # `(n, 2, 2)`
    name:str,  # of the group, for the errors
)->Tensor:
    "Matrices `(n, 2, 2)` in float64, all different; cos 90° is 0 and not 6e-17."
    m = torch.as_tensor(matrices, dtype=torch.float64).detach().cpu()
    if m.ndim != 3 or m.shape[1:] != (2, 2):
        shape = tuple(m.shape)
        raise ValueError(f'{name!r}: matrices must have shape (n, 2, 2), got {shape}')
    if len(torch.unique(m.mul(1e6).round(), dim=0)) < len(m):
        raise ValueError(f'{name!r}: an element is listed twice')
    off = (m @ m.mT - torch.eye(2, dtype=m.dtype)).abs().amax((1, 2))
    if off.max() > 1e-5:
        h = int(off.argmax())
        raise ValueError(f'{name!r}: a point group turns and mirrors, so every matrix '
                         'times its transpose is the identity; that of element '
                         f'{h}, {m[h].tolist()}, is not{_rounded(off.max())}')
    return torch.where((m - m.round()).abs() < 1e-6, m.round(), m)


def cayley_table(
    matrices:Tensor, # `(n, 2, 2)`, closed under products
    name:str,        # of the group, for the error
)->Tensor:
    "The table of products, `(n, n)`: row g, column h, the number of gh among the matrices."
    rows = []
    for g, m in enumerate(matrices):
        products = m @ matrices   # `(n, 2, 2)`
        distances = torch.cdist(products.flatten(1), matrices.flatten(1))
        distance, nearest = distances.min(1)
        if distance.max() > 1e-5:
            h = int(distance.argmax())
            raise ValueError(
                f'{name!r} is not closed: the product of elements {g} and {h} is\n'
                f'{products[h].tolist()},\nwhich is not in the list'
                + (_rounded(distance.max()) or '. Add this matrix.'))
        rows.append(nearest)
    return torch.stack(rows)


def _rounded(distance:Tensor)->str:
    "What to do, where numbers miss what they should be by little."
    if distance > .1: return ''
    return (f', by {distance:.0e}. Are its numbers rounded? Expected are six digits, '
            'as of math.cos(math.pi/3); C(n) and D(n) have them all')


def likely_group(
    name:object,
    known:Iterable[str], # names of groups
)->str:
    "The group that somebody means who names it as others do (c8, p6, p6m, SO(2)), or ''."
    plain = re.sub(r'[\W_]', '', str(name)).lower()
    for own in known:
        if own.lower() == plain: return own
    # as crystals: p6, p6m, p4mm; as abstract groups: Z6; as the papers: R6, R6M
    found = re.fullmatch(r'([pczrd]?)([1-9]\d*)(m*)', plain)
    if found: return ('D' if found[3] or found[1] == 'd' else 'C') + found[2]
    # infinitely many turns, of which these are some
    some = dict(so2='C16', u1='C16', se2='C16', o2='D16', e2='D16')
    return some.get(plain, '')
