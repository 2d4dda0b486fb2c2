"""What is measured when: what follows a load is taken last of its level, whoever asks first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store
from pytest_gpuready.campaign.taking import Taking
from pytest_gpuready.errors import TransportError
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
    Problem,
    Profile,
    Slot,
    Source,
)

NODE = Node(
    name="node01",
    slots=tuple(Slot(part=Part(node="node01", index=i), gpu=Gpu(bdf=f"0000:{i}9:00.0")) for i in range(2)),
)
RULE = Limit(source=Source(kind="rule", cite="made for this test"), at_most=0)


class Counting:
    """A transport that notes the last word of each command it runs, and answers at once."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, command: Command) -> CommandResult:
        self.ran.append(command.argv[-1])
        return CommandResult(
            command=command, exit_code=0, stdout="", stderr="", started="2026-12-01T00:00:00Z", duration_s=0.1
        )

    def stop(self) -> None:
        """Nothing runs here."""


class One:
    """A probe of one metric on each GPU; what it measures is `values`, first run and retest."""

    def __init__(self, name: str, *values: int, follows_level: int = 0) -> None:
        self.name, self.metrics, self.follows_level = name, (name,), follows_level
        self._values = values or (0,)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return tuple(slot.part for slot in node.slots) if not self.follows_level else (node.part,)

    def command(self, node: Node, scope: Part) -> Command:
        return Command(node=node.name, argv=(f"{self.name}@{scope.name}",), timeout_s=5.0)

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        first, *again = self._values[: len(results)]
        return (Measurement(metric=self.name, part=scope.name, value=first, repeats=tuple(again)),)


def clause(metric: str, level: int, per: str = "gpu", **more: object) -> Clause:
    fields: dict[str, object] = {"gate": True, "limit": RULE, **more}
    return Clause(id=metric.upper(), suite="s", level=level, metric=metric, per=per, **fields)  # type: ignore[arg-type]


PROBES = {
    "health": One("health"),
    "copies": One("copies"),
    "soak": One("soak"),
    "after-2": One("after-2", follows_level=2),
    "after-3": One("after-3", follows_level=3),
}
CLAUSES = (
    clause("after-3", 3, per="node"),
    clause("after-2", 2, per="node"),
    clause("soak", 3),
    clause("copies", 2),
    clause("health", 1),
)


def run(tmp_path: Path, *clauses: Clause, transport: Counting | None = None, **probes: One) -> tuple[Taking, Counting]:
    transport = transport or Counting()
    profile = Profile(
        name="p",
        version="1",
        title="P",
        pci_ids=(),
        clauses=clauses or CLAUSES,
        nvlink=False,
        nvswitch=False,
        sha256="",
    )
    named = {**PROBES, **{one.name: one for one in probes.values()}}
    store = Store(tmp_path, transport)
    findings = Findings(
        store=store,
        probes=list(named.values()),
        profile=profile,
        inventory=Inventory(nodes=(NODE,)),
    )
    return Taking(store=store, findings=findings, gives_up=True), transport


def take(taking: Taking, metric: str) -> Outcome:
    """The outcome of the node's clause of this metric, measured now."""
    (asked,) = taking.findings.profile.of_metric(metric)
    taking.take(asked, NODE.part)
    return taking.findings.verdict(asked, NODE.part).outcome


def of(name: str) -> list[str]:
    return [f"{name}@node01/gpu{i}" for i in range(2)]


def test_asked_first_it_is_taken_last(tmp_path: Path) -> None:
    """Everything of its level and below comes before it, and nothing of a higher level."""
    taking, transport = run(tmp_path)
    take(taking, "after-2")
    assert transport.ran == [*of("health"), *of("copies"), "after-2@node01"]


def test_each_level_is_looked_at_before_the_next_is_loaded(tmp_path: Path) -> None:
    """The look after level 3 comes last of all, the one after level 2 before the load of level 3."""
    taking, transport = run(tmp_path)
    take(taking, "after-3")
    assert transport.ran == [*of("health"), *of("copies"), "after-2@node01", *of("soak"), "after-3@node01"]


def test_the_gate_of_the_next_level_includes_it(tmp_path: Path) -> None:
    """What a load broke keeps the next level from running, and that level is not loaded to find out."""
    taking, transport = run(tmp_path, broken=One("after-2", 1, follows_level=2))
    blocked = taking.blocked_by(3, NODE)
    assert blocked is not None
    assert blocked[0].id == "AFTER-2"
    assert transport.ran == [*of("health"), *of("copies"), "after-2@node01"]
    assert taking.blocked_by(2, NODE) is None


def test_a_failed_gate_is_not_loaded_beyond(tmp_path: Path) -> None:
    """The gates of level 4 are asked level by level: where level 1 fails, no load of level 2 or 3 is taken."""
    taking, transport = run(tmp_path, broken=One("health", 1))
    blocked = taking.blocked_by(4, NODE)
    assert blocked is not None
    assert blocked[0].id == "HEALTH"
    assert set(transport.ran) <= set(of("health"))


def test_retests_come_before_it(tmp_path: Path) -> None:
    """A load that is repeated because it failed is over before anybody looks at the health."""
    clauses = tuple(clause("copies", 2, retest=True) if c.metric == "copies" else c for c in CLAUSES)
    taking, transport = run(tmp_path, *clauses, slow=One("copies", 1, 1))
    take(taking, "after-2")
    twice = [name for name in of("copies") for _ in range(2)]
    assert transport.ran == [*of("health"), *twice, "after-2@node01"]


def test_an_excluded_load_is_not_taken_for_it(tmp_path: Path) -> None:
    """What the site file takes out is not measured, not even for the look after it."""
    clauses = tuple(clause("copies", 2, excluded="agreed") if c.metric == "copies" else c for c in CLAUSES)
    taking, transport = run(tmp_path, *clauses)
    take(taking, "after-2")
    assert transport.ran == [*of("health"), "after-2@node01"]


def test_a_load_that_waits_for_what_does_not_hold_is_not_taken(tmp_path: Path) -> None:
    """A clause that has to wait for another one is not measured for the look after the load either."""
    others = {"copies": clause("copies", 2, after=("health",)), "health": clause("health", 1, gate=False)}
    clauses = tuple(others.get(c.metric, c) for c in CLAUSES)
    taking, transport = run(tmp_path, *clauses, broken=One("health", 1))
    take(taking, "after-2")
    assert transport.ran == [*of("health"), "after-2@node01"]


def test_a_gate_that_waits_is_not_measured_for_the_next_level(tmp_path: Path) -> None:
    """Whether level 3 is blocked is found out without a load that has to wait for what does not hold."""
    clauses = (
        clause("health", 1, gate=False),
        clause("copies", 2, after=("health",)),
        clause("after-2", 2, per="node"),
    )
    taking, transport = run(tmp_path, *clauses, broken=One("health", 1))
    assert taking.blocked_by(3, NODE) is None
    assert not set(of("copies")) & set(transport.ran)


def test_another_process_reads_what_was_taken(tmp_path: Path) -> None:
    """A second process on the same directory takes nothing again."""
    taking, transport = run(tmp_path)
    take(taking, "after-2")
    before = list(transport.ran)
    other, _ = run(tmp_path, transport=transport)
    assert take(other, "after-2") is Outcome.PASS
    assert transport.ran == before


class Losing(Counting):
    """A transport that brings no answer to commands of this name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def run(self, command: Command) -> CommandResult:
        result = super().run(command)
        if command.argv[-1].startswith(self._name):
            raise TransportError("node01: Connection refused")
        return result


def test_what_is_lost_in_one_process_is_lost_in_all(tmp_path: Path) -> None:
    """A node that two measurements in a row lost is not asked by another process of the run either, which says why."""
    taking, transport = run(tmp_path, transport=Losing("copies"))
    for part in (NODE.slots[0].part, NODE.slots[1].part):
        taking.take(CLAUSES[3], part)
    other, _ = run(tmp_path, transport=transport)
    other.take(CLAUSES[2], NODE.slots[0].part)
    assert transport.ran == [*of("health"), *of("copies")]
    assert other.findings.unanswered("soak", NODE.slots[0].part) == "node01: Connection refused"


def test_a_process_that_is_ahead_takes_what_comes_before(tmp_path: Path) -> None:
    """Whoever asks first, measurements are taken in the order of the tests; none twice, and none that is not due."""
    taking, transport = run(tmp_path)
    parts = [slot.part for slot in NODE.slots]
    taking.follow([(CLAUSES[4], parts), (CLAUSES[3], parts), (CLAUSES[2], parts)])
    taking.take(CLAUSES[2], parts[0])
    assert transport.ran == [*of("health"), *of("copies"), "after-2@node01", of("soak")[0]]
    taking.take(CLAUSES[3], parts[1])
    assert len(transport.ran) == 6
    blocked, transport = run(tmp_path / "blocked", broken=One("health", 1))
    blocked.follow([(CLAUSES[4], parts), (CLAUSES[3], parts), (CLAUSES[1], [NODE.part])])
    blocked.take(CLAUSES[1], NODE.part)
    assert set(of("copies")) & set(transport.ran) == set()


class Noting(One):
    """Notes how often its results are read."""

    reads = 0

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        self.reads += 1
        return super().read(inventory, node, scope, results)


def test_a_store_that_is_as_it_was_is_not_read_through_again(tmp_path: Path) -> None:
    """Looked at again, a file that says the same gives the same finding; one that was changed or removed does not."""
    health = Noting("health")
    taking, _ = run(tmp_path, broken=health)
    findings, part = taking.findings, NODE.slots[0].part
    taking.take(findings.profile.of_metric("health")[0], part)
    first, reads = findings.found("health", part), health.reads
    findings.reread()
    assert findings.found("health", part) is first
    assert health.reads == reads
    path = tmp_path / "store/health@node01_gpu0.json"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n")
    findings.reread()
    assert findings.found("health", part) == first
    assert health.reads == reads + 1
    path.unlink()
    findings.reread()
    gone = findings.found("health", part)
    assert isinstance(gone, Problem)
    assert "was not measured" in gone.says
    path.write_bytes(whole)
    findings.reread()
    assert findings.found("health", part) == first
