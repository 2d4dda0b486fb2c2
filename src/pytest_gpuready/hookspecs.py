"""Hooks that a conftest or another plug-in may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_gpuready.certificate.document import Certificate
    from pytest_gpuready.model import Verdict


@pytest.hookspec
def pytest_gpuready_verdict(verdict: Verdict) -> None:
    """Called for every verdict that a clause test came to, in the process that ran the test."""


@pytest.hookspec
def pytest_gpuready_certificate(certificate: Certificate, directory: str) -> None:
    """Called once the certificate of the run is written; `directory` is where its files lie."""
