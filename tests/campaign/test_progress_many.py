"""What is shown of one command on each of many nodes, with a clock and a screen of the test's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from pytest_gpuready.campaign import progress
from pytest_gpuready.campaign.progress import Progress, Shown
from pytest_gpuready.campaign.progress_many import FanOut
from pytest_gpuready.campaign.progress_words import names
from pytest_gpuready.errors import RecordingEndedError, TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, ManyTransport, StoppedError
from pytest_gpuready.transport.local import ENDING


class Paper:
    """A screen that keeps what was written, in place after a \\r, and a clock that is set by hand."""

    def __init__(self, *, in_place: bool) -> None:
        self.in_place = in_place
        self.now = 1000.0
        self.wrote: list[str] = []

    def line(self, text: str) -> None:
        self.wrote.append(text)

    def rewrite(self, text: str, *, last: bool = False) -> None:
        self.wrote.append(f"\r{text}" + ("\n" if last else ""))

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, fan_out: FanOut) -> list[str]:
        """Let time pass second by second, and return what was written meanwhile."""
        before = len(self.wrote)
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1, until)
            fan_out.tick()
        return self.wrote[before:]


def commands(count: int, *, says: str = "DCGM pcie (level 2)", typical_s: float = 130.0) -> tuple[Command, ...]:
    return tuple(
        Command(node=f"node{number:04d}", argv=("x",), timeout_s=600, says=says, typical_s=typical_s)
        for number in range(1, count + 1)
    )


def done(command: Command) -> CommandResult:
    return CommandResult(command=command, exit_code=0, stdout="{}", stderr="", started="", duration_s=1.0)


def test_a_log_of_a_thousand_nodes_can_be_read() -> None:
    """Start, three failures at most, a line a minute with counts, heat and who is waited for, and the end: eight lines
    for 1,000 nodes and four minutes, however much they say."""
    paper = Paper(in_place=False)
    asked = commands(1000)
    fan_out = FanOut(asked, paper, paper.clock)
    assert paper.after(1, fan_out) == []
    for command in asked[:5]:
        fan_out.ended(command, TransportError(f"{command.node}: expected to log in by ssh, found nothing\x1b[2J"))
    for number, command in enumerate(asked[5:]):
        fan_out.said(command, {"power_w": [600.0 + number % 90, 690], "temperature_c": [40, 66 + number % 4]})
    assert paper.after(58, fan_out) == [
        "DCGM pcie (level 2) on 1000 nodes, about 2:10",
        *(
            f"DCGM pcie (level 2): node000{number}: expected to log in by ssh, found nothing?[2J"
            for number in (1, 2, 3)
        ),
    ]
    for command in asked[5:]:
        fan_out.said(command, {"power_w": [600, 698], "temperature_c": [41, 69]})
    assert paper.after(2, fan_out) == [
        "DCGM pcie (level 2)  0/1000 nodes, 5 failed  1:00 of about 2:10  600-698 W  41-69 C"
    ]
    for command in asked[5:-7]:
        fan_out.ended(command, done(command))
    assert paper.after(60, fan_out) == [
        "DCGM pcie (level 2)  988/1000 nodes, 5 failed  2:00 of about 2:10  waits for node[0994-0997] and 3 more"
    ]
    paper.after(60, fan_out)
    for command in asked[-7:]:
        fan_out.ended(command, done(command))
    fan_out.end()
    assert paper.wrote[-2:] == [
        "DCGM pcie (level 2)  988/1000 nodes, 5 failed  3:00, usually 2:10  waits for node[0994-0997] and 3 more",
        "DCGM pcie (level 2) ended after 3:01: 995/1000 nodes, 5 failed, 2 of them not told above; "
        "slowest node0994 (3:01)",
    ]
    assert len(paper.wrote) == 8


def test_a_terminal_has_one_line_with_failures_above_it() -> None:
    """From the first glance on the line is rewritten; a failure is a line of its own; what is over at once leaves
    nothing."""
    paper = Paper(in_place=True)
    asked = commands(4, says="inventory", typical_s=0.0)
    fan_out = FanOut(asked, paper, paper.clock)
    paper.after(1, fan_out)
    fan_out.ended(asked[0], done(asked[0]))
    fan_out.ended(asked[1], TransportError("no route"))
    fan_out.ended(asked[2], RecordingEndedError("nothing more"))
    paper.after(1, fan_out)
    paper.now += 3
    fan_out.ended(asked[3], done(asked[3]))
    fan_out.end()
    assert paper.wrote == [
        "\rinventory  0/4 nodes  0:01",
        "inventory: node0002: no route",
        "\rinventory  2/4 nodes, 1 failed  0:02  waits for node0004",
        "\rinventory ended after 0:05: 3/4 nodes, 1 failed; slowest node0004 (0:05)\n",
    ]
    quick = Paper(in_place=True)
    FanOut(asked, quick, quick.clock).end()
    assert quick.wrote == []


@pytest.mark.parametrize(
    ("count", "typical_s", "seconds", "lines"),
    [(4, 0.0, 9, 0), (1000, 0.0, 1, 0), (1000, 0.0, 3, 2), (4, 130.0, 3, 2), (4, 0.0, 30, 2)],
)
def test_a_log_does_not_hear_of_what_is_over_at_once(count: int, typical_s: float, seconds: int, lines: int) -> None:
    """A quick probe of a few nodes prints nothing; many nodes, or a long test, print start and end."""
    paper = Paper(in_place=False)
    asked = commands(count, typical_s=typical_s)
    fan_out = FanOut(asked, paper, paper.clock)
    paper.after(seconds, fan_out)
    for command in asked:
        fan_out.ended(command, done(command))
    fan_out.end()
    assert len(paper.wrote) == lines


def test_ctrl_c_is_answered_at_once_and_those_that_did_not_begin_are_no_failures() -> None:
    """In a log, too, who pressed Ctrl-C is told; commands that were not begun are counted apart."""
    paper = Paper(in_place=False)
    asked = commands(3)
    fan_out = FanOut(asked, paper, paper.clock)
    fan_out.said(asked[0], {ENDING: True})
    fan_out.said(asked[1], {"power_w": "\x1b[31m", "temperature_c": [float("nan"), 1]})
    assert paper.after(2, fan_out) == [
        "DCGM pcie (level 2) on 3 nodes, about 2:10",
        "DCGM pcie (level 2)  0/3 nodes  0:01 of about 2:10  is told to end; Ctrl-C again kills it",
    ]
    fan_out.ended(asked[0], done(asked[0]))
    for command in asked[1:]:
        fan_out.ended(command, StoppedError("stopped"))
    fan_out.end()
    assert paper.wrote[-1] == "DCGM pcie (level 2) ended after 0:02: 1/3 nodes, 2 stopped"


class Many:
    """A transport of many nodes that answers at once, and on the last one as it is told to."""

    def __init__(self, paper: Paper, shown: list[Progress], *, breaks: bool = False) -> None:
        self.paper, self.shown, self.breaks, self.closed = paper, shown, breaks, False

    def run(self, command: Command) -> CommandResult:
        return done(command)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        try:
            for command in commands:
                self.paper.now += 3
                self.shown[0].said(command, {"power_w": [600, 700]})
                yield command, done(command)
            if self.breaks:
                raise KeyboardInterrupt
        finally:
            self.closed = True

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("end", ["all", "Ctrl-C", "nobody listens"])
def test_a_fan_out_goes_through_at_once_and_closes_its_line(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Shown` is a transport of many nodes: everything comes through, Ctrl-C too, and the last line is written however
    it ends."""
    monkeypatch.setattr(progress, "TICK_S", 60.0)
    paper = Paper(in_place=True)
    shown: list[Progress] = [Progress(paper, clock=paper.clock)]
    inner = Many(paper, shown, breaks=end == "Ctrl-C")
    transport = Shown(inner, shown[0])
    assert isinstance(transport, ManyTransport)
    asked = commands(3)
    came: list[Ended] = []
    stream = transport.run_many(asked)
    if end == "Ctrl-C":
        with pytest.raises(KeyboardInterrupt):
            came.extend(stream)
    elif end == "all":
        came.extend(stream)
    else:
        came.append(next(stream))
        del stream
    assert [command for command, _ in came] == list(asked[: len(came)])
    assert inner.closed
    counts = {"all": "0:09: 3/3", "Ctrl-C": "0:09: 3/3", "nobody listens": "0:03: 1/3"}[end]
    assert paper.wrote == [f"\rDCGM pcie (level 2) ended after {counts} nodes\n"]


def test_one_node_is_shown_as_ever() -> None:
    """A fan-out over one node looks as one command does: shown where it takes its time, silent where it does not."""
    paper = Paper(in_place=False)
    shown: list[Progress] = [Progress(paper, clock=paper.clock)]
    transport = Shown(Many(paper, shown), shown[0])
    assert len(list(transport.run_many(commands(1)))) == 1
    assert paper.wrote == ["DCGM pcie (level 2), about 2:10", "DCGM pcie (level 2) ended after 0:03"]
    paper.wrote.clear()
    assert len(list(transport.run_many(commands(1, says="inventory", typical_s=0.0)))) == 1
    assert paper.wrote == []


def test_names_are_few_and_escaped() -> None:
    """A few nodes are named in one word, the rest counted; a name that is none is shown without what could harm."""
    assert names(["n2", "n1"]) == "n[1-2]"
    assert names(f"n{number:03d}" for number in range(1, 101)) == "n[001-004] and 96 more"
    assert names(["a\x1b[2J", "b"]) == "a?[2J, b"
