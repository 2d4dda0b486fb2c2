"""Judges what a NCCL log says about the way of the data: network, GPUDirect RDMA, paths in a node, rails, errors."""

from __future__ import annotations

import re
from collections import Counter

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.nccl_log import NcclLog, Warn

STATUS = {
    5: "work request flushed after an earlier error",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded",
    13: "receiver-not-ready retry counter exceeded",
}
_LINK_WORDS = (
    "Got completion", "Got async event", "port error", "catastrophic", "uncorrectable", "fallen off", "NVLink error",
    "failure 802", "system not yet initialized", "failure 214", "failure 220",
)  # fmt: skip
_BROKEN = re.compile(
    r"fail|error|time[d ]*out|closed|refused|abort|mismatch|unhandled|invalid|duplicate", re.IGNORECASE
)
_HARMLESS = ("NET/Plugin", "Failed to open lib", "PROFILER/Plugin", "TUNER/Plugin", "Could not find")
_IB_FAMILY = re.compile(r"(?:ib|ibext|rocm-ib)(?:_?v?\d+)?", re.IGNORECASE)


def judge(log: NcclLog, expect: Expectations, *, whole: bool) -> tuple[list[Finding], list[str]]:
    """Findings on a log and what it does not prove. `whole`: the log is the input, and not beside a table."""
    findings: list[Finding] = []
    not_covered: list[str] = []
    findings += _transport(log, expect, not_covered, whole=whole)
    findings += _gdr(log, expect)
    findings += _inside(log, expect, whole=whole)
    if whole or log.hcas:
        findings += _rails(log, expect, whole=whole)
    if whole:
        findings += _ranks(log, expect)
    findings += _observed(log)
    if log.messages and not log.paths and (whole or log.networks):
        not_covered.append(
            "No channel is in the log (NCCL_DEBUG=INFO cut or filtered): which path was used is not witnessed."
        )
    if log.messages and not log.algorithms:
        not_covered.append("The algorithm is not in the log; NCCL_DEBUG_SUBSYS=TUNING would name it.")
    if whole:
        not_covered.append("A log proves paths, not speed or correct data; run nccl-tests for those.")
    return findings, not_covered


def blame(log: NcclLog) -> str:
    """What in the log explains a low figure, or ""."""
    said = []
    if log.intra_network:
        said.append("GPUs of one host talk over the network (Socket or NIC) instead of NVLink")
    elif log.paths["SHM"]:
        said.append("GPUs of one host talk through host memory (SHM) instead of NVLink")
    names = _networks(log)
    if "Socket" in names and any(key[0] == "Socket" for key in log.net):
        said.append("TCP sockets instead of RDMA")
    set_by_hand = [f"{name}={value}" for name, value in sorted(log.environment.items()) if name in _SLOW]
    if set_by_hand:
        said.append("set in the environment: " + ", ".join(set_by_hand))
    return "; ".join(said)


_SLOW = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_PROTO",
    "NCCL_NVLS_ENABLE", "NCCL_NET_GDR_LEVEL", "NCCL_MAX_NCHANNELS", "NCCL_NET", "NCCL_IB_HCA",
)  # fmt: skip


def _networks(log: NcclLog) -> dict[str, set[str]]:
    """Network name -> hosts: by channels where there are any, else by what was chosen."""
    names: dict[str, set[str]] = {}
    for name, host, _, _ in log.net:
        names.setdefault(name, set()).add(host)
    if not names:
        for host, chosen in log.networks.items():
            for name in chosen:
                names.setdefault(name, set()).add(host)
    return names


def _transport(log: NcclLog, expect: Expectations, not_covered: list[str], *, whole: bool) -> list[Finding]:
    wanted = expect.text("expected_transport")
    names = _networks(log)
    chosen = {name for group in log.networks.values() for name in group}
    both = {
        name: set(names.get(name, ())) | {h for h, group in log.networks.items() if name in group} for name in chosen
    }
    both |= {name: hosts for name, hosts in names.items() if name not in both}
    layers = {layer.upper() for listed in log.hcas.values() for layer in listed.values()}
    if wanted is None and not names:
        return []
    good = {name for name in both if wanted is not None and _is(name, wanted, layers)}
    bad = set(both) - good
    outcome: Outcome = "observed"
    suspect = advice = ""
    if wanted is not None:
        if not both:
            outcome, suspect = "not-measured", "the log does not say which network was used"
        elif bad:
            outcome = "fail"
            suspect, advice = _why_not(log, bad, wanted)
        elif wanted.casefold() == "roce" and not layers:
            outcome, suspect = "not-measured", "the list of HCAs is missing, and NCCL calls InfiniBand and RoCE both IB"
        else:
            outcome = "pass"
            if wanted.casefold() == "ib" and not layers:
                not_covered.append("InfiniBand or RoCE: NCCL calls both IB, and no list of HCAs is in the log.")
    elif whole and "Socket" in names and any(key[0] == "Socket" for key in log.net):
        suspect = "data goes over TCP; expected only where there is no RDMA network"
    bad_hosts = sorted({host for name in bad for host in both[name]}) if outcome == "fail" else []
    found = [
        Finding(
            metric="nccl.transport",
            part=", ".join(bad_hosts[:20]),
            value=", ".join(sorted(both)) or None,
            outcome=outcome,
            expected=wanted or "",
            source=expect.source if wanted is not None else "",
            suspect=suspect,
            advice=advice,
        )
    ]
    devices = sorted({name for listed in log.hcas.values() for name in listed})
    if whole and (devices or log.no_ib):
        found.append(Finding(metric="nccl.ib_devices", value=len(devices), outcome="observed"))
    if log.interfaces:
        found.append(Finding(metric="nccl.interface", value=", ".join(sorted(log.interfaces)), outcome="observed"))
    return found


def _is(name: str, wanted: str, layers: set[str]) -> bool:
    """True where the network is the one expected; the link layer decides between InfiniBand and RoCE."""
    asked = wanted.casefold()
    if asked in ("ib", "infiniband", "roce"):
        layer = "ROCE" if asked == "roce" else "IB"
        return _IB_FAMILY.fullmatch(name) is not None and (not layers or layers == {layer})
    return name.casefold() == asked or (asked == "libfabric" and "libfabric" in name.casefold())


def _why_not(log: NcclLog, bad: set[str], wanted: str) -> tuple[str, str]:
    rdma = wanted.casefold() in ("ib", "infiniband", "roce")
    if "Socket" in bad and log.no_ib:
        return (
            "container/host setup: RDMA devices or user libraries missing (no /dev/infiniband, ibverbs providers); "
            f"'No device found' on {', '.join(sorted(log.no_ib)[:10])}",
            "look for /dev/infiniband and ibv_devinfo in the container",
        )
    if rdma and any(_IB_FAMILY.fullmatch(name) for name in bad):
        listed = sorted({f"{n}/{layer}" for hcas in log.hcas.values() for n, layer in hcas.items()})
        return f"link layer of the HCAs: {', '.join(listed[:16])}", "check NCCL_IB_HCA and the ports' link layer"
    if "Socket" in bad and log.environment.get("NCCL_IB_DISABLE", "0") not in ("0", ""):
        return "NCCL_IB_DISABLE is set", "unset it"
    return f"network {', '.join(sorted(bad))} was used", "check the network plug-in and NCCL_NET, NCCL_IB_HCA"


def _gdr(log: NcclLog, expect: Expectations) -> list[Finding]:
    wanted = expect.flag("require_gdr")
    channels = {flag: sum(n for key, n in log.net.items() if key[3] is flag) for flag in (True, False)}
    seen = sum(channels.values())
    if wanted is None and not seen:
        return []
    without = sorted({f"{host} {name}/{index}" for name, host, index, gdr in log.net if not gdr})
    outcome: Outcome = "observed"
    suspect = ""
    if wanted:
        outcome = "not-measured" if not seen else "fail" if channels[False] else "pass"
        if not seen:
            suspect = "no channel crosses the network in this log; GDR in the line about rings is no proof"
        elif channels[False]:
            suspect = (
                "data goes through host memory: nvidia-peermem or DMA-BUF missing, ACS/IOMMU, or NIC far from the GPU"
            )
            if log.gdr_disabled:
                suspect += f"; GPU Direct RDMA Disabled on {', '.join(sorted(log.gdr_disabled)[:10])}"
    return [
        Finding(
            metric="nccl.gdr",
            part=", ".join(without[:20]) if outcome == "fail" else "",
            value=f"{channels[True]} of {seen} network channels" if seen else None,
            outcome=outcome,
            expected="GPUDirect RDMA on every channel" if wanted else "",
            source=expect.source if wanted else "",
            suspect=suspect,
            advice="lsmod | grep nvidia_peermem; NCCL_DEBUG=INFO, look for GDRDMA" if outcome == "fail" else "",
        )
    ]


def _inside(log: NcclLog, expect: Expectations, *, whole: bool) -> list[Finding]:
    wanted = expect.text("expected_intra_node")
    counts = Counter({"P2P": log.paths["P2P"], "SHM": log.paths["SHM"], "NET": log.intra_network})
    seen = {name: count for name, count in counts.items() if count}
    if wanted is None and not seen:
        return []
    outcome: Outcome = "observed"
    suspect = ""
    if wanted is not None:
        others = {name for name in seen if name.casefold() != wanted.casefold()}
        outcome = "not-measured" if not seen else "fail" if others else "pass"
        if not seen:
            suspect = "no channel between GPUs of one host is in the log"
        elif others:
            suspect = (
                "configuration (NCCL_P2P_DISABLE/NCCL_P2P_LEVEL, IOMMU/ACS, container without shared PID/IPC) "
                "or missing NVLink"
            )
            by_hand = [f"{k}={v}" for k, v in sorted(log.environment.items()) if k in _SLOW]
            suspect += f"; set in the environment: {', '.join(by_hand)}" if by_hand else ""
    found = [
        Finding(
            metric="nccl.intra_node_transport",
            part=", ".join(sorted(log.hosts)[:20]) if outcome == "fail" else "",
            value=", ".join(f"{name} {count}" for name, count in seen.items()) or None,
            outcome=outcome,
            expected=wanted or "",
            source=expect.source if wanted is not None else "",
            suspect=suspect,
            advice="nvidia-smi topo -m; unset NCCL_P2P_*; docker run --ipc=host" if outcome == "fail" else "",
        )
    ]
    if whole or wanted is not None:
        for name in ("P2P", "SHM"):
            found.append(Finding(metric=f"nccl.channels.{name.lower()}", value=counts[name], outcome="observed"))
    return found


def _rails(log: NcclLog, expect: Expectations, *, whole: bool) -> list[Finding]:
    wanted, rate = expect.count("rails_per_node"), expect.number("rail_gbit_per_s")
    found: list[Finding] = []
    listed = {host: set(hcas) for host, hcas in log.hcas.items() if hcas or host in log.no_ib}
    if wanted is not None and not listed:
        found.append(
            Finding(
                metric="nccl.rails",
                outcome="not-measured",
                expected=str(wanted),
                source=expect.source,
                suspect="the list of HCAs (NET/IB : Using) is not in the log",
            )
        )
    every = set().union(*listed.values()) if listed else set()
    for host, hcas in sorted(listed.items()):
        missing = sorted(every - hcas)
        outcome: Outcome = "observed" if wanted is None else "pass" if len(hcas) == wanted else "fail"
        suspect = ""
        if outcome == "fail":
            few = wanted is not None and len(hcas) < wanted
            suspect = f"rail missing on {host}" + (f": {', '.join(missing)}" if missing else "") if few else (
                f"{host} uses a NIC that is no rail (NCCL_IB_HCA matches by prefix): {', '.join(sorted(hcas))}"
            )  # fmt: skip
        found.append(
            Finding(
                metric="nccl.rails",
                part=host,
                value=len(hcas),
                outcome=outcome,
                expected="" if wanted is None else str(wanted),
                source="" if wanted is None else expect.source,
                suspect=suspect,
                advice="ibstat; compare NIC names between nodes" if suspect else "",
            )
        )
    if rate is not None and (whole or log.speeds_mbit):
        speeds = [
            (host, hca, mbit / 1000) for host, hcas in sorted(log.speeds_mbit.items()) for hca, mbit in hcas.items()
        ]
        low = [f"{host} {hca} {gbit:g}" for host, hca, gbit in speeds if gbit < rate]
        found.append(
            Finding(
                metric="nccl.rail_rate",
                part="; ".join(low[:20]),
                value=min((gbit for _, _, gbit in speeds), default=None),
                unit="Gbit/s" if speeds else "",
                outcome="not-measured" if not speeds else "fail" if low else "pass",
                expected=f"{rate:g} Gbit/s per rail",
                source=expect.source,
                suspect=""
                if speeds and not low
                else "the log does not name the rate"
                if not speeds
                else f"rail {low[0]}",
            )
        )
    return found


def _ranks(log: NcclLog, expect: Expectations) -> list[Finding]:
    found: list[Finding] = []
    hosts = len(set(log.rank_host.values())) if log.nranks and len(log.rank_host) >= max(log.nranks) else None
    per_node = max(log.local_ranks, default=None)
    for metric, key, value in (
        ("nccl.ranks", "ranks", max(log.nranks, default=None) if log.ready else None),
        ("nccl.nodes", "nodes", hosts if hosts is not None else max(log.nnodes, default=None)),
        ("nccl.ranks_per_node", "ranks_per_node", per_node),
        ("nccl.gpus_per_node", "gpus_per_node", per_node),
    ):
        wanted = expect.count(key)
        if wanted is None and (value is None or key == "gpus_per_node"):
            continue
        good = value == wanted
        found.append(
            Finding(
                metric=metric,
                value=value,
                outcome="observed" if wanted is None else "pass" if good else "not-measured",
                expected="" if wanted is None else str(wanted),
                source="" if wanted is None else expect.source,
                suspect=""
                if good or wanted is None
                else "the log shows another number, or no communicator that was ready",
            )
        )
    return found


def _observed(log: NcclLog) -> list[Finding]:
    found: list[Finding] = []
    version = sorted(name for name in log.versions if name)
    if version:
        found.append(Finding(metric="nccl.version", value=", ".join(version[:10]), outcome="observed"))
    if log.environment:
        said = ", ".join(f"{name}={value}" for name, value in sorted(log.environment.items()))
        found.append(Finding(metric="nccl.environment", value=said[:1000], outcome="observed"))
    for function, (size, algorithm, protocol) in sorted(log.algorithm_at.items()):
        found.append(
            Finding(
                metric="nccl.algorithm",
                part=f"{function} {size} bytes",
                value=f"{algorithm} {protocol}",
                outcome="observed",
            )
        )
    if log.nvls_channels:
        found.append(Finding(metric="nccl.nvls_channels", value=max(log.nvls_channels), outcome="observed"))
    return found


def warnings(log: NcclLog, *, whole: bool) -> list[Finding]:
    """NCCL WARN lines: always reported. In a log of its own, an error of a link or GPU is a fail, what broke
    off is not measured; beside a table the table's own end decides."""
    found: list[Finding] = []
    known: set[tuple[str, str, int | None, str]] = set()
    for warn in log.warnings:
        key = (warn.host, warn.hca, warn.status, "" if warn.status else re.sub(r"\d+", "N", warn.text))
        if key in known:
            continue
        known.add(key)
        outcome: Outcome = "observed"
        if whole:
            broken = _BROKEN.search(warn.text) is not None and not warn.text.startswith(_HARMLESS)
            ready = bool(log.ready or log.rings_connected)
            outcome = "fail" if is_hard(warn) else "not-measured" if broken or not ready else "observed"
        found.append(
            Finding(
                metric="nccl.warning",
                part=" ".join(word for word in (warn.host, warn.hca) if word),
                value=warn.text,
                outcome=outcome,
                source="the tool's own verdict",
                suspect=suspect_of(warn),
            )
        )
    return found


def is_hard(warn: Warn) -> bool:
    """True where a warning speaks of a link or a GPU that failed."""
    return any(word in warn.text for word in _LINK_WORDS)


def suspect_of(warn: Warn) -> str:
    """The part that a warning points at: the host that wrote it and its HCA, never the peer it names."""
    if warn.status is not None and ("ompletion" in warn.text):
        meaning = STATUS.get(warn.status, "see ibv_wc_status")
        return f"{warn.host} {warn.hca} or its link/switch port (status {warn.status} = {meaning})".replace("  ", " ")
    if "802" in warn.text or "not yet initialized" in warn.text:
        return f"{warn.host}: Fabric Manager or NVSwitch fabric not ready (CUDA 802)"
    if "failure 800" in warn.text or "not permitted" in warn.text:
        return f"{warn.host}: IMEX channel permission (CUDA 800)"
    if "Duplicate GPU" in warn.text:
        return f"{warn.host}: two ranks on one GPU (test setup)"
    return " ".join(word for word in (warn.host, warn.hca) if word)
