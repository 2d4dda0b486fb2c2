"""The pytest plug-in: options, markers, parametrisation by expected parts, verdicts and the certificate.

Inert unless one of its options is given on the command line or a test with a `clause` mark is collected: until then
this module imports nothing of the rest. With xdist the controlling process opens the run and the workers join it.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuready import fixtures, hookspecs
from pytest_gpuready.fixtures import DRIVING, acceptance, gpu, inventory, measured, part, profile, require
from pytest_gpuready.unopened import CODE, end

if TYPE_CHECKING:
    from pytest_gpuready.driving import Driving

__all__ = ["acceptance", "gpu", "inventory", "measured", "part", "profile", "require"]

LEVELS = (1, 2, 3, 4)
OUT = "gpuready-out"
FAILED: pytest.StashKey[pytest.UsageError] = pytest.StashKey()
"""Why the run that a collected clause asks for cannot be opened."""

ENDED: pytest.StashKey[tuple[pytest.Session, int]] = pytest.StashKey()
"""The session whose certificate is written, and the exit code that follows from it."""

_MARKERS = (
    "level(n): run level of a clause, 1 to 4; gives the marks level<n> to level4, so that -m level4 runs all up to 4",
    "clause(id): the clause of the profile that a test judges; its docstring is the sentence on the certificate",
    *(f"level{n}: acceptance clauses of level {n} and below (given by `level`, not by hand)" for n in LEVELS),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--gpuready-*` and their ini equivalents."""
    group = parser.getgroup("gpuready", "GPU acceptance")
    ini: tuple[tuple[str, str, str], ...] = (
        ("site", "FILE", "site file: what is expected (default: a plain node is assumed, and said so)"),
        ("profile", "NAME|FILE", "profile: what is promised (default: the one for the PCI id that is found)"),
        ("nodes", "NODESET", "nodes to reach, node[001-512] (default: those of the site file, or this machine)"),
        ("transport", "NAME", "how they are reached: local, ssh, slurm or kubernetes (default: as the site file says)"),
        ("record", "DIR", "keep every command's output in DIR, to be replayed"),
        ("burn", "TIME", "soak: 4h or 90m of burn-in, shared with DCGM's tests where it is asked; belongs to level 4"),
        ("out", "DIR", "run directory: certificate, evidence, store (default: gpuready-out)"),
    )
    for name, metavar, text in ini:
        group.addoption(f"--gpuready-{name}", metavar=metavar, default=None, help=text)
        parser.addini(f"gpuready_{name}", help=text, default=OUT if name == "out" else "")
    group.addoption(
        "--gpuready-replay",
        metavar="DIR|demo|demo-dcgm",
        default=None,
        help="judge a recording instead of hardware; certifies nothing; on the command line only",
    )
    group.addoption(
        "--gpuready-dry-run",
        action="store_true",
        default=False,
        help="print what would be measured, and run no test; exit code 0 accepts nothing, 1: not possible on all nodes",
    )
    text = "do not keep a level from running because a gate of the one before failed"
    group.addoption("--gpuready-keep-going", action="store_true", default=False, help=text)
    parser.addini("gpuready_keep_going", type="bool", help=text, default=False)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Offer our hooks."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and refuse a replay that nobody asked for on the command line."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.gpuready_replay is not None and not hasattr(config, "workerinput"):
        asked = [str(a) for a in config.invocation_params.args]
        if not any(a == "--gpuready-replay" or a.startswith("--gpuready-replay=") for a in asked):
            raise pytest.UsageError(
                "--gpuready-replay: expected on the command line only, found it in ini or PYTEST_ADDOPTS; "
                "a replay must not be asked for by accident"
            )
    if config.option.gpuready_dry_run and hasattr(config.option, "dist"):
        config.option.dist = "no"  # xdist: a plan needs no workers


def _asked_level(config: pytest.Config) -> int | None:
    """N of exactly `-m levelN`; blanks and parentheses around it change nothing."""
    match = re.fullmatch(r"[\s(]*level([1-4])[\s)]*", config.option.markexpr or "")
    return int(match.group(1)) if match else None


def _options_given(config: pytest.Config) -> bool:
    option = config.option
    named = ("site", "profile", "nodes", "transport", "record", "burn", "out", "replay")
    return (
        any(getattr(option, f"gpuready_{n}") is not None for n in named)
        or option.gpuready_keep_going
        or option.gpuready_dry_run
    )


def _ini_given(config: pytest.Config) -> bool:
    """The same in ini: enough to open a run for workers, who cannot open one when they meet a clause."""
    names = ("site", "profile", "nodes", "transport", "record", "burn", "keep_going")
    return any(config.getini(f"gpuready_{name}") for name in names) or config.getini("gpuready_out") != OUT


def _drive(config: pytest.Config) -> Driving:
    """The state of this run; opens the acceptance run on the first call."""
    driving = config.stash.get(DRIVING, None)
    if driving is None:
        from pytest_gpuready.driving import open_driving  # noqa: PLC0415 - inert until needed

        driving = config.stash[DRIVING] = open_driving(config, _asked_level(config))
    return driving


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(
    config: pytest.Config,
) -> Generator[None, int | pytest.ExitCode | None, int | pytest.ExitCode | None]:
    """Where the run cannot be opened pytest ends with one line that says why, and with the exit code of that."""
    try:
        return (yield)
    except pytest.UsageError as error:
        code = end(config, error)
        if code is None:
            raise
        return code


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Open the run at once where options ask for it; before xdist starts workers also for a level or an ini value."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    distributed = config.pluginmanager.hasplugin("dsession")
    if _options_given(config) or (distributed and (_asked_level(config) or _ini_given(config))):
        _drive(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is about to be accepted, where the run is open already."""
    driving = config.stash.get(DRIVING, None)
    return driving.header() if driving else []


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """The same, where only a collected clause opened the run."""
    driving = config.stash.get(DRIVING, None)
    return driving.header() if driving else []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: tell a worker which open run to join."""
    driving = node.config.stash.get(DRIVING, None)
    if driving:
        if driving.acceptance.reach.kind == "kubernetes":
            raise pytest.UsageError("expected no -n with --gpuready-transport kubernetes: one process holds the pods")
        if driving.acceptance.reach.leased:
            driving.acceptance.reach.leased.rest()  # the workers ask, and know whom
        node.workerinput["gpuready_out"] = str(driving.acceptance.run.out)
        node.workerinput["gpuready_job"] = driving.acceptance.reach.jobs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise a clause over the expected parts of its kind."""
    marker = metafunc.definition.get_closest_marker("clause")
    if marker is None or "part" not in metafunc.fixturenames:
        return
    config = metafunc.config
    if FAILED in config.stash:
        return
    try:
        parts = _drive(config).parts(marker, together=_asks_ours_alone(metafunc))
    except pytest.UsageError as error:
        if CODE not in config.stash:  # a mark is wrong: one line, not where in our code that was found out
            raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from error
        config.stash[FAILED] = error  # said once, when collection has ended: in here it would read as broken tests
        if hasattr(config, "workerinput"):  # nobody hears how a worker ends, only what it could not collect
            raise pytest.Collector.CollectError(str(error)) from error
        return
    metafunc.parametrize("part", parts, ids=[p.name for p in parts], indirect=True)


def _asks_ours_alone(metafunc: pytest.Metafunc) -> bool:
    """True where a test has no fixture but ours, none of them overridden, and cannot ask for any other."""
    asked = metafunc.definition._fixtureinfo
    defined = (found for name in metafunc.fixturenames for found in asked.name2fixturedefs.get(name, ()))
    return "request" not in asked.argnames and all(found.func.__module__ == fixtures.__name__ for found in defined)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Call a clause test that stands for several parts of a node once for each of them."""
    driving = pyfuncitem.config.stash.get(DRIVING, None)
    return driving.call(pyfuncitem) if driving else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give `level(n)` its cumulative marks, and a clause test its clause."""
    level = item.get_closest_marker("level")
    if level is not None:
        if len(level.args) != 1 or level.args[0] not in LEVELS or level.kwargs:
            raise pytest.UsageError(f"{item.nodeid}: expected level(1) to level(4), found level{level.args}")
        for n in range(level.args[0], LEVELS[-1] + 1):
            item.add_marker(f"level{n}")
    marker = item.get_closest_marker("clause")
    if marker is not None and FAILED not in item.config.stash:
        _drive(item.config).adopt(item, marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Clauses run in the order of their levels, and none above the level that the run aims at."""
    if FAILED in config.stash:
        if hasattr(config, "workerinput"):
            items.clear()
            return
        raise config.stash[FAILED]
    driving = config.stash.get(DRIVING, None)
    if driving:
        dropped = driving.arrange(items)
        if dropped:
            config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """A dry run ends with its plan, and without a test; where collection broke, pytest says so."""
    option = session.config.option
    if not option.gpuready_dry_run or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    _drive(session.config).plan(session.items)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the verdict of a clause test where it crosses to the controller: into `user_properties`."""
    driving = item.config.stash.get(DRIVING, None)
    if driving is None:
        return (yield)
    driving.judging.before_report(item, call)
    report = yield
    driving.judging.after_report(item, call, report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> Generator[None, None, None]:
    """Write the certificate before anybody else ends the session, and raise the exit code to what it says."""
    driving = session.config.stash.get(DRIVING, None)
    if driving is None or hasattr(session.config, "workerinput"):
        yield
        return
    code = int(session.exitstatus) or int(exitstatus)
    try:
        session.exitstatus = code = driving.finish(code)
    finally:  # whatever became of it, the others end the session too
        try:
            yield
        finally:
            session.config.stash[ENDED] = (session, driving.look_back(code))
            _keep_code(session.config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The last word: whoever set another exit code meanwhile has not lowered it, and a run that was opened in vain
    (another plug-in ended the start of the session) lets go of its nodes."""
    _keep_code(config)
    driving = config.stash.get(DRIVING, None)
    if driving and ENDED not in config.stash and not hasattr(config, "workerinput"):
        driving.acceptance.close()


def _keep_code(config: pytest.Config) -> None:
    if ENDED in config.stash:
        session, code = config.stash[ENDED]
        session.exitstatus = max(int(session.exitstatus), code)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The certificate in about ten lines."""
    driving = config.stash.get(DRIVING, None)
    if driving:
        driving.summarise(terminalreporter)
