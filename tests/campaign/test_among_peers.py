"""Peers among all that is measured: all positions before one is judged, who is far once more, and looked at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store
from pytest_gpuready.campaign.taking import Taking
from pytest_gpuready.errors import TransportError
from pytest_gpuready.judge.among import look
from pytest_gpuready.model import (
    Clause,
    Command,
    CommandResult,
    Gpu,
    Inventory,
    Limit,
    Measurement,
    Node,
    Outcome,
    Part,
    PeerLimit,
    Problem,
    Profile,
    Slot,
    Source,
)

SOURCE = Source(kind="rule", cite="made for this test")
PEERS = PeerLimit(source=SOURCE, among=("node", "all"), worse="lower", percent=15.0, unit="GB/s")
SPEED = Clause(
    id="SPEED-1",
    suite="s",
    level=2,
    gate=True,
    metric="speed",
    per="gpu",
    unit="GB/s",
    retest=True,
    limit=Limit(source=SOURCE, at_least=30.0, unit="GB/s"),
    peers=PEERS,
)
LINK = Clause(id="LINK-1", suite="s", level=2, metric="link", per="gpu", limit=Limit(source=SOURCE, at_least=1.0))
SLOW = "node2/gpu1"


class Echo:
    """A transport that answers at once with how often it was asked, and notes the commands of each fan-out."""

    def __init__(self, dead: str = "") -> None:
        self.fan_outs: list[list[str]] = []
        self._dead = dead

    def run(self, command: Command) -> CommandResult:
        return next(iter(self.run_many([command])))[1]  # type: ignore[return-value]

    def run_many(self, commands: Iterable[Command]) -> Iterable[tuple[Command, CommandResult | TransportError]]:
        commands = list(commands)
        if commands:
            self.fan_outs.append([command.argv[0] for command in commands])
        for command in commands:
            if command.node == self._dead:
                yield command, TransportError(f"{command.node}: no route")
                continue
            yield (
                command,
                CommandResult(
                    command=command, exit_code=0, stdout="x", stderr="", started="2026-12-01T00:00:00Z", duration_s=0.1
                ),
            )

    def stop(self) -> None:
        """Nothing runs here."""


class Copies:
    """A probe of speed and link of each GPU: 55 GB/s and a little, and what `slow` says run by run."""

    name = "copies"
    metrics: tuple[str, ...] = ("speed", "link")

    def __init__(self, slow: Mapping[str, Sequence[float]]) -> None:
        self._slow = slow
        self.reads = 0

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return tuple(slot.part for slot in node.slots)

    def command(self, node: Node, scope: Part) -> Command:
        return Command(node=node.name, argv=(scope.name,), timeout_s=5.0)

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        self.reads += 1
        usual = 55.0 + (hash_of(scope.name) % 7) / 10
        values = [self._slow.get(scope.name, (usual, usual))[run] for run in range(len(results))]
        first, *again = values
        return (
            Measurement(metric="speed", part=scope.name, value=first, unit="GB/s", repeats=tuple(again)),
            Measurement(metric="link", part=scope.name, value=5),
        )


def hash_of(name: str) -> int:
    return sum(name.encode())


def site(
    tmp_path: Path,
    *,
    nodes: int = 4,
    gpus: int = 4,
    slow: Mapping[str, Sequence[float]] | None = None,
    transport: Echo | None = None,
) -> tuple[Taking, Echo, Copies]:
    transport, probe = transport or Echo(), Copies(slow or {})
    made = tuple(
        Node(
            name=f"node{n}",
            slots=tuple(
                Slot(part=Part(node=f"node{n}", index=i), gpu=Gpu(bdf=f"0000:{i:02}:00.0")) for i in range(gpus)
            ),
        )
        for n in range(nodes)
    )
    profile = Profile(
        name="p",
        version="1",
        title="P",
        pci_ids=(),
        clauses=(LINK, SPEED),
        nvlink=False,
        nvswitch=False,
        sha256="",
    )
    store = Store(tmp_path, transport)
    findings = Findings(store=store, probes=[probe], profile=profile, inventory=Inventory(nodes=made))
    return Taking(store=store, findings=findings), transport, probe


def outcomes(taking: Taking, clause: Clause = SPEED) -> dict[str, Outcome]:
    return {part.name: taking.findings.verdict(clause, part).outcome for part in taking.findings.inventory.parts("gpu")}


@pytest.mark.parametrize("clause", [LINK, SPEED])
@pytest.mark.parametrize("first", ["node0/gpu0", "node3/gpu3"])
def test_all_are_measured_before_one_is_judged(tmp_path: Path, clause: Clause, first: str) -> None:
    """Whichever clause of the measurement asks first, on whichever part: all positions, then who is far once more."""
    taking, transport, _ = site(tmp_path, slow={SLOW: (44.0, 44.2)})
    part = next(part for part in taking.findings.inventory.parts("gpu") if part.name == first)
    taking.take(clause, part)
    assert transport.fan_outs == [*([f"node{n}/gpu{i}" for n in range(4)] for i in range(4)), [SLOW]]
    verdict = taking.findings.verdict(SPEED, Part(node="node2", index=1))
    assert verdict.outcome is Outcome.FAIL
    assert "44 GB/s, 21 % below" in verdict.reason
    assert "again 44.20 GB/s, 20 % below" in verdict.reason
    assert [name for name, outcome in outcomes(taking).items() if outcome is not Outcome.PASS] == [SLOW]
    assert set(outcomes(taking, LINK).values()) == {Outcome.PASS}


def test_the_order_of_tests_changes_nothing(tmp_path: Path) -> None:
    """Any order in which two clauses ask for two parts ends in the same verdicts, and in another process too."""
    slow = {SLOW: (44.0, 44.2), "node1/gpu0": (44.0, 55.2), "node3/gpu3": (20.0, 20.0)}
    asks = [(clause, Part(node=n, index=i)) for clause in (LINK, SPEED) for n, i in (("node0", 3), ("node3", 0))]
    seen = []
    for number, order in enumerate(itertools.permutations(asks)):
        if number % 8:
            continue
        taking, _, _ = site(tmp_path / str(number), slow=slow)
        for clause, part in order:
            taking.take(clause, part)
        seen.append(outcomes(taking))
        joined, again, _ = site(tmp_path / str(number), slow=slow)
        joined.take(SPEED, asks[0][1])
        assert (outcomes(joined), again.fan_outs) == (seen[-1], [])
    assert all(one == seen[0] for one in seen)
    assert {name: outcome for name, outcome in seen[0].items() if outcome is not Outcome.PASS} == {
        SLOW: Outcome.FAIL,
        "node1/gpu0": Outcome.UNSTABLE,
        "node3/gpu3": Outcome.FAIL,
    }


def test_a_run_that_saw_who_was_far_is_not_continued(tmp_path: Path) -> None:
    """Far in one run of two is a FAIL that was seen, as one below the own limit is."""
    taking, _, probe = site(tmp_path, slow={SLOW: (44.0, 55.2)})
    taking.take(SPEED, Part(node="node0", index=0))
    parts = taking.findings.inventory.parts("gpu")
    assert [part.name for part in parts if taking.findings.failed(probe, part)] == [SLOW]


def test_a_node_without_an_answer_costs_only_itself(tmp_path: Path) -> None:
    """What was not measured is no peer: the others are judged among themselves."""
    taking, _, _ = site(tmp_path, slow={SLOW: (44.0, 44.2)}, transport=Echo(dead="node3"))
    taking.take(SPEED, Part(node="node3", index=0))
    found = outcomes(taking)
    assert {found[f"node3/gpu{i}"] for i in range(4)} == {Outcome.NOT_MEASURED}
    assert [name for name, outcome in found.items() if outcome is Outcome.FAIL] == [SLOW]
    assert "of 3 peers" in taking.findings.verdict(SPEED, Part(node="node2", index=1)).reason


def test_two_hundred_nodes_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view is built before and after the retest, whoever asks; each scope is read once a result."""
    looks = []

    def counted(clause: Clause, found: Mapping[Part, Measurement], inventory: Inventory) -> object:
        looks.append(len(found))
        return look(clause, found, inventory)

    monkeypatch.setattr("pytest_gpuready.campaign.among_peers.look", counted)
    taking, _, probe = site(tmp_path, nodes=200, gpus=2, slow={SLOW: (44.0, 44.2)})
    for part in taking.findings.inventory.parts("gpu"):
        taking.take(SPEED, part)
        taking.findings.verdict(SPEED, part)
    found = outcomes(taking)
    assert [name for name, outcome in found.items() if outcome is not Outcome.PASS] == [SLOW]
    assert looks == [400, 400]
    assert probe.reads <= 400 + 3


def test_what_gave_no_answer_is_judged_once(tmp_path: Path) -> None:
    """However often a cell without an answer is asked for, its verdict is the same object, until there is another
    reason; and its node has failed nothing."""
    taking, _, probe = site(tmp_path, transport=Echo(dead="node3"))
    findings, part = taking.findings, Part(node="node3", index=0)
    before = findings.verdict(LINK, part)
    assert before.reason == "node3 GPU 0: link was not measured"
    taking.take(LINK, part)
    verdict = findings.verdict(LINK, part)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_MEASURED, "node3: no route")
    assert findings.verdict(LINK, part) is verdict
    findings.reread()
    assert findings.verdict(LINK, part) is verdict
    assert not findings.failed(probe, part)
