"""What all tests share: each worker compiles a part of them first, and garbage is not looked for in what is to stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

_AT = pytest.StashKey[dict[pytest.Item | pytest.Collector, int]]()
"""Where the folders and files of these tests stand among each other."""

gc.disable()  # until all is collected


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins somewhere else: what it compiled of a fresh checkout the others then read."""
    report = yield
    given = getattr(collector.config, "workerinput", None)
    if given and collector.path == Path(__file__).parent:
        collector.config.stash[_AT] = {found: at for at, found in enumerate(report.result)}
        first = len(report.result) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the end the tests have their order, the same in all workers."""
    if at := config.stash.get(_AT, None):
        items.sort(key=lambda item: next((at[above] for above in item.listchain() if above in at), -1))


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end, so nobody looks through them again for garbage.

    Each run of pytest in pytest collects garbage twice when it ends: a fifth of a second in a process of thousands of
    tests, and nothing where only what that run made is looked through.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
