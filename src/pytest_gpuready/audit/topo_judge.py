"""A topology matrix held against the links that each pair of GPUs should have; one bad GPU is one finding.

A GPU that fell out of the fabric spoils a cell with every other GPU. The fewest GPUs that explain all bad pairs are
named; what remains is named as pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.topo import Topology

OWN = "the tool's own verdict"
_NEAR = ("PIX", "PXB")


def topo_findings(topo: Topology, expect: Expectations, command: str) -> Iterator[Finding]:
    """Findings on one matrix."""
    for text in topo.wrong:
        yield Finding(metric="topo.readable", outcome="not-measured", value=text, suspect="the text is damaged or cut")
    missing = [device for device in topo.devices if device not in topo.rows]
    if missing and not topo.wrong:
        yield Finding(
            metric="topo.readable",
            outcome="not-measured",
            value=[*missing],
            suspect="rows of these are not in the text",
        )
    if topo.peer_to_peer:
        yield from _p2p(topo, expect, command)
        return
    yield from _links(topo, expect)
    yield from _nics(topo, expect)
    for gpu, node in topo.numa.items():
        yield Finding(
            metric="topo.numa", outcome="observed", part=_gpu(gpu), value=int(node) if node.isdecimal() else node
        )


def without_nvlink(topo: Topology) -> bool:
    """Whether the matrix was printed without NVLink (`topo -mp`): its legend explains no NV#."""
    return bool(topo.legend) and "NV#" not in topo.legend and not any(c.startswith("NV") for c in topo.cells.values())


def answers_links(topo: Topology) -> bool:
    """Whether the matrix can say how many NVLinks a pair has."""
    return not topo.peer_to_peer and not without_nvlink(topo)


def _links(topo: Topology, expect: Expectations) -> Iterator[Finding]:
    pairs = list(itertools.combinations(topo.gpus, 2))
    told = {pair: topo.between(*pair) for pair in pairs}
    expected = expect.count("expected_nvlinks_per_pair")
    listed = expect.list("expected_nvlink_pairs")
    linked = {pair: word for pair, word in told.items() if word.startswith("NV")}
    if linked:
        yield Finding(
            metric="topo.nvlinks_per_pair",
            outcome="observed",
            value=int(numbers[0]) if len(numbers := sorted({w[2:] for w in linked.values()})) == 1 else [*numbers],
        )
        together = [f"{_number(a)}-{_number(b)}" for a, b in linked]
        yield Finding(metric="topo.linked_pairs", outcome="observed", value=[*together[:200]])
    if without_nvlink(topo) and not expect.asked("expected_nvlinks_per_pair") and listed is None:
        pass  # what is promised is not shown here
    elif without_nvlink(topo) and (expected is not None or listed is not None):
        yield Finding(
            metric="topo.nvlink_mesh" if listed is None else "topo.nvlink_pairs",
            outcome="not-measured",
            suspect="this matrix leaves NVLink out (topo -mp)",
            source=expect.source,
            advice="run nvidia-smi topo -m",
        )
    elif listed is not None:
        yield _pairs(topo, listed, expected, expect.source)
    elif expected is not None:
        source = expect.source_of("expected_nvlinks_per_pair")
        yield from _mesh(topo, told, f"NV{expected}" if expected else "", source)
    elif _one_is_off(topo, linked) or (expect.flag("nvswitch") and pairs):
        usual = Counter(linked.values()).most_common(1)
        yield from _mesh(topo, told, usual[0][0] if usual else "NV#", OWN)


def _mesh(topo: Topology, told: dict[tuple[str, str], str], wanted: str, source: str) -> Iterator[Finding]:
    if not told:
        yield Finding(metric="topo.nvlink_mesh", outcome="not-applicable", source=source, suspect="one GPU has no pair")
        return
    bad = {pair for pair, word in told.items() if word and _is_bad(word, wanted)}
    unknown = [pair for pair, word in told.items() if not word]
    whole = not unknown and not topo.wrong and set(topo.gpus) <= set(topo.rows)
    expected = wanted or "no NVLink"
    if bad:
        gpus = _fewest(bad)
        named = [_gpu(gpu) for gpu in gpus]
        rest = [pair for pair in bad if not set(pair) & set(gpus)]
        pairs = [f"{_gpu(a)} and {_gpu(b)}" for a, b in sorted(rest)[:20]]
        suspect = " and ".join([*named, *pairs])
        yield Finding(
            metric="topo.nvlink_mesh",
            outcome="fail",
            part=", ".join(named),
            value=len(bad),
            unit="pairs of GPUs without it",
            expected=f"{expected} between every pair",
            source=source,
            suspect=f"{suspect} or its NVLink/NVSwitch ports; fabric registration of {', '.join(named) or 'both'}",
        )
        yield Finding(metric="topo.off_fabric", outcome="observed", value=[_number(gpu) for gpu in gpus])
    else:
        yield Finding(
            metric="topo.nvlink_mesh",
            outcome="pass" if whole else "not-measured",
            value=len(told) - len(unknown),
            unit="pairs of GPUs",
            expected=f"{expected} between every pair",
            source=source,
            suspect="" if whole else "some pairs are not in the text",
        )


def _is_bad(word: str, wanted: str) -> bool:
    if wanted == "NV#":
        return not word.startswith("NV")
    return word != wanted if wanted else word.startswith("NV")


def _fewest(bad: set[tuple[str, str]]) -> list[str]:
    """GPUs that stand in more than one bad pair, worst first, until no such GPU is left."""
    left, found = set(bad), []
    while left:
        (gpu, count), *_ = Counter(gpu for pair in sorted(left) for gpu in pair).most_common(1)
        if count < 2:
            break
        found.append(gpu)
        left = {pair for pair in left if gpu not in pair}
    return found


def _one_is_off(topo: Topology, linked: dict[tuple[str, str], str]) -> bool:
    """Whether all GPUs but one form a full mesh of NVLinks: no bridge looks like that."""
    alone = [gpu for gpu in topo.gpus if not any(gpu in pair for pair in linked)]
    rest = len(topo.gpus) - len(alone)
    return len(alone) == 1 and rest >= 3 and len(linked) == rest * (rest - 1) // 2


def _pairs(topo: Topology, listed: list[object], expected: int | None, source: str) -> Finding:
    bad: list[str] = []
    unknown: list[str] = []
    shown: list[str] = []
    for pair in listed:
        ends = [f"GPU{n}" for n in pair] if isinstance(pair, (list, tuple)) and len(pair) == 2 else []
        name = "-".join(end[3:] for end in ends) or str(pair)[:20]
        word = topo.between(*ends) if ends and set(ends) <= set(topo.gpus) else ""
        if not ends or (not word and set(ends) <= set(topo.gpus)):
            unknown.append(name)
        elif not word.startswith("NV") or (expected is not None and word != f"NV{expected}"):
            bad.append(name)
        else:
            shown.append(name)
    outcome: Outcome = "fail" if bad else "not-measured" if unknown or topo.wrong else "pass"
    return Finding(
        metric="topo.nvlink_pairs",
        outcome=outcome,
        value=[*bad] or [*unknown] or [*shown],
        expected=f"NVLink between {', '.join([*bad, *unknown, *shown])}",
        source=source,
        suspect=f"NVLink bridge of GPUs {', '.join(bad)}" if bad else "",
    )


def _nics(topo: Topology, expect: Expectations) -> Iterator[Finding]:
    if not topo.nics or not topo.gpus:
        return
    best: dict[str, str] = {}
    near: dict[str, list[str]] = {}
    for gpu in topo.gpus:
        words = {nic: topo.between(gpu, nic) for nic in topo.nics}
        best[gpu] = next((word for word in ("PIX", "PXB", "PHB", "NODE", "SYS") if word in words.values()), "")
        near[gpu] = [topo.nic_names.get(n, n) for n, w in words.items() if w == best[gpu] and w in _NEAR]
        if near[gpu]:
            yield Finding(
                metric="topo.nearest_nic", outcome="observed", part=_gpu(gpu), unit=best[gpu],
                value=near[gpu][0] if len(near[gpu]) == 1 else [*near[gpu]],
            )  # fmt: skip
    far = [gpu for gpu in topo.gpus if best[gpu] not in _NEAR]
    flat = len(set(best.values())) == 1 and best[topo.gpus[0]] == "PHB"
    enough = len(topo.nics) >= len(topo.gpus)
    unknown = [gpu for gpu in far if not best[gpu]] or [gpu for gpu in topo.gpus if gpu not in topo.rows]
    outcome: Outcome = "pass"
    if unknown or topo.wrong:
        outcome = "not-measured"
    elif far:
        virtual = expect.flag("bare_metal") is False or (flat and not expect.flag("bare_metal"))
        outcome = "observed" if virtual else "fail" if enough or expect.flag("require_gdr") else "marginal"
    yield Finding(
        metric="topo.gpu_nic_affinity",
        outcome=outcome,
        part=", ".join(_gpu(gpu) for gpu in far),
        value=[f"{_gpu(gpu)} {best[gpu]}" for gpu in (far or topo.gpus)],
        expected="PIX or PXB to a network card for every GPU",
        source=OWN,
        suspect=f"network cards of {', '.join(_gpu(g) for g in far)}: slot or PCIe switch" if far else "",
        advice="GPUDirect RDMA goes through the CPU there" if far else "",
    )


def _p2p(topo: Topology, expect: Expectations, command: str) -> Iterator[Finding]:
    pairs = list(itertools.combinations(topo.gpus, 2))
    words = {pair: topo.between(*pair) for pair in pairs}
    bad = {pair for pair, word in words.items() if word and word != "OK"}
    listed = expect.list("expected_nvlink_pairs") or []
    must = {(f"GPU{min(p)}", f"GPU{max(p)}") for p in listed if isinstance(p, (list, tuple)) and len(p) == 2}
    all_must = expect.flag("nvswitch") or expect.text("expected_intra_node") == "P2P"
    asked = bool(must or all_must) and "-p2p p" not in command
    failing = bad if all_must else bad & must
    whole = all(words.values()) and not topo.wrong and set(topo.gpus) <= set(topo.rows)
    outcome: Outcome = "fail" if asked and failing else "not-measured" if not whole else "pass"
    if bad and not (asked and failing) and whole:
        outcome = "observed" if not asked or "-p2p p" in command else "pass"
    gpus = [_gpu(gpu) for gpu in _fewest(failing)] if asked and failing else []
    named = ", ".join(gpus) or ", ".join(f"{_gpu(a)} and {_gpu(b)}" for a, b in sorted(failing)[:10])
    yield Finding(
        metric="topo.p2p",
        outcome=outcome,
        part=", ".join(gpus),
        value=sorted({word for word in words.values() if word}),
        expected="OK between every pair" if all_must else "",
        source=(expect.source_of("nvswitch") if all_must else expect.source) if asked else OWN,
        suspect=f"{named}: no peer access (NVLink, ACS/IOMMU or chipset)" if asked and failing else "",
    )


def _number(device: str) -> int:
    return int(device.removeprefix("GPU"))


def _gpu(device: str) -> str:
    return f"GPU {_number(device)}"
