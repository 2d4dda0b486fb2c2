"""What stands behind the verdicts: site file, environment, evidence, and the kernel log about a part."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping

from pytest_gpuready import __version__
from pytest_gpuready.campaign.store import Store, digest, key_of
from pytest_gpuready.certificate.document import EvidenceEntry, SiteEntry
from pytest_gpuready.errors import GpuReadyError
from pytest_gpuready.inventory import NodeFound, Site
from pytest_gpuready.model import Slot
from pytest_gpuready.model.agent_doc import KernelLog
from pytest_gpuready.parse.agent import after_doc
from pytest_gpuready.probes.after import LOADED_LEVELS

LOG_LINES = 12
"""Kernel-log lines shown beside a finding."""


def site_entry(site: Site | None) -> SiteEntry | None:
    """The site file that was applied, if any."""
    if site is None:
        return None
    return SiteEntry(
        name=site.name,
        sha256=site.sha256,
        provider=site.provider,
        customer=site.customer,
        agreement=site.agreement,
    )


def environment(docs: Mapping[str, NodeFound], versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of the judging process, then what each node said of its kernel, container, libraries and settings."""
    said = {"pytest-gpuready": __version__, "python": platform.python_version(), **versions}
    for name, found in docs.items():
        if found.node_doc:
            said[f"{name} kernel"] = found.node_doc.kernel
            if found.node_doc.container:
                said[f"{name} container"] = found.node_doc.container
            for variable, value in sorted(found.node_doc.environment.items()):
                said[f"{name} {variable}"] = value
        if found.nvml_doc:
            for library, version in sorted(found.nvml_doc.libraries.items()):
                said[f"{name} {library}"] = version
    return said


def evidence(store: Store) -> list[EvidenceEntry]:
    """Every raw output of the run, earlier attempts included."""
    entries = []
    for key in store.scopes():
        taken = store.read(key)
        for result in (*taken.earlier, *taken.results) if taken else ():
            sha256 = digest(result)
            entries.append(
                EvidenceEntry(
                    sha256=sha256,
                    file=f"evidence/{sha256}.txt",
                    command=result.command.line,
                    says=result.command.says,
                    node=result.command.node,
                    exit_code=result.exit_code,
                    size_bytes=len(result.stdout.encode("utf-8", "replace")),
                    started=result.started,
                    duration_s=result.duration_s,
                )
            )
    return entries


def latest_log(docs: Mapping[str, NodeFound], store: Store, node: str) -> KernelLog | None:
    """The kernel log since boot of a node as it was read last: after its last load, else before any."""
    for level in reversed(LOADED_LEVELS):
        taken = store.read(key_of(f"after-{level}", node))
        for result in taken.results if taken else ():
            with contextlib.suppress(GpuReadyError):
                return after_doc(result, level).log
    found = docs.get(node)
    return found.node_doc.kernel_log if found and found.node_doc else None


def log_lines(log: KernelLog | None, slot: Slot | None) -> list[str]:
    """The last lines of a kernel log about the GPU of a slot (None: about any GPU of the node)."""
    wanted = slot.bdf.rsplit(".", 1)[0] if slot and slot.bdf else ""
    lines = [line for line in (log.lines if log else ()) if not slot or (wanted and wanted in line.text)]
    return [f"[{line.t:12.6f}] {line.text}" for line in lines[-LOG_LINES:]]
