"""A command line for people: a plan in a few words, long words cut, everything else as it is typed."""

from __future__ import annotations

import msgspec
import pytest

from pytest_gpuready.model import Command, Gpu, Node, Part, Slot
from pytest_gpuready.model.shown import shown
from pytest_gpuready.probes.stress import stress_probes


def node() -> Node:
    slots = tuple(
        Slot(part=Part(node="node01", index=index), gpu=Gpu(bdf=f"0000:{index:02x}:00.0")) for index in range(2)
    )
    return Node(name="node01", slots=slots, fp8=True)


def test_each_piece_of_the_engine_says_its_phases() -> None:
    """Of every piece the line says what the GPUs are loaded with and which GPUs these are, on one line."""
    own = node()
    lines = [shown(probe.command(own, own.part).line) for probe in stress_probes()]
    for line in lines:
        assert line.startswith("python -m pytest_gpuready.agent stress {")
        assert line.endswith("} 0000:00:00.0 0000:01:00.0")
        assert len(line) < 160
    said = [line.partition("{")[2].partition("}")[0] for line in lines]
    assert said == [
        "alloc, cache l1 l2, hbm read write copy triad, pattern address random, latency",
        "gemm fp64 tf32 bf16 fp16 fp8_e4m3 fp8_e5m2 int8",
        "pattern walking inversions address random modulo20 fade",
        "7 pulse",
        "burn 240 s",
    ]


def test_the_whole_line_stays() -> None:
    """What keys a recording is the whole line: it holds the plan as it was asked for."""
    own = node()
    command = stress_probes()[0].command(own, own.part)
    assert msgspec.json.decode(command.line.partition("stress ")[2].rpartition("}")[0] + "}")["share"] == 0.95
    assert command.shown == shown(command.line)


@pytest.mark.parametrize(
    "line",
    [
        "python -m pytest_gpuready.agent copies 0000:19:00.0",
        "dcgmi diag -r pcie -p pcie.test_nvlink_status=true -j",
        "",
    ],
)
def test_a_short_line_is_shown_whole(line: str) -> None:
    """Nothing is taken from a command that a person can read."""
    assert shown(line) == line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('a {"x": [1, 2]} b', "a {13 characters of JSON} b"),
        ('a {"phases": []} b', "a {14 characters of JSON} b"),
        ('a {"phases": [7]} b', "a {15 characters of JSON} b"),
        ("a {not json b", "a {not json b"),
        ('a {"phases":[{"kind":"gemm"},{"kind":"gemm"}]}', "a {2 gemm}"),
        ('a {"phases":[{"kind":' + "[" * 5000, None),
        ("a " + "w" * 500, "a " + "w" * 40 + ".. (500 characters)"),
    ],
)
def test_what_is_no_plan_harms_nobody(line: str, said: str | None) -> None:
    """JSON that is no plan is counted, text that is no JSON stays, and no word is longer than a page can bear."""
    found = shown(line)
    assert found == said if said is not None else len(found) < 120


def test_a_plan_of_many_kinds_is_bounded() -> None:
    """However many kinds of phases somebody writes into a plan, a line stays a line."""
    phases = ",".join(f'{{"kind":"kind{n}{"x" * 90}"}}' for n in range(200))
    said = shown(f'agent stress {{"phases":[{phases}]}}')
    assert len(said) < 400
    assert said.endswith("188 more kinds}")


def test_a_command_says_it_too() -> None:
    """A command without a plan shows the words that it has."""
    assert Command(node="n", argv=("echo", "1"), timeout_s=1.0).shown == "echo 1"
