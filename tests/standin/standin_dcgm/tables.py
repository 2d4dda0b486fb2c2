"""The table that `dcgmi diag` prints without -j: two columns, a message cut after 45 characters in mid-word.

4.x has a row for each GPU; 3.x lists GPUs by status, and its layout is known from its source only, as are all rows
of -v.
"""

from __future__ import annotations

from .documents import CATEGORY_ORDER, CATEGORY_ORDER_3, CHECKS_3, NAMES_3, of_check
from .said import NOT_RUN, Pass, TestSaid
from .scenario import Scenario

CELL, CHUNK = 46, 45
RULE = "+---------------------------+------------------------------------------------+"
HEAD = ("Successfully ran diagnostic for group.", RULE, "| Diagnostic                | Result" + " " * 41 + "|")


def table(one: Pass, gpus: list[int], scenario: Scenario, *, verbose: bool) -> str:
    """The table of one pass."""
    devices = ("," if scenario.old else ", ").join(scenario.device_ids[gpu] for gpu in gpus)
    lines = [*HEAD, RULE.replace("-", "="), "|-----  Metadata  ----------+" + "-" * 48 + "|"]
    lines += _row("DCGM Version", scenario.version)
    lines += _row("Driver Version Detected", scenario.driver)
    lines += _row("GPU Device IDs Detected", devices)
    for category in CATEGORY_ORDER_3 if scenario.old else CATEGORY_ORDER:
        tests = [test for test in one.tests if test.category == category]
        if not tests and not scenario.old:
            continue
        # The first rule of a table joins the one above it.
        edge = "|" if category == "Deployment" else "+"
        lines.append(f"{edge}{f'-----  {category}  ':-<27}+{'-' * 48}{edge}")
        for test in tests:
            lines += _old(test) if scenario.old else _new(test, verbose)
    return "\n".join([*lines, RULE]) + "\n"


def _row(name: str, said: str) -> list[str]:
    cut = said if len(said) <= CELL else said[: CELL - 3] + "..."
    return [f"| {name:<26}| {cut:<47}|"]


def _message(name: str, text: str) -> list[str]:
    chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    return [f"| {name if i == 0 else '':<26}| {chunk:<47}|" for i, chunk in enumerate(chunks)]


def _new(test: TestSaid, verbose: bool) -> list[str]:
    lines = _row(test.name, test.summary)
    for result in test.results:
        if not result.null:
            lines += _row("", f"GPU{result.gpu}: {result.written or result.status}")
    for result in test.results:
        for error in result.errors:
            lines += _message(f"Warning: GPU{result.gpu}", error.text)
        for text in result.info if verbose else ():
            lines += _message(f"Info: GPU{result.gpu}", text.replace("\t", " "))
    own = {error for result in test.results for error in result.errors}
    for error in test.summary_errors:
        if error not in own:
            lines += _message("Warning", error.text)
    return lines


def _old(test: TestSaid) -> list[str]:
    if test.name == "software":
        lines: list[str] = []
        for check in CHECKS_3:
            _, status, errors = of_check(test, check)
            lines += _row(check, status)
            for error in errors:
                lines += _message("Warning", error.text)
        return lines
    told: dict[str, list[int]] = {}
    for result in test.results:
        if not result.null and result.status != NOT_RUN:
            told.setdefault(result.written or result.status, []).append(result.gpu)
    name, lines = NAMES_3[test.name], []
    for status, gpus in told.items():
        numbers = ", ".join(map(str, gpus))
        said = f"{status} - GPU{'s' if len(gpus) > 1 else ''}: {numbers}" if len(told) > 1 else f"{status} - All"
        lines += _row("" if lines else name, said)
    for result in test.results:
        for error in result.errors:
            lines += _message("Warning", f"GPU {result.gpu} {error.text}")
    return lines
