"""The measurement store: what commands printed, kept in the run directory, taken once whoever asks first.

One file per probe and scope, `store/<probe>@<part>.json`, holds the results of that command: the first run and its
retests, or why the transport could not run it. A measurement is one fan-out over all nodes, under a lock: several
pytest processes share it. Everything else (measurements, verdicts, gates) is derived from these files, so that it can
be judged again. Each raw output also lies under `evidence/`, named by its sha256, and each is noted in the journal.

Where a result cannot be kept (the disk is full) nothing more is measured: a load that leaves no trace proves nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pytest_gpuready.campaign.journal import NAME, Journal
from pytest_gpuready.errors import RecordingEndedError, StoreError, TransportError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import LostError, StoppedError, Transport, run_each

NOT_AGAIN = " (not asked again)"
"""Behind why a node gave no answer: it was lost, and this command was not even sent to it."""

BUSY_S = 4 * 3600.0
"""How long a measurement waits for its turn."""


class Taken(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """All results of one command on one scope; `problem` says why there is none.

    `earlier` are results of an earlier attempt of this run that proved nothing: they do not count, and stay evidence.
    """

    results: list[CommandResult] = []
    problem: str = ""
    earlier: list[CommandResult] = []

    @property
    def empty(self) -> bool:
        """True where the scope has yet to be measured."""
        return not self.results and not self.problem


class Store:
    """Results of commands under one run directory, shared by processes."""

    def __init__(self, root: Path, transport: Transport) -> None:
        self._root = root
        self._transport = transport
        self._journal = Journal(root / "store" / NAME)
        self._full: StoreError | None = None

    def begin(self) -> None:
        """What is stored from now on is of the run that has just been opened.

        Raises:
            StoreError: the run directory cannot be written.
        """
        try:
            self._journal.begin()
        except OSError as error:
            raise self._no_room(error) from error

    def news(self) -> list[tuple[str, bool]]:
        """What was stored in this run, by any process of it, since the last call: scope, and whether no answer came.

        Raises:
            StoreError: the run directory cannot be read.
        """
        try:
            return list(self._journal.news())
        except OSError as error:
            raise StoreError(
                f"expected to read the journal of {self._root}, found {error.strerror}; choose another --gpuready-out"
            ) from error

    def damage(self) -> str:
        """What is no longer there of all that was ever stored, in words; "" where all of it is."""
        try:
            known = self._journal.held()
            if known is None:
                return "its journal is gone"
            for key, digests in known.items():
                taken = self.read(key) or Taken()
                if digests - {digest(result) for result in (*taken.earlier, *taken.results)}:
                    return f"results of {key} are gone from its store"
            for key in self.scopes():
                if key not in known:
                    self.read(key)
        except (StoreError, OSError):
            return "a file of its store cannot be read"
        return ""

    def take(self, commands: Mapping[str, Command]) -> None:
        """Run these commands, scope -> its command, where there are no results yet: one fan-out, one command a node.

        Raises:
            StoreError: the run directory cannot be read, written or locked.
        """
        if self._missing(commands):
            with self._busy():
                self._run(self._missing(commands))

    def again(self, commands: Mapping[str, Command], *, runs: int) -> None:
        """Run these commands once more until their scopes have `runs` results.

        A recording that holds no retest leaves a scope at what was measured.

        Raises:
            StoreError: the run directory cannot be read, written or locked.
        """
        left = dict(commands)
        with self._busy():
            while left:
                due = {}
                for key, command in list(left.items()):
                    taken = self.read(key) or Taken()
                    if taken.problem or len(taken.results) >= runs:
                        del left[key]
                    else:
                        due[key] = dataclasses.replace(command, repeat=len(taken.results))
                for key in self._run(due):
                    del left[key]

    def put(self, key: str, taken: Taken) -> None:
        """Keep results that were taken before the store was open (the inventory's)."""
        self._write(key, taken)

    def scopes(self) -> list[str]:
        """Scopes that are in the store."""
        return sorted(path.stem for path in (self._root / "store").glob("*.json"))

    def forget(self, key: str) -> None:
        """Let a scope be measured again; what it held stays as an earlier attempt."""
        taken = self.read(key)
        if taken and not taken.empty:
            self._write(key, Taken(earlier=[*taken.earlier, *taken.results]))

    def restore_evidence(self) -> None:
        """Write again whatever raw output is missing or no longer what its name says: the store holds it, too.

        Raises:
            StoreError: the run directory cannot be used.
        """
        for key in self.scopes():
            taken = self.read(key)
            if taken:
                self._keep_evidence(taken)

    def file_digest(self, key: str) -> bytes:
        """sha256 of the file of this scope as it lies there; b"" where none can be read."""
        try:
            return hashlib.sha256(self._path(key).read_bytes()).digest()
        except OSError:
            return b""

    def read(self, key: str) -> Taken | None:
        """What is stored for this scope.

        Raises:
            StoreError: the file is unreadable or is not a store file.
        """
        path = self._path(key)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Taken)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # Whoever removes the file would have what it said measured again until it fits.
            raise StoreError(
                f"expected results of commands in {path}, found {error}; start in a new directory (--gpuready-out)"
            ) from error

    def _missing(self, commands: Mapping[str, Command]) -> dict[str, Command]:
        return {key: command for key, command in commands.items() if (self.read(key) or Taken()).empty}

    def _run(self, commands: Mapping[str, Command]) -> list[str]:
        """Run the commands and keep what comes of each as it ends. Returns scopes of which a recording holds no more.

        On Ctrl-C what they still said is kept before the interrupt goes on; who said nothing has not been measured.
        """
        if self._full:
            raise self._full
        keys = {command.node: key for key, command in commands.items()}
        ended: list[str] = []
        silent: dict[str, CommandResult] = {}
        for command, outcome in run_each(self._transport, commands.values()):
            key = keys.pop(command.node, "")
            if not key:
                continue  # a second result, or one that nobody asked for
            if isinstance(outcome, RecordingEndedError):
                ended.append(key)
            elif isinstance(outcome, CommandResult) and not outcome.stdout.strip():
                silent[key] = outcome
            elif not isinstance(outcome, StoppedError):
                self._add(key, outcome)
        for key, result in silent.items():
            self._add(key, result)
        return ended

    def _add(self, key: str, outcome: CommandResult | TransportError) -> None:
        before = self.read(key) or Taken()
        if isinstance(outcome, CommandResult):
            self._write(key, msgspec.structs.replace(before, results=[*before.results, outcome]))
            return
        partial = [outcome.partial] if isinstance(outcome, LostError) and outcome.partial.stdout.strip() else []
        earlier = [*before.earlier, *partial]
        self._write(key, msgspec.structs.replace(before, problem=str(outcome), earlier=earlier))

    def _write(self, key: str, taken: Taken) -> None:
        self._keep_evidence(taken)
        try:
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.format(msgspec.json.encode(taken), indent=1))
            digests = dict.fromkeys(digest(result) for result in (*taken.earlier, *taken.results))
            self._journal.note(key, digests, lost=bool(taken.problem))
        except OSError as error:
            raise self._no_room(error) from error

    def _keep_evidence(self, taken: Taken) -> None:
        """Each raw output under its digest, whatever lay there before."""
        try:
            for result in (*taken.earlier, *taken.results):
                name = digest(result)
                path = self._root / "evidence" / f"{name}.txt"
                if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != name:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, result.stdout.encode("utf-8", "replace"))
        except OSError as error:
            raise self._no_room(error) from error

    def _no_room(self, error: OSError) -> StoreError:
        """Why a result cannot be kept; nothing is measured any more."""
        self._full = StoreError(
            f"expected to keep a measurement under {self._root}, found {error.strerror}; make room and run again"
        )
        return self._full

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """One fan-out of a run at a time: of several workers, two would measure each other."""
        path = self._root / "store" / "busy.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        except OSError as error:
            raise StoreError(f"expected to lock {path}, found {error.strerror}; make the directory writable") from error
        with file:
            deadline = time.monotonic() + BUSY_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise StoreError(
                            f"expected to get {path} within {BUSY_S:.0f} s, found it locked; end the other process"
                        ) from error
                    time.sleep(0.02)
            yield

    def _path(self, key: str) -> Path:
        return self._root / "store" / f"{key}.json"


def digest(result: CommandResult) -> str:
    """sha256 of what the command printed on stdout: the name of the evidence."""
    return hashlib.sha256(result.stdout.encode("utf-8", "replace")).hexdigest()


def key_of(probe: str, part: str) -> str:
    """The store's name of one scope: "copies@node01_gpu3"."""
    return f"{probe}@{part.replace('/', '_')}"
