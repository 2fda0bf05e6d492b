"What is not known is answered with the nearest that is; what is not installed, with the command."
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

__all__ = ['unknown_name', 'require']


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


def require(
    module:str,  # as in `import …`
    extra:str,   # of this package, that brings it
)->ModuleType:
    "A module that only a part of the package needs; where it is missing, the command for it."
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = module.partition('.')[0]
        if (error.name or '').partition('.')[0] != missing: raise   # it needs something itself
        raise ImportError(f'This needs {missing}, which is not installed: '
                          f"pip install 'eqtutor[{extra}]'") from error
