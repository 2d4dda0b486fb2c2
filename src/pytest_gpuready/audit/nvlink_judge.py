"""NVLink lines of nvidia-smi, held against expectations and against the other GPUs of the same output.

The number of active links decides, never the sum of the rates: a healthy link of an H100 reads 26.562 GB/s, of an A100
25.781, and sixteen of eighteen still look like much. A link that is not listed at all is not active either, but where
the last GPU of the text has too few lines the text may have been cut there, and that is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.nvlink import NvlinkGpu

OWN = "the tool's own verdict"
_LISTED_AT_MOST = 40


def nvlink_findings(gpus: Sequence[NvlinkGpu], expect: Expectations) -> Iterator[Finding]:
    """Status, rates, counters and contradictions of every GPU."""
    status = [gpu for gpu in gpus if gpu.rates or gpu.said]
    for gpu in gpus:
        for text in gpu.wrong:
            yield Finding(metric="nvlink.readable", outcome="not-measured", part=gpu.part, value=text)
    if status:
        bare = [
            gpu for gpu in gpus if gpu not in status and not gpu.counters and not gpu.capabilities and not gpu.remote
        ]
        for gpu in bare:
            yield Finding(
                metric="nvlink.status", outcome="not-measured", part=gpu.part, suspect="no link of it is in the text"
            )
        for gpu in status:
            yield from _status(gpu, status, expect)
            yield from _rates(gpu)
    yield from _errors(gpus, expect)
    for gpu in gpus:
        if gpu.cannot:
            p2p = sorted(link for link, names in gpu.cannot.items() if any(n.startswith("P2P") for n in names))
            if p2p:
                yield Finding(
                    metric="nvlink.p2p", outcome="observed", part=gpu.part, value=[str(n) for n in p2p],
                    advice="these links do not offer P2P",
                )  # fmt: skip
        if gpu.remote:
            yield Finding(metric="nvlink.remote", outcome="observed", part=gpu.part, value=sorted(set(_devices(gpu))))


def has_status(gpus: Sequence[NvlinkGpu]) -> bool:
    """Whether the text tells which links are active."""
    return any(gpu.rates or gpu.said for gpu in gpus)


def counts(gpus: Sequence[NvlinkGpu], word: str) -> bool:
    """Whether the text has counters of that kind ("replay", "recovery")."""
    return any(word in name.lower() for gpu in gpus for link in gpu.counters.values() for name in link)


def _status(gpu: NvlinkGpu, everyone: Sequence[NvlinkGpu], expect: Expectations) -> Iterator[Finding]:
    expected = expect.count("expected_nvlinks_per_gpu")
    active = sorted(link for link, rate in gpu.rates.items() if rate is not None)
    listed_off = sorted(link for link, rate in gpu.rates.items() if rate is None)
    most = max(len(other.rates) for other in everyone)
    gaps = sorted(set(range(max(gpu.rates, default=-1) + 1)) - set(gpu.rates))
    outcome: Outcome
    suspect, advice, bad = "", "", sorted({*listed_off, *gaps})
    if gpu.said and gpu.rates:
        outcome, suspect = "not-measured", "the text lists links and says that there are none"
    elif gpu.said == "no nvlink":
        outcome = "not-applicable" if expected == 0 else "observed" if expected is None else "fail"
        suspect = f"{gpu.part} ({gpu.name}) has no NVLink: another product than ordered" if outcome == "fail" else ""
    elif gpu.said == "all inactive":
        others = any(other.rates and other.name == gpu.name for other in everyone)
        outcome = (
            "fail" if expected or (expected is None and others) else "not-applicable" if expected == 0 else "observed"
        )
        suspect = f"{gpu.part}: all NVLinks inactive (bridge, NVSwitch or fabric manager)" if outcome == "fail" else ""
    elif expected is not None:
        outcome, suspect, advice = _against(gpu, everyone, expected, len(active), bad)
    else:
        elsewhere = {n for other in everyone if other.name == gpu.name for n, r in other.rates.items() if r is not None}
        off = [link for link in bad if link in elsewhere]
        cut = len(gpu.rates) < most and not bad
        outcome = "fail" if off else "not-measured" if cut else "observed"
        suspect = _links(gpu, off) if off else "the text ends before its last links" if cut else ""
    yield Finding(
        metric="nvlink.status",
        outcome=outcome,
        part=gpu.part,
        value=len(active) if not gpu.said or gpu.said == "all inactive" else 0,
        unit="active links",
        expected="" if expected is None else str(expected),
        source=expect.source_of("expected_nvlinks_per_gpu")
        if expected is not None
        else OWN
        if outcome == "fail"
        else "",
        suspect=suspect,
        advice=advice,
    )
    if listed_off:
        yield Finding(metric="nvlink.inactive", outcome="observed", part=gpu.part, value=[*listed_off])


def _against(
    gpu: NvlinkGpu, everyone: Sequence[NvlinkGpu], expected: int, active: int, bad: list[int]
) -> tuple[Outcome, str, str]:
    if active == expected:
        return ("pass", "", "") if expected else ("not-applicable", "", "")
    if active > expected:
        return "fail", f"{gpu.part} has {active} active NVLinks: another product, or another number was meant", ""
    seen = len(gpu.rates)
    may_be_cut = gpu is everyone[-1] and not bad and (len(everyone) == 1 or seen < max(len(o.rates) for o in everyone))
    if may_be_cut:
        return "not-measured", "the text ends before its last links", "print it again, whole"
    missing = [link for link in range(expected) if gpu.rates.get(link) is None] or bad
    return "fail", _links(gpu, missing), "reset the fabric, then exchange the part"


def _links(gpu: NvlinkGpu, links: Sequence[int]) -> str:
    names = ", ".join(str(link) for link in links[:-1])
    both = f"{names} and {links[-1]}" if names else str(links[-1]) if links else "?"
    return f"{gpu.part} NVLink{'s' if len(links) > 1 else ''} {both} (baseboard trace, NVSwitch port or GPU)"


def _rates(gpu: NvlinkGpu) -> Iterator[Finding]:
    rates = {link: rate for link, rate in gpu.rates.items() if rate is not None}
    if not rates:
        return
    usual = max(rates.values())
    slow = sorted(link for link, rate in rates.items() if rate < usual)
    yield Finding(
        metric="nvlink.rate",
        outcome="fail" if slow else "observed",
        part=gpu.part,
        value=rates[slow[0]] if slow else usual,
        unit="GB/s per link",
        expected=f"{usual}, as its other links" if slow else "",
        source=OWN if slow else "",
        suspect=_links(gpu, slow) if slow else "",
    )


def _errors(gpus: Sequence[NvlinkGpu], expect: Expectations) -> Iterator[Finding]:
    limits = {"replay": expect.count("max_replay_errors"), "recovery": expect.count("max_recovery_errors")}
    counting = [gpu for gpu in gpus if gpu.counters]
    if not counting:
        return
    kinds = list(dict.fromkeys(name for gpu in counting for link in gpu.counters.values() for name in link))
    whole = max(len(gpu.counters) for gpu in counting)
    for gpu in gpus:
        if gpu.said != "no nvlink":
            for kind in kinds:
                yield from _kind(gpu, kind, limits, expect, whole)


def _kind(
    gpu: NvlinkGpu, kind: str, limits: dict[str, int | None], expect: Expectations, whole: int
) -> Iterator[Finding]:
    metric = metric_of(kind)
    limit = next((v for word, v in limits.items() if metric == f"nvlink.{word}_errors"), None)
    values = {link: named[kind] for link, named in gpu.counters.items() if kind in named}
    numbers = {link: value for link, value in values.items() if isinstance(value, int)}
    over = sorted(link for link, value in numbers.items() if limit is not None and value > limit)
    expected = f"<= {limit} on each link" if limit is not None else ""
    source = expect.source if limit is not None else ""
    for link in over:
        yield Finding(
            metric=metric, outcome="fail", part=f"{gpu.part} link {link}", value=numbers[link], expected=expected,
            source=source, suspect=f"{gpu.part} NVLink {link}", advice="read the counters again after a load",
        )  # fmt: skip
    some = [link for link in sorted(numbers) if numbers[link] and link not in over]
    for link in some[:_LISTED_AT_MOST]:
        yield Finding(
            metric=metric, outcome="pass" if limit is not None else "observed", part=f"{gpu.part} link {link}",
            value=numbers[link], expected=expected, source=source,
        )  # fmt: skip
    lacking = len(numbers) < max(whole, expect.count("expected_nvlinks_per_gpu") or 0)
    if limit is not None and (lacking or not numbers):
        yield Finding(
            metric=metric, outcome="not-measured", part=gpu.part, expected=expected, source=source,
            value=len(numbers), unit="links with a count", suspect="counters of some links are not in the text",
        )  # fmt: skip
    elif numbers:
        yield Finding(
            metric=metric,
            outcome="observed" if limit is None or over else "pass",
            part=gpu.part,
            value=sum(numbers.values()),
            unit="in all",
            expected=expected,
            source=source,
        )


def metric_of(kind: str) -> str:
    """ "Replay Errors" -> "nvlink.replay_errors", "CRC Errors" -> "nvlink.crc_errors"."""
    return "nvlink." + "_".join(kind.lower().replace("-", " ").split())


def _devices(gpu: NvlinkGpu) -> list[str]:
    return [text.partition(" ")[0] for text in gpu.remote.values()]
