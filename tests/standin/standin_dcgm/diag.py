"""One run of `dcgmi diag`: what it prints, how long it takes, how it ends, and what it leaves behind.

The state file is the host engine's memory: it is there while a diagnostic runs, and stays when dcgmi is killed by
SIGKILL, as the diagnostic then runs on. Whoever removes it says that it has ended.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from .arguments import Asked, Refused, asked
from .documents import document, iterations, runtime_error, written
from .errors import ISOLATE as ISOLATE_SEVERITY
from .refusals import FAILED, ISOLATE, KILLED, REASONS, TIMEOUT, Ended, before_the_tests, ended
from .said import Pass, said, tests_of
from .scenario import Scenario
from .tables import table

AFTER_A_SIGNAL_S = 4.0
"""How long dcgmi takes to end after SIGINT or SIGTERM."""
AFTER_TIMEOUT_S = 4.0
EMBEDDED_S = 9.0
"""What an engine of its own costs dcgmi at the start."""
SLICE_S = 0.05
"""Longest sleep in one: a signal that comes just before a sleep is heeded only after it."""
LOCAL = ("localhost", "127.0.0.1")


class _Signalled(Exception):  # noqa: N818 - what happened to the run
    """SIGINT or SIGTERM came."""


def run(words: list[str], scenario: Scenario) -> int:
    """Runs it; the exit code as a shell sees it."""
    try:
        wanted = asked(words)
    except Refused as refused:
        sys.stderr.write(refused.stderr)
        return refused.code
    if wanted.host and wanted.host not in scenario.hosts:
        if scenario.host_engine != "running" or wanted.host not in LOCAL:
            _say(f"Error: unable to establish a connection to the specified host: {wanted.host}\n")
            _wait(EMBEDDED_S, scenario)
    elif scenario.host_engine == "embedded":
        _wait(EMBEDDED_S, scenario)
    named = wanted.names or tests_of(wanted, scenario)
    told: dict[str, Any] = {}
    for name in named:
        told.update({k: v for k, v in scenario.test(name, 0).items() if k in ("before", "after", "exit", "cut")})
    out, whole = sys.stdout, io.StringIO()
    sys.stdout = whole if "cut" in told else out
    try:
        _say(str(told.get("before", "")))
        code = _run(wanted, scenario)
        _say(str(told.get("after", "")))
    finally:
        sys.stdout = out
    _say(whole.getvalue()[: int(told.get("cut", 0))])
    return int(told.get("exit", code))


def _run(wanted: Asked, scenario: Scenario) -> int:
    handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    passes: list[dict[str, Any]] = []
    mine = False
    signal.pthread_sigmask(signal.SIG_BLOCK, handlers)  # none between the state file and the knowledge that it is ours
    try:
        for name in handlers:
            signal.signal(name, _signalled)
        mine = not scenario.busy and _begin(scenario)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        gpus = before_the_tests(wanted, scenario, busy=not mine)
        return _passes(gpus, passes, wanted, scenario)
    except _Signalled:
        _wait(AFTER_A_SIGNAL_S, scenario)
        return _no_results(ended(KILLED, wanted, scenario), passes, wanted, scenario)
    except Ended as end:
        return _no_results(end, passes, wanted, scenario)
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
        if mine and scenario.state_file:
            scenario.state_file.unlink(missing_ok=True)


def _passes(gpus: list[int], passes: list[dict[str, Any]], wanted: Asked, scenario: Scenario) -> int:
    """Runs all passes and prints them; those that ended are in `passes` whatever comes after.

    Raises:
        Ended: a pass ends without results.
    """
    code, warning, several = 0, "", wanted.iterations > 1
    for number in range(wanted.iterations):
        if several and not wanted.json:
            _say(f"\nRunning iteration {number + 1} of {wanted.iterations}...\n")
        one = _pass(number, gpus, wanted, scenario)
        if wanted.json:
            passes.append(document(one, gpus, scenario))
        else:
            _say(table(one, gpus, scenario, verbose=wanted.verbose))
        code, warning = _verdict(one)
        if code:
            break
    if wanted.json:
        whole = iterations(passes, failed=bool(code), warning=warning) if several else passes[0]
        _say(written(whole) + ("\n\n" if several else "\n"))
    elif several:
        all_of_them = f"Passed all {wanted.iterations} runs of the diagnostic\n"
        _say(f"Aborting the iterative runs of the diagnostic: {warning}\n" if code else all_of_them)
    return code


def _no_results(end: Ended, passes: list[dict[str, Any]], wanted: Asked, scenario: Scenario) -> int:
    """Prints why there are none; the exit code."""
    if not wanted.json:
        _say(f"{end.text}\n")
        return end.code
    _say(written(runtime_error(end.text, scenario)) + "\n\n")
    if passes:
        # Seen: the pass without results is printed as a copy of the pass before.
        _say(written(iterations([*passes, passes[-1]], failed=True, warning=end.text)) + "\n\n")
    return end.code


def _pass(number: int, gpus: list[int], wanted: Asked, scenario: Scenario) -> Pass:
    """Runs the tests of one pass.

    Raises:
        Ended: the time limit or the scenario ends it.
    """
    one = Pass()
    spent = 0.0
    for name in tests_of(wanted, scenario):
        test = said(name, number, gpus, wanted, scenario)
        if test is None:
            continue
        if test.runtime_error:
            raise ended(FAILED, wanted, scenario, test.runtime_error)
        if test.killed:
            raise ended(KILLED, wanted, scenario)
        spent += test.seconds
        if wanted.timeout and (spent > wanted.timeout or test.hang):
            _wait(wanted.timeout - spent + test.seconds + AFTER_TIMEOUT_S, scenario)
            raise ended(TIMEOUT, wanted, scenario)
        if test.hang:
            _hang(test.hang)
        _wait(test.seconds, scenario)
        one.tests.append(test)
        if name == "software" and test.failed and scenario.after_failed_software == "absent":
            break
    return one


def _verdict(one: Pass) -> tuple[int, str]:
    """Exit code, and what an iterations document says of it."""
    failed = [test for test in one.tests if test.failed]
    if not failed:
        return 0, ""
    isolate = any(error.severity == ISOLATE_SEVERITY for test in failed for error in test.errors)
    code = ISOLATE if isolate else FAILED
    return 256 + code, REASONS[code]


def _begin(scenario: Scenario) -> bool:
    """Makes the state file; False where a diagnostic runs already."""
    if scenario.state_file is None:
        return True
    try:
        with scenario.state_file.open("x", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    except FileExistsError:
        return False
    return True


def _hang(how: str) -> None:
    if how == "deaf":
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
    while True:
        time.sleep(SLICE_S)


def _wait(seconds: float, scenario: Scenario) -> None:
    end = time.monotonic() + seconds * scenario.time_scale
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, SLICE_S))


def _signalled(number: int, frame: FrameType | None) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):  # it ends already; a second one changes nothing
        signal.signal(name, signal.SIG_IGN)
    raise _Signalled


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
