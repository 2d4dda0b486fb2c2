"""Whether an answer is one of the node that was asked, in the boot in which it was met first."""

from __future__ import annotations

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.inventory.identity import same_host
from pytest_gpuready.model import CommandResult, Node
from pytest_gpuready.parse.agent import envelope


def another(node: Node, result: CommandResult, probe: str) -> str:
    """Why a result is not one of this node as it was at the start, "" where it is; no document names nobody."""
    try:
        said = envelope(result, probe)
    except (ParseError, ToolError):
        return ""
    if said.boot_id != node.boot_id:
        return (
            f"{node.name}: expected answers of boot {node.boot_id or 'unknown'}, found one of boot "
            f"{said.boot_id or 'nobody knows which'}; the node rebooted or another one answered: start again"
        )
    if node.host and not same_host(said.host, node.host):
        return (
            f"{node.name}: expected answers of the host {node.host}, found one of {said.host}; "
            "see where its name leads, and start again"
        )
    return ""
