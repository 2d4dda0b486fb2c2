"""What is said of all samples of a phase is true of all of them, however many there were."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.agent.stress.seen import Kept, with_counters
from pytest_gpuready.agent.stress.watch import READINGS
from pytest_gpuready.model.stress_doc import StressPhase, WindowSeen

Reading = float | None


def values(**readings: Reading) -> list[Reading]:
    return [readings.get(name) for name in READINGS]


def test_what_was_seen_is_cut_to_the_window() -> None:
    """Samples outside belong to nobody; reasons are counted bit by bit; of many samples some are kept."""
    kept = Kept(most=512)
    for at in range(1000):
        kept.add(at / 10, values(power_w=700.0 if at % 2 else 690.0, reasons=5))
    seen = kept.seen(20.0, 60.0, 10.0)
    assert (seen.spans["power_w"].low, list(seen.spans)) == (690.0, ["power_w"])
    assert seen.reasons == {"0x1": seen.taken, "0x4": seen.taken}
    assert set(seen.samples) == {"t", "power_w", "reasons"}
    times = [t for t in seen.samples["t"] if t is not None]
    assert times == sorted(times)
    assert 10.0 <= times[0] < times[-1] <= 50.0
    assert seen.taken == pytest.approx(400, abs=16)
    assert seen.read == {"power_w": seen.taken, "reasons": seen.taken}
    assert kept.seen(2000.0, 3000.0, 0.0) == WindowSeen()
    counted = with_counters(seen, {"a": 1, "b": 2, "c": 3}, {"a": 4, "b": 2, "d": 9})
    assert counted.counted == {"a": 3}
    assert msgspec.structs.replace(counted, counted={}) == seen


def test_half_a_second_in_four_hours_is_seen() -> None:
    """Four samples that show the power brake and 85 C among 144000: their reason, their heat, their time."""
    kept = Kept(slowdown_c=89.0)
    odd = {50_001, 50_003, 50_005, 50_007}
    for at in range(144_000):
        kept.add(at / 10, values(reasons=0x80 if at in odd else 4, temperature_c=85.0 if at in odd else 60.0))
    seen = kept.seen(0.0, 14_400.0, 0.0)
    assert (seen.taken, seen.reasons) == (144_000, {"0x4": 143_996, "0x80": 4})
    assert (seen.spans["temperature_c"].low, seen.spans["temperature_c"].high) == (60.0, 85.0)
    assert max(value or 0.0 for value in seen.samples["temperature_c"]) == 85.0
    assert seen.near_slowdown_s == pytest.approx(0.4)
    assert seen.gap_s == {"temperature_c": pytest.approx(0.1), "reasons": pytest.approx(0.1)}


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from([0.05, 0.125, 1.0]),
        st.sampled_from([None, 60.0, 83.0, 84.0, 86.0]),
        st.sampled_from([None, 0.0, 1.0, 4.0, float(0x84)]),
        st.floats(0, 700),
    ),
    min_size=1,
    max_size=300,
)


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, most=st.sampled_from([16, 64, 1000]))
def test_nothing_that_was_seen_vanishes(samples: list[tuple[float, Reading, Reading, float]], most: int) -> None:
    """Counts, extremes, gaps and the time near the slowdown temperature are those of every sample."""
    kept = Kept(most=most, slowdown_c=89.0)
    now, rows = 0.0, []
    for later, warm, reasons, power in samples:
        now += later
        kept.add(now, values(temperature_c=warm, reasons=reasons, power_w=power))
        rows.append((now, warm, reasons, power))
    end = now + 0.5
    seen = kept.seen(0.0, end, 0.0)
    warmths = [(t, warm) for t, warm, _, _ in rows if warm is not None]
    shown = [(t, int(reasons)) for t, _, reasons, _ in rows if reasons is not None]
    assert seen.taken == seen.read["power_w"] == len(rows)
    for name, known in (("temperature_c", warmths), ("reasons", shown)):
        assert seen.read.get(name, 0) == len(known)
        moments = [0.0, *(t for t, _ in known), end]
        longest = max(later - sooner for sooner, later in itertools.pairwise(moments))
        assert seen.gap_s[name] == pytest.approx(longest, abs=0.002)
    for bit in (0x1, 0x4, 0x80):
        assert seen.reasons.get(f"{bit:#x}", 0) == sum(1 for _, value in shown if value & bit)
    assert seen.spans["power_w"].low == min(power for *_, power in rows)
    assert seen.spans["power_w"].high == max(power for *_, power in rows)
    assert ("temperature_c" in seen.spans) == bool(warmths)
    if warmths:
        assert seen.spans["temperature_c"].high == max(warm for _, warm in warmths)
        holds = itertools.pairwise([*warmths, (end, 0.0)])
        near = sum(later - sooner for (sooner, warm), (later, _) in holds if warm >= 84.0)
        assert seen.near_slowdown_s == pytest.approx(near, abs=0.002)
    else:
        assert seen.near_slowdown_s is None


def test_a_document_from_before_says_that_it_does_not_know() -> None:
    """What older documents lack is empty or None, never 0."""
    old = {"phase": 0, "kind": "pulse", "seen": {"taken": 9, "reasons": {"0x4": 9}}}
    seen = msgspec.convert(old, StressPhase).seen
    assert seen is not None
    assert (seen.read, seen.gap_s, seen.near_slowdown_s) == ({}, {}, None)
