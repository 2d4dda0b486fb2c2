# Sourced by the visits to a GPU machine: OUT, a folder with the wheels of WHEELS, and what machine it is (machine.txt).
# Expects the root of the repository as the working directory.
OUT=$(realpath -m "${OUT:-gpuready-out-stress}")
PY=${PYTHON:-python3}
mkdir -p "$OUT"
SITE=$(mktemp -d)
trap 'rm -rf "$SITE"' EXIT
if [ -n "${WHEELS:-}" ]; then
    "$PY" -m pip install -q --no-index --no-deps --no-compile --target "$SITE" "$WHEELS"/*.whl || exit 1
fi
export PYTHONPATH=$SITE:$PWD/src PYTHONUNBUFFERED=1
{
    uname -srvm; nproc; "$PY" --version
    nvidia-smi --query-gpu=name,driver_version,power.limit,temperature.gpu,ecc.errors.corrected.volatile.total --format=csv,noheader
    "$PY" -c 'import importlib.metadata as m
for n in ("torch", "cuda-core", "cuda-bindings", "nvmath-python", "numpy", "nvidia-cublas", "nvidia-cuda-nvrtc", "nccl4py", "nvidia-nccl-cu12", "nvidia-nccl-cu13"):
    try: print(n, m.version(n))
    except m.PackageNotFoundError: print(n, "absent")'
} 2>&1 | tee "$OUT/machine.txt"
