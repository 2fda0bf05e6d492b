"Benchmarks by name: what `eqtutor bench NAME` measures."
# Plain module: edited by hand, no notebook exports it.
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING: from eqtutor.experiments.protocol import Comparison

Benchmark = Callable[[], 'list[Comparison]']   # what is to be measured
BENCHMARKS:dict[str, Benchmark] = {}           # whole after `eqtutor.experiments.load_benchmarks()`


def benchmark(
    name:str, # as in `eqtutor bench NAME`
)->Callable[[Benchmark], Benchmark]:
    "Register a function without arguments that says what to measure; the protocol says how."
    def register(comparisons:Benchmark)->Benchmark:
        BENCHMARKS[name] = comparisons
        return comparisons
    return register
