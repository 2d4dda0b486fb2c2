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
. benchmarks/visit_site.sh
"$PY" benchmarks/stress_first.py "$OUT/stress.json" "$@" 2>"$OUT/stderr.txt" | tee "$OUT/table.txt"
tail -n 20 "$OUT/stderr.txt"
