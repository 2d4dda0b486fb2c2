"""`campaign.leased`: all nodes of a run stay leased as long as it goes on, and none a moment longer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from pytest_gpuready.campaign.leased import Leased
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import Ended


class Noting:
    """A transport that notes node and last word of each command; a long one ends when it may."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.may_end = threading.Event()
        self.renewed = threading.Event()

    def run(self, command: Command) -> CommandResult:
        self.ran.append((command.node, command.argv[-1]))
        if command.argv[-1] == "renew":
            self.renewed.set()
        if command.argv[-1] == "long":
            assert self.may_end.wait(30)
        return CommandResult(command=command, exit_code=0, stdout="x", stderr="", started="", duration_s=0.1)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        for command in commands:
            yield command, self.run(command)

    def stop(self) -> None:
        """Nothing runs here."""


def agent(node: str, word: str) -> Command:
    return Command(node=node, argv=(PYTHON, "-m", "pytest_gpuready.agent", word), timeout_s=30.0)


def taken(leased: Leased, *commands: Command) -> None:
    assert len(list(leased.run_many(commands))) == len(commands)


def test_a_node_that_is_not_asked_is_renewed_while_others_are() -> None:
    """Who has no part in a long fan-out keeps its lease; who works in it renews its own."""
    inner = Noting()
    leased = Leased(inner, 0.3)
    taken(leased, agent("idle", "node"), agent("busy", "node"))
    working = threading.Thread(target=taken, args=(leased, agent("busy", "long")))
    inner.renewed.clear()
    working.start()
    assert inner.renewed.wait(30)
    inner.may_end.set()
    working.join(30)
    leased.rest()
    assert ("idle", "renew") in inner.ran


def test_nodes_are_renewed_between_fan_outs_until_they_are_let_go() -> None:
    """A run that judges for long keeps its nodes; when it has let them go nothing follows."""
    inner = Noting()
    leased = Leased(inner, 0.3)
    taken(leased, agent("node01", "node"))
    assert inner.renewed.wait(30)
    leased.release()
    assert inner.ran[-1] == ("node01", "release")
    assert not any(thread.name == "gpuready-lease" for thread in threading.enumerate())


def test_a_process_that_joined_renews_only_while_it_asks() -> None:
    """Between its fan-outs another process may be loading these nodes: it is that one's to renew them."""
    leased = Leased(Noting(), 0.3, joined=True)
    leased.adopt(["node01"])
    leased._heard["node01"] -= 1.0
    assert leased._due(0.1) == []
    with leased._asking([agent("node02", "long")]):
        assert leased._due(0.1) == ["node01"]
    leased.rest()
