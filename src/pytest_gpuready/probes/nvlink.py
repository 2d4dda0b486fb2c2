"""NVLink metrics of the GPUs of one node, from the links that each of them sees.

A link that is down is the business of `nvlink.links.active`; version, speed and counters are those of active links.
Where a pair has too few NVLinks the GPU with fewer active links is named, on a tie the one with more such pairs, and
only on a tie of both the two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

from pytest_gpuready.model.agent_doc import GpuDoc, NvLinkDoc
from pytest_gpuready.probes.gpu_readings import ABSENT, Reading, Unread, need

KINDS = ("replay", "recovery", "crc")


def _active(gpu: GpuDoc) -> list[NvLinkDoc]:
    """The links that are up. Raises: Unread where the count or a state is not known."""
    need(gpu, "nvlink_count")
    for link in gpu.nvlinks:
        if link.active is None:
            raise Unread(f"nvlink {link.link} state", link.errors.get("active", "no answer"))
    return [link for link in gpu.nvlinks if link.active]


def _some_active(gpu: GpuDoc) -> list[NvLinkDoc]:
    links = _active(gpu)
    if not links:
        raise Unread("nvlinks", "NotSupported" if gpu.nvlink_count == 0 else "no active NVLink")
    return links


def _links_active(gpu: GpuDoc) -> Reading:
    up = {link.link for link in _active(gpu)}
    down = [str(link.link) for link in gpu.nvlinks if link.link not in up]
    return len(up), f"{'link' if len(down) == 1 else 'links'} {', '.join(down)} down" if down else ""


def _version(gpu: GpuDoc) -> Reading:
    versions = set()
    for link in _some_active(gpu):
        if link.version is None:
            raise Unread(f"nvlink {link.link} version", link.errors.get("version", "no answer"))
        versions.add(link.version)
    return ", ".join(sorted(versions)), ""


def _speed(gpu: GpuDoc) -> Reading:
    """Raw rate of the slowest active link."""
    speeds: dict[int, int] = {}
    for link in _some_active(gpu):
        if link.speed_mb_per_s is None:
            raise Unread(f"nvlink {link.link} speed", link.errors.get("speed_mb_per_s", "no answer"))
        speeds[link.link] = link.speed_mb_per_s
    slowest, fastest = min(speeds.values()), max(speeds.values())
    slow = [str(number) for number, speed in speeds.items() if speed == slowest]
    return slowest, "" if slowest == fastest else f"links {', '.join(slow)}; others up to {fastest}"


def _errors(gpu: GpuDoc, *, growth: bool) -> Reading:
    """Counters of active links summed, growth within the window or as they stand. A kind that no link has is named."""
    total, told, lacking = 0, [], []
    links = _some_active(gpu)
    for kind in KINDS:
        counted = 0
        for link in links:
            pair: tuple[int, int] | None = getattr(link, kind)
            if pair is None:
                error = link.errors.get(kind, "no answer")
                if error not in ABSENT or any(getattr(other, kind) is not None for other in links):
                    raise Unread(f"nvlink {link.link} {kind} counter", error)
                continue
            if pair[0] < 0:
                raise Unread(f"nvlink {link.link} {kind} counter of 0 or more", f"{pair[0]}")
            if pair[1] < pair[0]:
                raise Unread(f"nvlink {link.link} {kind} counter", "a counter that ran backwards (reset meanwhile)")
            counted += 1
            value = pair[1] - pair[0] if growth else pair[1]
            if value:
                told.append(f"link {link.link} {kind} {'+' if growth else ''}{value}")
            total += value
        if not counted:
            lacking.append(kind)
    if len(lacking) == len(KINDS):
        raise Unread("nvlink counters", "NotSupported")
    said = ", ".join(told[:12]) + (", .." if len(told) > 12 else "")
    return total, "; ".join(filter(None, (said, f"without {', '.join(lacking)}: not on this GPU" if lacking else "")))


READINGS: dict[str, tuple[str, Callable[[GpuDoc], Reading]]] = {
    "nvlink.links.active": ("", _links_active),
    "nvlink.version": ("", _version),
    "nvlink.speed": ("MB/s", _speed),
    "nvlink.errors": ("", lambda gpu: _errors(gpu, growth=True)),
    "nvlink.errors.total": ("", lambda gpu: _errors(gpu, growth=False)),
}


def topology(gpus: Mapping[str, GpuDoc], peers_expected: int) -> dict[str, Reading | Unread]:
    """Address -> NVLinks to the worst connected peer that this GPU is to blame for, over all pairs that answer.

    A pair that is short by the other GPU's fault counts here with what this GPU offers. A peer whose links cannot be
    read costs only itself: its pairs are left out and counted as not answering.
    """
    offers: dict[tuple[str, str], int] = {}
    unread: dict[str, Unread] = {}
    for a, b in permutations(gpus, 2):
        try:
            offers[a, b] = _offered(gpus[a], gpus[b].bdf)
        except Unread as why:
            unread.setdefault(a, why)
    links = {
        (a, b): 0 if _refused(gpus[a], b) or _refused(gpus[b], a) else min(n, offers[b, a])
        for (a, b), n in offers.items()
        if (b, a) in offers
    }
    best = max(links.values(), default=0)
    short = Counter(a for (a, _), n in links.items() if n < best)
    found: dict[str, Reading | Unread] = {}
    for bdf in gpus:
        own: dict[str, int] = {}
        excused = []
        for (a, other), n in links.items():
            if a != bdf:
                continue
            own[other] = n if _blamed(bdf, other, gpus, short) else max(n, offers[bdf, other])
            if own[other] > n:
                excused.append(f"GPU {gpus[other].index} {n}")
        found[bdf] = unread.get(bdf) or _worst(own, excused, gpus, peers_expected)
    return found


def _worst(
    own: Mapping[str, int], excused: Sequence[str], gpus: Mapping[str, GpuDoc], peers_expected: int
) -> Reading | Unread:
    if not own:
        return Unread("nvlink peers", "no other GPU answers" if peers_expected else "NotSupported")
    worst = min(own.values())
    said = []
    if worst < max(own.values()):
        said.append("to GPU " + ", ".join(str(gpus[other].index) for other, n in own.items() if n == worst))
    if excused:
        said.append(f"fewer by the other side: {', '.join(excused)}")
    if len(own) < peers_expected:
        said.append(f"{peers_expected - len(own)} of {peers_expected} peers do not answer")
    return worst, "; ".join(said)


def _blamed(bdf: str, other: str, gpus: Mapping[str, GpuDoc], short: Mapping[str, int]) -> bool:
    mine, theirs = len(_active(gpus[bdf])), len(_active(gpus[other]))
    if mine != theirs:
        return mine < theirs
    return short.get(bdf, 0) >= short.get(other, 0)


def _offered(gpu: GpuDoc, other: str) -> int:
    """NVLinks that this GPU has towards the other: all active ones through a switch, else those that end there."""
    active = _active(gpu)
    for link in active:
        if link.remote is None or (link.remote == "gpu" and link.remote_bdf is None):
            error = link.errors.get("remote_bdf") or link.errors.get("remote", "no answer")
            raise Unread(f"nvlink {link.link} far end", error)
    if not _switched(gpu):
        return sum(1 for link in active if link.remote_bdf == other)
    if other not in gpu.p2p_nvlink:
        raise Unread(f"P2P status towards {other}", gpu.errors.get(f"p2p_nvlink.{other}", "no answer"))
    return len(active)


def _refused(gpu: GpuDoc, other: str) -> bool:
    """True where the driver says that this GPU does not reach the other over NVLink although a switch lies between."""
    return _switched(gpu) and gpu.p2p_nvlink.get(other) != 0


def _switched(gpu: GpuDoc) -> bool:
    return any(link.remote == "switch" for link in gpu.nvlinks)
