"""What nccl-tests, NCCL's log and a launcher left on a terminal or in a file, put together into one reading."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_gpuready.audit.asked import unanswered, unreadable
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers import launch, nccl_runs, nccl_transport
from pytest_gpuready.audit.readers.nccl_measured import Measured, metric_of
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.errors import ParseError
from pytest_gpuready.model.busbw import factor
from pytest_gpuready.parse.nccl_terminal import Terminal, terminal
from pytest_gpuready.parse.nccl_tests import Rank, Run
from pytest_gpuready.parse.nccl_tests_json import Document, nccl_tests_json

_PERF = re.compile(r"(?:^|[\s/])(\w+?)_perf(?:_mpi)?(?:\s|$)")
_FILE_NAMES = (
    "all_reduce", "all_gather", "reduce_scatter", "alltoallv", "alltoall", "broadcast", "sendrecv", "gather", "scatter",
    "hypercube", "reduce",
)  # fmt: skip
_CONTEXT = ("fabric", "nvswitch", "bare_metal", "under_load")
"""Expectations that say what the machine is; they judge nothing here."""
_TABLE = ("min_peak_busbw_gb_per_s", "require_correctness", "iterations", "expected_gpus", "expected_model")
_WHO = ("ranks", "nodes", "ranks_per_node", "gpus_per_node")
_PATHS = ("expected_transport", "expected_intra_node", "require_gdr", "rails_per_node", "rail_gbit_per_s")
MEASURED_FAILURE = (1, 7)
"""Exit codes with which nccl-tests says wrong results or too slow: 7 now, 1 before 2.14."""
_SETUP = "test setup (nccl-tests built without MPI, or wrong MPI library)"


def tests_text(given: Given) -> Reading:
    """nccl-tests text, with whatever NCCL and a launcher wrote between it."""
    try:
        seen = terminal(given.lines())
    except ParseError as error:
        return _unread(_named(given, None), str(error))
    findings, not_covered = _runs(given, seen)
    if not seen.runs:
        findings += _no_run(given, seen)
    findings += launch.trouble(seen.events, given.expect, _hosts(seen))
    findings += unanswered(given, "nccl-tests", (*_CONTEXT, *_TABLE, *_WHO, *_PATHS) if seen.runs else _CONTEXT)
    findings += _exit_code(given, findings)
    return _reading(findings, not_covered, seen)


def debug_log(given: Given) -> Reading:
    """A log of NCCL_DEBUG=INFO; a table in it is judged too."""
    try:
        seen = terminal(given.lines())
    except ParseError as error:
        return _unread("nccl.transport", str(error))
    findings, not_covered = _runs(given, seen, whole=True)
    findings += nccl_transport.warnings(seen.log, whole=True) if not seen.runs else []
    if not seen.runs:
        findings += _errors(seen, None)
    findings += unanswered(given, "a NCCL log", (*_CONTEXT, *_WHO, *_PATHS, *(_TABLE if seen.runs else ())))
    findings += launch.trouble(seen.events, given.expect, _hosts(seen))
    if not findings:
        findings.append(
            Finding(metric="nccl.transport", outcome="observed", suspect="the log names no network or path")
        )
    findings += _exit_code(given, findings)
    return _reading(findings, not_covered, seen)


def launcher(given: Given) -> Reading:
    """Messages of srun or mpirun, and what the program had printed when they came."""
    try:
        seen = terminal(given.lines(), silent=True)
    except ParseError as error:
        return _unread("launch", str(error))
    findings = launch.trouble(seen.events, given.expect, _hosts(seen))
    hosts = [rank.host for run in seen.runs for rank in run.ranks]
    if "hostname" in given.command or not given.command:
        hosts += seen.words
    findings += launch.ran(hosts, given.expect, given.exit_code, events=bool(seen.events))
    not_covered = ["A launcher says nothing when all is well: silence is no proof that every rank ended well."]
    if seen.runs or seen.loose_rows or seen.log.messages:
        more, sentences = _runs(given, seen)
        findings += [finding for finding in more if finding.metric not in ("nccl.nodes",)]
        not_covered += sentences
    if not seen.runs and (seen.loose_rows or seen.errors):
        findings += _no_run(given, seen)
    answered = ("nodes", "ranks_per_node", "gpus_per_node", *((*_TABLE, *_WHO, *_PATHS) if seen.runs else ()))
    findings += unanswered(given, "a launcher", (*_CONTEXT, *answered))
    return _reading(findings, not_covered, seen)


def tests_json(given: Given) -> Reading:
    """A document that nccl-tests wrote with -J."""
    text, whole = given.text()
    try:
        document = nccl_tests_json(text)
    except ParseError as error:
        return _unread(_named(given, None), str(error))
    run = document.run
    why_not = (
        ""
        if document.complete and whole
        else f"the document is unfinished ({', '.join(document.missing) or 'too long'})"
    )
    measured = Measured(
        run=run,
        collective=run.collective or _collective(given),
        expect=given.expect,
        ranks=document.ranks,
        doubt="" if document.ranks is not None or not document.complete else "the list of devices has gaps",
        why_not=why_not,
        suspect="unknown from this file; read the launcher's log" if why_not else "",
        evidence=_by_hand(document),
    )
    findings, not_covered = nccl_runs.judge(measured)
    findings += _about(document)
    rails = ("rails_per_node", "rail_gbit_per_s") if given.expect.number("min_peak_busbw_gb_per_s") is not None else ()
    findings += unanswered(given, "nccl-tests JSON", (*_CONTEXT, *_TABLE, *_WHO, *rails))
    if document.devices_listed is not None and document.ranks is not None and document.devices_listed < document.ranks:
        not_covered.append(
            f"{document.devices_listed} of {document.ranks} GPUs are listed by name (one per process); "
            "the text's rank table names them all."
        )
    findings += _exit_code(given, findings)
    library = _library(run.nccl_library)
    version = f"-J version {document.version}" if document.version is not None else ""
    return Reading(
        findings=tuple(findings),
        tool_version=", ".join(part for part in (version, f"NCCL {library}" if library else "") if part),
        not_covered=tuple(not_covered),
    )


def _about(document: Document) -> list[Finding]:
    found = [Finding(metric="nccl.complete", value="true" if document.complete else "false", outcome="observed")]
    if document.version is not None:
        found.append(Finding(metric="nccl.json_version", value=document.version, outcome="observed"))
    if document.devices_listed is not None:
        found.append(Finding(metric="nccl.devices_listed", value=document.devices_listed, outcome="observed"))
    if document.sizes_seen and not document.complete:
        found.append(
            Finding(metric="nccl.sizes_seen", value=list(document.sizes_seen), unit="bytes", outcome="observed")
        )
    if document.environment:
        said = ", ".join(f"{name}={value}" for name, value in sorted(document.environment.items()))
        found.append(Finding(metric="nccl.environment", value=said[:1000], outcome="observed"))
    found += [Finding(metric="nccl.last_error", value=error, outcome="observed") for error in document.errors[:10]]
    return found


def _by_hand(document: Document) -> str:
    names = sorted(set(document.environment) - {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"})
    return "set in the environment: " + ", ".join(f"{n}={document.environment[n]}" for n in names) if names else ""


def _runs(given: Given, seen: Terminal, *, whole: bool = False) -> tuple[list[Finding], list[str]]:
    """Findings on every table and on the log around them."""
    findings: list[Finding] = []
    not_covered: list[str] = []
    names = [_collective(given, seen, run) for run in seen.runs]
    for index, (run, name) in enumerate(zip(seen.runs, names, strict=True)):
        repeated = names.count(name) > 1
        findings_of, sentences = nccl_runs.judge(
            _measured(given, seen, run, name, part=f"run {index + 1}" if repeated else "")
        )
        findings += findings_of
        not_covered += [sentence for sentence in sentences if sentence not in not_covered]
        if run.tables > 1 or run.footers > 1:
            findings.append(
                Finding(
                    metric="nccl.tables", value=max(run.tables, run.footers), outcome="not-measured", suspect=_SETUP
                )
            )
        if not run.complete:
            findings.append(
                Finding(metric="nccl.footer", value="missing" if not run.footers else "not alone", outcome="observed")
            )
        if run.said_error:
            findings.append(Finding(metric="nccl.last_error", value=run.said_error, outcome="observed"))
    if seen.runs:
        findings += _errors(seen, seen.runs[-1])
        findings += nccl_transport.warnings(seen.log, whole=False)
    asked = not {"expected_transport", "expected_intra_node", "require_gdr"}.isdisjoint(given.expect.keys())
    if seen.log.messages or asked or whole:
        more, sentences = nccl_transport.judge(seen.log, given.expect, whole=whole and not seen.runs)
        findings += more
        not_covered += sentences
    if seen.log.versions and not seen.log.messages:
        version = ", ".join(sorted(name for name in seen.log.versions if name))
        if not any(f.metric == "nccl.version" for f in findings):
            findings.append(Finding(metric="nccl.version", value=version, outcome="observed"))
    findings += _rails(given, seen)
    return findings, not_covered


def _measured(given: Given, seen: Terminal, run: Run, name: str, *, part: str) -> Measured:
    numbers = {rank.rank for rank in run.ranks}
    doubt = ""
    if len(numbers) != len(run.ranks):
        doubt = f"{len(run.ranks)} programs of rank {min(numbers)} wrote at once: {_SETUP}"
    elif numbers and numbers != set(range(len(numbers))):
        doubt = "the rank table has gaps: lines are missing"
    why_not, suspect = "", ""
    if run.tables > 1 or run.footers > 1:
        why_not = f"{max(run.tables, run.footers)} tables written at once: {_SETUP}"
    elif not run.columns:
        why_not = "the table's header is missing: the run ended before it, or lines were cut"
    elif not run.complete:
        why_not = "the footer is missing: the run ended early or the text was cut"
    if why_not or seen.errors:
        suspect = _culprit(seen, run)
    if why_not and suspect:
        why_not = f"{suspect}; {why_not}"
    log = seen.log
    return Measured(
        run=run,
        collective=name,
        expect=given.expect,
        part=part,
        ranks=len(numbers) or None,
        doubt=doubt,
        why_not=why_not,
        suspect=suspect,
        evidence=nccl_transport.blame(log) if log.messages else "",
        transport_seen=bool(log.paths),
        rails_seen=any(log.hcas.values()),
    )


def _culprit(seen: Terminal, run: Run) -> str:
    """The part that the error messages point at: the host that wrote them, its rank and HCA."""
    for warn in sorted(seen.log.warnings, key=lambda warn: not nccl_transport.is_hard(warn)):
        said = nccl_transport.suspect_of(warn)
        rank = _rank_of(run.ranks, warn.host, warn.pid)
        return f"{said}, rank {rank}" if rank is not None else said
    for event in seen.events:
        if event.node:
            return f"node {launch.short(event.node)}"
    for error in seen.errors:
        if error.host:
            return error.text[:200]
    return ""


def _errors(seen: Terminal, run: Run | None) -> list[Finding]:
    """What the test program itself reported: not measured, with host, rank, HCA and status where they are named."""
    found: list[Finding] = []
    for error in seen.errors[:1]:
        rank = next(
            (
                r
                for e in seen.errors
                if e.pid is not None and (r := _rank_of(run.ranks if run else [], e.host, e.pid)) is not None
            ),
            None,
        )
        found.append(
            Finding(
                metric="nccl.error",
                part=error.host,
                value=error.text,
                outcome="not-measured",
                source="the tool's own verdict",
                suspect=_culprit(seen, run) if run else error.host,
            )
        )
        facts: list[tuple[str, str | int | None]] = [("failing_host", error.host or None), ("failing_rank", rank)]
        hard = next((warn for warn in seen.log.warnings if nccl_transport.is_hard(warn)), None)
        if hard is not None:
            facts += [("hca", hard.hca or None), ("wc_status", hard.status)]
        found += [
            Finding(metric=f"nccl.{name}", value=value, outcome="observed")
            for name, value in facts
            if value is not None
        ]
    return found


def _hosts(seen: Terminal) -> dict[int, str]:
    """Host of each rank, where one table alone says it."""
    return {rank.rank: rank.host for rank in seen.runs[0].ranks} if len(seen.runs) == 1 else {}


def _rank_of(ranks: Iterable[Rank], host: str, pid: int) -> int | None:
    fitting = [r.rank for r in ranks if r.pid == pid and launch.short(r.host) == launch.short(host)]
    return fitting[0] if len(fitting) == 1 else None


def _rails(given: Given, seen: Terminal) -> list[Finding]:
    """Rails beside a table without a list of HCAs: their number is context for a floor; alone it has no answer."""
    if not seen.runs or given.expect.number("min_peak_busbw_gb_per_s") is not None:
        return []
    answered = {"rails_per_node": any(seen.log.hcas.values()), "rail_gbit_per_s": bool(seen.log.speeds_mbit)}
    names = {"rails_per_node": "nccl.rails", "rail_gbit_per_s": "nccl.rail_rate"}
    return [
        Finding(
            metric=names[key],
            outcome="not-measured",
            expected=f"{given.expect.number(key):g}",
            source=given.expect.source,
            suspect="the output does not answer it",
            advice="run with NCCL_DEBUG=INFO",
        )
        for key, there in answered.items()
        if given.expect.number(key) is not None and not there
    ]


def _no_run(given: Given, seen: Terminal) -> list[Finding]:
    culprit = _culprit(seen, Run())
    suspect = "; ".join(part for part in (culprit, "what was printed before the end is evidence, not a result") if part)
    name = metric_of(_collective(given, seen))
    found = [Finding(metric=f"{name}.busbw", outcome="not-measured", suspect=suspect)]
    found.append(Finding(metric="nccl.rows", value=seen.loose_rows, outcome="observed"))
    return found + _errors(seen, None)


def _exit_code(given: Given, findings: list[Finding]) -> list[Finding]:
    """An exit code other than 0 is a failure that was measured, or nothing was."""
    code = given.exit_code
    if code in (None, 0):
        return []
    if code in MEASURED_FAILURE and any(finding.outcome == "fail" for finding in findings):
        return [Finding(metric="exit_code", value=code, outcome="observed")]
    return [
        Finding(
            metric="exit_code",
            value=code,
            outcome="not-measured",
            expected="0",
            source="the command's exit code",
            suspect="the program ended badly; read its last lines and the launcher's",
        )
    ]


def _named(given: Given, seen: Terminal | None) -> str:
    return metric_of(_collective(given, seen)) + ".busbw"


def _collective(given: Given, seen: Terminal | None = None, run: Run | None = None) -> str:
    """Which collective: the output says it, or the command, or the file's name; else the rows' shape."""
    if run is not None and run.collective:
        return run.collective
    if seen is not None and seen.collective:
        return seen.collective
    if found := _PERF.search(given.command):
        return found[1]
    named = next((name for name in _FILE_NAMES if name in given.path.stem.replace("-", "_")), "")
    return named or (_by_shape(run) if run is not None else "")


def _by_shape(run: Run) -> str:
    """all_reduce is told by its factor and reduction; nothing else is told for sure."""
    ranks = len({rank.rank for rank in run.ranks})
    ratios = sorted(h.busbw_gb_per_s / h.algbw_gb_per_s for r in run.rows for h in r.halves if h.algbw_gb_per_s >= 1)
    kinds = {row.kind[1] for row in run.rows}
    if ranks > 2 and ratios and "none" not in kinds:
        wanted = factor("all_reduce", ranks)
        if wanted is not None and abs(ratios[len(ratios) // 2] - wanted) < 0.02 * wanted:
            return "all_reduce"
    return ""


def _library(code: str) -> str:
    """22809 -> 2.28.9; before 2.9 four digits."""
    if not code.isdecimal():
        return ""
    number = int(code)
    return (
        f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        if number >= 10000
        else f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    )


def _unread(metric: str, why: str) -> Reading:
    return Reading(findings=(Finding(metric=metric, outcome="not-measured", suspect=why),))


def _reading(findings: list[Finding], not_covered: list[str], seen: Terminal) -> Reading:
    versions = sorted({run.version for run in seen.runs if run.version})
    more = [unreadable("nccl.readable", f"{says}; audit fewer runs at once") for says in seen.left_out]
    return Reading(
        findings=(*findings, *more),
        tool_version=", ".join(versions) or ", ".join(sorted(name for name in seen.log.versions if name))[:80],
        not_covered=tuple(not_covered),
    )
