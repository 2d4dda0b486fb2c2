"""What a worker says is believed only where it can be true and is what it was asked for."""

from __future__ import annotations

import msgspec
import pytest

from pytest_gpuready.agent.stress import answers
from pytest_gpuready.agent.stress.answers import Asked, LateError, WrongError
from pytest_gpuready.model.stress_doc import GemmResult, Phase, ResultFault

AT = 1000.0
GEMM = Asked(number=2, phase=Phase(kind="gemm", format="bf16", seconds=10.0), at=AT)
SIDE = 8192
RATES = {"sustained_tflops": 670.0, "tflops": [680.0, 670.0], "half_width": 0.002}
FAULT = ResultFault(pass_number=-1, row=1, col=2, tile=3, bit=4, expected="0x0", found="0x10")


def good(seconds: float = 10.0) -> dict[str, object]:
    """So many seconds of products at 670 TFLOPS, each compared."""
    passes = round(670e12 * seconds / (2 * SIDE**3))
    counted = {"passes": passes, "checked": passes * SIDE**2, "flop": 2.0 * SIDE**3 * passes, "error_count": 0}
    return {"seconds": seconds, "format": "bf16", "m": SIDE, "n": SIDE, "k": SIDE, **RATES, **counted}


GOOD = good()


def said(*, seconds: float = 10.0, **changed: object) -> dict[str, object]:
    return {"done": 2, "result": good(seconds) | changed}


def test_a_result_is_taken_as_what_it_is() -> None:
    """The type of the phase's kind; a fault of the first result counts from before the first pass."""
    told = said(errors=[msgspec.to_builtins(FAULT)], error_count=1)
    found = answers.result(told, GEMM, AT + 10.2)
    assert isinstance(found, GemmResult)
    assert (found.sustained_tflops, found.errors) == (670.0, [FAULT])


def test_a_load_that_was_ended_may_be_short() -> None:
    """A result that says it was cut counts as far as it came."""
    assert answers.result(said(cut=True, seconds=1.0), GEMM, AT + 1.1).seconds == 1.0


ADAPTIVE = Phase(kind="gemm", format="bf16", seconds=60.0, within=0.01, least_s=5.0)


def test_a_load_may_be_short_where_it_was_dismissed() -> None:
    """ "enough" counts where we said so, and not before the least time; nobody ends by itself."""
    told = Asked(number=2, phase=ADAPTIVE, at=AT, enough=True)
    short = said(enough=True, seconds=6.0)
    assert answers.result(short, told, AT + 6.1).enough
    assert answers.result(said(seconds=60.0), told, AT + 60.1).seconds == 60.0
    wrong = [
        (Asked(number=2, phase=ADAPTIVE, at=AT), short, 6.1, "expected 60 s of load, found its end as if it had"),
        (told, said(seconds=6.0), 6.1, "expected 60 s of load, found its end after 6.0 s"),
        (told, said(enough=True, seconds=1.0), 6.1, "expected 5 s of load, found its end after 1.0 s"),
    ]
    for asked, line, now, says in wrong:
        with pytest.raises(WrongError) as error:
            answers.result(line, asked, AT + now)
        assert says in str(error.value)


def test_who_knows_enough_says_so_in_its_time() -> None:
    """Not before the least time, not of a phase that cannot end early, and in no other word than true."""
    asked = Asked(number=2, phase=ADAPTIVE, at=AT)
    assert answers.progress({"said": 2, "t": 5.5, "enough": True}, asked, AT + 5.6)
    assert not answers.progress({"said": 2, "t": 5.5}, asked, AT + 5.6)
    for one, t, word in ((asked, 4.0, True), (asked, 5.5, 1), (asked, 5.5, False), (GEMM, 5.5, True)):
        with pytest.raises(WrongError, match="found that it knows enough"):
            answers.progress({"said": 2, "t": t, "enough": word}, one, AT + t)


@pytest.mark.parametrize(
    ("line", "now", "says"),
    [
        ({"done": 3, "result": GOOD}, 10.2, "expected the end of phase 2 (gemm), found that of phase 3"),
        ({"done": True, "result": GOOD}, 10.2, "found that of phase True"),
        ({"done": 2, "result": None}, 10.2, "expected the result of phase 2 (gemm), found Expected"),
        ({"done": 2, "result": {"cycles": 3}}, 10.2, "found Object contains unknown field `cycles`"),
        (said(format="int8"), 10.2, "expected format bf16, found 'int8'"),
        (said(sustained_tflops=-1.0), 10.2, "expected numbers from 0 on, found sustained_tflops -1.0"),
        (said(tflops=[670.0, float("nan")]), 10.2, "expected numbers from 0 on, found tflops nan"),
        (said(burst_tflops=float("inf")), 10.2, "expected numbers from 0 on, found burst_tflops inf"),
        (said(passes=-1), 10.2, "found passes -1"),
        (said(passes=10**400), 10.2, "found passes 1000"),
        (said(notes=["\ud800"]), 10.2, "expected the result of phase 2 (gemm), found"),
        (said(), -0.2, "found it 0.2 s before"),
        (said(), 3.0, "expected at most 3.0 s of load by now, found 10.0 s"),
        (said(seconds=3.0), 10.2, "expected 10 s of load, found its end after 3.0 s"),
        (said(seconds=3600.0), 10.2, "expected at most 10.2 s of load by now, found 3600.0 s"),
        (said(late_s=4.8), 10.2, "expected at most 10.2 s of load by now, found 10.0 s, 4.8 s late"),
        (said(checked=640), 10.2, "expected every element of 6094 products compared, found 640"),
        (said(flop=1.0), 10.2, "expected 6.7e+15 operations of 6094 products, found 1"),
        (said(sustained_tflops=1e9), 10.2, "expected a sustained rate among those of its windows, found 1e+09"),
        (said(error_count=3), 10.2, "expected the first of 3 errors with its place, found none"),
    ],
)
def test_what_cannot_be_is_not_believed(line: dict[str, object], now: float, says: str) -> None:
    """Another phase, another format, no number, a time that has not passed: the worker is not asked again."""
    with pytest.raises(WrongError) as wrong:
        answers.result(line, GEMM, AT + now)
    assert says in str(wrong.value)


def test_what_says_that_the_gpu_was_wrong_is_not_lost() -> None:
    """An error with its place is kept, also in a result that is short, late or counts wrongly elsewhere."""
    wrong = {"errors": [msgspec.to_builtins(FAULT)], "error_count": 1}
    for odd in ({"checked": 640}, {"seconds": 3.0}, {"late_s": 9.0}):
        found = answers.result(said(**wrong, **odd), GEMM, AT + 19.2)
        assert isinstance(found, GemmResult)
        assert found.errors == [FAULT]
    with pytest.raises(WrongError):
        answers.result(said(**wrong, burst_tflops=float("nan")), GEMM, AT + 10.2)


def test_a_load_that_began_late_does_not_count() -> None:
    """The GPUs were to draw their power together; the worker may go on with its next phase."""
    with pytest.raises(LateError, match=r"found it 9\.0 s late"):
        answers.result(said(late_s=9.0), GEMM, AT + 19.2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"said": 2, "t": 100.0}, "expected its clock at 5.0 s of phase 2 (gemm), found 100.0 s"),
        ({"said": 2, "t": -20.0}, "found -20.0 s"),
        ({"said": 2, "t": float("nan")}, "expected seconds since the beginning, found nan"),
        ({"said": 2, "t": 10**400}, "expected seconds since the beginning, found 1000"),
        ({"said": 2, "t": "5"}, "expected seconds since the beginning, found '5'"),
        ({"said": 1, "t": 5.0}, "expected words about phase 2 (gemm), found some about phase 1"),
        ({"said": 2, "t": 5.0, "tflops": float("inf")}, "found tflops inf"),
    ],
)
def test_a_clock_that_drifts_is_not_believed(line: dict[str, object], says: str) -> None:
    """What is said meanwhile is about the phase that runs, at its time."""
    answers.progress({"said": 2, "t": 4.9, "tflops": 700.0}, GEMM, AT + 5.0)
    with pytest.raises(WrongError) as wrong:
        answers.progress(line, GEMM, AT + 5.0)
    assert says in str(wrong.value)


def test_words_about_no_phase_are_no_words_of_ours() -> None:
    """Nobody has begun."""
    with pytest.raises(WrongError, match="expected the end of no phase"):
        answers.result(said(), None, AT)


@pytest.mark.parametrize("text", [b"", b"Bus error", b"[1]", b"7", b"{", b"\xff\xfe", b"[" * 100_000, b'{"t": NaN}'])
def test_what_is_no_object_is_named(text: bytes) -> None:
    """One line, printable and short, whatever came."""
    with pytest.raises(WrongError) as wrong:
        answers.decoded(text)
    assert str(wrong.value).isprintable()
    assert len(str(wrong.value)) < 200


def test_a_worker_is_on_the_gpu_that_it_was_given() -> None:
    """Another address, or no address at all, is no readiness."""
    assert answers.ready({"bdf": "0000:19:00.0", "sms": 132}, "0000:19:00.0").sms == 132
    for claim in ({"bdf": "0000:29:00.0"}, {}, {"bdf": "0000:19:00.0", "sms": -1}, {"bdf": "0000:19:00.0", "x": 1}):
        with pytest.raises(WrongError):
            answers.ready(claim, "0000:19:00.0")
