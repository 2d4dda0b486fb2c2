"""What stands behind the verdicts: site file, environment, evidence, and the kernel log about a part."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from pytest_gpuready import __version__
from pytest_gpuready.campaign.store import Store, digest
from pytest_gpuready.certificate.document import EvidenceEntry, SiteEntry
from pytest_gpuready.inventory import NodeFound, Site
from pytest_gpuready.model import Part, Slot

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
                    node=result.command.node,
                    exit_code=result.exit_code,
                    size_bytes=len(result.stdout.encode("utf-8", "replace")),
                    started=result.started,
                    duration_s=result.duration_s,
                )
            )
    return entries


def log_lines(docs: Mapping[str, NodeFound], part: Part, slot: Slot | None) -> list[str]:
    """The last kernel-log lines about this part (a node: about any GPU of it)."""
    found = docs.get(part.node)
    if found is None or found.node_doc is None:
        return []
    wanted = slot.bdf.rsplit(".", 1)[0] if slot and slot.bdf else ""
    lines = [line for line in found.node_doc.kernel_log.lines if not slot or (wanted and wanted in line.text)]
    return [f"[{line.t:12.6f}] {line.text}" for line in lines[-LOG_LINES:]]
