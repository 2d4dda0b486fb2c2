"""One GPU in one document of the built-in engine: its results, or why there are none, and what the watch saw of it.

A result counts where its phase was run to its end. What ended a load before its time is told by `ended`: a GPU that
had to be stopped (heat, Xid) or whose driver reports a broken GPU is at fault; a worker that died or hung has measured
nothing, whoever is to blame.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gpuready.model import Slot, Watch
from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.model.stress_doc import Phase, Result, ResultFault, StressDoc, StressGpu, StressPhase
from pytest_gpuready.parse.kernel_log import XIDS, xids
from pytest_gpuready.probes.watched import REASONS, log_alarms, same_function

PLANNED = "as planned"
GOOD_REASONS = "none but benign"
ECC = "ecc_uncorrected_volatile"
HARDWARE = "hardware"
LEAST_SAMPLES = 8
"""Fewer samples of a phase say nothing about it."""
SERIES = ("power_w", "sm_mhz", "temperature_c", "memory_temperature_c")

BROKEN = re.compile(
    "CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|"
    "LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|ILLEGAL_ADDRESS|CONTAINED|DEVICE_UNAVAILABLE)"
)
"""What CUDA says of kernels that are known to be right: then it is the GPU that is not."""


@dataclass(frozen=True, slots=True)
class Run:
    """One GPU through one command. `doc.gpus` holds it, or `gpu` is None and `why` says why not."""

    doc: StressDoc
    slot: Slot
    gpu: StressGpu | None
    why: str = ""

    def phase(self, number: int) -> StressPhase | None:
        """The phase of this place in the plan as it was on this GPU."""
        return self.gpu.phases[number] if self.gpu and number < len(self.gpu.phases) else None

    def result(self, number: int) -> Result | str:
        """The result of the phase of this place, run to its end; else the line that says why there is none."""
        phase = self.phase(number)
        if phase is None or self.gpu is None:
            return self.why or "expected this phase in the document, found none"
        found = phase.result
        if self.gpu.refused:
            return f"not loaded: {self.gpu.refused}"
        if phase.problem or found is None:
            return phase.problem or self.gpu.problem or "expected a result of this phase, found none"
        if found.cut:
            return f"expected {self.planned(number).kind} to run to its end, found it ended after {found.seconds:.1f} s"
        return found

    def planned(self, number: int) -> Phase:
        """What the phase of this place was asked to be."""
        assert self.doc.plan is not None
        return self.doc.plan.phases[number]

    def ended(self) -> tuple[str, str]:
        """How the load ended on this GPU, and why that is not known: one of both is "".

        The first is `PLANNED`, or what the GPU is to blame for.
        """
        if self.gpu is None:
            return "", self.why
        if self.gpu.stopped:
            return f"stopped at {self.gpu.stopped.t:.1f} s: {self.gpu.stopped.why}", ""
        told = [self.gpu.refused, self.gpu.problem, *(phase.problem for phase in self.gpu.phases)]
        broken = next((text for text in told if BROKEN.search(text)), "")
        if broken:
            return broken, ""
        open_ = [found for number in range(len(self.gpu.phases)) if isinstance(found := self.result(number), str)]
        if open_:
            return "", self.gpu.problem or open_[0]
        return PLANNED, ""

    def second_half(self, number: int, column: str) -> float | str:
        """Median of a column over the second half of a phase; else why there is none."""
        values = [value for _, value in self._samples(number, column, 0.5)]
        if len(values) < LEAST_SAMPLES:
            why = (self.gpu.errors.get(column) if self.gpu else "") or self.doc.watch_problem
            found = f"found {len(values)}" + (f" ({why})" if why else "")
            return f"expected at least {LEAST_SAMPLES} samples of {column} under load, {found}"
        return statistics.median(values)

    def samples(self, number: int, column: str) -> tuple[list[float], list[float]]:
        """Times, in seconds since the beginning of the run, and values of a column in a phase."""
        rows = list(self._samples(number, column, 0.0))
        return [t for t, _ in rows], [value for _, value in rows]

    def _samples(self, number: int, column: str, since: float) -> Iterator[tuple[float, float]]:
        phase = self.phase(number)
        window = next((one for one in self.doc.windows if one.phase == number), None)
        if phase is None or phase.seen is None or window is None:
            return
        begin = window.begin + since * (window.end - window.begin)
        columns = phase.seen.samples
        for t, value in zip(columns.get("t", []), columns.get(column, []), strict=False):
            if t is not None and value is not None and begin <= t <= window.end:
                yield t, value

    def at(self, number: int, errors: Sequence[ResultFault]) -> str:
        """How warm and how fast the GPU was when the first of these errors came, ", 61 C, 1455 MHz"; "" if unknown."""
        window = next((one for one in self.doc.windows if one.phase == number), None)
        if not errors or errors[0].t is None or window is None:
            return ""
        moment, told = window.begin + errors[0].t, ""
        for column, unit in (("temperature_c", "C"), ("sm_mhz", "MHz")):
            rows = list(self._samples(number, column, 0.0))
            if rows:
                told += f", {min(rows, key=lambda row: abs(row[0] - moment))[1]:.0f} {unit}"
        return told

    def reasons(self) -> tuple[str, str]:
        """Clock-event reasons beyond the benign ones over all phases, and why nobody knows: one of both is ""."""
        if self.gpu is None:
            return "", self.why
        seen: set[int] = set()
        for number, phase in enumerate(self.gpu.phases):
            if isinstance(why := self.result(number), str) and phase.seen is None:
                return "", why
            if phase.seen is None or phase.seen.taken < LEAST_SAMPLES or "reasons" not in phase.seen.samples:
                taken = phase.seen.taken if phase.seen else 0
                error = self.gpu.errors.get("reasons") or self.doc.watch_problem
                told = f" ({error})" if error else ""
                return "", f"expected clock-event reasons under {phase.kind}, found {taken} samples{told}"
            seen |= {int(name, 16) for name in phase.seen.reasons}
        slowed = [word for bit, word in REASONS.items() if bit in seen]
        return ", ".join(slowed) or GOOD_REASONS, ""

    def watch(self, numbers: Sequence[int] = (), facts: dict[str, str] | None = None) -> Watch:
        """What counts against all that was measured meanwhile; series of the first of these phases."""
        bdf = self.slot.bdf
        own = [xid for xid in self.doc.xids if XIDS.get(xid.xid, (HARDWARE,))[0] == HARDWARE]
        log: list[LogLine] = self.doc.log
        alarms = log_alarms(log, bdf)
        alarms += [
            f"Xid {xid.xid} of {xid.bdf}" + ("" if same_function(xid.bdf) == same_function(bdf) else " (another GPU)")
            for xid in own
            if not any(str(xid.xid) in alarm for alarm in alarms)
        ]
        numbers_of_log = [xid.number for xid in xids(log) if xid.hardware]
        times, series = self._series(numbers[0]) if numbers else ((), {})
        slowdown = self.gpu.slowdown_c if self.gpu else None
        return Watch(
            hardware_xids=tuple(numbers_of_log) or tuple(xid.xid for xid in own),
            log_alarms=tuple(alarms),
            uncorrected_ecc=self._grown(ECC),
            facts={**self._facts(numbers), **(facts or {})},
            times_s=times,
            series=series,
            limits={"temperature_c": slowdown} if slowdown is not None and "temperature_c" in series else {},
        )

    def _grown(self, name: str) -> int:
        if self.gpu is None or name not in self.gpu.before or name not in self.gpu.after:
            return 0
        return max(0, self.gpu.after[name] - self.gpu.before[name])

    def _facts(self, numbers: Sequence[int]) -> dict[str, str]:
        said: dict[str, str] = {}
        for column, label, unit in (
            ("power_w", "power", "W"),
            ("sm_mhz", "SM clock", "MHz"),
            ("temperature_c", "temperature", "C"),
            ("memory_temperature_c", "memory temperature", "C"),
        ):
            phases = [phase for number in numbers if (phase := self.phase(number)) and phase.seen]
            spans = [phase.seen.spans[column] for phase in phases if phase.seen and column in phase.seen.spans]
            if spans:
                low, high = round(min(s.low for s in spans)), round(max(s.high for s in spans))
                said[label] = f"{low} {unit}" if low == high else f"{low}-{high} {unit}"
        if self.gpu and ECC not in self.gpu.after:
            said["uncorrected ECC"] = f"not read ({self.gpu.errors.get(ECC, 'no counter')})"
        if self.doc.log_problem:
            said["kernel log"] = f"not read: {self.doc.log_problem}"
        return said

    def _series(self, number: int) -> tuple[tuple[float, ...], dict[str, tuple[float, ...]]]:
        """Columns without a gap: rows in which a drawn column is missing are left out, never filled."""
        phase = self.phase(number)
        columns = phase.seen.samples if phase and phase.seen else {}
        names = [name for name in SERIES if any(value is not None for value in columns.get(name, []))]
        rows = zip(columns.get("t", []), *(columns[name] for name in names), strict=False)
        whole = [[float(value) for value in row if value is not None] for row in rows]
        whole = [row for row in whole if len(row) == len(names) + 1]
        zero = whole[0][0] if whole else 0.0
        return (
            tuple(round(row[0] - zero, 3) for row in whole),
            {name: tuple(row[at + 1] for row in whole) for at, name in enumerate(names)},
        )


def run_of(doc: StressDoc, slot: Slot) -> Run:
    """The GPU of a slot in a document."""
    if slot.gpu is None or not slot.gpu.bdf:
        return Run(doc, slot, None, "it was not found, so it was not loaded")
    if doc.problem:
        return Run(doc, slot, None, doc.problem)
    gpu = next((one for one in doc.gpus if one.bdf == slot.gpu.bdf), None)
    return Run(doc, slot, gpu, "" if gpu else f"expected GPU {slot.gpu.bdf} in the document, found none")
