"""Runs pytest in pytest: the shipped suites on recorded nodes, and what the certificate then says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import xdist.dsession
import xdist.workermanage

import pytest_gpuready.acceptance
import pytest_gpuready.driving  # as those above: loaded once for all runs in this process
from tests.plugin import forked

SUITES = Path(__file__).parents[2] / "suites"

# Guests of this environment that these runs do not need, and that cost a second each time.
LIGHT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:html", "-p", "no:metadata")

# What runs in this process can do without, too: a third of their time. Runs in a process of their own keep all of it.
_SPARE = ("doctest", "faulthandler", "logging", "pastebin", "threadexception", "unittest", "unraisableexception")
BARE = (*LIGHT, *(word for name in (*_SPARE, "xdist") for word in ("-p", f"no:{name}")))


@dataclass(frozen=True)
class Outcome:
    """How a run ended and the certificate that it left."""

    result: pytest.RunResult
    out: Path

    @property
    def code(self) -> int:
        return int(self.result.ret)

    @property
    def certificate(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.out / "certificate.json").read_text())
        return loaded

    @property
    def status(self) -> str:
        return str(self.certificate["judged"])

    def cells(self, *outcomes: str) -> dict[str, tuple[int, ...]]:
        """Clause -> GPU indices (-1: the node) that have one of these outcomes."""
        found: dict[str, tuple[int, ...]] = {}
        for suite in self.certificate["suites"]:
            for clause in suite["clauses"]:
                hit = tuple(
                    int(p["part"].split("/gpu")[1]) if "/gpu" in p["part"] else -1
                    for p in clause["parts"]
                    if p["outcome"] in outcomes
                )
                if hit:
                    found[clause["id"]] = hit
        return found

    def parts(self, clause_id: str) -> list[dict[str, Any]]:
        """All parts of one clause."""
        return [
            part
            for suite in self.certificate["suites"]
            for clause in suite["clauses"]
            if clause["id"] == clause_id
            for part in clause["parts"]
        ]


# Tests run side by side: each run that asks this machine takes a lease of its own instead of the machine's. And the
# page's templates are compiled once for all processes of these tests, a quarter of a second each.
OWN_LEASE = """
from pathlib import Path
import jinja2
import pytest_gpuready.acceptance
from pytest_gpuready.certificate import html
lease = Path(__file__).with_name("lease")
pytest_gpuready.acceptance.default_path = lambda: lease
compiled = Path({compiled!r})
compiled.mkdir(exist_ok=True)
html._environment().bytecode_cache = jinja2.FileSystemBytecodeCache(str(compiled))
"""


@pytest.fixture
def own_lease(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Text of the plug-in that every run of these tests loads."""
    return OWN_LEASE.format(compiled=str(tmp_path_factory.getbasetemp() / "compiled-templates"))


_ENDED: dict[tuple[str, ...], Outcome] = {}


class Accept:
    """Runs the suites in a folder of its own."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_lease: str) -> None:
        self._pytester = pytester
        self._monkeypatch = monkeypatch
        self.path = pytester.path
        pytester.makepyfile(own_lease=own_lease)

    def once(self, *arguments: str) -> Outcome:
        """The ended run with these arguments, made by the first test that asks for it: to be read, never changed."""
        if arguments not in _ENDED:
            _ENDED[arguments] = self(*arguments)
        return _ENDED[arguments]

    def __call__(self, *arguments: str, suites: bool = True, plugins: tuple[str, ...] = ()) -> Outcome:
        given = [*arguments, *(["-p", p] for p in ("own_lease", *plugins))]
        flat = [a for item in given for a in ([item] if isinstance(item, str) else item)]
        paths = [str(SUITES)] if suites else []
        if plugins and "-n" not in flat:  # what meddles with the process gets one of its own
            result = forked.run(self.path, *LIGHT, *flat, *paths, timeout_s=120)
        else:
            self._pytester.syspathinsert()
            without = BARE
            if "-n" in flat:  # this process opens the run; its workers are others, begun anew, and need the path too
                without = LIGHT
                self._monkeypatch.setattr(xdist.workermanage, "_sys_path", list(sys.path))
            result = self._pytester.runpytest_inprocess(*without, *flat, *paths)
        return Outcome(result=result, out=self.path / "gpuready-out")


@pytest.fixture(autouse=True)
def _nobody_looks_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process do not wait for the disk, which guards against a power cut, nor draw a page that stands for
    them until they end, which guards against their being killed: runs in processes of their own do."""
    draw = pytest_gpuready.acceptance.render
    monkeypatch.setattr("pytest_gpuready.files.os.fsync", lambda descriptor: None)
    monkeypatch.setattr(pytest_gpuready.acceptance, "render", lambda made: draw(made) if made.finished else "")


@pytest.fixture
def accept(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_lease: str) -> Accept:
    """A run of the shipped suites; arguments as on the command line."""
    return Accept(pytester, monkeypatch, own_lease)
