"""Who answered: a node that is another one than its name says proves nothing about the one that was meant.

Through a transport a name leads to a machine by somebody's configuration (DNS, ssh_config, a scheduler). The machine
says what it calls itself and which boot it runs; both are held against what was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pytest_gpuready.inventory.site import Site
from pytest_gpuready.parse.yaml_file import shown


def impostors(answers: Mapping[str, tuple[str, str]], site: Site | None) -> dict[str, str]:
    """Of the nodes that answered, name -> (host name, boot id), those that are not who they should be, and why.

    A host name may have more of its domain than the node's name, or less. Where it rightly is another one, the site
    file says so (`host`).
    """
    declared = {node.name: node.host for node in site.nodes} if site else {}
    wrong: dict[str, str] = {}
    machines: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (host, boot_id) in answers.items():
        expected = declared.get(name) or name
        if not same_host(host, expected):
            wrong[name] = (
                f"{name}: expected the host {expected} to answer, found one that calls itself {shown(host)}; correct "
                f"where the name leads to, or declare its host in the site file"
            )
            continue
        machines["boot", boot_id or f"unknown of the host {host.lower()}"].append(name)
        machines["host", host.lower().rstrip(".")].append(name)
    return {**shared(machines), **wrong}


def shared(things: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, str]:
    """Of nodes that should be machines of their own, (kind, what) -> nodes, those that have one thing together."""
    wrong: dict[str, str] = {}
    for (kind, what), names in things.items():
        for name in names if len(set(names)) > 1 else ():
            others = ", ".join(sorted(set(names) - {name}))
            wrong.setdefault(
                name,
                f"{name}: expected a machine of its own, found {kind} {shown(what)} behind {others[:120]} as well; "
                "correct where the names lead to",
            )
    return wrong


def same_host(one: str, other: str) -> bool:
    """True where both can be one host: label by label, as far as both go."""
    ours, theirs = (name.lower().rstrip(".").split(".") for name in (one, other))
    return all(a == b for a, b in zip(ours, theirs, strict=False))
