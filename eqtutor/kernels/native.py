"""C for processors, built by the machine's own compiler when it is first needed.

Where there is no compiler, or `EQTUTOR_NATIVE=0`, torch computes the same, several times slower.
A library lies in `~/.cache/eqtutor/native`, under a name made of its source, its compiler and the
processor, and of its own bytes: one that is cut or changed is known by that, and built again. It
lies in a folder of this process alone if that one cannot be written.

What Python gives to C is one struct, whose fields have names: `Form` in each source, which is read
from there, so that the two sides cannot differ.
"""
# Plain module: edited by hand, no notebook exports it.
import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, register_flop_formula

from ..core import transforms_active
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
    "What programs this processor runs: a home folder may be shared by different ones."
    machine = f'{platform.machine()} {platform.architecture()[0]} {platform.libc_ver()}'
    try: lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError: return f'{machine} {platform.processor()}'
    features = {line for line in lines if line.startswith(('model name', 'flags', 'Features'))}
    return '\n'.join([machine, *sorted(features)])


def build(
    compiler:str,
    source:Path,
    real:str,     # 'float' or 'double'
    folder:Path,  # for the library
    stem:str,     # its name begins with it
)->Path:
    """Compile to a library that is whole or not there, its digest in its name: what is named so is
    whole, or is not used. An `OSError` with the compiler's words if it fails."""
    part = folder/f'{stem}.{os.getpid()}-{threading.get_ident()}.part'
    try:
        for tuning in TUNING:
            command = [compiler, *OPTIONS, *tuning, f'-DREAL={real}', str(source), '-o', str(part)]
            # elsewhere: an empty entry of CPATH or LIBRARY_PATH is the current folder
            result = subprocess.run(command, cwd='/', capture_output=True, text=True,
                                    timeout=SECONDS, stdin=subprocess.DEVNULL)
            if result.returncode: continue
            with open(part, 'rb') as file: os.fsync(file.fileno())
            target = part.with_name(f'{stem}-{digest_of(part)}.so')
            os.replace(part, target)
            return target
        raise OSError(result.stderr.strip() or f'exit status {result.returncode}')
    finally:
        part.unlink(missing_ok=True)


def digest_of(path:Path)->str:
    "What a file's name says of its bytes."
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


@cache
def announce(
    compiler:str,
    folder:Path,
)->None:
    """One line, once: that a compiler runs now, in the log, or at a terminal. It is for people: a
    pipe or a notebook would keep it."""
    line = (f'{compiler} builds the C kernels into {folder}, once for this machine '
            '(EQTUTOR_NATIVE=0 refuses it)')
    log = logging.getLogger('eqtutor')
    if log.isEnabledFor(logging.INFO): log.info(line)
    elif sys.stderr and sys.stderr.isatty(): print(f'eqtutor: {line}', file=sys.stderr)


def opened(
    path:Path,
    size:int, # of its `Form`, as Python reads it
)->ctypes.CDLL:
    "A library, its threads those of torch; an `OSError`, `AttributeError` or `ValueError` if none."
    library = ctypes.CDLL(str(path))
    if (got := ctypes.c_long.in_dll(library, 'form_size').value) != size:
        raise OSError(f'{path} takes a Form of {got} bytes, expected one of {size}')
    library.use_threads_of(parallel_of_torch(), ctypes.c_long(PROCESS))
    return library


def kept_library(
    folder:Path,
    stem:str,
    size:int,  # as for `opened`
)->ctypes.CDLL|None:
    "The library that was built before, if it is what it was; one that is not is removed."
    for path in folder.glob(f'{stem}-*.so'):
        try:
            if path.stem == f'{stem}-{digest_of(path)}': return opened(path, size)
        except (OSError, AttributeError, ValueError): pass   # of another system, say
        with contextlib.suppress(OSError): path.unlink()
    return None


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
    "A library, built if it is not there as it was; a warning where that fails."
    compiler = find_compiler()
    if compiler is None or dtype not in REALS: return None
    source, real = Path(__file__).with_name(f'{name}.c'), REALS[dtype]
    texts = [path.read_text(encoding='utf-8') for path in (source, source.with_name('tasks.h'))]
    depends_on = *texts, compiler, str(OPTIONS), describe_processor()
    mark = hashlib.sha256('\n'.join(depends_on).encode()).hexdigest()[:16]
    folder, stem, size = library_folder(), f'{name}-{real}-{mark}', ctypes.sizeof(struct_of(name))
    if library := kept_library(folder, stem, size): return library
    failed = f'{compiler} could not build {source.name} in {folder}'
    announce(compiler, folder)
    try:
        path = build(compiler, source, real, folder, stem)
        failed = f'{path}, which {compiler} has just built of {source.name}, cannot be loaded'
        return opened(path, size)
    except (OSError, AttributeError, ValueError, subprocess.TimeoutExpired) as error:
        warnings.warn(f'{failed}; torch computes in its place, several times slower '
                      f'(EQTUTOR_NATIVE=0 asks for that): {error}', stacklevel=2)
        return None


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


def modes_active()->bool|None:
    "Does a dispatch mode, a counter say, see what torch does? None where this torch cannot say."
    count = getattr(torch._C, '_len_torch_dispatch_stack', None)   # no name that torch promises
    return None if count is None else count() > 0


def counted_as(
    name:str, # of an operator of this library
)->Callable[[Callable[..., int]], Callable[..., int]]:
    """Tell torch's counter the multiply-accumulates of an operator, which it cannot look into: by
    a function of its arguments, shapes in place of tensors. C may do otherwise than torch in its
    place; what is counted is what torch does, so that a network costs the same everywhere."""
    operator = getattr(torch.ops.eqtutor, name)
    def register(macs:Callable[..., int])->Callable[..., int]:
        def flops(*arguments, out_shape=None)->int: return 2*macs(*arguments)
        flop_registry.pop(operator, None)   # a notebook defines its operators once more
        register_flop_formula(operator)(flops)
        return macs
    return register


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
    if transforms_active() is not False or modes_active() is not False: return False
    return native_library(name, tensors[0].dtype) is not None


# --- one struct from Python to C

NUMBERS = {'long': ctypes.c_long, 'unsigned long': ctypes.c_ulong}


class CStruct(ctypes.Structure):
    "A struct of a C source, for Python to fill."
    given:dict[str, Any] = {}               # its fields, and their types, but for C's own
    numbers:frozenset[str] = frozenset()    # those that have to be set; others are NULL


@cache
def struct_of(
    name:str,           # 'windows' is windows.c
    struct:str='Form',
)->type[CStruct]:
    """A C struct as its source declares it, the only place where its fields stand. Those of a
    struct inside it that has no name are C's own."""
    source = Path(__file__).with_name(f'{name}.c').read_text(encoding='utf-8')
    source = re.sub(r'/\*.*?\*/', '', source, flags=re.DOTALL)
    inner = r'[^{}]|\{[^{}]*\}'
    body = re.search(rf'typedef struct \{{((?:{inner})*)\}} {struct};', source)
    if body is None: raise ValueError(f'{name}.c: expected a typedef struct {struct}, got none')
    given, _, own = body[1].partition('struct {')
    given, own = (fields_of(name, part) for part in (given, own.partition('}')[0]))
    numbers = frozenset(label for label, kind in given.items() if kind in NUMBERS.values())
    return type(struct, (CStruct,), dict(_fields_=[*given.items(), *own.items()], given=given,
                                         numbers=numbers))


def fields_of(
    name:str,         # as for `struct_of`
    declarations:str, # 'long b, n; const real *x;'
)->dict[str, Any]:
    "The names that C declares, with their types in `ctypes`."
    fields:dict[str, Any] = {}
    for kind, labels in re.findall(r'(?:const )?(unsigned long|\w+) ([^;]+);', declarations):
        for label in labels.replace(' ', '').split(','):
            if label.startswith('*'): fields[label[1:]] = ctypes.c_void_p
            else: fields[label] = NUMBERS.get(kind) or struct_of(name, kind)
    return fields


def filled(
    struct:type[CStruct],
    **values:Any,           # by field: tensors, whole numbers, None for NULL, dicts for structs
)->CStruct:
    "The struct with these values; a `TypeError` unless all its numbers are there, and no others."
    if not struct.numbers <= values.keys() <= struct.given.keys():
        raise TypeError(f'{struct.__name__} expects {", ".join(struct.given)} '
                        f'(of these, all of {", ".join(sorted(struct.numbers))}), '
                        f'got {", ".join(values)}')
    form = struct()
    for label, value in values.items():
        if isinstance(value, Tensor): value = value.data_ptr()
        if isinstance(value, dict): value = filled(struct.given[label], **value)
        if value is not None: setattr(form, label, value)
    return form


def call_native(
    name:str,         # as for `native_library`
    function:str,     # of it; gives 0, or something else if memory ran out
    dtype:torch.dtype,
    **values:Any,     # the fields of its `Form`, as for `filled`; tensors contiguous
)->None:
    "Call C, in as many threads as torch has."
    form = filled(struct_of(name), threads=torch.get_num_threads(), **values)
    if getattr(needed_library(name, dtype), function)(ctypes.byref(form)):
        raise MemoryError('no memory is left for the working space of a kernel')
