"""A plan of collectives is checked before anything is started; what a rank gets of the surroundings is decided here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.agent.collectives.plan import environment, kept, ranks, read
from pytest_gpuready.agent.plan_words import PlanError
from pytest_gpuready.model.collectives_doc import Plan

GOOD: dict[str, Any] = {"ops": ["all_reduce"], "sizes_bytes": [8, 16]}
BDF = "0000:19:00.0"


def text(**changes: Any) -> str:
    return json.dumps(GOOD | changes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{"], "expected a plan as JSON"),
        ([text(sort=1)], "expected a plan as JSON"),
        ([text(), "GPU0"], "expected bus addresses such as 0000:19:00.0 behind the plan, found 'GPU0'"),
        ([text(), BDF, BDF], "different bus addresses"),
        ([" " * 70000 + text()], "at most 65536 bytes"),
        ([text(ops=[])], "expected ops, each once"),
        ([text(ops=["all_reduce", "all_reduce"])], "expected ops, each once"),
        ([text(ops=["broadcast"])], "expected ops, each once, among all_reduce, all_gather"),
        ([text(sizes_bytes=[16, 8])], "sizes_bytes that ascend"),
        ([text(sizes_bytes=[8, 8])], "sizes_bytes that ascend"),
        ([text(sizes_bytes=[4])], "expected sizes of 8 to"),
        ([text(sizes_bytes=[2**41])], "expected sizes of 8 to"),
        ([text(datatype="fp64")], "expected a datatype among float32, bfloat16, found 'fp64'"),
        ([text(iterations=1)], "expected iterations from 2 to 1000, found 1"),
        ([text(warmup=0)], "expected warmup from 1"),
        ([text(op_s=0)], "expected op_s from 0.1"),
        ([text(margin_c=-1)], "expected margin_c from 0 on"),
        ([text(sample_s=0)], "expected a sample_s"),
        ([text(environment={"LD_PRELOAD": "x"})], "expected NCCL_* in environment"),
        ([text(environment={"NCCL_DEBUG_FILE": "x"})], "none of them NCCL_DEBUG or NCCL_COMM_ID*"),
        ([text(environment={"NCCL_ALGO": "a\nb"})], "expected a printable value of NCCL_ALGO"),
        ([text(comm="node01")], "expected comm as host:port"),
        ([text(debug="INIT;rm")], "expected debug as names"),
        ([text(nranks=16), BDF], "expected the address of rank 0 (comm) for 16 ranks with 1 GPUs here, found none"),
        ([text(nranks=8, first_rank=8, comm="a:1"), BDF], "expected ranks 8 to 8 for 1 GPUs among nranks, found 8"),
        (
            [text(datatype="bfloat16", nranks=4096, comm="a:1"), BDF],
            "expected ranks whose sums are exact in bfloat16, found 4096",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(words: list[str], says: str) -> None:
    """Each names what was expected and what was found."""
    with pytest.raises(PlanError) as raised:
        read(words)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_good_plan_is_read() -> None:
    """Words become a plan and addresses; the ranks of one node are its GPUs, those of several are told."""
    plan, bdfs = read([text(), BDF])
    assert (plan.sizes_bytes, plan.iterations, bdfs) == ([8, 16], 20, (BDF,))
    assert ranks(plan, 8) == 8
    several, _ = read([text(nranks=16, first_rank=8, comm="node01:5000")])
    assert ranks(several, 8) == 16


def test_only_the_plan_decides_about_nccl() -> None:
    """NCCL_* of the surroundings go, other variables stay, those of the plan come; without a log none is asked for."""
    around = {"NCCL_P2P_LEVEL": "LOC", "NCCL_DEBUG": "TRACE", "PATH": "/bin"}
    plan = Plan(ops=[], sizes_bytes=[], environment={"NCCL_ALGO": "Ring"}, debug="", comm="node01:5000")
    assert environment(plan, around, Path("x")) == {
        "PATH": "/bin",
        "NCCL_ALGO": "Ring",
        "NCCL_COMM_ID": "node01:5000",
    }
    logged = environment(Plan(ops=[], sizes_bytes=[]), around, Path("/tmp/0.log"))
    assert logged == {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,TUNING",
        "NCCL_DEBUG_FILE": "/tmp/0.log",
    }


def test_multicast_that_is_off_stays_off() -> None:
    """NCCL_NVLS_ENABLE=0 of the surroundings reaches the ranks whether the plan names it or not; a plan that wants it
    on is refused there, and only there. Any other value of the surroundings goes."""
    off = {"NCCL_NVLS_ENABLE": "0"}
    plain, on = (
        Plan(ops=[], sizes_bytes=[], debug=""),
        Plan(ops=[], sizes_bytes=[], environment={"NCCL_NVLS_ENABLE": "1"}),
    )
    assert environment(plain, off, Path("x")) == kept(plain, off) == off
    with pytest.raises(PlanError, match="expected NCCL_NVLS_ENABLE=0, as whoever runs this node has set it, found '1'"):
        environment(on, off, Path("x"))
    assert kept(on, {}) == kept(plain, {"NCCL_NVLS_ENABLE": "1"}) == {}
    assert environment(plain, {"NCCL_NVLS_ENABLE": "1"}, Path("x")) == {}
