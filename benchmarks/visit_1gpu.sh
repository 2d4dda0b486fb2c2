#!/usr/bin/env bash
# One visit to a machine with one GPU (or a few), in one command: environment, raw documents of the agent, copies against
# nvbandwidth in turns, `make accept`, time of level 1, tests on the GPU. Changes no setting of the GPU.
#
#   OUT=results NVBANDWIDTH=/path/to/nvbandwidth WHEELS=/path/to/wheels bash benchmarks/visit_1gpu.sh
#
# NVBANDWIDTH  binary of nvbandwidth 0.8; without it the comparison is left out and the last line says so
# WHEELS       folder of wheels for a machine without an index; pip then looks nowhere else
# ROUNDS       how often both take turns (3);  ACCEPT=0 leaves out `make accept`, level 1 and the tests on the GPU
# PYTHON       interpreter without `make accept`; it needs msgspec, nvidia-ml-py and cuda-bindings
set -u
cd "$(dirname "$0")/.."
OUT=$(realpath -m "${OUT:-gpuready-out-visit}")
ROUNDS=${ROUNDS:-3}
ACCEPT=${ACCEPT:-1}
PY=${PYTHON:-python3}
left_out=""
mkdir -p "$OUT"
if [ -n "${WHEELS:-}" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=$(realpath "$WHEELS"); fi
seconds() { # NAME COMMAND..: runs it, notes wall seconds and exit code in seconds.txt
    local name=$1 start end code; shift
    start=$(date +%s.%N); "$@"; code=$?; end=$(date +%s.%N)
    awk -v n="$name" -v a="$start" -v b="$end" -v c="$code" 'BEGIN { printf "%-28s %7.2f s  exit %d\n", n, b - a, c }' >>"$OUT/seconds.txt"
    return "$code"
}

echo "== environment"
{
    uname -srvm; nproc; grep MemTotal /proc/meminfo; "$PY" --version
    nvidia-smi --query-gpu=name,driver_version,pci.bus_id,vbios_version,power.limit --format=csv,noheader
    env | grep -E '^(NCCL|CUDA)_' | sort
    grep -m1 'model name' /proc/cpuinfo
} 2>&1 | tee "$OUT/machine.txt"
BDF=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | head -n 1 | tr 'A-Z' 'a-z' | sed 's/^0000\(....:\)/\1/')

if [ "$ACCEPT" = 1 ]; then
    echo "== make accept"
    seconds "make accept, first" make accept ARGS="--gpuready-record $OUT/recording" >"$OUT/accept.txt" 2>&1
    tail -n 60 "$OUT/accept.txt"
    seconds "make accept, again" make accept >"$OUT/accept-again.txt" 2>&1
    cp -r gpuready-out "$OUT/gpuready-out"
    PY=$PWD/.venv/bin/python
    echo "== level 1"
    for n in 1 2 3; do
        seconds "pytest -m level1, $n" "$PY" -m pytest --pyargs pytest_gpuready.suites -m level1 -o addopts= -q \
            -p no:cacheprovider --gpuready-out "$OUT/level1-$n" >"$OUT/level1-$n.txt" 2>&1
    done
    tail -n 25 "$OUT/level1-3.txt"
else
    left_out="$left_out; make accept, level 1 and tests on the GPU (ACCEPT=0)"
    export PYTHONPATH=$PWD/src
fi

echo "== agent"
for probe in node nvml; do
    for n in 1 2 3; do seconds "agent $probe, $n" "$PY" -m pytest_gpuready.agent "$probe" >"$OUT/$probe.json"; done
done
grep "^agent" "$OUT/seconds.txt"

echo "== copies and nvbandwidth in turns"
mine() { seconds "agent copies, $1" "$PY" -m pytest_gpuready.agent copies "$BDF" >"$OUT/copies-$1.json"; }
nvidias() {
    [ -x "${NVBANDWIDTH:-}" ] || return 0
    seconds "nvbandwidth, $1" "$NVBANDWIDTH" -j -t host_to_device_memcpy_ce device_to_host_memcpy_ce \
        host_to_device_bidirectional_memcpy_ce device_to_host_bidirectional_memcpy_ce >"$OUT/nvbandwidth-$1.json"
}
for n in $(seq "$ROUNDS"); do # who goes first changes, so that warming up favours nobody
    if [ $((n % 2)) = 1 ]; then mine "$n"; nvidias "$n"; else nvidias "$n"; mine "$n"; fi
done
ALL=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr 'A-Z' 'a-z' | sed 's/^0000\(....:\)/\1/')
if [ "$(echo "$ALL" | wc -l)" -gt 1 ]; then
    # shellcheck disable=SC2086  # one word per GPU is meant
    seconds "agent copies-together" "$PY" -m pytest_gpuready.agent copies-together $ALL >"$OUT/copies-together.json"
    cut -c1-300 "$OUT/copies-together.json"
    [ -x "${NVBANDWIDTH:-}" ] && "$NVBANDWIDTH" -j -t host_to_all_memcpy_ce >"$OUT/nvbandwidth-all.json"
    grep -A 12 bandwidth_matrix "$OUT/nvbandwidth-all.json"
fi
if [ -x "${NVBANDWIDTH:-}" ]; then "$PY" benchmarks/copies_against_nvbandwidth.py "$OUT" 2>&1 | tee "$OUT/comparison.txt"; else left_out="$left_out; comparison (no NVBANDWIDTH)"; fi

if [ "$ACCEPT" = 1 ]; then
    echo "== tests on the GPU"
    # Two processes: one that copied keeps the GPU, and a run beside it finds a foreign process there, rightly.
    for part in run copies; do
        "$PY" -m pytest "tests/gpu/test_${part}_on_gpu.py" -q -o addopts= -p no:cacheprovider 2>&1 |
            tee "$OUT/tests-gpu-$part.txt" | tail -n 25
    done
fi
echo "== seconds"
cat "$OUT/seconds.txt"
echo "left out${left_out:-: nothing}"
