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
    if len(names) > 1 and (again or run.renewed):
        partly = [name for name in names if name in run.touched and name not in run.renewed]
        kept = [name for name in names if name not in run.touched and name not in run.renewed]
        said += [f"{fold(kept)} kept"] if kept else []
        said += [f"{fold(run.renewed)} measured anew (not reached, rebooted or changed)"] if run.renewed else []
        said += [f"of {fold(partly)} what proved nothing measured again"] if partly else []
        return [f"continued: {', '.join(said)}"] if said else []
    if again:
        what = ", ".join(again) if len(again) <= FEW else f"{len(again)} measurements"
        said.append(f"continued: {what} measured again; the earlier attempt proved nothing and stays in the evidence")
    if run.renewed:
        nodes = fold(run.renewed)
        said.append(f"continued: {nodes} not as before (not reached, rebooted or changed), so all of it measured anew")
    return said
