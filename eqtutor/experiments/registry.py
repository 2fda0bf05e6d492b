"Benchmarks by name: what `eqtutor bench NAME` runs."
# Plain module: edited by hand, no notebook exports it.
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING: from eqtutor.cost import CostRow

Tables = list[tuple[str, 'list[CostRow]']]   # titles and tables
Benchmark = Callable[[], Tables]
BENCHMARKS:dict[str, Benchmark] = {}         # whole after `eqtutor.experiments.load_benchmarks()`


def benchmark(
    name:str, # as in `eqtutor bench NAME`
)->Callable[[Benchmark], Benchmark]:
    "Register a function without arguments that measures and returns titled tables."
    def register(measure:Benchmark)->Benchmark:
        BENCHMARKS[name] = measure
        return measure
    return register
