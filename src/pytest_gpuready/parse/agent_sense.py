"""Documents of the agent that contradict themselves: nobody picks the half of them that looks well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from pytest_gpuready.model.agent_doc import CopiesDoc, NodeDoc, NvmlDoc, WatchDoc, Wire

SLACK_S = 2.0
"""How much later than the last sample a phase may end: the sampler may be in the middle of a slow reading."""


def contradiction(document: Wire) -> str:
    """What in a document cannot be, "expected .., found .."; "" where nothing is wrong."""
    if isinstance(document, NodeDoc):
        return _twice("GPU address on the bus", (gpu.bdf.lower() for gpu in document.gpus))
    if isinstance(document, NvmlDoc):
        return _nvml(document)
    if isinstance(document, CopiesDoc):
        twice = _twice("kind of copy", (copy.kind for copy in document.copies))
        return twice or (_watch(document.watch) if document.watch else "")
    return ""


def _nvml(document: NvmlDoc) -> str:
    for gpu in document.gpus:
        twice = _twice(f"NVLink of GPU {gpu.index}", (str(link.link) for link in gpu.nvlinks))
        if twice:
            return twice
    if document.window_s <= 0 and any(gpu.nvlinks for gpu in document.gpus):
        return f"expected two readings of the NVLink counters some time apart, found {document.window_s:g} s"
    return _twice("GPU address in NVML", (gpu.bdf.lower() for gpu in document.gpus)) or _twice(
        "GPU UUID in NVML", (gpu.uuid for gpu in document.gpus if gpu.uuid)
    )


def _watch(watch: WatchDoc) -> str:
    if watch.period_s <= 0:
        return f"expected a period of the samples above 0 s, found {watch.period_s:g}"
    lengths = {name: len(column) for name, column in watch.samples.items()}
    if len({*lengths.values(), lengths.get("t", 0)}) > 1:
        return f"expected sample columns of equal length, found {min(lengths.values())} to {max(lengths.values())}"
    times = [t for t in watch.samples.get("t", []) if t is not None]
    if len(times) < lengths.get("t", 0) or any(b < a for a, b in pairwise((0.0, *times))):
        return "expected times of samples that ascend from 0, found others"
    for name, start, end in watch.phases:
        if not 0 <= start <= end:
            return (
                f"expected phase {name[:20]!r} to begin at 0 or later and to end after that, found {start:g} to {end:g}"
            )
        if times and end > times[-1] + SLACK_S and "sampler" not in watch.errors:
            return f"expected samples until phase {name[:20]!r} ends at {end:g} s, found the last at {times[-1]:g} s"
    return _twice("phase", (name for name, _, _ in watch.phases))


def _twice(what: str, names: Iterable[str]) -> str:
    again = [name for name, count in Counter(names).items() if count > 1]
    return f"expected every {what} once, found {again[0][:60]!r} more than once" if again else ""
