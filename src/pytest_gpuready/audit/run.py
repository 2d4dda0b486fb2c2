"""From files and folders to a report: each input recognised by its content, or read as what it is said to be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reader, Reading
from pytest_gpuready.audit.readers import reader_of, recognised, tools
from pytest_gpuready.audit.report import Finding, InputReport, Report, worst
from pytest_gpuready.errors import GpuReadyError

if TYPE_CHECKING:
    from pytest_gpuready.model import Profile

CASE = "case.yaml"
CASE_AT_MOST = 1024 * 1024
FILES_AT_MOST = 2000


class AuditError(GpuReadyError):
    """The audit cannot start: a path, tool name or case file is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One input to read. `tool` is "" where its content has to tell."""

    path: Path
    tool: str
    expect: Expectations
    command: str = ""
    exit_code: int | None = None


def audit(
    paths: list[Path], *, tool: str, expect: Expectations, exit_code: int | None, profile: Profile | None = None
) -> Report:
    """Read every input. What was given with `expect` or a case file counts more than what the profile promises.

    Raises:
        AuditError: a path does not exist or the tool is unknown.
        ExpectError: an expectation of a case file is unknown.
    """
    if tool and tool not in tools():
        raise AuditError(f"--tool: expected one of {', '.join(tools())}, found {tool!r}; correct the name")
    jobs = [job for path in paths for job in _jobs(path, tool, expect, exit_code)]
    if not jobs:
        raise AuditError(f"expected files to audit, found none in {', '.join(map(str, paths))}; name a file")
    inputs = [_read(job, profile) for job in jobs]
    return Report(inputs=inputs, outcome=worst(entry.outcome for entry in inputs))


def _jobs(path: Path, tool: str, expect: Expectations, exit_code: int | None) -> Iterator[Job]:
    if path.is_file():
        yield Job(path=path, tool=tool, expect=expect, exit_code=exit_code)
    elif (path / CASE).is_file():
        yield from _case(path, tool)
    elif path.is_dir():
        files = [p for p in sorted(path.rglob("*")) if p.is_file() and not p.is_symlink()]
        if len(files) > FILES_AT_MOST:
            raise AuditError(f"expected at most {FILES_AT_MOST} files in {path}, found {len(files)}; name fewer")
        cases = {p.parent for p in files if p.name == CASE}
        for case in sorted(cases):
            yield from _case(case, tool)
        for file in files:
            if not any(case in (file.parent, *file.parents) for case in cases):
                yield Job(path=file, tool=tool, expect=expect, exit_code=exit_code)
    else:
        raise AuditError(f"expected a file or folder, found nothing at {path}; correct the path")


def _case(folder: Path, tool: str) -> Iterator[Job]:
    """A case folder: its `given`, `inputs` (file, command, exit_code) and `tool` as if passed as options."""
    import yaml  # noqa: PLC0415 - most audits read no case

    raw = (folder / CASE).read_bytes()[: CASE_AT_MOST + 1]
    try:
        case: Any = yaml.safe_load(raw) if len(raw) <= CASE_AT_MOST else None
    except yaml.YAMLError as error:
        raise AuditError(f"{folder / CASE}: expected YAML, found {' '.join(str(error).split())}; correct it") from error
    entries = case.get("inputs") if isinstance(case, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("file"), str) for e in entries
    ):
        raise AuditError(f"{folder / CASE}: expected a mapping with inputs that name a file, found none; correct it")
    expect = Expectations(case.get("given") or {}, source="case.yaml given")
    for entry in entries:
        file = folder / entry["file"]
        if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
            raise AuditError(f"{folder / CASE}: expected the file {entry['file']!r} beside it, found none; correct it")
        code = entry.get("exit_code")
        yield Job(
            path=file,
            tool=tool or str(case.get("tool") or ""),
            expect=expect,
            command=str(entry.get("command") or ""),
            exit_code=code if isinstance(code, int) else None,
        )


def _read(job: Job, profile: Profile | None) -> InputReport:
    given = Given(path=job.path, expect=job.expect, command=job.command, exit_code=job.exit_code)
    reader = reader_of(job.tool) if job.tool else recognised(given.head())
    if reader is None:
        says = f"no reader for {job.tool}" if job.tool else "no tool's output was recognised in it"
        advice = "name the tool with --tool"
        if not job.path.stat().st_size:
            says, advice = "the file is empty", "take the output again"
        finding = Finding(metric="tool", outcome="not-measured", suspect=says, advice=advice)
        return InputReport(path=str(job.path), tool=job.tool or "unknown", outcome="not-measured", findings=[finding])
    size = job.path.stat().st_size
    if reader.at_most and size > reader.at_most:
        reading = _refused(reader, size)
    else:
        reading = reader.read(given) if profile is None else _promised(reader, given, profile)
    return InputReport(
        path=str(job.path),
        tool=reader.tool,
        tool_version=reading.tool_version,
        outcome=worst(finding.outcome for finding in reading.findings),
        findings=list(reading.findings),
        not_covered=list(reading.not_covered),
    )


def _refused(reader: Reader, size: int) -> Reading:
    """An output that is read in one piece is not read in part."""
    finding = Finding(
        metric="input.size",
        outcome="not-measured",
        value=size,
        unit="bytes",
        expected=f"<= {reader.at_most}",
        source="what is read of such an output",
        suspect=f"too long for one output of {reader.tool}: nothing of it was read",
        advice="audit the output of one run",
    )
    return Reading(findings=(finding,))


def _promised(reader: Reader, given: Given, profile: Profile) -> Reading:
    """A reading by what was given and what the profile promises; by what was given alone where it is another GPU."""
    from pytest_gpuready.audit.promise import TOOLS, contradictions, identity, promises, uncovered  # noqa: PLC0415

    asks = given.expect.with_promises(promises(profile) if reader.tool in TOOLS else ())
    reading = reader.read(dataclasses.replace(given, expect=asks))
    who = identity(profile, reading)
    if who.another:
        reading = reader.read(given)
        says = [f"profile {profile.name}: nothing is judged by its limits, because the GPUs are other ones"]
    else:
        says = [*who.says] if reader.tool in TOOLS else []
        says += [*contradictions(profile, given.expect), *uncovered(profile, given.expect, reading.findings)]
    return dataclasses.replace(
        reading,
        findings=(*reading.findings, *who.findings),
        not_covered=(*reading.not_covered, *says),
    )
