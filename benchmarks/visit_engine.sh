#!/usr/bin/env bash
# The table of the built-in engine on one GPU, in one command: products and HBM beside PyTorch in turns, start, board
# power beside gpu-burn, then levels 2 and 3 of pytest with their times. Changes no setting of the GPU.
#
#   OUT=results WHEELS=/path/to/wheels GPU_BURN=/path/to/its/source bash benchmarks/visit_engine.sh
#
# WHEELS    as in visit_stress.sh, with pytest and the other packages of this project
# GPU_BURN  folder with the source of gpu-burn; it is built with the CUDA toolkit of the machine; without it the power of
#           the engine stands alone
# SECONDS_EACH, ROUNDS  of a format and side (4, 2);  BURN_S  of each burn (25)
set -u
cd "$(dirname "$0")/.."
. benchmarks/visit_site.sh
ROUNDS=${ROUNDS:-2}; EACH=${SECONDS_EACH:-4}; BURN_S=${BURN_S:-25}

echo "== board power in turns: gpu-burn -tc, the engine's burn-in"
built=""
if [ -n "${GPU_BURN:-}" ]; then
    cp -r "$GPU_BURN" "$SITE/gpu-burn" && ( cd "$SITE/gpu-burn" && make -s COMPUTE="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)" ) >"$OUT/gpu-burn-build.txt" 2>&1 && built=1
    [ -n "$built" ] || { echo "gpu-burn was not built:"; tail -n 5 "$OUT/gpu-burn-build.txt"; }
fi
power() { # NAME: reads the board power every 100 ms until it is ended
    exec nvidia-smi --query-gpu=timestamp,power.draw.instant,clocks.sm,temperature.gpu --format=csv,noheader,nounits -lms 100 >"$OUT/power-$1.csv"
}
middle() { # NAME: median of the second half of the load, 2 s before its end left out
    "$PY" - "$OUT/power-$1.csv" "$1" <<'PYTHON'
import statistics, sys
rows = [line.split(",") for line in open(sys.argv[1]) if line.count(",") == 3]
watts = [float(row[1]) for row in rows]
loaded = [place for place, watt in enumerate(watts) if watt > 0.6 * max(watts)]
first, last = loaded[0], loaded[-1] - 20
half = rows[(first + last) // 2 : last]
print(f"{sys.argv[2]}: median {statistics.median(float(r[1]) for r in half):.1f} W, "
      f"{statistics.median(float(r[2]) for r in half):.0f} MHz, {half[-1][3].strip()} C, {len(half)} samples")
PYTHON
}
PLAN='{"phases":[{"kind":"burn","seconds":'$BURN_S'}]}'
for turn in 1 2; do
    if [ -n "$built" ]; then
        power "gpu-burn-$turn" & sampler=$!
        ( cd "$SITE/gpu-burn" && timeout 120 ./gpu_burn -tc "$BURN_S" ) 2>&1 | tr '\r' '\n' | tail -n 3
        sleep 0.5; kill $sampler; wait $sampler 2>/dev/null
        middle "gpu-burn-$turn"
    fi
    power "engine-$turn" & sampler=$!
    timeout 120 "$PY" -m pytest_gpuready.agent stress "$PLAN" >"$OUT/burn-$turn.json" 2>/dev/null
    kill $sampler; wait $sampler 2>/dev/null
    middle "engine-$turn"
done 2>&1 | tee "$OUT/power.txt"

echo "== levels"
if [ -n "${WHEELS:-}" ]; then # pytest finds the plug-in where it is installed
    PYTHONPATH=$SITE "$PY" -m pip install -q --no-index --no-deps --no-build-isolation --no-compile --target "$SITE" .
fi
for level in 2 3; do
    ( time timeout 280 "$PY" -m pytest --pyargs pytest_gpuready.suites -o addopts= -m "level$level" -q -p no:cacheprovider \
        --gpuready-out "$OUT/level$level" ) >"$OUT/level$level.txt" 2>&1
    grep -E "ACCEPTED|REJECTED|INCOMPLETE|missing|passed|ended after|^real|^time" "$OUT/level$level.txt"
    "$PY" - "$OUT/level$level/certificate.json" <<'PYTHON'
import json, sys
for one in json.load(open(sys.argv[1]))["evidence"]:
    print(f"  {one['duration_s']:7.2f} s  {one['command'][:60]}")
PYTHON
    rm -rf "$OUT/level$level"
done 2>&1 | tee "$OUT/levels.txt"

echo "== products and HBM in turns with PyTorch"
"$PY" benchmarks/stress_first.py "$OUT/stress.json" --steps start,gemm,hbm --seconds "$EACH" --rounds "$ROUNDS" 2>"$OUT/stderr.txt" | tee "$OUT/table.txt"
tail -n 5 "$OUT/stderr.txt"
