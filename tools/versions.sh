#!/usr/bin/env bash
# The quick tests at both ends of what is supported, each in a fresh environment; a row a run.
#
#   tools/versions.sh                    lowest and newest
#   tools/versions.sh lowest             one of them
#   tools/versions.sh here               the Python that is active, with what it has installed
#
# pip takes torch from where it is told to (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL): the processor's
# build, https://download.pytorch.org/whl/cpu, is the small one. Rows go into CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "$0")/.."

QUICK=(tests/test_groups.py tests/test_actions.py tests/test_equivariance.py tests/test_files.py
       tests/nn/test_convolution.py tests/nn/test_layers.py tests/nn/test_transforms.py
       tests/kernels/test_windows.py tests/train/test_checkpoint.py)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# one row: which end, the interpreter
row() {
    local versions said
    versions=$("$2" -c 'import platform, torch
print(platform.python_version(), "|", torch.__version__)')
    said=$(PYTHONPATH=$PWD OMP_NUM_THREADS=1 "$2" -m pytest -q -p no:cacheprovider \
           -o addopts=--import-mode=importlib "${QUICK[@]}" 2>&1 | tail -1) || failed=1
    echo "| $1 | $versions | $(date +%F) | ${said//=/} |"
}

# a fresh environment: which end, python, torch, torchvision
fresh() {
    if ! command -v "$2" >/dev/null; then
        echo "| $1 | ${2#python} | ${3:-newest} | $(date +%F) | not run: no $2 on the PATH |"
        return
    fi
    "$2" -m venv "$tmp/$1"
    "$tmp/$1/bin/pip" install --quiet "torch${3:+==$3}" "torchvision${4:+==$4}"
    "$tmp/$1/bin/pip" install --quiet -e . 'pytest>=8' 'pytest-timeout>=2.3' 'h5py>=3.8' 'psutil>=5.9'
    row "$1" "$tmp/$1/bin/python"
}

failed=0
for end in "${@:-lowest newest}"; do
    for one in $end; do
        case $one in
            lowest) fresh lowest python3.11 2.4.0 0.19.0 ;;
            newest) fresh newest python3.14 '' '' ;;
            here) row here python ;;
            *) echo "unknown: $one (lowest, newest or here)" >&2; exit 2 ;;
        esac
    done
done
exit "$failed"
