"""The command line: `diag`, `discovery -l`, `health`, `--version`."""

from __future__ import annotations

import os
import sys

from . import diag, state
from .scenario import VARIABLE, ScenarioError, load

UNUSABLE = 70
"""Exit code where there is no usable scenario; none of dcgmi's own."""


def main(words: list[str]) -> int:
    """Runs one command of the stand-in; the exit code."""
    path = os.environ.get(VARIABLE, "")
    try:
        if not path:
            raise ScenarioError(f"expected a scenario file in {VARIABLE}, found none")
        scenario = load(path)
        if words[:1] == ["diag"]:
            return diag.run(words[1:], scenario)
        if words[:1] == ["discovery"] and "-l" in words:
            return state.discovery(words[1:], scenario)
        if words[:1] == ["health"]:
            return state.health(words[1:], scenario)
        if words in (["--version"], ["-v"]):  # seen: -v prints nothing
            sys.stdout.write(f"\ndcgmi  version: {scenario.version}\n\n" if words == ["--version"] else "")
            return 0
    except (ScenarioError, KeyError, ValueError) as error:
        sys.stderr.write(f"dcgmi stand-in: {error}\n")
        return UNUSABLE
    sys.stderr.write(f"PARSE ERROR: {' '.join(words) or 'no subcommand'}: not one that this stand-in has\n")
    return 1
