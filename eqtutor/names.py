"An unknown name is answered with the nearest that is known, and with all that are."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ['unknown_name']


def unknown_name(
    kind:str,             # what the name should be the name of, as 'group'
    name:object,          # what was given instead
    known:Iterable[str],  # the names that there are
    also:str,             # how the list of them ends
)->ValueError:
    "The error to raise; it suggests the nearest known name, if one is near."
    known = list(known)
    close = get_close_matches(str(name), known, n=1, cutoff=.4)
    hint = f', did you mean {close[0]!r}?' if close else '.'
    return ValueError(f'unknown {kind} {name!r}{hint} Known are {", ".join(known)}, {also}')
