"""One GPU as nvidia-smi shows it, held against expectations, its own limits and its own words.

Judged without an expectation: uncorrectable ECC errors since the driver was loaded, row remapping that waits or failed,
the recovery action, clock reasons that are faults, a fabric that is not up, a link narrower than it could be. Counters
over the life of the board and corrected errors are shown, not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.products import PCI_ID, pci_id
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.audit.smi_link import BUSY, link
from pytest_gpuready.parse.smi_values import Cell, SmiGpu

OWN = "the tool's own verdict"
_FAULT_REASONS = {
    "hw_slowdown": "hardware slowdown: power supply, cooling or a brake signal",
    "hw_thermal_slowdown": "cooling",
    "sw_thermal_slowdown": "cooling",
    "hw_power_brake_slowdown": "power supply or the BMC's power brake",
}
_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_REASON = "clocks_event_reasons."
CAPPED_FAR_BELOW = 0.7
"""A software power cap is normal at the limit; with less than this share of it drawn something else holds the GPU."""


def gpu_findings(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    """Everything that one GPU's values say."""
    yield from _health(gpu)
    yield from _ecc(gpu)
    yield from _rows(gpu)
    yield from _clocks(gpu, expect)
    yield from link(gpu, expect)
    yield from _fabric(gpu, expect)
    yield from _settings(gpu, expect)
    yield from shown(gpu)


_SHOWN = (
    "timestamp", "temperature.", "pcie.replay_counter", "utilization.", "power.draw", "memory.", "clocks.current.",
    "clocks.sm", "clocks.gr", "clocks.mem",
)  # fmt: skip
State = tuple[object, ...]


def state(gpu: SmiGpu) -> State:
    """Everything that `gpu_findings` judges: two samples of a GPU with equal states differ in what is `shown` alone."""
    told = [(n, c.kind if n.startswith(_SHOWN) else c.text) for n, c in gpu.cells.items()]
    return (*told, (gpu.number("utilization.gpu") or 0) >= BUSY, _capped_far_below(gpu))


def active_reasons(gpu: SmiGpu) -> list[str] | None:
    """Names of the clock reasons that are active; None where the text does not say."""
    mask = gpu.cells.get(_REASON + "active")
    if mask and mask.kind == "number" and mask.number is not None:
        bits = int(mask.number)
        unknown = bits & ~sum(_BITS)
        return [name for bit, name in _BITS.items() if bits & bit] + ([f"unknown bits {unknown:#x}"] if unknown else [])
    told = {name: c.text for name, c in gpu.cells.items() if name.startswith(_REASON) and c.kind == "word"}
    if not told:
        return None
    return [name.removeprefix(_REASON) for name, text in told.items() if text == "Active"]


def plain(number: float) -> float | int:
    """A whole number without its point."""
    return int(number) if float(number).is_integer() else number


def _health(gpu: SmiGpu) -> Iterator[Finding]:
    broken = sorted({c.text for c in gpu.cells.values() if c.kind == "fault"})
    asked = [gpu.word("reset_status.reset_required"), gpu.word("reset_status.drain_and_reset_recommended")]
    action = gpu.cells.get("gpu_recovery_action")
    if broken:
        yield Finding(
            metric="gpu.health",
            outcome="fail",
            part=gpu.part,
            value=", ".join(broken)[:200],
            source=OWN,
            suspect=f"{gpu.part}: needs a reset or power cycle",
            advice="look for Xid 62, 79, 119 or 154 in the kernel log before the reset",
        )
    elif (action and action.kind == "word" and action.text != "None") or "Yes" in asked:
        wanted = action.text if action and action.text != "None" else "reset"
        yield Finding(
            metric="gpu.health",
            outcome="fail",
            part=gpu.part,
            value=wanted,
            expected="None",
            source=OWN,
            suspect=f"{gpu.part}: asks for recovery ({wanted})",
            advice="look for the Xid behind it in the kernel log",
        )
    elif (action and action.text == "None") or (asked and all(text == "No" for text in asked)):
        yield Finding(metric="gpu.health", outcome="pass", part=gpu.part, value="None", expected="None", source=OWN)
    for name, c in gpu.cells.items():
        if c.kind == "unreadable":
            yield Finding(
                metric=f"smi.{name}", outcome="not-measured", part=gpu.part, value=c.text, suspect="value not readable"
            )


def _ecc(gpu: SmiGpu) -> Iterator[Finding]:
    for scope, metric in (("volatile", "gpu.ecc"), ("aggregate", "gpu.ecc_aggregate")):
        prefix = f"ecc.errors.uncorrected.{scope}."
        counters = {n.removeprefix(prefix): c for n, c in gpu.cells.items() if n.startswith(prefix)}
        counts = {n: c.number for n, c in counters.items() if c.number is not None}
        if not counters:
            continue
        if not counts:
            off = gpu.word("ecc.mode.current") == "Disabled"
            fault = any(c.kind == "fault" for c in counters.values())
            yield Finding(
                metric=metric,
                outcome="not-measured" if off or fault else "observed",
                part=gpu.part,
                suspect="ECC is off: nothing was counted" if off else "no ECC counter was readable",
            )
            continue
        totals = [v for n, v in counts.items() if n.endswith("total")]
        count = max(sum(v for n, v in counts.items() if not n.endswith("total")), *totals, 0.0)
        outcome: Outcome = "observed"
        if scope == "volatile":
            outcome = "fail" if count else "pass" if _all_counters(set(counts)) else "observed"
        yield Finding(
            metric=metric,
            outcome=outcome,
            part=gpu.part,
            value=plain(count),
            unit="uncorrectable errors",
            expected="0" if scope == "volatile" else "",
            source=OWN if scope == "volatile" else "",
            suspect=f"memory of {gpu.part}" if outcome == "fail" else "",
            advice="over the life of the board; must be 0 on a new one" if scope == "aggregate" and count else "",
        )
    if gpu.word("ecc.sram_threshold_exceeded") == "Yes":
        yield _bad(gpu, "gpu.ecc", "SRAM threshold exceeded", f"SRAM of {gpu.part}", "replace the GPU")


def _all_counters(names: set[str]) -> bool:
    """Whether SRAM and DRAM, or a total, are among the counters: with one of them gone 0 says nothing."""
    if any(name.endswith("total") for name in names):
        return True
    sram = (
        bool(names & {"sram", "sram_uncorrectable"})
        or {
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
        }
        <= names
    )
    return sram and bool(names & {"dram", "dram_uncorrectable"})


def _rows(gpu: SmiGpu) -> Iterator[Finding]:
    pending, failure = gpu.cells.get("remapped_rows.pending"), gpu.cells.get("remapped_rows.failure")
    words = [c.text for c in (pending, failure) if c and c.kind in ("word", "number")]
    yes = {"Yes", "1"}
    if words:
        failed = bool(failure and failure.text in yes)
        bad = failed or bool(pending and pending.text in yes)
        good = len(words) == 2 and all(word in ("No", "0") for word in words)
        yield Finding(
            metric="gpu.row_remap",
            outcome="fail" if bad else "pass" if good else "not-measured",
            part=gpu.part,
            value=", ".join(f"{n} {c.text}" for n, c in (("pending", pending), ("failure", failure)) if c),
            expected="pending No, failure No",
            source=OWN,
            suspect=f"memory of {gpu.part}{' (RMA)' if failed else ''}" if bad else "",
            advice="replace the GPU" if failed else "reset the GPU and test its memory again" if bad else "",
        )
    elif pending or failure:
        yield Finding(
            metric="gpu.row_remap", outcome="observed", part=gpu.part, value="N/A", advice="not shown, as with MIG on"
        )
    for name in ("remapped_rows.uncorrectable", "remapped_rows.correctable", "retired_pages.double_bit.count"):
        count = gpu.number(name)
        if count:
            yield Finding(metric=f"gpu.{name}", outcome="observed", part=gpu.part, value=plain(count))
    if gpu.number("remapped_rows.histogram.none"):
        count = gpu.number("remapped_rows.histogram.none") or 0
        yield Finding(
            metric="gpu.row_remap_spare",
            outcome="marginal",
            part=gpu.part,
            value=plain(count),
            unit="banks without a spare row",
            suspect=f"memory of {gpu.part}",
        )
    if gpu.word("retired_pages.pending") in yes:
        yield _bad(gpu, "gpu.retired_pages", "pending", f"memory of {gpu.part}", "reset the GPU and test it again")
    for name in ("repair.channel_pending", "repair.tpc_pending", "repair.unrepairable_memory"):
        if gpu.word(name) == "Yes":
            yield _bad(gpu, f"gpu.{name}", "Yes", f"memory of {gpu.part}", "reset the GPU; replace it if this stays")


def _clocks(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    active = active_reasons(gpu)
    if active is None:
        return
    faults = [name for name in active if name in _FAULT_REASONS or name.startswith("unknown")]
    suspect = "; ".join(dict.fromkeys(_FAULT_REASONS.get(name, name) for name in faults))
    outcome: Outcome = "fail" if faults else "pass"
    if not faults and "sw_power_cap" in active and _capped_far_below(gpu):
        outcome, suspect = "fail", "power cap far below the limit: power supply, BMC or another cap"
    elif not faults and "applications_clocks_setting" in active and _clocks_were_set(gpu):
        outcome, suspect = "fail", "configuration: somebody lowered the applications clocks"
    elif not faults and expect.flag("under_load") and "gpu_idle" in active:
        outcome, suspect = "not-measured", "test set-up: read while idle, asked for under load"
    elif not faults and not {_REASON + "hw_slowdown", _REASON + "active"} & set(gpu.cells):
        outcome = "observed"
    yield Finding(
        metric="gpu.clocks",
        outcome=outcome,
        part=gpu.part,
        value=list(active),
        expected="no thermal, power brake or hardware slowdown",
        source=OWN,
        suspect=suspect,
    )


def _capped_far_below(gpu: SmiGpu) -> bool:
    limits = [v for n in ("enforced.power.limit", "power.limit") if (v := gpu.number(n)) is not None]
    drawn = power(gpu)
    return bool(limits) and drawn is not None and drawn < CAPPED_FAR_BELOW * min(limits)


def _clocks_were_set(gpu: SmiGpu) -> bool:
    now, usual = gpu.number("clocks.applications.graphics"), gpu.number("clocks.default_applications.graphics")
    return now is not None and usual is not None and now < usual


def power(gpu: SmiGpu) -> float | None:
    """Watts drawn now; the average where nothing newer is shown."""
    names = ("power.draw.instant", "power.draw", "power.draw.average")
    return next((v for name in names if (v := gpu.number(name)) is not None), None)


def _fabric(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    state, status = gpu.cells.get("fabric.state"), gpu.cells.get("fabric.status")
    if state is None or expect.flag("nvswitch") is False:
        return
    wanted = expect.flag("nvswitch")
    if state.kind == "absent":
        yield Finding(
            metric="fabric.state",
            outcome="not-measured" if wanted and expect.asked("nvswitch") else "observed",
            part=gpu.part,
            value="N/A",
            expected="Completed, Success" if wanted else "",
            source=expect.source_of("nvswitch") if wanted else "",
            suspect="this driver or machine shows no fabric state" if wanted else "",
        )
        return
    sick = _sick_health(gpu)
    up = state.text == "Completed" and status is not None and status.text == "Success"
    half = state.text == "Completed" and (status is None or status.kind == "absent")
    outcome: Outcome = "not-measured" if half and not sick else "pass" if up and not sick else "fail"
    suspect = "nvidia-fabricmanager service (not running, wrong version, or NVSwitch training failed)"
    yield Finding(
        metric="fabric.state",
        outcome=outcome,
        part=gpu.part,
        value=state.text if state.text != "Completed" or up else f"Completed, {status.text if status else 'no status'}",
        expected="Completed, Success",
        source=expect.source_of("nvswitch") if wanted else OWN,
        suspect=(f"NVLink of {gpu.part}: {', '.join(sick)}" if sick else suspect) if outcome == "fail" else "",
        advice="CUDA fails with error 802 until then" if outcome == "fail" and not sick else "",
    )


def _sick_health(gpu: SmiGpu) -> list[str]:
    good = {
        "summary": ("Healthy",),
        "bandwidth": ("Full", "Not Degraded", "False", "No"),
        "route_recovery": ("False", "No"),
        "route_unhealthy": ("False", "No"),
        "access_timeout": ("False", "No"),
        "incorrect_configuration": ("None", "False", "No"),
    }
    told = {name: gpu.word(f"fabric.health.{name}") for name in good}
    return [f"{name} {word}" for name, word in told.items() if word and word not in good[name]]


def _settings(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    name, model = gpu.cells.get("name"), expect.text("expected_model")
    if name:
        yield _model(gpu, name, model, expect.source)
    device = pci_id(gpu.word("pci.device_id"))
    if device:
        yield Finding(metric=PCI_ID, outcome="observed", part=gpu.part, value=device)
    mig, wanted = gpu.cells.get("mig.mode.current"), expect.text("expected_mig")
    if mig and (wanted or mig.kind != "absent"):
        same = mig.text.strip("[]").lower() == (wanted or "").lower()
        pending = gpu.word("mig.mode.pending")
        absent = mig.kind == "absent"
        off_is_fine = absent and (wanted or "").lower() == "disabled"
        yield Finding(
            metric="gpu.mig",
            outcome=(
                "observed"
                if not wanted
                else "not-applicable"
                if off_is_fine
                else "not-measured"
                if absent
                else "pass"
                if same
                else "fail"
            ),
            part=gpu.part,
            value=mig.text,
            expected=wanted or "",
            source=expect.source_of("expected_mig") if wanted else "",
            suspect=f"configuration: MIG mode of {gpu.part}" if wanted and not same and not absent else "",
            advice=f"{pending} after the next reset" if pending and pending != mig.text else "",
        )
    mode, bare = gpu.word("virtualization_mode"), expect.flag("bare_metal")
    if mode and bare is not None:
        virtual = mode != "None"
        yield Finding(
            metric="gpu.virtualization",
            outcome="fail" if bare and virtual else "pass" if bare or virtual else "observed",
            part=gpu.part,
            value=mode,
            expected="None" if bare else "a virtual machine",
            source=expect.source,
            suspect="the machine is virtual" if bare and virtual else "",
        )
    limits = [v for n in ("enforced.power.limit", "power.limit") if (v := gpu.number(n)) is not None]
    default = gpu.number("power.default_limit")
    if limits and default is not None:
        low = min(limits) < default
        yield Finding(
            metric="gpu.power_limit",
            outcome="fail" if low else "pass",
            part=gpu.part,
            value=plain(min(limits)),
            unit="W",
            expected=f">= {plain(default)} W, its default",
            source=OWN,
            suspect=f"power cap on {gpu.part} (configuration or BMC)" if low else "",
        )


def _model(gpu: SmiGpu, name: Cell, model: str | None, source: str) -> Finding:
    cut = name.text.endswith("...")
    if model is None:
        return Finding(metric="gpu.model", outcome="observed", part=gpu.part, value=name.text)
    same = name.text == model
    begins = cut and model.startswith(name.text.removesuffix("..."))
    return Finding(
        metric="gpu.model",
        outcome="pass" if same else "not-measured" if begins or name.kind in ("absent", "fault") else "fail",
        part=gpu.part,
        value=name.text,
        expected=model,
        source=source,
        suspect="" if same else "the table cuts long names" if begins else f"another product in the slot of {gpu.part}",
    )


def shown(gpu: SmiGpu) -> Iterator[Finding]:
    """Values that are not judged."""
    drawn = power(gpu)
    if drawn is not None:
        yield Finding(metric="gpu.power", outcome="observed", part=gpu.part, value=plain(drawn), unit="W")
    for name, metric, unit in (
        ("temperature.gpu", "gpu.temperature", "C"),
        ("pcie.replay_counter", "pcie.replays", ""),
        ("utilization.gpu", "gpu.utilization", "%"),
    ):
        value = gpu.number(name)
        if value is not None:
            yield Finding(metric=metric, outcome="observed", part=gpu.part, value=plain(value), unit=unit)


def _bad(gpu: SmiGpu, metric: str, value: str, suspect: str, advice: str) -> Finding:
    return Finding(
        metric=metric, outcome="fail", part=gpu.part, value=value, source=OWN, suspect=suspect, advice=advice
    )
