"Benchmarks by name: what `eqtutor bench NAME` measures, a module a paper."
# Plain module: edited by hand, no notebook exports it.
from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..protocol import Comparison

__all__ = ['BENCHMARKS', 'Benchmark', 'benchmark', 'load_benchmarks']

Benchmark = Callable[[], 'list[Comparison]']   # what is to be measured
BENCHMARKS:dict[str, Benchmark] = {}           # whole after `load_benchmarks()`


def benchmark(
    name:str, # as in `eqtutor bench NAME`
)->Callable[[Benchmark], Benchmark]:
    "Register a function without arguments that says what to measure; the protocol says how."
    def register(comparisons:Benchmark)->Benchmark:
        BENCHMARKS[name] = comparisons
        return comparisons
    return register


def load_benchmarks()->dict[str, Benchmark]:
    "All benchmarks: import every module of this package, each of which registers its own."
    for module in pkgutil.iter_modules(__path__): import_module(f'{__name__}.{module.name}')
    return BENCHMARKS
