"""The recorded node with real runs of dcgmi, its site file without the built-in engine: what DCGM says stands alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_gpuready.profiles.loader import load
from pytest_gpuready.transport.replay import BUILT_IN


def without_engine(directory: Path) -> Path:
    """A recording to judge, made in this directory."""
    made = directory / "demo-dcgm"
    shutil.copytree(BUILT_IN["demo-dcgm"], made)
    engine = [clause.id for clause in load("h200-sxm").clauses if clause.suite == "gpu_stress"]
    lines = ["exclude:", *(f"  - {{clause: {one}, reason: DCGM alone is asked}}" for one in engine)]
    with (made / "site.yaml").open("a", encoding="utf-8") as site:
        site.write("\n".join(lines) + "\n")
    return made
