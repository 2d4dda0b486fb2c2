"""What a continued run says of what it keeps and what it measures again."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.campaign.run import Run
from pytest_gpuready.inventory.nodeset import fold

FEW = 8
"""Measurements that are named; more are counted."""


def continued(run: Run, names: Sequence[str]) -> list[str]:
    """What is measured again in a continued run of these nodes, to be printed beside the assumptions."""
    said = []
    again = run.measured_again
    if run.anew:
        said.append(f"started anew: the earlier run is kept in {run.moved_to}/ and not continued: {run.anew}")
    if run.before:
        what = ", ".join(run.before) if len(run.before) <= FEW else f"{len(run.before)} parts of clauses"
        said.append(f"continued: not required, failed before and measured again: {what}")
    if len(names) > 1 and (again or run.renewed or run.stands):
        others = [name for name in names if name not in (*run.renewed, *run.stands)]
        partly = [name for name in others if name in run.touched]
        kept = [name for name in others if name not in run.touched]
        parts = [f"{fold(kept)} kept"] if kept else []
        parts += [f"{fold(run.renewed)} measured anew (not reached, rebooted or changed)"] if run.renewed else []
        parts += [f"of {fold(partly)} what proved nothing measured again"] if partly else []
        if run.stands:
            parts.append(f"{fold(run.stands)} failed and not measured again (another --gpuready-out measures it anew)")
        return [*said, f"continued: {', '.join(parts)}"]
    if again:
        what = ", ".join(again) if len(again) <= FEW else f"{len(again)} measurements"
        said.append(f"continued: {what} measured again; the earlier attempt proved nothing and stays in the evidence")
    if run.renewed:
        nodes = fold(run.renewed)
        said.append(f"continued: {nodes} not as before (not reached, rebooted or changed), so all of it measured anew")
    return said
