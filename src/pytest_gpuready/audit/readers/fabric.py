"""The network fabric: ports, counters, links and network cards."""

from __future__ import annotations

from pytest_gpuready.audit.reader import Reader
from pytest_gpuready.audit.readers import ethtool, ib_errors, ib_ports, mlxlink

READERS: tuple[Reader, ...] = (*ib_ports.READERS, *ib_errors.READERS, *mlxlink.READERS, *ethtool.READERS)
