"""What these tests need, said in one line where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.hosts import missing


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root there are no hosts, and the line says so."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "expected root for hosts in network namespaces, found another user; run the tests as root"


def test_a_missing_sshd_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is not installed is named with the command that installs it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("tests.cluster.hosts.SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = missing()
    assert said.startswith(
        "expected sshd, ssh, ip, nsenter for hosts in network namespaces, found none; apt-get install"
    )
