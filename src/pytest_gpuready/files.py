"""Files are whole or not there: written under a temporary name, flushed to the disk and renamed."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_BEHIND = ".tmp"


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` in place of `path` in one step; on any error the old file stays and nothing half-written is left."""
    write_together({path: data})


def write_together(files: Mapping[Path, bytes | Iterable[bytes]]) -> None:
    """Put several files in place, in this order, all or none: renaming starts when each is whole on the disk.

    What is large comes in pieces.

    Where a renaming fails, those before it are taken back. Ctrl-C meanwhile is heard when all are renamed.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, data in files.items():
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_before(path), suffix=_BEHIND)
            written.append((Path(name), path))
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.writelines((data,) if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(descriptor)
        with _undisturbed():
            _rename(written)
    except BaseException:
        for temporary, _ in written:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def unfinished(path: Path) -> list[Path]:
    """What lies beside this file of a process that was killed while it wrote it."""
    return [
        other for other in path.parent.iterdir() if other.name.startswith(_before(path)) and other.suffix == _BEHIND
    ]


def _before(path: Path) -> str:
    return f".{path.name}."


def _rename(written: Sequence[tuple[Path, Path]]) -> None:
    before: list[tuple[Path, bytes | None]] = []
    try:
        for temporary, path in written:
            old = path.read_bytes() if path.exists() else None
            temporary.replace(path)
            before.append((path, old))
    except BaseException:
        for path, old in reversed(before):
            with contextlib.suppress(OSError):
                if old is None:
                    path.unlink()
                else:
                    path.write_bytes(old)
        raise


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that end a process are heard at the end. Python hears them in its main thread alone."""
    heard: list[int] = []
    usual: list[tuple[int, Any]] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not None:  # else it is not Python that hears it
                usual.append((number, signal.signal(number, lambda it, _: heard.append(it))))
    try:
        yield
    finally:
        for number, handler in reversed(usual):
            signal.signal(number, handler)
        for signum in heard:
            signal.raise_signal(signum)
