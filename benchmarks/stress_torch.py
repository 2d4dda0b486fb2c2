"""PyTorch's side of `stress_first.py`: the same products and copies, timed the same way. Lines of JSON in and out."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from pytest_gpuready.agent.stress import figures
from pytest_gpuready.agent.stress.flow import keep_busy


class TorchGpu:
    """Events as `keep_busy` wants them."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, event: Any) -> bool:
        return bool(event.query())

    def seconds_between(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) / 1e3

    def forget(self, event: Any) -> None:
        pass


class Beat:
    """Nobody stops, nobody listens."""

    stopped = False
    dismissed = False
    process_s = 0.0

    def start(self) -> float:
        return 0.0

    def say(self, **numbers: object) -> None:
        pass

    def knows_enough(self) -> None:
        pass


def product(name: str, shape: list[int]) -> Any:
    """A function that queues one product, on data of the same kind as the engine's."""
    m, n, k = shape
    gpu = "cuda"
    if name == "int8":
        a = torch.randint(-128, 128, (m, k), device=gpu, dtype=torch.int8)
        b = torch.randint(-128, 128, (n, k), device=gpu, dtype=torch.int8).t()
        return lambda: torch._int_mm(a, b)
    if name.startswith("fp8"):
        kind = torch.float8_e5m2 if name == "fp8_e5m2" else torch.float8_e4m3fn
        a = torch.randn(m, k, device=gpu).to(kind)
        b = torch.randn(n, k, device=gpu).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=gpu)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64, "tf32": torch.float32}[name]
    a, b = torch.randn(m, k, device=gpu, dtype=kind), torch.randn(n, k, device=gpu, dtype=kind)
    if name == "tf32":
        for one in (a, b):
            bits = one.view(torch.int32)
            bits.add_(0x1000).bitwise_and_(~0x1FFF)
    b, c = b.t(), torch.empty(m, n, device=gpu, dtype=kind)
    return lambda: torch.mm(a, b, out=c)


def gemm(name: str, shape: list[int], seconds: float) -> dict[str, Any]:
    once = product(name, shape)
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    gpu = TorchGpu()
    first = gpu.mark()
    for _ in range(3):
        once()
    last = gpu.mark()
    torch.cuda.synchronize()
    pass_s = gpu.seconds_between(first, last) / 3
    time.sleep(0.3)
    flow = keep_busy(gpu, lambda _: once(), seconds=seconds, pass_s=pass_s, beat=Beat())
    flop = 2.0 * shape[0] * shape[1] * shape[2]
    rates = [rate / 1e12 for rate in flow.windows(flop)]
    return {
        "burst_tflops": flow.burst(flop) / 1e12,
        "sustained_tflops": figures.sustained(rates),
        "tflops": rates,
        "passes": flow.passes,
    }


def hbm(kernel: str, size: int, repeats: int) -> dict[str, Any]:
    a = torch.zeros(size // 4, device="cuda")
    b = torch.zeros(size // 4, device="cuda") if kernel == "copy" else a
    work = {"copy": lambda: b.copy_(a), "write": lambda: a.fill_(1.0), "read": a.sum}[kernel]
    gpu, rates = TorchGpu(), []
    for _ in range(5):
        work()
    for _ in range(repeats):
        first = gpu.mark()
        for _ in range(30):
            work()
        last = gpu.mark()
        torch.cuda.synchronize()
        rates.append(size * (2 if kernel == "copy" else 1) * 30 / gpu.seconds_between(first, last) / 1e9)
    return {"gb_per_s": rates}


def main() -> int:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.zeros(1, device="cuda")
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for text in sys.stdin:
        asked = json.loads(text)
        try:
            if "gemm" in asked:
                answer = gemm(asked["gemm"], asked["shape"], asked["seconds"])
            else:
                answer = hbm(asked["hbm"], asked["size"], asked["repeats"])
        except RuntimeError as error:
            answer = {"problem": " ".join(str(error).split())[:200]}
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
