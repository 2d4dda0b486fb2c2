"""An audit for people: findings worst first, then what is not covered; plain ASCII, one finding a line."""

from __future__ import annotations

from pytest_gpuready.audit.report import Finding, InputReport, Report

_ORDER = ("fail", "not-measured", "marginal", "observed", "not-applicable", "pass")
_LINE_AT_MOST = 600
_NAMED_AT_MOST = 8


def text(report: Report) -> str:
    """The whole audit as text."""
    lines: list[str] = []
    for entry in report.inputs:
        lines += [*_input(entry), ""]
    last = f"audit: {report.outcome.upper()}, {len(report.inputs)} input{'s' if len(report.inputs) != 1 else ''}"
    open_ = [entry.path for entry in report.inputs if entry.outcome == "not-measured"]
    if open_ and len(report.inputs) > 1:
        more = f" and {len(open_) - _NAMED_AT_MOST} more" if len(open_) > _NAMED_AT_MOST else ""
        last += f"; not measured: {', '.join(open_[:_NAMED_AT_MOST])}{more}"
    lines.append(_plain(last))
    return "\n".join(lines) + "\n"


def _input(entry: InputReport) -> list[str]:
    version = f" {entry.tool_version}" if entry.tool_version else ""
    lines = [_plain(f"{entry.outcome.upper():<14} {entry.path} ({entry.tool}{version})")]
    for finding in sorted(entry.findings, key=lambda f: _ORDER.index(f.outcome)):
        lines.append(_plain(f"  {finding.outcome:<14} {_finding(finding)}"))
    lines += [_plain(f"  not covered    {sentence}") for sentence in entry.not_covered]
    return lines


def _finding(finding: Finding) -> str:
    said = finding.metric + (f" [{finding.part}]" if finding.part else "")
    if finding.value is not None:
        said += f" {finding.value}" + (f" {finding.unit}" if finding.unit else "")
    if finding.expected:
        said += f", expected {finding.expected}" + (f" ({finding.source})" if finding.source else "")
    if finding.suspect:
        said += f"; suspect: {finding.suspect}"
    return said + (f"; {finding.advice}" if finding.advice else "")


def _plain(line: str) -> str:
    clean = (line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)).rstrip()
    return clean if len(clean) <= _LINE_AT_MOST else clean[: _LINE_AT_MOST - 3] + "..."
