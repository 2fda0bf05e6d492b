"""Comparing answers: equal up to rounding, a list of numbers as the tensor of them."""
# Plain module: edited by hand, no notebook exports it.
from typing import Any

import torch
from torch import Tensor

from ..groups import Group


def as_numbers(value:Any)->Tensor|None:
    "A tensor of what consists of numbers; None for anything else."
    def listed(v:Any)->Any:
        if isinstance(v, Tensor): return v.tolist()
        return [listed(x) for x in v] if isinstance(v, list) else v
    if isinstance(value, Tensor):
        return value.to(torch.complex128 if value.is_complex() else torch.float64)
    try:
        return torch.tensor(listed(value), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def same_answer(
    answer:Any, # decoded
    right:Any,
)->bool:
    "Equal, up to rounding; a list of numbers equals the tensor of them."
    if isinstance(right, dict):
        same_keys = isinstance(answer, dict) and answer.keys() == right.keys()
        return same_keys and all(same_answer(answer[k], v) for k, v in right.items())
    a, r = as_numbers(answer), as_numbers(right)
    if r is None and isinstance(right, list):
        return isinstance(answer, list) and same_answers(answer, right)
    if isinstance(right, str): return isinstance(answer, str) and plainly(answer) == plainly(right)
    if r is None: return type(answer) is type(right) and answer == right
    if a is None or a.shape != r.shape: return False
    if a.is_complex() != r.is_complex():
        a, r = a.to(torch.complex128), r.to(torch.complex128)
    scale = r.abs().max() if r.numel() else 1.
    return bool(((a - r).abs() <= 1e-7 + 1e-5*scale).all())


def plainly(text:str)->str:
    "A text without what is no mistake in it: capitals, spaces, a full stop."
    return ' '.join(text.casefold().split()).rstrip('.')


def same_answers(
    answers:list, # one a case
    right:list,
)->bool:
    "Do all answers agree?"
    return len(answers) == len(right) and all(map(same_answer, answers, right))


def in_words(value:Any)->str:
    "A value in a few words."
    if isinstance(value, Tensor) and (value.numel() > 8 or value.dim() > 1):
        return f'a tensor {tuple(value.shape)}'
    if isinstance(value, Tensor) and value.is_floating_point() and value.dim():
        return f'[{", ".join(f"{x:.4g}" for x in value.tolist())}]'
    text = value.name if isinstance(value, Group) else str(value)
    if isinstance(value, Tensor): text = str(value.tolist())
    return text if len(text) < 160 else text[:150] + ' …'
