"""What was ever stored in a run directory, one line each, in that order: lines are added, and none is taken out.

It answers two questions that the store's files cannot. Which nodes gave no answer several times in a row: the same for
every process of a run, however it is spread over them. And whether the store still holds all that was measured: where
a file was removed, cut or replaced, the run may not go on as if that had never been seen.

A line is `SCOPE STATE DIGEST...`: the store's name of the scope, `lost` where the transport brought no answer or
`held`, and the sha256 of every output that the scope's file held then. `begun` marks where the run was opened. A line
comes behind its file: of a run that is killed in between the file has more than the journal, never less.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

NAME = "journal"
_BEGUN = "begun"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Journal:
    """The journal of one store, shared by processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0

    def begin(self) -> None:
        """The run is opened, anew or again: what is heard from now on is of this one.

        Raises:
            OSError: it cannot be written.
        """
        self._append(_BEGUN)

    def note(self, key: str, digests: Iterable[str], *, lost: bool) -> None:
        """This scope was stored with these outputs.

        Raises:
            OSError: it cannot be written.
        """
        self._append(" ".join((key, "lost" if lost else "held", *digests)))

    def news(self) -> Iterator[tuple[str, bool]]:
        """What was stored since the last call, scope and whether no answer came; at first since the run was opened.

        Raises:
            OSError: it cannot be read.
        """
        first = not self._read_to
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                read = file.read()
        except FileNotFoundError:
            return
        whole = read[: read.rfind(b"\n") + 1]  # another process may be writing the rest
        self._read_to += len(whole)
        lines = whole.decode("ascii", "replace").splitlines()
        if first and _BEGUN in lines:
            lines = lines[len(lines) - lines[::-1].index(_BEGUN) :]
        for line in lines:
            key, *rest = line.split()[:2] or [""]
            if rest:
                yield key, rest[0] == "lost"

    def held(self) -> dict[str, set[str]] | None:
        """Scope -> every output that was ever stored of it; None where there is no journal.

        Raises:
            OSError: it cannot be read.
        """
        try:
            lines = self._path.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return None
        known: dict[str, set[str]] = defaultdict(set)
        for line in lines:
            key, *words = line.split() or [""]
            if words and all(_DIGEST.fullmatch(word) for word in words[1:]):  # else it was cut: the disk was full
                known[key].update(words[1:])
        return dict(known)

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            # One write: several processes may add a line at the same time.
            torn = file.tell() and not _ends_line(self._path)
            file.write(b"\n" * bool(torn) + line.encode("ascii", "replace") + b"\n")


def _ends_line(path: Path) -> bool:
    """False where the last line of a file was cut: what follows would be read as part of it."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
