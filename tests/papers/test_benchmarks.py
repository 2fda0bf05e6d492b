"Benchmarks by name."
import subprocess
import sys

from eqtutor.papers.benchmarks import BENCHMARKS, benchmark, load_benchmarks


def test_benchmark_is_registered_under_its_name():
    @benchmark('nothing')
    def measure(): return [('an empty table', [])]
    assert BENCHMARKS.pop('nothing') is measure and measure() == [('an empty table', [])]


def test_loading_gives_the_register_itself():
    assert load_benchmarks() is BENCHMARKS


def test_importing_the_package_loads_nothing_heavy():
    code = ('import sys, eqtutor.papers; '
            'print([m for m in ("torch", "sklearn", "accelerate", "matplotlib") '
            'if m in sys.modules])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.strip() == '[]', done.stdout + done.stderr
