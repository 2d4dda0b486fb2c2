"""PCI devices as lspci shows them: who is there, how wide and fast the links are, whether ACS redirects traffic.

A sleeping GPU trains its link down to 2.5 or 5 GT/s; lspci does not say whether it sleeps, so such a speed says nothing
unless the text was taken under load. A width never sleeps. Redirection by ACS hurts on bridges above GPUs only; source
validation alone is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.products import PCI_ID, lspci_id
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.lspci import PciDevice

OWN = "the tool's own verdict"
GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_REDIRECT = ("ReqRedir", "CmpltRedir", "UpstreamFwd")
_ASLEEP_AT_MOST = 2
"""Highest generation that a sleeping GPU trains down to."""


def pci_findings(devices: Sequence[PciDevice], expect: Expectations) -> Iterator[Finding]:
    """Findings on GPUs, network cards and bridges."""
    gpus = [d for d in devices if d.kind == "gpu"]
    nics = [d for d in devices if d.kind == "nic"]
    yield from _presence(gpus, expect)
    for device in gpus:
        yield from _link(device, expect, asked=True)
    for device in nics:
        yield from _link(device, expect, asked=not gpus)
    yield from _acs(devices, gpus, expect)
    listed = expect.list("expected_nics")
    if listed is not None:
        there = {d.bdf for d in devices if not d.gone}
        for address in listed:
            yield Finding(
                metric="inventory.nic_present",
                outcome="pass" if str(address).lower() in there else "fail",
                part=f"NIC {address}",
                expected="on the bus",
                source=expect.source,
                suspect="" if str(address).lower() in there else f"NIC {address}: seating, power or slot",
            )
    switches = [d for d in devices if d.kind == "nvswitch"]
    if switches:
        outcome: Outcome = (
            "fail" if any(d.gone for d in switches) else "pass" if expect.flag("nvswitch") else "observed"
        )
        yield Finding(
            metric="inventory.nvswitch",
            outcome=outcome,
            value=len([d for d in switches if not d.gone]),
            unit="NVSwitches",
            source=expect.source_of("nvswitch") if expect.flag("nvswitch") else "",
            suspect=", ".join(f"NVSwitch {d.bdf}" for d in switches if d.gone),
        )


def _presence(gpus: Sequence[PciDevice], expect: Expectations) -> Iterator[Finding]:
    for gpu in gpus:
        yield Finding(
            metric="inventory.pci_present",
            outcome="fail" if gpu.gone else "pass",
            part=f"GPU {gpu.bdf}",
            value="answers no more (reads all ones)" if gpu.gone else gpu.text,
            source=OWN,
            suspect=f"GPU {gpu.bdf} (fallen off the bus): power, seating, riser" if gpu.gone else "",
            advice="look for Xid 79 in the kernel log" if gpu.gone else "",
        )
        device = lspci_id(gpu.text)
        if device:
            yield Finding(metric=PCI_ID, outcome="observed", part=f"GPU {gpu.bdf}", value=device)
        if gpu.driver or gpu.modules:
            foreign = gpu.driver == "nouveau"
            yield Finding(
                metric="software.driver_bound",
                outcome="fail" if foreign else "observed" if gpu.driver else "marginal",
                part=f"GPU {gpu.bdf}",
                value=gpu.driver or "none",
                expected="nvidia" if foreign or not gpu.driver else "",
                source=OWN if foreign or not gpu.driver else "",
                suspect="host software: another driver holds the GPU" if foreign else "",
            )
    expected = expect.count("expected_gpus")
    if expected is None:
        expected = expect.count("gpus_per_node")
    alive = len({gpu.bdf for gpu in gpus if not gpu.gone})
    if gpus and expected is not None:
        yield Finding(
            metric="inventory.gpu_count",
            outcome="pass" if alive == expected else "fail",
            value=alive,
            unit="GPUs",
            expected=str(expected),
            source=expect.source,
            suspect="" if alive == expected else "a GPU that is not on the bus: power, seating, riser",
        )


def _link(device: PciDevice, expect: Expectations, *, asked: bool) -> Iterator[Finding]:
    part = f"{'GPU' if device.kind == 'gpu' else 'NIC'} {device.bdf}"
    keys = {"width": "expected_pcie_width", "speed": "expected_pcie_gen"}
    # A profile promises links of GPUs: a network card is held against what was given for it, nothing else.
    answers = {name: key for name, key in keys.items() if asked and (device.kind == "gpu" or expect.asked(key))}
    prefix = "pcie" if device.kind == "gpu" or asked else "nic.pcie"
    wanted_any = any(expect.asked(key) for key in answers.values())
    if device.gone or (device.link is None and not device.verbose and not wanted_any):
        return
    if device.link is None or device.wrong:
        if device.kind == "gpu" or wanted_any:
            why = "test setup (needs root or CAP_SYS_ADMIN)" if device.denied else "the text has no LnkSta of it"
            for name, key in keys.items():
                value = expect.count(key) if expect.asked(key) else None
                yield Finding(
                    metric=f"{prefix}.{name}",
                    outcome="not-measured",
                    part=part,
                    expected="" if value is None else f">= {value}",
                    source=expect.source if value is not None else "",
                    suspect=", ".join(device.wrong) or why,
                    advice="run lspci -vvv as root",
                )
        return
    width = expect.count(keys["width"]) if "width" in answers else None
    gen = expect.count(keys["speed"]) if "speed" in answers else None
    yield _width(device, part, f"{prefix}.width", width, expect)
    yield _speed(device, part, f"{prefix}.speed", gen, expect)


def _width(device: PciDevice, part: str, metric: str, expected: int | None, expect: Expectations) -> Finding:
    own = device.could.width if device.could else None
    wanted = expected if expected is not None else own
    width = device.link.width if device.link else None
    outcome: Outcome = "observed"
    if width is None:
        outcome = "not-measured"
    elif wanted is not None:
        outcome = "pass" if width >= wanted else "fail"
    return Finding(
        metric=metric,
        outcome=outcome,
        part=part,
        value=width,
        unit="lanes",
        expected="" if wanted is None else f">= {wanted}",
        source=_source(expect, "expected_pcie_width", expected, wanted),
        suspect=f"slot, riser or connector of {device.bdf}" if outcome == "fail" else "",
        advice=f"the device could run x{own}" if outcome == "fail" and own and own != width else "",
    )


def _speed(device: PciDevice, part: str, metric: str, expected: int | None, expect: Expectations) -> Finding:
    own_speed = device.could.speed if device.could else None
    own = GENERATION.get(own_speed) if own_speed is not None else None
    wanted = expected if expected is not None else own
    speed = device.link.speed if device.link else None
    gen = GENERATION.get(speed) if speed is not None else None
    load = expect.flag("under_load")
    may_sleep = device.kind == "gpu" and not load and gen is not None and (load is False or gen <= _ASLEEP_AT_MOST)
    outcome: Outcome
    if gen is None:
        outcome = "not-measured"
    elif wanted is None:
        outcome = "observed"
    elif gen >= wanted:
        outcome = "pass"
    elif own is not None and own < wanted:
        outcome = "fail"
    else:
        asked = expected is not None and expect.asked("expected_pcie_gen")
        outcome = "fail" if not may_sleep else "not-measured" if asked else "observed"
    return Finding(
        metric=metric,
        outcome=outcome,
        part=part,
        value=speed if speed is None or not speed.is_integer() else int(speed),
        unit="GT/s",
        expected="" if wanted is None else f">= generation {wanted}",
        source=_source(expect, "expected_pcie_gen", expected, wanted),
        suspect=f"slot, riser or connector of {device.bdf}" if outcome == "fail" else "",
        advice="a sleeping GPU lowers its link; read it again during a copy"
        if outcome in ("not-measured", "observed") and gen is not None and may_sleep
        else "",
    )


def _source(expect: Expectations, key: str, expected: int | None, wanted: int | None) -> str:
    return expect.source_of(key) if expected is not None else "the link's own maximum" if wanted is not None else ""


def _acs(devices: Sequence[PciDevice], gpus: Sequence[PciDevice], expect: Expectations) -> Iterator[Finding]:
    bridges = [d for d in devices if d.kind == "bridge"]
    above = [d for d in bridges if d.buses and any(_below(d, gpu) for gpu in gpus)]
    judged = above if above else bridges
    bare = expect.flag("bare_metal")
    for bridge in judged:
        if bridge.acs is None or bridge.wrong:
            if bare and (bridge.denied or not bridge.verbose or bridge.wrong):
                yield Finding(
                    metric="pcie.acs",
                    outcome="not-measured",
                    part=bridge.bdf,
                    suspect=", ".join(bridge.wrong) or "test setup (needs lspci -vvv as root)",
                )
            continue
        redirect = [flag for flag in _REDIRECT if flag in bridge.acs]
        only_source = not redirect and "SrcValid" in bridge.acs
        outcome: Outcome = "pass"
        if redirect:
            outcome = "observed" if bare is False else "fail"
        elif only_source:
            outcome = "observed"
        yield Finding(
            metric="pcie.acs",
            outcome=outcome,
            part=bridge.bdf,
            value="redirect on" if redirect else "SrcValid only" if only_source else "off",
            expected="no redirection" if bare is not False else "",
            source=expect.source if bare else OWN,
            suspect=f"BIOS/kernel setting (ACS on switch port {bridge.bdf})" if outcome == "fail" else "",
            advice="peer traffic goes through the root complex; GPUDirect is slow or hangs" if redirect else "",
        )


def _below(bridge: PciDevice, gpu: PciDevice) -> bool:
    domain, bus, _ = gpu.bdf.split(":")
    first, last = bridge.buses or (1, 0)
    return bridge.bdf.split(":")[0] == domain and first <= int(bus, 16) <= last
