"""The faults that ship, each with what it must redden. They are written for a node with at least five GPUs."""

from __future__ import annotations

from pytest_gpuready.faults.dcgm import DCGM
from pytest_gpuready.faults.health import HEALTH
from pytest_gpuready.faults.load import LOAD
from pytest_gpuready.faults.stress import STRESS

__all__ = ["DCGM", "FAULTS", "HEALTH", "LOAD", "STRESS"]

FAULTS = (*HEALTH, *LOAD)
"""Faults of a node on which DCGM is not asked; those of `DCGM` need its results in the recording, those
of `STRESS` a recording of level 3."""
