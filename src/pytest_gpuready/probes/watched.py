"""What the agent's watch saw -> the model's `Watch`, and which samples were taken under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_gpuready.model import Watch
from pytest_gpuready.model.agent_doc import LogLine, WatchDoc
from pytest_gpuready.parse.kernel_log import normal_bdf, sxids, xids
from pytest_gpuready.probes.kernel_events import name

SERIES = ("power_w", "sm_mhz", "temperature_c", "memory_temperature_c", "generation", "width")
FACTS = {
    "power_w": ("power", " W"),
    "sm_mhz": ("SM clock", " MHz"),
    "temperature_c": ("temperature", " C"),
    "memory_temperature_c": ("memory temperature", " C"),
}
"""Column -> label for people and unit."""

REASONS = {
    0x2: "application clocks setting",
    0x8: "HW slowdown",
    0x10: "sync boost",
    0x20: "SW thermal slowdown",
    0x40: "HW thermal slowdown",
    0x80: "HW power brake",
}
"""Clock event reasons that are worth a word; idle and the power cap are not."""


def under_load(doc: WatchDoc, column: str, kinds: Sequence[str], *, from_the_start: bool = False) -> list[float]:
    """Values of a column from samples that lie wholly inside the phases of these names.

    `t` is taken after the readings, so the first period of a phase is left out unless `from_the_start`: it may hold a
    reading from before. A column that is not there has no values.
    """
    skipped = 0.0 if from_the_start else doc.period_s
    spans = [(start + skipped, end) for name, start, end in doc.phases if name in kinds]
    times = doc.samples.get("t", [])
    return [
        value
        for t, value in zip(times, doc.samples.get(column) or [None] * len(times), strict=True)
        if t is not None and value is not None and any(start <= t <= end for start, end in spans)
    ]


def watch(docs: Sequence[WatchDoc], bdf: str, facts: dict[str, str]) -> Watch:
    """All runs of a measurement on one GPU in one `Watch`: alarms of every run, facts over all, series of the first.

    `facts` are further lines for people, put behind those of the samples.
    """
    numbers = [x.number for doc in docs for x in xids(doc.log) if x.hardware]
    times, series = gapless(docs[0].samples, SERIES) if docs else ((), {})
    return Watch(
        hardware_xids=tuple(numbers),
        log_alarms=tuple(dict.fromkeys(said for doc in docs for said in log_alarms(doc.log, bdf))),
        uncorrected_ecc=sum(max(0, _growth(doc, "ecc_uncorrected_volatile") or 0) for doc in docs),
        facts={**_facts(docs), **facts},
        times_s=times,
        series=series,
    )


def log_alarms(lines: Sequence[LogLine], bdf: str) -> list[str]:
    """Hardware Xids of any GPU and fatal SXids in these lines, each once and with whose it is.

    GPUs of a node share power, fabric and driver: what was measured while another one broke is not trusted either.
    """
    found = []
    for xid in xids(lines):
        if xid.hardware:
            found.append(name(xid) + (" (another GPU)" if xid.bdf not in (same_function(bdf), "") else ""))
    found += [f"fatal {name(event)}" for event in sxids(lines) if event.fatal]
    return list(dict.fromkeys(found))


def same_function(bdf: str) -> str:
    """The address as the kernel log names it: four-digit domain, function 0. "" for what is no address."""
    try:
        return normal_bdf(bdf.partition(".")[0])
    except ValueError:
        return ""


def _growth(doc: WatchDoc, name: str) -> int | None:
    if name not in doc.before or name not in doc.after:
        return None
    return doc.after[name] - doc.before[name]


def _facts(docs: Sequence[WatchDoc]) -> dict[str, str]:
    said: dict[str, str] = {}
    for column, (label, unit) in FACTS.items():
        values = [v for doc in docs for v in doc.samples.get(column, []) if v is not None]
        if values:
            low, high = round(min(values)), round(max(values))
            said[label] = f"{low}{unit}" if low == high else f"{low}-{high}{unit}"
    bits = 0
    for doc in docs:
        for value in doc.samples.get("reasons", []):
            bits |= int(value or 0)
    slowed = [word for bit, word in REASONS.items() if bits & bit]
    if slowed:
        said["clock event reasons"] = ", ".join(slowed)
    if any(_growth(doc, "ecc_uncorrected_volatile") is None for doc in docs):
        why = next((doc.errors.get("ecc_uncorrected_volatile", "") for doc in docs), "")
        said["uncorrected ECC"] = f"not read ({why or 'no counter'})"
    unread = next((doc.log_problem for doc in docs if doc.log_problem), "")
    if unread:
        said["kernel log"] = f"not read: {unread}"
    return said


def gapless(
    samples: Mapping[str, Sequence[float | None]], wanted: Sequence[str]
) -> tuple[tuple[float, ...], dict[str, tuple[float, ...]]]:
    """Times and those of the wanted columns that were read: rows with a hole are left out, never filled."""
    names = [name for name in wanted if any(value is not None for value in samples.get(name, []))]
    rows = [
        row for row in zip(samples.get("t", []), *(samples[name] for name in names), strict=False) if None not in row
    ]
    return (
        tuple(float(row[0] or 0.0) for row in rows),
        {name: tuple(float(row[at + 1] or 0.0) for row in rows) for at, name in enumerate(names)},
    )
