"""A training step that does not know where it runs: half precision, shared batches, and batch norm
over all devices."""
# Plain module: edited by hand, no notebook exports it.

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..names import require

if TYPE_CHECKING:
    from accelerate import Accelerator
else:
    Accelerator = Any   # accelerate takes a second to load: a run does it when it begins

PRECISIONS = (None, 'no', 'bf16', 'fp16')

def device_of(net:nn.Module)->torch.device:
    "Where a net lies; the CPU if it has no parameters."
    return next((p.device for p in net.parameters()), torch.device('cpu'))

def training_device()->str:
    "This process's GPU, or the CPU."
    return f'cuda:{os.environ.get("LOCAL_RANK", 0)}' if torch.cuda.is_available() else 'cpu'

def is_first_process()->bool:
    "Is this the process that writes and prints, of those that `accelerate launch` started?"
    return os.environ.get('RANK', '0') == '0'

def _leave_processes()->None:
    "Close the connections to the others: threads that still serve them abort an end."
    if dist.is_available() and dist.is_initialized(): dist.destroy_process_group()

@contextmanager
def accelerated(
    net:nn.Module,
    precision:str|None=None,
)->Iterator[Accelerator]:
    """Accelerate's view of this process; its global state is cleared afterwards.

    Parameters
    ----------
    net : nn.Module
        on the device to train on; one of several processes takes the device it is given
    precision : str | None, default None
        'no', 'bf16', 'fp16'; None: as launched, or else 'no'
    """
    if precision not in PRECISIONS:
        raise ValueError(f'precision must be one of {PRECISIONS}, got {precision!r}.')
    accelerate = require('accelerate', 'train')
    whole, partial = accelerate.state.AcceleratorState, accelerate.PartialState
    alone = int(os.environ.get('WORLD_SIZE', 1)) == 1
    cpu = device_of(net).type == 'cpu' if alone else not torch.cuda.is_available()
    others, partial_state = bool(whole._shared_state), bool(partial._shared_state)
    try:
        accelerator = accelerate.Accelerator(cpu=cpu, mixed_precision=precision,
                                             device_placement=not alone)
        if not alone:
            atexit.unregister(_leave_processes)
            atexit.register(_leave_processes)
        if cpu and accelerator.mixed_precision == 'fp16':
            raise ValueError('fp16 needs a GPU, for its scaled loss: '
                             "take precision='bf16' or 'no' on a CPU.")
        yield accelerator
    finally:
        if not others:
            whole._reset_state(alone and not partial_state)

def share(
    batch:Sequence[Tensor],
    accelerator:Accelerator,
)->tuple[Tensor, Tensor, float]:
    """This process's images of a batch; weighted, the mean of means is the batch's.

    Parameters
    ----------
    batch : Sequence[Tensor]
        `(x, y)`, the same in every process
    accelerator : Accelerator

    Returns
    -------
    tuple[Tensor, Tensor, float]
        this process's `x`, `y`, and its mean loss's weight
    """
    (x, y), processes, n = batch, accelerator.num_processes, len(batch[1])
    if n < processes:
        raise ValueError(f'A batch of {n} images cannot be shared by {processes} '
                         'processes. Choose a batch size that leaves a larger last '
                         'batch, or fewer processes.')
    x, y = (t[accelerator.process_index::processes] for t in (x, y))
    return x, y, len(y) * processes / n

@contextmanager
def sync_batch_norm(
    net:nn.Module, # its BatchNorm layers are replaced inside the context
)->Iterator[nn.Module]:
    "Inside, BatchNorm layers measure over all processes; after, the net has its own."
    own = {name: m for name, m in net.named_modules()
           if name and isinstance(m, _BatchNorm)}
    nn.SyncBatchNorm.convert_sync_batchnorm(net)
    try:
        yield net
    finally:
        for name, layer in own.items():
            parent, _, leaf = name.rpartition('.')
            synced = net.get_submodule(name)
            layer._parameters.update(synced._parameters)  # they may have moved
            layer._buffers.update(synced._buffers)
            layer.training = synced.training
            setattr(net.get_submodule(parent), leaf, layer)

@contextmanager
def parallel(
    net:nn.Module,
    accelerator:Accelerator,
    sync_bn:bool=True,
)->Iterator[nn.Module]:
    """The net itself, or wrapped so that several processes average their gradients.

    Parameters
    ----------
    net : nn.Module
    accelerator : Accelerator
    sync_bn : bool, default True
        on GPUs, BatchNorm measures over all processes

    Returns
    -------
    Iterator[nn.Module]
        what to call in training
    """
    if accelerator.num_processes == 1:
        yield net
        return
    if not any(p.requires_grad for p in net.parameters()):
        raise ValueError('The net has no parameter to train.')
    synced:AbstractContextManager = nullcontext()
    if sync_bn and accelerator.device.type == 'cuda': synced = sync_batch_norm(net)
    with synced:
        wrapped = accelerator.prepare_model(net)
        inner = accelerator.unwrap_model(wrapped, keep_fp32_wrapper=False)
        inner.__dict__.pop('forward', None)
        yield wrapped

def summed(
    accelerator:Accelerator|None, # None: this process is alone
    *numbers:float,
)->list[float]:
    "Numbers added up over all processes."
    if accelerator is None or accelerator.num_processes == 1: return list(numbers)
    own = torch.tensor(numbers, dtype=torch.float64, device=accelerator.device)
    return accelerator.reduce(own, 'sum').tolist()
