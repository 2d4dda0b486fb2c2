"""The hosts of this folder's tests: started once, about half a second, and stopped at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Hosts, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts; where they cannot be started the tests fail, they are not skipped."""
    if why := missing():
        pytest.fail(why, pytrace=False)
    hosts = Hosts(tmp_path_factory.mktemp("hosts"), f"g{os.getpid() % 1_000_000}x")
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.stop()


@pytest.fixture
def hosts(cluster: Hosts) -> Iterator[Hosts]:
    """The hosts, and the test on their network."""
    with cluster.controller():
        yield cluster


@pytest.fixture
def scratch(cluster: Hosts, request: pytest.FixtureRequest) -> Path:
    """A folder that is writable on every host."""
    folder = cluster.folder / request.node.name[:60]
    folder.mkdir()
    return folder
