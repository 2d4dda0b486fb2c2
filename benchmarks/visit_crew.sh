#!/usr/bin/env bash
# The built-in engine as a node runs it: `python -m pytest_gpuready.agent stress PLAN` with its real workers, for the
# plans of levels 2 to 4. Prints the wall time of every command and what its document says; keeps each document.
# Then one worker on the first GPU with faults planted on purpose: each has to be found, with a control that was seen.
# Changes no setting of the GPU. Without PyTorch.
#
#   OUT=results WHEELS=/path/to/wheels bash benchmarks/visit_crew.sh [options of stress_crew.py]
#
# WHEELS  as in visit_stress.sh
set -u
cd "$(dirname "$0")/.."
. benchmarks/visit_site.sh
"$PY" benchmarks/stress_crew.py "$OUT/docs" "$@" 2>"$OUT/stderr.txt" | tee "$OUT/table.txt"
"$PY" benchmarks/stress_first.py "$OUT/planted.json" --steps planted 2>>"$OUT/stderr.txt" | tee "$OUT/planted.txt"
tail -n 20 "$OUT/stderr.txt"
