"""C for processors, built by the machine's own compiler when it is first needed.

Where there is no compiler, or `EQTUTOR_NATIVE=0`, torch computes the same, several times slower.
A library lies in `~/.cache/eqtutor/native`, under a name made of its source, its compiler and the
processor; in a folder of this process alone if that cannot be written.
"""
# Plain module: edited by hand, no notebook exports it.
import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from ..interpreter import find_program

REALS = {torch.float32: 'float', torch.float64: 'double'}
OPTIONS = '-O3', '-ffp-contract=fast', '-shared', '-fPIC', '-pthread'
# this processor's own instructions, as gcc, clang and neither of them call them
TUNING:tuple[list[str], ...] = ['-march=native'], ['-mcpu=native'], []
SECONDS = 120   # after which a compiler is given up


def find_compiler()->str|None:
    "The machine's C compiler, `CC` if that is set; None if there is none, or none is wanted."
    if os.environ.get('EQTUTOR_NATIVE') == '0' or os.name != 'posix': return None
    names = os.environ.get('CC'), 'cc', 'gcc', 'clang'
    return next((path for name in names if name and (path := find_program(name))), None)


WANTED = find_compiler() is not None   # as this module is loaded: compiled graphs keep to it
PROCESS = os.getpid()                  # in which torch's threads are, not in its forks


def describe_processor()->str:
    "What instructions this processor has: a home folder may be shared by different ones."
    try: lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError: return f'{platform.machine()} {platform.processor()}'
    told = [line for line in lines if line.startswith(('model name', 'flags', 'Features'))]
    return '\n'.join(sorted(set(told)))


def build(
    compiler:str,
    source:Path,
    real:str,     # 'float' or 'double'
    target:Path,  # the library
)->None:
    "Compile to a library that is whole or not there; an `OSError` with the compiler's words."
    part = target.with_name(f'{target.stem}.{os.getpid()}-{threading.get_ident()}.part')
    try:
        for tuning in TUNING:
            command = [compiler, *OPTIONS, *tuning, f'-DREAL={real}', str(source), '-o', str(part)]
            # elsewhere: an empty entry of CPATH or LIBRARY_PATH is the current folder
            made = subprocess.run(command, cwd='/', capture_output=True, text=True,
                                  timeout=SECONDS, stdin=subprocess.DEVNULL)
            if made.returncode == 0: return os.replace(part, target)
        raise OSError(made.stderr.strip() or f'exit status {made.returncode}')
    finally:
        part.unlink(missing_ok=True)


def library_folder()->Path:
    "Where libraries are kept: of this user, or, where nothing can be kept, of this process."
    named = os.environ.get('XDG_CACHE_HOME', '')
    if not os.path.isabs(named): named = ''   # as its specification says
    try:
        if not named and not Path.home().is_dir(): return Path(own_folder().name)
        folder = (Path(named) if named else Path.home()/'.cache')/'eqtutor'/'native'
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):   # a home that is a file, or unknown
        return Path(own_folder().name)
    return folder if os.access(folder, os.W_OK | os.X_OK) else Path(own_folder().name)


@cache
def own_folder()->tempfile.TemporaryDirectory:
    "A folder that nobody else may read, until this process ends."
    return tempfile.TemporaryDirectory(prefix='eqtutor-')


@cache
def native_library(
    name:str,           # 'windows' is windows.c, beside this file
    dtype:torch.dtype,  # of the numbers it computes with
)->ctypes.CDLL|None:    # None: let torch compute
    "A library, built if it is not there; a warning where building fails."
    compiler = find_compiler()
    if compiler is None or dtype not in REALS: return None
    source, real = Path(__file__).with_name(f'{name}.c'), REALS[dtype]
    texts = [path.read_text(encoding='utf-8') for path in (source, source.with_name('tasks.h'))]
    told = *texts, compiler, str(OPTIONS), describe_processor()
    mark = hashlib.sha256('\n'.join(told).encode()).hexdigest()[:16]
    target = library_folder()/f'{name}-{real}-{mark}.so'
    try:
        if not target.exists(): build(compiler, source, real, target)
        library = ctypes.CDLL(str(target))
    except (OSError, subprocess.TimeoutExpired) as error:
        warnings.warn(f'{compiler} could not build {source.name}, torch computes in its place, '
                      f'several times slower (EQTUTOR_NATIVE=0 asks for that): {error}',
                      stacklevel=2)
        return None
    library.use_threads_of(parallel_of_torch(), ctypes.c_long(PROCESS))
    return library


def needed_library(
    name:str,           # as for `native_library`
    dtype:torch.dtype,
)->ctypes.CDLL:
    "The library, where nothing else can compute any more; a `RuntimeError` if it is not there."
    library = native_library(name, dtype)
    if library is None:
        raise RuntimeError(f'{name}.c was wanted when this was compiled, and could not be built '
                           '(see the warning above). Compile again with EQTUTOR_NATIVE=0 set.')
    return library


@cache
def parallel_of_torch()->ctypes.c_void_p:
    "The function by which torch's OpenMP runs another in its threads; NULL where it has none."
    try: return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p)
    except (OSError, AttributeError): return ctypes.c_void_p()


def runs_native(
    name:str,              # as for `native_library`
    *tensors:torch.Tensor, # all that C would read
)->bool:
    """Whether C computes of these: on a processor, all of one dtype that it knows, and with nobody
    who wants to see what torch does: not `torch.func`, nor a counter, nor an exported program."""
    dtypes, devices = {t.dtype for t in tensors}, {t.device.type for t in tensors}
    if devices != {'cpu'} or len(dtypes) > 1 or not dtypes <= REALS.keys(): return False
    if torch.compiler.is_compiling():
        exporting = getattr(torch.compiler, 'is_exporting', None)   # from torch 2.7 on
        return WANTED and not (exporting and exporting())
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return False
    return native_library(name, tensors[0].dtype) is not None


def call_native(
    function:Callable[..., int],  # of a library; gives 0, or something else if memory ran out
    *arguments:torch.Tensor|list[int]|int|None,
)->None:
    "Call C with contiguous tensors, lists of whole numbers, whole numbers, and None for NULL."
    def convert(x):
        if x is None: return None
        if isinstance(x, int): return ctypes.c_long(x)
        if isinstance(x, list): return (ctypes.c_long*len(x))(*x)
        return ctypes.c_void_p(x.data_ptr())
    if function(*map(convert, arguments), ctypes.c_long(torch.get_num_threads())):
        raise MemoryError('no memory is left for the working space of a kernel')
