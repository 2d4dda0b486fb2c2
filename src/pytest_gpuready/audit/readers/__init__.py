"""Readers by family of tools. A module exports `READERS`; this list is all that knows them."""

from __future__ import annotations

from importlib import import_module

from pytest_gpuready.audit.reader import Reader

_MODULES: tuple[str, ...] = (
    "collectives",
    "nvidia_smi",
    "pci_bus",
    "kernel",
    "dcgm",
    "fabric",
    "host",
    "containers",
    "serving",
)


def readers() -> tuple[Reader, ...]:
    """Every reader there is."""
    found: list[Reader] = []
    for name in _MODULES:
        found += import_module(f"{__name__}.{name}").READERS
    return tuple(found)
