"""gpu-burn output -> what it says of each GPU at the end, and what its progress lines say before.

The exit code is 0 even for a FAULTY GPU, so the last lines decide. A GPU whose process died is still printed as OK;
the progress line tells (`DIED!`, or nothing processed).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

GPUS_AT_MOST = 1024
_PROGRESS = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)%\s+proc'd: (.+?)\s+errors: (.+?)\s+temps: (.+?)\s*$")
_DONE = re.compile(r"(-?\d+) \((-?\d+|-?nan|inf) Gflop/s\)")
_ERRORS = re.compile(r"(-?\d+)\s*(\(DIED!\)|\(WARNING!\))?")
_TEMPERATURE = re.compile(r"(\d+) C|--")
_TESTED = re.compile(r"\s*Tested (\d{1,4}) GPUs:\s*$")
_VERDICT = re.compile(r"\s*GPU (\d{1,4}): (OK|FAULTY)\s*$")
_FOR = re.compile(r"Burning for (\d{1,9}) seconds")
_NAMED = re.compile(r"GPU (\d{1,4}): (.+?) \(UUID: \S+\)\s*$")
_FATAL = (
    "No clients are alive",
    "Couldn't init",
    "Failure during compute",
    "No CUDA devices",
    "Could not find compare",
)


@dataclass(slots=True)
class Gpu:
    """One GPU: its verdict ("" where the end is missing), and the worst of its progress lines."""

    verdict: str = ""
    processed: int = 0
    errors: int = 0
    died: bool = False
    gflops: float | None = None
    hottest_celsius: int | None = None


@dataclass(slots=True)
class Burn:
    """A burn. `tested` is the number that the end names, None where the end is missing."""

    gpus: dict[int, Gpu]
    tested: int | None = None
    seconds: int | None = None
    percent: float | None = None
    messages: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def gpu_burn(lines: Iterable[str]) -> Burn:
    """Read a burn, line by line (carriage returns end lines).

    Raises:
        ParseError: nothing of gpu-burn is in it.
    """
    burn = Burn(gpus={})
    messages: list[str] = []
    models: list[str] = []
    twice = False
    for line in lines:
        if found := _PROGRESS.match(line):
            _progress(burn, found)
        elif found := _VERDICT.match(line):
            if burn.tested is not None and int(found[1]) < GPUS_AT_MOST:
                gpu = burn.gpus.setdefault(int(found[1]), Gpu())
                gpu.verdict = "FAULTY" if "FAULTY" in (gpu.verdict, found[2]) else found[2]
        elif found := _TESTED.match(line):
            twice = twice or burn.tested is not None
            burn.tested = int(found[1])
        elif found := _FOR.search(line):
            burn.seconds = int(found[1])
        elif found := _NAMED.match(line):
            if len(models) < GPUS_AT_MOST:
                models.append(found[2])
        elif any(word in line for word in _FATAL) and len(messages) < 50:
            messages.append(line.strip()[:300])
    if twice:
        raise ParseError("gpu-burn: expected one burn, found two ends in one text; audit them apart")
    if not burn.gpus and burn.tested is None and burn.seconds is None and not messages:
        raise ParseError("gpu-burn: expected progress or 'Tested N GPUs:', found neither; name the tool with --tool")
    burn.messages, burn.models = tuple(messages), tuple(models)
    return burn


def _progress(burn: Burn, found: re.Match[str]) -> None:
    done, errors = _DONE.findall(found[2]), _ERRORS.findall(found[3])
    if not done or len(done) != len(errors) or len(done) > GPUS_AT_MOST:
        return
    burn.percent = max(burn.percent or 0.0, float(found[1]))
    temperatures = [match[1] for match in _TEMPERATURE.finditer(found[4])]
    for index, ((processed, gflops), (wrong, note)) in enumerate(zip(done, errors, strict=True)):
        gpu = burn.gpus.setdefault(index, Gpu())
        gpu.processed = max(gpu.processed, int(processed[:18]))
        gpu.errors = max(gpu.errors, int(wrong[:18]))
        gpu.died = gpu.died or "DIED" in note or int(processed[:18]) < 0
        if gflops.lstrip("-").isdecimal():
            gpu.gflops = float(gflops[:18])
        if index < len(temperatures) and temperatures[index]:
            gpu.hottest_celsius = max(gpu.hottest_celsius or 0, int(temperatures[index][:6]))
