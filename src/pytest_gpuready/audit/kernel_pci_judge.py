"""What the kernel says about links, slots, modules and AER, judged: one finding per device and kind of trouble."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.kernel_events import KernelEvents, Tally, of
from pytest_gpuready.audit.pci_judge import GENERATION
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.kernel_pci import PciEvent
from pytest_gpuready.parse.pci_address import pci_address

OWN = "the kernel's own words"
_CARDS = {"mlx5_core", "mlx4_core", "bnxt_en", "ice", "ionic", "i40e", "efa", "irdma", "bng_en", "sfc", "tg3"}


def pci_log_findings(events: KernelEvents, expect: Expectations) -> Iterator[Finding]:
    """Findings on everything but Xids."""
    listed = expect.list("expected_nics")
    nics = _addresses(listed)
    for bdf, tally, event in of(events.pci, "bandwidth"):
        ours = bdf in nics if listed is not None else event.driver in _CARDS
        yield from _bandwidth(bdf, tally, event, expect, ours=ours)
    for bdf, tally, event in of(events.pci, "slot power"):
        yield _trouble("nic.slot_power", f"slot power of {bdf}", bdf, tally, event.number, unit="W")
    yield from _modules(events, nics, asked=listed is not None)
    for bdf, tally, event in of(events.pci, "nic health"):
        yield _trouble("nic.health", f"firmware of NIC {bdf}", bdf, tally, event.text)
    for bdf, tally, event in of(events.pci, "nic temperature"):
        yield _trouble("nic.temperature", f"cooling of NIC {bdf}", bdf, tally, event.text)
    yield from _net_links(events, nics)
    yield from _aer(events, expect)
    for bdf, tally, event in of(events.pci, "hot unplug", "containment"):
        yield _trouble("pcie.link_lost", f"device below {bdf}: seating, power, riser", bdf, tally, event.text)
    for bdf, tally, event in of(events.pci, "gpu init failed"):
        who = f"GPU {bdf}" if bdf else "a GPU"
        yield _trouble("gpu.init", f"{who}: the driver could not start it", bdf, tally, event.text[:200])
    for _, tally, event in of(events.pci, "probe failed"):
        yield _trouble("gpu.probe", "GPUs that the driver could not start", "", tally, event.number, unit="GPUs")
    for _, tally, _event in of(events.pci, "api mismatch"):
        suspect = "host software: driver packages upgraded without reboot"
        yield _trouble("software.driver_consistency", suspect, "", tally, None)
    if listed is not None:
        told = {bdf for _, bdf in events.pci}
        with_link = {bdf for bdf, _, _ in of(events.pci, "bandwidth")}
        for bdf in sorted(nics - with_link):
            asks = expect.count("expected_pcie_width") is not None or expect.count("expected_pcie_gen") is not None
            if asks or bdf not in told:
                yield Finding(
                    metric="nic.pcie_width" if asks else "nic.seen",
                    outcome="not-measured",
                    part=f"NIC {bdf}",
                    source=expect.source,
                    suspect="the log says nothing about its link",
                )


def _addresses(listed: list[object] | None) -> set[str]:
    found: set[str] = set()
    for entry in listed or []:
        try:
            found.add(pci_address(str(entry)))
        except ParseError:
            found.add(str(entry))
    return found


def _outcome(tally: Tally, bad: Outcome = "fail") -> Outcome:
    """The outcome of trouble by when it was: history is shown, undated is not measured."""
    return bad if tally.inside else "not-measured" if tally.undated else "observed"


def _trouble(
    metric: str, suspect: str, bdf: str, tally: Tally, value: float | int | str | None, *, unit: str = ""
) -> Finding:
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    return Finding(
        metric=metric,
        outcome=_outcome(tally),
        part=bdf,
        value=number,
        unit=unit,
        source=OWN,
        suspect=suspect,
        advice=f"{tally.count} lines" if tally.count > 1 else "",
    )


def _bandwidth(bdf: str, tally: Tally, event: PciEvent, expect: Expectations, *, ours: bool) -> Iterator[Finding]:
    part = f"NIC {bdf}" if ours or event.driver in _CARDS else bdf
    width, gen = expect.count("expected_pcie_width"), expect.count("expected_pcie_gen")
    if event.number is not None:
        yield Finding(
            metric="nic.pcie_bandwidth", outcome="observed", part=part, value=event.number, unit="Gbit/s",
            advice="" if ours else "not among the network cards that were asked for",
        )  # fmt: skip
    if event.could_width is not None:
        yield Finding(metric="nic.pcie_capable_width", outcome="observed", part=part, value=event.could_width)
    if not ours:
        return
    wanted = width if width is not None else event.could_width
    good = event.width is not None and (wanted is None or event.width >= wanted)
    yield Finding(
        metric="nic.pcie_width",
        outcome=("pass" if tally.inside or tally.undated else "observed") if good else _outcome(tally),
        part=part,
        value=event.width,
        unit="lanes",
        expected="" if wanted is None else f">= {wanted}",
        source=expect.source if width is not None else OWN,
        suspect="" if good else f"slot of NIC {bdf} (x{event.width})",
        advice="" if good else f"narrowed at {event.at}" if event.at else "",
    )
    now = GENERATION.get(event.speed) if event.speed is not None else None
    could = GENERATION.get(event.could_speed) if event.could_speed is not None else None
    least = gen if gen is not None else could
    if least is not None:
        fast = now is not None and now >= least
        yield Finding(
            metric="nic.pcie_speed",
            outcome="not-measured" if now is None else "pass" if fast else _outcome(tally),
            part=part,
            value=event.speed,
            unit="GT/s",
            expected=f">= generation {least}",
            source=expect.source if gen is not None else OWN,
            suspect="" if fast else f"slot of NIC {bdf}",
        )


def _modules(events: KernelEvents, nics: set[str], *, asked: bool) -> Iterator[Finding]:
    for bdf, tally, event in of(events.pci, "module error"):
        yield _trouble("nic.module", f"transceiver in {bdf}", bdf, tally, event.text)
    plugged = {bdf: tally for bdf, tally, _ in of(events.pci, "module plugged")}
    for bdf, tally, _event in of(events.pci, "module unplugged"):
        again = plugged.get(bdf)
        back = again is not None and _later(again, tally)
        wanted = asked and bdf in nics and not back
        yield Finding(
            metric="nic.module",
            outcome=_outcome(tally) if wanted else "observed",
            part=bdf,
            value="plugged again" if back else "unplugged",
            source=OWN,
            suspect=f"no cable in {bdf}" if wanted else "",
            advice="" if wanted or back else "a finding only where a cable is expected",
        )


def _later(a: Tally, b: Tally) -> bool:
    if a.last_boot is not None and b.last_boot is not None:
        return a.last_boot >= b.last_boot
    if a.last_wall is not None and b.last_wall is not None:
        return a.last_wall.replace(tzinfo=None) >= b.last_wall.replace(tzinfo=None)
    return False


def _net_links(events: KernelEvents, nics: set[str]) -> Iterator[Finding]:
    up = {bdf: tally for bdf, tally, _ in of(events.pci, "link up")}
    for bdf, tally, event in of(events.pci, "link down"):
        if event.driver not in _CARDS and bdf not in nics:
            continue
        back = bdf in up and _later(up[bdf], tally)
        yield Finding(
            metric="nic.link_down",
            outcome="observed" if back or bdf not in nics else _outcome(tally),
            part=f"NIC {bdf}",
            value=tally.count,
            unit="times down",
            suspect="" if back or bdf not in nics else f"cable or switch port of NIC {bdf}",
        )


def _aer(events: KernelEvents, expect: Expectations) -> Iterator[Finding]:
    limit = expect.count("max_corrected_per_run")
    for kind, metric in (("uncorrected", "pcie.aer_uncorrected"), ("corrected", "pcie.aer_corrected")):
        named = {bdf: (tally, event) for bdf, tally, event in of(events.pci, f"aer {kind}")}
        for bdf, tally, event in of(events.pci, f"aer {kind} received"):
            named.setdefault(bdf, (tally, event))
        for bdf, (tally, event) in sorted(named.items()):
            count = tally.inside + tally.undated
            outcome: Outcome
            if not count:
                outcome = "observed"
            elif kind == "uncorrected":
                outcome = _outcome(tally)
            elif limit is None:
                outcome = "observed"
            else:
                over = count > limit
                outcome = _outcome(tally) if over else "not-measured" if events.limited else "pass"
            bad = outcome in ("fail", "not-measured")
            software = "Transaction Layer" in event.text and kind == "uncorrected"
            yield Finding(
                metric=metric,
                outcome=outcome,
                part=bdf,
                value=count if count else tally.history,
                unit=f"errors{' at least' if events.limited else ''}{' before the window' if not count else ''}",
                expected="0" if kind == "uncorrected" else "" if limit is None else f"<= {limit}",
                source=expect.source if kind == "corrected" and limit is not None else OWN,
                suspect=f"link of {bdf} (slot, riser, cable or retimer)" if bad else "",
                advice="transaction layer: ACS, IOMMU or driver may cause it too" if software else event.text,
            )
