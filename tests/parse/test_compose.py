"""Compose files and inspect documents survive any damage, and keep words as words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.compose import parse_compose
from pytest_gpuready.parse.container import size_bytes
from pytest_gpuready.parse.docker_inspect import parse_docker_inspect
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

COMPOSE = (CASES / "085" / "docker-compose.yml").read_text()
INSPECT = (CASES / "083" / "inspect.json").read_text()


def test_aliases_that_multiply_cost_nothing() -> None:
    """Nine levels of nine aliases are read in no time: what is shared stays shared."""
    levels = "".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 10))
    services = parse_compose("x0: &x0 {a: b}\n" + levels + "services:\n  s: {image: i, labels: *x9}\n")
    assert [s.name for s in services] == ["s"]


@pytest.mark.parametrize(
    "text",
    ["", "services: []\n", "a: *b\n", "a: [1\n", "services:\n  a: {image: b, image: c}\n", "[" * 3000, "- " * 3000],
)
def test_what_is_no_compose_file_is_refused(text: str) -> None:
    """Broken YAML, no services, a key twice and nesting without end are refused."""
    with pytest.raises(ParseError, match="found"):
        parse_compose(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64g", 64 * 2**30), ("512 MB", 512 * 2**20), ("1024", 1024), ("${S}", None)]
)
def test_sizes(text: str, size: int | None) -> None:
    """Docker's units are powers of two; what is filled in later is no size."""
    assert size_bytes(text) == size


@settings(max_examples=200, deadline=None)
@given(st.tuples(damages(COMPOSE), damages(INSPECT)))
def test_damage_gives_containers_or_a_refusal(texts: tuple[str, str]) -> None:
    """Never another error; a count is a number, "all", or said to be none."""
    rows = [*(read_or_refused(lambda: parse_compose(texts[0])) or ())]
    rows += read_or_refused(lambda: parse_docker_inspect(texts[1])) or ()
    for row in rows:
        assert row.gpus is None or row.gpus.count in (None, "all") or isinstance(row.gpus.count, int)
