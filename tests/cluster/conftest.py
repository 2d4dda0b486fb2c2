"""The hosts of this folder's tests: started once, about half a second, and stopped at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Hosts, missing
from tests.cluster.imitation import Imitation


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


@pytest.fixture(scope="session")
def imitated(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Imitation]:
    """Four hosts with hardware of their own, as far as the agent can see."""
    if why := missing():
        pytest.fail(why, pytrace=False)
    cache = pytestconfig.cache
    assert cache is not None
    built = cache.mkdir("stand-in")
    hosts = Imitation(tmp_path_factory.mktemp("imitation"), f"i{os.getpid() % 1_000_000}x", built=built)
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.stop()


@pytest.fixture
def imitation(imitated: Imitation) -> Iterator[Imitation]:
    """The imitation cluster, and the test on its network."""
    with imitated.controller():
        yield imitated


@pytest.fixture
def scratch(cluster: Hosts, request: pytest.FixtureRequest) -> Path:
    """A folder that is writable on every host."""
    folder = cluster.folder / request.node.name[:60]
    folder.mkdir()
    return folder
