"""One process that drives one GPU: `python -m pytest_gpuready.agent.stress.worker BDF`.

It speaks the protocol of `model.stress_doc`: lines of JSON in on stdin and out on what was stdout when it started;
whatever a library prints goes to stderr. A phase is prepared as soon as it is told to begin, and its load begins at the
moment that was given. A fault of CUDA ends the phase as "failed" with CUDA's name of it; the phases after it are tried
all the same and fail by themselves where the context is broken.

The end of stdin, or "stop", ends the phase within a second. If this process then still has not ended some seconds later
(a driver that never returns), the thread that reads stdin ends it (`orders.HUNG_S`).

Starting is most of the time of a short test, so what does not wait for each other runs side by side: CUDA's own
initialisation and the loading of cuBLASLt in threads of their own, the imports, then the compilers.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuready.agent.stress import early
from pytest_gpuready.agent.stress.orders import Beat, Orders, Out, numbers, process_age_s

if TYPE_CHECKING:
    from pytest_gpuready.agent.cuda_driver import CudaError

PLACES = ("nvidia/cu*/lib/libcublasLt.so.*", "nvidia/cublas/lib/libcublasLt.so.*")
"""Where wheels put the library, below a folder of sys.path."""
PACKAGES = (
    *("cuda-core", "cuda-bindings", "nvmath-python", "numpy"),
    *("nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"),
)


def idle(seconds: float, beat: Beat) -> Any:
    """One phase of kind "idle"."""
    from pytest_gpuready.model.stress_doc import IdleResult  # noqa: PLC0415 - see `main`

    late_s = beat.start()
    begun = time.monotonic()
    while not beat.stopped and (left := seconds - (time.monotonic() - begun)) > 0:
        time.sleep(min(left, 0.05))
        beat.say()
    lasted = time.monotonic() - begun
    return IdleResult(seconds=lasted, late_s=late_s, cut=lasted < seconds)


class Engine:
    """A GPU, opened, with cuBLASLt; runs phases."""

    def __init__(self, bdf: str) -> None:
        from pytest_gpuready.agent.cuda_driver import load  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.stress.device import Gpu  # noqa: PLC0415 - see `main`

        cuda = load()
        for name in ("cuda.core", "nvmath.bindings.cublasLt"):  # before there are threads that compile
            with contextlib.suppress(ImportError):  # said by whoever needs it
                importlib.import_module(name)
        self.gpu = Gpu(cuda, bdf)
        self._cublas: Any = None
        self._lacking: CudaError | None = None
        """Why there is no cuBLASLt."""

    def prepare(self, phases: Sequence[Any]) -> None:
        """Begin to compile what the phases will need, in their order."""
        from pytest_gpuready.agent.stress import burn, check, kernels_latency, kernels_memory  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.stress.formats import FORMATS  # noqa: PLC0415 - see `main`

        memory = {
            "pattern": kernels_memory.patterns,
            "hbm": kernels_memory.bandwidth,
            "latency": kernels_latency.chains,
            "cache": kernels_memory.caches,
            "burn": kernels_memory.patterns,
        }
        for phase in phases:
            if phase.kind in ("gemm", "pulse", "burn"):
                names = phase.formats or ([phase.format or "bf16"] if phase.kind != "burn" else burn.MIX)
                for form in [FORMATS[name] for name in names if name in FORMATS]:
                    self.gpu.prepare(check.products_source(form))
                    self.gpu.prepare(check.reference_source(form))
            if phase.kind in memory:
                self.gpu.prepare(memory[phase.kind]())

    def open(self) -> None:
        from pytest_gpuready.agent.cuda_driver import CudaError  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.stress.cublas import Cublas  # noqa: PLC0415 - see `main`

        self.gpu.open()
        try:
            self._cublas = Cublas()
        except CudaError as error:  # memory and caches can be loaded without it
            self._lacking = error

    @property
    def _lt(self) -> Any:
        if self._lacking is not None:
            raise self._lacking
        return self._cublas

    def ready(self) -> dict[str, Any]:
        from pytest_gpuready.agent.stress.formats import supported  # noqa: PLC0415 - see `main`

        packages = {}
        for name in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                packages[name] = importlib.metadata.version(name)
        can, cannot = supported(self.gpu.compute)
        if self._lacking is None:
            packages["cublas"] = self._lt.version
        else:
            can, cannot = [], cannot | dict.fromkeys(can, str(self._lacking))
        return {
            "bdf": self.gpu.bdf,
            "name": self.gpu.name,
            "compute": ".".join(map(str, self.gpu.compute)),
            "sms": self.gpu.sms,
            "l2_bytes": self.gpu.l2_bytes,
            "memory_bytes": self.gpu.memory_bytes,
            "memory_gb_per_s": self.gpu.memory_gb_per_s,
            "free_bytes": self.gpu.free_bytes(),
            "packages": packages,
            "formats": can,
            "not_supported": cannot,
        }

    def run(self, phase: Any, work: Any, beat: Beat) -> Any:
        """The result of a phase, of the type that RESULTS has for its kind.

        Raises: CudaError.
        """
        from pytest_gpuready.agent.cuda_driver import CudaError  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.stress import (  # noqa: PLC0415 - see `main`
            bandwidth,
            burn,
            gemm,
            latency,
            memory,
            pulse,
        )

        kinds: dict[str, Callable[[], Any]] = {
            "idle": lambda: idle(phase.seconds, beat),
            "alloc": lambda: memory.alloc(self.gpu, phase, work.share, beat),
            "pattern": lambda: memory.pattern(self.gpu, phase, work.share, work.seed, beat),
            "hbm": lambda: bandwidth.hbm(self.gpu, phase, beat),
            "latency": lambda: latency.latency(self.gpu, phase, work.seed, beat),
            "cache": lambda: bandwidth.cache(self.gpu, phase, work.seed, beat),
            "gemm": lambda: gemm.gemm(self.gpu, self._lt, phase, work.seed, beat),
            "pulse": lambda: pulse.pulse(self.gpu, self._lt, phase, work.seed, beat, place=work.place),
            "burn": lambda: burn.burn(self.gpu, self._lt, phase, work.seed, beat),
        }
        if phase.kind not in kinds:
            raise CudaError(f"expected a phase among {', '.join(kinds)}, found {phase.kind[:40]!r}")
        return kinds[phase.kind]()


def begin_early(bdf: str) -> None:
    """Have CUDA and cuBLASLt initialised in threads while Python imports; whatever fails here is said later.

    Nothing is imported in these threads: CUDA's packages are not made to be imported by two threads at once.
    """

    def cublas() -> None:
        found = {path.resolve() for folder in sys.path for place in PLACES for path in Path(folder).glob(place)}
        if len(found) == 1:  # of two, the bindings know which one is theirs
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(found.pop()), ctypes.RTLD_GLOBAL)

    threading.Thread(target=early.cuda, args=(bdf,), daemon=True).start()
    threading.Thread(target=cublas, daemon=True).start()


def serve(
    bdf: str,
    orders: Orders,
    out: Out,
    engine: Callable[[str], Any] = Engine,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Follow the orders until they end. 0, or 1 where the GPU could not be opened or the work not be read."""
    from pytest_gpuready.agent.cuda_driver import CudaError  # noqa: PLC0415 - see `main`

    first = orders.lines.get()
    if first is None:
        return 0
    try:
        import msgspec  # noqa: PLC0415 - see `main`
    except ImportError as error:
        out.say({"problem": f"expected the package msgspec, found: {error}"})
        return 1
    try:
        from pytest_gpuready.model.stress_doc import Work  # noqa: PLC0415 - see `main`

        work = msgspec.convert(first.get("work"), Work)
        driving = engine(bdf)
        driving.prepare(work.phases)
        driving.open()
        ready = driving.ready()
    except msgspec.ValidationError as error:
        out.say({"problem": f"expected work, found {' '.join(str(error).split())[:200]}"})
        return 1
    except CudaError as error:
        out.say({"problem": str(error)})
        return 1
    except Exception as error:  # a broken installation has many faces; the crew wants one line
        out.say({"problem": _said("the start", error)})
        return 1
    out.say({"ready": {**ready, "start_s": process_age_s()}})
    while (line := orders.lines.get()) is not None:
        number, at = line.get("begin"), line.get("at")
        if not isinstance(number, int) or not 0 <= number < len(work.phases) or not isinstance(at, (int, float)):
            out.say({"failed": number, "problem": f"expected the beginning of a phase, found {str(line)[:80]}"})
            continue
        phase = work.phases[number]
        where = " ".join(filter(None, (phase.kind, phase.format, phase.kernel, phase.pattern, phase.level)))
        try:
            result = driving.run(phase, work, Beat(orders, out, number, at, clock))
            told, left_out = numbers(msgspec.to_builtins(result))
            if left_out:  # what was counted and found stands all the same
                told["notes"] = [*told.get("notes", []), f"{left_out} numbers were infinite or none, and left out"]
            out.say({"done": number, "result": told})
        except CudaError as error:
            out.say({"failed": number, "problem": f"{where}: {error}"})
        except Exception as error:  # one phase must not cost the others
            out.say({"failed": number, "problem": _said(where, error)})
    return 0


def _said(where: str, error: Exception) -> str:
    return f"{where}: expected a result, found {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def main(argv: Sequence[str]) -> int:
    """0: followed its orders to the end; 1: no GPU, said so; 2: called wrongly.

    Everything but the standard library is imported after the threads have begun.
    """
    if len(argv) != 1:
        print("gpuready stress worker: expected one bus address", file=sys.stderr)
        return 2
    begin_early(argv[0])
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(real, "wb") as stream:
        code = serve(argv[0], Orders(sys.stdin.buffer, lambda: os._exit(3)), Out(stream))
    sys.stderr.flush()
    os._exit(code)  # a context that hangs would keep the interpreter from ending


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
