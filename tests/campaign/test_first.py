"""`campaign.first`: what nodes say at the first contact is bounded, and what they say about their lease is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_gpuready.agent.lease import MUTE
from pytest_gpuready.campaign.first import LONGEST_BYTES, ask_all, not_leased
from pytest_gpuready.campaign.store import Taken
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import PROTOCOL
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.transport import Ended

LONG = f'{{"gpuready_agent":{PROTOCOL},"probe":"node","host":"h","boot_id":"b","data":"{"x" * LONGEST_BYTES}"}}'


def result(command: Command, *, stdout: str = "", stderr: str = "") -> CommandResult:
    return CommandResult(command=command, exit_code=0, stdout=stdout, stderr=stderr, started="", duration_s=0.1)


class Talkative:
    """A transport to nodes whose documents are longer than any."""

    def run(self, command: Command) -> CommandResult:
        return result(command, stdout=LONG)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        for command in commands:
            yield command, self.run(command)

    def stop(self) -> None:
        """Nothing runs here."""


def test_a_document_that_is_too_long_is_cut() -> None:
    """All nodes' documents are held at once: of one beyond all bounds the beginning is kept, and it does not count."""
    first = ask_all([NodeProbe({}), NvmlProbe()], ["node01", "node02"], Talkative(), None)
    assert set(first.unreached) == {"node01", "node02"}
    assert first.unreached["node01"].startswith("node01: expected at most 4 MiB of node, found")
    assert all(len(kept.stdout) < 70_000 for taken in first.taken.values() for kept in (*taken.results, *taken.earlier))


def test_who_cannot_write_its_lease_is_named() -> None:
    """One line names the nodes that keep nobody else off; a node that could is not among them."""
    said = {"node01": MUTE, "node02": "", "node03": f"warning\n{MUTE}\n"}
    taken = {
        name: Taken(results=[result(Command(node=name, argv=("x",), timeout_s=1.0), stderr=text)])
        for name, text in said.items()
    }
    (line,) = not_leased(taken)
    assert line.startswith("node[01,03]: the lease cannot be written")
    assert not_leased({"node02": taken["node02"]}) == []
