"""`dcgmi discovery -l` -> the GPUs that DCGM sees, and how many it says there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

_COUNT = re.compile(r"(\d{1,5}) GPUs? found\b")
_NUMBER = re.compile(r"\|\s*(\d{0,5})\s*\|\s*(.*?)\s*\|$")
_GPU_HEADER = re.compile(r"\|\s*GPU ID\s*\|\s*Device Information\s*\|$")
_FIELD = re.compile(r"(Name|PCI Bus ID|Device UUID|Status): (.*)$")
_INACTIVE = "Use -a flag to show all GPUs"
GPUS_AT_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One GPU; a field is "" where the output does not have it. `trouble`: what DCGM says went wrong with it."""

    number: int
    name: str = ""
    bus_id: str = ""
    status: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """`count` is the number in DCGM's own sentence, None where it is absent; `inactive`: it knows GPUs not shown."""

    count: int | None
    gpus: tuple[Found, ...]
    inactive: bool
    errors: tuple[str, ...] = ()


def discovery(lines: Iterable[str]) -> Discovery:
    """Every GPU of the list.

    Raises:
        ParseError: neither DCGM's sentence nor an error.
    """
    count: int | None = None
    gpus: list[dict[str, str]] = []
    errors: list[str] = []
    inactive = in_gpus = False
    for line in (raw.strip() for raw in lines):
        if (number := _COUNT.match(line)) is not None:
            count = int(number[1])
        elif _GPU_HEADER.match(line):
            in_gpus = True
        elif _INACTIVE in line:
            inactive = True
        elif line.startswith("Error"):
            errors.append(line[:300])
        elif in_gpus and (row := _NUMBER.match(line)) is not None:
            if row[1]:
                gpus.append({"number": row[1]})
            if gpus:
                _take(gpus[-1], row[2])
        elif in_gpus and not line.startswith(("+", "|")):
            in_gpus = False
        if len(gpus) > GPUS_AT_MOST or len(errors) > GPUS_AT_MOST:
            raise ParseError(f"dcgmi discovery -l: expected at most {GPUS_AT_MOST} GPUs, found more; give one run")
    if count is None and not errors:
        raise ParseError("dcgmi discovery -l: expected 'N GPUs found', found no such line; keep all of its output")
    found = tuple(
        Found(
            number=int(gpu["number"]),
            name=gpu.get("Name", "").removesuffix(" (last known)"),
            bus_id=gpu.get("PCI Bus ID", "").removesuffix(" (last known)"),
            status=gpu.get("Status", ""),
            trouble=gpu.get("trouble", ""),
        )
        for gpu in gpus
    )
    return Discovery(count=count, gpus=found, inactive=inactive, errors=tuple(errors))


def _take(gpu: dict[str, str], said: str) -> None:
    field = _FIELD.match(said)
    if field is not None:
        gpu[field[1]] = field[2].strip()
    elif said.startswith(("Error", "Return:")):
        gpu["trouble"] = f"{gpu.get('trouble', '')} {said}".strip()
