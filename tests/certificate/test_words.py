"""Typography and names: ASCII of the document in, signs of print out; untrusted text tamed."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.certificate import words
from tests.certificate import samples


@pytest.mark.parametrize(
    ("ascii_text", "printed"),
    [
        (">= 53.5 GB/s", "\u2265\u00a053.5\u00a0GB/s"),
        ("<= 80 C", "\u2264\u00a080\u202f\u00b0C"),
        ("Gen5 x16", "Gen5\u00a0\u00d7\u00a016"),
        ("32 GT/s x 16 / 8", "32\u00a0GT/s\u00a0\u00d7\u00a016 / 8"),
        ("85 % of it", "85\u202f% of it"),
        ("down by -3.5", "down by \u22123.5"),
        ("143771 MiB", "143\u202f771\u00a0MiB"),
        ("GPU 4 <-> GPU 5", "GPU\u00a04 \u2194 GPU\u00a05"),
        ("0000:19:00.0 serial 1650000000006 on 2026-11-30", "0000:19:00.0 serial 1650000000006 on 2026-11-30"),
        ("3.81e+10 elements, 1e-05", "3.81\u00a0\u00d7\u00a010\u00b9\u2070 elements, 1e-05"),
        ("16969.9 GB read", "16\u202f969.9\u00a0GB read"),
        ("of bf16, fp8_e4m3 and int8", "of BF16, FP8\u00a0E4M3 and INT8"),
        ("stress.fp8_e4m3.sustained", "stress.fp8_e4m3.sustained"),
        ("1635 MHz, 364.1 TFLOPS/GHz", "1\u202f635\u00a0MHz, 364.1\u00a0TFLOPS/GHz"),
        ("nvidia-smi -pl, 77-412 of 9", "nvidia-smi -pl, 77-412 of 9"),
    ],
)
def test_typo(ascii_text: str, printed: str) -> None:
    """Signs, units and thousands are set; addresses, serials, dates, ranges and options stay as they are."""
    assert words.typo(ascii_text) == printed


@given(st.text(), st.integers(min_value=1, max_value=200))
def test_clean_leaves_nothing_that_hides(text: str, bound: int) -> None:
    """No control, bidirectional, zero-width or surrogate character survives, and the length is bounded."""
    said = words.clean(text, bound)
    assert words.clean(said, len(said) + 1) == said
    assert len(said) <= bound + 60
    said.encode("utf-8")


@given(st.text())
def test_plain_is_ascii(text: str) -> None:
    """Whatever comes in, a terminal gets printable ASCII."""
    assert all(" " <= char <= "~" for char in words.plain(text))


@given(st.text())
def test_css_string_cannot_end(text: str) -> None:
    """No sign that ends a CSS string, a line or the style element is left."""
    assert not set(words.css_string(text)) & set("\"'<>\n\r")


@pytest.mark.parametrize(
    ("parts", "many", "said"),
    [
        (["node01/gpu5"], False, "GPU\u00a05"),
        (["node01/gpu5"], True, "node01 GPU\u00a05"),
        ([f"node01/gpu{n}" for n in range(8)], False, "GPU\u00a00 to 7"),
        (["node01/gpu2", "node01/gpu3", "node01/gpu5"], False, "GPU\u00a02, 3 and 5"),
        (["node01"], False, "node01"),
        (["node01/gpu1", "node02/gpu1"], True, "node01 GPU\u00a01 and node02 GPU\u00a01"),
        ([f"node{n:02d}/gpu0" for n in range(9)], True, "9 parts of node[00-08]"),
    ],
)
def test_parts_in_few_words(parts: list[str], many: bool, said: str) -> None:
    """Runs are folded, several nodes are named, a long list is counted."""
    assert words.parts_text(parts, many, 2 if len(parts) == 9 else 6) == said


def test_a_value_never_looks_like_the_limit_it_misses() -> None:
    """49.998 against at least 50 gets as many decimals as it takes to see that it is less."""
    clause = next(c for s in samples.accepted().suites for c in s.clauses if c.id == "PCIE-5")
    part = clause.parts[0]
    near = type(part)(part=part.part, outcome="FAIL", shown="50.00", value=49.998)
    tight = type(clause)(
        **{
            **{f: getattr(clause, f) for f in clause.__struct_fields__},
            "parts": [near],
        }
    )
    assert words.value_text(tight, near) == "49.998"
    assert words.limit_text(tight) == "\u2265\u00a050.000\u00a0GB/s"


def test_margins_of_temperatures_are_degrees() -> None:
    """A margin of temperatures is told in degrees, everything else in % of the limit."""
    clauses = {c.id: c for s in samples.accepted().suites for c in s.clauses}
    assert words.margin_text(clauses["GPU-24"], clauses["GPU-24"].parts[0]) == "+43\u202f\u00b0C"
    assert words.margin_text(clauses["PCIE-5"], clauses["PCIE-5"].parts[0]) == "+10.8\u202f%"
    assert words.margin_text(clauses["GPU-8"], clauses["GPU-8"].parts[0]) == "\u2013"


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0\u00a0B"), (999, "999\u00a0B"), (71_033, "71\u00a0KB"), (9_123_456, "9.1\u00a0MB")]
)
def test_sizes(size: int, said: str) -> None:
    """Sizes are decimal, two to three digits."""
    assert words.size_text(size) == said


def test_a_value_is_never_shown_with_all_its_digits() -> None:
    """A number without a text of its own is shown as the field writes it, not as the computer holds it."""
    clause = next(s for s in samples.accepted().suites if s.id == "pcie_link").clauses[4]
    part = msgspec.structs.replace(clause.parts[0], value=55.29892915878311, shown="")
    assert words.value_text(clause, part) == "55.30"


def test_a_source_is_whole() -> None:
    """No citation that fits on a page is cut, and its kind is said once."""
    clause = next(s for s in samples.accepted().suites if s.id == "pcie_link").clauses[4]
    long = msgspec.structs.replace(clause, source_kind="rule", source="rule: " + "word " * 200 + "end")
    assert words.source_text(long) == "rule: " + "word " * 200 + "end"


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("2026-11-30T11:04:02Z", "2026-11-30T11:04:40Z", "2026-11-30 11:04 UTC"),
        ("2026-11-30T11:04:02Z", "2026-11-30T11:16:40Z", "2026-11-30 11:04 to 11:16 UTC"),
        ("2026-11-30T23:04:02Z", "2026-12-01T01:16:40Z", "2026-11-30 23:04 to 2026-12-01 01:16 UTC"),
    ],
)
def test_two_times(start: str, end: str, said: str) -> None:
    """What two times share is said once."""
    assert words.times_text(start, end) == said


@given(st.text())
def test_a_moment_is_a_moment_or_none(text: str) -> None:
    """Any text gives a moment in UTC or none, and nothing else."""
    found = words.moment(text)
    assert found is None or found.utcoffset() == timedelta(0)


def test_a_moment_knows_its_zone() -> None:
    """Z, an offset and no zone at all are all read, as UTC."""
    for text in ("2026-11-30T11:04:02Z", "2026-11-30T12:04:02.000+01:00", "2026-11-30T11:04:02"):
        found = words.moment(text)
        assert found is not None
        assert found.isoformat() == "2026-11-30T11:04:02+00:00"
