"""(stdout, stderr, exit code) of `dcgmi diag` -> one typed run, JSON or table, whatever stands around it.

A run is measured where results are present, whatever the exit code; 226 also stands for "nothing ran". A line about
an unreachable host means that dcgmi went on with an engine of its own on the machine where it ran.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_documents import DOUBTS_AT_MOST, documents, doubt, without_surrogates
from pytest_gpuready.parse.dcgm_json import ENTITIES_AT_MOST, check_iterations, pass_of, runtime_error_of
from pytest_gpuready.parse.dcgm_run import DiagPass, DiagRun
from pytest_gpuready.parse.dcgm_text import HEADER, tables

LARGEST = 16 * 2**20
RESULTS_AT_MOST = 500_000
ERRORS_AT_MOST = 10_000
UNREACHABLE = re.compile(r"Error: unable to establish a connection to the specified host:[ \t]*(\S*)", re.IGNORECASE)
_NOT_RUNTIME = re.compile(r"^Error: unable to establish a connection to the specified host", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERROR_LINE = re.compile(r"^\s*(Error|PARSE ERROR|An error occurred|Err)\b.*", re.IGNORECASE)
_CRASH = re.compile(r"\b(segmentation fault|core dumped|terminate called|crashed|fatal error|aborted)\b", re.IGNORECASE)

EXITS: dict[int, str] = {
    1: "unknown option",
    198: "256 - 58: no such test",
    199: "256 - 57: NVML driver time-out",
    202: "256 - 54: the host engine is paused",
    203: "256 - 53: the diagnostic was killed",
    204: "256 - 52: nvvs is missing",
    205: "256 - 51: failed with an error that calls for isolation",
    217: "256 - 39: another diagnostic is running",
    222: "256 - 34: another diagnostic is running",
    226: "256 - 30: some test failed, or nothing ran",
    233: "256 - 23: the GPUs are not all of one model",
    235: "256 - 21: no connection to the host engine",
    242: "256 - 14: no data",
    245: "256 - 11: time-out",
    249: "256 - 7: DCGM could not start",
    250: "256 - 6: not supported",
    253: "256 - 3: generic error",
    254: "256 - 2: command line refused",
    255: "256 - 1: bad parameter",
}


def exit_meaning(code: int) -> str:
    """What an exit code of dcgmi says, in a few words."""
    if code in EXITS:
        return EXITS[code]
    return f"killed by signal {code - 128}" if 128 < code <= 159 else "not in our table"


def diag_run(stdout: str, stderr: str = "", exit_code: int | None = None) -> DiagRun:
    """The run that this output tells of.

    Raises:
        ParseError: the output is too large, or holds neither a result nor a reason of dcgmi why there is none.
    """
    if len(stdout) + len(stderr) > LARGEST:
        raise ParseError(f"dcgmi diag: expected at most {LARGEST // 2**20} MiB, found more; cut the log to one run")
    stdout = without_surrogates(_ANSI.sub("", stdout.lstrip("\ufeff")))
    stderr = without_surrogates(stderr)
    found, around, doubts = documents(stdout)
    run = _from_json(found, around, stderr, doubts) if found else _from_text(stdout, stderr, doubts, exit_code)
    _bounded(run)
    beside = [f"an error line beside the results: {line[:200]!r}" for line in _beside(stderr)] if run.passes else []
    doubts = list(dict.fromkeys([*run.doubts, *beside]))[:DOUBTS_AT_MOST]
    return replace(run, doubts=tuple(doubts), exit_code=exit_code)


def _bounded(run: DiagRun) -> None:
    """Refuse more than any machine prints: every GPU of a pass counts for every test of it."""
    results = errors = 0
    for one in run.passes:
        gpus = len(one.gpu_numbers())
        if max(gpus, len(one.entities or ())) > ENTITIES_AT_MOST:
            raise ParseError(
                f"dcgmi diag: expected at most {ENTITIES_AT_MOST} GPUs, found more; give one machine's run"
            )
        results += len(one.tests) * max(gpus, 1)
        errors += sum(len(test.errors) + sum(len(r.errors) for r in test.results) for test in one.tests)
    if results > RESULTS_AT_MOST or errors > ERRORS_AT_MOST:
        most = f"{RESULTS_AT_MOST} results and {ERRORS_AT_MOST} errors"
        raise ParseError(f"dcgmi diag: expected at most {most}, found {results} and {errors}; cut the log to one run")


def _from_json(found: list[dict[str, Any]], around: str, stderr: str, doubts: list[str]) -> DiagRun:
    passes: list[DiagPass] = []
    errors: list[str] = []
    overall, copied = "", 0
    iterated = False
    for document in found:
        iterations = document.get("iterations")
        entries: list[Any] = [document]
        if isinstance(iterations, list):
            iterated, entries = True, iterations
            check_iterations(document, doubts)
            errors += [error for error in [runtime_error_of(document)] if error]
        if isinstance(document.get("Overall Result"), str):
            overall = document["Overall Result"]
        new: list[DiagPass] = []
        for entry in entries:
            error = runtime_error_of(entry) if isinstance(entry, dict) else ""
            errors += [error] if error else []
            one = pass_of(entry, doubts) if isinstance(entry, dict) else None
            if one is not None:
                new.append(one)
            elif not error:
                doubt(doubts, "a pass without results")
        if isinstance(iterations, list) and errors and new:
            # A pass that ends without results is printed as a copy of the pass before.
            new.pop()
            copied += 1
        passes += new
    if iterated and not overall:
        doubt(doubts, "the overall result is missing")
    if HEADER.search(around):
        doubt(doubts, "a table stands beside the JSON")
    errors += _reasons(around)
    if not passes:
        errors += _reasons(stderr)
    return DiagRun(
        form="json",
        passes=tuple(passes),
        iterated=iterated,
        overall=overall,
        runtime_errors=tuple(errors),
        unreachable_host=_unreachable(around) or _unreachable(stderr),
        copied=copied,
        doubts=tuple(doubts),
    )


def _from_text(stdout: str, stderr: str, doubts: list[str], exit_code: int | None) -> DiagRun:
    run = tables(stdout)
    reasons = _reasons(run.around) if run.passes else [*_reasons(stdout), *_reasons(stderr)]
    host = _unreachable(run.around) or _unreachable(stderr)
    if not run.passes and not reasons and not host:
        quoted = stdout[:80]
        ended = f" and exit code {exit_code} ({exit_meaning(exit_code)})" if exit_code else ""
        raise ParseError(f"dcgmi diag: expected results or an error, found {quoted!r}{ended}; keep all of its output")
    return DiagRun(
        form="text",
        passes=run.passes,
        iterations_asked=run.iterations_asked,
        iterated=run.iterations_asked is not None,
        overall=run.overall,
        runtime_errors=tuple(reasons),
        unreachable_host=host,
        doubts=(*doubts, *run.doubts),
    )


def _unreachable(text: str) -> str:
    found = UNREACHABLE.search(text)
    return (found[1] or "?") if found else ""


def _reasons(text: str) -> list[str]:
    """Error lines of dcgmi itself, each with its continuation left out; not the line about the host."""
    lines = [line.strip() for line in text.splitlines()]
    return [line[:2000] for line in lines if _ERROR_LINE.match(line) and not _NOT_RUNTIME.match(line)]


def _beside(stderr: str) -> list[str]:
    """Lines of stderr by which dcgmi or nvvs says that something broke; the loader's notes are none."""
    lines = (line for line in stderr.splitlines() if _CRASH.search(line) and "ld.so" not in line)
    return [*_reasons("\n".join(one for one in stderr.splitlines() if "ld.so" not in one)), *lines]
