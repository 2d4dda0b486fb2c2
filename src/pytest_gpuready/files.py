"""Files are whole or not there: written under a temporary name, flushed to the disk and renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` in place of `path` in one step; on any error the old file stays and nothing half-written is left."""
    write_together({path: data})


def write_together(files: Mapping[Path, bytes | Iterable[bytes]]) -> None:
    """Put several files in place, all or none: renaming starts when every one of them is whole on the disk.

    What is large comes in pieces.

    Where a renaming fails, those before it are taken back.
    """
    written: list[tuple[Path, Path]] = []
    before: list[tuple[Path, bytes | None]] = []
    try:
        for path, data in files.items():
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
            written.append((Path(name), path))
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.writelines((data,) if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(descriptor)
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
        for temporary, _ in written:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
