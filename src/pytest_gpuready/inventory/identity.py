"""Who answered: a node that is another one than its name says proves nothing about the one that was meant.

Through a transport a name leads to a machine by somebody's configuration (DNS, ssh_config, a scheduler). The machine
says what it calls itself and which boot it runs; both are held against what was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pytest_gpuready.inventory.site import Site
from pytest_gpuready.parse.yaml_file import shown


def impostors(answers: Mapping[str, tuple[str, str]], site: Site | None) -> dict[str, str]:
    """Of the nodes that answered, name -> (host name, boot id), those that are not who they should be, and why.

    A host name counts without its domain. Where it rightly is another one, the site file says so (`host`).
    """
    declared = {node.name: node.host for node in site.nodes} if site else {}
    wrong: dict[str, str] = {}
    for name, (host, _) in answers.items():
        expected = declared.get(name) or name
        if _short(host) != _short(expected):
            wrong[name] = (
                f"{name}: expected the host {expected} to answer, found one that calls itself {shown(host)}; correct "
                f"where the name leads to, or declare its host in the site file"
            )
    boots = defaultdict(list)
    for name, (_, boot_id) in answers.items():
        if boot_id:
            boots[boot_id].append(name)
    for boot_id, names in boots.items():
        for name in names if len(names) > 1 else ():
            others = ", ".join(other for other in names if other != name)
            wrong.setdefault(
                name,
                f"{name}: expected a machine of its own, found boot {boot_id} behind {others[:120]} as well; "
                "correct where the names lead to",
            )
    return wrong


def _short(host: str) -> str:
    return host.split(".", maxsplit=1)[0].lower()
