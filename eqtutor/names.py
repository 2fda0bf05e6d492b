"""What is said where a name is not known: the nearest that is; of a library, the command that
brings it."""
# Plain module: edited by hand, no notebook exports it.
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

__all__ = ['MissingExtra', 'needs', 'require', 'unknown_name']


def unknown_name(
    kind:str,             # what the name should be the name of, as 'group'
    name:object,          # what was given instead
    known:Iterable[str],  # the names that there are
    also:str,             # how the list of them ends
    meant:str='',         # the name to suggest; if empty the nearest, where one is near
)->ValueError:
    "The error to raise, with a suggestion."
    known = list(known)
    close = [meant] if meant else get_close_matches(str(name), known, n=1)
    hint = f', did you mean {close[0]!r}?' if close else '.'
    return ValueError(f'unknown {kind} {name!r}{hint} Known are {", ".join(known)}, {also}')


class MissingExtra(ImportError):
    "A library of an extra is not installed; the message names the command that brings it."


@contextmanager
def needs(
    extra:str, # of settings.ini, 'train'
)->Iterator[None]:
    "Imports that an extra brings: where one fails, the error says how to get it."
    try: yield
    except ModuleNotFoundError as error:
        library = str(error.name).partition('.')[0]
        raise MissingExtra(f'This needs {library}, which is not installed: '
                           f"pip install 'eqtutor[{extra}]'") from error


def require(
    module:str, # 'matplotlib.figure'
    extra:str,  # that brings it, 'train'
)->ModuleType:
    "A module of an extra, or an error that names the command that brings it."
    with needs(extra): return import_module(module)
