"""Frozen nouns: what is promised (clause, limit), what is there (node, GPU), what was measured, what follows from it.

No I/O and no pytest in here. Bad objects cannot exist: invariants are checked when an object is made.
"""

from pytest_gpuready.model.clause import Clause, Limit, Profile, Source
from pytest_gpuready.model.command import Command, CommandResult
from pytest_gpuready.model.hardware import Gpu, Inventory, Node, Part, Slot
from pytest_gpuready.model.measurement import Measurement, Problem, ProblemKind, Value, Watch
from pytest_gpuready.model.verdict import Outcome, Status, Verdict

__all__ = [
    "Clause",
    "Command",
    "CommandResult",
    "Gpu",
    "Inventory",
    "Limit",
    "Measurement",
    "Node",
    "Outcome",
    "Part",
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
