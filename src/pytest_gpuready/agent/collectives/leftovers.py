"""Shared memory that NCCL leaves behind where its processes are killed between making a segment and joining it.

Ours are the segments that were not there before the run, belong to our user and are mapped by no process. A segment of
somebody else that is being made at that moment is younger than `AGE_S`, and left alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PLACE = Path("/dev/shm")  # noqa: S108 - where shm_open puts them
NAMES = "nccl-*"
AGE_S = 1.0


def there(place: Path = PLACE) -> set[str]:
    """Names of the segments there are."""
    with contextlib.suppress(OSError):
        return {path.name for path in place.glob(NAMES)}
    return set()


def sweep_out(known: set[str], place: Path = PLACE, proc: Path = Path("/proc"), age_s: float = AGE_S) -> int:
    """Remove those that are new, ours and of nobody's use. Returns how many."""
    fresh = [place / name for name in sorted(there(place) - known)]
    mapped = _mapped(proc) if fresh else ""
    removed = 0
    for path in fresh:
        with contextlib.suppress(OSError):
            status = path.stat()
            old = time.time() - status.st_mtime >= age_s
            if status.st_uid == os.getuid() and old and str(path) not in mapped:
                path.unlink()
                removed += 1
    return removed


def _mapped(proc: Path) -> str:
    """The lines about such segments in the maps of all processes that we may look into."""
    found = []
    for maps in proc.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found += [
                line for line in maps.read_text(encoding="utf-8", errors="replace").splitlines() if "nccl-" in line
            ]
    return "\n".join(found)
