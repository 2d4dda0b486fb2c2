"""An acceptance run from its settings to its certificate; pytest drives it, and knows nothing of how it is done."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready import __version__
from pytest_gpuready.campaign.continued import continued
from pytest_gpuready.campaign.directory import Directory, claim
from pytest_gpuready.campaign.failed import failed_nodes, optional_fails
from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.first import ask_all, ask_here, hold_to_site, not_leased, read_first
from pytest_gpuready.campaign.lease import Lease, default_path, ticket
from pytest_gpuready.campaign.leased import HOLD_S
from pytest_gpuready.campaign.plan import Asked, plan
from pytest_gpuready.campaign.plan_lines import plan_lines
from pytest_gpuready.campaign.progress import Screen
from pytest_gpuready.campaign.reach import Reach, reach
from pytest_gpuready.campaign.run import Identity, NodeIdentity, Run, ended, join_run, open_run
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.campaign.taking import Taking
from pytest_gpuready.certificate import background
from pytest_gpuready.certificate.build import Facts, Record, build
from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.html import render
from pytest_gpuready.certificate.junit import junit_chunks
from pytest_gpuready.certificate.lines import one_line
from pytest_gpuready.certificate.nodes import node_entries
from pytest_gpuready.certificate.opening import header_lines, long_s, seen
from pytest_gpuready.certificate.written import json_chunks
from pytest_gpuready.errors import InventoryError, StoreError, TransportError
from pytest_gpuready.files import write_together
from pytest_gpuready.inventory import Site, applies, resolve
from pytest_gpuready.inventory.nodeset import fold
from pytest_gpuready.inventory.racks import asked_for, with_switches
from pytest_gpuready.inventory.ways import SshWay
from pytest_gpuready.model import Inventory, Node, Part, Profile
from pytest_gpuready.model.agent_doc import KernelLog
from pytest_gpuready.probes import Probe
from pytest_gpuready.probes.after import LOADED_LEVELS, AfterProbe
from pytest_gpuready.probes.copies import CopiesProbe, TogetherProbe
from pytest_gpuready.probes.dcgm import dcgm_probes
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.probes.soak import refused, seconds, told
from pytest_gpuready.probes.stress import stress_probes
from pytest_gpuready.profiles import load
from pytest_gpuready.transport import Transport
from pytest_gpuready.transport.replay import Replay

FEW = 8
"""Nodes up to which the certificate of a run that has just begun lists every cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the person asked for. `level` is None where no `-m levelN` was given; `joined` opens a run that the
    controlling process has opened already."""

    out: Path
    site: Path | None = None
    profile: str = ""
    replay: str = ""
    nodes: str = ""
    """The nodes to reach, "node[001-512]"; "" for those of the site file, or this machine."""
    transport: str = ""
    record: Path | None = None
    keep_going: bool = False
    level: int | None = None
    named_level: int = 0
    """The highest level that another marker expression names: the run aims at least that high."""
    default_level: int = 0
    """The level to aim at where neither the person nor the site file names one; 0: the highest that applies."""
    burn: str = ""
    """How long a soak is asked for, "4h"; "" for none."""
    command: str = "pytest"
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    joined: bool = False
    job: str = ""
    """The Slurm job that has the nodes of a joined run; "" where nobody has to know one."""
    only_collected: bool = False
    """Nothing is measured but the inventory, so nobody else is kept from the node."""
    dry_run: bool = False
    """Of those that only collect: the plan is asked for."""


class Acceptance:
    """An open run: inventory and profile are known, measurements are taken when asked for."""

    def __init__(self, settings: Settings, screen: Screen | None = None) -> None:
        """Open the run; long commands are shown on the screen while they run.

        Raises:
            GpuReadyError: a file is wrong, the node is leased to another run, or the directory cannot be used.
        """
        self.settings = settings
        self._logs: dict[str, KernelLog | None] = {}
        self.reach: Reach = reach(
            nodes=settings.nodes,
            transport=settings.transport,
            site=settings.site,
            replay=settings.replay,
            record=settings.record,
            joined=settings.joined,
            screen=screen,
            lease=None if settings.only_collected else self._ticket,
            job=settings.job,
        )
        self.site: Site | None = self.reach.site
        here = not (self.reach.remote or settings.replay or settings.joined or settings.only_collected)
        self._lease = Lease(default_path(), node=self.reach.names[0], out=settings.out) if here else None
        self._directory: Directory | None = None
        try:
            # Before any node is asked: who is refused the directory has touched none.
            self._directory = None if settings.joined else claim(settings.out)
            self._open(self.reach)
        except BaseException:
            gone = self.close()
            if gone and screen:
                screen.line(let_go(gone))
            raise

    def _ticket(self, site_level: int) -> tuple[Mapping[str, str], float]:
        """What leases the nodes of this run, and for how long at a time, in seconds."""
        hold_s = HOLD_S[self.settings.level or max(site_level or 4, self.settings.named_level)]
        return ticket(self.settings.out, hold_s=hold_s), hold_s

    def close(self) -> tuple[str, ...]:
        """Let others measure the nodes; returns those that had to be told."""
        if self._lease:
            self._lease.release()
            self._lease = None
        # Who was refused the directory would have the nodes of the run that holds it, and may not let them go.
        gone = self.reach.close(release=self._directory is not None)
        if self._directory:
            self._directory.give_up()
            self._directory = None
        return gone

    def conclude(
        self, records: Mapping[tuple[str, str], Sequence[Record]], *, finished: bool, blockers: Sequence[str] = ()
    ) -> Certificate:
        """Build the certificate from the store, read once more, and what the tests said; put its files in place.

        Raises:
            StoreError: the files cannot be written; what lies there then still says INCOMPLETE.
        """
        if finished or records:  # what has just been opened has just been read
            self.findings.reread()
        self._logs.clear()
        # Where there are many nodes, what is written before anything is measured does not go through all cells.
        opening = not finished and not records and len(self.inventory.nodes) > FEW
        if finished:
            self.run.store.restore_evidence()
        standing = functools.cache(lambda: failed_nodes(self.findings, self._probes).union(self.run.stands))
        certificate = build(
            findings=self.findings,
            opening=opening,
            records=records,
            facts=Facts(
                started=self.run.started,
                issued=_now(),
                finished=finished,
                level_asked=self.level,
                basis=self.basis,
                basis_note=self.basis_note,
                keep_going=self.settings.keep_going,
                blockers=tuple(blockers),
                command=self.settings.command,
                site=background.site_entry(self.site),
                environment=background.environment(self._node_docs, self.settings.versions),
                standing=standing,
                nodes=tuple(node_entries(self.findings, self._node_docs)),
                evidence=tuple(background.evidence(self.run.store)),
            ),
            log_of=self.log_lines,
        )
        out = self.run.out
        files: dict[Path, bytes | Iterable[bytes]] = {
            out / "certificate.html": render(certificate).encode(),
            out / "junit.xml": junit_chunks(certificate),
        }
        if finished:
            goes_on = certificate.judged == "INCOMPLETE"
            beside = optional_fails(self.findings, self._probes).values() if goes_on else ()
            noted = [cell for cells in beside for cell in cells]
            files[out / "run.json"] = ended(out, certificate.judged, standing() if goes_on else (), noted)
        files[out / "certificate.json"] = json_chunks(certificate)  # the last: till all are there it says INCOMPLETE
        try:
            write_together(files)
        except OSError as error:
            raise StoreError(
                f"expected to write the certificate to {out}, found {error.strerror}; make room and run again"
            ) from error
        return certificate

    def log_lines(self, part: Part) -> list[str]:
        """The last kernel-log lines about this part (a node: about any GPU of it), of the latest log that was read."""
        if part.node not in self._logs:
            self._logs[part.node] = background.latest_log(self._node_docs, self.run.store, part.node)
        return background.log_lines(self._logs[part.node], self.inventory.slot(part))

    def header(self) -> list[str]:
        """What is about to be tested, in a few lines of ASCII."""
        run = self.run
        where = f"out {run.out}/ ({'continued' if run.continued else 'new'})"
        if self.settings.only_collected:
            word = "dry run" if self.settings.dry_run else "only collected"
            where = f"{word}: nothing is measured and nothing is written"
        return header_lines(
            self.profile,
            self.inventory,
            self.level,
            basis=(self.basis, self.basis_note),
            seen=seen(*self._node_docs.values()),
            long_s=0.0 if self.basis == "replay" else long_s(self._probes, self.profile, self.inventory, self.level),
            where=where,
            moved_to=f"{run.moved_to}/" if run.moved_to else "",
        )

    def plan(self, asked: Asked, *, others: int) -> tuple[list[str], bool]:
        """What the tests of these clauses would measure, in their order, and whether that can be done on all nodes;
        `others` are tests that judge no clause.

        Raises:
            StoreError: the run directory cannot be used.
        """
        planned = plan(
            asked=asked,
            firsts=self._probes[:2],
            taken=self._first.taken,
            unreached=self._first.unreached,
            store=self.run.store,
            findings=self.findings,
            level=self.level,
            keep_going=self.settings.keep_going,
            silent=self._first.silent(),
        )
        kind = self.reach.kind
        by = {"local": "this machine", "replay": f"replay of {self.basis_note}"}.get(kind, kind)
        bounds = {"ssh": (self.site.ssh if self.site else SshWay()).fanout}
        if self.site:
            bounds["kubernetes"] = self.site.kubernetes.fanout
        return plan_lines(planned, by=by, at_once=bounds.get(kind, 0), others=others), not planned.silent

    # --- opening -------------------------------------------------------------------------------------------------

    def _open(self, reach: Reach) -> None:
        settings, site = self.settings, self.site
        self._probes: list[Probe] = [
            NodeProbe(site.environment if site else {}),
            NvmlProbe(),
            CopiesProbe(),
        ]
        firsts = self._probes[:2]
        if not settings.joined:
            reach.begin()
        store = Store(settings.out, reach.transport)
        if settings.joined:
            keys = [key_of(probe.name, name) for probe in firsts for name in reach.names]
            first = read_first(firsts, reach.names, {key: store.read(key) or Taken() for key in keys})
            if reach.leased:
                reach.leased.adopt(name for name in reach.names if name not in first.unreached)
        elif reach.remote:
            first = ask_all(firsts, reach.names, reach.transport, site)
        else:
            first = ask_here(firsts, reach.names[0], reach.transport)
        self._first = first
        option = settings.profile or None
        profile = hold_to_site(first, firsts, site, option)
        self._node_docs = first.docs
        self.profile: Profile = profile or load("base")
        self._probes.append(TogetherProbe(self.profile))
        self._probes += dcgm_probes(self.profile, seconds(settings.burn))
        self._probes += stress_probes(seconds(settings.burn))
        self._probes += [AfterProbe(level, self.profile) for level in LOADED_LEVELS]
        self.inventory: Inventory = resolve(site, self._node_docs, profile=profile, option=option)
        if asked_for(self.profile, self.inventory):
            self.inventory = with_switches(self.inventory, reach.switches)
        elif settings.record:
            with contextlib.suppress(TransportError):  # whoever judges the recording by another profile may want them
                reach.switches()
        self.basis, self.basis_note = self._basis(reach.transport)
        default = site.level if site and site.level else settings.default_level or self._highest_level()
        self.level = settings.level or max(default, settings.named_level)
        self.findings = Findings(store=store, probes=self._probes, profile=self.profile, inventory=self.inventory)
        self.taking = Taking(
            store=store,
            findings=self.findings,
            keep_going=settings.keep_going,
            unreached=first.unreached,
            gives_up=reach.remote,
        )
        self.assume(*filter(None, (reach.left_out, *self._differences())))
        self.assume(*not_leased(first.taken))
        if settings.burn:
            if why := refused(settings.burn, self.inventory, self.level):
                raise InventoryError(why)
            self.assume(told(settings.burn, self.inventory))
        if settings.joined:
            self.run: Run = join_run(settings.out, store)
            return
        assert self._directory is not None
        self.run = open_run(
            self._directory,
            store=store,
            identity=self._identity(),
            fresh=first.taken,
            findings=self.findings,
            probes=self._probes,
            level=self.level,
            anew=settings.record is not None,
        )
        self.assume(*continued(self.run, [node.name for node in self.inventory.nodes]))
        if not settings.only_collected:
            self.conclude({}, finished=False)

    def _highest_level(self) -> int:
        """The highest level that has something to judge on the nodes that are there."""
        levels = {
            clause.level
            for clause in self.profile.clauses
            for node in self.inventory.nodes
            if not clause.not_applicable and not applies(clause, node)
        }
        return max(levels, default=1)

    def assume(self, *lines: str) -> None:
        """Add lines to what the certificate prints as assumed."""
        self.inventory = dataclasses.replace(self.inventory, assumptions=(*self.inventory.assumptions, *lines))
        self.findings.inventory = self.inventory

    def _differences(self) -> list[str]:
        """What was asked for or found otherwise than the site file says, to be printed beside the assumptions."""
        said = [
            f"{node.name} calls itself {one_line(node.host)[:64]}"
            for node in self.inventory.nodes
            if node.host not in ("", node.name)
        ]
        agreed = self.site.level if self.site else 0
        if agreed and self.settings.level and self.settings.level != agreed:
            asked = self.settings.level
            said.append(f"level {asked} was asked for (-m level{asked}); the site file says {agreed}")
        return said

    def _basis(self, transport: Transport) -> tuple[str, str]:
        if isinstance(transport, Replay):
            meta = transport.meta
            note = f"{transport.directory.name}/ (recorded {meta.recorded[:10]})"
            return "replay", f"{note}; {meta.composed}" if meta.composed else note
        if self.inventory.stand_in:
            return "stand-in", self.inventory.stand_in
        return "hardware", ""

    def _identity(self) -> Identity:
        return Identity(
            nodes={node.name: _identity_of(node) for node in self.inventory.nodes},
            product=__version__,
            profile=self.profile.sha256,
            site=self.site.sha256 if self.site else "",
            basis=f"{self.basis} {self.basis_note}".strip(),
            burn=self.settings.burn,
        )


def let_go(nodes: Sequence[str]) -> str:
    """What somebody wants to know who ended a run before its end."""
    return f"let go of {fold(nodes)}: other runs may have {'it' if len(nodes) == 1 else 'them'}"


def _identity_of(node: Node) -> NodeIdentity:
    gpus = [slot.gpu for slot in node.slots if slot.gpu]
    return NodeIdentity(
        boot_id=node.boot_id,
        gpus=[gpu.uuid or gpu.bdf for gpu in gpus],
        driver=[f"{node.driver} {node.kernel}", *(f"{gpu.vbios} {gpu.inforom}" for gpu in gpus)],
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
