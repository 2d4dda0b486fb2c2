"""The plan from the command line, and the step that waits for GPUs to cool down."""

from __future__ import annotations

import pytest

from pytest_gpuready.agent.plan_words import PlanError
from pytest_gpuready.agent.stress import plan as plans
from pytest_gpuready.agent.stress.cooldown import CoolDown
from pytest_gpuready.model.stress_doc import Phase

GEMM = '{"kind":"gemm","format":"fp8_e4m3","seconds":10}'
A, B = "0000:19:00.0", "0000:29:00.0"


def test_a_plan_is_read_with_its_gpus() -> None:
    """Numbers may be whole; what is not said has its default."""
    plan, bdfs = plans.read([f'{{"phases":[{GEMM},{{"kind":"cool","below_c":45}}],"seed":7}}', A, B])
    assert (plan.seed, plan.share, bdfs) == (7, 0.9, (A, B))
    assert [plans.name(phase) for phase in plan.phases] == ["gemm fp8_e4m3", "cool"]
    assert [plans.longest_s(phase) for phase in plan.phases] == [30.0, 600.0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "expected a plan as JSON, found "),
        (["[" * 5000], "expected a plan as JSON, found "),
        (['{"phases":[]}'], "expected 1 to 200 phases, found 0"),
        (['{"phases":[{"kind":"melt"}]}'], "expected phase 0 of kind alloc, cache"),
        (['{"phases":[{"kind":"gemm"}]}'], "expected the seconds of phase 0 (gemm), found none"),
        (['{"phases":[{"kind":"cool"}]}'], "expected below_c of phase 0 (cool), found none"),
        (['{"phases":[{"kind":"hbm","seconds":-1}]}'], "expected seconds of phase 0 from 0 on, found -1"),
        ([f'{{"phases":[{GEMM}],"share":1}}'], "expected a share of the memory between 0 and 1, found 1"),
        ([f'{{"phases":[{GEMM}],"sample_s":0}}'], "expected a sample_s of at least 0.01, found 0"),
        ([f'{{"phases":[{GEMM}],"seed":{10**30}}}'], "expected seed from 0 on, found 1000"),
        (
            ['{"phases":[{"kind":"hbm","within":0.01}]}'],
            "expected within of a phase of kind gemm or hbm that has seconds",
        ),
        (['{"phases":[{"kind":"burn","seconds":9,"within":0.01}]}'], "found it of phase 0"),
        (['{"phases":[{"kind":"hbm","seconds":1,"least_s":-1}]}'], "expected least_s of phase 0 from 0 on, found -1"),
        (['{"phases":[{"kind":"hbm","size_bytes":-1}]}'], "expected size_bytes of phase 0 from 0 on, found -1"),
        ([f'{{"phases":[{GEMM}],"speed":1}}'], "found Object contains unknown field `speed`"),
        ([f'{{"phases":[{GEMM}]}}', "--help"], "expected bus addresses such as 0000:19:00.0 behind the plan"),
        ([f'{{"phases":[{GEMM}]}}', A, A], "expected at most 64 different bus addresses, found 2"),
        (["{" + " " * 200_000 + "}"], "expected a plan of at most 131072 bytes, found 200002"),
        (["\udcff"], "expected a plan as JSON, found "),
    ],
)
def test_what_is_no_plan_is_named(words: list[str], says: str) -> None:
    """One line, before anything is started."""
    with pytest.raises(PlanError) as wrong:
        plans.read(words)
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_cooling_ends_when_all_are_cool() -> None:
    """Each has the seconds that it took; one that warms up again is not cool."""
    cooling = CoolDown(Phase(kind="cool", below_c=45.0, seconds=60.0), {A: 70.0, B: 60.0}, 100.0)
    assert not cooling.over({A: 60.0, B: 45.0}, 110.0)
    assert not cooling.over({A: 45.0, B: 46.0}, 120.0)
    assert cooling.over({A: 44.0, B: 45.0}, 130.0)
    result = cooling.result(B, 45.0, 130.0)
    assert (result.reached, result.seconds, result.from_c, result.to_c, result.notes) == (True, 30.0, 60.0, 45.0, [])


def test_cooling_that_takes_too_long_is_noted() -> None:
    """The deadline passes: no failure, and a GPU without a reading has not cooled down either."""
    cooling = CoolDown(Phase(kind="cool", below_c=45.0, seconds=60.0), {A: 70.0, B: None}, 100.0)
    assert not cooling.over({A: 50.0, B: None}, 159.9)
    assert cooling.over({A: 50.0, B: None}, 160.0)
    result = cooling.result(A, 50.0, 160.0)
    assert (result.reached, result.seconds, result.notes) == (False, 60.0, ["not down to 45 °C within 60 s"])
    assert cooling.over({}, 101.0)
