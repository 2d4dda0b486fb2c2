"""Which nodes a run is about, and through what they are reached: the command line first, then the site file."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.campaign.leased import Leased
from pytest_gpuready.campaign.progress import Screen
from pytest_gpuready.campaign.ways import Way, open_way
from pytest_gpuready.errors import InventoryError
from pytest_gpuready.inventory import Site, load_site, node_name
from pytest_gpuready.inventory.nodeset import expand, fold
from pytest_gpuready.transport import Transport
from pytest_gpuready.transport.recording import Recording
from pytest_gpuready.transport.replay import BUILT_IN, Replay

TRANSPORTS = ("local", "ssh", "slurm", "kubernetes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The nodes of a run by name, the transport to them, and the site file, of which only these nodes are left.

    `remote` is True where a name leads to a machine by somebody's configuration, so that who answers must be asked.
    """

    names: tuple[str, ...]
    transport: Transport
    site: Site | None
    remote: bool
    kind: str = "replay"
    left_out: str = ""
    """What of the site file's nodes was not asked for, in one line; "" where all are."""
    leased: Leased | None = None
    """The way to nodes that have to be let go at the end."""
    way: Transport | None = None
    """The transport itself, without what is wrapped around it."""

    def switches(self) -> Mapping[str, tuple[str, ...]] | None:
        """Node -> the switches or blocks that it hangs on, from the nearest on; a recording keeps and knows it. None
        where nobody is there to say it.

        Raises:
            TransportError: who knows it does not answer.
        """
        if isinstance(self.transport, Replay):
            return self.transport.switches()
        topology = getattr(self.way, "topology", None)
        if topology is None:
            return None
        if isinstance(self.transport, Recording):
            return self.transport.switches(lambda: topology().paths, self.names)
        paths: Mapping[str, tuple[str, ...]] = topology().paths
        return paths

    def begin(self) -> None:
        """Be ready to ask the nodes.

        Raises:
            TransportError: what they say is to be recorded, and cannot be.
        """
        if isinstance(self.transport, Recording):
            self.transport.begin(self.names)

    @property
    def unrecorded(self) -> str:
        """From where on a recording that was asked for is incomplete, and why; "" where it is not."""
        return self.transport.incomplete if isinstance(self.transport, Recording) else ""

    def close(self, *, release: bool) -> tuple[str, ...]:
        """Give everything back that was taken to reach the nodes; with `release` their lease, too. Returns the nodes
        that were let go."""
        gone: tuple[str, ...] = ()
        if self.leased:
            self.leased.rest()
            gone = self.leased.release() if release else ()
        close = getattr(self.way, "close", None)
        if close:
            close()
        return gone

    @property
    def jobs(self) -> str:
        """The Slurm jobs that have the nodes, for another process of this run; "" where there are none."""
        return ",".join(getattr(self.way, "jobs", ()))


def reach(
    *,
    nodes: str,
    transport: str,
    site: Path | None,
    replay: str,
    record: Path | None,
    joined: bool,
    screen: Screen | None,
    lease: Callable[[int], tuple[Mapping[str, str], float]] | None = None,
    job: str = "",
) -> Reach:
    """Open the way to the nodes.

    `nodes` is a set of names ("" for those of the site file), `transport` one of TRANSPORTS ("" for the site file's,
    else ssh where nodes are named and this machine where none are), `replay` and `record` a recording to read and to
    write; `joined` opens it for a process that joins the run of another; `lease` makes of
    the site file's level (0: none) the run's ticket for other machines, and how long it holds (None: no node is
    leased), `job` is the Slurm job that has them already.

    Raises:
        InventoryError: what was asked for contradicts itself or the site file, or the site file is wrong.
        TransportError: there is no such recording, or the transport is not installed here.
    """
    if transport and transport not in TRANSPORTS:
        raise InventoryError(f"--gpuready-transport: expected {', '.join(TRANSPORTS)}, found {transport[:40]!a}")
    asked = expand(nodes, groups=True) if nodes else ()
    if replay:
        if record or transport:
            other = "--gpuready-record" if record else "--gpuready-transport"
            raise InventoryError(f"expected --gpuready-replay or {other}, found both; a replay reaches no node")
        return _recorded(Replay(BUILT_IN.get(replay) or Path(replay)), site, asked)
    declared = load_site(site) if site else None
    kind = transport or (declared.transport if declared else "") or ("ssh" if asked else "local")
    if kind == "local":
        names: tuple[str, ...] = (node_name(declared, socket.gethostname()),)
        if declared and not asked and len(declared.nodes) > 1 and names[0] not in {n.name for n in declared.nodes}:
            raise InventoryError(
                f"expected this machine ({names[0]}) among the nodes of {declared.name}, found "
                f"{fold(node.name for node in declared.nodes)[:80]}; declare it, or name a transport that reaches them "
                "(--gpuready-transport ssh)"
            )
        if asked and asked != names:
            raise InventoryError(
                f"--gpuready-nodes: expected this machine ({names[0]}), found {fold(asked)[:80]}; "
                "name a transport that reaches other nodes (--gpuready-transport ssh)"
            )
    else:
        names = asked or (tuple(node.name for node in declared.nodes) if declared else ())
        if not names:
            raise InventoryError(
                f"expected nodes to reach by {kind}, found none; declare them in the site file, or --gpuready-nodes"
            )
    declared, left_out = _only(declared, asked, names) if asked else (declared, "")
    far = kind != "local"
    ticket, hold_s = lease(declared.level if declared else 0) if lease and far else ({}, 0.0)
    bare, way = open_way(kind, Way(site=declared, names=names, lease=ticket, job=job), screen)
    leased = Leased(way, hold_s, quiet=bare, joined=joined) if ticket else None
    way = leased or way
    if record:
        if not joined and (record / "recording.json").exists():
            raise InventoryError(f"expected no recording in {record} yet, found one; choose another directory")
        way = Recording(way, record, site=site, selected=names if asked and declared and declared.nodes else ())
    return Reach(
        names=names, transport=way, site=declared, remote=far, left_out=left_out, leased=leased, way=bare, kind=kind
    )


def _recorded(replay: Replay, site: Path | None, asked: tuple[str, ...]) -> Reach:
    """The nodes of a recording; one that holds a single node may stand for the one that the site file declares."""
    declared_in = site or replay.site
    declared = load_site(declared_in) if declared_in else None
    recorded = tuple(replay.meta.nodes)
    several = len(recorded) > 1
    if not asked and not site and declared and declared.nodes:
        # Those that were asked for then; whoever else is declared and is not in the recording is missing from it.
        asked = tuple(replay.meta.selected)
    if not several and not asked:
        names: tuple[str, ...] = (node_name(declared, recorded[0]),)
    else:
        names = asked or (tuple(node.name for node in declared.nodes) if declared and declared.nodes else recorded)
    strange = [] if asked else [name for name in recorded if several and name not in names]
    if declared and strange:
        raise InventoryError(
            f"expected every recorded node in {declared.name}, found {fold(strange)[:80]} recorded as well; declare it "
            "there, or name the nodes to judge (--gpuready-nodes)"
        )
    unknown = [name for name in names if name not in recorded]
    if len(unknown) == len(names):
        raise InventoryError(
            f"expected node {fold(names)[:80]} in the recording, found {fold(recorded)[:80]}; "
            "declare that node, or leave the site file out"
        )
    declared, left_out = _only(declared, asked, names) if asked else (declared, "")
    return Reach(names=names, transport=replay, site=declared, remote=several, left_out=left_out)


def _only(declared: Site | None, asked: tuple[str, ...], names: tuple[str, ...]) -> tuple[Site | None, str]:
    """The site file with the nodes that were asked for alone, and what was left out."""
    if declared is None or not declared.nodes:
        return declared, ""
    known = {node.name: node for node in declared.nodes}
    strange = [name for name in asked if name not in known]
    if strange:
        raise InventoryError(
            f"--gpuready-nodes: expected nodes of {declared.name}, found {fold(strange)[:80]}; declare them there"
        )
    site = dataclasses.replace(declared, nodes=tuple(known[name] for name in names))
    rest = len(declared.nodes) - len(names)
    if not rest:
        return site, ""
    return site, f"{len(names)} of the {len(declared.nodes)} nodes of {declared.name} were asked for: {fold(names)}"
