"""Latency of host memory and of the GPU's own as it is read and judged: the shorter the better, and never too short."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.judge import judge
from pytest_gpuready.judge.among import look
from pytest_gpuready.model import CommandResult, Gpu, Inventory, Measurement, Node, Outcome, Part, Problem, Slot
from pytest_gpuready.model.agent_doc import PROTOCOL
from pytest_gpuready.model.stress_doc import LatencyResult, Plan, Ready, StressDoc, StressGpu, StressPhase, StressWindow
from pytest_gpuready.parse.agent import stress_doc
from pytest_gpuready.probes.stress import stress_probes
from pytest_gpuready.probes.stress_pieces import PIECES
from pytest_gpuready.profiles import load

PROBE = next(probe for probe in stress_probes() if probe.name.endswith("-memory"))
HOST, OWN = "stress.latency.host", "stress.latency.device"
GOOD = LatencyResult(
    seconds=0.147,
    host_ns=[1191.4, 1180.4, 1181.6, 1189.3, 1188.3],
    device_ns=[353.8, 354.5, 353.7, 353.1, 354.0],
    cv=0.0041,
    steps=18460,
    host_bytes=2**21,
    device_bytes=2**28,
    cpus="0-15",
)


def node(gpus: int = 1) -> Node:
    parts = [Part(node="n1", index=i) for i in range(gpus)]
    slots = tuple(Slot(part=part, gpu=Gpu(bdf=f"0000:{part.index + 1:02x}:00.0", pci_id="10de:2335")) for part in parts)
    return Node(name="n1", slots=slots, fp8=True)


def answer(found: LatencyResult | str, of: Node) -> CommandResult:
    """The answer to the piece "memory" in which nothing but the latency came about."""
    plan: Plan = PIECES[0].plan(of, 0.0)
    last = len(plan.phases) - 1
    phases = [StressPhase(phase=at, kind=phase.kind, problem="left out") for at, phase in enumerate(plan.phases)]
    if isinstance(found, str):
        phases[last] = StressPhase(phase=last, kind="latency", problem=found)
    else:
        phases[last] = StressPhase(phase=last, kind="latency", latency=found)
    data = StressDoc(
        plan=plan,
        windows=[StressWindow(phase=last, begin=5.0, end=5.2)],
        seconds=6.0,
        gpus=[
            StressGpu(bdf=slot.gpu.bdf, ready=Ready(bdf=slot.gpu.bdf), phases=phases) for slot in of.slots if slot.gpu
        ],
    )
    envelope = {"gpuready_agent": PROTOCOL, "probe": "stress", "host": "n1", "boot_id": "b", "data": data}
    return CommandResult(
        command=PROBE.command(of, of.part),
        exit_code=0,
        stdout=msgspec.json.encode(envelope).decode(),
        stderr="",
        started="2026-11-30T12:00:00+00:00",
        duration_s=6.0,
    )


def read(*runs: LatencyResult | str) -> dict[str, Measurement | Problem]:
    """Metric -> what these runs say of the one GPU."""
    of = node()
    found = PROBE.read(Inventory(nodes=(of,)), of, of.part, [answer(run, of) for run in runs])
    return {one.metric: one for one in found if one.metric in (HOST, OWN)}


def but(**changed: object) -> LatencyResult:
    return msgspec.structs.replace(GOOD, **changed)


def test_the_latency_comes_last() -> None:
    """What may break the context stands behind everything that would be broken with it."""
    kinds = [phase.kind for phase in PIECES[0].plan(node(), 0.0).phases]
    assert kinds.index("latency") == len(kinds) - 1


def test_each_memory_has_its_median() -> None:
    """Nanoseconds of the middle repeat, with how it was taken; host memory also says beside which CPUs."""
    found = read(GOOD)
    host, own = found[HOST], found[OWN]
    assert isinstance(host, Measurement)
    assert isinstance(own, Measurement)
    assert (host.value, host.unit, own.value, own.unit) == (1188.3, "ns", 353.8, "ns")
    assert host.conditions.startswith("one thread over 2 MiB, median of 5, CV 0.41 %, beside CPUs 0-15")
    assert own.conditions.startswith("one thread over 256 MiB, median of 5, CV 0.14 %")
    assert "CPUs" not in own.conditions
    unbound = read(but(cpus=""))[HOST]
    assert isinstance(unbound, Measurement)
    assert "beside CPUs that are not known to be near" in unbound.conditions


def test_a_retest_stands_beside_the_first_run() -> None:
    """Two runs: the value of the first, and that of the second as its repeat."""
    found = read(GOOD, but(host_ns=[1500.0] * 5, seconds=0.2))[HOST]
    assert isinstance(found, Measurement)
    assert (found.value, found.repeats) == (1188.3, (1500.0,))


@pytest.mark.parametrize(
    ("found", "metric", "says"),
    [
        ("latency: a kernel: expected CUDA_SUCCESS, found CUDA_ERROR_UNKNOWN (999)", HOST, "CUDA_ERROR_UNKNOWN"),
        (but(cut=True), HOST, "expected latency to run to its end, found it ended after 0.1 s"),
        (but(cut=True), OWN, "expected latency to run to its end, found it ended after 0.1 s"),
        (but(host_ns=[]), HOST, "expected nanoseconds of reads of host memory, found none"),
        (but(device_ns=[]), OWN, "expected nanoseconds of reads of device memory, found none"),
        (but(host_ns=[0.0] * 5), HOST, "expected at least 100 ns for a read of host memory, found 0 ns"),
        (but(host_ns=[99.0] * 5), HOST, "found 99 ns: not a measurement"),
        (but(device_ns=[12.5] * 5), OWN, "expected at least 50 ns for a read of device memory, found 12.50 ns"),
    ],
)
def test_what_is_no_latency_is_not_measured(found: LatencyResult | str, metric: str, says: str) -> None:
    """No result, a load that was cut, no numbers, or a read that is faster than any: a line says what, no value."""
    problem = read(found)[metric]
    assert isinstance(problem, Problem)
    assert says in problem.says


def test_a_plan_without_a_latency_has_none() -> None:
    """A document of an older plan is one of another plan: not measured, never a value."""
    of = node()
    result = answer(GOOD, of)
    document = msgspec.json.decode(result.stdout)
    document["data"]["plan"]["phases"].pop()
    with pytest.raises(ParseError, match="expected the results of the plan that was asked for"):
        stress_doc(
            CommandResult(
                command=result.command,
                exit_code=0,
                stdout=msgspec.json.encode(document).decode(),
                stderr="",
                started=result.started,
                duration_s=6.0,
            )
        )


def test_steps_that_take_longer_than_the_phase_are_refused() -> None:
    """Steps times nanoseconds must fit into the seconds that the phase lasted."""
    found = read(but(host_ns=[30000.0] * 5))
    for metric in (HOST, OWN):
        said = found[metric]
        assert isinstance(said, Problem)
        assert "expected steps that fit into 0.147 s, found 2." in said.says


def judged(metric: str, values: Sequence[float | tuple[float, float]]) -> list[Outcome]:
    """The outcomes of the clause of this metric on GPUs of one node: a value, or that of a run and its retest."""
    [clause] = load("h200-sxm").of_metric(metric)
    of = node(len(values))
    found = {}
    for slot, value in zip(of.slots, values, strict=True):
        first, *again = value if isinstance(value, tuple) else (value,)
        found[slot.part] = Measurement(
            metric=metric, part=slot.part.name, value=first, repeats=tuple(again), unit=clause.unit
        )
    runs = look(clause, found, Inventory(nodes=(of,)))
    return [
        judge(clause, part.name, one, peers={}, virtual=False, seen=tuple(run.get(part) for run in runs)).outcome
        for part, one in found.items()
    ]


@pytest.mark.parametrize(("metric", "usual"), [(HOST, 1190.0), (OWN, 354.0)])
def test_who_waits_longer_than_its_peers_stands_out(metric: str, usual: float) -> None:
    """Half as long again, twice, fails alone among eight; the others are observed; nobody is blamed for less."""
    others = [usual + i for i in range(7)]
    slow = 1.5 * usual
    assert judged(metric, [(slow, slow), *others]) == [Outcome.FAIL, *[Outcome.OBSERVED] * 7]
    assert judged(metric, [1.1 * usual, *others]) == [Outcome.OBSERVED] * 8
    assert Outcome.FAIL not in judged(metric, [0.5 * usual, *others])
    assert Outcome.FAIL not in judged(metric, [(slow, usual), *others]), "once is not twice"
