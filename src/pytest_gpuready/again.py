"""The command that asks the same again: what decides about the verdict is carried over, what only shows is not."""

from __future__ import annotations

import os
import re
import shlex

import pytest

SUITES = ("--pyargs", "pytest_gpuready.suites")
AGAIN = "GPUREADY_AGAIN"
"""Environment variable of whoever started pytest: the command that a person typed."""


def command_again(config: pytest.Config) -> str:
    """A line for a shell: suites, level, profile, site file, nodes and how they are reached, soak, run directory,
    keep-going.

    A recording is not asked for again (one exists there already), and neither is a replay: what follows a replay is the
    node itself.
    """
    typed = os.environ.get(AGAIN, "")
    if typed:
        return typed
    option = config.option
    levels = re.findall(r"\blevel[1-4]\b", option.markexpr or "")
    words = ["pytest", *_suites(config), *(["-m", max(levels)] if levels else [])]
    reached = () if option.gpuready_replay else ("nodes", "transport")
    for name in ("site", "profile", *reached, "burn", *(() if option.gpuready_replay else ("out",))):
        value = getattr(option, f"gpuready_{name}") or ("" if name == "out" else config.getini(f"gpuready_{name}"))
        # pytest takes a word that begins with @ for a file of arguments, and one that begins with - for an option.
        apart = [f"--gpuready-{name}", value] if value[:1] not in "@-" else [f"--gpuready-{name}={value}"]
        words += apart if value else []
    if option.gpuready_keep_going or config.getini("gpuready_keep_going"):
        words.append("--gpuready-keep-going")
    return shlex.join(words)


def _suites(config: pytest.Config) -> list[str]:
    """Where the tests lie that were asked for, unless ini says it; the shipped suites for nothing or single tests."""
    source = config.args_source
    if source is pytest.Config.ArgsSource.TESTPATHS:
        return []
    named = config.args if source is pytest.Config.ArgsSource.ARGS else []
    if not named or any("::" in name for name in named):
        return list(SUITES)
    return [*(["--pyargs"] if config.option.pyargs else []), *named]
