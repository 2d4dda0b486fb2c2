"""One value as nvidia-smi prints it: a number with its unit, a word, "not available", or a GPU in trouble.

Nothing becomes 0 here. "[N/A]" and its relatives say that there is no value; "[GPU requires reset]", "GPU is lost",
"Unknown Error" and "ERR!" stand where a number belongs because the GPU is in trouble; brackets that say anything else
are unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

Kind = Literal["number", "word", "absent", "fault", "unreadable"]

_NUMBER = re.compile(r"([-+]?\d{1,18}(?:\.\d{1,9})?) ?(x|%|[A-Za-z][A-Za-z/()%]*)?")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_ABSENT = re.compile(
    r"n/a|not supported|not found|function not found|not available|insufficient permissions?|deprecated"
    r"|requested functionality has been deprecated|no permission",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"requires? (?:a )?reset|reset required|is lost|unknown error|err!|fallen off|inaccessible|requires? (?:a )?reboot"
    r"|reboot required",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stood in one place. `number` is None unless `kind` is "number"."""

    text: str
    kind: Kind
    number: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiGpu:
    """One GPU in an output. `index` -1 and `bdf` "" where the layout does not print them.

    `cells`: value by the name that `nvidia-smi --query-gpu` has for it, whatever the layout was.
    """

    index: int = -1
    bdf: str = ""
    cells: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """ "GPU 2", "GPU 0000:1b:00.0" or "GPU 2 0000:1b:00.0"."""
        return " ".join(["GPU", *([str(self.index)] if self.index >= 0 else []), *([self.bdf] if self.bdf else [])])

    def number(self, name: str) -> float | None:
        """The number of that name; None where it was not printed or is no number."""
        found = self.cells.get(name)
        return found.number if found else None

    def word(self, name: str) -> str:
        """The word or number of that name as printed; "" where it was not printed or is not available."""
        found = self.cells.get(name)
        return found.text if found and found.kind in ("word", "number") else ""


@lru_cache(maxsize=8192)
def cell(text: str) -> Cell:
    """What a printed value is."""
    plain = " ".join(text.split())
    bracketed = plain.startswith("[") and plain.endswith("]")
    inner = plain[1:-1].strip() if bracketed else plain
    if not inner or _ABSENT.fullmatch(inner):
        return Cell(text=plain, kind="absent")
    if _FAULT.search(inner) and (bracketed or len(inner) < 60):
        return Cell(text=plain, kind="fault")
    if bracketed:
        return Cell(text=plain, kind="unreadable")
    if _HEX.fullmatch(inner):
        return Cell(text=plain, kind="number", number=float(int(inner, 16)))
    match = _NUMBER.fullmatch(inner)
    if match:
        return Cell(text=plain, kind="number", number=float(match[1]), unit=match[2] or "")
    return Cell(text=plain, kind="word")
