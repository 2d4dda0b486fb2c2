"""Profiles: what is promised for a GPU model, as data with sources.

`load` gives a frozen profile or says line by line why not, `for_pci_ids` finds the shipped one for a machine,
`findings` is the linter alone, `names` lists what ships, `unknown` says why a name is none of them.
"""

from pytest_gpuready.profiles.loader import findings, for_pci_ids, load, names, unknown
from pytest_gpuready.profiles.metrics import METRICS, UNITS, Metric

__all__ = ["METRICS", "UNITS", "Metric", "findings", "for_pci_ids", "load", "names", "unknown"]
