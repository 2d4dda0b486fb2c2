"""A plan: what the inventory shows already counts, everything else is taken to hold; and it is short for many nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.plan import LeftOut, Plan, Step, plan
from pytest_gpuready.campaign.plan_lines import NOTHING, plan_lines
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.model import (
    Clause,
    Command,
    CommandResult,
    Gpu,
    Inventory,
    Limit,
    Measurement,
    Node,
    Part,
    Problem,
    Profile,
    Slot,
    Source,
)
from pytest_gpuready.probes import Probe

RULE = Limit(source=Source(kind="rule", cite="made for this test"), at_most=0)


def node(number: int) -> Node:
    name = f"node{number}"
    slots = tuple(Slot(part=Part(node=name, index=i), gpu=Gpu(bdf=f"0000:{i}9:00.0")) for i in range(2))
    return Node(name=name, slots=slots)


class Never:
    """A transport that no plan may use."""

    def run(self, command: Command) -> CommandResult:
        raise AssertionError(f"a plan ran {command.line}")

    def stop(self) -> None:
        """Nothing runs here."""


class One:
    """A probe of one metric on each GPU, or on the node; what it measures stands on stdout, a value a run."""

    def __init__(self, name: str, *, follows_level: int = 0, per_node: bool = False) -> None:
        self.name: str = name
        self.metrics: tuple[str, ...] = (name,)
        self.follows_level = follows_level
        self._per_node = per_node

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return (node.part,) if self._per_node else tuple(slot.part for slot in node.slots)

    def command(self, node: Node, scope: Part) -> Command:
        argv = ("python", "-m", "pytest_gpuready.agent", self.name, f"0000:{max(scope.index, 0)}9:00.0")
        return Command(node=node.name, argv=argv, timeout_s=60.0, says=self.name, typical_s=5.0)

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        first, *again = (int(result.stdout) for result in results)
        return (Measurement(metric=self.name, part=scope.name, value=first, repeats=tuple(again)),)


PROBES: tuple[Probe, ...] = (
    One("health", per_node=True),
    One("links"),
    One("copies"),
    One("after-2", follows_level=2, per_node=True),
    One("soak"),
)


def clause(metric: str, level: int, per: str = "gpu", **more: object) -> Clause:
    fields: dict[str, object] = {"gate": True, "limit": RULE, **more}
    return Clause(id=metric.upper(), suite="s", level=level, metric=metric, per=per, **fields)  # type: ignore[arg-type]


CLAUSES = (
    clause("health", 1, per="node"),
    clause("links", 1, retest=True, not_applicable=""),
    clause("after-2", 2, per="node"),
    clause("copies", 2),
    clause("soak", 3, after=("links",)),
    clause("nothing", 3, not_applicable="nobody has it"),
)


def made(
    tmp_path: Path, stored: dict[str, str], *, keep_going: bool = False, unreached: dict[str, str] | None = None
) -> Plan:
    """The plan for three nodes; `stored`: scope -> what the inventory's probe printed of it."""
    profile = Profile(
        name="p", version="1", title="P", pci_ids=(), clauses=CLAUSES, nvlink=False, nvswitch=False, sha256="0" * 64
    )
    inventory = Inventory(nodes=(node(1), node(2), node(3)))
    store = Store(tmp_path, Never())
    taken = {}
    for known in inventory.nodes:
        part = known.part
        command = PROBES[0].command(known, part)
        said = CommandResult(
            command=command, exit_code=0, stdout=stored.get(part.node, "0"), stderr="", started="", duration_s=0.1
        )
        taken[key_of("health", part.name)] = Taken(results=[said])
    for why_node, why in (unreached or {}).items():
        taken[key_of("health", why_node)] = Taken(problem=why)
    for key, one in taken.items():
        store.put(key, one)
    findings = Findings(store=store, probes=PROBES, profile=profile, inventory=inventory)
    return plan(
        asked=[(c, inventory.parts(c.per)) for c in CLAUSES],
        firsts=PROBES[:1],
        taken=taken,
        unreached=unreached or {},
        store=store,
        findings=findings,
        level=3,
        keep_going=keep_going,
    )


def told(planned: Plan) -> list[tuple[int, str, str]]:
    """Level, probe and nodes of each fan-out."""
    return [(step.level, step.probe, " ".join(c.node[-1] for c in step.commands)) for step in planned.steps]


def test_what_the_inventory_shows_counts_already(tmp_path: Path) -> None:
    """A node whose gate fails by the inventory has no part in the levels above, one that cannot be reached in nothing;
    what follows a load comes behind it although its clause stands before; nothing is run."""
    planned = made(tmp_path, {"node2": "7"}, unreached={"node3": "node3: no route to node3"})
    assert told(planned) == [
        (1, "health", "1 2 3"),
        *[(1, "links", "1 2")] * 2,
        *[(2, "copies", "1")] * 2,
        (2, "after-2", "1"),
        *[(3, "soak", "1")] * 2,
    ]
    lines = "\n".join(plan_lines(planned, by="ssh"))
    assert "not on node2: HEALTH health fails by the inventory" in lines
    assert "not asked   node3: no route to the node" in lines
    assert "left out    NOTHING: nobody has it" in lines
    assert "again       LINKS: measured once more" in lines
    assert "8 fan-outs, 12 commands; usually 0:40, at most 8:16" in lines


def test_gates_that_are_passed_over_keep_nobody_out(tmp_path: Path) -> None:
    """With --gpuready-keep-going every node has its part in every level, and the plan says so."""
    planned = made(tmp_path, {"node2": "7"}, keep_going=True)
    assert [nodes for _, _, nodes in told(planned)] == ["1 2 3"] * 8
    assert any("passed over" in line for line in plan_lines(planned, by="ssh"))


def test_a_plan_for_a_thousand_nodes_fits_on_a_page(tmp_path: Path) -> None:
    """However many nodes, commands, reasons and unreached nodes: 60 lines of 160 signs, and the last one says that
    nothing is accepted."""
    names = tuple(f"node{number:04d}" for number in range(1, 1001))
    addresses = ",".join(f"0000:{bus}9:00.0" for bus in range(8))
    steps = [
        Step(
            probe=f"probe{number}",
            level=1 + number // 8,
            commands=tuple(
                Command(
                    node=name,
                    argv=("python", "-m", "pytest_gpuready.agent", "around", addresses, "--", "dcgmi", "-p", "x" * 300),
                    timeout_s=600,
                    typical_s=60.0,
                )
                for name in names[number:]
            ),
        )
        for number in range(30)
        for _ in range(2)
    ]
    few = made(tmp_path, {})
    reasons = [LeftOut(reason=f"reason {n}\x1b[2J", clauses=("A-1",) * 40, nodes=names[n::7]) for n in range(90)]
    planned = dataclasses.replace(
        few,
        steps=tuple(steps),
        level=4,
        nodes=names,
        unreached={name: f"{name}: {name} says {number}" for number, name in enumerate(names[::2])},
        left_out=tuple(reasons),
        blocked={level: tuple(reasons) for level in (2, 3, 4)},
        missing=names,
        unasked=names,
        gates={2: 40, 3: 60, 4: 70},
    )
    lines = plan_lines(planned, by="ssh", at_once=64, others=3)
    assert len(lines) <= 60
    assert max(len(line) for line in lines) <= 160
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert lines[0] == "nodes       1000: node[0001-1000]"
    assert "     1   1000     2     10:00     1:00  agent around 0000:09:00.0,..8 -- dcgmi -p xxx" in "\n".join(lines)
    assert "64 at a time up to 16 times that" in "\n".join(lines)
    assert lines[-1] == f"dry run     {NOTHING}"
