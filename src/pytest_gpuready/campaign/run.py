"""One acceptance run: its directory, its identity, and how an earlier run in the same directory is treated.

A run that ended INCOMPLETE (or was killed) is continued when it is about the same thing: boot id, GPUs, profile, site
file and basis. Then only what proved itself is kept (PASS, MARGINAL, OBSERVED, judged again from the store). Anything
else in the directory is moved to `DIR.N` and a new run starts. From the first moment on, the certificate in the
directory is one of this run and says INCOMPLETE until the end.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.errors import StoreError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.probes import Probe


class Identity(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What must be equal for an earlier run to be continued."""

    boot_ids: dict[str, str]
    gpus: list[str]
    profile: str
    site: str
    basis: str


class RunFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`run.json`: who this run is. `ended` holds the final status, "" while it goes on."""

    gpuready_run: int
    started: str
    identity: Identity
    ended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open run directory."""

    out: Path
    started: str
    continued: bool
    moved_to: Path | None
    store: Store


def open_run(
    out: Path,
    *,
    store: Store,
    identity: Identity,
    fresh: dict[str, Taken],
    findings: Findings,
    probes: Sequence[Probe],
) -> Run:
    """Continue the run in `out` or start a new one there; `fresh` are results taken just now (the inventory's).

    Raises:
        StoreError: the directory cannot be read or written.
    """
    try:
        earlier = _read(out)
        moved_to = None
        continued = earlier is not None and earlier.ended in ("", "INCOMPLETE") and earlier.identity == identity
        if not continued and out.exists() and any(out.iterdir()):
            if not (out / "run.json").exists():
                raise StoreError(
                    f"expected {out} to be empty or a run directory, found other files; choose another --gpuready-out"
                )
            moved_to = _move_aside(out)
        out.mkdir(parents=True, exist_ok=True)
        started = earlier.started if earlier and continued else _now()
        _write(out, RunFile(gpuready_run=1, started=started, identity=identity))
    except OSError as error:
        raise StoreError(
            f"expected to write in {out}, found {error.strerror}; choose another --gpuready-out"
        ) from error
    for key, taken in fresh.items():
        store.put(key, taken)
    if continued:
        _forget_unproven(store, fresh, findings, probes)
    return Run(out=out, started=started, continued=continued, moved_to=moved_to, store=store)


def join_run(out: Path, store: Store) -> Run:
    """The run that another process opened in this directory.

    Raises:
        StoreError: there is none.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    return Run(out=out, started=run.started, continued=True, moved_to=None, store=store)


def ended(out: Path, status: str) -> bytes:
    """The content of `run.json` once the run has ended: ACCEPTED and REJECTED are finished, INCOMPLETE goes on.

    Raises:
        StoreError: there is no run in this directory.
    """
    run = _read(out)
    if run is None:
        raise StoreError(f"expected an open run in {out}, found none; start pytest again")
    return _encode(msgspec.structs.replace(run, ended=status))


def _forget_unproven(store: Store, fresh: dict[str, Taken], findings: Findings, probes: Sequence[Probe]) -> None:
    """Take out of the store what has a clause that did not prove itself: it is measured again."""
    proven = {
        key_of(probe.name, scope.name)
        for probe in probes
        for node in findings.inventory.nodes
        for scope in probe.scopes(node)
        if all(outcome.reusable for outcome in findings.outcomes_of(probe, scope))
    }
    for key in store.scopes():
        if key not in proven and key not in fresh:
            store.forget(key)
    findings.reread()


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
