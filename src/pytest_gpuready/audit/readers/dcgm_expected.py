"""Findings on what was expected of a `dcgmi diag` run as a whole: host, GPUs, model, tests, iterations, exit code."""

from __future__ import annotations

from collections.abc import Callable

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.products import PRODUCTS
from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.readers.dcgm_asked import LEVEL_TESTS, Asked, host_of, same_host
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.dcgm_diag import exit_meaning
from pytest_gpuready.parse.dcgm_parts import Says, meaning_of, part_results
from pytest_gpuready.parse.dcgm_run import GPU_TESTS, DiagPass, DiagRun, canonical

CONTEXT = ("nvswitch", "bare_metal", "under_load", "window_start", "fabric", "nodes")
"""Expectations that say where the text was made rather than what must hold."""
HANDLED = (
    "expected_gpus",
    "gpus_per_node",
    "expected_model",
    "required_tests",
    "requested_host",
    "iterations",
    "expected_nvlinks_per_gpu",
)


_LINK_ERRORS = (14, 88, 99, 100)
"""Error ids that say a link is down, or that fewer are up than were asked for."""


def expected_findings(run: DiagRun, given: Given, asked: Asked) -> list[Finding]:
    """Every expectation answered, or not measured with the reason; counts without an expectation are observed."""
    expect = given.expect
    elsewhere = bool(run.unreachable_host)
    return [
        *_host(run, expect, asked, given.command),
        *_gpus(run, expect, asked, elsewhere=elsewhere),
        *_model(run, expect, elsewhere=elsewhere),
        *_required(run, expect, elsewhere=elsewhere),
        *_named(run, asked, expect, elsewhere=elsewhere),
        *_iterations(run, expect, asked),
        *_nvlinks(run, expect, asked),
        *unanswered(expect, HANDLED, "dcgmi diag"),
    ]


def unanswered(expect: Expectations, handled: tuple[str, ...], tool: str) -> list[Finding]:
    """An expectation that this tool's output cannot answer is not measured, never forgotten."""
    left = [key for key in sorted(expect.keys()) if key not in (*handled, *CONTEXT)]
    return [
        Finding(
            metric=key,
            outcome="not-measured",
            expected=expect.told(key),
            source=expect.source,
            suspect=f"{tool} does not answer this",
            advice="give the output of a tool that does",
        )
        for key in left
    ]


def exit_findings(exit_code: int | None, explained: bool, metric: str, meaning: Callable[[int], str]) -> list[Finding]:
    """An exit code other than 0 is explained by a failure that is shown, or else nothing is proven."""
    if not exit_code:
        return []
    value = f"{exit_code} ({meaning(exit_code)})"
    if explained:
        return [Finding(metric=metric, outcome="observed", value=value)]
    return [
        Finding(
            metric=metric,
            outcome="not-measured",
            value=value,
            expected="0, or a failure shown in the output",
            suspect=f"exit code {value}: no failure in the output explains it",
            advice="keep the whole output and run it again",
        )
    ]


def exit_status(run: DiagRun, *, explained: bool) -> list[Finding]:
    """The exit code of dcgmi diag; `explained`: a failure or a reason why nothing ran is shown."""
    return exit_findings(run.exit_code, explained, "dcgm.exit_status", exit_meaning)


def _host(run: DiagRun, expect: Expectations, asked: Asked, command: str) -> list[Finding]:
    wanted = expect.text("requested_host") or asked.host
    found: list[Finding] = []
    if run.unreachable_host:
        host = wanted or run.unreachable_host
        found.append(
            Finding(
                metric="dcgm",
                outcome="not-measured",
                part=host,
                value=f"Error: unable to establish a connection to the specified host: {run.unreachable_host}",
                expected=f"results of {host}",
                source=expect.source if expect.text("requested_host") else "the command",
                suspect=f"nv-hostengine on {host} (service down or port blocked); results are of another machine",
                advice="start nvidia-dcgm there, or run dcgmi on that node itself",
            )
        )
        found.append(Finding(metric="dcgm.requested_host", outcome="observed", value=host))
        return found
    if not expect.text("requested_host"):
        return []
    meant = host_of(command)
    named = bool(meant) and same_host(meant, wanted)
    lacks = (
        f"the command asks {meant}" if meant else "the output does not name its host, and the command is not known to"
    )
    return [
        Finding(
            metric="dcgm.requested_host",
            outcome="pass" if named and run.passes else "not-measured",
            value=wanted if named else meant or None,
            expected=wanted,
            source=expect.source,
            suspect="" if named else lacks,
            advice="" if named else "give the command with its --host",
        )
    ]


def _gpus(run: DiagRun, expect: Expectations, asked: Asked, *, elsewhere: bool) -> list[Finding]:
    wanted = expect.count("expected_gpus")
    wanted = expect.count("gpus_per_node") if wanted is None else wanted
    counts = [n for one in run.passes if (n := _count(one)) is not None]
    found = min(counts) if counts else None
    if wanted is None:
        return [] if found is None else [Finding(metric="dcgm.gpus", outcome="observed", value=found, unit="GPUs")]
    outcome: Outcome = "pass" if found == wanted else "fail"
    suspect = advice = ""
    if found is None:
        outcome, suspect = "not-measured", "the output does not say how many GPUs there are"
        advice = "give dcgmi discovery -l, or the JSON output"
    elif elsewhere:
        outcome, suspect = "observed", "GPUs of another machine"
    elif found < wanted and asked.only:
        outcome, suspect = "not-measured", f"the command chose GPUs: {wanted - found} of them were not tested"
    elif found != wanted:
        seen = sorted(run.passes[0].gpu_numbers())
        named = f": GPU {', '.join(map(str, seen))}" if seen else ""
        suspect = f"GPUs absent from DCGM (it sees {found}{named})" if found < wanted else "more GPUs"
        advice = "compare with lspci and nvidia-smi -L, read dmesg for Xid 79"
    return [
        Finding(
            metric="dcgm.gpus",
            outcome=outcome,
            value=found,
            unit="GPUs",
            expected=str(wanted),
            source=expect.source,
            suspect=suspect,
            advice=advice,
        )
    ]


def _count(one: DiagPass) -> int | None:
    """GPUs of a pass: as listed; without a list only if tests name them one by one."""
    listed = one.gpus()
    if listed is not None:  # a GPU with a result that the list lacks: the list is not to be trusted
        return listed if listed == len(one.gpu_numbers()) else None
    everyone = any(r.entity == "GPU" and r.number is None for t in one.tests for r in t.results)
    numbers = one.gpu_numbers()
    return None if everyone or not numbers else len(numbers)


def _model(run: DiagRun, expect: Expectations, *, elsewhere: bool) -> list[Finding]:
    wanted = expect.text("expected_model")
    ids = sorted({e.device_id.lower() for p in run.passes for e in p.entities or () if e.kind == "GPU" and e.device_id})
    seen = [Finding(metric="dcgm.device_id", outcome="observed", value=one) for one in ids]
    if wanted is None:
        return seen
    names = [PRODUCTS.get(one, "") for one in ids]
    outcome: Outcome
    if not ids or elsewhere:
        outcome, suspect = "not-measured", "the output names no GPU model"
    elif all(_words(wanted) in (_words(name), {one}) for name, one in zip(names, ids, strict=True)):
        outcome, suspect = "pass", ""
    elif not all(names) or any(_words(wanted) < _words(name) for name in names):
        outcome, suspect = "not-measured", f"DCGM prints PCI device ids only ({', '.join(ids)})"
    else:
        outcome, suspect = "fail", f"PCI device id {', '.join(ids)} is {', '.join(names)}"
    return [
        *seen,
        Finding(
            metric="dcgm.model",
            outcome=outcome,
            value=", ".join(name or one for name, one in zip(names, ids, strict=True)) or None,
            expected=wanted,
            source=expect.source,
            suspect=suspect,
        ),
    ]


def _words(name: str) -> set[str]:
    return set(name.lower().replace("-", " ").split()) - {"nvidia", "tesla"}


def _required(run: DiagRun, expect: Expectations, *, elsewhere: bool) -> list[Finding]:
    found: list[Finding] = []
    for name in map(str, expect.list("required_tests") or ()):
        lacking = [one for one in run.passes if canonical(name) not in {t.key for t in one.tests}]
        if run.passes and not lacking and not elsewhere:
            found += _on_gpus(run, name, expect)
            continue
        found.append(
            Finding(
                metric=f"dcgm.{name}",
                outcome="not-measured",
                expected="Pass",
                source=expect.source,
                suspect=f"{name} is absent from the output (plug-in package missing, or the test was not asked for)",
                advice="install DCGM's packages (core and proprietary) and run the test by name",
            )
        )
    return found


def _on_gpus(run: DiagRun, name: str, expect: Expectations) -> list[Finding]:
    """A test of GPUs that has results of something else alone says nothing of them."""
    tests = [test for one in run.passes for test in one.tests if test.key == canonical(name)]
    if canonical(name) not in GPU_TESTS or all(any(r.entity == "GPU" for r in test.results) for test in tests):
        return []
    return [
        Finding(
            metric=f"dcgm.{name}",
            outcome="not-measured",
            expected="Pass",
            source=expect.source,
            suspect=f"no GPU has a result of {name}",
            advice="run the test on the GPUs and keep all of the output",
        )
    ]


def _named(run: DiagRun, asked: Asked, expect: Expectations, *, elsewhere: bool) -> list[Finding]:
    """Tests that the command names and the output lacks, and levels of which nothing ran."""
    required = {canonical(str(name)) for name in expect.list("required_tests") or ()}
    seen = {test.key for one in run.passes for test in one.tests}
    if not run.passes or elsewhere:
        return []
    empty = [level for level, tests in LEVEL_TESTS if level <= asked.level and not seen & set(tests)]
    return [
        *(
            Finding(
                metric=f"dcgm.level{level}",
                outcome="not-measured",
                expected=f"tests of level {level}",
                source="the command",
                suspect=f"no test that level {level} adds is in the output",
                advice="keep all of the output; clear what stopped the run and run it again",
            )
            for level in empty
        ),
        *_unseen(asked, seen | required),
    ]


def _unseen(asked: Asked, known: set[str]) -> list[Finding]:
    return [
        Finding(
            metric=f"dcgm.{name}",
            outcome="not-measured",
            expected="Pass",
            source="the command",
            suspect=f"{name} was asked for by name and is absent from the output",
            advice="install DCGM's packages (core and proprietary) and run the test again",
        )
        for name in asked.tests
        if canonical(name) not in known
    ]


def _iterations(run: DiagRun, expect: Expectations, asked: Asked) -> list[Finding]:
    by_expectation = expect.count("iterations")
    wanted = next((n for n in (by_expectation, asked.iterations, run.iterations_asked) if n is not None), None)
    done = len(run.passes)
    if wanted is None:
        return [] if done < 2 else [Finding(metric="dcgm.iterations", outcome="observed", value=done)]
    if wanted == 1 and by_expectation is None:
        return []
    complete = done >= wanted and not run.runtime_errors and not run.copied
    says = f"{done} of {wanted} passes ended; the others are neither pass nor fail"
    return [
        Finding(
            metric="dcgm.iterations",
            outcome="pass" if complete and not run.unreachable_host else "not-measured",
            value=done,
            unit="passes",
            expected=str(wanted),
            source=expect.source if by_expectation is not None else "the command",
            suspect="" if complete else says,
            advice="" if complete else "clear what stopped it and run all of them again",
        ),
        Finding(metric="dcgm.iterations_requested", outcome="observed", value=wanted),
    ]


def _nvlinks(run: DiagRun, expect: Expectations, asked: Asked) -> list[Finding]:
    wanted = expect.count("expected_nvlinks_per_gpu")
    if not wanted:
        return []
    told = asked.parameters.get("pcie.gpu_nvlinks_expected_up") == str(wanted)
    ran = [t for one in run.passes for t in one.tests if t.key == "pcie"]
    answered = told and bool(ran) and not run.unreachable_host
    # An error beside a Pass counts; so does a GPU without a result.
    said = [row for one in run.passes for row in part_results(one) if row.test.key == "pcie"]
    clean = answered and all(any(row.test is t and row.gpu is not None for row in said) for t in ran)
    clean = clean and all(row.says is Says.PASSED for row in said)
    down = [row for row in said if any(meaning_of(error).id in _LINK_ERRORS for error in row.errors)]
    if answered and down:
        return [
            Finding(
                metric="dcgm.nvlinks",
                outcome="fail",
                expected=f"{wanted} links up a GPU",
                source=expect.source_of("expected_nvlinks_per_gpu"),
                suspect="; ".join(dict.fromkeys(row.suspect for row in down)),
                advice=down[0].remedy,
            )
        ]
    if answered and not clean:
        return [
            Finding(
                metric="dcgm.nvlinks",
                outcome="not-measured",
                expected=f"{wanted} links up a GPU",
                source=expect.source_of("expected_nvlinks_per_gpu"),
                suspect="pcie counts NVLinks, and it did not pass on all GPUs",
                advice="clear what is named, then run pcie again",
            )
        ]
    if not answered and not expect.asked("expected_nvlinks_per_gpu"):
        return []
    return [
        Finding(
            metric="dcgm.nvlinks",
            outcome="pass" if clean else "not-measured",
            expected=f"{wanted} links up a GPU",
            source=expect.source_of("expected_nvlinks_per_gpu"),
            suspect="" if clean else "dcgmi diag counts NVLinks only with -p pcie.gpu_nvlinks_expected_up",
            advice="" if clean else "give dcgmi nvlink -s or nvidia-smi nvlink -s",
        )
    ]
