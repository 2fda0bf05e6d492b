#!/usr/bin/env bash
# A GPU day in a box: on a machine with CUDA the tests, benchmarks and trainings that need one.
# Call it again until it no longer ends with 75; `tools/gpu_day.sh --help` says more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
command -v "$python" >/dev/null || python=python3
exec "$python" "$root/tools/gpu_day.py" "$@"
