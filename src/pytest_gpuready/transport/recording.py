"""A recording: the results of commands, kept as files, written by a wrapper around any transport.

Layout: `recording.json` (format, date, product, nodes, notes), `results/NNNN.json`, one self-contained result a file,
in the order in which they came, and `lost/NNNN.json`, a command to which no answer came, and why. A file is written
under a temporary name and renamed; until then its own name is claimed by an empty file, which holds nothing.

What cannot be kept costs the recording and not the run: a load whose result was thrown away would be repeated. From
there on nothing more is kept, and the recording says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from pytest_gpuready import __version__
from pytest_gpuready.errors import TransportError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Interrupted, StoppedError, Transport, run_each

Paths = Mapping[str, tuple[str, ...]]
FORMAT = 1
META = "recording.json"
SITE = "site.yaml"


class RecordingMeta(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a recording says about itself. `composed` says how it was put together from others, "" where it was not."""

    gpuready_recording: int
    recorded: str
    product: str
    nodes: list[str]
    note: str = ""
    composed: str = ""
    failed: dict[str, str] = {}
    """Node -> why it could not be asked, the first time."""
    switches: dict[str, tuple[str, ...]] | None = None
    """Node -> what it hangs on, from the nearest switch or block on; None where nobody asked, or nobody could say."""
    no_switches: str = ""
    """Why nobody could say."""
    selected: list[str] = []
    """The nodes that were asked for of those that the site file declares; none where all of them were."""


class Lost(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A command to which no answer came, and why."""

    command: Command
    why: str


class Recording:
    """Passes commands on to a transport and keeps every result under a directory."""

    def __init__(
        self, inner: Transport, directory: Path, *, site: Path | None = None, selected: Sequence[str] = ()
    ) -> None:
        """`site` is the site file, `selected` the nodes that were asked for of those that it declares."""
        self._inner = inner
        self._directory = directory
        self._site = site
        self._selected = tuple(selected)
        self._lock = threading.Lock()
        self._begun = False
        self.incomplete = ""
        """From which command on nothing more was kept, and why; "" while all of it is."""

    def begin(self, nodes: Sequence[str]) -> None:
        """Make the recording of these nodes, before the first of them is asked.

        Raises:
            TransportError: it cannot be kept there.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if self._site:
                write_atomically(self._directory / SITE, self._site.read_bytes())
            append(self._directory, [], nodes=nodes, selected=self._selected)
        except OSError as error:
            raise TransportError(
                f"expected to keep a recording in {self._directory}, found {error.strerror}; choose another directory"
            ) from error
        self._begun = True

    def run(self, command: Command) -> CommandResult:
        """Run the command through the inner transport and keep what it printed, on Ctrl-C too if that was anything."""
        try:
            result = self._inner.run(command)
        except Interrupted as stop:
            if stop.result.stdout.strip():
                self._keep(command, stop.result)
            raise
        except StoppedError:
            raise
        except TransportError as error:
            self._keep(command, lost=Lost(command=command, why=str(error)))
            raise
        self._keep(command, result)
        return result

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run the commands through the inner transport and keep the first result of each, or why there is none, as
        they end.

        A node that gives none is recorded as one that was asked.
        """
        commands = tuple(commands)
        if commands:
            self._keep(commands[0], nodes=[command.node for command in commands])
        left = {command.node for command in commands}
        for command, outcome in run_each(self._inner, commands):
            if command.node not in left:
                pass  # a second result, or one that nobody asked for: it counts for nothing
            elif isinstance(outcome, CommandResult):
                self._keep(command, outcome)
            elif not isinstance(outcome, StoppedError):
                self._keep(command, lost=Lost(command=command, why=str(outcome)))
            left.discard(command.node)
            yield command, outcome

    def switches(self, ask: Callable[[], Paths], nodes: Sequence[str]) -> Paths:
        """What these nodes hang on, as `ask` says it; that is kept, and so is why it could not be said.

        Raises:
            TransportError: it could not.
        """
        try:
            paths = ask()
        except TransportError as error:
            self._keep("the switches", no_switches=str(error))
            raise
        own = {node: tuple(paths[node]) for node in nodes if node in paths}
        self._keep("the switches", switches=own)
        return own

    def _keep(
        self,
        what: Command | str,
        *results: CommandResult,
        nodes: Sequence[str] = (),
        lost: Lost | None = None,
        switches: Paths | None = None,
        no_switches: str = "",
    ) -> None:
        """Keep it, unless something before it was not kept; `what` it comes of is named where it cannot be."""
        with self._lock:
            if self.incomplete:
                return
            try:
                if self._begun and not (self._directory / META).exists():
                    raise FileNotFoundError(errno.ENOENT, f"{META} is gone")
                append(
                    self._directory,
                    list(results),
                    nodes=nodes,
                    lost=lost,
                    switches=switches,
                    no_switches=no_switches,
                    selected=self._selected,
                )
                self._begun = True
            except (OSError, TransportError) as error:
                first = f"{what.shown} on {what.node}" if isinstance(what, Command) else what
                why = error.strerror if isinstance(error, OSError) else error
                self.incomplete = (
                    f"the recording in {self._directory} is incomplete from {first} on: {why}; "
                    "the run kept all results, but its exit code is not 0; make room and record again"
                )

    def stop(self) -> None:
        """End everything that runs through the inner transport."""
        self._inner.stop()


def append(
    directory: Path,
    results: list[CommandResult],
    *,
    nodes: Sequence[str] = (),
    failed: Mapping[str, str] = MappingProxyType({}),
    lost: Lost | None = None,
    selected: Sequence[str] = (),
    switches: Paths | None = None,
    no_switches: str = "",
    note: str = "",
    composed: str = "",
    recorded: str = "",
) -> None:
    """Add results to a recording, which is made where there is none.

    `nodes` were asked, whether or not they answered, `failed` says why one could not be; `lost` is a command to which
    no answer came, `selected` as in `RecordingMeta`; `switches` is what nodes hang on, `no_switches` why that is not
    known; `recorded` is when, if not now (UTC ISO 8601).
    """
    folder = directory / "results"
    folder.mkdir(parents=True, exist_ok=True)
    meta = read_meta(directory) if (directory / META).exists() else None
    asked = {*(meta.nodes if meta else ()), *nodes}
    for result in results:
        asked.add(result.command.node)
        _next_file(folder, encode_result(result))
    if lost:
        asked.add(lost.command.node)
        failed = {**failed, lost.command.node: lost.why}
        _next_file(directory / "lost", msgspec.json.format(msgspec.json.encode(lost), indent=1) + b"\n")
    meta = RecordingMeta(
        gpuready_recording=FORMAT,
        recorded=recorded or (meta.recorded if meta else _now()),
        product=f"pytest-gpuready {__version__}",
        nodes=sorted(asked),
        note=note or (meta.note if meta else ""),
        composed=composed or (meta.composed if meta else ""),
        failed={**failed, **(meta.failed if meta else {})},
        switches=dict(switches) if switches is not None else meta.switches if meta else None,
        no_switches=no_switches or (meta.no_switches if meta else ""),
        selected=sorted(selected) or (meta.selected if meta else []),
    )
    write_atomically(directory / META, msgspec.json.format(msgspec.json.encode(meta), indent=1))


def _next_file(folder: Path, data: bytes) -> None:
    """Keep these bytes under the next number, or nothing. It is claimed with O_EXCL: several processes may record side
    by side."""
    folder.mkdir(exist_ok=True)
    number = sum(1 for _ in folder.glob("*.json"))
    while True:
        path = folder / f"{number:04d}.json"
        number += 1
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            continue
    try:
        write_atomically(path, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def read_meta(directory: Path) -> RecordingMeta:
    """What the recording says about itself.

    Raises:
        TransportError: there is no recording in that directory, or it is of another format.
    """
    path = directory / META
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=RecordingMeta)
    except OSError as error:
        raise TransportError(
            f"expected a recording, found no readable {path} ({error.strerror}); make one with --gpuready-record DIR"
        ) from error
    except msgspec.DecodeError as error:
        raise TransportError(f"expected a recording in {path}, found {error}; record the node again") from error
    if meta.gpuready_recording != FORMAT:
        raise TransportError(
            f"expected recording format {FORMAT}, found {meta.gpuready_recording} in {path}; record the node again"
        )
    return meta


def result_files(directory: Path) -> list[Path]:
    """The files of a recording, in the order in which their results were recorded."""
    return _files(directory / "results")


def _files(folder: Path) -> list[Path]:
    """The numbered files of a folder, in their order, without the claims of who was killed before it wrote."""
    found = sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name))
    return [path for path in found if path.stat().st_size]


def read_lost(directory: Path) -> list[Lost]:
    """The commands of a recording to which no answer came, in the order in which that was known.

    Raises:
        TransportError: a file of it cannot be read.
    """
    lost = []
    for path in _files(directory / "lost"):
        try:
            lost.append(msgspec.json.decode(path.read_bytes(), type=Lost))
        except (OSError, msgspec.DecodeError) as error:
            raise TransportError(f"expected a lost command in {path}, found {error}; record it again") from error
    return lost


def read_results(directory: Path) -> list[CommandResult]:
    """All results of a recording, in the order in which they were recorded.

    Raises:
        TransportError: a file of it cannot be read.
    """
    return [decode_result(path) for path in result_files(directory)]


def encode_result(result: CommandResult) -> bytes:
    """A result as a JSON file."""
    return msgspec.json.format(msgspec.json.encode(dataclasses.asdict(result)), indent=1) + b"\n"


def decode_result(path: Path) -> CommandResult:
    """A result from its JSON file.

    Raises:
        TransportError: the file is not a result.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=CommandResult)
    except (OSError, msgspec.DecodeError) as error:
        raise TransportError(f"expected the result of a command in {path}, found {error}; record it again") from error
