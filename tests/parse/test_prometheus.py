"""Prometheus text: labels, numbers of every form, and what shows that it was cut."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.prometheus import parse_prometheus


def test_labels_and_numbers_of_every_form() -> None:
    """Quoted braces and commas stay in the label; integers, exponents, timestamps and exemplars are read."""
    lines = ['a:b{x="1,}\\"",y=""} 1.5e+06 1700000000\n', 'a:c 7 # {t="1"} 3\n', "a:d NaN\n", "other 1\n"]
    found = parse_prometheus(lines, ("a:",))
    assert [(s.name, s.labels, s.value) for s in found.samples[:2]] == [
        ("a:b", {"x": '1,}\\"', "y": ""}, 1.5e6),
        ("a:c", {}, 7.0),
    ]
    assert found.samples[2].value != found.samples[2].value
    assert not found.cut
    assert found.malformed == ()


@pytest.mark.parametrize("text", ["a 1", "a 1\n# TYPE b counter\n", "a 1\n# HELP b what\n# TYPE b gauge\n"])
def test_a_cut_text_is_known(text: str) -> None:
    """A last line without its end and an announced metric without a sample show a cut."""
    assert parse_prometheus(text.splitlines(keepends=True), ("",)).cut


def test_what_is_no_metric_is_refused() -> None:
    """No sample at all, or one sample with two values, is no reading."""
    with pytest.raises(ParseError, match="found none"):
        parse_prometheus(["<html>\n"], ("",))
    with pytest.raises(ParseError, match="two values"):
        parse_prometheus(["a 1\n", "a 2\n"], ("",))
