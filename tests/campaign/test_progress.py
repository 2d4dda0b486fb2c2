"""What is shown while a long command runs, line by line, with a clock and a screen of the test's own."""

from __future__ import annotations

import pytest

from pytest_gpuready.campaign.progress import Progress, Shown, clock_time
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport.local import ENDING

LONG = Command(node="node01", argv=("x",), timeout_s=600, says="DCGM targeted_power (level 3)", typical_s=130.0)
SAID = {"s": 63.0, "power_w": [612.4, 698.0], "temperature_c": [58, 66]}


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


def shown(*, in_place: bool, command: Command = LONG) -> tuple[Paper, Progress]:
    paper = Paper(in_place=in_place)
    progress = Progress(paper, clock=lambda: paper.now)
    progress.begin(command)
    return paper, progress


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    """What runs, how far it is, the spread of power and temperature; beyond the usual time it says so; then the end."""
    paper, progress = shown(in_place=True)
    paper.now += 63
    progress.said(LONG, SAID)
    paper.now += 10
    progress.said(LONG, {})
    paper.now += 177
    progress.said(LONG, {})
    paper.now += 2
    progress.end(LONG)
    assert paper.wrote == [
        "\rDCGM targeted_power (level 3)  0:00 of about 2:10",
        "\rDCGM targeted_power (level 3)  1:03 of about 2:10  612-698 W  58-66 C",
        "\rDCGM targeted_power (level 3)  1:13 of about 2:10  612-698 W  58-66 C",
        "\rDCGM targeted_power (level 3)  4:10, usually 2:10",
        "\rDCGM targeted_power (level 3) ended after 4:12\n",
    ]


def test_a_log_has_a_line_a_minute() -> None:
    """However often something is said, a log gets the start, one line a minute and the end."""
    paper, progress = shown(in_place=False)
    for _ in range(125):
        paper.now += 1
        progress.said(LONG, SAID)
    progress.end(LONG)
    assert paper.wrote == [
        "DCGM targeted_power (level 3), about 2:10",
        "DCGM targeted_power (level 3)  1:00 of about 2:10  612-698 W  58-66 C",
        "DCGM targeted_power (level 3)  2:00 of about 2:10  612-698 W  58-66 C",
        "DCGM targeted_power (level 3) ended after 2:05",
    ]


@pytest.mark.parametrize("in_place", [True, False])
def test_what_takes_no_time_is_not_shown(in_place: bool) -> None:
    """A command of seconds, and one that runs beside the one that is shown, leave no trace."""
    short = Command(node="node01", argv=("x",), timeout_s=60)
    paper, progress = shown(in_place=in_place, command=short)
    progress.said(short, SAID)
    progress.end(short)
    assert paper.wrote == []


@pytest.mark.parametrize(
    "said",
    [
        {"power_w": "\x1b[31m700"},
        {"power_w": [612]},
        {"power_w": [1, "2"]},
        {"power_w": [True, False]},
        {"power_w": [float("nan"), 1.0]},
        {"power_w": [1, 10**400]},
        {"power_w": None, "temperature_c": {}},
        {"other": [1, 2]},
    ],
)
def test_what_a_node_says_wrongly_is_not_shown(said: dict[str, object]) -> None:
    """Readings that are no two numbers a person could read are left out."""
    paper, progress = shown(in_place=True)
    progress.said(LONG, said)
    assert paper.wrote[-1] == "\rDCGM targeted_power (level 3)  0:00 of about 2:10"


def test_words_are_escaped_and_a_retest_is_named() -> None:
    """Control characters and signs that a terminal may not have are not written; a second run says so."""
    command = Command(node="n", argv=("x",), timeout_s=9, says="caf\xe9 \x1b[2J\n", typical_s=5.0, repeat=1)
    paper, _ = shown(in_place=False, command=command)
    assert paper.wrote == ["caf? ?[2J? (run 2), about 0:05"]


def test_ctrl_c_is_answered_at_once() -> None:
    """Who pressed Ctrl-C is told, in a log too, that the command has its grace and how to end that."""
    paper, progress = shown(in_place=False)
    paper.now += 20
    progress.said(LONG, {ENDING: True})
    progress.said(LONG, {})
    assert paper.wrote[1:] == [
        "DCGM targeted_power (level 3)  0:20 of about 2:10  is told to end; Ctrl-C again kills it"
    ]


def test_the_end_is_shown_also_where_there_is_no_result() -> None:
    """An interrupt inside the transport passes through, and the line of the command is closed."""

    class Broken:
        def run(self, command: Command) -> CommandResult:
            raise KeyboardInterrupt

        def stop(self) -> None:
            pass

    paper = Paper(in_place=True)
    with pytest.raises(KeyboardInterrupt):
        Shown(Broken(), Progress(paper, clock=lambda: paper.now)).run(LONG)
    assert paper.wrote[-1] == "\rDCGM targeted_power (level 3) ended after 0:00\n"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (63.9, "1:03"), (3599, "59:59"), (3603, "1:00:03")])
def test_times_are_written_as_on_a_clock(seconds: float, text: str) -> None:
    """Minutes and seconds, with hours where there are any."""
    assert clock_time(seconds) == text
