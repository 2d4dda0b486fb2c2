"""One rank, a process of its own: `python -m pytest_gpuready.agent.collectives.rank BDF`.

Lines of JSON in on stdin and out on what was stdout when it started; whatever a library prints goes to stderr:

    in  {"work": RankWork}       out {"here": {"bdf", "name", "pid", "nccl_version", "packages", "start_s", "id"}}
    in  {"join": id}             out {"joined": {"init_s", "free_bytes"}}
    in  {"largest": bytes}       out {"allocated": bytes}
    in  {"step": Step}           out {"said": number, "stage": word} ... {"done": number, "result": StepResult}
    in  {"stop": true}, or the end of stdin: it leaves the communicator and exits

Whatever goes wrong is {"problem": one line}, with "waits": true where it waits for the others, and the end of this
process with exit code 1: a communicator of which one call failed is not used any further. A rank that hangs is killed
by the crew; the kernel does it when the crew is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pytest_gpuready.agent.stress import early
from pytest_gpuready.agent.stress.orders import Orders, Out, numbers, process_age_s

PACKAGES = (
    *("nccl4py", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "cuda-core", "cuda-bindings"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
)
ID_BYTES = 128


class Engine:
    """A GPU, opened, with NCCL; later a rank of a communicator."""

    def __init__(self, bdf: str, work: Any, say: Callable[[str], None]) -> None:
        from pytest_gpuready.agent.collectives import kernels, nccl  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.cuda_driver import load  # noqa: PLC0415 - see `main`
        from pytest_gpuready.agent.stress.device import Gpu  # noqa: PLC0415 - see `main`

        self._work, self._say = work, say
        cuda = load()
        for name in ("cuda.core", "nccl.bindings.nccl"):  # before there are threads that compile
            with contextlib.suppress(ImportError):  # said by whoever needs it
                importlib.import_module(name)
        self._gpu = Gpu(cuda, bdf)
        if work.check:
            self._gpu.prepare(kernels.source(work.datatype))
        self._gpu.open()
        self._nccl = nccl.load()
        self._comm: Any = None
        self._sweep: Any = None

    def here(self) -> dict[str, Any]:
        """Who it is; the unique id where it makes that."""
        packages = {}
        for name in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                packages[name] = importlib.metadata.version(name)
        return {
            "bdf": self._gpu.bdf,
            "name": self._gpu.name,
            "nccl_version": self._nccl.version,
            "packages": packages,
            "id": self._nccl.unique_id().hex() if self._work.makes_id else "",
        }

    def join(self, unique_id: bytes) -> int:
        """Wait for all the others in the communicator. Returns the bytes of memory that are free then."""
        from pytest_gpuready.agent.collectives.sweep import Sweep  # noqa: PLC0415 - see `main`

        work = self._work
        self._comm = self._nccl.join(work.nranks, work.rank, unique_id, self._gpu.stream, work.datatype)
        self._sweep = Sweep(self._gpu, self._comm, work, self._say)
        return int(self._gpu.free_bytes())

    def allocate(self, largest_bytes: int) -> None:
        self._sweep.allocate(largest_bytes)

    def run(self, step: Any) -> Any:
        return self._sweep.run(step)

    def leave(self) -> None:
        if self._comm is not None:
            self._comm.leave()


def serve(bdf: str, orders: Orders, out: Out, engine: Callable[..., Any] = Engine) -> int:
    """Follow the orders until they end. 0, or 1 where something went wrong, said in one line."""
    try:
        follow(bdf, orders, out, engine)
    except Exception as error:  # a broken installation has many faces; the crew wants one line
        out.say(_told(error))
        return 1
    return 0


def follow(bdf: str, orders: Orders, out: Out, engine: Callable[..., Any]) -> None:
    """Do what the lines say until there is none.

    Raises: whatever went wrong.
    """
    first = orders.lines.get()
    if first is None:
        return
    import msgspec  # noqa: PLC0415 - see `main`

    from pytest_gpuready.model.collectives_doc import RankWork, Step  # noqa: PLC0415 - see `main`

    at = -1

    def stage(word: str) -> None:
        out.say({"said": at, "stage": word})

    driving = engine(bdf, msgspec.convert(first.get("work"), RankWork), stage)
    out.say({"here": {**driving.here(), "pid": os.getpid(), "start_s": process_age_s()}})
    while (line := orders.lines.get()) is not None:
        if "join" in line:
            begun = time.monotonic()
            free = driving.join(bytes.fromhex(line["join"]))
            out.say({"joined": {"init_s": round(time.monotonic() - begun, 4), "free_bytes": free}})
        elif "largest" in line:
            driving.allocate(int(line["largest"]))
            out.say({"allocated": line["largest"]})
        else:
            step = msgspec.convert(line.get("step"), Step)
            at = step.number
            told, left_out = numbers(msgspec.to_builtins(driving.run(step)))
            if left_out:
                raise ValueError("times that are infinite or none")
            out.say({"done": at, "result": told})
    driving.leave()


def _told(error: Exception) -> dict[str, Any]:
    """What went wrong in one line, and whether this rank waits for something that does not come."""
    from pytest_gpuready.errors import ToolError  # noqa: PLC0415 - see `main`

    said = " ".join(str(error).split())
    if isinstance(error, ToolError):
        return {"problem": said, "waits": type(error).__name__ == "WaitingError"}
    return {"problem": f"expected a result, found {type(error).__name__}: {said[:200]}"}


def main(argv: Sequence[str]) -> int:
    """0: followed its orders to the end; 1: something went wrong, said so; 2: called wrongly.

    Everything but the standard library is imported after CUDA has begun to start.
    """
    if len(argv) != 1:
        print("gpuready collectives rank: expected one bus address", file=sys.stderr)
        return 2
    threading.Thread(target=early.cuda, args=(argv[0],), daemon=True).start()
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(real, "wb") as stream:
        code = serve(argv[0], Orders(sys.stdin.buffer, lambda: os._exit(3)), Out(stream))
    sys.stderr.flush()
    os._exit(code)  # a context that hangs would keep the interpreter from ending


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
