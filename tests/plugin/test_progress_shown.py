"""Progress reaches the person through pytest's own terminal: captured or not, quiet, in a worker, in a log."""

from __future__ import annotations

import os
import pty
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from tests.plugin import forked

# A test that runs a long command as the plug-in does; what it says beside its progress is captured.
LONG = """
from pytest_gpuready.campaign.ways import Way, open_way
from pytest_gpuready.model import Command
from pytest_gpuready.screen import screen_of

SCRIPT = '''echo 'gpuready-progress {"power_w": [612, 698], "temperature_c": [58, 66]}' >&2; echo mine >&2'''

def test_first():
    pass

def test_long(request):
    print("captured")
    transport = open_way("local", Way(site=None, names=(), lease={}), screen_of(request.config))[1]
    command = Command(node="n", argv=("sh", "-c", SCRIPT), timeout_s=20, says="DCGM pcie", typical_s=15.0)
    result = transport.run(command)
    assert result.stderr == "mine\\n"
    print("captured too")
"""

LINES = ["gpuready: DCGM pcie, about 0:15", "gpuready: DCGM pcie ended after 0:00"]
PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:html", "-p", "no:metadata")


@pytest.mark.parametrize("capture", [(), ("-s",), ("--capture=sys",)])
def test_a_log_gets_lines_of_their_own(pytester: pytest.Pytester, capture: tuple[str, ...]) -> None:
    """Whatever pytest captures, start and end stand in the log, each in a line, and nothing in place."""
    pytester.makepyfile(LONG)
    result = pytester.runpytest_inprocess(*PLAIN, *capture)
    assert result.ret == 0
    result.stdout.fnmatch_lines(LINES)
    assert "\r" not in result.stdout.str()
    assert ("captured" in result.stdout.str()) == (capture == ("-s",))


@pytest.mark.parametrize("arguments", [("-q",), ("-n", "1"), ("-p", "no:terminal")])
def test_where_nobody_asked_or_nobody_sees_nothing_is_shown(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    """A quiet log gets no lines, a worker of xdist has no terminal: both run as before."""
    pytester.makepyfile(LONG)
    result = pytester.runpytest_inprocess(*PLAIN, *arguments)
    assert result.ret == 0
    assert "DCGM pcie" not in result.stdout.str() + result.stderr.str()


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """All that pytest writes to a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    terminal = Path(os.ttyname(theirs))
    said = {"TERM": "xterm", "COLUMNS": "60", "NO_COLOR": "1"}
    process = forked.start(folder, *PLAIN, *arguments, said=(terminal, terminal), environment=said)
    wrote = b""
    while (ready := wait([ours, process.sentinel], timeout=60)) != [process.sentinel]:
        assert ours in ready, wrote
        wrote += os.read(ours, 65536)
    assert process.exitcode == 0
    os.close(theirs)
    os.close(ours)
    return wrote.decode()


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-s",)])
def test_a_terminal_gets_one_line_in_place(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    """The line begins on its own, is rewritten with the readings, no wider than the terminal, and ends as a line."""
    pytester.makepyfile(LONG)
    wrote = on_a_terminal(pytester.path, *arguments)
    pieces = wrote.split("\r\x1b[K")
    assert pieces[0].endswith("\n")
    assert pieces[1] == "gpuready: DCGM pcie  0:00 of about 0:15"
    assert "gpuready: DCGM pcie  0:00 of about 0:15  612-698 W  58-66 C"[:59] in pieces
    assert pieces[-1].startswith("gpuready: DCGM pcie ended after 0:00\r\n")
    assert "2 passed" in pieces[-1]


# A fan-out over three nodes that fails on one; its progress is drawn from a thread while pytest captures.
MANY = """
import time
from pytest_gpuready.campaign.progress import Progress, Shown
from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.screen import screen_of

class Three:
    def run(self, command):
        raise AssertionError

    def run_many(self, commands):
        for number, command in enumerate(commands):
            time.sleep(0.6)
            result = CommandResult(command=command, exit_code=0, stdout="", stderr="", started="", duration_s=0.1)
            yield command, TransportError("no route") if number == 1 else result

    def stop(self):
        pass

def test_many(request):
    transport = Shown(Three(), Progress(screen_of(request.config)))
    asked = [Command(node=f"n{i}", argv=("x",), timeout_s=9, says="DCGM pcie", typical_s=1.0) for i in range(3)]
    assert len(list(transport.run_many(asked))) == 3
    print("captured")
"""


def test_a_failure_stands_above_the_line_that_is_rewritten(pytester: pytest.Pytester) -> None:
    """On a terminal a fan-out is one line in place; a failure takes a line of its own; no half line stays."""
    pytester.makepyfile(MANY)
    wrote = on_a_terminal(pytester.path)
    *pieces, last = wrote.split("\r\x1b[K")
    assert "gpuready: DCGM pcie  0/3 nodes  0:00 of about 0:01" in pieces
    assert "gpuready: DCGM pcie: n1: no route\r\n" in pieces
    assert last.startswith("gpuready: DCGM pcie ended after 0:01: 2/3 nodes, 1 failed\r\n")
    assert "1 passed" in last
    assert "captured" not in wrote
