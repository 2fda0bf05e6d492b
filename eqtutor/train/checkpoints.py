"""All that a run must remember in one file, which is whole or not there, and is checked when it is
read."""
# Plain module: edited by hand, no notebook exports it.

import hashlib
import json
import os
import platform
import random
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..files import check_readable, write_atomic
from .processes import device_of


def environment(
    device:torch.device|str='cpu',
)->dict[str, Any]:
    """Versions, hardware and git commit (None outside a repository), ready for JSON.

    Parameters
    ----------
    device : torch.device | str, default 'cpu'
        where the net lies

    Returns
    -------
    dict[str, Any]
        'versions', 'hardware', 'commit'
    """
    device = torch.device(device)
    on_gpu = device.type == 'cuda'
    name = torch.cuda.get_device_name(device) if on_gpu else device.type
    hardware = {
        'system': platform.system(), 'machine': platform.machine(),
        'cores': os.cpu_count(), 'threads': torch.get_num_threads(), 'device': name}
    packages = 'eqtutor', 'torch', 'accelerate', 'numpy', 'safetensors'
    versions:dict[str, str|None] = {'python': platform.python_version()}
    versions |= {name: _version(name) for name in packages}
    return {'versions': versions, 'hardware': hardware, 'commit': _commit()}

def _version(name:str)->str|None:
    try: return version(name)
    except PackageNotFoundError: return None

def _commit()->str|None:
    command = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
    try: done = subprocess.run(command, capture_output=True, text=True)
    except OSError: return None  # no git on this machine
    return done.stdout.strip() or None

def _digest(tensors:dict[str, Tensor], about:str)->str:
    "SHA-256 over names, bytes and text: safetensors would not notice a flipped bit."
    sha = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()

def python_generators()->dict[str, Any]:
    "Python's and numpy's generators, ready for JSON."
    numpy = [part.tolist() if isinstance(part, np.ndarray) else part
             for part in np.random.get_state()]
    return {'python': random.getstate(), 'numpy': numpy}

def set_python_generators(
    state:dict[str, Any], # of `python_generators`, there and back through JSON
)->None:
    "Put Python's and numpy's generators back."
    kind, keys, gauss = state['python']
    random.setstate((kind, tuple(keys), gauss))
    np.random.set_state(tuple(state['numpy']))

def torch_generators(
    net:nn.Module, # on the device whose generator is meant, beside the CPU's
)->dict[str, Tensor]:
    "The states of torch's generators, by name."
    generators, device = {'rng.torch': torch.get_rng_state()}, device_of(net)
    if device.type == 'cuda': generators['rng.cuda'] = torch.cuda.get_rng_state(device)
    return generators

def save_checkpoint(
    path:str|Path,
    net:nn.Module,
    optimizer:torch.optim.Optimizer,
    about:dict[str, Any],
    extra:dict[str, Tensor]|None=None,
)->None:
    """Weights, optimizer, random generators and history in one file, written atomically.

    Parameters
    ----------
    path : str | Path
        the file, replaced whole
    net : nn.Module
        its `state_dict` is saved
    optimizer : torch.optim.Optimizer
        its state, tensor by tensor
    about : dict[str, Any]
        header and history, as JSON
    extra : dict[str, Tensor] | None, default None
        more by name: an average of weights, a loss scale, other processes' generators
    """
    tensors = {f'net.{name}': t for name, t in net.state_dict().items()}
    for i, state in optimizer.state_dict()['state'].items():
        own = {k: t for k, t in state.items() if isinstance(t, Tensor)}
        tensors |= {f'optimizer.{i}.{name}': t for name, t in own.items()}
    tensors |= (extra or {}) | torch_generators(net)
    # a copy each: tied weights share memory, which the format refuses
    tensors = {name: t.detach().to('cpu', copy=True).contiguous()
               for name, t in tensors.items()}
    text = json.dumps(about | {'generators': python_generators()})
    notes = {'eqtutor': text, 'sha256': _digest(tensors, text)}
    write_atomic(path, save(tensors, notes))

# what a damaged file raises: by safetensors, or by torch where a changed letter names
# another type or a size that is none
_UNREADABLE = (SafetensorError, OSError, ValueError, RuntimeError, TypeError, KeyError,
               AttributeError, OverflowError, MemoryError)

def _read_tensors(path:Path)->tuple[dict[str, Tensor], dict[str, str], str]:
    "Tensors by name, the notes beside them, and what the digest should be."
    with safe_open(path, 'pt') as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata() or {}
    return tensors, notes, _digest(tensors, notes.get('eqtutor', ''))

def read_checkpoint(
    path:str|Path,
)->tuple[dict[str, Tensor], dict[str, Any]]:
    """A checkpoint, verified; a missing, damaged or foreign file is an error.

    Parameters
    ----------
    path : str | Path
        a file of `save_checkpoint`

    Returns
    -------
    tuple[dict[str, Tensor], dict[str, Any]]
        tensors; header, history, generators
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'There is no checkpoint at {path}. Leave out resume=True to start a new '
            'run there, or correct the folder.')
    check_readable(path)
    broken = (f'{path} is damaged (cut off or changed after it was written) and cannot '
              'be used. Restore it from a copy, or start a new run in another folder.')
    try: tensors, notes, digest = _read_tensors(path)
    except _UNREADABLE as error: raise ValueError(broken) from error
    if 'eqtutor' not in notes:
        raise ValueError(
            f'{path} is a safetensors file but not a checkpoint of this loop. '
            'If it holds weights alone, load_weights(net, path) reads it.')
    if notes.get('sha256') != digest: raise ValueError(broken)
    return tensors, json.loads(notes['eqtutor'])

def part_of(
    tensors:dict[str, Tensor],
    prefix:str,
)->dict[str, Tensor]:
    "The tensors whose names begin so, without the beginning."
    own = {k: t for k, t in tensors.items() if k.startswith(prefix)}
    return {k.removeprefix(prefix): t for k, t in own.items()}

def _first_three(names:list[str])->str:
    more = f' and {len(names) - 3} more' if len(names) > 3 else ''
    return ', '.join(names[:3]) + more

def load_into(
    net:nn.Module,
    tensors:dict[str, Tensor],
    path:Path,                 # named in errors
)->None:
    "Copy tensors into the net, or say what does not fit and leave the net alone."
    own = net.state_dict()
    shapes = {k: (tuple(tensors[k].shape), tuple(t.shape))
              for k, t in own.items() if k in tensors}
    other_shape = [f'{k} {a} instead of {b}' for k, (a, b) in shapes.items() if a != b]
    faults = {'missing in the file': [k for k in own if k not in tensors],
              'unknown to the net': [k for k in tensors if k not in own],
              'of another shape': other_shape}
    said = [f'{what}: {_first_three(names)}' for what, names in faults.items() if names]
    if said:
        raise ValueError(f'{path} does not fit this net ({"; ".join(said)}). '
                         'Build it with the arguments it was trained with.')
    net.load_state_dict(tensors)

def trained_weights()->dict[str, Path]:
    "The trained weights that come with the package, by name."
    package = Path(str(find_spec('eqtutor').origin)).parent # type: ignore[union-attr]
    folders = package/'course'/'results'/'weights', package.parent/'results'/'weights'
    files = next((f for f in map(sorted, (d.glob('*.safetensors') for d in folders))
                  if f), [])
    return {file.stem: file for file in files}

def weights_file(
    path:str|Path,
)->Path:
    """The file of that path, or of trained weights by that name.

    Parameters
    ----------
    path : str | Path
        a file, or a name of `trained_weights`
    """
    if (file := Path(path)).is_file(): return file
    known = trained_weights()
    if str(path) in known: return known[str(path)]
    raise FileNotFoundError(f'There is no file {path} to load weights from, and the '
                            f'package has none of that name: {", ".join(known)}.')

def load_weights(
    net:nn.Module,
    path:str|Path,
    ema:bool=False,
)->nn.Module:
    """Load a net's weights from a file; the net stays as it was where they do not fit.

    Parameters
    ----------
    net : nn.Module
        built with the arguments it was trained with
    path : str | Path
        a checkpoint, a safetensors file of a `state_dict`, or the name of trained
        weights of the package, as 'p4-cnn-rotmnist'
    ema : bool, default False
        of a checkpoint: the averaged weights

    Returns
    -------
    nn.Module
        the same net
    """
    path = weights_file(path)
    check_readable(path)
    try: tensors, notes, _ = _read_tensors(path)
    except _UNREADABLE as error:
        raise ValueError(
            f'{path} is not a whole safetensors file: it is damaged or of another '
            'kind. Copy it again, or save the weights with safetensors.') from error
    checkpoint = 'eqtutor' in notes
    if checkpoint:
        tensors = part_of(read_checkpoint(path)[0], 'ema.' if ema else 'net.')
    if ema and not (checkpoint and tensors):
        raise ValueError(f'{path} holds no averaged weights: leave out ema=True, '
                         'or train with fit(…, ema=.999).')
    load_into(net, tensors, path)
    return net
