"""A stand-in for kubectl, ready to use."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gpuready.transport.kubernetes import Kubernetes

PROGRAM = Path(__file__).parent / "kubectl.py"


@dataclass(frozen=True)
class Cluster:
    """A cluster that is none, in a folder."""

    folder: Path

    @property
    def kubectl(self) -> Path:
        return self.folder / "kubectl"

    def set(self, nodes: dict[str, Any], **other: Any) -> None:
        """What there is from now on."""
        (self.folder / "jobs").mkdir(exist_ok=True)
        (self.folder / "pods").mkdir(exist_ok=True)
        (self.folder / "scenario.json").write_text(json.dumps({"nodes": nodes, **other}))
        self.kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM} {self.folder} "$@"\n')
        self.kubectl.chmod(0o755)

    def becomes(self, node: str, status: dict[str, Any]) -> None:
        """The pods of this node are like this from now on."""
        (self.folder / "pods" / node).write_text(json.dumps(status))

    def transport(self, **other: Any) -> Kubernetes:
        options = {"wait_s": 0.0, "patience_s": 1.0, "python": sys.executable, **other}
        options = {"image": "example/gpuready:0.1", **options}
        return Kubernetes(namespace="gpuready", kubectl=str(self.kubectl), **options)

    def calls(self, verb: str = "") -> list[list[str]]:
        """The calls that were made, those of one verb."""
        path = self.folder / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in calls if not verb or call[0] == verb]
