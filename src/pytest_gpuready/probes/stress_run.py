"""One GPU in one document of the built-in engine: its results, or why there are none, and how its load ended.

A result counts where its phase was run to its end and nothing in it denies itself; one that does costs that phase of
that GPU, nothing else. What ended a load before its time is told by `ended`: a GPU that had to be stopped (heat, Xid),
whose driver reports a broken GPU or keeps a process that cannot be killed is at fault; a worker that died or hung has
measured nothing, whoever is to blame. A wrong word or element that was found stays found, whatever else is open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gpuready.model import Slot, Watch
from pytest_gpuready.model.stress_checks import doubts, impossible, unfit
from pytest_gpuready.model.stress_doc import (
    COOL,
    RESULTS,
    Phase,
    Result,
    ResultFault,
    StressDoc,
    StressGpu,
    StressPhase,
)
from pytest_gpuready.probes.stress_amounts import smaller
from pytest_gpuready.probes.stress_xids import heard, sources
from pytest_gpuready.probes.watched import gapless

PLANNED = "as planned"
ECC = "ecc_uncorrected_volatile"
NOT_SUPPORTED = "NotSupported"
"""How NVML says that a GPU has no such counter; any other error hides one that it has."""
SERIES = ("power_w", "sm_mhz", "temperature_c", "memory_temperature_c")
MOST_BESIDE = 8

BROKEN = re.compile(
    "CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|"
    "LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|ILLEGAL_ADDRESS|CONTAINED|DEVICE_UNAVAILABLE)"
    "|walk through the GPU's memory .*a pointer was read wrong"
    "|did not end on SIGKILL"
)
"""What CUDA says of kernels that are known to be right: then it is the GPU that is not. So it is where a word of its
own memory was read wrong, and where the driver does not let go of a process that was killed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One GPU through one command. `doc.gpus` holds it, or `gpu` is None and `why` says why not."""

    doc: StressDoc
    slot: Slot
    gpu: StressGpu | None
    why: str = ""

    @property
    def place(self) -> int:
        """Which GPU of the run this is, from 0."""
        return next((at for at, one in enumerate(self.doc.gpus) if one is self.gpu), 0)

    @property
    def phases(self) -> list[Phase]:
        """What was asked for."""
        return self.doc.plan.phases if self.doc.plan else []

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
        kinds = [name for name in (*RESULTS, COOL) if getattr(phase, name) is not None]
        if kinds not in ([], [phase.kind]):
            return f"expected a result of kind {phase.kind}, found {', '.join(kinds)}"
        if phase.problem or found is None:
            stopped = f"stopped at {self.gpu.stopped.t:.1f} s: {self.gpu.stopped.why}" if self.gpu.stopped else ""
            none = "expected a result of this phase or the reason for none, found neither"
            return phase.problem or self.gpu.problem or stopped or none
        if found.cut:
            return f"expected {self.planned(number).kind} to run to its end, found it ended after {found.seconds:.1f} s"
        return next(self._doubts(number, found), found)

    def proven(self, number: int) -> Result | None:
        """The result of this phase where it tells of something wrong on this GPU, whether or not the rest counts."""
        phase = self.phase(number)
        found = phase.result if phase else None
        if found is None or not getattr(found, "error_count", 0) or next(self._other(), ""):
            return None
        return None if next(impossible(found), "") else found

    def looked(self, number: int) -> Result | str:
        """For whoever counts errors: what is proven, else the result of the phase, else why there is none."""
        return self.proven(number) or self.result(number)

    def _doubts(self, number: int, found: Result) -> Iterator[str]:
        planned = self.planned(number)
        yield from self._other()
        for why in (*doubts(planned, found), *unfit(planned, found, self.place)):
            yield f"{planned.kind}: {why}"
        if self.gpu and self.gpu.ready:
            for why in smaller(planned, found, self.gpu.ready, self.doc.engine):
                yield f"{planned.kind}: {why}"

    def _other(self) -> Iterator[str]:
        """Why the results may be those of another GPU."""
        ready = self.gpu.ready if self.gpu else None
        found, name = self.slot.gpu, ready.name if ready else ""
        if self.gpu and ready is None:
            yield "expected its worker to say that it is ready, found results without that"
        elif self.gpu and ready and ready.bdf != self.gpu.bdf:
            yield f"expected the worker on {self.gpu.bdf}, found it on {ready.bdf[:20]}"
        elif found and found.name and name and found.name != name:
            yield f"expected {found.name[:40]} (NVML), found the worker on {name[:40]} (CUDA)"

    def planned(self, number: int) -> Phase:
        """What the phase of this place was asked to be."""
        return self.phases[number]

    def ended(self) -> tuple[str, str]:
        """How the load ended on this GPU, and why that is not known: one of both is "".

        The first is `PLANNED`, or what the GPU is to blame for. An Xid and an uncorrected ECC error count also where
        nothing could be measured beside them: nothing else on this GPU would tell of them.
        """
        alarm = self.alarm
        if self.gpu is None:
            return alarm, "" if alarm else self.why
        stopped = self.gpu.stopped
        if stopped and stopped.gpu:
            return f"stopped at {stopped.t:.1f} s: {stopped.why}", ""
        told = [self.gpu.refused, self.gpu.problem, *(phase.problem for phase in self.gpu.phases)]
        broken = next((text for text in told if BROKEN.search(text)), "")
        if broken or alarm:
            return broken or alarm, ""
        return next((("", why) for why in self._open() if why), (PLANNED, ""))

    def _open(self) -> Iterator[str]:
        """Why nobody knows that the load ended as planned."""
        assert self.gpu is not None
        stopped = self.gpu.stopped
        open_ = [found for number in range(len(self.gpu.phases)) if isinstance(found := self.result(number), str)]
        if open_:
            yield self.gpu.problem or (f"stopped at {stopped.t:.1f} s: {stopped.why}" if stopped else open_[0])
        if self.gpu.problem:
            yield f"after its last result: {self.gpu.problem}"
        if deaf := sources(self.doc, self.slot.bdf)[1]:
            yield f"expected to hear of Xids until the end, found that {deaf}"
        yield self._counters()

    @property
    def alarm(self) -> str:
        """Xids and uncorrected ECC errors of this load that concern the GPU; "" where it has none."""
        return self.watch().alarm if self.slot.bdf else ""

    @property
    def one_source(self) -> str:
        """Which of both sources alone told of Xids; "" where both did, or none."""
        return sources(self.doc, self.slot.bdf)[0]

    @property
    def corrupted(self) -> bool:
        """True where a result tells of wrong words or elements, whoever it is of: that is not measured away."""
        found = [phase.result for phase in self.gpu.phases] if self.gpu else []
        return any(getattr(one, "error_count", 0) and not next(impossible(one), "") for one in found if one)

    def _counters(self) -> str:
        """Why the counters of ECC errors say nothing over this load; "" where they do, or where no GPU has them."""
        assert self.gpu is not None
        before, after = self.gpu.before.get(ECC), self.gpu.after.get(ECC)
        if before is not None and after is not None:
            return f"expected ECC counters that do not go back, found {before}, then {after}" if after < before else ""
        error = self.gpu.errors.get(ECC, "no counter")
        lacks = before is None and after is None and error == NOT_SUPPORTED
        if lacks and not any(ECC in gpu.before or ECC in gpu.after for gpu in self.doc.gpus):
            return ""
        when = "after the load" if before is not None else "before the load"
        return f"expected the counter of uncorrected ECC errors {when}, found none ({error})"

    def at(self, number: int, errors: Sequence[ResultFault]) -> str:
        """How warm and how fast the GPU was when the first of these errors came, ", 61 C, 1455 MHz"; "" if unknown."""
        window = self.window(number)
        if not errors or errors[0].t is None or window is None:
            return ""
        moment, told = window[0] + errors[0].t, ""
        for column, unit in (("temperature_c", "C"), ("sm_mhz", "MHz")):
            rows = self.rows(number, column)
            if rows:
                told += f", {min(rows, key=lambda row: abs(row[0] - moment))[1]:.0f} {unit}"
        return told

    def window(self, number: int) -> tuple[float, float] | None:
        """When all GPUs were in the phase of this place: seconds since the beginning of the run."""
        return next(((one.begin, one.end) for one in self.doc.windows if one.phase == number), None)

    def rows(self, number: int, column: str) -> list[tuple[float, float]]:
        """Times and values of a column in the window of a phase."""
        phase, window = self.phase(number), self.window(number)
        if phase is None or phase.seen is None or window is None:
            return []
        columns = phase.seen.samples
        rows = zip(columns.get("t", []), columns.get(column, []), strict=False)
        return [(t, v) for t, v in rows if t is not None and v is not None and window[0] <= t <= window[1]]

    def watch(self, numbers: Sequence[int] = (), facts: dict[str, str] | None = None) -> Watch:
        """What counts against all that was measured meanwhile; series of the first of these phases."""
        told = heard(self.doc, self.slot.bdf)
        times, series = self._series(numbers[0]) if numbers else ((), {})
        slowdown = self.gpu.slowdown_c if self.gpu else None
        return Watch(
            hardware_xids=told.numbers,
            log_alarms=told.alarms,
            uncorrected_ecc=self._grown(ECC),
            facts={**self._facts(numbers), **_beside(told.others), **(facts or {})},
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
        """What is drawn of a phase, from its first sample on."""
        phase = self.phase(number)
        times, series = gapless(phase.seen.samples if phase and phase.seen else {}, SERIES)
        return tuple(round(t - times[0], 3) for t in times), series


def _beside(others: Sequence[str]) -> dict[str, str]:
    """What broke on other GPUs meanwhile, for whoever doubts a number for it."""
    more = f", and {len(others) - MOST_BESIDE} more" if len(others) > MOST_BESIDE else ""
    return {"meanwhile": ", ".join(others[:MOST_BESIDE]) + more} if others else {}


def run_of(doc: StressDoc, slot: Slot) -> Run:
    """The GPU of a slot in a document."""
    if slot.gpu is None or not slot.gpu.bdf:
        return Run(doc, slot, None, "it was not found, so it was not loaded")
    if doc.problem:
        return Run(doc, slot, None, doc.problem)
    gpu = next((one for one in doc.gpus if one.bdf == slot.gpu.bdf), None)
    if gpu is None:
        return Run(doc, slot, None, f"expected GPU {slot.gpu.bdf} in the document, found none")
    phases = doc.plan.phases if doc.plan else []
    if [(one.phase, one.kind) for one in gpu.phases] != [(at, phase.kind) for at, phase in enumerate(phases)]:
        why = f"expected {len(phases)} phases of {gpu.bdf} as planned, found {len(gpu.phases)} of another kind"
        return Run(doc, slot, None, why)
    return Run(doc, slot, gpu)
