"""`campaign.first`: what nodes say at the first contact is bounded, and what they say about their lease is told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

from pytest_gpuready.agent.lease import MUTE
from pytest_gpuready.campaign.first import LONGEST_BYTES, ask_all, not_leased, read_first
from pytest_gpuready.campaign.store import Taken
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import PROTOCOL
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.transport import Ended
from tests.nodes import demo_results

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


def test_other_processes_of_a_continued_run_hear_what_is_said_today() -> None:
    """Where the store holds what a node said before, too, its inventory is that of the last time."""
    node, nvml = (result for result in demo_results()[:2])
    before = dataclasses.replace(node, stdout=node.stdout.replace('"boot_id":"', '"boot_id":"0'))
    taken = {"node@node01": Taken(results=[before, node]), "nvml@node01": Taken(results=[nvml])}
    first = read_first([NodeProbe({}), NvmlProbe()], ["node01"], taken)
    assert first.docs["node01"].boot_id == json.loads(node.stdout)["boot_id"]
    assert before.stdout != node.stdout
