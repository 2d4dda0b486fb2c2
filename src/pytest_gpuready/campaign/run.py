"""One acceptance run: its directory, its identity, and how an earlier run in the same directory is treated.

A run that ended INCOMPLETE (or was killed) is continued when it is about the same thing: boot id, GPUs, driver,
profile, site file and basis. Then only what proved itself is kept (PASS, MARGINAL, OBSERVED, judged again from the
store); what did not is measured again and stays among the evidence as an earlier attempt. So does what was seen after a
load: it is looked at again, behind the loads of today. A run that has seen a FAIL, if only in one of several
measurements, is never continued: measuring until it fits is not acceptance. Anything else in the directory is moved to
`DIR.N` and a new run starts. From the first moment on, the certificate in the directory is one of this run and says
INCOMPLETE until the end. A lock in the directory keeps a second run, of another machine that shares it, out.
"""

from __future__ import annotations

import datetime
import fcntl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.errors import LeaseError, StoreError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.model import Outcome, Part
from pytest_gpuready.probes import Probe, follows_level


class Identity(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What must be equal for an earlier run to be continued. An unknown boot id ("") equals none."""

    boot_ids: dict[str, str]
    gpus: list[str]
    driver: list[str]
    profile: str
    site: str
    basis: str
    product: str
    burn: str = ""

    def same_as(self, other: Identity) -> bool:
        """True where both are about the same machine, in the same state, judged by the same rules."""
        return self == other and all(self.boot_ids.values())


class RunFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`run.json`: who this run is. `ended` holds the final status, "" while it goes on."""

    gpuready_run: int
    started: str
    identity: Identity
    ended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open run directory. `measured_again` names scopes whose earlier attempt proved nothing; `lock` keeps others
    out while it is open (None in a worker, which shares the lock of its controller)."""

    out: Path
    started: str
    continued: bool
    moved_to: Path | None
    measured_again: tuple[str, ...]
    store: Store
    lock: TextIO | None


def open_run(
    out: Path,
    *,
    store: Store,
    identity: Identity,
    fresh: dict[str, Taken],
    findings: Findings,
    probes: Sequence[Probe],
    anew: bool = False,
) -> Run:
    """Continue the run in `out` or start a new one there; `fresh` are results taken just now (the inventory's).

    With `anew` no run is continued: what is recorded of this one has to be all of it.

    Raises:
        LeaseError: another run is writing to this directory.
        StoreError: the directory cannot be read or written.
    """
    try:
        moved_to = lock = None
        continued = False
        started = _now()
        if out.exists() and any(out.iterdir()):
            earlier = _read(out)
            if earlier is None and not (out / "run.json").exists():
                raise StoreError(
                    f"expected {out} to be empty or a run directory, found other files; choose another --gpuready-out"
                )
            lock = _lock(out)
            continued = (
                earlier is not None
                and not anew
                and earlier.ended in ("", "INCOMPLETE")
                and earlier.identity.same_as(identity)
                and not _failed(findings, probes)
            )
            if continued and earlier:
                started = earlier.started
            else:
                moved_to = _move_aside(out)
                lock.close()
                lock = None
        out.mkdir(parents=True, exist_ok=True)
        lock = lock or _lock(out)
        _write(out, RunFile(gpuready_run=1, started=started, identity=identity))
    except OSError as error:
        raise StoreError(
            f"expected to write in {out}, found {error.strerror}; choose another --gpuready-out"
        ) from error
    again: tuple[str, ...] = ()
    if continued:
        last = {key_of(p.name, s.name) for p, s in _scopes(findings, probes) if follows_level(p)}
        again = tuple(key for key in _unproven(store, findings, probes) if key not in last)
        # What was seen after a load says nothing about a load of today: it is always looked at again.
        for key in (*again, *last):
            store.forget(key)
    for key, taken in fresh.items():
        old = store.read(key)
        kept = [*old.earlier, *old.results] if old and continued else []
        store.put(key, msgspec.structs.replace(taken, earlier=kept))
    findings.reread()
    return Run(
        out=out, started=started, continued=continued, moved_to=moved_to, measured_again=again, store=store, lock=lock
    )


def join_run(out: Path, store: Store) -> Run:
    """The run that another process opened in this directory.

    Raises:
        StoreError: there is none.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    return Run(out=out, started=run.started, continued=True, moved_to=None, measured_again=(), store=store, lock=None)


def ended(out: Path, status: str) -> bytes:
    """The content of `run.json` once the run has ended: ACCEPTED and REJECTED are finished, INCOMPLETE goes on.

    Raises:
        StoreError: there is no run in this directory.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    return _encode(msgspec.structs.replace(run, ended=status))


def _scopes(findings: Findings, probes: Sequence[Probe]) -> list[tuple[Probe, Part]]:
    return [(probe, scope) for probe in probes for node in findings.inventory.nodes for scope in probe.scopes(node)]


def _failed(findings: Findings, probes: Sequence[Probe]) -> bool:
    """True where something in the store has FAILed already, if only in one run of several or in an earlier attempt."""
    return any(
        Outcome.FAIL in findings.outcomes_of(probe, scope) or findings.failed_alone(probe, scope)
        for probe, scope in _scopes(findings, probes)
    )


def _unproven(store: Store, findings: Findings, probes: Sequence[Probe]) -> tuple[str, ...]:
    """Stored scopes with a clause that did not prove itself: they are to be measured again."""
    proven = {
        key_of(probe.name, scope.name)
        for probe, scope in _scopes(findings, probes)
        if all(outcome.reusable for outcome in findings.outcomes_of(probe, scope))
    }
    return tuple(key for key in store.scopes() if key not in proven)


def _lock(out: Path) -> TextIO:
    """The lock of a run directory, held until it is closed.

    Raises:
        LeaseError: another run holds it.
    """
    file = (out / "run.lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise LeaseError(
            f"expected {out} free, found another run writing to it; wait for its end or choose another --gpuready-out"
        ) from error
    return file


def _read(out: Path) -> RunFile | None:
    try:
        return msgspec.json.decode((out / "run.json").read_bytes(), type=RunFile)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _write(out: Path, run: RunFile) -> None:
    write_atomically(out / "run.json", _encode(run))


def _encode(run: RunFile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"


def _move_aside(out: Path) -> Path:
    number = 1
    while (target := out.with_name(f"{out.name}.{number}")).exists():
        number += 1
    return out.rename(target)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
