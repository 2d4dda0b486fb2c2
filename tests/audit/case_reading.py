"""A case folder audited as it stands, and what its `correct_reading` says held against the findings."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reader, Reading
from pytest_gpuready.audit.readers import readers
from pytest_gpuready.audit.report import Finding, Report, worst
from pytest_gpuready.audit.run import audit

CASES = Path(__file__).parents[1] / "data" / "cases"
OUTCOME = {"pass": "pass", "fail": "fail", "error": "not-measured", "skip": "not-applicable"}


@functools.cache
def case(number: str) -> dict[str, Any]:
    text = (CASES / number / "case.yaml").read_text(encoding="utf-8")
    loaded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert isinstance(loaded, dict)
    return loaded


@functools.cache
def reader(tool: str) -> Reader:
    return next(r for r in readers() if r.tool == tool)


def read_case(number: str) -> Report:
    return audit([CASES / number], tool="", expect=Expectations({}, source="test"), exit_code=None)


def findings(report: Report) -> list[Finding]:
    return [finding for entry in report.inputs for finding in entry.findings]


def check_case(number: str) -> list[Finding]:
    """Outcome and checks of the case hold; its findings for whatever else is to be looked at."""
    right = case(number)["correct_reading"]
    report = read_case(number)
    all_findings = findings(report)
    shown = "\n".join(map(str, all_findings))
    assert report.outcome == OUTCOME[right["verdict"]], shown
    for check in right["checks"]:
        of_metric = [f.outcome for f in all_findings if f.metric == check["check"]]
        assert of_metric, f"no finding {check['check']} in\n{shown}"
        assert worst(of_metric) == OUTCOME[check["verdict"]], shown
    return all_findings


def values(found: list[Finding], metric: str) -> list[Any]:
    return [f.value for f in found if f.metric == metric]


def suspects(found: list[Finding]) -> str:
    """What the findings that are not good suspect, in one string."""
    return " | ".join(f.suspect for f in found if f.outcome in ("fail", "not-measured"))


def read_text(
    tmp_path: Path, tool: str, text: str, expect: dict[str, Any], *, exit_code: int | None = None, command: str = ""
) -> Reading:
    path = tmp_path / "input"
    path.unlink(missing_ok=True)  # a file that is written over is flushed to the disk, a new one is not
    path.write_text(text, encoding="utf-8")
    given = Given(path=path, expect=Expectations(expect, source="test"), exit_code=exit_code, command=command)
    return reader(tool).read(given)


def outcome(reading: Reading) -> str:
    return worst(f.outcome for f in reading.findings)


def damaged(text: str, seed: int) -> str:
    """The text with a few lines lost or doubled and a few characters turned into others."""
    rng = random.Random(seed)
    lines = text.split("\n")
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(lines))
        if rng.random() < 0.5:
            lines.insert(at, lines[at])
        elif len(lines) > 1:
            del lines[at]
    out = list("\n".join(lines))
    for _ in range(rng.randint(0, 4)):
        if out:
            out[rng.randrange(len(out))] = rng.choice("019 aX:{}[]\"'\n\t=-.\x00é")
    return "".join(out)


def every_cut(text: str) -> list[str]:
    """The text cut after every line, and in the middle of every line."""
    lines = text.splitlines(keepends=True)
    cuts: list[str] = []
    for n in range(len(lines)):
        cuts += ["".join(lines[:n]), "".join(lines[:n]) + lines[n][: len(lines[n]) // 2]]
    return cuts


def survives(tmp_path: Path, number: str, still_answered: Callable[[str], bool], *, seeds: int = 150) -> None:
    """Whatever happens to the inputs of a case, the reader answers, and passes only what is still answered.

    Over all cuts and a number of damages; `still_answered` says of a text whether all that was asked is in it.
    """
    told = case(number)
    for entry in told["inputs"]:
        text = (CASES / number / entry["file"]).read_text(encoding="utf-8")
        for broken in [*every_cut(text), *(damaged(text, seed) for seed in range(seeds))]:
            reading = read_text(
                tmp_path,
                told["tool"],
                broken,
                told.get("given") or {},
                exit_code=entry["exit_code"],
                command=entry["command"],
            )
            assert reading.findings
            if outcome(reading) in ("pass", "marginal"):
                assert still_answered(broken), broken
