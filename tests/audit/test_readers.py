"""`audit.readers`: the table of tools is what the modules say, and asking few modules finds what asking all would."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.audit.readers import SURE, reader_of, readers, recognised, tools

DATA = Path(__file__).parents[1] / "data"
INPUTS = sorted(
    path
    for folder in ("cases", "dcgm", "nccl", "recorded")
    for path in (DATA / folder).rglob("*")
    if path.is_file() and path.name not in ("case.yaml", "command.txt", "exit_code.txt", "seconds.txt")
)


def test_the_table_names_every_reader_once() -> None:
    """The tools of the table are those that the modules export."""
    assert sorted(reader.tool for reader in readers()) == list(tools())
    assert all(reader_of(tool) is not None for tool in tools())
    assert reader_of("no-such-tool") is None


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: str(p.relative_to(DATA)))
def test_few_modules_find_what_all_find(path: Path) -> None:
    """Whether only the modules hinted at or all of them are asked, the same reader is the surest."""
    head = path.read_bytes()[:65536].decode("utf-8", "replace")
    scores = sorted(((reader.recognise(head), reader.tool) for reader in readers()), reverse=True)
    expected = scores[0][1] if scores[0][0] >= SURE else None
    found = recognised(head)
    assert (found.tool if found else None) == expected
