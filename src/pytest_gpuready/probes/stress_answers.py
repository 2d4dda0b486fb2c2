"""What is said about one metric of one GPU: a value, or the line that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.model import Measurement, Part, Value, Watch
from pytest_gpuready.probes import stress_seen
from pytest_gpuready.probes.answers import Answer, not_measured
from pytest_gpuready.probes.stress_run import Run


@dataclass(frozen=True, slots=True)
class Said:
    """A value where `problem` is ""; `of` are the phases that the watch beside it shows.

    `proven` as in `Problem`, `stands` as in `Measurement`.
    """

    metric: str
    value: Value = 0
    unit: str = ""
    detail: str = ""
    conditions: str = ""
    problem: str = ""
    proven: bool = False
    stands: bool = False
    of: tuple[int, ...] = ()

    def answer(self, part: Part, seen: tuple[str, ...], watch: Watch | None) -> Answer:
        """The same as the house says it."""
        if self.problem:
            return not_measured(self.metric, part, f"{part.label}: {self.problem}", seen, proven=self.proven)
        return Measurement(
            metric=self.metric,
            part=part.name,
            value=self.value,
            unit=self.unit,
            detail=self.detail,
            conditions=self.conditions,
            evidence=seen,
            watch=watch,
            stands=self.stands,
        )


def ended(metric: str, run: Run) -> Said:
    """How the load ended; what a GPU is to blame for stands, whatever a second run does."""
    how, why = run.ended()
    if why:
        return Said(metric, problem=why, proven=run.corrupted)
    took = f"{run.doc.seconds:.1f} s"
    lasted = f"first load after {run.doc.first_load_s:.1f} s, {took} in all" if run.doc.first_load_s else took
    conditions = "; ".join(filter(None, (lasted, run.one_source)))
    return Said(metric, value=how, conditions=conditions, stands=True)


def reasons(metric: str, run: Run) -> Said:
    """Clock-event reasons beyond the benign ones while the engine loaded the GPU; what was seen stands."""
    word, detail, why = stress_seen.reasons(run)
    return Said(metric, problem=why) if why else Said(metric, value=word, detail=detail)
