"What trains and what measures: `eqtutor train`, its estimate, and the benchmarks of the papers."
# Plain module: edited by hand, no notebook exports it.
import pkgutil
from importlib import import_module

from eqtutor.experiments.registry import BENCHMARKS, Benchmark, benchmark

__all__ = ['BENCHMARKS', 'Benchmark', 'benchmark', 'load_benchmarks']


def load_benchmarks()->dict[str, Benchmark]:
    "All benchmarks: import every module of this package, each of which registers its own."
    for module in pkgutil.iter_modules(__path__): import_module(f'{__name__}.{module.name}')
    return BENCHMARKS
