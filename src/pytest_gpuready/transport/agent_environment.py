"""What the environment says to an agent, whatever transport brings it there."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpuready.model import Command
from pytest_gpuready.model.agent_words import DEADLINE, LEASE, TIED
from pytest_gpuready.model.command import PYTHON


def agent_environment(command: Command, more: Mapping[str, str]) -> dict[str, str]:
    """Variables for this command; `more` is for agents alone: another tool gets none of it.

    A ticket that this process itself was started with is not handed on.
    """
    environment = {"PYTHONSAFEPATH": "1", TIED: "1", LEASE: ""}
    if command.argv[0] == PYTHON:
        environment |= {DEADLINE: f"{command.timeout_s + command.grace_s:g}", **more}
    return environment
