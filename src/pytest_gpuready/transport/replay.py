"""Answers commands from a recording: the same judgement on recorded output; no hardware is touched.

A command is found by node, words and the number of the run: no retest stands in for a first run that is missing, and
of two results of one run neither is. To what was lost when it was recorded no answer comes, for the same reason. Beyond
what was recorded there is nothing: a replay invents no second measurement. A command that was not recorded is a
`TransportError`, never an empty answer.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_gpuready.errors import RecordingEndedError, TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.shown import shown
from pytest_gpuready.transport import Ended, one_by_one
from pytest_gpuready.transport.recording import SITE, RecordingMeta, decode_result, read_lost, read_meta, result_files

RECORDINGS = Path(__file__).parent.parent / "recordings"
DEMO = RECORDINGS / "demo"
BUILT_IN = {"demo": DEMO, "demo-dcgm": RECORDINGS / "demo-dcgm"}
"""Name -> recording that the package carries."""


class Replay:
    """The transport that reads a recording; what many nodes printed is read again when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.meta: RecordingMeta = read_meta(directory)
        self.site = directory / SITE if (directory / SITE).is_file() else None
        """The site file that was in force when the node was recorded."""
        # Of each command, by the number that a retest has, whatever the order of the files; of a lost one only why.
        self._results: dict[tuple[str, tuple[str, ...]], dict[int, CommandResult | Path | str]] = defaultdict(dict)
        one = len(self.meta.nodes) == 1
        for path in result_files(directory):
            result = decode_result(path)
            self._add(result.command, result if one else path, path)
        for lost in read_lost(directory):
            self._add(lost.command, lost.why, directory / "lost")

    def _add(self, command: Command, found: CommandResult | Path | str, path: Path) -> None:
        if command.node not in self.meta.nodes:
            raise TransportError(
                f"expected results of the nodes in recording.json, found one of {command.node[:64]!a} in {path}; "
                "record the nodes again"
            )
        runs = self._results[command.node, command.argv]
        if command.repeat in runs:  # nobody knows which of them counts: neither does
            found = (
                f"{command.node}: expected one result of run {command.repeat + 1} of {command.shown!r}, found two, the "
                f"second in {path.parent.name}/{path.name}; record the node again"
            )
        runs[command.repeat] = found

    def run(self, command: Command) -> CommandResult:
        """The recorded result of this command.

        Raises:
            RecordingEndedError: the command was recorded, but not that often.
            TransportError: the recording has no such command.
        """
        key = (command.node, command.argv)
        results = self._results.get(key)
        if not results:
            raise TransportError(self.meta.failed.get(command.node) or self._not_recorded(command))
        recorded = results.get(command.repeat)
        if recorded is None:
            says = (
                f"{command.node}: expected result {command.repeat + 1} of {command.shown!r}, found "
                f"{'no such' if command.repeat < max(results) else len(results)} in {self.directory.name}/; "
                "record the node again"
            )
            raise TransportError(says) if command.repeat < max(results) else RecordingEndedError(says)
        if isinstance(recorded, str):
            raise TransportError(recorded)
        result = decode_result(recorded) if isinstance(recorded, Path) else recorded
        return dataclasses.replace(result, command=command)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """The recorded results of these commands, at once."""
        return one_by_one(self, commands)

    def switches(self) -> Mapping[str, tuple[str, ...]] | None:
        """Node -> what it hung on when it was recorded, from the nearest on; None where nobody asked for that.

        Raises:
            TransportError: it could not be said then.
        """
        if self.meta.switches is None and self.meta.no_switches:
            raise TransportError(self.meta.no_switches)
        return self.meta.switches

    def _not_recorded(self, command: Command) -> str:
        """The reason first: a command is long, and what follows it is cut where room is short."""
        asked = _without_parameters(command.argv)
        words = asked[asked.index("--") + 1 :] if "--" in asked else asked
        where = f"in {self.directory.name}/"
        said = shown(" ".join(words))
        found = f"found none {where} of {said}"
        if any(node == command.node and _without_parameters(argv) == asked for node, argv in self._results):
            changed = "the profile or an option has changed the command"
            found = f"found {said} {where} with other parameters: {changed}"
        return f"{command.node}: expected a recorded result, {found}; record the node again"

    def stop(self) -> None:
        """Nothing runs here."""


def _without_parameters(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command up to the parameters that it gives to a diagnostic (`-p`)."""
    return argv[: argv.index("-p")] if "-p" in argv else argv
