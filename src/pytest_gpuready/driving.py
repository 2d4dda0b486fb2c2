"""Between pytest and the acceptance run: items to clauses, reports to records, the end of the session to a certificate.

What crosses from an xdist worker to the controller are strings in `user_properties`; everything else is derived from
the store again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.acceptance import Acceptance, Settings, let_go
from pytest_gpuready.again import command_again
from pytest_gpuready.blocks import Lost, write_blocks
from pytest_gpuready.certificate.build import Record
from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.lines import one_line
from pytest_gpuready.certificate.summary import summary_lines
from pytest_gpuready.certificate.words import stopped
from pytest_gpuready.errors import GpuReadyError, LeaseError, StoreError, UnreachedError
from pytest_gpuready.grouped import Group, decode, groups
from pytest_gpuready.judge import Found
from pytest_gpuready.judging import CLAUSE, LOST, NO_ANSWER, UNRECORDED, Judging, NotMeasuredError, parts_of
from pytest_gpuready.model import Clause, Outcome, Part
from pytest_gpuready.profiles.metrics import AFTER_LOAD
from pytest_gpuready.screen import screen_of
from pytest_gpuready.transport.replay import BUILT_IN
from pytest_gpuready.unopened import unopened

INCOMPLETE = 20
USAGE = 4
INTERRUPTED = 2
INFEASIBLE = 1
"""The exit code of a dry run whose plan cannot be carried out on some node."""
UNKEPT = "gpuready.unkept"
"""The property of a report that says why the store could not be used: the run ends there."""
DEFAULT_LEVEL = "GPUREADY_DEFAULT_LEVEL"
"""Environment variable of whoever started pytest: the level where neither -m nor the site file names one."""


class _NoCall:
    """Stands for the call of a test that has no parameters."""

    params: Mapping[str, object] = {}


_NO_CALL = _NoCall()


def open_driving(config: pytest.Config, level: int | None) -> Driving:
    """Open (or, in a worker, join) the acceptance run that pytest was asked for.

    Raises:
        pytest.UsageError: it cannot be opened: that ends the session in one line.
    """
    worker = getattr(config, "workerinput", None)
    if worker is not None and "gpuready_out" not in worker:
        raise unopened(
            config,
            "with -n, expected -m levelN, a --gpuready option or a gpuready ini value, found none; "
            "the controlling process has to open the run",
            USAGE,
        )
    unknown = _unknown_level(config)
    if unknown:
        raise unopened(config, f"-m {unknown}: levels are 1 to 4", USAGE)
    writes_nothing = config.option.collectonly or config.option.gpuready_dry_run
    folder = tempfile.TemporaryDirectory(prefix="gpuready-") if writes_nothing else None
    settings = _settings(config, level, Path(folder.name) / "collected" if folder else None)
    forbids = os.environ.get("GPUREADY_UNASKED_REPLAY", "").split(", ")
    promised = next((named for name in forbids if (named := getattr(settings, name, None))), None)
    if settings.replay and promised:
        raise unopened(
            config, f"INCOMPLETE: expected the GPUs of {promised}, found none; no replay stands in for them", INCOMPLETE
        )
    left = settings.out / "certificate.json"
    older = f"; the certificate in {settings.out} is of an earlier run" if left.exists() and not worker else ""
    try:
        driving = Driving(config, Acceptance(settings, screen_of(config)), folder)
    except KeyboardInterrupt:
        why = f"interrupted before the run was open: nothing was measured{older}"
        raise unopened(config, why, INTERRUPTED) from None
    except (LeaseError, UnreachedError) as error:
        raise unopened(config, f"INCOMPLETE: {error}{older}", INCOMPLETE) from error
    except GpuReadyError as error:
        raise unopened(config, f"{error}{older}", USAGE) from error
    config.pluginmanager.register(driving, "gpuready-driving")
    return driving


def _unknown_level(config: pytest.Config) -> str:
    """A level that a marker expression names and that does not exist, unless somebody else registered such a mark."""
    others = {str(line).partition(":")[0].partition("(")[0].strip() for line in config.getini("markers")}
    named = re.findall(r"\blevel\d+\b", config.option.markexpr or "")
    return next((name for name in named if name not in others), "")


def _settings(config: pytest.Config, level: int | None, folder: Path | None) -> Settings:
    """What the person asked for. `folder` is where a run lies that only collects: nothing else is written then."""
    option = config.option
    worker = getattr(config, "workerinput", None)

    def said(name: str) -> str:
        return getattr(option, f"gpuready_{name}") or config.getini(f"gpuready_{name}") or ""

    def path(name: str) -> Path | None:
        return Path(config.invocation_params.dir, said(name)) if said(name) else None

    replay = option.gpuready_replay or ""
    out = Path(worker["gpuready_out"]) if worker else path("out")
    profile = said("profile")
    local_profile = Path(config.invocation_params.dir, profile)
    return Settings(
        out=folder or out or Path("gpuready-out"),
        site=path("site"),
        profile=str(local_profile) if profile and local_profile.is_file() else profile,
        replay=replay if not replay or replay in BUILT_IN else str(Path(config.invocation_params.dir, replay)),
        nodes=_nodes(config) or said("nodes"),
        transport=said("transport"),
        record=None if folder else path("record"),
        burn=said("burn"),
        keep_going=bool(option.gpuready_keep_going or config.getini("gpuready_keep_going")),
        level=level,
        named_level=max((int(n) for n in re.findall(r"\blevel([1-4])\b", option.markexpr or "")), default=0),
        default_level=int(found.group()) if (found := re.fullmatch("[1-4]", os.environ.get(DEFAULT_LEVEL, ""))) else 0,
        command=command_again(config),
        versions={name: importlib.metadata.version(name) for name in ("pytest", "nvidia-ml-py")},
        joined=worker is not None,
        job=worker.get("gpuready_job", "") if worker else "",
        only_collected=folder is not None,
        dry_run=option.gpuready_dry_run,
    )


def _nodes(config: pytest.Config) -> str:
    """The nodes that the command line names; an empty name (a variable that is not set) does not mean all of them."""
    asked: str | None = config.option.gpuready_nodes
    if asked is not None and not asked.strip():
        raise unopened(config, "--gpuready-nodes: expected names of nodes, found nothing", USAGE)
    return asked or ""


class Driving:
    """The open acceptance run and what pytest's tests have said so far."""

    def __init__(
        self, config: pytest.Config, acceptance: Acceptance, folder: tempfile.TemporaryDirectory[str] | None
    ) -> None:
        """`folder` holds a run that only collects, and goes with it: such a run leaves no certificate."""
        self.acceptance = acceptance
        self._folder = folder
        self.certificate: Certificate | None = None
        self._config = config
        self._records: dict[tuple[str, str], list[Record]] = defaultdict(list)
        self._lost: Lost = defaultdict(dict)
        self._trouble = ""
        self._unkept = ""
        self._unrecorded = ""
        self._let_go = ""
        self._plan: list[str] = []
        self._feasible = True
        self._headed = False
        self.judging = Judging(config, acceptance)

    def header(self) -> list[str]:
        """The header lines, once."""
        if self._headed or self._config.option.verbose < 0:
            return []
        self._headed = True
        return [f"gpuready: {line}" for line in self.acceptance.header()]

    # --- collection ----------------------------------------------------------------------------------------------

    def parts(self, marker: pytest.Mark, *, together: bool) -> list[Part | Group]:
        """The expected parts that a clause is judged on, or groups of them; none without such a clause."""
        clause = self.acceptance.profile.clause(_clause_id(marker))
        inventory = self.acceptance.inventory
        parts = inventory.parts(clause.per) if clause else ()
        return groups(inventory, parts) if together else list(parts)

    def adopt(self, item: pytest.Item, marker: pytest.Mark) -> None:
        """Give a clause test its clause, and see that suite and profile agree about its level."""
        clause = self.acceptance.profile.clause(_clause_id(marker))
        if clause is None:
            return  # a profile without this clause: the test has no parts and is skipped by pytest
        if "part" not in getattr(item, "callspec", _NO_CALL).params:
            raise pytest.UsageError(f"{item.nodeid}: expected a clause test that uses `measured`, found one without it")
        level = item.get_closest_marker("level")
        if level is None or level.args[0] != clause.level:
            raise pytest.UsageError(
                f"{item.nodeid}: expected pytest.mark.level({clause.level}) as {clause.id} has in profile "
                f"{self.acceptance.profile.name}, found {level.args if level else 'no level'}"
            )
        item.stash[CLAUSE] = clause

    def arrange(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Sort clause tests by level, in place, what follows a load last; take out and return those above the level
        that the run aims at."""
        dropped = [i for i in items if CLAUSE in i.stash and i.stash[CLAUSE].level > self.acceptance.level]
        gone = set(dropped)
        items[:] = [i for i in items if i not in gone]
        items.sort(key=_place)
        return dropped

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What the tests ask for is taken in their order, also where several processes share them."""
        self.acceptance.taking.follow(
            (item.stash[CLAUSE], parts_of(item)) for item in session.items if CLAUSE in item.stash
        )

    def plan(self, items: Sequence[pytest.Item]) -> None:
        """Instead of running these tests, see what they would measure.

        Raises:
            pytest.UsageError: the plan cannot be made.
        """
        asked = [(item.stash[CLAUSE], parts_of(item)) for item in items if CLAUSE in item.stash]
        try:
            self._plan, self._feasible = self.acceptance.plan(asked, others=len(items) - len(asked))
        except GpuReadyError as error:
            raise unopened(self._config, str(error), USAGE) from error

    # --- tests -------------------------------------------------------------------------------------------------------

    def measured(self, item: pytest.Item, part: Part) -> Found:
        """See the fixture of this name."""
        __tracebackhide__ = True
        with self._noted(item):
            return self.judging.measured(item, part)

    def call(self, item: pytest.Function) -> bool | None:
        """Call a clause test that stands for several parts; None for any other test."""
        __tracebackhide__ = True
        if CLAUSE not in item.stash:
            return None
        with self._noted(item):
            return self.judging.call(item)

    @contextlib.contextmanager
    def _noted(self, item: pytest.Item) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self._interrupted(item.stash[CLAUSE], parts_of(item))
            raise
        except StoreError as error:
            # What cannot be kept may not be measured: a load that leaves no trace is repeated for nothing.
            item.session.shouldfail = one_line(str(error))
            item.user_properties.append((UNKEPT, one_line(str(error))))
            raise NotMeasuredError(str(error)) from error

    def _interrupted(self, clause: Clause, parts: Sequence[Part]) -> None:
        """No test will say it any more: what was measured just now, for this clause and others, has no verdict."""
        acceptance = self.acceptance
        metrics: set[str] = set()
        near: set[Part] = set()
        for part in parts:
            together = acceptance.findings.measured_with(clause.metric, part)
            metrics.update(together[0])
            near.update(together[1])
        for other in acceptance.profile.up_to(acceptance.level):
            for part in acceptance.inventory.parts(other.per) if other.metric in metrics else ():
                if part in near and (other.id, part.name) not in self._records:
                    said = _record(Outcome.NOT_TESTED.value, "its measurement was interrupted")
                    self._records[other.id, part.name].append(said)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what tests said, here or in a worker."""
        said = {str(name): str(value) for name, value in report.user_properties}
        self._unkept = self._unkept or said.get(UNKEPT, "")
        self._unrecorded = self._unrecorded or said.get(UNRECORDED, "")
        if "gpuready.clause" not in said:
            return
        if report.when == "teardown" and not report.failed:
            return
        if report.when == "setup" and report.passed:
            return
        clause, part = said["gpuready.clause"], said["gpuready.part"]
        if "gpuready.cells" in said:
            told = {one.part.name: _record(one.outcome, one.reason) for one in decode(said["gpuready.cells"])}
        else:
            told = {part: _record(said["gpuready.outcome"], said["gpuready.reason"])}
        for node, why in msgspec.json.decode(said.get(LOST, "{}"), type=dict[str, str]).items():
            self._lost[node, why][clause] = None
        for name, record in told.items():
            broken = _record("ERROR", "the test broke in its tear-down")
            self._records[clause, name].append(broken if report.when == "teardown" else record)

    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """A test that lacks only the answers of nodes that gave none has no block of its own: `blocks` has one for
        all of them."""
        said = report.user_properties if isinstance(report, pytest.TestReport) and report.failed else ()
        if any(name == NO_ANSWER for name, _ in said):
            return "unanswered", "u", ("NO ANSWER", {"yellow": True})
        return None

    # --- the end -------------------------------------------------------------------------------------------------

    def finish(self, exit_status: int) -> int:
        """Write the certificate; returns the exit code, which is 0 only for ACCEPTED and never lower than pytest's.

        A run that only collects writes none; of a dry run it is 0 where its plan can be carried out on every node.
        """
        if self._folder:
            self.acceptance.close()
            with contextlib.suppress(OSError):
                self._folder.cleanup()
            return exit_status or (0 if self._feasible else INFEASIBLE)
        blockers = []
        if self._unkept:  # with xdist pytest says "interrupted" then, and nobody has
            blockers.append(f"nothing more was measured: {self._unkept}")
            exit_status = int(pytest.ExitCode.TESTS_FAILED)
        if exit_status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            blockers.append(stopped(exit_status))
        self._unrecorded = self._unrecorded or one_line(self.acceptance.reach.unrecorded)
        if self._unrecorded:
            self.acceptance.assume(self._unrecorded)
        try:
            self.certificate = self.acceptance.conclude(self._records, finished=True, blockers=blockers)
        except StoreError as error:
            self._trouble = str(error)
            return exit_status if blockers and not self._unkept else INCOMPLETE
        except Exception as error:  # a defect of ours must end as INCOMPLETE, not as a verdict
            self._trouble = f"the certificate could not be built: {type(error).__name__}: {one_line(str(error))}"
            return exit_status if blockers and not self._unkept else INCOMPLETE
        finally:
            gone = self.acceptance.close()
            self._let_go = let_go(gone) if gone and blockers else ""
        self._config.hook.pytest_gpuready_certificate(
            certificate=self.certificate, directory=str(self.acceptance.run.out)
        )
        if blockers and not self._unkept:
            return exit_status
        code = {"ACCEPTED": 0, "REJECTED": 1, "INCOMPLETE": INCOMPLETE}[self.certificate.judged]
        return code or exit_status or (INCOMPLETE if self._unrecorded else 0)

    def look_back(self, code: int) -> int:
        """Behind all other plug-ins: raw output that one of them took away is there again, or 0 becomes INCOMPLETE."""
        try:
            if not self._folder:
                self.acceptance.run.store.restore_evidence()
        except StoreError:
            return code or INCOMPLETE
        return code

    def summarise(self, reporter: pytest.TerminalReporter) -> None:
        """Findings with their evidence, then the certificate in about ten lines; of a dry run its plan."""
        if self._plan:
            reporter.write_sep("=", "dry run: the plan")
            for line in self._plan:
                reporter.write_line(line)
        if self._trouble:
            reporter.write_sep("=", "GPU acceptance certificate")
            reporter.write_line(f"INCOMPLETE  {self._trouble}")
        for line in filter(None, (self._unrecorded, self._let_go)):
            reporter.write_line(f"gpuready: {line}")
        if self.certificate is None:
            return
        write_blocks(reporter, self.certificate, self._lost)
        replay = self.certificate.basis != "hardware"
        basis = self.certificate.basis.upper()
        reporter.write_sep("=", f"{basis}: certifies no hardware" if replay else "GPU acceptance certificate")
        for label, text in summary_lines(self.certificate, str(self.acceptance.run.out)):
            reporter.write_line(f"{label:<11} {text}")
        if replay:
            reporter.write_sep("=", f"{basis}: certifies no hardware")


@functools.lru_cache
def _record(outcome: str, reason: str) -> Record:
    """Most tests of many nodes say the same: one object for all of them."""
    return Record(outcome=outcome, reason=reason)


def _place(item: pytest.Item) -> tuple[int, bool]:
    clause = item.stash.get(CLAUSE, None)
    return (clause.level, clause.metric in AFTER_LOAD) if clause else (0, False)


def _clause_id(marker: pytest.Mark) -> str:
    if len(marker.args) != 1 or not isinstance(marker.args[0], str) or marker.kwargs:
        raise pytest.UsageError(f'expected pytest.mark.clause("ID"), found clause{marker.args}')
    return marker.args[0]
