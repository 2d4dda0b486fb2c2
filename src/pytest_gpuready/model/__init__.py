"""Frozen nouns: what is promised (clause, limit), what is there (node, GPU), what was measured, what follows from it.

No I/O and no pytest in here. Bad objects cannot exist: invariants are checked when an object is made.
Names are loaded when first asked for: the agent needs the wire format alone and must start fast on the node.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_gpuready.model.clause import Clause, Limit, Parameter, Profile
    from pytest_gpuready.model.command import Command, CommandResult
    from pytest_gpuready.model.hardware import Dcgm, Gpu, Inventory, Node, Part, Slot
    from pytest_gpuready.model.measurement import Measurement, Problem, ProblemKind, Value, Watch
    from pytest_gpuready.model.peer_limit import PeerLimit
    from pytest_gpuready.model.source import Source
    from pytest_gpuready.model.verdict import Outcome, Status, Verdict

_HOME = {
    "Clause": "clause",
    "Limit": "clause",
    "Parameter": "clause",
    "Profile": "clause",
    "Command": "command",
    "CommandResult": "command",
    "Dcgm": "hardware",
    "Gpu": "hardware",
    "Inventory": "hardware",
    "Node": "hardware",
    "Part": "hardware",
    "Slot": "hardware",
    "Measurement": "measurement",
    "Problem": "measurement",
    "ProblemKind": "measurement",
    "Value": "measurement",
    "Watch": "measurement",
    "PeerLimit": "peer_limit",
    "Source": "source",
    "Outcome": "verdict",
    "Status": "verdict",
    "Verdict": "verdict",
}

__all__ = [
    "Clause",
    "Command",
    "CommandResult",
    "Dcgm",
    "Gpu",
    "Inventory",
    "Limit",
    "Measurement",
    "Node",
    "Outcome",
    "Parameter",
    "Part",
    "PeerLimit",
    "Problem",
    "ProblemKind",
    "Profile",
    "Slot",
    "Source",
    "Status",
    "Value",
    "Verdict",
    "Watch",
]


def __getattr__(name: str) -> object:
    """The noun of this name, from the module that holds it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    noun: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = noun
    return noun
