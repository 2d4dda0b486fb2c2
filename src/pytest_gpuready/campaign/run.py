"""One acceptance run: its directory, its identity, and how an earlier run in the same directory is treated.

A run that ended INCOMPLETE (or was killed) is continued when it is about the same thing: boot id, GPUs, driver,
profile, site file and basis. Then only what proved itself is kept (PASS, MARGINAL, OBSERVED, judged again from the
store); what did not is measured again and stays among the evidence as an earlier attempt. So does what was seen after a
load: it is looked at again, behind the loads of today. A run that has seen a FAIL of a required clause, if only in one
of several measurements, is never continued: measuring until it fits is not acceptance. Nor is one whose store no longer
holds all that was measured. Anything else in the directory is moved to `DIR.N` and a new run starts.

What a node says of itself today is always judged. Where what it said before FAILed a clause both count, so the worse of
the two stands. A FAIL of an optional clause stands beside what is continued; where something else of the same
measurement is lacking, that is measured again, and the FAIL is told as one that was there before.

A run over several nodes is continued node by node: one that is the same as before keeps what proved itself, one that
has seen a FAIL keeps all of it, and one that could not be reached or is another than before (it was rebooted, a GPU was
changed) is measured anew. Where it is that one which has seen a FAIL, or the level is lower now than the FAIL may be,
nothing is continued. From the first moment on, the certificate in the directory is one of this run and says
INCOMPLETE until the end. The directory is claimed before (`campaign.directory`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_gpuready.campaign.directory import RUN, Directory
from pytest_gpuready.campaign.failed import all_scopes, failed_nodes, optional_fails
from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.errors import StoreError, UnreachedError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.inventory.nodeset import fold
from pytest_gpuready.model import Outcome
from pytest_gpuready.probes import Probe, follows_level


class NodeIdentity(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A node as it is: which boot, which GPUs, and the versions of what they run."""

    boot_id: str
    gpus: list[str]
    driver: list[str]


class Identity(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What must be equal for an earlier run to be continued. An unknown boot id ("") equals none."""

    nodes: dict[str, NodeIdentity]
    profile: str
    site: str
    basis: str
    product: str
    burn: str = ""

    def same_as(self, other: Identity) -> frozenset[str]:
        """The nodes that are the same machine in the same state in both; none where the rules are not the same."""
        if msgspec.structs.replace(self, nodes=other.nodes) != other or self.nodes.keys() != other.nodes.keys():
            return frozenset()
        return frozenset(name for name, node in self.nodes.items() if node.boot_id and node == other.nodes[name])

    def is_away(self, other: Identity) -> bool:
        """True where both are about the same nodes, and of all that were there none answers in the other: then nobody
        knows which profile would be theirs, or whether they are stand-ins."""
        if self.nodes.keys() != other.nodes.keys() or (self.site, self.burn) != (other.site, other.burn):
            return False
        if self.basis != other.basis and "replay" in self.basis[:6] + other.basis[:6]:
            return False
        then, now = ([n for n in one.nodes.values() if n.boot_id or n.gpus] for one in (self, other))
        return bool(then) and not now


class RunFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`run.json`: who this run is. `ended` holds the final status, "" while it goes on; `failed` the nodes of which
    something required has FAILed, if only in one run of several: what they said of themselves counts from the start,
    the rest from the end on; `optional` what has FAILed that is not required. `level` is the highest that it has
    aimed at."""

    gpuready_run: int
    started: str
    identity: Identity
    ended: str = ""
    failed: list[str] = []
    optional: list[str] = []
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open run directory. `measured_again` names scopes whose earlier attempt proved nothing, `touched` their nodes,
    `renewed` nodes that are not as they were, `stands` nodes that keep all they have, for something required of them
    has failed; `before` is what failed of optional clauses and does not as it is stored now; `anew` says why an earlier
    run is not continued, "" where it is, or where there was none that could be."""

    out: Path
    started: str
    continued: bool
    moved_to: Path | None
    measured_again: tuple[str, ...]
    touched: frozenset[str] = frozenset()
    renewed: tuple[str, ...] = ()
    stands: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    anew: str = ""
    store: Store


def open_run(
    directory: Directory,
    *,
    store: Store,
    identity: Identity,
    fresh: dict[str, Taken],
    findings: Findings,
    probes: Sequence[Probe],
    level: int = 0,
    anew: bool = False,
) -> Run:
    """Continue the run in this directory or start a new one; `fresh` are results taken just now (the inventory's).

    `level` is what the run aims at. With `anew` no run is continued: what is recorded of this one has to be all of it.

    Raises:
        LeaseError: another run is writing to this directory.
        StoreError: the directory cannot be read or written.
        UnreachedError: a run could be continued, and none of its nodes is reachable now.
    """
    out = directory.out
    same: frozenset[str] = frozenset()
    failed: Set[str] = frozenset()
    optional: dict[str, list[str]] = {}
    noted: Set[str] = frozenset()
    moved_to = None
    started, why = _now(), ""
    try:
        if (out / RUN).exists():
            earlier = _read(out)
            if earlier is not None and not anew and earlier.ended in ("", "INCOMPLETE"):
                same, failed, why = _continuable(
                    earlier, identity, store, findings=findings, probes=probes, level=level
                )
                level = max(level, earlier.level) if same else level
            if same and earlier:
                started = earlier.started
                optional = optional_fails(findings, probes)
                noted = {*earlier.optional, *(cell for cells in optional.values() for cell in cells)}
            else:
                moved_to = directory.move_aside()
        run = RunFile(
            gpuready_run=1,
            started=started,
            identity=identity,
            failed=sorted(failed),
            optional=sorted(noted),
            level=level,
        )
        _write(out, run)
        continued = bool(same)
        again: dict[str, str] = {}
        if continued:
            again = _forget(store, findings, probes, same, failed)
        scopes = {key_of(probe.name, scope.name): scope for probe, scope in all_scopes(findings, probes)}
        stands = {key for key in fresh if key in optional or (key in scopes and scopes[key].node in failed)}
        for key, taken in fresh.items():
            store.put(key, _with_today(store.read(key) if continued else None, taken, stands=key in stands))
        findings.reread()
        still = {cell for cells in optional_fails(findings, probes).values() for cell in cells} if noted else noted
        store.begin()
        # Who is killed later notes nothing any more: what nodes fail by their own word is noted now.
        said = {key.partition("@")[0] for key in fresh}
        seen = failed_nodes(findings, [probe for probe in probes if probe.name in said])
        if seen - failed:
            _write(out, msgspec.structs.replace(run, failed=sorted(seen | failed)))
    except OSError as error:
        raise StoreError(
            f"expected to write in {out}, found {error.strerror}; choose another --gpuready-out"
        ) from error
    return Run(
        out=out,
        started=started,
        continued=continued,
        moved_to=moved_to,
        measured_again=tuple(again),
        touched=frozenset(again.values()),
        renewed=tuple(name for name in identity.nodes if continued and name not in same),
        stands=tuple(sorted(failed)),
        before=tuple(sorted(noted - still)),
        anew=why,
        store=store,
    )


def _continuable(
    earlier: RunFile, identity: Identity, store: Store, *, findings: Findings, probes: Sequence[Probe], level: int
) -> tuple[frozenset[str], frozenset[str], str]:
    """Nodes that go on as they were and those of them that have failed; none, and why, where a new run starts."""
    nothing: frozenset[str] = frozenset()
    same = earlier.identity.same_as(identity)
    if not same:
        if earlier.identity.is_away(identity):
            raise UnreachedError(
                "expected to continue the run that lies there, found none of its nodes reachable; it is left as it is: "
                "start again when they are, or choose another --gpuready-out"
            )
        return nothing, nothing, ""
    if damage := store.damage():
        return nothing, nothing, f"{damage}; what it said would be measured until it fits"
    failed = (failed_nodes(findings, probes) & same) | set(earlier.failed)
    others = identity.nodes.keys() - same
    # A node that is away or another one now may not leave behind what it failed in; of a run that was killed nobody
    # has noted what that was.
    lost = failed | (_measured(store, others) if not earlier.ended else set())
    if len(identity.nodes) == 1 and failed:
        return nothing, nothing, "it has seen a FAIL"
    if gone := sorted(lost & others):
        before = "failed before" if set(gone) <= failed else "measured before, and nobody noted what failed"
        return nothing, nothing, f"{fold(gone)}: {before}; now not reached, rebooted or changed"
    if failed and level < earlier.level:
        why = f"{fold(sorted(failed))}: failed while level {earlier.level} was aimed at, and now it is level {level}"
        return nothing, nothing, why
    return same, failed, ""


def join_run(out: Path, store: Store) -> Run:
    """The run that another process opened in this directory.

    Raises:
        StoreError: there is none.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    return Run(out=out, started=run.started, continued=True, moved_to=None, measured_again=(), store=store)


def ended(out: Path, status: str, failed: Iterable[str] = (), optional: Iterable[str] = ()) -> bytes:
    """The content of `run.json` once the run has ended: ACCEPTED and REJECTED are finished, INCOMPLETE goes on.

    `failed` are the nodes of which something required has FAILed, `optional` is what else has.

    Raises:
        StoreError: there is no run in this directory.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    failed, optional = sorted({*run.failed, *failed}), sorted({*run.optional, *optional})
    return _encode(msgspec.structs.replace(run, ended=status, failed=failed, optional=optional))


def _with_today(old: Taken | None, today: Taken, *, stands: bool) -> Taken:
    """What a node says of itself today, beside what it said before: that counts as well where it `stands`, and stays
    evidence where it does not."""
    if old is None:
        return today
    if stands:
        results = [*old.results, *today.results]
        return msgspec.structs.replace(today, results=results, earlier=[*old.earlier, *today.earlier])
    return msgspec.structs.replace(today, earlier=[*old.earlier, *old.results, *today.earlier])


def _measured(store: Store, nodes: Collection[str]) -> set[str]:
    """Of these nodes those of which the store holds more than the first contact."""
    found: set[str] = set()
    for key in store.scopes():
        probe, _, part = key.partition("@")
        name = re.sub(r"_gpu\d+$", "", part)
        about = {node for node in (part, name) if node in nodes and probe not in ("node", "nvml")}
        taken = store.read(key) if about - found else None
        found |= about if taken and (taken.results or taken.earlier) else set()
    return found


def _forget(
    store: Store, findings: Findings, probes: Sequence[Probe], same: Set[str], failed: Set[str]
) -> dict[str, str]:
    """Let be measured again what has not proved itself, and all of a node that is another one now; returns which, with
    its node ("" where that is none of today's).

    What was seen after a load says nothing about a load of today: it is always looked at again. A FAIL is a verdict: of
    nodes that have not failed it is one of an optional clause.
    """
    scopes = {key_of(probe.name, scope.name): (probe, scope) for probe, scope in all_scopes(findings, probes)}
    again = {}
    for key in store.scopes():
        probe, scope = scopes.get(key, (None, None))
        if scope and scope.node in failed:
            continue
        last = probe and follows_level(probe)
        if probe and scope and scope.node in same and not last:
            outcomes = [verdict.outcome for _, verdict in findings.verdicts_of(probe, scope)]
            if all(outcome.reusable or outcome is Outcome.FAIL for outcome in outcomes):
                continue
        store.forget(key)
        if not last:
            again[key] = scope.node if scope else ""
    return again


def _read(out: Path) -> RunFile | None:
    try:
        return msgspec.json.decode((out / RUN).read_bytes(), type=RunFile)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _write(out: Path, run: RunFile) -> None:
    write_atomically(out / RUN, _encode(run))


def _encode(run: RunFile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
