"""What has failed in a run and is not measured away: nodes that stand as they are, and cells of optional clauses.

A FAIL of a required clause stands in the way of acceptance, so the node keeps all that it has. One of an optional
clause does not, and what was lost on that node is measured again; it is noted, so that the certificate can tell it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import key_of
from pytest_gpuready.model import Outcome, Part
from pytest_gpuready.probes import Probe


def all_scopes(findings: Findings, probes: Sequence[Probe]) -> list[tuple[Probe, Part]]:
    """Every scope of these probes on every node."""
    return [(probe, scope) for probe in probes for node in findings.inventory.nodes for scope in probe.scopes(node)]


def failed_nodes(findings: Findings, probes: Sequence[Probe]) -> frozenset[str]:
    """The nodes of which something required has FAILed, if only in one run of several or an earlier attempt."""
    return frozenset(scope.node for probe, scope in all_scopes(findings, probes) if findings.failed(probe, scope))


def optional_fails(findings: Findings, probes: Sequence[Probe]) -> dict[str, list[str]]:
    """Scope by its name in the store -> what it FAILs now of the clauses that are not required:
    "STRESS-66 on node01/gpu0". Scopes that FAIL none of these are left out."""
    found: dict[str, list[str]] = {}
    for probe, scope in all_scopes(findings, probes):
        if not findings.is_stored(probe, scope):
            continue
        for clause, verdict in findings.verdicts_of(probe, scope):
            if verdict.outcome is Outcome.FAIL and not clause.required:
                found.setdefault(key_of(probe.name, scope.name), []).append(f"{clause.id} on {verdict.part}")
    return found
