"""Programs and Python as we start them: nothing of the current folder is run.

Where `eqtutor labs grade .` is typed lies what strangers handed in. `python -m` and `python -c`
look there first for every module, before the standard library; an empty entry of PYTHONPATH, PATH
or LD_LIBRARY_PATH means that folder, too. So this module imports only what Python itself has loaded
already, and whoever starts a process asks it for the command.

What Python does before our first line cannot be defended: with an empty entry in PYTHONPATH or
LD_LIBRARY_PATH its start reads the current folder, and `python -m eqtutor` looks there for a
package of that name and for the modules that `-m` itself needs. `python -P -m eqtutor` does not,
and neither does the command `eqtutor`.
"""
# Plain module: edited by hand, no notebook exports it.
import os
import sys

# the package's folder lies here
HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def outside(
    places:list[str], # folders; relative ones, and '', begin at the current folder
)->list[str]:
    "The folders, absolute, without the current one."
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:   # it has been removed
        return [p for p in places if os.path.isabs(p)]
    return [os.path.abspath(p) for p in places if os.path.realpath(p) != here]


def import_path()->list[str]:
    "`sys.path` without the current folder, and with the place of this package."
    return with_package(outside(sys.path))


def with_package(path:list[str])->list[str]:
    "The path, and where it lacks this package's place, that before installed packages."
    if HOME in path: return path
    installed = [p for p in path if p.endswith('-packages')]
    return [*(p for p in path if p not in installed), HOME, *installed]


def leave_current_folder()->None:
    "Import nothing from there any more, neither here nor in a process that inherits PYTHONPATH."
    sys.path[:] = import_path()
    if told := os.environ.get('PYTHONPATH'):
        os.environ['PYTHONPATH'] = os.pathsep.join(outside(told.split(os.pathsep)))


def python(
    code:str,                 # what to run
    *arguments:str,           # `sys.argv[1:]`
    path:list[str]|None=None, # `sys.path`; `import_path()` if None
)->list[str]:
    """A command that runs Python code with the given import path.

    `-I` keeps the current folder out, which an empty entry of PYTHONPATH would bring back under
    `-P`. It leaves out PYTHONPATH and the user's packages, too, which the path brings back.
    """
    path = import_path() if path is None else with_package(path)
    flags = ['-I', '-B'] if sys.dont_write_bytecode else ['-I']
    start = f'import sys; sys.path[:] = {path!r}; '
    return [sys.executable, *flags, '-c', start + code, *arguments]


def find_program(
    name:str, # 'bwrap', or the path of a program
)->str|None:  # None: there is none
    "A program's absolute path; nothing relative is searched, whatever PATH says."
    import shutil  # not before `leave_current_folder` has been called
    told = os.environ.get('PATH', os.defpath).split(os.pathsep)
    places = outside([p for p in told if os.path.isabs(p)])
    found = shutil.which(name, path=os.pathsep.join(places))
    return os.path.abspath(found) if found else None
