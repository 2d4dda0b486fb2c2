"""Everything that can go wrong, one line each: expected what, found what, where, what to do.

`OutOfSpec` stands apart: it is a verdict about hardware (pytest: failure). Every `GpuReadyError` means that something
was not measured or could not be read (pytest: error).
"""

from __future__ import annotations


class GpuReadyError(Exception):
    """Something could not be read, reached or measured; never a verdict about hardware."""


class ProfileError(GpuReadyError):
    """A profile does not say what a profile must say."""


class InventoryError(GpuReadyError):
    """The site file is wrong, or contradicts the profile or itself."""


class TransportError(GpuReadyError):
    """A node could not be reached, or a command could not be started there."""


class UnreachedError(TransportError):
    """None of the nodes of a run that could be continued is reachable."""


class RecordingEndedError(TransportError):
    """A command was recorded, but not as often as it is asked for now."""


class ToolError(GpuReadyError):
    """A tool is missing, ended badly or did not end in time."""


class ParseError(GpuReadyError):
    """A tool's output is not what its format says."""


class StoreError(GpuReadyError):
    """The run directory cannot be read, written or locked."""


class LeaseError(GpuReadyError):
    """Another acceptance run holds the node."""


class OutOfSpec(AssertionError):  # noqa: N818 - reads as the verdict it is
    """A measurement lies outside its limit; raised by `require` alone."""
