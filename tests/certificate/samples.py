"""Certificates to draw: accepted, rejected, unfinished, replayed, large and hostile ones.

Clauses come from the shipped H200 profile, sentences from the suites; values are those that two H200 SXM showed
(copies 55.28 to 55.47 GB/s, 143771 MiB, Gen5 x16, 18 NVLinks at 26562 MB/s). Names and serials are made up.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections import Counter
from typing import Any

import msgspec

from pytest_gpuready.certificate.build import ruled
from pytest_gpuready.certificate.document import (
    Certificate,
    ClauseEntry,
    Counts,
    EvidenceEntry,
    ExclusionEntry,
    GpuEntry,
    NodeEntry,
    PartEntry,
    ProfileEntry,
    SiteEntry,
    SuiteEntry,
    WatchEntry,
)
from pytest_gpuready.certificate.rule import Asked
from pytest_gpuready.certificate.sentences import sentences, titles
from pytest_gpuready.model import Clause, Profile
from pytest_gpuready.model.units import show
from pytest_gpuready.profiles.loader import load

BUSES = ("19", "2a", "3b", "4c", "9b", "ab", "bb", "cb")
MODULES = (2, 4, 1, 3, 7, 5, 8, 6)
H2D = (55.38, 55.47, 55.44, 55.41, 55.42, 55.40, 55.46, 55.36)
D2H = (55.30, 55.37, 55.28, 55.31, 55.33, 55.35, 55.34, 55.32)
RATES = {
    "fp64": (51.98, 51.7),
    "tf32": (368.6, 364.1),
    "bf16": (667.8, 667.9),
    "fp16": (648.9, 644.2),
    "fp8_e4m3": (1286.8, 1285.3),
    "fp8_e5m2": (1298.6, 1288.8),
    "int8": (1292.7, 1287.3),
}
"""What two H200 SXM reached in every format, TFLOPS and TOPS."""
VALUES: dict[str, Any] = {
    "gpu.present": "on the bus and answered by NVML",
    "gpu.pci_id": "10de:2335",
    "gpu.memory.total": 143771,
    "gpu.vbios": "96.00.A5.00.1A",
    "gpu.inforom.image": "G520.0282.02.02",
    "inforom.valid": "valid",
    "driver.agreement": "agree",
    "ecc.mode": "enabled",
    "recovery.action": "none",
    "mig.mode": "disabled",
    "compute.mode": "default",
    "persistence.mode": "enabled",
    "power.limit.default": 700,
    "clock.locked": "unlocked",
    "clock.event_reasons": "none but benign",
    "clock.event_reasons.load": "none but benign",
    "copies.together.ended": "ended, kernel log quiet",
    "health.after.2": "as promised",
    "node.after.2": "as promised",
    "temperature.gpu.margin": (58, 57, 56, 58, 55, 57, 58, 56),
    "temperature.memory.margin": (52, 51, 50, 52, 49, 51, 52, 50),
    "fabric.state": "completed",
    "nouveau.loaded": "not loaded",
    "nvlink.links.active": 18,
    "nvlink.version": "4.0",
    "nvlink.speed": 26562,
    "nvlink.topology": 18,
    "pcie.link.generation": 5,
    "pcie.link.width": 16,
    "pcie.slot.generation": 5,
    "pcie.path.bandwidth": 63.0,
    "pcie.h2d.bandwidth": H2D,
    "pcie.d2h.bandwidth": D2H,
    "pcie.bidirectional.bandwidth": (101.9, 101.9, 101.8, 102.0, 101.7, 101.9, 101.8, 101.9),
    "pcie.h2d.concurrent": (52.1, 52.3, 51.9, 52.2, 52.0, 52.2, 52.1, 52.3),
    "stress.memory.ended": "as planned",
    "stress.memory.allocated": 95,
    "stress.hbm.read": (4607.7, 4616.0),
    "stress.hbm.write": (4665.7, 4663.8),
    "stress.hbm.copy": (4305.5, 4297.8),
    "stress.hbm.triad": (4354.1, 4356.9),
    "stress.hbm.share": (89.43, 89.27),
    "stress.latency.host": (812.0, 813.4),
    "stress.latency.device": (642.1, 641.8),
    **{f"stress.{piece}.ended": "as planned" for piece in ("gemm", "patterns", "pulse", "burn")},
    **{f"stress.{piece}.reasons": "none but benign" for piece in ("gemm", "pulse", "burn")},
    **{f"stress.{name}.sustained": rates for name, rates in RATES.items()},
    **{f"stress.{name}.per_clock": tuple(rate / 1.45 for rate in rates) for name, rates in RATES.items()},
    **{f"stress.{name}.per_watt": tuple(rate / 697 for rate in rates) for name, rates in RATES.items()},
    "stress.gemm.digests": "equal to its peers",
    "stress.gemm.power": (697.5, 699.6),
    "stress.patterns.rate": (4195.6, 4195.3),
    "stress.pulse.swing": (600.3, 599.9),
    "stress.burn.power": (683.9, 687.8),
    "stress.burn.margin": (30, 22),
    "stress.burn.clocks": (18.75, 34.02),
    "stress.burn.steady": (64.0, 71.5),
    **{f"health.after.{level}": "as promised" for level in (3, 4)},
    **{f"node.after.{level}": "as promised" for level in (3, 4)},
    "pcie.errors.nak": (24.1, 22.0, 23.2, 25.0, 24.0, 23.0, 21.4, 24.2),
    "pcie.errors.bad_tlp": (47.0, 45.1, 46.0, 48.2, 47.0, 46.1, 44.9, 47.3),
    "pcie.errors.receiver": (25.2, 21.0, 24.1, 26.0, 23.3, 24.0, 22.1, 25.0),
}
DRIVER, KERNEL = "580.159.04", "6.18.44"


@functools.cache
def accepted() -> Certificate:
    """Two H200, every clause of two levels inside its limit; one clause excluded with a reason."""
    return _certificate(nodes=[_node("node01", 2)], excluded={"GPU-32": "the site sets NCCL_NVLS_ENABLE=0 on purpose"})


@functools.cache
def whole() -> Certificate:
    """Two H200 through all levels, with the built-in engine; what took how long is that of a recorded run."""
    return burnt(2)


def burnt(gpus: int, nodes: int = 1, **more: Any) -> Certificate:
    """Nodes of so many H200 through all four levels."""
    return _certificate(
        nodes=[_node(f"node{n:02d}", gpus) for n in range(1, nodes + 1)],
        level=4,
        says="Every required clause was measured on every expected part and lies inside its limit. Level 4 of 4.",
        **more,
    )


@functools.cache
def marginal() -> Certificate:
    """Two H200, accepted, one copy outside the stricter inner limit."""
    return _certificate(nodes=[_node("node01", 2)], values={("PCIE-5", "node01/gpu1"): 52.9})


@functools.cache
def excluded() -> Certificate:
    """Two H200 and ten clauses that the site file took out, for two reasons and one without any."""
    reasons = {f"GPU-{n}": "agreed" for n in range(2, 10)} | {"NVL-1": "Demo/ of the provider"}
    return _certificate(nodes=[_node("node01", 2)], excluded={**reasons, "PCIE-8": ""})


@functools.cache
def excluded_rejected() -> Certificate:
    """Four H200, one of them slow, and the same ten clauses taken out."""
    base = excluded()
    reasons = {entry.clause: entry.reason for entry in base.exclusions}
    return _certificate(
        nodes=[_node("node01", 4)],
        values={("PCIE-5", "node01/gpu2"): 6.71},
        excluded=reasons,
        status="REJECTED",
        says="1 clause failed, at node01 GPU 2.",
    )


@functools.cache
def virtual() -> Certificate:
    """Two H200 in a virtual machine that hides three clauses."""
    node = msgspec.structs.replace(_node("node01", 2), virtual="declared", host="gpu-17")
    return _certificate(nodes=[node], hidden=("PCIE-4", "PCIE-15", "PCIE-16"))


@functools.cache
def lost() -> Certificate:
    """Eight H200 of which GPU 3 is gone: one cause, many clauses without a value, in other words here and there."""
    part = "node01/gpu3"
    of_gpu = [c for c in _clauses() if c.per == "gpu" and c.id not in ("GPU-1", "GPU-15") and c.level == 1]
    gone = "node01 GPU 3 is missing from NVML (NVML shows 7 GPUs); begin with gpu.present"
    problems = {(c.id, part): gone for c in of_gpu}
    problems["GPU-28", part] = "node01 GPU 3: no GPU is there, so an empty log says nothing of it"
    return _certificate(
        nodes=[_node("node01", 8, missing=part)],
        values={("GPU-1", part): "absent"},
        details={("GPU-1", part): "NVML shows 7 GPUs, none at 0000:4c:00.0"},
        problems=problems,
        untested={c.id: "blocked by GPU-1 on node01 GPU 3" for c in _clauses() if c.level == 2},
        status="REJECTED",
        says="1 clause failed, at node01 GPU 3. Level 0 of 2 reached.",
        level_reached=0,
        do_next=["power-cycle node01", "pytest -m level2"],
    )


@functools.cache
def foreign() -> Certificate:
    """Two H200 on a node with two settings that nobody allowed."""
    return _certificate(
        nodes=[_node("node01", 2)],
        values={("GPU-32", "node01"): 2},
        details={("GPU-32", "node01"): "NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1"},
        status="REJECTED",
        says="1 clause failed, at node01.",
    )


@functools.cache
def rejected() -> Certificate:
    """Eight H200: GPU 5 links at Gen3 x8, GPU 2 gave no copies, one runs unstable, level 2 goes on."""
    bad = "node01/gpu5"
    return _certificate(
        nodes=[_node("node01", 8)],
        values={
            ("PCIE-1", bad): 3,
            ("PCIE-2", bad): 8,
            ("PCIE-4", bad): 7.877,
            ("PCIE-5", bad): 6.71,
            ("PCIE-6", bad): 6.68,
            ("PCIE-13", bad): 4118.0,
            ("GPU-9", "node01/gpu0"): 2,
        },
        problems={
            ("PCIE-9", "node01/gpu2"): "expected an answer of the agent, found none in 600 s; its process group ended",
            ("PCIE-16", "node01/gpu2"): "expected an answer of the agent, found none in 600 s; its process group ended",
        },
        untested=dict.fromkeys(
            ("PCIE-3", "PCIE-10", "PCIE-11", "PCIE-12", "PCIE-14", "PCIE-15"),
            "blocked by GPU-9 on node01 GPU 0, a gate of level 1",
        ),
        unstable={("PCIE-6", "node01/gpu1"): [55.37, 48.2]},
        status="REJECTED",
        says="7 clauses failed, at 2 parts. Level 1 of 2 reached.",
        level_reached=1,
        why=["PCIE-1 FAIL on node01 GPU 5: 3, expected >= 5"],
        do_next=["reseat module 5 and its link to 0000:97:02.0, then run level 2 again", "pytest -m level2"],
    )


@functools.cache
def incomplete() -> Certificate:
    """Two H200, the run still goes on: level 1 is judged, nothing of level 2 is."""
    return _certificate(
        nodes=[_node("node01", 2)],
        untested={clause.id: "no test of this run judged it" for clause in _clauses() if clause.level == 2},
        status="INCOMPLETE",
        says="The run has not ended. Nothing on this page is a verdict yet.",
        finished=False,
        level_reached=1,
        why=[
            "the run has not ended",
            "PCIE-1 NOT TESTED on 2 parts from node01 GPU 0 on: no test of this run judged it",
        ],
        do_next=["pytest -m level2 --gpuready-out gpuready-out"],
    )


@functools.cache
def stopped() -> Certificate:
    """Two H200, the run has ended without level 2: INCOMPLETE, nothing failed."""
    running = incomplete()
    return msgspec.structs.replace(
        running,
        finished=True,
        says="Nothing failed, and this is not an acceptance: 21 of 62 clauses have no verdict.",
        why=running.why[1:],
    )


@functools.cache
def replay() -> Certificate:
    """The accepted run, replayed."""
    return msgspec.structs.replace(
        accepted(), verdict="", basis="replay", basis_note="recording of two H200 made on 2026-11-30", site=None
    )


@functools.cache
def replay_rejected() -> Certificate:
    """The rejected run, replayed."""
    return msgspec.structs.replace(
        rejected(), verdict="", basis="replay", basis_note="recording made on 2026-11-30", site=None
    )


@functools.cache
def stand_in() -> Certificate:
    """The accepted values from a machine that names itself a stand-in."""
    return msgspec.structs.replace(
        accepted(), verdict="", basis="stand-in", basis_note="the machine calls itself a stand-in"
    )


@functools.cache
def rack() -> Certificate:
    """64 GPUs in 16 nodes of four: one copies slowly, one is missing."""
    missing = "node09/gpu2"
    gone = "expected an answer of NVML, found none; the GPU is not on the bus"
    nodes = [_node(f"node{n:02d}", 4, missing=missing) for n in range(1, 17)]
    return _certificate(
        nodes=nodes,
        values={("PCIE-5", "node07/gpu3"): 41.9, ("GPU-1", missing): "neither on the bus nor answered by NVML"},
        problems={(c.id, missing): gone for c in _clauses() if c.per == "gpu" and c.id not in ("GPU-1", "GPU-15")},
        status="REJECTED",
        says="2 clauses failed, at 2 parts. Level 1 of 2 reached.",
        level_reached=0,
        do_next=["pytest -m level2"],
    )


MEMORY_PLAN = '{"phases":[{"kind":"alloc"},{"kind":"hbm","kernel":"read"},{"kind":"hbm","kernel":"copy"}],"seed":1}'
SILENT = "expected a login within 10 s, found none; see that it is up and lets us in"


@functools.cache
def four() -> Certificate:
    """Four nodes of eight: one well, one with a slow link, one whose runs disagree, one that nobody could reach."""
    return fleet(4, 8, slow=("node02/gpu5",), unstable=("node03/gpu1",), silent=("node04",))


@functools.cache
def crowd() -> Certificate:
    """130 nodes of one GPU: three with a slow link, one whose runs disagree, two that nobody could reach."""
    slow = ("node007/gpu0", "node041/gpu0", "node090/gpu0")
    return fleet(130, 1, slow=slow, unstable=("node012/gpu0",), silent=("node042", "node101"))


def fleet(
    count: int,
    gpus: int,
    *,
    slow: tuple[str, ...] = (),
    unstable: tuple[str, ...] = (),
    silent: tuple[str, ...] = (),
) -> Certificate:
    """So many nodes, and what is wrong with some of their parts."""
    names = [f"node{n:0{max(len(str(count)), 2)}d}" for n in range(1, count + 1)]
    nodes = []
    problems = {}
    for name in names:
        node = _node(name, gpus)
        if name in silent:
            found = [GpuEntry(part=gpu.part, index=gpu.index, present=False) for gpu in node.gpus]
            node = NodeEntry(name=name, answered=False, problem=f"{name}: {SILENT}", gpus=found)
            parts = {"gpu": [gpu.part for gpu in found], "node": [name]}
            problems |= {(c.id, part): node.problem for c in _clauses() for part in parts[c.per]}
        nodes.append(node)
    bad = [name for name in names if any(part.startswith(f"{name}/") for part in slow)]
    status = "REJECTED" if slow else "INCOMPLETE" if unstable or silent else "ACCEPTED"
    return _certificate(
        nodes=nodes,
        values={("PCIE-5", part): 6.71 for part in slow},
        unstable={("PCIE-6", part): [55.37, 48.2] for part in unstable},
        problems=problems,
        status=status,
        says="" if status == "ACCEPTED" else f"1 clause failed, at {len(bad)} parts. Level 0 of 2 reached.",
        level_reached=0 if silent else 2,
        do_next=[] if status == "ACCEPTED" else ["pytest -m level2"],
    )


@functools.cache
def one_node_of_72() -> Certificate:
    """72 GPUs in one node, all well."""
    return _certificate(nodes=[_node("rack01", 72)])


@functools.cache
def single() -> Certificate:
    """One GPU alone."""
    return _certificate(nodes=[_node("node01", 1)])


@functools.cache
def empty() -> Certificate:
    """Nothing could be opened: no profile, no node, only reasons."""
    return Certificate(
        number="GR-000000000000",
        judged="INCOMPLETE",
        basis="hardware",
        says="Nothing failed, and this is not an acceptance: see below what is missing.",
        finished=True,
        why=["no profile knows this hardware: name one with --gpuready-profile"],
        started="2026-11-30T11:04:00Z",
        issued="2026-11-30T11:04:05Z",
        level_asked=2,
        level_reached=0,
        product="pytest-gpuready 0.1.0",
        profile=None,
        nodes=[],
        suites=[],
        counts=Counts(clauses=0, cells=0, outcomes={}),
    )


NASTY = (
    "<script>alert('x')</script>\"><img src=http://evil.example/a onerror=alert(1)>"
    "</style></title></svg><![CDATA[{{ 7*7 }}]]>\x00\x1b[31m\u202egnp.exe\u2066\u200b\ud800 \u05d0\u05d1 & &amp;"
)
LONG = "x" * 20000 + " " + "word " * 4000


@functools.cache
def hostile(text: str = NASTY) -> Certificate:
    """The rejected run with `text` wherever a node, a tool or a site file can put text."""
    base = rejected()

    def part(entry: PartEntry) -> PartEntry:
        return msgspec.structs.replace(
            entry,
            shown=text if isinstance(entry.value, str) else entry.shown,
            value=text if isinstance(entry.value, str) else entry.value,
            detail=text,
            conditions=text,
            reason=text,
            line=text,
            action=text,
            evidence=[text],
            neighbours={text: {entry.part: text, text: text}},
            log=[text] * 3,
            watch=WatchEntry(facts={text: text}, times_s=[0.0, 1.0], series={text: [1.0, 2.0], "power_w": [1.0, 2.0]}),
        )

    def clause(entry: ClauseEntry) -> ClauseEntry:
        said = {"sentence": text, "metric": text, "headline": text if entry.headline else "", "source": text}
        return msgspec.structs.replace(entry, **said, parts=[part(p) for p in entry.parts])

    def gpu(entry: GpuEntry) -> GpuEntry:
        fields = (
            "bdf",
            "pci_id",
            "name",
            "uuid",
            "serial",
            "module",
            "part_number",
            "vbios",
            "inforom",
            "nvlinks",
            "pcie",
        )
        return msgspec.structs.replace(entry, **dict.fromkeys(fields, text))

    def node(entry: NodeEntry) -> NodeEntry:
        fields = ("name", "host", "system", "system_serial", "kernel", "boot_id", "driver", "cuda", "virtual")
        return msgspec.structs.replace(entry, **dict.fromkeys(fields, text), gpus=[gpu(g) for g in entry.gpus])

    suites = [msgspec.structs.replace(s, title=text, clauses=[clause(c) for c in s.clauses]) for s in base.suites]
    return msgspec.structs.replace(
        base,
        basis_note=text,
        says=text,
        why=[text],
        do_next=[text],
        number=text,
        product=text,
        started=text,
        issued=text,
        profile=ProfileEntry(name=text, version=text, title=text, sha256=text, notes=[text]),
        site=SiteEntry(name=text, sha256=text, provider=text, customer=text, agreement=text),
        nodes=[node(n) for n in base.nodes],
        assumptions=[text],
        exclusions=[ExclusionEntry(clause=text, reason=text)],
        suites=suites,
        environment={text: text},
        evidence=[
            EvidenceEntry(sha256=text, file=text, command=text, node=text, size_bytes=3, started=text, duration_s=0.1)
        ],
    )


RUNS = (
    ("node", "node", "inventory", 18211, 0.4, 1),
    ("nvml", "nvml", "NVML", 71033, 2.3, 1),
    ("memory", f"stress {MEMORY_PLAN} 0000:19:00.0", "memory and caches (level 2)", 27873, 7.3, 2),
    ("copies", "copies 0000:19:00.0", "copies GPU 0", 9_123_456, 14.2, 2),
    ("after-2", "after 2", "health after level 2", 10_006, 0.6, 2),
    (
        "gemm",
        'stress {"phases":[{"kind":"gemm","format":"bf16"}]}',
        "matrix products in every format (level 3)",
        9,
        86,
        3,
    ),
    ("after-3", "after 3", "health after level 3", 10_007, 0.5, 3),
    ("patterns", 'stress {"phases":[{"kind":"pattern","pattern":"fade"}]}', "memory patterns (level 4)", 9, 13.7, 4),
    ("pulse", 'stress {"phases":[{"kind":"pulse","period_s":4.0}]}', "load in pulses (level 4)", 9, 54.8, 4),
    ("burn", 'stress {"phases":[{"kind":"burn","seconds":240.0}]}', "burn-in (level 4)", 9, 241.8, 4),
    ("after-4", "after 4", "health after level 4", 10_008, 0.6, 4),
)
"""File, words for the agent, what it does, size, seconds, level."""


def _run(clause: Clause) -> str:
    """Which of these runs a clause rests on."""
    if clause.suite == "after_load":
        return f"after-{clause.level}"
    if clause.suite != "gpu_stress":
        return "copies" if clause.suite == "pcie_link" else "nvml"
    piece = clause.metric.split(".")[1]
    return piece if piece in ("patterns", "pulse", "burn") else "gemm" if clause.level == 3 else "memory"


def _profile(level: int = 2) -> Profile:
    """Levels of the shipped profile without DCGM, with a floor of 50 GB/s to the GPU: what the pages look like does
    not hang on its numbers."""
    shipped = load("h200-sxm")
    return dataclasses.replace(
        shipped,
        clauses=tuple(
            dataclasses.replace(c, limit=dataclasses.replace(c.limit, at_least=50.0))
            if c.id == "PCIE-5" and c.limit
            else c
            for c in shipped.up_to(level)
            if {"dcgm", "fp4"}.isdisjoint(c.needs)
        ),
    )


def _clauses() -> tuple[Clause, ...]:
    return _profile().clauses


def _node(name: str, count: int, missing: str = "") -> NodeEntry:
    gpus = []
    for index in range(count):
        part = f"{name}/gpu{index}"
        slot = index % 8
        bdf = f"{index // 8:04x}:{BUSES[slot]}:00.0"
        if part == missing:
            gpus.append(GpuEntry(part=part, index=index, present=False, bdf=bdf))
            continue
        number = int(hashlib.sha256(part.encode()).hexdigest()[:6], 16) % 10**6
        gpus.append(
            GpuEntry(
                part=part,
                index=index,
                present=True,
                bdf=bdf,
                pci_id="10de:2335",
                name="NVIDIA H200",
                uuid=f"GPU-{number:08x}-0000-4000-8000-{number:012x}",
                serial=f"1650000{number:06d}",
                module=str(MODULES[slot] + index // 8 * 8),
                part_number="692-2G520-0282-000",
                vbios="96.00.A5.00.1A",
                inforom="G520.0282.02.02",
                memory_mib=143771,
                pcie="Gen5 x16",
                nvlinks="18 up",
            )
        )
    return NodeEntry(
        name=name,
        system="Example GX-8",
        system_serial=f"SYS-{name[-2:]}01",
        kernel=KERNEL,
        boot_id="5c1f0f3a-2c0e-4f43-9d0a-6b7d0e8a1b77",
        driver=DRIVER,
        cuda="13.0",
        gpus=gpus,
    )


def _watch(index: int, *, generation: int, width: int) -> WatchEntry:
    """80 samples at 0.1 s: a second idle, copies, a second idle."""
    times = [round(0.1 * n, 1) for n in range(80)]
    load_now = [10 <= n < 68 for n in range(80)]
    wave = [((n * 7 + index * 3) % 5) - 2 for n in range(80)]
    return WatchEntry(
        facts={"power": "77-129 W", "SM clock": "345-1980 MHz", "temperature": "31-38 C", "samples": "80"},
        times_s=times,
        series={
            "power_w": [(124.0 + w + index) if on else 77.0 + w / 2 for on, w in zip(load_now, wave, strict=True)],
            "sm_mhz": [1980.0 if on else 345.0 for on in load_now],
            "temperature_c": [31.0 + (min(n, 60) / 10 if on else 0) for n, on in enumerate(load_now)],
            "generation": [float(generation if on else 1) for on in load_now],
            "width": [float(width)] * 80,
        },
    )


def burn_in(index: int, count: int = 120) -> WatchEntry:
    """A burn-in of four minutes, one sample in two seconds."""
    times = [2.0 * n for n in range(count)]
    wave = [((n * 7 + index * 3) % 9) - 4 for n in range(count)]
    return WatchEntry(
        facts={"power": "520-760 W", "temperature": "46-60 C"},
        times_s=times,
        series={
            "power_w": [690.0 + 10 * w for w in wave],
            "sm_mhz": [1455.0 + 15 * w for w in wave],
            "temperature_c": [46.0 + min(n, 52) / 4 + index for n in range(count)],
            "memory_temperature_c": [44.0 + min(n, 44) / 4 + index for n in range(count)],
        },
        limits={"temperature_c": 89.0},
    )


def _value(clause: Clause, index: int) -> Any:
    found = VALUES.get(clause.metric, 0)
    return found[index % len(found)] if isinstance(found, tuple) else found


def _certificate(
    *,
    nodes: list[NodeEntry],
    values: dict[tuple[str, str], Any] | None = None,
    problems: dict[tuple[str, str], str] | None = None,
    untested: dict[str, str] | None = None,
    unstable: dict[tuple[str, str], list[float]] | None = None,
    excluded: dict[str, str] | None = None,
    hidden: tuple[str, ...] = (),
    details: dict[tuple[str, str], str] | None = None,
    level: int = 2,
    status: str = "ACCEPTED",
    says: str = (
        "Every required clause of the profile was measured on every expected part and lies inside its limit. "
        "Level 2 of 2."
    ),
    **more: Any,
) -> Certificate:
    profile = _profile(level)
    values, problems, untested = values or {}, problems or {}, untested or {}
    unstable, excluded, details = unstable or {}, excluded or {}, details or {}
    files = [
        EvidenceEntry(
            sha256=hashlib.sha256(f"{node.name}{name}".encode()).hexdigest(),
            file=f"{node.name}/{name}.json",
            command=f"python -m pytest_gpuready.agent {words}",
            says=says,
            node=node.name,
            exit_code=0,
            size_bytes=size,
            started="2026-11-30T11:04:11Z",
            duration_s=seconds,
        )
        for node in nodes
        for name, words, says, size, seconds, of_level in RUNS
        if of_level <= level
    ]
    digests = {(entry.node, entry.file.rpartition("/")[2]): entry.sha256 for entry in files}

    def entry(clause: Clause, part: str, label: str, index: int) -> PartEntry:  # noqa: PLR0911 - one per outcome
        key = (clause.id, part)
        node = label.partition(" ")[0]
        common: dict[str, Any] = {"part": part, "evidence": [digests[node, f"{_run(clause)}.json"]]}
        if clause.not_applicable or clause.id in excluded:
            reason = clause.not_applicable or f"excluded by the site file: {excluded[clause.id]}"
            return PartEntry(**common, outcome="NOT APPLICABLE", reason=reason)
        if clause.id in hidden:
            reason = "hidden by the virtual machine: a virtual machine shows no bridge of the machine it runs on"
            return PartEntry(**common, outcome="OBSERVED", reason=reason)
        if clause.id in untested:
            return PartEntry(**common, outcome="NOT TESTED", reason=untested[clause.id])
        if key in problems:
            line = f"{clause.id} {clause.metric}: NOT MEASURED, {problems[key]} on {label}"
            return PartEntry(
                **common,
                outcome="NOT MEASURED",
                reason=problems[key],
                line=line,
                action=f"run level {clause.level} again; if it stays unmeasured, treat that as a finding about {label}",
            )
        value = values.get(key, unstable.get(key, [_value(clause, index)])[0])
        outcome, margin = _judge(clause, value)
        common |= {"shown": show(value), "value": value, "margin_percent": margin, "detail": details.get(key, "")}
        if clause.suite == "pcie_link":
            bad = ("PCIE-1", part) in values
            common["conditions"] = "58 samples under load"
            if clause.headline:
                common["watch"] = _watch(index, generation=3 if bad else 5, width=8 if bad else 16)
        if clause.id in ("STRESS-60", "STRESS-61"):
            common["watch"] = burn_in(index % 8)
        if key in unstable:
            return PartEntry(
                **common,
                outcome="UNSTABLE",
                repeats=list(unstable[key][1:]),
                reason="runs disagree about the limit: " + ", ".join(show(v, clause.unit) for v in unstable[key]),
                action=f"look for other users of {node}, then run level {clause.level} again",
            )
        if outcome == "MARGINAL" and clause.limit and clause.limit.marginal:
            return PartEntry(**common, outcome=outcome, reason=f"outside the inner limit {clause.limit.marginal:g}")
        if outcome != "FAIL":
            reason = "recorded, the profile gives no limit" if outcome == "OBSERVED" else ""
            return PartEntry(**common, outcome=outcome, reason=reason)
        action = clause.action
        for name, said in (("node", node), ("gpu", str(index)), ("module", str(MODULES[index % 8]))):
            action = action.replace("{" + name + "}", said)
        action = action.replace("{upstream}", "0000:97:02.0").replace("{bdf}", "0000:ab:00.0")
        return PartEntry(
            **common,
            outcome="FAIL",
            line=f"{clause.id} {clause.metric}: expected {clause.limit} ({clause.limit and clause.limit.source}), "
            f"found {show(value, clause.unit)} in 58 samples under load on {label}; {action}",
            action=action,
            neighbours=_neighbours(nodes, profile.clauses, clause, node, values),
            log=[
                "[   12.418803] pci 0000:ab:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 "
                "link at 0000:97:02.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
                "[  731.220436] nvidia 0000:ab:00.0:    [ 0] RxErr                  (First)",
            ],
        )

    suites: dict[str, list[ClauseEntry]] = {}
    for clause in profile.clauses:
        limit = clause.limit
        parts = []
        for node in nodes:
            if clause.per == "node":
                parts.append(entry(clause, node.name, node.name, 0))
            else:
                parts += [entry(clause, g.part, f"{node.name} GPU {g.index}", g.index) for g in node.gpus]
        suites.setdefault(clause.suite, []).append(
            ClauseEntry(
                id=clause.id,
                sentence=sentences().get(clause.id, clause.metric),
                metric=clause.metric,
                unit=clause.unit,
                level=clause.level,
                gate=clause.gate,
                required=clause.required,
                per="node" if clause.per == "node" else "gpu",
                headline=clause.headline,
                limit=str(limit) if limit else "",
                at_least=limit.at_least if limit else None,
                at_most=limit.at_most if limit else None,
                equals=limit.equals if limit else None,
                uniform=bool(limit and limit.uniform),
                marginal=limit.marginal if limit else None,
                ceiling=limit.ceiling if limit else None,
                source_kind=limit.source.kind if limit else "",
                source=str(limit.source) if limit else "",
                not_applicable=clause.not_applicable,
                parts=parts,
            )
        )
    entries = [
        SuiteEntry(id=suite, title=titles().get(suite, suite), level=clauses[0].level, gate=True, clauses=clauses)
        for suite, clauses in suites.items()
    ]
    outcomes = Counter(p.outcome for s in entries for c in s.clauses for p in c.parts)
    fields: dict[str, Any] = {
        "finished": True,
        "level_asked": level,
        "level_reached": level,
        "started": "2026-11-30T11:04:02Z",
        "issued": "2026-11-30T11:16:40Z",
        "assumptions": ["inlet air as found", "no other tenant on the node"],
        **more,
    }
    cells = [(c, p) for s in entries for c in s.clauses for p in c.parts]
    silent = {node.name: node.problem for node in nodes if not node.answered}
    levels = frozenset(range(1, level + 1))
    asked = Asked(level=level, finished=True, profile=profile.name, levels=levels, silent=silent)
    return Certificate(
        number="GR-4143222309d1",
        judged=status,  # type: ignore[arg-type]
        basis="hardware",
        says=says,
        product="pytest-gpuready 0.1.0",
        profile=ProfileEntry(
            name=profile.name, version=profile.version, title=profile.title, sha256=profile.sha256, notes=[]
        ),
        site=SiteEntry(
            name="site.yaml", sha256="59" * 32, provider="Provider", customer="Customer", agreement="agreement 0042"
        ),
        nodes=ruled(nodes, cells, asked, "hardware"),
        exclusions=[ExclusionEntry(clause=c, reason=r) for c, r in excluded.items()],
        suites=entries,
        counts=Counts(clauses=len(profile.clauses), cells=sum(outcomes.values()), outcomes=dict(outcomes)),
        environment={
            "pytest-gpuready": "0.1.0",
            "python": "3.12.3",
            "pytest": "9.2.0",
            **{f"{node.name} kernel": KERNEL for node in nodes},
            **{f"{node.name} NCCL_NVLS_ENABLE": "0" for node in nodes},
        },
        evidence=files,
        **fields,
    )


def _judge(clause: Clause, value: Any) -> tuple[Any, float | None]:
    """Outcome and margin as the judge would say them, for values that are not a comparison of peers."""
    limit = clause.limit
    if limit is None:
        return "OBSERVED", None
    bound = limit.bound
    if bound is None:
        return ("PASS" if limit.uniform or value == limit.equals else "FAIL"), None
    inside = value >= bound if limit.at_least is not None else value <= bound
    distance = value - bound if limit.at_least is not None else bound - value
    margin = 100.0 * distance / bound if bound else None
    if inside and limit.marginal is not None and value < limit.marginal:
        return "MARGINAL", margin
    return ("PASS" if inside else "FAIL"), margin


def _neighbours(
    nodes: list[NodeEntry], clauses: tuple[Clause, ...], clause: Clause, node: str, values: dict[tuple[str, str], Any]
) -> dict[str, dict[str, str]]:
    by_metric = {c.metric: c for c in clauses}
    gpus = [gpu for entry in nodes if entry.name == node for gpu in entry.gpus if gpu.present]
    rows = {}
    for metric in (clause.metric, *clause.context):
        other = by_metric.get(metric)
        if other is not None and other.per == "gpu":
            rows[metric] = {g.part: show(values.get((other.id, g.part), _value(other, g.index))) for g in gpus}
    return rows
