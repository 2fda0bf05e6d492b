"""Answers as plain data: JSON with tensors in it, read without pickle."""
# Plain module: edited by hand, no notebook exports it.
import base64
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..groups import Group

LARGEST_GROUP = 1000   # elements
# what the expression that puts a case to a function may use
CALL_NAMES:dict[str, Any] = {'torch': torch, 'F': F}


def encode(
    value:Any, # tensors, numbers, text, groups, and lists, tuples, sets, dictionaries of them
)->Any:
    "The value as JSON can hold it; a tensor as the bytes of an npy file."
    if isinstance(value, Group): return {'group': encode(value.matrices), 'name': value.name}
    if isinstance(value, np.generic) and isinstance(value.item(), bool | int | float | str):
        return value.item()
    if isinstance(value, Tensor): value = dense_array(value)
    if isinstance(value, complex | np.generic): value = np.asarray(value)
    if isinstance(value, np.ndarray):
        np.save(file := io.BytesIO(), value, allow_pickle=False)
        return {'npy': base64.b64encode(file.getvalue()).decode()}
    if isinstance(value, dict): return {'dict': [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, set | frozenset): value = sorted(value)
    if isinstance(value, list | tuple | range): return [encode(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str): return value
    raise TypeError('an answer is made of tensors, numbers, text, lists and dictionaries, '
                    f'not of {type(value).__name__}')


def dense_array(x:Tensor)->np.ndarray:
    "The tensor as an array, with its lazy signs applied."
    x = x.detach().cpu().to_dense().resolve_conj().resolve_neg()
    if x.dtype == torch.bfloat16: x = x.float()   # npy has no bfloat16
    return x.numpy()


def decode(
    value:Any, # from `encode`
)->Any:
    "What `encode` was given; tuples and sets come back as lists, arrays as tensors."
    if isinstance(value, list): return [decode(v) for v in value]
    if not isinstance(value, dict): return value
    if 'npy' in value:
        file = io.BytesIO(base64.b64decode(value['npy']))
        return torch.from_numpy(np.array(np.load(file, allow_pickle=False)))
    if 'group' in value: return decode_group(value)
    return {as_key(decode(k)): decode(v) for k, v in value['dict']}


def decode_group(value:dict)->Group:
    "The group of a name and matrices, if its table, whose size is the square, is small enough."
    matrices = decode(value['group'])
    if len(matrices) > LARGEST_GROUP:
        raise ValueError(f'a group of {len(matrices)} elements, {LARGEST_GROUP} are the limit')
    return Group(str(value['name']), matrices)


def as_key(value:Any)->Any:
    "The value as the key of a dictionary: a list as a tuple."
    return tuple(map(as_key, value)) if isinstance(value, list) else value


def answer_cases(
    fn:Callable,
    call:str,                         # an expression of `fn` and `case`
    cases:list,                       # arguments
    names:dict[str, Any]=CALL_NAMES,  # what else the expression may use
)->list[dict]:
    """What a function answers to each case, as plain data: a value, an error, or 'unsolved'.

    Beside it 'nothing' if it returned None, and 'changed', the arguments that it changed.
    """
    answers = []
    for case in cases:
        before, notes = [as_found(x) for x in case], dict[str, Any]()
        space = {**names, 'fn': watched(fn, notes), 'case': case}
        try:
            answer = {'value': encode(eval(call, space))}
        except (Exception, SystemExit) as error:
            answer = {'error': f'{type(error).__name__}: {error}'[:500]}
            if is_a_stub_s(error): answer = {'unsolved': True}
        changed = [i for i, x in enumerate(case) if as_found(x) != before[i]]
        answers.append(answer | notes | ({'changed': changed} if changed else {}))
    return answers


def is_a_stub_s(error:BaseException)->bool:
    "Does an error say that nothing is written yet? Torch has the same kind for dtypes."
    of_torch = re.search('not implemented|support', str(error))
    return isinstance(error, NotImplementedError) and not of_torch


def watched(fn:Callable, notes:dict[str, Any])->Callable:
    "The function, which notes that it returned nothing."
    def run(*args:Any, **options:Any)->Any:
        result = fn(*args, **options)
        if result is None: notes['nothing'] = True
        return result
    return run


def as_found(x:Any)->Any:
    "An argument as plain data, to see whether it is changed; a group, which is not, by its name."
    return x.name if isinstance(x, Group) else encode(x)
