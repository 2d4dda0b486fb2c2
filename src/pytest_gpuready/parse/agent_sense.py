"""Documents of the agent that contradict themselves: nobody picks the half of them that looks well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pytest_gpuready.model.agent_doc import AfterDoc, AroundDoc, CopiesDoc, NodeDoc, NvmlDoc, WatchDoc, Wire

SLACK_S = 2.0
"""How much later than a period behind the last sample a phase may end: a reading may be slow."""


def contradiction(document: Wire) -> str:
    """What in a document cannot be, "expected .., found .."; "" where nothing is wrong."""
    if isinstance(document, NodeDoc):
        return _twice("GPU address on the bus", (gpu.bdf.lower() for gpu in document.gpus))
    if isinstance(document, NvmlDoc):
        return _nvml(document)
    if isinstance(document, AfterDoc):
        return _nvml(document.nvml) or _twice("GPU address on the bus", (gpu.bdf.lower() for gpu in document.bus))
    if isinstance(document, CopiesDoc):
        twice = _twice("kind of copy", (copy.kind for copy in document.copies))
        return twice or (_watch(document.watch) if document.watch else "")
    if isinstance(document, AroundDoc):
        return _around(document)
    return ""


def around_contradiction(document: AroundDoc, command: Sequence[str], *, late: bool) -> str:
    """What a document of "around" cannot be, given the command that it answers and whether it came too late."""
    at = command.index("--") if "--" in command else len(command)
    behind, gpus = list(command[at + 1 :]), command[at - 1].split(",")
    if document.argv != behind:
        return f"expected the output of {' '.join(behind)[:60]!r}, found that of {' '.join(document.argv)[:60]!r}"
    if late and not document.ended_early:
        return "expected a tool that was ended early, as the deadline has passed, found one that ended by itself"
    others = [bdf for bdf in document.watch if bdf not in gpus]
    if others:
        return f"expected a watch over {', '.join(gpus)[:60]}, found one over {others[0][:40]!r}"
    if gpus != ["-"] and set(gpus) > set(document.watch) and not (document.watch_problem or document.problem):
        return f"expected a watch over {len(gpus)} GPUs, found {len(document.watch)} and no reason"
    return ""


def _around(document: AroundDoc) -> str:
    if (document.exit_code is None) != bool(document.problem):
        return f"expected an exit code or a problem, found {'neither' if document.exit_code is None else 'both'}"
    if document.exit_code is not None and not 0 <= document.exit_code <= 255:
        return f"expected an exit code from 0 to 255, found {document.exit_code}"
    if document.seconds < 0:
        return f"expected a run of 0 s or more, found {document.seconds:g} s"
    return next((wrong for watch in document.watch.values() if (wrong := _watch(watch))), "")


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
        if times and end > times[-1] + SLACK_S + watch.period_s and "sampler" not in watch.errors:
            return f"expected samples until phase {name[:20]!r} ends at {end:g} s, found the last at {times[-1]:g} s"
    return _twice("phase", (name for name, _, _ in watch.phases))


def _twice(what: str, names: Iterable[str]) -> str:
    again = [name for name, count in Counter(names).items() if count > 1]
    return f"expected every {what} once, found {again[0][:60]!r} more than once" if again else ""
