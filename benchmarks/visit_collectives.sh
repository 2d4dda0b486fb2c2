#!/usr/bin/env bash
# The built-in sweep of collectives beside nccl-tests, on all GPUs of this machine, in turns: busbw at 1, 4 and 8 GiB and
# its ratio for each collective, latency at 8 B, wall times, what NCCL's log costs; then the tests on the GPU. Changes no
# setting of the GPU. NVLink multicast stays off unless NVLS=1.
#
#   OUT=results WHEELS=/path/to/wheels NCCL_TESTS=/path/to/its/source bash benchmarks/visit_collectives.sh
#
# WHEELS      as in visit_stress.sh, with nccl4py; without NCCL among them that of the machine is taken
# NCCL_TESTS  folder with the source of nccl-tests; it is built with the CUDA toolkit of the machine (NCCL_HOME names an
#             NCCL with headers where the system has none); without it our figures stand alone
# ROUNDS      how often both take turns (2);  TESTS=0 leaves out the tests on the GPU;  OPS  "all_reduce alltoall"
set -u
cd "$(dirname "$0")/.."
. benchmarks/visit_site.sh
ROUNDS=${ROUNDS:-2}
OPS=${OPS:-all_reduce all_gather reduce_scatter alltoall sendrecv}
left_out=""
if [ "${NVLS:-0}" = 1 ]; then
    SETTINGS='{}'
else
    export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
    SETTINGS='{"NCCL_NVLS_ENABLE":"0"}'
fi
N=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | wc -l)
# Both sides have the same NCCL: the one that our wheels brought, else that of the interpreter or the system.
if [ -d "$SITE/nvidia/nccl/lib" ]; then export LD_LIBRARY_PATH=$SITE/nvidia/nccl/lib:${LD_LIBRARY_PATH:-}; fi
LIBRARY=$("$PY" - <<'PYTHON'
from nccl.bindings import nccl
nccl.get_version()
print(nccl.get_library_path() or "")
PYTHON
)
[ -n "$LIBRARY" ] || { echo "expected nccl4py and libnccl for $PY, found none"; exit 1; }
export LD_LIBRARY_PATH=$(dirname "$LIBRARY"):${LD_LIBRARY_PATH:-}
echo "$N GPUs, $LIBRARY" | tee -a "$OUT/machine.txt"
nvidia-smi topo -m >"$OUT/topo.txt" 2>&1

echo "== nccl-tests"
built=""
if [ -n "${NCCL_TESTS:-}" ]; then
    HOME_OF=${NCCL_HOME:-$(dirname "$(dirname "$LIBRARY")")}
    if [ -z "${NCCL_HOME:-}" ] && [ ! -f "$HOME_OF/include/nccl.h" ]; then HOME_OF=/usr; fi
    # A wheel has only libnccl.so.2; the linker wants the name without number.
    mkdir -p "$SITE/nccl-home/lib" && ln -sf "$HOME_OF/include" "$SITE/nccl-home/include" && ln -sf "$LIBRARY" "$SITE/nccl-home/lib/libnccl.so"
    cp -r "$NCCL_TESTS" "$SITE/nccl-tests"
    CAP=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    ( cd "$SITE/nccl-tests" && make -j 8 NCCL_HOME="$SITE/nccl-home" CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}" \
        NVCC_GENCODE="-gencode=arch=compute_$CAP,code=sm_$CAP" ) >"$OUT/nccl-tests-build.txt" 2>&1 && built=1
    [ -n "$built" ] || { echo "nccl-tests was not built:"; tail -n 5 "$OUT/nccl-tests-build.txt"; left_out="$left_out; nccl-tests (not built)"; }
else
    left_out="$left_out; nccl-tests (no NCCL_TESTS)"
fi

plan() { # OP DEBUG: the plan of one collective, 8 B to 8 GiB
    "$PY" -c 'import json, sys
print(json.dumps({"ops": sys.argv[1].split(), "sizes_bytes": [2**at for at in range(3, 34)], "environment": json.loads(sys.argv[3]), "debug": sys.argv[2]}))' "$1" "$2" "$SETTINGS"
}
seconds() { # NAME COMMAND..: runs it, notes wall seconds and exit code in seconds.txt
    local name=$1 start end code; shift
    start=$(date +%s.%N); "$@"; code=$?; end=$(date +%s.%N)
    awk -v n="$name" -v a="$start" -v b="$end" -v c="$code" 'BEGIN { printf "%-40s %7.2f s  exit %d\n", n, b - a, c }' >>"$OUT/seconds.txt"
    return "$code"
}
DEBUG=INIT,NET,GRAPH,ENV,TUNING
ours() { seconds "sweep $4, $2" timeout 200 "$PY" -m pytest_gpuready.agent collectives "$(plan "$1" "$3")" >"$OUT/ours-$4-$2.json" 2>>"$OUT/stderr.txt"; }
theirs() {
    [ -n "$built" ] || return 0
    seconds "nccl-tests $1, $2" timeout 200 "$SITE/nccl-tests/build/$1_perf" -b 8 -e 8G -f 2 -g "$N" -n 20 -w 5 >"$OUT/theirs-$1-$2.txt" 2>&1
}
echo "== in turns"
for op in $OPS; do
    for n in $(seq "$ROUNDS"); do # who goes first changes, so that warming up favours nobody
        if [ $((n % 2)) = 1 ]; then ours "$op" "$n" "$DEBUG" "$op"; theirs "$op" "$n"; else theirs "$op" "$n"; ours "$op" "$n" "$DEBUG" "$op"; fi
    done
done
ours all_reduce 1 "" quiet
ours "$OPS" 1 "$DEBUG" whole
"$PY" benchmarks/collectives_against_nccl_tests.py "$OUT" 2>&1 | tee "$OUT/comparison.txt"
tail -n 5 "$OUT/stderr.txt" | cut -c1-200

if [ "${TESTS:-1}" = 1 ]; then
    echo "== tests on the GPU"
    "$PY" -m pytest tests/gpu/test_collectives.py -q -o addopts= -p no:cacheprovider 2>&1 | tee "$OUT/tests-gpu.txt" | tail -n 40
else
    left_out="$left_out; tests on the GPU (TESTS=0)"
fi
echo "== seconds"
cat "$OUT/seconds.txt"
echo "left out${left_out:-: nothing}"
