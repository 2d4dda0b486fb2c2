"""What should be there (site file, profile) beside what is there (bus, NVML), and what was assumed.

Use: `load_site`, ask the nodes, `choose_profile`, `resolve`; `applies` says why a clause does not hold on a node.
"""

from pytest_gpuready.inventory.found import NodeFound, bdf_of
from pytest_gpuready.inventory.resolve import applies, choose_profile, denied, node_name, resolve
from pytest_gpuready.inventory.site import DeclaredGpu, DeclaredNode, Exclusion, Site, load_site

__all__ = [
    "DeclaredGpu",
    "DeclaredNode",
    "Exclusion",
    "NodeFound",
    "Site",
    "applies",
    "bdf_of",
    "choose_profile",
    "denied",
    "load_site",
    "node_name",
    "resolve",
]
