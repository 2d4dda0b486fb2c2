"""What controller and agent call the things that pass between them beside the documents: environment and stderr."""

from __future__ import annotations

TIED = "GPUREADY_TIED"
"""Environment variable, "1" where the agent's stdin stays open as long as its controller lives."""

LEASE = "GPUREADY_LEASE"
"""Environment variable with the ticket of the run that asks (`agent.lease_record.Ticket`); "" or none: no lease."""

DEADLINE = "GPUREADY_DEADLINE_S"
"""Environment variable: after how many seconds the command has ended, its grace included."""

PROGRESS = "gpuready-progress "
"""How a line on the agent's stderr begins that says how far it is: one JSON object follows."""
