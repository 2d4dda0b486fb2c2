#!/usr/bin/env bash
# The built-in engine on one GPU beside PyTorch, in one command: start, every format, HBM, caches, patterns, planted
# faults, pulses, a clean burn-in. Changes no setting of the GPU.
#
#   OUT=results WHEELS=/path/to/wheels bash benchmarks/visit_stress.sh [options of stress_first.py]
#
# WHEELS  folder of wheels for a machine without an index (nvmath-python, msgspec, nvidia-ml-py); PyTorch, cuda-core,
#         cuda-bindings and NVRTC have to be there
set -u
cd "$(dirname "$0")/.."
OUT=$(realpath -m "${OUT:-gpuready-out-stress}")
PY=${PYTHON:-python3}
mkdir -p "$OUT"
SITE=$(mktemp -d)
if [ -n "${WHEELS:-}" ]; then
    "$PY" -m pip install -q --no-index --no-deps --no-compile --target "$SITE" "$WHEELS"/*.whl || exit 1
fi
export PYTHONPATH=$SITE:$PWD/src PYTHONUNBUFFERED=1
{
    uname -srvm; nproc; "$PY" --version
    nvidia-smi --query-gpu=name,driver_version,power.limit,temperature.gpu,ecc.errors.corrected.volatile.total --format=csv,noheader
    "$PY" -c 'import importlib.metadata as m
for n in ("torch", "cuda-core", "cuda-bindings", "nvmath-python", "numpy", "nvidia-cublas", "nvidia-cuda-nvrtc"):
    try: print(n, m.version(n))
    except m.PackageNotFoundError: print(n, "absent")'
} 2>&1 | tee "$OUT/machine.txt"
"$PY" benchmarks/stress_first.py "$OUT/stress.json" "$@" 2>"$OUT/stderr.txt" | tee "$OUT/table.txt"
tail -n 20 "$OUT/stderr.txt"
rm -rf "$SITE"
