"""Fixtures of the inventory tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuready.inventory import Site, load_site


@pytest.fixture
def site_of(tmp_path: Path) -> Callable[[str], Site]:
    """Loads a site file from its text."""

    def load(text: str) -> Site:
        path = tmp_path / "site.yaml"
        path.write_text(text)
        return load_site(path)

    return load
